#!/usr/bin/env bash
# No unfinished markers, no process-ending calls in libraries, no environment reads in libraries but the one
# of docs/decisions/0038-matrix-products.md; no identifiers that the glossary (docs/glossary.md) has replaced.
. "$(dirname "$0")/common.sh"
while IFS= read -r hit; do bad "$hit"; done < <(
    sources '*.c' '*.h' '*.cu' '*.cuh' | xargs grep -nE '\b(TODO|FIXME|XXX)\b' | cut -c1-140)
while IFS= read -r hit; do bad "library: $hit"; done < <(
    library c h | xargs grep -nE '\b(abort|exit|getenv|secure_getenv|rand|srand|strtok|gets|sprintf|strcpy)\(' |
        grep -vE '^executor/cpu/gemm/blas[.]c:[0-9]+:.*getenv\(CORETYPE\)' | cut -c1-140)
replaced='sel_[a-z_]+|dtp_(select|move|moves|piece|place|setting|settings|timeline|walk|lend)(_[a-z_]+)?'
replaced+='|manner|take_back|give_up|plain_call|call_table|incident|kick|polish'
while IFS= read -r hit; do bad "glossary: $hit"; done < <(product c h | xargs grep -nwE "$replaced" | cut -c1-140)
finish
