/* The executor on a device with streams.
 *
 * exec_device.c issues and ends steps, exec_events.c makes what a step records, exec_graph.c
 * captures it, exec_copy.c moves values between device and process, exec_carry.c those of
 * collectives that block. */
#ifndef TRI_RUNTIME_EXEC_EXEC_DEVICE_H
#define TRI_RUNTIME_EXEC_EXEC_DEVICE_H

#include "runtime/exec/exec_internal.h"

/* Timed events around waits of the compute stream. */
struct tri_exec_gap {
    void *begin, *end;
};

/* Values that are copied at once: neighbours in the persistent arena. */
struct tri_exec_block {
    unsigned char *process, *device;
    size_t bytes;
};

/* Inputs and outputs of a program: page-locked memory of the process, and where it goes. */
struct tri_exec_io {
    unsigned char *pinned;
    void **address;               /* one a value; NULL: neither input nor output */
    struct tri_exec_block *block; /* inputs, then outputs */
    int inputs, blocks;
};

struct tri_exec_device {
    struct tri_device *d;
    void *stream[TRI_STREAM_COUNT];
    bool engine[TRI_STREAM_COUNT]; /* it has collectives that block, and a thread */
    struct tri_exec_item **issue;  /* all others, in the program's order */
    int nissue;
    void *fork;                   /* the inputs are there */
    void *join[TRI_STREAM_COUNT]; /* the stream has done its part */
    void *begin, *end;            /* timed, on the compute stream */
    struct tri_exec_gap *gap;     /* of items, the last one of the end of the step */
    int ngap;
    void **span; /* timed events of a trace, two an instruction; or NULL */
    struct tri_exec_io io;
    void *staging[TRI_STREAM_COUNT];    /* page-locked, for collectives outside the mirror */
    void *arrived[TRI_STREAM_COUNT][2]; /* pieces of a collective are in the process */
    struct tri_comm **polled;           /* that work on a stream, first those without an engine */
    int npolled, nfree;                 /* nfree: that no engine uses during a step */
    /* graphs */
    void **graph;     /* one a segment, captured at its first use; NULL: not asked for */
    int32_t *segment; /* first item of each in issue, and nissue behind the last */
    int nsegment;
    void *branch;  /* begin of a segment */
    int capturing; /* the segment, or -1 */
};

/* exec_events.c: after the items are resolved and before engines start. Local. */
tri_status tri_exec_device_create(struct tri_exec *x) TRI_CHECKED;
void tri_exec_device_destroy(struct tri_exec *x);
/* Events for a trace; without memory for them nothing is recorded. Local. */
void tri_exec_device_trace(struct tri_exec *x);

/* exec_device.c. A step; see tri_exec_run. */
tri_status tri_exec_device_run(struct tri_exec *x) TRI_CHECKED;
/* Waits of `it` and itself on its stream, from the calling thread. */
tri_status tri_exec_device_issue(struct tri_exec *x, struct tri_exec_item *it) TRI_CHECKED;
/* The calling thread waits until the engines that `it` waits for have issued what they must. */
tri_status tri_exec_device_await_engines(struct tri_exec *x,
                                         const struct tri_exec_item *it) TRI_CHECKED;
/* An item of a stream with an engine, from its thread. */
tri_status tri_exec_device_engine(struct tri_exec_stream *s, struct tri_exec_item *it,
                                  uint32_t step) TRI_CHECKED;
/* Fills temporaries and bucket parts with NaN. */
tri_status tri_exec_device_poison(struct tri_exec *x) TRI_CHECKED;

/* exec_graph.c: one segment, captured or launched. */
tri_status tri_exec_device_segment(struct tri_exec *x, int segment) TRI_CHECKED;

/* exec_carry.c. How a collective that blocks is cut; bytes of staging that it then needs. Local. */
void tri_exec_carry_plan(struct tri_exec_item *it);
size_t tri_exec_carry_bytes(const struct tri_exec_item *it);
/* The collective through it->staging, from the thread of its engine: returns when all is exchanged
 * and the copies back are enqueued. Collective over it->comm. */
tri_status tri_exec_carry(struct tri_exec *x, const struct tri_exec_item *it) TRI_CHECKED;

/* exec_copy.c. Local. */
tri_status tri_exec_io_create(struct tri_exec *x) TRI_CHECKED;
void tri_exec_io_destroy(struct tri_exec *x);
/* Enqueues the copies of inputs or outputs on the compute stream. */
tri_status tri_exec_io_copy(const struct tri_exec *x, bool outputs) TRI_CHECKED;

#endif
