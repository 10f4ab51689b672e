#!/usr/bin/python3
"""Makes the golden files: run once with PyTorch installed, the results are committed, so that tests need no PyTorch.

For mlp, resnet and gpt: NAME.data.h5 (data), NAME.init.h5 (first weights, for model.init), NAME.json (losses of 50 steps in
f32 and f64). The configurations are NAME.yaml beside them; sizes and optimizer settings here and there must agree.

usage: /usr/bin/python3 tests/golden/make_golden.py     (writes beside itself)
"""
import json
import os
import sys

import h5py
import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "benchmarks", "peers"))
from torch_models import GPT, MLPNet, ResNet  # noqa: E402

STEPS = 50


def groups(model, decay):
    """Decay for matrices and filters only, as Trireme's default."""
    p = list(model.parameters())
    return [dict(params=[x for x in p if x.dim() >= 2], weight_decay=decay),
            dict(params=[x for x in p if x.dim() < 2], weight_decay=0.0)]


def sgd(model, lr):
    return torch.optim.SGD(groups(model, 1e-3), lr=lr, momentum=0.9, nesterov=True)


def adamw(model):
    return torch.optim.AdamW(groups(model, 0.1), lr=1e-3, betas=(0.9, 0.95))


def images(n, size, classes, seed):
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    pattern = r.integers(0, 160, (classes, size, size, 1))
    x = pattern[y] + r.integers(0, 96, (n, size, size, 1))
    return x.astype("u1"), y.astype("i4")


def image_case(model, size, classes, batch, seed, channels_first, lr):
    x, y = images(8 * batch, size, classes, seed)
    mean, scale = 0.45, 0.25
    xf = ((x.astype("f8") / 255 - mean) / scale).astype("f4")

    def batches(dtype):
        i = 0
        while True:
            xs = torch.tensor(xf[i:i + batch]).to(dtype)
            xs = xs.permute(0, 3, 1, 2) if channels_first else xs.flatten(1)
            yield xs, torch.tensor(y[i:i + batch]).long()
            i = (i + batch) % len(x)

    return model, batches, lambda m: sgd(m, lr), dict(attrs=dict(classes=classes, mean=mean, scale=scale), images=x, labels=y)


def gpt_case(seed):
    torch.manual_seed(seed)
    model = GPT(2, 2, 32, 32, 61)
    for name, p in model.named_parameters():  # livelier than GPT-2's start, so that 50 steps move far
        if p.dim() >= 2:
            torch.nn.init.normal_(p, 0.0, 0.05)
    r = np.random.default_rng(seed)
    B, T = 4, 32
    tokens = ((np.arange(8 * B * T + 1) * 5 // 3 + r.integers(0, 4, 8 * B * T + 1)) % 61).astype("i4")

    def batches(dtype):
        s = 0
        t = torch.tensor(tokens).long()
        while True:
            rows = [(s + k) % (8 * B) for k in range(B)]
            yield (torch.stack([t[i * T:i * T + T] for i in rows]),
                   torch.stack([t[i * T + 1:i * T + T + 1] for i in rows]))
            s += B

    return model, batches, adamw, dict(attrs=dict(vocab=61), tokens=tokens)


def train(state, case, dtype):
    model, batches, optimizer, _ = case
    model.load_state_dict(state)
    model = model.to(dtype)
    opt, losses = optimizer(model), []
    for _, (x, y) in zip(range(STEPS), batches(dtype)):
        opt.zero_grad()
        loss = model(x, y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def write(name, case):
    model, _, _, data = case
    with h5py.File(os.path.join(HERE, name + ".data.h5"), "w") as f:
        for k, v in data.pop("attrs").items():
            f.attrs[k] = v
        for k, v in data.items():
            f.create_dataset("train/" + k, data=v, compression="gzip")
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with h5py.File(os.path.join(HERE, name + ".init.h5"), "w") as f:
        for k, v in state.items():
            if not k.endswith("num_batches_tracked"):
                f["param/" + k] = v.float().numpy()
    f32 = train(state, case, torch.float32)
    f64 = train(state, case, torch.float64)
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(dict(torch=torch.__version__, f32=f32, f64=f64), f, indent=0)
    print(f"{name}: loss {f32[0]:.6f} -> {f32[-1]:.6f}, f32 and f64 apart by at most "
          f"{max(abs(a - b) for a, b in zip(f32, f64)):.3g}")


torch.manual_seed(1)
write("mlp", image_case(MLPNet([64, 48, 24, 10]), 8, 10, 16, 2, False, 0.05))
torch.manual_seed(3)
write("resnet", image_case(ResNet("resnet20", 1, 6, True, 8), 12, 6, 32, 4, True, 0.01))
write("gpt", gpt_case(5))
