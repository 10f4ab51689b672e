/* See cudnn_descriptor.h. */
#include "cudnn_descriptor.h"

namespace emu
{

namespace
{

#define POINTWISE CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
#define REF       CUDNN_TYPE_BACKEND_DESCRIPTOR
#define CONVOLUTION_RULES(owner, prefix, x, w, y)                                                  \
    {owner, prefix##_CONV_DESC, REF, 1, true}, {owner, prefix##_##x, REF, 1, true},                \
        {owner, prefix##_##w, REF, 1, true}, {owner, prefix##_##y, REF, 1, true},                  \
        {owner, prefix##_ALPHA, CUDNN_TYPE_FLOAT, 1, true},                                        \
    {                                                                                              \
        owner, prefix##_BETA, CUDNN_TYPE_FLOAT, 1, true                                            \
    }

const Rule rules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 8, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
     1, true},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
     CUDNN_TYPE_CONVOLUTION_MODE, 1, true},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
     true},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 3,
     true},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
     3, true},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 3,
     true},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
     3, true},
    CONVOLUTION_RULES(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD, X, W, Y),
    CONVOLUTION_RULES(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY),
    CONVOLUTION_RULES(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY),
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
     true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
     true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, REF, 1, true},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, REF, 1, true},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, REF, 1, false},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, REF, 1, false},
    {POINTWISE, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, REF, 1, true},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, REF, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, REF, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, REF, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, REF, 1, true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
     true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, REF, 1,
     true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, REF, 1,
     true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, REF, 1,
     true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, REF, 1, true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, REF, 1, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
     1, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, REF, 64, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, REF, 1, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
     true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
     1, true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, REF, 1,
     true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
     64, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
     CUDNN_TYPE_VOID_PTR, 64, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
     1, true},
};

cudnnStatus_t finalize_tensor(Descriptor *d)
{
    Tensor &t = d->tensor;

    t.uid = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.alignment = d->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    t.type = d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.dim = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    t.stride = d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    t.between = d->has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.by_value =
        d->has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && d->get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    if (t.dim.size() < 3 || t.dim.size() != t.stride.size())
        return CUDNN_STATUS_BAD_PARAM;
    for (size_t i = 0; i < t.dim.size(); i++)
        if (t.dim[i] < 1 || t.stride[i] < 1)
            return CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
    if (t.uid < 0 || t.alignment < 1 || (t.alignment & (t.alignment - 1)) != 0)
        return CUDNN_STATUS_BAD_PARAM;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_window(Descriptor *d)
{
    int64_t spatial = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);

    for (cudnnBackendAttributeName_t name :
         {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
          CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
        if (d->attribute.at(name).count != spatial)
            return CUDNN_STATUS_BAD_PARAM;
    std::vector<int64_t> stride = d->all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                         pad = d->all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);

    /* What the emulation can: the same in both dimensions, on both sides. */
    if (spatial != 2 || stride[0] != stride[1] || pad[0] != pad[1] ||
        pad != d->all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS) ||
        d->get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) !=
            CUDNN_CROSS_CORRELATION ||
        d->get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
        return CUDNN_STATUS_NOT_SUPPORTED;
    d->op.stride = stride[0];
    d->op.pad = pad[0];
    return CUDNN_STATUS_SUCCESS;
}

/* Notes tensor `name` of operation d and returns its uid. */
int64_t operand(Descriptor *d, cudnnBackendAttributeName_t name)
{
    const Descriptor *t = d->part(name);

    if (t == nullptr)
        return -1;
    d->tensors.push_back(t->tensor);
    return t->tensor.uid;
}

cudnnStatus_t finalize_convolution(Descriptor *d, cudnnBackendAttributeName_t window,
                                   cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t w,
                                   cudnnBackendAttributeName_t y, cudnnBackendAttributeName_t beta)
{
    d->op = d->part(window)->op;
    d->op.kind = d->type;
    d->op.x = operand(d, x);
    d->op.b = operand(d, w);
    d->op.y = operand(d, y);
    d->op.t = -1;
    return d->get<float>(beta) == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t finalize_op(Descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return finalize_convolution(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return finalize_convolution(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return finalize_convolution(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        d->op = Operation{};
        d->op.x = operand(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
        d->op.b = operand(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
        d->op.y = operand(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        d->op = d->part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->op;
        d->op.x = operand(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        d->op.y = operand(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        d->op.b = -1;
        break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        d->op = Operation{};
        d->op.x = operand(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
        d->op.y = operand(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        d->op.b = -1;
        break;
    default:
        d->op = d->part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->op;
        d->op.x = operand(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
        d->op.b = operand(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        d->op.t = operand(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
        d->op.y = operand(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        d->op.kind = d->type;
        return CUDNN_STATUS_SUCCESS;
    }
    d->op.kind = d->type;
    d->op.t = -1;
    return CUDNN_STATUS_SUCCESS;
}

/* Operations in order, each tensor with one maker, those between operations made before they are
 * read. */
cudnnStatus_t finalize_graph(Descriptor *d)
{
    auto g = std::make_shared<Graph>();
    std::map<int64_t, bool> made;

    for (void *p : d->all<void *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        const Descriptor *op = static_cast<const Descriptor *>(p);

        for (const Tensor &t : op->tensors) {
            auto known = g->tensor.emplace(t.uid, t);

            if (!known.second && known.first->second.dim != t.dim)
                return CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
            if (t.uid != op->op.result() && t.between && !made[t.uid])
                return CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
        }
        if (made[op->op.result()])
            return CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
        made[op->op.result()] = true;
        cudnnStatus_t st = check_operation(*g, op->op);
        if (st != CUDNN_STATUS_SUCCESS)
            return st;
        g->op.push_back(op->op);
    }
    d->graph = g;
    return CUDNN_STATUS_SUCCESS;
}

bool is_operation(cudnnBackendDescriptorType_t t)
{
    return (t >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR && t <= POINTWISE) ||
           t == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
           t == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ||
           t == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

cudnnStatus_t finalize_kind(Descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finalize_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return finalize_window(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        d->op.mode = d->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        d->op.axis =
            d->has(CUDNN_ATTR_POINTWISE_AXIS) ? d->get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : -1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        d->op.reduce = d->get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return finalize_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        d->graph = d->part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        d->engine = d->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
        return d->engine.graph ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    default:
        return is_operation(d->type) ? finalize_op(d) : CUDNN_STATUS_SUCCESS;
    }
}

} // namespace

const Rule *find_rule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name)
{
    for (const Rule &r : rules)
        if (r.owner == owner && r.name == name)
            return &r;
    return nullptr;
}

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    default:
        return 4;
    }
}

cudnnStatus_t finalize(Descriptor *d)
{
    if (d->final)
        return CUDNN_STATUS_BAD_PARAM;
    for (const Rule &r : rules) {
        if (r.owner != d->type)
            continue;
        if (r.needed && !d->has(r.name))
            return CUDNN_STATUS_BAD_PARAM;
        if (r.type != REF || !d->has(r.name))
            continue;
        for (void *p : d->all<void *>(r.name))
            if (p == nullptr || !static_cast<Descriptor *>(p)->final)
                return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    cudnnStatus_t st = finalize_kind(d);
    d->final = st == CUDNN_STATUS_SUCCESS;
    return st;
}

} // namespace emu
