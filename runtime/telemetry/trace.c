#include "runtime/telemetry/trace.h"

#include "runtime/checkpoint/files.h"
#include "runtime/core/host.h"
#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/core/rng.h"
#include "runtime/core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS      9  /* time stamps for the alignment; their median is taken */
#define MAX_STREAMS 16 /* threads shown per rank; further streams share the last one */

/* A rank's clock, as all ranks see it. */
struct clock_sample {
    uint64_t machine; /* equal values: one machine, hence one monotonic clock */
    int64_t ns[ROUNDS];
};

static uint64_t machine_id(void)
{
    char text[128] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f == NULL || fgets(text, sizeof(text), f) == NULL)
        tri_host_name(text, sizeof(text));
    if (f != NULL)
        (void)fclose(f);
    return tri_hash_name(text);
}

static int compare_ns(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* *offset = this rank's clock minus rank 0's. */
static tri_status align_clocks(struct tri_comm *comm, int64_t *offset)
{
    struct clock_sample mine = {.machine = machine_id()};
    struct clock_sample *all = tri_calloc((size_t)tri_comm_size(comm), sizeof(*all), "clocks");
    int64_t difference[ROUNDS];
    tri_status st = TRI_OK;

    if (all == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "trace: cannot allocate the clocks of all ranks");
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_all);
    for (int i = 0; i < ROUNDS; i++) {
        TRI_TRY_GOTO(st, tri_comm_barrier(comm), free_all);
        mine.ns[i] = tri_now_ns();
    }
    TRI_TRY_GOTO(st, tri_comm_allgather(comm, &mine, sizeof(mine), all), free_all);
    for (int i = 0; i < ROUNDS; i++)
        difference[i] = mine.ns[i] - all[0].ns[i];
    qsort(difference, ROUNDS, sizeof(difference[0]), compare_ns);
    *offset = mine.machine == all[0].machine ? 0 : difference[ROUNDS / 2];
free_all:
    tri_free(all);
    return st;
}

/* Nanoseconds as microseconds with three decimals, the unit of the format. */
static void print_us(struct tri_text *out, int64_t ns)
{
    tri_text_printf(out, "%" PRId64 ".%03" PRId64, ns / 1000, ns % 1000);
}

/* Number of a stream in order of first use. */
static int stream_index(const char *seen[MAX_STREAMS], int *n, const char *stream)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(seen[i], stream) == 0)
            return i;
    if (*n < MAX_STREAMS)
        seen[(*n)++] = stream;
    return *n - 1;
}

/* All events of this rank, each followed by ",\n". `origin` is in this rank's clock. */
static void print_rank(struct tri_text *out, int rank, const struct tri_trace_span *span,
                       int64_t count, int64_t origin)
{
    const char *seen[MAX_STREAMS];
    char host[TRI_HOST_BYTES];
    int nstream = 0;

    tri_host_name(host, sizeof(host));
    for (int64_t i = 0; i < count; i++) {
        const struct tri_trace_span *s = &span[i];
        tri_text_printf(out, "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": ", rank,
                        stream_index(seen, &nstream, s->stream));
        print_us(out, s->begin_ns - origin);
        tri_text_printf(out, ", \"dur\": ");
        print_us(out, s->end_ns - s->begin_ns);
        tri_text_printf(out, ", \"name\": ");
        tri_text_json_string(out, s->name);
        tri_text_printf(out, ", \"cat\": ");
        tri_text_json_string(out, s->category);
        tri_text_printf(out, "},\n");
    }
    for (int i = 0; i < nstream; i++) {
        tri_text_printf(out,
                        "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", "
                        "\"args\": {\"name\": ",
                        rank, i);
        tri_text_json_string(out, seen[i]);
        tri_text_printf(out, "}},\n");
    }
    tri_text_printf(out,
                    "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": "
                    "\"rank %d on %s\"}},\n",
                    rank, rank, host);
}

/* Hands rank r's text to everyone in turn; rank 0 writes. Texts end in ",\n"; the
 * last comma goes. */
static tri_status write_ranks(struct tri_comm *comm, FILE *f, const char *path,
                              const struct tri_text *mine, const int64_t *bytes, char *buf)
{
    int size = tri_comm_size(comm), rank = tri_comm_rank(comm);
    tri_status st = TRI_OK;

    for (int r = 0; r < size; r++) {
        size_t n = (size_t)bytes[r];
        if (r == rank)
            memcpy(buf, mine->data, n);
        TRI_TRY(tri_comm_broadcast(comm, buf, n, r));
        if (r == size - 1)
            n -= 2;
        if (f != NULL && st == TRI_OK && fwrite(buf, 1, n, f) != n)
            st = tri_file_fail("write", path);
    }
    return st;
}

static tri_status gather(struct tri_comm *comm, FILE *f, const char *path,
                         const struct tri_text *mine)
{
    int size = tri_comm_size(comm);
    int64_t *bytes = tri_calloc((size_t)size, sizeof(*bytes), "trace sizes");
    int64_t own = (int64_t)mine->len, largest = 0;
    char *buf = NULL;
    tri_status st = TRI_OK;

    if (bytes == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "trace: cannot allocate the sizes of all ranks");
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_all);
    TRI_TRY_GOTO(st, tri_comm_allgather(comm, &own, sizeof(own), bytes), free_all);
    for (int r = 0; r < size; r++)
        largest = bytes[r] > largest ? bytes[r] : largest;
    buf = tri_calloc((size_t)largest, 1, "trace text");
    if (buf == NULL)
        st = tri_fail(TRI_ERR_NOMEM, "trace: cannot allocate %" PRId64 " bytes", largest);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), free_all);
    st = write_ranks(comm, f, path, mine, bytes, buf);
free_all:
    tri_free(buf);
    tri_free(bytes);
    return st;
}

static tri_status write_file(struct tri_comm *comm, const char *path, const struct tri_text *mine)
{
    bool lead = tri_comm_rank(comm) == 0;
    FILE *f = lead ? fopen(path, "we") : NULL;
    tri_status st =
        mine->failed ? tri_fail(TRI_ERR_NOMEM, "trace: cannot allocate its text") : TRI_OK;

    if (lead && f == NULL)
        st = tri_file_fail("create", path);
    TRI_TRY_GOTO(st, tri_comm_agree(comm, st), close_file);
    if (f != NULL && fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", f) < 0)
        st = tri_file_fail("write", path);
    if (st == TRI_OK)
        st = gather(comm, f, path, mine);
    else
        (void)gather(comm, NULL, path, mine);
    if (f != NULL && st == TRI_OK && fputs("\n]}\n", f) < 0)
        st = tri_file_fail("write", path);
close_file:
    if (f != NULL && fclose(f) != 0 && st == TRI_OK)
        st = tri_file_fail("close", path);
    return st;
}

tri_status tri_trace_write(struct tri_comm *comm, const char *path,
                           const struct tri_trace_span *span, int64_t count)
{
    struct tri_text text = {0};
    int64_t offset = 0, origin = INT64_MAX;
    tri_status st;

    TRI_TRY(align_clocks(comm, &offset));
    for (int64_t i = 0; i < count; i++)
        if (span[i].begin_ns - offset < origin)
            origin = span[i].begin_ns - offset;
    TRI_TRY(tri_comm_allreduce(comm, &origin, 1, TRI_I64, TRI_REDUCE_MIN, false));
    print_rank(&text, tri_comm_rank(comm), span, count, origin + offset);
    st = tri_comm_agree(comm, write_file(comm, path, &text));
    tri_text_finish(&text);
    return st;
}
