/* See bench_subjects.h. */
#include "launch/bench_subjects.h"

/* What a processor steps through in f32, and what keeps a device busy in bf16. */
#define GPT(batch, tail)                                                                           \
    "{model: {name: gpt, preset: 124M, dropout: 0.1}, optimizer: {name: adamw}, "                  \
    "data: {path: none, batch: " batch "}, run: {steps: 1}" tail "}"
#define RESNET(batch, tail)                                                                        \
    "{model: {name: resnet, preset: resnet50}, optimizer: {name: sgd, momentum: 0.9}, "            \
    "data: {path: none, batch: " batch "}, run: {steps: 1}" tail "}"
#define BF16 ", precision: {compute: bf16}"

static const struct tri_bench_subject subjects[] = {
    {.name = "gpt2-124m",
     .yaml = GPT("2", ""),
     .data = {.task = TRI_TASK_LANGUAGE, .grain = 2, .sequence = 256, .vocab = 50257},
     .generates = true},
    {.name = "resnet-50",
     .yaml = RESNET("8", ""),
     .data = {.task = TRI_TASK_CLASSES,
              .grain = 8,
              .classes = 1000,
              .x = {.ndim = 3, .dim = {224, 224, 3}}}},
    {.name = "mlp",
     .yaml = "{model: {name: mlp, hidden: [1024, 1024]}, optimizer: {name: sgd, momentum: 0.9}, "
             "data: {path: none, batch: 512}, run: {steps: 1}}",
     .data = {.task = TRI_TASK_CLASSES,
              .grain = 512,
              .classes = 1000,
              .x = {.ndim = 3, .dim = {28, 28, 1}}}}};

static const struct tri_bench_subject device_subjects[] = {
    {.name = "gpt2-124m",
     .yaml = GPT("32", BF16),
     .data = {.task = TRI_TASK_LANGUAGE, .grain = 32, .sequence = 1024, .vocab = 50257},
     .generates = true},
    {.name = "resnet-50",
     .yaml = RESNET("256", BF16),
     .data = {.task = TRI_TASK_CLASSES,
              .grain = 256,
              .classes = 1000,
              .x = {.ndim = 3, .dim = {224, 224, 3}}}}};

static const struct tri_bench_subject tiny_subjects[] = {
    {.name = "gpt-tiny",
     .yaml = "{model: {name: gpt, preset: tiny, dropout: 0.1}, optimizer: {name: adamw}, "
             "data: {path: none, batch: 2}, run: {steps: 1}" BF16 "}",
     .data = {.task = TRI_TASK_LANGUAGE, .grain = 2, .sequence = 16, .vocab = 256},
     .generates = true},
    {.name = "resnet-20",
     .yaml = "{model: {name: resnet, preset: resnet20}, optimizer: {name: sgd, momentum: 0.9}, "
             "data: {path: none, batch: 2}, run: {steps: 1}" BF16 "}",
     .data = {
         .task = TRI_TASK_CLASSES, .grain = 2, .classes = 10, .x = {.ndim = 3, .dim = {8, 8, 3}}}}};

const struct tri_bench_subject *tri_bench_subjects(bool host, bool tiny, int *n)
{
    if (tiny) {
        *n = (int)(sizeof(tiny_subjects) / sizeof(tiny_subjects[0]));
        return tiny_subjects;
    }
    if (!host) {
        *n = (int)(sizeof(device_subjects) / sizeof(device_subjects[0]));
        return device_subjects;
    }
    *n = (int)(sizeof(subjects) / sizeof(subjects[0]));
    return subjects;
}

static tri_status compile(const struct tri_bench_subject *s, struct tri_device *device, int threads,
                          struct tri_bench_programs *p)
{
    const struct tri_config *cfg = p->cfg;
    struct tri_model_dims dims;
    struct tri_group_rules groups = tri_group_rules_make(&cfg->optimizer);
    struct tri_compile_spec spec = {.dims = &dims,
                                    .data = &s->data,
                                    .mesh = tri_mesh_data(1, 0),
                                    .threads = threads,
                                    .device = device,
                                    .groups = &groups,
                                    .exchange = {.bucket_bytes = 1 << 20}};

    TRI_TRY(tri_model_resolve(&cfg->model, &s->data, &dims));
    TRI_TRY(tri_grains_make(&spec.mesh, s->data.grain, s->data.grain, false, &spec.grains));
    spec.update = tri_update_spec_make(&cfg->optimizer, &cfg->schedule, 1, 1);
    spec.precision = tri_precision_spec_make(&cfg->precision, spec.grains.total);
    TRI_TRY(tri_compile_train(&spec, p->layout, NULL, &p->program[0]));
    TRI_TRY(tri_compile_eval(&spec, p->layout, &p->program[1]));
    return s->generates ? tri_compile_generate(&spec, 1, p->layout, &p->program[2]) : TRI_OK;
}

tri_status tri_bench_compile(const struct tri_bench_subject *s, struct tri_device *device,
                             int threads, struct tri_bench_programs *out)
{
    struct tri_bench_programs p = {0};
    tri_status st = tri_config_load_text(s->name, s->yaml, NULL, 0, &p.cfg);

    if (st == TRI_OK)
        st = tri_config_check(p.cfg);
    if (st == TRI_OK)
        st = tri_layout_create(&p.layout);
    if (st == TRI_OK)
        st = compile(s, device, threads, &p);
    if (st == TRI_OK)
        *out = p;
    else
        tri_bench_release(&p);
    return st;
}

void tri_bench_release(struct tri_bench_programs *p)
{
    for (int i = 0; i < TRI_BENCH_PROGRAMS; i++)
        tri_program_destroy(p->program[i]);
    tri_layout_destroy(p->layout);
    tri_config_destroy(p->cfg);
    *p = (struct tri_bench_programs){0};
}
