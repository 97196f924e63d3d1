#!/usr/bin/env bash
# Every public header compiles alone and with every other, all of them in either order, as C17 and as C++17, and includes nothing but dtp/ and the C library.
# Usage: install_headers.sh BIN_DIR (which is not looked at: include/dtp is what is installed, see install.sh)
set -eu
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
headers=$(cd include && ls dtp/*.h)
foreign=$(grep -nE '^ *# *include' include/dtp/*.h |
    grep -vE '("dtp/[a-z_]+\.h"|<(stdbool|stddef|stdint|string)\.h>)$' || true)
[ -z "$foreign" ] || { echo "$foreign"; exit 1; }
all() { sed 's/.*/#include "&"/'; echo 'int main(void) { return 0; }'; }
tr ' ' '\n' <<<"$headers" | sort -r | all | tee "$here/reverse.c" >"$here/reverse.cc"
tr ' ' '\n' <<<"$headers" | sort | all | tee "$here/order.c" >"$here/order.cc"
for a in $headers; do
    for b in $headers; do
        [[ $a > $b ]] && continue
        name=$here/$(basename "$a" .h)-$(basename "$b" .h)
        printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$a" "$b" | tee "$name.c" >"$name.cc"
    done
done
flags=(-Iinclude -fsyntax-only -Wall -Wextra -Wpedantic -Werror)
${CC:-gcc} -std=c17 "${flags[@]}" "$here"/*.c
${CXX:-g++} -std=c++17 "${flags[@]}" "$here"/*.cc
echo "$(ls "$here"/*-*.c | wc -l) pairs of headers compiled as C17 and as C++17"
