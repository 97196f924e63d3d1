#!/usr/bin/env bash
# docs/compat-torch.md lists every row of its "Rows:" line once, every test that it names exists (the program is
# registered and holds the case), a row without a test says what it waits for, three rows do, in our own mode no row has
# more collectives (its cell says equal or lower), and a third of the rows run on MPI. Tests stand in lists under
# "Tests:", an item for some rows: "- R1 R2: `program:case`, ...".
# Usage: rows.sh BUILD_DIR
set -u
build=$1
doc=docs/compat-torch.md
failed=0
fail() { echo "FAIL: $*"; failed=$((failed + 1)); }
registered=$(ctest --test-dir "$build" -N | sed -n 's/.*Test *#[0-9]*: //p')
has() { grep -qx -- "$1" <<<"$registered"; }

want=$(sed -n 's/^Rows: \(.*\)\.$/\1/p' $doc | tr -d ';' | tr ' ' '\n')
got=$(grep -oE '^\| [A-Z][0-9]+ \|' $doc | tr -d '| ')
[ -n "$want" ] || fail "$doc has no line 'Rows: ...'"
diff <(echo "$want") <(echo "$got") || fail "the tables of $doc are not the rows of its list"
[ -z "$(sort <<<"$got" | uniq -d)" ] || fail "a row is there twice"

declare -A tests_of=()
while IFS=: read -r ids tests; do
    for id in $ids; do
        grep -qx -- "$id" <<<"$got" || fail "tests for '$id', which is no row"
        [ -z "${tests_of[$id]:-}" ] || fail "$id: its tests are listed twice"
        tests_of[$id]=$tests
    done
done < <(awk 'function flush() {if (item != "") print item; item = ""}
    /^Tests:$/ {on = 1} /^#/ {flush(); on = 0} !on {next}
    /^- / {flush(); item = substr($0, 3)} /^  / {item = item $0} END {flush()}' $doc)

check_test() {
    local id=$1 program=${2%%:*} name=${2#*:}
    has "$program" || { fail "$id: no test '$program'"; return; }
    local binary=$build/bin/test_$program
    [ -e "$binary" ] || binary=$build/bin/test_${program%_[0-9]}
    grep -qa -- "$name" "$binary" || fail "$id: '$program' has no case '$name'"
}

# Cells of our own mode.
check_own() {
    local id=$1 torch=$2 own=$3
    [ "$own" != "as in torch mode" ] || own=$torch
    case $own in
        equal* | lower* | "not used") ;;
        "as T10" | "as N3") ;;
        "waits for "*) waiting=$((waiting + 1)) ;;
        *) [[ " N17 N18 " == *" $id "* ]] || fail "$id: in our own mode '$own'" ;; # other values or refused, not counts
    esac
}

rows=0 mpi_rows=0 waiting=0
while IFS='|' read -r _ id _ torch own mpi _; do
    id=${id// /} mpi=${mpi//[ \`]/}
    rows=$((rows + 1))
    check_own "$id" "$(sed 's/^ *//; s/ *$//' <<<"$torch")" "$(sed 's/^ *//; s/ *$//' <<<"$own")"
    named=$(grep -oE '`[^`]+`' <<<"${tests_of[$id]:-}" | tr -d '`')
    [ -n "$named" ] || [[ $torch == *"waits for "* ]] || fail "$id: no test"
    for t in $named; do check_test "$id" "$t"; done
    [ "$mpi" != no ] || continue
    mpi_rows=$((mpi_rows + 1))
    if grep -q _mpi_ <<<"$registered"; then
        has "$mpi" || fail "$id: no test '$mpi'"
    fi
done < <(grep -E '^\| [A-Z][0-9]+ \|' $doc)
[ $((3 * mpi_rows)) -ge $rows ] || fail "only $mpi_rows of $rows rows run on MPI"
[ $waiting -le 3 ] || fail "$waiting rows wait for an op"
echo "$rows rows, $mpi_rows on MPI, $failed failed"
[ $rows -gt 0 ] && [ $failed -eq 0 ]
