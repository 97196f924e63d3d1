#!/usr/bin/env bash
# The bundle as `./dev lease` packs it, without MPI and oneDNN, on the emulated device, in a root that has nothing but a shell, Python
# and the libraries that these load: two calls run every step, cases are counted, few files come back, what cannot run is left out,
# a step that fails or runs out of time does not end the others, and a way round is found and named. Where no such root can be
# made: in an empty folder with an empty environment. Calls that are killed are in test_killed.py.
set -u
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
fail=0
complain() { # what, output
    echo "FAIL: $1"
    echo "$2" | head -40
    fail=1
}
# Programs with what they load, into $here, which becomes the root.
bare_root() {
    local python libraries
    python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
    mkdir -p "$here"/usr/{bin,lib,lib64} "$here"/{proc,dev} && ln -s usr/bin usr/lib usr/lib64 "$here/"
    for program in bash sh env cat dirname head ls mkdir realpath rm sed tr; do
        cp -L "$(command -v "$program")" "$here/usr/bin/"
    done
    libraries=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    find "$here/usr/bin" -type f -printf '%p\n' | cat - <(echo "$python"; ls "$libraries"/lib-dynload/*.so) | xargs ldd 2>/dev/null |
        sed -n 's/^\s*\(.* => \)\?\(\/\S*\) (.*/\2/p' | sort -u | xargs cp -L --parents -t "$here/"
    cp -L --parents "$python" "$here/" && tar -C / --exclude=site-packages --exclude=test --exclude=__pycache__ -c "${libraries#/}" | tar -C "$here" -x && ln -sf "$python" "$here/usr/bin/python3"
    # What C++ and threads in general need, which every Debian and Ubuntu has.
    ldconfig -p | sed -n 's/.*lib\(stdc++\.so\.6\|gcc_s\.so\.1\) .*x86-64.*=> //p' | xargs cp -L --parents -t "$here/"
}
lease() { # environment words ..., then -- and options of lease.sh
    local words=()
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    words=(env -i PATH=/usr/bin:/bin TMPDIR="$top/tmp" OUT="$top/out" CUDA_EMU_DEVICES=1 "${words[@]}" bash -c 'cd "$0" && exec bash ../bundle/lease.sh "$@"'
        "$top/empty" "${@:2}")
    if [ -n "$top" ]; then
        "${words[@]}" 2>&1
    else
        unshare -m bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$here" "${words[@]}" 2>&1
    fi
}
top=$here # of the folders as the calls see them
if unshare -m chroot / true 2>/dev/null && [ "$(uname -m)" = x86_64 ]; then
    bare_root || complain "the root" ""
    top=
else
    echo "no root of its own: unshare and chroot are not allowed here"
fi
mkdir "$here/empty" "$here/tmp"
text=$(./dev lease --emulated "$here/bundle" 2>&1) || complain "the bundle" "$text"
size=$(stat -c %s "$here/bundle/lease.tar.gz")
[ "$size" -le $((30 << 20)) ] || complain "the bundle has $size bytes" "$text"

text=$(lease -- --total-s 300 --emulated 1) || complain "the first call" "$text"
mv "$here/out" "$here/back"
text+=$(lease -- --total-s 300 --done "$top/back/report.json" --emulated 2) || complain "the second call" "$text"
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
assert ops["cases"] >= 200 and ops["tests"] == 11 and {ops[n] for n in ("ops 1/2", "ops 2/2", "shards")} == {0} and len(ops) == 5, ops
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
