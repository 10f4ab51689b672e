#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Last line: "N passed, N failed, N skipped", single cases counted.
#   tests/run.sh [--sanitize address|thread] [meson test arguments, such as --suite unit]
# CUDA is compiled where nvcc is found, and tested on emulated devices everywhere (tests/emulation/README.md: suite "emulation").
# With --sanitize thread only the suite "sanitize" runs, unless the arguments name others.
set -u
cd "$(dirname "$0")/.." || exit 2
. launch/packages.sh

build=build-test
options=(-Dtests=true -Demulate=true)
if [ "${1:-}" = --sanitize ]; then
    build=build-${2:-}
    case "${2:-}" in
    address) options+=(-Dcuda=disabled -Db_sanitize=address,undefined -Db_lundef=false --buildtype=debugoptimized) ;;
    thread) options+=(-Dcuda=disabled -Db_sanitize=thread -Db_lundef=false --buildtype=debugoptimized) ;;
    *)
        echo "usage: tests/run.sh [--sanitize address|thread] [meson test arguments]" >&2
        exit 2
        ;;
    esac
    export ASAN_OPTIONS="detect_leaks=1:fast_unwind_on_malloc=0" # whole stacks, for the suppressions
    export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1:suppressions=$PWD/tests/sanitize/tsan.supp"
    export LSAN_OPTIONS="suppressions=$PWD/tests/sanitize/lsan.supp:print_suppressions=0"
    kind=$2
    shift 2
    if [ "$kind" = thread ] && [ $# -eq 0 ]; then
        echo "Left out under the thread sanitizer: the suites in Criterion, whose arena of memory cannot start there, and the" \
            "command-line suite, which takes too long; the suite 'sanitize' runs workers and the program with several threads."
        set -- --suite sanitize
    fi
fi

# cannot WHAT: nothing could be tested, which counts as one failure
cannot() {
    echo "cannot $1" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 2
}

install_packages "${PACKAGES_BUILD[@]}" "${PACKAGES_DATA[@]}" "${PACKAGES_TEST[@]}" || cannot "install packages"
# Debian's Python has numpy and h5py; another one may come first on PATH
PATH="/usr/bin:$PATH"
export PATH

if [ ! -f "$build/build.ninja" ]; then
    rm -rf "$build"
    meson setup "${options[@]}" "$build" </dev/null || cannot "set up $build"
fi
ninja -C "$build" </dev/null || cannot "build"

export CRITERION_VERBOSITY_LEVEL=1 # name skipped cases
log=$build/meson-logs/testlog.json
rm -f "$log"
meson test -C "$build" --no-rebuild --num-processes 1 "$@" </dev/null
python3 tests/count.py "$log"
