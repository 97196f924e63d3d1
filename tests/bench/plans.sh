#!/usr/bin/env bash
# Plans of tensor mode: never slower than a baseline, memory limits named exactly; patterns found; the table of docs/results/plans.md.
# Usage: plans.sh BUILD_DIR
set -eu
exec python3 tests/bench/plans.py "$1/bin/dtplan" "$1/bench" sweep
