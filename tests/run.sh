#!/bin/sh
# Installs what is missing, builds, and runs every test. Last line: "N passed, N failed, N skipped", single cases counted.
#   tests/run.sh [--sanitize address|thread] [meson test arguments, such as --suite unit]
set -u
cd "$(dirname "$0")/.." || exit 2
. launch/packages.sh

build=build-test
options="-Dtests=true"
if [ "${1:-}" = --sanitize ]; then
    build=build-${2:-}
    case "${2:-}" in
    address) options="$options -Db_sanitize=address,undefined -Db_lundef=false --buildtype=debugoptimized" ;;
    thread) options="$options -Db_sanitize=thread -Db_lundef=false --buildtype=debugoptimized" ;;
    *)
        echo "usage: tests/run.sh [--sanitize address|thread] [meson test arguments]" >&2
        exit 2
        ;;
    esac
    export ASAN_OPTIONS="detect_leaks=1"
    export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1:suppressions=$PWD/tests/sanitize/tsan.supp"
    export LSAN_OPTIONS="suppressions=$PWD/tests/sanitize/lsan.supp:print_suppressions=0"
    shift 2
fi

install_packages $packages_build $packages_data $packages_test || exit 2
# Debian's Python has numpy and h5py; another one may come first on PATH
PATH="/usr/bin:$PATH"
export PATH

if [ ! -f "$build/build.ninja" ]; then
    rm -rf "$build"
    # shellcheck disable=SC2086
    meson setup $options "$build" </dev/null || exit 2
fi
ninja -C "$build" </dev/null || exit 2

export CRITERION_VERBOSITY_LEVEL=1 # name skipped cases
log=$build/meson-logs/testlog.json
rm -f "$log"
meson test -C "$build" --no-rebuild --num-processes 1 "$@" </dev/null
python3 tests/count.py "$log"
