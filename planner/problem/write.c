/* Text forms of a selection problem and of its solutions. */
#include "planner/problem/write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/units.h"

static void add_number(dtp_strbuf *out, const char *before, int64_t value)
{
    dtp_strbuf_addf(out, "%s%" PRId64, before, value);
}

static void add_list(dtp_strbuf *out, int64_t index, const int64_t *values, int64_t n)
{
    dtp_strbuf_add(out, index > 0 ? ",\n        [" : "\n        [");
    for (int64_t i = 0; i < n; i++) {
        add_number(out, i > 0 ? ", " : "", values[i]);
    }
    dtp_strbuf_add(out, "]");
}

void dtp_problem_write_iopddl(const dtp_problem *p, dtp_strbuf *out)
{
    const int32_t n = dtp_problem_n_intervals(p);
    dtp_strbuf_add(out, "{\n  \"problem\": {\n    \"name\": ");
    /* The name as a JSON string. */
    dtp_json_writer w = {0};
    dtp_json_write_string(&w, NULL, p->name);
    dtp_strbuf_join(out, &w.buf);
    dtp_strbuf_add(out, ",\n    \"nodes\": {\n      \"intervals\": [");
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(p, i);
        const int64_t interval[] = {x.begin, x.end};
        add_list(out, i, interval, 2);
    }
    dtp_strbuf_add(out, "\n      ],\n      \"costs\": [");
    for (int32_t i = 0; i < p->n_variables; i++) {
        add_list(out, i, p->cost + p->first[i], p->first[i + 1] - p->first[i]);
    }
    for (int32_t x = 0; x < p->n_extra; x++) {
        const int32_t k = dtp_problem_n_strategies(p, p->extra_variable[x]);
        dtp_strbuf_add(out, ",\n        [");
        for (int32_t i = 0; i < k; i++) {
            dtp_strbuf_add(out, i > 0 ? ", 0" : "0");
        }
        dtp_strbuf_add(out, "]");
    }
    dtp_strbuf_add(out, "\n      ],\n      \"usages\": [");
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(p, i);
        add_list(out, i, x.usage, dtp_problem_n_strategies(p, x.variable));
    }
    dtp_strbuf_add(out, "\n      ]\n    },\n    \"edges\": {\n      \"nodes\": [");
    for (int32_t e = 0; e < p->n_edges + p->n_extra; e++) {
        const int32_t x = e - p->n_edges;
        const int64_t pair[] = {x < 0 ? p->edge_a[e] : p->extra_variable[x],
                                x < 0 ? p->edge_b[e] : p->n_variables + x};
        add_list(out, e, pair, 2);
    }
    dtp_strbuf_add(out, "\n      ],\n      \"costs\": [");
    for (int32_t e = 0; e < p->n_edges; e++) {
        add_list(out, e, p->edge_cost + p->edge_first[e],
                 dtp_problem_edge_end(p, e) - p->edge_first[e]);
    }
    for (int32_t x = 0; x < p->n_extra; x++) {
        /* The file has one interval per variable: a further one becomes a variable of its own that
         * costs nothing and is tied to its variable by an edge. */
        const int32_t k = dtp_problem_n_strategies(p, p->extra_variable[x]);
        dtp_strbuf_add(out, p->n_edges + x > 0 ? ",\n        [" : "\n        [");
        for (int32_t i = 0; i < k; i++) {
            for (int32_t j = 0; j < k; j++) {
                add_number(out, i + j > 0 ? ", " : "", i == j ? 0 : DTP_FORBIDDEN);
            }
        }
        dtp_strbuf_add(out, "]");
    }
    dtp_strbuf_addf(out, "\n      ]\n    },\n    \"usage_limit\": %" PRId64 "\n  }\n}\n",
                    p->usage_limit);
}

/* ---- CPLEX-LP ---- */

static bool allowed(const dtp_problem *p, int32_t i, int64_t s)
{
    return p->cost[p->first[i] + s] < DTP_FORBIDDEN;
}

static int64_t entry(const dtp_problem *p, int32_t e, int64_t i, int64_t j)
{
    const int64_t cols = dtp_problem_n_strategies(p, p->edge_b[e]);
    return p->edge_cost[p->edge_first[e] + i * cols + j];
}

/* The row of strategy s at one end of an edge: sum of z over the other end's strategies = y. */
static void add_marginal_row(const dtp_problem *p, int32_t e, bool end_a, int64_t s,
                             dtp_strbuf *out)
{
    const int32_t self = end_a ? p->edge_a[e] : p->edge_b[e];
    const int32_t other = end_a ? p->edge_b[e] : p->edge_a[e];
    dtp_strbuf_addf(out, " %c_%d_%" PRId64 ": %s y_%d_%" PRId64, end_a ? 'a' : 'b', e, s,
                    allowed(p, self, s) ? "-1" : "0", self, s);
    for (int64_t t = 0; t < dtp_problem_n_strategies(p, other); t++) {
        const int64_t i = end_a ? s : t, j = end_a ? t : s;
        if (entry(p, e, i, j) < DTP_FORBIDDEN) {
            dtp_strbuf_addf(out, "\n + z_%d_%" PRId64 "_%" PRId64, e, i, j);
        }
    }
    dtp_strbuf_add(out, " = 0\n");
}

static dtp_status add_memory_row(const dtp_problem *p, int64_t time, dtp_strbuf *out, dtp_err *err)
{
    int64_t *use = malloc(((size_t)p->first[p->n_variables] + 1) * sizeof *use);
    bool *live = malloc((size_t)p->n_variables + 1);
    const bool ok = use != NULL && live != NULL;
    if (ok) {
        /* What every strategy uses at a time, by strategy; live[i]: variable i has an interval
         * there. */
        memset(use, 0, (size_t)p->first[p->n_variables] * sizeof *use);
        memset(live, 0, (size_t)p->n_variables * sizeof *live);
        for (int32_t i = 0; i < dtp_problem_n_intervals(p); i++) {
            const dtp_problem_interval x = dtp_problem_interval_at(p, i);
            if (x.begin <= time && time < x.end) {
                live[x.variable] = true;
                for (int64_t s = 0; s < dtp_problem_n_strategies(p, x.variable); s++) {
                    use[p->first[x.variable] + s] += allowed(p, x.variable, s) ? x.usage[s] : 0;
                }
            }
        }
        dtp_strbuf_addf(out, " m_%" PRId64 ":", time);
    }
    for (int32_t i = 0; i < p->n_variables && ok; i++) {
        for (int64_t s = 0; live[i] && s < dtp_problem_n_strategies(p, i); s++) {
            dtp_strbuf_addf(out, "\n + %" PRId64 " y_%d_%" PRId64, use[p->first[i] + s], i, s);
        }
    }
    dtp_strbuf_addf(out, " <= %" PRId64 "\n", p->usage_limit);
    free(use);
    free(live);
    return ok ? DTP_OK
              : DTP_FAIL(err, DTP_NOMEM, "out of memory for the usages of %d nodes",
                         p->n_variables);
}

static int compare_i64(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* At every begin of an interval that is followed by an end before the next begin. */
static dtp_status add_memory_rows(const dtp_problem *p, dtp_strbuf *out, dtp_err *err)
{
    const int32_t n_intervals = dtp_problem_n_intervals(p);
    int64_t *begins = malloc(2 * ((size_t)n_intervals + 1) * sizeof *begins), n = 0, e = 0;
    DTP_TRY(DTP_MEMORY(err, begins));
    int64_t *ends = begins + n_intervals + 1;
    for (int32_t i = 0; i < n_intervals; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(p, i);
        if (x.begin < x.end) {
            begins[n] = x.begin;
            ends[n++] = x.end;
        }
    }
    qsort(begins, (size_t)n, sizeof *begins, compare_i64);
    qsort(ends, (size_t)n, sizeof *ends, compare_i64);
    dtp_status s = DTP_OK;
    for (int64_t b = 0; b < n && s == DTP_OK; b++) {
        while (e < n && ends[e] <= begins[b]) {
            e++;
        }
        if (b + 1 == n || (begins[b + 1] > begins[b] && ends[e] <= begins[b + 1])) {
            s = add_memory_row(p, begins[b], out, err);
        }
    }
    free(begins);
    return s;
}

dtp_status dtp_problem_write_lp(const dtp_problem *p, dtp_strbuf *out, dtp_err *err)
{
    dtp_strbuf_add(out, "Minimize\n obj:");
    for (int32_t i = 0; i < p->n_variables; i++) {
        for (int64_t s = 0; s < dtp_problem_n_strategies(p, i); s++) {
            if (allowed(p, i, s)) {
                dtp_strbuf_addf(out, "\n + %" PRId64 " y_%d_%" PRId64, p->cost[p->first[i] + s], i,
                                s);
            }
        }
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int64_t cols = dtp_problem_n_strategies(p, p->edge_b[e]);
        for (int64_t k = p->edge_first[e]; k < dtp_problem_edge_end(p, e); k++) {
            const int64_t at = k - p->edge_first[e];
            if (p->edge_cost[k] < DTP_FORBIDDEN) {
                dtp_strbuf_addf(out, "\n + %" PRId64 " z_%d_%" PRId64 "_%" PRId64, p->edge_cost[k],
                                e, at / cols, at % cols);
            }
        }
    }
    dtp_strbuf_add(out, "\nSubject To\n");
    for (int32_t i = 0; i < p->n_variables; i++) {
        /* Forbidden strategies keep their place with coefficient 0: a row is never empty. */
        dtp_strbuf_addf(out, " c_%d:", i);
        for (int64_t s = 0; s < dtp_problem_n_strategies(p, i); s++) {
            dtp_strbuf_addf(out, "\n + %d y_%d_%" PRId64, allowed(p, i, s) ? 1 : 0, i, s);
        }
        dtp_strbuf_add(out, " = 1\n");
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        for (int64_t s = 0; s < dtp_problem_n_strategies(p, p->edge_a[e]); s++) {
            add_marginal_row(p, e, true, s, out);
        }
        for (int64_t s = 0; s < dtp_problem_n_strategies(p, p->edge_b[e]); s++) {
            add_marginal_row(p, e, false, s, out);
        }
    }
    DTP_TRY(add_memory_rows(p, out, err));
    /* Forbidden strategies are fixed: their names occur in rows, with coefficient 0. */
    dtp_strbuf_add(out, "Bounds\n");
    for (int32_t i = 0; i < p->n_variables; i++) {
        for (int64_t s = 0; s < dtp_problem_n_strategies(p, i); s++) {
            if (!allowed(p, i, s)) {
                dtp_strbuf_addf(out, " y_%d_%" PRId64 " = 0\n", i, s);
            }
        }
    }
    dtp_strbuf_add(out, "Binary\n");
    for (int32_t i = 0; i < p->n_variables; i++) {
        for (int64_t s = 0; s < dtp_problem_n_strategies(p, i); s++) {
            if (allowed(p, i, s)) {
                dtp_strbuf_addf(out, " y_%d_%" PRId64 "\n", i, s);
            }
        }
    }
    dtp_strbuf_add(out, "End\n");
    return DTP_OK;
}

/* ---- for reading ---- */

static void print_cost(int64_t cost, dtp_strbuf *out)
{
    if (cost < DTP_FORBIDDEN) {
        dtp_strbuf_addf(out, " %10s", dtp_seconds(1e-12 * (double)cost).text);
    } else {
        dtp_strbuf_addf(out, " %10s", "-");
    }
}

dtp_status dtp_problem_print(const dtp_problem *p, const dtp_problem_names *names, dtp_strbuf *out,
                             dtp_err *err)
{
    int64_t *most = calloc((size_t)p->first[p->n_variables] + 1, sizeof *most);
    DTP_TRY(DTP_MEMORY(err, most));
    /* Raises `most`, by strategy of the problem, to the usages of every interval. */
    for (int32_t i = 0; i < dtp_problem_n_intervals(p); i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(p, i);
        for (int32_t s = 0; x.begin < x.end && s < dtp_problem_n_strategies(p, x.variable); s++) {
            int64_t *at = &most[p->first[x.variable] + s];
            *at = x.usage[s] > *at ? x.usage[s] : *at;
        }
    }
    dtp_strbuf_addf(out, "%s: %d variables, %" PRId64 " strategies, %d edges, %d intervals\n",
                    p->name, p->n_variables, p->first[p->n_variables], p->n_edges,
                    dtp_problem_n_intervals(p));
    for (int32_t i = 0; i < p->n_variables; i++) {
        dtp_strbuf_addf(out, "\nvariable %d: ", i);
        names->variable(names->user, i, out);
        dtp_strbuf_addf(out, "\n %10s %10s  strategy\n", "cost", "most usage");
        for (int32_t s = 0; s < dtp_problem_n_strategies(p, i); s++) {
            print_cost(p->cost[p->first[i] + s], out);
            dtp_strbuf_addf(out, " %10s  ", dtp_byte_count((double)most[p->first[i] + s]).text);
            names->strategy(names->user, i, s, out);
            dtp_strbuf_add(out, "\n");
        }
    }
    free(most);
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int32_t rows = dtp_problem_n_strategies(p, p->edge_a[e]);
        const int32_t cols = dtp_problem_n_strategies(p, p->edge_b[e]);
        int32_t like = 0;
        while (p->edge_first[like] != p->edge_first[e]) {
            like++;
        }
        dtp_strbuf_addf(out, "\nedge %d: variable %d (rows) to variable %d", e, p->edge_a[e],
                        p->edge_b[e]);
        if (like < e) {
            dtp_strbuf_addf(out, ", costs of edge %d", like);
        }
        for (int64_t k = 0; like == e && k < (int64_t)rows * cols; k++) {
            dtp_strbuf_add(out, k % cols == 0 ? "\n" : "");
            print_cost(p->edge_cost[p->edge_first[e] + k], out);
        }
    }
    dtp_strbuf_add(out, "\n");
    return DTP_OK;
}
