/* A trace of all ranks in the format of chrome://tracing and Perfetto ("Trace Event Format",
 * Google): a process per rank, a thread per stream. */
#ifndef TRI_RUNTIME_TELEMETRY_TRACE_H
#define TRI_RUNTIME_TELEMETRY_TRACE_H

#include "runtime/core/status.h"
#include "runtime/exec/comm.h"

#include <stdint.h>

TRI_BEGIN_DECLS

struct tri_trace_span {
    const char *name;         /* of the op */
    const char *category;     /* phase: forward, backward, exchange, update */
    const char *stream;       /* compute, intra, inter */
    int64_t begin_ns, end_ns; /* tri_now_ns clock of this rank */
};

/* Writes the spans of all ranks to `path` on rank 0. Clocks are aligned by time stamps behind
 * barriers, or are the same clock on one machine; the first span begins at 0. TRI_ERR_IO on all
 * ranks when the file cannot be written. Collective. Same on all ranks: path. */
tri_status tri_trace_write(struct tri_comm *comm, const char *path,
                           const struct tri_trace_span *span, int64_t count) TRI_CHECKED;

TRI_END_DECLS
#endif
