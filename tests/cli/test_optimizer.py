"""Optimizers, clipping, groups, schedules and skipped steps, as whole runs.

By hand: x = 2^-16 a, y = -2^15 makes the gradient of the squared error exactly a for each input of a linear model (w x is below
the last bit of y).
"""
import math

import numpy as np

from harness import close, equal, run_tests

FROZEN_BIAS = dict(match="*bias", freeze=True)


def by_hand(t, rows):
    """A linear model without trained bias; sample i has the gradient rows[i]."""
    g = np.atleast_2d(np.asarray(rows, np.float32))
    t.values(g * 2.0**-16, np.full(len(g), -(2.0**15)))
    t.weights({"layers.0.weight": np.zeros((1, g.shape[1])), "layers.0.bias": [0]})
    return dict(name="mlp", hidden=[], init="init.h5")


def data(batch, **more):
    return dict(path="data.h5", batch=batch, shuffle=False, **more)


def inject(what, rank, *steps, where="backward"):
    return [dict(rank=rank, step=s, where=where, what=what) for s in steps]


# --- clipping ------------------------------------------------------------------------------------------


def clipped(t, model, ranks, batch, grain, run, clip=1.0, steps=1):
    config = t.config(run=dict(dir=t.path(run), steps=steps, eval_every=0), model=model, data=data(batch, grain=grain),
                      optimizer=dict(name="sgd", lr=1, momentum=0, groups=[FROZEN_BIAS]), gradient=dict(clip_norm=clip),
                      debug=dict(hash_every=1))
    t.train(config, ranks=ranks).expect(0)
    return [m["grad_norm"] for m in t.metrics(run)], -t.params(steps, run)["layers.0.weight"][0]


def test_b03_norm_is_of_the_mean_gradient(t):
    for rows in ([[3, 4]], [[3, 4], [3, 4]], [[1, 0], [5, 8]]):
        norms, applied = clipped(t, by_hand(t, rows), 1, len(rows), 1, f"run-{rows}")
        equal(norms, [5.0], "norms")
        close(applied, [0.6, 0.8], 1e-7)
    norms, applied = clipped(t, by_hand(t, [[3, 4]]), 1, 1, 1, "long", clip=6.0)
    equal(list(applied), [3.0, 4.0], "a gradient within the norm")


def test_c01_b_copies_count_once(t):
    model = by_hand(t, [[3, 4]] * 4)
    for ranks in (1, 2, 4):
        norms, applied = clipped(t, model, ranks, 4, 1, f"run-{ranks}")
        equal(norms, [5.0], f"norms on {ranks} ranks")
        close(applied, [0.6, 0.8], 1e-7)


def test_c01_d_odd_numbers_of_ranks(t):
    g = np.arange(1, 11)  # 10 elements
    want = math.sqrt((g**2).sum())
    for ranks in (1, 3, 7):
        norms, applied = clipped(t, by_hand(t, [g] * 21), ranks, 21, 1, f"run-{ranks}")
        close(norms, [want], 1e-7)
        close(applied, g / want, 1e-7)


# --- skipped steps and schedules -----------------------------------------------------------------------


def test_b04_skipped_steps_do_not_move_the_schedule(t):
    t.classes(64, dim=4, classes=3)
    for ranks, grain in ((1, 4), (2, 1)):  # 2 ranks: 4 grains each
        for what in ("inf", "nan"):
            run = f"run-{ranks}-{what}"
            config = t.config(run=dict(dir=t.path(run), steps=12, eval_every=0), model=dict(name="mlp", hidden=[5]),
                              data=data(8, grain=grain), optimizer=dict(name="adamw", lr=1e-3), schedule=dict(name="constant", warmup=10),
                              checkpoint=dict(every=1, keep=20), debug=dict(hash_every=1, inject=inject(what, ranks - 1, 1, 2)))
            t.train(config, ranks=ranks).expect(0, "not finite")
            m = t.metrics(run)
            equal([x["skipped"] for x in m], [1, 1] + [0] * 10, "skipped")
            equal([x["updates"] for x in m], [0, 0] + list(range(1, 11)), "updates")
            equal([x["grad_norm"] for x in m[:2]], [None, None], "norms of skipped steps")
            close([x["lr"] for x in m[2:]], [1e-4 * u for u in range(1, 11)], 1e-9)
            assert m[2]["weights_hash"] != m[1]["weights_hash"] == m[0]["weights_hash"], m[:3]
            with t.checkpoint(2, run) as f:
                state = f["state/optimizer"]
                found = [np.abs(state[k][s][...]).max() for k in state for s in state[k]]
                assert len(found) == 8 and max(found) == 0, found


def test_b04_bad_value_of_any_kind_skips_on_all_ranks(t):
    t.classes(64, dim=4, classes=3)
    last = dict(parameter="layers.1.bias", index=2, grain=1)
    faults = [dict(rank=1, step=2, where="forward", what="nan"), dict(rank=0, step=4, where="exchange", what="inf"),
              dict(rank=1, step=5, where="backward", what="nan", **last), dict(rank=1, step=7, where="exchange", what="nan", **last)]
    config = t.config(run=dict(steps=9, eval_every=0), model=dict(name="mlp", hidden=[5]), data=data(8, grain=2),
                      optimizer=dict(name="sgd", lr=0.1), debug=dict(hash_every=1, inject=faults))
    t.train(config, ranks=2).expect(0)
    m = t.metrics()
    equal([x["skipped"] for x in m], [0, 1, 0, 1, 1, 0, 1, 0, 0], "skipped")
    equal([x["loss"] is None for x in m], [x["step"] == 2 for x in m], "steps whose loss is not finite")
    for a, b in zip(m, m[1:]):
        assert (a["weights_hash"] == b["weights_hash"]) == bool(b["skipped"]), (a, b)


def test_b04_bias_correction_counts_updates(t):
    # the first applied AdamW update moves each weight by lr, whatever was skipped before
    model = by_hand(t, [[3, 4]])
    config = t.config(run=dict(steps=3, eval_every=0), model=model, data=data(1),
                      optimizer=dict(name="adamw", lr=0.5, weight_decay=0, groups=[FROZEN_BIAS]), debug=dict(inject=inject("inf", 0, 1, 2)))
    t.train(config).expect(0)
    close(t.params(3)["layers.0.weight"][0], [-0.5, -0.5], 1e-6)


def test_twenty_skips_in_a_row_end_the_run(t):
    t.classes(64, dim=4, classes=3)
    for ranks in (1, 2):
        run = f"run-{ranks}"
        config = t.config(run=dict(dir=t.path(run), steps=60, eval_every=0), model=dict(name="mlp", hidden=[]), data=data(8),
                          optimizer=dict(name="sgd"), debug=dict(inject=inject("nan", ranks - 1, *range(2, 21), *range(22, 50))))
        r = t.train(config, ranks=ranks)
        r.expect(1, "20 steps in a row")
        m = t.metrics(run)
        # 19 skips, one update, 20 skips
        equal([x["skipped"] for x in m], [0] + [1] * 19 + [0] + [1] * 20, "skipped")
        assert (r.out + r.err).count("20 steps in a row") == 1, r.err


def test_schedules_follow_their_formulas(t):
    t.classes(64, dim=4, classes=3)
    warm = [u / 4 for u in range(1, 5)]
    want = {
        "constant": warm + [1.0] * 6,
        "linear": warm + [1 + (0.1 - 1) * p / 6 for p in range(1, 7)],
        "cosine": warm + [0.1 + 0.9 * (1 + math.cos(math.pi * p / 6)) / 2 for p in range(1, 7)],
        "step": warm + [1.0, 1.0, 0.3, 0.3, 0.09, 0.09],
    }
    for name, factors in want.items():
        schedule = dict(name=name, warmup=4)
        if name in ("linear", "cosine"):
            schedule["final"] = 0.1
        if name == "step":
            schedule.update(milestones=[6, 8], gamma=0.3)
        config = t.config(run=dict(dir=t.path(name), steps=10, eval_every=0), model=dict(name="mlp", hidden=[]), data=data(8),
                          optimizer=dict(name="sgd", lr=0.2), schedule=schedule)
        t.train(config).expect(0)
        close([m["lr"] for m in t.metrics(name)], [0.2 * f for f in factors], 1e-8)


# --- groups --------------------------------------------------------------------------------------------


def test_b06_decay_reaches_matrices_only(t):
    # all gradients are zero: no input, no error; 5x7 matrix, bias of 7
    first = {"layers.0.weight": np.linspace(0.5, 2, 35).reshape(7, 5), "layers.0.bias": np.linspace(0.1, 0.9, 7),
             "layers.1.weight": np.zeros((1, 7)), "layers.1.bias": [0]}
    t.values(np.zeros((6, 5)), np.zeros(6))
    t.weights(first)
    for ranks in (1, 2, 3):
        run = f"run-{ranks}"
        config = t.config(run=dict(dir=t.path(run), steps=10, eval_every=0), model=dict(name="mlp", hidden=[7], init="init.h5"),
                          data=data(6), optimizer=dict(name="adamw", lr=1e-2, weight_decay=0.1), debug=dict(hash_every=1))
        t.train(config, ranks=ranks).expect(0, "weight decay 0.1", "weight decay 0\n", " 42 elements", " 8 elements")
        w = t.params(10, run)
        close(w["layers.0.weight"], first["layers.0.weight"] * 0.999**10, 3e-7)
        equal(list(w["layers.0.bias"]), list(np.float32(first["layers.0.bias"])), "bias")


def test_b06_gains_of_a_language_model(t):
    # no targets at all: every gradient is zero
    t.data(attrs=dict(vocab=7), train=dict(tokens=np.arange(36, dtype="i4") % 7, targets=np.full(36, -100, "i4")))
    for ranks in (1, 2, 3):
        run = f"run-{ranks}"
        config = t.config(run=dict(dir=t.path(run), steps=0, eval_every=0), model=dict(name="gpt", layers=1, heads=1, width=7, context=6),
                          data=data(6), optimizer=dict(name="adamw", lr=1e-2, weight_decay=0.1))
        t.train(config, ranks=ranks).expect(0)
        before = t.params(0, run)
        t.train(config, "run.steps=10", ranks=ranks).expect(0)
        after = t.params(10, run)
        for name, value in before.items():
            if value.ndim >= 2:
                close(after[name], value * 0.999**10, 3e-7)
            else:
                assert after[name].tobytes() == value.tobytes(), f"{name} has moved on {ranks} ranks"
        assert (after["transformer.ln_f.weight"] == 1).all()


def test_groups_have_rates_of_their_own(t):
    t.values([[1, 2]] * 4, [3] * 4)
    t.weights({"layers.0.weight": [[1, 1], [1, 1], [1, 1]], "layers.0.bias": [1, 1, 1], "layers.1.weight": [[1, 1, 1]],
               "layers.1.bias": [1]})

    def run(name, groups, **more):
        config = t.config(run=dict(dir=t.path(name), steps=1, eval_every=0), model=dict(name="mlp", hidden=[3], init="init.h5"),
                          data=data(4), optimizer=dict(name="sgd", lr=0.01, momentum=0, groups=groups, **more))
        t.train(config).expect(0)
        return t.params(1, name)

    base = run("base", [])
    got = run("groups", [dict(match="layers.0.weight", freeze=True), dict(match="layers.0.*", lr=0.03),
                         dict(match="*.bias", weight_decay=0.5)])
    assert (got["layers.0.weight"] == 1).all()
    close(1 - got["layers.0.bias"], 3 * (1 - base["layers.0.bias"]), 1e-6)  # first match wins: no decay
    close(1 - got["layers.1.bias"], 1 - base["layers.1.bias"] + 0.01 * 0.5, 1e-6)
    close(got["layers.1.weight"], base["layers.1.weight"], 1e-7)
    with t.checkpoint(1, "groups") as f:
        assert "param/layers.0.weight" in f
    config = t.config(run=dict(dir=t.path("bad"), steps=1), model=dict(name="mlp", hidden=[3]), data=data(4),
                      optimizer=dict(name="sgd", groups=[dict(match="layers.7.*", lr=1)]))
    t.train(config, ranks=0).expect(2, "layers.7.*")


# --- the rules themselves ------------------------------------------------------------------------------


def gradient(x, y, w, b):
    e = x @ w[0] + b[0] - y
    return (2 * (e[:, None] * x).mean(0))[None], np.array([2 * e.mean()])


def sgd(p, g, s, o, step):
    g = g + o.get("weight_decay", 0) * p if p.ndim > 1 else g
    s["m"] = o["momentum"] * s.get("m", 0) + g
    return p - o["lr"] * (g + o["momentum"] * s["m"] if o.get("nesterov") else s["m"])


def adamw(p, g, s, o, step):
    b1, b2 = o["betas"]
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    if p.ndim > 1:
        p = p * (1 - o["lr"] * o["weight_decay"])
    return p - o["lr"] * (s["m"] / (1 - b1**step)) / (np.sqrt(s["v"] / (1 - b2**step)) + o["eps"])


def test_rules_against_numpy(t):
    r = np.random.default_rng(2)
    x, y = r.normal(size=(24, 5)).astype("f4"), r.normal(size=24).astype("f4")
    first = {"layers.0.weight": r.normal(size=(1, 5)).astype("f4"), "layers.0.bias": r.normal(size=1).astype("f4")}
    t.values(x, y)
    t.weights(first)
    cases = [(sgd, dict(name="sgd", lr=0.05, momentum=0.0)), (sgd, dict(name="sgd", lr=0.05, momentum=0.9, weight_decay=0.1)),
             (sgd, dict(name="sgd", lr=0.05, momentum=0.9, nesterov=True)),
             (adamw, dict(name="adamw", lr=0.05, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.2))]
    for i, (rule, options) in enumerate(cases):
        p, state = {k: v.astype(float) for k, v in first.items()}, {k: {} for k in first}
        for step in range(9):
            part = slice(8 * (step % 3), 8 * (step % 3) + 8)
            g = gradient(x[part].astype(float), y[part].astype(float), p["layers.0.weight"], p["layers.0.bias"])
            for name, grad in zip(first, g):
                p[name] = rule(p[name], grad, state[name], options, step + 1)
        for ranks in (1, 2):
            run = f"run-{i}-{ranks}"
            config = t.config(run=dict(dir=t.path(run), epochs=3, eval_every=0), model=dict(name="mlp", hidden=[], init="init.h5"),
                              data=data(8), optimizer=options)
            t.train(config, ranks=ranks).expect(0)
            for name, value in t.params(9, run).items():
                close(value, p[name], 1e-5)


run_tests(globals())
