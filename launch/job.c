/* The order of checks before anything starts: configuration, ranks, data, model, grains,
 * checkpoint. Each failure is agreed, so that all ranks leave together with one message. */
#include "launch/job.h"

#include "collectives/machine.h"
#include "launch/device_choice.h"
#include "launch/env.h"
#include "launch/kept_layers.h"
#include "launch/threads.h"
#include "launch/tokenizer_state.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Grains of a batch in deterministic runs that do not say: as many ranks may share it. */
#define TREE_GRAINS 8

static struct tri_comm *control(const struct tri_job_args *a)
{
    return a->world != NULL ? a->world->control : NULL;
}

static tri_status load_and_check(const struct tri_job_args *a, struct tri_config **out)
{
    struct tri_config *cfg;
    tri_status st;

    TRI_TRY(tri_config_load(a->config, a->overrides, a->noverrides, &cfg));
    st = tri_config_check(cfg);
    if (st == TRI_OK && cfg->parallel.data > 0 && cfg->parallel.data != a->nranks)
        st = tri_fail(TRI_ERR_USAGE,
                      "parallel.data: %lld data ranks are asked for, but the job has %d rank%s",
                      (long long)cfg->parallel.data, a->nranks, a->nranks == 1 ? "" : "s");
    if (st != TRI_OK) {
        tri_config_destroy(cfg);
        return st;
    }
    *out = cfg;
    return TRI_OK;
}

tri_status tri_job_load_config(const struct tri_job_args *a, struct tri_config **out)
{
    struct tri_config *cfg = NULL;
    struct tri_text text = {0};
    tri_status st;

    TRI_TRY_GOTO(st, tri_comm_agree(control(a), load_and_check(a, &cfg)), destroy_config);
    tri_config_print(cfg, &text);
    TRI_TRY_GOTO(st, tri_comm_same(control(a), text.data, text.len, "the configuration"),
                 destroy_config);
    tri_text_finish(&text);
    *out = cfg;
    return TRI_OK;

destroy_config:
    tri_text_finish(&text);
    tri_config_destroy(cfg);
    return st;
}

static tri_status open_data(struct tri_job *job, const struct tri_job_args *a)
{
    const struct tri_data_options *o = &job->cfg->data;
    struct tri_dataset_cfg cfg = {
        .paths = o->path.v, .npaths = (int)o->path.count, .sequence = o->sequence};

    cfg.need[TRI_SPLIT_TRAIN] = a->need_train;
    cfg.need[TRI_SPLIT_VALIDATION] = a->need_validation;
    if (o->sequence == TRI_OPT_AUTO)
        TRI_TRY(tri_model_context(&job->cfg->model, &cfg.sequence));
    if (cfg.sequence == 0) /* no model of text: it refuses tokens itself, in better words */
        cfg.sequence = 1;
    TRI_TRY(tri_dataset_open(&cfg, &job->data));
    if (tri_dataset_info(job->data)->tokenizer[0] == '\0')
        return TRI_OK;
    return tri_tokenizer_open(o->path.v[0], &job->tokenizer);
}

/* Scans all ids, each rank its part, and fixes what the file does not state: vocabulary and
 * classes. */
static tri_status scan_data(struct tri_job *job, const struct tri_job_args *a)
{
    const struct tri_dataset_info *info = tri_dataset_info(job->data);
    int64_t vocab = info->vocab > 0 ? info->vocab : job->cfg->model.vocab;
    int64_t classes = info->classes > 0 ? info->classes : job->cfg->model.classes;
    int64_t max[2] = {-1, -1};
    int rank = tri_comm_rank(control(a)), size = tri_comm_size(control(a));
    tri_status st = tri_dataset_check(job->data, rank, size, vocab > 0 ? vocab : 0,
                                      classes > 0 ? classes : 0, &max[0], &max[1]);

    TRI_TRY(tri_comm_agree(control(a), st));
    TRI_TRY(tri_comm_allreduce(control(a), max, 2, TRI_I64, TRI_REDUCE_MAX, false));
    job->shape.vocab = info->vocab > 0 ? info->vocab : max[0] + 1;
    job->shape.classes = info->classes > 0 ? info->classes : max[1] + 1;
    return TRI_OK;
}

static struct tri_shape sample_shape(int ndim, const int64_t *dim)
{
    return tri_shape_make(ndim < TRI_MAX_DIMS - 1 ? ndim : TRI_MAX_DIMS - 1, dim);
}

static tri_status describe_data(struct tri_job *job)
{
    const struct tri_dataset_info *info = tri_dataset_info(job->data);

    if (info->x_rank >= TRI_MAX_DIMS || info->y_rank >= TRI_MAX_DIMS)
        return tri_fail(
            TRI_ERR_DATA, "data.path: a sample has %d dimensions, at most %d are allowed",
            info->x_rank > info->y_rank ? info->x_rank : info->y_rank, TRI_MAX_DIMS - 1);
    job->shape.task = info->kind == TRI_DATA_TOKENS ? TRI_TASK_LANGUAGE
                      : info->class_targets         ? TRI_TASK_CLASSES
                                                    : TRI_TASK_VALUES;
    job->shape.sequence = info->sequence;
    job->shape.x = sample_shape(info->x_rank, info->x_shape);
    job->shape.y = sample_shape(info->y_rank, info->y_shape);
    return TRI_OK;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

/* The grain: given, else that of the checkpoint, else as large as the ranks allow. */
static int64_t choose_grain(const struct tri_config *cfg, int nranks,
                            const struct tri_checkpoint *resumed)
{
    const char *kept = resumed != NULL ? tri_checkpoint_field(resumed, "grain") : NULL;

    if (cfg->data.grain > 0)
        return cfg->data.grain;
    if (kept != NULL)
        return strtoll(kept, NULL, 10);
    if (cfg->run.deterministic)
        return cfg->data.batch / gcd(cfg->data.batch, TREE_GRAINS);
    return cfg->data.batch % nranks == 0 ? cfg->data.batch / nranks : cfg->data.batch;
}

/* Evaluation takes grains one by one, so there they need not be shared out evenly. */
static tri_status cut_batch(struct tri_job *job, bool training,
                            const struct tri_checkpoint *resumed)
{
    struct tri_config *cfg = job->cfg;
    int64_t grain = choose_grain(cfg, job->nranks, resumed);
    struct tri_mesh mesh = training ? job->spec.mesh : tri_mesh_data(1, 0);

    TRI_TRY(
        tri_grains_make(&mesh, cfg->data.batch, grain, cfg->run.deterministic, &job->spec.grains));
    job->shape.grain = cfg->data.grain = grain;
    return TRI_OK;
}

/* Deterministic runs keep their number of threads, since products may round otherwise with another
 * one. Collective. */
static tri_status choose_threads(struct tri_job *job, const struct tri_checkpoint *resumed)
{
    int64_t wanted = job->cfg->run.threads, kept;
    struct tri_env_settings env;

    tri_env_read_settings(&env);
    if (wanted <= 0 && job->cfg->run.deterministic)
        wanted = resumed != NULL && tri_checkpoint_integer(resumed, "threads", &kept) ? kept : 1;
    TRI_TRY(tri_threads_choose(wanted, env.threads, job->world, &job->spec.threads));
    job->cfg->run.threads = job->spec.threads;
    return TRI_OK;
}

static tri_status plan_length(struct tri_job *job)
{
    const struct tri_config *cfg = job->cfg;
    int64_t samples = tri_dataset_info(job->data)->samples[TRI_SPLIT_TRAIN];
    int64_t per_epoch = (samples + cfg->data.batch - 1) / cfg->data.batch;

    if (cfg->run.steps < 0 && per_epoch > 0 && cfg->run.epochs > INT64_MAX / per_epoch)
        return tri_fail(TRI_ERR_USAGE, "run.epochs: %lld epochs of %lld steps are too many",
                        (long long)cfg->run.epochs, (long long)per_epoch);
    job->steps_per_epoch = per_epoch;
    job->total_steps = cfg->run.steps >= 0 ? cfg->run.steps : cfg->run.epochs * per_epoch;
    return TRI_OK;
}

static tri_status check_faults(const struct tri_job *job)
{
    const struct tri_fault_options *f = job->cfg->debug.inject.v;

    for (size_t i = 0; i < job->cfg->debug.inject.count; i++)
        if (f[i].rank >= job->nranks)
            return tri_fail(TRI_ERR_USAGE, "debug.inject: rank %lld, but the job has %d rank%s",
                            (long long)f[i].rank, job->nranks, job->nranks == 1 ? "" : "s");
    return TRI_OK;
}

/* Faults that are ops of the step; those of checkpoint and eval are made by the trainer. */
static void fill_faults(struct tri_job *job)
{
    const struct tri_fault_options *f = job->cfg->debug.inject.v;

    for (size_t i = 0; i < job->cfg->debug.inject.count; i++) {
        if (f[i].where > TRI_FAULT_UPDATE)
            continue;
        job->faults[job->spec.nfaults++] =
            (struct tri_injection){.what = (enum tri_inject_what)f[i].what,
                                   .step = f[i].step,
                                   .rank = (int)f[i].rank,
                                   .where = (enum tri_phase)f[i].where,
                                   .parameter = f[i].parameter[0] != '\0' ? f[i].parameter : NULL,
                                   .index = f[i].index,
                                   .grain = f[i].grain,
                                   .bit = (int)f[i].bit,
                                   .ms = (int)f[i].ms,
                                   .code = (int)f[i].code};
    }
    job->spec.faults = job->faults;
}

static void fill_compression(struct tri_job *job, const struct tri_topology *t)
{
    tri_compression_choose(&job->cfg->gradient, &job->cfg->optimizer, &job->spec.mesh, t,
                           job->spec.seed, &job->costs, &job->spec.exchange);
}

static void fill_spec(struct tri_job *job)
{
    const struct tri_config *cfg = job->cfg;

    job->spec.dims = &job->dims;
    job->spec.data = &job->shape;
    job->spec.seed = (uint64_t)cfg->run.seed;
    job->spec.deterministic = cfg->run.deterministic;
    job->spec.overlap = cfg->gradient.overlap;
    if (cfg->device.isa != TRI_ISA_CHOICE_AUTO)
        tri_cpu_isa_limit((enum tri_isa)(cfg->device.isa - TRI_ISA_CHOICE_SCALAR));
    job->groups = tri_group_rules_make(&cfg->optimizer);
    job->spec.groups = &job->groups;
    job->spec.exchange = tri_exchange_spec_make(&cfg->gradient, cfg->run.deterministic);
    fill_compression(job, NULL);
    job->spec.update = tri_update_spec_make(&cfg->optimizer, &cfg->schedule,
                                            cfg->gradient.clip_norm, job->total_steps);
    tri_precision_control(&cfg->precision, &job->spec.update.control);
    job->spec.precision = tri_precision_spec_make(&cfg->precision, job->spec.grains.total);
    fill_faults(job);
}

static void add_field(struct tri_job *job, const char *key, char *value)
{
    TRI_ASSERT(job->nfield < TRI_JOB_FIELDS);
    job->field[job->nfield++] = (struct tri_checkpoint_field){.key = key, .value = value};
}

static void fill_fields(struct tri_job *job)
{
    static const char *const optimizers[] = {"sgd", "adamw"};
    const struct tri_config *cfg = job->cfg;
    struct tri_text model = {0};

    tri_model_describe(&job->dims, &model);
    add_field(job, "model", tri_pool_strdup(&job->pool, model.data != NULL ? model.data : ""));
    tri_text_finish(&model);
    add_field(
        job, "optimizer",
        tri_pool_strdup(&job->pool, optimizers[job->spec.update.kind == TRI_OPTIMIZER_ADAMW]));
    add_field(job, "batch", tri_pool_printf(&job->pool, "%lld", (long long)cfg->data.batch));
    add_field(job, "grain", tri_pool_printf(&job->pool, "%lld", (long long)cfg->data.grain));
    add_field(job, "sequence", tri_pool_printf(&job->pool, "%lld", (long long)job->shape.sequence));
    add_field(job, "seed", tri_pool_printf(&job->pool, "%lld", (long long)cfg->run.seed));
    add_field(job, TRI_TOKENIZER_FIELD,
              tri_pool_strdup(&job->pool, tri_dataset_info(job->data)->tokenizer));
    add_field(job, "dataset",
              tri_pool_printf(&job->pool, "%016llx",
                              (unsigned long long)tri_dataset_fingerprint(job->data)));
}

/* What resolution has fixed goes into the configuration, whose text then stands alone (generation
 * needs no data). */
static void write_back(struct tri_job *job)
{
    struct tri_config *cfg = job->cfg;

    if (job->shape.task != TRI_TASK_LANGUAGE)
        return;
    cfg->data.sequence = job->shape.sequence;
    cfg->model.layers = job->dims.layers;
    cfg->model.heads = job->dims.heads;
    cfg->model.width = job->dims.width;
    cfg->model.context = job->dims.context;
    cfg->model.vocab = job->dims.vocab;
}

static tri_status resolve(struct tri_job *job, bool training, const struct tri_checkpoint *resumed)
{
    TRI_TRY(describe_data(job));
    TRI_TRY(cut_batch(job, training, resumed));
    TRI_TRY(tri_model_resolve(&job->cfg->model, &job->shape, &job->dims));
    write_back(job);
    TRI_TRY(plan_length(job));
    TRI_TRY(check_faults(job));
    fill_spec(job);
    fill_fields(job);
    if (resumed == NULL)
        return TRI_OK;
    TRI_TRY(tri_checkpoint_match(resumed, job->field, job->nfield));
    return tri_kept_layers_resume(job, resumed);
}

tri_status tri_job_create(const struct tri_job_args *a, struct tri_config *cfg,
                          const struct tri_checkpoint *resumed, struct tri_job **out)
{
    struct tri_job *job = tri_calloc(1, sizeof(*job), "job");
    tri_status st;

    if (job == NULL) {
        tri_config_destroy(cfg);
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the job");
    }
    job->cfg = cfg;
    job->world = a->world;
    job->nranks = a->nranks;
    job->spec.mesh = tri_mesh_data(a->nranks, a->world != NULL ? a->world->topology.rank : 0);
    TRI_TRY_GOTO(st, tri_comm_agree(control(a), open_data(job, a)), destroy_job);
    TRI_TRY_GOTO(st, scan_data(job, a), destroy_job);
    TRI_TRY_GOTO(st, tri_comm_agree(control(a), resolve(job, a->need_train, resumed)), destroy_job);
    TRI_TRY_GOTO(st, tri_device_choose(&cfg->device, job->world, &job->spec.device), destroy_job);
    TRI_TRY_GOTO(st, choose_threads(job, resumed), destroy_job);
    *out = job;
    return TRI_OK;

destroy_job:
    tri_job_destroy(job);
    return st;
}

/* One line about the machines. Collective. */
static tri_status report_machines(const struct tri_world *w)
{
    struct tri_text text = {0};
    tri_status st = tri_machine_describe(&w->topology, w->control, &text);

    if (st == TRI_OK && w->topology.rank == 0)
        tri_info("%s", text.data != NULL ? text.data : "");
    tri_text_finish(&text);
    return st;
}

tri_status tri_job_keep_costs(const struct tri_job *job, struct tri_comm *control)
{
    tri_status st = TRI_OK;

    if (job->costs.source != TRI_COSTS_MEASURED && job->costs.source != TRI_COSTS_CHECKPOINT)
        return TRI_OK;
    if (tri_comm_rank(control) == 0)
        st = tri_cost_table_write(job->cfg->run.dir, &job->costs);
    return tri_comm_agree(control, st);
}

tri_status tri_job_predict(void *arg, const struct tri_exchange_spec *exchange,
                           const struct tri_costs *costs, struct tri_simulation *out)
{
    const struct tri_job *job = arg;
    struct tri_compile_spec spec = job->spec;
    struct tri_program *p = NULL;
    struct tri_layout *layout;
    tri_status st;

    spec.exchange = *exchange;
    TRI_TRY(tri_layout_create(&layout));
    TRI_TRY_GOTO(st, tri_compile_train(&spec, layout, NULL, &p), destroy_layout);
    st = tri_program_simulate(p, costs, out);
    tri_program_destroy(p);
destroy_layout:
    tri_layout_destroy(layout);
    return st;
}

static const char *describe(const struct tri_device_links *l, const struct tri_world *w, int across)
{
    if (w->topology.size == 1)
        return "";
    if (l->inside && (l->across || w->topology.nodes == 1))
        return ", gradients are exchanged by NCCL";
    if (l->inside)
        return across == TRI_ACROSS_MPI
                   ? ", gradients are exchanged by NCCL inside nodes and by MPI between them, as "
                     "device.across says"
                   : ", gradients are exchanged by NCCL inside nodes and by MPI between them";
    return ", gradients are exchanged by MPI";
}

struct tri_measured tri_job_measured(const struct tri_job *job)
{
    return (struct tri_measured){.device = job->spec.device,
                                 .threads = job->spec.threads,
                                 .compute = job->spec.precision.compute,
                                 .tf32 = job->spec.precision.tf32};
}

/* What NCCL's sums take, where no table says so yet, by communicators that are given back again.
 * *links: what NCCL can do. Collective. */
static tri_status measure_nccl(struct tri_job *job, struct tri_world *w, const void *mpi_comm,
                               int across, struct tri_device_links *links)
{
    const struct tri_measured m = tri_job_measured(job);

    *links = (struct tri_device_links){.inside = true, .across = true};
    if (tri_cost_table_fits(&job->costs, &w->topology, &m, true))
        return TRI_OK;
    TRI_TRY(tri_comm_agree(w->control, tri_world_add_levels(w, mpi_comm)));
    job->device_world = w;
    TRI_TRY(tri_world_use_device(w, job->spec.device, across, TRI_SHARING_NONE, links));
    if (links->across)
        TRI_TRY(tri_cost_table_measure(w, &m, &job->costs));
    tri_world_leave_device(w);
    tri_world_drop_levels(w);
    return TRI_OK;
}

/* By how many levels gradients travel, and by what. Collective. */
static tri_status arrange_exchange(struct tri_job *job, struct tri_world *w, const void *mpi_comm,
                                   int across, enum tri_sharing sharing,
                                   struct tri_device_links *links)
{
    const struct tri_topology *t = &w->topology;
    const struct tri_device *d = job->spec.device;
    bool nccl = !d->host && sharing != TRI_SHARING_INSIDE && t->nodes > 1 && t->nodes < t->size;
    bool mixed = nccl && (sharing == TRI_SHARING_ACROSS || across == TRI_ACROSS_MPI);
    struct tri_hierarchy_args args = {.wanted = job->cfg->gradient.hierarchy,
                                      .measured = tri_job_measured(job),
                                      .costs = &job->costs,
                                      .predict = tri_job_predict,
                                      .arg = job};

    if (nccl && !mixed && args.wanted == TRI_HIERARCHY_AUTO) {
        TRI_TRY(measure_nccl(job, w, mpi_comm, across, links));
        args.nccl = links->across;
        mixed = links->refused;
        across = mixed ? TRI_ACROSS_MPI : across;
    }
    if (mixed && args.wanted == TRI_HIERARCHY_AUTO) {
        args.wanted = TRI_HIERARCHY_TWO_LEVEL;
        args.why = "NCCL inside nodes and MPI between them";
    }
    TRI_TRY(tri_hierarchy_choose(w, mpi_comm, &args, &job->spec.exchange));
    fill_compression(job, t);
    if (d->host || t->size == 1)
        return TRI_OK;
    job->device_world = w;
    return tri_world_use_device(w, job->spec.device, across, sharing, links);
}

/* The costs of an earlier run that hold for this one: of its folder, else of the checkpoint.
 * Collective. */
static tri_status find_costs(struct tri_job *job, struct tri_world *w, enum tri_sharing sharing,
                             const struct tri_checkpoint *resumed)
{
    const struct tri_measured m = tri_job_measured(job);
    bool nccl =
        !m.device->host && sharing == TRI_SHARING_NONE && job->cfg->device.across != TRI_ACROSS_MPI;

    TRI_TRY(tri_cost_table_share(job->cfg->run.dir, w->control, &job->costs));
    if (!tri_cost_table_fits(&job->costs, &w->topology, &m, nccl) && resumed != NULL)
        tri_cost_table_load(resumed, &job->costs);
    return TRI_OK;
}

tri_status tri_job_arrange(struct tri_job *job, struct tri_world *w, const void *mpi_comm,
                           const struct tri_checkpoint *resumed)
{
    const struct tri_opt_ints *nodes = &job->cfg->debug.nodes;
    const struct tri_device *d = job->spec.device;
    enum tri_sharing sharing = TRI_SHARING_NONE;
    struct tri_device_links links = {0};
    int across = job->cfg->device.across;

    if (nodes->count > 0)
        TRI_TRY(tri_topology_pretend(&w->topology, nodes->v, nodes->count));
    TRI_TRY(report_machines(w));
    if (!d->host)
        TRI_TRY(tri_device_compare(d, w, &sharing));
    TRI_TRY(find_costs(job, w, sharing, resumed));
    TRI_TRY(arrange_exchange(job, w, mpi_comm, across, sharing, &links));
    if (links.refused && w->intra == NULL) /* flat sums were meant for NCCL */
        TRI_TRY(arrange_exchange(job, w, mpi_comm, TRI_ACROSS_MPI, sharing, &links));
    if (!d->host && w->topology.rank == 0)
        tri_info("computing on %s%s", d->name, describe(&links, w, across));
    return TRI_OK;
}

bool tri_job_checks_precision(const struct tri_job *job)
{
    return job->cfg->precision.check_every > 0 && job->spec.precision.compute != TRI_F32;
}

void tri_job_destroy(struct tri_job *job)
{
    if (job == NULL)
        return;
    tri_tokenizer_destroy(job->tokenizer);
    tri_dataset_close(job->data);
    tri_config_destroy(job->cfg);
    if (job->device_world != NULL)
        tri_world_leave_device(job->device_world);
    tri_device_destroy(job->spec.device);
    tri_pool_finish(&job->pool);
    tri_free(job);
}
