/* Text files to tokens. */
#include "data/import.h"

#include "data/dataset_priv.h"
#include "data/tokenizer.h"
#include "data/writer.h"
#include "runtime/checkpoint/files.h"
#include "runtime/core/h5.h"
#include "runtime/core/io_thread.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct importing {
    const struct tri_import_text *a;
    uint8_t *text;
    size_t bytes, train_bytes;
    struct tri_tokenizer *tokenizer;
    struct tri_token_list tokens[TRI_SPLIT_COUNT];
};

static tri_status append_file(struct importing *m, const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (f == NULL)
        return tri_fail(TRI_ERR_DATA, "'%s': cannot open: %s", path, strerror(errno));
    n = fread(m->text + m->bytes, 1, size, f);
    fclose(f);
    if (n != size)
        return tri_fail(TRI_ERR_DATA, "'%s': read %zu of %zu bytes", path, n, size);
    m->bytes += n;
    return TRI_OK;
}

static tri_status read_files(struct importing *m)
{
    size_t total = 0;
    struct stat sb;

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < m->a->nfiles; i++) {
            const char *path = m->a->files[i];

            if (stat(path, &sb) != 0)
                return tri_fail(TRI_ERR_DATA, "'%s': cannot open: %s", path, strerror(errno));
            if (!S_ISREG(sb.st_mode))
                return tri_fail(TRI_ERR_DATA, "'%s': is not a regular file", path);
            if (pass == 0)
                total += (size_t)sb.st_size;
            else if (m->bytes + (size_t)sb.st_size > total)
                return tri_fail(TRI_ERR_DATA, "'%s': grew while it was read", path);
            else
                TRI_TRY(append_file(m, path, (size_t)sb.st_size));
        }
        if (pass == 0 && total == 0)
            return tri_fail(TRI_ERR_DATA, "'%s': there is no text to import", m->a->files[0]);
        if (pass == 0 && (m->text = tri_calloc(total, 1, "text")) == NULL)
            return tri_fail(TRI_ERR_NOMEM, "cannot hold a text of %zu bytes in memory", total);
    }
    m->train_bytes = m->bytes - (size_t)llround((double)m->bytes * m->a->validation);
    if (m->train_bytes == 0)
        return tri_fail(TRI_ERR_DATA, "'%s': a validation part of %g leaves no text to train on",
                        m->a->files[0], m->a->validation);
    return TRI_OK;
}

static tri_status tokenize(struct importing *m)
{
    if (m->a->bpe_vocab == 0)
        TRI_TRY(tri_tokenizer_create_byte(&m->tokenizer));
    else
        TRI_TRY(tri_tokenizer_train(m->text, m->train_bytes, m->a->bpe_vocab, &m->tokenizer));
    TRI_TRY(
        tri_tokenizer_encode(m->tokenizer, m->text, m->train_bytes, &m->tokens[TRI_SPLIT_TRAIN]));
    return tri_tokenizer_encode(m->tokenizer, m->text + m->train_bytes, m->bytes - m->train_bytes,
                                &m->tokens[TRI_SPLIT_VALIDATION]);
}

/* Narrows ids in place to the width that they are stored with. */
static void narrow(struct tri_token_list *l, size_t width)
{
    uint8_t *b = (uint8_t *)l->ids;

    for (int64_t i = 0; i < l->count; i++) {
        int32_t id = l->ids[i];

        if (width == 1)
            b[i] = (uint8_t)id;
        if (width == 2) {
            b[2 * i] = (uint8_t)id;
            b[2 * i + 1] = (uint8_t)(id >> 8);
        }
    }
}

static tri_status write_attributes(const struct importing *m, struct tri_writer *w, int *merges_at)
{
    int64_t vocab = tri_tokenizer_vocab(m->tokenizer), dims[2] = {0, 2};

    TRI_TRY(tri_h5_put_i64(w->file, w->path, "vocab", -1, &vocab));
    TRI_TRY(tri_h5_put_string(w->file, w->path, "tokenizer", tri_tokenizer_name(m->tokenizer)));
    tri_tokenizer_merges(m->tokenizer, &dims[0]);
    if (dims[0] > 0)
        TRI_TRY(tri_writer_array(w, "merges", H5T_STD_I32LE, 2, dims, merges_at));
    return TRI_OK;
}

static tri_status write_all(struct importing *m, struct tri_writer *w)
{
    static const char *const entries[TRI_SPLIT_COUNT] = {"train/tokens", "validation/tokens"};
    int64_t vocab = tri_tokenizer_vocab(m->tokenizer), nmerges;
    size_t width = vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
    hid_t type = width == 1 ? H5T_STD_U8LE : width == 2 ? H5T_STD_U16LE : H5T_STD_I32LE;
    const int32_t *merges = tri_tokenizer_merges(m->tokenizer, &nmerges);
    int at[TRI_SPLIT_COUNT] = {-1, -1}, merges_at = -1;

    TRI_TRY(tri_writer_create(w, m->a->out));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++)
        if (s == TRI_SPLIT_TRAIN || m->tokens[s].count > 0)
            TRI_TRY(tri_writer_array(w, entries[s], type, 1, &m->tokens[s].count, &at[s]));
    TRI_TRY(write_attributes(m, w, &merges_at));
    TRI_TRY(tri_writer_layout(w));
    for (int s = 0; s < TRI_SPLIT_COUNT; s++) {
        if (at[s] < 0)
            continue;
        narrow(&m->tokens[s], width);
        TRI_TRY(tri_writer_put(w, at[s], 0, m->tokens[s].ids, (size_t)m->tokens[s].count * width));
    }
    if (merges_at >= 0)
        TRI_TRY(tri_writer_put(w, merges_at, 0, merges, (size_t)nmerges * 8));
    return tri_writer_finish(w);
}

static tri_status write_closure(void *arg)
{
    struct tri_writer w;
    tri_status st = write_all(arg, &w);

    tri_writer_destroy(&w);
    return st;
}

tri_status tri_import_text(const struct tri_import_text *a, struct tri_text *report)
{
    struct importing m = {.a = a};
    tri_status st;

    if (a->nfiles < 1)
        return tri_fail(TRI_ERR_USAGE, "import text: no file is named");
    if (!(a->validation >= 0 && a->validation < 1))
        return tri_fail(TRI_ERR_USAGE, "import text: --validation is %g, must be in [0, 1)",
                        a->validation);
    TRI_TRY(tri_check_output(a->out, a->files, a->nfiles));
    TRI_TRY_GOTO(st, read_files(&m), done);
    TRI_TRY_GOTO(st, tokenize(&m), done);
    TRI_TRY_GOTO(st, tri_io_call(write_closure, &m), done);
    tri_text_printf(
        report, "%s: %lld training and %lld validation tokens from %zu bytes, vocab %lld (%s)\n",
        a->out, (long long)m.tokens[0].count, (long long)m.tokens[1].count, m.bytes,
        (long long)tri_tokenizer_vocab(m.tokenizer), tri_tokenizer_name(m.tokenizer));
    if (a->bpe_vocab > tri_tokenizer_vocab(m.tokenizer))
        tri_text_printf(report, "the text has nothing left to merge for a vocab of %lld\n",
                        (long long)a->bpe_vocab);

done:
    tri_tokenizer_destroy(m.tokenizer);
    tri_free(m.tokens[0].ids);
    tri_free(m.tokens[1].ids);
    tri_free(m.text);
    return st;
}
