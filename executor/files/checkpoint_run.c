/* Keys and memory of the texts of a run. */
#include <stdlib.h>

#include "executor/files/checkpoint.h"

const char *dtp_run_text_key(dtp_run_text which)
{
    static const char *const keys[] = {"run_inputs",    "run_data",  "run_model",
                                       "run_optimizer", "run_rates", "run_files"};
    return keys[which];
}

void dtp_run_texts_free(dtp_run_texts *texts)
{
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        free(texts->text[i]);
    }
    *texts = (dtp_run_texts){0};
}
