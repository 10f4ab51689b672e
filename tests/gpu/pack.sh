#!/usr/bin/env bash
# Gathers what a machine with a GPU may lack, as Debian packages: Open MPI, HDF5, oneDNN, libyaml, hwloc with the libraries that
# they need, and the images that run.sh trains on. Run it on a Debian 12 machine with a network; run.sh unpacks the folder.
#   tests/gpu/pack.sh [DIR]     DIR: gpu-pack
set -euo pipefail
dir=${1:-gpu-pack}

named=(openmpi-bin openmpi-common libopenmpi-dev libopenmpi3 libhdf5-openmpi-dev libhdf5-openmpi-103-1 libdnnl-dev libdnnl2
    libyaml-dev libyaml-0-2 libhwloc-dev zlib1g-dev libevent-dev dataset-fashion-mnist)
lib=/usr/lib/x86_64-linux-gnu

# Packages of the shared libraries that a file needs, but for those of the C and C++ compilers, which the other machine has.
packages_of() {
    ldd "$@" 2>/dev/null | awk '$3 ~ /^\// { print $3 }' | sort -u | while read -r file; do
        file=$(readlink -f "$file")
        dpkg -S "$file" 2>/dev/null || dpkg -S "${file#/usr}" 2>/dev/null || true
    done | cut -d: -f1 | grep -Ev '^(libc6|libgcc-s1|libstdc\+\+6|libgomp1)$' | sort -u
}

mapfile -t needed < <(packages_of $lib/libmpi.so $lib/libhdf5_openmpi.so $lib/libdnnl.so $lib/libyaml.so $lib/libhwloc.so \
    $lib/openmpi/lib/openmpi3/mca_{pml_ob1,btl_vader,btl_tcp,ess_singleton}.so /usr/bin/orterun)
mkdir -p "$dir"
cd "$dir"
apt-get download "${named[@]}" "${needed[@]}"
du -sh .
