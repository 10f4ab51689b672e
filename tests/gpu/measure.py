#!/usr/bin/env python3
"""Trains and measures on a GPU for run.sh, and prints one table.

    measure.py --build DIR --data DIR --out DIR [--quick] [--no-peer]

--data holds datasets/fashion-mnist. --quick leaves the 1558M model out and takes fewer steps. A line that misses its goal is
marked, and does not fail; a wrong result (a loss that did not fall, a run that broke) makes the program end with 1.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEQUENCE, VOCAB = 1024, 50257
PEAK = {"H200": 989.4e12, "H100": 989.4e12, "A100": 312e12}  # dense bf16 of the SXM parts' datasheets, FLOP/s
GPT = dict(layers=12, width=768), dict(layers=48, width=1600)

rows, results, broken = [], {}, []


def row(what, value, goal="", good=None):
    rows.append((what, value, goal, "" if good is None else "ok" if good else "MISSED"))
    print(f"  {what}: {value}", flush=True)


def run(name, command, limit, **kwargs):
    """Output of a command, None when it failed; its log goes to out/NAME.log."""
    begin = time.monotonic()
    try:
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=limit, **kwargs)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as e:
        text, code = (e.stdout or b"").decode(errors="replace"), f"over {limit} s"
    (args.out / (name + ".log")).write_text(text)
    results[name + "_s"] = time.monotonic() - begin
    if code != 0:
        last = text.strip().splitlines()[-1:] or [""]
        row(name, f"failed ({code}): {last[0][:90]}")
        return None
    return text


def trireme(name, *words, limit=120):
    return run(name, [args.build / "launch/trireme", *words], limit, cwd=ROOT)


def broke(what):
    broken.append(what)
    row(what, "WRONG")


def train(name, recipe, data, settings, limit):
    """Losses of a run, in order; None when it failed."""
    folder = args.out / name
    text = trireme(name, "train", f"launch/recipes/{recipe}.yaml", f"run.dir={folder}", f"data.path={data}",
                   "run.resume=never", "device.kind=cuda", *settings, limit=limit)
    if text is None:
        return None
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line["eval"] for line in lines if "eval" in line]


def train_images():
    images, data = args.data / "datasets/fashion-mnist", args.out / "fashion.h5"
    if not images.exists():
        row("Fashion-MNIST", f"left out: no {images}")
        return
    names = ("--train-images", "train-images-idx3"), ("--train-labels", "train-labels-idx1"), \
        ("--validation-images", "t10k-images-idx3"), ("--validation-labels", "t10k-labels-idx1")
    files = [w for flag, name in names for w in (flag, images / (name + "-ubyte.gz"))]
    if trireme("import images", "data", "import", "idx", *files, "-o", data) is None:
        return broke("Fashion-MNIST")
    found = train("fashion", "quickstart_fashion", data, [], 150)
    if found is None or not found[1]:
        return broke("Fashion-MNIST")
    accuracy = found[1][-1]["accuracy"]
    row("Fashion-MNIST, ResNet-20, 3 epochs", f"{100 * accuracy:.2f} % right, {results['fashion_s']:.0f} s", "91 %",
        accuracy >= 0.91)
    if accuracy < 0.85:
        broke("accuracy on Fashion-MNIST")


def train_text():
    """A small GPT on the text of our own sources."""
    text, data = args.out / "sources.txt", args.out / "sources.h5"
    files = sorted(p for d in ("runtime", "collectives", "optim", "models", "launch") for p in (ROOT / d).rglob("*.[ch]"))
    text.write_text("".join(p.read_text() for p in files))
    if trireme("import text", "data", "import", "text", text, "--tokenizer", "bpe:512", "-o", data) is None:
        return broke("GPT on text")
    found = train("gpt", "quickstart_gpt", data, ["precision.compute=bf16"], 120)
    if found is None:
        return broke("GPT on text")
    first, last = found[0][0]["loss"], found[0][-1]["loss"]
    row(f"GPT on our sources, bf16, {len(found[0])} steps", f"loss {first:.2f} -> {last:.2f}, {results['gpt_s']:.0f} s")
    if not last < 0.6 * first:
        broke("the GPT's loss did not fall")


def make_random():
    """Tokens with the frequencies of words (1 / rank) and random images; False without h5py."""
    try:
        import h5py
        import numpy as np
    except ImportError:
        return False
    r = np.random.default_rng(1)
    weight = 1 / np.arange(1, VOCAB + 1)
    with h5py.File(args.out / "tokens.h5", "w") as f:
        f.attrs["vocab"] = VOCAB
        ranks = r.choice(VOCAB, 3_000_000, p=weight / weight.sum())
        f["train/tokens"] = r.permutation(VOCAB)[ranks].astype("i4")
    with h5py.File(args.out / "images.h5", "w") as f:
        f.attrs["classes"], f.attrs["mean"], f.attrs["scale"] = 1000, 0.5, 0.25
        f["train/images"] = r.integers(0, 256, (1024, 224, 224, 3), dtype="u1")
        f["train/labels"] = r.integers(0, 1000, 1024).astype("i4")
    return True


def bench_step(name, config, steps, settings=(), limit=120):
    """The numbers of `trireme bench step`; None when it failed."""
    path, found = args.out / (name + ".yaml"), args.out / (name + ".json")
    path.write_text(json.dumps(config))  # JSON is YAML
    text = trireme(name, "bench", "step", path, "--steps", str(steps), "--json", found, *settings, limit=limit)
    results[name] = json.loads(found.read_text()) if text is not None else None
    return results[name]


def peer(name, model, batch, steps, limit=150):
    if args.no_peer:
        return None
    try:
        import torch
    except ImportError:
        row(f"PyTorch, {model}", "left out: no torch")
        return None
    text = run(name, [sys.executable, ROOT / "benchmarks/peers/torch_gpu.py", model, "--batch", str(batch), "--sequence",
                      str(SEQUENCE), "--steps", str(steps)], limit)
    if text is None:
        return None
    results[name] = json.loads(text.strip().splitlines()[-1])
    return results[name]


def gpt_config(preset, batch):
    return dict(run=dict(steps=1000), model=dict(name="gpt", preset=preset), precision=dict(compute="bf16"),
                device=dict(kind="cuda"), optimizer=dict(name="adamw", lr=3e-4),
                data=dict(path=str(args.out / "tokens.h5"), batch=batch, grain=batch, sequence=SEQUENCE))


def gpt_flops(tokens, layers, width):
    """6 N + 12 L C T a token, as benchmarks/README.md counts."""
    n = (VOCAB + 1024) * width + layers * (12 * width ** 2 + 13 * width) + 2 * width
    return tokens * (6 * n + 12 * layers * width * SEQUENCE)


def measure_gpt(peak):
    batch, steps = 64, 5 if args.quick else 20
    tokens = batch * SEQUENCE
    off = bench_step("gpt2", gpt_config("124M", batch), steps)
    on = bench_step("gpt2-graph", gpt_config("124M", batch), steps, ["device.graph=true"])
    other = peer("gpt2-peer", "gpt2", batch, steps)
    best = min((r["best_ms"] for r in (off, on) if r), default=None)
    if best is None:
        return broke("GPT-2 124M")
    rate = tokens / best * 1e3
    row("GPT-2 124M, bf16, T=1024", f"{rate / 1e6:.3f} M tokens/s, {100 * gpt_flops(rate, **GPT[0]) / peak:.1f} % of peak",
        "0.50 M", rate >= 0.5e6)
    if off and on:
        row("  device.graph off, on", f"{off['best_ms']:.2f} ms, {on['best_ms']:.2f} ms")
    if other:
        ratio = other["best_ms"] / best
        row("  PyTorch, compiled", f"{tokens / other['best_ms'] / 1e3:.3f} M tokens/s; we are {ratio:.2f} times as fast", "1.00",
            ratio >= 1)


def measure_large(peak):
    batch, steps = 16, 6
    found = bench_step("gpt2-1558M", gpt_config("1558M", batch), steps, limit=150)
    if found is None:
        return broke("GPT-2 1558M")
    rate = batch * SEQUENCE / found["best_ms"] * 1e3
    share = gpt_flops(rate, **GPT[1]) / peak
    row("GPT-2 1558M, bf16, T=1024", f"{rate / 1e3:.1f} k tokens/s, {100 * share:.1f} % of peak", "48 %", share >= 0.48)


def measure_resnet():
    batch, steps = 256, 5 if args.quick else 20
    config = dict(run=dict(steps=1000), model=dict(name="resnet", preset="resnet50"), precision=dict(compute="bf16"),
                  device=dict(kind="cuda"), optimizer=dict(name="sgd", lr=0.1, momentum=0.9),
                  data=dict(path=str(args.out / "images.h5"), batch=batch, grain=batch))
    found = bench_step("resnet50", config, steps)
    other = peer("resnet50-peer", "resnet50", batch, steps)
    if found is None:
        return broke("ResNet-50")
    row("ResNet-50, bf16", f"{batch / found['best_ms'] * 1e3:.0f} images/s")
    if other:
        ratio = other["best_ms"] / found["best_ms"]
        row("  PyTorch, channels-last, compiled", f"{batch / other['best_ms'] * 1e3:.0f} images/s; we are {ratio:.2f} times as fast",
            "1.00", ratio >= 1)


def measure_kernels():
    """Kernels whose time is that of their bytes, against the copy of the same run."""
    found = args.out / "kernels.json"
    if trireme("kernels", "bench", "kernels", "--device", "cuda", "--json", found, limit=120) is None:
        return
    kernels = json.loads(found.read_text())
    copy = kernels["copy_bytes_per_s"]
    row("copy on the device", f"{copy / 1e12:.2f} TB/s, read and written")
    for k in kernels["lines"]:
        rate = k["bytes"] / k["best_us"] * 1e6
        if k["bytes"] > 256e6 and k["flops"] / k["bytes"] < 20:
            row(f"  {k['op']} {k['shapes']}", f"{rate / 1e12:.2f} TB/s, {100 * rate / copy:.0f} % of copy", "85 %",
                rate >= 0.85 * copy)


def gpu_peak():
    name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    name = name.stdout.strip().splitlines()[0]
    for key, peak in PEAK.items():
        if key in name:
            return name, peak
    return name, float("nan")


def print_table():
    widths = [max(len(r[i]) for r in rows) for i in range(4)]
    print("\n" + "  ".join(t.ljust(w) for t, w in zip(("what", "measured", "goal", ""), widths)))
    for r in rows:
        print("  ".join(t.ljust(w) for t, w in zip(r, widths)).rstrip())


def main():
    global args
    p = argparse.ArgumentParser()
    for name in ("--build", "--data", "--out"):
        p.add_argument(name, type=lambda s: pathlib.Path(s).resolve(), required=True)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--no-peer", action="store_true")
    args = p.parse_args()
    name, peak = gpu_peak()
    row("GPU", f"{name}, dense bf16 peak {peak / 1e12:.0f} TFLOP/s by its datasheet")
    train_images()
    train_text()
    measure_kernels()
    if make_random():
        measure_gpt(peak)
        measure_resnet()
        if not args.quick:
            measure_large(peak)
    else:
        row("steps", "left out: no numpy and h5py to make data")
    (args.out / "results.json").write_text(json.dumps(dict(rows=rows, **results), indent=1))
    print_table()
    return 1 if broken else 0


sys.exit(main())
