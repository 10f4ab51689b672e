#!/usr/bin/env python3
"""Compares, trains and measures on a GPU for run.sh, and prints one table.

    measure.py --trireme PROGRAM --parity PROGRAM --tokens PROGRAM --out DIR [--libraries PATH] [--images DIR] [--seconds N]
               [--most N] [--quick] [--no-peer] [--emulated]

The steps run in the order of their weight, each within a time of its own and all within --seconds; one that fails or hangs hides
no other. After each the table is written anew, so that what ends this program leaves the figures so far: OUT/table.txt,
OUT/results.json, OUT/log.txt. A figure that misses its goal is marked and is no failure. Ends with 0; 4: a kernel differs from
the reference; 5: a training run broke, or learnt nothing; 6: a figure is missing. --emulated: tiny sizes. --most: seconds that one
command may take at the most.
"""
import argparse
import array
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEAK = {"H200": 989.4e12, "H100": 989.4e12, "A100": 312e12}  # dense bf16 of the SXM parts' datasheets, FLOP/s
LEAST = 8  # seconds that a command needs at the least
PARITY, TRAINING, FIGURE = 4, 5, 6
GPT_BATCH, LARGE_BATCH, RESNET_BATCH, GPT_SEQUENCE = 64, 16, 256, 1024


class Missing(Exception):
    """A step ends without its figure; the text says why."""


class LeftOut(Exception):
    """A step cannot run here, which is no failure; the text says why."""


class Table:
    """Lines of the result; writes them to files at each change."""

    def __init__(self, out):
        self.out, self.rows, self.found, self.code = out, [], {}, 0

    def add(self, what, measured, goal="", verdict=""):
        self.rows.append((what, measured, goal, verdict))
        print(f"  [{time.monotonic() - begin:3.0f} s] {what}: {measured} {verdict}", flush=True)
        self.write()

    def judge(self, what, measured, goal, good):
        self.add(what, measured, goal, "dry run" if args.emulated else "ok" if good else "MISSED")

    def fail(self, code):
        """The gravest failure is the smallest code."""
        self.code = min(self.code or code, code)

    def text(self):
        lines = [("what", "measured", "goal", "")] + self.rows
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        return "\n".join("  ".join(t.ljust(w) for t, w in zip(line, widths)).rstrip() for line in lines) + "\n"

    def write(self):
        (self.out / "table.txt").write_text(self.text())
        (self.out / "results.json").write_text(json.dumps(dict(rows=self.rows, code=self.code, **self.found), indent=1))


def kill(p):
    """Ends a process and all that it started; one that the driver does not let go is left behind."""
    try:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait(10)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def run(name, command, limit, good=(0,)):
    """Output of a command; Missing when it fails or takes too long. All that it has started is ended with it."""
    limit = min(limit, args.most, end - time.monotonic())
    if limit < LEAST:
        raise Missing("no time left")
    environment = dict(os.environ)
    if args.libraries and str(command[0]) != sys.executable:
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [args.libraries, os.environ.get("LD_LIBRARY_PATH")]))
    started = time.monotonic()
    with open(work / "output", "w+", errors="replace") as f:
        p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, cwd=ROOT,
                             env=environment, start_new_session=True)
        try:
            code = p.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"ended after {limit:.0f} s"
        finally:
            kill(p)
        f.seek(0)
        text = f.read()
    table.found[name + "_s"] = time.monotonic() - started
    with open(args.out / "log.txt", "a") as f:
        f.write(f"\n== {name}, {table.found[name + '_s']:.1f} s: {' '.join(map(str, command))}\n{text}")
    if code not in good:
        last = text.strip().splitlines()[-1:] or [""]
        raise Missing(f"failed ({code}): {last[0][:90]}")
    return text


def trireme(name, *words, limit):
    return run(name, [args.trireme, *words], limit)


def describe_gpu():
    """Name, and the peak of dense bf16 products; NaN: not known."""
    if args.emulated:
        return "emulated", PEAK["H200"]
    try:
        p = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                           text=True, timeout=30)
        name = (p.stdout.strip().splitlines() or ["unknown"])[0]
    except (OSError, subprocess.TimeoutExpired) as why:
        name = f"unknown: {why}"
    return name, next((peak for key, peak in PEAK.items() if key in name), float("nan"))


def compare_kernels(*settings):
    kinds = ["layernorm", "cast", "matmul"] if args.emulated else []
    text = run("parity" + "".join(settings), [args.parity, *settings, *kinds], 150, good=(0, 1))
    good, bad = (sum(line.startswith(word) for line in text.splitlines()) for word in ("ok ", "not ok"))
    if bad or not good or not text.rstrip().endswith("\n0 kinds failed"):
        raise Missing(f"{bad} of {good + bad} kinds differ, see log.txt")
    table.add(" ".join(["kernels against the reference", *settings]), f"{good} kinds equal within their tolerance", "all", "ok")


# --- training ---

def train(name, recipe, data, settings, limit):
    """Objects of the steps and of the evaluations."""
    folder = work / name
    trireme(name, "train", f"launch/recipes/{recipe}.yaml", f"run.dir={folder}", f"data.path={data}", "run.resume=never",
            "device.kind=cuda", *settings, limit=limit)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line["eval"] for line in lines if "eval" in line]


def write_idx(path, dims, content):
    path.write_bytes(struct.pack(f">BBBB{len(dims)}I", 0, 0, 8, len(dims), *dims) + content)


def tiny_images(folder):
    """Images whose class is their brightness, under the names of Fashion-MNIST."""
    folder.mkdir()
    for part, n in ("train", 16), ("t10k", 8):
        labels = [i % 10 for i in range(n)]
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", (n, 8, 8), b"".join(bytes([25 * c]) * 64 for c in labels))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", (n,), bytes(labels))
    return folder


def train_images():
    images, data = tiny_images(work / "images") if args.emulated else args.images, work / "fashion.h5"
    if not (images / "train-images-idx3-ubyte.gz").exists():
        raise LeftOut(f"no images in {images}")
    names = ("--train-images", "train-images-idx3"), ("--train-labels", "train-labels-idx1"), \
        ("--validation-images", "t10k-images-idx3"), ("--validation-labels", "t10k-labels-idx1")
    files = [w for flag, name in names for w in (flag, images / (name + "-ubyte.gz"))]
    trireme("import images", "data", "import", "idx", *files, "-o", data, limit=60)
    tiny = ["run.epochs=1", "run.eval_every=1", "data.batch=8", "run.threads=1"] if args.emulated else []
    _, evaluations = train("fashion", "quickstart_fashion", data, tiny, 150)
    accuracy, seconds = evaluations[-1]["accuracy"], table.found["fashion_s"]
    table.judge("Fashion-MNIST, ResNet-20, 3 epochs", f"{100 * accuracy:.2f} % right, {seconds:.0f} s", "91 %", accuracy >= 0.91)
    if accuracy < 0.85 and not args.emulated:
        raise Missing("the accuracy is that of a wrong program")


def import_text():
    """A small GPT's data, of our own sources."""
    text, data = work / "sources.txt", work / "sources.h5"
    if not data.exists():
        folders = ("amp",) if args.emulated else ("runtime", "collectives", "optim", "models", "launch")
        text.write_text("".join(p.read_text() for d in folders for p in sorted((ROOT / d).rglob("*.[ch]"))))
        trireme("import text", "data", "import", "text", text, "--tokenizer", "bpe:258" if args.emulated else "bpe:512", "-o", data,
                limit=60)
    return data


TINY_GPT = ["data.batch=2", "data.sequence=8", "model.layers=1", "model.width=16", "model.heads=2", "run.threads=1"]


def train_text():
    tiny = TINY_GPT + ["run.steps=3"] if args.emulated else []
    steps, _ = train("gpt", "quickstart_gpt", import_text(), ["precision.compute=bf16", *tiny], 120)
    first, last = steps[0]["loss"], steps[-1]["loss"]
    table.judge(f"GPT on our sources, bf16, {len(steps)} steps", f"loss {first:.2f} -> {last:.2f}, {table.found['gpt_s']:.0f} s",
                "0.6 of the first", last < 0.6 * first)
    if not last < 0.6 * first and not args.emulated:
        raise Missing("the loss did not fall")


# --- steps ---

def bench_step(name, config, steps, settings=(), limit=90):
    """The numbers of `trireme bench step`."""
    path, found = work / (name + ".yaml"), work / (name + ".json")
    path.write_text(json.dumps(config) if isinstance(config, dict) else pathlib.Path(config).read_text())  # JSON is YAML
    trireme(name, "bench", "step", path, "--steps", steps, "--json", found, *settings, limit=limit)
    try:
        table.found[name] = json.loads(found.read_text())
    except (OSError, ValueError) as why:
        raise Missing(f"no result: {why}") from why
    return table.found[name]


class GPT:
    """The language models: dimensions of the measured ones, or tiny ones."""

    def __init__(self, preset, batch):
        real = GPT_SEQUENCE, 50257, batch, preset
        self.sequence, self.vocab, self.batch, self.preset = (8, 64, 2, "tiny") if args.emulated else real
        self.tokens = self.batch * self.sequence

    def config(self):
        data = work / "tokens.h5"
        if not data.exists():
            run("tokens", [args.tokens, 1000 if args.emulated else 3_000_000, self.vocab, data], 60)
        tiny = dict(layers=1, width=16, heads=2) if args.emulated else {}
        return dict(run=dict(steps=1000), model=dict(name="gpt", preset=self.preset, context=self.sequence, **tiny),
                    precision=dict(compute="bf16"), device=dict(kind="cuda"), optimizer=dict(name="adamw", lr=3e-4),
                    data=dict(path=str(data), batch=self.batch, grain=self.batch, sequence=self.sequence))


def some_steps(n):
    return 1 if args.emulated else 5 if args.quick else n


def share_of_peak(found):
    return found["formula_flops"] / found["median_ms"] * 1e3 / peak


def bench_ways(name, what, config, steps, ways, limit=90):
    """The fastest of several ways to run a step, {its name: settings}; one that fails is a line of the table."""
    found = {}
    for way, settings in ways.items():
        try:
            found[way] = bench_step(f"{name}-{way.replace(' ', '-')}", config, steps, settings, limit)
        except Missing as why:
            table.add(f"{what}, {way}", str(why), "", "FAILED")
            table.fail(FIGURE)
    if not found:
        raise Missing("no way succeeded")
    way, best = min(found.items(), key=lambda item: item[1]["median_ms"])
    table.found[name] = best
    return best, f"{what}, bf16, {way}", ", ".join(f"{way} {found[way]['median_ms']:.2f} ms" for way in found)


PLAIN, GRAPH, TUNED = [], ["device.graph=true"], ["device.graph=true", "device.tune=true"]


def measure_gpt():
    gpt = GPT("124M", GPT_BATCH)
    best, name, ways = bench_ways("gpt2", "GPT-2 124M", gpt.config(), some_steps(20), dict(plain=PLAIN, graph=GRAPH, tuned=TUNED))
    rate = gpt.tokens / best["median_ms"] * 1e3
    table.judge(f"{name}, {gpt.batch} x {gpt.sequence}", f"{rate / 1e6:.4f} M tokens/s, {100 * share_of_peak(best):.1f} % of peak",
                "0.50 M", rate >= 0.5e6)
    table.add("  ways of a step of GPT-2 124M", ways)


def measure_large():
    gpt = GPT("1558M", LARGE_BATCH)
    best, name, _ = bench_ways("gpt2-1558M", "GPT-2 1558M", gpt.config(), some_steps(6), dict(plain=PLAIN), 150)
    rate, share = gpt.tokens / best["median_ms"] * 1e3, share_of_peak(best)
    table.judge(f"{name}, {gpt.batch} x {gpt.sequence}", f"{rate / 1e3:.2f} k tokens/s, {100 * share:.1f} % of peak", "48 %",
                share >= 0.48)


def random_images(count, size, classes):
    """A dataset of noise, by way of .npy files."""
    out, x, y = work / "noise.h5", work / "x.npy", work / "y.npy"
    if out.exists():
        return out
    noise = random.Random(1)
    pixels = b"".join(noise.randbytes(size * size * 3) for _ in range(count))
    labels = array.array("i", (noise.randrange(classes) if i else classes - 1 for i in range(count)))
    for path, kind, shape, content in (x, "|u1", (count, size, size, 3), pixels), (y, "<i4", (count,), labels.tobytes()):
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + content)
    trireme("import noise", "data", "import", "npy", "--train-x", x, "--train-y", y, "-o", out, limit=60)
    return out


def measure_resnet():
    batch, count, size, preset = (2, 4, 8, "resnet20") if args.emulated else (RESNET_BATCH, 1024, 224, "resnet50")
    config = dict(run=dict(steps=1000), model=dict(name="resnet", preset=preset), precision=dict(compute="bf16"),
                  device=dict(kind="cuda"), optimizer=dict(name="sgd", lr=0.1, momentum=0.9),
                  data=dict(path=str(random_images(count, size, 1000)), batch=batch, grain=batch))
    best, name, ways = bench_ways("resnet", "ResNet-50", config, some_steps(20), dict(graph=GRAPH, tuned=TUNED), 60)
    table.add(f"{name}, batch {batch}", f"{batch / best['median_ms'] * 1e3:.0f} images/s, "
              f"{100 * share_of_peak(best):.1f} % of peak; {best['input_ms']:.2f} ms of input")
    table.add("  ways of a step of ResNet-50", ways)


def measure_peer(key, what, model, batch, *settings):
    """PyTorch's step against the one of results[key]."""
    if args.no_peer:
        raise LeftOut("--no-peer")
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, timeout=60).returncode != 0:
        raise LeftOut("this Python has no torch")
    steps = some_steps(20)
    tiny = ["--batch", 2, "--sequence", 8, "--dry-run"] if args.emulated else ["--batch", batch, *settings]
    text = run(key + "-peer", [sys.executable, ROOT / "benchmarks/peers/torch_gpu.py", model, *tiny, "--steps", steps], 150)
    found = table.found[key + "-peer"] = json.loads(text.strip().splitlines()[-1])
    mine, rate = table.found.get(key), f"{found['peer']}: {found['median_ms']:.2f} ms a step"
    if mine is None:
        table.add("  " + what, rate + "; there is nothing to compare with")
        return
    ratio = found["median_ms"] / mine["median_ms"]
    table.judge("  " + what, f"{rate}; Trireme: {mine['median_ms']:.2f} ms, {ratio:.2f} times as fast", "1.00", ratio >= 1)


def measure_kernels():
    """Kernels whose time is that of their bytes, against the copy of the same run."""
    found = work / "kernels.json"
    trireme("kernels", "bench", "kernels", "--device", "cuda", "--size", "tiny" if args.emulated else "full", "--json", found,
            limit=120)
    kernels = table.found["kernels"] = json.loads(found.read_text())
    copy = kernels["copy_bytes_per_s"]
    table.add("limits of the same run", f"copy {copy / 1e12:.2f} TB/s, read and written; "
              f"square product of bf16 {kernels['product_flops_per_s'] / 1e12:.0f} TFLOP/s")
    least = 0 if args.emulated else 256e6  # several times the second-level cache
    shares = {}
    for k in kernels["lines"]:
        if k["bytes"] > least and k["flops"] < 20 * k["bytes"]:
            shares.setdefault(k["op"], []).append(k["bytes"] / k["best_us"] * 1e6 / copy)
    if not shares:
        raise Missing("no kernel is bound by memory")
    for op, of_copy in sorted(shares.items(), key=lambda item: min(item[1])):
        low, high = 100 * min(of_copy), 100 * max(of_copy)
        table.judge(f"  {op}, shapes: {len(of_copy)}", f"{low:.0f} to {high:.0f} % of the copy rate", "85 %", low >= 85)


def measure_graph():
    """The small GPT of the quick start, whose kernels are short."""
    data = import_text()
    tiny = TINY_GPT if args.emulated else []
    ms = [bench_step("small-graph-" + graph, ROOT / "launch/recipes/quickstart_gpt.yaml", some_steps(100),
                     [f"data.path={data}", "device.kind=cuda", "precision.compute=bf16", "device.graph=" + graph, *tiny],
                     limit=40)["median_ms"] for graph in ("false", "true")]
    table.judge("small GPT, device.graph off, on", f"{ms[0]:.3f} ms, {ms[1]:.3f} ms: {ms[0] / ms[1]:.2f} times as fast", "1.00",
                ms[1] <= ms[0])


# In the order of their weight: name, what it calls, the exit code of its failure.
STEPS = (
    ("kernels against the reference", compare_kernels, PARITY),
    ("GPT-2 124M", measure_gpt, FIGURE),
    ("PyTorch, GPT-2 124M", lambda: measure_peer("gpt2", "PyTorch: compiled, flash attention, fused AdamW", "gpt2",
                                                 GPT_BATCH, "--sequence", GPT_SEQUENCE), FIGURE),
    ("GPT-2 1558M", measure_large, FIGURE),
    ("Fashion-MNIST", train_images, TRAINING),
    ("GPT on our sources", train_text, TRAINING),
    ("bench kernels", measure_kernels, FIGURE),
    ("ResNet-50", measure_resnet, FIGURE),
    ("PyTorch, ResNet-50", lambda: measure_peer("resnet", "PyTorch: compiled, channels-last", "resnet50", RESNET_BATCH),
     FIGURE),
    ("small GPT, graph", measure_graph, FIGURE),
    ("kernels against the reference --tune", lambda: compare_kernels("--tune"), PARITY),
)


def run_steps():
    for name, call, code in STEPS:
        if args.quick and call is measure_large:
            table.add(name, "left out: --quick")
            continue
        try:
            call()
        except LeftOut as why:
            table.add(name, f"left out: {why}")
        except Missing as why:
            table.fail(code)
            table.add(name, str(why), "", "FAILED")
        except Exception as why:  # whatever it is, the other figures are wanted
            table.fail(code)
            table.add(name, f"{type(why).__name__}: {why}"[:120], "", "FAILED")


def parse():
    p = argparse.ArgumentParser()
    for name in ("--trireme", "--parity", "--tokens", "--out"):
        p.add_argument(name, type=lambda s: pathlib.Path(s).resolve(), required=True)
    p.add_argument("--images", type=lambda s: pathlib.Path(s).resolve(), default=pathlib.Path("/nonexistent"))
    p.add_argument("--libraries", default="")
    p.add_argument("--seconds", type=float, default=500)
    p.add_argument("--most", type=float, default=600)
    for name in ("--quick", "--no-peer", "--emulated"):
        p.add_argument(name, action="store_true")
    return p.parse_args()


def stop(*_):
    sys.exit(FIGURE)


begin = time.monotonic()
args = parse()
end = begin + args.seconds
table = Table(args.out)
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    signal.signal(signal.SIGTERM, stop)
    (args.out / "log.txt").write_text("")
    try:
        gpu, peak = describe_gpu()
        table.add("GPU", f"{gpu}; dense bf16 peak {peak / 1e12:.0f} TFLOP/s by its datasheet")
        table.add("share of peak", "GPT: (6 N + 12 L C T) x tokens / time / peak; ResNet: 6 x multiply-adds / time / peak")
        run_steps()
    finally:
        table.write()
        print("\n" + table.text(), flush=True)
sys.exit(table.code)
