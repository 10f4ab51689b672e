/* Tokenizer: vocabulary, encoding, decoding. Learning is in bpe_train.c. */
#include "data/tokenizer.h"

#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <stdbool.h>
#include <string.h>

enum {
    PIECE_MAX = 1 << 16, /* longest token: bounds the memory of a foreign list of merges */
    CACHE_WORDS = 1 << 14,
    CACHE_WORD_MAX = 16,
};

/* One remembered word; a new one replaces the old one of the same hash. */
struct cached_word {
    uint8_t bytes, count; /* bytes 0: empty */
    uint8_t text[CACHE_WORD_MAX];
    int32_t ids[CACHE_WORD_MAX];
};

struct rank_slot {
    uint64_t pair; /* UINT64_MAX: empty */
    int32_t rank;
};

struct tri_tokenizer {
    int64_t nmerges;
    int32_t *merges;         /* [nmerges, 2] */
    size_t *start;           /* [vocab + 1] places in `pieces` */
    uint8_t *pieces;         /* bytes of all tokens */
    struct rank_slot *ranks; /* open addressing: pair -> number of its merge */
    uint64_t rank_mask;
    struct cached_word *cache; /* [CACHE_WORDS], bpe only */
};

enum byte_class { LETTER, DIGIT, SPACE, SIGN };

static enum byte_class class_of(uint8_t c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 128)
        return LETTER;
    if (c >= '0' && c <= '9')
        return DIGIT;
    return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : SIGN;
}

size_t tri_word_length(const uint8_t *text, size_t bytes)
{
    size_t most = bytes < TRI_WORD_MAX ? bytes : TRI_WORD_MAX;
    size_t i = text[0] == ' ' && most > 1 && class_of(text[1]) != SPACE ? 1 : 0;
    enum byte_class c = class_of(text[i]);

    while (i < most && class_of(text[i]) == c)
        i++;
    if (c == SPACE && i > 1 && i < bytes && text[i - 1] == ' ' && class_of(text[i]) != SPACE)
        i--;
    return i;
}

static uint64_t pair_of(int32_t a, int32_t b)
{
    return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}

/* The number of the merge of (a, b), or INT32_MAX. */
static int32_t rank_of(const struct tri_tokenizer *t, int32_t a, int32_t b)
{
    uint64_t pair = pair_of(a, b), i = tri_mix64(pair) & t->rank_mask;

    while (t->ranks[i].pair != UINT64_MAX) {
        if (t->ranks[i].pair == pair)
            return t->ranks[i].rank;
        i = (i + 1) & t->rank_mask;
    }
    return INT32_MAX;
}

static tri_status fill_ranks(struct tri_tokenizer *t)
{
    uint64_t size = 16;

    while (size < 2 * (uint64_t)t->nmerges)
        size *= 2;
    t->rank_mask = size - 1;
    t->ranks = tri_calloc(size, sizeof(*t->ranks), "merge ranks");
    if (t->ranks == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate its table");
    memset(t->ranks, 0xff, size * sizeof(*t->ranks));
    for (int64_t m = 0; m < t->nmerges; m++) {
        uint64_t pair = pair_of(t->merges[2 * m], t->merges[2 * m + 1]);
        uint64_t i = tri_mix64(pair) & t->rank_mask;

        while (t->ranks[i].pair != UINT64_MAX && t->ranks[i].pair != pair)
            i = (i + 1) & t->rank_mask;
        if (t->ranks[i].pair == UINT64_MAX) /* a pair listed twice keeps its first number */
            t->ranks[i] = (struct rank_slot){pair, (int32_t)m};
    }
    return TRI_OK;
}

/* Lengths first, then bytes: a merged token is its left part followed by its right part. */
static tri_status fill_pieces(struct tri_tokenizer *t)
{
    int64_t vocab = 256 + t->nmerges;

    t->start = tri_calloc((size_t)vocab + 1, sizeof(*t->start), "token starts");
    if (t->start == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate its table");
    for (int64_t i = 0; i < vocab; i++) {
        const int32_t *m = i < 256 ? NULL : t->merges + 2 * (i - 256);
        size_t len = 1;

        if (m != NULL && (m[0] < 0 || m[0] >= i || m[1] < 0 || m[1] >= i))
            return tri_fail(TRI_ERR_DATA,
                            "tokenizer: merge %lld joins %d and %d, must be ids in 0..%lld",
                            (long long)i - 256, m[0], m[1], (long long)i - 1);
        if (m != NULL)
            len = t->start[m[0] + 1] - t->start[m[0]] + t->start[m[1] + 1] - t->start[m[1]];
        if (len > PIECE_MAX)
            return tri_fail(TRI_ERR_DATA,
                            "tokenizer: merge %lld gives a token of %zu bytes, at most %d",
                            (long long)i - 256, len, PIECE_MAX);
        t->start[i + 1] = t->start[i] + len;
    }
    t->pieces = tri_calloc(t->start[vocab], 1, "token bytes");
    if (t->pieces == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate %zu bytes", t->start[vocab]);
    for (int64_t i = 0; i < vocab; i++) {
        uint8_t *to = t->pieces + t->start[i];

        if (i < 256) {
            *to = (uint8_t)i;
            continue;
        }
        for (int side = 0; side < 2; side++) {
            size_t n;
            const uint8_t *p = tri_tokenizer_piece(t, t->merges[2 * (i - 256) + side], &n);

            memcpy(to, p, n);
            to += n;
        }
    }
    return TRI_OK;
}

static tri_status init(struct tri_tokenizer *t, const int32_t *merges, int64_t nmerges)
{
    t->nmerges = nmerges;
    if (nmerges > 0) {
        t->merges = tri_calloc((size_t)nmerges * 2, sizeof(*t->merges), "merges");
        t->cache = tri_calloc(CACHE_WORDS, sizeof(*t->cache), "word cache");
        if (t->merges == NULL || t->cache == NULL)
            return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate its merges");
        memcpy(t->merges, merges, (size_t)nmerges * 2 * sizeof(*merges));
    }
    TRI_TRY(fill_pieces(t));
    return fill_ranks(t);
}

tri_status tri_tokenizer_create_bpe(const int32_t *merges, int64_t nmerges,
                                    struct tri_tokenizer **out)
{
    struct tri_tokenizer *t = tri_calloc(1, sizeof(*t), "tokenizer");
    tri_status st;

    if (t == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate %zu bytes", sizeof(*t));
    st = init(t, merges, nmerges);
    if (st != TRI_OK) {
        tri_tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return TRI_OK;
}

tri_status tri_tokenizer_create_byte(struct tri_tokenizer **out)
{
    return tri_tokenizer_create_bpe(NULL, 0, out);
}

void tri_tokenizer_destroy(struct tri_tokenizer *t)
{
    if (t == NULL)
        return;
    tri_free(t->merges);
    tri_free(t->start);
    tri_free(t->pieces);
    tri_free(t->ranks);
    tri_free(t->cache);
    tri_free(t);
}

int64_t tri_tokenizer_vocab(const struct tri_tokenizer *t)
{
    return 256 + t->nmerges;
}

const int32_t *tri_tokenizer_merges(const struct tri_tokenizer *t, int64_t *nmerges)
{
    *nmerges = t->nmerges;
    return t->merges;
}

const char *tri_tokenizer_name(const struct tri_tokenizer *t)
{
    return t->nmerges > 0 ? "bpe" : "byte";
}

const uint8_t *tri_tokenizer_piece(const struct tri_tokenizer *t, int64_t id, size_t *bytes)
{
    if (id < 0 || id >= 256 + t->nmerges) {
        *bytes = 0;
        return t->pieces;
    }
    *bytes = t->start[id + 1] - t->start[id];
    return t->pieces + t->start[id];
}

static tri_status reserve(struct tri_token_list *l, int64_t more)
{
    int64_t cap = l->cap * 2 > l->count + more ? l->cap * 2 : l->count + more;
    int32_t *ids;

    if (l->count + more <= l->cap)
        return TRI_OK;
    ids = tri_realloc(l->ids, (size_t)cap, sizeof(*ids), "token list");
    if (ids == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate %lld tokens", (long long)cap);
    l->ids = ids;
    l->cap = cap;
    return TRI_OK;
}

/* Applies the merges to one word in the order of their numbers; returns the number of ids. */
static int encode_word(const struct tri_tokenizer *t, const uint8_t *w, int n, int32_t *ids)
{
    for (int i = 0; i < n; i++)
        ids[i] = w[i];
    for (;;) {
        int32_t best = INT32_MAX;
        int to = 0;

        for (int i = 0; i + 1 < n; i++) {
            int32_t r = rank_of(t, ids[i], ids[i + 1]);

            best = r < best ? r : best;
        }
        if (best == INT32_MAX)
            return n;
        for (int i = 0; i < n; to++) {
            bool join =
                i + 1 < n && ids[i] == t->merges[2 * best] && ids[i + 1] == t->merges[2 * best + 1];

            ids[to] = join ? 256 + best : ids[i];
            i += join ? 2 : 1;
        }
        n = to;
    }
}

static uint64_t hash_word(const uint8_t *w, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < n; i++)
        h = (h ^ w[i]) * UINT64_C(1099511628211);
    return tri_mix64(h);
}

static int encode_cached(struct tri_tokenizer *t, const uint8_t *w, size_t n, int32_t *ids)
{
    struct cached_word *c;

    if (n > CACHE_WORD_MAX)
        return encode_word(t, w, (int)n, ids);
    c = &t->cache[hash_word(w, n) % CACHE_WORDS];
    if (c->bytes != n || memcmp(c->text, w, n) != 0) {
        c->bytes = (uint8_t)n;
        memcpy(c->text, w, n);
        c->count = (uint8_t)encode_word(t, w, (int)n, c->ids);
    }
    memcpy(ids, c->ids, c->count * sizeof(*ids));
    return c->count;
}

tri_status tri_tokenizer_encode(struct tri_tokenizer *t, const uint8_t *text, size_t bytes,
                                struct tri_token_list *out)
{
    size_t i = 0;

    if (t->nmerges == 0) {
        TRI_TRY(reserve(out, (int64_t)bytes));
        for (; i < bytes; i++)
            out->ids[out->count++] = text[i];
        return TRI_OK;
    }
    while (i < bytes) {
        size_t n = tri_word_length(text + i, bytes - i);

        TRI_TRY(reserve(out, TRI_WORD_MAX));
        out->count += encode_cached(t, text + i, n, out->ids + out->count);
        i += n;
    }
    return TRI_OK;
}

struct opening {
    const char *path;
    char name[16];
    int32_t *merges;
    int64_t nmerges;
};

static tri_status read_merges(struct opening *o, hid_t file)
{
    hid_t d = H5Dopen2(file, "merges", H5P_DEFAULT), space, type;
    hsize_t dims[H5S_MAX_RANK] = {0};
    int rank;
    bool good;
    tri_status st = TRI_OK;

    if (d < 0)
        return tri_h5_fail(TRI_ERR_DATA, o->path, "cannot open", "/merges");
    space = H5Dget_space(d);
    type = H5Dget_type(d);
    rank = H5Sget_simple_extent_dims(space, dims, NULL);
    good = H5Tget_class(type) == H5T_INTEGER && rank == 2 && dims[1] == 2 &&
           dims[0] <= TRI_VOCAB_MAX - 256;
    if (!good)
        st = tri_fail(TRI_ERR_DATA, "'%s': '/merges' must be integers [M, 2] of at most %d rows",
                      o->path, TRI_VOCAB_MAX - 256);
    o->nmerges = (int64_t)dims[0];
    if (good && dims[0] > 0) {
        o->merges = tri_calloc((size_t)dims[0] * 2, sizeof(*o->merges), "merges");
        if (o->merges == NULL)
            st = tri_fail(TRI_ERR_NOMEM, "'%s': no memory for '/merges'", o->path);
        else if (H5Dread(d, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, o->merges) < 0)
            st = tri_h5_fail(TRI_ERR_DATA, o->path, "cannot read", "/merges");
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(d);
    return st;
}

static tri_status read_file(void *arg)
{
    struct opening *o = arg;
    hid_t file;
    tri_status st;

    TRI_TRY(tri_h5_open(o->path, TRI_ERR_DATA, &file));
    st = tri_h5_attr_string(file, o->path, "tokenizer", o->name, sizeof(o->name));
    if (st == TRI_OK && strcmp(o->name, "bpe") == 0)
        st = read_merges(o, file);
    H5Fclose(file);
    return st;
}

tri_status tri_tokenizer_open(const char *path, struct tri_tokenizer **out)
{
    struct opening o = {.path = path};
    tri_status st = tri_io_call(read_file, &o);

    if (st == TRI_OK && strcmp(o.name, "byte") != 0 && strcmp(o.name, "bpe") != 0)
        st = tri_fail(TRI_ERR_DATA, "'%s': attribute 'tokenizer' is '%s', must be 'byte' or 'bpe'",
                      path, o.name);
    if (st == TRI_OK)
        st = tri_tokenizer_create_bpe(o.merges, o.nmerges, out);
    tri_free(o.merges);
    return st;
}
