/* Sizes at which the models of models/ are planned and run, as texts for plan_model. */
#ifndef DTP_TESTS_SUPPORT_PLAN_MODELS_H
#define DTP_TESTS_SUPPORT_PLAN_MODELS_H

#define SMALL_TEXT "batch=4 layers=2 length=8 "
#define SMALL_GPT_BYTES SMALL_TEXT "heads=4 d_head=8"
#define SMALL_GPT SMALL_TEXT "heads=4 d_head=4 vocab=64 "
#define SMALL_MTF SMALL_TEXT "max_length=8 vocab=64 heads=4 d_kv=4 d_model=16 d_ff=32"
#define SMALL_LLAMA SMALL_TEXT "vocab=32 kv_heads=2 group=2 d_head=4 d_ff=24 "
#define SMALL_BERT SMALL_TEXT "heads=4 d_head=4 vocab=62"
#define SMALL_VIT "batch=4 layers=2 image=32 patch=8 heads=4 d_head=4 classes=10"

#endif
