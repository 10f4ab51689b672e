"""Our threads under the thread sanitizer: workers with MPI, and the program in the settings that use several threads.

Usage: threads.py PROGRAM MP_WORKER EXCHANGE_FOREIGN, all built with -Db_sanitize=thread. A data race is reported by the
sanitizer and makes a rank fail. Kernels run on one thread: libgomp is not instrumented, its barriers would be invisible.
"""
import os
import subprocess
import sys

WORKER, FOREIGN = (os.path.abspath(path) for path in sys.argv[2:4])
del sys.argv[2:4]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "cli"))

from harness import ENV, equal, run_tests  # noqa: E402

KEYS = ("step", "loss", "grad_norm", "weights_hash")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def quiet(rc, text, what):
    assert rc == 0 and "ThreadSanitizer" not in text, f"{what}: exit code {rc}\n{text}"


def launch(t, ranks, *command):
    """A program without configuration, under mpirun."""
    env = {**os.environ, **ENV, **ONE_THREAD, "TRI_TEST_DIR": t.dir}
    p = subprocess.run(["timeout", "-k", "5", "120", "mpirun", "-n", str(ranks), "--bind-to", "none", *command],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    quiet(p.returncode, p.stdout + p.stderr, f"{' '.join(command)} on {ranks} ranks")


def train(t, name, ranks, base, steps=6, **sections):
    """Trains with batches, checkpoints in the background, evaluations and the samples' log; returns what must repeat."""
    run = dict(dir=t.path(name), steps=steps, eval_every=3, **sections.pop("run", {}))
    debug = dict(hash_every=1, log_samples=True, **sections.pop("debug", {}))
    config = t.config(run=run, debug=debug, checkpoint={"every": 2, "async": True}, telemetry=dict(trace_step=3), **base, **sections)
    r = t.train(config, ranks=ranks, env=ONE_THREAD)
    quiet(r.rc, r.out + r.err, name)
    return t.texts(*KEYS, run=name)


def mlp(t):
    t.classes(n=96)
    return dict(model=dict(name="mlp", hidden=[24, 16]), data=dict(path="data.h5", batch=16, workers=2),
                optimizer=dict(name="adamw", lr=0.01))


def gpt(t):
    t.tokens(n=16 * 40 + 5, vocab=23)
    return dict(model=dict(name="gpt", layers=2, heads=2, width=16, context=16, dropout=0.1), data=dict(path="data.h5", batch=8),
                optimizer=dict(name="adamw", lr=0.01))


# --- workers -------------------------------------------------------------------------------------------


def test_workers_of_communicators(t):
    for case, ranks in (("threads", 2), ("threads", 4), ("chunks", 2), ("deadline", 2), ("no_room", 2), ("slices", 3), ("levels", 4)):
        launch(t, ranks, WORKER, case)


def test_workers_of_the_exchange(t):
    for case in ("accumulated", "bucket_sizes", "orders", "missing", "mismatch", "beside"):
        launch(t, 2, WORKER, f"exchange_{case}", "multiple")
    launch(t, 2, WORKER, "exchange_beside", "serialized")


def test_workers_of_checkpoints(t):
    for case, ranks in (("go_on", 4), ("go_on", 3), ("one_fails", 3)):
        launch(t, ranks, WORKER, f"checkpoint_{case}")


def test_foreign_model(t):
    launch(t, 2, FOREIGN, "multiple")


# --- the program ---------------------------------------------------------------------------------------


def test_overlap(t):
    base = mlp(t)
    for ranks in (1, 2, 4):
        train(t, f"run-{ranks}", ranks, base, gradient=dict(clip_norm=0.5, bucket_bytes=256))


def test_late_ranks(t):
    late = [dict(rank=1, step=s, where=w, what="sleep", ms=20) for s in (2, 4) for w in ("backward", "exchange")]
    train(t, "run", 2, mlp(t), gradient=dict(bucket_bytes=256), debug=dict(inject=late))


def test_deterministic(t):
    base = gpt(t)
    exact = dict(run=dict(deterministic=True), gradient=dict(clip_norm=0.5, bucket_bytes=1024))
    equal(train(t, "run-4", 4, base, **exact), train(t, "run-2", 2, base, **exact), "4 ranks")


def test_two_levels(t):
    gradient = dict(hierarchy="two_level", bucket_bytes=256)
    train(t, "run", 4, mlp(t), gradient=gradient, debug=dict(nodes=[2, 2]))


def test_compressed(t):
    base = mlp(t)
    for name in ("int8", "topk", "powersgd"):
        compress = dict(name=name, level="inter", force=True, rank=2, ratio=0.1)
        train(t, f"run-{name}", 4, base, gradient=dict(hierarchy="two_level", bucket_bytes=1024, compress=compress),
              debug=dict(nodes=[2, 2]))


def test_half_precision(t):
    train(t, "run", 2, gpt(t), precision=dict(compute="fp16"), gradient=dict(clip_norm=0.5, bucket_bytes=4096))


def test_resumed(t):
    base = mlp(t)
    train(t, "run", 2, base, steps=4)
    train(t, "run", 2, base, steps=8)


def test_augmented_images(t):
    t.images(n=64)
    data = dict(path="data.h5", batch=16, augment=True, workers=4)
    train(t, "run", 2, dict(model=dict(name="resnet", preset="resnet20", width=4), data=data, optimizer=dict(name="sgd", lr=0.05)))


def test_a_rank_that_is_too_late(t):
    late = [dict(rank=1, step=3, where="backward", what="sleep", ms=4000)]
    config = t.config(run=dict(steps=6, eval_every=2), checkpoint={"every": 1, "async": True}, timeouts=dict(collective_s=1),
                      debug=dict(inject=late), gradient=dict(bucket_bytes=64), **mlp(t))
    # MPI_Abort ends the rank with a checkpoint's thread perhaps not joined yet, which is no fault
    options = os.environ.get("TSAN_OPTIONS", "") + " report_thread_leaks=0"
    r = t.train(config, ranks=2, env={**ONE_THREAD, "TSAN_OPTIONS": options}).expect(1, "rank 1")
    assert "ThreadSanitizer" not in r.out + r.err, r.err


run_tests(globals())
