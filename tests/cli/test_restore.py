"""precision.check_action: restore. Runs that go back to a checkpoint with layers in fp32, beside runs that were told so."""
import json

from harness import equal, run_tests

KEYS = ("step", "updates", "loss", "grad_norm", "lr", "loss_scale", "skipped", "samples", "tokens", "weights_hash")
RESTORE = dict(check_every=3, check_bound=1e-7, check_action="restore")
BACK = "precision check at step 3: keeping"


def gpt(t, run, precision, fault=(), checkpoint=None, **more):
    """A configuration of ten steps with dropout; the data is tokens(3000)."""
    return t.config(name=run + ".yaml", run=dict(dir=t.path(run), steps=10, eval_every=5),
                    model=dict(name="gpt", layers=1, heads=2, width=16, context=16, dropout=0.1),
                    data=dict(path="data.h5", batch=8, grain=2, sequence=16), optimizer=dict(name="adamw", lr=0.003),
                    checkpoint=checkpoint or dict(every=2, keep=30), precision=precision,
                    debug=dict(hash_every=1, log_samples=True, inject=list(fault)), **more)


def manifest(t, run, step):
    with open(t.path(run, "checkpoints", f"step-{step:08d}", "manifest.json")) as f:
        return json.load(f)


def kept(t, run, step):
    return manifest(t, run, step)["match"].get("kept_fp32", "").split()


def once(r):
    assert (r.out + r.err).count("and going on from step") == 1, r.err
    return r


def same(t, run, whole):
    equal(t.texts(*KEYS, run=run), t.texts(*KEYS, run=whole), f"metrics of {run}")
    equal(t.lines(run, "samples.jsonl"), t.lines(whole, "samples.jsonl"), f"samples of {run}")


def test_goes_on_as_a_run_with_these_layers_kept(t):
    t.tokens(3000)
    for compute, how in (("bf16", dict(every=2, keep=30)), ("fp16", {"every": 2, "keep": 30, "async": True})):
        scale = dict(initial=1024, growth_interval=2)
        precision = dict(compute=compute, loss_scale=scale)
        r = t.train(gpt(t, compute, dict(precision, **RESTORE), checkpoint=how), ranks=2)
        once(r.expect(0, BACK, "going on from step 2 (", "step-00000002"))
        assert "is in fp32 already" in r.err, r.err  # at steps 6 and 9: told, and no way back
        names = kept(t, compute, 4)
        assert kept(t, compute, 2) == [] and "transformer.h.0.attn.c_attn.weight" in names, names
        equal([m["step"] for m in t.metrics(compute)], list(range(1, 11)), "steps")
        equal([m["step"] for m in t.evals(compute)], [5, 10], "evaluations")
        by_hand = compute + "-hand"
        t.train(gpt(t, by_hand, precision), "run.steps=2", "run.eval_every=0", ranks=2).expect(0)
        t.train(gpt(t, by_hand, dict(precision, keep_fp32=names)), ranks=2).expect(0, "going on from")
        same(t, compute, by_hand)
        t.run("checkpoint", "show", t.path(compute)).expect(0, "moved to fp32", names[0])
        out = t.run("eval", t.path(compute + ".yaml"), "--checkpoint", t.path(compute), ranks=2).expect(0).out
        equal([json.loads(out)["eval"]], [t.evals(compute)[-1]["eval"]], "evaluation of the checkpoint")


def test_a_resumed_run_keeps_them(t):
    t.tokens(3000)
    precision = dict(compute="fp16", loss_scale=dict(initial=1024, growth_interval=2), **RESTORE)
    kill = dict(rank=1, step=8, where="forward", what="exit", code=3)
    for name, ranks, more in (("same", 2, []), ("other", 1, ["run.deterministic=true"])):
        once(t.train(gpt(t, name, precision), *more, ranks=2).expect(0, BACK))
        assert t.train(gpt(t, name + "-parts", precision, [kill]), *more, ranks=2).rc != 0
        r = t.train(gpt(t, name + "-parts", precision), *more, ranks=ranks).expect(0, "going on from")
        assert "keeping" not in r.err and "is in fp32 already" in r.err, r.err
        equal(t.texts("step", "loss", "loss_scale", "weights_hash", run=name + "-parts"),
              t.texts("step", "loss", "loss_scale", "weights_hash", run=name), name)
        equal(kept(t, name + "-parts", 10), kept(t, name, 10), "names")


def test_compression_goes_back_too(t):
    # Residuals by rank, momentum inside the compression, and a warm-up whose stages are programs of their own.
    t.tokens(3000)
    gradient = dict(clip_norm=1.0, compress=dict(name="topk", ratio=0.1, level="all", force=True, warmup=6))
    sgd = dict(optimizer=dict(name="sgd", lr=0.05))
    precision = dict(compute="fp16", loss_scale=dict(initial=512))

    def config(run, **check):
        path = gpt(t, run, dict(precision, **check), gradient=gradient)
        with open(path) as f:
            c = json.load(f)
        with open(path, "w") as f:
            json.dump(dict(c, **sgd), f)
        return path

    once(t.train(config("run", **RESTORE), ranks=2).expect(0, BACK))
    t.train(config("hand"), "run.steps=2", "run.eval_every=0", ranks=2).expect(0)
    t.train(config("hand", keep_fp32=kept(t, "run", 4)), ranks=2).expect(0)
    same(t, "run", "hand")


def test_without_a_checkpoint_from_the_start(t):
    t.tokens(3000)
    r = t.train(gpt(t, "first", dict(compute="bf16", **RESTORE), checkpoint=dict(every=0)), ranks=2)
    once(r.expect(0, BACK, "going on from step 0", "no checkpoint"))
    names = kept(t, "first", 10)
    t.train(gpt(t, "hand", dict(compute="bf16", keep_fp32=names)), ranks=2).expect(0)
    same(t, "first", "hand")
    # A run that starts from weights starts from them again.
    t.train(gpt(t, "init", dict(compute="bf16"), checkpoint=dict(every=0)), "run.steps=1", "run.eval_every=0").expect(0)
    start = "model.init=" + t.path("init", "checkpoints", "step-00000001", "model.h5")
    once(t.train(gpt(t, "weights", dict(compute="bf16", **RESTORE), checkpoint=dict(every=0)), start, ranks=2).expect(0, BACK))
    t.train(gpt(t, "weights-hand", dict(compute="bf16", keep_fp32=names)), start, ranks=2).expect(0)
    same(t, "weights", "weights-hand")


def test_back_to_where_it_was_resumed(t):
    # The folder holds later steps, but the run was sent behind them: they are not its past.
    t.tokens(3000)
    t.train(gpt(t, "run", dict(compute="bf16")), "run.steps=8").expect(0)
    two = "run.resume=" + t.path("run", "checkpoints", "step-00000002")
    r = t.train(gpt(t, "run", dict(compute="bf16", **RESTORE)), two, "checkpoint.every=0", ranks=1)
    once(r.expect(0, BACK, "going on from step 2 ("))
    equal([m["step"] for m in t.metrics()], list(range(1, 11)), "steps")


def test_what_is_kept_only_warns(t):
    # All layers are kept by hand; loss and attention, which have no parameters, stay in 16 bit and differ.
    t.tokens(3000)
    r = t.train(gpt(t, "run", dict(compute="bf16", keep_fp32=["transformer.*"], **RESTORE)), ranks=2).expect(0, "differs")
    both = r.out + r.err
    assert "and going on" not in both and "keeping" not in both, both
    r = t.train(gpt(t, "warn", dict(compute="bf16", check_every=3, check_bound=1e-7)), ranks=2).expect(0, "differs")
    assert "and going on" not in r.err, r.err


def test_an_overflow_is_left_to_the_loss_scale(t):
    t.tokens(3000)
    precision = dict(compute="fp16", loss_scale=dict(initial=1e30), check_every=1, check_bound=0.5, check_action="restore")
    r = t.train(gpt(t, "run", precision), ranks=2).expect(0, "left to the loss scale")
    assert "and going on" not in r.err, r.err


def test_one_layer_at_a_time(t):
    # A bound between the layers' differences: some stay in 16 bit.
    t.tokens(3000)
    precision = dict(compute="bf16", **dict(RESTORE, check_bound=0.006))
    r = t.train(gpt(t, "run", precision), ranks=2).expect(0, BACK)
    names = kept(t, "run", 10)
    assert "transformer.ln_f.weight" not in names and names, r.err
    assert len(set(names)) == len(names), names


run_tests(globals())
