/* The rows of run, device, timeouts, telemetry and debug. */
#include "launch/options_run.h"

#include <stddef.h>

#define AT(field) offsetof(struct tri_run_options, field)
const struct tri_opt tri_run_rows[] = {
    {"run.dir", TRI_OPT_PATH, AT(dir), "runs/default", NULL,
     "folder of the run: effective configuration, metrics, checkpoints", NULL},
    {"run.seed", TRI_OPT_INT, AT(seed), "1", "[0, 9e18]",
     "seed of initial weights, order of the data, dropout and augmentation", NULL},
    {"run.steps", TRI_OPT_INT_AUTO, AT(steps), "auto", "[0, inf)",
     "length of the run in steps (0 writes the initial checkpoint); give this or run.epochs", NULL},
    {"run.epochs", TRI_OPT_INT_AUTO, AT(epochs), "auto", "[1, inf)",
     "length of the run in passes over the training data; give this or run.steps", NULL},
    {"run.deterministic", TRI_OPT_BOOL, AT(deterministic), "false", NULL,
     "same bits of loss and weights on 1, 2, 4 and 8 ranks, at some cost in speed", NULL},
    {"run.threads", TRI_OPT_INT_AUTO, AT(threads), "auto", "[1, 4096]",
     "compute threads of a rank; auto takes OMP_NUM_THREADS, else the rank's share of its cores "
     "(1 if deterministic)",
     NULL},
    {"run.resume", TRI_OPT_STRING, AT(resume), "auto", NULL,
     "auto goes on from the newest checkpoint of run.dir if there is one, never refuses a folder "
     "that holds checkpoints, a folder names the checkpoint to go on from",
     NULL},
    {"run.log_every", TRI_OPT_INT, AT(log_every), "10", "[1, inf)",
     "steps between progress lines where standard error is no terminal", NULL},
    {"run.eval_every", TRI_OPT_INT_AUTO, AT(eval_every), "auto", "[0, inf)",
     "steps between evaluations on the validation data; auto evaluates at the end of each epoch "
     "and of the run, 0 never",
     NULL},
};
const size_t tri_run_row_count = sizeof(tri_run_rows) / sizeof(tri_run_rows[0]);
#undef AT

#define AT(field) offsetof(struct tri_device_options, field)
const struct tri_opt tri_device_rows[] = {
    {"device.kind", TRI_OPT_ENUM, AT(kind), "auto", "auto|cpu|cuda",
     "where the step is computed; auto takes cuda where every rank sees a device", NULL},
    {"device.isa", TRI_OPT_ENUM, AT(isa), "auto", "auto|scalar|avx2|avx512",
     "upper limit of the CPU instruction set of our kernels, to test the lower ones", NULL},
    {"device.across", TRI_OPT_ENUM, AT(across), "auto", "auto|nccl|mpi",
     "what gradients on CUDA devices travel by between nodes; auto takes MPI only where NCCL "
     "refuses, and with MPI sums go in two levels, NCCL inside nodes",
     NULL},
    {"device.graph", TRI_OPT_BOOL, AT(graph), "false", NULL,
     "replay the step from CUDA graphs, where it runs on a CUDA device", NULL},
    {"device.tune", TRI_OPT_BOOL, AT(tune), "false", NULL,
     "time the algorithms of CUDA's libraries at the start and take the fastest; runs may then "
     "differ in the last bits",
     NULL},
};
const size_t tri_device_row_count = sizeof(tri_device_rows) / sizeof(tri_device_rows[0]);
#undef AT

#define AT(field) offsetof(struct tri_timeout_options, field)
const struct tri_opt tri_timeout_rows[] = {
    {"timeouts.collective_s", TRI_OPT_DOUBLE, AT(collective_s), "300", "(0, inf)",
     "seconds that a rank waits for the others in one collective before the run fails", NULL},
};
const size_t tri_timeout_row_count = sizeof(tri_timeout_rows) / sizeof(tri_timeout_rows[0]);
#undef AT

#define AT(field) offsetof(struct tri_telemetry_options, field)
const struct tri_opt tri_telemetry_rows[] = {
    {"telemetry.trace_step", TRI_OPT_INT, AT(trace_step), "5", "[1, inf)",
     "step of this start, counted from 1, that train --trace records", NULL},
};
const size_t tri_telemetry_row_count = sizeof(tri_telemetry_rows) / sizeof(tri_telemetry_rows[0]);
#undef AT

#define AT(field) offsetof(struct tri_fault_options, field)
static const struct tri_opt fault_rows[] = {
    {"rank", TRI_OPT_INT, AT(rank), "0", "[0, inf)", "rank that has the fault", NULL},
    {"step", TRI_OPT_INT, AT(step), NULL, "[1, inf)", "step of the fault, from 1", NULL},
    {"where", TRI_OPT_ENUM, AT(where), NULL, "forward|backward|exchange|update|checkpoint|eval",
     "part of the step", NULL},
    {"what", TRI_OPT_ENUM, AT(what), NULL, "inf|nan|flip|kill|stop|sleep|exit|segv",
     "a bad value (inf, nan, flip of one bit), a signal (kill, stop, segv), a pause or an exit",
     NULL},
    {"parameter", TRI_OPT_STRING, AT(parameter), "", NULL,
     "name of the parameter whose gradient or value is hit; empty: the first", NULL},
    {"index", TRI_OPT_INT, AT(index), "0", "[0, inf)", "element of that parameter", NULL},
    {"bit", TRI_OPT_INT, AT(bit), "0", "[0, 63]", "bit that flip turns over, 0 the lowest", NULL},
    {"grain", TRI_OPT_INT, AT(grain), "0", "[0, inf)",
     "grain of that rank in the step, 0 the first", NULL},
    {"ms", TRI_OPT_INT, AT(ms), "1000", "[0, inf)", "milliseconds of sleep", NULL},
    {"code", TRI_OPT_INT, AT(code), "1", "[0, 255]", "exit code of exit", NULL},
};
#undef AT

static const struct tri_opt_record fault_record = {
    fault_rows, sizeof(fault_rows) / sizeof(fault_rows[0]), sizeof(struct tri_fault_options)};

#define AT(field) offsetof(struct tri_debug_options, field)
const struct tri_opt tri_debug_rows[] = {
    {"debug.hash_every", TRI_OPT_INT, AT(hash_every), "0", "[0, inf)",
     "steps between hashes of the weights, which also compare the replicas; 0: never", NULL},
    {"debug.log_samples", TRI_OPT_BOOL, AT(log_samples), "false", NULL,
     "write the ids of the samples of each step to samples.jsonl", NULL},
    {"debug.nodes", TRI_OPT_INTS, AT(nodes), "null", "[1, inf)",
     "ranks of each pretended node, in order; null takes the real nodes", NULL},
    {"debug.inject", TRI_OPT_RECORDS, AT(inject), "null", NULL,
     "faults to put into the run, for tests", &fault_record},
};
const size_t tri_debug_row_count = sizeof(tri_debug_rows) / sizeof(tri_debug_rows[0]);
#undef AT

tri_status tri_run_options_check(const struct tri_run_options *run)
{
    if (run->steps == TRI_OPT_AUTO && run->epochs == TRI_OPT_AUTO)
        return tri_fail(TRI_ERR_USAGE, "one of 'run.steps' and 'run.epochs' must be given");
    if (run->steps != TRI_OPT_AUTO && run->epochs != TRI_OPT_AUTO)
        return tri_fail(TRI_ERR_USAGE,
                        "'run.steps' (%lld) and 'run.epochs' (%lld) are both given: give one, "
                        "put the other back with null",
                        (long long)run->steps, (long long)run->epochs);
    if (run->dir[0] == '\0')
        return tri_fail(TRI_ERR_USAGE, "'run.dir' must not be empty");
    if (run->resume[0] == '\0')
        return tri_fail(TRI_ERR_USAGE, "'run.resume' must be auto, never or a folder");
    return TRI_OK;
}

tri_status tri_device_options_check(const struct tri_device_options *device)
{
    if (device->graph && device->kind == TRI_DEVICE_CPU)
        return tri_fail(TRI_ERR_USAGE, "'device.graph' needs 'device.kind' cuda or auto");
    return TRI_OK;
}

tri_status tri_debug_options_check(const struct tri_debug_options *debug)
{
    const struct tri_fault_options *faults = debug->inject.v;

    if (debug->inject.count > TRI_MAX_FAULTS)
        return tri_fail(TRI_ERR_USAGE, "'debug.inject' has %zu items, at most %d are possible",
                        debug->inject.count, TRI_MAX_FAULTS);
    for (size_t i = 0; i < debug->inject.count; i++) {
        const bool in_step = faults[i].where <= TRI_FAULT_UPDATE;

        if (faults[i].what <= TRI_FAULT_FLIP && !in_step)
            return tri_fail(TRI_ERR_USAGE,
                            "'debug.inject' item %zu: a bad value can be put into forward, "
                            "backward, exchange or update only",
                            i);
    }
    return TRI_OK;
}
