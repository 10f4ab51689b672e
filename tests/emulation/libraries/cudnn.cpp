/* cuDNN's graph API on the CPU. The heuristics offer, before an engine that we may take, such that
 * we may not (other bits in each run; f32 products in tf32), so that a caller who does not look at
 * the notes is found out. */
#include "cudnn_descriptor.h"

#include "element.h"

#include <stdio.h>

using emu::Descriptor;

namespace
{

constexpr size_t WORKSPACE = 4099; /* an odd number, as the real ones are */
constexpr int WORKSPACE_ALIGN = 256;
constexpr uint64_t MAGIC = 0x7472692d656d7531;

bool is_convolution(const emu::Operation &op)
{
    return op.kind >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
           op.kind <= CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
}

/* A single convolution with operands and result of one type. */
bool convolution_supported(const emu::Graph &g)
{
    if (g.op.size() != 1 || !is_convolution(g.op[0]))
        return false;
    cudnnDataType_t type = g.tensor.at(g.op[0].x).type;

    for (int64_t uid : {g.op[0].b, g.op[0].y})
        if (g.tensor.at(uid).type != type)
            return false;
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
}

/* Products of 16-bit tensors in memory with heads of a multiple of 8, and no convolution. */
bool attention_supported(const emu::Graph &g)
{
    int products = 0;

    for (const emu::Operation &op : g.op) {
        if (is_convolution(op))
            return false;
        products += op.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    }
    for (const auto &entry : g.tensor) {
        const emu::Tensor &t = entry.second;

        if (!t.between && t.dim.size() == 4 && t.dim[3] > 1 && t.type == CUDNN_DATA_FLOAT)
            return false;
    }
    return products > 1;
}

std::vector<emu::Engine> engines(const std::shared_ptr<const emu::Graph> &g,
                                 cudnnBackendHeurMode_t mode)
{
    std::vector<emu::Engine> found;

    if (!convolution_supported(*g) && !attention_supported(*g))
        return found;
    if (mode == CUDNN_HEUR_MODE_A) {
        found.push_back({g, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0});
        found.push_back({g, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, WORKSPACE});
        found.push_back({g, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 0});
    } else if (mode == CUDNN_HEUR_MODE_FALLBACK && convolution_supported(*g)) {
        found.push_back({g, {}, WORKSPACE});
        found.push_back({g, {}, 0});
    }
    return found;
}

Descriptor *of(cudnnBackendDescriptor_t d)
{
    return static_cast<Descriptor *>(d);
}

/* Puts the heuristic's choices into the configurations that the caller made. */
cudnnStatus_t get_results(const Descriptor *heur, int64_t requested, int64_t *count, void *values)
{
    std::vector<emu::Engine> found =
        engines(heur->graph, heur->get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
    void *const *to = static_cast<void *const *>(values);

    *count = static_cast<int64_t>(found.size());
    for (int64_t i = 0; i < *count && i < requested; i++) {
        if (to[i] == nullptr || of(to[i])->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE;
        of(to[i])->engine = found[static_cast<size_t>(i)];
        of(to[i])->final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_pointers(const emu::Graph &g, const std::vector<int64_t> &uid,
                             const std::vector<void *> &pointer, emu::Run *run)
{
    for (size_t i = 0; i < uid.size(); i++) {
        auto found = g.tensor.find(uid[i]);

        if (found == g.tensor.end() || found->second.between || run->pointer.count(uid[i]) != 0)
            return CUDNN_STATUS_BAD_PARAM;
        if (pointer[i] == nullptr)
            return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
        if (!emu::aligned(pointer[i], static_cast<uint64_t>(found->second.alignment)))
            return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
        if (found->second.by_value)
            memcpy(&run->number[uid[i]], pointer[i], sizeof(float));
        else if (!emu::on_device(pointer[i]))
            return CUDNN_STATUS_EXECUTION_FAILED;
        run->pointer[uid[i]] = pointer[i];
    }
    for (const auto &entry : g.tensor)
        if (!entry.second.between && run->pointer.count(entry.first) == 0)
            return CUDNN_STATUS_BAD_PARAM;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

struct cudnnContext {
    uint64_t magic;
    cudaStream_t stream;
};

static bool valid(cudnnHandle_t handle)
{
    return handle != nullptr && handle->magic == MAGIC;
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static thread_local char text[64];

    snprintf(text, sizeof(text), "CUDNN_STATUS %d", static_cast<int>(status));
    return text;
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (max_size > 0)
        message[0] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    if (handle == nullptr)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    *handle = new cudnnContext{MAGIC, nullptr};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!valid(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!valid(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    if (descriptor == nullptr)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    Descriptor *d = new Descriptor();

    d->type = type;
    *descriptor = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    delete of(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    return descriptor == nullptr ? CUDNN_STATUS_BAD_PARAM_NULL_POINTER
                                 : emu::finalize(of(descriptor));
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values)
{
    if (descriptor == nullptr || values == nullptr)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const emu::Rule *rule = emu::find_rule(of(descriptor)->type, name);

    if (of(descriptor)->final || rule == nullptr || count < 1 || count > rule->most)
        return CUDNN_STATUS_BAD_PARAM;
    if (type != rule->type)
        return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    const unsigned char *bytes = static_cast<const unsigned char *>(values);

    of(descriptor)->attribute[name] = {
        type, count, {bytes, bytes + static_cast<size_t>(count) * emu::size_of(type)}};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t *count, void *values)
{
    if (descriptor == nullptr || count == nullptr || values == nullptr)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const Descriptor *d = of(descriptor);

    if (!d->final)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_results(d, requested, count, values);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        Descriptor *engine = of(*static_cast<void **>(values));

        engine->engine = d->engine;
        engine->final = true;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        *count = static_cast<int64_t>(d->engine.notes.size());
        for (int64_t i = 0; i < *count && i < requested; i++)
            static_cast<cudnnBackendNumericalNote_t *>(values)[i] =
                d->engine.notes[static_cast<size_t>(i)];
        return CUDNN_STATUS_SUCCESS;
    }
    if (name != CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || type != CUDNN_TYPE_INT64)
        return CUDNN_STATUS_BAD_PARAM;
    *static_cast<int64_t *>(values) = static_cast<int64_t>(d->engine.workspace_bytes);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    if (!valid(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (plan == nullptr || pack == nullptr || !of(plan)->final || !of(pack)->final)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    const emu::Engine &engine = of(plan)->engine;
    std::vector<int64_t> uid = of(pack)->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    std::vector<void *> pointer = of(pack)->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    emu::Run run = {};

    run.graph = engine.graph;
    for (cudnnBackendNumericalNote_t note : engine.notes)
        run.tf32 = run.tf32 || note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    run.workspace = of(pack)->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    run.workspace_bytes = engine.workspace_bytes;
    if (uid.size() != pointer.size())
        return CUDNN_STATUS_BAD_PARAM;
    if (run.workspace_bytes > 0 &&
        (run.workspace == nullptr || !emu::aligned(run.workspace, WORKSPACE_ALIGN) ||
         !emu::on_device(run.workspace)))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    cudnnStatus_t st = check_pointers(*engine.graph, uid, pointer, &run);
    if (st != CUDNN_STATUS_SUCCESS)
        return st;
    return emu::enqueue(emu::run_graph, run, handle->stream) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}
