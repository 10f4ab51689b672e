#!/usr/bin/env bash
# Runs torch_step.py with Debian's PyTorch set up fairly: OpenBLAS told which CPU this is (it takes newer ones for an old one and is then
# several times slower), its OpenMP build, and AVX-512 kernels where the CPU has them. Arguments are those of torch_step.py.
# PYTHON chooses another interpreter (a newer PyTorch brings its own libraries and needs none of this).
set -eu
here=$(dirname "$0")
if grep -q avx512f /proc/cpuinfo; then
    export OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512
fi
openmp=$(dirname "$(find /usr/lib -path '*openblas-openmp/libopenblas.so.0' 2>/dev/null | head -n 1)")
[ -z "$openmp" ] || export LD_LIBRARY_PATH="$openmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
case " $* " in *' --threads 1 '*) export OPENBLAS_NUM_THREADS=1 ;; esac
exec "${PYTHON:-/usr/bin/python3}" "$here/torch_step.py" "$@"
