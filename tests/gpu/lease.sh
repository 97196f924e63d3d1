#!/usr/bin/env bash
# Runs gpu.py out of a bundle (`./dev lease`) on a machine where nothing was installed: unpacks lease.tar.gz beside this script or
# in .lease (Python does), finds cuBLASLt and NCCL in the toolkit or among Python's packages, and gives every step its time.
# Usage: lease.sh [--total-s S, default 420] [OPTION of gpu.py | 1 | 2 | STEP]...   Results: $OUT, by default ./out
# Two calls have all steps: `lease.sh 1`, then `lease.sh --done REPORT 2` with the report.json that came back.
set -u
here=$(dirname "$(realpath "$0")")
out=${OUT:-$PWD/out}
bundle=$(ls "$here"/lease.tar.gz "$here"/../../.lease/lease.tar.gz 2>/dev/null | head -1)
total=420 done=()
while [ "${1:-}" = --total-s ] || [ "${1:-}" = --done ]; do
    case $1 in
    --total-s) total=$2 ;;
    --done) done+=(--done "$(realpath "$2")") ;;
    esac
    shift 2
done
root=$here/../..
if [ -n "$bundle" ]; then
    root=${TMPDIR:-/tmp}/dtp-lease
    rm -rf "$root" && mkdir -p "$root" && python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$root" || exit 1
fi
cd "$root" || exit 1
path=$PWD/lib:$PWD/lib/dtp
for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    $(python3 -c 'import site, sys; print(*{p for p in [*sys.path, *site.getsitepackages()] if p.endswith("-packages")})' |
        tr ' ' '\n' | sed 's|$|/nvidia/*/lib|'); do
    [ -d "$folder" ] && path=$path:$folder
done
export DTP_LD_LIBRARY_PATH_BEFORE=${LD_LIBRARY_PATH:-} LD_LIBRARY_PATH=$path PYTHONUNBUFFERED=1
echo "commit $(cat COMMIT), libraries of $path"
exec python3 tests/gpu/gpu.py --bin bin --out "$out" --total-s "$total" "${done[@]}" "$@"
