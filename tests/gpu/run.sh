#!/usr/bin/env bash
# On a machine with a GPU: builds with CUDA, compares every kernel with the reference, trains Fashion-MNIST and a GPT, measures, and
# prints one table. README.md tells what each line means.
#   tests/gpu/run.sh [--pack DIR] [--build DIR] [--out DIR] [--quick] [--no-peer]
# DIR of --pack: what pack.sh has gathered; without it the libraries must be installed. Ends with 77 where there is no GPU or no nvcc,
# with 1 when something failed or a wrong result was seen.
set -u
cd "$(dirname "$0")/../.." || exit 2

pack='' build=build-gpu out=gpu-results
declare -a measure=()
while [ $# -gt 0 ]; do
    case $1 in
    --pack) pack=$2 && shift ;;
    --build) build=$2 && shift ;;
    --out) out=$2 && shift ;;
    --quick | --no-peer) measure+=("$1") ;;
    *)
        sed -n '2,7s/^# \?//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done

say() { printf '\n== [%3d s] %s\n' "$SECONDS" "$*"; }

if ! gpus=$(nvidia-smi -L 2>/dev/null) || [ -z "$gpus" ]; then
    echo "no GPU: nvidia-smi lists none, so nothing was run"
    exit 77
fi
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
if ! command -v nvcc >/dev/null; then
    echo "no nvcc: CUDA's compiler is neither on PATH nor in \$CUDA_HOME/bin, so nothing was run"
    exit 77
fi
echo "$gpus"

# Open MPI as root, one rank, and without its plug-ins for networks that are not there
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mca_base_component_show_load_errors=0
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

data=/usr/share
if [ -n "$pack" ]; then
    say "unpacking $pack"
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    for deb in "$pack"/*.deb; do
        dpkg-deb -x "$deb" "$root" || exit 1
    done
    lib=$root/usr/lib/x86_64-linux-gnu
    export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root OPAL_PREFIX=$root/usr
    export C_INCLUDE_PATH=$root/usr/include:$root/usr/include/x86_64-linux-gnu # unlike CPATH: no warnings from them
    export CPLUS_INCLUDE_PATH=$C_INCLUDE_PATH
    export LIBRARY_PATH=$lib:$lib/openmpi/lib:$lib/hdf5/openmpi
    export LD_LIBRARY_PATH=$lib:$lib/openmpi/lib:$lib/hdf5/openmpi:$root/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export OMPI_MCA_hwloc_base_binding_policy=none
    data=$root/usr/share
fi

mkdir -p "$out"
say 'building'
if { [ ! -f "$build/build.ninja" ] && ! meson setup "$build" -Dtests=false -Dcuda=enabled -Dwerror=false; } >"$out/build.log" 2>&1 ||
    ! ninja -C "$build" all tests/gpu/test_parity >>"$out/build.log" 2>&1; then
    tail -40 "$out/build.log"
    echo 'the build failed'
    exit 1
fi

export LD_LIBRARY_PATH=$PWD/$build/runtime/device/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

failed=0
say 'parity: every kernel against the reference'
timeout 120 "$build/tests/gpu/test_parity" | tee "$out/parity.log"
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
grep -q '^not ok' "$out/parity.log" && failed=1

say 'training and measuring'
python3 tests/gpu/measure.py --build "$build" --data "$data" --out "$out" "${measure[@]}" || failed=1
say "done; logs in $out"
exit $failed
