"""Training on emulated devices under a sanitizer: every stream is a thread, so that a missing event is a data race.

Usage: streams.py PROGRAM, trireme-emulated built with -Db_sanitize=thread or address,undefined.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "cli"))

from harness import equal, run_tests  # noqa: E402

KEYS = ("step", "loss", "grad_norm")


def train(t, name, ranks, model, data, *args, precision="fp32", **gradient):
    config = t.config(run=dict(dir=t.path(name), steps=3, eval_every=3), model=model, data=data, device=dict(kind="cuda"),
                      checkpoint=dict(every=2), optimizer=dict(name="adamw", lr=0.01), precision=dict(compute=precision),
                      gradient=dict(clip_norm=0.5, bucket_bytes=1024, **gradient))
    r = t.train(config, *args, ranks=ranks, env={"OMP_NUM_THREADS": "1"}, timeout=300).expect(0, "emulated GPU")
    for report in ("Sanitizer", "runtime error", "emulation: "):
        assert report not in r.out + r.err, r.out + r.err
    return t.texts(*KEYS, run=name)


def mlp(t):
    t.classes(n=96)
    return dict(name="mlp", hidden=[24, 16]), dict(path="data.h5", batch=16, workers=2)


def gpt(t):
    t.tokens(n=16 * 40 + 5, vocab=23)
    return dict(name="gpt", layers=2, heads=2, width=16, context=16, dropout=0.1), dict(path="data.h5", batch=8)


def test_mlp(t):
    base = mlp(t)
    for ranks in (1, 4):
        train(t, f"run-{ranks}", ranks, *base)


def test_gpt(t):
    train(t, "run", 4, *gpt(t))


def test_graph(t):
    base = gpt(t)
    equal(train(t, "graph", 4, *base, "device.graph=true"), train(t, "plain", 4, *base), "graph")


def test_half_precision(t):
    train(t, "run", 2, *gpt(t), precision="bf16")


def test_two_levels(t):
    train(t, "run", 4, *mlp(t), "debug.nodes=[2, 2]", hierarchy="two_level")


def test_nccl_and_mpi(t):
    """NCCL inside nodes, MPI between them: with pieces, and with graphs that are cut."""
    base, args = mlp(t), ("debug.nodes=[2, 2]", "device.across=mpi")
    equal(train(t, "graph", 4, *base, *args, "device.graph=true"), train(t, "plain", 4, *base, *args), "graph")
    wide = dict(name="mlp", hidden=[1500, 2801]), base[1]
    train(t, "wide", 4, *wide, *args, "gradient.bucket_bytes=67108864", "run.steps=2")


def test_deterministic(t):
    base = gpt(t)
    equal(train(t, "run-4", 4, *base, "run.deterministic=true"), train(t, "run-2", 2, *base, "run.deterministic=true"), "4 ranks")


def test_messages(t):
    """Two ranks on one device: gradients travel through the memory of the process."""
    os.environ["EMULATE_SHARED"] = "1"
    train(t, "run", 2, *mlp(t))
    del os.environ["EMULATE_SHARED"]


run_tests(globals())
