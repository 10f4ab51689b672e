/* Small graphs and what tests ask of any graph. */
#ifndef TRI_TESTS_UNIT_GRAPH_FIXTURE_H
#define TRI_TESTS_UNIT_GRAPH_FIXTURE_H

#include "runtime/graph/passes.h"

struct tri_graph *new_graph(void);
struct tri_shape shape_of(const char *text); /* "2,3" */
tri_vid input(struct tri_graph *g, const char *name, const char *shape);
tri_vid param(struct tri_graph *g, const char *name, const char *shape);
/* y = op(in...) without attributes. */
tri_vid unary(struct tri_graph *g, enum tri_op_kind kind, const char *name, tri_vid x);
tri_vid binary(struct tri_graph *g, enum tri_op_kind kind, const char *name, tri_vid a, tri_vid b);
/* Mean squared error of y against an input "target"; lists the statistics. */
void add_mse(struct tri_graph *g, tri_vid y);
/* Cross-entropy of logits [M, V] against an input "targets"; lists the statistics. */
void add_xent(struct tri_graph *g, tri_vid logits);

/* x [4, 3] -> matmul w1 [3, 5] + b1, relu, matmul w2 [5, 2] + b2, mse. */
struct tri_graph *mlp(void);
/* ids -> embedding (tied), one block with layer norms, attention and gelu, norm, head,
 * cross-entropy. */
struct tri_graph *gpt(void);

int count_kind(const struct tri_graph *g, enum tri_op_kind kind);
/* The n-th op of a kind. */
const struct tri_op *nth(const struct tri_graph *g, enum tri_op_kind kind, int n);
/* Order, producers, single writers, and shapes inferred once more. */
void check_graph(const struct tri_graph *g);
/* The sum whose target has that name; with kind STATS the name is ignored. */
const struct tri_sum *sum_of(const struct tri_graph *g, enum tri_sum_kind kind, const char *target);

#endif
