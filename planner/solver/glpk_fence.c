/* The one place that calls GLPK, which aborts the process on misuse. */
#include "planner/solver/glpk_fence.h"

#include <glpk.h>

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/problem/problem.h"

enum { GLPK_NO_MEMORY = 2 }; /* of glp_init_env */
enum { POLL_MS = 100 };      /* GLPK reports progress so often, and the stop token is polled */

typedef struct row {
    double lo, hi;
    int32_t first, n; /* entries */
} row;

struct dtp_ilp {
    int32_t n_cols, n_rows, n_entries;
    int64_t cap_cols, cap_rows, cap_entry_cols, cap_entry_coefs;
    dtp_ilp_col *cols;
    row *rows;
    int32_t *entry_col;
    double *entry_coef;
    double *values; /* of the last solution */
    double *duals;  /* of the last relaxation */
};

/* State of one call into GLPK, reached from its hooks. */
typedef struct fence {
    jmp_buf failed;
    char text[512]; /* last terminal output */
    glp_prob *prob;
    int *index; /* one row in GLPK's form, from 1 */
    double *coef;
    size_t room; /* entries of index and coef, less one */
    dtp_ilp *ilp;
    const dtp_ilp_options *options;
    dtp_err *err;
    dtp_status lazy_status;
    double *lazy_values; /* by column */
    int64_t nodes;
    double bound; /* of the open nodes */
    bool stopped; /* the token fired inside GLPK */
} fence;

dtp_ilp_options dtp_ilp_options_init(void)
{
    return (dtp_ilp_options){.node_limit = 200000};
}

dtp_status dtp_ilp_create(dtp_ilp **out, dtp_err *err)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for an ILP");
}

void dtp_ilp_destroy(dtp_ilp *ilp)
{
    if (ilp == NULL) {
        return;
    }
    free(ilp->cols);
    free(ilp->rows);
    free(ilp->entry_col);
    free(ilp->entry_coef);
    free(ilp->values);
    free(ilp->duals);
    free(ilp);
}

dtp_status dtp_ilp_add_col(dtp_ilp *ilp, dtp_ilp_col col, int32_t *index, dtp_err *err)
{
    if (!(col.lo <= col.hi) || !isfinite(col.cost)) {
        return DTP_FAIL(err, DTP_INVALID, "ilp: column %d: bounds %g..%g, cost %g", ilp->n_cols,
                        col.lo, col.hi, col.cost);
    }
    if (ilp->n_cols >= INT32_MAX / 4) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d ILP columns", ilp->n_cols + 1);
    }
    DTP_TRY(dtp_problem__reserve(&ilp->cols, (int64_t)ilp->n_cols + 1, &ilp->cap_cols,
                                 sizeof *ilp->cols, err));
    if (index != NULL) {
        *index = ilp->n_cols;
    }
    ilp->cols[ilp->n_cols++] = col;
    return DTP_OK;
}

dtp_status dtp_ilp_add_row(dtp_ilp *ilp, double lo, double hi, int32_t n, const int32_t *cols,
                           const double *coefs, int32_t *index, dtp_err *err)
{
    if (!(lo <= hi)) {
        return DTP_FAIL(err, DTP_INVALID, "ilp: row %d: bounds %g..%g", ilp->n_rows, lo, hi);
    }
    for (int32_t k = 0; k < n; k++) {
        if (cols[k] < 0 || cols[k] >= ilp->n_cols || !isfinite(coefs[k])) {
            return DTP_FAIL(err, DTP_INVALID, "ilp: row %d: coefficient %g of column %d (of %d)",
                            ilp->n_rows, coefs[k], cols[k], ilp->n_cols);
        }
    }
    if (ilp->n_rows >= INT32_MAX / 4 || ilp->n_entries >= INT32_MAX / 4 - n) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d ILP rows", ilp->n_rows + 1);
    }
    const int64_t entries = (int64_t)ilp->n_entries + n;
    DTP_TRY(dtp_problem__reserve(&ilp->rows, (int64_t)ilp->n_rows + 1, &ilp->cap_rows,
                                 sizeof *ilp->rows, err));
    DTP_TRY(dtp_problem__reserve(&ilp->entry_col, entries, &ilp->cap_entry_cols,
                                 sizeof *ilp->entry_col, err));
    DTP_TRY(dtp_problem__reserve(&ilp->entry_coef, entries, &ilp->cap_entry_coefs,
                                 sizeof *ilp->entry_coef, err));
    if (index != NULL) {
        *index = ilp->n_rows;
    }
    ilp->rows[ilp->n_rows++] = (row){.lo = lo, .hi = hi, .first = ilp->n_entries, .n = n};
    for (int32_t k = 0; k < n; k++) {
        ilp->entry_col[ilp->n_entries] = cols[k];
        ilp->entry_coef[ilp->n_entries++] = coefs[k];
    }
    return DTP_OK;
}

void dtp_ilp_set_cost(dtp_ilp *ilp, int32_t col, double cost)
{
    ilp->cols[col].cost = cost;
}

void dtp_ilp_add_cost(dtp_ilp *ilp, int32_t col, double cost)
{
    ilp->cols[col].cost += cost;
}

void dtp_ilp_set_col_bounds(dtp_ilp *ilp, int32_t col, double lo, double hi)
{
    ilp->cols[col].lo = lo;
    ilp->cols[col].hi = hi;
}

void dtp_ilp_set_row_bounds(dtp_ilp *ilp, int32_t r, double lo, double hi)
{
    ilp->rows[r].lo = lo;
    ilp->rows[r].hi = hi;
}

int32_t dtp_ilp_n_cols(const dtp_ilp *ilp)
{
    return ilp->n_cols;
}

int32_t dtp_ilp_n_rows(const dtp_ilp *ilp)
{
    return ilp->n_rows;
}

/* ---- inside the fence ---- */

static void on_error(void *info)
{
    fence *f = info;
    longjmp(f->failed, 1);
}

static int on_output(void *info, const char *text)
{
    fence *f = info;
    if (glp_at_error() == 0) { /* progress: a simplex that takes long is left from here */
        if (dtp_stopped(f->options->stop)) {
            f->stopped = true;
            longjmp(f->failed, 1);
        }
        return 1;
    }
    size_t used = strlen(f->text);
    snprintf(f->text + used, sizeof f->text - used, "%s", text);
    return 1; /* nothing on the terminal */
}

static int bound_type(double lo, double hi)
{
    if (lo == hi) {
        return GLP_FX;
    }
    if (isinf(lo)) {
        return isinf(hi) ? GLP_FR : GLP_UP;
    }
    return isinf(hi) ? GLP_LO : GLP_DB;
}

static void load_row(fence *f, int32_t i)
{
    const dtp_ilp *ilp = f->ilp;
    const row *r = &ilp->rows[i];
    int n = 0;
    for (int32_t k = 0; k < r->n; k++) {
        if (ilp->entry_coef[r->first + k] != 0.0) {
            f->index[++n] = ilp->entry_col[r->first + k] + 1;
            f->coef[n] = ilp->entry_coef[r->first + k];
        }
    }
    const int at = glp_add_rows(f->prob, 1);
    glp_set_row_bnds(f->prob, at, bound_type(r->lo, r->hi), r->lo, r->hi);
    glp_set_mat_row(f->prob, at, n, f->index, f->coef);
}

/* Lets the caller add rows that the present values violate; the number added. */
static int32_t add_lazy_rows(fence *f)
{
    const int32_t before = f->ilp->n_rows;
    if (f->options->lazy == NULL || f->lazy_status != DTP_OK) {
        return 0;
    }
    for (int32_t j = 0; j < f->ilp->n_cols; j++) {
        f->lazy_values[j] = glp_get_col_prim(f->prob, j + 1);
    }
    f->lazy_status = f->options->lazy(f->options->lazy_user, f->ilp, f->lazy_values, f->err);
    for (int32_t i = before; i < f->ilp->n_rows; i++) {
        if ((size_t)f->ilp->rows[i].n > f->room) {
            f->lazy_status = DTP_FAIL(f->err, DTP_INVALID, "ilp: row %d repeats columns", i);
        }
        if (f->lazy_status != DTP_OK) {
            return 0;
        }
        load_row(f, i);
    }
    return f->ilp->n_rows - before;
}

static void on_search(glp_tree *tree, void *info)
{
    fence *f = info;
    int total = 0;
    glp_ios_tree_size(tree, NULL, NULL, &total);
    f->nodes = total;
    if ((f->options->node_limit > 0 && total > f->options->node_limit) ||
        dtp_stopped(f->options->stop)) {
        int best = glp_ios_best_node(tree);
        if (best != 0) {
            f->bound = glp_ios_node_bound(tree, best);
        }
        glp_ios_terminate(tree);
    }
}

/* L(pi) = sum_i min over the row's range of pi_i r_i + sum_j min over the column's range of
 * (c_j - pi A_j) x_j: a lower bound for every pi. Terms with a tiny reduced cost against an
 * infinite bound make it -INFINITY, which is safe. */
static dtp_status dual_bound(const dtp_ilp *ilp, glp_prob *prob, double *out, dtp_err *err)
{
    double *reduced = malloc(((size_t)ilp->n_cols + 1) * sizeof *reduced);
    if (reduced == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d reduced costs", ilp->n_cols);
    }
    for (int32_t j = 0; j < ilp->n_cols; j++) {
        reduced[j] = ilp->cols[j].cost;
    }
    double bound = 0.0;
    for (int32_t i = 0; i < ilp->n_rows; i++) {
        const row *r = &ilp->rows[i];
        double pi = glp_get_row_dual(prob, i + 1);
        if ((pi > 0.0 && isinf(r->lo)) || (pi < 0.0 && isinf(r->hi))) {
            pi = 0.0;
        }
        if (pi != 0.0) {
            bound += pi > 0.0 ? pi * r->lo : pi * r->hi;
        }
        for (int32_t k = 0; k < r->n; k++) {
            reduced[ilp->entry_col[r->first + k]] -= pi * ilp->entry_coef[r->first + k];
        }
    }
    for (int32_t j = 0; j < ilp->n_cols; j++) {
        double at = reduced[j] > 0.0 ? ilp->cols[j].lo : ilp->cols[j].hi;
        if (reduced[j] != 0.0) {
            bound += reduced[j] * at;
        }
    }
    free(reduced);
    *out = bound;
    return DTP_OK;
}

/* Milliseconds until the deadline, for GLPK; at least 1. */
static int left_ms(const dtp_stop *stop)
{
    return (int)fmin(1000.0 * dtp_stop_left_s(stop), INT_MAX);
}

/* With a limit of iterations, after which it goes round in circles: badly scaled rows can make it.
 * Ordinary problems take a few times as many as they have rows and columns. */
static int simplex(const fence *f)
{
    glp_smcp parm;
    glp_init_smcp(&parm);
    parm.it_lim = (int)fmin(1000.0 + 20.0 * ((double)f->ilp->n_rows + (double)f->ilp->n_cols), 2e9);
    parm.msg_lev = f->options->stop != NULL ? GLP_MSG_ON : GLP_MSG_OFF;
    parm.out_frq = POLL_MS;
    parm.meth = GLP_DUALP;
    parm.tm_lim = left_ms(f->options->stop);
    int rc = glp_simplex(f->prob, &parm);
    if ((rc != 0 && rc != GLP_ETMLIM) || glp_get_status(f->prob) == GLP_UNDEF) {
        glp_std_basis(f->prob);
        parm.meth = GLP_PRIMAL;
        rc = glp_simplex(f->prob, &parm);
    }
    return rc == GLP_EITLIM ? GLP_ETMLIM : rc;
}

/* With lazy rows until none is violated. */
static int solve_relaxation(fence *f)
{
    for (;;) {
        const int rc = simplex(f);
        if (rc != 0 || glp_get_status(f->prob) != GLP_OPT || add_lazy_rows(f) == 0) {
            return rc;
        }
    }
}

static dtp_status keep_relaxation(fence *f, dtp_ilp_result *out)
{
    dtp_ilp *ilp = f->ilp;
    free(ilp->values);
    free(ilp->duals);
    ilp->values = malloc(((size_t)ilp->n_cols + 1) * sizeof *ilp->values);
    ilp->duals = malloc(((size_t)ilp->n_rows + 1) * sizeof *ilp->duals);
    if (ilp->values == NULL || ilp->duals == NULL) {
        return DTP_FAIL(f->err, DTP_NOMEM, "out of memory for %d ILP values", ilp->n_cols);
    }
    for (int32_t j = 0; j < ilp->n_cols; j++) {
        ilp->values[j] = glp_get_col_prim(f->prob, j + 1);
    }
    for (int32_t i = 0; i < ilp->n_rows; i++) {
        ilp->duals[i] = glp_get_row_dual(f->prob, i + 1);
    }
    out->values = ilp->values;
    out->row_duals = ilp->duals;
    out->objective = out->bound = glp_get_obj_val(f->prob);
    return DTP_OK;
}

static dtp_status branch_and_bound(fence *f, dtp_ilp_result *out)
{
    glp_iocp tree;
    glp_init_iocp(&tree);
    tree.msg_lev = f->options->stop != NULL ? GLP_MSG_ON : GLP_MSG_OFF;
    tree.out_frq = POLL_MS;
    tree.out_dly = 0;
    tree.cb_func = on_search;
    tree.cb_info = f;
    tree.tol_int = 1e-7;
    tree.tol_obj = 1e-11;
    tree.br_tech = GLP_BR_DTH;
    tree.tm_lim = left_ms(f->options->stop);
    f->bound = glp_get_obj_val(f->prob);
    const int rc = glp_intopt(f->prob, &tree);
    const bool ended = rc == GLP_ETMLIM || rc == GLP_ESTOP;
    if (rc != 0 && !ended) {
        return DTP_FAIL(f->err, DTP_SOLVER, "GLPK: branch and bound failed (code %d)", rc);
    }
    const int status = glp_mip_status(f->prob);
    out->nodes = f->nodes;
    out->bound = f->bound;
    if (status == GLP_FEAS || status == GLP_OPT) {
        out->status = ended ? DTP_ILP_FEASIBLE : DTP_ILP_OPTIMAL;
        out->objective = glp_mip_obj_val(f->prob);
        out->bound = ended ? f->bound : out->objective;
    } else {
        out->status = status == GLP_NOFEAS && !ended ? DTP_ILP_INFEASIBLE : DTP_ILP_TIME_LIMIT;
    }
    return DTP_OK;
}

/* Runs GLPK on f->prob; a failure inside ends in longjmp. */
static dtp_status run(fence *f, dtp_ilp_result *out)
{
    const dtp_ilp *ilp = f->ilp;
    glp_set_obj_dir(f->prob, GLP_MIN);
    if (ilp->n_cols > 0) {
        glp_add_cols(f->prob, ilp->n_cols);
    }
    for (int32_t j = 0; j < ilp->n_cols; j++) {
        const dtp_ilp_col *c = &ilp->cols[j];
        glp_set_col_kind(f->prob, j + 1, c->integer ? GLP_IV : GLP_CV);
        glp_set_col_bnds(f->prob, j + 1, bound_type(c->lo, c->hi), c->lo, c->hi);
        glp_set_obj_coef(f->prob, j + 1, c->cost);
    }
    for (int32_t i = 0; i < ilp->n_rows; i++) {
        load_row(f, i);
    }
    glp_scale_prob(f->prob, GLP_SF_AUTO);
    const int rc = solve_relaxation(f);
    const int status = glp_get_status(f->prob);
    if (f->lazy_status != DTP_OK) {
        return f->lazy_status;
    }
    if (rc == 0 && (status == GLP_NOFEAS || status == GLP_INFEAS)) {
        out->status = DTP_ILP_INFEASIBLE;
        return DTP_OK;
    }
    if (rc == GLP_ETMLIM) {
        DTP_TRY(dual_bound(f->ilp, f->prob, &out->root_bound, f->err));
        out->status = DTP_ILP_TIME_LIMIT;
        return f->options->relaxation ? keep_relaxation(f, out) : DTP_OK;
    }
    if (rc != 0 || status != GLP_OPT) {
        return DTP_FAIL(f->err, DTP_SOLVER, "GLPK: the relaxation %s (code %d, status %d)",
                        status == GLP_UNBND ? "is unbounded" : "was not solved", rc, status);
    }
    DTP_TRY(dual_bound(f->ilp, f->prob, &out->root_bound, f->err));
    return f->options->relaxation ? keep_relaxation(f, out) : branch_and_bound(f, out);
}

static dtp_status keep_values(dtp_ilp *ilp, glp_prob *prob, dtp_ilp_result *out, dtp_err *err)
{
    free(ilp->values);
    ilp->values = malloc(((size_t)ilp->n_cols + 1) * sizeof *ilp->values);
    if (ilp->values == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d ILP values", ilp->n_cols);
    }
    for (int32_t j = 0; j < ilp->n_cols; j++) {
        double v = glp_mip_col_val(prob, j + 1);
        ilp->values[j] = ilp->cols[j].integer ? round(v) : v;
    }
    out->values = ilp->values;
    return DTP_OK;
}

static void fence_destroy(fence *f)
{
    if (f != NULL) {
        free(f->index);
        free(f->coef);
        free(f->lazy_values);
        free(f);
    }
}

/* Room for the longest row and for any row of distinct columns that comes later. */
static fence *fence_create(const dtp_ilp *ilp)
{
    size_t longest = (size_t)ilp->n_cols;
    for (int32_t i = 0; i < ilp->n_rows; i++) {
        longest = (size_t)ilp->rows[i].n > longest ? (size_t)ilp->rows[i].n : longest;
    }
    fence *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return NULL;
    }
    f->index = calloc(longest + 1, sizeof *f->index);
    f->coef = calloc(longest + 1, sizeof *f->coef);
    f->lazy_values = calloc((size_t)ilp->n_cols + 1, sizeof *f->lazy_values);
    f->room = longest;
    if (f->index == NULL || f->coef == NULL || f->lazy_values == NULL) {
        fence_destroy(f);
        return NULL;
    }
    return f;
}

/* GLPK ends in its error hook for want of memory too; only its last words tell. */
static dtp_status say_failure(fence *f, dtp_err *err)
{
    f->text[strcspn(f->text, "\n")] = '\0';
    return strstr(f->text, "no memory available") != NULL ||
                   strstr(f->text, "memory allocation limit exceeded") != NULL
               ? DTP_FAIL(err, DTP_NOMEM, "out of memory in GLPK (%s)", f->text)
               : DTP_FAIL(err, DTP_SOLVER, "GLPK: %s", f->text);
}

dtp_status dtp_ilp_solve(dtp_ilp *ilp, const dtp_ilp_options *options, dtp_ilp_result *out,
                         dtp_err *err)
{
    *out = (dtp_ilp_result){.bound = -INFINITY, .root_bound = -INFINITY};
    fence *f = fence_create(ilp);
    if (f == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the ILP solver");
    }
    f->ilp = ilp;
    f->options = options;
    f->err = err;
    const int begun = glp_init_env();
    const bool own_env = begun == 0;
    if (begun == GLPK_NO_MEMORY) {
        fence_destroy(f);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the environment of GLPK");
    }
    if (setjmp(f->failed) != 0) {
        dtp_status failed = f->stopped ? DTP_OK : say_failure(f, err);
        out->status = DTP_ILP_TIME_LIMIT;
        glp_free_env();
        fence_destroy(f);
        return failed;
    }
    glp_error_hook(on_error, f);
    glp_term_hook(on_output, f);
    int terminal = glp_term_out(options->stop != NULL ? GLP_ON : GLP_OFF);
    f->prob = glp_create_prob();
    dtp_status status = run(f, out);
    if (status == DTP_OK && !options->relaxation &&
        (out->status == DTP_ILP_OPTIMAL || out->status == DTP_ILP_FEASIBLE)) {
        status = keep_values(ilp, f->prob, out, err);
    }
    glp_delete_prob(f->prob);
    glp_term_out(terminal);
    glp_error_hook(NULL, NULL);
    glp_term_hook(NULL, NULL);
    if (own_env) {
        glp_free_env();
    }
    fence_destroy(f);
    return status;
}
