#include "tools/options.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/units.h"
#include "core/base/status.h"
#include "core/files/file_out.h"
#include "dtp/version.h"
#include "executor/comm/communicator.h"
#include "tools/look.h"
#include "tools/progress.h"

extern char **environ;

dtp_status tool_program_path(char *path, size_t size, dtp_err *err)
{
    const ssize_t n = readlink("/proc/self/exe", path, size);
    if (n < 0 || (size_t)n >= size) {
        return DTP_FAIL(err, DTP_IO, "/proc/self/exe: %s", strerror(n < 0 ? errno : ENAMETOOLONG));
    }
    path[n] = '\0';
    return DTP_OK;
}

/* A file that cannot be read or written is one that the command line named. */
int tool_fail(const char *program, const dtp_err *err)
{
    tool_progress_end();
    if (!err->told) {
        (void)fprintf(stderr, "%s: %s\n", program, err->msg);
    }
    if (err->code == DTP_STOPPED) {
        return TOOL_INFEASIBLE; /* no plan was found */
    }
    return dtp_status_is_input(err->code) || err->code == DTP_IO ? TOOL_USAGE : TOOL_FAILURE;
}

static dtp_status print_commands(const char *program, const tool_command *commands, FILE *file,
                                 dtp_err *err)
{
    dtp_strbuf out = {0};
    dtp_strbuf_addf(&out, "usage: %s COMMAND [options]\n\n", program);
    for (const tool_command *c = commands; c->name != NULL; c++) {
        dtp_strbuf_addf(&out, "  %-12s  %-15s  %s\n", c->name, c->operands, c->summary);
    }
    dtp_strbuf_addf(&out, "\n'%s COMMAND --help' lists the options of a command.\n", program);
    return tool_show(file, &out, err);
}

static int run_command(const char *program, const tool_command *commands, int argc, char **argv)
{
    dtp_err err = {0};
    if (argc < 2) {
        const dtp_status s = print_commands(program, commands, stderr, &err);
        return s == DTP_OK ? TOOL_USAGE : tool_fail(program, &err);
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        const dtp_status s = print_commands(program, commands, stdout, &err);
        return s == DTP_OK ? TOOL_OK : tool_fail(program, &err);
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("%s %s\n", program, dtp_version());
        return TOOL_OK;
    }
    for (const tool_command *c = commands; c->name != NULL; c++) {
        if (strcmp(argv[1], c->name) == 0) {
            return c->run(argc - 1, argv + 1);
        }
    }
    (void)DTP_FAIL(&err, DTP_INVALID, "unknown command '%s' (see '%s help')", argv[1], program);
    return tool_fail(program, &err);
}

int tool_main(const char *program, const tool_command *commands, int argc, char **argv)
{
    /* A standard stream that is closed is /dev/null, so that no file opened later becomes one. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* The lowest free descriptor is fd. Read-only makes printing fail. */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            break;
        }
    }
    const int code = run_command(program, commands, argc, argv);
    bool failed = ferror(stdout) != 0;
    errno = 0;
    failed = fclose(stdout) != 0 || failed;
    if (!failed) {
        return code;
    }
    (void)fprintf(stderr, "%s: cannot write standard output%s%s\n", program, errno != 0 ? ": " : "",
                  errno != 0 ? strerror(errno) : "");
    return code == TOOL_OK ? TOOL_FAILURE : code;
}

static dtp_status parse_int(const tool_option *o, const char *text, int64_t *out, dtp_err *err)
{
    int64_t v;
    if (!dtp_int_parse(text, &v) || (double)v < o->min || (double)v > o->max) {
        return DTP_FAIL(err, DTP_INVALID, "%s: '%s' is not an integer in %.0f..%.0f", o->name, text,
                        o->min, o->max);
    }
    *out = v;
    return DTP_OK;
}

static dtp_status parse_real(const tool_option *o, const char *text, dtp_err *err)
{
    char *end;
    double v = strtod(text, &end);
    bool ranged = o->min < o->max;
    if (end == text || *end != '\0' || !isfinite(v) || (ranged && (v < o->min || v > o->max))) {
        return DTP_FAIL(err, DTP_INVALID, "%s: '%s' is not a number in %g..%g", o->name, text,
                        o->min, o->max);
    }
    *(double *)o->dest = v;
    return DTP_OK;
}

dtp_status tool_bytes_parse(const char *name, const char *text, int64_t *out, dtp_err *err)
{
    return dtp_bytes_parse(text, out)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID,
                          "%s: '%s' is not a size such as 4096, 512M, 80GB (of 1000) or 40GiB",
                          name, text);
}

dtp_quantity tool_bytes_print(int64_t bytes, bool up, bool exact)
{
    static const char suffixes[] = "KMGT";
    double v = (double)bytes, digits = 1.0;
    int unit = -1, decimals = 0;
    dtp_quantity q;
    for (; !exact && unit < 3 && v >= 1000.0; unit++) {
        v /= 1024.0;
    }
    for (; unit >= 0 && v * digits < 1000.0; decimals++) {
        digits *= 10.0;
    }
    v = (up ? ceil(v * digits) : floor(v * digits)) / digits;
    (void)snprintf(q.text, sizeof q.text, "%.*f%.*s", decimals, v, unit >= 0 ? 1 : 0,
                   unit >= 0 ? &suffixes[unit] : "");
    return q;
}

/* The option that `arg` names ("--mesh", "--mesh=x:2"); *value is the text after '=', or NULL. */
static const tool_option *find_option(const tool_parse *spec, const char *arg, const char **value)
{
    size_t n = strcspn(arg, "=");
    *value = arg[n] == '=' ? arg + n + 1 : NULL;
    if (strcmp(arg, "-o") == 0) {
        arg = "--output";
        n = strlen(arg);
    }
    for (const tool_option *o = spec->options; o->name != NULL; o++) {
        if (strlen(o->name) == n && strncmp(o->name, arg, n) == 0) {
            return o;
        }
    }
    return NULL;
}

static dtp_status take_option(const tool_parse *spec, int argc, char **argv, int *i, dtp_err *err)
{
    const char *value;
    const tool_option *o = find_option(spec, argv[*i], &value);
    if (o == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "unknown option '%s' (usage: %s)", argv[*i], spec->usage);
    }
    const bool flag = o->kind == TOOL_FLAG || o->kind == TOOL_NO_WRITES;
    if (flag && value != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s takes no value, got '%s'", o->name, value);
    }
    if (!flag && value == NULL) {
        if (*i + 1 >= argc) {
            return DTP_FAIL(err, DTP_INVALID, "%s needs a value: %s %s", o->name, o->name, o->arg);
        }
        value = argv[++*i];
    }
    tool_list *list = o->dest;
    int64_t count = 0;
    switch (o->kind) {
    case TOOL_FLAG:
    case TOOL_NO_WRITES:
        *(bool *)o->dest = true;
        return DTP_OK;
    case TOOL_STRING:
    case TOOL_OUT:
    case TOOL_OUT_FOLDER:
    case TOOL_OUT_CHECKPOINT:
        *(const char **)o->dest = value;
        return DTP_OK;
    case TOOL_INT:
        return parse_int(o, value, o->dest, err);
    case TOOL_COUNT:
        DTP_TRY(parse_int(o, value, &count, err));
        *(int32_t *)o->dest = (int32_t)count;
        return DTP_OK;
    case TOOL_BYTES:
        return tool_bytes_parse(o->name, value, o->dest, err);
    case TOOL_REAL:
        return parse_real(o, value, err);
    case TOOL_LIST:
    case TOOL_OUT_LIST:
        if (list->n == TOOL_LIST_MAX) {
            return DTP_FAIL(err, DTP_INVALID, "%s: given more than %d times", o->name,
                            TOOL_LIST_MAX);
        }
        list->items[list->n++] = value;
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_INTERNAL, "%s: unknown option kind", o->name);
}

dtp_status tool_options_parse(const tool_parse *spec, int argc, char **argv, const char **operands,
                              int32_t *n_operands, bool *done, dtp_err *err)
{
    bool only_operands = false;
    *n_operands = 0;
    *done = false;
    for (int i = 1; i < argc; i++) {
        if (!only_operands && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            dtp_strbuf out = {0};
            dtp_strbuf_addf(&out, "usage: %s\n\n", spec->usage);
            for (const tool_option *o = spec->options; o->name != NULL; o++) {
                char left[64];
                (void)snprintf(left, sizeof left, "%s%s%s", o->name, o->arg != NULL ? " " : "",
                               o->arg != NULL ? o->arg : "");
                dtp_strbuf_addf(&out, "  %-25s  %s\n", left, o->help);
            }
            *done = true;
            return tool_show(stdout, &out, err);
        }
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1] != '\0') {
            DTP_TRY(take_option(spec, argc, argv, &i, err));
        } else if (*n_operands == spec->max_operands) {
            return DTP_FAIL(err, DTP_INVALID, "unexpected argument '%s' (usage: %s)", argv[i],
                            spec->usage);
        } else {
            operands[(*n_operands)++] = argv[i];
        }
    }
    if (*n_operands < spec->min_operands) {
        return DTP_FAIL(err, DTP_INVALID, "an argument is missing (usage: %s)", spec->usage);
    }
    return DTP_OK;
}

/* ---- what is written ---------------------------------------------------------------------------
 */

bool tool_is_later_rank(void)
{
    const char *rank = dtp_comm_launched_rank(environ);
    return rank != NULL && strcmp(rank, "0") != 0;
}

bool tool_speaks(void)
{
    return !tool_is_later_rank() && getenv(TOOL_STARTED) == NULL;
}

static bool is_place(tool_option_kind kind)
{
    return kind == TOOL_OUT_FOLDER || kind == TOOL_OUT_CHECKPOINT;
}

/* With the flag of kind TOOL_NO_WRITES, that no option is given that writes. */
static dtp_status check_writes(const tool_option *options, dtp_err *err)
{
    const tool_option *none = options;
    while (none->name != NULL && none->kind != TOOL_NO_WRITES) {
        none++;
    }
    if (none->name == NULL || !*(const bool *)none->dest) {
        return DTP_OK;
    }
    for (const tool_option *o = options; o->name != NULL; o++) {
        const bool path = o->kind == TOOL_OUT || is_place(o->kind);
        if ((path && *(const char **)o->dest != NULL) ||
            (o->kind == TOOL_OUT_LIST && ((const tool_list *)o->dest)->n > 0)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s writes files, which %s forbids (cases of a suite may write with "
                            "--allow-writes)",
                            o->name, none->name);
        }
    }
    return DTP_OK;
}

static dtp_status check_output(const tool_option *o, dtp_err *err)
{
    const char *path = NULL;
    if (o->kind == TOOL_OUT_LIST) {
        const tool_list *list = o->dest;
        for (int32_t i = 0; i < list->n; i++) {
            const char *file = strchr(list->items[i], '=');
            if (file != NULL && file[1] != '\0') {
                DTP_TRY(dtp_file_check_writable(file + 1, err));
            }
        }
        return DTP_OK;
    }
    if (o->kind == TOOL_OUT || is_place(o->kind)) {
        path = *(const char **)o->dest;
    }
    if (path == NULL) {
        return DTP_OK;
    }
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(path), k = sizeof suffix - 1;
    const bool named = n >= k && strcmp(path + n - k, suffix) == 0;
    const bool is_file = o->kind == TOOL_OUT || (o->kind == TOOL_OUT_CHECKPOINT && named);
    return is_file ? dtp_file_check_writable(path, err) : dtp_folder_check_writable(path, err);
}

dtp_status tool_perform(const tool_parse *spec, int argc, char **argv, tool_body body,
                        void *command, dtp_err *err)
{
    const char *operands[TOOL_MAX_OPERANDS] = {NULL};
    int32_t n;
    bool done;
    DTP_TRY(tool_options_parse(spec, argc, argv, operands, &n, &done, err));
    if (done) {
        return DTP_OK;
    }
    DTP_TRY(check_writes(spec->options, err));
    const bool writes = !tool_is_later_rank();
    for (const tool_option *o = spec->options; writes && o->name != NULL; o++) {
        DTP_TRY(dtp_err_prefixed(check_output(o, err), err, "%s", o->name));
    }
    return body(command, operands, err);
}

int tool_run(const char *program, const tool_parse *spec, int argc, char **argv, tool_body body,
             void *command)
{
    dtp_err err = {0};
    dtp_status s = tool_perform(spec, argc, argv, body, command, &err);
    return s == DTP_OK ? TOOL_OK : tool_fail(program, &err);
}

dtp_status tool_split_pair(const char *text, char *name, size_t name_size, const char **value,
                           dtp_err *err)
{
    size_t n = strcspn(text, "=");
    if (n == 0 || n >= name_size || text[n] != '=' || text[n + 1] == '\0') {
        return DTP_FAIL(err, DTP_INVALID, "'%s' is not of the form NAME=VALUE", text);
    }
    memcpy(name, text, n);
    name[n] = '\0';
    *value = text + n + 1;
    return DTP_OK;
}
