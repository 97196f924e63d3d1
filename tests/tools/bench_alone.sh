#!/usr/bin/env bash
# One op and one collective alone: sizes as asked for, rates that follow from bytes and times, and what is refused. Usage:
# bench_alone.sh BIN_DIR
set -u
bin=$1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
bad() { echo "FAIL: $*"; failed=$((failed + 1)); }
bench() { "$bin/dtrun" bench --quiet --threads 1 "$@"; }

for ranks in 2 3; do
    for kind in all_reduce all_gather reduce_scatter all_to_all collective_permute; do
        bench --collective $kind --sizes 3K..12K --ranks $ranks --comm sim --json >"$here/$kind.$ranks.json" || bad "$kind"
    done
done
for op in add einsum adamw attention; do
    bench --op $op --sizes 16K..64K --comm self --json >"$here/$op.json" || bad "$op"
done
bench --op add --sizes 16K --comm self >"$here/add.txt" || bad "text"
bench --collective all_reduce --sizes 16K --ranks 2 --comm sim >"$here/all_reduce.txt" || bad "text"

/usr/bin/env python3 - "$here" <<'PYTHON' || bad "reports"
import json, os, sys
here = sys.argv[1]
# How often the bytes of the whole buffer pass a link at least: every rank sends to and receives from the others what they
# do not have, all-reduce twice.
share = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n,
         "all_to_all": lambda n: (n - 1) / n, "collective_permute": lambda n: 1}
near = lambda a, b: abs(a - b) <= 1e-9 * max(abs(a), abs(b))
for kind, factor in share.items():
    for n in (2, 3):
        rows = json.load(open(f"{here}/{kind}.{n}.json"))["rows"]
        assert [r["bytes"] for r in rows] == [3072, 6144, 12288] and all(r["ranks"] == n for r in rows), rows
        for r in rows:
            rate = r["bytes"] / r["time_us"] / 1e3
            assert near(r["algbw_GBps"], rate) and near(r["busbw_GBps"], rate * factor(n)), r
for op in ("add", "einsum", "adamw", "attention"):
    rows = json.load(open(f"{here}/{op}.json"))["rows"]
    assert {r["arithmetic"] for r in rows} >= {"f32"} and all(r["time_us"] > 0 for r in rows), op
    assert all(near(r["GBps"], r["bytes"] / r["time_us"] / 1e3) for r in rows), op
    copies = [r["GBps"] / r["of_copy"] for r in rows]
    assert all(near(c, copies[0]) for c in copies), op
# an addition reads two operands and writes one: of 16 KiB to 64 KiB in f32
sizes = {r["bytes"] for r in json.load(open(f"{here}/add.json"))["rows"] if r["arithmetic"] == "f32"}
assert {3 * 16384, 3 * 32768, 3 * 65536} <= sizes, sizes
# the fastest product of an arithmetic is what others are held against
einsum = json.load(open(f"{here}/einsum.json"))["rows"]
for a in {r["arithmetic"] for r in einsum}:
    assert max(r["of_product"] for r in einsum if r["arithmetic"] == a) == 1, a
assert "of copy" in open(f"{here}/add.txt").read() and "busbw" in open(f"{here}/all_reduce.txt").read()
try:
    from jsonschema import validate
    schema = json.load(open("docs/formats/bench.schema.json"))
    for name in os.listdir(here):
        if name.endswith(".json"):
            validate(json.load(open(f"{here}/{name}")), schema)
except ImportError:
    pass
PYTHON

refused() { # PART OPTION...
    local text code=0
    text=$(bench "${@:2}" 2>&1 >"$here/out") || code=$?
    [ $code -eq 2 ] && [[ $text == *"$1"* ]] && [ "$(wc -l <<<"$text")" -eq 1 ] && [ ! -s "$here/out" ] || bad "${*:2}: code $code: $text"
}
refused "there is no 'gellu'; the nearest names are 'gelu'" --op gellu
refused "there is no 'allreduce'; the nearest names are 'all_reduce'" --collective allreduce
refused "not both" --op add --collective all_reduce
refused "write none" --op add -o "$here/machine.json"
refused "need --op or --collective" --sizes 8K
refused "does not rise" --op add --sizes 8K..4K
refused "ends above" --op add --sizes 1..2G
refused "'4Q'" --op add --sizes 1K..4Q
refused "nothing to measure on one rank" --collective all_reduce --comm self
refused "it only renames" --op relabel --comm self
[ ! -e "$here/machine.json" ] || bad "a machine file was written"
[ $failed -eq 0 ]
