#!/usr/bin/env bash
# The declarations of the emulated device's headers are those of the real ones: each is declared again after them, and each
# enumerator is compared with them. Skipped without a toolkit.
set -u -o pipefail
here=$(dirname "$0")
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || exit 77
real=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
headers=(cuda_runtime_api.h library_types.h)
for header in cublasLt.h nccl.h nvtx3/nvToolsExt.h; do
    if [ -f "$real/$header" ]; then headers+=("$header"); fi
done
compared=0
for header in "${headers[@]}"; do
    {
        echo "#include <cuda_runtime_api.h>"
        echo "#include <$header>"
        # one declaration a line, without what system headers declare
        gcc -std=c17 -E "$here/include/$header" -I "$here/include" | awk -v mine="$here/include/" '
            /^# / { ours = index($3, mine) > 0; next } ours' | tr '\n' ' ' | sed 's/[;{},]/&\n/g' > "$scratch/text"
        # functions, joined up to their semicolon
        tr '\n' ' ' < "$scratch/text" | sed 's/static inline[^{]*{[^}]*}//g; s/[;}]/&\n/g' |
            grep -E '^ *(const )?[a-zA-Z_]+ +\**[a-zA-Z]+\(.*\) *;$'
        grep -oE '\b[A-Za-z_0-9]+ = [^,}]+' "$scratch/text" | sed 's/ *$//' |
            sed -E 's/^([A-Za-z_0-9]+) = (.*)$/_Static_assert((long long)\1 == (long long)(\2), "\1");/'
    } > "$scratch/again.c"
    n=$(wc -l < "$scratch/again.c")
    compared=$((compared + n - 2))
    gcc -std=c17 -fsyntax-only -I "$real" "$scratch/again.c" || { echo "$header differs"; exit 1; }
done
echo "$compared declarations and values"
[ "$compared" -gt 250 ]
