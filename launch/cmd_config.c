/* trireme config [KEY]: the reference of all options, from the table that parses them. */
#include "launch/command.h"
#include "launch/config.h"

#include "runtime/core/memory.h"

#include <stdio.h>

static int run_config(const struct tri_command *self, int argc, char **argv)
{
    struct tri_arguments a;
    struct tri_text text = {0};
    tri_status st = tri_arguments_parse(argc, argv, NULL, 0, 1, &a);

    if (st == TRI_OK && a.npairs > 0)
        st = tri_fail(TRI_ERR_USAGE, "'%s': config takes a key, not a setting", a.pair[0]);
    if (st == TRI_OK && a.help)
        printf("%s", self->help);
    else if (st == TRI_OK)
        st = tri_config_describe(a.nfiles > 0 ? a.file[0] : NULL, &text);
    if (text.data != NULL)
        printf("%s", text.data);
    tri_text_finish(&text);
    tri_free(a.pair);
    return tri_command_refuse(st);
}

const struct tri_command tri_command_config = {
    .name = "config",
    .summary = "explain the options of RUN.yaml",
    .help = "usage: trireme config [KEY]\n\n"
            "Prints every option with its type, default, allowed values and meaning; with KEY (an "
            "option such as\n"
            "optimizer.lr or a section such as optimizer) only those.\n",
    .run = run_config,
};
