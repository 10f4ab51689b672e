#!/usr/bin/env bash
# What compression and 16 bit do to training: accuracy and loss against uncompressed f32 training; README.md explains the tables.
# Arguments are those of accuracy.py; with none: everything, an hour and a half on two cores.
set -eu
exec /usr/bin/python3 "$(dirname "$0")/accuracy.py" "$@"
