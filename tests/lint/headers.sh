#!/usr/bin/env bash
# Every header compiles alone (tests/tools/install_headers.sh: the public ones as C and C++, and every pair of them).
. "$(dirname "$0")/common.sh"
flags="-std=c17 -D_POSIX_C_SOURCE=200809L -I. -Iinclude -fsyntax-only -Wall -Wextra -Wpedantic $(mpicc --showme:compile 2>/dev/null || true) -isystem tests/cuda_emu/include"
while IFS= read -r header; do
    grep -q '<mpi[.]h>' "$header" && ! command -v mpicc >/dev/null && continue
    echo "#include \"$header\"" | ${CC:-gcc} $flags -x c - 2>&1 | head -5 | grep . && bad "$header does not compile alone"
done < <(product h)
finish
