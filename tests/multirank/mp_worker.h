/* Cases of the multi-rank worker: plain functions that run on every rank, started by name. */
#ifndef TRI_TESTS_MP_WORKER_H
#define TRI_TESTS_MP_WORKER_H

#include <stdio.h>

struct mp_case {
    const char *name;
    int (*run)(int rank, int size); /* 0: good */
};

/* Tables end with a NULL name. */
extern const struct mp_case mp_checkpoint_cases[];
extern const struct mp_case mp_comm_cases[];
extern const struct mp_case mp_compress_cases[];
extern const struct mp_case mp_exchange_cases[];
extern const struct mp_case mp_level_cases[];

#define MP_CHECK(cond, ...)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                       \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fprintf(stderr, "\n");                                                           \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#define MP_OK(call) MP_CHECK((call) == TRI_OK, "rank %d: %s", rank, tri_error_text())

#endif
