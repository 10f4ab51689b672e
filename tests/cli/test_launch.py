"""Launching, configuration and what the commands print (cases H03 and H04, exit codes, bad input, metrics, eval, plan)."""
import json
import os
import re
import signal
import subprocess
import time

from harness import ENV, PROGRAM, Skip, close, equal, h5py, np, run_tests, wait_for

STEP_KEYS = ["step", "updates", "epoch", "loss", "grad_norm", "lr", "loss_scale", "skipped", "samples", "tokens", "step_ms",
             "compute_ms", "exposed_comm_ms", "input_ms", "other_ms", "comm_bytes", "samples_per_s", "tokens_per_s", "mem_bytes"]


def mlp(t, **more):
    data = t.path("data.h5") if os.path.exists(t.path("data.h5")) else t.classes(n=64)
    return t.config(more.pop("name", "run.yaml"), model={"name": "mlp", "hidden": [8]}, data={"path": data, "batch": 8, "grain": 4},
                    run=dict({"steps": 4}, **more.pop("run", {})), **more)


def refused(t, config, *args, texts=(), ranks=2, env=None, prefix=()):
    """Code 2 and one message for the job; nothing started."""
    r = t.run("train", config, *args, ranks=ranks, env=env, timeout=60, prefix=prefix).expect(2, *texts)
    assert r.err.count("trireme: ") == 1, f"not one message:\n{r.err}"
    assert not os.path.exists(t.path("run", "metrics.jsonl")), "metrics were started"
    return r


# --- H03: what the launcher says ----------------------------------------------------------------------------


def test_h03a_no_launcher_in_an_allocation_of_4(t):
    r = refused(t, mlp(t), ranks=0, env={"SLURM_NTASKS": "4", "SLURM_PROCID": "2"}, texts=["expected 4, got 1", "SLURM_NTASKS"])
    assert not os.path.exists(t.path("run")), r.err
    refused(t, mlp(t), ranks=0, env={"PMI_SIZE": "4", "PMI_RANK": "2"}, texts=["expected 4, got 1"])


def test_h03b_stale_environment(t):
    env = {"RANK": "7", "WORLD_SIZE": "64", "SLURM_PROCID": "5", "OMPI_COMM_WORLD_RANK": "3"}
    r = t.train(mlp(t), ranks=2, env=env).expect(0, "2 ranks", "ignored")
    assert r.err.count("ignored") == 1, r.err
    assert len(t.metrics()) == 4


def test_h03c_other_number_of_ranks(t):
    refused(t, mlp(t), "parallel.data=4", texts=["parallel.data", "4", "2 ranks"])
    refused(t, mlp(t), "parallel.data=2", ranks=1, texts=["parallel.data", "2", "1 rank"])
    t.train(mlp(t), "parallel.data=2", ranks=2).expect(0)


def test_h03d_run_folder_in_use(t):
    config = mlp(t)
    p = t.start(config, "debug.inject=[{rank: 0, step: 3, where: forward, what: sleep, ms: 100000}]")
    try:
        wait_for(lambda: os.path.exists(t.path("run", "metrics.jsonl")), "the first job")
        before = os.stat(t.path("run", "config.yaml")).st_mtime_ns
        r = t.train(config, ranks=2).expect(2, "in use", t.path("run"), f"process {p.pid}")
        assert r.err.count("trireme: ") == 1 and os.stat(t.path("run", "config.yaml")).st_mtime_ns == before
    finally:
        p.send_signal(signal.SIGKILL)  # a dead owner holds nothing
        p.wait()
    t.train(config, ranks=2).expect(0)


# --- H04: replicas and their samples ------------------------------------------------------------------------


def test_h04_ranks_read_different_samples(t):
    t.train(mlp(t), "data.batch=16", "data.grain=2", "debug.log_samples=true", ranks=4).expect(0)
    lines = t.lines("run", "samples.jsonl")
    equal(sorted(i for m in lines for i in m["ids"]), list(range(64)), "ids of an epoch")
    equal([(m["step"], m["rank"], len(m["ids"])) for m in lines], [(s, r, 4) for s in range(1, 5) for r in range(4)])


def test_h04_same_weights_on_all_ranks(t):
    config = mlp(t, debug={"hash_every": 1})
    grain = "data.grain=2"
    t.train(config, grain, "run.deterministic=true", ranks=4).expect(0)
    t.train(config, grain, "run.deterministic=true", f"run.dir={t.path('one')}").expect(0)
    equal(t.texts("weights_hash"), t.texts("weights_hash", run="one"))
    assert all(re.fullmatch("[0-9a-f]{16}", m["weights_hash"]) for m in t.metrics())
    t.train(config, grain, "run.steps=6", ranks=2).expect(0)  # compared after the load as well


def test_h04_drift_is_reported(t):
    """One bit of a weight is turned over on rank 2 in step 5; the next check is at step 6."""
    flip = "debug.inject=[{rank: 2, step: 5, where: update, what: flip, bit: 20, parameter: layers.0.bias, index: 3}]"
    r = t.train(mlp(t), "data.batch=16", flip, "run.steps=12", "debug.hash_every=3", ranks=4, timeout=60)
    r.expect(1, "layers.0.bias", "rank 2", "differs")
    assert r.err.count("trireme: ") == 1, r.err
    assert 5 <= t.metrics()[-1]["step"] <= 6


# --- exit codes ---------------------------------------------------------------------------------------------


def gone(t):
    """No process has the test's run.yaml among its arguments."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if t.path("run.yaml").encode() in f.read():
                    return False
        except OSError:  # it has just ended
            pass
    return True


def test_exit_codes(t):
    config = mlp(t)
    t.train(config, ranks=2).expect(0)
    t.train(config, ranks=2).expect(0, "finished")
    t.train(config, "run.steps=0", f"run.dir={t.path('zero')}").expect(0)
    # 1: failed after the first step began; here a gradient that stays non-finite.
    nan = "debug.inject=[" + ", ".join(f"{{rank: 1, step: {s}, where: backward, what: nan}}" for s in range(1, 26)) + "]"
    r = t.train(config, nan, "run.steps=30", f"run.dir={t.path('nan')}", ranks=2).expect(1, "not finite", "20 steps")
    assert r.err.count("trireme: ") == 1, r.err
    equal([m["skipped"] for m in t.metrics("nan")], [1] * 20)
    assert all(m["grad_norm"] is None for m in t.metrics("nan")), "non-finite is null"
    for args in (["train"], ["train", "--bogus"], ["train", config, "b.yaml"], ["eval", config], ["eval", config, "--checkpoint"]):
        for ranks in (0, 2):
            assert t.run(*args, ranks=ranks).expect(2).err.count("trireme: ") == 1, args
    for args in ([], ["plan"], ["config", "run.dir=x"], ["data", "info"], ["data"], ["nonsense"], ["checkpoint"]):
        t.run(*args).expect(2)
    t.run("--version").expect(0, "trireme")


def test_killed_rank(t):
    own_signals = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
    for what, code in (("kill", 137), ("exit", 3), ("segv", 139)):
        for rank in (0, 1):
            fault = f"debug.inject=[{{rank: {rank}, step: 3, where: forward, what: {what}, code: 3}}]"
            began = time.time()
            r = t.train(mlp(t), "data.batch=12", fault, f"run.dir={t.path(f'{what}{rank}')}", ranks=3, timeout=60, env=own_signals)
            assert r.rc == code, f"{what} on rank {rank}: code {r.rc}\n{r.err}"
            assert time.time() - began < 20, "mpirun took too long"
            wait_for(lambda: gone(t), "the end of all ranks", 10)


def test_stopped_rank_runs_into_the_limit(t):
    fault = "debug.inject=[{rank: 1, step: 3, where: forward, what: stop}]"
    began = time.time()
    r = t.train(mlp(t), "data.batch=12", fault, "timeouts.collective_s=2", ranks=3, timeout=60)
    assert r.rc not in (0, 124), r.err
    assert "trireme: rank" in r.err and time.time() - began < 30, r.err
    wait_for(lambda: gone(t), "the end of all ranks", 10)


# --- configuration ------------------------------------------------------------------------------------------


def test_effective_configuration_loads_again(t):
    config = t.config(model={"name": "gpt", "layers": 1, "heads": 2, "width": 8, "context": 8}, data={"path": t.tokens(n=400), "batch": 4},
                      optimizer={"name": "adamw", "lr": 0.01, "groups": [{"match": "*bias", "lr": 0.1, "freeze": False}]},
                      schedule={"name": "step", "milestones": [2, 3], "warmup": 1}, run={"steps": 4})
    t.train(config, ranks=2).expect(0)
    t.train(t.path("run", "config.yaml"), f"run.dir={t.path('again')}", ranks=2).expect(0)
    equal(t.texts("loss", "grad_norm", "lr", run="again"), t.texts("loss", "grad_norm", "lr"))
    with open(t.path("run", "config.yaml")) as a, open(t.path("again", "config.yaml")) as b:
        equal([x for x in a if "dir:" not in x], [x for x in b if "dir:" not in x])


def test_config_explains_every_option(t):
    whole = t.run("config").expect(0).out
    keys = [line.split(":")[0] for line in whole.splitlines() if re.match(r"[a-z]+\.[a-z_.]+:", line)]
    assert len(keys) > 60 and len(set(keys)) == len(keys), len(keys)
    for key in ("run.dir", "gradient.clip_norm", "optimizer.groups", "debug.inject", "checkpoint.keep"):
        assert key in keys, key
        out = t.run("config", key).expect(0).out
        assert out.startswith(key) and out in whole, out
    assert t.run("config", "optimizer").expect(0).out.count("optimizer.") >= 8
    t.run("config", "optimizer.lrr").expect(2, "optimizer.lr")


def test_help_of_every_command(t):
    out = t.run("--help").expect(0, "usage").out
    names = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert {"train", "eval", "plan", "config", "checkpoint", "data"} <= set(names), names
    for name in names:
        t.run(name, "--help").expect(0, f"trireme {name}")
    t.run("trian").expect(2, "trian", "train")


def test_wrong_configuration(t):
    config = mlp(t)
    cases = [
        (["optimizer.lrr=0.1"], ["optimizer.lrr", "optimizer.lr"]),
        (["optimiser.lr=0.1"], ["optimiser", "optimizer"]),
        (["run.step=3"], ["run.step", "run.steps"]),
        (["run.steps=many"], ["run.steps", "many", "integer"]),
        (["run.steps=2.5"], ["run.steps", "2.5"]),
        (["run.steps=-1"], ["run.steps", "-1"]),
        (["optimizer.lr=fast"], ["optimizer.lr", "fast"]),
        (["optimizer.momentum=1.5", "optimizer.name=sgd"], ["optimizer.momentum", "1.5"]),
        (["model.dropout=1"], ["model.dropout", "[0, 1)"]),
        (["model.name=mlpp"], ["model.name", "mlpp", "mlp"]),
        (["data.shuffle=maybe"], ["data.shuffle", "maybe", "true or false"]),
        (["data=5"], ["data"]),
        (["model.hidden=[8, 0]"], ["model.hidden", "0"]),
        (["run.epochs=1"], ["run.steps", "run.epochs"]),
        (["run.steps=null"], ["run.steps", "run.epochs"]),
        (["data.batch=10", "data.grain=4"], ["data.batch", "10", "data.grain", "4"]),
        (["data.batch=12", "data.grain=4"], ["3", "2"]),  # 3 grains on 2 ranks
        (["debug.inject=[{rank: 0, stepp: 1}]"], ["stepp", "step"]),
        (["optimizer.groups=[{match: '*', lr: -1}]"], ["optimizer.groups", "lr", "-1"]),
        (["gradient.bucket_bytes=0"], ["gradient.bucket_bytes", "0"]),
        (["checkpoint.best=accuracy", "run.eval_every=0"], ["checkpoint.best", "eval_every"]),
    ]
    for args, texts in cases:
        refused(t, config, *args, texts=texts)
    for text, texts in (("run: {steps: 3\n", ["bad.yaml"]), ("run: {steps: 3}\nrun: {steps: 4}\n", ["run"]), ("- 1\n", ["bad.yaml"]),
                        ("", ["model.name"]), ("model: {name: mlp}\nrunn: {steps: 1}\n", ["bad.yaml", "runn", "run"])):
        with open(t.path("bad.yaml"), "w") as f:
            f.write(text)
        refused(t, t.path("bad.yaml"), ranks=0, texts=texts)
    refused(t, t.path("none.yaml"), texts=["none.yaml", "No such file"])
    assert not os.path.exists(t.path("run", "config.yaml")), "a wrong configuration was written to the run folder"


def test_contradictory_sizes(t):
    tokens = {"path": t.tokens(n=400), "batch": 4}
    gpt = {"name": "gpt", "layers": 1, "heads": 2, "width": 8, "context": 8}
    for model, data, texts in ((dict(heads=3), {}, ["heads", "3", "8"]), (dict(context=4), dict(sequence=8), ["sequence", "8", "context", "4"]),
                               (dict(vocab=30), {}, ["vocab", "30", "31"]), (dict(preset="teeny"), {}, ["teeny", "tiny"])):
        config = t.config(model=dict(gpt, **model), data=dict(tokens, **data), run={"steps": 1})
        refused(t, config, texts=texts)
    images = t.config("images.yaml", model={"name": "gpt", "layers": 1, "heads": 1, "width": 4}, data={"path": t.images(name="i.h5"), "batch": 4}, run={"steps": 1})
    refused(t, images, "data.sequence=8", texts=["gpt"])
    config = t.config("c.yaml", model={"name": "mlp", "classes": 3}, data={"path": t.classes(name="c.h5"), "batch": 4}, run={"steps": 1})
    refused(t, config, texts=["classes", "3", "5"])
    config = t.config("r.yaml", model={"name": "resnet", "preset": "resnet20"}, data={"path": t.tokens(name="t.h5"), "batch": 4}, run={"steps": 1})
    refused(t, config, texts=["resnet"])


def test_refused_features(t):
    config = mlp(t)
    for args in (["parallel.tensor=2"], ["parallel.pipeline=2"], ["parallel.shard=1"],
                 ["parallel.recompute=true"], ["device.graph=true", "device.kind=cpu"], ["optimizer.name=lamb"], ["optimizer.name=lars"]):
        r = refused(t, config, *args, texts=[args[0].split("=")[0]], ranks=2 if "tensor" in args[0] else 0)
        sentence = next(line for line in r.err.splitlines() if line.startswith("trireme: "))
        assert len(sentence.split()) >= 6, sentence


def test_run_folder_that_cannot_be_written(t):
    config = mlp(t)
    with open(t.path("file"), "w") as f:
        f.write("in the way")
    for folder in ("file", "file/run"):
        refused(t, config, f"run.dir={t.path(folder)}", texts=[t.path("file")])
    with open(t.path("file")) as f:
        assert f.read() == "in the way"
    os.makedirs(t.path("mount"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", t.path("mount")], capture_output=True).returncode != 0:
        raise Skip("a read-only tmpfs cannot be mounted here")
    try:
        refused(t, config, f"run.dir={t.path('mount', 'run')}", texts=[t.path("mount"), "Read-only file system"])
    finally:
        subprocess.run(["umount", t.path("mount")])


# --- metrics ------------------------------------------------------------------------------------------------


def test_metrics(t):
    """The four times are measured end to end: they add up to the step within 2 %, or 0.1 ms for steps that take
    little more than the calls of the clock between them."""
    config = t.config(model={"name": "gpt", "layers": 2, "heads": 2, "width": 64, "context": 32}, data={"path": t.tokens(n=3073), "batch": 8, "grain": 2},
                      run={"steps": 20, "eval_every": 5}, checkpoint={"every": 7}, debug={"hash_every": 10})
    t.train(config, ranks=2).expect(0)
    steps = t.metrics()
    equal([m["step"] for m in steps], list(range(1, 21)))
    for m in steps:
        want = STEP_KEYS + (["weights_hash"] if m["step"] % 10 == 0 else [])
        equal(sorted(m), sorted(want), "fields")
        parts = m["compute_ms"] + m["exposed_comm_ms"] + m["input_ms"] + m["other_ms"]
        assert abs(parts - m["step_ms"]) <= max(0.02 * m["step_ms"], 0.1), m
        close([m["samples_per_s"] * m["step_ms"] / 1e3, m["tokens_per_s"] * m["step_ms"] / 1e3], [8, 256], 1e-3)
        assert m["comm_bytes"] > 0 and m["mem_bytes"] > 1e6 and m["loss_scale"] == 1
    equal([(m["samples"], m["tokens"]) for m in steps[:2]], [(8, 256), (16, 512)])
    equal([m["step"] for m in t.evals()], [5, 10, 15, 20])
    for m in t.evals():
        equal(sorted(m["eval"]), ["loss", "perplexity"])
        close(m["eval"]["perplexity"], np.exp(m["eval"]["loss"]), 1e-6)
    digits = [len(re.sub(r"[.-]|e.*", "", x).lstrip("0")) for x in t.texts("loss", "grad_norm") if "loss" not in x for x in x.split()]
    assert max(digits) == 9 and np.mean(digits) > 8, digits


# --- eval ---------------------------------------------------------------------------------------------------


def forward(p, x):
    x = x.reshape(len(x), -1).astype(np.float64)
    layers = sorted({k.split(".")[1] for k in p}, key=int)
    for i in layers:
        x = x @ p[f"layers.{i}.weight"].T.astype(np.float64) + p[f"layers.{i}.bias"]
        if i != layers[-1]:
            x = np.maximum(x, 0)
    return x


def test_eval_of_classes(t):
    config = mlp(t, run={"steps": 20, "eval_every": 10})
    t.train(config, ranks=2).expect(0)
    with h5py.File(t.path("data.h5"), "r") as f:
        x, y = f["validation/x"][:], f["validation/y"][:]
    z = forward(t.params(20), x)
    loss = np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[np.arange(len(y)), y])
    lines = []
    for ranks, checkpoint in ((0, t.path("run")), (1, t.path("run", "checkpoints", "step-00000020")), (3, t.path("run"))):
        out = t.path(f"p{ranks}.h5")
        r = t.run("eval", config, "--checkpoint", checkpoint, "--predictions", out, "data.grain=2", "data.batch=6", ranks=ranks).expect(0)
        lines.append(r.out.strip().splitlines()[-1])
        with h5py.File(out, "r") as f:
            assert f["outputs"].dtype == np.float32 and f["outputs"].shape == z.shape, f["outputs"]
            close(f["outputs"][:], z, 1e-5)
            equal(list(f["labels"][:]), list(np.argmax(f["outputs"][:], axis=1)))
    for line in lines:
        m = json.loads(line)
        assert m["step"] == 20 and sorted(m["eval"]) == ["accuracy", "loss"], m
        close([m["eval"]["loss"], m["eval"]["accuracy"]], [loss, np.mean(np.argmax(z, axis=1) == y)], 1e-6)
    close(t.evals()[-1]["eval"]["loss"], loss, 1e-6)


def test_eval_of_values(t):
    r = np.random.default_rng(2)
    part = lambda n: dict(x=r.normal(size=(n, 2, 3)).astype("f4"), y=r.normal(size=(n, 4)).astype("f4"))
    train, validation = part(20), part(13)
    path = t.data(train=train, validation=validation)
    config = t.config(model={"name": "mlp", "hidden": [5]}, data={"path": path, "batch": 4}, run={"steps": 3})
    t.train(config, ranks=2).expect(0)
    z = forward(t.params(3), validation["x"])
    r = t.run("eval", config, "--checkpoint", t.path("run"), "--predictions", t.path("p.h5"), ranks=2).expect(0)
    m = json.loads(r.out.strip().splitlines()[-1])
    close(m["eval"]["loss"], np.mean((z - validation["y"]) ** 2), 1e-6)
    equal(list(m["eval"]), ["loss"])
    with h5py.File(t.path("p.h5"), "r") as f:
        equal(list(f), ["outputs"])
        close(f["outputs"][:], z, 1e-5)


def test_eval_refuses(t):
    config = mlp(t)
    t.train(config).expect(0)
    for args, texts in ((["--checkpoint", t.path("none")], ["none"]), (["--checkpoint", t.path("run"), "model.hidden=[9]"], ["hidden 8", "hidden 9"]),
                        (["--checkpoint", t.path("run"), "--predictions", t.path("no", "p.h5")], ["p.h5", "No such file"])):
        r = t.run("eval", config, *args, ranks=2).expect(2, *texts)
        assert r.err.count("trireme: ") == 1, r.err
    path = t.data("novalid.h5", attrs=dict(classes=5), train=dict(x=np.zeros((8, 12), "f4"), y=np.zeros(8, "i4")))
    t.run("eval", config, "--checkpoint", t.path("run"), f"data.path={path}", ranks=2).expect(2, "validation")


# --- plan ---------------------------------------------------------------------------------------------------


def number(text, pattern):
    found = re.search(pattern, text)
    assert found, f"no '{pattern}' in\n{text}"
    return float(found.group(1))


def test_plan(t):
    L, C, T, V, B = 2, 128, 64, 311, 8
    config = t.config(model={"name": "gpt", "layers": L, "heads": 4, "width": C, "context": T}, data={"path": t.tokens(vocab=V), "batch": B, "grain": 4},
                      optimizer={"name": "adamw"}, run={"steps": 2})
    out = t.run("plan", config, "--ranks", "2", "--dot", t.path("g.dot")).expect(0).out
    params = V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
    assert number(out, r"parameters +(\d+)") == params, out
    # Weights, gradients and two moments of four bytes each; kept holds weights and moments at least.
    kept, peak = number(out, r"kept ([\d.]+) MiB"), number(out, r"peak ([\d.]+) MiB")
    assert 12 * params / 2**20 <= kept <= 16.5 * params / 2**20, out
    assert kept < peak < 100, out
    ratio = number(out, r"\(([\d.]+) of its live bytes\)")
    assert 1 <= ratio <= 1.1, out
    flops = sum(number(out, rf"{phase} +([\d.]+)") for phase in ("forward", "backward")) * 1e9
    tokens = 4 * T  # of one rank
    rule = (6 * params + 12 * L * C * T) * tokens
    assert 0.8 * rule < flops < 1.2 * rule, f"{flops:.4g} against {rule:.4g}"
    with open(t.path("g.dot")) as f:
        assert f.read().startswith("digraph")
    # What the run prints before it allocates is the same.
    r = t.train(config, ranks=2).expect(0, f"{params} parameters")
    used = [number(r.err, rf"([\d.]+) MiB {what}") for what in ("kept", "of a step", "of exchange", "of messages")]
    said = [number(out, rf"{what} ([\d.]+) MiB") for what in ("kept", "step", "exchange", "messages")]
    equal(used, said)
    assert t.run("plan", config, "--ranks", "0").expect(2) and t.run("plan", config, "--ranks", "3").expect(2, "grain")


def test_plan_of_nodes_and_checks(t):
    config = t.config(model={"name": "gpt", "layers": 1, "heads": 2, "width": 32, "context": 16}, run={"steps": 2},
                      data={"path": t.tokens(vocab=31), "batch": 8, "grain": 2})
    two = "debug.nodes=[2, 2]", "gradient.hierarchy=two_level"
    t.run("plan", config, "--ranks", "4").expect(0, "4 ranks on 1 node; a node has", "summed flat")
    flat = t.run("plan", config, "--ranks", "4", "debug.nodes=[2, 2]", "gradient.hierarchy=flat").expect(0, "flat").out
    levels = t.run("plan", config, "--ranks", "4", *two).expect(0, "on 2 nodes (2 each", "in two levels").out
    collectives = [number(out, r"(\d+) collectives") for out in (flat, levels)]
    assert collectives[1] > 2 * collectives[0], (flat, levels)
    t.run("plan", config, "--ranks", "3", "data.batch=6", "debug.nodes=[2, 2]").expect(2, "debug.nodes", "there are 3")
    half = "precision.compute=bf16", "precision.check_every=1"
    checked = t.run("plan", config, *half).expect(0, "check ", "in 16 bit").out
    err = t.train(config, *half).expect(0).err
    equal([number(err, rf"([\d.]+) MiB {what}") for what in ("kept", "of a step", "of exchange")],
          [number(checked, rf"{what} ([\d.]+) MiB") for what in ("kept", "step", "exchange")])


def test_plan_counts_the_stages_of_a_warmup(t):
    config = t.config(model={"name": "mlp", "hidden": [512, 512]}, run={"steps": 2, "eval_every": 0}, data={"path": t.classes(64), "batch": 8, "grain": 2},
                      debug={"nodes": [1, 1]})
    for name in ("topk", "int8"):  # 1/4 of the elements at first; all of them at first
        how = f"gradient.compress={{name: {name}, ratio: 0.001, force: true, warmup: %d}}"
        without, out = (t.run("plan", config, "--ranks", "2", how % n).expect(0).out for n in (0, 4))
        parts = ("kept", "step", "exchange", "messages")
        said = [number(out, rf"{what} ([\d.]+) MiB") for what in parts]
        assert sum(said) > sum(number(without, rf"{what} ([\d.]+) MiB") for what in parts), (without, out)
        err = t.train(config, how % 4, "run.dir=" + t.path(name), ranks=2).expect(0).err
        equal([number(err, rf"([\d.]+) MiB {what}") for what in ("kept", "of a step", "of exchange", "of messages")], said, name)


def test_machines_are_named_once(t):
    config = t.config(model={"name": "mlp", "hidden": []}, data={"path": t.values(range(4), range(4)), "batch": 4},
                      run={"steps": 1}, debug={"nodes": [2, 1, 1]})
    r = t.train(config, ranks=4).expect(0, "4 ranks on 3 nodes (2, 1, 1, by debug.nodes); a node has")
    assert r.err.count("a node has") == 1, r.err


run_tests(globals())
