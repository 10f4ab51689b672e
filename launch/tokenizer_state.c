/* Merges are a tensor like any other: checked, copied and diffed by the same code. */
#include "launch/tokenizer_state.h"

#include "runtime/core/memory.h"
#include "runtime/graph/graph.h"

#include <string.h>

bool tri_tokenizer_tensor(const struct tri_tokenizer *t, int rank,
                          struct tri_checkpoint_tensor *out)
{
    int64_t n = 0;
    const int32_t *merges = tri_tokenizer_merges(t, &n);

    if (n == 0)
        return false;
    /* Reading checks bytes against the tensor and writes the same ones back: the tokenizer is not
     * changed by a resume. */
    *out = (struct tri_checkpoint_tensor){.name = TRI_TOKENIZER_TENSOR,
                                          .dtype = TRI_I32,
                                          .shape = tri_shape_make(2, (const int64_t[]){n, 2}),
                                          .data = (void *)(uintptr_t)merges,
                                          .count = rank == 0 ? 2 * n : 0};
    return true;
}

static tri_status load_merges(struct tri_comm *comm, const struct tri_checkpoint *c,
                              struct tri_tokenizer **out)
{
    int at = tri_manifest_find(&c->manifest, TRI_TOKENIZER_TENSOR, 0);
    struct tri_checkpoint_tensor t = {.name = TRI_TOKENIZER_TENSOR, .dtype = TRI_I32};
    tri_status st;

    if (at == TRI_NONE)
        return tri_fail(TRI_ERR_CHECKPOINT, "'%s' lacks the merges of its tokenizer", c->path);
    t.shape = c->manifest.tensor[at].shape;
    t.data = tri_calloc((size_t)tri_shape_count(&t.shape) + 1, sizeof(int32_t), "merges");
    if (t.data == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the merges of the tokenizer");
    st = tri_checkpoint_load(comm, c, &t, 1, true);
    if (st == TRI_OK)
        st = tri_tokenizer_create_bpe(t.data, t.shape.dim[0], out);
    tri_free(t.data);
    return st;
}

tri_status tri_tokenizer_load(struct tri_comm *comm, const struct tri_checkpoint *c,
                              struct tri_tokenizer **out)
{
    const char *name = tri_checkpoint_field(c, TRI_TOKENIZER_FIELD);

    if (name != NULL && strcmp(name, "byte") == 0)
        return tri_tokenizer_create_byte(out);
    if (name != NULL && strcmp(name, "bpe") == 0)
        return load_merges(comm, c, out);
    return tri_fail(TRI_ERR_USAGE, "the model of '%s' was trained on numbers without a tokenizer",
                    c->path);
}
