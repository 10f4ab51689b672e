# Debian packages that Trireme needs; sourced by launch/quickstart.sh and tests/run.sh (bash).

PACKAGES_BUILD=(gcc libc6-dev meson ninja-build pkg-config openmpi-bin libopenmpi-dev libhdf5-openmpi-dev
    libdnnl-dev libyaml-dev libhwloc-dev zlib1g-dev)
PACKAGES_DATA=(dataset-fashion-mnist bible-kjv bible-kjv-text) # real images, real text
PACKAGES_TEST=(g++ libcriterion-dev python3 python3-numpy python3-h5py iproute2)

# missing_packages NAME...: those that are not installed
missing_packages() {
    local package
    for package; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

# as_root COMMAND...: the command as root, through sudo where that is needed
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "cannot run '$*': needs root or sudo" >&2
        return 1
    fi
}

# install_packages NAME...: installs what is missing, touches nothing when all is there
install_packages() {
    local missing
    if ! command -v apt-get >/dev/null; then
        echo "this is no Debian system; it needs what these packages hold: $*" >&2
        return 1
    fi
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing: ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update </dev/null ||
        echo 'apt-get update failed; going on with the package lists that are there' >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install "${missing[@]}" </dev/null >/dev/null
}

# mpirun as root, with more ranks than cores, in containers whose ranks may not read each other's memory
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
