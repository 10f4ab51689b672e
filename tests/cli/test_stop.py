"""Signals that end a run behind a step (case H02, and what G07 says of them): whom they reach, when, how often."""
import os
import re
import signal

from harness import children, equal, run_tests, wait_for

KEYS = ("step", "updates", "epoch", "loss", "grad_norm", "lr", "loss_scale", "skipped", "samples", "tokens")
STOPPED = 75


def text_model(t):
    """2 ranks in fp16 with dropout, clipping, accumulation, topk, evaluations."""
    t.tokens(n=900)
    return t.config(model={"name": "gpt", "layers": 1, "heads": 2, "width": 16, "context": 8, "dropout": 0.1},
                    data={"path": t.path("data.h5"), "batch": 8, "grain": 2}, optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
                    precision={"compute": "fp16"}, run={"steps": 20, "deterministic": True, "eval_every": 5},
                    gradient={"clip_norm": 0.5, "compress": {"name": "topk", "ratio": 0.1, "level": "all", "force": True}},
                    checkpoint={"keep": 100})


def sleep(rank, step, where, ms=1500):
    return f"debug.inject=[{{rank: {rank}, step: {step}, where: {where}, what: sleep, ms: {ms}}}]"


def saved(t, run):
    folder = t.path(run, "checkpoints")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(n[5:]) for n in names if re.fullmatch(r"step-\d{8}", n))


def ranks_of(p, n):
    wait_for(lambda: len(children(p.pid)) == n or p.poll() is not None, "the start of all ranks")
    assert p.poll() is None
    return children(p.pid)


def stop(t, config, run, when, signals, *args, ranks=2):
    """Runs, sends (rank, signal)s once when() holds, and returns the messages; the exit code must be that of a stop."""
    with open(t.path(run + ".err"), "w+") as err:
        p = t.start(config, f"run.dir={t.path(run)}", *args, ranks=ranks, err=err)
        try:
            wait_for(lambda: when() or p.poll() is not None, "the moment of the signal")
            assert p.poll() is None, "the run ended before the signal"
            pids = ranks_of(p, ranks)
            for rank, number in signals:
                os.kill(pids[rank], number)
            code = p.wait(30)
        finally:
            p.kill()
        err.seek(0)
        text = err.read()
    assert code == STOPPED, f"code {code}\n{text}"
    assert text.count("info: stopped by") == 1, text
    return text


def begun(t, run, step):
    """When `step` runs: the line of the one before is there."""
    path = t.path(run, "metrics.jsonl")

    def lines():
        with open(path) as f:
            return sum('"eval"' not in line for line in f)
    return lambda: os.path.exists(path) and lines() >= step - 1


def goes_on(t, config, run):
    """The same command ends the run, as the straight one did."""
    t.train(config, f"run.dir={t.path(run)}", ranks=2).expect(0, "going on from")
    equal(t.texts(*KEYS, run=run), t.texts(*KEYS, run="straight"), run)
    step = os.path.join("checkpoints", "step-00000020")
    t.run("checkpoint", "diff", t.path(run, step), t.path("straight", step)).expect(0, "equal")


def test_h02_inside_a_step(t):
    """One rank or all, one signal or several, of both kinds: all ranks end behind the same step with one checkpoint."""
    config = text_model(t)
    t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    cases = {"one": [(1, signal.SIGTERM)], "all": [(0, signal.SIGUSR1), (1, signal.SIGUSR1)],
             "twice": [(0, signal.SIGTERM), (0, signal.SIGTERM), (1, signal.SIGUSR1)]}
    for name, signals in cases.items():
        text = stop(t, config, name, begun(t, name, 7), signals, sleep(1, 7, "forward"))
        steps = saved(t, name)
        assert len(steps) == 1 and 7 <= steps[0] < 20, f"{name}: {steps}\n{text}"
        assert len(t.metrics(name)) == steps[0], text
    goes_on(t, config, "one")


def test_h02_elsewhere(t):
    """In an evaluation, while saving (also in the background), and before the first step."""
    config = text_model(t)
    t.train(config, f"run.dir={t.path('straight')}", ranks=2).expect(0)
    stop(t, config, "eval", begun(t, "eval", 6), [(1, signal.SIGTERM)], sleep(1, 5, "eval"))
    assert saved(t, "eval") != [] and saved(t, "eval")[0] >= 5
    for name, how in (("save", "false"), ("background", "true")):
        stop(t, config, name, begun(t, name, 8), [(0, signal.SIGTERM)], "checkpoint.every=7", f"checkpoint.async={how}",
             sleep(0, 7, "checkpoint"))
        assert saved(t, name)[0] == 7, saved(t, name)
    stop(t, config, "start", lambda: os.path.exists(t.path("start", "metrics.jsonl")), [(0, signal.SIGTERM), (1, signal.SIGTERM)],
         sleep(0, 1, "forward"))
    for name in ("eval", "background", "start"):
        goes_on(t, config, name)


def test_a_rank_alone(t):
    config = t.config(model={"name": "mlp", "hidden": []}, data={"path": t.classes(), "batch": 16}, run={"steps": 1000000},
                      checkpoint={"every": 0})
    p = t.start(config)
    wait_for(begun(t, "run", 50), "step 50")
    p.send_signal(signal.SIGUSR1)
    assert p.wait(30) == STOPPED
    steps = saved(t, "run")
    assert len(steps) == 1, steps
    t.run("checkpoint", "verify", t.path("run")).expect(0)
    t.run("train", config, f"run.steps={steps[0] + 1}").expect(0, f"step-{steps[0]:08d}")


def test_with_a_lost_rank_it_is_a_failure(t):
    config = text_model(t)
    r = t.train(config, "debug.inject=[{rank: 1, step: 4, where: forward, what: kill}]", ranks=2)  # mpirun then sends SIGTERM
    assert r.rc == 137, r.err
    equal(saved(t, "run"), [])


run_tests(globals())
