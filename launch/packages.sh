# Debian packages that Trireme needs; sourced by launch/quickstart.sh and tests/run.sh (POSIX sh).

packages_build="gcc libc6-dev meson ninja-build pkg-config openmpi-bin libopenmpi-dev libhdf5-openmpi-dev
libdnnl-dev libyaml-dev libhwloc-dev zlib1g-dev"
packages_data="dataset-fashion-mnist bible-kjv bible-kjv-text" # real images, real text
packages_test="libcriterion-dev python3 python3-numpy python3-h5py"

# missing_packages NAME...: those that are not installed
missing_packages() {
    for package; do
        case "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" in
        installed) ;;
        *) echo "$package" ;;
        esac
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
    missing=$(missing_packages "$@")
    [ -z "$missing" ] && return 0
    if ! command -v apt-get >/dev/null; then
        echo "this is no Debian system; install what these packages hold:" $missing >&2
        return 1
    fi
    echo "installing:" $missing
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update </dev/null &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
            -o Dpkg::Use-Pty=0 install $missing </dev/null >/dev/null
}

# mpirun as root, with more ranks than cores, in containers whose ranks may not read each other's memory
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
