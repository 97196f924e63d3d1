# Shared by the lint scripts: the sources under control, and a failure counter.
set -u
export LC_ALL=C.UTF-8 # columns are characters, wherever we run
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }
finish() { [ "$failures" -eq 0 ] || { echo "$failures finding(s)"; exit 1; }; }
LIBRARY=(core spmd interop importers cost_models planner executor dtensor include)
PRODUCT=("${LIBRARY[@]}" tools)
# library SUFFIX..., product SUFFIX...: the sources of the library, or of library and tools, with these suffixes.
of_rooms() { sources "$@" | grep -E "\.($suffixes)$"; }
library() { local IFS='|'; suffixes="$*" of_rooms "${LIBRARY[@]}"; }
product() { local IFS='|'; suffixes="$*" of_rooms "${PRODUCT[@]}"; }
sources() { git ls-files --cached --others --exclude-standard -- "$@"; }
# The slow lints: a command over the files of standard input, those alone that are not remembered as clean.
each_file() { python3 "$(dirname "$0")/each_file.py" "$@"; }
