#include "tests/unit/checkpoint/fixture.h"

#include "runtime/checkpoint/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct tri_checkpoint_tensor tensor(const char *name, enum tri_dtype dtype, void *data,
                                           int ndim, int64_t rows, int64_t cols)
{
    int64_t dim[2] = {rows, cols};
    struct tri_shape shape = tri_shape_make(ndim, dim);

    return (struct tri_checkpoint_tensor){name, dtype, shape, data, 0, tri_shape_count(&shape),
                                          false};
}

void model_init(struct model *m)
{
    *m = (struct model){.root = "/tmp/tri-checkpoint-XXXXXX"};
    if (mkdtemp(m->root) == NULL)
        abort();
    m->tensor[0] = tensor("param/layers.0.weight", TRI_F32, m->weight, 2, 5, 3);
    m->tensor[1] = tensor("param/layers.0.bias", TRI_F32, m->bias, 1, 5, 0);
    m->tensor[2] = tensor("state/optimizer/layers.0.weight/momentum", TRI_F32, m->moment, 2, 5, 3);
    m->tensor[3] = tensor("state/counters", TRI_I64, m->counter, 1, 2, 0);
    m->tensor[4] = tensor("state/residual", TRI_BF16, NULL, 2, 0, 7);
    m->item[0] = (struct tri_checkpoint_item){.key = "updates"};
    m->item[1] = (struct tri_checkpoint_item){.key = "best", .real = true};
    m->item[2] = (struct tri_checkpoint_item){.key = "position", .integer = INT64_MAX};
    m->field[0] = (struct tri_checkpoint_field){"optimizer.name", "sgd"};
    m->field[1] = (struct tri_checkpoint_field){"data.batch", "32"};
    m->save = (struct tri_checkpoint_save){.run_dir = m->root,
                                           .tensor = m->tensor,
                                           .ntensor = NTENSOR,
                                           .item = m->item,
                                           .nitem = 3,
                                           .field = m->field,
                                           .nfield = 2,
                                           .config = "run: {steps: 7}\n"};
}

static float value_of(int64_t step, int i)
{
    return (float)(step * 100 + i) * 0.37f;
}

void model_set(struct model *m, int64_t step)
{
    for (int i = 0; i < WEIGHTS; i++) {
        m->weight[i] = value_of(step, i);
        m->moment[i] = -value_of(step, i);
    }
    for (int i = 0; i < 5; i++)
        m->bias[i] = 1.0f / value_of(step, i + 1);
    m->counter[0] = step;
    m->counter[1] = -step;
    m->item[0].integer = step;
    m->item[1].value = 1.0 / (double)(step + 2);
    m->save.step = step;
}

void model_clear(struct model *m)
{
    memset(m->weight, 0, sizeof(m->weight));
    memset(m->bias, 0, sizeof(m->bias));
    memset(m->moment, 0, sizeof(m->moment));
    memset(m->counter, 0, sizeof(m->counter));
}

bool model_is(const struct model *m, int64_t step)
{
    struct model want;

    model_set(&want, step);
    return memcmp(m->weight, want.weight, sizeof(want.weight)) == 0 &&
           memcmp(m->bias, want.bias, sizeof(want.bias)) == 0 &&
           memcmp(m->moment, want.moment, sizeof(want.moment)) == 0 &&
           memcmp(m->counter, want.counter, sizeof(want.counter)) == 0;
}

tri_status model_save(struct model *m, int64_t step)
{
    model_set(m, step);
    return tri_checkpoint_save(NULL, &m->save);
}

tri_status model_resume(struct model *m, int64_t *step)
{
    struct tri_checkpoint *c = NULL;
    tri_status st;

    model_clear(m);
    TRI_TRY(tri_checkpoint_find(NULL, m->root, "auto", &c));
    *step = c != NULL ? c->manifest.step : 0;
    if (c == NULL)
        return TRI_OK;
    st = tri_checkpoint_load(NULL, c, m->tensor, NTENSOR, false);
    tri_checkpoint_close(c);
    return st;
}

const char *model_path(const struct model *m, int64_t step, const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/checkpoints/step-%08lld/%s", m->root, (long long)step,
                   name);
    return path;
}

void model_finish(struct model *m)
{
    if (tri_remove_tree(m->root) != TRI_OK)
        abort();
}

bool exists(const char *path)
{
    struct stat s;

    return lstat(path, &s) == 0;
}
