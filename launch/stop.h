/* Orderly stops: a signal to any rank ends the run on all of them behind the same step. */
#ifndef TRI_LAUNCH_STOP_H
#define TRI_LAUNCH_STOP_H

#include "runtime/exec/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* When ranks ask each other for signals. Zeroed: at the first call. */
struct tri_stop {
    int64_t left;  /* steps before the next look */
    int64_t every; /* steps between looks */
    int64_t looked_ns;
};

/* What ended a run. */
struct tri_stop_cause {
    const char *signal; /* "SIGTERM"; NULL: nothing did */
    int rank;           /* the highest rank that got it */
};

/* From now on SIGTERM and SIGUSR1 are noted instead of ending the process. Local. */
void tri_stop_listen(void);

/* Whether a rank has been told to stop: called before every step. Ranks look together, about four
 * times a second and at least once a step, so that a look costs steps of any length little.
 * Collective over comm (NULL: one rank); all ranks get the same answer. */
tri_status tri_stop_look(struct tri_stop *s, struct tri_comm *comm,
                         struct tri_stop_cause *cause) TRI_CHECKED;

#endif
