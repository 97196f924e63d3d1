#!/usr/bin/env bash
# `dtplan plan --compat auto_mtf` on a model file gives Mesh TensorFlow's answers for the graph of its api_test (auto_mtf),
# on both meshes that the test tries. Usage: compat.sh BIN_DIR
set -u
bin=$1
failed=0
expect() {
    local model=$1 mesh=$2 want=$3 got
    got=$("$bin/dtplan" plan "$model" --mesh "$mesh" --compat auto_mtf --json | tr -d ' \n')
    case $got in
    *"$want"*) echo "ok: $model on '$mesh'" ;;
    *) echo "FAIL: $model on '$mesh': wanted $want, got $got"; failed=$((failed + 1)) ;;
    esac
}
expect tests/tools/data/auto_mtf_api.json 'm1:4;m2:2' '"rules":"a:m2;c:m1","peak_bytes":300,"objective":1198,"variables":41'
expect tests/tools/data/auto_mtf_api.json 'mesh_0:4;mesh_1:2' '"rules":"a:mesh_1;c:mesh_0","peak_bytes":300'
expect tests/tools/data/auto_mtf_api.json 'mesh_0:8' '"rules":"","peak_bytes":1400,"objective":5600'
exit $failed
