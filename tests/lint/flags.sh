#!/usr/bin/env bash
# The warning flags reach the compiler for every source file of ours.
. "$(dirname "$0")/common.sh"
db=$1/compile_commands.json
[ -f "$db" ] || { echo "$db is missing"; exit 1; }
# of C sources; kernels have flags of their own
commands=$(grep '"command"' "$db" | grep -E ' -c [^ ]+[.]c"')
total=$(wc -l <<<"$commands")
for flag in -Wconversion -Wvla -Wdouble-promotion -std=c17; do
    n=$(grep -c -- " $flag" <<<"$commands")
    [ "$n" -eq "$total" ] || bad "$flag reaches $n of $total compilations"
done
[ "$total" -gt 50 ] || bad "only $total compilations listed"
finish
