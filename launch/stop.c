/* The handler only notes the signal: which step ends the run is decided by all ranks together, as a
 * rank that left alone would leave the others waiting. */
#include "launch/stop.h"

#include "runtime/core/log.h"

#include <signal.h>

#define LOOK_NS 250000000 /* wanted between looks */

static volatile sig_atomic_t noted;

static void note(int number)
{
    noted = number;
}

void tri_stop_listen(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL);
}

/* The steps until the next look follow from what all ranks know, so that they count the same. */
static void plan_next(struct tri_stop *s, int64_t elapsed_ns)
{
    if (elapsed_ns < LOOK_NS / 2)
        s->every *= 2;
    else if (elapsed_ns > LOOK_NS && s->every > 1)
        s->every /= 2;
    s->left = s->every;
}

tri_status tri_stop_look(struct tri_stop *s, struct tri_comm *comm, struct tri_stop_cause *cause)
{
    enum { SIGNAL, RANK, ELAPSED, WORDS };
    int number = noted;
    int64_t word[WORDS], now;

    *cause = (struct tri_stop_cause){0};
    if (s->left-- > 1)
        return TRI_OK;
    now = tri_now_ns();
    if (s->every == 0) {
        s->every = 1;
        s->looked_ns = now;
    }
    word[SIGNAL] = number;
    word[RANK] = number != 0 ? tri_comm_rank(comm) : -1;
    word[ELAPSED] = now - s->looked_ns;
    TRI_TRY(tri_comm_allreduce(comm, word, WORDS, TRI_I64, TRI_REDUCE_MAX, false));
    s->looked_ns = now;
    plan_next(s, word[ELAPSED]);
    if (word[SIGNAL] != 0)
        *cause = (struct tri_stop_cause){.signal = word[SIGNAL] == SIGTERM ? "SIGTERM" : "SIGUSR1",
                                         .rank = (int)word[RANK]};
    return TRI_OK;
}
