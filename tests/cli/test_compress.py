"""Compressed exchange of gradients: error feedback, its state in checkpoints, repeatability, accuracy.

By hand: x = 2^-16 a, y = -2^15 makes the gradient of the squared error exactly a for each input of a linear model (w x is below
the last bit of y); with sgd and lr 1 the weights are minus what was delivered.
"""
import json

import numpy as np

from harness import close, equal, run_tests

DENSE = ("fp16", "bf16", "int8", "onebit")
ALL = DENSE + ("topk", "randk", "powersgd")
FROZEN_BIAS = dict(match="*bias", freeze=True)


def compress(name, **more):
    return dict(name=name, level="all", force=True, **more)


def by_hand(t, rows):
    g = np.atleast_2d(np.asarray(rows, np.float32))
    t.values(g * 2.0**-16, np.full(len(g), -(2.0**15)))
    t.weights({"layers.0.weight": np.zeros((1, g.shape[1])), "layers.0.bias": [0]})
    return dict(name="mlp", hidden=[], init="init.h5")


def hand_config(t, run, how, steps, batch=1, momentum=0, more=None, **debug):
    gradient = dict(compress=how)
    gradient.update(more or {})
    return t.config(f"{run}.yaml", run=dict(dir=t.path(run), steps=steps, eval_every=0), model=dict(name="mlp", hidden=[], init="init.h5"),
                    data=dict(path="data.h5", batch=batch, grain=1, shuffle=False), checkpoint=dict(every=1, keep=50),
                    optimizer=dict(name="sgd", lr=1, momentum=momentum, groups=[FROZEN_BIAS]), gradient=gradient,
                    debug=dict(hash_every=1, **debug))


def delivered(t, run, step):
    return list(-t.params(step, run)["layers.0.weight"][0])


def residual(t, run, step, what="residual", name="layers.0.weight"):
    with t.checkpoint(step, run) as f:
        return f[f"state/compress/{name}/{what}"][...]


# --- G06 -----------------------------------------------------------------------------------------------


def test_g06_topk_by_hand(t):
    by_hand(t, [3, 2, 1])
    t.train(hand_config(t, "run", compress("topk", ratio=0.3), 3)).expect(0, "compression topk", "forced")
    equal([delivered(t, "run", s) for s in (1, 2, 3)], [[3, 0, 0], [3, 4, 0], [9, 4, 0]], "delivered")
    equal([list(residual(t, "run", s).ravel()) for s in (1, 2, 3)], [[0, 2, 1], [3, 0, 2], [0, 2, 3]], "residual")
    equal(list(residual(t, "run", 3).shape), [1, 1, 3], "shape")


def test_g06_residual_survives_a_resume_and_other_buckets(t):
    by_hand(t, [3, 2, 1])
    how = compress("topk", ratio=0.3)
    t.train(hand_config(t, "run", how, 2)).expect(0)
    t.train(hand_config(t, "run", how, 3, more=dict(bucket_bytes=1))).expect(0, "going on from")
    equal(delivered(t, "run", 3), [9, 4, 0], "delivered")
    equal(list(residual(t, "run", 3).ravel()), [0, 2, 3], "residual")


def test_g06_residual_is_kept_for_each_rank(t):
    by_hand(t, [[3, 2, 1], [1, 5, 2]])
    how = compress("topk", ratio=0.3)
    t.train(hand_config(t, "run", how, 2, batch=2), ranks=2).expect(0)
    equal(residual(t, "run", 2).reshape(2, 3).tolist(), [[3, 0, 2], [2, 0, 4]], "residuals")
    assert delivered(t, "run", 2) == [1.5, 7, 0], delivered(t, "run", 2)  # (3 + 0) / 2, (4 + 10) / 2
    t.train(hand_config(t, "run", how, 3, batch=2), ranks=2).expect(0)
    close(np.array(delivered(t, "run", 3)) * 2 + residual(t, "run", 3).reshape(2, 3).sum(0), [12, 21, 9])


def test_g06_another_number_of_ranks_keeps_the_sum(t):
    by_hand(t, [[3, 2, 1], [1, 5, 2], [2, 2, 9], [0, 1, 0]])
    how = compress("topk", ratio=0.3)
    total = np.array([6, 10, 12])
    for i, (steps, ranks) in enumerate(((2, 2), (3, 4), (5, 1), (6, 2))):
        r = t.train(hand_config(t, "run", how, steps, batch=4), ranks=ranks).expect(0)
        assert ("spread evenly" in r.out + r.err) == (i > 0), r.err
        rest = residual(t, "run", steps)
        equal(list(rest.shape), [ranks, 1, 3], "shape")
        close(np.array(delivered(t, "run", steps)) * 4 + rest.reshape(ranks, 3).sum(0), total * steps, 1e-5)


def test_g06_without_compression_the_state_is_dropped_with_a_line(t):
    by_hand(t, [3, 2, 1])
    t.train(hand_config(t, "run", compress("topk", ratio=0.3), 2)).expect(0)
    t.train(hand_config(t, "run", dict(name="none"), 3)).expect(0, "are dropped")
    t.train(hand_config(t, "run", compress("topk", ratio=0.3), 4)).expect(0, "start fresh")
    # momentum is the optimizer's, or under correction that of the compression
    for steps, how in enumerate((compress("topk", ratio=0.3), dict(name="none"), compress("topk", ratio=0.3)), 1):
        t.train(hand_config(t, "momentum", how, steps, momentum=0.5)).expect(0)


def test_g06_low_rank(t):
    # lr is so small that the gradient stays what it is: a matrix of full rank
    r = np.random.default_rng(3)
    x, y = r.normal(size=(16, 8)).astype("f4"), r.normal(size=(16, 6)).astype("f4")
    t.values(x, y)
    t.weights({"layers.0.weight": np.zeros((6, 8)), "layers.0.bias": np.zeros(6)})

    def config(run, steps, **gradient):
        return t.config(f"{run}.yaml", run=dict(dir=t.path(run), steps=steps, eval_every=0), model=dict(name="mlp", hidden=[], init="init.h5"),
                        data=dict(path="data.h5", batch=16, grain=4, shuffle=False), checkpoint=dict(every=1, keep=50),
                        optimizer=dict(name="sgd", lr=1e-6, momentum=0, groups=[FROZEN_BIAS]), gradient=gradient)

    how = compress("powersgd", rank=1)
    t.train(config("plain", 1), ranks=1).expect(0)
    g = -t.params(1, "plain")["layers.0.weight"]  # lr times the mean gradient
    for ranks in (1, 2):
        whole, parts = f"whole-{ranks}", f"parts-{ranks}"
        t.train(config(whole, 4, compress=how), ranks=ranks).expect(0)
        t.train(config(parts, 2, compress=how), ranks=ranks).expect(0)
        t.train(config(parts, 4, compress=how, bucket_bytes=1), ranks=ranks).expect(0)
        w = t.params(4, whole)["layers.0.weight"]
        assert w.tobytes() == t.params(4, parts)["layers.0.weight"].tobytes(), "resume changes bits"
        assert np.linalg.matrix_rank(w, tol=1e-3 * np.abs(w).max()) >= 2, "the residual never came"
        rest = residual(t, whole, 4)
        equal(list(rest.shape), [ranks, 6, 8], "shape")
        scale = np.abs(g).max()
        close((-w + rest.sum(0) * 1e-6 / 16) / scale, 4 * g / scale, 2e-3)


# --- skipped steps -------------------------------------------------------------------------------------


def test_a_skipped_step_leaves_residuals_alone(t):
    by_hand(t, [[3, 2, 1], [1, 5, 2]])
    for name, momentum in (("topk", 0), ("topk", 0.5), ("randk", 0), ("int8", 0), ("fp16", 0), ("bf16", 0), ("onebit", 0)):
        for what in ("inf", "nan"):
            run = f"{name}-{momentum}-{what}"
            config = hand_config(t, run, compress(name, ratio=0.3), 4, batch=2, momentum=momentum,
                                 inject=[dict(rank=1, step=3, where="backward", what=what, parameter="layers.0.weight")])
            t.train(config, ranks=2).expect(0, "not finite")
            equal([m["skipped"] for m in t.metrics(run)], [0, 0, 1, 0], "skipped")
            for state in ("residual",) + (("velocity",) if momentum else ()):
                a, b = residual(t, run, 2, state), residual(t, run, 3, state)
                assert a.tobytes() == b.tobytes(), (run, state, a, b)
            assert np.isfinite(residual(t, run, 4)).all()


# --- momentum correction -------------------------------------------------------------------------------


def test_momentum_correction_by_hand(t):
    # u = m u + g, v += u, the largest of v goes out and its u and v are cleared; no momentum behind the exchange
    by_hand(t, [3, 2, 1])
    m, u, v, sent, g = 0.5, np.zeros(3), np.zeros(3), np.zeros(3), np.array([3.0, 2, 1])
    t.train(hand_config(t, "run", compress("topk", ratio=0.3), 6, momentum=m)).expect(0)
    for step in range(1, 7):
        u = m * u + g
        v = v + u
        k = int(np.argmax(v))
        sent[k] += v[k]
        u[k] = v[k] = 0
        # later weights reach the last bit of y
        close(delivered(t, "run", step), sent, 1e-6)
        close(residual(t, "run", step).ravel(), v, 1e-6)
        close(residual(t, "run", step, "velocity").ravel(), u, 1e-6)
    with t.checkpoint(6) as f:
        assert "optimizer" not in f["state"], list(f["state"])
    t.train(hand_config(t, "off", compress("topk", ratio=0.3, momentum_correction=False), 2, momentum=m)).expect(0)
    equal(delivered(t, "off", 2), [4.5, 4, 0], "3, then 3 m, and 4")


# --- whole runs ----------------------------------------------------------------------------------------


def mlp(t, run, ranks, how, steps=60, more=None, **sections):
    gradient = dict(compress=how) if how else {}
    gradient.update(more or {})
    config = t.config(f"{run}.yaml", run=dict(dir=t.path(run), steps=steps, eval_every=0), model=dict(name="mlp", hidden=[24]),
                      data=dict(path="data.h5", batch=32, grain=8), gradient=gradient, debug=dict(hash_every=1), **sections)
    t.train(config, ranks=ranks).expect(0)
    return float(np.mean([m["loss"] for m in t.metrics(run)][-10:]))


def test_training_reaches_the_uncompressed_loss(t):
    t.classes(512)
    optimizer = dict(name="sgd", lr=0.05)
    steps = 120
    base = mlp(t, "base", 2, None, steps, optimizer=optimizer)
    for name in ALL:
        loss = mlp(t, name, 2, compress(name, ratio=0.3, rank=2), steps, optimizer=optimizer)
        # what was sent loses its momentum, so that sparse methods are slower at first
        assert loss < 1.5 * base + (0.15 if name in ("topk", "randk") else 0.02), f"{name}: {loss} against {base}"


def test_a_language_model_trains_with_adamw_and_clipping(t):
    t.tokens(6000)

    def train(run, how):
        config = t.config(f"{run}.yaml", run=dict(dir=t.path(run), steps=120, eval_every=0),
                          model=dict(name="gpt", layers=1, heads=2, width=32, context=16), data=dict(path="data.h5", batch=16, grain=4),
                          optimizer=dict(name="adamw", lr=3e-3), gradient=dict(clip_norm=1.0, compress=how))
        t.train(config, ranks=2).expect(0)
        return float(np.mean([m["loss"] for m in t.metrics(run)][-10:]))

    base = train("base", dict(name="none"))
    for name in ("int8", "topk", "powersgd"):
        loss = train(name, compress(name, ratio=0.25))
        assert loss < 1.1 * base, f"{name}: {loss} against {base}"


def test_runs_repeat_bit_for_bit(t):
    t.classes(256)
    for name in ALL:
        how = compress(name, ratio=0.1)
        mlp(t, f"{name}-a", 2, how, 10)
        mlp(t, f"{name}-b", 2, how, 10, more=dict(overlap=False, bucket_bytes=1))
        a, b = t.texts("loss", "weights_hash", run=f"{name}-a"), t.texts("loss", "weights_hash", run=f"{name}-b")
        equal(a, b, name)


def test_a_resumed_run_is_the_straight_one(t):
    t.classes(256)
    for name in ALL:
        how = compress(name, ratio=0.1)
        mlp(t, f"{name}-a", 2, how, 12)
        mlp(t, f"{name}-b", 2, how, 5)
        mlp(t, f"{name}-b", 2, how, 12)
        equal(t.texts("weights_hash", run=f"{name}-a"), t.texts("weights_hash", run=f"{name}-b"), name)


# --- warm-up -------------------------------------------------------------------------------------------


def test_warmup_of_elements_falls_by_quarters(t):
    t.classes(256)
    how = compress("topk", ratio=0.02, warmup=5)  # 1/4 for updates 1 to 3, 1/16 for 4 and 5, then 0.02
    mlp(t, "straight", 2, how, 9)
    sent = [m["comm_bytes"] for m in t.metrics("straight")]
    assert sent[0] == sent[2] > 2 * sent[3] and sent[3] == sent[4] > 1.5 * sent[5] and sent[5] == sent[8], sent
    for steps in (2, 4, 9):
        mlp(t, "resumed", 2, how, steps)
    equal(t.texts("weights_hash", run="resumed"), t.texts("weights_hash", run="straight"), "resumed inside the warm-up")


def test_warmup_of_other_methods_is_uncompressed(t):
    t.classes(256)
    mlp(t, "plain", 2, None, 3)
    for name in ("int8", "powersgd"):
        how = compress(name, warmup=3)
        mlp(t, f"{name}-straight", 2, how, 6)
        hashes = t.texts("weights_hash", run=f"{name}-straight")
        equal(hashes[:3], t.texts("weights_hash", run="plain"), name)
        sent = [m["comm_bytes"] for m in t.metrics(f"{name}-straight")]
        assert sent[2] > 1.4 * sent[3], sent
        mlp(t, f"{name}-resumed", 2, how, 2)
        mlp(t, f"{name}-resumed", 2, how, 6)
        equal(t.texts("weights_hash", run=f"{name}-resumed"), hashes, name)


# --- G07: stopped runs equal straight ones ----------------------------------------------------------------


def same_files(t, run, step=20):
    """Checkpoints equal to the byte, except config.yaml, which holds run.dir and run.steps."""
    def files(r):
        folder = t.path(r, "checkpoints", f"step-{step:08d}")
        with open(f"{folder}/model.h5", "rb") as model, open(f"{folder}/manifest.json") as manifest:
            listed = json.load(manifest)
            del listed["files"]["config.yaml"], listed["checksum"]
            return listed, model.read()

    a, b = files(run), files("straight")
    assert a[0] == b[0], (a[0], b[0])
    assert a[1] == b[1], f"{run}: model.h5 differs"


def test_g07_half_precision_and_elements(t):
    """fp16 with a growing loss scale, dropout, clipping that bites, 2 grains a rank, topk with momentum correction and a
    warm-up, two levels, a skipped step, an epoch's end. In one go, by parts, and killed."""
    t.tokens(1500)  # 12 steps an epoch, the last of 12 samples
    skip = "{rank: 1, step: 9, where: backward, what: inf}"
    config = t.config(run=dict(steps=20, eval_every=0), checkpoint=dict(every=5, keep=100),
                      model=dict(name="gpt", layers=1, heads=2, width=16, context=8, dropout=0.1), data=dict(path="data.h5", batch=16, grain=2),
                      optimizer=dict(name="sgd", lr=0.05, momentum=0.9), schedule=dict(name="step", warmup=3, milestones=[9, 15]),
                      precision=dict(compute="fp16", loss_scale=dict(initial=1024, growth_interval=4)),
                      gradient=dict(clip_norm=0.3, hierarchy="two_level", compress=dict(name="topk", ratio=0.05, force=True, warmup=8)),
                      debug=dict(hash_every=1, nodes=[2, 2]))

    def train(run, *more, faults=""):
        return t.train(config, "run.dir=" + t.path(run), f"debug.inject=[{skip}{faults}]", *more, ranks=4)

    train("straight").expect(0, "compression topk")
    straight = t.metrics("straight")
    assert min(m["grad_norm"] for m in straight if not m["skipped"]) > 0.3, "clipping never bites"
    equal([m["step"] for m in straight if m["skipped"]], [9], "skipped")
    equal([straight[i]["epoch"] for i in (11, 12)], [0, 1], "epochs")
    assert straight[7]["loss_scale"] == 4096 and straight[-1]["loss_scale"] > straight[9]["loss_scale"], straight
    for ends in ((10, 20), (7, 13, 20)):
        for end in ends:
            train(f"by-{ends[0]}", f"run.steps={end}").expect(0)
    assert train("killed", faults=", {rank: 3, step: 14, where: backward, what: kill}").rc == 137
    train("killed").expect(0, "going on from", "step-00000010")
    for run in ("by-10", "by-7", "killed"):
        keys = ("step", "updates", "epoch", "loss", "grad_norm", "lr", "loss_scale", "skipped", "samples", "tokens", "weights_hash")
        equal(t.texts(*keys, run=run), t.texts(*keys, run="straight"), run)
        same_files(t, run)


def test_the_estimate_and_the_level_decide(t):
    t.classes(64)
    config = t.config(run=dict(steps=2, eval_every=0), model=dict(name="mlp", hidden=[24]), data=dict(path="data.h5", batch=32, grain=8),
                      gradient=dict(compress=dict(name="topk")))
    t.train(config, ranks=2).expect(0, "compression topk: none", "all ranks share one node")
    t.train(config, "run.dir=" + t.path("all"), "gradient.compress.level=all", ranks=2).expect(0, "does not pay")


# --- between nodes -------------------------------------------------------------------------------------


def nodes_config(t, run, how, steps, nodes, batch, hierarchy="two_level", bucket_bytes=4096, **debug):
    return t.config(f"{run}.yaml", run=dict(dir=t.path(run), steps=steps, eval_every=0), model=dict(name="mlp", hidden=[24]),
                    data=dict(path="data.h5", batch=batch, grain=batch // 8), optimizer=dict(name="sgd", lr=0.05),
                    checkpoint=dict(every=1, keep=50), gradient=dict(compress=how, hierarchy=hierarchy, bucket_bytes=bucket_bytes),
                    debug=dict(hash_every=1, nodes=nodes, **debug))


def test_between_nodes_each_slice_is_compressed(t):
    t.classes(256)
    loss = lambda run: float(np.mean([m["loss"] for m in t.metrics(run)][-8:]))
    t.train(nodes_config(t, "flat", None, 40, [2, 2], 32, "flat"), ranks=4).expect(0)
    for name in ("bf16", "int8", "onebit", "topk", "randk"):
        how = dict(name=name, ratio=0.3, force=True)
        t.train(nodes_config(t, name, how, 40, [2, 2], 32), ranks=4).expect(0, f"compression {name}", "forced")
        rest = residual(t, name, 40)
        equal(list(rest.shape), [2, 24, 12], "a row for each node")
        assert all(np.abs(row).max() > 0 for row in rest) and np.isfinite(rest).all()
        assert loss(name) < loss("flat") + (0.9 if name in ("topk", "randk") else 0.1), f"{name}: {loss(name)} against {loss('flat')}"
        t.train(nodes_config(t, f"{name}-again", how, 20, [2, 2], 32), ranks=4).expect(0)
        t.train(nodes_config(t, f"{name}-again", how, 40, [2, 2], 32), ranks=4).expect(0)
        equal(t.texts("loss", "weights_hash", run=f"{name}-again"), t.texts("loss", "weights_hash", run=name), name)


LOW_RANK = dict(name="powersgd", rank=2, force=True)


def test_between_nodes_each_slice_has_factors(t):
    t.classes(256)
    loss = lambda run: float(np.mean([m["loss"] for m in t.metrics(run)][-8:]))
    t.train(nodes_config(t, "flat", None, 40, [2, 2], 32, "flat"), ranks=4).expect(0)
    t.train(nodes_config(t, "run", LOW_RANK, 40, [2, 2], 32), ranks=4).expect(0, "compression powersgd", "forced")
    rest, right = residual(t, "run", 40), residual(t, "run", 40, "right.2")
    equal(list(rest.shape), [2, 24, 12], "a row for each node")
    equal(list(right.shape), [2, 2, 12, 2], "for each node and slice")
    assert np.isfinite(rest).all() and all(np.abs(row).max() > 0 for row in rest)
    assert right[0].tobytes() == right[1].tobytes() and np.abs(right[0, 0] - right[0, 1]).max() > 0, "factors of slices"
    assert loss("run") < loss("flat") + 0.1, (loss("run"), loss("flat"))
    t.train(nodes_config(t, "again", LOW_RANK, 20, [2, 2], 32), ranks=4).expect(0)
    t.train(nodes_config(t, "again", LOW_RANK, 40, [2, 2], 32), ranks=4).expect(0)
    equal(t.texts("loss", "weights_hash", run="again"), t.texts("loss", "weights_hash", run="run"), "resumed")


def test_between_nodes_low_rank_on_other_layouts(t):
    t.classes(256)
    t.train(nodes_config(t, "run", LOW_RANK, 3, [2, 2], 40), "data.grain=2", ranks=4).expect(0)
    r = t.train(nodes_config(t, "run", LOW_RANK, 4, [2, 2, 1], 40), "data.grain=2", ranks=5)
    r.expect(0, "start fresh", "are dropped")  # 5 ranks have slices of one rank: factors of their own
    r = t.train(nodes_config(t, "run", LOW_RANK, 5, [1, 1], 40), "data.grain=2", ranks=2)
    r.expect(0, "spread evenly")
    assert all(np.isfinite(m["loss"]) for m in t.metrics("run"))


def test_between_nodes_nothing_is_lost(t):
    # one step of sgd without momentum: what was delivered and what is left make the sum
    t.classes(256)
    hows = dict(plain=None, few=dict(name="topk", ratio=0.2, force=True), low=LOW_RANK)
    for ranks, nodes in ((4, [2, 2]), (5, [3, 2]), (3, [2, 1])):
        batch = 8 * ranks
        for bucket in (64, 4096):
            runs = {kind: f"{kind}-{ranks}-{bucket}" for kind in hows}
            for kind, run in runs.items():
                config = nodes_config(t, run, hows[kind], 1, nodes, batch, bucket_bytes=bucket)
                t.train(config, "optimizer.momentum=0", "optimizer.lr=1", f"data.grain={batch // ranks}", ranks=ranks).expect(0)
            for name, w in t.params(1, runs["plain"]).items():
                for kind in ("few", "low"):
                    if kind == "low" and name.endswith("bias"):
                        close(t.params(1, runs[kind])[name], w, 1e-5)
                        continue
                    rest = residual(t, runs[kind], 1, name=name)
                    assert rest.shape[0] == len(nodes) and np.abs(rest).max() > 0, (name, rest.shape)
                    close(t.params(1, runs[kind])[name] - rest.sum(0) / batch, w, 1e-5)


def test_between_nodes_other_layouts_resume(t):
    t.classes(256)
    how = dict(name="topk", ratio=0.2, force=True)
    t.train(nodes_config(t, "run", how, 3, [2, 2], 40), "data.grain=2", ranks=4).expect(0)
    sum_at_3 = residual(t, "run", 3).sum(0)
    r = t.train(nodes_config(t, "run", how, 4, [2, 2, 1], 40, bucket_bytes=64), "data.grain=2", ranks=5)
    r.expect(0, "spread evenly")
    equal(list(residual(t, "run", 4).shape), [3, 24, 12], "rows")
    assert np.abs(sum_at_3).max() > 0
    r = t.train(nodes_config(t, "run", how, 5, None, 40), "data.grain=2", ranks=2)
    r.expect(0, "compression topk: none", "are dropped")


def test_between_nodes_a_skipped_step_leaves_residuals_alone(t):
    t.classes(256)
    for name in ("topk", "int8", "powersgd"):
        config = nodes_config(t, name, dict(name=name, ratio=0.2, rank=2, force=True), 4, [2, 2], 32,
                              inject=[dict(rank=3, step=3, where="backward", what="inf", parameter="layers.0.weight", index=5)])
        t.train(config, ranks=4).expect(0, "not finite")
        equal([m["skipped"] for m in t.metrics(name)], [0, 0, 1, 0], "skipped")
        if name == "powersgd":
            before, after = (residual(t, name, step, "right.2") for step in (2, 3))
            assert before.tobytes() == after.tobytes(), "factors"
        for p in ("layers.0.weight",) if name == "powersgd" else ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"):
            assert residual(t, name, 2, name=p).tobytes() == residual(t, name, 3, name=p).tobytes(), p


run_tests(globals())
