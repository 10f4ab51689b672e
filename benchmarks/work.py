"""The work that is timed: datasets of random numbers, configurations, and FLOPs counted as README.md says."""
import os

import h5py
import numpy as np

GPT2 = dict(layers=12, width=768, vocab=50257, context=1024)
RESNETS = {  # blocks of the stages, bottleneck, width
    "resnet20": ([3, 3, 3], False, 16), "resnet18": ([2, 2, 2, 2], False, 64), "resnet50": ([3, 4, 6, 3], True, 64)}


def make_data(folder):
    """small.h5 (28 x 28), large.h5 (224 x 224), text.h5 in the folder."""
    r = np.random.default_rng(1)
    for name, n, size, channels, classes in (("small", 1024, 28, 1, 10), ("large", 64, 224, 3, 1000)):
        with h5py.File(os.path.join(folder, name + ".h5"), "w") as f:
            f.attrs["classes"], f.attrs["mean"], f.attrs["scale"] = classes, 0.5, 0.25
            f["train/images"] = r.integers(0, 256, (n, size, size, channels), dtype="u1")
            f["train/labels"] = r.integers(0, classes, n).astype("i4")
    with h5py.File(os.path.join(folder, "text.h5"), "w") as f:
        f.attrs["vocab"] = GPT2["vocab"]
        f["train/tokens"] = r.integers(0, GPT2["vocab"], 100001).astype("i4")
    with h5py.File(os.path.join(folder, "bytes.h5"), "w") as f:
        f.attrs["vocab"] = 256
        f["train/tokens"] = r.integers(0, 256, 100001).astype("i4")


def gpt_flops(tokens, sequence, layers, width, vocab, context):
    """6 N + 12 L C T a token; the causal mask is not halved."""
    n = (vocab + context) * width + layers * (12 * width ** 2 + 13 * width) + 2 * width
    return tokens * (6 * n + 12 * layers * width * sequence)


def resnet_macs(preset, size, channels, classes, width=0):
    """Multiply-adds of one image forward: convolutions and the last layer."""
    depth, bottleneck, base = RESNETS[preset]
    width = width or base
    small, macs = size < 64, 0

    def conv(i, o, k, stride, h):
        nonlocal macs
        h = (h + 2 * (k // 2) - k) // stride + 1
        macs += i * o * k * k * h * h
        return h

    h = conv(channels, width, 3, 1, size) if small else conv(channels, width, 7, 2, size)
    h = h if small else (h + 1) // 2
    i = width
    for stage, blocks in enumerate(depth):
        w, o = width << stage, (width << stage) * (4 if bottleneck else 1)
        for b in range(blocks):
            stride = 2 if stage > 0 and b == 0 else 1
            if stride != 1 or i != o:
                conv(i, o, 1, stride, h)
            if bottleneck:
                conv(i, w, 1, 1, h)
                h = conv(w, w, 3, stride, h)
                conv(w, o, 1, 1, h)
            else:
                h = conv(i, w, 3, stride, h)
                conv(w, w, 3, 1, h)
            i = o
    return macs + i * classes


def gpt2(batch, sequence, grain=4):
    config = dict(model=dict(name="gpt", preset="124M"), optimizer=dict(name="adamw", lr=3e-4),
                  data=dict(path="text.h5", batch=batch, grain=grain, sequence=sequence))
    return config, gpt_flops(batch * sequence, sequence, **GPT2)


def resnet(preset, batch, width=0):
    size, channels, classes = (224, 3, 1000) if preset == "resnet50" else (28, 1, 10)
    config = dict(model=dict(name="resnet", preset=preset), optimizer=dict(name="sgd", lr=0.01),
                  data=dict(path="large.h5" if size == 224 else "small.h5", batch=batch))
    if width:
        config["model"]["width"] = width
    return config, 6.0 * batch * resnet_macs(preset, size, channels, classes, width)


# name: (configuration and FLOPs, arguments of the peer, steps of a run, least ratio, least share of the product)
STEPS = {
    "gpt2-T256": (gpt2(4, 256), ["gpt2", "--batch", "4", "--sequence", "256"], 3, 1.15, 0.80),
    "gpt2-T1024": (gpt2(4, 1024), ["gpt2", "--batch", "4", "--sequence", "1024"], 1, 1.4, 0.80),
    "resnet50": (resnet("resnet50", 16), ["resnet50", "--batch", "16"], 4, 1.1, None),
    "resnet18w32": (resnet("resnet18", 64, 32), ["resnet18w32", "--batch", "64"], 20, 1.15, None),
    "resnet20": (resnet("resnet20", 128), ["resnet20", "--batch", "128"], 20, 1.15, None),
}

GPT_SMALL = dict(model=dict(name="gpt", layers=4, heads=4, width=256, context=128, dropout=0.1),
                 optimizer=dict(name="adamw", lr=1e-3), data=dict(path="bytes.h5", batch=16, grain=2, sequence=128))
MLP_SMALL = dict(model=dict(name="mlp", hidden=[256, 256]), optimizer=dict(name="sgd", lr=0.01),
                 data=dict(path="small.h5", batch=64))
