#!/usr/bin/env bash
# tests/dtensor/null_rows.def has a row for every pointer parameter of every function that the public headers declare
# (`err` may always be NULL). Of the headers in core/ and executor/ it has the functions that return a status.
set -u
rows=tests/dtensor/null_rows.def
# "function parameter" for each pointer parameter of the declarations of a header
pointers() {
    sed -e 's|/\*.*\*/||' "$1" | awk '/\/\*/ {c = 1} !c {print} /\*\// {c = 0}' | grep -v '^#' | tr '\n' ' ' |
        tr ';{}' '\n\n\n' | grep -v typedef | grep "$2" |
        sed -nE 's/^.*[ *](dtp_[a-z0-9_]+)\((.*)\).*$/\1|\2/p' |
        awk -F'|' '{n = split($2, p, ","); for (i = 1; i <= n; i++) {
                        if (p[i] !~ /[*[]/ || p[i] ~ /[ *]err *$/) continue
                        sub(/\[.*/, "", p[i]); gsub(/.*[ *]/, "", p[i]); print $1, p[i]}}'
}
want=$(
    for header in include/dtp/*.h interop/layout_forms.h core/layout/placement_text.h; do pointers "$header" .; done
    for header in core/layout/layout.h core/layout/mesh.h core/graph/op_set.h core/graph/op_custom.h \
        executor/device/backend.h executor/cpu/cpu.h executor/ref/ref.h executor/run/backends.h; do
        pointers "$header" dtp_status
    done
)
have=$(
    sed -nE 's/^[A-Z]+\((dtp_[a-z0-9_]+), ([a-z0-9_]+),.*/\1 \2/p' $rows
    sed -nE 's/^    OP\(([a-z0-9_]+), .*/dtp_tensor_\1 out/p' core/graph/ops/elementwise.h | grep -v '_grad out'
)
missing=$(comm -23 <(sort -u <<<"$want") <(sort -u <<<"$have"))
stale=$(comm -13 <(sort -u <<<"$want") <(sort -u <<<"$have") | grep -v '^dtp_world_run body$')
echo "$(wc -l <<<"$want") pointer parameters, $(wc -l <<<"$have") rows"
[ -z "$missing" ] || { echo "no row in $rows:"; echo "$missing"; }
[ -z "$stale" ] || { echo "rows in $rows of no function:"; echo "$stale"; }
[ -z "$missing$stale" ] && [ "$(wc -l <<<"$want")" -gt 200 ]
