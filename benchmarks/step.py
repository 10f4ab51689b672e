"""Times training steps: ours, PyTorch's and the machine's limits in one run; README.md explains the columns.

step.py [WHAT...] [--threads N] [--rounds N] [--build DIR] [--json FILE] [--markdown FILE] [--wrap CMD]
WHAT: names of work.py's STEPS, deterministic, start, ranks; default all.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import work

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1")
PARTS = ("compute_ms", "exposed_comm_ms", "input_ms", "other_ms")


class Bench:
    """Where programs and data lie, and the lines printed so far."""

    def __init__(self, args, folder):
        self.args, self.dir, self.lines, self.results = args, folder, [], {}
        self.program = os.path.join(args.build, "launch", "trireme")
        self.wrap = args.wrap.split()

    def say(self, text=""):
        print(text, flush=True)
        self.lines.append(text)

    def row(self, *cells):
        self.say("| " + " | ".join(str(c) for c in cells) + " |")

    def head(self, *cells):
        self.row(*cells)
        self.row(*("---" for _ in cells))

    def call(self, cmd):
        p = subprocess.run(self.wrap + cmd, cwd=self.dir, env=ENV, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if p.returncode != 0:
            sys.exit(f"{' '.join(cmd)}\nfailed with code {p.returncode}\n{p.stdout}{p.stderr}")
        return p.stdout

    def config(self, base, name, steps, threads, **sections):
        """Writes a configuration file; sections are added to those of base."""
        c = {k: dict(v) for k, v in base.items()}
        c["run"] = dict(dir=os.path.join(self.dir, name), steps=steps, threads=threads, resume="never",
                        eval_every=0, log_every=1)
        for k, v in sections.items():
            c.setdefault(k, {}).update(v)
        path = os.path.join(self.dir, name + ".yaml")
        with open(path, "w") as f:
            json.dump(c, f)
        return path

    def command(self, path, ranks):
        mpi = ["mpirun", "-n", str(ranks), "--bind-to", "none"] if ranks > 1 else []
        return mpi + [self.program, "train", path]

    def metrics(self, name):
        """Step objects of a finished run without the first, which warms up; removes the folder."""
        folder = os.path.join(self.dir, name)
        with open(os.path.join(folder, "metrics.jsonl")) as f:
            steps = [m for m in map(json.loads, f) if "step_ms" in m]
        shutil.rmtree(folder)
        return steps[1:]

    def train(self, base, name, steps, threads, ranks=1, **sections):
        """Runs steps + 1 steps and gives the step objects of all but the first."""
        self.call(self.command(self.config(base, name, steps + 1, threads, **sections), ranks))
        return self.metrics(name)

    def limits(self, threads):
        return json.loads(self.call([os.path.join(self.args.build, "benchmarks", "limits"), str(threads)]))

    def torch(self, arguments, steps):
        """The peer's JSON line; None where it does not run."""
        try:
            out = subprocess.run(self.wrap + [os.path.join(HERE, "peers", "run_torch.sh")] + arguments +
                                 ["--threads", str(self.args.threads), "--steps", str(steps)], cwd=self.dir,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            return json.loads(out.stdout)
        except (OSError, ValueError):
            return None


def best(steps, key="step_ms"):
    return min(s[key] for s in steps)


def median(steps, key="step_ms"):
    return statistics.median(s[key] for s in steps)


def sum_error(steps):
    """Largest distance of the measured parts' sum from the step, as a fraction."""
    return max(abs(sum(s[p] for p in PARTS) / s["step_ms"] - 1) for s in steps)


def verdict(good):
    return "ok" if good else "MISSED"


def bench_steps(b, names):
    """Models against the peer and the best product, alternating."""
    if not names:
        return
    b.say(f"\n## Steps, one rank of {b.args.threads} threads\n")
    b.head("model", "ours ms best (median)", "peer ms best (median)", "peer / ours", "GFLOP/s", "product GFLOP/s",
           "share", "peak GB", "sum of parts off by", "goal")
    for name in names:
        (config, flops), peer_args, steps, ratio, share = work.STEPS[name]
        ours, peers, limits = [], [], []
        for _ in range(b.args.rounds):
            limits.append(b.limits(b.args.threads)["sgemm_gflops"])
            ours += b.train(config, name, steps, b.args.threads)
            peers.append(b.torch(peer_args, steps))
        peers = [p for p in peers if p]
        rate, limit = flops / best(ours) * 1e-6, max(limits)
        r = dict(best_ms=best(ours), median_ms=median(ours), gflops=rate, product_gflops=limit, share=rate / limit,
                 peak_gb=max(s["mem_bytes"] for s in ours) / 1e9, sum_error=sum_error(ours))
        good = r["sum_error"] <= 0.02 and (share is None or r["share"] >= share)
        if peers:
            r.update(peer=peers[0]["peer"], peer_best_ms=min(p["best_ms"] for p in peers),
                     peer_median_ms=statistics.median(p["median_ms"] for p in peers))
            r["ratio"] = r["peer_best_ms"] / r["best_ms"]
            good = good and r["ratio"] >= ratio
        b.results[name] = r
        b.row(name, f"{r['best_ms']:.1f} ({r['median_ms']:.1f})",
              f"{r['peer_best_ms']:.1f} ({r['peer_median_ms']:.1f})" if peers else "not there",
              f"{r['ratio']:.2f}" if peers else "", f"{rate:.0f}", f"{limit:.0f}", f"{100 * r['share']:.0f} %",
              f"{r['peak_gb']:.2f}", f"{100 * r['sum_error']:.2f} %", verdict(good))


def bench_deterministic(b):
    """What run.deterministic costs at the same grain and threads."""
    b.say("\n## Deterministic mode, one rank of 1 thread, same grains\n")
    b.head("model", "off ms", "on ms", "cost", "goal")
    for name, base in (("resnet20", work.resnet("resnet20", 128)[0]), ("gpt", work.GPT_SMALL)):
        off, on = [], []
        grain = dict(data=dict(grain=base["data"].get("grain", 16)))
        for _ in range(b.args.rounds):
            off += b.train(base, name, 6, 1, run=dict(deterministic=False), **grain)
            on += b.train(base, name, 6, 1, run=dict(deterministic=True), **grain)
        cost = best(on) / best(off) - 1
        b.results["deterministic-" + name] = dict(off_ms=best(off), on_ms=best(on), cost=cost)
        b.row(name, f"{best(off):.1f}", f"{best(on):.1f}", f"{100 * cost:.1f} %", verdict(cost <= 0.2))


def first_line_s(b, path, ranks):
    """Seconds from the start of the command to its first line about a step."""
    begin, seen = time.monotonic(), None
    p = subprocess.Popen(b.wrap + b.command(path, ranks), cwd=b.dir, env=ENV, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        if seen is None and "step 1/" in line:
            seen = time.monotonic() - begin
    p.wait()
    if seen is None:
        sys.exit("no line about the first step")
    return seen


def bench_start(b):
    """From mpirun to the end of the first step, two ranks."""
    b.say("\n## From mpirun to the end of the first step, 2 ranks of 1 thread\n")
    b.head("model", "s best (median)", "goal")
    for name, base in (("mlp", work.MLP_SMALL), ("gpt", work.GPT_SMALL), ("resnet20", work.resnet("resnet20", 128)[0])):
        times = []
        for _ in range(3):
            path = b.config(base, name, 1, 1)
            times.append(first_line_s(b, path, 2))
            shutil.rmtree(os.path.join(b.dir, name))
        b.results["start-" + name] = dict(best_s=min(times), median_s=statistics.median(times))
        b.row(name, f"{min(times):.2f} ({statistics.median(times):.2f})", verdict(min(times) < 1.5))


def train_apart(b, base, steps):
    """Two runs of one rank at once that do not know each other: what sharing the machine costs."""
    names = ["apart0", "apart1"]
    commands = [" ".join(b.command(b.config(base, n, steps + 1, 1), 1)) for n in names]
    b.call(["sh", "-c", " & ".join(commands) + " & wait"])
    return b.metrics(names[0]) + b.metrics(names[1])


def bench_ranks(b):
    """Two ranks of one thread against one rank of one thread, the same work for each rank."""
    b.say("\n## GPT-2 124M, B=4 T=256 a rank, one thread a rank\n")
    one, apart, two = [], [], []
    for _ in range(b.args.rounds):
        one += b.train(work.gpt2(4, 256)[0], "one", 1, 1)
        apart += train_apart(b, work.gpt2(4, 256)[0], 1)
        two += b.train(work.gpt2(8, 256)[0], "two", 1, 1, ranks=2)
    exposed = median(two, "exposed_comm_ms") / median(two)
    r = dict(one_ms=best(one), apart_ms=best(apart), two_ms=best(two), efficiency=best(one) / best(two),
             efficiency_apart=best(apart) / best(two), exposed=exposed, sum_error=sum_error(one + two))
    b.results["ranks"] = r
    b.head("1 rank ms", "2 runs apart ms", "2 ranks ms", "efficiency", "against runs apart", "exposed", "goal")
    b.row(f"{r['one_ms']:.0f}", f"{r['apart_ms']:.0f}", f"{r['two_ms']:.0f}", f"{100 * r['efficiency']:.1f} %",
          f"{100 * r['efficiency_apart']:.1f} %", f"{100 * exposed:.2f} %",
          verdict(r["efficiency"] >= 0.96 and exposed <= 0.015))


def first_line(*cmd):
    try:
        return subprocess.run(cmd, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return "unknown"


def environment(b):
    """Machine, versions, commit and limits on top of the report."""
    with open("/proc/cpuinfo") as f:
        cpu = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown")
    limits = [b.limits(n) for n in sorted({1, b.args.threads})]
    commit = first_line("git", "describe", "--always", "--dirty", "--exclude=*")
    b.results["environment"] = dict(cpu=cpu, cores=os.cpu_count(), commit=commit, limits=limits,
                                    mpi=first_line("mpirun", "--version"), compiler=first_line("cc", "--version"))
    b.say("# Training steps\n")
    b.say(f"- CPU: {cpu}, {os.cpu_count()} cores; commit {commit}")
    b.say(f"- oneDNN {limits[0]['onednn']}; {first_line('mpirun', '--version')}; {first_line('cc', '--version')}")
    for n in limits:
        b.say(f"- limits, {n['threads']} thread(s): product {n['sgemm_gflops']} GFLOP/s, triad {n['triad_gbs']} GB/s")


def main():
    p = argparse.ArgumentParser(description="times training steps; see README.md")
    p.add_argument("what", nargs="*")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--json")
    p.add_argument("--markdown")
    p.add_argument("--wrap", default="", help="command put in front of each measurement")
    args = p.parse_args()
    others = dict(deterministic=bench_deterministic, start=bench_start, ranks=bench_ranks)
    unknown = [w for w in args.what if w not in work.STEPS and w not in others]
    if unknown:
        p.error(f"unknown: {' '.join(unknown)} (known: {' '.join([*work.STEPS, *others])})")
    args.build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        b = Bench(args, folder)
        work.make_data(folder)
        environment(b)
        bench_steps(b, [n for n in work.STEPS if n in args.what or not args.what])
        for name, bench in others.items():
            if name in args.what or not args.what:
                bench(b)
    b.say()
    for path, text in ((args.json, json.dumps(b.results, indent=1)), (args.markdown, "\n".join(b.lines))):
        if path:
            with open(path, "w") as f:
                f.write(text + "\n")


main()
