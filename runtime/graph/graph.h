/* The graph of a training step: values and the ops that write them, in execution order.
 *
 * A graph is built once with global, unpartitioned shapes for one grain (a micro-batch of fixed
 * size), then rewritten by passes (see launch/compile.c for their order). Rules that every pass
 * keeps:
 *   - a value has at most one producer; inputs, parameters and states have none until an op
 *     "updates" them, and the updated value is a new value that must occupy the old one's memory
 *     (an alias rule of the op);
 *   - ops are stored in a valid execution order: an op comes after the producers of its inputs;
 *   - what must be summed over grains and ranks is listed in `sum`, whatever it is (gradients, loss
 *     statistics, batch-norm moments), so that accumulation and exchange know nothing of their
 *     meaning.
 *
 * Everything in a graph is allocated from its pool and dies with it. Indices, not pointers, name
 * values and ops, since the arrays grow. Building is sticky: after the first failure the builders
 * return TRI_NONE, and tri_graph_status() tells it once at the end. */
#ifndef TRI_RUNTIME_GRAPH_GRAPH_H
#define TRI_RUNTIME_GRAPH_GRAPH_H

#include "runtime/core/dtype.h"
#include "runtime/core/memory.h"
#include "runtime/core/status.h"
#include "runtime/graph/ops.h"
#include "runtime/graph/shape.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

#define TRI_NONE (-1) /* no value, an absent optional input */

typedef int32_t tri_vid; /* index of a value in its graph */

enum tri_role {
    TRI_ROLE_TEMP,   /* lives inside one run of the program */
    TRI_ROLE_INPUT,  /* written by the host before a run (one copy a grain) */
    TRI_ROLE_PARAM,  /* trained; survives a restart */
    TRI_ROLE_STATE,  /* moments, statistics, counters, caches; survives unless transient */
    TRI_ROLE_OUTPUT, /* read by the host after a run; kept until the next one */
};

/* How a parameter or state starts. Element i draws from the Philox stream of the value's name, so
 * that the start depends on the seed and the name alone, never on rank or layout. */
enum tri_init_kind {
    TRI_INIT_ZERO,
    TRI_INIT_ONE,
    TRI_INIT_NORMAL,
    TRI_INIT_UNIFORM,
    TRI_INIT_CONSTANT
};

struct tri_init {
    enum tri_init_kind kind;
    float a; /* NORMAL: standard deviation; UNIFORM: values in [-a, a); CONSTANT: the value */
};

/* What the optimizer and the checkpoint know of a parameter beyond its shape. */
struct tri_param_info {
    struct tri_init init;
    bool frozen;         /* no gradient, no update */
    bool decay;          /* default of weight decay: true for matrices and filters */
    double lr;           /* base rate of its group (set by tri_pass_groups) */
    double weight_decay; /* of its group; 0 where decay does not apply */
};

/* A STATE that differs between ranks, or nodes: a checkpoint holds `rows` rows of the shape
 * `whole`, and the value is `count` elements of row `row` from `first` on (a value has at least 1
 * element; count 0: it is not kept). */
struct tri_by_rank {
    struct tri_shape whole;
    int row, rows;
    int64_t first, count;
};

struct tri_value {
    const char *name; /* unique among params, states, inputs and outputs; else for reading only */
    enum tri_dtype dtype;
    struct tri_shape shape;
    enum tri_role role;
    int32_t producer; /* op that writes it, TRI_NONE for what the host or a former run wrote */
    int32_t grain;    /* INPUT or OUTPUT of one grain of a step: its global number; else TRI_NONE */
    bool transient;   /* STATE: no checkpoint keeps it (key/value cache) */
    struct tri_by_rank *by_rank; /* STATE: ranks have their own; NULL: all have the same */
    bool buffer; /* STATE: belongs to the model (running statistics), kept beside parameters */
    struct tri_param_info *param; /* PARAM only; a step graph has a copy of its own */
    struct tri_init init;         /* STATE only */
};

struct tri_op {
    enum tri_op_kind kind;
    const char *name; /* path for traces and messages: "transformer.h.0.attn.c_attn" */
    int nin, nout;
    tri_vid *in;  /* TRI_NONE for an absent optional input */
    tri_vid *out; /* TRI_NONE for an output nobody asked for */
    struct tri_attrs attrs;
    enum tri_phase phase;
    int32_t grain; /* step graph: global number of the grain it works on; TRI_NONE: once a step */
};

enum tri_sum_kind {
    TRI_SUM_GRAD,    /* gradient of the parameter `target` */
    TRI_SUM_STATS,   /* loss statistics, f64[TRI_STATS_COUNT] */
    TRI_SUM_MOMENTS, /* batch-norm moments: `target` is the running mean, `target2` the variance */
};

/* `value` is the contribution of a grain, after the pipeline pass the total of this rank, after the
 * exchange pass that of all ranks. */
struct tri_sum {
    enum tri_sum_kind kind;
    tri_vid value;
    tri_vid target, target2; /* TRI_NONE where the kind has none */
    bool corrected;          /* GRAD: it has its momentum in it already (momentum correction) */
};

struct tri_graph {
    struct tri_pool pool;
    struct tri_value *value; /* nvalue entries */
    struct tri_op *op;       /* nop entries, execution order */
    struct tri_sum *sum;     /* nsum entries; gradients in the order in which they become ready */
    int nvalue, nop, nsum;
    int value_cap, op_cap, sum_cap;
    tri_vid *named; /* hash table over the names of persistent values, inputs and outputs */
    int named_cap, nnamed;
    tri_vid loss_stats;   /* f64[TRI_STATS_COUNT] of the loss op, TRI_NONE if there is none */
    tri_vid prediction;   /* what `eval --predictions` and generation read: logits or values */
    tri_vid counters;     /* current version of the STATE i64[TRI_COUNTER_COUNT], or TRI_NONE */
    tri_vid scalars;      /* OUTPUT f64[TRI_SCALAR_COUNT] of the update pass, TRI_NONE before it */
    tri_status status;    /* first failure of a builder call */
    enum tri_phase phase; /* given to ops appended from now on */
    int32_t grain;        /* given to ops appended from now on */
};

tri_status tri_graph_create(struct tri_graph **out) TRI_CHECKED;
void tri_graph_destroy(struct tri_graph *g);
/* First failure while building, with its message in tri_error_text(). Local. */
tri_status tri_graph_status(const struct tri_graph *g) TRI_CHECKED;
/* Makes `st`, whose message has been written, the graph's failure if it has none yet. Local. */
void tri_graph_fail(struct tri_graph *g, tri_status st);

tri_vid tri_graph_value(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                        struct tri_shape shape, enum tri_role role);
tri_vid tri_graph_input(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                        struct tri_shape shape);
/* A parameter under its global name; decay defaults to ndim >= 2. */
tri_vid tri_graph_param(struct tri_graph *g, const char *name, struct tri_shape shape,
                        struct tri_init init);
tri_vid tri_graph_state(struct tri_graph *g, const char *name, enum tri_dtype dtype,
                        struct tri_shape shape, struct tri_init init);
/* Makes a temporary an OUTPUT under that name, which must be new. Also for g->prediction and
 * g->scalars, which stay the caller's to set. */
void tri_graph_output(struct tri_graph *g, tri_vid v, const char *name);
/* The value of that name among params, states, inputs and outputs, or TRI_NONE: the persistent
 * value itself, not its newest version where the graph updates it. */
tri_vid tri_graph_find(const struct tri_graph *g, const char *name);
/* Bytes of a value's elements (no padding). */
size_t tri_value_bytes(const struct tri_value *v);

/* Appends an op: checks the number and types of inputs, infers and creates its outputs (their ids
 * in op->out) and returns the op's index, or TRI_NONE with the graph's status set. `in` may hold
 * TRI_NONE for optional inputs. want_out: bit o set = output o is wanted; outputs not wanted get
 * TRI_NONE where the op allows it (optional outputs), and so do optional outputs that do not exist
 * for these inputs (the sum of a LAYERNORM without residual). attrs NULL: all zero. Trailing
 * optional inputs may be left off. */
int32_t tri_graph_op(struct tri_graph *g, enum tri_op_kind kind, const char *name,
                     const tri_vid *in, int nin, const struct tri_attrs *attrs, uint32_t want_out);
/* Convenience: the first output of tri_graph_op with all outputs wanted. */
tri_vid tri_graph_op1(struct tri_graph *g, enum tri_op_kind kind, const char *name,
                      const tri_vid *in, int nin, const struct tri_attrs *attrs);
void tri_graph_add_sum(struct tri_graph *g, enum tri_sum_kind kind, tri_vid value, tri_vid target,
                       tri_vid target2);

/* The same, but the op is put before op `at` (0..nop) instead of at the end. Costs a pass over the
 * ops behind it. Returns `at`. */
int32_t tri_graph_op_before(struct tri_graph *g, int32_t at, enum tri_op_kind kind,
                            const char *name, const tri_vid *in, int nin,
                            const struct tri_attrs *attrs, uint32_t want_out);
/* Drops the ops with dead[i] and mends value.producer; values that only they wrote are left without
 * producer. */
void tri_graph_drop(struct tri_graph *g, const bool *dead);

/* Puts the ops into the order of key[0..nop) (ascending, equal keys keep their order) and mends
 * value.producer. Passes append ops at the end and then say where they belong. The order must be a
 * valid execution order. */
tri_status tri_graph_order(struct tri_graph *g, const int64_t *key) TRI_CHECKED;

/* Drops ops whose outputs nobody reads (roles other than TEMP, sums, loss_stats, prediction,
 * counters, scalars and ops with side effects keep their producers), and optional outputs of the
 * others that nobody reads. Renumbers nothing but ops. */
tri_status tri_graph_prune(struct tri_graph *g) TRI_CHECKED;

/* Appends the graph in DOT (Graphviz): one box an op, one edge a value with its shape. */
struct tri_text; /* see runtime/core/text.h */
tri_status tri_graph_dot(const struct tri_graph *g, struct tri_text *out) TRI_CHECKED;

TRI_END_DECLS
#endif
