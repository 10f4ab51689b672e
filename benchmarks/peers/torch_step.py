"""Times a training step of PyTorch on the CPU, set up as fairly as we know (see run_torch.sh), and prints one JSON line.

torch_step.py gpt2|resnet50|resnet18w32|resnet20 --batch B [--sequence T] --threads N --steps S
"""
import argparse
import json
import statistics
import time

import torch

from torch_models import GPT, ResNet


def make(args):
    """Model, a batch and the optimizer."""
    torch.manual_seed(0)
    if args.model == "gpt2":
        model = GPT(12, 12, 768, 1024, 50257)
        x = torch.randint(0, 50257, (args.batch, args.sequence + 1))
        batch = (x[:, :-1].contiguous(), x[:, 1:].contiguous())
        return model, batch, torch.optim.AdamW(model.parameters(), lr=3e-4)
    size, channels, classes = (224, 3, 1000) if args.model == "resnet50" else (28, 1, 10)
    preset, width = {"resnet50": ("resnet50", 0), "resnet18w32": ("resnet18", 32), "resnet20": ("resnet20", 0)}[args.model]
    model = ResNet(preset, channels, classes, size < 64, width).to(memory_format=torch.channels_last)
    x = torch.randn(args.batch, channels, size, size).contiguous(memory_format=torch.channels_last)
    batch = (x, torch.randint(0, classes, (args.batch,)))
    return model, batch, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--sequence", type=int, default=256)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=5)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    model, batch, optimizer = make(args)
    times = []
    for _ in range(args.steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(*batch).backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - begin))
    times = times[1:]
    print(json.dumps(dict(peer="PyTorch " + torch.__version__, model=args.model, batch=args.batch,
                          threads=args.threads, best_ms=min(times), median_ms=statistics.median(times))))


main()
