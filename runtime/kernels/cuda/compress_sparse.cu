/* The sparse compressors on the device: topk and randk (optim/compressors/sparse.c has the payloads
 * and rules; the bits are the same).
 *
 * topk: radix selection over the bits of the magnitudes, passes of 11, 10 and 10 bits, each a
 * histogram (whole numbers: any order gives the same) and the choice of a bin. Then every chunk
 * counts what it sends, a scan gives each chunk its place, and the chunks write in order. */
#include "runtime/kernels/cuda/compress.cuh"

#define THREADS TRI_COMPRESS_THREADS
#define BINS    2048
#define EACH    8                /* elements of a thread in a chunk */
#define CHUNK   (EACH * THREADS) /* elements of a block that counts or writes */
#define SCAN    1024             /* threads of the scan */

/* The state of a selection, in scratch. */
struct selection {
    unsigned edge; /* upper bits of the k-th magnitude that are known */
    int64_t ties;  /* its place among the elements with those bits */
    unsigned count[BINS];
};

static int64_t chunks_of(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

/* Behind the selection: for each chunk the number of magnitudes above the edge, and of ties; the
 * scan turns them into the sums over the chunks before. */
size_t tri_cuda_topk_scratch(int64_t n)
{
    return sizeof(struct selection) + (size_t)(2 * chunks_of(n)) * sizeof(unsigned);
}

static __device__ inline unsigned magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* Counts the `width` bits above `shift` of the magnitudes whose bits above those are the edge. */
static __global__ void __launch_bounds__(THREADS)
    count_bits(struct tri_encoding c, struct selection *s, int shift, int width)
{
    __shared__ unsigned count[BINS];
    unsigned edge = s->edge, mask = (1u << width) - 1;

    if (*c.bad != 0)
        return;
    for (int i = (int)threadIdx.x; i < BINS; i += THREADS)
        count[i] = 0;
    __syncthreads();
    for (int64_t i = tri_thread_index(); i < c.n; i += tri_thread_count()) {
        unsigned m = magnitude(c.x[i]);

        if (m >> shift >> width == edge)
            atomicAdd(&count[m >> shift & mask], 1u);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BINS; i += THREADS)
        if (count[i] != 0)
            atomicAdd(&s->count[i], count[i]);
}

/* Sum of v over the threads before this one; *total: over all. shared: room for 33. */
static __device__ inline unsigned scan_block(unsigned v, unsigned *shared, unsigned *total)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    unsigned sum = v, before = 0;

    for (unsigned d = 1; d < 32; d *= 2) {
        unsigned o = __shfl_up_sync(0xffffffffu, sum, d);

        sum += lane >= (int)d ? o : 0u;
    }
    if (lane == 31)
        shared[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < warps; w++) {
        before += w < warp ? shared[w] : 0u;
        *total += shared[w];
    }
    __syncthreads();
    return before + sum - v;
}

/* One block: takes the bin of the k-th largest magnitude, counted from the largest bin, into the
 * edge, and clears the counts. Thread t has EACH bins. first: this is the first pass. */
static __global__ void __launch_bounds__(THREADS)
    choose_bin(struct tri_encoding c, struct selection *s, int width, bool first)
{
    __shared__ unsigned shared[33];
    int top = BINS - 1 - (int)threadIdx.x * EACH;
    int64_t k = first ? c.k : s->ties, before;
    unsigned edge = s->edge, sum = 0, total;

    if (*c.bad != 0)
        return;
    for (int i = 0; i < EACH; i++)
        sum += s->count[top - i];
    before = scan_block(sum, shared, &total);
    if (before < k && k <= before + sum) {
        int bin = top;

        k -= before;
        while (s->count[bin] < k)
            k -= s->count[bin--];
        s->edge = edge << width | (unsigned)bin;
        s->ties = k;
    }
    __syncthreads();
    for (int i = 0; i < EACH; i++)
        s->count[top - i] = 0;
}

/* Of the EACH elements of this thread: how many are above the edge and how many are ties. */
static __device__ inline void count_own(const struct tri_encoding &c, unsigned edge, int64_t at,
                                        unsigned *above, unsigned *ties)
{
    *above = *ties = 0;
    for (int e = 0; e < EACH && at + e < c.n; e++) {
        unsigned m = magnitude(c.x[at + e]);

        *above += m > edge;
        *ties += m == edge;
    }
}

static __global__ void __launch_bounds__(THREADS)
    count_chunk(struct tri_encoding c, const struct selection *s, unsigned *above, unsigned *ties)
{
    __shared__ unsigned shared[33];
    int64_t at = (int64_t)blockIdx.x * CHUNK + threadIdx.x * EACH;
    unsigned own[2], total[2];

    if (*c.bad != 0)
        return;
    count_own(c, s->edge, at, &own[0], &own[1]);
    scan_block(own[0], shared, &total[0]);
    scan_block(own[1], shared, &total[1]);
    if (threadIdx.x == 0) {
        above[blockIdx.x] = total[0];
        ties[blockIdx.x] = total[1];
    }
}

/* One block: v[i] becomes the sum of v[0 .. i - 1]; then the same for w. */
static __global__ void __launch_bounds__(SCAN) scan_chunks(unsigned *v, unsigned *w, int64_t n)
{
    __shared__ unsigned shared[33];

    for (int k = 0; k < 2; k++) {
        unsigned *p = k == 0 ? v : w, sum = 0;

        for (int64_t first = 0; first < n; first += SCAN) {
            int64_t i = first + threadIdx.x;
            unsigned own = i < n ? p[i] : 0u, total;
            unsigned before = scan_block(own, shared, &total);

            if (i < n)
                p[i] = sum + before;
            sum += total;
        }
    }
}

/* Writes what is sent in order of the index, and clears it. Of the ties, the first s->ties. */
static __global__ void __launch_bounds__(THREADS)
    write_chunk(struct tri_encoding c, const struct selection *s, const unsigned *above,
                const unsigned *ties)
{
    __shared__ unsigned shared[33];
    uint32_t *index = (uint32_t *)c.payload;
    float *value = (float *)(index + c.k);
    int64_t at = (int64_t)blockIdx.x * CHUNK + threadIdx.x * EACH, most = s->ties;
    unsigned own[2], total, edge = s->edge;
    int64_t a, t;

    if (*c.bad != 0)
        return;
    count_own(c, edge, at, &own[0], &own[1]);
    a = above[blockIdx.x] + (int64_t)scan_block(own[0], shared, &total);
    t = ties[blockIdx.x] + (int64_t)scan_block(own[1], shared, &total);
    for (int e = 0; e < EACH && at + e < c.n; e++) {
        unsigned m = magnitude(c.x[at + e]);

        if (m > edge || (m == edge && t < most)) {
            int64_t to = a + (t < most ? t : most);

            index[to] = (uint32_t)(at + e);
            value[to] = c.x[at + e];
            c.x[at + e] = 0.0f;
            if (c.v != NULL)
                c.v[at + e] = 0.0f;
        }
        a += m > edge;
        t += m == edge;
    }
}

tri_status tri_cuda_topk_encode(const struct cuda_kernel *k, const struct tri_encoding *c,
                                void *scratch, void *stream)
{
    static const int width[3] = {11, 10, 10}, shift[3] = {20, 10, 0};
    struct selection *s = (struct selection *)scratch;
    unsigned *above = (unsigned *)(s + 1), *ties = above + chunks_of(c->n);
    unsigned chunks = (unsigned)chunks_of(c->n), grid = tri_cuda_grid(k, c->n, CHUNK);

    for (int p = 0; p < 3; p++) {
        TRI_TRY(tri_launch(count_bits, grid, THREADS, 0, stream, *c, s, shift[p], width[p]));
        TRI_TRY(tri_launch(choose_bin, 1, THREADS, 0, stream, *c, s, width[p], p == 0));
    }
    TRI_TRY(tri_launch(count_chunk, chunks, THREADS, 0, stream, *c, s, above, ties));
    TRI_TRY(tri_launch(scan_chunks, 1, SCAN, 0, stream, above, ties, chunks));
    return tri_launch(write_chunk, chunks, THREADS, 0, stream, *c, s, above, ties);
}

static __global__ void __launch_bounds__(THREADS) clear(float *out, int64_t n)
{
    for (int64_t i = tri_thread_index(); i < n; i += tri_thread_count())
        out[i] = 0.0f;
}

/* Of one contributor: no index comes twice in its payload. */
static __global__ void __launch_bounds__(THREADS)
    decode_topk(struct tri_decoding d, const unsigned char *payload)
{
    const uint32_t *index = (const uint32_t *)payload;
    const float *value = (const float *)(index + d.k);

    for (int64_t i = tri_thread_index(); i < d.k; i += tri_thread_count())
        if (index[i] < d.n) /* what came over a link is not trusted with addresses */
            d.out[index[i]] = __fadd_rn(d.out[index[i]], value[i]);
}

tri_status tri_cuda_topk_decode(const struct cuda_kernel *k, const struct tri_decoding *d,
                                void *stream)
{
    TRI_TRY(tri_launch(clear, tri_cuda_grid(k, d->n, THREADS), THREADS, 0, stream, d->out, d->n));
    for (int r = 0; r < d->ranks; r++)
        TRI_TRY(tri_launch(decode_topk, tri_cuda_grid(k, d->k, THREADS), THREADS, 0, stream, *d,
                           d->payload + r * d->stride));
    return TRI_OK;
}

/* Element that part i of k sends; n and k are below 2^32. */
static __device__ inline int64_t chosen(const uint32_t *key, uint64_t step, int64_t n, int64_t k,
                                        int64_t i)
{
    uint64_t begin = (uint64_t)n * (uint64_t)i / (uint64_t)k;
    uint64_t end = (uint64_t)n * (uint64_t)(i + 1) / (uint64_t)k;

    return (int64_t)(begin +
                     ((uint64_t)tri_philox(key, step, (uint64_t)i).x * (end - begin) >> 32));
}

static __global__ void __launch_bounds__(THREADS) encode_randk(struct tri_encoding c)
{
    float *value = (float *)c.payload;

    if (*c.bad != 0)
        return;
    for (int64_t i = tri_thread_index(); i < c.k; i += tri_thread_count()) {
        int64_t j = chosen(c.shared, tri_step_of(c.counters), c.n, c.k, i);

        value[i] = c.x[j];
        c.x[j] = 0.0f;
        if (c.v != NULL)
            c.v[j] = 0.0f;
    }
}

tri_status tri_cuda_randk_encode(const struct cuda_kernel *k, const struct tri_encoding *c,
                                 void *stream)
{
    return tri_launch(encode_randk, tri_cuda_grid(k, c->k, THREADS), THREADS, 0, stream, *c);
}

static __global__ void __launch_bounds__(THREADS) decode_randk(struct tri_decoding d)
{
    for (int64_t i = tri_thread_index(); i < d.k; i += tri_thread_count()) {
        float sum = 0.0f;

        for (int r = 0; r < d.ranks; r++)
            sum = __fadd_rn(sum, ((const float *)(d.payload + r * d.stride))[i]);
        d.out[chosen(d.shared, tri_step_of(d.counters), d.n, d.k, i)] = sum;
    }
}

tri_status tri_cuda_randk_decode(const struct cuda_kernel *k, const struct tri_decoding *d,
                                 void *stream)
{
    TRI_TRY(tri_launch(clear, tri_cuda_grid(k, d->n, THREADS), THREADS, 0, stream, d->out, d->n));
    return tri_launch(decode_randk, tri_cuda_grid(k, d->k, THREADS), THREADS, 0, stream, *d);
}
