/* The parts of the trainer that need no configuration file: settings, compilation, session. */
#include "launch/run.h"

#include "collectives/topology.h"
#include "launch/env.h"
#include "launch/hierarchy.h"
#include "launch/options_run.h"
#include "launch/session.h"
#include "launch/threads.h"
#include "runtime/core/memory.h"

#include <omp.h>
#include <stddef.h>
#include <string.h>

/* Keys of section run that make sense without a run folder. */
static const char *const run_keys[] = {"run.seed", "run.steps", "run.deterministic", "run.threads"};

enum { RUN_KEYS = sizeof(run_keys) / sizeof(run_keys[0]), SECTIONS = 5 };

struct settings {
    struct tri_run_options run;
    struct tri_optimizer_options optimizer;
    struct tri_schedule_options schedule;
    struct tri_gradient_options gradient;
    struct tri_timeout_options timeouts;
    struct tri_opt run_row[RUN_KEYS];
    struct tri_opt_section section[SECTIONS];
    struct tri_opts *opts; /* owns the lists above */
};

struct tri_run {
    struct settings set;
    struct tri_world *world; /* NULL: this process alone */
    struct tri_compile_spec spec;
    struct tri_group_rules groups;
    struct tri_session session;
    const double *scalars;
};

static struct tri_comm *control(const struct tri_run *run)
{
    return run->world != NULL ? run->world->control : NULL;
}

static void list_sections(struct settings *s)
{
    int n = 0;

    for (size_t i = 0; i < tri_run_row_count; i++)
        for (int k = 0; k < RUN_KEYS; k++)
            if (strcmp(tri_run_rows[i].key, run_keys[k]) == 0)
                s->run_row[n++] = tri_run_rows[i];
    TRI_ASSERT(n == RUN_KEYS);
    s->section[0] = (struct tri_opt_section){s->run_row, RUN_KEYS, offsetof(struct settings, run)};
    s->section[1] = (struct tri_opt_section){tri_optimizer_rows, tri_optimizer_row_count,
                                             offsetof(struct settings, optimizer)};
    s->section[2] = (struct tri_opt_section){tri_schedule_rows, tri_schedule_row_count,
                                             offsetof(struct settings, schedule)};
    s->section[3] = (struct tri_opt_section){tri_gradient_rows, tri_gradient_row_count,
                                             offsetof(struct settings, gradient)};
    s->section[4] = (struct tri_opt_section){tri_timeout_rows, tri_timeout_row_count,
                                             offsetof(struct settings, timeouts)};
}

static tri_status read_settings(struct settings *s, const char *const *text)
{
    list_sections(s);
    TRI_TRY(tri_opts_create(s->section, SECTIONS, s, &s->opts));
    for (; text != NULL && *text != NULL; text++)
        TRI_TRY(tri_opts_override(s->opts, *text));
    TRI_TRY(tri_optimizer_options_check(&s->optimizer));
    TRI_TRY(tri_schedule_options_check(&s->schedule));
    TRI_TRY(tri_gradient_options_check(&s->gradient));
    if (s->gradient.compress.warmup > 0)
        return tri_fail(TRI_ERR_USAGE,
                        "'gradient.compress.warmup' is not available in a run of one program");
    return TRI_OK;
}

/* Settings and sizes must be the same everywhere. Collective. */
static tri_status compare_settings(const struct tri_run *run, const struct tri_run_spec *spec)
{
    struct tri_text text = {0};
    tri_status st;

    tri_opts_print(run->set.opts, &text);
    tri_text_printf(&text, "batch %lld grain %lld", (long long)spec->batch, (long long)spec->grain);
    st = tri_comm_same(control(run), text.data, text.len, "the settings of the run");
    tri_text_finish(&text);
    return st;
}

static bool is_nreal(const struct tri_value *v)
{
    return strcmp(v->name, "nreal") == 0 || strncmp(v->name, "nreal.", 6) == 0;
}

static tri_status check_inputs(const struct tri_graph *g, int64_t grain)
{
    TRI_TRY(tri_graph_status(g));
    if (g->loss_stats == TRI_NONE)
        return tri_fail(TRI_ERR_USAGE, "the model has no loss");
    for (int i = 0; i < g->nvalue; i++) {
        const struct tri_value *v = &g->value[i];

        if (v->role != TRI_ROLE_INPUT || is_nreal(v))
            continue;
        if (v->shape.ndim < 1 || v->shape.dim[0] != grain)
            return tri_fail(TRI_ERR_USAGE, "input '%s' holds %lld samples, the grain %lld", v->name,
                            v->shape.ndim < 1 ? 0LL : (long long)v->shape.dim[0], (long long)grain);
    }
    return TRI_OK;
}

static tri_status fill_spec(struct tri_run *run, const struct tri_run_spec *rs)
{
    const struct settings *set = &run->set;
    struct tri_compile_spec *spec = &run->spec;
    int64_t total = set->run.steps > 0 ? set->run.steps : 0;

    if (rs->batch < 1 || rs->grain < 1)
        return tri_fail(TRI_ERR_USAGE, "a batch of %lld samples in grains of %lld",
                        (long long)rs->batch, (long long)rs->grain);
    if ((set->schedule.name == TRI_SCHEDULE_CHOICE_LINEAR ||
         set->schedule.name == TRI_SCHEDULE_CHOICE_COSINE) &&
        total == 0)
        return tri_fail(TRI_ERR_USAGE, "'schedule.name' needs 'run.steps', where it ends");
    spec->mesh = tri_mesh_data(tri_comm_size(control(run)), tri_comm_rank(control(run)));
    spec->seed = (uint64_t)set->run.seed;
    spec->deterministic = set->run.deterministic;
    spec->overlap = set->gradient.overlap;
    spec->device = tri_device_cpu();
    run->groups = tri_group_rules_make(&set->optimizer);
    spec->groups = &run->groups;
    spec->exchange = tri_exchange_spec_make(&set->gradient, spec->deterministic);
    spec->update =
        tri_update_spec_make(&set->optimizer, &set->schedule, set->gradient.clip_norm, total);
    return tri_grains_make(&spec->mesh, rs->batch, rs->grain, spec->deterministic, &spec->grains);
}

/* Collective. */
static tri_status choose_threads(struct tri_run *run)
{
    struct tri_env_settings env;
    int64_t wanted = run->set.run.threads;

    tri_env_read_settings(&env);
    if (wanted <= 0 && run->set.run.deterministic)
        wanted = 1;
    TRI_TRY(tri_threads_choose(wanted, env.threads, run->world, &run->spec.threads));
    omp_set_num_threads(run->spec.threads);
    return TRI_OK;
}

/* Takes grain. */
static tri_status compile_here(struct tri_run *run, const struct tri_run_spec *rs,
                               struct tri_graph *grain)
{
    struct tri_session *s = &run->session;
    tri_status st = check_inputs(grain, rs->grain);

    if (st == TRI_OK)
        st = tri_layout_create(&s->layout);
    if (st != TRI_OK) {
        tri_graph_destroy(grain);
        return st;
    }
    return tri_compile_step(&run->spec, grain, s->layout, NULL, &s->train);
}

static tri_status start_values(struct tri_run *run, int64_t grain)
{
    const struct tri_graph *g = run->session.train->graph;
    struct tri_exec *x = run->session.train_exec;

    TRI_TRY(tri_session_fill(&run->session, run->spec.seed));
    for (int i = 0; i < g->nvalue; i++)
        if (g->value[i].role == TRI_ROLE_INPUT && is_nreal(&g->value[i]) &&
            run->session.train->place[i].storage >= 0)
            *(int32_t *)tri_exec_value(x, i) = (int32_t)grain;
    run->scalars = tri_exec_value(x, g->scalars);
    return TRI_OK;
}

/* The ranks, and a setting for their deadlines. Collective. */
static tri_status connect(struct tri_run *run, const struct tri_run_spec *spec)
{
    tri_status st;

    if (spec->mpi_comm != NULL) {
        if (!tri_mpi_started())
            return tri_fail(TRI_ERR_USAGE, "MPI is not initialised: call MPI_Init_thread before "
                                           "tri_run_create");
        TRI_TRY(tri_world_create(spec->mpi_comm, NULL, &run->world));
    }
    st = read_settings(&run->set, spec->settings);
    if (st == TRI_OK && tri_comm_size(control(run)) > 1 && !tri_mpi_thread_multiple())
        st = tri_fail(TRI_ERR_USAGE,
                      "training on %d ranks needs MPI_THREAD_MULTIPLE: ask "
                      "MPI_Init_thread for it",
                      tri_comm_size(control(run)));
    TRI_TRY(tri_comm_agree(control(run), st));
    TRI_TRY(compare_settings(run, spec));
    if (run->world != NULL)
        tri_world_set_timeout(run->world, (int64_t)(run->set.timeouts.collective_s * 1000));
    return TRI_OK;
}

/* Collective. */
static tri_status choose_hierarchy(struct tri_run *run, const void *mpi_comm)
{
    struct tri_cost_table costs = {.source = TRI_COSTS_UNKNOWN};
    const struct tri_hierarchy_args args = {
        .wanted = run->set.gradient.hierarchy,
        .measured = {.device = run->spec.device, .threads = run->spec.threads},
        .costs = &costs};

    if (run->world != NULL)
        TRI_TRY(tri_hierarchy_choose(run->world, mpi_comm, &args, &run->spec.exchange));
    tri_compression_choose(&run->set.gradient, &run->set.optimizer, &run->spec.mesh,
                           run->world != NULL ? &run->world->topology : NULL, run->spec.seed,
                           &costs, &run->spec.exchange);
    return TRI_OK;
}

static tri_status agree(const struct tri_run *run)
{
    return tri_plan_agree(run->session.train, control(run),
                          run->world != NULL ? run->world->inter : NULL);
}

tri_status tri_run_create(const struct tri_run_spec *spec, struct tri_graph *grain,
                          struct tri_run **out)
{
    struct tri_run *run = tri_calloc(1, sizeof(*run), "run");
    tri_status st;

    if (run == NULL) {
        tri_graph_destroy(grain);
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate a run");
    }
    TRI_TRY_GOTO(st, connect(run, spec), destroy_grain);
    TRI_TRY_GOTO(st, choose_threads(run), destroy_grain);
    TRI_TRY_GOTO(st, tri_comm_agree(control(run), fill_spec(run, spec)), destroy_grain);
    TRI_TRY_GOTO(st, choose_hierarchy(run, spec->mpi_comm), destroy_grain);
    TRI_TRY_GOTO(st, tri_comm_agree(control(run), compile_here(run, spec, grain)), destroy_run);
    TRI_TRY_GOTO(st, agree(run), destroy_run);
    TRI_TRY_GOTO(st, tri_session_start(&run->session, run->world), destroy_run);
    TRI_TRY_GOTO(st, start_values(run, spec->grain), destroy_run);
    *out = run;
    return TRI_OK;

destroy_grain:
    tri_graph_destroy(grain);
destroy_run:
    tri_run_destroy(run);
    return st;
}

void tri_run_destroy(struct tri_run *run)
{
    if (run == NULL)
        return;
    tri_session_finish(&run->session);
    tri_world_destroy(run->world);
    tri_opts_destroy(run->set.opts);
    tri_free(run);
}

const struct tri_grains *tri_run_grains(const struct tri_run *run)
{
    return &run->spec.grains;
}

void *tri_run_input(const struct tri_run *run, const char *name, int64_t k)
{
    const struct tri_program *p = run->session.train;
    const struct tri_graph *g = p->graph;
    size_t len = strlen(name);

    for (int i = 0; i < g->nvalue; i++) {
        const struct tri_value *v = &g->value[i];

        if (v->role == TRI_ROLE_INPUT && p->place[i].storage >= 0 &&
            v->grain == run->spec.grains.first + k && strncmp(v->name, name, len) == 0 &&
            v->name[len] == '.' && strchr(v->name + len + 1, '.') == NULL)
            return tri_exec_value(run->session.train_exec, i);
    }
    return NULL;
}

void *tri_run_value(const struct tri_run *run, const char *name)
{
    const struct tri_graph *g = run->session.train->graph;
    tri_vid v = tri_graph_find(g, name);

    if (v == TRI_NONE || (g->value[v].role != TRI_ROLE_PARAM && g->value[v].role != TRI_ROLE_STATE))
        return NULL;
    return tri_exec_value(run->session.train_exec, v);
}

tri_status tri_run_step(struct tri_run *run)
{
    return tri_exec_run(run->session.train_exec);
}

double tri_run_scalar(const struct tri_run *run, enum tri_scalar_index which)
{
    return run->scalars[which];
}

tri_status tri_run_hash(const struct tri_run *run, uint64_t *hash)
{
    return tri_session_hash(&run->session, control(run), true, hash);
}
