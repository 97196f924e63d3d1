#!/usr/bin/env bash
# Plans in mixed precision, from rules, styles and the planner, alone and with recomputation and microbatches: each is
# verified on virtual ranks against one device in the same precision and run with the predicted peak and the predicted
# number of collectives. Usage: verify_precision.sh BIN_DIR
set -u
bin=$1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
small="--dim length=8 --dim heads=2 --dim d_head=4 --dim batch=4 --dim layers=2 --dim vocab=256"
feed="--feed text=models/data/text.txt"
count=0 failed=0
while IFS='|' read -r layouts choices; do
    count=$((count + 1))
    # shellcheck disable=SC2086
    "$bin/dtplan" plan models/gpt_bytes_dropout.json $small $layouts $choices --target ref --machine models/machines/a100_8.json \
        -o "$dir/plan.json" >"$dir/plan.txt" &&
        "$bin/dtrun" verify models/gpt_bytes_dropout.json $small --plan "$dir/plan.json" --backend ref --comm sim $feed \
            >"$dir/verify.txt" &&
        "$bin/dtrun" run models/gpt_bytes_dropout.json $small --plan "$dir/plan.json" --backend ref --comm sim $feed \
            --steps 2 --quiet --json -o "$dir/run.json" &&
        python3 - "$dir/plan.json" "$dir/run.json" <<'P' && continue
import json, sys
plan, run = (json.load(open(path)) for path in sys.argv[1:])
peaks = run["measured"]["peak_bytes_per_rank"]
assert all(p == plan["predicted"]["peak_bytes"] for p in peaks), (peaks, plan["predicted"]["peak_bytes"])
planned = sum(c["count"] for c in plan["predicted"]["collectives"].values())
counted = sum(c["count"] for c in run["collectives"])
assert planned == counted, (planned, counted)
P
    echo "FAIL: $layouts $choices"
    tail -n 3 "$dir/verify.txt"
    failed=$((failed + 1))
done <<'CASES'
--mesh x:2 --rules batch:x|--precision bf16
--mesh x:2 --rules batch:x|--precision bf16,gradients=f32 --remat all --microbatches 2
--mesh x:2;y:2 --rules batch:x;heads:y;d_ff:y;vocab:y|--precision f16 --remat layer:0 --microbatches 2
--mesh x:2 --rules length:x|--precision bf16
--mesh x:2;y:2 --mode tensor|--precision bf16
--mesh x:4 --mode tensor --objective memory|--precision bf16 --microbatches 2 --remat layer
--mesh x:2 --style **:data --style **:zero2|--precision bf16
--mesh x:2 --style **:data --style **:fsdp|--precision bf16 --remat all
--mesh x:2 --style **:data --style **:fsdp|--precision f16,gradients=f32 --microbatches 2
--mesh tp:2 --style layers.*.{attn.{q,k,v}*,mlp.up*}:colwise --style layers.*.{attn.mm,mlp.down.mm}:rowwise(output=length) --style {layers.*.ln_*,ln_f}:sequence|--precision bf16
--mesh cp:2 --style layers.*.attn:context(ring) --pin x0:length@cp|--precision bf16
CASES
# What FSDP and data parallelism send: parameters in 16 bits, gradients in 16 bits or in f32.
while IFS='|' read -r style precision kind dtypes; do
    count=$((count + 1))
    # shellcheck disable=SC2086
    "$bin/dtplan" plan models/gpt_bytes.json $small --mesh x:2 --style "**:data" --style "**:$style" --precision $precision --target ref \
        -o "$dir/plan.json" >"$dir/plan.txt" &&
        "$bin/dtplan" show models/gpt_bytes.json $small --plan "$dir/plan.json" --stage program >"$dir/program.txt"
    found=$(sed -n "s/.*\(forward\|backward\) *start *$kind.*, [0-9]* x \([a-z0-9]*\) .*/\1 \2/p" "$dir/program.txt" |
        sort -u | paste -sd, -)
    [ "$found" = "$dtypes" ] && continue
    echo "FAIL: $style in $precision: $kind of '$found', not '$dtypes'"
    failed=$((failed + 1))
done <<'CASES'
fsdp|bf16|all_gather|forward bf16
fsdp|bf16|reduce_scatter|backward bf16
fsdp|bf16,gradients=f32|all_gather|forward bf16
fsdp|bf16,gradients=f32|reduce_scatter|backward f32
zero2|f16|reduce_scatter|backward f16
zero1|bf16|all_reduce|backward bf16,forward f32
CASES
echo "$count plans verified, $failed failed"
[ $failed -eq 0 ]
