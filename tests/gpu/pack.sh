#!/usr/bin/env bash
# Gathers what a bare machine with a GPU lacks, for run.sh --pack: headers and libraries of Open MPI (with mpirun, its plug-ins and
# help), HDF5, oneDNN, libyaml, hwloc and zlib with all that they need, pkg-config, the images that run.sh trains on, and our
# programs built here, in case that machine cannot build. Run it on Debian 12 with the packages of README.md, pkgconf and
# dataset-fashion-mnist installed; it needs no network.
#   tests/gpu/pack.sh [--build DIR] [OUT]     DIR: a build with CUDA (build); OUT: gpu-pack
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build
if [ "${1:-}" = --build ]; then
    build=$2
    shift 2
fi
out=${1:-gpu-pack}
lib=/usr/lib/x86_64-linux-gnu
named=(openmpi-bin openmpi-common libopenmpi-dev libopenmpi3 libhdf5-openmpi-dev libhdf5-openmpi-103-1 libdnnl-dev libdnnl2
    libyaml-dev libyaml-0-2 libhwloc-dev libhwloc-plugins zlib1g-dev libevent-dev libpmix2 pkgconf pkgconf-bin libpkgconf3)
# Plug-ins for networks that are not there, with libraries of their own
networks='_(ucx|ofi|psm2?|openib|usnic|portals4)\.so$'

# Packages of the shared libraries that files need, but for those of the C and C++ compilers, which the other machine has.
packages_of() {
    ldd "$@" 2>/dev/null | awk '$3 ~ /^\// { print $3 }' | sort -u | while read -r file; do
        file=$(readlink -f "$file")
        dpkg -S "$file" 2>/dev/null || dpkg -S "${file#/usr}" 2>/dev/null || true
    done | cut -d: -f1 | grep -Ev '^(libc6|libgcc-s1|libstdc\+\+6|libgomp1)$' | sort -u
}

mapfile -t plugins < <(find "$lib/openmpi/lib/openmpi3" $lib/pmix2 -name '*.so' | grep -Ev "$networks")
mapfile -t needed < <(packages_of $lib/libmpi.so $lib/libhdf5_openmpi.so $lib/libdnnl.so $lib/libyaml.so $lib/libhwloc.so \
    $lib/libpkgconf.so.3 /usr/bin/orterun "${plugins[@]}")
mapfile -t installed < <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${named[@]}" 2>/dev/null | awk '/^ii/ { print $2 }')
for package in "${named[@]}"; do
    printf '%s\n' "${installed[@]}" | grep -qx "$package" || { echo "pack.sh: $package is not installed" >&2 && exit 1; }
done

mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dpkg -L "${installed[@]}" "${needed[@]}" | grep -E '^(/usr)?/(include|lib|bin|etc|share/(openmpi|pmix))/' |
    grep -Ev "/(fortran|doc|man)/|\.a$|$networks" | sort -u | while read -r file; do
    if [ -L "$file" ] || [ -f "$file" ]; then echo "${file#/}"; fi
done | tar --create --directory / --no-recursion --files-from - | tar --extract --directory "$root"

for file in libmpi.so libhdf5_openmpi.so libdnnl.so libyaml.so libhwloc.so libz.so; do
    find "$root" -name "$file" | grep -q . || { echo "pack.sh: no $file was found" >&2 && exit 1; }
done
mkdir "$root/fallback" # where that machine has none
cp -L $lib/libgomp.so.1 "$root/fallback"
if [ -f "$build/runtime/device/cuda/libtrireme_cuda.so" ]; then
    ninja -C "$build" all tests/gpu/test_parity tests/gpu/make_tokens >/dev/null
    mkdir "$root/built"
    cp -L "$build/launch/trireme" "$build/launch/libtrireme.so.0" "$build/runtime/device/cuda/libtrireme_cuda.so.0" \
        "$build/tests/gpu/test_parity" "$build/tests/gpu/make_tokens" "$root/built"
    ln -s libtrireme_cuda.so.0 "$root/built/libtrireme_cuda.so"
else
    echo "pack.sh: $build has no CUDA backend, so that the other machine must build" >&2
fi
git describe --always --dirty --exclude='*' >"$root/commit" 2>/dev/null || true
tar --create --directory "$root" . | xz -T0 >"$out/libraries.tar.xz"
cp /usr/share/datasets/fashion-mnist/*.gz "$out" 2>/dev/null ||
    echo 'pack.sh: dataset-fashion-mnist is not installed, so there are no images' >&2
du -sh "$out"
