#!/usr/bin/env bash
# dtplan sweep: every row is the plan that dtplan plan makes of it, the cost follows from its price and throughput, what does not
# fit is planned with recomputation and microbatches, the network grows with the devices, and the same command gives the same bytes.
# Usage: sweep_cli.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failures=0
bad() { echo "FAIL: $*"; failures=$((failures + 1)); }
tiny="--dim length=16 --dim layers=2 --dim heads=4 --dim d_head=8"
# shellcheck disable=SC2086
sweep() { "$bin/dtplan" sweep gpt_bytes $tiny "$@" -o "$here/rows.csv" >"$here/out" 2>"$here/err"; }

sweep --machine h100_64 --devices 2,4 --batch 8,64 --price-per-hour 2.5 || bad "$(cat "$here/err")"
cp "$here/rows.csv" "$here/first.csv"
cp "$here/out" "$here/first"
sweep --machine h100_64 --devices 2,4 --batch 8,64 --price-per-hour 2.5
cmp -s "$here/rows.csv" "$here/first.csv" && cmp -s "$here/out" "$here/first" || bad "twice is not the same"
for devices in 2 4; do
    for batch in 8 64; do
        # shellcheck disable=SC2086
        "$bin/dtplan" plan gpt_bytes $tiny --dim batch=$batch --devices $devices --machine h100_64 --mode tensor --json \
            >"$here/$devices.$batch.json" || bad "no plan of $devices, $batch"
    done
done
python3 - "$here" <<'P' || bad "the rows"
import csv, json, sys
here = sys.argv[1]
rows = list(csv.DictReader(open(f"{here}/first.csv")))
assert [(r["devices"], r["batch"]) for r in rows] == [("2", "8"), ("2", "64"), ("4", "8"), ("4", "64")], rows
for r in rows:
    p = json.load(open(f"{here}/{r['devices']}.{r['batch']}.json"))["predicted"]
    assert abs(float(r["step_s"]) / p["step_time_s"] - 1) < 1e-8 and int(r["peak_bytes"]) == p["peak_bytes"], (r, p)
    tokens = 16 * int(r["batch"]) / p["step_time_s"]
    assert abs(float(r["tokens_per_s"]) / tokens - 1) < 1e-6, r
    assert abs(float(r["cost_per_1e9_tokens"]) / (1e9 / tokens / 3600 * int(r["devices"]) * 2.5) - 1) < 1e-4, r
fastest = max(rows, key=lambda r: float(r["tokens_per_s"]))
cheapest = min(rows, key=lambda r: float(r["cost_per_1e9_tokens"]))
assert [r for r in rows if "fastest" in r["mark"]] == [fastest] and [r for r in rows if "cheapest" in r["mark"]] == [cheapest], rows
P
# More devices than the machine has.
sweep --machine h100_64 --devices 128 --batch 128 --mode rules || bad "128 devices: $(cat "$here/err")"
grep -q '^128 devices: ib.size=16$' "$here/err" || bad "it is not said that the network grows: $(cat "$here/err")"
cp "$here/rows.csv" "$here/grown.csv"
sweep --machine h100_64 --set ib.size=16 --devices 128 --batch 128 --mode rules
cmp -s "$here/rows.csv" "$here/grown.csv" || bad "the grown network is another one than that of --set"
# What does not fit.
sweep --machine h100_64 --devices 2 --batch 64 --memory 560K --mode rules || bad "with less memory: $(cat "$here/err")"
grep -q -- '--microbatches [0-9]' "$here/rows.csv" || bad "no microbatches where memory asks: $(cat "$here/out")"
sweep --machine h100_64 --devices 2 --batch 64 --memory 560K --microbatches 1 --mode rules || bad "microbatches that are given"
grep -q 'does not fit 560.0 KiB: needs ' "$here/out" || bad "it is not said what does not fit: $(cat "$here/out")"
exit $((failures > 0))
