#!/usr/bin/env bash
# No unfinished markers, no process-ending calls in libraries, no environment reads in libraries.
. "$(dirname "$0")/common.sh"
while IFS= read -r hit; do bad "$hit"; done < <(
    sources '*.c' '*.h' | xargs grep -nE '\b(TODO|FIXME|XXX)\b' | cut -c1-140)
while IFS= read -r hit; do bad "library: $hit"; done < <(
    library c h | xargs grep -nE '\b(abort|exit|getenv|secure_getenv|rand|srand|strtok|gets|sprintf|strcpy)\(' | cut -c1-140)
finish
