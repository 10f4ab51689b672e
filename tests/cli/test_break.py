"""What a hostile user found once: outputs that would replace inputs, full disks, lost output, cut files, absurd numbers."""
import gzip
import os
import re
import struct

from harness import ENV, PROGRAM, Skip, equal, np, run_tests

import subprocess

LINEAR = {"name": "mlp", "hidden": []}


def trained(t, steps=2):
    """A finished run; returns its configuration."""
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16}, run={"steps": steps})
    t.run("train", config).expect(0)
    return config


def write(t, name, data):
    with open(t.path(name), "wb") as f:
        f.write(data)
    return t.path(name)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def shell(t, command):
    """A shell line in the test's folder, with the program as $T."""
    env = dict(os.environ, **ENV, T=PROGRAM)
    p = subprocess.run(["timeout", "60", "bash", "-c", command], env=env, cwd=t.dir, capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr


# --- nothing is overwritten --------------------------------------------------------------------------------


def test_import_keeps_its_input(t):
    text = write(t, "a.txt", b"some text " * 100)
    os.symlink(text, t.path("b.h5"))
    t.run("data", "import", "text", text, "-o", text).expect(2, "is an input")
    t.run("data", "import", "text", text, "-o", t.path("b.h5")).expect(2, "is an input")
    assert read(text) == b"some text " * 100
    np.save(t.path("x.npy"), np.ones((4, 2)))
    np.save(t.path("y.npy"), np.arange(4))
    t.run("data", "import", "npy", "--train-x", "x.npy", "--train-y", "y.npy", "-o", "y.npy").expect(2, "is an input")
    equal(list(np.load(t.path("y.npy"))), [0, 1, 2, 3])


def test_import_replaces_no_device(t):
    os.mkfifo(t.path("pipe"))
    t.run("data", "import", "text", write(t, "a.txt", b"text"), "-o", t.path("pipe")).expect(2, "no regular file")
    equal(sorted(os.listdir(t.dir)), ["a.txt", "pipe"])


def test_predictions_keep_data_and_model(t):
    config = trained(t)
    model = t.path("run", "checkpoints", "latest", "model.h5")
    for victim in (t.path("data.h5"), model, config):
        before = read(victim)
        t.run("eval", config, "--checkpoint", t.path("run"), "--predictions", victim).expect(2, "is an input")
        assert read(victim) == before, f"{victim} was changed"


# --- files that end too early ------------------------------------------------------------------------------


def test_cut_gzip_is_refused(t):
    def idx(a):
        return struct.pack(">BBBB", 0, 0, 8, a.ndim) + b"".join(struct.pack(">I", n) for n in a.shape) + a.tobytes()

    images = gzip.compress(idx(np.arange(45, dtype="u1").reshape(5, 3, 3)))
    y = write(t, "y", idx(np.array([0, 1, 2, 1, 0], "u1")))
    whole, cut = write(t, "i.gz", images), write(t, "cut.gz", images[:-8])
    args = ("--train-labels", y, "--validation-images", whole, "--validation-labels", y, "-o", t.path("out.h5"))
    t.run("data", "import", "idx", "--train-images", whole, *args).expect(0)
    os.remove(t.path("out.h5"))
    t.run("data", "import", "idx", "--train-images", cut, *args).expect(2, "cut off")
    assert not os.path.exists(t.path("out.h5"))


def test_import_on_a_full_disk(t):
    """HDF5 1.10 crashes where it meets a full disk."""
    os.mkdir(t.path("small"))
    write(t, "a.txt", b"text" * 1000)
    mount = "mount -t tmpfs -o size=8k tmpfs small"
    if shell(t, f"unshare -m sh -c '{mount}'")[0] != 0:
        raise Skip("no rights to mount a small file system")
    rc, out, err = shell(t, f"unshare -m sh -c '{mount} && $T data import text a.txt -o small/x.h5; echo code $?; ls small'")
    equal(out.split(), ["code", "2"])
    assert "the disk has" in err, err


# --- standard streams --------------------------------------------------------------------------------------


def test_lost_output_is_a_failure(t):
    config = trained(t)
    for command in ("config", f"checkpoint list {t.path('run')}", f"eval {config} --checkpoint {t.path('run')}"):
        rc, _, err = shell(t, f"$T {command} > /dev/full")
        assert rc == 1 and "standard output" in err, f"{command}: code {rc}: {err}"


def test_closed_streams_hold_no_file(t):
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16}, run={"steps": 12, "log_every": 1})
    rc, _, _ = shell(t, f"$T train {config} <&- >&- 2>&-")
    assert rc == 0, rc
    assert len(t.metrics()) == 12
    assert b"loss" not in read(t.path("run", ".lock"))


def test_training_outlives_the_reader_of_its_messages(t):
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16}, run={"steps": 50, "log_every": 1})
    rc, out, _ = shell(t, f"$T train {config} 2>&1 | true; echo ${{PIPESTATUS[0]}}")
    equal(out.split(), ["0"])
    assert len(t.metrics()) == 50


# --- found before the first step ---------------------------------------------------------------------------


def test_unwritable_trace(t):
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16}, run={"steps": 8})
    for ranks in (0, 2):
        r = t.run("train", config, "--trace", t.path("none", "t.json"), ranks=ranks).expect(2, "cannot create the trace")
        assert r.err.count("trireme: ") == 1, r.err
        assert not os.path.exists(t.path("run")), "the run was started"


def test_absurd_numbers(t):
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16})
    t.run("train", config, "run.epochs=9223372036854775807").expect(2, "too many")
    t.run("train", config, "run.steps=3", "telemetry.trace_step=9223372036854775807").expect(0)
    t.run("train", config, "run.steps=5", "telemetry.trace_step=9223372036854775807").expect(0)


def test_a_bit_beyond_the_element_is_refused_before_the_run(t):
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16}, run={"steps": 2})
    for where in ("forward", "backward", "exchange", "update"):
        for ranks in (0, 2):
            fault = f"debug.inject=[{{rank: 0, step: 2, where: {where}, what: flip, bit: %d}}]"
            r = t.run("train", config, fault % 32, ranks=ranks).expect(2, "has no bit 32")
            assert r.err.count("trireme: ") == 1, r.err
            assert not os.path.exists(t.path("run")), "the run was started"
    t.run("train", config, fault % 31).expect(0)


def test_deep_yaml(t):
    deep = write(t, "deep.yaml", b"run: " + b"[" * 100000)
    t.run("train", deep, timeout=20).expect(2, "nested")


def test_large_label(t):
    path = t.data(train=dict(x=np.ones((4, 2), "f4"), y=np.arange(4) + 2**40))
    t.run("data", "info", path).expect(2, "is 1099511627776, must be 0..2147483646 or -100")


def test_folder_as_data_is_one_line(t):
    config = t.config(model=LINEAR, data={"path": t.dir, "batch": 1}, run={"steps": 1})
    r = t.run("train", config).expect(2, "Is a directory")
    ours = [line for line in r.err.splitlines() if not line.startswith("[hwloc")]  # where /sys is missing
    assert len(ours) == 1, r.err


# --- messages ----------------------------------------------------------------------------------------------


def test_lost_rank_is_named_once_with_the_step(t):
    config = t.config(model=LINEAR, data={"path": t.classes(), "batch": 16}, run={"steps": 20}, timeouts={"collective_s": 2},
                      debug={"inject": [{"rank": 1, "step": 6, "where": "exchange", "what": "stop"}]})
    r = t.train(config, ranks=2, timeout=60).expect(1, "after step 5")
    assert re.search(r"^trireme: rank 0 on [^:]*: allreduce .* for rank 1 on ", r.err, re.M), r.err


run_tests(globals())
