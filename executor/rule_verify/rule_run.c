/* Runs a lowered graph of INPUT tensors on virtual ranks with given global values, and collects
 * what every rank holds of the outputs. */
#include "executor/rule_verify/rule_run.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/hash.h"
#include "executor/device/convert.h"
#include "executor/run/runner.h"
#include "dtp/device_mesh.h"

/* Number of member k: a multiple of 1/8 in [-2, 2), a whole number for integers. */
static double summand(const dtp_rule_run *r, const dtp_value *value, int64_t index, int32_t k)
{
    uint64_t h = dtp_hash_i64(DTP_HASH_SEED, (int64_t)r->seed);
    h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, value->tensor), index), k);
    h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    double whole = (double)(h >> 59) - 16.0;
    return dtp_dtype_is_float(value->type.dtype) ? whole / 8.0 : whole;
}

/* What member `mine` of n holds of an element: numbers that the layout's reduction turns into it.
 * For a sum they have both signs; for an extremum every member but one is off by another amount;
 * for a product all but one are powers of two. */
static double share(const dtp_rule_run *r, const dtp_value *value, int64_t index, int32_t mine,
                    int32_t n)
{
    const double whole = r->inputs[value->tensor][index];
    dtp_reduce_op op = DTP_REDUCE_SUM; /* of the first partial mesh dim */
    for (int32_t m = value->layout.n_mesh - 1; m >= 0; m--) {
        const dtp_placement *placement = &value->layout.placement[m];
        op = placement->kind == DTP_PARTIAL ? (dtp_reduce_op)placement->op : op;
    }
    const int32_t holder = (int32_t)((uint64_t)index % (uint64_t)n);
    if (!isfinite(whole)) { /* one member has it, all where the others would win */
        const bool all = op == DTP_REDUCE_MAX ? whole < 0.0 : op == DTP_REDUCE_MIN && whole > 0.0;
        return all || mine == holder ? whole : 2.0;
    }
    double rest = op == DTP_REDUCE_AVG ? whole * n : whole;
    if (op == DTP_REDUCE_MIN || op == DTP_REDUCE_MAX) {
        double away = mine == holder ? 0.0 : 3.0 + summand(r, value, index, mine);
        return op == DTP_REDUCE_MIN ? whole + away : whole - away;
    }
    if (op == DTP_REDUCE_PROD) {
        return mine < n - 1 ? 2.0 : ldexp(whole, 1 - n);
    }
    if (dtp_dtype_is_half(value->type.dtype)) {
        /* 2, -2, 2, .. times the element, the last one what is left: exact in 16 bits. */
        const double rest_of_all = n % 2 == 0 ? -rest : rest;
        return mine == n - 1 ? rest_of_all : mine % 2 == 0 ? 2.0 * rest : -2.0 * rest;
    }
    if (mine < n - 1) {
        return summand(r, value, index, mine);
    }
    for (int32_t k = 0; k < n - 1; k++) {
        rest -= summand(r, value, index, k);
    }
    return rest;
}

static dtp_status run_step(const dtp_rule_run *r, dtp_runner *runner, dtp_backend *backend,
                           int32_t rank, dtp_err *err)
{
    dtp_runner_times times;
    DTP_TRY(dtp_runner_prepare(runner, err));
    for (dtp_value_id v = 0; v < r->p->n_values; v++) {
        if (r->p->values[v].kind == DTP_VALUE_INPUT && dtp_runner_view(runner, v)->data != NULL) {
            const dtp_value *value = &r->p->values[v];
            const dtp_view *view = dtp_runner_view(runner, v);
            dtp_mesh_set set = 0;
            for (int32_t m = 0; m < value->layout.n_mesh; m++) {
                set |= value->layout.placement[m].kind == DTP_PARTIAL ? 1U << m : 0U;
            }
            const int32_t mine = dtp_mesh_set_index(&r->p->mesh, set, rank);
            const int32_t n = dtp_mesh_set_size(&r->p->mesh, set);
            const int64_t elems = dtp_ttype_elems(&view->local);
            const size_t bytes = (size_t)dtp_ttype_bytes(&view->local);
            void *host = calloc(bytes + 1, 1);
            DTP_TRY(DTP_MEMORY(err, host));
            for (int64_t i = 0; i < elems; i++) {
                dtp_element_set(view->local.dtype, host, i,
                                share(r, value, dtp_view_global_index(view, i), mine, n));
            }
            dtp_status s = backend->ops->upload(backend, view->data, host, bytes, err);
            free(host);
            DTP_TRY(s);
        }
    }
    DTP_TRY(dtp_runner_step(runner, DTP_RULE_SEED, DTP_RULE_STEP, &times, err));
    for (int32_t o = 0; o < r->p->graph->n_outputs; o++) {
        const dtp_value_id id = r->p->tensor_value[r->p->graph->outputs[o]];
        const dtp_view *v = dtp_runner_view(runner, id);
        const size_t bytes = (size_t)dtp_ttype_bytes(&v->local);
        void *host = calloc(bytes + 1, 1);
        DTP_TRY(DTP_MEMORY(err, host));
        dtp_status s = backend->ops->download(backend, host, v->data, bytes, err);
        for (int64_t i = 0; s == DTP_OK && i < dtp_ttype_elems(&v->local); i++) {
            int64_t at = dtp_view_global_index(v, i);
            r->got[rank][o][at] = dtp_element(v->local.dtype, host, i);
            r->seen[rank][o][at] = true;
        }
        free(host);
        DTP_TRY(s);
    }
    return DTP_OK;
}

static dtp_status run_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    const dtp_rule_run *r = user;
    dtp_backend *backend = NULL;
    dtp_runner *runner = NULL;
    DTP_TRY(dtp_backend_create(r->backend, 1, &backend, err));
    dtp_status s = dtp_backend_add_kernels(backend, r->kernels, r->n_kernels, err);
    if (s == DTP_OK) {
        s = dtp_runner_create(r->p, backend, comm, NULL, &runner, err);
    }
    if (s == DTP_OK) {
        s = run_step(r, runner, backend, comm->rank, err);
    }
    if (s == DTP_OK && (backend->peak_allocated_bytes != r->p->peak_bytes ||
                        dtp_runner_touched_bytes(runner) != r->p->peak_bytes)) {
        s = DTP_FAIL(err, DTP_INTERNAL, "planned %lld bytes, allocated %lld, touched %lld",
                     (long long)r->p->peak_bytes, (long long)backend->peak_allocated_bytes,
                     (long long)dtp_runner_touched_bytes(runner));
    }
    dtp_runner_destroy(runner);
    dtp_backend_destroy(backend);
    return s;
}

dtp_status dtp_rule_run_execute(dtp_rule_run *r, dtp_err *err)
{
    const dtp_graph *g = r->p->graph;
    const int32_t ranks = dtp_mesh_ranks(&r->p->mesh);
    for (int32_t k = 0; k < ranks; k++) {
        for (int32_t o = 0; o < g->n_outputs; o++) {
            size_t n = (size_t)dtp_ttype_elems(&g->tensors[g->outputs[o]].type) + 1;
            r->got[k][o] = calloc(n, sizeof **r->got[k]);
            r->seen[k][o] = calloc(n, sizeof **r->seen[k]);
            DTP_TRY(DTP_MEMORY(err, r->got[k][o], r->seen[k][o]));
        }
    }
    return dtp_sim_pool_run(r->pool, &r->p->mesh, run_rank, r, err);
}

void dtp_rule_run_free(dtp_rule_run *r)
{
    for (int32_t k = 0; k < DTP_RULE_MAX_RANKS; k++) {
        for (int32_t o = 0; o < DTP_RULE_MAX_OUTPUTS; o++) {
            free(r->got[k][o]);
            free(r->seen[k][o]);
            r->got[k][o] = NULL;
            r->seen[k][o] = NULL;
        }
    }
}

/* A value that is not finite must be that very infinity, or NaN. */
static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Distance from what is wanted. */
static double miss(double got, double want, bool of_terms)
{
    const bool neither = !isfinite(got) && !isfinite(want);
    return same(got, want) || (of_terms && neither) ? 0.0 : fabs(got - want);
}

static bool has_dim(const dtp_ttype *type, dtp_dim_id d)
{
    return dtp_ttype_find(type, d) >= 0;
}

/* Are products of these operands formed one after the other, or of sums over a dim of one of them?
 * Libraries pad odd numbers of 16-bit terms with zeros. */
static bool has_steps(const dtp_program *p, const dtp_instr *instr)
{
    bool found = instr->n_in > 2 || dtp_dtype_is_half(p->values[instr->in[0]].type.dtype);
    for (int32_t k = 0; k < instr->n_in; k++) {
        const dtp_ttype *type = &p->values[instr->in[k]].type;
        for (int32_t i = 0; i < type->rank && instr->n_in == 2; i++) {
            const dtp_dim_id d = type->dims[i].id;
            found = found || !(has_dim(&p->values[instr->in[1 - k]].type, d) ||
                               has_dim(&p->values[instr->out[0]].type, d));
        }
    }
    return found;
}

/* Does an op get terms of a sum, or are terms of its own summed on the way? An infinity times terms
 * of both signs is not a number, times their sum it is. */
static bool has_terms(const dtp_program *p)
{
    bool found = false;
    for (int32_t i = 0; i < p->n_instrs && !found; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind != DTP_INSTR_KERNEL) {
            continue;
        }
        found = (instr->op->flags & DTP_OP_CONTRACTION) != 0 && has_steps(p, instr);
        for (int32_t k = 0; k < instr->n_in; k++) {
            const dtp_layout *layout = &p->values[instr->in[k]].layout;
            for (int32_t m = 0; m < layout->n_mesh; m++) {
                found = found || layout->placement[m].kind == DTP_PARTIAL;
            }
        }
    }
    return found;
}

double dtp_rule_run_error(const dtp_rule_run *r, int32_t o, const double *want)
{
    const dtp_graph *g = r->p->graph;
    const dtp_layout *layout = &r->p->values[r->p->tensor_value[g->outputs[o]]].layout;
    const int32_t ranks = dtp_mesh_ranks(&r->p->mesh);
    int64_t holders = ranks; /* of each element */
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        holders /= layout->placement[m].kind == DTP_SHARD ? r->p->mesh.sizes[m] : 1;
    }
    const bool of_terms = has_terms(r->p);
    double largest = 1e-2, worst = 0.0;
    for (int64_t i = 0; i < dtp_ttype_elems(&g->tensors[g->outputs[o]].type); i++) {
        int32_t n = 0;
        double first = 0.0;
        for (int32_t k = 0; k < ranks; k++) {
            if (!r->seen[k][o][i]) {
                continue;
            }
            double got = r->got[k][o][i];
            if (!isfinite(miss(got, want[i], of_terms)) || (n > 0 && !same(got, first))) {
                return (double)INFINITY;
            }
            first = got;
            n++;
            worst = fmax(worst, miss(got, want[i], of_terms));
        }
        if (n != holders) {
            return (double)INFINITY;
        }
        largest = isfinite(want[i]) ? fmax(largest, fabs(want[i])) : largest;
    }
    return worst / largest;
}
