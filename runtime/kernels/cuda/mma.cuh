/* Products of small matrices by a warp's tensor cores, and what brings their operands: one inline
 * function an instruction (PTX ISA, "warp-level matrix instructions", "cp.async"). sm_80 and later.
 *
 * Layouts, with g = lane / 4 and q = lane % 4; two 16-bit elements lie in a register, the first in
 * its low half:
 *
 *   a  16 x 16, 16 bits  a[0]: row g,     columns 2q, 2q + 1   a[2]: row g,     columns 2q + 8, + 9
 *                        a[1]: row g + 8, columns 2q, 2q + 1   a[3]: row g + 8, columns 2q + 8, + 9
 *   b  16 x 8, 16 bits   b[0]: rows 2q, 2q + 1, column g       b[1]: rows 2q + 8, + 9, column g
 *   c  16 x 8, f32       c[0], c[1]: row g, columns 2q, 2q + 1
 *                        c[2], c[3]: row g + 8, the same columns
 *   a  16 x 8, tf32      a[0]: row g, column q    a[2]: row g, column q + 4
 *                        a[1]: row g + 8, q       a[3]: row g + 8, q + 4
 *   b  8 x 8, tf32       b[0]: row q, column g    b[1]: row q + 4, column g
 *
 * So the c of two neighbouring 16 x 8 products, rounded, is the a of the next one. */
#ifndef TRI_RUNTIME_KERNELS_CUDA_MMA_CUH
#define TRI_RUNTIME_KERNELS_CUDA_MMA_CUH

#include "runtime/kernels/cuda/launch.cuh"

/* c += a b, 16 x 16 times 16 x 8, operands of T (bf16 or f16), sums in f32. */
template <class T>
static __device__ inline void tri_mma(float *c, const unsigned *a, const unsigned *b);

#define TRI_MMA_16(type)                                                                           \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"               \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <>
__device__ inline void tri_mma<__nv_bfloat16>(float *c, const unsigned *a, const unsigned *b)
{
    TRI_MMA_16("bf16");
}

template <> __device__ inline void tri_mma<__half>(float *c, const unsigned *a, const unsigned *b)
{
    TRI_MMA_16("f16");
}

#undef TRI_MMA_16

/* c += a b, 16 x 8 times 8 x 8, f32 operands rounded by tri_tf32, sums in f32. */
static __device__ inline void tri_mma_tf32(float *c, const unsigned *a, const unsigned *b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* x with 10 bits of fraction: to nearest, ties away from zero. */
static __device__ inline unsigned tri_tf32(float x)
{
    unsigned r;

    asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(r) : "f"(x));
    return r;
}

static __device__ inline unsigned tri_shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Four 8 x 8 matrices of 16 bits from shared memory: lane l gives the address of row l % 8 of
 * matrix l / 8, a multiple of 16 bytes; r[i] gets row g, columns 2q and 2q + 1 of matrix i. */
static __device__ inline void tri_load_matrices(unsigned *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(tri_shared_address(row))
                 : "memory");
}

/* The same, turned: r[i] gets rows 2q and 2q + 1 of column g of matrix i. */
static __device__ inline void tri_load_matrices_turned(unsigned *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(tri_shared_address(row))
                 : "memory");
}

/* Begins to copy 16 bytes to shared memory, past the first-level cache; zeros unless `valid`. Both
 * addresses are multiples of 16 bytes. */
static __device__ inline void tri_copy_async(void *shared, const void *global, bool valid)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(tri_shared_address(shared)),
        "l"(global), "r"(valid ? 16 : 0)
        : "memory");
}

/* Ends a group: the copies that this thread has begun since the last one. */
static __device__ inline void tri_copy_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits until at most the N latest groups of this thread are under way. What other threads copied
 * is there after a barrier. */
template <int N> static __device__ inline void tri_copy_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

#endif
