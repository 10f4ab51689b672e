/* trireme data: importers, and what a dataset file holds. */
#include "launch/command.h"

#include "data/import.h"
#include "runtime/core/memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help_data[] =
    "usage: trireme data import text FILE... [--tokenizer byte|bpe:N] [--validation 0.1] -o "
    "OUT.h5\n"
    "       trireme data import idx --train-images F --train-labels F\n"
    "                               --validation-images F --validation-labels F -o OUT.h5\n"
    "       trireme data import npy --train-x F --train-y F [--validation-x F --validation-y F] -o "
    "OUT.h5\n"
    "       trireme data info FILE.h5\n"
    "\n"
    "Makes dataset files, and shows what is in one. `trireme data import KIND --help` says more.\n";

static const char help_text[] =
    "usage: trireme data import text FILE... [--tokenizer byte|bpe:N] [--validation 0.1] -o "
    "OUT.h5\n"
    "\n"
    "Joins the files without a separator and writes their tokens.\n"
    "  --tokenizer byte    one token a byte, vocabulary 256 (default)\n"
    "  --tokenizer bpe:N   byte-pair encoding with a vocabulary of N, learnt from the training "
    "part\n"
    "  --validation X      the last fraction X of the bytes is for validation (default 0.1)\n"
    "  -o OUT.h5           the file to write\n";

static const char help_idx[] =
    "usage: trireme data import idx --train-images F --train-labels F\n"
    "                               --validation-images F --validation-labels F -o OUT.h5\n"
    "\n"
    "Images and labels from idx files as MNIST has them, plain or .gz. The validation pair may be "
    "left out.\n"
    "Mean and standard deviation of the training pixels are stored and used to normalise.\n";

static const char help_npy[] = "usage: trireme data import npy --train-x F --train-y F "
                               "[--validation-x F --validation-y F] -o OUT.h5\n"
                               "\n"
                               "Arrays saved by numpy.save. x of type uint8 with 3 or 4 axes [N, "
                               "H, W, C] and integer y [N] become\n"
                               "images and labels; any other x becomes floating-point inputs, with "
                               "y float [N, ...] or integer [N].\n";

/* One named string option. */
struct option {
    const char *name, **value;
};

/* Takes options with a value out of argv; the other words go to `files` (NULL:
 * none are allowed). */
static tri_status parse(const char *command, int argc, char **argv, const struct option *options,
                        const char **files, int *nfiles)
{
    for (int i = 0; i < argc; i++) {
        const struct option *o = options;

        while (o->name != NULL && strcmp(o->name, argv[i]) != 0)
            o++;
        if (o->name != NULL) {
            if (i + 1 >= argc)
                return tri_fail(TRI_ERR_USAGE, "%s: '%s' needs a value", command, argv[i]);
            *o->value = argv[++i];
        } else if (argv[i][0] == '-' || files == NULL) {
            return tri_fail(TRI_ERR_USAGE, "%s: unknown argument '%s', see --help", command,
                            argv[i]);
        } else {
            files[(*nfiles)++] = argv[i];
        }
    }
    return TRI_OK;
}

static tri_status require(const char *command, const char *option, const char *value)
{
    if (value == NULL)
        return tri_fail(TRI_ERR_USAGE, "%s: '%s' is missing, see --help", command, option);
    return TRI_OK;
}

/* "byte" or "bpe:N" */
static tri_status parse_tokenizer(const char *s, int64_t *vocab)
{
    char *end;
    long long n;

    *vocab = 0;
    if (s == NULL || strcmp(s, "byte") == 0)
        return TRI_OK;
    if (strncmp(s, "bpe:", 4) == 0) {
        errno = 0;
        n = strtoll(s + 4, &end, 10);
        if (end != s + 4 && *end == '\0' && errno == 0 && n > 256) {
            *vocab = n;
            return TRI_OK;
        }
    }
    return tri_fail(TRI_ERR_USAGE,
                    "data import text: --tokenizer is '%s', must be byte or bpe:N with N > 256", s);
}

static tri_status parse_fraction(const char *s, double *x)
{
    char *end;

    *x = 0.1;
    if (s == NULL)
        return TRI_OK;
    *x = strtod(s, &end);
    if (end == s || *end != '\0' || !(*x >= 0 && *x < 1))
        return tri_fail(TRI_ERR_USAGE, "data import text: --validation is '%s', must be in [0, 1)",
                        s);
    return TRI_OK;
}

static tri_status import_text(int argc, char **argv, struct tri_text *report)
{
    static const char name[] = "data import text";
    const char *tokenizer = NULL, *validation = NULL, **files;
    struct tri_import_text a = {0};
    const struct option options[] = {
        {"--tokenizer", &tokenizer}, {"--validation", &validation}, {"-o", &a.out}, {NULL, NULL}};
    tri_status st;

    files = tri_calloc((size_t)argc + 1, sizeof(*files), "arguments");
    if (files == NULL)
        return tri_fail(TRI_ERR_NOMEM, "%s: no memory for the arguments", name);
    a.files = files;
    TRI_TRY_GOTO(st, parse(name, argc, argv, options, files, &a.nfiles), done);
    TRI_TRY_GOTO(st, parse_tokenizer(tokenizer, &a.bpe_vocab), done);
    TRI_TRY_GOTO(st, parse_fraction(validation, &a.validation), done);
    TRI_TRY_GOTO(st, require(name, "FILE", files[0]), done);
    TRI_TRY_GOTO(st, require(name, "-o", a.out), done);
    st = tri_import_text(&a, report);

done:
    tri_free(files);
    return st;
}

static tri_status import_idx(int argc, char **argv, struct tri_text *report)
{
    static const char name[] = "data import idx";
    struct tri_import_idx a = {0};
    const struct option options[] = {{"--train-images", &a.images[0]},
                                     {"--train-labels", &a.labels[0]},
                                     {"--validation-images", &a.images[1]},
                                     {"--validation-labels", &a.labels[1]},
                                     {"-o", &a.out},
                                     {NULL, NULL}};

    TRI_TRY(parse(name, argc, argv, options, NULL, NULL));
    for (size_t i = 0; i < 2; i++)
        TRI_TRY(require(name, options[i].name, *options[i].value));
    TRI_TRY(require(name, "-o", a.out));
    return tri_import_idx(&a, report);
}

static tri_status import_npy(int argc, char **argv, struct tri_text *report)
{
    static const char name[] = "data import npy";
    struct tri_import_npy a = {0};
    const struct option options[] = {
        {"--train-x", &a.x[0]},      {"--train-y", &a.y[0]}, {"--validation-x", &a.x[1]},
        {"--validation-y", &a.y[1]}, {"-o", &a.out},         {NULL, NULL}};

    TRI_TRY(parse(name, argc, argv, options, NULL, NULL));
    for (size_t i = 0; i < 2; i++)
        TRI_TRY(require(name, options[i].name, *options[i].value));
    TRI_TRY(require(name, "-o", a.out));
    return tri_import_npy(&a, report);
}

static tri_status info(int argc, char **argv, struct tri_text *report)
{
    if (argc != 1 || argv[0][0] == '-')
        return tri_fail(TRI_ERR_USAGE, "data info: exactly one FILE.h5 is expected");
    return tri_data_info(argv[0], report);
}

static bool asks_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static const struct kind {
    const char *name, *help;
    tri_status (*run)(int argc, char **argv, struct tri_text *report);
} kinds[] = {
    {"text", help_text, import_text}, {"idx", help_idx, import_idx}, {"npy", help_npy, import_npy}};

static tri_status import(int argc, char **argv, struct tri_text *report)
{
    for (size_t k = 0; argc > 0 && k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        if (strcmp(argv[0], kinds[k].name) != 0)
            continue;
        if (asks_help(argc, argv)) {
            tri_text_printf(report, "%s", kinds[k].help);
            return TRI_OK;
        }
        return kinds[k].run(argc - 1, argv + 1, report);
    }
    if (asks_help(argc, argv)) {
        tri_text_printf(report, "%s", help_data);
        return TRI_OK;
    }
    if (argc == 0)
        return tri_fail(TRI_ERR_USAGE, "data import: text, idx or npy is missing, see --help");
    return tri_fail(TRI_ERR_USAGE, "data import: '%s' is not known, must be text, idx or npy",
                    argv[0]);
}

static tri_status dispatch(int argc, char **argv, struct tri_text *report)
{
    if (argc > 0 && strcmp(argv[0], "import") == 0)
        return import(argc - 1, argv + 1, report);
    if (asks_help(argc, argv)) {
        tri_text_printf(report, "%s", help_data);
        return TRI_OK;
    }
    if (argc > 0 && strcmp(argv[0], "info") == 0)
        return info(argc - 1, argv + 1, report);
    if (argc == 0)
        return tri_fail(TRI_ERR_USAGE, "data: import or info is missing, see --help");
    return tri_fail(TRI_ERR_USAGE, "data: '%s' is not known, must be import or info", argv[0]);
}

static int run_data(const struct tri_command *self, int argc, char **argv)
{
    struct tri_text report = {0};
    tri_status st = dispatch(argc - 1, argv + 1, &report);

    (void)self;
    if (st == TRI_OK && report.failed)
        st = tri_fail(TRI_ERR_NOMEM, "data: no memory for the report");
    if (st == TRI_OK && report.data != NULL)
        printf("%s", report.data);
    tri_text_finish(&report);
    return tri_command_refuse(st);
}

const struct tri_command tri_command_data = {
    .name = "data",
    .summary = "import text, images and arrays; show what a dataset file holds",
    .help = help_data,
    .run = run_data,
};
