#!/usr/bin/env bash
# The bundle as `./dev lease` packs it, without MPI and oneDNN, in an empty folder with an empty environment, on the emulated
# device: two calls run every step, cases are counted, few files come back, what cannot run is left out, a call that is killed
# keeps its rows, a step that fails or runs out of time does not end the others, and a way round is found and named.
set -u
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
fail=0
complain() { # what, output
    echo "FAIL: $1"
    echo "$2" | head -40
    fail=1
}
lease() { # environment words ..., then -- and options of lease.sh
    local words=()
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    (cd "$here/empty" && exec env -i PATH=/usr/bin:/bin TMPDIR="$here/tmp" OUT="$here/out" CUDA_EMU_DEVICES=1 "${words[@]}" bash ../bundle/lease.sh "${@:2}" 2>&1)
}
mkdir "$here/empty" "$here/tmp"
text=$(./dev lease --emulated "$here/bundle" 2>&1) || complain "the bundle" "$text"
size=$(stat -c %s "$here/bundle/lease.tar.gz")
[ "$size" -le $((30 << 20)) ] || complain "the bundle has $size bytes" "$text"

text=$(lease -- --total-s 300 --emulated 1) || complain "the first call" "$text"
mv "$here/out" "$here/back"
text+=$(lease -- --total-s 300 --done "$here/back/report.json" --emulated 2) || complain "the second call" "$text"
report=$(python3 - "$here/back" "$here/out" <<'PY' 2>&1
import json, os, sys
for folder in sys.argv[1:]:
    assert len(os.listdir(folder)) <= 8 and all(os.path.isfile(os.path.join(folder, f)) for f in os.listdir(folder)), os.listdir(folder)
assert {"report.json", "report.md", "files.tar.gz", "machine_1.json", "machine_2.json"} <= set(os.listdir(sys.argv[2]))
r = json.load(open(sys.argv[2] + "/report.json"))
steps = r["steps"]
assert set(steps) == {"device", "first", "train", "verify", "ops", "products", "torch", "counters", "sanitizers", "bench", "predict",
                      "training"} - {"torch"}, list(steps)
left_out = {"counters", "sanitizers"}
assert all(s["became"] == ("left out" if n in left_out else "done") for n, s in steps.items()), {n: s["became"] for n, s in steps.items()}
first = json.load(open(sys.argv[1] + "/report.json"))["steps"]
assert first["torch"]["became"] == "left out" and len(first) == 7, {n: s["became"] for n, s in first.items()}
train = steps["train"]["result"]
assert set(train) == {"as it is", "profile", "no graph"} and all(not row["way"] for row in train.values()), train
assert train["profile"]["slowest"]
assert all(row["passed"] for row in steps["verify"]["result"].values()) and len(steps["verify"]["result"]) == 4
ops = steps["ops"]["result"]
assert ops["cases"] >= 200 and set(ops.values()) - {ops["cases"]} == {0}, ops
kinds = steps["products"]["result"]
assert any("fused_product" in k for k in kinds) and all({"algorithm 0", "algorithm 1"} <= set(row) for row in kinds.values()), kinds
assert 0 < steps["bench"]["result"]["launch_graph_s"] < 0.5 * steps["bench"]["result"]["launch_s"], steps["bench"]
rows = steps["predict"]["result"]["rows"]
assert all(r["layout"] or abs(r["predicted_s"] / r["measured_s"] - 1) < 0.25 for r in rows), rows
print("well")
PY
)
[ "$report" = well ] || complain "the report" "$report$text"
grep -q "^| training | done |" "$here/out/report.md" || complain "the table" "$(cat "$here/out/report.md")"

text=$(lease -- --emulated 2) || complain "a call again" "$text"
[ "$(grep -cE '^[a-z]+: ' <<<"$text")" = 2 ] || complain "a call again runs a step that was done" "$text"
# Killed in the middle of a step.
setsid bash -c "cd '$here/empty' && exec env -i PATH=/usr/bin:/bin TMPDIR='$here/tmp' OUT='$here/killed' CUDA_EMU_DEVICES=1 \
    bash ../bundle/lease.sh --emulated verify" >"$here/killed.txt" 2>&1 &
pid=$!
for _ in $(seq 600); do
    grep -q '"passed"' "$here/killed/report.json" 2>/dev/null && break
    sleep 0.1
done
kill -KILL -- "-$pid"
wait "$pid" 2>/dev/null
grep -q '"became": "begun"' "$here/killed/report.json" && grep -q '"passed": true' "$here/killed/report.json" ||
    complain "the report of a call that was killed" "$(cat "$here/killed/report.json" "$here/killed.txt")"
# Without a device every step says so, and the last one is reached.
text=$(lease CUDA_EMU_DEVICES=0 -- --emulated --fresh first train training) && complain "without a device" "$text"
[ "$(grep -c ': failed in' <<<"$text")" = 3 ] || complain "without a device" "$text"
grep -q "there is no GPU on this machine" "$here/out/report.json" || complain "without a device in the report" "$text"
# Without nvidia-smi the first step fails.
text=$(lease -- --fresh device) && complain "without nvidia-smi" "$text"
grep -q "device: failed" <<<"$text" || complain "without nvidia-smi" "$text"
# No time.
text=$(lease -- --total-s 0.5 --emulated --fresh first verify) && complain "without time" "$text"
grep -q '"no time left"\|"out of time"' "$here/out/report.json" || complain "without time in the report" "$text"
# An option that nothing takes fails in every way; switches of the environment reach dtrun.
text=$(lease DTP_GPU_OPTIONS="--switches no_epilogues" -- --emulated --fresh train) || complain "switches of the environment" "$text"
lease -- nothing >/dev/null 2>&1
[ $? = 2 ] || complain "a step that there is not" ""
# A name that is no op is none of the tests.
"$here/tmp/dtp-lease/bin/test_cuda_ops_device" 1/2 1 softmaxx >/dev/null 2>&1
[ $? = 2 ] || complain "a name that is no op" ""
exit $fail
