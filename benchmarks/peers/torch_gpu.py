"""Times a training step of PyTorch on a GPU as its users run it fast, and prints one JSON line.

torch_gpu.py gpt2|gpt2-xl|resnet50 --batch B [--sequence T] [--steps S] [--dry-run]

bf16 by autocast over f32 weights, torch.compile, the library's flash attention, fused AdamW; images channels-last. Batches are
random and lie on the GPU. The first steps, which compile, are left out. --dry-run: tiny models on the CPU, not compiled, to try
this file.
"""
import argparse
import json
import statistics
import time

import torch

from torch_models import GPT, ResNet

WARMUP = 5


def make(args):
    """Model, a batch and the optimizer."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    device, fused = ("cpu", {}) if args.dry_run else ("cuda", dict(fused=True))
    if args.model.startswith("gpt2"):
        layers, heads, width = (1, 2, 16) if args.dry_run else (12, 12, 768) if args.model == "gpt2" else (48, 25, 1600)
        model = GPT(layers, heads, width, args.sequence, 50257).to(device)
        x = torch.randint(0, 50257, (args.batch, args.sequence + 1), device=device)
        batch = (x[:, :-1].contiguous(), x[:, 1:].contiguous())
        return model, batch, torch.optim.AdamW(model.parameters(), lr=3e-4, **fused)
    size = 32 if args.dry_run else 224
    model = ResNet("resnet50", 3, 1000, False).to(device, memory_format=torch.channels_last)
    x = torch.randn(args.batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    batch = (x, torch.randint(0, 1000, (args.batch,), device=device))
    return model, batch, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **fused)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=["gpt2", "gpt2-xl", "resnet50"])
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--sequence", type=int, default=1024)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--dry-run", action="store_true")
    args = p.parse_args()
    model, batch, optimizer = make(args)
    step, device = (model, "cpu") if args.dry_run else (torch.compile(model), "cuda")
    wait = (lambda: None) if args.dry_run else torch.cuda.synchronize
    times = []
    for _ in range(WARMUP + args.steps):
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = step(*batch)
        loss.backward()
        optimizer.step()
        wait()
        times.append(1000 * (time.perf_counter() - begin))
    times = times[WARMUP:]
    print(json.dumps(dict(peer="PyTorch " + torch.__version__, model=args.model, batch=args.batch, best_ms=min(times),
                          median_ms=statistics.median(times))))


main()
