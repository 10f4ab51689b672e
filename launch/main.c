/* The program: finds the command and runs it. */
#include "launch/command.h"
#include "launch/cmd_checkpoint.h"
#include "launch/cmd_data.h"

#include <stdio.h>
#include <string.h>

/* The commands that live in the library have their own help. */
static int run_checkpoint(const struct tri_command *self, int argc, char **argv)
{
    int code = TRI_EXIT_DONE;
    tri_status st = tri_cmd_checkpoint(argc, argv, &code);

    (void)self;
    return st == TRI_OK ? code : tri_command_refuse(st);
}

static int run_data(const struct tri_command *self, int argc, char **argv)
{
    tri_status st = tri_cmd_data(argc - 1, argv + 1);

    (void)self;
    return st == TRI_OK ? TRI_EXIT_DONE : tri_command_refuse(st);
}

static const struct tri_command command_checkpoint = {
    .name = "checkpoint",
    .summary = "list, show, verify or compare checkpoints",
    .run = run_checkpoint};

static const struct tri_command command_data = {
    .name = "data",
    .summary = "import text, images and arrays; show what a dataset file holds",
    .run = run_data};

static const struct tri_command *const commands[] = {
    &tri_command_train, &tri_command_eval, &tri_command_generate, &command_checkpoint,
    &command_data,      &tri_command_plan, &tri_command_config,   &tri_command_bench,
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *to)
{
    fprintf(to, "usage: trireme COMMAND ...      (trireme COMMAND --help tells more)\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(to, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
}

int main(int argc, char **argv)
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
