/* The program: finds the command and runs it. */
#include "launch/command.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct tri_command *const commands[] = {
    &tri_command_train, &tri_command_eval, &tri_command_generate, &tri_command_checkpoint,
    &tri_command_data,  &tri_command_plan, &tri_command_config,   &tri_command_bench,
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *to)
{
    fprintf(to, "usage: trireme COMMAND ...      (trireme COMMAND --help tells more)\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(to, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
}

/* A closed standard stream would give its number to the next file that is opened, and messages
 * would go into that file. Opened the wrong way round, using it stays an error. */
static void fill_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* Results that did not reach standard output are a failure. */
static int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "trireme: cannot write to standard output\n");
    return code == TRI_EXIT_DONE ? TRI_EXIT_FAILED : code;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return TRI_EXIT_REFUSED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return TRI_EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("trireme %s\n", TRI_VERSION);
        return TRI_EXIT_DONE;
    }
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return commands[i]->run(commands[i], argc - 1, argv + 1);
    fprintf(stderr, "trireme: command '%s' is unknown\n\n", argv[1]);
    print_help(stderr);
    return TRI_EXIT_REFUSED;
}

int main(int argc, char **argv)
{
    fill_streams();
    return finish_output(run(argc, argv));
}
