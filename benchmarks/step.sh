#!/usr/bin/env bash
# Times training steps against PyTorch and against the machine's limits; README.md explains the columns.
# Arguments are those of step.py; with none: everything, a few minutes.
set -eu
exec /usr/bin/python3 "$(dirname "$0")/step.py" "$@"
