"""Training over the nodes of a cluster of network namespaces (cluster.sh): the transport between nodes, as whole runs."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "cli"))

from harness import Skip, close, equal, run_tests  # noqa: E402

STEPS = 6
SMALL_BUCKETS = dict(bucket_mb=0.001)  # several of them, so that the exchange overlaps


def on(shape, *options):
    """The prefix that runs the program on NODESxRANKS."""
    return [os.path.join(HERE, "cluster.sh"), *options, shape]


def train(t, run, ranks=0, prefix=(), **sections):
    sections.setdefault("data", {}).update(path="data.h5", batch=32)
    sections.setdefault("gradient", SMALL_BUCKETS)
    config = t.config(f"{run}.yaml", model=dict(name="mlp", hidden=[48, 24]), debug=dict(hash_every=1),
                      run=dict(dir=t.path(run), steps=STEPS, eval_every=STEPS, deterministic="det" in run), **sections)
    result = t.train(config, ranks=ranks, prefix=prefix)
    if result.rc == 77:
        raise Skip(result.err.strip().splitlines()[-1])
    result.expect(0)


def losses(t, run):
    return [m["loss"] for m in t.metrics(run)]


def test_nodes_learn_as_one_node_does(t):
    t.classes()
    train(t, "one", ranks=2)
    train(t, "2x1", prefix=on("2x1"))
    train(t, "2x2", prefix=on("2x2"))
    for run in ("2x1", "2x2"):
        close(losses(t, run), losses(t, "one"), 1e-5)
        assert t.metrics(run)[-1]["comm_bytes"] > 0, "nothing was sent"


def test_nodes_keep_every_bit_of_deterministic_runs(t):
    t.classes()
    train(t, "det", ranks=1)
    want = t.texts("loss", "grad_norm", "weights_hash", run="det")
    for shape, by in (("2x1", "slot"), ("2x2", "slot"), ("2x2", "node"), ("4x1", "slot")):
        run = f"det-{shape}-{by}"
        train(t, run, prefix=on(shape, "--by", by))
        equal(t.texts("loss", "grad_norm", "weights_hash", run=run), want, f"run on {shape} nodes by {by}")


def test_two_levels_over_real_nodes(t):
    t.classes()
    train(t, "det", ranks=1)
    train(t, "det-levels", prefix=on("2x2"), gradient=dict(hierarchy="two_level", **SMALL_BUCKETS))
    equal(t.texts("loss", "weights_hash", run="det-levels"), t.texts("loss", "weights_hash", run="det"), "two levels")
    train(t, "levels", prefix=on("2x2", "--by", "node"), gradient=dict(hierarchy="two_level", **SMALL_BUCKETS))
    close(losses(t, "levels"), losses(t, "det"), 1e-5)


def test_shaped_links_only_cost_time(t):
    t.classes()
    train(t, "det", ranks=1)
    train(t, "det-slow", prefix=on("2x1", "--rate", "10mbit"))
    equal(t.texts("loss", "weights_hash", run="det-slow"), t.texts("loss", "weights_hash", run="det"), "run over 10 Mbit/s")


def test_a_failure_is_told_once_with_its_node(t):
    t.classes()
    config = t.config(run=dict(steps=1), model=dict(name="mlp", hidden=[8]), data=dict(path="none.h5", batch=32))
    result = t.train(config, ranks=0, prefix=on("2x1"))
    if result.rc == 77:
        raise Skip(result.err.strip().splitlines()[-1])
    result.expect(2, "none.h5")
    said = [line for line in result.err.splitlines() if line.startswith("trireme:")]
    assert len(said) == 1, result.err


def test_foreign_models_compress_between_nodes(t):
    settings = "compress.name={} compress.force=true bucket_bytes=64"
    for command in ([os.environ["MP_WORKER"], "compress_slices"],
                    [os.environ["EXCHANGE_FOREIGN"], "multiple", settings.format("topk compress.ratio=0.3")],
                    [os.environ["EXCHANGE_FOREIGN"], "multiple", settings.format("int8")]):
        done = subprocess.run(on("2x2") + command, capture_output=True, text=True, timeout=60)
        if done.returncode == 77:
            raise Skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, (command, done.stderr)


if __name__ == "__main__":
    run_tests(globals())
