"""Trains the same jobs with every compression and every precision and compares accuracy and loss.

accuracy.py [fashion] [gpt] [precision] [--seeds 1,2,3] [--methods none,bf16,...] [--ranks 2]
            [--keep DIR] [--json FILE]

fashion: Fashion-MNIST accuracy of each compression; gpt: loss of each compression; precision: loss of a ResNet and a GPT in f32, bf16
and fp16. --keep: the folder of datasets and runs; finished runs in it are not repeated. Needs the Debian packages
dataset-fashion-mnist and bible-kjv-text.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import environment

HERE = os.path.dirname(os.path.abspath(__file__))
IMAGES = "/usr/share/datasets/fashion-mnist/"
METHODS = {"none": {}, "bf16": {}, "fp16": {}, "int8": {}, "onebit": {}, "topk": dict(ratio=0.01), "randk": dict(ratio=0.01),
           "powersgd": dict(rank=4)}
WARMUP = dict(topk=1, randk=1, powersgd=1, onebit=2)  # parts of the warm-up that a job gives
LAST = 50  # steps whose mean loss counts
POINTS, PERCENT, ABSOLUTE = 0.5, 2.0, 0.01  # the bounds

# Each job: configuration, and the updates of a warm-up of compression (Deep Gradient Compression, section 3.4; 1-bit Adam, section 4).
FASHION = (dict(run=dict(epochs=5, eval_every=469), model=dict(name="mlp", hidden=[256, 128]), data=dict(path="fashion.h5", batch=128),
                optimizer=dict(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4), schedule=dict(name="linear", warmup=200)), 469)
GPT = (dict(run=dict(steps=12000, eval_every=0), model=dict(name="gpt", layers=2, heads=4, width=128, context=64),
            data=dict(path="text.h5", batch=4, sequence=64), optimizer=dict(name="adamw", lr=1e-3, weight_decay=0.1),
            schedule=dict(name="cosine", warmup=200), gradient=dict(clip_norm=1.0)), 3000)
RESNET = (dict(run=dict(eval_every=0), model=dict(name="resnet", preset="resnet20"), data=dict(path="fashion.h5", batch=128),
               optimizer=dict(name="sgd", lr=0.1, momentum=0.9, weight_decay=5e-4), schedule=dict(name="linear", warmup=50)), 0)


DIVERGED = "the gradient was not finite in 20 steps in a row"


class Diverged(Exception):
    pass


def execute(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 1 and DIVERGED in done.stderr:
        raise Diverged
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")


class Jobs:
    """Runs of one folder."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.program = os.environ.get("TRIREME", os.path.join(HERE, "../build/launch/trireme"))
        os.environ.update({f"OMPI_{k}": "1" for k in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM",
                                                      "MCA_rmaps_base_oversubscribe", "MCA_mpi_yield_when_idle")})
        self.make_data()

    def path(self, name):
        return os.path.join(self.folder, name)

    def make_data(self):
        images, text = self.path("fashion.h5"), self.path("text.h5")
        if not os.path.exists(images):
            execute([self.program, "data", "import", "idx", "--train-images", IMAGES + "train-images-idx3-ubyte.gz",
                     "--train-labels", IMAGES + "train-labels-idx1-ubyte.gz", "--validation-images",
                     IMAGES + "t10k-images-idx3-ubyte.gz", "--validation-labels", IMAGES + "t10k-labels-idx1-ubyte.gz", "-o", images])
        if not os.path.exists(text):
            with open(self.path("bible.txt"), "w") as f:
                subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdout=f, check=True)
            execute([self.program, "data", "import", "text", self.path("bible.txt"), "--tokenizer", "byte", "-o", text])

    def write(self, name, config, **sections):
        """A configuration file: config, with the sections merged over its own."""
        whole = {k: {**config.get(k, {}), **sections.get(k, {})} for k in {*config, *sections}}
        whole["run"].update(dir=self.path(name), threads=1)
        whole["data"]["path"] = self.path(whole["data"]["path"])
        file = self.path(name + ".yaml")
        with open(file, "w") as f:
            json.dump(whole, f)  # JSON is YAML
        return file

    def start(self, *arguments):
        execute(["mpirun", "-n", str(self.args.ranks), "--bind-to", "none", self.program, *arguments])

    def train(self, name, config, **sections):
        """Lines of metrics.jsonl: (steps, evaluations)."""
        self.start("train", self.write(name, config, **sections))
        with open(self.path(name + "/metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        return [x for x in lines if "eval" not in x], [x["eval"] for x in lines if "eval" in x]

    def environment(self):
        file = self.path("environment.json")
        self.start("bench", "step", self.write("environment", FASHION[0]), "--steps", "2", "--json", file)
        return environment.read(file)["environment"]

    def compress(self, config, method, warmup):
        """The gradient section for a method."""
        how = dict(name=method, level="all", force=True, **METHODS[method])
        if method in WARMUP:
            how["warmup"] = WARMUP[method] * warmup
        return {**config.get("gradient", {}), **({} if method == "none" else {"compress": how})}


def last_loss(steps):
    return statistics.fmean(s["loss"] for s in steps[-LAST:])


def number(value, digits, sign=""):
    return "diverged" if math.isnan(value) else f"{value:{sign}.{digits}f}"


def verdict(good):
    return "ok" if good else "MISSED"


def compare(jobs, name, job, value):
    """{method: [value of each seed]}, NaN for a run that diverged"""
    config, warmup = job
    found = {}
    for method in jobs.args.methods:
        found[method] = []
        for seed in jobs.args.seeds:
            try:
                run = jobs.train(f"{name}-{method}-{seed}", config, run=dict(seed=seed), gradient=jobs.compress(config, method, warmup))
                found[method].append(value(*run))
            except Diverged:
                found[method].append(math.nan)
    return found


def fashion(jobs):
    found = compare(jobs, "fashion", FASHION, lambda steps, evals: 100 * evals[-1]["accuracy"])
    print(f"\nFashion-MNIST, seeds {jobs.args.seeds}\n\n| method | accuracy % | of the seeds | points against none | goal |\n|---|---|---|---|---|")
    for method, values in found.items():
        off = statistics.fmean(values) - statistics.fmean(found["none"])
        print(f"| {method} | {number(statistics.fmean(values), 2)} | {', '.join(number(v, 2) for v in values)} | {number(off, 2, '+')} | "
              f"{verdict(off >= -POINTS)} |", flush=True)
    return found


def gpt(jobs):
    found = compare(jobs, "gpt", GPT, lambda steps, evals: last_loss(steps))
    print(f"\ngpt, seeds {jobs.args.seeds}\n\n| method | loss | of the seeds | % against none | goal |\n|---|---|---|---|---|")
    for method, values in found.items():
        off = 100 * (statistics.fmean(values) / statistics.fmean(found["none"]) - 1)
        print(f"| {method} | {number(statistics.fmean(values), 4)} | {', '.join(number(v, 4) for v in values)} | {number(off, 2, '+')} | "
              f"{verdict(off <= PERCENT)} |", flush=True)
    return found


def precision(jobs):
    """fp16's scale starts so high that it must fall, and grows every 50 good steps, so that it moves within the run."""
    print(f"\nprecision, seeds {jobs.args.seeds}\n\n| model | compute | loss | of the seeds | against fp32 | changes of the scale | "
          "skipped | goal |\n|---|---|---|---|---|---|---|---|")
    found = {}
    for name, (config, _), steps in (("resnet20", RESNET, 300), ("gpt", GPT, 1000)):
        for compute in ("fp32", "bf16", "fp16"):
            losses, changes, skipped = [], 0, 0
            for seed in jobs.args.seeds:
                lines, _ = jobs.train(f"precision-{name}-{compute}-{seed}", config, run=dict(seed=seed, steps=steps), precision=dict(
                    compute=compute, loss_scale=dict(initial=2.0 ** 24, growth_interval=50)))
                scale = [s["loss_scale"] for s in lines]
                losses.append(last_loss(lines))
                changes += sum(a != b for a, b in zip(scale, scale[1:]))
                skipped += sum(s["skipped"] for s in lines)
            loss = statistics.fmean(losses)
            found[f"{name}-{compute}"] = dict(loss=loss, of_seeds=losses, scale_changes=changes, skipped=skipped)
            plain = found[f"{name}-fp32"]["loss"]
            good = abs(loss - plain) <= max(ABSOLUTE, PERCENT / 100 * plain) and (compute != "fp16" or changes > 0)
            print(f"| {name} | {compute} | {loss:.4f} | {', '.join(f'{v:.4f}' for v in losses)} | {loss - plain:+.4f} "
                  f"({100 * (loss / plain - 1):+.2f} %) | {changes} | {skipped} | {verdict(good)} |", flush=True)
    return found


TABLES = {"fashion": fashion, "gpt": gpt, "precision": precision}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tables", nargs="*", help="fashion, gpt, precision (all)")
    p.add_argument("--seeds", type=lambda s: [int(x) for x in s.split(",")], default=[1, 2, 3])
    p.add_argument("--methods", type=lambda s: s.split(","), default=list(METHODS), help="the first must be none")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    if args.methods[0] != "none" or not {*args.methods} <= {*METHODS} or not {*args.tables} <= {*TABLES}:
        p.error(f"tables are {', '.join(TABLES)}; methods are {', '.join(METHODS)}, none first")
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(args.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        jobs = Jobs(args, folder)
        where = jobs.environment()
        print(environment.describe(where))
        result = dict(benchmark="accuracy", environment=where, seeds=args.seeds)
        for name in args.tables or TABLES:
            result[name] = TABLES[name](jobs)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(json.loads(json.dumps(result), parse_constant=lambda _: None), f, indent=1)  # JSON has no NaN
            f.write("\n")


if __name__ == "__main__":
    main()
