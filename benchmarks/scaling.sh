#!/usr/bin/env bash
# Weak and strong scaling of a training step over 1, 2, 4, ... ranks, as table, JSON and SVG plot; README.md explains the columns.
#
#     benchmarks/scaling.sh [--ranks N] [--cluster NODESxRANKS [--rate RATE] [--by slot|node]] [--config RUN.yaml] [--steps N]
#                           [--out PREFIX] [key=value ...]
#
# Without --cluster N ranks (2) of this machine; with it network namespaces as nodes (tests/cluster/cluster.sh, needs root).
# Without --config a GPT of 3.3 M parameters on a text of this project, 8 sequences of 128 bytes. PREFIX.json and PREFIX.svg are
# written (scaling). Several JSON files go into one table and plot with benchmarks/scaling.py FILE... --svg FILE.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ranks=2 cluster='' rate='' by=slot config='' steps=10 out=scaling
while [ $# -gt 0 ]; do
    case "$1" in
    --ranks | --cluster | --rate | --by | --config | --steps | --out)
        declare "${1#--}=${2:?}"
        shift 2
        ;;
    *) break ;;
    esac
done
program=${TRIREME:-$here/../build/launch/trireme}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "$config" ]; then
    cat "$here"/../runtime/*/*.c >"$work/text.txt"
    "$program" data import text "$work/text.txt" --tokenizer byte -o "$work/text.h5" >/dev/null
    config=$work/gpt.yaml
    cat >"$config" <<END
run: {dir: $work/run, steps: 1, eval_every: 0}
model: {name: gpt, layers: 4, heads: 4, width: 256, context: 128}
data: {path: $work/text.h5, batch: 8}
optimizer: {name: adamw, lr: 3.0e-4}
END
fi
if [ -n "$cluster" ]; then
    start=("$here/../tests/cluster/cluster.sh" --by "$by" ${rate:+--rate "$rate"} "$cluster")
    link=(--link "network namespaces, ${rate:-not shaped}, ranks by $by")
else
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
    [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    start=(mpirun -n "$ranks" --bind-to none)
    link=()
fi
"${start[@]}" "$program" bench scaling "$config" --steps "$steps" --json "$out.json" "${link[@]}" "$@"
python3 "$here/scaling.py" "$out.json" --svg "$out.svg" >/dev/null
echo "written: $out.json $out.svg"
