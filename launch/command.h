/* The commands of the program: one file each (cmd_*.c), listed in main.c. */
#ifndef TRI_LAUNCH_COMMAND_H
#define TRI_LAUNCH_COMMAND_H

#include "runtime/core/status.h"
#include "runtime/exec/comm.h"

/* Exit codes of CONTRACT.md. */
enum { TRI_EXIT_DONE = 0, TRI_EXIT_FAILED = 1, TRI_EXIT_REFUSED = 2, TRI_EXIT_STOPPED = 75 };

struct tri_command {
    const char *name;
    const char *summary; /* one line of `trireme --help` */
    const char *help;    /* text of `trireme NAME --help` */
    /* argv[0] is the command's name. Returns the exit code after printing what is to be printed. */
    int (*run)(const struct tri_command *self, int argc, char **argv);
};

extern const struct tri_command tri_command_train, tri_command_eval, tri_command_generate,
    tri_command_checkpoint, tri_command_data, tri_command_plan, tri_command_config,
    tri_command_bench;

/* Prints the thread's error message on standard error, once per job: on rank 0, or with `mine` on
 * this rank with its number. */
void tri_command_error(const struct tri_comm *comm, bool mine);
/* The exit code of a failure before the first step, after printing it. Local. */
int tri_command_refuse(tri_status st);
/* The same for what all ranks of a job meet alike before MPI is started, such as a wrong argument:
 * starts MPI, so that the message is printed once. Collective. */
int tri_command_refuse_job(tri_status st);

/* Options of a command that takes files and key=value pairs. `--NAME VALUE` and `--NAME=VALUE`. */
struct tri_flag {
    const char *name;
    const char **value; /* set where given */
};
struct tri_arguments {
    const char *file[2]; /* arguments without '=' */
    int nfiles;
    const char **pair; /* key=value, argc entries at most */
    int npairs;
    bool help;
};
/* TRI_ERR_USAGE for an unknown option, a missing value, or too many files. a->pair: tri_free.
 * Local. */
tri_status tri_arguments_parse(int argc, char **argv, const struct tri_flag *flag, int nflags,
                               int max_files, struct tri_arguments *a) TRI_CHECKED;

#endif
