#!/usr/bin/env bash
# Packs what gpu.py needs into OUT/lease.tar.gz, with lease.sh beside it: programs, the module of the device, the libraries that they
# load and that a bare machine lacks, models, the commit. A library that is neither in the bundle nor on every machine is an error.
# Usage: bundle.sh BIN_DIR MODULE_DIR OUT
set -eu
bin=$1 module=$2 out=$3
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir -p "$here/bin" "$here/lib/dtp" "$here/models" "$out"
for program in dtrun test_cuda_ops_device test_cuda_rows_device test_cuda_shards_device test_cuda_comm_device; do
    [ -e "$bin/$program" ] || { echo "there is no $program in $bin" >&2; exit 1; }
    strip -o "$here/bin/$program" "$bin/$program"
done
[ -e "$module/dtp_cuda.so" ] || { echo "there is no dtp_cuda.so in $module" >&2; exit 1; }
for library in "$module"/*.so*; do strip -o "$here/lib/dtp/$(basename "$library")" "$library"; done
# What the programs load: OpenBLAS is opened by name.
blas=$(ldconfig -p | sed -n 's/.*libopenblas\.so\.0 .*=> //p' | head -1)
ldd "$here"/bin/* "$blas" | sed -n 's/.*lib\(openblas\|cjson\|gfortran\|quadmath\|gomp\|z\|cmocka\)\.so[.0-9]* => \(\S*\).*/\2/p' | sort -u |
    while read -r library; do cp -L "$library" "$here/lib/"; done
cp -L "$blas" "$here/lib/"
foreign=$(LD_LIBRARY_PATH=$here/lib ldd "$here"/bin/* "$here"/lib/*.so* "$here"/lib/dtp/*.so* |
    sed -n 's/^\s*\(\S*\) => .*/\1/p' | sort -u |
    grep -vE '^lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cuda|cublasLt|nccl)\.so' |
    while read -r library; do [ -e "$here/lib/$library" ] || [ -e "$here/lib/dtp/$library" ] || echo "$library"; done)
[ -z "$foreign" ] || { echo "the bundle lacks $(echo $foreign)" >&2; exit 1; }
cp models/*.json "$here/models/"
cp -r models/data models/machines "$here/models/"
mkdir -p "$here/tests" && cp -r tests/gpu "$here/tests/gpu"
git rev-parse --short HEAD >"$here/COMMIT"
tar -C "$here" -czf "$out/lease.tar.gz.new" .
mv "$out/lease.tar.gz.new" "$out/lease.tar.gz"
cp tests/gpu/lease.sh "$out/lease.sh"
echo "$out/lease.tar.gz: $(($(stat -c %s "$out/lease.tar.gz") / 1024)) KiB of commit $(cat "$here/COMMIT")"
