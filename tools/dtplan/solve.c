/* dtplan solve: the best selection for a problem file of the contest's format, with its bound; or
 * the problem again, in that format or as an integer program. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/units.h"
#include "planner/problem/read.h"
#include "planner/solver/solve.h"
#include "planner/problem/write.h"
#include "tools/dtplan/options.h"
#include "tools/interrupt.h"
#include "tools/progress.h"

static const char USAGE[] = "dtplan solve FILE [options]";

typedef struct solve_command {
    const char *output, *write, *without, *solver;
    dtp_solve_options options;
    int64_t max_bytes;
    bool json, show_parameters;
    double limit_s, time_s;
    dtp_stop stop;
    tool_list set; /* NAME=VALUE of parameters */
    dtp_solver_parameters parameters;
    dtp_problem *problem;
    dtp_solve_result result;
} solve_command;

/* --without consistency,merge,...: reductions that are left out. */
static dtp_status read_without(solve_command *c, dtp_err *err)
{
    dtp_presolve_options *o = &c->options.presolve;
    const struct {
        const char *name;
        bool *on;
    } reductions[] = {{"consistency", &o->soft_arc_consistency},
                      {"merge", &o->functional_dependency},
                      {"dominance", &o->dominance},
                      {"eliminate", &o->pbqp},
                      {"rows", &o->memory_rows},
                      {"cap", &o->incumbent_filter}};
    for (const char *at = c->without; at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, ",");
        bool known = false;
        for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++) {
            if (strlen(reductions[i].name) == n && strncmp(reductions[i].name, at, n) == 0) {
                *reductions[i].on = false;
                known = true;
            }
        }
        if (!known) {
            return DTP_FAIL(err, DTP_INVALID,
                            "--without: '%.*s' is none of consistency, merge, dominance, "
                            "eliminate, rows, cap",
                            (int)(n < 80 ? n : 80), at);
        }
        at += at[n] == ',' ? n + 1 : n;
    }
    return DTP_OK;
}

/* ---- reports -----------------------------------------------------------------------------------
 */

#define SIZE_FIELDS(n)                                                                             \
    FIELD_INT("nodes", (n).variables), FIELD_INT("strategies", (n).strategies),                    \
        FIELD_INT("edges", (n).edges), FIELD_INT("entries", (n).entries),                          \
        FIELD_INT("rows", (n).rows)

/* What both the report and the solution file begin with. */
static void write_verdict(dtp_json_writer *w, const char *format, const solve_command *c)
{
    const dtp_solve_result *r = &c->result;
    const bool found = r->assignment != NULL, bounded = r->status != DTP_CERT_INFEASIBLE;
    tool_report_begin(w, format);
    tool_write(w, TOOL_FIELDS(FIELD_TEXT("name", c->problem->name),
                              FIELD_TEXT("status", dtp_cert_status_name(r->status)),
                              FIELD_BOOL("feasible", found && r->value.feasible),
                              FIELD_INT_OR_NULL(found, "cost", r->value.cost),
                              FIELD_INT_OR_NULL(bounded, "bound", r->bound),
                              FIELD_REAL("gap", found ? dtp_solve_gap(r) : (double)NAN),
                              FIELD_INT_OR_NULL(found, "peak", r->value.peak),
                              FIELD_INT("usage_limit", c->problem->usage_limit)));
}

static void write_report(dtp_json_writer *w, const solve_command *c)
{
    const dtp_presolve_report *r = &c->result.presolve;
    write_verdict(w, "dtp.solve/1", c);
    tool_write(w,
               TOOL_FIELDS(FIELD_REAL("time_s", c->time_s), FIELD_INT("nodes", c->result.nodes),
                           FIELD_OBJECT("presolve", FIELD_OBJECT("before", SIZE_FIELDS(r->before)),
                                        FIELD_OBJECT("after", SIZE_FIELDS(r->after)),
                                        FIELD_INT("merged_nodes", r->merged_variables),
                                        FIELD_INT("eliminated_nodes", r->eliminated_variables),
                                        FIELD_INT("separable_edges", r->separable_edges),
                                        FIELD_INT("inconsistent", r->inconsistent),
                                        FIELD_INT("capped", r->filtered),
                                        FIELD_INT("dominated", r->dominated),
                                        FIELD_INT("oversized", r->oversized),
                                        FIELD_INT("capped_entries", r->filtered_entries),
                                        FIELD_INT("dropped_rows", r->dropped_rows))));
    tool_report_end(w);
}

static void print_report(const solve_command *c, dtp_strbuf *out)
{
    const dtp_solve_result *r = &c->result;
    const dtp_presolve_size *a = &r->presolve.before, *b = &r->presolve.after;
    dtp_strbuf_addf(out, "%s: %s\n", c->problem->name, dtp_cert_status_name(r->status));
    if (r->assignment != NULL) {
        dtp_strbuf_addf(out, "cost %" PRId64 ", bound %" PRId64 ", gap %.4f %%\n", r->value.cost,
                        r->bound, 100.0 * dtp_solve_gap(r));
        dtp_strbuf_addf(out, "peak %" PRId64 " of %" PRId64 "\n", r->value.peak,
                        c->problem->usage_limit);
    }
    dtp_strbuf_addf(out,
                    "presolve: %" PRId64 " nodes to %" PRId64 ", %" PRId64 " entries to %" PRId64
                    ", %" PRId64 " memory rows to %" PRId64 "\n"
                    "          %" PRId64 " nodes merged, %" PRId64
                    " eliminated; strategies: %" PRId64 " inconsistent, %" PRId64
                    " dominated, %" PRId64 " above the cap, %" PRId64 " too large\n%" PRId64
                    " nodes of branch and bound, %s\n",
                    a->variables, b->variables, a->entries, b->entries, a->rows, b->rows,
                    r->presolve.merged_variables, r->presolve.eliminated_variables,
                    r->presolve.inconsistent, r->presolve.dominated, r->presolve.filtered,
                    r->presolve.oversized, r->nodes, dtp_seconds(c->time_s).text);
}

static dtp_status write_problem(const solve_command *c, const char *file, dtp_err *err)
{
    dtp_problem *p = NULL;
    const bool lp = strcmp(c->write, "lp") == 0;
    if (!lp && strcmp(c->write, "iopddl") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--write: '%s' is neither iopddl nor lp", c->write);
    }
    if (c->json) {
        return DTP_FAIL(err, DTP_INVALID, "--json reports a solution; with --write there is none");
    }
    DTP_TRY(dtp_problem_read(file, c->max_bytes, &p, err));
    dtp_strbuf out = {0};
    dtp_status s = DTP_OK;
    if (lp) {
        s = dtp_problem_write_lp(p, &out, err);
    } else {
        dtp_problem_write_iopddl(p, &out);
    }
    s = s == DTP_OK ? tool_put_in(c->output, &out, err) : s;
    dtp_strbuf_free(&out);
    dtp_problem_destroy(p);
    return s;
}

static dtp_status solve(void *command, const char *const *operands, dtp_err *err)
{
    solve_command *c = command;
    const double start = dtp_now_s();
    DTP_TRY(read_without(c, err));
    DTP_TRY(dtp_solver_parse(c->solver, &c->options.solver, err));
    for (int32_t i = 0; i < c->set.n; i++) {
        DTP_TRY(dtp_solver_parameters_set(&c->parameters, c->set.items[i], err));
    }
    if (c->show_parameters) {
        dtp_strbuf out = {0};
        dtp_solver_parameters_print(&c->parameters, &out);
        return tool_put_text(&out, err);
    }
    if (operands[0] == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "an argument is missing (usage: %s)", USAGE);
    }
    if (c->write != NULL) {
        return write_problem(c, operands[0], err);
    }
    c->options.parameters = &c->parameters;
    tool_progress_begin("solving");
    DTP_TRY(dtp_problem_read(operands[0], c->max_bytes, &c->problem, err));
    tool_interrupt_catch();
    c->stop.interrupted = tool_interrupted;
    if (c->limit_s > 0.0) {
        /* The end of a round, checking and writing take less than reading. */
        const double read = dtp_now_s();
        c->stop.end_s = fmax(start + c->limit_s - (read - start), read + 0.01);
    }
    c->options.stop = &c->stop;
    c->options.until_stopped = c->limit_s > 0.0;
    DTP_TRY(dtp_solve(c->problem, &c->options, &c->result, err));
    c->time_s = dtp_now_s() - start;
    dtp_json_writer solution = {0}, w = {0};
    if (c->output != NULL) {
        write_verdict(&solution, "dtp.selection/1", c);
        dtp_json_begin_array(&solution, "choice", true);
        for (int32_t i = 0; c->result.assignment != NULL && i < c->problem->n_variables; i++) {
            dtp_json_write_int(&solution, NULL, c->result.assignment[i]);
        }
        dtp_json_end_array(&solution);
        tool_report_end(&solution);
    }
    if (c->json) {
        write_report(&w, c);
    } else {
        print_report(c, &w.buf);
    }
    return tool_put_both(c->output, &solution.buf, &w.buf, !c->json, err);
}

int dtplan_solve(int argc, char **argv)
{
    solve_command c = {.options = dtp_solve_options_init(),
                       .parameters = *dtp_solver_parameters_default(),
                       .solver = "auto",
                       .max_bytes = DTP_PROBLEM_MAX_BYTES};
    const tool_option options[] = {
        {"--limit-s", TOOL_REAL, "S", &c.limit_s, 0.01, 1e7,
         "time limit, reading included (default: none)"},
        {"--iterations", TOOL_INT, "N", &c.options.iterations, 1, 1e12,
         "rounds of search, nodes of branch and bound (default: 400, with --limit-s none)"},
        {"--solver", TOOL_STRING, "NAME", &c.solver, 0, 0,
         "exact (branch and bound), large (search and bound), glpk (one integer program) or auto "
         "(by size, default)"},
        {"--threads", TOOL_COUNT, "N", &c.options.threads, 1, 64,
         "two are used at most (default 2)"},
        {"--max-entries", TOOL_INT, "N", &c.options.max_entries, 0, 1e9,
         "edge entries of the largest linear program tried (default 250000)"},
        {"--max-problem", TOOL_BYTES, "BYTES", &c.max_bytes, 0, 0,
         "memory that the problem may take when it is read, such as 8G (default 2G)"},
        {"--seed", TOOL_INT, "N", &c.options.seed, 0, 9e15, "of the search (default 1)"},
        {"--without", TOOL_STRING, "LIST", &c.without, 0, 0,
         "leave out: consistency,merge,dominance,eliminate,rows,cap"},
        {"--set", TOOL_LIST, "NAME=VALUE", &c.set, 0, 0, "sets a parameter of the solver"},
        {"--parameters", TOOL_FLAG, NULL, &c.show_parameters, 0, 0,
         "prints the parameters with their values and ranges, and solves nothing"},
        {"--write", TOOL_STRING, "iopddl|lp", &c.write, 0, 0,
         "writes the problem, as the contest's JSON or CPLEX-LP, and solves nothing"},
        {"--output", TOOL_OUT, "FILE", &c.output, 0, 0,
         "the chosen strategy per node, or what --write writes (-o; default: print)"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "result as JSON"},
        TOOL_END_OPTIONS,
    };
    const tool_parse parse = {USAGE, options, 0, 1};
    const int code = tool_run("dtplan", &parse, argc, argv, solve, &c);
    const bool infeasible = c.result.status == DTP_CERT_INFEASIBLE;
    dtp_solve_result_free(&c.result);
    dtp_problem_destroy(c.problem);
    return code == TOOL_OK && infeasible ? TOOL_INFEASIBLE : code;
}
