#!/usr/bin/env bash
# What a suite may do to its surroundings: a signal ends the jobs that it started and leaves no file, cases do not write,
# a broken one fails alone, a revision is no option of git; files of the working directory hide no machine; a plan that
# measures its machine ends like a suite; `show --plan` shows the plan of the file at every stage.
# Usage: regress_fences.sh BIN_DIR
set -u
bin=$(realpath "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }
has() { grep -qF -- "$1" "$here/out" "$here/err" || { bad "'$1' is not said:"; cat "$here/out" "$here/err"; }; }
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$here/tmp" "$here/work" "$here/own/share"
# Programs of this path are this script's alone, and so is what they start.
own=$here/own/bin
mkdir "$own"
cp "$bin/dtplan" "$bin/dtrun" "$own" && cp -r "$bin/../share/dtp" "$here/own/share" || exit 1
models=$PWD/models
mlp='"model": "'$models'/mlp_digits.json"'

running() { find /proc -maxdepth 2 -name exe -lname "$own/*" 2>/dev/null | wc -l; }
gone() { # WHAT
    for _ in $(seq 120); do
        [ "$(running)" -eq 0 ] && return
        sleep 0.1
    done
    bad "$1: $(running) processes go on"
    for p in $(find /proc -maxdepth 2 -name exe -lname "$own/*" 2>/dev/null | tr -dc '0-9\n'); do kill -KILL "$p"; done
}

# interrupt SIGNAL CODE COMMAND...: the command ends by the signal with all that it started, and leaves no file
interrupt() {
    local sig=$1 code=$2 pid rc
    shift 2
    TMPDIR=$here/tmp env --default-signal=INT,HUP,TERM "$@" >"$here/out" 2>"$here/err" &
    pid=$!
    for _ in $(seq 200); do
        [ "$(running)" -ge 2 ] && break
        sleep 0.05
    done
    sleep 0.5
    kill "-$sig" $pid
    wait $pid 2>/dev/null
    rc=$?
    [ $rc -eq "$code" ] || { bad "$sig: exit $rc instead of $code: $*"; cat "$here/err"; }
    gone "$sig: $*"
    for _ in $(seq 100); do # mpirun removes its folder last
        [ -z "$(ls -A "$here/tmp")" ] && break
        sleep 0.1
    done
    [ -z "$(ls -A "$here/tmp")" ] || { bad "$sig: left in TMPDIR: $(ls "$here/tmp")"; rm -rf "$here"/tmp/*; }
}

comms="sim"
command -v mpirun >/dev/null && comms="sim mpi"
for comm in $comms; do
    cat >"$here/long.json" <<J
{"format": "dtp.jobs/1", "cases": [{"name": "long", $mlp, "mesh": "x:2", "rules": "batch:x",
 "options": ["--steps", "1000000000", "--threads", "1", "--comm", "$comm"]}]}
J
    for pair in INT:130 TERM:143 HUP:129 KILL:137; do
        interrupt "${pair%:*}" "${pair#*:}" "$own/dtrun" regress "$here/long.json" --quiet
    done
done
cat >"$here/plans.json" <<J
{"format": "dtp.suite/1", "cases": [
 {"name": "a", "model": "$models/llama3_8b.json", "machine": "h100_64", "dims": {"batch": 512}, "devices": 64, "mode": "tensor"},
 {"name": "b", "model": "$models/llama3_8b.json", "machine": "h100_64", "dims": {"batch": 1024}, "devices": 64, "mode": "tensor"}]}
J
interrupt TERM 143 "$own/dtplan" regress "$here/plans.json" --quiet --jobs 2
# a plan without a machine measures this one
HOME=$here XDG_CACHE_HOME=$here/cache interrupt INT 130 "$own/dtplan" plan "$models/mlp_digits.json" --mesh x:1

# ---- what a suite may write
cat >"$here/writes.json" <<J
{"format": "dtp.jobs/1", "cases": [
 {"name": "saves", $mlp, "options": ["--steps", "1", "--threads", "1", "--save", "$here/work/saved"]},
 {"name": "fetches", $mlp, "options": ["--threads", "1", "--fetch=loss=$here/work/loss.npy"]},
 {"name": "reports", $mlp, "options": ["--threads", "1", "-o", "$here/work/report.json"]},
 {"name": "traces", $mlp, "options": ["--threads", "1", "--trace", "$here/work/trace"]}]}
J
"$bin/dtrun" regress "$here/writes.json" --quiet >"$here/out" 2>"$here/err" && bad "a suite that writes passes"
[ -z "$(ls -A "$here/work")" ] || bad "a suite has written: $(ls "$here/work")"
for option in --save --fetch --output --trace; do has "$option writes files, which --no-writes forbids"; done
"$bin/dtrun" regress "$here/writes.json" --quiet --allow-writes >"$here/out" 2>"$here/err"
[ -d "$here/work/saved" ] && [ -f "$here/work/report.json" ] || { bad "--allow-writes writes nothing"; cat "$here/out"; }
rm -rf "$here"/work/*
cat >"$here/planwrites.json" <<J
{"format": "dtp.suite/1", "cases": [{"name": "a", $mlp, "machine": "a100_8", "mesh": "x:2", "options": ["--output", "$here/work/p.json"]}]}
J
"$bin/dtplan" regress "$here/planwrites.json" --quiet >"$here/out" 2>"$here/err" && bad "a suite of plans that writes passes"
[ -z "$(ls -A "$here/work")" ] || bad "a suite of plans has written: $(ls "$here/work")"

# ---- broken cases fail alone
many=$(printf '"--dim", "batch=8", %.0s' $(seq 60))
cat >"$here/broken.json" <<J
{"format": "dtp.jobs/1", "cases": [
 {"name": "good", $mlp, "options": ["--steps", "1", "--threads", "1"]},
 {"name": "help", $mlp, "options": ["--help"]},
 {"name": "no model", "options": ["--steps", "1"]},
 {"name": "other key", $mlp, "stepz": 3},
 {"name": "other type", $mlp, "mesh": 2},
 {"name": "many", $mlp, "options": [$many "--steps", "1"]},
 {"name": "lonely", $mlp, "options": ["--steps", "1", "--threads", "1"], "reference": "nobody"},
 {"name": "follower", $mlp, "options": ["--steps", "1", "--threads", "1"], "reference": "help",
  "recorded": {"metrics": {"ratio": 1, "step": 1}}}]}
J
"$bin/dtrun" regress "$here/broken.json" --quiet >"$here/out" 2>"$here/err"
[ $? -eq 1 ] || bad "a suite with broken cases: exit $?"
grep -q '^good .*new$' "$here/out" || { bad "a good case fails with the broken ones"; cat "$here/out" "$here/err"; }
for name in help "no model" "other key" "other type" many lonely; do
    grep -q "^$name .*FAILED$" "$here/out" || bad "'$name' does not fail"
done
grep -q '^follower .*\(moved\|same\)$' "$here/out" || { bad "a case fails with its reference"; cat "$here/out"; }
sed 's#models/mlp_digits#models/absent#' "$here/broken.json" >"$here/absent.json"
cat >"$here/two.json" <<J
{"format": "dtp.suite/1", "cases": [
 {"name": "broken", "model": "$here/changed.json", "machine": "$here/cpu.json", "mesh": "x:2"},
 {"name": "good", "model": "$models/mlp_digits.json", "machine": "$models/machines/cpu_2.json", "mesh": "x:2"}]}
J
"$bin/dtplan" regress "$here/two.json" --quiet >"$here/out" 2>"$here/err"
grep -q '^good .*new$' "$here/out" || { bad "a good plan fails with a broken one"; cat "$here/err"; }

# ---- reports: times of cases, values of what passed; names are names, on a terminal, in XML and in Markdown
python3 - "$here" "$models" <<'P'
import json, sys
here, models = sys.argv[1:]
case = {"model": models + "/mlp_digits.json", "options": ["--steps", "1", "--threads", "1"]}
names = ["plain", "a<img src=x>|`*_[x](y)@user", "bell\a \x1b[31mred\x1b[0m", "two\nlines ]]> & \"q\"", "\u202eabc"]
cases = [dict(case, name=n) for n in names] + [dict(case, name="fails", options=["--comm", "\x1b[2J<b>@user|x"])]
json.dump({"format": "dtp.jobs/1", "cases": cases}, open(here + "/names.json", "w"))
P
"$bin/dtrun" regress "$here/names.json" --quiet --junit "$here/n.xml" --markdown "$here/n.md" >"$here/out" 2>"$here/err"
python3 - "$here" <<'P' || bad "reports"
import re, sys, xml.etree.ElementTree as tree
here = sys.argv[1]
text, markdown, xml = (open(here + "/" + f, newline="").read() for f in ("out", "n.md", "n.xml"))
root = tree.fromstring(xml.split("\n", 1)[1])
times = [float(c.get("time")) for c in root.findall("testcase")]
assert len(times) == 6 and all(t > 0 for t in times), times
assert abs(float(root.get("time")) - sum(times)) < 0.01
bad = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]"
for what in (text, markdown, xml):
    assert not re.search(bad, what), re.findall(".{0,20}" + bad, what)[:3]
assert "bell\\x07 \\x1b[31mred" in text, text
assert not re.search("<(?!br>|/?details>|/?summary>)", markdown) and "@" not in markdown and "](" not in markdown, markdown
rows = [re.split(r" ?\| ?", line.strip("|\n ")) for line in markdown.splitlines() if line.startswith("| plain")]
assert len(rows) == 2 and len(rows[0]) == 4 and re.search(r"\d", rows[1][3]), rows
assert all(line.count("|") in (5, 6) for line in markdown.splitlines() if line.startswith("|")), markdown
P
"$bin/dtrun" regress "$here/names.json" --quiet --update >/dev/null 2>&1
"$bin/dtrun" regress "$here/names.json" --quiet --markdown "$here/n.md" >/dev/null 2>&1
grep -q '^| plain | .* [0-9.]* [KM]*i*B |' "$here/n.md" || { bad "Markdown lacks the values of what passed"; cat "$here/n.md"; }

# ---- a revision is no option of git
(cd "$here/work" && git init -q . && cp "$here/two.json" s.json && git add s.json && git -c user.name=a -c user.email=a@b commit -qm s &&
    "$bin/dtplan" regress s.json "--baseline=--output=$here/work/planted" --quiet) >"$here/out" 2>"$here/err"
[ -z "$(find "$here/work" -name 'planted*')" ] || bad "git wrote $(find "$here/work" -name 'planted*')"
has "--baseline --output=$here/work/planted: git has no s.json there"
rm -rf "$here/work"

# ---- names of machines
mkdir -p "$here/names/a100_8" && : >"$here/names/h100_64"
for machine in a100_8 h100_64; do
    (cd "$here/names" && "$bin/dtplan" plan "$models/mlp_digits.json" --mesh x:2 --machine $machine) >"$here/out" 2>"$here/err" ||
        { bad "a file of the working directory hides $machine:"; cat "$here/err"; }
done
cp models/machines/cpu_2.json "$here/names/mine"
(cd "$here/names" && "$bin/dtplan" plan "$models/mlp_digits.json" --mesh x:2 --machine mine) >"$here/out" 2>"$here/err" || bad "a file 'mine' is not read"

# ---- every stage is that of the plan
gpt=("$models/gpt_bytes.json" --dim batch=8)
cpu=(--machine "$models/machines/cpu_2.json")
"$bin/dtplan" plan "${gpt[@]}" "${cpu[@]}" --mesh x:2 --precision bf16 --microbatches 2 --remat layer -o "$here/p.json" >/dev/null 2>&1 || bad "no plan"
for stage in graph strategies problem; do
    "$bin/dtplan" show "${gpt[@]}" --stage $stage "${cpu[@]}" --plan "$here/p.json" >"$here/a" 2>"$here/err" || { bad "$stage of a plan:"; cat "$here/err"; }
    "$bin/dtplan" show "${gpt[@]}" --stage $stage "${cpu[@]}" --mesh x:2 --precision bf16 --microbatches 2 --remat layer >"$here/b" 2>>"$here/err" ||
        bad "$stage of options"
    cmp -s "$here/a" "$here/b" || { bad "$stage of a plan is not that of its options"; diff "$here/a" "$here/b" | head -3; }
    "$bin/dtplan" show "${gpt[@]}" --stage $stage "${cpu[@]}" --plan "$here/absent.plan" >"$here/out" 2>"$here/err"
    [ $? -eq 2 ] || bad "$stage of a plan that is not there: exit $?"
    "$bin/dtplan" show "${gpt[@]}" --stage $stage "${cpu[@]}" --plan "$here/p.json" --mesh x:4 >"$here/out" 2>"$here/err"
    [ $? -eq 2 ] || bad "$stage of a plan and a mesh: exit $?"
    has "--plan already says mesh and layouts; leave out --mesh"
done
[ "$failures" -eq 0 ]
