"""Checks of the source tree that need no build; prints TAP.

Usage: lint.py ROOT [C compiler]. Each check_* yields complaints "file:line: what"; none means that it holds.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

LAYERS = {"runtime": 0, "collectives": 1, "models": 2, "amp": 2, "data": 2, "optim": 3, "launch": 4}
TEXT = (".c", ".h", ".cu", ".py", ".sh", ".md", ".yaml", ".build", ".txt")
MPI_FILES = re.compile(r"collectives/(comm_library|comm_mpi|comm_shm|mpi_lane|shm_window|topology|world)\.[ch]$|launch/env\.c$")
MPI_COMM_FILES = re.compile(r"(^optim/exchange\w*|/trireme)\.[ch]$")
# The program itself is no part of the library.
PROGRAM_FILES = re.compile(r"launch/(main|command|bench\w*|cmd_\w+|checkpoint_diff)\.c$")
# tri_assert_fail, and the faults that debug.inject asks for.
EXIT_FILES = ("runtime/core/status.c", "runtime/kernels/inject.c")
LINE, FUNCTION, FILE = 100, 100, 700


class Skip(Exception):
    """A check that cannot run here; the text says why."""


class Source:
    """A file: path from the root, its text, and its lines without comments and strings."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="surrogateescape", newline="") as f:
            self.text = f.read()
        self.lines = self.text.split("\n")
        self.folder = path.split("/")[0]
        self.is_code = path.endswith((".c", ".h", ".cu"))
        self.in_library = self.folder in LAYERS
        self._bare = None

    @property
    def bare(self):
        """Lines with comments and the insides of strings blanked."""
        if self._bare is None:
            blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))
            self._bare = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, self.text, flags=re.S).split("\n")
        return self._bare


def load(root):
    files = []
    for folder, dirs, names in os.walk(root):
        dirs[:] = sorted(d for d in dirs if not d.startswith((".", "build")) and d not in ("runs", "datasets", "__pycache__"))
        for name in sorted(names):
            if name.endswith(TEXT):
                files.append(Source(root, os.path.relpath(os.path.join(folder, name), root)))
    return files


def check_white_space(root, files):
    """no tabs, trailing blanks or CR; a line feed at the end"""
    for f in files:
        if f.text and not f.text.endswith("\n"):
            yield f"{f.path}: no line feed at the end"
        for i, line in enumerate(f.lines, 1):
            if "\t" in line or "\r" in line or line != line.rstrip():
                yield f"{f.path}:{i}: tab, CR or trailing blank"


def check_line_width(root, files):
    """code lines of at most 100 columns"""
    for f in files:
        for i, line in enumerate(f.lines, 1):
            if f.is_code and len(line) > LINE:
                yield f"{f.path}:{i}: {len(line)} columns"


def check_layers(root, files):
    """includes by full path, pointing left: runtime < collectives < models, amp, data < optim < launch"""
    for f in files:
        if not (f.is_code and f.in_library):
            continue
        for i, line in enumerate(f.lines, 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m:
                continue
            other = m.group(1).split("/")[0]
            if other not in LAYERS or not os.path.exists(os.path.join(root, m.group(1))):
                yield f'{f.path}:{i}: "{m.group(1)}" is no full path of a project header'
            elif other != f.folder and LAYERS[other] >= LAYERS[f.folder]:
                yield f"{f.path}:{i}: {f.folder} must not include {m.group(1)}"


def check_mpi_names(root, files):
    """MPI only in its transports and launch/env.c"""
    for f in files:
        if not (f.is_code and f.in_library) or MPI_FILES.search(f.path):
            continue
        for i, line in enumerate(f.bare, 1):
            names = set(re.findall(r"\bP?MPI_\w+", line))
            if MPI_COMM_FILES.search(f.path):
                names.discard("MPI_Comm")
            if names:
                yield f"{f.path}:{i}: {', '.join(sorted(names))}"


def check_no_exit(root, files):
    """no exit, abort or printf in the library"""
    for f in files:
        if not (f.is_code and f.in_library) or PROGRAM_FILES.match(f.path) or f.path in EXIT_FILES:
            continue
        for i, line in enumerate(f.bare, 1):
            m = re.search(r"(?<!\w)(exit|_exit|quick_exit|abort|printf|puts|putchar|vprintf)\s*\(", line)
            if m:
                yield f"{f.path}:{i}: {m.group(1)}"


def check_getenv(root, files):
    """getenv only in launch/env.c"""
    for f in files:
        if not (f.is_code and f.in_library) or f.path == "launch/env.c":
            continue
        for i, line in enumerate(f.bare, 1):
            if re.search(r"\b(secure_)?getenv\s*\(", line):
                yield f"{f.path}:{i}: getenv"


def check_todo(root, files):
    """every TODO has a name: TODO(name): condition to remove"""
    for f in files:
        for i, line in enumerate(f.lines, 1):
            if f.is_code and re.search(r"\bTODO\b(?!\(\w+\): )", line):
                yield f"{f.path}:{i}: TODO without a name"


def check_sizes(root, files):
    """functions of at most 100 lines, files of at most 700"""
    for f in files:
        if not (f.is_code and f.in_library):
            continue
        if len(f.lines) > FILE:
            yield f"{f.path}: {len(f.lines)} lines"
        start = None
        for i, line in enumerate(f.bare, 1):
            if line.rstrip() == "{":
                start = i
            elif line.startswith("}") and start is not None:
                if i - start - 1 > FUNCTION:
                    yield f"{f.path}:{start}: a function of {i - start - 1} lines"
                start = None


def check_clang_format(root, files):
    """clang-format changes nothing"""
    if not shutil.which("clang-format"):
        raise Skip("clang-format is not installed")
    paths = [f.path for f in files if f.is_code]
    for start in range(0, len(paths), 50):
        p = subprocess.run(["clang-format", "--dry-run", *paths[start:start + 50]], cwd=root, capture_output=True, text=True)
        bad = sorted(set(re.findall(r"^(\S+?):\d+:\d+: warning: code should be clang-formatted", p.stderr, re.M)))
        yield from (f"{path}: run clang-format -i" for path in bad)


def compile_alone(root, compiler, flags, headers, suffix):
    cflags = subprocess.run(["pkg-config", "--cflags", "ompi-c", "hdf5-openmpi", "hwloc", "yaml-0.1"],
                            capture_output=True, text=True).stdout.split()

    def one(path):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "alone" + suffix)
            with open(source, "w") as f:
                f.write(f'#include "{path}"\n#include "{path}"\n')
            p = subprocess.run([*compiler, *flags, "-D_GNU_SOURCE", "-DOMPI_SKIP_MPICXX", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", root,
                                "-idirafter", os.path.join(root, "tests/emulation/include"),  # where CUDA is not installed
                                *cflags, source], capture_output=True, text=True)
            return None if p.returncode == 0 else f"{path}: {p.stderr.strip().splitlines()[0] if p.stderr else 'does not compile'}"

    with ThreadPoolExecutor(2) as pool:
        return [bad for bad in pool.map(one, headers) if bad]


def check_headers_c(root, files):
    """every header of the library compiles alone as C11, twice included"""
    # simd_<isa>.h need the flags of their instruction set; the kernels that include them are compiled with those
    headers = [f.path for f in files if f.path.endswith(".h") and f.in_library and "cpu/simd_" not in f.path]
    yield from compile_alone(root, COMPILER, ["-std=c11"], headers, ".c")


def check_headers_cxx(root, files):
    """headers that C++ and CUDA files include compile as C++"""
    if not shutil.which("g++"):
        raise Skip("g++ is not installed")
    headers = [f.path for f in files if "TRI_BEGIN_DECLS\n" in f.text and f.path.endswith(".h") and f.in_library]
    yield from compile_alone(root, ["g++"], ["-std=c++17", "-DOMPI_SKIP_MPICXX"], headers, ".cpp")


def main():
    root = os.path.abspath(sys.argv[1])
    files = load(root)
    checks = [f for name, f in globals().items() if name.startswith("check_")]
    failed = 0
    print(f"1..{len(checks)}")
    for i, check in enumerate(checks, 1):
        name = f"{check.__name__[6:]}: {check.__doc__}"
        try:
            complaints = list(check(root, files))
        except Skip as why:
            print(f"ok {i} {name} # SKIP {why}")
            continue
        print(f"{'not ok' if complaints else 'ok'} {i} {name}")
        for complaint in complaints:
            print(f"# {complaint}")
        failed += bool(complaints)
    sys.exit(1 if failed else 0)


COMPILER = sys.argv[2:] or ["cc"]
main()
