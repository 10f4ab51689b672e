/* Tokenizers: round trips, the order of merges, what a list of merges may hold. */
#include "data/tokenizer.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect_round_trip(struct tri_tokenizer *t, const uint8_t *text, size_t bytes)
{
    struct tri_token_list l = {0};
    size_t at = 0;

    cr_assert_eq(tri_tokenizer_encode(t, text, bytes, &l), TRI_OK);
    for (int64_t i = 0; i < l.count; i++) {
        size_t n;
        const uint8_t *p = tri_tokenizer_piece(t, l.ids[i], &n);

        cr_assert(n > 0 && at + n <= bytes);
        cr_assert_eq(memcmp(p, text + at, n), 0);
        at += n;
    }
    cr_assert_eq(at, bytes);
    tri_free(l.ids);
}

Test(tokenizer, bytes_are_ids)
{
    const uint8_t text[] = {0, 'a', 255, '\n'};
    struct tri_token_list l = {0};
    struct tri_tokenizer *t;

    cr_assert_eq(tri_tokenizer_create_byte(&t), TRI_OK);
    cr_assert_eq(tri_tokenizer_vocab(t), 256);
    cr_assert_eq(tri_tokenizer_encode(t, text, 4, &l), TRI_OK);
    cr_assert_eq(l.count, 4);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(l.ids[i], text[i]);
    tri_free(l.ids);
    tri_tokenizer_destroy(t);
}

Test(tokenizer, words)
{
    const char *text = "It's  2 big   \n dogs!";
    const size_t want[] = {2, 1, 1, 1, 2, 4, 4, 5, 1}; /* It ' s _ _2 _big __-_\n _dogs ! */
    size_t at = 0, left = strlen(text);

    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        size_t n = tri_word_length((const uint8_t *)text + at, left - at);

        cr_assert_eq(n, want[i], "word %zu at %zu has %zu bytes", i, at, n);
        at += n;
    }
    cr_assert_eq(at, left);
}

/* "aab aab ab": pairs (a,b) 3, (a,a) 2, (space,a) 2; then (a,ab) 2 and so on. */
Test(tokenizer, most_frequent_pair_first)
{
    const char *text = "aab aab ab";
    struct tri_token_list l = {0};
    struct tri_tokenizer *t;
    const int32_t *m;
    int64_t n;

    cr_assert_eq(tri_tokenizer_train((const uint8_t *)text, strlen(text), 258, &t), TRI_OK);
    m = tri_tokenizer_merges(t, &n);
    cr_assert_eq(n, 2);
    cr_assert(m[0] == 'a' && m[1] == 'b');
    cr_assert(m[2] == 'a' && m[3] == 256);
    cr_assert_eq(tri_tokenizer_encode(t, (const uint8_t *)text, strlen(text), &l), TRI_OK);
    cr_assert_eq(l.count, 5); /* aab | space aab | space ab */
    cr_assert_eq(l.ids[0], 257);
    cr_assert_eq(l.ids[4], 256);
    tri_free(l.ids);
    tri_tokenizer_destroy(t);
}

/* The counts kept while merging equal those of a count from scratch: each learnt merge is the most
 * frequent pair of the text encoded with the merges before it. */
static int64_t frequency(const int32_t *ids, int64_t n, const int64_t *word_end, int64_t words,
                         int32_t a, int32_t b)
{
    int64_t count = 0, at = 0;

    for (int64_t w = 0; w < words; w++) {
        for (; at + 1 < word_end[w]; at++)
            count += ids[at] == a && ids[at + 1] == b;
        at = word_end[w];
    }
    cr_assert_eq(at, n);
    return count;
}

Test(tokenizer, incremental_counts_are_right)
{
    enum { BYTES = 600, VOCAB = 276 };
    uint8_t text[BYTES];
    struct tri_tokenizer *full, *part;
    const int32_t *m;
    int64_t n;

    for (int i = 0; i < BYTES; i++) {
        uint64_t r = tri_mix64((uint64_t)i) % 7;

        text[i] = r == 6 ? ' ' : (uint8_t)('a' + r % 3);
    }
    cr_assert_eq(tri_tokenizer_train(text, BYTES, VOCAB, &full), TRI_OK);
    m = tri_tokenizer_merges(full, &n);
    cr_assert_eq(n, VOCAB - 256);
    for (int64_t k = 0; k < n; k++) {
        struct tri_token_list l = {0};
        int64_t word_end[BYTES], words = 0, best = 0;

        cr_assert_eq(tri_tokenizer_create_bpe(m, k, &part), TRI_OK);
        for (size_t i = 0, len; i < BYTES; i += len) {
            len = tri_word_length(text + i, BYTES - i);
            cr_assert_eq(tri_tokenizer_encode(part, text + i, len, &l), TRI_OK);
            word_end[words++] = l.count;
        }
        for (int64_t w = 0, at = 0; w < words; at = word_end[w++]) {
            for (; at + 1 < word_end[w]; at++) {
                int64_t f = frequency(l.ids, l.count, word_end, words, l.ids[at], l.ids[at + 1]);

                best = f > best ? f : best;
            }
        }
        cr_assert_eq(frequency(l.ids, l.count, word_end, words, m[2 * k], m[2 * k + 1]), best);
        tri_free(l.ids);
        tri_tokenizer_destroy(part);
    }
    tri_tokenizer_destroy(full);
}

Test(tokenizer, any_bytes_come_back)
{
    enum { BYTES = 20000 };
    static uint8_t text[BYTES];
    struct tri_tokenizer *t;

    for (int i = 0; i < BYTES; i++)
        text[i] = (uint8_t)(i < BYTES / 2 ? (uint8_t) "the cat sat on the mat\n"[i % 23]
                                          : (uint8_t)tri_mix64((uint64_t)i));
    memset(text + 5000, 'x', 500);
    memset(text + 6000, ' ', 500);
    cr_assert_eq(tri_tokenizer_train(text, BYTES, 500, &t), TRI_OK);
    cr_assert_eq(tri_tokenizer_vocab(t), 500);
    expect_round_trip(t, text, BYTES);
    tri_tokenizer_destroy(t);
}

Test(tokenizer, merges_are_checked)
{
    const int32_t forward[] = {97, 256}, negative[] = {-1, 3};
    int32_t bomb[80] = {97, 97};
    struct tri_tokenizer *t;

    cr_assert_eq(tri_tokenizer_create_bpe(forward, 1, &t), TRI_ERR_DATA);
    cr_assert_eq(tri_tokenizer_create_bpe(negative, 1, &t), TRI_ERR_DATA);
    for (int32_t i = 1; i < 40; i++)
        bomb[2 * i] = bomb[2 * i + 1] = 255 + i; /* each doubles the one before */
    cr_assert_eq(tri_tokenizer_create_bpe(bomb, 40, &t), TRI_ERR_DATA);
    cr_assert_eq(tri_tokenizer_train((const uint8_t *)"a", 1, 256, &t), TRI_ERR_USAGE);
}

Test(tokenizer, learning_is_fast)
{
    enum { BYTES = 2 << 20 };
    uint8_t *text = malloc(BYTES);
    int64_t start = tri_now_ns();
    struct tri_tokenizer *t;

    for (uint64_t i = 0, w = 0; i < BYTES; w++) { /* 20000 different words of 3..10 letters */
        uint64_t r = tri_mix64(tri_mix64(w) % 20000);

        for (uint64_t k = 0; k < 3 + r % 8 && i < BYTES; k++)
            text[i++] = (uint8_t)('a' + (r >> (8 + 4 * k)) % 16);
        if (i < BYTES)
            text[i++] = ' ';
    }
    cr_assert_eq(tri_tokenizer_train(text, BYTES, 4096, &t), TRI_OK);
    cr_assert_lt(tri_now_ns() - start,
                 INT64_C(10000000000)); /* about 0.2 s; a slow machine has room */
    tri_tokenizer_destroy(t);
    free(text);
}
