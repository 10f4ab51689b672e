/* trireme checkpoint: look at checkpoints without running anything. */
#include "launch/checkpoint_diff.h"
#include "launch/command.h"
#include "launch/kept_layers.h"

#include "runtime/checkpoint/files.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "1.2 MB" into buf. */
static const char *size_text(double bytes, char *buf, size_t cap)
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB"};
    int u = 0;

    for (; bytes >= 1000 && u < 4; u++)
        bytes /= 1000;
    (void)snprintf(buf, cap, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return buf;
}

static int64_t total_bytes(const struct tri_manifest *m)
{
    return m->model_bytes + m->config_bytes;
}

/* Target of the link `name` in RUN_DIR/checkpoints, "" without one. */
static void read_link(const char *run_dir, const char *name, char target[PATH_MAX])
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/checkpoints/%s", run_dir, name);
    ssize_t length = n > 0 && n < PATH_MAX ? readlink(path, target, PATH_MAX - 1) : -1;

    target[length > 0 ? length : 0] = '\0';
}

static void modified_text(const char *path, char *buf, size_t cap)
{
    struct stat s;
    struct tm t;

    buf[0] = '\0';
    if (stat(path, &s) == 0 && localtime_r(&s.st_mtime, &t) != NULL)
        (void)strftime(buf, cap, "%Y-%m-%d %H:%M:%S", &t);
}

static void list_one(const char *path, int64_t step, bool latest, bool best)
{
    struct tri_checkpoint *c = NULL;
    char when[32], size[32] = "-";
    bool good = tri_checkpoint_open(NULL, path, &c) == TRI_OK;

    modified_text(path, when, sizeof(when));
    if (good)
        size_text((double)total_bytes(&c->manifest), size, sizeof(size));
    (void)printf("%10" PRId64 "  %-19s  %9s  %-8s %s%s\n", step, when, size,
                 good ? "complete" : "damaged", latest ? " latest" : "", best ? " best" : "");
    if (!good)
        (void)printf("            %s\n", tri_error_text());
    tri_checkpoint_close(c);
}

static tri_status run_list(char **argv, int *exit_code)
{
    const char *run_dir = argv[0];
    int64_t *steps = NULL;
    int count = 0;
    char latest[PATH_MAX], best[PATH_MAX];

    (void)exit_code;
    if (!tri_is_folder(run_dir))
        return tri_fail(TRI_ERR_USAGE, "no run folder '%s'", run_dir);
    TRI_TRY(tri_checkpoint_list(run_dir, &steps, &count));
    read_link(run_dir, "latest", latest);
    read_link(run_dir, "best", best);
    if (count == 0)
        (void)printf("'%s' holds no checkpoints\n", run_dir);
    else
        (void)printf("%10s  %-19s  %9s  %-8s\n", "step", "saved", "size", "state");
    for (int i = 0; i < count; i++) {
        char *path = tri_checkpoint_path(run_dir, steps[i]);
        const char *name = path != NULL ? strrchr(path, '/') + 1 : "";
        if (path != NULL)
            list_one(path, steps[i], strcmp(name, latest) == 0, strcmp(name, best) == 0);
        tri_free(path);
    }
    tri_free(steps);
    return TRI_OK;
}

static void show_tensors(const struct tri_manifest *m)
{
    char shape[TRI_SHAPE_TEXT], size[32];
    int64_t params = 0;
    size_t state_bytes = 0;

    (void)printf("\n%-5s  %-16s  %-24s  %s\n", "type", "checksum", "shape", "tensor");
    for (int i = 0; i < m->ntensor; i++) {
        const struct tri_manifest_tensor *t = &m->tensor[i];
        (void)printf("%-5s  %016" PRIx64 "  %-24s  %s\n", tri_dtype_name(t->dtype), t->checksum,
                     tri_shape_text(&t->shape, shape, sizeof(shape)), t->name);
        if (strncmp(t->name, "param/", 6) == 0)
            params += tri_shape_count(&t->shape);
        else
            state_bytes += tri_manifest_tensor_bytes(t);
    }
    (void)printf("\n%" PRId64 " parameters, %s of other state\n", params,
                 size_text((double)state_bytes, size, sizeof(size)));
}

static tri_status run_show(char **argv, int *exit_code)
{
    struct tri_checkpoint *c = NULL;
    const struct tri_manifest *m;
    const char *kept;
    char size[32];

    (void)exit_code;
    TRI_TRY(tri_checkpoint_open(NULL, argv[0], &c));
    m = &c->manifest;
    kept = tri_checkpoint_field(c, TRI_KEPT_LAYERS_FIELD);
    (void)printf("%s\nstep %" PRId64 ", %s\n\nhost state\n", c->path, m->step,
                 size_text((double)total_bytes(m), size, sizeof(size)));
    for (int i = 0; i < m->nitem; i++) {
        if (m->item[i].real)
            (void)printf("  %s: %.9g\n", m->item[i].key, m->item[i].value);
        else
            (void)printf("  %s: %" PRId64 "\n", m->item[i].key, m->item[i].integer);
    }
    (void)printf("\na resume must match\n");
    for (int i = 0; i < m->nfield; i++)
        if (strcmp(m->field[i].key, TRI_KEPT_LAYERS_FIELD) != 0)
            (void)printf("  %s: %s\n", m->field[i].key, m->field[i].value);
    if (kept != NULL)
        (void)printf("\nlayers that the run has moved to fp32\n  %s\n", kept);
    show_tensors(m);
    tri_checkpoint_close(c);
    return TRI_OK;
}

static tri_status run_verify(char **argv, int *exit_code)
{
    struct tri_checkpoint *c = NULL;
    tri_status st;

    if (!tri_is_folder(argv[0]))
        return tri_fail(TRI_ERR_USAGE, "no checkpoint folder '%s'", argv[0]);
    st = tri_checkpoint_open(NULL, argv[0], &c);
    if (st == TRI_OK)
        st = tri_checkpoint_verify(c);
    if (st == TRI_OK) {
        (void)printf("good: %s, step %" PRId64 ", %d tensors\n", c->path, c->manifest.step,
                     c->manifest.ntensor);
    } else if (st == TRI_ERR_CHECKPOINT || st == TRI_ERR_DATA) {
        (void)printf("damaged: %s\n", tri_error_text());
        *exit_code = 2;
        st = TRI_OK;
    }
    tri_checkpoint_close(c);
    return st;
}

static tri_status run_diff(char **argv, int *exit_code)
{
    struct tri_checkpoint *c[2] = {NULL, NULL};
    bool equal = false;
    tri_status st = TRI_OK;

    for (int k = 0; k < 2 && st == TRI_OK; k++) {
        st = tri_checkpoint_open(NULL, argv[k], &c[k]);
        if (st == TRI_OK)
            st = tri_checkpoint_verify(c[k]);
    }
    if (st == TRI_OK)
        st = tri_checkpoint_diff(c[0], c[1], &equal);
    if (st == TRI_OK) {
        (void)printf("%s\n", equal ? "equal" : "different");
        *exit_code = equal ? 0 : 1;
    }
    tri_checkpoint_close(c[1]);
    tri_checkpoint_close(c[0]);
    return st;
}

static tri_status run_export(char **argv, int *exit_code)
{
    (void)argv;
    (void)exit_code;
    return tri_fail(TRI_ERR_UNSUPPORTED,
                    "'checkpoint export' is not there yet: model.h5 of a checkpoint is plain HDF5 "
                    "with the weights under /param");
}

static const struct {
    const char *name;
    int nargs; /* -1: any number */
    tri_status (*run)(char **argv, int *exit_code);
} command[] = {
    {"list", 1, run_list}, {"show", 1, run_show},      {"verify", 1, run_verify},
    {"diff", 2, run_diff}, {"export", -1, run_export},
};

/* argv[0]: the word behind "checkpoint". Findings (damaged: 2, different: 1) only set *exit_code.
 */
static tri_status dispatch(int argc, char **argv, int *exit_code)
{
    if (argc == 0)
        return tri_fail(TRI_ERR_USAGE, "checkpoint: say list, show, verify or diff (see "
                                       "'trireme checkpoint --help')");
    for (size_t i = 0; i < sizeof(command) / sizeof(command[0]); i++) {
        if (strcmp(command[i].name, argv[0]) != 0)
            continue;
        if (command[i].nargs >= 0 && argc - 1 != command[i].nargs)
            return tri_fail(TRI_ERR_USAGE, "checkpoint %s takes %d folder%s, not %d", argv[0],
                            command[i].nargs, command[i].nargs == 1 ? "" : "s", argc - 1);
        return command[i].run(argv + 1, exit_code);
    }
    return tri_fail(TRI_ERR_USAGE, "checkpoint: unknown action '%s' (list, show, verify, diff)",
                    argv[0]);
}

static int run_checkpoint(const struct tri_command *self, int argc, char **argv)
{
    int code = TRI_EXIT_DONE;
    tri_status st;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s", self->help);
            return TRI_EXIT_DONE;
        }
    }
    st = dispatch(argc - 1, argv + 1, &code);
    return st == TRI_OK ? code : tri_command_refuse(st);
}

const struct tri_command tri_command_checkpoint = {
    .name = "checkpoint",
    .summary = "list, show, verify or compare checkpoints",
    .help =
        "usage: trireme checkpoint list RUN_DIR\n"
        "       trireme checkpoint show DIR\n"
        "       trireme checkpoint verify DIR       exit code 0: good, 2: damaged\n"
        "       trireme checkpoint diff DIR DIR     exit code 0: equal, 1: different\n"
        "\n"
        "DIR is a checkpoint (RUN_DIR/checkpoints/step-00000100) or a run folder, meaning its "
        "newest "
        "one.\n"
        "  list    every checkpoint of a run: step, time, size, whether it is complete\n"
        "  show    steps, host state, settings that a resume must match, tensors\n"
        "  verify  reads every byte and compares it with the checksums\n"
        "  diff    compares step, host state, settings and tensors to the bit; config.yaml is left "
        "out\n",
    .run = run_checkpoint,
};
