"""The benchmarks measure what they say: checked sums, work by formula, files that can be read, nothing left behind."""
import json
import os

from harness import close, run_tests


def result(t, name="out.json"):
    with open(t.path(name)) as f:
        return json.load(f)


def test_allreduce_checks_every_algorithm(t):
    for ranks in (1, 2, 3, 4):
        t.run("bench", "allreduce", "--sizes", "24,4K", "--dtypes", "f32,bf16,f16", "--json", "out.json",
              ranks=ranks).expect(0, "hand-over")
        lines = result(t)["lines"]
        assert all(line["wrong"] == 0 for line in lines), lines
        ways = {line["algorithm"] for line in lines}
        assert {"ring", "MPI_Allreduce", "plain sum"} <= ways, ways
        assert ("halving" in ways) == (ranks != 3) and ("shm window" in ways) == (ranks > 1), ways
        for line in lines:
            close(line["busbw"], line["algbw"] * 2 * (ranks - 1) / ranks, 1e-3)


def test_step_leaves_no_run_folder(t):
    t.tokens()
    config = t.config(run=dict(dir=t.path("run"), steps=1, eval_every=0),
                      model=dict(name="gpt", layers=2, heads=2, width=32, context=16), data=dict(path="data.h5", batch=4))
    t.run("bench", "step", config, "--steps", 3, "--json", "out.json", "data.batch=8", ranks=2).expect(0, "of a square product")
    r = result(t)
    assert not os.path.exists(t.path("run")), "a run folder was made"
    params = 2 * (12 * 32**2 + 13 * 32) + 31 * 32 + 16 * 32 + 2 * 32
    close(r["formula_flops"] / (8 * 16 * (6 * params + 12 * 2 * 32 * 16)), 1.0, 1e-6)
    assert r["best_ms"] <= r["median_ms"] and r["comm_bytes"] >= 4 * params and r["ranks"] == 2, r


def test_kernels_of_one_kind(t):
    t.run("bench", "kernels", "--op", "layernorm", "--threads", 1, "--json", "out.json").expect(0, "limit%")
    lines = result(t)["lines"]
    assert lines and all(line["op"] == "layernorm" and 0 < line["of_limit"] < 50 for line in lines), lines


def test_wrong_use_is_refused(t):
    t.run("bench", "speed").expect(2, "'speed'")
    t.run("bench", "allreduce", "--sizes", "much").expect(2, "'much'")
    t.run("bench", "allreduce", "--dtypes", "u8").expect(2, "'u8'")
    t.run("bench", "step").expect(2, "RUN.yaml is missing")
    t.run("bench", "kernels", "--op", "nothing").expect(2, "'nothing'")
    for name in ("allreduce", "step", "kernels"):
        t.run("bench", name, "--help").expect(0, "usage:")


if __name__ == "__main__":
    run_tests(globals())
