#!/usr/bin/env bash
# The bundle in an empty folder with an empty environment, on the emulated device: every step runs, a second call has nothing to
# do, a step that fails or runs out of time does not end the others, and a way round is found and named.
# Usage: test_bundle.sh BIN_DIR EMULATED_DIR
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
    (cd "$here/empty" && env -i PATH=/usr/bin:/bin TMPDIR="$here/tmp" OUT="$here/out" CUDA_EMU_DEVICES=1 "${words[@]}" bash ../bundle/lease.sh "${@:2}" 2>&1)
}
mkdir "$here/empty" "$here/tmp"
text=$(XZ_OPT=-0 bash tests/gpu/bundle.sh "$1" "$2" "$here/bundle" 2>&1) || complain "the bundle" "$text"
size=$(stat -c %s "$here/bundle/lease.tar.xz")
[ "$size" -le $((20 << 20)) ] || complain "the bundle has $size bytes" "$text"

text=$(lease -- --total-s 500 --emulated) || complain "the steps" "$text"
report=$(python3 - "$here/out/report.json" <<'PY' 2>&1
import json, sys
r = json.load(open(sys.argv[1]))
steps = r["steps"]
assert list(steps) == ["device", "first", "train", "verify", "ops", "products", "torch", "counters", "sanitizers", "bench", "predict",
                       "training"], list(steps)
assert all(s["became"] == "done" for s in steps.values()), {n: s for n, s in steps.items() if s["became"] != "done"}
train = steps["train"]["result"]
assert set(train) == {"as it is", "profile", "no graph"} and all(not row["way"] for row in train.values()), train
assert train["profile"]["slowest"]
assert all(row["passed"] for row in steps["verify"]["result"].values()) and len(steps["verify"]["result"]) == 4
assert set(steps["ops"]["result"].values()) == {0}, steps["ops"]
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

text=$(lease -- --emulated) || complain "the second call" "$text"
! grep -qE "^[a-z]+: " <<<"$text" || complain "the second call runs a step again" "$text"
# Without a device every step says so, and the last one is reached.
text=$(lease CUDA_EMU_DEVICES=0 -- --emulated --fresh first train training) && complain "without a device" "$text"
[ "$(grep -c ': failed in' <<<"$text")" = 3 ] || complain "without a device" "$text"
grep -q "there is no GPU on this machine" "$here/out/report.json" || complain "without a device in the report" "$text"
# No time.
text=$(lease -- --total-s 0.5 --emulated --fresh first verify) && complain "without time" "$text"
grep -q '"no time left"\|"out of time"' "$here/out/report.json" || complain "without time in the report" "$text"
# An option that nothing takes fails in every way; switches of the environment reach dtrun.
text=$(lease DTP_GPU_OPTIONS="--switches no_epilogues" -- --emulated --fresh train) || complain "switches of the environment" "$text"
lease -- nothing >/dev/null 2>&1
[ $? = 2 ] || complain "a step that there is not" ""
exit $fail
