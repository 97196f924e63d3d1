#!/usr/bin/env bash
# Plans from styles through the tools: dtplan writes the plan, the communication report and the counters fit their schemas, and the
# report's totals are the plan's. What the plans compute is looked at by test_verify_styles.c. Usage: styles.sh BIN_DIR
set -u
bin=$1
export ASAN_OPTIONS=detect_leaks=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gpt="models/gpt_bytes.json --dim length=32 --dim layers=2 --dim batch=8"
transformer=tests/planner/styles/transformer.json
count=0 failed=0

# check WHAT MODEL_AND_OPTIONS MESH [styles and pins]: the files of case $count, looked at in the end
check() {
    local what=$1 model=$2 mesh=$3
    shift 3
    count=$((count + 1))
    echo "$what" >"$dir/$count.what"
    # shellcheck disable=SC2086
    "$bin/dtplan" plan $model --mesh "$mesh" --machine models/machines/a100_8.json --target cpu -o "$dir/plan.json" "$@" >"$dir/out" &&
        "$bin/dtplan" show $model --plan "$dir/plan.json" --comm-report --json >"$dir/$count.comm" &&
        "$bin/dtplan" show $model --plan "$dir/plan.json" --counters --json >"$dir/$count.counters" &&
        "$bin/dtplan" show $model --plan "$dir/plan.json" --trace >"$dir/trace" && cp "$dir/plan.json" "$dir/$count.plan" && return
    echo "FAIL: $what"
    tail -3 "$dir/out"
    failed=$((failed + 1))
}

# refuse WORDS COMMAND...: exit status 2 and the words on standard error
refuse() {
    local words=$1
    shift
    count=$((count + 1))
    "$@" >"$dir/out" 2>"$dir/err"
    [ $? -eq 2 ] && grep -qF -- "$words" "$dir/err" && return
    echo "FAIL: expected '$words': $*"
    cat "$dir/err"
    failed=$((failed + 1))
}

tp=(--style '{tok,pos}_embeddings: rowwise' --style 'layers.*.attention.{wq,wk,wv}: colwise'
    --style 'layers.*.attention.wo: rowwise' --style 'layers.*.feed_forward.w1: colwise'
    --style 'layers.*.feed_forward.w2: rowwise' --style 'output: colwise(output=replicated)')
check "tensor parallel" "$transformer" tp:2 "${tp[@]}" --strict
check "tensor parallel, PyTorch's way" "$transformer" tp:2 "${tp[@]}" --compat torch
grep -q '"redistribution": "torch"' "$dir/plan.json" && grep -qx 'forward after the passes: 6 all_reduce, 1 all_gather' "$dir/trace" &&
    grep -qx 'backward after the passes: 9 all_reduce' "$dir/trace" || failed=$((failed + 1))
check "fsdp" "$gpt" dp:2 --style '**: data' --style '**: fsdp' --strict
check "zero2" "$gpt" dp:2 --style '**: data' --style '**: zero2'
check "pins by hand" "$transformer" x:2 --pin 'tokens: batch@x' --pin 'h0: batch@x' --pin 'output.weight: vocab@x'
check "style file" "$gpt" tp:2 --style-file models/styles/gpt_bytes.tp.json --style-names self_attn=attn \
    --style-names q_proj=q --style-names k_proj=k --style-names v_proj=v --style-names 'o_proj={mm,out}' \
    --style-names up_proj=up --style-names 'down_proj={down,out}' --style-names lm_head=logits
for way in ring gather; do
    check "context parallel, $way" "$gpt" cp:2 --style "layers.*.attn: context($way)" --pin 'x0: length@cp'
done
check "context parallel, a ring on two mesh dims" "$gpt" 'dp:2;cp:2' --style '**: data' --style 'layers.*.attn: context(cp, ring)' \
    --pin 'x0: batch@dp, length@cp'
grep -q '"context": "ring"' "$dir/plan.json" &&
    tr -s '\n ' ' ' <"$dir/trace" >"$dir/joined" && # lines are broken at 80 columns
    grep -q 'forward after the passes:[^:]* 2 collective_permute backward[^:]*:[^:]* 6 collective_permute' "$dir/joined" ||
    failed=$((failed + 1))
check "sequence parallel" "$gpt" tp:2 --style 'layers.*.attn.{q,k,v}: colwise' --style 'layers.*.mlp.up: colwise' \
    --style 'layers.*.attn.{mm,out}: rowwise(output=length)' --style 'layers.*.mlp.{down,out}: rowwise(output=length)' \
    --style '{layers.*.ln_*,ln_f}: sequence'

python3 - "$dir" "$count" <<'P' || failed=$((failed + 1))
import json, sys
folder, count = sys.argv[1], int(sys.argv[2])
read = lambda path: json.load(open(path, encoding="utf-8"))
kinds = ("plan", "comm", "counters")
try:
    from jsonschema import Draft202012Validator
    schemas = [Draft202012Validator(read(f"docs/formats/{kind}.schema.json")) for kind in ("plan", "comm_report", "counters")]
except ImportError:
    schemas = []
for i in range(1, count + 1):
    files = plan, comm, counters = [read(f"{folder}/{i}.{kind}") for kind in kinds]
    for schema, value in zip(schemas, files):
        schema.validate(value)
    totals = {}
    for entry in comm["totals"]:
        total = totals.setdefault(entry["kind"], [0, 0])
        total[0] += entry["count"]
        total[1] += entry["bytes"]
    for kind, predicted in plan["predicted"]["collectives"].items():
        assert totals.get(kind, [0, 0]) == [predicted["count"], predicted["bytes"]], (kind, totals)
    assert plan["mode"] == "tensor" and plan["certificate"]["solver"] == "propagation"
    assert len(comm["collectives"]) == sum(total[0] for total in totals.values())
    assert counters["counters"]["einsum"] >= counters["counters"]["einsum_unique"] > 0
    print(f"ok: {open(f'{folder}/{i}.what').read().strip()}: {len(comm['collectives'])} collectives")
P

plan=("$bin/dtplan" plan "$transformer" --mesh tp:2 --machine models/machines/a100_8.json --target cpu)
refuse "node 'output': einsum: operand 0" "${plan[@]}" --strict --pin 'norm: batch@tp' --pin 'output.weight at output: vocab@tp' \
    --pin 'output.weight: vocab@tp'
refuse "the nearest names are 'output'" "${plan[@]}" --style 'outptu: colwise'
refuse "--compat is for plans that follow --style" "${plan[@]}" --compat torch
refuse "is none of torch, auto_mtf" "${plan[@]}" --style 'output: colwise' --compat jax
refuse "need --mesh" "$bin/dtplan" plan "$transformer" --devices 2 --machine models/machines/a100_8.json --target cpu --style 'output: colwise'
"${plan[@]}" --pin 'norm: batch@tp' --pin 'output.weight at output: vocab@tp' --pin 'output.weight: vocab@tp' \
    -o "$dir/plan.json" >"$dir/out" || failed=$((failed + 1))
refuse "--strict: node 'output' (einsum)" "$bin/dtrun" run "$transformer" --plan "$dir/plan.json" --comm sim --strict
refuse "give one of" "$bin/dtplan" show "$transformer" --plan "$dir/plan.json" --comm-report --counters
echo "$count cases, $failed failed"
[ $failed -eq 0 ]
