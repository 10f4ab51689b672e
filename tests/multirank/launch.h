/* Starts a program under mpirun from a Criterion test. */
#ifndef TRI_TESTS_LAUNCH_H
#define TRI_TESTS_LAUNCH_H

/* Exit code of `timeout 60 mpirun -n RANKS --bind-to none COMMAND`; 124: it hung. before:
 * assignments such as "RANK=7 ", or "". */
int launch_ranks(const char *before, int ranks, const char *command);

#endif
