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
#include "tools/job.h"
#include "tools/interrupt.h"
#include "tools/progress.h"

typedef struct solve_command {
    tool_source source;
    dtp_solve_options options;
    double time_s;
    dtp_stop stop;
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
    for (const char *at = c->source.without; at != NULL && *at != '\0';) {
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

/* ---- reports ---- */

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
    const bool lp = strcmp(c->source.write, "lp") == 0;
    if (c->source.json) {
        return DTP_FAIL(err, DTP_INVALID, "--json reports a solution; with --write there is none");
    }
    DTP_TRY(dtp_problem_read(file, c->source.max_problem, &p, err));
    dtp_strbuf out = {0};
    dtp_status s = DTP_OK;
    if (lp) {
        s = dtp_problem_write_lp(p, &out, err);
    } else {
        dtp_problem_write_iopddl(p, &out);
    }
    s = s == DTP_OK ? tool_put_in(c->source.output, &out, err) : s;
    dtp_strbuf_free(&out);
    dtp_problem_destroy(p);
    return s;
}

static dtp_status solve(void *command, const char *const *operands, dtp_err *err)
{
    solve_command *c = command;
    const double start = dtp_now_s();
    DTP_TRY(read_without(c, err));
    DTP_TRY(dtp_solver_parse(c->source.solver, &c->options.solver, err));
    for (int32_t i = 0; i < c->source.set.n; i++) {
        DTP_TRY(dtp_solver_parameters_set(&c->parameters, c->source.set.items[i], err));
    }
    if (c->source.parameters) {
        dtp_strbuf out = {0};
        dtp_solver_parameters_print(&c->parameters, &out);
        return tool_put_text(&out, err);
    }
    if (operands[0] == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "an argument is missing (usage: %s)",
                        tool_usage(TOOL_SOLVE).text);
    }
    if (c->source.write != NULL) {
        return write_problem(c, operands[0], err);
    }
    c->options.parameters = &c->parameters;
    tool_progress_begin("solving");
    DTP_TRY(dtp_problem_read(operands[0], c->source.max_problem, &c->problem, err));
    tool_interrupt_catch();
    c->stop.interrupted = tool_interrupted;
    if (c->source.limit_s > 0.0) {
        /* The end of a round, checking and writing take less than reading. */
        const double read = dtp_now_s();
        c->stop.end_s = fmax(start + c->source.limit_s - (read - start), read + 0.01);
    }
    c->options.stop = &c->stop;
    c->options.until_stopped = c->source.limit_s > 0.0;
    DTP_TRY(dtp_solve(c->problem, &c->options, &c->result, err));
    c->time_s = dtp_now_s() - start;
    dtp_json_writer solution = {0}, w = {0};
    if (c->source.output != NULL) {
        write_verdict(&solution, "dtp.selection/1", c);
        dtp_json_begin_array(&solution, "choice", true);
        for (int32_t i = 0; c->result.assignment != NULL && i < c->problem->n_variables; i++) {
            dtp_json_write_int(&solution, NULL, c->result.assignment[i]);
        }
        dtp_json_end_array(&solution);
        tool_report_end(&solution);
    }
    if (c->source.json) {
        write_report(&w, c);
    } else {
        print_report(c, &w.buf);
    }
    return tool_put_both(c->source.output, &solution.buf, &w.buf, !c->source.json, err);
}

int dtplan_solve(int argc, char **argv)
{
    solve_command c = {.options = dtp_solve_options_init(),
                       .parameters = *dtp_solver_parameters_default()};
    const tool_call call = {TOOL_SOLVE, solve, &c, &c.source, &c.options};
    const int code = tool_run(&call, argc, argv);
    const bool infeasible = c.result.status == DTP_CERT_INFEASIBLE;
    dtp_solve_result_free(&c.result);
    dtp_problem_destroy(c.problem);
    return code == TOOL_OK && infeasible ? TOOL_INFEASIBLE : code;
}
