#!/usr/bin/env bash
# The planner: the contest's instances within the contest's limits, and models planned in tensor mode.
# Usage: planner.sh BUILD_DIR
set -eu
exec python3 tests/bench/planner.py "$1/bin/dtplan" "$1/bench"
