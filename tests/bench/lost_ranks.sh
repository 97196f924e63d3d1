#!/usr/bin/env bash
# 60 random moments at which a rank is killed, stopped or cut off, on two hosts. Usage: lost_ranks.sh BUILD_DIR
set -eu
exec bash tests/comm/lost_ranks.sh "$1/bin" 60 "${DTP_SEED:-1}"
