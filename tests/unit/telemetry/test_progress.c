#include "runtime/telemetry/progress.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Runs `steps` steps of 10 ms as the clock of the metrics says; what was written comes
 * back in buf. */
static void run(bool terminal, int64_t steps, int64_t log_every, char *buf, size_t bytes)
{
    int fd[2];
    struct tri_progress *p = NULL;
    struct tri_progress_spec spec = {
        .terminal = terminal, .last_step = steps, .log_every = log_every};
    ssize_t n;

    cr_assert_eq(pipe(fd), 0);
    spec.fd = fd[1];
    cr_assert_eq(tri_progress_create(&spec, &p), TRI_OK);
    for (int64_t s = 1; s <= steps; s++) {
        struct tri_step_metrics m = {
            .step = s, .loss = 1.25, .step_ms = 10, .samples_per_s = 3200, .tokens_per_s = 1};
        cr_assert_eq(tri_progress_step(p, &m), TRI_OK);
    }
    cr_assert_eq(tri_progress_note(p, "saved"), TRI_OK);
    tri_progress_destroy(p);
    close(fd[1]);
    n = read(fd[0], buf, bytes - 1);
    buf[n > 0 ? n : 0] = '\0';
    close(fd[0]);
}

Test(progress, plain_lines_elsewhere)
{
    char buf[4096];

    run(false, 25, 10, buf, sizeof(buf));
    cr_assert_str_eq(buf, "step 10/25  loss 1.2500  3200 samples/s  eta 0:00\n"
                          "step 20/25  loss 1.2500  3200 samples/s  eta 0:00\n"
                          "step 25/25  loss 1.2500  3200 samples/s  eta 0:00\n"
                          "saved\n");
}

Test(progress, redraws_seldom_and_always_the_last)
{
    char buf[4096];
    int redraws = 0;

    run(true, 1000, 1, buf, sizeof(buf));
    for (const char *p = buf; (p = strchr(p, '\r')) != NULL; p++)
        redraws++;
    cr_assert(redraws >= 3 && redraws < 20, "%d", redraws); /* first, last, the note; few between */
    cr_assert(strstr(buf, "step 1000/1000"));
    cr_assert(strstr(buf, "saved\n"));
}

Test(progress, durations)
{
    char buf[32];

    cr_assert_str_eq(tri_duration_text(7.2, buf, sizeof(buf)), "0:07");
    cr_assert_str_eq(tri_duration_text(750, buf, sizeof(buf)), "12:30");
    cr_assert_str_eq(tri_duration_text(11100, buf, sizeof(buf)), "3:05:00");
    cr_assert_str_eq(tri_duration_text(187200, buf, sizeof(buf)), "2d 4h");
    cr_assert_str_eq(tri_duration_text(NAN, buf, sizeof(buf)), "?");
    cr_assert_str_eq(tri_duration_text(-1, buf, sizeof(buf)), "?");
}
