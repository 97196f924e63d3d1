/* Bottom-up, nothing is pushed down: most[p] = max(most[2p], most[2p + 1]) + added[p]. A query
 * walks from the two leaves outside the range to the root and takes in the siblings that lie
 * inside. */
#include "planner/solver/primal/primal_usage.h"

#include <stdlib.h>

static const int64_t NOTHING = INT64_MIN / 4;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void pull(solver_usage *u, int32_t p)
{
    u->most[p] = larger(u->most[2 * p], u->most[2 * p + 1]) + u->added[p];
}

dtp_status solver_usage_create(int32_t n_rows, const int64_t *start, solver_usage *out,
                               dtp_err *err)
{
    solver_usage u = {.n_rows = n_rows, .leaves = 1};
    while (u.leaves < n_rows + 2) {
        u.leaves *= 2;
    }
    u.most = calloc(2 * (size_t)u.leaves, sizeof *u.most);
    u.added = calloc(2 * (size_t)u.leaves, sizeof *u.added);
    if (u.most == NULL || u.added == NULL) {
        solver_usage_destroy(&u);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d rows", n_rows);
    }
    solver_usage_set(&u, start);
    *out = u;
    return DTP_OK;
}

void solver_usage_destroy(solver_usage *u)
{
    free(u->most);
    free(u->added);
    *u = (solver_usage){0};
}

void solver_usage_set(solver_usage *u, const int64_t *rows)
{
    for (int32_t p = 0; p < 2 * u->leaves; p++) {
        u->added[p] = 0;
        u->most[p] = NOTHING;
    }
    for (int32_t r = 0; r < u->n_rows; r++) {
        u->most[u->leaves + r + 1] = rows[r];
    }
    for (int32_t p = u->leaves - 1; p > 0; p--) {
        pull(u, p);
    }
}

static void add_at(solver_usage *u, int32_t p, int64_t amount)
{
    u->most[p] += amount;
    u->added[p] += amount;
}

void solver_usage_add(solver_usage *u, int32_t first, int32_t last, int64_t amount)
{
    int32_t s = u->leaves + first, t = u->leaves + last + 1;
    while ((s ^ t) != 1) {
        if ((s & 1) == 0) {
            add_at(u, s + 1, amount);
        }
        if ((t & 1) == 1) {
            add_at(u, t - 1, amount);
        }
        s /= 2;
        t /= 2;
        pull(u, s);
        pull(u, t);
    }
    for (s /= 2; s > 0; s /= 2) {
        pull(u, s);
    }
}

int64_t solver_usage_max(const solver_usage *u, int32_t first, int32_t last)
{
    int32_t s = u->leaves + first, t = u->leaves + last + 1;
    int64_t left = NOTHING, right = NOTHING;
    while ((s ^ t) != 1) {
        left = (s & 1) == 0 ? larger(left, u->most[s + 1]) : left;
        right = (t & 1) == 1 ? larger(right, u->most[t - 1]) : right;
        s /= 2;
        t /= 2;
        left += u->added[s];
        right += u->added[t];
    }
    int64_t most = larger(left, right);
    for (s /= 2; s > 0; s /= 2) {
        most += u->added[s];
    }
    return most;
}

int64_t solver_usage_peak(const solver_usage *u)
{
    return u->n_rows > 0 ? u->most[1] : NOTHING;
}

void solver_usage_read(const solver_usage *u, int64_t *rows)
{
    for (int32_t r = 0; r < u->n_rows; r++) {
        int32_t p = u->leaves + r + 1;
        int64_t at = u->most[p];
        for (p /= 2; p > 0; p /= 2) {
            at += u->added[p];
        }
        rows[r] = at;
    }
}
