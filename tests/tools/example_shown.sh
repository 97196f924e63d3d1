#!/usr/bin/env bash
# A document shows a program as it is: one of its ```c blocks is the file. Usage: example_shown.sh FILE DOC
set -eu
awk 'NR == FNR {want = want $0 "\n"; next}
     /^```c$/ {inside = 1; text = ""; next}
     /^```$/ {if (inside && text == want) found = 1; inside = 0}
     inside {text = text $0 "\n"}
     END {exit !found}' "$1" "$2" || { echo "$2 does not show $1 as it is"; exit 1; }
