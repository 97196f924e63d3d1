#!/usr/bin/env bash
# No product file compares op names: what an op is, its row says (core/graph/op.h). Those that find something by a name
# that is given are listed here: importers (names of ATen and ONNX), reductions (layout), op sets, curves of machine files, kernels
# of backends, op cases.
. "$(dirname "$0")/common.sh"
readers='^(importers/(aten|onnx|program)/[a-z0-9_/]+|core/layout/layout|core/graph/op_set|cost_models/machine/machine_read|cost_models/machine/machine|'
readers+='cost_models/machine/fit|spmd/target/target|executor/device/backend|executor/device/host_memory|'
readers+='executor/rule_verify/op_cases)\.c:'
while IFS= read -r hit; do bad "op name: $hit"; done < <(
    product c h | xargs grep -nE 'strn?cmp\([^,]*\b(op|def)(->name)?\b,' | grep -vE "$readers" | cut -c1-140)
finish
