# Shared by the lint scripts: the sources under control, and a failure counter.
set -u
export LC_ALL=C.UTF-8 # columns are characters, wherever we run
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }
finish() { [ "$failures" -eq 0 ] || { echo "$failures finding(s)"; exit 1; }; }
LIBRARY=(core spmd interop cost_models planner executor dtensor include)
PRODUCT=("${LIBRARY[@]}" tools)
# library SUFFIX..., product SUFFIX...: the sources of the library, or of library and tools, with these suffixes.
of_rooms() { sources "$@" | grep -E "\.($suffixes)$"; }
library() { local IFS='|'; suffixes="$*" of_rooms "${LIBRARY[@]}"; }
product() { local IFS='|'; suffixes="$*" of_rooms "${PRODUCT[@]}"; }
sources() { git ls-files --cached --others --exclude-standard -- "$@"; }
# The slow checks look at the files that changed since the upstream branch (without one: since the last commit but one);
# DTP_LINT=all: at all of them. `checked` passes on the files of its input that are to be looked at. A changed header
# stands for the .c file beside it.
checked() {
    [ "${DTP_LINT:-all}" = all ] && { cat; return; }
    local base
    base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git rev-parse -q --verify HEAD~1) || { cat; return; }
    grep -xF -f <({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sed 's/\.h$/.c/') || true
}
