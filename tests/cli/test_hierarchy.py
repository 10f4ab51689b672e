"""Gradients in two levels as whole runs: over pretended nodes, against the flat sum."""
import json
import os

import numpy as np

from harness import close, equal, run_tests

KEYS = ("step", "loss", "grad_norm", "weights_hash")


def odd_model(t):
    """Parameters of 1000, 5, 5, 1, 3, 3, 48, 16, 112 and 7 elements."""
    r = np.random.default_rng(4)
    t.data(attrs=dict(classes=7), train=dict(x=r.normal(size=(60, 200)).astype("f4"), y=r.integers(0, 7, 60).astype("i4")))
    return dict(model=dict(name="mlp", hidden=[5, 1, 3, 16]), optimizer=dict(name="adamw", lr=0.01))


def run(t, base, ranks, name, nodes=None, hierarchy="two_level", steps=6, batch=20, grain=None, exact=False, inject=(),
        args=(), says=(), **gradient):
    config = t.config(run=dict(dir=t.path(name), steps=steps, eval_every=0, deterministic=exact),
                      data=dict(path="data.h5", batch=batch, grain=grain),
                      gradient=dict(clip_norm=0.5, hierarchy=hierarchy, bucket_bytes=256, **gradient),
                      debug=dict(hash_every=1, nodes=nodes, inject=list(inject)), telemetry=dict(trace_step=3), **base)
    t.train(config, *args, ranks=ranks).expect(0, *says)
    return t.texts(*KEYS, run=name)


def test_levels_keep_the_fixed_tree(t):
    base = odd_model(t)
    want = run(t, base, 4, "flat", hierarchy="flat", batch=16, exact=True)
    equal(run(t, base, 1, "one", batch=16, exact=True), want, "one rank")
    for nodes in ([2, 2], [1, 1, 1, 1], [4], None):
        got = run(t, base, 4, f"run-{nodes}", nodes=nodes, batch=16, exact=True, says=["two levels"])
        equal(got, want, f"nodes {nodes}")
    got = run(t, base, 4, "uneven", nodes=[3, 1], batch=16, exact=True, says=["flat", "equal powers of two"])
    equal(got, want, "nodes that do not fit the tree")


def test_d08_unequal_nodes(t):
    base = odd_model(t)
    run(t, base, 5, "flat", hierarchy="flat")
    for nodes in ([3, 2], [2, 3], [4, 1], [1, 1, 1, 1, 1], [5]):
        run(t, base, 5, f"run-{nodes}", nodes=nodes)
        for key in ("loss", "grad_norm"):
            close([m[key] for m in t.metrics(f"run-{nodes}")], [m[key] for m in t.metrics("flat")], 1e-5)
        for k, w in t.params(6, "flat").items():
            close(t.params(6, f"run-{nodes}")[k], w, 1e-3)  # adamw divides by the root of tiny second moments
        assert all(m["comm_bytes"] > 0 for m in t.metrics(f"run-{nodes}"))


def test_a03_accumulated_gradients_are_summed_once(t):
    base = odd_model(t)
    run(t, base, 1, "one", batch=16)
    for overlap in (True, False):
        run(t, base, 4, f"four-{overlap}", nodes=[2, 2], batch=16, grain=2, overlap=overlap)
        for key in ("loss", "grad_norm"):
            close([m[key] for m in t.metrics(f"four-{overlap}")], [m[key] for m in t.metrics("one")], 1e-5)
    equal(t.texts(*KEYS, run="four-True"), t.texts(*KEYS, run="four-False"), "overlap")


def test_e01_late_ranks_change_no_bit(t):
    base = odd_model(t)
    r = np.random.default_rng(8)
    late = [dict(rank=int(r.integers(5)), step=int(r.integers(1, 20)), where=("backward", "exchange")[i % 2], what="sleep",
                 ms=int(r.integers(1, 30))) for i in range(16)]
    want = run(t, base, 5, "calm", nodes=[3, 2], steps=20, overlap=False)
    equal(run(t, base, 5, "late", nodes=[3, 2], steps=20, inject=late), want, "sleeping ranks")


def test_trace_shows_phases_of_buckets_side_by_side(t):
    base = odd_model(t)
    trace = t.path("trace.json")
    # node 1 is 400 ms late with a bucket: on node 0 its sum between nodes waits, and the next bucket is scattered meanwhile
    run(t, base, 4, "run", nodes=[2, 2], batch=16, args=("--trace", trace),
        inject=[dict(rank=2, step=3, where="backward", what="sleep", ms=400, parameter="layers.2.weight")])
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    streams = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    found = [dict(e, end=e["ts"] + e["dur"], stream=streams[e["tid"]]) for e in events if e["ph"] == "X" and e["pid"] == 0]
    waiting = [e for e in found if e["stream"] == "inter" and e["dur"] > 300e3]
    scattered = [e for e in found if e["stream"] == "intra" and e["name"].startswith("reduce_scatter")]
    assert waiting, found
    bucket = lambda e: int(e["name"].split("bucket.")[1].split(".")[0])
    assert any(bucket(w) < bucket(s) and s["end"] < w["end"] for w in waiting for s in scattered), (waiting, scattered)


def test_auto_measures_once(t):
    base = odd_model(t)
    run(t, base, 4, "run", nodes=[2, 2], batch=16, hierarchy="auto", steps=3, says=["2 nodes", "measured"])
    run(t, base, 4, "run", nodes=[2, 2], batch=16, hierarchy="auto", steps=6, says=["by the costs of the run folder"])
    costs = t.path("run", "costs.yaml")
    with open(costs) as f:
        first = f.read()
    assert "ranks: 4" in first and "nodes: 2" in first, first
    run(t, base, 4, "run", nodes=[3, 1], batch=16, hierarchy="auto", steps=9, says=["measured"])
    assert len(t.metrics("run")) == 9
    os.remove(costs)
    run(t, base, 4, "run", nodes=[3, 1], batch=16, hierarchy="auto", steps=10, says=["by the costs of the checkpoint"])
    assert os.path.exists(costs)
    with open(costs, "a") as f:
        f.write("inter: 3\n")
    config = t.config(run=dict(steps=11), data=dict(path="data.h5", batch=16), **base)
    t.train(config, ranks=4).expect(2, "costs.yaml")


def test_auto_credits_what_runs_side_by_side(t):
    """A bucket takes 1 ms flat and 1.6 ms in two levels, but there 0.8 ms of each link: with many buckets that is faster."""
    base = odd_model(t)
    level = "{}: {{latency_s: {}, bytes_per_s: 1e12}}\n".format
    for name, half, says in (("fast", 0.8e-3, "summed in two levels"), ("slow", 1.2e-3, "summed flat")):
        os.makedirs(t.path(name))
        with open(t.path(name, "costs.yaml"), "w") as f:
            f.write("layout: {ranks: 4, nodes: 2, slices: 2}\ncompute: {flops_per_s: 1e12, bytes_per_s: 1e12}\n" +
                    level("all", 1e-3) + level("intra", half) + level("inter", half))
        run(t, base, 4, name, nodes=[2, 2], batch=16, hierarchy="auto", steps=1, says=[says, "by the costs of the run folder"])


def test_nodes_must_hold_all_ranks(t):
    base = odd_model(t)
    for nodes in ([2, 2], [4], [9]):
        config = t.config(run=dict(steps=1, eval_every=0), data=dict(path="data.h5", batch=15), debug=dict(nodes=nodes), **base)
        t.train(config, ranks=3).expect(2, "debug.nodes", "there are 3")


run_tests(globals())
