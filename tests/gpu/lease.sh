#!/usr/bin/env bash
# Runs gpu.py out of a bundle (`./dev lease`) on a machine where nothing was installed: unpacks lease.tar.xz beside this script or
# in .lease, finds cuBLASLt and NCCL in the toolkit or among Python's packages, and gives every step its time.
# Usage: lease.sh [--total-s S, default 420] [OPTION of gpu.py | STEP]...   Results: $OUT, by default ./out of the current folder
set -u
here=$(dirname "$(realpath "$0")")
out=${OUT:-$PWD/out}
bundle=$(ls "$here"/lease.tar.xz "$here"/../../.lease/lease.tar.xz 2>/dev/null | head -1)
root=$here/../..
if [ -n "$bundle" ]; then
    root=${TMPDIR:-/tmp}/dtp-lease
    rm -rf "$root" && mkdir -p "$root" && tar -xJf "$bundle" -C "$root" || exit 1
fi
cd "$root" || exit 1
path=$PWD/lib:$PWD/lib/dtp
for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    $(python3 -c 'import site, sys; print(*{p for p in [*sys.path, *site.getsitepackages()] if p.endswith("-packages")})' |
        tr ' ' '\n' | sed 's|$|/nvidia/*/lib|'); do
    [ -d "$folder" ] && path=$path:$folder
done
export LD_LIBRARY_PATH=$path PYTHONUNBUFFERED=1
echo "commit $(cat COMMIT), libraries of $path"
total=420
[ "${1:-}" = --total-s ] && { total=$2; shift 2; }
exec python3 tests/gpu/gpu.py --bin bin --out "$out" --total-s "$total" "$@"
