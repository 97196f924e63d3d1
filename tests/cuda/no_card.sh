#!/usr/bin/env bash
# Without a card `dtrun run --backend cuda` ends with exit code 2 and one line that names what is missing, on one rank and on
# several. Usage: no_card.sh BIN_DIR
set -u
dtrun=$1/dtrun
[ -e /dev/nvidiactl ] && exit 77
fail=0
for mesh in "" "x:2"; do
    out=$("$dtrun" run models/mlp_digits.json --backend cuda --comm "$([ -n "$mesh" ] && echo sim || echo self)" \
        --mesh "$mesh" 2>&1)
    code=$?
    if [ $code -ne 2 ] || [ "$(echo "$out" | wc -l)" -ne 1 ] ||
        ! echo "$out" | grep -qE "backend cuda: (there is no (NVIDIA driver|GPU) on this machine|its module dtp_cuda.so is not installed with this dtp)"; then
        echo "on '$mesh': exit code $code: $out"
        fail=1
    fi
done
exit $fail
