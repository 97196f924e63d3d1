#!/usr/bin/env bash
# Plans with recomputed blocks and microbatches, from rules and from styles: each is verified on virtual ranks against
# the unchanged model on one device, run with the predicted peak, the predicted number of collectives and the same loss
# as the others, and shown. Usage: verify_saving.sh BIN_DIR
set -u
bin=$1
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
small="--dim length=16 --dim heads=4 --dim batch=8 --dim layers=2"
feed="--feed text=models/data/text.txt"
count=0 failed=0
while IFS='|' read -r layouts choices; do
    count=$((count + 1))
    # shellcheck disable=SC2086
    "$bin/dtplan" plan models/gpt_bytes_dropout.json $small $layouts $choices --machine models/machines/a100_8.json \
        -o "$dir/plan.json" >"$dir/plan.txt" &&
        "$bin/dtrun" verify models/gpt_bytes_dropout.json --threads 1 $small --plan "$dir/plan.json" --comm sim $feed >"$dir/verify.txt" &&
        "$bin/dtrun" run models/gpt_bytes_dropout.json --threads 1 $small --plan "$dir/plan.json" --comm sim $feed --steps 2 --quiet \
            --json -o "$dir/$count.json" &&
        "$bin/dtplan" show models/gpt_bytes_dropout.json $small --plan "$dir/plan.json" --stage program >"$dir/program.txt" &&
        "$bin/dtplan" viz models/gpt_bytes_dropout.json $small --plan "$dir/plan.json" --tensor layers.1.mlp.up >"$dir/viz.txt" &&
        python3 - "$dir/plan.json" "$dir/$count.json" "$dir/1.json" <<'P' && continue
import json, sys
plan, run, first = (json.load(open(path)) for path in sys.argv[1:])
predicted, measured = run["predicted"], run["measured"]
peaks = measured["peak_bytes_per_rank"]
assert all(p == plan["predicted"]["peak_bytes"] for p in peaks), (peaks, plan["predicted"]["peak_bytes"])
planned = sum(c["count"] for c in plan["predicted"]["collectives"].values())
counted = sum(c["count"] for c in run["collectives"])
assert planned == counted, (planned, counted)
assert all(abs(a - b) <= 2e-6 * abs(b) for a, b in zip(run["loss"], first["loss"])), (run["loss"], first["loss"])
P
    echo "FAIL: $layouts $choices"
    failed=$((failed + 1))
done <<'CASES'
--mesh x:2 --rules batch:x|
--mesh x:2 --rules batch:x|--remat all --microbatches 4
--mesh x:2;y:2 --rules batch:x;heads:y;d_ff:y;vocab:y|--remat layer:0 --microbatches 2
--devices 4 --objective memory|--remat layer --microbatches batch=2
--mesh x:2 --style **:data|--microbatches 2
--mesh x:2 --style **:data --style **:zero1|--microbatches 4
--mesh x:2 --style **:data --style **:zero2|--remat all --microbatches 4
--mesh x:2 --style **:data --style **:fsdp|--remat all --microbatches 2
--mesh x:2 --style layers.*.mlp.up.mm:colwise --style layers.*.mlp.down.mm:rowwise|--remat layer:1 --microbatches 2
--mesh tp:2 --style layers.*.{attn.{q,k,v}*,mlp.up*}:colwise --style layers.*.{attn.mm,mlp.down.mm}:rowwise(output=length) --style {layers.*.ln_*,ln_f}:sequence|--remat all --microbatches 2
--mesh cp:2 --style layers.*.attn:context(ring) --pin x0:length@cp|--remat all --microbatches 2
CASES
echo "$count plans verified, $failed failed"
[ $failed -eq 0 ]
