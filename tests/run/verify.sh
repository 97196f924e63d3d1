#!/usr/bin/env bash
# dtrun verify on real MPI ranks, which it starts itself: every case must exit with 0, run on as many ranks as the mesh
# has, state an error of at most 2e-5, and measure the predicted peak on every rank. Usage: verify.sh BIN_DIR RANKS
set -u
bin=$1 ranks=$2
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)

# sizes of Llama and Mixtral
small="--dim batch=4 --dim layers=2 --dim length=8 --dim vocab=32 --dim kv_heads=2 --dim group=2 --dim d_head=4"
# ranks | model | options | mesh | rules
cases=(
    "2|mlp_digits||x:2|"
    "2|mlp_digits||x:2|batch:x"
    "2|mlp_digits||x:2|hidden:x"
    "2|gpt_bytes|--dim length=32|x:2|length:x"
    "4|gpt_bytes_ring|--dim length=32|x:2;y:2|length:x;batch:y"
    "4|mlp_digits||x:4|batch:x"
    "4|mlp_digits||x:4|pixels:x"
    "4|mlp_digits||x:2;y:2|batch:x;hidden:y"
    "2|gpt_bytes|--dim length=32|x:2|batch:x"
    "2|gpt_bytes|--dim length=32|x:2|heads:x;d_ff:x;vocab:x"
    "2|mlp_digits|--microbatches 4|x:2|batch:x"
    "2|gpt_bytes|--dim length=32 --remat all --microbatches 3|x:2|batch:x"
    "2|gpt_bytes_dropout|--dim length=32 --remat layer:1-3 --microbatches 2|x:2|heads:x;d_ff:x;vocab:x"
    "4|gpt_bytes|--dim length=32|x:4|batch:x"
    "4|gpt_bytes|--dim length=32|x:4|heads:x;d_ff:x;vocab:x"
    "4|gpt_bytes|--dim length=32|x:2;y:2|batch:x;heads:y;d_ff:y;vocab:y"
    "2|llama3_8b|$small --dim d_ff=24|x:2|kv_heads:x;d_ff:x;vocab:x"
    "2|mixtral_8x7b|$small --dim d_ff=24 --dim experts=4 --dim capacity=3|x:2|batch:x;experts:x"
)
out=$(mktemp)
ring=$(mktemp) # the model with ring attention
trap 'rm -f "$out" "$ring"' EXIT
sed 's/"op": "attention"/"op": "attention", "context": "ring"/' models/gpt_bytes.json >"$ring"
count=0 failed=0
for c in "${cases[@]}"; do
    IFS='|' read -r n model options mesh rules <<<"$c"
    [ "$n" -eq "$ranks" ] || continue
    count=$((count + 1))
    feed= file="models/$model.json"
    [ "$model" = gpt_bytes_ring ] && file=$ring
    [ "${model#gpt_bytes}" != "$model" ] && feed="--feed text=models/data/text.txt"
    # shellcheck disable=SC2086
    "$bin/dtrun" verify "$file" $options --mesh "$mesh" --rules "$rules" --threads 1 --comm mpi $feed \
        --json "${root[@]}" >"$out"
    rc=$?
    if [ $rc -ne 0 ]; then
        echo "FAIL: $model on '$mesh' with '$rules': exit $rc"
        failed=$((failed + 1))
        continue
    fi
    python3 - "$out" "$model on '$mesh' with '$rules'" "$n" <<'P' || failed=$((failed + 1))
import json, sys
r = json.load(open(sys.argv[1]))
peaks = r["measured"]["peak_bytes_per_rank"]
ok = (r["pass"] is True and r["ranks"] == int(sys.argv[3]) and 0 <= r["max_rel_err"] <= 2e-5
      and 0 < len(r["gradients"]) <= len(r["updates"]) == len(r["initial"]) and r["failed"] == []
      and len(peaks) == r["ranks"] and all(p == r["predicted"]["peak_bytes"] for p in peaks))
print("%s: %s: largest relative error %.2e, peak %s of predicted %s" %
      ("ok" if ok else "FAIL", sys.argv[2], r["max_rel_err"], peaks, r["predicted"]["peak_bytes"]))
sys.exit(0 if ok else 1)
P
done
echo "$count cases on $ranks ranks, $failed failed"
[ $count -gt 0 ] && [ $failed -eq 0 ]
