#!/usr/bin/env bash
# dtplan plan and dtrun verify as a user runs them, on virtual ranks or on MPI ranks that dtrun starts itself: rules on the command
# line and plans of every kind, with the report as text and as JSON. Usage: verify.sh BIN_DIR sim|mpi RANKS
set -u
bin=$1 comm=$2 ranks=$3
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
how=(--comm "$comm" --threads 1)
[ "$comm" = mpi ] && [ "$(id -u)" -eq 0 ] && how+=(--allow-run-as-root)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
count=0 failed=0
small="--dim batch=4 --dim layers=2 --dim length=8 --dim vocab=32 --dim kv_heads=2 --dim group=2 --dim d_head=4 --dim d_ff=24"
mixtral="models/mixtral_8x7b.json $small --dim experts=4 --dim capacity=3"
gpt="models/gpt_bytes.json --dim length=32 --dim layers=2 --dim batch=8 --dim heads=4"
sed 's/"op": "attention"/"op": "attention", "context": "ring"/' models/gpt_bytes.json >"$dir/ring.json"

fail() {
    echo "FAIL: $*"
    failed=$((failed + 1))
}

# verify RANKS "MODEL OPTIONS" [options of layouts]: both reports; the JSON one is checked at the end
verify() {
    local n=$1 model=$2 feed=()
    shift 2
    [ "$n" -eq "$ranks" ] || return
    count=$((count + 1))
    [[ $model == *gpt_bytes* || $model == *ring* ]] && feed=(--feed text=models/data/text.txt)
    # shellcheck disable=SC2086
    "$bin/dtrun" verify $model "$@" "${how[@]}" "${feed[@]}" --json >"$dir/$count.json" || fail "$model $*: exit $?"
    [ "$comm" = sim ] || return
    # shellcheck disable=SC2086
    "$bin/dtrun" verify $model "$@" "${how[@]}" "${feed[@]}" >"$dir/text" || fail "$model $*: exit $?"
    grep -q "^verify: $n ranks against one device, 3 steps" "$dir/text" && grep -q '^pass: max relative error ' "$dir/text" &&
        [ "$(grep -cE '^  (initial|outputs|gradients|updates) +pass ' "$dir/text")" -eq 4 ] || fail "$model $*: $(cat "$dir/text")"
}

# plan RANKS "MODEL OPTIONS" [options of dtplan]: made, verified and run
plan() {
    local n=$1 model=$2
    shift 2
    [ "$n" -eq "$ranks" ] || return
    # shellcheck disable=SC2086
    "$bin/dtplan" plan $model "$@" -o "$dir/plan.json" >"$dir/plan.txt" && grep -q '^model ' "$dir/plan.txt" || fail "$model $*: no plan"
    verify "$n" "$model" --plan "$dir/plan.json"
    local feed=()
    [[ $model == *gpt_bytes* ]] && feed=(--feed text=models/data/text.txt)
    # shellcheck disable=SC2086
    "$bin/dtrun" run $model --plan "$dir/plan.json" "${how[@]}" "${feed[@]}" --steps 3 --quiet --json -o "$dir/$count.run" ||
        fail "$model $*: run: exit $?"
    # shellcheck disable=SC2086
    "$bin/dtrun" run $model --comm self --threads 1 "${feed[@]}" --steps 3 --quiet --json -o "$dir/$count.one" || fail "$model: one device"
    cp "$dir/plan.json" "$dir/$count.plan"
}

machine() { echo "--machine models/machines/$1.json --target cpu"; }
# shellcheck disable=SC2046
{
    verify 2 models/mlp_digits.json --mesh x:2 --rules batch:x
    verify 2 "$mixtral" --mesh x:2 --rules 'batch:x;experts:x'
    verify 2 "models/gpt_bytes_dropout.json --dim length=32 --dim layers=2 --dim batch=8 --dim heads=4" --mesh x:2 --rules 'heads:x;d_ff:x;vocab:x' \
        --remat 'layer:0;layer:1 keep=**.{attn,mlp.up.mm}$' --microbatches 2
    plan 2 "models/llama3_8b.json $small" --mesh x:2 --mode tensor --gap 0.1 --objective memory $(machine h100_64)
    verify 4 models/mlp_digits.json --mesh x:4 --rules pixels:x
    verify 4 "$dir/ring.json --dim length=32 --dim layers=2 --dim batch=8 --dim heads=4" --mesh 'x:2;y:2' --rules 'length:x;batch:y'
    verify 4 "$gpt" --mesh 'x:2;y:2' --rules 'batch:x;heads:y;d_ff:y;vocab:y'
    # all-reduces, all-gathers, reduce-scatters and all-to-alls in groups of ranks
    plan 4 "$mixtral" --mesh 'x:2;y:2' --mode tensor --gap 0.1 --objective memory $(machine l4_16)
    plan 4 "$gpt" --mesh 'dp:2;cp:2' --style '**: data' --style 'layers.*.attn: context(cp, ring)' --pin 'x0: batch@dp, length@cp' \
        $(machine a100_8)
}
python3 - "$dir" "$ranks" "$count" <<'P' || failed=$((failed + 1))
import json, os, sys
folder, ranks, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
read = lambda name: json.load(open(f"{folder}/{name}"))
for i in range(1, count + 1):
    r = read(f"{i}.json")
    peaks = r["measured"]["peak_bytes_per_rank"]
    assert r["pass"] is True and r["ranks"] == ranks and 0 <= r["max_rel_err"] <= 2e-5 and r["failed"] == [], r
    assert 0 < len(r["gradients"]) <= len(r["updates"]) == len(r["initial"]), r
    assert len(peaks) == ranks and all(p == r["predicted"]["peak_bytes"] for p in peaks), (peaks, r["predicted"])
    print(f"ok: {r['model']} on {r['mesh']}: largest relative error {r['max_rel_err']:.2e}, peak {peaks} as predicted")
    if not os.path.exists(f"{folder}/{i}.plan"):
        continue
    predicted, run, one = read(f"{i}.plan")["predicted"], read(f"{i}.run"), read(f"{i}.one")
    assert all(p == predicted["peak_bytes"] for p in run["measured"]["peak_bytes_per_rank"]), (run["measured"], predicted)
    planned = {kind: c["count"] for kind, c in predicted["collectives"].items() if c["count"] > 0}
    assert sum(planned.values()) == sum(c["count"] for c in run["collectives"]) > 0, (planned, run["collectives"])
    assert len(run["loss"]) == 3 and all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(run["loss"], one["loss"])), (run["loss"], one["loss"])
    print(f"    {planned}")
P
echo "$count cases on $ranks ranks, $failed failed"
[ "$count" -gt 0 ] && [ $failed -eq 0 ]
