#!/usr/bin/env bash
# What the exchange costs when it runs under the backward pass: a GPT of 11 M parameters on nodes joined by a shaped link
# (network namespaces; needs root), with and without overlap.
#
#     benchmarks/overlap.sh [--cluster 2x1] [--rate 1gbit] [--grain 24] [--steps 5] [--rounds 2] [--json FILE] [key=value ...]
#
# Each rank computes one grain of that many sequences of 128 bytes: the longer its backward pass beside the link, the more hides.
# link = time inside collectives without overlap (nothing else runs then), backward = time inside the kernels of the backward
# pass without overlap. Overlap can save at most the smaller of them; `saved` is the difference of the best steps over it.
set -eu
cd "$(dirname "$0")/.."
cluster=2x1 rate=1gbit grain=24 steps=5 rounds=2 json=
while [ $# -gt 0 ]; do
    case "$1" in
    --cluster | --rate | --grain | --steps | --rounds | --json)
        declare "${1#--}=${2:?}"
        shift 2
        ;;
    *) break ;;
    esac
done
program=$PWD/build/launch/trireme
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat runtime/*/*.c optim/*.c launch/*.c >"$work/text.txt" # any text of some hundred kilobytes
"$program" data import text "$work/text.txt" --tokenizer byte -o "$work/text.h5" >/dev/null
cat >"$work/run.yaml" <<END
run: {dir: $work/run, steps: 1, eval_every: 0, threads: 1}
model: {name: gpt, layers: 14, heads: 8, width: 256, context: 128}
data: {path: $work/text.h5, batch: $((grain * ${cluster%x*} * ${cluster#*x})), grain: $grain}
optimizer: {name: adamw, lr: 3.0e-4}
END

for ((i = 1; i <= rounds; i++)); do # by turns, so that both meet the same other work on the machine
    for overlap in true false; do
        tests/cluster/cluster.sh --rate "$rate" "$cluster" "$program" bench step "$work/run.yaml" --steps "$steps" \
            --json "$work/$overlap.$i.json" --link "network namespaces, $rate" "gradient.overlap=$overlap" "$@" >/dev/null 2>"$work/errors" ||
            { cat "$work/errors" >&2; exit 1; }
    done
done
python3 - "$work" "$cluster" "$rate" "$grain" "$json" <<'END'
import glob, json, sys
work, cluster, rate, grain, out = sys.argv[1:]
sys.path.insert(0, "benchmarks")
import environment
best = {}
for overlap in ("true", "false"):
    runs = [environment.read(p) for p in glob.glob(f"{work}/{overlap}.*.json")]
    best[overlap] = min(runs, key=lambda r: r["best_ms"])
on, off = best["true"], best["false"]
environment.require_alike(dict(on=on, off=off))
link, backward = off["exchange_ms"], off["backward_ms"]
saved = (off["best_ms"] - on["best_ms"]) / min(link, backward)
print(f"{'overlap':8} {'step ms':>8} {'median':>8} {'exposed':>8} {'backward':>8} {'exchange':>8}   (ms; best round)")
for name, r in (("on", on), ("off", off)):
    print(f"{name:8} {r['best_ms']:8.1f} {r['median_ms']:8.1f} {r['exposed_comm_ms']:8.1f} {r['backward_ms']:8.1f} {r['exchange_ms']:8.1f}")
rest = off["forward_ms"] + off["update_ms"]
print(f"{cluster}, grain {grain}, link {rate}: {on['comm_bytes'] / 1e6:.1f} MB a rank and step, {on['comm_bytes'] * 8e-3 / link:.0f} Mbit/s without overlap")
print(f"saved {off['best_ms'] - on['best_ms']:.1f} ms = {100 * saved:.0f} % of min(link, backward); "
      f"step / (forward + update + max(backward, link)) = {on['best_ms'] / (rest + max(link, backward)):.2f}")
if out:
    with open(out, "w") as f:
        json.dump(dict(benchmark="overlap", cluster=cluster, rate=rate, grain=int(grain), saved=round(saved, 4), on=on, off=off), f, indent=1)
        f.write("\n")
END
