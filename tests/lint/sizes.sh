#!/usr/bin/env bash
# No source file over 700 lines, no line over 100 columns, no section divider over more than a line; every .c file begins with
# a comment that says what it is for.
. "$(dirname "$0")/common.sh"
while read -r n file; do
    [ "$file" = total ] || [ "$n" -le 700 ] || bad "$file: $n lines, the limit is 700"
done < <(sources '*.c' '*.h' '*.cu' '*.cuh' | xargs wc -l)
while IFS= read -r place; do bad "$place: longer than 100 columns"; done < <(
    sources '*.c' '*.h' '*.cu' '*.cuh' | xargs grep -nE '^.{101,}$' | cut -d: -f1,2)
while IFS= read -r place; do bad "$place: a section divider is one line: /* ---- NAME ---- */"; done < <(
    sources '*.c' '*.h' '*.cu' '*.cuh' | xargs grep -nE '^/\* -{3}' | grep -v '[*]/$' | cut -d: -f1,2)
while IFS= read -r file; do
    head -c 3 "$file" | grep -q '^/\* ' || bad "$file: the first line says what the file is for"
done < <(sources '*.c')
finish
