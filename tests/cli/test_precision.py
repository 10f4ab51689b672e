"""Mixed precision as whole runs: one decision on all ranks, the loss scale, clipping, master weights, resume, and losses
beside those of fp32."""
import numpy as np

from harness import close, equal, run_tests

FROZEN_BIAS = dict(match="*bias", freeze=True)


def inject(what, rank, *steps, where="backward", **more):
    return [dict(rank=rank, step=s, where=where, what=what, **more) for s in steps]


def classifier(t, run, precision, ranks=1, steps=8, batch=8, **more):
    """Trains a small classifier (the data is classes(64, 4, 3)) and returns the result and its step objects."""
    config = t.config(run=dict(dir=t.path(run), steps=steps, eval_every=0), model=dict(name="mlp", hidden=[5]),
                      data=dict(path="data.h5", batch=batch), precision=precision,
                      **{**dict(optimizer=dict(name="sgd", lr=0.1)), **more})
    return t.train(config, ranks=ranks), t.metrics(run)


# --- one decision --------------------------------------------------------------------------------------


def test_b01_all_ranks_skip_and_the_message_names_the_culprit(t):
    t.classes(64, dim=4, classes=3)
    for what in ("inf", "nan"):
        for compute, scales in (("fp16", [65536.0] * 4 + [32768.0] * 4), ("bf16", [1.0] * 8)):
            run = f"run-{what}-{compute}"
            fault = inject(what, 3, 5, parameter="layers.1.weight")
            r, m = classifier(t, run, dict(compute=compute), ranks=4, debug=dict(hash_every=1, inject=fault))
            r.expect(0, "step 5", "the gradient of 'layers.1.weight' on rank 3 is not finite")
            assert (r.out + r.err).count("is not finite") == 1, r.err
            equal([x["skipped"] for x in m], [0, 0, 0, 0, 1, 0, 0, 0], "skipped")
            equal([float(x["loss_scale"]) for x in m], scales, "loss_scale")
            hashes = [x["weights_hash"] for x in m]
            assert hashes[4] == hashes[3] and len(set(hashes)) == 7, hashes


# --- loss scale ----------------------------------------------------------------------------------------


def test_b02_the_scale_follows_its_rule(t):
    t.classes(64, dim=4, classes=3)
    precision = dict(compute="fp16", loss_scale=dict(initial=65536, growth_interval=4, factor=2, floor=1))
    for ranks in (1, 2):
        run = f"run-{ranks}"
        r, m = classifier(t, run, precision, ranks=ranks, steps=7, debug=dict(inject=inject("inf", ranks - 1, 3)))
        r.expect(0)
        equal([float(x["loss_scale"]) for x in m], [65536.0, 65536.0] + [32768.0] * 4 + [65536.0], "scales")
        run = f"nan-{ranks}"
        r, m = classifier(t, run, precision, ranks=ranks, steps=60,
                          debug=dict(inject=inject("nan", ranks - 1, *range(1, 41), where="forward")))
        r.expect(1, "loss scale", "floor of 1")
        assert (r.out + r.err).count("floor of 1") == 1, r.err
        equal([float(x["loss_scale"]) for x in m], [2.0 ** (15 - i) for i in range(16)] + [1.0], "scales to the floor")


def test_b02_floor_above_the_start_is_refused(t):
    t.classes(64, dim=4, classes=3)
    config = t.config(run=dict(steps=1), model=dict(name="mlp"), data=dict(path="data.h5", batch=8),
                      optimizer=dict(name="sgd"), precision=dict(compute="fp16", loss_scale=dict(initial=8, floor=16)))
    t.train(config).expect(2, "loss_scale.floor")


def test_b03_clipping_is_of_unscaled_gradients(t):
    # x (6, 8), y -1/4: at w = 0 the gradient of the squared error is 2 * 1/4 * x = (3, 4), exact in 16 bit
    t.weights({"layers.0.weight": [[0, 0]], "layers.0.bias": [0]})
    for grains in (1, 2):
        t.values([[6, 8]] * grains, [-0.25] * grains)
        for scale in (1, 1024, 65536):
            run = f"run-{grains}-{scale}"
            config = t.config(run=dict(dir=t.path(run), steps=1, eval_every=0),
                              model=dict(name="mlp", hidden=[], init="init.h5"),
                              data=dict(path="data.h5", batch=grains, grain=1, shuffle=False),
                              optimizer=dict(name="sgd", lr=1, momentum=0, groups=[FROZEN_BIAS]),
                              gradient=dict(clip_norm=1.0),
                              precision=dict(compute="fp16", loss_scale=dict(initial=scale)))
            t.train(config).expect(0)
            equal([m["grad_norm"] for m in t.metrics(run)], [5.0], "norm")
            close(-t.params(1, run)["layers.0.weight"][0], [0.6, 0.8], 1e-7)


def test_b04_skipped_steps_do_not_move_the_schedule(t):
    t.classes(64, dim=4, classes=3)
    for ranks, grain in ((1, 8), (1, 2), (2, 2)):
        for compute in ("fp16", "bf16"):
            run = f"run-{ranks}-{grain}-{compute}"
            config = t.config(run=dict(dir=t.path(run), steps=12, eval_every=0), model=dict(name="mlp", hidden=[5]),
                              data=dict(path="data.h5", batch=8, grain=grain), optimizer=dict(name="adamw", lr=1e-3),
                              schedule=dict(name="constant", warmup=10), precision=dict(compute=compute),
                              debug=dict(hash_every=1, inject=inject("inf", ranks - 1, 1, 2)))
            t.train(config, ranks=ranks).expect(0)
            m = t.metrics(run)
            equal([x["updates"] for x in m], [0, 0] + list(range(1, 11)), "updates")
            close([x["lr"] for x in m[2:]], [1e-4 * u for u in range(1, 11)], 1e-9)


def test_twenty_skips_end_a_run_without_a_scale_only(t):
    t.classes(64, dim=4, classes=3)
    fault = dict(inject=inject("inf", 0, *range(1, 23)))
    r, m = classifier(t, "bf16", dict(compute="bf16"), steps=24, debug=fault)
    r.expect(1, "20 steps in a row")
    equal([x["skipped"] for x in m], [1] * 20, "skipped")
    r, m = classifier(t, "fp16", dict(compute="fp16", loss_scale=dict(floor=2.0**-20)), steps=24, debug=fault)
    r.expect(0)
    equal([x["updates"] for x in m[-2:]], [1, 2], "updates")


# --- master weights ------------------------------------------------------------------------------------


def test_b05_small_updates_live_in_the_master(t):
    # x 2^-16, y 2^15: the gradient is -1 (w x is below the last bit of y), so that each update is +1e-3. Sample 101 asks
    # what the forward pass multiplies with: x 1, y 0, loss = (16-bit weight)^2.
    t.values([2.0**-16] * 100 + [1], [2.0**15] * 100 + [0])
    t.weights({"layers.0.weight": [[1]], "layers.0.bias": [0]})
    config = t.config(run=dict(steps=101, eval_every=0), model=dict(name="mlp", hidden=[], init="init.h5"),
                      data=dict(path="data.h5", batch=1, shuffle=False), precision=dict(compute="bf16"),
                      optimizer=dict(name="sgd", lr=1e-3, momentum=0, groups=[FROZEN_BIAS]), checkpoint=dict(every=5, keep=30))
    t.train(config).expect(0)
    with t.checkpoint(5) as f:
        equal(sorted(f["state"]), ["counters"], "states: the copy is none")
    close(t.params(5)["layers.0.weight"], [[1.005]], 1e-6)
    assert np.float32(t.params(100)["layers.0.weight"][0, 0]) == np.float32(1.1000047), t.params(100)
    straight = t.texts("step", "loss", "grad_norm")
    close([float(straight[-1].split()[1])], [1.1015625**2], 1e-8)
    t.train(config, "run.steps=5", f"run.dir={t.path('parts')}").expect(0)
    t.train(config, f"run.dir={t.path('parts')}").expect(0, "going on")
    equal(t.texts("step", "loss", "grad_norm", run="parts"), straight, "metrics of the resumed run")
    assert t.params(101, "parts")["layers.0.weight"] == t.params(101)["layers.0.weight"]


def test_resumed_runs_are_bit_equal(t):
    t.tokens(3000)
    for ranks, compute in ((1, "bf16"), (2, "fp16")):
        def config(run, fault):
            return t.config(run=dict(dir=t.path(run), steps=12, eval_every=0),
                            model=dict(name="gpt", layers=1, heads=2, width=16, context=16, dropout=0.1),
                            data=dict(path="data.h5", batch=8, grain=2, sequence=16), optimizer=dict(name="adamw", lr=0.003),
                            gradient=dict(clip_norm=0.5), checkpoint=dict(every=4),
                            precision=dict(compute=compute, loss_scale=dict(initial=1024, growth_interval=3)),
                            debug=dict(hash_every=1, inject=inject("inf", 0, 2) + fault))
        keys = ("step", "loss", "grad_norm", "loss_scale", "skipped", "weights_hash")
        t.train(config(f"whole-{compute}", []), ranks=ranks).expect(0)
        r = t.train(config(f"parts-{compute}", inject("exit", 0, 9, where="forward", code=3)), ranks=ranks)
        assert r.rc != 0, r.err
        t.train(config(f"parts-{compute}", []), ranks=ranks).expect(0, "going on")
        equal(t.texts(*keys, run=f"parts-{compute}"), t.texts(*keys, run=f"whole-{compute}"), compute)
        scales = {m["loss_scale"] for m in t.metrics(f"whole-{compute}")}
        assert compute == "bf16" or len(scales) > 2, scales


# --- losses --------------------------------------------------------------------------------------------


def last_losses(t, run):
    return np.mean([m["loss"] for m in t.metrics(run)[-50:]])


def compare_losses(t, **sections):
    steps = sections["run"]["steps"]
    for compute in ("fp32", "bf16", "fp16"):
        sections["run"]["dir"] = t.path(compute)
        t.train(t.config(**sections, precision=dict(compute=compute)), timeout=200).expect(0)
        equal([m["step"] for m in t.metrics(compute)], list(range(1, steps + 1)), "steps")
    want = last_losses(t, "fp32")
    for compute in ("bf16", "fp16"):
        found = last_losses(t, compute)
        assert abs(found - want) <= max(0.01, 0.02 * want), f"{compute}: mean loss {found}, fp32 {want}"
    assert t.metrics("fp16")[-1]["loss_scale"] >= 1024, t.metrics("fp16")[-1]


def test_gpt_learns_as_in_fp32(t):
    t.tokens(4000)
    compare_losses(t, run=dict(steps=150, eval_every=0), model=dict(name="gpt", layers=2, heads=2, width=32, context=32, dropout=0.1),
                   data=dict(path="data.h5", batch=8, sequence=32), optimizer=dict(name="adamw", lr=0.003), gradient=dict(clip_norm=1.0))


def test_resnet_learns_as_in_fp32(t):
    # a third of the labels is noise and no image comes twice: the loss has a floor that chaos moves by less than 1 %
    r = np.random.default_rng(3)
    y = r.integers(0, 4, 3200)
    x = r.integers(0, 80, (3200, 10, 10, 1)) + 40 * y[:, None, None, None]
    y = np.where(r.random(3200) < 0.3, r.integers(0, 4, 3200), y)
    t.data(attrs=dict(classes=4, mean=0.4, scale=0.25), train=dict(images=x.astype("u1"), labels=y.astype("i4")))
    compare_losses(t, run=dict(steps=100, eval_every=0), model=dict(name="resnet", preset="resnet20"),
                   data=dict(path="data.h5", batch=32), optimizer=dict(name="sgd", lr=0.05, momentum=0))


def test_keeping_everything_is_fp32(t):
    t.classes(64, dim=4, classes=3)
    hashes = []
    for i, precision in enumerate((dict(compute="fp32"), dict(compute="tf32"), dict(compute="bf16", keep_fp32=["*"]),
                                   dict(compute="bf16"), dict(compute="bf16", keep_fp32=["layers.0.*"]))):
        r, m = classifier(t, f"run-{i}", precision, debug=dict(hash_every=8))
        r.expect(0)
        hashes.append(m[-1]["weights_hash"])
    assert hashes[0] == hashes[1] == hashes[2] and len(set(hashes[2:])) == 3, hashes
    r = t.train(t.path("run.yaml"), "run.dir=x", "precision.keep_fp32=[nothing*]")
    r.expect(2, "nothing*")


def test_check_compares_a_grain_with_fp32(t):
    t.tokens(3000)
    for ranks in (1, 2):
        for compute, most in (("bf16", 0.1), ("fp16", 0.02)):
            def config(run, **check):
                return t.config(run=dict(dir=t.path(run), steps=6, eval_every=0), model=dict(name="gpt", layers=1, heads=2, width=32, context=16, dropout=0.1),
                                data=dict(path="data.h5", batch=8, grain=2, sequence=16), optimizer=dict(name="adamw", lr=0.003),
                                precision=dict(compute=compute, **check))
            run = f"run-{compute}-{ranks}"
            r = t.train(config(run, check_every=3, check_bound=most), ranks=ranks).expect(0)
            both = r.out + r.err
            equal([both.count(f"precision check at step {s}") for s in (1, 3, 6)], [0, 1, 1], both)
            r = t.train(config(run + "-low", check_every=5, check_bound=1e-7), ranks=ranks)
            r.expect(0, "differs from that in fp32 by", "more than 1e-07", "transformer.h.0.attn.c_attn.weight")
            t.train(config(run + "-none"), ranks=ranks).expect(0)
            keys = ("step", "loss", "grad_norm", "loss_scale")  # the check leaves no trace in the run
            equal(t.texts(*keys, run=run), t.texts(*keys, run=run + "-none"), "metrics")


def test_precision_may_change_at_a_resume(t):
    t.tokens(3000)
    config = t.config(run=dict(steps=4, eval_every=0), data=dict(path="data.h5", batch=8, grain=2), optimizer=dict(name="sgd", lr=0.05),
                      model=dict(name="gpt", layers=1, heads=2, width=16, context=8),
                      precision=dict(loss_scale=dict(initial=512)))
    t.train(config).expect(0)
    t.train(config, "run.steps=6", "precision.compute=fp16").expect(0, "the loss scale is not in the checkpoint")
    t.train(config, "run.steps=8", "precision.compute=fp16").expect(0)
    t.train(config, "run.steps=10", "precision.compute=bf16").expect(0)
    equal([m["loss_scale"] for m in t.metrics()], 4 * [1] + 4 * [512] + 2 * [1], "loss scale")
    # What compression still owes is in units of the loss scale: it cannot do without.
    topk = "gradient.compress={name: topk, level: all, force: true}"
    t.train(config, "run.dir=" + t.path("topk"), "precision.compute=fp16", topk).expect(0)
    t.train(config, "run.dir=" + t.path("topk"), "run.steps=6", topk).expect(2, "units of the loss scale", "precision.compute")
    t.train(config, "run.dir=" + t.path("plain"), topk).expect(0)
    t.train(config, "run.dir=" + t.path("plain"), "run.steps=6", "precision.compute=fp16", topk).expect(2, "units of the loss scale")


run_tests(globals())
