/* From a model to programs: the ordered list of passes. */
#ifndef TRI_LAUNCH_COMPILE_H
#define TRI_LAUNCH_COMPILE_H

#include "amp/precision_pass.h"
#include "models/model.h"
#include "optim/exchange_pass.h"
#include "optim/groups.h"
#include "optim/update_pass.h"
#include "runtime/core/status.h"
#include "runtime/device/device.h"
#include "runtime/exec/comm.h"
#include "runtime/graph/passes.h"
#include "runtime/kernels/kernels.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/program.h"

TRI_BEGIN_DECLS

/* Everything that a program depends on. Compilation is a pure function of it. All pointers are
 * borrowed. */
struct tri_compile_spec {
    const struct tri_model_dims *dims;
    const struct tri_data_shape *data;
    struct tri_mesh mesh;
    struct tri_grains grains;
    uint64_t seed;
    bool deterministic;        /* sums by the fixed tree */
    bool overlap;              /* exchange under backward */
    int threads;               /* OpenMP threads of this rank */
    struct tri_device *device; /* that the step runs on */
    struct tri_exchange_spec exchange;
    struct tri_update_spec update;
    struct tri_precision_spec precision;
    const struct tri_group_rules *groups;
    const struct tri_injection *faults;
    int nfaults;
};

/* The training step of this rank. `report` (may be NULL) receives lines about optimizer groups and
 * compression. Local. */
tri_status tri_compile_train(const struct tri_compile_spec *spec, struct tri_layout *layout,
                             struct tri_text *report, struct tri_program **out) TRI_CHECKED;
/* The step of a model built out of tree: takes `grain`, a forward graph with its loss (also on
 * failure). Local. */
tri_status tri_compile_step(const struct tri_compile_spec *spec, struct tri_graph *grain,
                            struct tri_layout *layout, struct tri_text *report,
                            struct tri_program **out) TRI_CHECKED;
/* Forward and backward of the grains in spec->grains, no exchange and no update: the statistics are
 * OUTPUT "<prefix>/loss", the rank's total of each gradient OUTPUT "<prefix>/<parameter>", in
 * graph->sum. A run counts a step. Local. */
tri_status tri_compile_grain(const struct tri_compile_spec *spec, const char *prefix,
                             struct tri_layout *layout, struct tri_program **out) TRI_CHECKED;
/* Forward and loss of one grain without dropout: OUTPUTs "eval/stats" and "eval/prediction". No
 * collectives. Local. */
tri_status tri_compile_eval(const struct tri_compile_spec *spec, struct tri_layout *layout,
                            struct tri_program **out) TRI_CHECKED;
/* n new positions over the key/value caches: OUTPUT "generate/<n>". Local. */
tri_status tri_compile_generate(const struct tri_compile_spec *spec, int64_t n,
                                struct tri_layout *layout, struct tri_program **out) TRI_CHECKED;

TRI_END_DECLS
#endif
