/* Usage in every row, and which rows are contended: those where the variables' largest usages
 * together exceed the limit. */
#include "planner/solver/reduced/memory_rows.h"

#include <stdlib.h>
#include <string.h>

/* ---- normal form: disjoint pieces in order, smallest usage 0 ---- */

typedef struct sweep_step {
    int32_t row, piece;
    bool enter;
} sweep_step;

static int compare_steps(const void *a, const void *b)
{
    const sweep_step *x = a, *y = b;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row)
                            : (x->piece > y->piece) - (x->piece < y->piece);
}

/* Adds the usages between two rows; moves what all live strategies use into the base. */
static dtp_status emit(solver_reduced *w, int32_t variable, int32_t first, int32_t last,
                       const int64_t *sum, dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    int64_t least = INT64_MAX, most = 0;
    for (int32_t s = 0; s < x->k; s++) {
        if (!solver_dead(x, s)) {
            least = sum[s] < least ? sum[s] : least;
            most = sum[s] > most ? sum[s] : most;
        }
    }
    for (int32_t r = first; r < last; r++) {
        w->base[r] += least;
    }
    if (most == least) {
        return DTP_OK;
    }
    int64_t *use = malloc((size_t)x->k * sizeof *use);
    DTP_TRY(DTP_MEMORY(err, use));
    for (int32_t s = 0; s < x->k; s++) {
        use[s] = solver_dead(x, s) ? 0 : sum[s] - least;
    }
    const solver_piece *before = x->n_pieces > 0 ? &x->pieces[x->n_pieces - 1] : NULL;
    if (before != NULL && before->last == first &&
        memcmp(before->use, use, (size_t)x->k * sizeof *use) == 0) {
        free(use);
        x->pieces[x->n_pieces - 1].last = last;
        return DTP_OK;
    }
    return solver_add_piece(w, variable, first, last, use, err);
}

static dtp_status normalise(solver_reduced *w, int32_t variable, dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    const int32_t n = x->n_pieces;
    solver_piece *old = x->pieces;
    x->memory_changed = false;
    if (n == 0) {
        return DTP_OK;
    }
    x->pieces = NULL;
    x->n_pieces = 0;
    x->cap_pieces = 0;
    sweep_step *steps = malloc(2 * (size_t)n * sizeof *steps);
    int64_t *sum = calloc((size_t)x->k, sizeof *sum);
    dtp_status status = DTP_MEMORY(err, steps, sum);
    for (int32_t i = 0; i < n && status == DTP_OK; i++) {
        steps[2 * i] = (sweep_step){old[i].first, i, true};
        steps[2 * i + 1] = (sweep_step){old[i].last, i, false};
    }
    if (status == DTP_OK) {
        qsort(steps, 2 * (size_t)n, sizeof *steps, compare_steps);
    }
    int32_t depth = 0;
    for (int32_t i = 0; i < 2 * n && status == DTP_OK; i++) {
        if (depth > 0 && steps[i].row > steps[i - 1].row) {
            status = emit(w, variable, steps[i - 1].row, steps[i].row, sum, err);
        }
        const int64_t *use = old[steps[i].piece].use;
        depth += steps[i].enter ? 1 : -1;
        for (int32_t s = 0; s < x->k; s++) {
            sum[s] += steps[i].enter ? use[s] : -use[s];
        }
    }
    x->memory_changed = false;
    free(steps);
    free(sum);
    for (int32_t i = 0; i < n; i++) {
        free(old[i].use);
    }
    free(old);
    return status;
}

/* ---- rows ---- */

enum { RISES = 1, FALLS = 2, KEPT = 4 };

/* How the usages of some strategy change from row r - 1 to r. */
static void find_changes(const solver_reduced *w, uint8_t *change)
{
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t j = 0; j < x->n_pieces; j++) {
            const solver_piece *piece = &x->pieces[j], *next = piece + 1;
            const bool first = j == 0 || piece[-1].last < piece->first;
            const bool last = j + 1 == x->n_pieces || next->first > piece->last;
            change[piece->first] |= first ? RISES : 0;
            change[piece->last] |= last ? FALLS : 0;
            for (int32_t s = 0; !last && s < x->k; s++) {
                change[piece->last] |= piece->use[s] < next->use[s] ? RISES : 0;
                change[piece->last] |= piece->use[s] > next->use[s] ? FALLS : 0;
            }
        }
    }
}

/* Marks the contended rows as KEPT. */
static void keep_contended(solver_reduced *w, int64_t *sums, uint8_t *change)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t j = 0; j < x->n_pieces; j++) {
            int64_t most = 0;
            for (int32_t s = 0; s < x->k; s++) {
                const int64_t use = x->pieces[j].use[s];
                most = !solver_dead(x, s) && use > most ? use : most;
            }
            sums[x->pieces[j].first] += most;
            sums[x->pieces[j].last] -= most;
        }
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        sum += sums[r];
        w->infeasible = w->infeasible || w->base[r] > w->limit;
        change[r] |= w->base[r] + sum > w->limit || !w->options.memory_rows ? KEPT : 0;
    }
}

/* Takes the mark from rows that need no more than a neighbour, whatever is chosen; the neighbour
 * takes over their multiplier. `stack` holds the kept rows so far; change[stack[k]] tells how
 * usages change since stack[k - 1]. */
static void drop_dominated(solver_reduced *w, uint8_t *change, int32_t *stack)
{
    int32_t n = 0;
    uint8_t since = 0;
    for (int32_t r = 0; r < w->n_rows; r++) {
        since |= change[r] & (RISES | FALLS);
        if ((change[r] & KEPT) == 0) {
            continue;
        }
        while (n > 0 && (since & FALLS) == 0 && w->base[stack[n - 1]] <= w->base[r]) {
            since |= change[stack[--n]] & (RISES | FALLS);
            change[stack[n]] = 0;
            w->multiplier[r] += w->multiplier[stack[n]];
        }
        if (n > 0 && (since & RISES) == 0 && w->base[r] <= w->base[stack[n - 1]]) {
            change[r] = 0;
            w->multiplier[stack[n - 1]] += w->multiplier[r];
        } else {
            change[r] = KEPT | since;
            stack[n++] = r;
            since = 0;
        }
    }
}

/* Drops all but the contended rows that no neighbour dominates; to[r]: kept rows before r. */
static void choose_rows(solver_reduced *w, int64_t *sums, uint8_t *change, int32_t *to)
{
    int32_t kept = 0;
    find_changes(w, change);
    keep_contended(w, sums, change);
    if (w->options.memory_rows) {
        drop_dominated(w, change, to);
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        to[r] = kept;
        if ((change[r] & KEPT) != 0) {
            w->time[kept] = w->time[r];
            w->multiplier[kept] = w->multiplier[r];
            w->base[kept++] = w->base[r];
        }
    }
    to[w->n_rows] = kept;
    for (int32_t i = 0; kept < w->n_rows && i < w->n_variables; i++) {
        solver_variable *x = &w->variables[i];
        int32_t n = 0;
        for (int32_t j = 0; j < x->n_pieces; j++) {
            solver_piece piece = x->pieces[j];
            piece.first = to[piece.first];
            piece.last = to[piece.last];
            if (piece.first == piece.last) {
                free(piece.use);
                x->changed = true;
            } else {
                x->pieces[n++] = piece;
            }
        }
        x->n_pieces = n;
    }
    w->report.dropped_rows += w->n_rows - kept;
    w->n_rows = kept;
}

/* Strategies that do not fit beside what all others use at least. */
static dtp_status kill_oversized(solver_reduced *w, int32_t variable, dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    for (int32_t j = 0; j < x->n_pieces && !w->infeasible; j++) {
        const solver_piece *piece = &x->pieces[j];
        int64_t most = 0;
        for (int32_t r = piece->first; r < piece->last; r++) {
            most = w->base[r] > most ? w->base[r] : most;
        }
        for (int32_t s = 0; s < x->k && !w->infeasible; s++) {
            if (!solver_dead(x, s) && piece->use[s] > w->limit - most) {
                DTP_TRY(solver_kill(w, variable, s, &w->report.oversized, err));
            }
        }
    }
    return DTP_OK;
}

dtp_status solver_memory_refresh(solver_reduced *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive && w->variables[i].memory_changed) {
            DTP_TRY(normalise(w, i, err));
        }
    }
    int64_t *sums = calloc((size_t)w->n_rows + 1, sizeof *sums);
    uint8_t *change = calloc((size_t)w->n_rows + 1, sizeof *change);
    int32_t *to = malloc(((size_t)w->n_rows + 1) * sizeof *to);
    const bool ok = sums != NULL && change != NULL && to != NULL;
    if (ok) {
        choose_rows(w, sums, change, to);
    }
    free(sums);
    free(change);
    free(to);
    if (!ok) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d memory rows", w->n_rows);
    }
    for (int32_t i = 0; i < w->n_variables && !w->infeasible && w->options.soft_arc_consistency;
         i++) {
        if (w->variables[i].alive) {
            DTP_TRY(kill_oversized(w, i, err));
        }
    }
    return DTP_OK;
}
