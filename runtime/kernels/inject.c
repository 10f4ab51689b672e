/* Ways to lose a rank. */
#include "runtime/kernels/inject.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0)
        ;
}

void tri_inject_process(enum tri_inject_what what, int ms, int code)
{
    switch (what) {
    case TRI_INJECT_KILL:
        raise(SIGKILL);
        break;
    case TRI_INJECT_STOP:
        raise(SIGSTOP);
        break;
    case TRI_INJECT_SEGV:
        raise(SIGSEGV);
        break;
    case TRI_INJECT_EXIT:
        _exit(code);
    case TRI_INJECT_SLEEP:
        sleep_ms(ms);
        break;
    case TRI_INJECT_INF:
    case TRI_INJECT_NAN:
    case TRI_INJECT_FLIP:
        break;
    }
}
