#!/usr/bin/env bash
# Same inputs, two processes, one and two threads: plan files, printed plans and programs are the same bytes. Usage: determinism.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

# model | machine | options of plan
cases=(
    "mlp_digits|cpu_2|--mesh x:2"
    "mlp_digits|a100_8|--mode rules --devices 4 --objective memory"
    "gpt_bytes|cpu_2|--mesh x:2"
    "gpt_bytes|a100_8|--mode rules --mesh x:2;y:2"
    "gpt2_small|a100_8|--mode rules --mesh x:2;y:4"
    "mtf_lm|h100_64|--mode rules --mesh x:4;y:4"
    "gpt2_small|a100_8|--mode tensor --mesh x:8"
    "gpt_bytes|a100_8|--mode tensor --mesh x:2;y:2 --memory 40M --dim layers=2"
    "mlp_digits|a100_8|--mode tensor --devices 8 --memory 150000"
    "mlp_digits|a100_8|--mesh x:2;y:2 --target cpu --memory 104K"
)
count=0 failed=0
for c in "${cases[@]}"; do
    IFS='|' read -r model machine options <<<"$c"
    count=$((count + 1))
    ok=1
    for i in 1 2; do
        # shellcheck disable=SC2086
        "$bin/dtplan" plan "models/$model.json" --machine "models/machines/$machine.json" $options \
            --threads $i -o "$here/plan$i.json" >"$here/plan$i.txt" || ok=0
        "$bin/dtplan" show "models/$model.json" --plan "$here/plan$i.json" --stage program >"$here/program$i.txt" || ok=0
        "$bin/dtplan" show "models/$model.json" --plan "$here/plan$i.json" --stage memory >"$here/memory$i.txt" || ok=0
    done
    for f in plan:json plan:txt program:txt memory:txt; do
        a=$here/${f%:*}1.${f#*:} b=$here/${f%:*}2.${f#*:}
        [ -s "$a" ] && cmp "$a" "$b" || ok=0
    done
    if [ $ok -eq 1 ]; then
        echo "ok: $model on $machine $options: plan $(wc -c <"$here/plan1.json") bytes, program $(wc -l <"$here/program1.txt") lines"
    else
        echo "FAIL: $model on $machine $options"
        failed=$((failed + 1))
    fi
    rm -f "$here"/*
done
echo "$count pairs of plans, $failed differ"
[ $failed -eq 0 ]
