/* Tokenizers: bytes, or byte-pair encoding on bytes (Sennrich et al., "Neural machine translation
 * of rare words with subword units", ACL 2016; on bytes as GPT-2). Ids 0..255 are the bytes, id 256
 * + m is the result of merge m. Every byte string can be encoded and decoding gives it back
 * exactly.
 *
 * Text is first cut into words that merges never cross: an optional single space and then a run of
 * letters (bytes from 128 on count as letters), of digits or of other signs; or a run of white
 * space, whose last space goes to the word after it. Words are cut after TRI_WORD_MAX bytes. All
 * calls: Local. */
#ifndef TRI_DATA_TOKENIZER_H
#define TRI_DATA_TOKENIZER_H

#include "runtime/core/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TRI_WORD_MAX = 64, TRI_VOCAB_MAX = 1 << 24 };

struct tri_tokenizer;

/* Growing list of ids; zero-initialise, finish with tri_free(ids). */
struct tri_token_list {
    int32_t *ids;
    int64_t count, cap;
};

tri_status tri_tokenizer_create_byte(struct tri_tokenizer **out) TRI_CHECKED;
/* merges: [nmerges, 2] ids, each below 256 + its own number; copied. TRI_ERR_DATA when not so. */
tri_status tri_tokenizer_create_bpe(const int32_t *merges, int64_t nmerges,
                                    struct tri_tokenizer **out) TRI_CHECKED;
/* Learns merges from a text until the vocabulary (> 256) is reached or nothing is left to merge:
 * always the most frequent pair, among equals the one with the smaller ids. */
tri_status tri_tokenizer_train(const uint8_t *text, size_t bytes, int64_t vocab,
                               struct tri_tokenizer **out) TRI_CHECKED;
/* The tokenizer of a dataset file (root attribute `tokenizer`, root dataset `merges`). TRI_ERR_DATA
 * when it has none. */
tri_status tri_tokenizer_open(const char *path, struct tri_tokenizer **out) TRI_CHECKED;
void tri_tokenizer_destroy(struct tri_tokenizer *t);

int64_t tri_tokenizer_vocab(const struct tri_tokenizer *t);
/* [*nmerges, 2], borrowed; none for bytes. */
const int32_t *tri_tokenizer_merges(const struct tri_tokenizer *t, int64_t *nmerges);
/* "byte" or "bpe", as the attribute has it. */
const char *tri_tokenizer_name(const struct tri_tokenizer *t);

/* Appends the ids of a text. Not for two threads at once (it keeps a cache of words). */
tri_status tri_tokenizer_encode(struct tri_tokenizer *t, const uint8_t *text, size_t bytes,
                                struct tri_token_list *out) TRI_CHECKED;
/* The bytes of one id (borrowed, not terminated); none for ids outside the vocabulary. Decoding is
 * joining them. */
const uint8_t *tri_tokenizer_piece(const struct tri_tokenizer *t, int64_t id, size_t *bytes);

/* Length of the first word of a text of `bytes` > 0 bytes. */
size_t tri_word_length(const uint8_t *text, size_t bytes);

#endif
