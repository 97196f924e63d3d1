#!/usr/bin/env bash
# Third-party headers have one home each.
. "$(dirname "$0")/common.sh"
home() {
    local header=$1 place=$2
    while IFS= read -r file; do
        [[ $file == $place ]] || bad "$file includes $header, whose home is $place"
    done < <(product c h cu cuh | xargs grep -lE "#\s*include\s*[<\"](cjson/)?$header[>\"]")
}
home 'glpk\.h' planner/solver/glpk_fence.c
home 'cJSON\.h' interop/foreign_json.c
home 'cblas\.h' executor/cpu/gemm/blas.h
home 'dnnl\.h' 'executor/cpu/*_onednn.c'
home 'mpi\.h' 'executor/comm/mpi*'
home '(nvtx3/nvToolsExt|cuda_runtime(_api)?|cuda_bf16|cuda_fp16|cublasLt|mma)\.h' 'executor/cuda/*'
home 'nccl\.h' 'executor/cuda/comm/*'
home 'zlib\.h' '@(executor/*|planner/problem/json_stream.c)'
finish
