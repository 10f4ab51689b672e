/* The models whose kernels `trireme bench kernels` times, and their programs. */
#ifndef TRI_LAUNCH_BENCH_SUBJECTS_H
#define TRI_LAUNCH_BENCH_SUBJECTS_H

#include "launch/compile.h"
#include "launch/config.h"

struct tri_bench_subject {
    const char *name, *yaml;
    struct tri_data_shape data;
    bool generates;
};

/* Those of the CPU, or of a device; tiny: of a few rows, for either. Local. */
const struct tri_bench_subject *tri_bench_subjects(bool host, bool tiny, int *n);

/* Training, evaluation, and one new position of generation where the model can. */
enum { TRI_BENCH_PROGRAMS = 3 };
struct tri_bench_programs {
    struct tri_config *cfg;
    struct tri_layout *layout;
    struct tri_program *program[TRI_BENCH_PROGRAMS]; /* NULL: none */
};
/* tri_bench_release frees what *out then holds; the device is borrowed until then. Local. */
tri_status tri_bench_compile(const struct tri_bench_subject *s, struct tri_device *device,
                             int threads, struct tri_bench_programs *out) TRI_CHECKED;
void tri_bench_release(struct tri_bench_programs *p);

#endif
