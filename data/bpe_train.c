/* Learning byte-pair merges.
 *
 * The text is reduced to its different words with their counts. A table holds, for each pair of
 * neighbouring ids, how often it occurs and in which words. A heap with lazily corrected counts
 * gives the most frequent pair; joining it changes only the words that hold it. The time is
 * therefore about that of the words touched, not of the text times the merges. */
#include "data/tokenizer.h"

#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <stdbool.h>
#include <string.h>

struct word {
    size_t text;   /* place in the text */
    size_t first;  /* place of its ids in `ids` */
    int64_t count; /* occurrences in the text */
    int bytes, n;  /* length; ids now */
};

struct pair {
    uint64_t key; /* left << 32 | right */
    int64_t count;
    int64_t words; /* newest node of the list of words that (may) hold it; -1: none */
};

/* List node; a word may be listed more than once. */
struct node {
    int64_t word, next;
};

struct heap_item {
    int64_t count; /* when pushed; the pair's own count may be lower by now */
    int64_t pair;
};

/* Growing array of any of these. */
struct array {
    void *v;
    int64_t n, cap;
};

struct learner {
    const uint8_t *text;
    struct array words;  /* struct word */
    int64_t *word_table; /* open addressing: word number, -1 empty */
    uint64_t word_mask;
    int32_t *ids;
    struct array pairs; /* struct pair */
    int64_t *pair_table;
    uint64_t pair_mask;
    struct array nodes; /* struct node */
    struct array heap;  /* struct heap_item, largest first */
};

static tri_status room(struct array *a, size_t size)
{
    int64_t cap = a->cap > 0 ? a->cap * 2 : 1024;
    void *v;

    if (a->n < a->cap)
        return TRI_OK;
    v = tri_realloc(a->v, (size_t)cap, size, "tokenizer training");
    if (v == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer training: cannot allocate %lld entries",
                        (long long)cap);
    a->v = v;
    a->cap = cap;
    return TRI_OK;
}

static tri_status new_table(uint64_t size, int64_t **table, uint64_t *mask)
{
    *table = tri_calloc(size, sizeof(**table), "tokenizer training");
    if (*table == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer training: cannot allocate a table of %llu",
                        (unsigned long long)size);
    memset(*table, 0xff, size * sizeof(**table));
    *mask = size - 1;
    return TRI_OK;
}

static uint64_t hash_bytes(const uint8_t *p, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(1099511628211);
    return tri_mix64(h);
}

static void put(int64_t *table, uint64_t mask, uint64_t hash, int64_t v)
{
    uint64_t i = hash & mask;

    while (table[i] >= 0)
        i = (i + 1) & mask;
    table[i] = v;
}

/* Doubles the table of words when it is half full. */
static tri_status grow_words(struct learner *l)
{
    const struct word *w = l->words.v;

    if ((uint64_t)l->words.n * 2 < l->word_mask)
        return TRI_OK;
    tri_free(l->word_table);
    TRI_TRY(new_table((l->word_mask + 1) * 2, &l->word_table, &l->word_mask));
    for (int64_t i = 0; i < l->words.n; i++)
        put(l->word_table, l->word_mask, hash_bytes(l->text + w[i].text, (size_t)w[i].bytes), i);
    return TRI_OK;
}

static tri_status count_word(struct learner *l, size_t at, size_t bytes)
{
    uint64_t hash = hash_bytes(l->text + at, bytes), i = hash & l->word_mask;
    struct word *w = l->words.v;

    for (; l->word_table[i] >= 0; i = (i + 1) & l->word_mask) {
        struct word *k = &w[l->word_table[i]];

        if ((size_t)k->bytes == bytes && memcmp(l->text + k->text, l->text + at, bytes) == 0) {
            k->count++;
            return TRI_OK;
        }
    }
    TRI_TRY(room(&l->words, sizeof(*w)));
    w = l->words.v;
    w[l->words.n] = (struct word){.text = at, .count = 1, .bytes = (int)bytes, .n = (int)bytes};
    l->word_table[i] = l->words.n++;
    return grow_words(l);
}

static tri_status find_words(struct learner *l, size_t bytes)
{
    size_t total = 0;
    struct word *w;

    TRI_TRY(new_table(4096, &l->word_table, &l->word_mask));
    for (size_t i = 0; i < bytes;) {
        size_t n = tri_word_length(l->text + i, bytes - i);

        TRI_TRY(count_word(l, i, n));
        i += n;
    }
    w = l->words.v;
    for (int64_t i = 0; i < l->words.n; i++) {
        w[i].first = total;
        total += (size_t)w[i].bytes;
    }
    l->ids = tri_calloc(total + 1, sizeof(*l->ids), "tokenizer training");
    if (l->ids == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer training: cannot allocate %zu ids", total);
    for (int64_t i = 0; i < l->words.n; i++)
        for (int k = 0; k < w[i].bytes; k++)
            l->ids[w[i].first + (size_t)k] = l->text[w[i].text + (size_t)k];
    return TRI_OK;
}

static tri_status grow_pairs(struct learner *l)
{
    const struct pair *p = l->pairs.v;

    if ((uint64_t)l->pairs.n * 2 < l->pair_mask)
        return TRI_OK;
    tri_free(l->pair_table);
    TRI_TRY(new_table((l->pair_mask + 1) * 2, &l->pair_table, &l->pair_mask));
    for (int64_t i = 0; i < l->pairs.n; i++)
        put(l->pair_table, l->pair_mask, tri_mix64(p[i].key), i);
    return TRI_OK;
}

/* The number of the pair (left, right), made when new. */
static tri_status find_pair(struct learner *l, int32_t left, int32_t right, int64_t *out)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right,
             i = tri_mix64(key) & l->pair_mask;
    struct pair *p = l->pairs.v;

    for (; l->pair_table[i] >= 0; i = (i + 1) & l->pair_mask) {
        if (p[l->pair_table[i]].key == key) {
            *out = l->pair_table[i];
            return TRI_OK;
        }
    }
    TRI_TRY(room(&l->pairs, sizeof(*p)));
    p = l->pairs.v;
    p[l->pairs.n] = (struct pair){.key = key, .words = -1};
    l->pair_table[i] = l->pairs.n;
    *out = l->pairs.n++;
    return grow_pairs(l);
}

/* Adds sign * count of each pair of the word; lists the word with pairs that hold `listed` (-1:
 * all). */
static tri_status add_pairs(struct learner *l, int64_t word, int sign, int32_t listed)
{
    const struct word *w = (const struct word *)l->words.v + word;
    const int32_t *ids = l->ids + w->first;

    for (int i = 0; i + 1 < w->n; i++) {
        struct pair *p;
        struct node *nodes;
        int64_t k;

        TRI_TRY(find_pair(l, ids[i], ids[i + 1], &k));
        p = (struct pair *)l->pairs.v + k;
        p->count += sign * w->count;
        if (sign < 0 || (listed >= 0 && ids[i] != listed && ids[i + 1] != listed))
            continue;
        TRI_TRY(room(&l->nodes, sizeof(*nodes)));
        nodes = l->nodes.v;
        nodes[l->nodes.n] = (struct node){word, p->words};
        p->words = l->nodes.n++;
    }
    return TRI_OK;
}

static bool before(const struct learner *l, struct heap_item a, struct heap_item b)
{
    const struct pair *p = l->pairs.v;

    if (a.count != b.count)
        return a.count > b.count;
    return p[a.pair].key < p[b.pair].key;
}

static tri_status push(struct learner *l, int64_t pair)
{
    struct heap_item *h, x = {((const struct pair *)l->pairs.v)[pair].count, pair};
    int64_t i;

    TRI_TRY(room(&l->heap, sizeof(*h)));
    h = l->heap.v;
    for (i = l->heap.n++; i > 0 && before(l, x, h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = x;
    return TRI_OK;
}

static struct heap_item pop(struct learner *l)
{
    struct heap_item *h = l->heap.v, top = h[0], last = h[--l->heap.n];
    int64_t i = 0, n = l->heap.n;

    for (;;) {
        int64_t child = 2 * i + 1;

        if (child + 1 < n && before(l, h[child + 1], h[child]))
            child++;
        if (child >= n || !before(l, h[child], last))
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = last;
    return top;
}

/* Takes the most frequent pair; false when none is left. */
static tri_status best_pair(struct learner *l, int64_t *out, bool *found)
{
    *found = false;
    while (l->heap.n > 0) {
        struct heap_item top = pop(l);
        int64_t now = ((const struct pair *)l->pairs.v)[top.pair].count;

        if (now < 1)
            continue;
        if (now == top.count) {
            *out = top.pair;
            *found = true;
            return TRI_OK;
        }
        TRI_TRY(push(l, top.pair)); /* counts only fall after a push, so this stays in order */
    }
    return TRI_OK;
}

/* Replaces (a, b) by id in one word, left to right. */
static void join_word(int32_t *ids, int *n, int32_t a, int32_t b, int32_t id)
{
    int to = 0;

    for (int i = 0; i < *n; to++) {
        bool join = i + 1 < *n && ids[i] == a && ids[i + 1] == b;

        ids[to] = join ? id : ids[i];
        i += join ? 2 : 1;
    }
    *n = to;
}

static bool holds(const int32_t *ids, int n, int32_t a, int32_t b)
{
    for (int i = 0; i + 1 < n; i++)
        if (ids[i] == a && ids[i + 1] == b)
            return true;
    return false;
}

/* Joins a pair everywhere; the pairs that this creates go onto the heap. */
static tri_status join_pair(struct learner *l, int64_t pair, int32_t id)
{
    uint64_t key = ((const struct pair *)l->pairs.v)[pair].key;
    int32_t a = (int32_t)(key >> 32), b = (int32_t)(uint32_t)key;
    int64_t first_new = l->pairs.n;

    for (int64_t k = ((const struct pair *)l->pairs.v)[pair].words; k >= 0;) {
        struct node node = ((const struct node *)l->nodes.v)[k];
        struct word *w = (struct word *)l->words.v + node.word;

        if (holds(l->ids + w->first, w->n, a, b)) {
            TRI_TRY(add_pairs(l, node.word, -1, -1));
            join_word(l->ids + w->first, &w->n, a, b, id);
            TRI_TRY(add_pairs(l, node.word, 1, id));
        }
        k = node.next;
    }
    for (int64_t k = first_new; k < l->pairs.n; k++) /* pairs with a new id are new pairs */
        TRI_TRY(push(l, k));
    return TRI_OK;
}

static tri_status learn(struct learner *l, size_t bytes, int64_t want, int32_t *merges,
                        int64_t *made)
{
    bool found = true;

    TRI_TRY(find_words(l, bytes));
    TRI_TRY(new_table(4096, &l->pair_table, &l->pair_mask));
    for (int64_t i = 0; i < l->words.n; i++)
        TRI_TRY(add_pairs(l, i, 1, -1));
    for (int64_t i = 0; i < l->pairs.n; i++)
        TRI_TRY(push(l, i));
    for (*made = 0; *made < want; (*made)++) {
        int64_t pair;
        uint64_t key;

        TRI_TRY(best_pair(l, &pair, &found));
        if (!found)
            break;
        key = ((const struct pair *)l->pairs.v)[pair].key;
        merges[2 * *made] = (int32_t)(key >> 32);
        merges[2 * *made + 1] = (int32_t)(uint32_t)key;
        TRI_TRY(join_pair(l, pair, (int32_t)(256 + *made)));
    }
    return TRI_OK;
}

tri_status tri_tokenizer_train(const uint8_t *text, size_t bytes, int64_t vocab,
                               struct tri_tokenizer **out)
{
    struct learner l = {.text = text};
    int64_t made = 0;
    int32_t *merges;
    tri_status st;

    if (vocab <= 256 || vocab > TRI_VOCAB_MAX)
        return tri_fail(TRI_ERR_USAGE, "tokenizer: a vocabulary of %lld, must be 257..%d",
                        (long long)vocab, TRI_VOCAB_MAX);
    merges = tri_calloc((size_t)(vocab - 256) * 2, sizeof(*merges), "merges");
    if (merges == NULL)
        return tri_fail(TRI_ERR_NOMEM, "tokenizer: cannot allocate its merges");
    st = learn(&l, bytes, vocab - 256, merges, &made);
    if (st == TRI_OK)
        st = tri_tokenizer_create_bpe(merges, made, out);
    tri_free(merges);
    tri_free(l.words.v);
    tri_free(l.word_table);
    tri_free(l.ids);
    tri_free(l.pairs.v);
    tri_free(l.pair_table);
    tri_free(l.nodes.v);
    tri_free(l.heap.v);
    return st;
}
