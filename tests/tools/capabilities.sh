#!/usr/bin/env bash
# What the project can do, a line each: commands and their options, ops, models, tests. For comparing two versions:
#   tests/tools/capabilities.sh build/dev > after.txt; diff before.txt after.txt
set -euo pipefail
build=$1
for tool in dtplan dtrun; do
    "$build/bin/$tool" --help | sed -nE "s/^  ([a-z-]+) .*/\1/p" | while read -r command; do
        echo "command $tool $command"
        "$build/bin/$tool" "$command" --help | sed -nE 's/^  (-[a-z], )?(--[a-z-]+).*/\2/p' |
            sort -u | sed "s/^/option $tool $command /"
    done
done
sed -nE 's/^\| (`[^|]*) \|.*/\1/p; s/^- (`[^:]*).*/\1/p' docs/ops.md | grep -oE '`[a-z0-9_]+`' | tr -d '`' | sort -u | sed 's/^/op /'
find models -name '*.json' | sort | sed 's/^/model /'
ctest --test-dir "$build" -N | sed -nE 's/^ *Test +#[0-9]+: /test /p' | sort
