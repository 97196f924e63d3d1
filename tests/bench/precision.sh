#!/usr/bin/env bash
# Matrix products of a step of gpt2_small in f32 and 16-bit floats side by side. Usage: precision.sh BUILD_DIR
set -eu
exec "$1/bin/bench_precision"
