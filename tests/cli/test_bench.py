"""The benchmarks measure what they say: checked sums, work by formula, files that can be read, nothing left behind."""
import json
import os
import subprocess
import sys
from xml.etree import ElementTree

from harness import DEVICE, close, run_tests


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


def test_allreduce_in_two_levels(t):
    for nodes in ([1, 2], [2, 2]):
        t.run("bench", "allreduce", "--sizes", "24,3M", "--dtypes", "f32,bf16", "--json", "out.json", "--nodes",
              ",".join(map(str, nodes)), "--link", "none", ranks=sum(nodes)).expect(0)
        r = result(t)
        assert r["environment"]["nodes"] == 2 and r["environment"]["pretended"] and r["environment"]["link"] == "none", r
        assert all(line["wrong"] == 0 for line in r["lines"]), r
        ways = {line["algorithm"] for line in r["lines"]}
        assert {"two-level", "ring", "MPI_Allreduce", "plain link"} <= ways and "shm window" not in ways, ways
    t.run("bench", "allreduce", "--sizes", "4K", "--algorithms", "ring,MPI_Allreduce", "--json", "out.json", ranks=2).expect(0)
    lines = result(t)["lines"]
    assert [line["algorithm"] for line in lines] == ["ring", "MPI_Allreduce", "plain sum"], lines
    assert lines[1]["mpi_ratio"] == 1 and lines[2]["of_limit"] == 1, lines
    close(lines[0]["mpi_ratio"], lines[1]["time_us"] / lines[0]["time_us"], 1e-2)


def test_step_leaves_no_run_folder(t):
    t.tokens()
    config = t.config(run=dict(dir=t.path("run"), steps=1, eval_every=0),
                      model=dict(name="gpt", layers=2, heads=2, width=32, context=16), data=dict(path="data.h5", batch=4))
    t.run("bench", "step", config, "--steps", 3, "--json", "out.json", "data.batch=8", ranks=2).expect(0, "of a square product")
    r = result(t)
    assert not os.path.exists(t.path("run")), "a run folder was made"
    params = 2 * (12 * 32**2 + 13 * 32) + 31 * 32 + 16 * 32 + 2 * 32
    close(r["formula_flops"] / (8 * 16 * (6 * params + 12 * 2 * 32 * 16)), 1.0, 1e-6)
    assert r["best_ms"] <= r["median_ms"] and r["comm_bytes"] >= 4 * params, r
    assert r["environment"]["ranks"] == 2 and r["environment"]["threads"] == 1, r


SCALING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "benchmarks", "scaling.py")


def gpt(t, **sections):
    t.tokens()
    return t.config(run=dict(dir=t.path("run"), steps=1, eval_every=0),
                    model=dict(name="gpt", layers=2, heads=2, width=32, context=16),
                    data=dict(path="data.h5", batch=12), **sections)


def test_scaling_measures_sizes_of_one_job(t):
    config = gpt(t, debug=dict(nodes=[2, 1]), gradient=dict(hierarchy="two_level"))
    out = t.run("bench", "scaling", config, "--steps", 2, "--json", "out.json", "--link", "a rope", ranks=3)
    out.expect(0, "efficiency", "inter MB")
    r = result(t)
    e = r["environment"]
    assert (e["ranks"], e["nodes"], e["pretended"], e["link"], e["threads"]) == (3, 2, True, "a rope", 1), e
    assert all(e[k] for k in ("version", "commit", "compiler", "mpi", "products", "cpu", "cores", "time")), e
    points = [(p["mode"], p["ranks"], p["nodes"], p["batch"]) for p in r["lines"]]
    assert points == [("weak", 1, 1, 12), ("weak", 2, 1, 24), ("weak", 3, 2, 36),
                      ("strong", 1, 1, 12), ("strong", 2, 1, 12), ("strong", 3, 2, 12)], points
    assert len([line for line in out.out.splitlines() if line.startswith(("weak", "strong"))]) == 6, out.out
    exchange = 4 * (2 * (12 * 32**2 + 13 * 32) + 31 * 32 + 16 * 32 + 2 * 32)  # bytes of all gradients
    for p in r["lines"]:
        base = next(q for q in r["lines"] if q["mode"] == p["mode"])
        share = base["best_ms"] / p["best_ms"] / (p["ranks"] if p["mode"] == "strong" else 1)
        close(p["efficiency"], share, 1e-6)
        close(p["per_s"], p["batch"] * 16 / p["best_ms"] * 1e3, 1e-6)
        assert p["flat_bytes"] == 0 and (p["intra_bytes"] > 0) == (p["ranks"] > 1), p
        close(p["inter_bytes"] / exchange, 1.0 if p["nodes"] > 1 else 0.0, 1e-2)


def test_scaling_joins_like_environments_only(t):
    def join(*names):
        return subprocess.run([sys.executable, SCALING, *(t.path(n) for n in names), "--svg", t.path("plot.svg")],
                              capture_output=True, text=True)

    t.run("bench", "scaling", gpt(t), "--steps", 1, "--ranks", "2", "--json", "two.json", ranks=2).expect(0)
    r = result(t, "two.json")
    assert [p["ranks"] for p in r["lines"]] == [2, 2] and all(p["efficiency"] == 1 for p in r["lines"]), r
    for name, key, value in (("later.json", "time", "1999"), ("other.json", "cpu", "abacus")):
        with open(t.path(name), "w") as f:
            json.dump(dict(r, environment=dict(r["environment"], **{key: value})), f)
    joined = join("two.json", "later.json")
    assert joined.returncode == 0 and joined.stdout.count("| weak | 2 |") == 2, joined
    svg = ElementTree.parse(t.path("plot.svg"))
    assert len(svg.findall(".//{*}polyline")) == len(svg.findall(".//{*}circle")) > 0, "no lines in the plot"
    refused = join("two.json", "other.json")
    assert refused.returncode == 1 and "abacus" in refused.stderr, refused


def test_kernels_of_one_kind(t):
    t.run("bench", "kernels", "--op", "layernorm", "--threads", 1, "--json", "out.json").expect(0, "limit%")
    lines = result(t)["lines"]
    assert lines and all(line["op"] == "layernorm" and 0 < line["of_limit"] < 50 for line in lines), lines


def test_kernels_of_several_kinds_of_tiny_models(t):
    """The lines of the CPU and of a device, where there is one; the share is that of the limit that is named."""
    for device in ["cpu"] + ["cuda"] * (DEVICE == "cuda"):
        t.run("bench", "kernels", "--op", "layernorm,matmul,dropout", "--size", "tiny", "--threads", 1, "--device", device,
              "--json", "out.json").expect(0, "by")
        r = result(t)
        assert {line["op"] for line in r["lines"]} == {"layernorm", "matmul", "dropout"}, r
        memory = r["triad_bytes_per_s" if device == "cpu" else "copy_bytes_per_s"]
        for line in r["lines"]:
            products_s, memory_s = line["flops"] / r["product_flops_per_s"], line["bytes"] / memory
            assert line["bound"] == ("products" if products_s > memory_s else "memory"), line
            share = max(products_s, memory_s) / line["best_us"] * 1e6
            assert abs(line["of_limit"] - share) < 1e-3 * share + 1e-4, (line, share)
        assert device != "cpu" or any(line["bound"] == "memory" for line in r["lines"]), r  # an emulated GPU computes slowly


def test_wrong_use_is_refused(t):
    t.run("bench", "speed").expect(2, "'speed'")
    t.run("bench", "allreduce", "--sizes", "much").expect(2, "'much'")
    t.run("bench", "allreduce", "--dtypes", "u8").expect(2, "'u8'")
    t.run("bench", "allreduce", "--algorithms", "ring,gossip", ranks=2).expect(2, "'ring,gossip'")
    t.run("bench", "allreduce", "--nodes", "1,1", ranks=3).expect(2, "nodes")
    t.run("bench", "allreduce", "--nodes", "1,x", ranks=2).expect(2, "'1,x'")
    t.run("bench", "step").expect(2, "RUN.yaml is missing")
    t.run("bench", "scaling").expect(2, "RUN.yaml is missing")
    t.run("bench", "scaling", gpt(t), "--ranks", "1,4", ranks=2).expect(2, "'1,4'")
    t.run("bench", "scaling", gpt(t), "--steps", "1", "data.batch=0", ranks=2).expect(2, "data.batch")
    t.run("bench", "kernels", "--size", "tiny", "--op", "layernorm,nothing").expect(2, "'nothing'")
    t.run("bench", "kernels", "--size", "huge").expect(2, "'huge'")
    for name in ("allreduce", "step", "kernels", "scaling"):
        t.run("bench", name, "--help").expect(0, "usage:")


if __name__ == "__main__":
    run_tests(globals())
