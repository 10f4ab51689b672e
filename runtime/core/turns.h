/* How the kernel shares cores between threads that compute and threads that wait. */
#ifndef TRI_RUNTIME_CORE_TURNS_H
#define TRI_RUNTIME_CORE_TURNS_H

/* Asks for short turns: the calling thread, which mostly waits and works a little in between, runs
 * soon after it wakes although other threads keep all cores busy, and takes no more than its share.
 * Needs no privilege; does nothing before Linux 6.12. Local. */
void tri_thread_short_turns(void);

#endif
