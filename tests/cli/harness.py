"""What the command-line tests share: run the program under mpirun, make datasets, read metrics.

A test file defines functions named test_*(t), where t is a Case with a fresh folder; `run_tests(globals())` at its end runs
them and prints TAP, one line a test. Arguments of a test file: the program, then (optional) names of tests to run.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

try:
    import h5py
    import numpy as np
except ImportError as why:
    print(f"1..0 # SKIP {why}")
    sys.exit(0)

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
DEVICE = os.environ.get("TRI_TEST_DEVICE")  # device.kind of every run that names none
ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class Skip(Exception):
    """Raised by a test that cannot run here; the text says why."""


def children(pid):
    """Processes that this one has started: of mpirun, the ranks of this machine."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as f:
                if name.isdigit() and int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(name))
        except OSError:
            continue
    return sorted(found)


def wait_for(condition, what, seconds=60):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, f"{what} did not happen in {seconds} s"
        time.sleep(0.005)


class Result:
    """A finished command: rc, out, err."""

    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def expect(self, rc, *texts):
        """Exit code and texts (any case) in the output, else an assertion that shows all of it."""
        both = self.out + self.err
        assert self.rc == rc, f"exit code {self.rc}, expected {rc}\n{both}"
        for text in texts:
            assert text.lower() in both.lower(), f"'{text}' is not in:\n{both}"
        return self


def preloaded(library):
    """The environment that loads a library before all others; the address sanitizer would insist on being the first."""
    return {"LD_PRELOAD": library, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


class Case:
    """One test: a fresh folder and helpers that work in it."""

    def __init__(self, folder):
        self.dir = folder

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def config(self, name="run.yaml", **sections):
        """Writes a configuration (JSON is YAML); run.dir defaults to <folder>/run, threads to 1."""
        sections.setdefault("run", {})
        sections["run"].setdefault("dir", self.path("run"))
        sections["run"].setdefault("threads", 1)
        if DEVICE:
            sections.setdefault("device", {}).setdefault("kind", DEVICE)
        with open(self.path(name), "w") as f:
            json.dump(sections, f, indent=1)
        return self.path(name)

    def run(self, *args, ranks=0, env=None, timeout=120, prefix=(), outer=()):
        """trireme args...; under mpirun when ranks > 0. Exit code 124: it hung.

        prefix runs the program on each rank, outer runs all of it.
        """
        cmd = list(prefix) + [PROGRAM] + [str(a) for a in args]
        if ranks > 0:
            cmd = ["mpirun", "-n", str(ranks), "--bind-to", "none"] + cmd
        cmd = list(outer) + cmd
        full = dict(os.environ, **ENV)
        full.update(env or {})
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=full, cwd=self.dir)
            try:
                rc = p.wait(timeout)
            except subprocess.TimeoutExpired:
                p.terminate()
                try:
                    p.wait(5)
                except subprocess.TimeoutExpired:
                    p.kill()
                rc = 124
            out.seek(0)
            err.seek(0)
            return Result(rc, out.read(), err.read())

    def start(self, config, *args, ranks=0, err=subprocess.DEVNULL):
        """trireme train in the background; the caller ends it."""
        cmd = (["mpirun", "-n", str(ranks), "--bind-to", "none"] if ranks else []) + [PROGRAM, "train", config, *args]
        return subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                env=dict(os.environ, **ENV), cwd=self.dir)

    def preload(self, name, code):
        """A library for LD_PRELOAD from C text; returns the environment that loads it."""
        with open(self.path(name + ".c"), "w") as f:
            f.write(code)
        made = subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path(name + ".so"), f.name, "-ldl"],
                              capture_output=True, text=True)
        if made.returncode != 0:
            raise Skip(f"no C compiler for a preloaded library: {made.stderr.strip()}")
        return preloaded(self.path(name + ".so"))

    def train(self, config, *args, ranks=1, **kw):
        return self.run("train", config, *args, ranks=ranks, **kw)

    def metrics(self, run="run"):
        """The step objects of metrics.jsonl."""
        return [m for m in self.lines(run, "metrics.jsonl") if "eval" not in m]

    def evals(self, run="run"):
        return [m for m in self.lines(run, "metrics.jsonl") if "eval" in m]

    def lines(self, run, name):
        with open(os.path.join(self.path(run), name)) as f:
            return [json.loads(line) for line in f]

    def texts(self, *keys, run="run"):
        """The text of these keys of each step object, so that every digit counts; "eval" lines come too."""
        with open(os.path.join(self.path(run), "metrics.jsonl")) as f:
            objects = [json.loads(line, parse_float=str) for line in f]
        return [str(m["eval"]) if "eval" in m else " ".join(str(m.get(k)) for k in keys) for m in objects]

    def params(self, step, run="run"):
        """Weights of a checkpoint by name."""
        with self.checkpoint(step, run) as f:
            found = {}
            f["param"].visititems(lambda k, v: found.update({k: v[...]}) if isinstance(v, h5py.Dataset) else None)
        return found

    def checkpoint(self, step, run="run"):
        """Open model.h5 of a checkpoint for reading."""
        return h5py.File(os.path.join(self.path(run), "checkpoints", f"step-{step:08d}", "model.h5"), "r")

    # --- datasets; each returns the path ---------------------------------------------------------------

    def data(self, name="data.h5", attrs=None, **splits):
        """splits: train=dict(x=..., y=...), validation=dict(...)."""
        with h5py.File(self.path(name), "w") as f:
            for k, v in (attrs or {}).items():
                f.attrs[k] = v
            for split, sets in splits.items():
                for key, values in sets.items():
                    f.create_dataset(f"{split}/{key}", data=values)
        return self.path(name)

    def values(self, x, y, name="data.h5"):
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        return self.data(name, train=dict(x=x.reshape(len(x), -1), y=y.reshape(len(y), -1)))

    def classes(self, n=256, dim=12, classes=5, seed=1, name="data.h5"):
        """Separable classes with noise, with a validation part."""
        r = np.random.default_rng(seed)
        centre = r.normal(size=(classes, dim))
        def part(m):
            y = r.integers(0, classes, m)
            return dict(x=(centre[y] + 0.5 * r.normal(size=(m, dim))).astype("f4"), y=y.astype("i4"))
        return self.data(name, attrs=dict(classes=classes), train=part(n), validation=part(n // 4))

    def tokens(self, n=4000, vocab=31, seed=1, name="data.h5"):
        """A noisy periodic text."""
        r = np.random.default_rng(seed)
        t = (np.arange(n) * 7 // 3 + r.integers(0, 3, n)) % vocab
        return self.data(name, attrs=dict(vocab=vocab), train=dict(tokens=t.astype("i4")),
                         validation=dict(tokens=t[: n // 4].astype("i4")))

    def images(self, n=96, size=12, classes=4, seed=1, name="data.h5"):
        r = np.random.default_rng(seed)
        def part(m):
            y = r.integers(0, classes, m)
            x = r.integers(0, 80, (m, size, size, 1)) + 40 * y[:, None, None, None]
            return dict(images=x.astype("u1"), labels=y.astype("i4"))
        return self.data(name, attrs=dict(classes=classes, mean=0.4, scale=0.25), train=part(n), validation=part(n // 2))

    def weights(self, params, name="init.h5"):
        """A file for model.init."""
        with h5py.File(self.path(name), "w") as f:
            for k, v in params.items():
                f["param/" + k] = np.asarray(v, np.float32)
        return self.path(name)


def equal(a, b, what="values"):
    """Equality of lists, with the first difference in the message."""
    assert len(a) == len(b), f"{what}: {len(a)} against {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        assert x == y, f"{what}: item {i} is {x}, expected {y}"


def close(a, b, tol=1e-6):
    """Relative closeness of numbers or arrays, with a floor of 1 for the scale of small ones."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    worst = np.max(np.abs(a - b) / np.maximum(1.0, np.abs(b))) if a.size else 0.0
    assert a.shape == b.shape and worst <= tol, f"{a} is not {b} (off by {worst:.3g}, allowed {tol:.3g})"


def run_tests(space):
    wanted = sys.argv[2:]
    tests = [(k, f) for k, f in space.items() if k.startswith("test_") and (not wanted or k in wanted)]
    failed = 0
    print(f"1..{len(tests)}", flush=True)
    for i, (name, test) in enumerate(tests, 1):
        folder = tempfile.mkdtemp(prefix=f"trireme-{name}-")
        try:
            test(Case(folder))
            print(f"ok {i} {name}", flush=True)
        except Skip as why:
            print(f"ok {i} {name} # SKIP {why}", flush=True)
        except BaseException:
            failed += 1
            print(f"not ok {i} {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print(f"# {line}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)
