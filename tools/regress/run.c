/* Runs the cases of a suite as processes of their own, some at a time, and does what was asked for
 * with the results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tools/child.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/regress/suite.h"
#include "tools/report.h"

enum { MAX_BYTES = 256 << 20, PROGRAM_BYTES = 4096, GIT_BYTES = 64 << 20 };

/* A case that runs. */
typedef struct child {
    pid_t pid;       /* 0: none */
    int32_t at;      /* the case */
    int out, errors; /* files of what it prints */
    double began_s;
} child;

static void close_files(child *c)
{
    (void)close(c->out);
    (void)close(c->errors);
    c->pid = 0;
}

static dtp_status start(const suite *s, const suite_run *run, char *program, int32_t at, child *c,
                        dtp_err *err)
{
    char *argv[SUITE_MAX_ARGS + 16], no_writes[] = SUITE_NO_WRITES;
    int32_t n = 0;
    argv[n++] = program;
    for (int32_t i = 0; run->before[i] != NULL; i++) {
        memcpy(&argv[n++], &run->before[i], sizeof *argv);
    }
    if (!run->allow_writes) {
        argv[n++] = no_writes;
    }
    for (int32_t i = 0; i < s->cases[at].n_args; i++) {
        memcpy(&argv[n++], &s->cases[at].args[i], sizeof *argv);
    }
    argv[n] = NULL;
    *c = (child){.at = at, .out = -1, .errors = -1, .began_s = dtp_now_s()};
    dtp_status status = tool_unnamed_file(&c->out, err);
    status = status == DTP_OK ? tool_unnamed_file(&c->errors, err) : status;
    status = status == DTP_OK ? tool_child_start(program, argv, c->out, c->errors, &c->pid, err)
                              : status;
    if (status != DTP_OK) {
        close_files(c);
    }
    return status;
}

/* The first line with words that a case printed on standard error, else how it ended; from the
 * arena. */
static const char *why_failed(suite *s, int errors, int code)
{
    static const char blanks[] = "- \t\n"; /* mpirun frames what it says by dashes */
    char *text = NULL;
    size_t n = 0;
    if (tool_unnamed_read(errors, MAX_BYTES, &text, &n, NULL) != DTP_OK) {
        return "it cannot be read what it said";
    }
    char *line = text + strspn(text, blanks);
    line[strcspn(line, "\n")] = '\0';
    const char *why = line[0] != '\0'
                          ? dtp_arena_strdup(s->arena, line)
                          : dtp_arena_printf(s->arena, "it said nothing and ended by %s %d",
                                             WIFEXITED(code) ? "exit status" : "signal",
                                             WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code));
    free(text);
    return why != NULL ? why : "out of memory for what it said";
}

static dtp_status read_json(suite *s, const suite_run *run, child *c, dtp_err *err)
{
    suite_case *one = &s->cases[c->at];
    char *text = NULL;
    size_t n = 0;
    dtp_json_doc *doc = NULL;
    DTP_TRY(tool_unnamed_read(c->out, MAX_BYTES, &text, &n, err));
    dtp_status status = dtp_json_parse("its output", text, n, &doc, err);
    status = status == DTP_OK ? run->read(s, one, dtp_json_root(doc), err) : status;
    dtp_json_destroy(doc);
    free(text);
    return status;
}

/* What a case gave; one whose output or model cannot be read fails alone. */
static dtp_status read_output(suite *s, const suite_run *run, child *c, int code, dtp_err *err)
{
    suite_case *one = &s->cases[c->at];
    dtp_err why = {0};
    one->seconds = dtp_now_s() - c->began_s;
    if (WIFEXITED(code) && WEXITSTATUS(code) == TOOL_INFEASIBLE) {
        one->now.there = true; /* a result, without values */
        return suite_add_fact(s, &one->now, SUITE_LAYOUTS, "plan", "infeasible", err);
    }
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) {
        one->failure = why_failed(s, c->errors, code);
        return DTP_OK;
    }
    const dtp_status status = read_json(s, run, c, &why);
    if (status == DTP_NOMEM) {
        return DTP_FAIL(err, DTP_NOMEM, "%s", why.msg);
    }
    one->now.there = status == DTP_OK;
    suite_sort_facts(&one->now);
    return status == DTP_OK ? DTP_OK : suite_case_fail(s, one, why.msg, err);
}

static void note_progress(const suite *s, int32_t done)
{
    char note[32];
    (void)snprintf(note, sizeof note, "%d of %d", done, s->n);
    tool_progress_note(note);
}

dtp_status suite_run_all(suite *s, const suite_run *run, dtp_err *err)
{
    char program[PROGRAM_BYTES];
    int32_t next = 0, done = 0, running = 0;
    dtp_status status = tool_program_path(program, sizeof program, err);
    child *list = dtp_arena_alloc(s->arena, (size_t)run->jobs, sizeof *list);
    DTP_TRY(DTP_MEMORY(err, list));
    if (!run->quiet) {
        tool_progress_begin("running cases");
        note_progress(s, 0);
    }
    while (running > 0 || (next < s->n && status == DTP_OK)) {
        int code = 0;
        while (running < run->jobs && next < s->n && status == DTP_OK) {
            if (s->cases[next].failure != NULL) { /* it cannot be read */
                note_progress(s, ++done);
                next++;
                continue;
            }
            int32_t k = 0;
            while (list[k].pid > 0) {
                k++;
            }
            status = start(s, run, program, next++, &list[k], err);
            running += status == DTP_OK ? 1 : 0;
        }
        const pid_t ended = running > 0 ? tool_child_wait(-1, &code) : -1;
        for (int32_t k = 0; k < run->jobs && ended > 0; k++) {
            if (list[k].pid == ended) {
                status = status == DTP_OK ? read_output(s, run, &list[k], code, err) : status;
                close_files(&list[k]);
                running--;
                note_progress(s, ++done);
            }
        }
    }
    return status;
}

/* ---- the command ---- */

/* The text of the suite at a revision of git; free it. */
static dtp_status at_revision(const char *file, const char *revision, char **out, dtp_err *err)
{
    int printed = -1, said = -1, code = 0;
    pid_t git = -1;
    size_t n;
    char *spec = malloc(strlen(file) + strlen(revision) + 4), *why = NULL;
    DTP_TRY(DTP_MEMORY(err, spec));
    (void)sprintf(spec, "%s:%s%s", revision, file[0] == '/' ? "" : "./", file);
    char *argv[] = {(char[]){"git"}, (char[]){"show"}, (char[]){"--end-of-options"}, spec, NULL};
    dtp_status s = tool_unnamed_file(&printed, err);
    s = s == DTP_OK ? tool_unnamed_file(&said, err) : s;
    s = s == DTP_OK ? tool_child_start("git", argv, printed, said, &git, err) : s;
    if (s == DTP_OK && tool_child_wait(git, &code) == git && WIFEXITED(code) &&
        WEXITSTATUS(code) == 0) {
        s = tool_unnamed_read(printed, GIT_BYTES, out, &n, err);
    } else if (s == DTP_OK) {
        s = tool_unnamed_read(said, GIT_BYTES, &why, &n, err);
        s = s != DTP_OK
                ? s
                : DTP_FAIL(err, DTP_INVALID, "--baseline %s: git has no %s there%s%.*s", revision,
                           file, why[0] != '\0' ? ": " : "", (int)strcspn(why, "\n"), why);
    }
    free(why);
    free(spec);
    (void)close(printed);
    (void)close(said);
    return s;
}

static dtp_status take_baseline(const suite_command *c, suite *s, dtp_err *err)
{
    char *text = NULL;
    suite then = {0};
    DTP_TRY(at_revision(c->file, c->source.baseline, &text, err));
    dtp_status status = suite_read(c->file, text, s->kind, &then, err);
    status = status == DTP_OK ? suite_take_recorded(s, &then, err) : status;
    suite_free(&then);
    free(text);
    return status;
}

static dtp_status put_file(const char *path, const suite *s,
                           void (*print)(const suite *, dtp_strbuf *), dtp_err *err)
{
    dtp_strbuf text = {0};
    if (path == NULL) {
        return DTP_OK;
    }
    print(s, &text);
    return tool_put_in(path, &text, err);
}

static dtp_status perform(suite_command *c, suite *s, suite_run *run, dtp_err *err)
{
    dtp_strbuf text = {0};
    run->allow_writes = c->source.allow_writes;
    if (c->source.baseline != NULL) {
        DTP_TRY(take_baseline(c, s, err));
    }
    DTP_TRY(suite_run_all(s, run, err));
    if (run->finish != NULL) {
        DTP_TRY(run->finish(s, err));
    }
    s->updated = c->source.update;
    for (int32_t i = 0; i < s->n; i++) {
        c->exit_code = suite_case_regressed(s, &s->cases[i]) ? 1 : c->exit_code;
    }
    DTP_TRY(put_file(c->source.junit, s, suite_junit, err));
    DTP_TRY(put_file(c->source.markdown, s, suite_markdown, err));
    if (c->source.update) {
        dtp_strbuf file = {0};
        DTP_TRY(suite_write(s, &file, err));
        DTP_TRY(tool_put_in(c->file, &file, err));
    }
    suite_text(s, &text);
    return tool_put_text(&text, err);
}

dtp_status suite_perform(suite_command *c, const suite_kind *kind, suite_run *run, dtp_err *err)
{
    suite s;
    dtp_status status = suite_read(c->file, NULL, kind, &s, err);
    status = status == DTP_OK ? perform(c, &s, run, err) : status;
    suite_free(&s);
    return status;
}
