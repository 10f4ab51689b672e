"""The exchange of gradients as whole runs: buckets, overlap, ranks that come late, what is counted and traced."""
import json
import subprocess

import numpy as np

from harness import Skip, close, equal, run_tests

KEYS = ("step", "loss", "grad_norm", "weights_hash")


def sleep(rank, step, where, ms, parameter=""):
    return dict(rank=rank, step=step, where=where, what="sleep", ms=ms, parameter=parameter)


def odd_model(t):
    """Parameters of 1000, 5, 5, 1, 3, 3, 48, 16, 112 and 7 elements."""
    r = np.random.default_rng(4)
    t.data(attrs=dict(classes=7), train=dict(x=r.normal(size=(48, 200)).astype("f4"), y=r.integers(0, 7, 48).astype("i4")))
    return dict(model=dict(name="mlp", hidden=[5, 1, 3, 16]), optimizer=dict(name="adamw", lr=0.01))


def run(t, base, ranks, name, steps=6, batch=16, exact=False, inject=(), trace=None, outer=(), **gradient):
    """Trains and returns the texts of loss, norm and hash of each step."""
    config = t.config(run=dict(dir=t.path(name), steps=steps, eval_every=0, deterministic=exact),
                      data=dict(path="data.h5", batch=batch), gradient=dict(clip_norm=0.5, **gradient),
                      debug=dict(hash_every=1, inject=list(inject)), telemetry=dict(trace_step=3), **base)
    t.train(config, *(["--trace", trace] if trace else []), ranks=ranks, outer=outer,
            env={"OMPI_MCA_btl_vader_backing_directory": t.dir} if outer else None).expect(0)
    return t.texts(*KEYS, run=name)


def test_c02_bucket_of_nothing_is_refused(t):
    base = odd_model(t)
    for wrong in ("gradient.bucket_bytes=0", "gradient.bucket_mb=0", "gradient.bucket_bytes=-1"):
        config = t.config(run=dict(steps=1), data=dict(path="data.h5", batch=16), **base)
        t.train(config, wrong, ranks=0).expect(2, "bucket")


def test_c02_bucket_sizes_give_the_same_bits(t):
    base = odd_model(t)
    largest = 4 * 1000
    for ranks, exact in ((2, False), (4, True)):
        want = run(t, base, ranks, f"run-{ranks}", exact=exact)
        for size in (1, 4, 64, 100, largest - 1, largest, largest + 1, 10**8):
            equal(run(t, base, ranks, f"run-{ranks}-{size}", exact=exact, bucket_bytes=size), want, f"buckets of {size} bytes")
        equal(run(t, base, ranks, f"run-{ranks}-mb", exact=exact, bucket_mb=0.001), want, "buckets of 0.001 MiB")


def test_c02_gaps_never_enter_the_norm(t):
    base = odd_model(t)
    run(t, base, 1, "one")
    run(t, base, 2, "two", bucket_bytes=10**6)
    close([m["grad_norm"] for m in t.metrics("two")], [m["grad_norm"] for m in t.metrics("one")], 1e-5)


def test_c03_a_ranks_get_ready_in_another_order(t):
    base = odd_model(t)
    names = [f"layers.{i}.{kind}" for i in range(5) for kind in ("weight", "bias")]
    r = np.random.default_rng(8)
    for ranks in (2, 3):
        late = [sleep(int(r.integers(ranks)), int(r.integers(1, 6)), ("forward", "backward", "exchange", "update")[i % 4],
                      int(r.integers(1, 60)), names[int(r.integers(len(names)))]) for i in range(24)]
        want = run(t, base, ranks, f"calm-{ranks}", batch=6 * ranks, bucket_bytes=64)
        got = run(t, base, ranks, f"late-{ranks}", batch=6 * ranks, bucket_bytes=64, inject=late)
        equal(got, want, f"{ranks} ranks with sleeps")


def test_e01_overlap_changes_no_bit(t):
    r = np.random.default_rng(9)
    x = r.normal(size=(96, 40)).astype("f4")
    t.data(attrs=dict(classes=5), train=dict(x=x, y=r.integers(0, 5, 96).astype("i4")))
    base = dict(model=dict(name="mlp", hidden=[128, 64, 64]), optimizer=dict(name="adamw", lr=0.01))
    for ranks in (2, 4):
        late = [sleep(int(r.integers(ranks)), int(s), where, 15) for s in r.integers(1, 40, 6) for where in ("backward", "exchange")]
        want = run(t, base, ranks, f"off-{ranks}", steps=50, overlap=False, bucket_bytes=2**14)
        assert len(set(want)) == 50
        for size in (2**10, 2**14, 2**20):
            got = run(t, base, ranks, f"on-{ranks}-{size}", steps=50, inject=late, bucket_bytes=size)
            equal(got, want, f"{ranks} ranks, buckets of {size} bytes")


def spans(path, rank):
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    streams = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == rank}
    found = [dict(e, end=e["ts"] + e["dur"], stream=streams[e["tid"]]) for e in events if e["ph"] == "X" and e["pid"] == rank]
    return sorted(found, key=lambda e: e["ts"])


def named(found, prefix):
    return [e for e in found if e["name"].startswith(prefix)]


def test_e01_trace_shows_exchange_under_backward(t):
    base = odd_model(t)
    # rank 1 is 400 ms late; rank 0 has its last layers ready at once and then works for 700 ms on the first
    late = [sleep(1, 3, "forward", 400), sleep(0, 3, "backward", 700, "layers.0.weight")]
    step_ms = {}
    for overlap in (True, False):
        trace = t.path(f"trace-{overlap}.json")
        run(t, base, 2, f"run-{overlap}", inject=late, trace=trace, overlap=overlap, bucket_bytes=64)
        found = spans(trace, 0)
        pause, = [e for e in named(found, "inject") if e["dur"] > 690e3]
        under = sum(max(0, min(e["end"], pause["end"]) - max(e["ts"], pause["ts"])) for e in named(found, "allreduce"))
        assert (under > 150e3) == overlap, f"overlap {overlap}: {under} us of exchange under backward"
        assert any(e["ts"] >= pause["end"] for e in named(found, "allreduce")), "the first layer is exchanged last"
        assert all(e["stream"] != "compute" for e in named(found, "allreduce"))
        step_ms[overlap] = t.metrics(f"run-{overlap}")[2]["step_ms"]
    assert step_ms[True] < step_ms[False] - 150, step_ms
    assert t.metrics("run-False")[2]["exposed_comm_ms"] > 200


def test_trace_holds_one_step_of_all_ranks(t):
    base = odd_model(t)
    trace = t.path("trace.json")
    run(t, base, 3, "run", batch=18, trace=trace)
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    assert {e["pid"] for e in events} == {0, 1, 2}
    for rank in range(3):
        found = spans(trace, rank)
        for kind in ("matmul", "relu", "softmax_xent", "allreduce", "control", "adamw"):
            assert named(found, kind), f"rank {rank}: no {kind} in {[e['name'] for e in found]}"
        assert {e["cat"] for e in found} == {"forward", "backward", "exchange", "update"}
        for stream in {e["stream"] for e in found}:  # one thing at a time on a stream
            mine = [e for e in found if e["stream"] == stream]
            for a, b in zip(mine, mine[1:]):
                assert a["end"] <= b["ts"] + 0.01, (a, b)
        # forward, loss, joint decision; nothing is decided before the last bucket is there
        assert named(found, "matmul")[0]["ts"] < named(found, "softmax_xent")[0]["ts"] < named(found, "control")[0]["ts"]
        assert max(e["end"] for e in named(found, "allreduce")) <= named(found, "control")[0]["ts"] + 0.01


def test_messages_give_the_bits_of_shared_memory(t):
    # a name space of its own, where /dev/shm has no room
    outer = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=16k tmpfs /dev/shm && exec "$0" "$@"']
    if subprocess.run(outer + ["true"], stdin=subprocess.DEVNULL, capture_output=True).returncode != 0:
        raise Skip("cannot mount here")
    base = odd_model(t)
    for ranks in (2, 4):
        late = [sleep(1, 2, "backward", 40), sleep(0, 4, "exchange", 40)]
        want = run(t, base, ranks, f"memory-{ranks}", exact=True)
        for size in (64, 10**6):
            got = run(t, base, ranks, f"messages-{ranks}-{size}", exact=True, inject=late, outer=outer, bucket_bytes=size)
            equal(got, want, f"{ranks} ranks with messages, buckets of {size} bytes")


def test_comm_bytes_follow_from_the_plan(t):
    base = odd_model(t)
    count = 1000 + 5 + 5 + 1 + 3 + 3 + 48 + 16 + 112 + 7
    run(t, base, 1, "run-1")
    assert {m["comm_bytes"] for m in t.metrics("run-1")} == {0}
    for ranks in (2, 4):
        run(t, base, ranks, f"run-{ranks}")
        sent = {m["comm_bytes"] for m in t.metrics(f"run-{ranks}")}
        assert len(sent) == 1, f"bytes differ between steps: {sent}"
        # between one part and two copies of all gradients, each padded to 64 bytes, with the statistics
        assert 4 * count / ranks <= sent.pop() <= 2 * (4 * count + 11 * 64), (ranks, count)


def test_times_add_up_to_the_step(t):
    base = odd_model(t)
    run(t, base, 2, "run", steps=20)
    for m in t.metrics("run"):
        parts = m["compute_ms"] + m["exposed_comm_ms"] + m["input_ms"] + m["other_ms"]
        assert abs(parts - m["step_ms"]) <= 0.02 * m["step_ms"] + 0.05, m


run_tests(globals())
