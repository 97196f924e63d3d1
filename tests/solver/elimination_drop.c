/* Dropping of strategies that another one replaces whatever the other variables do. */
#include "tests/solver/elimination_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_COMPARED = 1 << 18 }; /* cells of a table that strategies are compared in */

/* worst[s * k + t] += the most that s costs above t; dead[t]: t is forbidden with everything. */
static void compare(const elimination_table *t, int32_t k, int64_t *one, int64_t *worst, bool *dead)
{
    for (int32_t i = 0; i < k * k; i++) {
        one[i] = -ELIMINATION_FORBIDDEN;
    }
    for (const int64_t *row = t->cost; row < t->cost + t->size; row += k) {
        for (int32_t b = 0; b < k; b++) {
            for (int32_t a = 0; a < k && row[b] < ELIMINATION_FORBIDDEN; a++) {
                const int64_t more =
                    row[a] < ELIMINATION_FORBIDDEN ? row[a] - row[b] : ELIMINATION_FORBIDDEN;
                one[a * k + b] = more > one[a * k + b] ? more : one[a * k + b];
            }
        }
    }
    for (int32_t a = 0; a < k; a++) {
        dead[a] = dead[a] || one[a * k + a] < 0;
    }
    for (int32_t i = 0; i < k * k; i++) {
        const bool never = worst[i] == ELIMINATION_FORBIDDEN || one[i] == ELIMINATION_FORBIDDEN;
        worst[i] = never ? ELIMINATION_FORBIDDEN : worst[i] + one[i];
    }
}

static bool uses_no_more(const elimination *e, int32_t variable, int32_t s, int32_t t)
{
    const int32_t *id = e->strategy[variable], n = dtp_problem_n_intervals(e->p);
    for (int32_t i = 0; i < n && e->with_usage; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(e->p, i);
        if (x.variable == variable && x.begin < x.end && x.usage[id[s]] > x.usage[id[t]]) {
            return false;
        }
    }
    return true;
}

void elimination__find_loud(elimination *e, int32_t variable)
{
    e->loud[variable] = false;
    for (int32_t s = 1; s < e->left[variable]; s++) {
        e->loud[variable] = e->loud[variable] || !uses_no_more(e, variable, 0, s) ||
                            !uses_no_more(e, variable, s, 0);
    }
}

/* Strategies keep[0..n-1] of a variable stay, also in the tables of earlier steps. */
static void keep_strategies(elimination *e, int32_t variable, int32_t n, const int32_t *keep)
{
    for (int32_t i = 0; i < e->n; i++) {
        elimination_table *t = &e->tables[i];
        for (int32_t j = 0; elimination__find(t, variable) >= 0 && j < t->n; j++) {
            e->weight[t->variables[j]] = 0;
        }
        elimination__keep_entries(e, t, variable, n, keep, 1);
    }
    for (int32_t i = 0; i < e->n_steps; i++) {
        const elimination_step *step = &e->steps[i];
        for (int32_t j = 0; j < step->n_tables; j++) {
            elimination__keep_entries(e, &step->tables[j], variable, n, keep,
                                      e->left[step->variable]);
        }
    }
    for (int32_t s = 0; s < n; s++) {
        e->strategy[variable][s] = e->strategy[variable][keep[s]];
    }
    e->left[variable] = n;
    elimination__find_loud(e, variable);
}

/* One strategy stays in any case. Returns whether some were dropped. */
static bool drop_some(elimination *e, int32_t variable, const int64_t *worst, bool *dead)
{
    const int32_t k = e->left[variable];
    int32_t n = 0, *keep = elimination__make((size_t)k, sizeof *keep);
    for (int32_t t = 0; t < k; t++) {
        for (int32_t s = 0; s < k && !dead[t]; s++) {
            dead[t] =
                s != t && !dead[s] && worst[s * k + t] <= 0 && uses_no_more(e, variable, s, t);
        }
    }
    for (int32_t s = 0; s < k; s++) {
        keep[n] = s;
        n += dead[s] ? 0 : 1;
    }
    n = n > 0 ? n : 1;
    if (n < k) {
        keep_strategies(e, variable, n, keep);
    }
    free(keep);
    return n < k;
}

static bool simplify_variable(elimination *e, int32_t variable)
{
    const size_t k = (size_t)e->left[variable];
    int64_t *worst = elimination__make(k * k, sizeof *worst),
            *one = elimination__make(k * k, sizeof *one);
    bool *dead = elimination__make(k, sizeof *dead), small = k > 1;
    for (int32_t i = 0; i < e->n && small; i++) {
        if (elimination__find(&e->tables[i], variable) >= 0) {
            small = e->tables[i].size <= MAX_COMPARED;
        }
    }
    for (int32_t i = 0; i < e->n && small; i++) {
        if (elimination__find(&e->tables[i], variable) >= 0) {
            elimination_table rows = elimination__variable_last(e, &e->tables[i], variable);
            compare(&rows, (int32_t)k, one, worst, dead);
            elimination__table_free(&rows);
        }
    }
    const bool dropped = small && drop_some(e, variable, worst, dead);
    free(worst);
    free(one);
    free(dead);
    return dropped;
}

/* Until nothing can be dropped. */
void elimination__simplify(elimination *e)
{
    bool again = true;
    while (again) {
        again = false;
        for (int32_t variable = 0; variable < e->p->n_variables; variable++) {
            again = (!e->gone[variable] && simplify_variable(e, variable)) || again;
        }
    }
}
