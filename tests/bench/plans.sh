#!/usr/bin/env bash
# Plans of tensor mode: never slower than a baseline, memory limits named as they are, known styles found.
# Usage: plans.sh BUILD_DIR
set -eu
python3 tests/bench/plans.py "$1/bin/dtplan" patterns
exec python3 tests/bench/plans.py "$1/bin/dtplan" sweep
