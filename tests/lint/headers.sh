#!/usr/bin/env bash
# Every header compiles alone, and those that are installed compile together in any order: all of them in one file, and in
# the reverse order. (Names that clash then do so in any order; a header that needs another before it fails in one.)
. "$(dirname "$0")/common.sh"
flags="-std=c17 -D_POSIX_C_SOURCE=200809L -I. -Iinclude -fsyntax-only -Wall -Wextra -Wpedantic $(mpicc --showme:compile 2>/dev/null || true)"
while IFS= read -r header; do
    grep -q '<mpi[.]h>' "$header" && ! command -v mpicc >/dev/null && continue
    echo "#include \"$header\"" | ${CC:-gcc} $flags -x c - 2>&1 | head -5 | grep . && bad "$header does not compile alone"
done < <(product h)
# As cmake/Install.cmake has them (tests/tools/install.sh looks at the installed files themselves).
installed() {
    sources 'include/dtp/*.h' 'core/*.h' 'spmd/*.h' 'interop/*.h' 'cost_models/*.h' 'planner/*.h' 'executor/*.h' |
        grep -v -e 'internal\.h$' -e 'glpk_fence\.h$' -e '^executor/cpu/' -e '^executor/ref/' |
        xargs grep -L 'internal\.h"'
}
for order in sort 'sort -r'; do
    installed | $order | sed -e 's|^include/||' -e 's|.*|#include "&"|' | ${CC:-gcc} $flags -x c - 2>&1 | head -5 | grep . &&
        bad "the installed headers do not compile together ($order)"
done
finish
