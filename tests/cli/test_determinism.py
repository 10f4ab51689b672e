"""run.deterministic: 1, 2, 4 and 8 ranks give the same text of loss, norm and hash; repeats and resumes too."""
import json

import numpy as np

from harness import close, equal, run_tests

KEYS = ("step", "updates", "loss", "grad_norm", "lr", "weights_hash")


def mlp(t):
    t.classes(n=75, dim=10)  # batches of 32, 32 and 11
    return dict(model=dict(name="mlp", hidden=[16, 12]), data=dict(path="data.h5", batch=32),
                optimizer=dict(name="sgd", lr=0.1, nesterov=True, weight_decay=0.01))


def resnet(t):
    t.images(n=38)  # batches of 16, 16 and 6: with grains of 2 some ranks hold no sample of the last
    return dict(model=dict(name="resnet", preset="resnet20", width=4), data=dict(path="data.h5", batch=16, augment=True),
                optimizer=dict(name="sgd", lr=0.05, momentum=0.9), schedule=dict(name="cosine", warmup=2, final=0.1))


def gpt(t):
    t.tokens(n=16 * 19 + 5, vocab=23)  # 20 samples, the last with a short tail: batches of 8, 8 and 4
    return dict(model=dict(name="gpt", layers=2, heads=2, width=16, context=16, dropout=0.2), data=dict(path="data.h5", batch=8),
                optimizer=dict(name="adamw", lr=0.01), gradient=dict(clip_norm=0.5))


def train(t, base, name, ranks, *more, rc=0, steps=7, exact=True, texts=(), **debug):
    debug.setdefault("hash_every", 1)
    config = t.config(run=dict(dir=t.path(name), steps=steps, deterministic=exact, eval_every=3, threads=1),
                      checkpoint=dict(every=2, keep=9), debug=debug, **base)
    r = t.train(config, *more, ranks=ranks).expect(rc, *texts)
    return t.texts(*KEYS, run=name) if rc == 0 else r


def same_on_all(t, base, several=(2, 4, 8)):
    want = train(t, base, "run-1", 1)
    assert len(want) == 7 + 3 and len(t.evals("run-1")) == 3, want  # evaluated after 3, 6 and 7
    assert len({m["weights_hash"] for m in t.metrics("run-1")}) == 7, "the weights do not move"
    for ranks in several:
        equal(train(t, base, f"run-{ranks}", ranks), want, f"{ranks} ranks")


def test_mlp_on_1_2_4_8_ranks(t):
    same_on_all(t, mlp(t))


def test_resnet_on_1_2_4_8_ranks(t):
    same_on_all(t, resnet(t))


def test_gpt_with_dropout_on_1_2_4_8_ranks(t):
    same_on_all(t, gpt(t))


def test_checkpoints_hold_the_same_bits(t):
    base = gpt(t)
    for ranks in (1, 4):
        train(t, base, f"run-{ranks}", ranks)
    with t.checkpoint(6, "run-1") as a, t.checkpoint(6, "run-4") as b:
        names = []
        a.visititems(lambda k, v: names.append(k) if hasattr(v, "shape") else None)
        assert len(names) > 60, names
        for name in names:
            assert a[name][...].tobytes() == b[name][...].tobytes(), f"{name} differs"
    diff = [t.path(f"run-{r}", "checkpoints", "step-00000006") for r in (1, 4)]
    t.run("checkpoint", "diff", *diff).expect(0)


def test_evaluation_is_the_same_on_all_ranks(t):
    for make in (gpt, resnet):
        base = make(t)
        name = base["model"]["name"]
        train(t, base, name, 1)
        want = json.dumps(t.evals(name)[-1]["eval"])
        config = t.config(run=dict(dir=t.path("unused"), steps=7, deterministic=True, threads=1), **base)
        for ranks in (1, 2, 8):
            r = t.run("eval", config, "--checkpoint", t.path(name), ranks=ranks).expect(0)
            printed, = [json.loads(line) for line in r.out.splitlines() if line.startswith("{")]
            assert json.dumps(printed["eval"]) == want, f"{name} on {ranks} ranks: {printed}, in training {want}"


def test_overlap_and_buckets_do_not_matter(t):
    base = gpt(t)
    want = train(t, base, "run", 1)
    base["gradient"] = dict(clip_norm=0.5, overlap=False, bucket_bytes=300)
    equal(train(t, base, "off", 4), want, "4 ranks without overlap")
    base["gradient"] = dict(clip_norm=0.5, bucket_bytes=5000)
    equal(train(t, base, "small", 2), want, "2 ranks with small buckets")


def test_two_threads_on_1_and_2_ranks(t):
    for make in (gpt, resnet):
        base = make(t)
        name = base["model"]["name"]
        want = train(t, base, f"{name}-1", 1, "run.threads=2")
        equal(train(t, base, f"{name}-2", 2, "run.threads=2"), want, f"{name} on 2 ranks of 2 threads")


def test_dropout_is_keyed_by_sample(t):
    base = gpt(t)
    t.data(attrs=dict(vocab=23), train=dict(tokens=np.tile(np.arange(16, dtype="i4"), 4)[:33]))  # two equal samples
    base["optimizer"] = dict(name="sgd", lr=0)
    base["model"]["dropout"] = 0.5
    loss = {}
    for batch, grain in ((1, 1), (2, 1), (2, 2)):
        base["data"].update(batch=batch, grain=grain, shuffle=False)
        train(t, base, f"run-{batch}-{grain}", 1, "run.eval_every=0", steps=2)
        loss[batch, grain] = [m["loss"] for m in t.metrics(f"run-{batch}-{grain}")]
    close(loss[2, 1], loss[2, 2], 1e-6)  # however the batch is cut
    assert abs(loss[2, 1][0] - loss[1, 1][0]) > 1e-4, f"both samples have the same mask: {loss}"
    assert abs(loss[2, 1][0] - loss[2, 1][1]) > 1e-4, f"both steps have the same masks: {loss}"


def test_grain_by_hand(t):
    base = mlp(t)
    base["data"]["grain"] = 8
    want = train(t, base, "run-1", 1)
    for ranks in (2, 4):
        equal(train(t, base, f"run-{ranks}", ranks), want, f"{ranks} ranks")
    train(t, base, "run-8", 8, rc=2, texts=["4 grains", "8 data ranks"])


def test_repeats_are_equal_without_deterministic(t):
    for name, make in (("gpt", gpt), ("resnet", resnet)):
        base = make(t)
        for ranks in (1, 2, 3) if name == "gpt" else (2,):
            if ranks == 3:
                base["data"]["batch"] = 9
            want = train(t, base, f"{name}-{ranks}-a", ranks, exact=False)
            equal(train(t, base, f"{name}-{ranks}-b", ranks, exact=False), want, f"{name} on {ranks} ranks")


def steps_only(texts):
    """Without evaluations: each run evaluates at its own last step, too."""
    return [s for s in texts if not s.startswith("{")]


def test_resume_on_other_ranks_leaves_no_trace(t):
    for make in (gpt, resnet):
        base = make(t)
        name = base["model"]["name"]
        want = steps_only(train(t, base, f"straight-{name}", 1, "schedule.name=constant"))
        for last, ranks in ((2, 4), (4, 1), (5, 8), (7, 2)):
            train(t, base, f"hops-{name}", ranks, "schedule.name=constant", steps=last)
        equal(steps_only(t.texts(*KEYS, run=f"hops-{name}")), want, name)
        t.run("checkpoint", "diff", *[t.path(f"{d}-{name}", "checkpoints", "latest") for d in ("straight", "hops")]).expect(0)


def test_resume_keeps_the_grain(t):
    base = gpt(t)
    train(t, base, "straight", 2, exact=False)
    train(t, base, "run", 2, exact=False, steps=4)
    train(t, base, "run", 4, exact=False, rc=2, texts=["2 grains", "4 data ranks"])
    train(t, base, "run", 1, exact=False)
    for key in ("loss", "grad_norm"):
        close([m[key] for m in t.metrics("run")], [m[key] for m in t.metrics("straight")], 1e-5)
    with open(t.path("run", "config.yaml")) as f:
        assert "grain: 4" in f.read()


def test_h04_flipped_bit_on_one_rank_is_named(t):
    base = mlp(t)
    for ranks, rank, named in ((4, 2, ["rank 2"]), (2, 1, ["rank 0, 1"])):
        flip = [dict(rank=rank, step=3, where="update", what="flip", parameter="layers.1.weight", index=5, bit=0)]
        r = train(t, base, f"run-{ranks}", ranks, rc=1, texts=named + ["layers.1.weight"], inject=flip, hash_every=2)
        m = t.metrics(f"run-{ranks}")
        assert m[-1]["step"] == 3, f"found at step {m[-1]['step'] + 1}, the first check behind the flip is that of step 4"
        assert (r.out + r.err).count("layers.1.weight") == 1, r.err
        # the checkpoint of step 2 is whole; the run goes on from there
        train(t, base, f"run-{ranks}", ranks)


def test_ranks_must_be_a_power_of_two(t):
    base = mlp(t)
    train(t, base, "run", 3, rc=2, texts=["power of two", "3"])
    base["data"]["batch"] = 12
    train(t, base, "run", 8, rc=2, texts=["4 grains", "8 data ranks"])


run_tests(globals())
