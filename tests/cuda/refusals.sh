#!/usr/bin/env bash
# dtrun where cuBLASLt refuses epilogues by seed: every verification against the CPU passes, and the report tells every
# fused product that ran apart, with its reason. Usage: refusals.sh DTRUN
set -u
dtrun=$1
gpt="models/gpt_bytes.json --dim batch=4 --dim length=8 --dim vocab=32 --dim layers=2 --dim heads=4 --dim d_head=4"
fail=0
complain() { # case, output
    echo "FAIL: $1"
    echo "$2" | head -30
    fail=1
}
# kinds of refusals (cuda_emu.h), seed, options
run() {
    export CUDA_EMU_SEED=$(($2 + 1)) CUDA_EMU_REFUSE=$1 CUDA_EMU_REFUSE_SEED=$2
    local out json text
    # shellcheck disable=SC2086 # options are words
    out=$("$dtrun" verify $gpt --backend cuda --reference cpu --steps 3 $3 2>&1) || complain "verify $*" "$out"
    # shellcheck disable=SC2086
    json=$("$dtrun" run $gpt --backend cuda --steps 3 --quiet --profile --json ${3%--tolerance*} 2>&1) || complain "run $*" "$json"
    # shellcheck disable=SC2086
    text=$("$dtrun" run $gpt --backend cuda --steps 3 --quiet ${3%--tolerance*} 2>&1) || complain "run $*" "$text"
    JSON=$json TEXT=$text python3 - "$1" "$3" <<'EOF' || complain "report of $*" "$text"
import json, os, re, sys
report = json.loads(os.environ["JSON"])
kinds, options = int(sys.argv[1]), sys.argv[2]
try:
    import jsonschema
    jsonschema.validate(report, json.load(open("docs/formats/report.schema.json")))
except ImportError:
    pass
fused, rows = report["fused"], [r for r in report["instructions"] if "as_one" in r]
assert all(r["op"].startswith(("fused_product", "fused_operand_sum")) for r in rows), rows
assert len(rows) == fused["as_one"] + len(fused["apart"]) > 4
assert [(r["op"], r["node"], r["why"]) for r in rows if not r["as_one"]] == [
    (a["op"], a["node"], a["why"]) for a in fused["apart"]]
gelu = "gelu of f32 is a kernel of its own"
assert ("bf16" in options) == all(a["why"] != gelu for a in fused["apart"]), fused
if kinds == 0:
    assert fused["as_one"] > 0 and all(a["why"] == gelu for a in fused["apart"]), fused
text = re.sub(r"\n {20,}", " ", os.environ["TEXT"])  # long lines are wrapped
counts = re.search(r"^fused products: (\d+) as one, (\d+) apart$", text, re.M)
assert counts and [int(n) for n in counts.groups()] == [fused["as_one"], len(fused["apart"])], text
lines = re.findall(r"^  (\w+) +(\d+) apart, first '(.*?)': (.*)$", text, re.M)
assert sum(int(n) for _, n, _, _ in lines) == len(fused["apart"]), text
assert {(op, why) for op, _, _, why in lines} == {(a["op"], a["why"]) for a in fused["apart"]}, text
print(f"kinds {kinds}{' bf16' if 'bf16' in options else ''}: {fused['as_one']} as one, {len(fused['apart'])} apart")
EOF
}
for options in "--tolerance 1e-4" "--precision bf16 --tolerance 2e-2"; do
    run 0 0 "$options"
    run 1 0 "$options"
    run 2 0 "$options"
    for seed in 1 2 3 4; do run 7 $seed "$options"; done
done

# Switches: every epilogue apart; NCCL with a single rank; words that are none.
export CUDA_EMU_REFUSE=0
expect() { # name, pattern, options
    local out
    # shellcheck disable=SC2086
    out=$("$dtrun" run $gpt --backend cuda --steps 3 --quiet "${@:3}" 2>&1)
    grep -qE "$2" <<<"$out" || complain "$1: no '$2'" "$out"
}
expect "no_epilogues" "^fused products: 0 as one, 20 apart$" --switches no_epilogues
expect "no_epilogues" "no_epilogues$" --switches no_epilogues
expect "nccl_alone" "^fused products: 16 as one" --switches nccl_alone --transport nccl --comm sim --mesh x:1
expect "both" "^fused products: 0 as one" --switches nccl_alone,no_epilogues --transport nccl
expect "a word" "there is no switch 'magic'; there are: no_epilogues, nccl_alone" --switches nccl_alone,magic
exit $fail
