/* Command lines of dtplan and dtrun, from the rows of tools/options.def. */
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
#include "tools/help.h"
#include "tools/progress.h"
#include "tools/shipped.h"

extern char **environ;

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

static int run_command(const char *program,
                       int (*const runs[TOOL_N_COMMANDS])(int argc, char **argv), int argc,
                       char **argv)
{
    dtp_err err = {0};
    const char *name = argc < 2 ? "help" : argv[1];
    tool_hint hint = tool_hint_begin(name);
    if (argc < 2 || strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
        strcmp(name, "-h") == 0) {
        const dtp_status s = tool_help(program, argc < 2 ? stderr : stdout, argc, argv, &err);
        return s != DTP_OK ? tool_fail(program, &err) : argc < 2 ? TOOL_USAGE : TOOL_OK;
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("%s %s\n", program, dtp_version());
        return TOOL_OK;
    }
    for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
        if (runs[i] != NULL && strcmp(name, tool_commands[i].name) == 0) {
            return runs[i](argc - 1, argv + 1);
        }
        if (runs[i] != NULL) {
            tool_hint_note(&hint, tool_commands[i].name);
        }
    }
    (void)DTP_FAIL(&err, DTP_INVALID, "unknown command '%s'%s (see '%s help')", name, hint.text,
                   program);
    return tool_fail(program, &err);
}

int tool_main(const char *program, int (*const runs[TOOL_N_COMMANDS])(int argc, char **argv),
              int argc, char **argv)
{
    /* A standard stream that is closed is /dev/null, so that no file opened later becomes one. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* The lowest free descriptor is fd. Read-only makes printing fail. */
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            break;
        }
    }
    const int code = run_command(program, runs, argc, argv);
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

static dtp_status parse_real(const tool_option *o, const char *text, double *out, dtp_err *err)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= o->min && *out <= o->max
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "%s: '%s' is not a number in %g..%g", o->name, text,
                          o->min, o->max);
}

/* One of the words that the option's argument lists. */
static dtp_status parse_word(const tool_option *o, const char *text, const char **out, dtp_err *err)
{
    tool_hint hint = tool_hint_begin(text);
    char words[256] = "";
    size_t n = 0;
    for (const char *at = o->arg; *at != '\0'; at += n + (at[n] == '|' ? 1 : 0)) {
        char word[64];
        n = strcspn(at, "|");
        (void)snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (strcmp(word, text) == 0) {
            *out = text;
            return DTP_OK;
        }
        tool_hint_note(&hint, word);
        const size_t k = strlen(words);
        (void)snprintf(words + k, sizeof words - k, "%s%s", k > 0 ? ", " : "", word);
    }
    return DTP_FAIL(err, DTP_INVALID, "%s: '%s' is none of %s%s", o->name, text, words, hint.text);
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

void *tool_option_place(const tool_call *call, const tool_option *o)
{
    return (char *)(o->own ? call->own : call->source) + o->offset;
}

static dtp_status store(const tool_option *o, void *place, const char *value, dtp_err *err)
{
    tool_list *list = place;
    int64_t count = 0;
    switch (o->kind) {
    case TOOL_FLAG:
    case TOOL_NO_WRITES:
        *(bool *)place = true;
        return DTP_OK;
    case TOOL_WORD:
        return parse_word(o, value, place, err);
    case TOOL_STRING:
    case TOOL_OUT:
    case TOOL_OUT_FOLDER:
    case TOOL_OUT_CHECKPOINT:
        *(const char **)place = value;
        return DTP_OK;
    case TOOL_INT:
        return parse_int(o, value, place, err);
    case TOOL_COUNT:
        DTP_TRY(parse_int(o, value, &count, err));
        *(int32_t *)place = (int32_t)count;
        return DTP_OK;
    case TOOL_BYTES:
        return tool_bytes_parse(o->name, value, place, err);
    case TOOL_REAL:
        return parse_real(o, value, place, err);
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

/* "--mesh x:2", "--mesh=x:2", "-o FILE" or a flag. */
static dtp_status take_option(const tool_call *call, int argc, char **argv, int *i, dtp_err *err)
{
    const bool is_short = strcmp(argv[*i], "-o") == 0;
    const char *name = is_short ? "--output" : argv[*i];
    const size_t n = strcspn(name, "=");
    const char *value = name[n] == '=' ? name + n + 1 : NULL;
    const tool_option *o = tool_option_find(call->id, name, n);
    if (o == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "unknown option '%s'%s (usage: %s)", argv[*i],
                        tool_hint_option(call->id, argv[*i]).text, tool_usage(call->id).text);
    }
    const bool flag = tool_option_is_flag(o);
    if (flag && value != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s takes no value, got '%s'", o->name, value);
    }
    if (!flag && value == NULL) {
        if (*i + 1 >= argc) {
            return DTP_FAIL(err, DTP_INVALID, "%s needs a value: %s %s", o->name, o->name, o->arg);
        }
        value = argv[++*i];
    }
    return store(o, tool_option_place(call, o), value, err);
}

dtp_status tool_options_parse(const tool_call *call, int argc, char **argv, const char **operands,
                              int32_t *n_operands, bool *done, dtp_err *err)
{
    const tool_command *command = &tool_commands[call->id];
    bool only_operands = false;
    *n_operands = 0;
    *done = false;
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_has_option(call->id, o) && o->standard != NULL) {
            DTP_TRY(store(o, tool_option_place(call, o), o->standard, err));
        }
    }
    for (int i = 1; i < argc; i++) {
        if (!only_operands && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            *done = true;
            return tool_help_command(call->id, err);
        }
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1] != '\0') {
            DTP_TRY(take_option(call, argc, argv, &i, err));
        } else if (*n_operands == command->max_operands) {
            return DTP_FAIL(err, DTP_INVALID, "unexpected argument '%s' (usage: %s)", argv[i],
                            tool_usage(call->id).text);
        } else {
            operands[(*n_operands)++] = argv[i];
        }
    }
    return DTP_OK;
}

/* ---- operands ---- */

/* Models by name become paths. Files that are read are there, whatever else is missing: MODEL, PLAN
 * and SUITE of the usage, in their order. */
static dtp_status find_operands(const tool_call *call, const char *operands[TOOL_MAX_OPERANDS],
                                tool_path paths[TOOL_MAX_OPERANDS], dtp_err *err)
{
    static const char between[] = " []";
    const char *word = tool_commands[call->id].operands;
    for (int32_t i = 0; i < (int32_t)TOOL_MAX_OPERANDS && operands[i] != NULL; i++) {
        word += strspn(word, between);
        const size_t n = strcspn(word, between);
        if (n == strlen("MODEL") && strncmp(word, "MODEL", n) == 0) {
            DTP_TRY(tool_shipped_find(SHIPPED_MODELS, "model", operands[i], &paths[i], err));
            operands[i] = paths[i].text;
        } else if ((strncmp(word, "PLAN", 4) == 0 || strncmp(word, "SUITE", 5) == 0) &&
                   access(operands[i], F_OK) != 0) {
            return DTP_FAIL(err, DTP_IO, "%.200s: cannot open: %s", operands[i], strerror(errno));
        }
        word += n;
    }
    return DTP_OK;
}

/* ---- what is written ---- */

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

/* Whether an option is given; not known of numbers. */
static bool is_given(const tool_call *call, const tool_option *o)
{
    const void *place = tool_option_place(call, o);
    switch (o->kind) {
    case TOOL_FLAG:
    case TOOL_NO_WRITES:
        return *(const bool *)place;
    case TOOL_LIST:
    case TOOL_OUT_LIST:
        return ((const tool_list *)place)->n > 0;
    case TOOL_INT:
    case TOOL_COUNT:
    case TOOL_BYTES:
    case TOOL_REAL:
        return false;
    default:
        return *(const char *const *)place != o->standard;
    }
}

dtp_status tool_check_mode(const tool_call *call, dtp_planning_mode mode, dtp_err *err)
{
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_has_option(call->id, o) && !tool_is_of_mode(o, mode) && is_given(call, o)) {
            char modes[128] = "";
            for (int32_t m = 0; m <= (int32_t)DTP_PLAN_PINS; m++) {
                const size_t n = strlen(modes);
                if (tool_is_of_mode(o, (dtp_planning_mode)m)) {
                    (void)snprintf(modes + n, sizeof modes - n, "%s%s", n > 0 ? " and " : "",
                                   tool_mode_name((dtp_planning_mode)m));
                }
            }
            return DTP_FAIL(err, DTP_INVALID, "%s is for %s, not for %s", o->name, modes,
                            tool_mode_name(mode));
        }
    }
    return DTP_OK;
}

static bool writes(const tool_option *o)
{
    return o->kind == TOOL_OUT || o->kind == TOOL_OUT_LIST || is_place(o->kind);
}

static dtp_status check_path(const tool_option *o, const char *path, dtp_err *err)
{
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(path), k = sizeof suffix - 1;
    const bool named = n >= k && strcmp(path + n - k, suffix) == 0;
    const bool is_file = !is_place(o->kind) || (o->kind == TOOL_OUT_CHECKPOINT && named);
    return is_file ? dtp_file_check_writable(path, err) : dtp_folder_check_writable(path, err);
}

static dtp_status check_output(const tool_call *call, const tool_option *o, dtp_err *err)
{
    if (o->kind != TOOL_OUT_LIST) {
        return check_path(o, *(const char **)tool_option_place(call, o), err);
    }
    const tool_list *list = tool_option_place(call, o);
    for (int32_t i = 0; i < list->n; i++) {
        const char *file = strchr(list->items[i], '=');
        if (file != NULL && file[1] != '\0') {
            DTP_TRY(check_path(o, file + 1, err));
        }
    }
    return DTP_OK;
}

/* That no option writes with the flag of kind TOOL_NO_WRITES, else that all of them can. */
static dtp_status check_outputs(const tool_call *call, dtp_err *err)
{
    const tool_option *none = NULL;
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        none = tool_has_option(call->id, o) && o->kind == TOOL_NO_WRITES ? o : none;
    }
    const bool refused = none != NULL && *(const bool *)tool_option_place(call, none);
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (!tool_has_option(call->id, o) || !writes(o) || !is_given(call, o)) {
            continue;
        }
        if (refused) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s writes files, which %s forbids (cases of a suite may write with "
                            "--allow-writes)",
                            o->name, none->name);
        }
        if (!tool_is_later_rank()) {
            DTP_TRY(dtp_err_prefixed(check_output(call, o, err), err, "%s", o->name));
        }
    }
    return DTP_OK;
}

dtp_status tool_perform(const tool_call *call, int argc, char **argv, dtp_err *err)
{
    const char *operands[TOOL_MAX_OPERANDS] = {NULL};
    tool_path paths[TOOL_MAX_OPERANDS];
    int32_t n;
    bool done;
    DTP_TRY(tool_options_parse(call, argc, argv, operands, &n, &done, err));
    if (done) {
        return DTP_OK;
    }
    DTP_TRY(find_operands(call, operands, paths, err));
    if (n < tool_commands[call->id].min_operands) {
        return DTP_FAIL(err, DTP_INVALID, "an argument is missing (usage: %s)",
                        tool_usage(call->id).text);
    }
    DTP_TRY(check_outputs(call, err));
    return call->body(call->command, operands, err);
}

int tool_run(const tool_call *call, int argc, char **argv)
{
    dtp_err err = {0};
    const dtp_status s = tool_perform(call, argc, argv, &err);
    return s == DTP_OK ? TOOL_OK : tool_fail(tool_commands[call->id].tool, &err);
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
