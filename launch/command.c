/* What the commands share: arguments and the one error message. */
#include "launch/command.h"

#include "launch/env.h"

#include "runtime/core/host.h"
#include "runtime/core/memory.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define MAX_FLAGS 16

void tri_command_error(const struct tri_comm *comm, bool mine)
{
    char host[TRI_HOST_BYTES];

    /* Messages of communication name the rank themselves. */
    if (mine && tri_comm_size(comm) > 1 && strncmp(tri_error_text(), "rank ", 5) != 0) {
        tri_host_name(host, sizeof(host));
        fprintf(stderr, "trireme: rank %d on %s: %s\n", tri_comm_rank(comm), host,
                tri_error_text());
    } else if (mine || tri_comm_rank(comm) == 0) {
        fprintf(stderr, "trireme: %s\n", tri_error_text());
    }
}

int tri_command_refuse(tri_status st)
{
    if (st == TRI_OK)
        return TRI_EXIT_DONE;
    tri_command_error(NULL, true);
    return TRI_EXIT_REFUSED;
}

int tri_command_refuse_job(tri_status st)
{
    char *text = tri_strdup(tri_error_text());
    struct tri_env env;

    if (tri_env_init(&env) == TRI_OK && text != NULL)
        tri_error_set(text);
    if (env.rank == 0)
        (void)tri_command_refuse(st);
    tri_env_finish(&env);
    tri_free(text);
    return TRI_EXIT_REFUSED;
}

static tri_status take_positional(struct tri_arguments *a, const char *text, int max_files)
{
    if (strchr(text, '=') != NULL) {
        a->pair[a->npairs++] = text;
        return TRI_OK;
    }
    if (a->nfiles == max_files)
        return tri_fail(TRI_ERR_USAGE, "'%s' is one argument too many (settings are key=value)",
                        text);
    a->file[a->nfiles++] = text;
    return TRI_OK;
}

static tri_status take_option(struct tri_arguments *a, int c, int which,
                              const struct tri_flag *flag, char **argv)
{
    if (c == 'h')
        a->help = true;
    else if (c == 0)
        *flag[which].value = optarg;
    else if (c == ':')
        return tri_fail(TRI_ERR_USAGE, "option '%s' needs a value", argv[optind - 1]);
    else
        return tri_fail(TRI_ERR_USAGE, "option '%s' of '%s' is unknown (--help lists all)",
                        argv[optind - 1], argv[0]);
    return TRI_OK;
}

tri_status tri_arguments_parse(int argc, char **argv, const struct tri_flag *flag, int nflags,
                               int max_files, struct tri_arguments *a)
{
    struct option options[MAX_FLAGS + 2] = {{"help", no_argument, NULL, 'h'}};
    int c, which = 0;

    TRI_ASSERT(nflags <= MAX_FLAGS && max_files <= 2);
    *a = (struct tri_arguments){.pair = tri_calloc((size_t)argc, sizeof(*a->pair), "arguments")};
    if (a->pair == NULL)
        return tri_fail(TRI_ERR_NOMEM, "cannot hold %d arguments", argc);
    for (int i = 0; i < nflags; i++)
        options[i + 1] = (struct option){flag[i].name, required_argument, NULL, 0};
    optind = 0;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:h", options, &which)) != -1 || optind < argc) {
        if (c == -1) /* a positional argument; go on behind it */
            TRI_TRY(take_positional(a, argv[optind++], max_files));
        else
            TRI_TRY(take_option(a, c, which - 1, flag, argv));
    }
    return TRI_OK;
}
