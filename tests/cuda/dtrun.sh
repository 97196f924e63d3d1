#!/usr/bin/env bash
# dtrun on the emulated CUDA device, against the CPU: ranks of one process on one device. Every verification must exit with 0
# and measure the predicted peak on every rank; a run gives the same losses with graphs and without. Usage: dtrun.sh DTRUN
set -u
dtrun=$1
llama="--dim batch=4 --dim length=8 --dim vocab=32 --dim layers=1 --dim kv_heads=4 --dim group=2 --dim d_head=8 --dim d_ff=32"
moe="$llama --dim experts=4"
gpt="--dim batch=4 --dim length=8 --dim vocab=32 --dim layers=2 --dim heads=4 --dim d_head=4"
mlp="--dim batch=16 --dim pixels=16 --dim hidden=24 --dim classes=12"
fail=0
# model | options | mesh | rules | transport (one device for each rank)
cases=(
    "mlp_digits|$mlp||"
    "mlp_digits|$mlp --precision bf16||"
    "mlp_digits|$mlp --microbatches 4||"
    "gpt_bytes|$gpt||"
    "gpt_bytes|$gpt --precision bf16||"
    "gpt_bytes|$gpt --outputs none||"
    "gpt_bytes|$gpt --precision tf32||"
    "gpt_bytes|$gpt --precision tf32 --microbatches 2|x:2|heads:x;d_ff:x;vocab:x"
    "gpt_bytes|$gpt --precision bf16 --microbatches 2||"
    "gpt_bytes_dropout|$gpt||"
    "mlp_digits|$mlp|x:2|batch:x"
    "mlp_digits|$mlp|x:4|hidden:x"
    "gpt_bytes|$gpt|x:2|heads:x;d_ff:x;vocab:x"
    "gpt_bytes|$gpt --precision bf16|x:2;y:2|batch:x;heads:y;d_ff:y;vocab:y"
    "llama3_8b|$llama||"
    "llama3_8b|$llama --precision bf16|x:2|kv_heads:x;d_ff:x"
    "llama3_8b|$llama|x:4|batch:x"
    "mixtral_8x7b|$moe||"
    "mixtral_8x7b|$moe --precision bf16|x:2|batch:x"
    "mixtral_8x7b|$moe|x:4|batch:x"
    "mixtral_8x7b_index|$moe|x:2|batch:x;experts:x"
    "mixtral_8x7b_index|$moe --microbatches 2|x:2|batch:x"
    "../tests/run/convs||x:2;y:2|h:x;w:y"
    "../tests/run/convs|--precision bf16 --dim kh=7|x:4|h:x"
    "../tests/run/convs|--uneven|x:3|h:x"
    "mlp_digits|$mlp|x:4|hidden:x|nccl"
    "../tests/run/convs|--microbatches 2|x:2;y:2|h:x;w:y|nccl"
    "gpt_bytes|$gpt --precision bf16|x:2|batch:x|nccl"
    "llama3_8b|$llama|x:2;y:2|batch:x;kv_heads:y;d_ff:y|nccl"
    "mixtral_8x7b|$moe|x:2|batch:x|nccl"
)
seed=0
complain() { # case, output
    echo "FAIL: $1"
    echo "$2" | head -30
    fail=1
}
for case in "${cases[@]}"; do
    IFS='|' read -r model options mesh rules transport <<<"$case"
    export CUDA_EMU_SEED=$((++seed)) CUDA_EMU_DEVICES=1
    comm=self
    [ -n "$mesh" ] && comm=sim
    args=("models/$model.json" --backend cuda --comm "$comm" --mesh "$mesh")
    [ -n "$rules" ] && args+=(--rules "$rules")
    if [ -n "$transport" ]; then
        args+=(--transport "$transport")
        export CUDA_EMU_DEVICES=4
    fi
    tolerance=1e-4
    [[ $options == *bf16* ]] && tolerance=2e-2
    [[ $options == *tf32* ]] && tolerance=2e-3
    # shellcheck disable=SC2086 # options are words
    out=$("$dtrun" verify "${args[@]}" $options --reference cpu --steps 3 --tolerance $tolerance 2>&1) || complain "verify $case" "$out"
    # shellcheck disable=SC2086
    run=$("$dtrun" run "${args[@]}" $options --steps 4 --quiet 2>&1) || complain "run $case" "$run"
    # shellcheck disable=SC2086
    plain=$("$dtrun" run "${args[@]}" $options --steps 4 --quiet --no-graph 2>&1) || complain "run --no-graph $case" "$plain"
    [ "$(echo "$run" | grep '^loss')" = "$(echo "$plain" | grep '^loss')" ] || complain "losses of $case" "$run$plain"
    echo "$run" | grep -q "(equal)" || complain "peak of $case" "$run"
done

# A step is started before the one before it has ended, but not over a save: one on the way changes no loss, and a run goes
# on from it.
saved=$(mktemp -d)
trap 'rm -rf "$saved"' EXIT
for mesh in "" x:2; do
    export CUDA_EMU_SEED=$((++seed)) CUDA_EMU_DEVICES=1
    args=(models/gpt_bytes_dropout.json --backend cuda --comm self --quiet --json --mesh "$mesh")
    [ -n "$mesh" ] && args+=(--comm sim --rules batch:x)
    # shellcheck disable=SC2086
    found=$(for run in "11" "6 --resume --save-every 2 --save $saved/$mesh." "11 --resume --save-every 4 --save $saved/$mesh."; do
        "$dtrun" run "${args[@]}" $gpt --steps $run 2>/dev/null
    done | python3 -c '
import json, sys
text, at, losses = sys.stdin.read(), 0, []
while text[at:].strip():
    report, end = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at += end + len(text[at:]) - len(text[at:].lstrip())
    losses.append(report["loss"])
print(losses[1] + losses[2] == losses[0] and len(losses[2]) == 5)')
    [ "$found" = True ] || complain "saves on the way on '$mesh'" "$found"
done

# The time of every instruction: joined updates count for the last one of their launch.
for mesh in "" x:2; do
    export CUDA_EMU_SEED=$((++seed)) CUDA_EMU_DEVICES=1
    args=(models/gpt_bytes.json --backend cuda --comm self --steps 3 --quiet --profile --json --mesh "$mesh")
    [ -n "$mesh" ] && args+=(--comm sim --rules batch:x)
    # shellcheck disable=SC2086
    json=$("$dtrun" run "${args[@]}" $gpt 2>&1) || complain "profile on '$mesh'" "$json"
    found=$(python3 -c '
import json, sys
r = json.load(sys.stdin)
rows = r["instructions"]
assert all(i["measured_s"] >= 0 for i in rows)
alone = [i for k, i in enumerate(rows) if i["kind"] == "kernel" and not (rows + [{}])[k + 1].get("joined")]
assert all(i["measured_s"] > 0 for i in alone), [i for i in alone if not i["measured_s"] > 0]
assert sum("joined" in i for i in rows) > 10
assert 0.5 * r["step_time_s"]["min"] < sum(i["measured_s"] for i in rows) <= r["step_time_s"]["max"]
print("well")' <<<"$json" 2>&1)
    [ "$found" = well ] || complain "profile on '$mesh'" "$found"
done
exit $fail
