/* Two programs over one memory: one takes the prompt at once, the other a single token; the caches
 * are states that both share. */
#include "launch/generate.h"

#include "runtime/core/memory.h"

#include <stdio.h>
#include <string.h>

enum { PROMPT, TOKEN, NPROGRAMS };

struct tri_generator {
    struct tri_session session;
    int64_t context, vocab, prompt, position; /* position: tokens in the caches */
    int32_t *tokens[NPROGRAMS];
    int32_t *offset[NPROGRAMS];
    const float *logits[NPROGRAMS]; /* of the last position */
    int32_t last;
    struct tri_candidate *candidate; /* vocab */
};

static tri_status compile(struct tri_generator *g, const struct tri_model_dims *dims, int threads,
                          struct tri_device *device)
{
    struct tri_compile_spec spec = {
        .dims = dims, .mesh = tri_mesh_data(1, 0), .threads = threads, .device = device};

    TRI_TRY(tri_layout_create(&g->session.layout));
    TRI_TRY(tri_compile_generate(&spec, g->prompt, g->session.layout, &g->session.extra[PROMPT]));
    return tri_compile_generate(&spec, 1, g->session.layout, &g->session.extra[TOKEN]);
}

static void find_values(struct tri_generator *g, int which, int64_t n)
{
    const struct tri_program *p = g->session.extra[which];
    const struct tri_exec *x = g->session.extra_exec[which];

    char name[32];

    snprintf(name, sizeof(name), "tokens.%lld", (long long)n);
    g->tokens[which] = tri_session_find(p, x, name);
    g->offset[which] = tri_session_find(p, x, "offset");
    g->logits[which] = (const float *)tri_exec_value(x, p->graph->prediction) + (n - 1) * g->vocab;
}

tri_status tri_generator_create(const struct tri_model_dims *dims, int64_t prompt, int threads,
                                struct tri_device *device, struct tri_generator **out)
{
    struct tri_generator *g = tri_calloc(1, sizeof(*g), "generator");
    tri_status st;

    if (g == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the generator");
    g->context = dims->context;
    g->vocab = dims->vocab;
    g->prompt = prompt;
    TRI_TRY_GOTO(st, compile(g, dims, threads, device), destroy);
    TRI_TRY_GOTO(st, tri_session_start(&g->session, NULL), destroy);
    TRI_TRY_GOTO(st, tri_session_fill(&g->session, 0), destroy);
    find_values(g, PROMPT, prompt);
    find_values(g, TOKEN, 1);
    g->candidate = tri_calloc((size_t)g->vocab, sizeof(*g->candidate), "candidates");
    if (g->candidate == NULL) {
        st = tri_fail(TRI_ERR_NOMEM, "cannot allocate %lld candidates", (long long)g->vocab);
        goto destroy;
    }
    *out = g;
    return TRI_OK;

destroy:
    tri_generator_destroy(g);
    return st;
}

void tri_generator_destroy(struct tri_generator *g)
{
    if (g == NULL)
        return;
    tri_session_finish(&g->session);
    tri_free(g->candidate);
    tri_free(g);
}

struct tri_session *tri_generator_session(struct tri_generator *g)
{
    return &g->session;
}

static tri_status run(struct tri_generator *g, int which, int64_t n, const struct tri_sampling *s,
                      int32_t *next)
{
    *g->offset[which] = (int32_t)g->position;
    TRI_TRY(tri_exec_run(g->session.extra_exec[which]));
    g->position += n;
    g->last = *next = tri_sampling_draw(s, g->logits[which], g->vocab, g->position, g->candidate);
    return TRI_OK;
}

tri_status tri_generator_start(struct tri_generator *g, const int32_t *ids,
                               const struct tri_sampling *s, int32_t *next)
{
    memcpy(g->tokens[PROMPT], ids, (size_t)g->prompt * sizeof(*ids));
    return run(g, PROMPT, g->prompt, s, next);
}

tri_status tri_generator_next(struct tri_generator *g, const struct tri_sampling *s, int32_t *next,
                              bool *full)
{
    *full = g->position == g->context;
    if (*full)
        return TRI_OK;
    *g->tokens[TOKEN] = g->last;
    return run(g, TOKEN, 1, s, next);
}
