#!/bin/bash
# The wheel in bare roots of Debian 12 and Ubuntu 22.04 that have python3 and nothing else: it installs, plans and runs.
# The mirror of Ubuntu is read by https, as Debian has no key of its archive. Usage, as root: wheel_roots.sh WHEEL PIP_WHEEL [FOLDER]
set -euo pipefail
. "$(dirname "$0")/bare_root.sh"
wheel=$1 pip=$2 folder=${3:-$(mktemp -d)}
[ $# -gt 2 ] || trap 'rm -rf "$folder"' EXIT

try() {
    local root=$folder/$1
    make_root "$root" "$@" --include=python3
    rm -rf "$root/tmp/wheels" && mkdir "$root/tmp/wheels"
    cp "$wheel" "$pip" "$root/tmp/wheels"
    inside "$root" 'cd /tmp && ! command -v cc gcc c++ g++ make
        python3 "$(echo wheels/pip-*.whl)/pip" install --quiet --no-index --break-system-packages --root-user-action=ignore wheels/dtplan-*.whl
        dtplan plan llama3_8b --devices 8 --machine h100_64 | sed -n "s/^this plan  *\([0-9]\)/llama3_8b on 8 devices: \1/p"
        dtplan plan mlp_digits --machine cpu_2 --mesh x:2 -o mlp.plan.json >/dev/null
        dtrun verify mlp_digits --plan mlp.plan.json --comm sim >/dev/null
        python3 -c "import dtplan; print(repr(dtplan.plan(\"gpt2_small\", machine=\"h100_64\", mesh={\"x\": 8})))"'
    echo "$1: installed, planned and ran: $(basename "$wheel")"
}
try bookworm "$(this_mirror)"
try jammy https://archive.ubuntu.com/ubuntu --no-check-gpg
