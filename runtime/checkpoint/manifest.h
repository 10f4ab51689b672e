/* The manifest of a checkpoint: what the folder must hold, to the last byte.
 *
 * It is a JSON file written after everything else. It gives, for each tensor, type, shape, place in
 * model.h5 and checksum (the sum of tri_hash_elements over its elements); the size of model.h5 and
 * the hash of all its bytes outside tensors; size and hash of config.yaml; the host state; and, as
 * its last member, a hash of the text before it. So one flipped or missing byte anywhere in the
 * folder is found, and no size in a damaged file is ever believed. */
#ifndef TRI_RUNTIME_CHECKPOINT_MANIFEST_H
#define TRI_RUNTIME_CHECKPOINT_MANIFEST_H

#include "runtime/core/dtype.h"
#include "runtime/core/memory.h"
#include "runtime/core/text.h"
#include "runtime/graph/shape.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

#define TRI_MANIFEST_FORMAT    1
#define TRI_MANIFEST_MAX_BYTES ((size_t)64 << 20)

/* A number of the host state: step, updates, epoch, best value ... */
struct tri_checkpoint_item {
    const char *key;
    bool real; /* which of the two it is */
    int64_t integer;
    double value; /* kept to the bit, also infinities and NaN */
};

/* A setting that must match at resume or is taken over then, as text: "optimizer" = "adamw". */
struct tri_checkpoint_field {
    const char *key, *value;
};

struct tri_manifest_tensor {
    const char *name; /* path in model.h5 without the leading slash: "param/layers.0.weight" */
    enum tri_dtype dtype;
    struct tri_shape shape;
    int64_t offset; /* first byte in model.h5; 0 for an empty tensor */
    uint64_t checksum;
};

/* Texts and arrays belong to the pool. */
struct tri_manifest {
    struct tri_pool pool;
    int64_t step;
    struct tri_manifest_tensor *tensor;
    int ntensor;
    struct tri_checkpoint_item *item;
    int nitem;
    struct tri_checkpoint_field *field;
    int nfield;
    int64_t model_bytes, config_bytes;
    uint64_t layout_hash; /* of the bytes of model.h5 outside tensors */
    uint64_t config_hash;
};

/* Appends the whole JSON text. Local. */
void tri_manifest_print(const struct tri_manifest *m, struct tri_text *out);
/* Parses and checks the text; `path` stands in messages. TRI_ERR_CHECKPOINT. m is zeroed or
 * overwritten; finish it also after a failure. Local. */
tri_status tri_manifest_parse(struct tri_manifest *m, const char *text, size_t bytes,
                              const char *path) TRI_CHECKED;
void tri_manifest_finish(struct tri_manifest *m);

/* Index of the tensor, looking at `guess` first; -1 when absent. Local. */
int tri_manifest_find(const struct tri_manifest *m, const char *name, int guess);
/* Bytes of the elements. Local. */
size_t tri_manifest_tensor_bytes(const struct tri_manifest_tensor *t);
/* Hash of a text or of a run of bytes. `first` is the number of its first byte in the file `name`.
 * Local. */
uint64_t tri_manifest_hash(const char *name, int64_t first, const void *data, size_t bytes);

TRI_END_DECLS
#endif
