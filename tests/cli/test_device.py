"""Training with device.kind=cuda: the same losses as on the CPU, for every way of exchange that exists.

The program is trireme-emulated (tests/emulation), or trireme itself on a machine with a GPU.
"""
import json
import os

from harness import close, equal, run_tests

TOLERANCE = 1e-5  # f32: sums in another order; the loss is near 1


def mlp(t, **sections):
    t.classes()
    sections.setdefault("run", {"steps": 8})
    return t.config(model={"name": "mlp", "hidden": [24, 16]}, data={"path": "data.h5", "batch": 16},
                    optimizer={"name": "adamw", "lr": 0.01}, **sections)


def gpt(t):
    t.tokens(n=2000)
    return t.config(run={"steps": 4}, model={"name": "gpt", "layers": 2, "heads": 2, "width": 32, "context": 16},
                    data={"path": "data.h5", "batch": 4, "sequence": 16}, optimizer={"name": "adamw", "lr": 0.001})


def resnet(t):
    t.images(n=64)
    return t.config(run={"steps": 3}, model={"name": "resnet", "preset": "resnet20", "width": 4},
                    data={"path": "data.h5", "batch": 16, "grain": 4}, optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9})


SHARED = {"EMULATE_SHARED": "1"}  # all ranks on one device


def train(t, config, run, *args, ranks=1, kind="cuda", env=None):
    return t.train(config, f"run.dir={t.path(run)}", f"device.kind={kind}", *args, ranks=ranks, env=env, timeout=200).expect(0)


def losses(t, run):
    return [float(m["loss"]) for m in t.metrics(run)]


def same_as_cpu(t, config, ranks, *args, env=None):
    """Trains on both, in the folders cpu-<ranks> and cuda-<ranks>."""
    train(t, config, f"cpu-{ranks}", *args, ranks=ranks, kind="cpu")
    r = train(t, config, f"cuda-{ranks}", *args, ranks=ranks, env=env)
    assert "computing on" in r.err, r.err
    close(losses(t, f"cuda-{ranks}"), losses(t, f"cpu-{ranks}"), TOLERANCE)


def with_graphs(t, config, ranks, *args, env=None):
    """Graphs change no bit of the run in cuda-<ranks>; what the run said."""
    r = train(t, config, f"graph-{ranks}", "device.graph=true", *args, ranks=ranks, env=env)
    keys = ("loss", "grad_norm")
    equal(t.texts(*keys, run=f"graph-{ranks}"), t.texts(*keys, run=f"cuda-{ranks}"), "with graphs")
    return r


def traced(t, name):
    """The spans of a trace."""
    with open(t.path(name)) as f:
        events = json.load(f)
    return [e for e in (events["traceEvents"] if isinstance(events, dict) else events) if e.get("ph") == "X"]


def test_bias_gradients_are_part_of_products(t):
    sgd = ("optimizer.name=sgd", "optimizer.lr=0.1")  # AdamW does not see a gradient's size
    for model, biases in ((mlp, 3), (gpt, 8)):  # of matrices: layers; 2 blocks of 4
        config = model(t)
        for kind in ("cpu", "cuda"):
            t.run("plan", config, f"device.kind={kind}", *sgd, "--dot", t.path("g.dot")).expect(0)
            with open(t.path("g.dot")) as f:
                dot = f.read()
            run = f"{model.__name__}-{kind}"
            train(t, config, run, *sgd, "--trace", t.path("trace.json"), kind=kind)
            ran = [e["name"].split()[0] for e in traced(t, "trace.json")]
            made, gone = ("matmul_bgrad", "column_sum") if kind == "cuda" else ("column_sum", "matmul_bgrad")
            assert made in dot and gone not in dot, (run, dot)
            assert (ran.count(made), ran.count(gone)) == (biases, 0), (run, ran)
        close(losses(t, f"{model.__name__}-cuda"), losses(t, f"{model.__name__}-cpu"), TOLERANCE)


def test_mlp_on_1_rank(t):
    config = mlp(t)
    same_as_cpu(t, config, 1)
    assert "a step is 1 graph" in with_graphs(t, config, 1).err


def test_mlp_by_nccl(t):
    config = mlp(t)
    for ranks in (2, 4):
        same_as_cpu(t, config, ranks, "debug.hash_every=2")
        r = with_graphs(t, config, ranks, "debug.hash_every=2")
        assert "exchanged by NCCL" in r.err and "a step is 1 graph\n" in r.err, r.err


def test_mlp_by_mpi_where_ranks_share_a_device(t):
    config = mlp(t)
    for ranks in (2, 4):
        same_as_cpu(t, config, ranks, "debug.hash_every=2", env=SHARED)
        r = with_graphs(t, config, ranks, "debug.hash_every=2", env=SHARED)
        assert "ranks 0 and 1 share the device" in r.err and "cut where gradients are handed to MPI" in r.err, r.err


def test_two_levels(t):
    config = mlp(t)
    args = ("debug.nodes=[2, 2]", "gradient.hierarchy=two_level", "debug.hash_every=2")
    same_as_cpu(t, config, 4, *args)
    with_graphs(t, config, 4, *args)


def test_two_levels_by_mpi(t):
    config = mlp(t)
    args = ("debug.nodes=[2, 2]", "gradient.hierarchy=two_level", "debug.hash_every=2")
    same_as_cpu(t, config, 4, *args, env=SHARED)
    with_graphs(t, config, 4, *args, env=SHARED)


MIXED = ("debug.nodes=[2, 2]", "device.across=mpi", "debug.hash_every=2")
NCCL_AND_MPI = "exchanged by NCCL inside nodes and by MPI between them"


def test_nccl_inside_nodes_and_mpi_between(t):
    config = mlp(t)
    same_as_cpu(t, config, 4, *MIXED, "gradient.hierarchy=two_level")
    r = with_graphs(t, config, 4, *MIXED)  # auto takes two levels
    assert NCCL_AND_MPI + ", as device.across says" in r.err, r.err
    assert "cut where gradients are handed to MPI" in r.err and "a step is 1 graph" not in r.err, r.err
    train(t, config, "nccl", "debug.nodes=[2, 2]", "gradient.hierarchy=two_level", ranks=4)
    equal(t.texts("loss", run="nccl"), t.texts("loss", run="cuda-4"), "by NCCL alone")  # each level adds two ranks


def test_mpi_between_nodes_in_pieces(t):
    """A rank's half of the gradients is 8 MiB and more: several pieces of 4 MiB, the last one with a tail."""
    t.classes()
    config = t.config(model={"name": "mlp", "hidden": [1500, 2801]}, data={"path": "data.h5", "batch": 16}, run={"steps": 2},
                      optimizer={"name": "sgd", "lr": 0.01}, gradient={"bucket_bytes": 67108864})
    same_as_cpu(t, config, 4, *MIXED, "gradient.hierarchy=two_level")
    with_graphs(t, config, 4, *MIXED)
    train(t, config, "nccl", "debug.nodes=[2, 2]", "gradient.hierarchy=two_level", "debug.hash_every=2", ranks=4)
    for key in ("loss", "weights_hash"):
        equal(t.texts(key, run="nccl"), t.texts(key, run="cuda-4"), "by NCCL alone")


def test_late_ranks_are_told_by_nccl_beside_mpi(t):
    """One rank of each node is late, so that nobody waits by MPI: engines and main threads wait for NCCL inside the nodes."""
    config = mlp(t, timeouts={"collective_s": 3})
    late = ", ".join("{rank: %d, step: 3, where: exchange, what: sleep, ms: 12000}" % rank for rank in (1, 3))
    for graph in ("false", "true"):
        r = t.train(config, f"run.dir={t.path(graph)}", "device.kind=cuda", *MIXED[:2], f"device.graph={graph}",
                    f"debug.inject=[{late}]", ranks=4, timeout=60)
        assert r.rc == 1 and "3000 ms" in r.err and "(after step 2)" in r.err, r.err


def test_nodes_that_share_devices(t):
    config = mlp(t)
    env = {"EMULATE_SHARED": "1", "EMULATE_DEVICES": "2"}  # ranks 0 and 2, 1 and 3
    same_as_cpu(t, config, 4, "debug.nodes=[2, 2]", env=env)
    r = with_graphs(t, config, 4, "debug.nodes=[2, 2]", env=env)
    assert "ranks 0 and 2 share the device" in r.err and NCCL_AND_MPI in r.err, r.err
    t.train(config, "device.kind=cuda", "device.across=nccl", "debug.nodes=[2, 2]", ranks=4, env=env).expect(
        2, "'device.across' nccl: ranks share a device")


def test_nccl_that_cannot_join_nodes(t):
    config = mlp(t)
    env = {"EMULATE_NCCL_RANKS": "2"}
    same_as_cpu(t, config, 4, "debug.nodes=[2, 2]", env=env)
    r = with_graphs(t, config, 4, "debug.nodes=[2, 2]", env=env)
    assert "NCCL cannot join the nodes: " in r.err and NCCL_AND_MPI in r.err, r.err


def test_auto_measures_nccl(t):
    config = mlp(t, gradient={"hierarchy": "auto"}, debug={"nodes": [2, 2]})
    r = train(t, config, "run", "run.steps=2", ranks=4)
    assert "ms flat, in a step of" in r.err and "(measured)" in r.err and "exchanged by NCCL" in r.err, r.err
    with open(t.path("run", "costs.yaml")) as f:
        costs = f.read()
    assert "device: 1" in costs and "nccl: 1" in costs, costs
    r = train(t, config, "run", ranks=4)
    assert "by the costs of the run folder" in r.err, r.err
    r = t.run("plan", config, "--ranks", "4", f"run.dir={t.path('run')}", "device.kind=cuda").expect(0)
    assert "costs of the run folder" in r.out and "emulated GPU; sums over all ranks" in r.out, r.out
    for how in ("run.steps=10", "precision.compute=bf16"), ("run.steps=12", "device.kind=cpu"):  # other rates
        r = train(t, config, "run", *how, ranks=4, kind="cpu" if "device.kind=cpu" in how else "cuda")
        assert "(measured)" in r.err, r.err


def test_auto_takes_the_faster_way_of_nccl(t):
    level = "{}: {{latency_s: {}, bytes_per_s: 1e12}}\n".format
    for name, half, says in (("fast", 0.4e-3, "summed in two levels"), ("slow", 2e-3, "summed flat")):
        config = mlp(t, gradient={"hierarchy": "auto", "bucket_bytes": 256}, debug={"nodes": [2, 2]})
        os.makedirs(t.path(name))
        with open(t.path(name, "costs.yaml"), "w") as f:
            f.write("layout: {ranks: 4, nodes: 2, slices: 2, device: 1, nccl: 1}\ncompute: {flops_per_s: 1e12, bytes_per_s: 1e12}\n" +
                    level("all", 1e-3) + level("intra", half) + level("inter", half))
        r = train(t, config, name, ranks=4)
        assert says in r.err and "exchanged by NCCL" in r.err, r.err
        close(losses(t, name), losses(t, "fast"), TOLERANCE)


def test_predictions_are_of_the_device(t):
    config = mlp(t)
    r = t.run("plan", config, "device.kind=cuda").expect(0)
    assert "of emulated GPU; measured now)" in r.out, r.out
    r = t.run("plan", config, "--ranks", "4", "device.kind=cuda", "debug.nodes=[2, 2]", "gradient.hierarchy=auto").expect(0)
    assert "without communication, which is not known" in r.out and "sums over all" not in r.out, r.out
    assert "may choose two levels" in r.out, r.out
    for compute in ("fp32", "bf16"):
        out = t.path(compute + ".json")
        r = t.run("bench", "step", config, "device.kind=cuda", f"precision.compute={compute}", "--steps", "2", "--json", out).expect(0)
        assert f"square product of {'f32' if compute == 'fp32' else compute}, " in r.out and "copy, all ranks at once on" in r.out, r.out
        with open(out) as f:
            found = json.load(f)
        assert found["device"].startswith("emulated GPU") and found["copy_bytes_per_s"] > 0 and found["of_product"] > 0, found
    r = t.run("bench", "step", config, "device.kind=cuda", "--steps", "2", "--json", out, env={"EMULATE_DEVICE_MB": "24"}).expect(0)
    assert "limits      not measured" in r.out and "% of a square" not in r.out, r.out
    with open(out) as f:
        assert json.load(f)["of_product"] is None


def test_deterministic_runs_repeat(t):
    config = mlp(t)
    for ranks in (1, 2, 4):
        train(t, config, f"r{ranks}", "run.deterministic=true", "debug.hash_every=1", ranks=ranks)
        equal(t.texts("loss", "weights_hash", run=f"r{ranks}"), t.texts("loss", "weights_hash", run="r1"), f"{ranks} ranks")


def test_gpt(t):
    config = gpt(t)
    for ranks in (1, 2):
        same_as_cpu(t, config, ranks)
        with_graphs(t, config, ranks)


def test_resnet(t):
    config = resnet(t)
    for ranks in (1, 2):
        same_as_cpu(t, config, ranks)
        with_graphs(t, config, ranks)


def test_checkpoints_go_from_device_to_device(t):
    config = mlp(t, checkpoint={"every": 4})
    train(t, config, "cpu", kind="cpu", ranks=2)
    for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
        run = f"{first}-{second}"
        train(t, config, run, "run.steps=4", kind=first, ranks=2)
        train(t, config, run, kind=second, ranks=2)
        close(losses(t, run), losses(t, "cpu"), TOLERANCE)
        for name, w in t.params(8, "cpu").items():
            close(t.params(8, run)[name], w, 1e-4)


def test_no_device_is_refused(t):
    config = mlp(t)
    r = t.train(config, "device.kind=cuda", env={"EMULATE_DEVICES": "0"})
    r.expect(2, "'device.kind' cuda: no CUDA device")
    r = t.train(config, "device.kind=auto", env={"EMULATE_DEVICES": "0"}).expect(0)
    assert "computing on" not in r.err, r.err


def test_compression(t):
    """Payloads are the CPU's, byte for byte, but the gradients' last bits are not: topk may choose another of two near elements."""
    for name, nodes, level in (("int8", None, "all"), ("topk", None, "all"), ("powersgd", None, "all"), ("bf16", [2, 2], "inter")):
        debug = {"nodes": nodes} if nodes else {}
        config = mlp(t, gradient={"hierarchy": "two_level" if nodes else "auto",
                                  "compress": {"name": name, "level": level, "ratio": 0.2, "force": True}}, debug=debug)
        ranks = 4 if nodes else 2
        for kind in ("cpu", "cuda"):
            train(t, config, f"{name}-{kind}", ranks=ranks, kind=kind)
        close(losses(t, f"{name}-cuda"), losses(t, f"{name}-cpu"), 1e-2)
        train(t, config, f"{name}-again", ranks=ranks)
        equal(t.texts("loss", run=f"{name}-again"), t.texts("loss", run=f"{name}-cuda"), name)


def test_compressed_between_nodes_by_mpi(t):
    """MPI gathers payloads of several dtypes, which NCCL's slices have become and become again."""
    config = mlp(t, gradient={"hierarchy": "two_level", "compress": {"name": "topk", "level": "inter", "ratio": 0.2, "force": True}},
                 debug={"nodes": [2, 2]})
    train(t, config, "nccl", ranks=4)
    for graph in ("false", "true"):
        train(t, config, f"mpi-{graph}", "device.across=mpi", f"device.graph={graph}", ranks=4)
        equal(t.texts("loss", run=f"mpi-{graph}"), t.texts("loss", run="nccl"), f"graph {graph}")


def test_eval_reads_the_weights(t):
    config = mlp(t)
    train(t, config, "run", kind="cpu")
    outputs = [t.run("eval", config, "--checkpoint", t.path("run"), f"device.kind={kind}", ranks=1).expect(0).out
               for kind in ("cpu", "cuda")]
    accuracy = [text.split('"accuracy"')[1] for text in outputs]
    equal(accuracy[:1], accuracy[1:], "accuracy")


def test_16_bit(t):
    config = mlp(t)
    args = ("precision.compute=fp16", "precision.loss_scale.initial=1e30", "precision.check_every=4")
    train(t, config, "cpu", *args, kind="cpu", ranks=2)
    r = train(t, config, "cuda", *args, ranks=2)
    assert "is not finite; its elements" in r.err, r.err
    close(losses(t, "cuda"), losses(t, "cpu"), 1e-3)  # eight bits of each operand
    assert "precision check at step 4" in r.err, r.err


def test_trace_has_every_instruction(t):
    config = mlp(t)
    train(t, config, "run", "--trace", t.path("trace.json"), "device.graph=true", ranks=2)
    spans = traced(t, "trace.json")
    assert len(spans) > 40 and all(0 <= e["dur"] < 1e7 for e in spans), spans[:3]  # microseconds
    assert any(e["dur"] > 0 for e in spans), spans[:3]


run_tests(globals())
