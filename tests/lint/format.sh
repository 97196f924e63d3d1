#!/usr/bin/env bash
# Every C file is formatted by .clang-format.
. "$(dirname "$0")/common.sh"
command -v clang-format >/dev/null || exit 77
while IFS= read -r file; do bad "$file is not formatted"; done < <(
    sources '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror 2>&1 |
        sed -nE 's/^([^:]+):[0-9]+:.*error:.*/\1/p' | sort -u)
finish
