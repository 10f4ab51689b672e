#include "amp/policy.h"

#include <fnmatch.h>

/* Kinds that are not here have the policy F32. */
static const enum tri_policy policy[TRI_OP_COUNT] = {
    [TRI_OP_MATMUL] = TRI_POLICY_HALF,
    [TRI_OP_COLUMN_SUM] = TRI_POLICY_HALF,
    [TRI_OP_ADD] = TRI_POLICY_WIDEST,
    [TRI_OP_RELU] = TRI_POLICY_HALF,
    [TRI_OP_RELU_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_GELU] = TRI_POLICY_HALF,
    [TRI_OP_GELU_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_DROPOUT] = TRI_POLICY_HALF,
    [TRI_OP_LAYERNORM] = TRI_POLICY_HALF,
    [TRI_OP_LAYERNORM_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_BATCHNORM] = TRI_POLICY_HALF,
    [TRI_OP_BATCHNORM_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_BATCHNORM_INFER] = TRI_POLICY_HALF,
    [TRI_OP_ATTENTION] = TRI_POLICY_HALF,
    [TRI_OP_ATTENTION_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_EMBEDDING] = TRI_POLICY_HALF,
    [TRI_OP_EMBEDDING_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_POSITION_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_SOFTMAX_XENT] = TRI_POLICY_HALF,
    [TRI_OP_SOFTMAX_XENT_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_SOFTMAX_XENT_FUSED] = TRI_POLICY_HALF,
    [TRI_OP_MSE] = TRI_POLICY_HALF,
    [TRI_OP_MSE_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_CONV2D] = TRI_POLICY_HALF,
    [TRI_OP_CONV2D_DX] = TRI_POLICY_HALF,
    [TRI_OP_CONV2D_DW] = TRI_POLICY_HALF,
    [TRI_OP_MAXPOOL] = TRI_POLICY_HALF,
    [TRI_OP_MAXPOOL_GRAD] = TRI_POLICY_HALF,
    [TRI_OP_AVGPOOL] = TRI_POLICY_HALF,
    [TRI_OP_AVGPOOL_GRAD] = TRI_POLICY_HALF,
};

enum tri_policy tri_policy_of(enum tri_op_kind kind)
{
    return policy[kind];
}

int tri_policy_match(const char *const *pattern, int npattern, const char *name)
{
    for (int i = 0; i < npattern; i++)
        if (fnmatch(pattern[i], name, 0) == 0)
            return i;
    return -1;
}
