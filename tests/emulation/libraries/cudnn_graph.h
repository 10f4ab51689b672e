/* A cuDNN operation graph once it is finalized: what cudnn.cpp makes of the descriptors and
 * cudnn_run.cpp computes. */
#ifndef TRI_EMULATION_LIBRARIES_CUDNN_GRAPH_H
#define TRI_EMULATION_LIBRARIES_CUDNN_GRAPH_H

#include "cudnn.h"

#include <map>
#include <memory>
#include <vector>

namespace emu
{

struct Tensor {
    int64_t uid, alignment;
    cudnnDataType_t type;
    std::vector<int64_t> dim, stride;
    bool between, by_value; /* in no memory; in that of the process */

    int64_t count() const
    {
        int64_t n = 1;

        for (int64_t d : dim)
            n *= d;
        return n;
    }
};

/* One operation; tensors by uid, -1 where absent. */
struct Operation {
    cudnnBackendDescriptorType_t kind;
    int64_t x, b, t, y; /* conv: x, w, y; matmul: a, b, c */
    cudnnPointwiseMode_t mode;
    cudnnReduceTensorOp_t reduce;
    int64_t axis, stride, pad;

    /* The tensor it computes. */
    int64_t result() const
    {
        if (kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
            return x;
        return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ? b : y;
    }
};

struct Graph {
    std::map<int64_t, Tensor> tensor;
    std::vector<Operation> op;
};

/* Graph and engine on their way through a stream. */
struct Run {
    std::shared_ptr<const Graph> graph;
    bool tf32; /* f32 operands of a product are rounded */
    std::map<int64_t, void *> pointer;
    std::map<int64_t, float> number; /* values of by_value tensors, read at the call */
    void *workspace;
    size_t workspace_bytes;
};

void run_graph(Run run);

/* CUDNN_STATUS_SUCCESS if the operation's tensors fit together. */
cudnnStatus_t check_operation(const Graph &g, const Operation &op);

} // namespace emu

#endif
