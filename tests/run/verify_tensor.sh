#!/usr/bin/env bash
# Plans of tensor mode through the tools, for every shipped model that is small or can be made small: each plan is
# verified against one device, and run with the losses of one device, the predicted peak and the predicted number of
# collectives. Every model is planned for a slow network without a memory limit and near the least memory, and
# for a fast network without a limit and for the least memory.
# Usage: verify_tensor.sh BIN_DIR sim|mpi MESHES MODELS, e.g. verify_tensor.sh build/dev/bin sim 'x:2 x:2,y:2' all
set -u
bin=$1 comm=$2 meshes=${3//,/;} wanted=$4
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
how=(--comm "$comm" --threads 1)
[ "$comm" = mpi ] && [ "$(id -u)" -eq 0 ] && how+=(--allow-run-as-root)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

text="--dim batch=4 --dim layers=2 --dim length=8"
llama="$text --dim vocab=32 --dim kv_heads=2 --dim group=2 --dim d_head=4 --dim d_ff=24"
# model | sizes | choices of planning
models=(
    "mlp_digits||"
    "gpt_bytes|$text --dim heads=4 --dim d_head=8|"
    "gpt_bytes_dropout|$text --dim heads=4 --dim d_head=8|"
    "gpt_bytes_dropout|$text --dim heads=4 --dim d_head=8|--remat all"
    "gpt2_small|$text --dim heads=4 --dim d_head=4 --dim vocab=64 --dim positions=16|"
    "mtf_lm|$text --dim max_length=8 --dim vocab=64 --dim heads=4 --dim d_kv=4 --dim d_model=16 --dim d_ff=32|"
    "llama3_8b|$llama|"
    "llama3_8b|$llama|--remat all"
    "mixtral_8x7b|$llama --dim experts=4 --dim capacity=3|"
    "bert_large|$text --dim heads=4 --dim d_head=4 --dim vocab=62|"
    "vit_b16|--dim batch=4 --dim layers=2 --dim image=32 --dim patch=8 --dim heads=4 --dim d_head=4 --dim classes=10|"
)

peak() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["predicted"]["peak_bytes"])' "$1"; }

# plan FILE MESH MACHINE OPTIONS: a plan of tensor mode for $model, $sizes and $choices; any plan will do, so that none is
# searched for longer than it takes to come within 2 % of its bound
plan() {
    local file=$1 mesh=$2 machine=$3
    shift 3
    # shellcheck disable=SC2086
    "$bin/dtplan" plan "models/$model.json" $sizes $choices --mode tensor --gap 0.02 --mesh "$mesh" \
        --machine "models/machines/$machine.json" -o "$file" "$@" >"$dir/plan.txt"
}

# proves FILE: the plan computes what one device computes, in the memory and with the collectives that were predicted
proves() {
    # shellcheck disable=SC2086
    "$bin/dtrun" verify "models/$model.json" $sizes --plan "$1" "${how[@]}" "${feed[@]}" >"$dir/verify.txt" 2>&1 ||
        { grep -E 'MISMATCH|FAIL' "$dir/verify.txt"; return 1; }
    # shellcheck disable=SC2086
    "$bin/dtrun" run "models/$model.json" $sizes --plan "$1" "${how[@]}" "${feed[@]}" --steps 3 --quiet --json \
        -o "$dir/run.json" && python3 - "$1" "$dir/run.json" "$dir/one.json" <<'P'
import json, sys
plan, run, one = (json.load(open(path)) for path in sys.argv[1:])
predicted, peaks = plan["predicted"], run["measured"]["peak_bytes_per_rank"]
assert plan["mode"] == "tensor" and len(run["loss"]) == 3
assert all(p == predicted["peak_bytes"] for p in peaks), (peaks, predicted["peak_bytes"])
planned = sum(c["count"] for c in predicted["collectives"].values())
counted = sum(c["count"] for c in run["collectives"])
assert planned == counted, (planned, counted)
assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(run["loss"], one["loss"])), (run["loss"], one["loss"])
P
}

count=0 failed=0
for entry in "${models[@]}"; do
    IFS='|' read -r model sizes choices <<<"$entry"
    [ "$wanted" = all ] || [[ " $wanted " == *" $model "* ]] || continue
    feed=()
    [[ $model == gpt_bytes* ]] && feed=(--feed text=models/data/text.txt)
    # shellcheck disable=SC2086
    "$bin/dtrun" run "models/$model.json" $sizes --comm self --steps 3 --quiet "${feed[@]}" --json \
        -o "$dir/one.json" || exit 1
    for mesh in $meshes; do
        slow=l4_16
        [ "$mesh" = x:2 ] && slow=cpu_2
        plan "$dir/fast.json" "$mesh" h100_64 && plan "$dir/least.json" "$mesh" h100_64 --objective memory &&
            plan "$dir/slow.json" "$mesh" $slow &&
            plan "$dir/tight.json" "$mesh" $slow --memory $((($(peak "$dir/slow.json") + 3 * $(peak "$dir/least.json")) / 4)) ||
            { echo "FAIL: $model $choices on '$mesh' has no plan"; failed=$((failed + 1)); }
        for name in fast least slow tight; do
            count=$((count + 1))
            [ -f "$dir/$name.json" ] && proves "$dir/$name.json" && continue
            echo "FAIL: $model $choices on '$mesh', $name"
            failed=$((failed + 1))
        done
        rm -f "$dir"/{fast,least,slow,tight}.json
    done
done
echo "$count plans of tensor mode, $failed failed"
[ $count -gt 0 ] && [ $failed -eq 0 ]
