#include "runtime/telemetry/progress.h"

#include "runtime/core/log.h"
#include "runtime/core/memory.h"
#include "runtime/telemetry/lines.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define REDRAW_NS    200000000 /* 5 times a second */
#define CLEAR_LINE   "\r\033[K"
#define SMOOTH_STEPS 20.0 /* the rate and the time left follow a mean over about so many steps */

struct tri_progress {
    struct tri_progress_spec spec;
    struct tri_lines *lines;
    int64_t drawn_ns; /* last redraw */
    bool line_open;   /* the cursor is on a redrawn line */
    int64_t steps;    /* seen by this process */
    double step_s;    /* smoothed seconds a step */
    double rate;      /* smoothed samples or tokens a second */
};

tri_status tri_progress_create(const struct tri_progress_spec *spec, struct tri_progress **out)
{
    struct tri_progress *p = tri_calloc(1, sizeof(*p), "progress");
    tri_status st;

    if (p == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot allocate the progress line");
    p->spec = *spec;
    st = tri_lines_create(spec->fd, "progress", false, &p->lines);
    if (st != TRI_OK) {
        tri_free(p);
        return st;
    }
    *out = p;
    return TRI_OK;
}

const char *tri_duration_text(double seconds, char *buf, size_t bytes)
{
    int64_t s;

    if (!(seconds >= 0 && seconds < 1e9)) {
        (void)snprintf(buf, bytes, "?");
        return buf;
    }
    s = (int64_t)(seconds + 0.5);
    if (s < 3600)
        (void)snprintf(buf, bytes, "%" PRId64 ":%02" PRId64, s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(buf, bytes, "%" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60,
                       s % 60);
    else
        (void)snprintf(buf, bytes, "%" PRId64 "d %" PRId64 "h", s / 86400, s / 3600 % 24);
    return buf;
}

/* The first step of a process is left out of the means as soon as there is a second:
 * it warms up. */
static void smooth(struct tri_progress *p, const struct tri_step_metrics *m)
{
    double rate = p->spec.tokens ? m->tokens_per_s : m->samples_per_s, s = m->step_ms * 1e-3;
    double weight;

    p->steps++;
    weight = p->steps <= 2 ? 1.0 : fmax(1.0 / (double)(p->steps - 1), 1.0 / SMOOTH_STEPS);
    p->step_s += weight * (s - p->step_s);
    p->rate += weight * (rate - p->rate);
}

static void print_step(const struct tri_progress *p, const struct tri_step_metrics *m,
                       struct tri_text *out)
{
    char left[32];

    tri_duration_text((double)(p->spec.last_step - m->step) * p->step_s, left, sizeof(left));
    tri_text_printf(out, "step %" PRId64 "/%" PRId64 "  loss %.4f  %.*f %s/s  eta %s%s", m->step,
                    p->spec.last_step, isnan(m->loss) ? (double)NAN : m->loss,
                    p->rate < 100 ? 1 : 0, p->rate, p->spec.tokens ? "tokens" : "samples", left,
                    m->skipped ? "  skipped" : "");
}

tri_status tri_progress_step(struct tri_progress *p, const struct tri_step_metrics *m)
{
    bool last = m->step == p->spec.last_step, due;
    int64_t now = tri_now_ns();
    struct tri_text *line;

    smooth(p, m);
    if (p->spec.terminal)
        due = now - p->drawn_ns >= REDRAW_NS;
    else
        due = p->spec.log_every > 0 && m->step % p->spec.log_every == 0;
    if (!due && !last)
        return TRI_OK;
    TRI_TRY(tri_lines_next(p->lines, &line));
    if (p->spec.terminal)
        tri_text_printf(line, CLEAR_LINE);
    print_step(p, m, line);
    if (!p->spec.terminal)
        tri_text_printf(line, "\n");
    p->line_open = p->spec.terminal;
    p->drawn_ns = now;
    return tri_lines_send(p->lines);
}

tri_status tri_progress_note(struct tri_progress *p, const char *text)
{
    struct tri_text *line;

    TRI_TRY(tri_lines_next(p->lines, &line));
    tri_text_printf(line, "%s%s\n", p->line_open ? CLEAR_LINE : "", text);
    p->line_open = false;
    p->drawn_ns = 0;
    return tri_lines_send(p->lines);
}

void tri_progress_destroy(struct tri_progress *p)
{
    struct tri_text *line;

    if (p == NULL)
        return;
    if (p->line_open && tri_lines_next(p->lines, &line) == TRI_OK) {
        tri_text_printf(line, "\n");
        if (tri_lines_send(p->lines) != TRI_OK)
            tri_warn("%s", tri_error_text());
    }
    tri_lines_destroy(p->lines);
    tri_free(p);
}
