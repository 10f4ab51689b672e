/* The emulated primitives of a kernel: barriers, shuffles, votes, shared memory, 16-bit types.
 *
 * Usage: test_kernel [CASE]: without a case all that pass; the others end the process with a
 * message. */
#include "runtime/kernels/cuda/mma.cuh"
#include "tests/emulation/check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <string.h>

static __global__ void indices(int *out)
{
    int block = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    int threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
    int thread =
        static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));

    out[block * threads + thread] += block * 10000 + thread;
}

static void test_indices(void)
{
    static int out[24 * 60];

    CHECK_CUDA(run(indices, dim3(2, 3, 4), dim3(3, 4, 5), 0, out));
    for (int i = 0; i < 24 * 60; i++)
        CHECK(out[i] == i / 60 * 10000 + i % 60);
}

/* Sum of a block by shuffles, then static shared memory. */
static __global__ void sum(const float *x, float *out)
{
    __shared__ float partial[32];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];

    for (int d = 16; d > 0; d >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        v = 0;
        for (unsigned w = 0; w < (blockDim.x + 31) / 32; w++)
            v += partial[w];
        out[blockIdx.x] = v;
    }
}

static void test_sum(void)
{
    static float x[5 * 1024], out[5];

    for (int i = 0; i < 5 * 1024; i++)
        x[i] = static_cast<float>(i % 17);
    CHECK_CUDA(run(sum, 5, 1024, 0, x, out));
    for (int b = 0; b < 5; b++) {
        float want = 0;

        for (int i = 0; i < 1024; i++)
            want += x[b * 1024 + i];
        CHECK(out[b] == want);
    }
}

/* Neighbours through dynamic shared memory, in rounds: needs both barriers of a round. */
static __global__ void rotate(int *out, int rounds)
{
    int *s = static_cast<int *>(emu::dynamic_shared());
    int n = static_cast<int>(blockDim.x), t = static_cast<int>(threadIdx.x), v = t;

    for (int r = 0; r < rounds; r++) {
        s[t] = v;
        __syncthreads();
        v = s[(t + 1) % n];
        __syncthreads();
    }
    out[t] = v;
}

static void test_rotate(void)
{
    static int out[100];

    CHECK_CUDA(run(rotate, 1, 100, 100 * sizeof(int), out, 7));
    for (int i = 0; i < 100; i++)
        CHECK(out[i] == (i + 7) % 100);
}

static __global__ void shuffles(int *out)
{
    int t = static_cast<int>(threadIdx.x), v = 100 + t;

    out[t] = __shfl_sync(~0u, v, 3, 8);
    out[32 + t] = __shfl_up_sync(~0u, v, 2);
    out[64 + t] = __shfl_down_sync(~0u, v, 5, 16);
    out[96 + t] = static_cast<int>(__ballot_sync(~0u, t % 3 == 0));
    out[128 + t] = __any_sync(~0u, t == 9) + 2 * __all_sync(~0u, t < 31);
    out[160 + t] = __reduce_max_sync(~0u, t ^ 5);
    if (t < 16)
        out[192 + t] = __shfl_xor_sync(0x0000ffffu, v, 1);
    else
        out[192 + t] = __shfl_xor_sync(0xffff0000u, v, 2);
    __syncwarp();
}

static void test_shuffles(void)
{
    static int out[224];
    unsigned thirds = 0;

    for (int t = 0; t < 32; t += 3)
        thirds |= 1u << t;
    CHECK_CUDA(run(shuffles, 1, 32, 0, out));
    for (int t = 0; t < 32; t++) {
        CHECK(out[t] == 100 + (t & ~7) + 3);
        CHECK(out[32 + t] == 100 + (t < 2 ? t : t - 2));
        CHECK(out[64 + t] == 100 + (t % 16 + 5 < 16 ? t + 5 : t));
        CHECK(out[96 + t] == static_cast<int>(thirds));
        CHECK(out[128 + t] == 1);
        CHECK(out[160 + t] == 31);
        CHECK(out[192 + t] == 100 + (t < 16 ? t ^ 1 : t ^ 2));
    }
}

/* Threads that have left take no part; a count over those that remain. */
static __global__ void early(int *out)
{
    int t = static_cast<int>(threadIdx.x);

    if (t >= 70)
        return;
    out[t] =
        __syncthreads_count(t % 2) * 1000 + static_cast<int>(__reduce_add_sync(0xffffffffu, 1u));
}

static void test_early(void)
{
    static int out[128];

    CHECK_CUDA(run(early, 1, 128, 0, out));
    for (int t = 0; t < 70; t++)
        CHECK(out[t] == 35 * 1000 + (t < 64 ? 32 : 6));
    CHECK(out[70] == 0);
}

static __global__ void counted(unsigned *n, float *f, unsigned *inc)
{
    atomicAdd(n, 2u);
    atomicAdd(f, 0.5f);
    atomicInc(inc, 9u);
}

static void test_atomics(void)
{
    static unsigned n, inc;
    static float f;

    CHECK_CUDA(run(counted, 3, 64, 0, &n, &f, &inc));
    CHECK(n == 384 && f == 96.0f && inc == 192 % 10);
}

/* Every 16-bit pattern there and back; ties and overflow. */
static void test_half(void)
{
    for (unsigned i = 0; i < 65536; i++) {
        unsigned short h = static_cast<unsigned short>(i);
        float b = __bfloat162float(__ushort_as_bfloat16(h)), f = __half2float(__ushort_as_half(h));

        CHECK(isnan(b) ? isnan(__bfloat162float(__float2bfloat16(b)))
                       : __bfloat16_as_ushort(__float2bfloat16(b)) == h);
        CHECK(isnan(f) ? isnan(__half2float(__float2half(f)))
                       : __half_as_ushort(__float2half(f)) == h);
    }
    CHECK(__half2float(__ushort_as_half(0x0001)) == 0x1p-24f);
    CHECK(__half_as_ushort(__float2half(65519.0f)) == 0x7bff);
    CHECK(__half_as_ushort(__float2half(65520.0f)) == 0x7c00);
    CHECK(__half_as_ushort(__float2half(1.0f + 0x1p-11f)) == 0x3c00);
    CHECK(__half_as_ushort(__float2half(1.0f + 0x3p-11f)) == 0x3c02);
    CHECK(__half_as_ushort(__float2half(0x1p-25f)) == 0);
    CHECK(__half_as_ushort(__float2half(0x3p-26f)) == 1);
    CHECK(__bfloat16_as_ushort(__float2bfloat16(1.0f + 0x1p-8f)) == 0x3f80);
    CHECK(__bfloat16_as_ushort(__float2bfloat16(3.4e38f)) == 0x7f80);
}

/* --- cases that must end the process --- */

static __global__ void diverged_block(void)
{
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncthreads();
}

static __global__ void diverged_warp(int *out)
{
    if (threadIdx.x != 5)
        out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
    else
        __syncthreads();
}

static __global__ void beyond(void)
{
    static_cast<char *>(emu::dynamic_shared())[64 + threadIdx.x] = 1;
}

static __global__ void misaligned(const float *x, float *out)
{
    float4 v = *reinterpret_cast<const float4 *>(x + 1 + threadIdx.x * 4);

    out[threadIdx.x] = v.x + v.w;
}

static __global__ void misaligned_copy(const float *x)
{
    tri_copy_async(emu::dynamic_shared(), x + 2, true);
}

static int fail(const char *what)
{
    alignas(16) static float x[64];
    static int out[64];

    if (strcmp(what, "diverged_block") == 0)
        CHECK_CUDA(run(diverged_block, 2, 64, 0));
    else if (strcmp(what, "diverged_warp") == 0)
        CHECK_CUDA(run(diverged_warp, 2, 64, 0, out));
    else if (strcmp(what, "beyond_shared") == 0)
        CHECK_CUDA(run(beyond, 1, 1, 64));
    else if (strcmp(what, "misaligned") == 0)
        CHECK_CUDA(run(misaligned, 1, 8, 0, x, x));
    else if (strcmp(what, "misaligned_copy") == 0)
        CHECK_CUDA(run(misaligned_copy, 1, 1, 64, x));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return fail(argv[1]);
    test_indices();
    test_sum();
    test_rotate();
    test_shuffles();
    test_early();
    test_atomics();
    test_half();
    return 0;
}
