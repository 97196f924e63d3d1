/* A suite (docs/regress.md): cases of a command with what they gave when they were recorded, and
 * how much worse they may become. `dtplan regress` plans the cases, `dtrun regress` runs them. */
#ifndef DTP_TOOLS_REGRESS_SUITE_H
#define DTP_TOOLS_REGRESS_SUITE_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/strbuf.h"
#include "tools/options.h"

/* How the value of a metric is written, and how much more is a regression. */
typedef enum suite_unit { SUITE_SECONDS, SUITE_BYTES, SUITE_NUMBER, SUITE_SHARE } suite_unit;

/* A metric of a kind of suites. */
typedef struct suite_metric {
    const char *name; /* key of the file; NULL ends the list */
    suite_unit unit;
    bool judged;      /* more than the tolerance allows is a regression */
    bool shown;       /* a column of the table */
    double tolerance; /* unless the suite says another; of shares absolute, else relative */
} suite_metric;

/* A kind of suites: a format, and the command that it has cases of. */
typedef struct suite_kind {
    const char *format;
    tool_command_id command;
    const suite_metric *metrics;
} suite_kind;

/* A fact: what the result depends on, or what was decided. */
typedef struct suite_fact {
    const char *key, *value;
} suite_fact;

/* Groups of facts, in the order in which a cause is looked for. */
typedef enum suite_group {
    SUITE_OPTIONS,
    SUITE_MODEL,
    SUITE_MACHINE,
    SUITE_LAYOUTS,
    SUITE_GROUPS
} suite_group;
extern const char *const suite_group_names[SUITE_GROUPS]; /* keys of the file */

enum { SUITE_MAX_METRICS = 24, SUITE_MAX_ARGS = 96 };

/* The option of `dtplan plan` and `dtrun run` that refuses all that write files. */
#define SUITE_NO_WRITES "--no-writes"

/* What a case gave. */
typedef struct suite_result {
    bool there;
    double values[SUITE_MAX_METRICS]; /* by metric; NaN: not there */
    int32_t n_facts[SUITE_GROUPS];
    suite_fact *facts[SUITE_GROUPS]; /* sorted by key */
} suite_result;

typedef struct suite_case {
    const char *name;
    int32_t n_args;
    const char *args[SUITE_MAX_ARGS + 1]; /* of the command, NULL-terminated */
    const char *model, *machine;          /* NULL: none */
    const char *reference;  /* of jobs: the case whose step time counts as 1; NULL: no ratio */
    const dtp_json *source; /* as the file says it */
    suite_result recorded, now;
    const char *failure; /* it gave nothing; NULL: it did */
    double seconds;      /* how long it ran */
} suite_case;

typedef struct suite {
    dtp_arena *arena;
    dtp_json_doc *doc;
    const char *file;
    const suite_kind *kind;
    const suite_metric *metrics;         /* of the kind */
    double tolerance[SUITE_MAX_METRICS]; /* by metric */
    bool two_sided;                      /* less than the tolerance allows is a regression, too */
    bool updated;                        /* what the cases give now is recorded: none regresses */
    int32_t n;
    suite_case *cases;
} suite;

/* Reads a suite of this kind; `text` NULL: from the file. Free with suite_free, also after a
 * failure. */
dtp_status suite_read(const char *file, const char *text, const suite_kind *kind, suite *out,
                      dtp_err *err) DTP_MUST_CHECK;
void suite_free(suite *s);
/* Takes what was recorded from another version of the suite, by the names of cases; cases that it
 * lacks have nothing. */
dtp_status suite_take_recorded(suite *s, const suite *from, dtp_err *err) DTP_MUST_CHECK;
/* The file with what the cases gave now as what is recorded. */
dtp_status suite_write(const suite *s, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

/* Notes that a case cannot be run or read; copies the text. */
dtp_status suite_case_fail(suite *s, suite_case *c, const char *why, dtp_err *err) DTP_MUST_CHECK;

/* Adds a fact; copies both texts. An option that is there already has both values. */
dtp_status suite_add_fact(suite *s, suite_result *r, suite_group group, const char *key,
                          const char *value, dtp_err *err) DTP_MUST_CHECK;
void suite_sort_facts(suite_result *r);
/* Adds the options of a case to what it depends on. */
dtp_status suite_add_options(suite *s, suite_case *c, dtp_err *err) DTP_MUST_CHECK;

/* Index of a metric by name, -1: none. */
int32_t suite_metric_at(const suite_metric *metrics, const char *name);

/* ---- comparing (regress/compare.c) ---- */

/* Whether metric m became worse than allowed; whether it changed. False when either is not
 * known. */
bool suite_is_worse(const suite *s, const suite_case *c, int32_t m);
bool suite_has_changed(const suite *s, const suite_case *c, int32_t m);
/* A case that fails, or has a metric that is worse. */
bool suite_case_regressed(const suite *s, const suite_case *c);
/* Why a case gives something else than what was recorded, a line each; nothing when it does not. */
void suite_why(const suite *s, const suite_case *c, dtp_strbuf *out);
void suite_value_print(suite_unit unit, double value, dtp_strbuf *out);

/* The table of all cases with causes, as text for a terminal, as Markdown for a comment, as
 * JUnit's XML. */
void suite_text(const suite *s, dtp_strbuf *out);
void suite_markdown(const suite *s, dtp_strbuf *out);
void suite_junit(const suite *s, dtp_strbuf *out);

/* ---- running (regress/run.c) ---- */

typedef struct suite_run {
    const char *const
        *before;       /* arguments before those of a case, such as "plan"; NULL-terminated */
    int32_t jobs;      /* at a time */
    bool quiet;        /* no progress line on a terminal */
    bool allow_writes; /* else cases get SUITE_NO_WRITES */
    /* Reads the JSON that a case printed into c->now; a failure is the case's. */
    dtp_status (*read)(suite *s, suite_case *c, const dtp_json *root, dtp_err *err);
    /* Once all cases have run; NULL: there is nothing to do. */
    dtp_status (*finish)(suite *s, dtp_err *err);
} suite_run;

/* Runs this program for every case. A case that fails says why in c->failure. */
dtp_status suite_run_all(suite *s, const suite_run *run, dtp_err *err) DTP_MUST_CHECK;

/* What both commands do with their suite: run, compare, report, record. */
typedef struct suite_command {
    tool_source source;
    const char *file;
    int exit_code; /* 1 on a regression */
} suite_command;

dtp_status suite_perform(suite_command *c, const suite_kind *kind, suite_run *run,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
