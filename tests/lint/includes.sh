#!/usr/bin/env bash
# Include arrows of docs/architecture.md: a folder includes itself and the folders listed for it.
. "$(dirname "$0")/common.sh"
# The public headers (include/dtp) include each other only; everything may include them.
declare -A allowed=(
    [core]="core" [spmd]="spmd core" [interop]="interop spmd core" [importers]="importers interop spmd core" [cost_models]="cost_models interop spmd core"
    [planner]="planner cost_models interop spmd core" [executor]="executor spmd core"
    [dtensor]="dtensor executor cost_models interop spmd core" [include]="" [examples]=""
    [tools]="tools planner dtensor executor cost_models importers interop spmd core")
for folder in "${!allowed[@]}"; do
    while IFS=: read -r file line include; do
        target=$(sed -E 's/.*"([^"]+)".*/\1/' <<<"$include")
        top=${target%%/*}
        [ "$top" != "$target" ] || { bad "$file:$line: include \"$target\" lacks its folder"; continue; }
        [[ " dtp ${allowed[$folder]} " == *" $top "* ]] || bad "$file:$line: $folder may not include $target"
    done < <(sources "$folder/*.c" "$folder/*.h" "$folder/*.cu" "$folder/*.cuh" | xargs -r grep -nE '^\s*#\s*include\s*"' /dev/null)
done
finish
