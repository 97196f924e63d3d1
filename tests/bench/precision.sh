#!/usr/bin/env bash
# f32 and 16-bit floats side by side on one thread: the matrix products of a step of gpt2_small, then whole steps.
# Usage: precision.sh BUILD_DIR
set -eu
"$1/bin/bench_precision"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
step() { # seconds of the fastest of four steps
    "$1/bin/dtrun" run models/gpt2_small.json --dim batch=1 --dim length=512 --precision "$2" --steps 4 --threads 1 \
        --json 2>/dev/null >"$out/$2.json"
    python3 -c 'import json, sys; print("%.3f" % json.load(open(sys.argv[1]))["step_time_s"]["min"])' "$out/$2.json"
}
for round in 1 2 3; do
    f32=$(step "$1" f32)
    bf16=$(step "$1" bf16)
    python3 -c "print('step of gpt2_small, 512 tokens: f32 %s s, bf16 %s s, ratio %.3f' % ('$f32', '$bf16', $bf16 / $f32))"
done
