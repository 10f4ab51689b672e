/* Elements of any float type as the emulated libraries read and write them, and how their work is
 * given to a stream. */
#ifndef TRI_EMULATION_LIBRARIES_ELEMENT_H
#define TRI_EMULATION_LIBRARIES_ELEMENT_H

#include "emulation/launch.h"
#include "runtime/core/dtype.h"

#include <stdint.h>
#include <string.h>

namespace emu
{

static inline float load(tri_dtype type, const void *p, int64_t i)
{
    switch (type) {
    case TRI_BF16:
        return tri_bf16_to_f32(static_cast<const uint16_t *>(p)[i]);
    case TRI_F16:
        return tri_f16_to_f32(static_cast<const uint16_t *>(p)[i]);
    default:
        return static_cast<const float *>(p)[i];
    }
}

static inline void store(tri_dtype type, void *p, int64_t i, double x)
{
    float f = static_cast<float>(x);

    if (type == TRI_BF16)
        static_cast<uint16_t *>(p)[i] = tri_bf16_from_f32(f);
    else if (type == TRI_F16)
        static_cast<uint16_t *>(p)[i] = tri_f16_from_f32(f);
    else
        static_cast<float *>(p)[i] = f;
}

/* Rounded to the 10 bits of fraction of tf32. */
static inline float tf32(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    if ((u & 0x7f800000u) != 0x7f800000u)
        u = (u + 0x0fffu + (u >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline bool aligned(const void *p, uint64_t bytes)
{
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

/* Memory that a kernel may touch: not that of malloc. */
static inline bool on_device(const void *p)
{
    cudaPointerAttributes a;

    return cudaPointerGetAttributes(&a, p) == cudaSuccess && a.type != cudaMemoryTypeUnregistered;
}

/* Runs work(job) on the stream, as a kernel of one thread; `job` is copied. */
template <class J> static inline cudaError_t enqueue(void (*work)(J), const J &job, cudaStream_t s)
{
    return launch(make_grid(dim3(1), dim3(1), 0, work, job), s);
}

} // namespace emu

#endif
