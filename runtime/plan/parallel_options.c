/* The rows of section parallel. */
#include "runtime/plan/parallel_options.h"

#include <stddef.h>

#define AT(field) offsetof(struct tri_parallel_options, field)
const struct tri_opt tri_parallel_rows[] = {
    {"parallel.data", TRI_OPT_INT_AUTO, AT(data), "auto", "[1, 1e6]",
     "ranks that hold a replica of the model each and share the batch; auto takes all", NULL},
    {"parallel.tensor", TRI_OPT_INT, AT(tensor), "1", "[1, 1e6]",
     "ranks that share each matrix product (only 1 yet)", NULL},
    {"parallel.sequence", TRI_OPT_BOOL, AT(sequence), "false", NULL,
     "split activations between products along the sequence over the tensor ranks (only false yet)",
     NULL},
    {"parallel.context", TRI_OPT_INT, AT(context), "1", "[1, 1e6]",
     "ranks that share one sequence (only 1 yet)", NULL},
    {"parallel.pipeline", TRI_OPT_INT, AT(pipeline), "1", "[1, 1e6]",
     "stages of layers (only 1 yet)", NULL},
    {"parallel.expert", TRI_OPT_INT, AT(expert), "1", "[1, 1e6]",
     "ranks that share the experts (only 1 yet)", NULL},
    {"parallel.shard", TRI_OPT_INT, AT(shard), "0", "[0, 3]",
     "what data ranks share instead of repeating: 1 optimizer state, 2 also gradients, 3 also "
     "parameters (only 0 yet)",
     NULL},
    {"parallel.schedule", TRI_OPT_ENUM, AT(schedule), "1f1b", "gpipe|1f1b|interleaved",
     "order of the grains in a pipeline; without effect on one stage", NULL},
    {"parallel.recompute", TRI_OPT_BOOL, AT(recompute), "false", NULL,
     "drop activations and compute them again in backward (only false yet)", NULL},
};
const size_t tri_parallel_row_count = sizeof(tri_parallel_rows) / sizeof(tri_parallel_rows[0]);
#undef AT

static tri_status refuse(const char *key, long long value)
{
    return tri_fail(TRI_ERR_USAGE,
                    "'%s' %lld is not available yet: this version partitions by data only "
                    "(parallel.data)",
                    key, value);
}

tri_status tri_parallel_options_check(const struct tri_parallel_options *p)
{
    if (p->tensor != 1)
        return refuse("parallel.tensor", p->tensor);
    if (p->context != 1)
        return refuse("parallel.context", p->context);
    if (p->pipeline != 1)
        return refuse("parallel.pipeline", p->pipeline);
    if (p->expert != 1)
        return refuse("parallel.expert", p->expert);
    if (p->shard != 0)
        return refuse("parallel.shard", p->shard);
    if (p->sequence || p->recompute)
        return tri_fail(TRI_ERR_USAGE, "'%s' true is not available yet: only false is",
                        p->sequence ? "parallel.sequence" : "parallel.recompute");
    return TRI_OK;
}
