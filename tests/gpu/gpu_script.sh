#!/usr/bin/env bash
# gpu.py on the emulated device: every part runs, a second call has nothing to do, a part without time fails and the next
# call makes up for it. Usage: gpu_script.sh BUILD_DIR TESTS_DIR
set -u
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail=0
script=(python3 tests/gpu/gpu.py --emulated --fewest --out "$out")
complain() { # what, output
    echo "FAIL: $1"
    echo "$2" | head -30
    fail=1
}
before=$(cat docs/results/gpu.md 2>/dev/null)

text=$("${script[@]}" "$1" "$2" 2>&1) || complain "the parts" "$text"
report=$(cat "$out/report.md")
for part in device ops sanitizers bench verify predict torch training; do
    grep -q "^$part: {" <<<"$text" || complain "part $part" "$text"
    grep -A2 "^## $part$" <<<"$report" | grep -q json || complain "part $part in the report" "$report"
done
[ "$before" = "$(cat docs/results/gpu.md 2>/dev/null)" ] || complain "docs/results/gpu.md has changed" ""
# The machine file says what a launch in a graph costs, and predicts one device by it.
found=$(python3 - "$out" <<'PY' 2>&1
import json, sys
read = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))
device = read("machine_1")["device"]
assert 0 < device["launch_graph_s"] < 0.5 * device["launch_s"], device
for r in read("predict")["result"]["rows"]:
    assert r["layout"] != "one device" or abs(r["predicted"] / r["measured"] - 1) < 0.25, r
assert "driver" in read("machine_1")["provenance"]["device"]
assert read("machine_2")["device"]["overlap"] and len(read("machine_2")["device"]["curves"]["collectives"]) == 5
print("well")
PY
)
[ "$found" = well ] || complain "the numbers" "$found"

if git rev-parse HEAD >/dev/null 2>&1; then
    text=$("${script[@]}" "$1" "$2" 2>&1) || complain "the second call" "$text"
    [ "$(grep -c "has run at this commit" <<<"$text")" = 8 ] || complain "the second call" "$text"
fi
text=$("${script[@]}" --fresh --part-s 0 "$1" "$2" verify 2>&1) && complain "a part without time" "$text"
grep -q "^Failed: TimeoutError" "$out/report.md" || complain "a part without time in the report" "$text"
text=$("${script[@]}" "$1" "$2" verify 2>&1) || complain "the part again" "$text"
grep -q "^verify: {" <<<"$text" || complain "the part again" "$text"
text=$(CUDA_EMU_DEVICES=0 "${script[@]}" --fresh "$1" "$2" verify 2>&1) && complain "without a device" "$text"
grep -q "^verify: failed: " <<<"$text" || complain "without a device" "$text"
"${script[@]}" "$1" "$2" nothing >/dev/null 2>&1
[ $? = 2 ] || complain "a part that there is not" ""
exit $fail
