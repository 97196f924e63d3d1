#!/usr/bin/env bash
# What overlap of communication and compute hides, over the table of plans. Usage: overlap.sh BUILD_DIR
set -eu
exec python3 tests/bench/overlap.py "$1/bin"
