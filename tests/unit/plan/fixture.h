/* A step of a two-layer network written op by op, as the passes would: the smallest graph with
 * every feature of a program. */
#ifndef TRI_TESTS_UNIT_PLAN_FIXTURE_H
#define TRI_TESTS_UNIT_PLAN_FIXTURE_H

#include "runtime/plan/program.h"

/* Rows of a grain, inputs, hidden units, classes. NET_HIDDEN floats are 48 bytes: the bucket of the
 * first layer has a gap. */
enum { NET_B = 4, NET_I = 8, NET_H = 12, NET_V = 4, NET_MAX_GRAINS = 8 };

struct net {
    struct tri_graph *g;
    int ngrains;
    tri_vid x[NET_MAX_GRAINS], t[NET_MAX_GRAINS];
    tri_vid w1, b1, w2, scalars; /* persistent */
    tri_vid stats;               /* OUTPUT: summed over grains (the last grain's) and ranks */
    tri_vid relu_in, relu_out;   /* of the first grain */
    int slices, local_rank;      /* > 0: buckets are summed in two levels */
    tri_vid db1, dw1, dw2, flat1, flat2; /* totals and buckets */
};

/* h = relu(x w1 + b1), logits = h w2, summed cross-entropy; gradients over grains in running
 * totals; buckets [dw2], [db1, dw1], [stats]; SGD with lr 0.1 on w - lr * GRAD_SCALE * g. */
struct net net_create(int ngrains);
/* The same with sums in two levels, of the rank that owns slice local_rank. */
struct net net_create_levels(int ngrains, int slices, int local_rank);
/* Schedule of that graph with the reference kernels and no threads, and its memory. NULL layout: no
 * memory plan. */
struct tri_program *net_program(struct net *net, int ngrains, bool overlap,
                                struct tri_layout *layout);
struct tri_program *net_program_levels(struct net *net, int ngrains, int slices, int local_rank,
                                       bool overlap, struct tri_layout *layout);
/* Index of the instruction of the op called `name`; fails the test if there is none. */
int32_t net_instr(const struct tri_program *p, const char *name);

#endif
