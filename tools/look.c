/* How text for people looks: lines end within the width, and a terminal shows headings, verdicts
 * and notes in colour. */
#include "tools/look.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/options.h"
#include "tools/progress.h"

enum { COLUMNS = 80, LEAST_COLUMNS = 60, MOST_COLUMNS = 1000 };

#define BOLD "\033[1m"
#define DIM "\033[2m"
#define RED "\033[31m"
#define GREEN "\033[32m"
#define PLAIN "\033[0m"

static size_t columns_of(FILE *file)
{
    const char *given = getenv("COLUMNS");
    struct winsize size;
    long columns = 0;
    if (isatty(fileno(file)) == 0) {
        return COLUMNS;
    }
    if (given != NULL && *given != '\0') {
        columns = strtol(given, NULL, 10);
    } else if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0) {
        columns = size.ws_col;
    }
    return columns <= 0              ? COLUMNS
           : columns < LEAST_COLUMNS ? LEAST_COLUMNS
           : columns > MOST_COLUMNS  ? MOST_COLUMNS
                                     : (size_t)columns;
}

/* Open MPI gives rank 0 a terminal, which says nothing about where its output ends: of the ranks
 * of a job only those that dtrun started, which knows it, have colours. */
static bool is_on_terminal(FILE *file)
{
    static const char *const jobs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    bool in_job = false;
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        in_job = in_job || getenv(jobs[i]) != NULL;
    }
    return isatty(fileno(file)) != 0 && (!in_job || getenv(TOOL_STARTED) != NULL);
}

static bool has_colour(FILE *file)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return is_on_terminal(file) && (no == NULL || *no == '\0') &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

/* The colour of a word that is a verdict, else NULL. */
static const char *colour_of(const char *word, size_t n)
{
    static const char *const verdicts[][2] = {
        {"pass", GREEN},      {"pass:", GREEN},  {"optimal,", GREEN}, {"optimal", GREEN},
        {"(equal)", GREEN},   {"FAIL", RED},     {"FAIL:", RED},      {"FAILED", RED},
        {"WORSE", RED},       {"WRONG", RED},    {"WRONG:", RED},     {"WRONG;", RED},
        {"(DIFFERENT)", RED}, {"MISMATCH", RED}, {"infeasible", RED}};
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        if (strlen(verdicts[i][0]) == n && strncmp(verdicts[i][0], word, n) == 0) {
            return verdicts[i][1];
        }
    }
    return NULL;
}

/* A line of a report, broken into several; the first one of a paragraph is its heading. */
static void add_coloured(const char *line, bool heading, dtp_strbuf *out)
{
    const bool note = line[0] == '#' || line[0] == '*';
    bool bold = heading && !note;
    dtp_strbuf_add(out, note ? DIM : bold ? BOLD : "");
    while (*line != '\0') {
        const size_t space = strspn(line, " \n"), word = strcspn(line + space, " \n");
        const char *colour = note || bold ? NULL : colour_of(line + space, word);
        dtp_strbuf_addf(out, "%.*s%s%.*s%s", (int)space, line, colour != NULL ? colour : "",
                        (int)word, line + space, colour != NULL ? PLAIN : "");
        line += space + word;
        if (bold && word > 0 && line[-1] == ':') {
            bold = false;
            dtp_strbuf_add(out, PLAIN);
        }
    }
    dtp_strbuf_add(out, note || bold ? PLAIN : "");
}

void tool_look(FILE *file, dtp_strbuf *text)
{
    const bool colour = has_colour(file);
    const size_t columns = columns_of(file);
    dtp_strbuf out = {.failed = text->failed};
    bool heading = true;
    for (const char *at = dtp_strbuf_text(text); colour && *at != '\0';) {
        const size_t n = strcspn(at, "\n");
        dtp_strbuf line = {0};
        dtp_strbuf_addf(&line, "%.*s", (int)n, at);
        dtp_strbuf_wrap(&line, 0, columns);
        if (n > 0) {
            add_coloured(dtp_strbuf_text(&line), heading, &out);
        }
        out.failed = out.failed || line.failed;
        dtp_strbuf_free(&line);
        dtp_strbuf_add(&out, at[n] == '\n' ? "\n" : "");
        heading = n == 0;
        at += n + (at[n] == '\n' ? 1 : 0);
    }
    if (colour) {
        dtp_strbuf_free(text);
        *text = out;
    } else {
        dtp_strbuf_wrap(text, 0, columns);
    }
}

dtp_status tool_show(FILE *file, dtp_strbuf *text, dtp_err *err)
{
    tool_look(file, text);
    const dtp_status s =
        text->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    if (s == DTP_OK) {
        tool_progress_end();
        (void)fputs(dtp_strbuf_text(text), file);
    }
    dtp_strbuf_free(text);
    return s;
}
