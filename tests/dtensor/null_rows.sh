#!/usr/bin/env bash
# tests/dtensor/null_rows.def has a row for every pointer parameter of every function that the public headers declare
# (`err` may always be NULL). Of headers without handles of tensors it has the functions that return a status.
set -u
rows=tests/dtensor/null_rows.def
# "function parameter" for each pointer parameter of the declarations of a header
pointers() {
    sed -e 's|/\*.*\*/||' "$1" | awk '/\/\*/ {c = 1} !c {print} /\*\// {c = 0}' | grep -v '^#' | tr '\n' ' ' |
        tr ';{}' '\n\n\n' | grep -v typedef | grep -v "static inline" | grep "$2" |
        sed -nE 's/^.*[ *](dtp_[a-z0-9_]+)\((.*)\).*$/\1|\2/p' |
        awk -F'|' '{n = split($2, p, ","); for (i = 1; i <= n; i++) {
                        if (p[i] !~ /[*[]/ || p[i] ~ /[ *]err *$/) continue
                        sub(/\[.*/, "", p[i]); gsub(/.*[ *]/, "", p[i]); print $1, p[i]}}'
}
# Functions of the other public headers that return no status take what is valid; hooks of ops (dtp_vjp_...) are called with what is.
want=$(
    for header in include/dtp/{device_mesh,world,tensor,ops,tape,optimizer}.h interop/layout_forms.h core/layout/placement_text.h; do
        pointers "$header" .
    done
    for header in include/dtp/{mesh,layout,op,model,plan,planner,session}.h core/layout/layout.h core/layout/mesh.h \
        core/graph/op_set.h executor/device/backend.h executor/cpu/cpu.h executor/ref/ref.h; do
        pointers "$header" 'dtp_status [a-z_]*('
    done | grep -vE '^dtp_vjp_'
)
have=$(
    sed -nE 's/^[A-Z]+\((dtp_[a-z0-9_]+), ([a-z0-9_]+),.*/\1 \2/p' $rows
    sed -nE 's/^    OP\(([a-z0-9_]+), .*/dtp_tensor_\1 out/p' core/graph/ops/elementwise.h | grep -v '_grad out'
)
# NULL options of a session, the type of a tensor of a job, and where a tensor is gathered off rank 0 need one that runs.
running='^dtp_(session_create options|job_tensor type|session_gather out)$'
missing=$(comm -23 <(sort -u <<<"$want") <(sort -u <<<"$have") | grep -vE "$running")
stale=$(comm -13 <(sort -u <<<"$want") <(sort -u <<<"$have") | grep -vE '^dtp_(world_run|comm_sim_run) body$')
echo "$(wc -l <<<"$want") pointer parameters, $(wc -l <<<"$have") rows"
[ -z "$missing" ] || { echo "no row in $rows:"; echo "$missing"; }
[ -z "$stale" ] || { echo "rows in $rows of no function:"; echo "$stale"; }
[ -z "$missing$stale" ] && [ "$(wc -l <<<"$want")" -gt 200 ]
