/* mma.cuh on the CPU: the last lane that comes does the work of its warp. Copies happen when they
 * are waited for, and their target is not a number until then, so that a forgotten wait shows.
 *
 * Sums in f32, in order of the inner dimension. */
#ifndef TRI_EMULATION_MMA_CUH
#define TRI_EMULATION_MMA_CUH

#include "runtime/kernels/cuda/launch.cuh"

#include <string.h>
#include <vector>

namespace emu
{

struct Product {
    float *c;
    const unsigned *a, *b;
};

/* The whole matrices of a warp; A is 16 x K, B is K x 8. */
template <int K> struct Matrices {
    float a[16][K], b[K][8];

    void multiply(void *const *operand) const
    {
        for (int l = 0; l < 32; l++) {
            float *c = static_cast<Product *>(operand[l])->c;

            for (int i = 0; i < 4; i++)
                for (int k = 0; k < K; k++)
                    c[i] += a[l / 4 + i / 2 * 8][k] * b[k][l % 4 * 2 + i % 2];
        }
    }
};

template <class T> inline float half_of(unsigned pair, int which)
{
    unsigned short bits = static_cast<unsigned short>(pair >> (16 * which));
    T x;

    memcpy(static_cast<void *>(&x), &bits, sizeof(bits));
    return static_cast<float>(x);
}

template <class T> inline void product_16(unsigned, void *const *operand)
{
    Matrices<16> m;

    for (int l = 0; l < 32; l++) {
        const Product *p = static_cast<Product *>(operand[l]);
        int g = l / 4, q = l % 4;

        for (int i = 0; i < 4; i++)
            for (int e = 0; e < 2; e++)
                m.a[g + i % 2 * 8][2 * q + i / 2 * 8 + e] = half_of<T>(p->a[i], e);
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < 2; e++)
                m.b[2 * q + 8 * i + e][g] = half_of<T>(p->b[i], e);
    }
    m.multiply(operand);
}

inline void product_tf32(unsigned, void *const *operand)
{
    Matrices<8> m;

    for (int l = 0; l < 32; l++) {
        const Product *p = static_cast<Product *>(operand[l]);
        int g = l / 4, q = l % 4;

        for (int i = 0; i < 4; i++)
            m.a[g + i % 2 * 8][q + i / 2 * 4] = bits<float>(p->a[i] & 0xffffe000u);
        for (int i = 0; i < 2; i++)
            m.b[q + 4 * i][g] = bits<float>(p->b[i] & 0xffffe000u);
    }
    m.multiply(operand);
}

struct Rows {
    unsigned *r;
    const unsigned short *row;
};

template <bool TURNED> inline void load_matrices(unsigned, void *const *operand)
{
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < 4; i++) {
            unsigned pair[2];

            for (int e = 0; e < 2; e++) {
                int row = TURNED ? l % 4 * 2 + e : l / 4, column = TURNED ? l / 4 : l % 4 * 2 + e;

                pair[e] = static_cast<Rows *>(operand[8 * i + row])->row[column];
            }
            static_cast<Rows *>(operand[l])->r[i] = pair[0] | pair[1] << 16;
        }
    }
}

/* Copies of a thread of the block that is run; `group` counts up with each commit. */
struct Copy {
    void *to;
    const void *from;
    int group;
};
struct Copies {
    std::vector<Copy> pending;
    int group = 0;
};

inline Copies &copies()
{
    static thread_local std::vector<Copies> of_thread(1024);

    return of_thread[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
}

inline void finish_copies(int may_run)
{
    Copies &c = copies();
    size_t left = 0;

    for (const Copy &copy : c.pending) {
        if (copy.group >= c.group - may_run)
            c.pending[left++] = copy;
        else if (copy.from != nullptr)
            memcpy(copy.to, copy.from, 16);
        else
            memset(copy.to, 0, 16);
    }
    c.pending.resize(left);
}

} // namespace emu

template <class T>
static inline void tri_mma(float *c, const unsigned *a, const unsigned *b,
                           emu::Site site = emu::Site::current())
{
    emu::Product p = {c, a, b};

    emu::meet(0xffffffffu, &p, emu::product_16<T>, site);
}

static inline void tri_mma_tf32(float *c, const unsigned *a, const unsigned *b,
                                emu::Site site = emu::Site::current())
{
    emu::Product p = {c, a, b};

    emu::meet(0xffffffffu, &p, emu::product_tf32, site);
}

static inline unsigned tri_tf32(float x)
{
    return (emu::bits<unsigned>(x) + 0x1000u) & 0xffffe000u;
}

static inline void tri_load_matrices(unsigned *r, const void *row,
                                     emu::Site site = emu::Site::current())
{
    emu::Rows o = {r, static_cast<const unsigned short *>(row)};

    emu::check_aligned(row, 16, site);
    emu::meet(0xffffffffu, &o, emu::load_matrices<false>, site);
}

static inline void tri_load_matrices_turned(unsigned *r, const void *row,
                                            emu::Site site = emu::Site::current())
{
    emu::Rows o = {r, static_cast<const unsigned short *>(row)};

    emu::check_aligned(row, 16, site);
    emu::meet(0xffffffffu, &o, emu::load_matrices<true>, site);
}

static inline void tri_copy_async(void *shared, const void *global, bool valid,
                                  emu::Site site = emu::Site::current())
{
    emu::Copies &c = emu::copies();

    emu::check_aligned(shared, 16, site);
    emu::check_aligned(global, 16, site);
    memset(shared, 0xff, 16);
    c.pending.push_back({shared, valid ? global : nullptr, c.group});
}

static inline void tri_copy_commit()
{
    emu::copies().group++;
}

template <int N> static inline void tri_copy_wait()
{
    emu::finish_copies(N);
}

#endif
