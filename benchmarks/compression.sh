#!/usr/bin/env bash
# What compression saves on a slow link: a GPT of 3.3 M parameters, one sequence of 64 bytes a rank, so that the exchange takes
# nearly all of a step, on nodes joined by a shaped link (network namespaces; needs root).
#
#     benchmarks/compression.sh [--cluster 2x1] [--rate 100mbit] [--steps 8] [--rounds 2] [--json FILE] [METHOD...]
#
# METHOD: as gradient.compress.name; sparse ones keep 1 %, powersgd has rank 4. The table has the step of each beside the
# uncompressed one of the same run; the best round counts. README.md explains the columns.
set -eu
cd "$(dirname "$0")/.."
cluster=2x1 rate=100mbit steps=8 rounds=2 json=
while [ $# -gt 0 ]; do
    case "$1" in
    --cluster | --rate | --steps | --rounds | --json)
        declare "${1#--}=${2:?}"
        shift 2
        ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || set -- fp16 bf16 int8 onebit topk randk powersgd
program=${TRIREME:-$PWD/build/launch/trireme}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat runtime/*/*.c >"$work/text.txt" # any text of some hundred kilobytes
"$program" data import text "$work/text.txt" --tokenizer byte -o "$work/text.h5" >/dev/null
cat >"$work/run.yaml" <<END
run: {dir: $work/run, steps: 1, eval_every: 0, threads: 1}
model: {name: gpt, layers: 4, heads: 4, width: 256, context: 64}
data: {path: $work/text.h5, batch: $((${cluster%x*} * ${cluster#*x}))}
optimizer: {name: adamw, lr: 3.0e-4}
gradient: {hierarchy: two_level}
END

for ((i = 1; i <= rounds; i++)); do # by turns, so that all meet the same other work on the machine
    for method in none "$@"; do
        how=()
        [ "$method" = none ] || how=("gradient.compress={name: $method, ratio: 0.01, rank: 4, force: true}")
        tests/cluster/cluster.sh --rate "$rate" "$cluster" "$program" bench step "$work/run.yaml" --steps "$steps" \
            --json "$work/$method.$i.json" --link "network namespaces, $rate" "${how[@]}" >/dev/null 2>"$work/errors" ||
            { cat "$work/errors" >&2; exit 1; }
    done
done
python3 - "$work" "$cluster" "$rate" "$json" none "$@" <<'END'
import glob, json, sys
work, cluster, rate, out = sys.argv[1:5]
sys.path.insert(0, "benchmarks")
import environment
GOALS = dict(bf16=1.8, int8=3.3, topk=8.0, powersgd=8.0)
best = {}
for method in sys.argv[5:]:
    runs = [environment.read(p) for p in glob.glob(f"{work}/{method}.*.json")]
    best[method] = min(runs, key=lambda r: r["best_ms"])
environment.require_alike(best)
print(f"{cluster} over {rate}\n")
print("| method | step ms | median ms | MB sent a rank | exposed ms | times faster | goal |\n| --- | --- | --- | --- | --- | --- | --- |")
for method, r in best.items():
    gain = best["none"]["best_ms"] / r["best_ms"]
    goal = "" if method not in GOALS else f"{GOALS[method]} {'ok' if gain >= GOALS[method] else 'missed'}"
    print(f"| {method} | {r['best_ms']:.1f} | {r['median_ms']:.1f} | {r['comm_bytes'] / 1e6:.3f} | {r['exposed_comm_ms']:.1f} | {gain:.2f} | {goal} |")
if out:
    with open(out, "w") as f:
        json.dump(dict(benchmark="compression", cluster=cluster, rate=rate, methods=best), f, indent=1)
        f.write("\n")
END
