#!/usr/bin/env bash
# Packs what gpu.py needs into OUT/lease.tar.xz, with lease.sh beside it: programs, the module of the device, the libraries that they
# load and that a bare machine lacks, models, the commit.
# Usage: bundle.sh BIN_DIR MODULE_DIR OUT
set -eu
bin=$1 module=$2 out=$3
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir -p "$here/bin" "$here/lib/dtp" "$here/models" "$out"
for program in dtrun test_cuda_ops_device test_cuda_rows_device test_cuda_shards_device test_cuda_comm_device; do
    [ ! -e "$bin/$program" ] || strip -o "$here/bin/$program" "$bin/$program"
done
[ -e "$here/bin/dtrun" ] && [ -e "$module/dtp_cuda.so" ] || { echo "no dtrun in $bin, or no dtp_cuda.so in $module" >&2; exit 1; }
for library in "$module"/*.so*; do strip -o "$here/lib/dtp/$(basename "$library")" "$library"; done
# What the programs load: OpenBLAS is opened by name.
blas=$(ldconfig -p | sed -n 's/.*libopenblas\.so\.0 .*=> //p' | head -1)
ldd "$here"/bin/* "$blas" | sed -n 's/.*lib\(openblas\|cjson\|gfortran\|quadmath\|gomp\|z\|cmocka\)\.so[.0-9]* => \(\S*\).*/\2/p' | sort -u |
    while read -r library; do cp -L "$library" "$here/lib/"; done
cp -L "$blas" "$here/lib/"
cp models/*.json "$here/models/"
cp -r models/data models/machines "$here/models/"
mkdir -p "$here/tests" && cp -r tests/gpu "$here/tests/gpu"
git rev-parse --short HEAD >"$here/COMMIT"
tar -C "$here" -cf - . | xz -T0 >"$out/lease.tar.xz.new"
mv "$out/lease.tar.xz.new" "$out/lease.tar.xz"
cp tests/gpu/lease.sh "$out/lease.sh"
echo "$out/lease.tar.xz: $(($(stat -c %s "$out/lease.tar.xz") / 1024)) KiB of commit $(cat "$here/COMMIT")"
