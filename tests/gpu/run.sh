#!/usr/bin/env bash
# On a machine with a GPU: builds with CUDA, compares every kernel with the reference, trains Fashion-MNIST and a GPT, measures, and
# prints one table. README.md tells what each line means and what the exit codes are.
#   tests/gpu/run.sh [--pack DIR [--built]] [--build DIR] [--out DIR] [--seconds N] [--most N] [--quick] [--no-peer]
#   tests/gpu/run.sh --emulated BUILD [--pack DIR] [--out DIR]
# --pack: what pack.sh has gathered; without it the libraries must be installed. --built: take the programs of the pack and build
# nothing. --seconds: all must be over by then (570); --most: no measured command takes longer. --emulated: a dry run, every step
# in a tiny size over the emulated device of a build with -Demulate=true; no figure of it means anything.
set -u
cd "$(dirname "$0")/../.." || exit 2

pack='' build=build-gpu out=${OUT:-gpu-results} seconds=570 most=600 emulated='' built=''
declare -a measure=()
while [ $# -gt 0 ]; do
    case $1 in
    --pack | --build | --out | --seconds | --most | --emulated)
        [ $# -gt 1 ] || { echo "run.sh: $1 needs a value" >&2 && exit 2; }
        declare "${1#--}=$2" && shift
        ;;
    --built) built=1 ;;
    --quick | --no-peer) measure+=("$1") ;;
    *)
        sed -n '2,9s/^# \?//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
python=${PYTHON:-python3}
case $build in /*) ;; *) build=$PWD/$build ;; esac

say() { printf '\n== [%3d s] %s\n' "$SECONDS" "$*"; }

if [ -n "$emulated" ]; then
    echo 'a dry run over an emulated device: no figure means anything'
elif ! gpus=$(timeout 30 nvidia-smi -L 2>/dev/null) || [ -z "$gpus" ]; then
    echo 'no GPU: nvidia-smi lists none, so nothing was run'
    exit 77
else
    echo "$gpus"
fi
command -v "$python" >/dev/null || { echo "run.sh: there is no $python" >&2 && exit 2; }

work=$(mktemp -d)
warmer=''
end_all() {
    [ -z "$warmer" ] || kill -KILL -- "-$warmer" 2>/dev/null
    rm -rf "$work"
}
trap end_all EXIT
trap 'exit 143' TERM INT
mkdir -p "$out" || exit 2

# Open MPI as root, one rank, and without its plug-ins for networks that are not there
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mca_base_component_show_load_errors=0
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_hwloc_base_binding_policy=none

# Where our programs, and nothing else, find libraries: other programs of the machine have libraries of their own.
libraries='' images=/usr/share/datasets/fashion-mnist
kept=$build # a build names what lies in there, and a second run goes on with it
[ -z "$emulated" ] || kept=$work
root=$kept/pack

unpack_archive() {
    say "unpacking $pack"
    rm -rf "$root"
    mkdir -p "$root"
    tar -xJf "$pack/libraries.tar.xz" -C "$root" 2>/dev/null || "$python" -m tarfile -e "$pack/libraries.tar.xz" "$root"
}

unpack() {
    local lib=$root/usr/lib/x86_64-linux-gnu stamp
    stamp=$(cksum <"$pack/libraries.tar.xz") || exit 3
    if [ "$(cat "$root/stamp" 2>/dev/null)" != "$stamp" ]; then
        unpack_archive || { echo "run.sh: $pack/libraries.tar.xz cannot be unpacked" >&2 && exit 3; }
        echo "$stamp" >"$root/stamp"
    fi
    [ ! -s "$root/commit" ] || echo "its programs are of commit $(cat "$root/commit")"
    libraries=$lib:$lib/openmpi/lib:$lib/hdf5/openmpi:$root/lib/x86_64-linux-gnu
    ldconfig -p 2>/dev/null | grep -q 'libgomp\.so\.1 ' || libraries=$libraries:$root/fallback
    export OPAL_PREFIX=$root/usr PMIX_PREFIX=$lib/pmix2
    images=$pack
}

# Folders of CUDA: that of nvcc, and those of Python's packages with their own names (lib, no libNAME.so).
cuda_folders() {
    local nvcc
    nvcc=$(command -v nvcc) && dirname "$(dirname "$(realpath "$nvcc")")"
    echo "${CUDA_HOME:-/usr/local/cuda}"
    "$python" -c 'import glob, nvidia; print(*(g for p in nvidia.__path__ for g in glob.glob(p + "/*")), sep="\n")' 2>/dev/null
}

# Headers and libraries for the compilers; a name for the linker where there is only libNAME.so.9.
find_cuda() {
    local folder name file
    rm -rf "$kept/cuda"
    mkdir -p "$kept/cuda"
    while read -r folder; do
        [ -d "$folder/include" ] && include=${include:+$include:}$folder/include
        for file in "$folder"/lib64 "$folder"/lib; do
            [ -d "$file" ] && cuda_lib=${cuda_lib:+$cuda_lib:}$file
        done
        for name in cublasLt cudnn nccl; do
            file=$(find -L "$folder/lib64" "$folder/lib" -maxdepth 1 -name "lib$name.so.*" 2>/dev/null | head -1)
            [ -z "$file" ] || [ -e "$kept/cuda/lib$name.so" ] || ln -s "$file" "$kept/cuda/lib$name.so"
        done
    done < <(cuda_folders | awk '!seen[$0]++')
}

can_build() {
    for tool in nvcc meson ninja gcc; do
        command -v $tool >/dev/null || { echo "cannot build: no $tool" && return 1; }
    done
}

build_here() {
    local lib=$root/usr/lib/x86_64-linux-gnu
    warm_peer
    (
        if [ -n "$pack" ]; then
            export PKG_CONFIG_LIBDIR=$lib/pkgconfig:$lib/openmpi/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
            include=$root/usr/include:$root/usr/include/x86_64-linux-gnu:$include
            mkdir -p "$kept/bin"
            printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$lib" "$root/usr/bin/pkgconf" >"$kept/bin/pkg-config"
            chmod +x "$kept/bin/pkg-config"
            PATH=$kept/bin:$PATH
        fi
        export C_INCLUDE_PATH=$include CPLUS_INCLUDE_PATH=$include # unlike CPATH: no warnings from them
        export LIBRARY_PATH=${libraries:+$libraries:}$cuda_lib:$kept/cuda
        export LDFLAGS="-Wl,-rpath-link,${libraries:+$libraries:}$cuda_lib"
        [ -f "$build/build.ninja" ] || timeout -k 5 60 meson setup "$build" -Dtests=false -Dcuda=enabled -Dwerror=false || exit 1
        timeout -k 5 240 ninja -C "$build" all tests/gpu/test_parity tests/gpu/make_tokens
    ) >"$out/build.log" 2>&1
}

# torch.compile keeps what it makes: the measured run then finds it. The compilers leave the GPU alone meanwhile.
warm_peer() {
    export TORCHINDUCTOR_CACHE_DIR=$work/inductor
    case " ${measure[*]} " in *' --no-peer '*) return ;; esac
    "$python" -c 'import torch' 2>/dev/null || return
    setsid sh -c "for m in 'gpt2 --batch 64' 'resnet50 --batch 256'; do
        timeout -k 5 150 $python benchmarks/peers/torch_gpu.py \$m --steps 1; done" >"$out/warm.log" 2>&1 &
    warmer=$!
}

[ -z "$pack" ] || unpack
declare -a programs
if [ -n "$emulated" ]; then
    programs=(--trireme "$emulated/tests/emulation/trireme-emulated" --parity "$emulated/tests/emulation/emulated_parity"
        --tokens "$emulated/tests/gpu/make_tokens" --emulated)
else
    PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin include='' cuda_lib=''
    find_cuda
    programs=(--trireme "$build/launch/trireme" --parity "$build/tests/gpu/test_parity" --tokens "$build/tests/gpu/make_tokens")
    ours=$build/launch:$build/runtime/device/cuda
    if [ -z "$built" ]; then
        say 'building'
        if ! can_build; then
            built=1
        elif ! build_here; then
            tail -30 "$out/build.log"
            echo 'the build failed'
            built=failed
        fi
    fi
    if [ -n "$built" ]; then
        [ -x "$root/built/trireme" ] || { echo 'there is nothing to run: no build, and no programs in a pack' && exit 3; }
        say "taking the programs that came with the pack"
        programs=(--trireme "$root/built/trireme" --parity "$root/built/test_parity" --tokens "$root/built/make_tokens")
        ours=$root/built
    fi
    libraries=${libraries:+$libraries:}$ours:$cuda_lib
    if [ -n "$warmer" ]; then
        for ((i = 0; i < 30; i++)); do kill -0 "$warmer" 2>/dev/null && sleep 1; done
        kill -KILL -- "-$warmer" 2>/dev/null
        warmer=''
    fi
fi
[ -z "$libraries" ] || measure+=(--libraries "$libraries")

say 'comparing, training and measuring'
left=$((seconds - SECONDS))
timeout -k 10 $((left + 5)) "$python" tests/gpu/measure.py "${programs[@]}" --images "$images" --out "$out" --seconds "$left" \
    --most "$most" "${measure[@]}"
code=$?
say "done; logs in $out"
[ "$built" != failed ] || [ $code != 0 ] || code=3
exit $code
