"""50 steps of three models against PyTorch, from the same weights and the same order of data.

tests/golden/<model>.json holds the losses of PyTorch in f32 and in f64; how far they part at a step says how much rounding
moves that step. Allowed at each step: max(1e-4, 10 |f32 - f64|).
"""
import json
import os

from harness import close, run_tests

GOLDEN = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "golden"))


def golden(t, model, ranks, *more):
    run = f"{model}-{ranks}"
    files = [f"model.init={GOLDEN}/{model}.init.h5", f"data.path={GOLDEN}/{model}.data.h5"]
    t.train(f"{GOLDEN}/{model}.yaml", *files, f"run.dir={t.path(run)}", *more, ranks=ranks).expect(0)
    with open(f"{GOLDEN}/{model}.json") as f:
        peer = json.load(f)
    ours = [m["loss"] for m in t.metrics(run)]
    assert len(ours) == len(peer["f32"]) == 50, len(ours)
    for i, (a, f32, f64) in enumerate(zip(ours, peer["f32"], peer["f64"])):
        allowed = max(1e-4, 10 * abs(f32 - f64))
        assert abs(a - f32) <= allowed, f"step {i + 1}: loss {a}, PyTorch {f32}, allowed distance {allowed:.3g}"
    return ours


def test_mlp_follows_pytorch(t):
    golden(t, "mlp", 1)


def test_resnet_follows_pytorch(t):
    golden(t, "resnet", 1)


def test_gpt_follows_pytorch(t):
    golden(t, "gpt", 1)


def test_mlp_follows_pytorch_on_2_ranks(t):
    close(golden(t, "mlp", 2), golden(t, "mlp", 1), 1e-4)


def test_gpt_follows_pytorch_on_2_ranks(t):
    close(golden(t, "gpt", 2), golden(t, "gpt", 1), 1e-4)


def test_mlp_follows_pytorch_in_small_grains(t):
    golden(t, "mlp", 1, "data.grain=2")


def test_instruction_sets_follow_pytorch(t):
    for isa in ("scalar", "avx2"):
        golden(t, "gpt", 1, f"device.isa={isa}")


run_tests(globals())
