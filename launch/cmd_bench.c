/* trireme bench: measurements with their limits and peers in the same run. */
#include "launch/bench.h"

#include <stdio.h>
#include <string.h>

static const struct tri_command *const benches[] = {&tri_bench_allreduce, &tri_bench_kernels,
                                                    &tri_bench_step, &tri_bench_scaling};

static int run_bench(const struct tri_command *self, int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "%s", self->help);
        return TRI_EXIT_REFUSED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        printf("%s", self->help);
        return TRI_EXIT_DONE;
    }
    for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++)
        if (strcmp(argv[1], benches[i]->name) == 0)
            return benches[i]->run(benches[i], argc - 1, argv + 1);
    return tri_command_refuse(tri_fail(TRI_ERR_USAGE,
                                       "benchmark '%s' is unknown (see trireme "
                                       "bench --help)",
                                       argv[1]));
}

const struct tri_command tri_command_bench = {
    .name = "bench",
    .summary = "measure sums over ranks, kernels, training steps, or how they scale",
    .help = "usage: trireme bench allreduce|kernels|step|scaling ...\n\n"
            "  allreduce  sums over all ranks: our algorithms beside MPI_Allreduce and a limit\n"
            "  kernels    each kernel over shapes of GPT-2 124M and ResNet-50\n"
            "  step       the training step of a RUN.yaml\n"
            "  scaling    the same on 1, 2, 4 ... ranks, weak and strong\n\n"
            "trireme bench NAME --help tells more.\n",
    .run = run_bench,
};
