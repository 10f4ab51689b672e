/* Computes the operations of a cuDNN graph one by one: sums in double, every tensor rounded to its
 * type once. */
#include "cudnn_graph.h"

#include "element.h"

#include <cmath>

namespace emu
{

namespace
{

/* Elements of a tensor in the order of its dimensions. */
using Value = std::vector<float>;

tri_dtype type_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_BFLOAT16 ? TRI_BF16 : t == CUDNN_DATA_HALF ? TRI_F16 : TRI_F32;
}

/* Offset in memory of element i in the order of the dimensions. */
int64_t place(const Tensor &t, int64_t i)
{
    int64_t at = 0;

    for (size_t d = t.dim.size(); d-- > 0;) {
        at += i % t.dim[d] * t.stride[d];
        i /= t.dim[d];
    }
    return at;
}

/* Element of b that is read for element i of y: dimensions of size 1 repeat. */
int64_t broadcast(const Tensor &y, const Tensor &b, int64_t i)
{
    int64_t at = 0, scale = 1;

    for (size_t d = y.dim.size(); d-- > 0;) {
        int64_t index = i % y.dim[d];

        i /= y.dim[d];
        at += (b.dim[d] == 1 ? 0 : index) * scale;
        scale *= b.dim[d];
    }
    return at;
}

class Machine
{
  public:
    explicit Machine(const Run &run) : run_(run)
    {
    }

    void compute(const Operation &op)
    {
        const Tensor &y = tensor(op.result());
        std::vector<double> sum(static_cast<size_t>(y.count()));

        switch (op.kind) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            pointwise(op, sum);
            break;
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            matmul(op, sum);
            break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            reduce(op, sum);
            break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            reshape(op, sum);
            break;
        default:
            convolution(op, sum);
            break;
        }
        finish(y, sum);
    }

  private:
    const Run &run_;
    std::map<int64_t, Value> value_;

    const Tensor &tensor(int64_t uid) const
    {
        return run_.graph->tensor.at(uid);
    }

    const Value &read(int64_t uid)
    {
        auto found = value_.find(uid);

        if (found != value_.end())
            return found->second;
        const Tensor &t = tensor(uid);
        Value v(static_cast<size_t>(t.count()));

        for (size_t i = 0; i < v.size(); i++)
            v[i] = t.by_value ? run_.number.at(uid)
                              : load(type_of(t.type), run_.pointer.at(uid),
                                     place(t, static_cast<int64_t>(i)));
        return value_[uid] = v;
    }

    /* Operands of products, as the engine takes them. */
    Value operand(int64_t uid)
    {
        Value v = read(uid);

        for (float &x : v)
            x = run_.tf32 && tensor(uid).type == CUDNN_DATA_FLOAT ? tf32(x) : x;
        return v;
    }

    void finish(const Tensor &t, const std::vector<double> &sum)
    {
        Value v(sum.size());

        for (size_t i = 0; i < v.size(); i++) {
            uint32_t stored = 0;

            store(type_of(t.type), &stored, 0, sum[i]);
            v[i] = load(type_of(t.type), &stored, 0);
            if (!t.between)
                store(type_of(t.type), run_.pointer.at(t.uid), place(t, static_cast<int64_t>(i)),
                      v[i]);
        }
        value_[t.uid] = v;
    }

    static double apply(cudnnPointwiseMode_t mode, double x, double b)
    {
        switch (mode) {
        case CUDNN_POINTWISE_ADD:
            return x + b;
        case CUDNN_POINTWISE_SUB:
            return static_cast<float>(x) - static_cast<float>(b);
        case CUDNN_POINTWISE_MUL:
            return x * b;
        case CUDNN_POINTWISE_DIV:
            return x / b;
        case CUDNN_POINTWISE_MAX:
            return x > b ? x : b;
        case CUDNN_POINTWISE_MIN:
            return x < b ? x : b;
        case CUDNN_POINTWISE_EXP:
            return std::exp(x);
        case CUDNN_POINTWISE_LOG:
            return std::log(x);
        case CUDNN_POINTWISE_CMP_GE:
            return x >= b;
        default:
            return x;
        }
    }

    void pointwise(const Operation &op, std::vector<double> &y)
    {
        const Tensor &ty = tensor(op.y), &tx = tensor(op.x);
        const Tensor &tb = op.b < 0 ? ty : tensor(op.b);
        const Value &x = read(op.x);
        const Value *b = op.b < 0 ? nullptr : &read(op.b), *t = op.t < 0 ? nullptr : &read(op.t);
        int64_t below = 1; /* elements of one index along the axis */

        for (size_t d = ty.dim.size(); op.axis >= 0 && --d > static_cast<size_t>(op.axis);)
            below *= ty.dim[d];
        for (size_t i = 0; i < y.size(); i++) {
            int64_t at = static_cast<int64_t>(i);
            double second = b == nullptr ? 0 : (*b)[broadcast(ty, tb, at)];

            if (op.mode == CUDNN_POINTWISE_GEN_INDEX)
                y[i] = static_cast<double>(at / below % ty.dim[static_cast<size_t>(op.axis)]);
            else if (op.mode == CUDNN_POINTWISE_BINARY_SELECT)
                y[i] = (*t)[i] != 0 ? x[broadcast(ty, tx, at)] : second;
            else
                y[i] = apply(op.mode, x[broadcast(ty, tx, at)], second);
        }
    }

    void matmul(const Operation &op, std::vector<double> &c)
    {
        const Tensor &ta = tensor(op.x), &tc = tensor(op.y);
        Value a = operand(op.x), b = operand(op.b);
        size_t last = tc.dim.size() - 1;
        int64_t m = tc.dim[last - 1], n = tc.dim[last], k = ta.dim[last];

        for (int64_t row = 0; row < tc.count() / n; row++) {
            const float *from = &b[row / m * k * n];

            for (int64_t l = 0; l < k; l++) {
                double x = a[row * k + l];

                for (int64_t j = 0; j < n; j++)
                    c[row * n + j] += x * from[l * n + j];
            }
        }
    }

    void reduce(const Operation &op, std::vector<double> &y)
    {
        const Tensor &tx = tensor(op.x), &ty = tensor(op.y);
        const Value &x = read(op.x);
        bool most = op.reduce == CUDNN_REDUCE_TENSOR_MAX;

        for (double &v : y)
            v = most ? -INFINITY : 0;
        for (size_t i = 0; i < x.size(); i++) {
            double &v = y[broadcast(tx, ty, static_cast<int64_t>(i))];

            v = most ? std::fmax(v, x[i]) : v + x[i];
        }
    }

    /* The elements keep their order in memory. */
    void reshape(const Operation &op, std::vector<double> &y)
    {
        const Tensor &tx = tensor(op.x), &ty = tensor(op.y);
        const Value &x = read(op.x);
        std::map<int64_t, float> memory;

        for (size_t i = 0; i < x.size(); i++)
            memory[place(tx, static_cast<int64_t>(i))] = x[i];
        for (size_t i = 0; i < y.size(); i++)
            y[i] = memory.at(place(ty, static_cast<int64_t>(i)));
    }

    /* Calls add(x, w, y) with the offsets of each triple whose product counts. */
    template <class F> void each_tap(const Operation &op, F add) const
    {
        const std::vector<int64_t> &x = tensor(op.x).dim, &w = tensor(op.b).dim,
                                   &y = tensor(op.y).dim;

        for (int64_t i = 0; i < x[0] * w[0] * w[1] * w[2] * w[3]; i++) {
            int64_t kx = i % w[3], ky = i / w[3] % w[2], c = i / w[3] / w[2] % w[1];
            int64_t o = i / w[3] / w[2] / w[1] % w[0], b = i / w[3] / w[2] / w[1] / w[0];
            int64_t wi = i % (w[0] * w[1] * w[2] * w[3]);

            for (int64_t oy = 0; oy < y[2]; oy++) {
                int64_t iy = oy * op.stride - op.pad + ky;
                int64_t xi = ((b * x[1] + c) * x[2] + iy) * x[3] - op.pad + kx;
                int64_t yi = ((b * y[1] + o) * y[2] + oy) * y[3];

                for (int64_t ox = 0; iy >= 0 && iy < x[2] && ox < y[3]; ox++) {
                    int64_t ix = ox * op.stride - op.pad + kx;

                    if (ix >= 0 && ix < x[3])
                        add(xi + ox * op.stride, wi, yi + ox);
                }
            }
        }
    }

    void convolution(const Operation &op, std::vector<double> &sum)
    {
        if (op.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
            Value x = operand(op.x), w = operand(op.b);

            each_tap(op, [&](int64_t xi, int64_t wi, int64_t yi) {
                sum[yi] += static_cast<double>(x[xi]) * w[wi];
            });
        } else if (op.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
            Value w = operand(op.b), y = operand(op.y);

            each_tap(op, [&](int64_t xi, int64_t wi, int64_t yi) {
                sum[xi] += static_cast<double>(y[yi]) * w[wi];
            });
        } else {
            Value x = operand(op.x), y = operand(op.y);

            each_tap(op, [&](int64_t xi, int64_t wi, int64_t yi) {
                sum[wi] += static_cast<double>(y[yi]) * x[xi];
            });
        }
    }
};

} // namespace

void run_graph(Run run)
{
    Machine machine(run);

    if (run.workspace_bytes > 0)
        memset(run.workspace, 0xa5, run.workspace_bytes);
    for (const Operation &op : run.graph->op)
        machine.compute(op);
}

static bool broadcasts(const Tensor &from, const Tensor &to)
{
    if (from.dim.size() != to.dim.size())
        return false;
    for (size_t d = 0; d < to.dim.size(); d++)
        if (from.dim[d] != 1 && from.dim[d] != to.dim[d])
            return false;
    return true;
}

static cudnnStatus_t check_pointwise(const Graph &g, const Operation &op)
{
    const Tensor &y = g.tensor.at(op.y);
    bool select = op.mode == CUDNN_POINTWISE_BINARY_SELECT;
    bool one = op.mode == CUDNN_POINTWISE_EXP || op.mode == CUDNN_POINTWISE_LOG ||
               op.mode == CUDNN_POINTWISE_IDENTITY || op.mode == CUDNN_POINTWISE_GEN_INDEX;

    if ((op.b < 0) != one || (op.t < 0) == select)
        return CUDNN_STATUS_BAD_PARAM;
    if (op.mode == CUDNN_POINTWISE_GEN_INDEX &&
        (op.axis < 0 || op.axis >= static_cast<int64_t>(y.dim.size())))
        return CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
    if (select && g.tensor.at(op.t).type != CUDNN_DATA_BOOLEAN)
        return CUDNN_STATUS_BAD_PARAM;
    for (int64_t uid : {op.x, op.b, op.t})
        if (uid >= 0 && !broadcasts(g.tensor.at(uid), y))
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_matmul(const Tensor &a, const Tensor &b, const Tensor &c)
{
    size_t last = c.dim.size() - 1;

    if (a.dim.size() != c.dim.size() || b.dim.size() != c.dim.size() || last < 2)
        return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    for (size_t d = 0; d + 2 <= last; d++)
        if (a.dim[d] != c.dim[d] || b.dim[d] != c.dim[d])
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    if (a.dim[last - 1] != c.dim[last - 1] || a.dim[last] != b.dim[last - 1] ||
        b.dim[last] != c.dim[last])
        return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_convolution(const Operation &op, const Tensor &x, const Tensor &w,
                                       const Tensor &y)
{
    if (x.dim.size() != 4 || w.dim.size() != 4 || y.dim.size() != 4)
        return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    if (x.dim[0] != y.dim[0] || x.dim[1] != w.dim[1] || y.dim[1] != w.dim[0])
        return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    for (size_t d = 2; d < 4; d++)
        if ((x.dim[d] + 2 * op.pad - w.dim[d]) / op.stride + 1 != y.dim[d])
            return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_operation(const Graph &g, const Operation &op)
{
    const Tensor &x = g.tensor.at(op.x), &y = g.tensor.at(op.y);

    switch (op.kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise(g, op);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return check_matmul(x, g.tensor.at(op.b), y);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return broadcasts(y, x) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return x.count() == y.count() ? CUDNN_STATUS_SUCCESS
                                      : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    default:
        return check_convolution(op, x, g.tensor.at(op.b), y);
    }
}

} // namespace emu
