#!/usr/bin/env bash
# What follows from the rows of tools/options.def: docs/options.md is as `dtplan help --markdown` says it, examples of help
# run, manual pages are roff without faults, bash completes commands, options and words. After a change of rows:
#   build/dev/bin/dtplan help --markdown >docs/options.md
# Usage: options.sh BIN_DIR
set -u
bin=$(realpath "$1")
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
fail() { echo "FAIL: $*"; failed=1; }

"$bin/dtplan" help --markdown | diff - docs/options.md || fail "docs/options.md is not what 'dtplan help --markdown' says"
"$bin/dtrun" help --markdown | diff -q - docs/options.md >/dev/null || fail "dtrun says another document"

commands() { sed -nE "s/^COMMAND\([A-Z_]+, $1, [a-z_]+, \"([a-z-]+)\".*/\1/p" tools/options.def; }

# Examples, in the order of the rows. Left out: models that are not here, suites, what takes long.
ln -s "$PWD/models" "$here/models"
examples=0
"$bin/dtrun" run models/gpt_bytes.json --steps 0 --save "$here/gpt.ckpt" >/dev/null 2>&1 || fail "no checkpoint of gpt_bytes"
cp models/published/measured/collectives.csv "$here/measured.csv"
for tool in dtplan dtrun; do
    for command in $(commands $tool); do
        found=0
        while IFS= read -r line; do
            found=$((found + 1))
            [[ $line =~ dtplan\ import|\ regress\ |bench\ --quick|dtrun\ eval ]] && continue
            examples=$((examples + 1))
            (cd "$here" && PATH=$bin:$PATH OMP_NUM_THREADS=1 bash -c "$line") >"$here/out" 2>&1 </dev/null ||
                fail "example of $tool $command: $line: $(tail -2 "$here/out")"
        done < <("$bin/$tool" "$command" --help | sed '1,/^examples:/d' |
            awk '{line = line $0; if (sub(/ \\$/, "", line)) next; print line; line = ""}')
        [ $found -eq 2 ] || fail "$tool $command --help ends with $found examples"
        "$bin/$tool" help --man "$command" >"$here/page.1" || fail "no manual page of $tool $command"
        if command -v groff >/dev/null; then
            LC_ALL=C groff -man -ww -Tascii "$here/page.1" >/dev/null 2>"$here/err" || fail "groff on $tool $command"
            [ ! -s "$here/err" ] || fail "manual page of $tool $command: $(head -2 "$here/err")"
        fi
    done
done

# completes TOOL WANTED WORD...: what bash offers for the last word
completes() {
    local wanted=$2
    COMP_WORDS=("$1" "${@:3}") COMP_CWORD=$(($# - 2)) COMPREPLY=()
    "_$1"
    [ "${COMPREPLY[*]}" = "$wanted" ] || fail "completion of ${*:3}: ${COMPREPLY[*]}, wanted $wanted"
}
complete() { :; } # of a shell that is not interactive
for tool in dtplan dtrun; do
    # shellcheck disable=SC1090
    . <("$bin/$tool" help --completion)
done
completes dtplan "pareto" pa
completes dtplan "--machine" plan M --mach
completes dtplan "rules tensor" plan M --mode ""
completes dtplan "tensor" plan M --mode t
completes dtplan "" plan m
completes dtrun "--save --save-hf --save-hf-size --save-every" run M --sav
echo "$examples examples"
exit $failed
