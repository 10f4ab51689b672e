#include "launch/kept_layers.h"

#include "runtime/core/memory.h"

#include <string.h>

/* The blank-separated word at or behind *at, copied into the pool; NULL at the end of the text or
 * out of memory (*failed). */
static const char *next_word(struct tri_pool *pool, const char **at, bool *failed)
{
    const char *begin = *at + strspn(*at, " ");
    size_t n = strcspn(begin, " ");
    char *word = NULL;

    *at = begin + n;
    if (n == 0)
        return NULL;
    word = tri_pool_printf(pool, "%.*s", (int)n, begin);
    *failed = *failed || word == NULL;
    return word;
}

static bool listed(const char *const *list, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}

/* The field, added once and then replaced. */
static void set_field(struct tri_job *job, const char *value)
{
    int i = 0;

    while (i < job->nfield && strcmp(job->field[i].key, TRI_KEPT_LAYERS_FIELD) != 0)
        i++;
    TRI_ASSERT(i < TRI_JOB_FIELDS);
    job->field[i] = (struct tri_checkpoint_field){.key = TRI_KEPT_LAYERS_FIELD, .value = value};
    job->nfield = i == job->nfield ? i + 1 : job->nfield;
    job->kept_fp32 = value;
}

tri_status tri_kept_layers_add(struct tri_job *job, const char *names)
{
    struct tri_opt_strings *keep = &job->cfg->precision.keep_fp32;
    const char *before = job->kept_fp32 != NULL ? job->kept_fp32 : "";
    const char *all =
        tri_pool_printf(&job->pool, "%s%s%s", before, *before != '\0' ? " " : "", names);
    const char **list =
        tri_pool_alloc(&job->pool, (keep->count + strlen(names) + 1) * sizeof(*list));
    size_t n = keep->count;
    bool failed = all == NULL || list == NULL;

    for (size_t i = 0; !failed && i < n; i++)
        list[i] = keep->v[i];
    for (const char *word; !failed && (word = next_word(&job->pool, &names, &failed)) != NULL;)
        if (!listed(list, n, word))
            list[n++] = word;
    if (failed)
        return tri_fail(TRI_ERR_NOMEM, "cannot list the layers that stay in fp32");
    set_field(job, all);
    *keep = (struct tri_opt_strings){.v = list, .count = n, .given = true};
    job->spec.precision.keep_fp32 = list;
    job->spec.precision.nkeep = (int)n;
    return TRI_OK;
}

tri_status tri_kept_layers_resume(struct tri_job *job, const struct tri_checkpoint *c)
{
    const char *names = tri_checkpoint_field(c, TRI_KEPT_LAYERS_FIELD);

    return names != NULL ? tri_kept_layers_add(job, names) : TRI_OK;
}
