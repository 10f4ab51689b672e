"""Installs into a temporary folder and builds programs against it; prints TAP.

Usage: installed.py BUILD SANITIZER COMPILER... Each check_* yields complaints; none means that it holds.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD, SANITIZER, COMPILER = sys.argv[1], sys.argv[2], sys.argv[3:]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
MPI_HEADERS = ("optim/exchange.h",)
RANKS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
         "OMPI_MCA_mpi_yield_when_idle": "1"}


def call(*command, env=None):
    """Standard output of a command, or an exception with what it said."""
    p = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    if p.returncode != 0:
        raise RuntimeError(f"{os.path.basename(command[0])} ... {command[-1]}: code {p.returncode}: {p.stderr.strip()}")
    return p.stdout


class Installed:
    """An installation below a folder, as pkg-config sees it."""

    def __init__(self, root):
        self.root = root
        call("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", os.path.join(root, "dest"))
        [pc] = [os.path.join(folder, "trireme.pc") for folder, _, names in os.walk(root) if "trireme.pc" in names]
        with open(pc) as f:
            prefix = re.search(r"^prefix=(.*)$", f.read(), re.M).group(1)
        self.query = ["pkg-config", f"--define-variable=prefix={root}/dest{prefix}"]
        self.env = {"PKG_CONFIG_PATH": os.path.dirname(pc)}
        self.cflags = call(*self.query, "--cflags", "trireme", env=self.env).split()
        self.libs = call(*self.query, "--libs", "trireme", env=self.env).split()
        self.libdir = call(*self.query, "--variable=libdir", "trireme", env=self.env).strip()
        [self.include] = [flag[2:] for flag in self.cflags if flag.startswith("-I")]
        self.mpi = call("pkg-config", "--cflags", "--libs", "ompi-c").split()

    def headers(self):
        found = (os.path.relpath(os.path.join(folder, name), self.include)
                 for folder, _, names in os.walk(self.include) for name in names)
        return sorted(found)

    def program(self, source):
        """Builds a program of this folder and returns its path."""
        path = os.path.join(self.root, source)
        call(*COMPILER, *FLAGS, "-O1", *self.cflags, os.path.join(HERE, source + ".c"), "-o", path, *self.libs, *self.mpi, "-lm")
        return path

    def run(self, ranks, *command):
        env = {**RANKS, "LD_LIBRARY_PATH": self.libdir}
        return call("timeout", "-k", "5", "60", "mpirun", "-n", str(ranks), "--bind-to", "none", *command, env=env)


def check_headers(at):
    """each installed header compiles alone, and only the exchange needs MPI"""
    names = at.headers()
    if "trireme.h" not in names or "runtime/graph/graph.h" not in names or "optim/exchange.h" not in names:
        yield f"not all there: {' '.join(names)}"
    for name in names:
        source = os.path.join(at.root, "alone.c")
        with open(source, "w") as f:
            f.write(f"#include <{name}>\n#include <{name}>\nint main(void) {{ return 0; }}\n")
        flags = at.mpi if name in MPI_HEADERS else []
        used = call(*COMPILER, *FLAGS, "-M", *at.cflags, *flags, source)
        if name not in MPI_HEADERS and re.search(r"/mpi\.h\b", used):
            yield f"{name} includes mpi.h"
        call(*COMPILER, *FLAGS, "-fsyntax-only", *at.cflags, *flags, source)


def check_soname(at):
    """the library has a versioned name"""
    names = os.listdir(at.libdir)
    if "libtrireme.so.0" not in names or "libtrireme.so" not in names:
        yield f"{at.libdir}: {' '.join(names)}"


def check_own_model(at):
    """a model out of tree in under 100 lines trains, with the same bits on 1, 2 and 4 ranks"""
    with open(os.path.join(HERE, "own_model.c")) as f:
        lines = len(f.readlines())
    if lines >= 100:
        yield f"own_model.c has {lines} lines"
    program = at.program("own_model")
    said = [at.run(ranks, program) for ranks in (1, 2, 4)]
    if not said[0].startswith("loss ") or len(set(said)) != 1:
        yield f"ranks 1, 2, 4 said {said}"
    # The largest parameter has 1024 bytes: a bucket of one element, around that size, and of more than the model.
    said += [at.run(2, program, f"gradient.bucket_bytes={size}") for size in (4, 1023, 1024, 1025, 1 << 24)]
    if len(set(said)) != 1:
        yield f"buckets change the result: {said}"


def check_refusals(at):
    """a run with a bad or an unequal setting ends on all ranks and says why"""
    program = at.program("own_model")
    for text, command in (("bucket_bytes", [program, "gradient.bucket_bytes=0"]),
                          ("settings of the run", [program, "run.seed=1", ":", "-n", "1", program, "run.seed=2"])):
        try:
            at.run(1, *command)
        except RuntimeError as why:
            if text not in str(why):
                yield f"{command[1:]}: {why}"
        else:
            yield f"{command[1:]} was accepted"


def check_exchange(at):
    """a program with its own model and MPI exchanges gradients"""
    program = at.program("exchange_foreign")
    at.run(2, program, "multiple")


def main():
    if SANITIZER != "none":
        print("1..0 # SKIP a library with a sanitizer cannot be linked into a program without one")
        return
    checks = [f for name, f in globals().items() if name.startswith("check_")]
    failed = 0
    print(f"1..{len(checks)}")
    with tempfile.TemporaryDirectory() as root:
        at = Installed(root)
        for i, check in enumerate(checks, 1):
            try:
                complaints = list(check(at) or [])
            except RuntimeError as why:
                complaints = [str(why)]
            print(f"{'not ok' if complaints else 'ok'} {i} {check.__name__[6:]}: {check.__doc__}")
            for line in "\n".join(complaints).splitlines():
                print(f"# {line}")
            failed += bool(complaints)
    sys.exit(1 if failed else 0)


main()
