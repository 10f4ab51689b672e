/* A job before it has memory: configuration, data and mesh joined into everything that compilation
 * needs. */
#ifndef TRI_LAUNCH_JOB_H
#define TRI_LAUNCH_JOB_H

#include "collectives/world.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "launch/compile.h"
#include "launch/config.h"
#include "launch/hierarchy.h"
#include "runtime/checkpoint/checkpoint.h"

/* Settings that a checkpoint must share with the run that loads it, and the layers that the run has
 * moved to f32 (launch/kept_layers.h). */
#define TRI_JOB_FIELDS 9

struct tri_job {
    struct tri_config *cfg;         /* owned; effective after tri_job_create */
    const struct tri_world *world;  /* borrowed; NULL: no MPI */
    struct tri_world *device_world; /* whose gradients travel between devices; NULL: none */
    int nranks;
    struct tri_dataset *data;        /* owned */
    struct tri_tokenizer *tokenizer; /* owned; NULL: the data has none */
    struct tri_data_shape shape;
    struct tri_model_dims dims;
    struct tri_compile_spec spec; /* points into this struct; its device is owned */
    struct tri_group_rules groups;
    struct tri_injection faults[TRI_MAX_FAULTS];
    struct tri_cost_table costs;
    int64_t steps_per_epoch, total_steps;
    struct tri_checkpoint_field field[TRI_JOB_FIELDS];
    int nfield;
    const char *kept_fp32; /* value of that last field; NULL: none */
    struct tri_pool pool;
};

struct tri_job_args {
    const char *config;           /* RUN.yaml */
    const char *const *overrides; /* key=value */
    int noverrides;
    const struct tri_world *world;    /* NULL: no MPI */
    int nranks;                       /* of the mesh; without MPI any number, for `plan` */
    bool need_train, need_validation; /* splits that must hold samples */
};

/* Reads and checks the configuration; the same on all ranks or an error. Collective. */
tri_status tri_job_load_config(const struct tri_job_args *args,
                               struct tri_config **out) TRI_CHECKED;

/* Opens and checks the data, resolves the model, the grains, the threads and the length of the run.
 * Takes cfg (also on failure). `resumed` (may be NULL) is the checkpoint the run goes on from:
 * defaults of grain and threads come from it, and the fields must match. Collective. */
tri_status tri_job_create(const struct tri_job_args *args, struct tri_config *cfg,
                          const struct tri_checkpoint *resumed, struct tri_job **out) TRI_CHECKED;
/* Puts debug.nodes in place of the real nodes of `w` and chooses by how many levels gradients
 * travel (launch/hierarchy.h); costs of the run folder, else of `resumed` (may be NULL),
 * are used again. After tri_job_create, before compilation. Collective. */
tri_status tri_job_arrange(struct tri_job *job, struct tri_world *w, const void *mpi_comm,
                           const struct tri_checkpoint *resumed) TRI_CHECKED;
/* What a rank of the job computes on, to measure it. Local. */
struct tri_measured tri_job_measured(const struct tri_job *job);
/* Writes costs that are new to the run folder into it. Collective. */
tri_status tri_job_keep_costs(const struct tri_job *job, struct tri_comm *control) TRI_CHECKED;
/* Compiles and simulates the training step with this exchange; arg: the job. A predictor of
 * launch/hierarchy.h. Local. */
tri_status tri_job_predict(void *arg, const struct tri_exchange_spec *exchange,
                           const struct tri_costs *costs, struct tri_simulation *out) TRI_CHECKED;
/* The job compares grains in 16 bit with fp32 (precision.check_every). Local. */
bool tri_job_checks_precision(const struct tri_job *job);
void tri_job_destroy(struct tri_job *job);

#endif
