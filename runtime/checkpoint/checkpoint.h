/* Checkpoints: everything that must survive a restart, each tensor once under its global name and
 * shape.
 *
 * RUN_DIR/checkpoints/step-00000100/ holds model.h5 (/param/<name>, /state/..., /step), config.yaml
 * and manifest.json (see manifest.h). It is made in a temporary folder, synced, and renamed as the
 * last act, so that a folder named step-... is complete or damaged by others, never half written.
 * The links `latest` and `best` beside it are a convenience: what to load is decided by looking at
 * folders and manifests.
 *
 * Every rank writes the elements it owns with pwrite and all ranks learn of every failure inside
 * the call. */
#ifndef TRI_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define TRI_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/manifest.h"
#include "runtime/core/dtype.h"
#include "runtime/core/status.h"
#include "runtime/exec/comm.h"

#include <stdbool.h>
#include <stdint.h>

TRI_BEGIN_DECLS

/* A tensor in host memory, whole on every rank, or one by rank: its first dimension is the number
 * of ranks (or nodes), and each rank holds and owns its own row, or a piece of one.
 *
 * Tensors by rank are sums in parts (what each rank still owes to the sum of a gradient). Where the
 * number of ranks has changed since the checkpoint, the sum over rows is kept and each new row is
 * an equal share of it; one that the checkpoint lacks starts at zero, and one that the run lacks is
 * dropped. Each of the three is logged once. Momentum moves between the optimizer and the
 * compression in the same way: it starts at zero. A loss scale that the checkpoint lacks keeps its
 * initial value, and one that the run lacks is dropped, unless there are tensors by rank. */
struct tri_checkpoint_tensor {
    const char *name; /* "state/optimizer/layers.0.weight/exp_avg": slashes are groups */
    enum tri_dtype dtype;
    struct tri_shape shape;
    void *data;           /* all elements (by rank: the owned ones); borrowed for the call */
    int64_t first, count; /* owned, hence written by this rank; all ranks cover the tensor once */
    bool by_rank;         /* f32, names begin with TRI_BY_RANK_PREFIX */
};

#define TRI_BY_RANK_PREFIX "state/compress/"

/* Where a save is; a probe is called on every rank as each phase begins. */
enum tri_checkpoint_phase {
    TRI_CHECKPOINT_LAYOUT,   /* temporary folder, layout, space */
    TRI_CHECKPOINT_WRITE,    /* tensor bytes, sync */
    TRI_CHECKPOINT_MANIFEST, /* manifest, sync */
    TRI_CHECKPOINT_PUBLISH,  /* rename to the final name */
    TRI_CHECKPOINT_LINK,     /* links, removal of old checkpoints */
};

/* What to save. All borrowed for the call. */
struct tri_checkpoint_save {
    const char *run_dir;
    int64_t step;
    const struct tri_checkpoint_tensor *tensor; /* same names, types, shapes, order on all ranks */
    int ntensor;
    const struct tri_checkpoint_item *item; /* host state; rank 0's counts */
    int nitem;
    const struct tri_checkpoint_field *field; /* settings to match at resume; rank 0's count */
    int nfield;
    const char *config; /* text of config.yaml; rank 0's counts */
    int keep;           /* newest checkpoints kept beside `best`; 0: all */
    bool best;          /* `best` points here from now on */
    /* For tests and injected faults, else NULL: a failure it returns counts as a failure of that
     * phase. */
    tri_status (*probe)(void *arg, enum tri_checkpoint_phase phase);
    void *probe_arg;
};

/* Writes a complete checkpoint or leaves none, replacing one of the same step; those of later steps
 * are removed, since a run that saves here was taken back from them. Blocks until it is durable.
 * TRI_ERR_IO with path and errno text; a failure in the LINK phase leaves the new checkpoint in
 * place. Collective. Same on all ranks: run_dir, step, tensors, keep, best. */
tri_status tri_checkpoint_save(struct tri_comm *comm,
                               const struct tri_checkpoint_save *save) TRI_CHECKED;

/* A checkpoint that was found: its manifest, read and checked. */
struct tri_checkpoint {
    char *path;    /* the folder, as rank 0 sees it */
    char *run_dir; /* of the newest one: damage then names the good one before; else NULL */
    struct tri_manifest manifest;
};

/* Decides how a run starts. resume: "auto" (newest, or none), "never" (TRI_ERR_USAGE if there are
 * any), or a folder. *out is NULL when the run starts fresh. Checks the manifest and the sizes and
 * layout of all files, not tensors. TRI_ERR_CHECKPOINT when damaged. Collective. */
tri_status tri_checkpoint_find(struct tri_comm *comm, const char *run_dir, const char *resume,
                               struct tri_checkpoint **out) TRI_CHECKED;
/* Opens a checkpoint folder, or the newest checkpoint of a run folder; none is TRI_ERR_CHECKPOINT.
 * Checks as tri_checkpoint_find. Collective. */
tri_status tri_checkpoint_open(struct tri_comm *comm, const char *path,
                               struct tri_checkpoint **out) TRI_CHECKED;
void tri_checkpoint_close(struct tri_checkpoint *c);

/* Host state and settings by key; NULL or false when absent or of the other kind. Local. */
const char *tri_checkpoint_field(const struct tri_checkpoint *c, const char *key);
bool tri_checkpoint_integer(const struct tri_checkpoint *c, const char *key, int64_t *out);
bool tri_checkpoint_real(const struct tri_checkpoint *c, const char *key, double *out);
/* Every given field must be in the checkpoint with the same value; else TRI_ERR_CHECKPOINT with the
 * key and both values. Local. */
tri_status tri_checkpoint_match(const struct tri_checkpoint *c,
                                const struct tri_checkpoint_field *field, int nfield) TRI_CHECKED;
/* The text of config.yaml, checked (tri_free). Local. */
tri_status tri_checkpoint_config(const struct tri_checkpoint *c, char **out) TRI_CHECKED;

/* Reads all given tensors whole into `data` on every rank and checks every byte. Each must be there
 * with its type and shape; unless `partial`, the checkpoint must hold no others. After a failure
 * the contents of `data` are undefined. TRI_ERR_CHECKPOINT with file and tensor. Collective. */
tri_status tri_checkpoint_load(struct tri_comm *comm, const struct tri_checkpoint *c,
                               const struct tri_checkpoint_tensor *tensor, int ntensor,
                               bool partial) TRI_CHECKED;
/* Checks every byte of the folder. TRI_ERR_CHECKPOINT at the first damage. Local. */
tri_status tri_checkpoint_verify(const struct tri_checkpoint *c) TRI_CHECKED;

/* Steps of the folders step-... of a run, ascending, complete or not (tri_free). No folder: zero
 * steps. Local. */
tri_status tri_checkpoint_list(const char *run_dir, int64_t **steps, int *count) TRI_CHECKED;
/* RUN_DIR/checkpoints/step-XXXXXXXX (tri_free); NULL when out of memory. Local. */
char *tri_checkpoint_path(const char *run_dir, int64_t step);
/* Removes what interrupted saves left in a run folder. Only for the owner of the run (its lock).
 * Local. */
tri_status tri_checkpoint_clean(const char *run_dir) TRI_CHECKED;

/* Fills tensors named "param/<name>" from any HDF5 file with /param/<name>, converting number
 * types. A missing or extra name or another shape is TRI_ERR_CHECKPOINT. Local; on the I/O thread
 * through tri_io_call inside. */
tri_status tri_weights_read(const char *path, const struct tri_checkpoint_tensor *tensor,
                            int ntensor) TRI_CHECKED;

TRI_END_DECLS
#endif
