#!/usr/bin/env bash
# Every model of models/ in a small size on virtual ranks against one device, planned and data-parallel by rules: in f32,
# or in 16 bits (half: on the reference backend). Usage: verify_models.sh BIN_DIR quick|all|half
set -u
bin=$1 which=$2
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

text="--dim batch=4 --dim layers=2 --dim length=8"
gpt="$text --dim heads=4 --dim d_head=4 --dim vocab=64"
llama="$text --dim vocab=32 --dim kv_heads=2 --dim group=2 --dim d_head=4 --dim d_ff=24"
# model | sizes. Mixtral twice: with eight experts some have hardly any gradient, which Adam makes full steps of
models=(
    "mlp_digits|"
    "gpt_bytes|$text --dim heads=4 --dim d_head=8"
    "gpt_bytes_dropout|$text --dim heads=4 --dim d_head=8"
    "gpt2_small|$gpt --dim positions=16"
    "gpt3_175b|$gpt"
    "mtf_lm|$text --dim max_length=8 --dim vocab=64 --dim heads=4 --dim d_kv=4 --dim d_model=16 --dim d_ff=32"
    "llama3_8b|$llama"
    "llama3_70b|$llama"
    "mixtral_8x7b|$llama --dim experts=4 --dim capacity=3"
    "mixtral_8x7b|--dim batch=4 --dim layers=4 --dim length=32 --dim vocab=128 --dim kv_heads=2 --dim group=2 --dim d_head=16 --dim d_ff=96 --dim experts=8 --dim capacity=10"
    "bert_large|$text --dim heads=4 --dim d_head=4 --dim vocab=62"
    "vit_b16|--dim batch=4 --dim layers=2 --dim image=32 --dim patch=8 --dim heads=4 --dim d_head=4 --dim classes=10"
)
# mesh | options of planning
plans=(
    "x:2|--rules batch:x"
    "x:2;y:2|--mode rules --objective memory --machine models/machines/l4_16.json"
)
[ "$which" = all ] && plans+=(
    "x:4|--rules batch:x"
    "x:2|--mode rules --machine models/machines/cpu_2.json"
    "x:2|--mode rules --objective memory --machine models/machines/h100_64.json"
    "x:2|--mode tensor --machine models/machines/cpu_2.json"
    "x:2|--mode tensor --objective memory --machine models/machines/h100_64.json"
    "x:2;y:2|--mode tensor --objective memory --machine models/machines/l4_16.json"
)
backend=(--threads 1)
if [ "$which" = half ]; then
    backend=(--backend ref --steps 1)
    plans=(
        "x:2|--rules batch:x --precision bf16 --target ref"
        "x:2;y:2|--mode rules --objective memory --machine models/machines/l4_16.json --precision f16,gradients=f32 --target ref"
    )
    models=("${models[@]/*experts=8*/}") # a rounding that changes which experts are chosen is no small error
fi

count=0 failed=0
for entry in "${models[@]}"; do
    [ -n "$entry" ] || continue
    IFS='|' read -r model sizes <<<"$entry"
    feed=()
    [[ $model == gpt_bytes* ]] && feed=(--feed text=models/data/text.txt)
    for plan in "${plans[@]}"; do
        IFS='|' read -r mesh options <<<"$plan"
        [[ $options == *--machine* ]] || options+=" --machine models/machines/h100_64.json"
        count=$((count + 1))
        # shellcheck disable=SC2086
        "$bin/dtplan" plan "models/$model.json" $sizes --mesh "$mesh" $options -o "$dir/plan.json" >"$dir/plan.txt" &&
            "$bin/dtrun" verify "models/$model.json" $sizes --plan "$dir/plan.json" --comm sim "${backend[@]}" "${feed[@]}" \
                >"$dir/verify.txt" &&
            echo "$model on '$mesh' $options: $(tail -1 "$dir/verify.txt")" && continue
        echo "FAIL: $model on '$mesh' $options"
        cat "$dir/verify.txt"
        failed=$((failed + 1))
    done
done
echo "$count plans verified, $failed failed"
[ $failed -eq 0 ]
