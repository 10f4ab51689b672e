"""Steady steps of `trireme train` allocate nothing, touch no file and take no lock on the compute thread.

count_calls.c, preloaded, counts such calls between two steps. The second argument of this file is that library.
"""
import os
import sys

LIBRARY = os.path.abspath(sys.argv.pop(2))

from harness import preloaded, run_tests  # noqa: E402  (it reads the arguments)

FROM, TO = 5, 15


def counted(t, config, ranks):
    """Runs training and returns the places that called something in the window."""
    path = t.path("calls")  # of the rank that ends last
    t.train(config, "run.steps=20", "run.eval_every=0", ranks=ranks, timeout=100, env=dict(
        preloaded(LIBRARY), COUNT_FROM=str(FROM), COUNT_TO=str(TO), COUNT_FILE=path)).expect(0)
    with open(path) as f:
        lines = f.read().splitlines()
    assert lines[0] == "steps 20", lines[0]
    assert int(lines[1].split()[1]) > 100, f"the counter does not count: {lines[1]}"
    return lines[2:]


def check(t, ranks, **sections):
    places = counted(t, t.config(**sections), ranks)
    assert not places, "calls in steps %d to %d:\n%s" % (FROM, TO, "\n".join(places))


def test_gpt_on_1_rank(t):
    check(t, 1, data=dict(path=t.tokens(), batch=4, grain=2, sequence=16),
          model=dict(name="gpt", layers=1, heads=2, width=16, context=16, dropout=0.1), gradient=dict(clip_norm=1.0))


def test_resnet_on_2_ranks(t):
    check(t, 2, data=dict(path=t.images(), batch=8, augment=True), model=dict(name="resnet", preset="resnet20", width=8),
          optimizer=dict(name="sgd", lr=0.01))


def test_deterministic_mlp_on_2_ranks(t):
    check(t, 2, data=dict(path=t.classes(), batch=16), model=dict(name="mlp", hidden=[16]), run=dict(deterministic=True))


def test_mlp_with_samples(t):
    check(t, 1, data=dict(path=t.classes(), batch=16), model=dict(name="mlp", hidden=[16]),
          debug=dict(log_samples=True))


run_tests(globals())
