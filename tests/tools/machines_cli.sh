#!/usr/bin/env bash
# Machines by name, from the build folder and from where the tools are installed; without --machine this machine is
# measured once, and that is said.
# Usage: machines_cli.sh BIN_DIR
set -u
bin=$(realpath "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
export XDG_CACHE_HOME=$here/cache
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }

cmake --install "$bin/.." --prefix "$here/prefix" >"$here/install.log" || bad "the tools cannot be installed"
for at in "$bin" "$here/prefix/bin"; do
    names=$("$at/dtplan" machines | awk 'NR > 1 && !/^ / { print $1 }')
    [ "$names" = "$(ls models/machines | sed 's/\.json$//')" ] || bad "$at/dtplan machines lists" $names
    "$at/dtplan" plan models/llama3_8b.json --mesh 'x:8;y:8' --machine h100_64 -o "$here/plan.json" >/dev/null ||
        bad "$at: --machine h100_64 is not found"
    cmp -s "$here/plan.json" <("$at/dtplan" plan models/llama3_8b.json --mesh 'x:8;y:8' \
        --machine models/machines/h100_64.json --json) || bad "$at: a machine by name gives another plan than its file"
done

plan() { "$bin/dtplan" plan models/mlp_digits.json --mesh x:2 -o "$1" >/dev/null 2>"$here/err"; }
plan "$here/first.json" || bad "no plan without --machine: $(cat "$here/err")"
grep -q '^no --machine: measuring this machine on 2 rank' "$here/err" || bad "it is not said that the machine is measured"
plan "$here/second.json" || bad "no second plan without --machine: $(cat "$here/err")"
grep -q "^no --machine: $here/cache/dtp/cpu_2.json, measured before" "$here/err" || bad "the second plan says: $(cat "$here/err")"
cmp -s "$here/first.json" "$here/second.json" || bad "the second plan is another one"
! XDG_CACHE_HOME='' HOME='' "$bin/dtplan" plan models/mlp_digits.json --mesh x:2 >/dev/null 2>"$here/err" ||
    bad "a plan without a place for the machine"
grep -q 'neither XDG_CACHE_HOME nor HOME' "$here/err" || bad "without a place it says: $(cat "$here/err")"
[ "$failures" -eq 0 ]
