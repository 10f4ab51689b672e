"""Checkpoints under kills, full disks and damage, and runs that go on from them (cases G01, G02, G03, G05, G07)."""
import os
import random
import re
import shutil
import signal
import subprocess
import time

from harness import Skip, children, equal, h5py, np, run_tests, wait_for

KEYS = ("step", "updates", "epoch", "loss", "grad_norm", "lr", "skipped", "samples", "tokens")


def step_dir(t, step, run="run"):
    return t.path(run, "checkpoints", f"step-{step:08d}")


def steps(t, run="run"):
    """Steps of the checkpoints of a run; everything else in the folder must be a link."""
    names = os.listdir(t.path(run, "checkpoints"))
    links = {"latest", "best"}
    assert all(n in links or re.fullmatch(r"step-\d{8}", n) for n in names), f"left behind: {names}"
    return sorted(int(n[5:]) for n in names if n not in links)


def link(t, name, run="run"):
    return os.readlink(t.path(run, "checkpoints", name))


def mlp(t, steps=10, every=5, name="run.yaml", data=None, hidden=(8,), **more):
    path = t.path("data.h5") if os.path.exists(t.path("data.h5")) else t.classes(n=64)
    return t.config(name, model={"name": "mlp", "hidden": list(hidden)}, data=dict({"path": path, "batch": 8, "grain": 4}, **(data or {})),
                    optimizer=dict({"name": "sgd", "momentum": 0.9}, **more.pop("optimizer", {})),
                    run=dict({"steps": steps}, **more.pop("run", {})),
                    checkpoint=dict({"every": every, "keep": 100}, **more.pop("checkpoint", {})), **more)


def fault(step, rank=0, where="checkpoint", what="kill", **more):
    rest = "".join(f", {k}: {v}" for k, v in more.items())
    return f"debug.inject=[{{rank: {rank}, step: {step}, where: {where}, what: {what}{rest}}}]"


def same_run(t, run, straight="straight", step=20):
    """Every step's numbers as text, and the last checkpoint to the bit."""
    equal(t.texts(*KEYS, run=run), t.texts(*KEYS, run=straight), run)
    t.run("checkpoint", "diff", step_dir(t, step, run), step_dir(t, step, straight)).expect(0, "equal")
    with open(os.path.join(step_dir(t, step, run), "model.h5"), "rb") as a, \
            open(os.path.join(step_dir(t, step, straight), "model.h5"), "rb") as b:
        assert a.read() == b.read(), "model.h5 differs"


# --- G07: stopped runs equal straight ones ------------------------------------------------------------------


def text_model(t, **more):
    """2 ranks with 2 grains each, dropout, clipping that bites, warm-up, evaluations."""
    t.tokens(n=900)
    return t.config(model={"name": "gpt", "layers": 1, "heads": 2, "width": 16, "context": 8, "dropout": 0.1},
                    data={"path": t.path("data.h5"), "batch": 8, "grain": 2}, optimizer={"name": "adamw", "lr": 0.01},
                    gradient={"clip_norm": 0.5}, run={"steps": 20, "deterministic": True, "eval_every": 5},
                    checkpoint={"keep": 100, "best": "loss"}, **more)


def test_g07_stopped_by_their_length(t):
    config = text_model(t, schedule={"name": "step", "warmup": 3, "milestones": [9, 15], "gamma": 0.5})
    t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    assert min(m["grad_norm"] for m in t.metrics("straight")) > 0.5, "clipping never bites"
    for name, ends in (("two", (10, 20)), ("three", (7, 13, 20))):
        for end in ends:
            # The last step of a run is evaluated; eval_every 1 would be another run.
            t.train(config, f"run.dir={t.path(name)}", f"run.steps={end}", ranks=2).expect(0)
        evals = {m["step"] for m in t.evals("straight")}
        lines = [x for x in t.lines(name, "metrics.jsonl") if "eval" not in x or x["step"] in evals]
        straight = t.lines("straight", "metrics.jsonl")
        for key in KEYS:
            equal([m[key] for m in lines if "eval" not in m], [m[key] for m in straight if "eval" not in m], f"{name}: {key}")
        equal([m for m in lines if "eval" in m], [m for m in straight if "eval" in m], name)
        with open(os.path.join(step_dir(t, 20, name), "model.h5"), "rb") as a, \
                open(os.path.join(step_dir(t, 20, "straight"), "model.h5"), "rb") as b:
            assert a.read() == b.read(), "model.h5 differs"


def test_g07_killed_inside(t):
    """Cosine over the whole length; a rank dies in step 14, then the same command goes on from step 10."""
    config = text_model(t, schedule={"name": "cosine", "warmup": 3})
    every = "checkpoint.every=5"
    t.train(config, every, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    assert t.train(config, every, fault(14, rank=1, where="backward"), ranks=2).rc == 137
    t.train(config, every, ranks=2).expect(0, "going on from", "step-00000010")
    same_run(t, "run")


def test_g07_killed_from_outside(t):
    config = text_model(t, schedule={"name": "linear", "warmup": 3, "final": 0.1})
    every = "checkpoint.every=5"
    t.train(config, every, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    p = t.start(config, every, fault(13, where="forward", what="sleep", ms=60000), ranks=2)
    wait_for(lambda: os.path.exists(step_dir(t, 10)) and len(t.metrics()) >= 12 or p.poll() is not None, "step 12")
    assert p.poll() is None
    ranks = children(p.pid)
    assert len(ranks) == 2, ranks
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    assert p.wait(20) != 0
    t.train(config, every, ranks=2).expect(0)
    same_run(t, "run")


# --- G01: killed while saving -------------------------------------------------------------------------------


def test_g01_killed_in_the_save(t):
    config = mlp(t, steps=20, every=10)
    t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    for rank in (0, 1):
        run = f"rank{rank}"
        assert t.train(config, fault(20, rank=rank), f"run.dir={t.path(run)}", ranks=2).rc == 137
        t.run("checkpoint", "verify", t.path(run)).expect(0, "step 10")
        t.train(config, f"run.dir={t.path(run)}", ranks=2).expect(0, "step-00000010")
        equal(steps(t, run), [10, 20])
        same_run(t, run)


def kill_often(t, config, ranks, times, longest):
    """Kills at random moments of a run that saves every step, until it has been killed often enough; then lets it end."""
    random.seed(7)
    killed = 0
    while killed < times:
        p = t.start(config, ranks=ranks)
        last = max(steps_of(t), default=-1)
        wait_for(lambda: max(steps_of(t), default=-1) > last or p.poll() is not None, "a checkpoint")
        time.sleep(random.uniform(0, longest))
        if p.poll() is not None:
            break
        for pid in children(p.pid) if ranks else [p.pid]:
            os.kill(pid, signal.SIGKILL)
        p.wait(20)
        killed += 1
        r = t.run("checkpoint", "list", t.path("run")).expect(0)
        assert "damaged" not in r.out, r.out
    t.train(config, ranks=ranks).expect(0)
    assert killed >= times // 2, f"the run was over after {killed} kills"


def steps_of(t):
    folder = t.path("run", "checkpoints")
    return [int(n[5:]) for n in os.listdir(folder) if n.startswith("step-")] if os.path.isdir(folder) else []


def test_g01_killed_20_times(t):
    config = mlp(t, steps=300, every=1, checkpoint={"keep": 2})
    t.train(config, f"run.dir={t.path('straight')}", "checkpoint.every=0", ranks=0).expect(0)
    kill_often(t, config, 0, 20, 0.05)
    equal(steps(t), [299, 300])
    same_run(t, "run", step=300)


def test_g01_killed_on_2_ranks(t):
    config = mlp(t, steps=200, every=1, checkpoint={"keep": 2})
    t.train(config, f"run.dir={t.path('straight')}", "checkpoint.every=0", ranks=2).expect(0)
    kill_often(t, config, 2, 4, 0.1)
    same_run(t, "run", step=200)


# --- G02: no space, errors of a disk ------------------------------------------------------------------------


def test_g02_disk_full(t):
    """Space is short by different amounts, so that another part of the save meets the end each time."""
    os.makedirs(t.path("disk"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", t.path("disk")], capture_output=True).returncode != 0:
        raise Skip("a tmpfs cannot be mounted here")
    try:
        config = mlp(t, steps=20, every=10, hidden=(1000,), run={"dir": t.path("disk", "run"), "eval_every": 0})
        t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
        for short in (0, 60, 130, 160):  # KiB that are free for step 20, which takes 168
            shutil.rmtree(t.path("disk", "run"), ignore_errors=True)
            t.train(config, "run.steps=10", ranks=2).expect(0)
            free = os.statvfs(t.path("disk"))
            with open(t.path("disk", "filler"), "wb") as f:
                f.write(bytes(free.f_bavail * free.f_bsize - short * 1024))
            r = t.train(config, ranks=2, timeout=30).expect(1, "No space left on device", t.path("disk", "run"))
            assert r.err.count("trireme: ") == 1, r.err
            t.run("checkpoint", "verify", t.path("disk", "run")).expect(0, "step 10")
            equal(steps(t, "disk/run"), [10])
            os.unlink(t.path("disk", "filler"))
            t.train(config, ranks=2).expect(0)
            same_run(t, "disk/run")
    finally:
        subprocess.run(["umount", "-l", t.path("disk")])


FAILING_DISK = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static int hit(int fd)
    {
        const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *bad = getenv("BAD_RANK");
        char link[64], path[4096];
        ssize_t n;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, path, sizeof path - 1);
        if (n < 0 || rank == NULL || bad == NULL || strcmp(rank, bad) != 0)
            return 0;
        path[n] = 0;
        return strstr(path, "step-00000010/model.h5") != NULL;
    }
    #define WRITE(name)                                                                                \\
        ssize_t name(int fd, const void *buf, size_t count, off_t at)                                  \\
        {                                                                                              \\
            ssize_t (*real)(int, const void *, size_t, off_t) =                                        \\
                (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, #name);                \\
            if (getenv("BAD_WRITE") != NULL && hit(fd)) {                                              \\
                errno = EDQUOT;                                                                        \\
                return -1;                                                                             \\
            }                                                                                          \\
            return real(fd, buf, count, at);                                                           \\
        }
    WRITE(pwrite)
    WRITE(pwrite64)
    #define SYNC(name)                                                                                 \\
        int name(int fd)                                                                               \\
        {                                                                                              \\
            int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, #name);                                  \\
            if (getenv("BAD_WRITE") == NULL && hit(fd)) {                                              \\
                errno = EIO;                                                                           \\
                return -1;                                                                             \\
            }                                                                                          \\
            return real(fd);                                                                           \\
        }
    SYNC(fsync)
    SYNC(fdatasync)
"""


def test_g02_one_rank_cannot_write(t):
    """Also G05 c: all ranks learn of it, and nothing half-made stays."""
    config = mlp(t, steps=12, every=5)
    env = t.preload("disk", FAILING_DISK)
    t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    for rank, how, text in ((1, {"BAD_WRITE": "1"}, "Disk quota exceeded"), (0, {"BAD_WRITE": "1"}, "Disk quota exceeded"),
                            (1, {}, "Input/output error")):
        shutil.rmtree(t.path("run"), ignore_errors=True)
        r = t.train(config, ranks=2, env=dict(env, BAD_RANK=str(rank), **how), timeout=30)
        r.expect(1, text, "model.h5", f"rank {rank} on")
        assert r.err.count("trireme: ") == 1, r.err
        equal(steps(t), [5])
        t.train(config, ranks=2).expect(0, "step-00000005")
        same_run(t, "run", step=12)


def test_g02_save_over_the_same_step(t):
    config = mlp(t, steps=20, every=10)
    t.train(config, f"run.dir={t.path('straight')}").expect(0)
    t.train(config).expect(0)
    t.train(config, f"run.resume={step_dir(t, 10)}").expect(0, "going on from")
    equal(steps(t), [10, 20])
    same_run(t, "run")
    equal([m["step"] for m in t.metrics()], list(range(1, 21)))


# --- G03: damage --------------------------------------------------------------------------------------------


def flip(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 16]))


def data_offset(path, name):
    with h5py.File(path, "r") as f:
        return f[name].id.get_offset()


def test_g03_damage(t):
    config = mlp(t, steps=10, every=5)
    t.train(config, f"run.dir={t.path('good')}").expect(0)
    def model(run):
        return os.path.join(step_dir(t, 10, run), "model.h5")
    def manifest(run):
        return os.path.join(step_dir(t, 10, run), "manifest.json")
    def edit(run, old, new):
        with open(manifest(run), "r+") as f:
            text = f.read()
            assert re.search(old, text), old
            f.seek(0)
            f.truncate()
            f.write(re.sub(old, new, text, count=1))
    def older(run, name):
        shutil.copy(os.path.join(step_dir(t, 5, run), name), os.path.join(step_dir(t, 10, run), name))
    weight, moment = "param/layers.0.weight", "state/optimizer/layers.1.bias/momentum"
    damages = [
        ("weights", lambda r: flip(model(r), data_offset(model(r), weight) + 7), ["model.h5", weight]),
        ("moments", lambda r: flip(model(r), data_offset(model(r), moment)), ["model.h5", moment]),
        ("header", lambda r: flip(model(r), 60), ["model.h5"]),
        ("group", lambda r: flip(model(r), 1000), ["model.h5"]),
        ("manifest", lambda r: flip(manifest(r), 40), ["manifest.json"]),
        ("config", lambda r: flip(os.path.join(step_dir(t, 10, r), "config.yaml"), 9), ["config.yaml"]),
        ("cut", lambda r: os.truncate(model(r), os.path.getsize(model(r)) - 1), ["model.h5", "bytes"]),
        ("cut-manifest", lambda r: os.truncate(manifest(r), os.path.getsize(manifest(r)) - 1), ["manifest.json"]),
        ("no-model", lambda r: os.unlink(model(r)), ["model.h5", "No such file"]),
        ("no-manifest", lambda r: os.unlink(manifest(r)), ["manifest.json", "No such file"]),
        ("empty-manifest", lambda r: os.truncate(manifest(r), 0), ["manifest.json"]),
        ("older-model", lambda r: older(r, "model.h5"), ["model.h5", "step"]),
        ("older-manifest", lambda r: older(r, "manifest.json"), ["step"]),
        ("huge", lambda r: edit(r, r'"shape": \[8, 12\]', '"shape": [4000000000, 4000000000]'), ["manifest.json"]),
        ("huge-bytes", lambda r: edit(r, r'"bytes": \d+', '"bytes": 9000000000000000000'), ["manifest.json"]),
        ("deep", lambda r: edit(r, r'"state": {', '"state": ' + "[" * 100000), ["manifest.json"]),
    ]
    for name, damage, texts in damages:
        shutil.copytree(t.path("good"), t.path(name), symlinks=True)
        damage(name)
        t.run("checkpoint", "verify", t.path(name)).expect(2, *texts)
        ranks = 2 if name in ("weights", "no-model", "older-model") else 0
        r = t.train(config, f"run.dir={t.path(name)}", "run.steps=12", ranks=ranks, timeout=30)
        r.expect(2, *texts, step_dir(t, 5, name))
        assert r.err.count("trireme: ") == 1, r.err
        if ranks:  # going on from the one that was named
            t.train(config, f"run.dir={t.path(name)}", f"run.resume={step_dir(t, 5, name)}", ranks=ranks).expect(0)
            same_run(t, name, straight="good", step=10)


# --- G05: ranks see different folders -----------------------------------------------------------------------

BLIND = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #define OPEN(name)                                                                                 \\
        int name(const char *path, int flags, ...)                                                     \\
        {                                                                                              \\
            static struct timespec seen;                                                               \\
            int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \\
            const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *late = getenv("LATE_S");               \\
            struct timespec now;                                                                       \\
            va_list list;                                                                              \\
            int mode;                                                                                  \\
            va_start(list, flags);                                                                     \\
            mode = va_arg(list, int);                                                                  \\
            va_end(list);                                                                              \\
            clock_gettime(CLOCK_MONOTONIC, &now);                                                      \\
            if (seen.tv_sec == 0)                                                                      \\
                seen = now;                                                                            \\
            if (rank != NULL && strcmp(rank, "1") == 0 && strstr(path, "/checkpoints/step-") != NULL && \\
                (late == NULL || now.tv_sec - seen.tv_sec < atoi(late))) {                              \\
                errno = ENOENT;                                                                        \\
                return -1;                                                                             \\
            }                                                                                          \\
            return real(path, flags, mode);                                                            \\
        }
    OPEN(open)
    OPEN(open64)
"""


def test_g05_folder_visible_to_rank_0_only(t):
    config = mlp(t, steps=10, every=5)
    t.train(config, ranks=2).expect(0)
    env = t.preload("blind", BLIND)
    r = t.train(config, "run.steps=12", ranks=2, env=env, timeout=30).expect(2, "rank 1 on", "model.h5", "No such file")
    assert r.err.count("trireme: ") == 1, r.err
    assert len(t.metrics()) == 10
    # Seen too late by rank 1: all load, or all stop as above; then the same command works.
    r = t.train(config, "run.steps=12", ranks=2, env=dict(env, LATE_S="3"), timeout=30)
    assert r.rc in (0, 2), r.err
    t.train(config, "run.steps=12", ranks=2).expect(0)
    equal([m["step"] for m in t.metrics()], list(range(1, 13)))


# --- rules of the contract ----------------------------------------------------------------------------------


def test_links_and_keep(t):
    config = mlp(t, steps=10, every=2, checkpoint={"keep": 2, "best": "loss"}, run={"eval_every": 2},
                 optimizer={"lr": 3.0})
    t.train(config).expect(0)
    losses = {m["step"]: m["eval"]["loss"] for m in t.evals()}
    best = min(losses, key=losses.get)
    assert best not in (8, 10), "the test needs a best step that is not among the newest"
    equal(steps(t), [best, 8, 10])
    equal([link(t, "latest"), link(t, "best")], ["step-00000010", f"step-{best:08d}"])
    r = t.run("checkpoint", "list", t.path("run")).expect(0)
    rows = [line.split() for line in r.out.splitlines()[1:]]
    equal([(int(w[0]), w[-1]) for w in rows], [(best, "best"), (8, "complete"), (10, "latest")])
    t.train(config, "run.steps=14").expect(0)  # the best value is remembered
    losses.update({m["step"]: m["eval"]["loss"] for m in t.evals()})
    equal(link(t, "best"), f"step-{min(losses, key=losses.get):08d}")


def test_best_by_accuracy(t):
    config = mlp(t, steps=8, every=0, checkpoint={"best": "accuracy"}, run={"eval_every": 1})
    t.train(config).expect(0)
    found = {m["step"]: m["eval"]["accuracy"] for m in t.evals()}
    equal(link(t, "best"), f"step-{max(found, key=found.get):08d}")  # the first of the largest


def test_resume_auto_never_folder(t):
    config = mlp(t, steps=6, every=3)
    t.train(config, "run.resume=never").expect(0)
    t.train(config, "run.resume=never").expect(2, "never", t.path("run"))
    t.train(config).expect(0, "finished")
    t.train(config, "run.steps=4").expect(0, "finished")
    equal([m["step"] for m in t.metrics()], list(range(1, 7)))
    t.train(config, f"run.resume={t.path('nowhere')}").expect(2, "nowhere")
    t.train(config, f"run.resume={t.path()}").expect(2)
    # Another run's checkpoint, into a folder of its own.
    t.train(config, f"run.dir={t.path('other')}", f"run.resume={step_dir(t, 3)}").expect(0, "going on from", step_dir(t, 3))
    equal([m["step"] for m in t.metrics("other")], [4, 5, 6])
    t.run("checkpoint", "diff", t.path("other"), t.path("run")).expect(0)
    equal(t.texts(*KEYS, run="other"), t.texts(*KEYS)[3:])


def test_zero_steps(t):
    config = mlp(t, steps=0)
    t.train(config, ranks=2).expect(0)
    equal((steps(t), t.metrics()), ([0], []))
    assert set(t.params(0)) == {f"layers.{i}.{k}" for i in (0, 1) for k in ("weight", "bias")}
    t.train(config, f"run.dir={t.path('straight')}", "run.steps=5", ranks=2).expect(0)
    t.train(config, "run.steps=5", ranks=2).expect(0, "step-00000000")
    same_run(t, "run", step=5)


def test_resume_must_match(t):
    config = mlp(t, steps=4, every=0)
    t.train(config, ranks=2).expect(0)
    other = t.classes(n=72, name="other.h5")
    cases = [("model.hidden=[9]", "hidden 8", "hidden 9"), ("model.hidden=[8, 8]", "hidden 8"), ("optimizer.name=adamw", "sgd", "adamw"),
             ("data.batch=16", "batch", "8", "16"), ("data.grain=2", "grain", "4", "2"), ("run.seed=2", "seed"),
             (f"data.path={other}", "dataset")]
    for change, *texts in cases:
        args = ["optimizer.momentum=null"] if "adamw" in change else []
        t.train(config, "run.steps=6", change, *args).expect(2, "checkpoint", *texts)
    equal(steps(t), [4])
    assert len(t.metrics()) == 4


def test_resume_may_change_layout_length_logging(t):
    config = mlp(t, steps=10, every=5, run={"deterministic": True})
    t.train(config, f"run.dir={t.path('straight')}").expect(0)
    t.train(config, "run.steps=5", ranks=1).expect(0)
    t.train(config, "run.log_every=3", "gradient.bucket_bytes=100", "run.eval_every=5", ranks=2).expect(0)
    equal([x for x in t.texts(*KEYS) if "loss" not in x], [x for x in t.texts(*KEYS, run="straight") if "loss" not in x])
    t.run("checkpoint", "diff", t.path("run"), t.path("straight")).expect(0)


def test_defaulted_grain_is_kept(t):
    config = mlp(t, steps=4, every=2, data={"grain": None})
    t.train(config, "run.steps=2", ranks=2).expect(0)  # grain 8 / 2
    t.train(config, ranks=1).expect(0)
    with open(t.path("run", "config.yaml")) as f:
        assert re.search(r"grain: *4\b", f.read())


def test_metrics_are_cut_at_resume(t):
    config = mlp(t, steps=12, every=4, run={"eval_every": 3})
    t.train(config, f"run.dir={t.path('straight')}").expect(0)
    t.train(config, fault(11, where="update"), ranks=1)
    assert [m["step"] for m in t.metrics()][-1] == 10 and t.evals()[-1]["step"] == 9
    with open(t.path("run", "metrics.jsonl"), "a") as f:
        f.write('{"step": 11, "upd')  # a line that the kill cut short
    t.train(config).expect(0, "step-00000008")
    same_run(t, "run", step=12)


def test_commands(t):
    config = mlp(t, steps=4, every=2)
    t.train(config).expect(0)
    run = t.path("run")
    out = t.run("checkpoint", "show", step_dir(t, 2)).expect(0, "step 2", "param/layers.0.weight", "149 parameters").out
    assert "optimizer/layers.0.bias/momentum" in out
    t.run("checkpoint", "verify", run).expect(0, "good", "step 4")
    t.run("checkpoint", "diff", run, step_dir(t, 4)).expect(0, "equal")
    t.run("checkpoint", "diff", step_dir(t, 2), step_dir(t, 4)).expect(1, "param/layers.0.weight", "elements differ", "different")
    t.run("checkpoint", "diff", step_dir(t, 2), step_dir(t, 4)).expect(1, "step: 2 against 4", "updates: 2 against 4")
    t.run("checkpoint", "--help").expect(0, "usage:", "verify", "diff")
    t.run("checkpoint", "export", run).expect(2, "not there yet")
    for args in (["list", t.path("none")], ["show", t.path("none")], ["verify", t.path("none")], ["diff", run, t.path("none")],
                 ["show", t.path()], ["list"], ["diff", run], ["sho", run], [], ["export", run]):
        t.run("checkpoint", *args).expect(2, "trireme: ")
    t.run("checkpoint", "verify", t.path()).expect(2, "damaged", "manifest.json")
    os.makedirs(t.path("fresh"))
    t.run("checkpoint", "list", t.path("fresh")).expect(0, "no checkpoints")


def test_commands_find_damage(t):
    """list and verify of a run whose best checkpoint has lost the first byte of a file."""
    config = mlp(t, steps=4, every=2, run={"eval_every": 2}, checkpoint={"best": "loss"})
    t.train(config).expect(0)
    best, run = link(t, "best"), t.path("run")
    t.run("checkpoint", "show", run).expect(0, "optimizer: sgd", "step 4")
    for name in ("config.yaml", "manifest.json"):
        with open(t.path("run", "checkpoints", best, name), "r+b") as f:
            f.write(b"#")
        out = t.run("checkpoint", "list", run).expect(0, "latest", "complete").out
        damaged = [line for line in out.splitlines() if " damaged " in line]
        assert len(damaged) == 1 and damaged[0].endswith(" best"), out
    t.run("checkpoint", "verify", t.path("run", "checkpoints", best)).expect(2, "damaged", "manifest.json")


def test_diff_of_one_element(t):
    r = np.random.default_rng(1)
    weights = {"layers.0.weight": r.normal(size=(5, 12)), "layers.0.bias": np.zeros(5)}
    for name, value in (("a", 0.25), ("b", 0.75)):
        weights["layers.0.weight"][3, 4] = value
        init = t.weights(weights, f"{name}.h5")
        t.train(mlp(t, steps=1, every=1, hidden=()), "optimizer.lr=0", f"model.init={init}", f"run.dir={t.path('run-' + name)}").expect(0)
    t.run("checkpoint", "diff", t.path("run-a"), t.path("run-b")).expect(1, "param/layers.0.weight: 1 of 60 elements differ, by at most 0.5")


def test_initial_weights(t):
    config = mlp(t, steps=0)
    r = np.random.default_rng(1)
    shapes = {"layers.0.weight": (8, 12), "layers.0.bias": (8,), "layers.1.weight": (5, 8), "layers.1.bias": (5,)}
    good = {k: r.normal(size=s).astype("f4") for k, s in shapes.items()}
    t.train(config, f"model.init={t.weights(good)}", ranks=2).expect(0)
    found = t.params(0)
    assert set(found) == set(good) and all(np.array_equal(found[k], good[k]) for k in good)
    shutil.rmtree(t.path("run"))
    missing = {k: v for k, v in good.items() if k != "layers.1.bias"}
    t.train(config, f"model.init={t.weights(missing)}", ranks=2).expect(2, t.path("init.h5"), "layers.1.bias")
    t.train(config, f"model.init={t.weights(dict(good, head=np.zeros(3)))}", ranks=2).expect(2, t.path("init.h5"), "head")
    shape = dict(good, **{"layers.1.weight": np.zeros((8, 5))})
    t.train(config, f"model.init={t.weights(shape)}", ranks=2).expect(2, t.path("init.h5"), "layers.1.weight", "[8, 5]", "[5, 8]")
    t.train(config, "model.init=none.h5", ranks=2).expect(2, "none.h5", "No such file")
    t.train(config, f"model.init={t.path('data.h5')}", ranks=2).expect(2, t.path("data.h5"), "param")
    assert not os.path.exists(t.path("run"))  # a refused job leaves nothing behind


run_tests(globals())
