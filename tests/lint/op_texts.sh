#!/usr/bin/env bash
# The parts of include/dtp/ops.h and docs/ops.md that follow from the op table are what tests/lint/op_texts.c prints.
# Usage: op_texts.sh BIN_DIR [--write]: with --write the parts are brought up to date.
. "$(dirname "$0")/common.sh"
bin=$1
# part FILE FIRST LAST: the lines of FILE between the lines that contain FIRST and LAST are those of standard input.
part() {
    local new have
    new=$(cat)
    have=$(awk -v first="$2" -v last="$3" 'index($0, last) {on = 0} on {print} index($0, first) {on = 1}' "$1")
    [ "$new" = "$have" ] && return
    if [ "${write:-}" = --write ]; then
        awk -v first="$2" -v last="$3" -v new="$new" 'index($0, last) {on = 0} !on {print} index($0, first) {on = 1; print new}' \
            "$1" >"$1.new" && mv "$1.new" "$1"
    else
        diff <(echo "$have") <(echo "$new") | head -10
        bad "$1 is not what the op table says; tests/lint/op_texts.sh $bin --write brings it up to date"
    fi
}
write=${2:-}
part include/dtp/ops.h "---- from the op table" "---- end" < <("$bin/op_texts" functions | clang-format --style=file)
part docs/ops.md "<!-- from the op table -->" "<!-- end -->" < <("$bin/op_texts" ops)
finish
