#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a trained model: installs packages, builds, imports real images, trains a ResNet on
# two ranks, then a small GPT on real text, and shows what it writes. Run from anywhere; takes a few minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/packages.sh

say() { printf '\n== %s\n' "$*"; }

say 'installing what is missing'
install_packages "${PACKAGES_BUILD[@]}" "${PACKAGES_DATA[@]}"

say 'building'
[ -f build/build.ninja ] || meson setup build -Dtests=false
ninja -C build
trireme=build/launch/trireme

# Two ranks, also as root and on machines with fewer cores; ranks share the cores, so none is bound to one.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
two_ranks() { mpirun -n 2 --bind-to none "$@"; }

mkdir -p datasets
images=/usr/share/datasets/fashion-mnist
say 'importing Fashion-MNIST (70 000 images of clothing in 10 classes)'
[ -f datasets/fashion.h5 ] || $trireme data import idx \
    --train-images $images/train-images-idx3-ubyte.gz --train-labels $images/train-labels-idx1-ubyte.gz \
    --validation-images $images/t10k-images-idx3-ubyte.gz --validation-labels $images/t10k-labels-idx1-ubyte.gz \
    -o datasets/fashion.h5

say 'training a ResNet on 2 ranks'
two_ranks $trireme train launch/recipes/quickstart_fashion.yaml
result=$(two_ranks $trireme eval launch/recipes/quickstart_fashion.yaml --checkpoint runs/quickstart_fashion)
accuracy=$(awk -F'"accuracy": ' '{ printf "%.2f %%", 100 * $2 }' <<< "$result")

say 'importing text (the King James Bible) as byte-pair tokens'
if [ ! -f datasets/bible.h5 ]; then
    bible -f gen1:1-rev22:21 > datasets/bible.txt
    $trireme data import text datasets/bible.txt --tokenizer bpe:512 -o datasets/bible.h5
fi

say 'training a small GPT on 2 ranks'
two_ranks $trireme train launch/recipes/quickstart_gpt.yaml

say 'what the GPT writes after "And God said"'
$trireme generate --checkpoint runs/quickstart_gpt --prompt 'And God said' --tokens 60 --temperature 0.8 --top-k 40

say 'done'
printf 'The ResNet names the right one of 10 classes for %s of 10 000 images that it has never seen.\n' "$accuracy"
printf 'Metrics and checkpoints: runs/quickstart_fashion, runs/quickstart_gpt\n'
