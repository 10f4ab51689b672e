"""Data as users bring it: few samples, many ranks, locks, damaged files, every layout of the contract (cases F01 to F04)."""
import fcntl
import os
import time

from harness import close, equal, h5py, np, run_tests

LINEAR = {"name": "mlp", "hidden": []}
GPT = {"name": "gpt", "layers": 1, "heads": 2, "width": 8, "context": 8}
SECONDS = 10  # in which every rank must have ended after a refusal; one more try where the machine is busy


def still(t, path, *, batch, steps=1, model=None, data=None, **more):
    """A run at rate 0 in file order, so that each loss is that of the initial weights; one sample a grain."""
    return t.config(model=model or LINEAR, data=dict({"path": path, "batch": batch, "grain": 1, "shuffle": False}, **(data or {})),
                    optimizer={"name": "sgd", "lr": 0}, run=dict({"steps": steps}, **more.pop("run", {})), **more)


def constant(t, n):
    """One input 1, targets 0 .. n-1, weight 0 and bias 0: the loss of sample i is i*i."""
    return t.values(np.ones(n), np.arange(n)), t.weights({"layers.0.weight": [[0.0]], "layers.0.bias": [0.0]})


def refused(t, config, ranks, *texts, env=None, more=()):
    """Code 2 within 10 s, one message with these texts, and nothing left in the run folder."""
    for attempt in (1, 2):
        began = time.time()
        r = t.train(config, *more, ranks=ranks, env=env, timeout=60).expect(2, *texts)
        if time.time() - began < SECONDS:
            break
        assert attempt == 1, f"took {time.time() - began:.1f} s"
    assert r.err.count("trireme: ") == 1, f"not one message:\n{r.err}"
    assert not os.path.exists(t.path("run", "metrics.jsonl")), "metrics were started"
    return r


# --- F01: fewer samples than ranks -------------------------------------------------------------------------


def test_f01a_3_samples_on_7_ranks(t):
    path, init = constant(t, 3)
    config = still(t, path, batch=7, steps=2, debug={"log_samples": True})
    t.train(config, f"model.init={init}", ranks=7).expect(0)
    close([m["loss"] for m in t.metrics()], [5 / 3, 5 / 3])
    equal([m["samples"] for m in t.metrics()], [3, 6])
    used = t.lines("run", "samples.jsonl")
    equal(sorted(i for m in used if m["step"] == 1 for i in m["ids"]), [0, 1, 2])


def test_f01b_last_batch_of_2_on_4_ranks(t):
    path, init = constant(t, 10)
    config = still(t, path, batch=4, steps=6, debug={"log_samples": True})
    t.train(config, f"model.init={init}", ranks=4).expect(0)
    close([m["loss"] for m in t.metrics()], 2 * [(0 + 1 + 4 + 9) / 4, (16 + 25 + 36 + 49) / 4, (64 + 81) / 2])
    equal([m["epoch"] for m in t.metrics()], [0, 0, 0, 1, 1, 1])
    last = {m["rank"]: m["ids"] for m in t.lines("run", "samples.jsonl") if m["step"] == 3}
    assert last[0] == [8] and last[1] == [9], last
    assert last.get(2, []) == [] and last.get(3, []) == [], last


def test_f01b_gradient_of_the_last_batch(t):
    """The update of the last batch is that of its two samples: gradient of the bias -2 * mean(target)."""
    path, init = constant(t, 6)
    config = still(t, path, batch=4, steps=2)
    frozen = "optimizer.groups=[{match: 'layers.0.weight', freeze: true}]"
    t.train(config, f"model.init={init}", "optimizer.lr=0.25", "optimizer.momentum=0", frozen, ranks=4).expect(0)
    first = 0.5 * 1.5
    close(t.params(2)["layers.0.bias"], [first - 0.25 * 2 * (first - 4.5)])


def test_f01c_1_sample_batch_8(t):
    path, init = constant(t, 1)
    t.train(still(t, path, batch=8, steps=2), f"model.init={init}").expect(0)
    equal([(m["samples"], m["epoch"]) for m in t.metrics()], [(1, 0), (2, 1)])


def test_f01d_no_samples(t):
    path = t.data(train=dict(x=np.zeros((0, 3), "f4"), y=np.zeros((0, 1), "f4")))
    for ranks in (1, 3):
        refused(t, still(t, path, batch=3), ranks, "no samples", path)


# --- F02: order of the samples over a resume ----------------------------------------------------------------


def order(t, run="run"):
    return [(m["step"], m["epoch"], m["rank"], tuple(m["ids"])) for m in t.lines(run, "samples.jsonl")]


def test_f02_order_over_resume(t):
    path = t.values(np.ones(20), np.zeros(20))
    def run(name, steps, workers):
        config = t.config(model=LINEAR, data={"path": path, "batch": 2, "workers": workers}, debug={"log_samples": True},
                          optimizer={"name": "sgd", "lr": 0}, run={"dir": t.path(name), "steps": 30},
                          checkpoint={"every": steps})
        for upto in (steps, 30):
            t.train(config, f"run.steps={upto}").expect(0)
        return order(t, name)
    straight = run("straight", 30, 0)
    assert len(straight) == 30
    epochs = [[i for s in straight if s[1] == e for i in s[3]] for e in range(3)]
    for e in epochs:
        equal(sorted(e), list(range(20)), "ids of an epoch")
    assert epochs[0] != epochs[1] and epochs[1] != epochs[2] and epochs[0] != list(range(20))
    for stop in (13, 10):  # inside epoch 1, and at the end of epoch 0
        for workers in (0, 2):
            equal(run(f"stopped-{stop}-{workers}", stop, workers), straight, f"stop at {stop}, {workers} workers")


def test_f02_killed_and_resumed_on_2_ranks(t):
    """Killed at step 17 behind the checkpoint of step 13: samples.jsonl is that of the straight run."""
    path = t.values(np.ones(20), np.zeros(20))
    config = t.config(model=LINEAR, data={"path": path, "batch": 2, "workers": 2}, debug={"log_samples": True},
                      optimizer={"name": "sgd", "lr": 0}, run={"steps": 30})
    t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    kill = "debug.inject=[{rank: 1, step: 17, where: backward, what: kill}]"
    assert t.train(config, "checkpoint.every=13", kill, ranks=2).rc != 0
    t.train(config, "checkpoint.every=13", ranks=2).expect(0)
    equal(order(t), order(t, "straight"))
    ids = [set(i for s in order(t) if s[0] == 1 and s[2] == r for i in s[3]) for r in (0, 1)]
    assert not ids[0] & ids[1], "ranks share samples"


# --- F03: locks ---------------------------------------------------------------------------------------------


def small(t, **more):
    path = t.classes(n=32)
    return path, t.config(model=LINEAR, data={"path": path, "batch": 8}, run={"steps": 2}, **more)


def test_f03a_4_ranks_read_one_file(t):
    _, config = small(t)
    r = t.train(config, ranks=4).expect(0)
    assert "lock" not in r.err, r.err


def test_f03b_exclusive_lock_elsewhere(t):
    path, config = small(t)
    with open(path, "r+b") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        fcntl.lockf(f, fcntl.LOCK_EX)
        t.train(config, ranks=2).expect(0, "locked", path)
    assert len(t.metrics()) == 2


NO_LOCKS = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    static int locks(int how) { return how == F_SETLK || how == F_SETLKW || how == F_OFD_SETLK || how == F_OFD_SETLKW; }
    int flock(int fd, int how) { (void)fd; (void)how; errno = ENOTSUP; return -1; }
    #define FCNTL(name)                                                                                \\
        int name(int fd, int how, ...)                                                                 \\
        {                                                                                              \\
            int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, #name);              \\
            va_list list;                                                                              \\
            void *arg;                                                                                 \\
            va_start(list, how);                                                                       \\
            arg = va_arg(list, void *);                                                                \\
            va_end(list);                                                                              \\
            if (locks(how)) {                                                                          \\
                errno = ENOLCK;                                                                        \\
                return -1;                                                                             \\
            }                                                                                          \\
            return real(fd, how, arg);                                                                 \\
        }
    FCNTL(fcntl)
    FCNTL(fcntl64)
"""


def test_f03c_locks_not_supported(t):
    path, config = small(t)
    env = t.preload("nolock", NO_LOCKS)
    t.train(config, ranks=2, env=env).expect(0, path, "without a lock", "gives no locks")
    assert len(t.metrics()) == 2
    t.run("checkpoint", "verify", t.path("run")).expect(0)


OPEN_FAILS = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <stdlib.h>
    #include <string.h>
    #define FAILING(name)                                                                              \\
        int name(const char *path, int flags, ...)                                                     \\
        {                                                                                              \\
            int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \\
            const char *rank = getenv("OMPI_COMM_WORLD_RANK");                                         \\
            va_list list;                                                                              \\
            int mode;                                                                                  \\
            va_start(list, flags);                                                                     \\
            mode = va_arg(list, int);                                                                  \\
            va_end(list);                                                                              \\
            if (rank != NULL && strcmp(rank, "2") == 0 && strstr(path, "data.h5") != NULL) {            \\
                errno = ENOLCK;                                                                        \\
                return -1;                                                                             \\
            }                                                                                          \\
            return real(path, flags, mode);                                                            \\
        }
    FAILING(open)
    FAILING(open64)
"""


def test_f03d_only_rank_2_cannot_read(t):
    path, config = small(t)
    refused(t, config, 4, "rank 2 on", path, "No locks available", env=t.preload("open", OPEN_FAILS))


READ_FAILS = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    int H5Dread(int64_t set, int64_t type, int64_t to, int64_t from, int64_t how, void *out)
    {
        int (*real)(int64_t, int64_t, int64_t, int64_t, int64_t, void *) =
            (int (*)(int64_t, int64_t, int64_t, int64_t, int64_t, void *))dlsym(RTLD_NEXT, "H5Dread");
        int (*class_of)(int64_t) = (int (*)(int64_t))dlsym(RTLD_DEFAULT, "H5Tget_class");
        const char *rank = getenv("OMPI_COMM_WORLD_RANK");
        if (rank != NULL && strcmp(rank, "1") == 0 && class_of(type) == 1) /* floats */
            return -1;
        return real(set, type, to, from, how, out);
    }
"""


def test_f03e_one_rank_cannot_read_in_an_evaluation(t):
    """All ranks end with that rank's message, at once, with predictions and without."""
    part = dict(x=np.ones((8, 3), "f4"), y=np.zeros((8, 1), "f4"))
    config = t.config(model=LINEAR, data={"path": t.data(train=part, validation=part), "batch": 4}, run={"steps": 0})
    t.train(config).expect(0)
    env = t.preload("read", READ_FAILS)
    for more in ((), ("--predictions", t.path("p.h5"))):
        t.run("eval", config, "--checkpoint", t.path("run"), *more, ranks=2, env=env, timeout=60).expect(2, "rank 1 on", "data.h5")
    assert not os.path.exists(t.path("p.h5"))


def test_first_read_fails(t):
    """What the first step would read is found before it: code 2 and nothing left behind."""
    config = t.config(model=LINEAR, data={"path": t.values(range(8), range(8)), "batch": 4}, run={"steps": 2})
    r = t.train(config, ranks=2, env=t.preload("read", READ_FAILS), timeout=60).expect(2, "rank 1 on", "data.h5")
    assert not os.path.exists(t.path("run")), r.err


# --- F04: bad files -----------------------------------------------------------------------------------------


def gpt_config(t, path, name="gpt.yaml", **model):
    return t.config(name, model=dict(GPT, **model), data={"path": path, "batch": 4}, run={"steps": 1})


def bad(t, config, ranks, path, *texts):
    refused(t, config, ranks, path, *texts)


def test_f04_truncated(t):
    for path, config in ((t.tokens(), gpt_config), (t.classes(name="c.h5"), None)):
        os.truncate(path, os.path.getsize(path) - 1024)
        config = gpt_config(t, path) if config else t.config(model=LINEAR, data={"path": path, "batch": 4}, run={"steps": 1})
        for ranks in (1, 2):
            bad(t, config, ranks, path, "truncated")


def test_f04_not_hdf5_or_missing(t):
    with open(t.path("text.h5"), "w") as f:
        f.write("no dataset\n" * 100)
    bad(t, gpt_config(t, t.path("text.h5")), 2, t.path("text.h5"), "cannot open as an HDF5 file")
    bad(t, gpt_config(t, t.path("none.h5")), 2, t.path("none.h5"), "No such file")
    config = t.config(model=LINEAR, data={"batch": 4}, run={"steps": 1})
    refused(t, config, 2, "data.path")


def test_f04_entries(t):
    ids = np.arange(100) % 9
    cases = [
        (dict(other=ids), ["train", "no entry 'tokens'"]),
        (dict(tokens=ids.astype("f4")), ["/train/tokens", "integers"]),
        (dict(tokens=ids.reshape(2, 5, 10)), ["/train/tokens", "integers [N]"]),
        (dict(tokens=ids, targets=ids[:-1]), ["100 rows", "99", "equal"]),
        (dict(x=np.zeros((4, 3), "f4"), y=np.zeros((5, 1), "f4")), ["4 rows", "5", "equal"]),
        (dict(images=np.zeros((4, 8, 8, 1), "f4"), labels=np.zeros(4, "i4")), ["/train/images", "uint8"]),
        (dict(images=np.zeros((4, 8, 8, 1), "u1"), labels=np.zeros(4, "f4")), ["/train/labels", "integers"]),
        (dict(x=np.zeros((4, 3), "i4"), y=np.zeros((4, 1), "f4")), ["/train/x", "floating"]),
    ]
    for sets, texts in cases:
        path = t.data(train=sets)
        bad(t, gpt_config(t, path), 2, path, *texts)
    with h5py.File(t.path("empty.h5"), "w") as f:
        f.attrs["vocab"] = 9
    bad(t, gpt_config(t, t.path("empty.h5")), 2, t.path("empty.h5"), "train")


def test_f04_ids_out_of_range(t):
    for value, text in ((31, "31, must be 0..30"), (-1, "-1, must be 0..30"), (-100, "-100, must be 0..30")):
        ids = np.arange(400) % 31
        ids[123] = value
        path = t.data(attrs=dict(vocab=31), train=dict(tokens=ids))
        for ranks in (1, 2):
            bad(t, gpt_config(t, path), ranks, path, "/train/tokens", "row 123", text)


def test_f04_only_in_the_part_of_rank_2(t):
    """4 ranks scan 400 rows: 200 to 299 are rank 2's."""
    ids = np.arange(400) % 31
    ids[250] = 31
    path = t.data(attrs=dict(vocab=31), train=dict(tokens=ids))
    bad(t, gpt_config(t, path), 4, path, "rank 2 on", "/train/tokens", "row 250 is 31", "0..30")
    with h5py.File(path, "a") as f:
        f["train/tokens"][250] = 3
        f["validation/tokens"] = np.full(400, -7)
    r = refused(t, gpt_config(t, path), 4, path, "/validation/tokens", "is -7")
    assert "rank 0 on" not in r.err, "all ranks fail alike, so none is to be named:\n" + r.err


def test_f04_labels(t):
    def config(labels, count=5):
        attrs = dict(classes=count)
        x = np.zeros((len(labels), 3), "f4")
        path = t.data(attrs=attrs, train=dict(x=x, y=labels))
        return path, t.config(model=LINEAR, data={"path": path, "batch": 4}, run={"steps": 2})
    labels = np.arange(8) % 5
    labels[6] = 5
    path, file = config(labels)
    bad(t, file, 2, path, "/train/y", "row 6 is 5", "0..4")
    labels[6] = -1
    path, file = config(labels)
    bad(t, file, 2, path, "/train/y", "row 6 is -1", "0..4")
    labels[6] = -100  # none
    path, file = config(labels)
    init = t.weights({"layers.0.weight": np.zeros((5, 3)), "layers.0.bias": np.arange(5)})
    t.train(file, "data.shuffle=false", f"model.init={init}", "optimizer.lr=0", ranks=2).expect(0)
    loss = np.log(np.sum(np.exp(np.arange(5)))) - np.arange(5)
    close([m["loss"] for m in t.metrics()], [np.mean(loss[:4]), np.mean(loss[[4, 0, 2]])])


def test_f04_large_ids_do_not_wrap(t):
    ids = np.arange(64) + 69936
    path = t.data(attrs=dict(vocab=70000), train=dict(tokens=ids.astype("u4")))
    t.train(gpt_config(t, path), f"run.dir={t.path('fits')}", ranks=2).expect(0)
    ids[40] = 70000
    path = t.data("over.h5", attrs=dict(vocab=70000), train=dict(tokens=ids.astype("u4")))
    bad(t, gpt_config(t, path), 2, path, "row 40 is 70000", "0..69999")
    ids[40] = 2**32 + 5
    path = t.data("wide.h5", attrs=dict(vocab=70000), train=dict(tokens=ids.astype("i8")))
    bad(t, gpt_config(t, path), 2, path, f"row 40 is {2**32 + 5}", "0..69999")


def test_f04_16_bit_ids_of_a_large_vocabulary(t):
    """Ids that fit train like the same ids in 32 bits."""
    ids = (np.arange(64) * 1000) % 65536
    found = []
    for dtype in ("<u2", "<i4"):
        path = t.data(attrs=dict(vocab=70000), train=dict(tokens=ids.astype(dtype)))
        t.train(gpt_config(t, path), f"run.dir={t.path(dtype[1:])}").expect(0)
        found.append(t.texts("loss", "grad_norm", run=dtype[1:]))
    equal(*found)


def test_command_line(t):
    """Each message says what is missing."""
    cases = [([], "import or info"), (["what"], "'what'"), (["import"], "text, idx or npy"), (["import", "what"], "'what'"),
             (["import", "text", "f"], "'-o' is missing"), (["import", "text", "-o", "o.h5"], "'FILE' is missing"),
             (["import", "text", "f", "-o"], "'-o' needs a value"), (["import", "text", "f", "--bogus"], "'--bogus'"),
             (["import", "text", "f", "--tokenizer", "bpe:256", "-o", "o.h5"], "bpe:N"),
             (["import", "text", "f", "--validation", "1", "-o", "o.h5"], "[0, 1)"),
             (["import", "idx", "-o", "o.h5"], "'--train-images' is missing"), (["import", "npy", "-o", "o.h5"], "'--train-x' is missing"),
             (["info"], "exactly one"), (["info", "a", "b"], "exactly one")]
    for args, text in cases:
        t.run("data", *args).expect(2, "trireme: data", text)
    equal(os.listdir(t.dir), [])
    for args, text in ((["--help"], "data info FILE.h5"), (["import", "--help"], "data info FILE.h5"), (["import", "text", "--help"], "--tokenizer"),
                       (["import", "idx", "-h"], "MNIST"), (["import", "npy", "-h"], "numpy.save"), (["info", "--help"], "data info FILE.h5")):
        t.run("data", *args).expect(0, "usage: trireme data", text)


# --- layouts of the contract --------------------------------------------------------------------------------


def same_losses(t, config, path, variants, attrs=None, run="v"):
    """The same numbers in other storage give the same losses to the last digit. variants: list of (split -> name -> (data, options))."""
    first = None
    for i, variant in enumerate(variants):
        with h5py.File(path, "w") as f:
            for k, v in (attrs or {}).items():
                f.attrs[k] = v
            for name, (data, options) in variant.items():
                f.create_dataset(name, data=data, **options)
        t.train(config, f"run.dir={t.path(f'{run}{i}')}").expect(0)
        found = t.texts("loss", "grad_norm", "samples", "tokens", run=f"{run}{i}")
        first = first or found
        equal(found, first, f"variant {i}")
    return first


def test_tokens_in_every_storage(t):
    ids = (np.arange(300) * 7) % 120
    gzip = dict(chunks=(64,), compression="gzip", shuffle=True)
    types = [("<i4", {}), (">i4", {}), ("u1", {}), ("<u2", {}), (">u2", gzip), ("<i8", gzip), (">u8", {})]
    config = t.config(model=GPT, data={"path": t.path("t.h5"), "batch": 4}, run={"steps": 3})
    same_losses(t, config, t.path("t.h5"), [{"train/tokens": (ids.astype(d), o)} for d, o in types], dict(vocab=np.uint16(120)))


def test_targets_beside_tokens(t):
    """Shifted targets in a column of their own: the same loss as implicit ones; -100 leaves positions out."""
    ids = (np.arange(81) * 7) % 20  # 80 targets: 10 samples of 8
    config = t.config(model=GPT, data={"path": t.path("t.h5"), "batch": 5}, run={"steps": 3})
    variants = [{"train/tokens": (ids, {})}, {"train/tokens": (ids[:-1], {}), "train/targets": (ids[1:].astype(">i8"), {})}]
    same_losses(t, config, t.path("t.h5"), variants, dict(vocab=20))
    targets = np.full(80, -100)
    targets[::8] = 3
    with h5py.File(t.path("t.h5"), "w") as f:
        f.attrs["vocab"] = 20
        f["train/tokens"], f["train/targets"] = ids[:-1], targets
    t.train(config, f"run.dir={t.path('few')}").expect(0)
    equal([m["samples"] for m in t.metrics("few")], [5, 10, 15])
    assert 2 < t.metrics("few")[0]["loss"] < 4, "mean over the ten targets only: about log 20"


def test_tail_of_tokens(t):
    """ceil((N-1)/T) samples, the short tail padded without weight."""
    path = t.data(attrs=dict(vocab=9), train=dict(tokens=np.arange(19) % 9))
    t.train(t.config(model=GPT, data={"path": path, "batch": 2, "shuffle": False}, run={"steps": 2})).expect(0)
    equal([(m["samples"], m["tokens"]) for m in t.metrics()], [(2, 16), (3, 18)])


def test_images_in_every_storage(t):
    r = np.random.default_rng(3)
    x = r.integers(0, 256, (8, 6, 5), dtype="u1")
    y = np.arange(8) % 3
    config = t.config(model={"name": "mlp", "hidden": [4]}, data={"path": t.path("i.h5"), "batch": 4}, run={"steps": 3})
    gzip = dict(chunks=(3, 6, 5), compression="gzip")
    variants = [{"train/images": (x, {}), "train/labels": (y.astype("<i4"), {})},
                {"train/images": (x, gzip), "train/labels": (y.astype(">i2"), {})},
                {"train/images": (x[..., None], {}), "train/labels": (y.astype("u1"), {})}]
    losses = [same_losses(t, config, t.path("i.h5"), variants, dict(mean=mean, scale=scale), run)
              for run, mean, scale in (("scalar", 0.5, 0.25), ("vector", [0.5], np.array([0.25], ">f4")))]
    equal(losses[0], losses[1], "mean and scale as scalars and vectors")
    # Values are (u8 / 255 - mean) / scale: a linear model with given weights tells.
    path = t.data(attrs=dict(classes=2, mean=0.5, scale=0.25), train=dict(images=x[:1, :1, :1], labels=[0]))
    init = t.weights({"layers.0.weight": [[1.0], [0.0]], "layers.0.bias": [0.0, 0.0]})
    config = t.config(model=LINEAR, data={"path": path, "batch": 1}, run={"steps": 1, "dir": t.path("one")})
    t.train(config, f"model.init={init}").expect(0)
    value = (x[0, 0, 0] / 255 - 0.5) / 0.25
    close(t.metrics("one")[0]["loss"], np.log(1 + np.exp(-value)), 1e-6)


def test_mean_and_scale_of_each_channel(t):
    x = np.zeros((1, 1, 1, 3), "u1")
    x[..., :] = (51, 102, 255)
    mean, scale = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.25, 2.0])
    path = t.data(attrs=dict(mean=mean, scale=scale, classes=2), train=dict(images=x, labels=[0]))
    init = t.weights({"layers.0.weight": [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], "layers.0.bias": [0.0, 0.0]})
    config = t.config(model=LINEAR, data={"path": path, "batch": 1}, run={"steps": 1})
    t.train(config, f"model.init={init}").expect(0)
    logit = np.sum((x.ravel() / 255 - mean) / scale * [1, 2, 3])
    close(t.metrics()[0]["loss"], np.log(1 + np.exp(-logit)), 1e-6)
    with h5py.File(path, "a") as f:
        f.attrs["mean"] = [0.1, 0.2]
    t.train(config, "run.dir=other", ranks=2).expect(2, "mean", "2 values", "3 channels")


def test_values_of_any_shape_and_type(t):
    r = np.random.default_rng(5)
    x, y = r.normal(size=(8, 2, 3)).astype("f4"), r.normal(size=(8, 2)).astype("f4")
    config = t.config(model=LINEAR, data={"path": t.path("v.h5"), "batch": 4}, run={"steps": 3})
    variants = [{"train/x": (x, {}), "train/y": (y, {})}, {"train/x": (x.reshape(8, 6).astype(">f8"), {}), "train/y": (y.astype("<f8"), {})},
                {"train/x": (x, dict(chunks=(3, 2, 3), compression="gzip")), "train/y": (y.astype(">f4"), {})}]
    same_losses(t, config, t.path("v.h5"), variants)
    variants = [{"train/x": (x, {}), "train/y": (np.arange(8).astype(d) % 3, {})} for d in ("u1", ">i4", "<i8")]
    same_losses(t, config, t.path("v.h5"), variants, run="classes")


def test_several_files(t):
    """data.path as a list: samples of the files follow one another."""
    x, y = np.ones(10), np.arange(10)
    whole, init = constant(t, 10)
    parts = [t.values(x[a:b], y[a:b], f"part{a}.h5") for a, b in ((0, 3), (3, 10))]
    found = []
    for name, path in (("whole", whole), ("parts", parts)):
        t.train(still(t, path, batch=4, steps=3, run={"dir": t.path(name)}), f"model.init={init}", ranks=2).expect(0)
        found.append(t.texts("loss", "samples", run=name))
    equal(found[1], found[0])
    tokens = [t.data(f"t{i}.h5", attrs=dict(vocab=9), train=dict(tokens=(np.arange(40) + i) % 9)) for i in range(2)]
    t.train(gpt_config(t, tokens), "run.dir=tokens", "data.shuffle=false", ranks=2).expect(0)
    equal([m["tokens"] for m in t.metrics("tokens")], [32])
    other = t.data("other.h5", attrs=dict(vocab=10), train=dict(tokens=np.arange(40) % 9))
    refused(t, gpt_config(t, [tokens[0], other]), 2, other, "vocab", "10", "9")
    refused(t, gpt_config(t, [tokens[0], parts[0]]), 2, parts[0], "'x'", "'tokens'")


run_tests(globals())
