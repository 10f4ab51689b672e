/* The descriptors of cuDNN's graph API: attributes with types, frozen by finalize. */
#ifndef TRI_EMULATION_LIBRARIES_CUDNN_DESCRIPTOR_H
#define TRI_EMULATION_LIBRARIES_CUDNN_DESCRIPTOR_H

#include "cudnn_graph.h"

#include <string.h>

namespace emu
{

struct Attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<unsigned char> bytes;
};

struct Engine {
    std::shared_ptr<const Graph> graph;
    std::vector<cudnnBackendNumericalNote_t> notes;
    size_t workspace_bytes;
};

struct Descriptor {
    cudnnBackendDescriptorType_t type;
    bool final = false;
    std::map<cudnnBackendAttributeName_t, Attribute> attribute;
    /* what finalize or a query made of it */
    Tensor tensor;
    Operation op;
    std::vector<Tensor> tensors; /* of an operation */
    std::shared_ptr<const Graph> graph;
    Engine engine;

    bool has(cudnnBackendAttributeName_t name) const
    {
        return attribute.count(name) != 0;
    }

    template <class T> T get(cudnnBackendAttributeName_t name) const
    {
        T value;

        memcpy(&value, attribute.at(name).bytes.data(), sizeof(value));
        return value;
    }

    template <class T> std::vector<T> all(cudnnBackendAttributeName_t name) const
    {
        const Attribute &a = attribute.at(name);
        std::vector<T> values(static_cast<size_t>(a.count));

        memcpy(values.data(), a.bytes.data(), a.bytes.size());
        return values;
    }

    const Descriptor *part(cudnnBackendAttributeName_t name) const
    {
        return has(name) ? static_cast<const Descriptor *>(get<void *>(name)) : nullptr;
    }
};

/* What a descriptor of `owner` may or must have. */
struct Rule {
    cudnnBackendDescriptorType_t owner;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t most; /* elements */
    bool needed;
};

const Rule *find_rule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);
size_t size_of(cudnnBackendAttributeType_t type);

/* Freezes d: every needed attribute is there, the descriptors it refers to are frozen, and what
 * they say fits together. */
cudnnStatus_t finalize(Descriptor *d);

} // namespace emu

#endif
