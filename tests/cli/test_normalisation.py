"""Losses and gradients are sums over the targets of a step, divided once by their number.

However a step is cut into grains and ranks, each target weighs the same. Where a case gives gradients by hand, a linear
model of one input makes them: x = 2^-16, y = -2^15 g and |w| < 16 give pred - y = 2^15 g exactly in f32 (w x is far below the
last bit), so that the gradient of the squared error is 2 x (pred - y) = g whatever w is.
"""
import numpy as np

from harness import close, equal, run_tests

X, Y = 2.0**-16, -(2.0**15)
SGD = dict(name="sgd", lr=1, momentum=0, groups=[dict(match="*bias", freeze=True)])


def by_hand(t, gradients, weight=0.0):
    """A model and data whose sample i has gradient gradients[i]."""
    g = np.asarray(gradients, np.float32)
    t.values(np.full(len(g), X), Y * g)
    t.weights({"layers.0.weight": [[weight]], "layers.0.bias": [0]})
    return dict(model=dict(name="mlp", hidden=[], init="init.h5"), optimizer=SGD)


def labels_with_losses(t, labels, *losses):
    """Classes 0, 1, .. whose loss is that number under a model with zero weights and a fixed bias."""
    p = np.exp(-np.array(losses))
    t.data(attrs=dict(classes=len(p) + 1), train=dict(x=np.ones((len(labels), 1), "f4"), y=np.array(labels, "i4")))
    bias = np.log(np.append(p, 1 - p.sum()))
    t.weights({"layers.0.weight": np.zeros((len(bias), 1)), "layers.0.bias": bias})
    return dict(model=dict(name="mlp", hidden=[], init="init.h5"), optimizer=dict(name="sgd", lr=1, momentum=0))


def one_step(t, base, ranks, batch, grain, run, **more):
    config = t.config(run=dict(dir=t.path(run), steps=1, eval_every=0), data=dict(path="data.h5", batch=batch, grain=grain,
                      shuffle=False), **base, **more)
    t.train(config, ranks=ranks).expect(0)
    return t.metrics(run)[0], t.params(1, run)


def test_a01_a_grains_weigh_by_their_targets(t):
    # 10 targets of loss 2 in the first grain, 100 of loss 1 in the second
    base = labels_with_losses(t, [1] * 10 + [-100] * 90 + [0] * 100, 1.0, 2.0)
    cut, w_cut = one_step(t, base, 1, 200, 100, "cut")
    whole, w_whole = one_step(t, base, 1, 200, 200, "whole")
    close(cut["loss"], 120 / 110)
    close(cut["grad_norm"], whole["grad_norm"])
    for name in w_whole:
        close(w_cut[name], w_whole[name])


def test_a01_b_ranks_weigh_by_their_targets(t):
    base = labels_with_losses(t, [0] * 30 + [1] * 10 + [-100] * 20, 2.0, 4.0)
    cut, w_cut = one_step(t, base, 2, 60, 30, "cut")
    whole, w_whole = one_step(t, base, 1, 60, 60, "whole")
    close(cut["loss"], 100 / 40)
    close(cut["grad_norm"], whole["grad_norm"])
    for name in w_whole:
        close(w_cut[name], w_whole[name])


def test_a01_tokens_of_a_language_model(t):
    r = np.random.default_rng(3)
    tokens = r.integers(0, 17, 64).astype("i4")
    targets = np.where(r.random(64) < 0.5, r.integers(0, 17, 64), -100).astype("i4")
    targets[8:16] = targets[24:40] = -100  # whole samples without targets, and with grain 2 a whole grain
    t.data(attrs=dict(vocab=17), train=dict(tokens=tokens, targets=targets))
    base = dict(model=dict(name="gpt", layers=1, heads=2, width=16, context=8), optimizer=dict(name="sgd", lr=0.1))
    want, weights = one_step(t, base, 1, 8, 8, "whole")
    for ranks, grain in ((1, 1), (1, 2), (2, 4), (2, 2)):
        got, w = one_step(t, base, ranks, 8, grain, f"run-{ranks}-{grain}")
        close([got["loss"], got["grad_norm"]], [want["loss"], want["grad_norm"]])
        for name in weights:
            close(w[name], weights[name])


def windows(t, micro, batch, epochs, schedule="constant"):
    config = t.config(run=dict(epochs=epochs, eval_every=0), data=dict(path="data.h5", batch=batch, grain=1, shuffle=False),
                      schedule=dict(name=schedule), **by_hand(t, [1.0] * micro))
    t.train(config).expect(0)
    m = t.metrics()
    return m, t.params(m[-1]["step"])["layers.0.weight"].item()


def test_a02_last_window_of_an_epoch(t):
    m, w = windows(t, 7, 4, 1)
    assert w == -2.0, w
    equal([x["grad_norm"] for x in m], [1.0, 1.0], "gradient norms")
    equal([x["samples"] for x in m], [4, 7], "samples")


def test_a02_epoch_shorter_than_a_window(t):
    m, w = windows(t, 3, 4, 1)
    assert len(m) == 1 and w == -1.0, (m, w)


def test_a02_next_epoch_starts_from_zero(t):
    m, w = windows(t, 7, 4, 2, "linear")
    equal([x["epoch"] for x in m], [0, 0, 1, 1], "epochs")
    # 2 steps an epoch: the rate falls to 0 over 4 planned steps
    equal([x["lr"] for x in m], [0.75, 0.5, 0.25, 0], "rates")
    assert w == -1.5, w


def test_a02_window_of_zero_grains_is_refused(t):
    base = by_hand(t, [1.0] * 4)
    for wrong in ("data.grain=0", "data.batch=0", "data.grain=3"):
        config = t.config(run=dict(steps=1), data=dict(path="data.h5", batch=4), **base)
        t.train(config, wrong, ranks=0).expect(2, "grain" if "grain" in wrong else "batch")


def test_a03_sum_is_reduced_once(t):
    base = by_hand(t, [1, 4, 3, 8])  # rank 0: 1 and 4, rank 1: 3 and 8
    for ranks, grain in ((1, 4), (1, 1), (2, 1), (2, 2), (4, 1)):
        for overlap in (True, False) if ranks > 1 else (True,):
            for exact in (False, True) if grain == 1 else (False,):
                run = f"run-{ranks}-{grain}-{overlap}-{exact}"
                config = t.config(run=dict(dir=t.path(run), steps=2, eval_every=0, deterministic=exact),
                                  data=dict(path="data.h5", batch=4, grain=grain, shuffle=False),
                                  gradient=dict(overlap=overlap), debug=dict(hash_every=1), **base)
                t.train(config, ranks=ranks).expect(0)
                equal([m["grad_norm"] for m in t.metrics(run)], [4.0, 4.0], f"norms of {run}")
                w = t.params(2, run)["layers.0.weight"].item()
                assert w == -8.0, f"{run}: weight {w}"


def softmax_step(x, y, w, b):
    """Loss and mean gradients of a linear classifier in f64; rows with y = -100 do not count."""
    x, y = x[y >= 0].astype(float), y[y >= 0]
    z = x @ w.T + b
    z -= z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    return loss, p.T @ x / len(y), p.mean(0)


def test_a03_ranks_and_grains_against_numpy(t):
    r = np.random.default_rng(5)
    x, y = r.normal(size=(21, 6)).astype("f4"), r.integers(0, 4, 21).astype("i4")
    y[[2, 8, 9, 10, 11]] = -100
    t.data(attrs=dict(classes=4), train=dict(x=x, y=y))
    first = {"layers.0.weight": r.normal(size=(4, 6)).astype("f4"), "layers.0.bias": r.normal(size=4).astype("f4")}
    t.weights(first)
    w, b = first["layers.0.weight"].astype(float), first["layers.0.bias"].astype(float)
    want = []
    for step in range(6):  # two epochs of 8, 8 and 5 samples
        part = slice(8 * (step % 3), 8 * (step % 3) + 8)
        loss, dw, db = softmax_step(x[part], y[part], w, b)
        want.append((loss, np.sqrt((dw**2).sum() + (db**2).sum())))
        w, b = w - 0.5 * dw, b - 0.5 * db
    for ranks, grain in ((1, 8), (1, 1), (1, 4), (2, 4), (2, 1), (4, 2), (4, 1)):
        run = f"run-{ranks}-{grain}"
        config = t.config(run=dict(dir=t.path(run), epochs=2, eval_every=0), model=dict(name="mlp", hidden=[], init="init.h5"),
                          data=dict(path="data.h5", batch=8, grain=grain, shuffle=False), debug=dict(hash_every=1),
                          optimizer=dict(name="sgd", lr=0.5, momentum=0))
        t.train(config, ranks=ranks).expect(0)
        close([(m["loss"], m["grad_norm"]) for m in t.metrics(run)], want, 1e-5)
        got = t.params(6, run)
        close(got["layers.0.weight"], w, 1e-5)
        close(got["layers.0.bias"], b, 1e-5)


def test_sample_without_target_weighs_exactly_zero(t):
    # its logits overflow to infinity in f32: 0 x inf would be nan
    r = np.random.default_rng(6)
    x, y = r.normal(size=(4, 3)).astype("f4"), np.array([0, -100, 1, 0], "i4")
    t.weights({"layers.0.weight": [[4, 4, 4], [-4, 4, 4]], "layers.0.bias": [0, 0]})
    base = dict(model=dict(name="mlp", hidden=[], init="init.h5"), optimizer=dict(name="sgd", lr=1, momentum=0))
    results = []
    for value in (0.0, 3e38):
        x[1] = value
        t.data(attrs=dict(classes=2), train=dict(x=x, y=y))
        for grain in (4, 1):
            m, w = one_step(t, base, 1, 4, grain, f"run-{value}-{grain}")
            assert m["skipped"] == 0, m
            results.append((m["loss"], m["grad_norm"], w["layers.0.weight"].tobytes()))
    equal(results[2:], results[:2], "steps with an overflowing sample without target")


def test_step_without_targets_changes_nothing(t):
    base = labels_with_losses(t, [0, 1, -100, -100, 1, 0], 1.0, 2.0)
    base["optimizer"] = dict(name="sgd", lr=1, momentum=0)
    config = t.config(run=dict(steps=3, eval_every=0), data=dict(path="data.h5", batch=2, shuffle=False),
                      checkpoint=dict(every=1, keep=10), **base)
    t.train(config).expect(0)
    m = t.metrics()
    equal([x["loss"] == 0 for x in m], [False, True, False], "steps of no loss")
    for name, value in t.params(1).items():
        equal(t.params(2)[name].tobytes(), value.tobytes(), name)


def test_padding_does_not_enter_batch_norm(t):
    t.images(6)
    base = dict(model=dict(name="resnet", preset="resnet20", width=4), optimizer=dict(name="sgd", lr=0.1, momentum=0))
    want, weights = one_step(t, base, 1, 6, 6, "full")
    got, w = one_step(t, base, 1, 8, 8, "padded")
    close([got["loss"], got["grad_norm"]], [want["loss"], want["grad_norm"]], 1e-5)
    for name in weights:
        close(w[name], weights[name], 1e-5)
    # ranks 2 and 3 of 4 hold no sample; the statistics of a grain are its own, so the numbers differ from above
    one_step(t, base, 4, 16, 4, "empty", debug=dict(hash_every=1))
    one_step(t, base, 1, 16, 4, "alone")
    close(t.metrics("empty")[0]["loss"], t.metrics("alone")[0]["loss"], 1e-6)
    a, b = t.params(1, "empty"), t.params(1, "alone")
    for name in a:
        close(a[name], b[name], 1e-5)


run_tests(globals())
