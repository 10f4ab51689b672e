/* trireme generate: text from a checkpoint. One process, no MPI. */
#include "launch/command.h"
#include "launch/config.h"
#include "launch/device_choice.h"
#include "launch/env.h"
#include "launch/generate.h"
#include "launch/threads.h"
#include "launch/tokenizer_state.h"

#include "runtime/core/memory.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate {
    const char *checkpoint, *prompt, *tokens, *temperature, *top_k, *seed;
    int64_t count;
    struct tri_sampling sampling;
    struct tri_checkpoint *c;
    struct tri_config *cfg;
    struct tri_tokenizer *tokenizer;
    struct tri_token_list ids;
    struct tri_device *device;
    struct tri_generator *generator;
};

static tri_status parse_number(const char *text, const char *name, double low, double high,
                               double *out)
{
    char *end;
    double v;

    if (text == NULL)
        return TRI_OK;
    v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= low && v <= high))
        return tri_fail(TRI_ERR_USAGE, "--%s: '%s' is not a number from %g to %g", name, text, low,
                        high);
    *out = v;
    return TRI_OK;
}

static tri_status parse_numbers(struct generate *g)
{
    double tokens = 100, temperature = 1, top_k = 0, seed = 1;

    TRI_TRY(parse_number(g->tokens, "tokens", 0, 1e9, &tokens));
    TRI_TRY(parse_number(g->temperature, "temperature", 0, 1e6, &temperature));
    TRI_TRY(parse_number(g->top_k, "top-k", 0, 1e9, &top_k));
    TRI_TRY(parse_number(g->seed, "seed", 0, 9e15, &seed));
    g->count = (int64_t)tokens;
    g->sampling = (struct tri_sampling){
        .temperature = temperature, .top_k = (int64_t)top_k, .seed = (uint64_t)seed};
    return TRI_OK;
}

/* The configuration that the checkpoint carries: all dimensions are in it. */
static tri_status resolve_model(struct generate *g, struct tri_model_dims *dims)
{
    struct tri_data_shape shape = {.task = TRI_TASK_LANGUAGE, .grain = 1};
    char *text = NULL;
    tri_status st;

    TRI_TRY(tri_checkpoint_config(g->c, &text));
    st = tri_config_load_text("config.yaml", text, NULL, 0, &g->cfg);
    tri_free(text);
    TRI_TRY(st);
    TRI_TRY(tri_config_check(g->cfg));
    if (g->cfg->model.name != TRI_MODEL_GPT)
        return tri_fail(TRI_ERR_USAGE, "the model of '%s' is no language model", g->c->path);
    shape.vocab = g->cfg->model.vocab;
    return tri_model_resolve(&g->cfg->model, &shape, dims);
}

static tri_status encode_prompt(struct generate *g, const struct tri_model_dims *dims)
{
    TRI_TRY(tri_tokenizer_load(NULL, g->c, &g->tokenizer));
    TRI_TRY(
        tri_tokenizer_encode(g->tokenizer, (const uint8_t *)g->prompt, strlen(g->prompt), &g->ids));
    if (g->ids.count == 0)
        return tri_fail(TRI_ERR_USAGE, "--prompt: at least one character is needed");
    if (g->ids.count > dims->context)
        return tri_fail(TRI_ERR_USAGE, "--prompt: %lld tokens, the model's context holds %lld",
                        (long long)g->ids.count, (long long)dims->context);
    return TRI_OK;
}

/* The checkpoint may have been written on a machine with a device, and be read on one without. */
static tri_status choose_device(struct generate *g)
{
    struct tri_device_options o = g->cfg->device;

    if (o.kind == TRI_DEVICE_CUDA)
        o.kind = TRI_DEVICE_AUTO;
    return tri_device_choose(&o, NULL, &g->device);
}

static tri_status open_model(struct generate *g)
{
    struct tri_env_settings env;
    struct tri_model_dims dims;
    struct tri_session *s;
    int threads;
    int nparams = 0;

    TRI_TRY(parse_numbers(g));
    TRI_TRY(tri_checkpoint_open(NULL, g->checkpoint, &g->c));
    TRI_TRY(resolve_model(g, &dims));
    TRI_TRY(encode_prompt(g, &dims));
    tri_env_read_settings(&env);
    TRI_TRY(tri_threads_choose(0, env.threads, NULL, &threads));
    omp_set_num_threads(threads);
    TRI_TRY(choose_device(g));
    TRI_TRY(tri_generator_create(&dims, g->ids.count, threads, g->device, &g->generator));
    s = tri_generator_session(g->generator);
    while (nparams < s->ntensor && s->kept[nparams].param)
        nparams++;
    TRI_TRY(tri_checkpoint_load(NULL, g->c, s->tensor, nparams, true));
    return tri_session_push(s);
}

static void print_piece(const struct generate *g, int64_t id)
{
    size_t bytes;
    const uint8_t *piece = tri_tokenizer_piece(g->tokenizer, id, &bytes);

    fwrite(piece, 1, bytes, stdout);
    fflush(stdout);
}

static tri_status write_text(struct generate *g)
{
    int32_t next;
    bool full = false;

    fputs(g->prompt, stdout);
    for (int64_t i = 0; i < g->count; i++) {
        if (i == 0)
            TRI_TRY(tri_generator_start(g->generator, g->ids.ids, &g->sampling, &next));
        else
            TRI_TRY(tri_generator_next(g->generator, &g->sampling, &next, &full));
        if (full) {
            printf("\n");
            fprintf(stderr, "trireme: stopped after %lld tokens, the model's context is full\n",
                    (long long)i);
            return TRI_OK;
        }
        print_piece(g, next);
    }
    printf("\n");
    return TRI_OK;
}

static int run_generate(const struct tri_command *self, int argc, char **argv)
{
    struct generate g = {0};
    const struct tri_flag flags[] = {{"checkpoint", &g.checkpoint}, {"prompt", &g.prompt},
                                     {"tokens", &g.tokens},         {"temperature", &g.temperature},
                                     {"top-k", &g.top_k},           {"seed", &g.seed}};
    struct tri_arguments a;
    tri_status st = tri_arguments_parse(argc, argv, flags, 6, 0, &a);

    if (st == TRI_OK && a.help) {
        printf("%s", self->help);
    } else if (st == TRI_OK) {
        if (g.checkpoint == NULL || g.prompt == NULL)
            st = tri_fail(TRI_ERR_USAGE, "generate: --checkpoint DIR and --prompt TEXT are needed "
                                         "(see trireme generate --help)");
        if (st == TRI_OK)
            st = open_model(&g);
        if (st == TRI_OK)
            st = write_text(&g);
    }
    tri_generator_destroy(g.generator);
    tri_device_destroy(g.device);
    tri_free(g.ids.ids);
    tri_tokenizer_destroy(g.tokenizer);
    tri_config_destroy(g.cfg);
    tri_checkpoint_close(g.c);
    tri_free(a.pair);
    return tri_command_refuse(st);
}

const struct tri_command tri_command_generate = {
    .name = "generate",
    .summary = "write text with a language model",
    .help =
        "usage: trireme generate --checkpoint DIR --prompt TEXT [--tokens N] [--temperature X] "
        "[--top-k K] [--seed S]\n\n"
        "Continues TEXT by N tokens (default 100) and prints both. DIR is a checkpoint or a run "
        "folder (its newest).\n"
        "temperature (default 1) flattens or sharpens the choice, 0 always takes the most likely "
        "token; top-k (default\n"
        "0: all) draws among the K most likely. The same seed (default 1) gives the same text.\n",
    .run = run_generate,
};
