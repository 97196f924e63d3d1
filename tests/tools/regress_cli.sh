#!/usr/bin/env bash
# Suites: the plans and jobs of our own are as recorded; a change of a price, of a dim of the model and of an option are told apart;
# JUnit's XML is well-formed; the same suite twice gives the same bytes; --update, then it passes; the files for GitHub
# Actions and GitLab run the commands that they show.
# Usage: regress_cli.sh BIN_DIR
set -u
bin=$(realpath "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }
has() { grep -qF -- "$1" "$here/out" || { bad "'$1' is not said:"; cat "$here/out"; }; }
regress() { "$bin/dtplan" regress "$@" --quiet >"$here/out" 2>"$here/err"; }

# ---- causes
cp models/gpt_bytes.json models/machines/cpu_2.json "$here"
cat >"$here/suite.json" <<J
{"format": "dtp.suite/1", "cases": [{"name": "a", "model": "$here/gpt_bytes.json", "machine": "$here/cpu_2.json", "mesh": "x:2", "mode": "tensor"}]}
J
regress "$here/suite.json" || bad "a suite that is not recorded fails"
has "not recorded yet"
regress "$here/suite.json" --update || bad "--update"
has "1 case: 1 recorded, 0 failed"
grep -q 'not recorded\|new$' "$here/out" && bad "--update says of a case that it is not recorded"
cp "$here/suite.json" "$here/recorded.json"
regress "$here/suite.json" || bad "after --update"
cp "$here/out" "$here/first"
regress "$here/suite.json" && cmp -s "$here/out" "$here/first" || bad "the same suite twice prints other bytes"
has "1 case: 0 regressed, 0 moved within tolerance"
regress "$here/suite.json" --update && cmp -s "$here/suite.json" "$here/recorded.json" || bad "a second --update writes something else"
sed -i -E 's/"bw_Bps": [0-9.e]+/"bw_Bps": 5e7/' "$here/cpu_2.json"
sed -i 's|"format": "dtp.machine/1",|&"yes_units": true,|' "$here/cpu_2.json"
regress "$here/suite.json" && bad "a slower network is no regression"
has "the machine changed: "
has "levels.shared_memory.bw_Bps "
has " -> 5e+07"
grep -q 'the model changed\|options of the case changed\|are the same' "$here/out" && bad "a price has another cause, too"
cp models/machines/cpu_2.json "$here"
sed -i 's/"batch": 24/"batch": 48/' "$here/gpt_bytes.json"
regress "$here/suite.json" --junit "$here/one.xml" --markdown "$here/one.md" && bad "a larger batch is no regression"
has "the model changed: batch 24 -> 48"
grep -q 'the machine changed\|options of the case changed' "$here/out" && bad "a dim has another cause, too"
grep -q '| a | WORSE | step .*the model changed: batch 24 -> 48' "$here/one.md" || bad "the comment lacks the cause"
python3 -c 'import sys, xml.etree.ElementTree as t; assert len(t.parse(sys.argv[1]).getroot().findall("testcase/failure")) == 1' "$here/one.xml" ||
    bad "JUnit's file lacks the failure"
cp models/gpt_bytes.json "$here"
sed -i 's/"mode": "tensor"/"mode": "rules"/' "$here/suite.json"
regress "$here/suite.json"
has "the options of the case changed: --mode tensor -> rules"
grep -q 'the machine changed\|the model changed' "$here/out" && bad "an option has another cause, too"
# another version of the planner: what is recorded is not what it gives
python3 - "$here/recorded.json" "$here/other.json" <<'P'
import json, sys
s = json.load(open(sys.argv[1]))
r = s["cases"][0]["recorded"]
r["metrics"]["step"] *= 0.5
key = next(iter(r["layouts"]))
r["layouts"][key] = "elsewhere"
json.dump(s, open(sys.argv[2], "w"))
P
regress "$here/other.json" && bad "a slower plan is no regression"
has "options, model and machine are the same: this version plans otherwise"
has "layouts changed: "
has "elsewhere -> "
regress "$here/other.json" --update && regress "$here/other.json" || bad "--update, then it fails"

# ---- jobs whose ranks are processes of MPI; cases that fail say why, or how they ended
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mlp='"model": "models/mlp_digits.json", "options": ["--steps", "1", "--threads", "1"'
cat >"$here/jobs.json" <<J
{"format": "dtp.jobs/1", "cases": [
 {"name": "ranks", $mlp, "--comm", "mpi"], "mesh": "x:2", "rules": "batch:x"},
 {"name": "wrong", $mlp, "--comm", "pigeons"]}]}
J
jobs() { "$bin/dtrun" regress "$here/jobs.json" --quiet >"$here/out" 2>"$here/err"; }
jobs && bad "jobs that fail pass"
grep -q '^ranks .*FAILED' "$here/out" && command -v mpirun >/dev/null && { bad "a job of MPI processes fails:"; cat "$here/out"; }
has "there is no communicator 'pigeons'"
(ulimit -f 0 && "$bin/dtrun" regress "$here/jobs.json" --quiet) 2>&1 | cat >"$here/out"
has "it said nothing and ended by signal 25" # file size limit

# ---- a revision of git
(cd "$here" && git init -q . && cp recorded.json s.json && git add s.json && git -c user.name=a -c user.email=a@b commit -qm s &&
    cp other.json s.json && sed -i 's/"step": [0-9.e-]*/"step": 1e-9/' s.json &&
    "$bin/dtplan" regress s.json --baseline HEAD --quiet >"$here/out" 2>"$here/err") || { bad "--baseline HEAD:"; cat "$here/out" "$here/err"; }
(cd "$here" && "$bin/dtplan" regress s.json --baseline nowhere --quiet >"$here/out" 2>"$here/err")
[ $? -eq 2 ] && grep -q -- '--baseline nowhere: git has no s.json there' "$here/err" || bad "a revision that is not there"

# ---- the ready files: the comment that they promise is made
grep -q 'issues.createComment' docs/ci/github.yml && grep -q 'pull-requests: write' docs/ci/github.yml || bad "github.yml makes no comment"
python3 - <<'P' >"$here/commands" || bad "docs/ci cannot be read"
import re
for name, key in (("github", "- run: "), ("gitlab", "- ")):
    lines = open(f"docs/ci/{name}.yml").read().splitlines()
    assert not any("\t" in line for line in lines), name
    for line in lines:
        text = line.strip()
        if text.startswith(key) and " regress " in text:
            print(text[len(key):])
P
[ "$(wc -l <"$here/commands")" -eq 4 ] || bad "docs/ci shows $(wc -l <"$here/commands") commands instead of 4"
sort -u "$here/commands" >"$here/different"
while IFS= read -r command; do
    command=${command//.dtplan\/build\/release\/bin/$bin}
    for suite in PLANS JOBS; do # as the files say it
        path=$(sed -nE "s/^ +$suite: //p" docs/ci/github.yml)
        command=${command//\$$suite/$path}
    done
    [[ $command != *dtrun* ]] || command -v mpirun >/dev/null || continue # a job has ranks of MPI
    command=$(sed -E "s#(--junit|--markdown) #\1 $here/#g" <<<"$command")
    $command >"$here/out" 2>&1 || grep -q 'ratio .*more than allowed' "$here/out" || { bad "$command:"; cat "$here/out"; }
    grep -q ' 0 moved within' "$here/out" || grep -q 'ratio .* -> ' "$here/out" || { bad "$command: something moved"; cat "$here/out"; }
done <"$here/different"
# losses in bf16 depend on how the compiler contracts multiply-adds
grep -q 'loss .*more than allowed\|peak .* -> ' "$here/out" && { bad "losses or peaks of jobs are not as recorded:"; cat "$here/out"; }
python3 - "$here/plans.xml" <<'P' || bad "the XML of JUnit"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == "testsuite" and int(root.get("tests")) == len(root.findall("testcase")) >= 40, root.attrib
assert int(root.get("failures")) == len(root.findall("testcase/failure")) == 0
P
[ "$failures" -eq 0 ]
