#!/bin/sh
# Compiles one .cu file and keeps what ptxas says of registers and spills: nvcc.sh REPORT COMMAND...
report=$1
shift
"$@" 2>"$report" || {
    cat "$report" >&2
    exit 1
}
