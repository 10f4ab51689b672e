/* Sections run, device, timeouts, telemetry, debug of the configuration. Field names
 * are key names. */
#ifndef TRI_LAUNCH_OPTIONS_RUN_H
#define TRI_LAUNCH_OPTIONS_RUN_H

#include "runtime/core/options.h"

struct tri_run_options {
    const char *dir;
    int64_t seed;
    int64_t steps, epochs; /* exactly one is given, the other is TRI_OPT_AUTO */
    bool deterministic;
    int64_t threads;    /* per rank; TRI_OPT_AUTO: environment, then affinity */
    const char *resume; /* "auto", "never" or a folder */
    int64_t log_every;  /* steps */
    int64_t eval_every; /* steps; 0: never; TRI_OPT_AUTO: end of each epoch and of the run */
};

enum tri_device_choice { TRI_DEVICE_AUTO, TRI_DEVICE_CPU, TRI_DEVICE_CUDA };
enum tri_isa_choice {
    TRI_ISA_CHOICE_AUTO,
    TRI_ISA_CHOICE_SCALAR,
    TRI_ISA_CHOICE_AVX2,
    TRI_ISA_CHOICE_AVX512
};

struct tri_device_options {
    int kind;   /* enum tri_device_choice */
    int isa;    /* enum tri_isa_choice */
    int across; /* enum tri_across */
    bool graph;
    bool tune; /* for tri_device.tune */
};

struct tri_timeout_options {
    double collective_s;
};

struct tri_telemetry_options {
    int64_t trace_step;
};

enum tri_fault_where {
    TRI_FAULT_FORWARD,
    TRI_FAULT_BACKWARD,
    TRI_FAULT_EXCHANGE,
    TRI_FAULT_UPDATE,
    TRI_FAULT_CHECKPOINT,
    TRI_FAULT_EVAL
};
enum tri_fault_what {
    TRI_FAULT_INF,
    TRI_FAULT_NAN,
    TRI_FAULT_FLIP,
    TRI_FAULT_KILL,
    TRI_FAULT_STOP,
    TRI_FAULT_SLEEP,
    TRI_FAULT_EXIT,
    TRI_FAULT_SEGV
};

/* One item of debug.inject. */
struct tri_fault_options {
    int64_t rank, step;        /* step from 1 */
    int where, what;           /* enum tri_fault_where, enum tri_fault_what */
    const char *parameter;     /* "": the first */
    int64_t index, bit, grain; /* element, its bit (flip), grain of that rank */
    int64_t ms;                /* sleep */
    int64_t code;              /* exit */
};

#define TRI_MAX_FAULTS 64

struct tri_debug_options {
    int64_t hash_every; /* steps; 0: never */
    bool log_samples;
    struct tri_opt_ints nodes;     /* ranks of each pretended node */
    struct tri_opt_records inject; /* of struct tri_fault_options */
};

extern const struct tri_opt tri_run_rows[], tri_device_rows[], tri_timeout_rows[],
    tri_telemetry_rows[], tri_debug_rows[];
extern const size_t tri_run_row_count, tri_device_row_count, tri_timeout_row_count,
    tri_telemetry_row_count, tri_debug_row_count;

/* TRI_ERR_USAGE: not exactly one of steps and epochs, a device that this build lacks, a fault
 * without its field. Local. */
tri_status tri_run_options_check(const struct tri_run_options *run) TRI_CHECKED;
tri_status tri_device_options_check(const struct tri_device_options *device) TRI_CHECKED;
tri_status tri_debug_options_check(const struct tri_debug_options *debug) TRI_CHECKED;

#endif
