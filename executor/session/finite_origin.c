/* Where a loss that is not finite comes from. The updates of its step overwrite parameters and
 * states, so each rank copies them right before the first update when the loss is not finite; the
 * step then runs once more from the copies, and everything is looked at in the order in which it is
 * made. On backends whose kernels have run when they return; elsewhere the next step may be under
 * way. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"
#include "executor/session/session_internal.h"

/* What there is to look at: NaN and inf; -inf, which masks of attention have, where there is
 * nothing else. */
enum { N_CLASSES = 2 };

static bool is_state(const dtp_session *s, const dtp_value_update *u)
{
    const dtp_tensor_id t = s->program->values[u->target].tensor;
    return t >= 0 && dtp_tensor_lasts(&s->program->graph->tensors[t]);
}

/* Whether an instruction writes the value. */
static bool writes(const dtp_instr *instr, dtp_value_id v)
{
    bool found = false;
    for (int32_t k = 0; k < instr->n_out; k++) {
        found = found || instr->out[k] == v;
    }
    return found;
}

/* The first instruction that overwrites a state; -1 when the loss is not known before it. */
static int32_t first_update(const dtp_session *s)
{
    const dtp_program *p = s->program;
    const dtp_value_id loss = p->graph->loss >= 0 ? s->tensor_value[p->graph->loss] : -1;
    bool known = false;
    for (int32_t i = 0; i < p->n_instrs && loss >= 0; i++) {
        for (int32_t u = 0; u < p->n_updates; u++) {
            if (is_state(s, &p->updates[u]) && writes(&p->instrs[i], p->updates[u].value)) {
                return known ? i : -1;
            }
        }
        known = known || writes(&p->instrs[i], loss);
    }
    return -1;
}

/* ---- copies ---- */

static void copy_states(dtp_session *s)
{
    dtp_session__origin *o = &s->origin;
    const dtp_program *p = s->program;
    o->copies = calloc((size_t)p->n_updates + 1, sizeof *o->copies);
    for (int32_t u = 0; u < p->n_updates && o->copies != NULL; u++) {
        const dtp_view *view = dtp_runner_view(s->runner, p->updates[u].target);
        const size_t bytes = (size_t)dtp_ttype_bytes(&view->local);
        if (view->data == NULL || !is_state(s, &p->updates[u])) {
            continue;
        }
        o->copies[u] = malloc(bytes + 1);
        if (o->copies[u] == NULL) {
            dtp_session__origin_close(s); /* then there is no more to say */
            return;
        }
        memcpy(o->copies[u], view->data, bytes);
    }
}

static void restore_states(dtp_session *s)
{
    const dtp_program *p = s->program;
    for (int32_t u = 0; u < p->n_updates && s->origin.copies != NULL; u++) {
        const dtp_view *view = dtp_runner_view(s->runner, p->updates[u].target);
        if (s->origin.copies[u] != NULL) {
            memcpy(view->data, s->origin.copies[u], (size_t)dtp_ttype_bytes(&view->local));
        }
    }
}

void dtp_session__origin_close(dtp_session *s)
{
    for (int32_t u = 0; u < s->program->n_updates && s->origin.copies != NULL; u++) {
        free(s->origin.copies[u]);
    }
    free(s->origin.copies);
    s->origin.copies = NULL;
}

/* ---- looking ---- */

/* Notes what an instruction, or `instr` -1 the step, has in a value, by its place in the order. */
static void look(dtp_session *s, int32_t instr, dtp_value_id v)
{
    dtp_session__origin *o = &s->origin;
    const dtp_view *view = dtp_runner_view(s->runner, v);
    const dtp_dtype dtype = view->local.dtype;
    const int64_t place =
        ((int64_t)o->microbatch * (s->program->n_instrs + 1) + instr + 1) * s->program->n_values +
        v;
    if (view->data == NULL || !dtp_dtype_is_float(dtype)) {
        return;
    }
    for (int64_t i = 0; i < dtp_ttype_elems(&view->local); i++) {
        const double x = dtp_element(dtype, view->data, i);
        const int32_t of = isfinite(x) ? N_CLASSES : isnan(x) || x > 0.0 ? 0 : 1;
        if (of < N_CLASSES && place < o->found[of]) {
            o->found[of] = place;
            o->value[of] = x;
        }
        if (o->found[0] <= place) {
            return;
        }
    }
}

static void watch(void *user, dtp_runner *r, int32_t i, bool after)
{
    dtp_session *s = user;
    const dtp_program *p = s->program;
    dtp_session__origin *o = &s->origin;
    (void)r;
    if (!o->looks && !after && i == o->first_update && o->copies == NULL) {
        const dtp_view *loss = dtp_runner_view(s->runner, s->tensor_value[p->graph->loss]);
        if (!isfinite(dtp_element(loss->local.dtype, loss->data, 0))) {
            copy_states(s);
        }
    }
    for (int32_t k = 0;
         o->looks && after && p->instrs[i].kind == DTP_INSTR_KERNEL && k < p->instrs[i].n_out;
         k++) {
        look(s, i, p->instrs[i].out[k]);
    }
}

void dtp_session__origin_open(dtp_session *s)
{
    s->origin.first_update = -1;
    if (s->allow_nan || s->backend->ops->queue != NULL) {
        return;
    }
    s->origin.first_update = first_update(s);
    if (s->origin.first_update >= 0) {
        dtp_runner_set_watch(s->runner, (dtp_runner_watch){watch, s});
    }
}

/* Runs a step once more and looks at its inputs, parameters and results. */
static dtp_status look_at_step(dtp_session *s, int64_t step, dtp_err *err)
{
    const dtp_program *p = s->program;
    dtp_session__origin *o = &s->origin;
    const int64_t now = s->step;
    dtp_runner_times times;
    dtp_status status = DTP_OK;
    s->step = step;
    o->looks = true;
    for (o->microbatch = 0; o->microbatch < dtp_program_microbatches(p) && status == DTP_OK;
         o->microbatch++) {
        status = dtp_session__feed(s, o->microbatch, err);
        for (dtp_value_id v = 0; v < p->n_values && status == DTP_OK; v++) {
            const dtp_value_kind kind = p->values[v].kind;
            if (kind == DTP_VALUE_INPUT || (kind == DTP_VALUE_RESIDENT && o->microbatch == 0)) {
                look(s, -1, v);
            }
        }
        if (status == DTP_OK) {
            status = dtp_runner_microbatch(s->runner, s->seed, step, o->microbatch, err);
        }
    }
    o->looks = false;
    s->step = now;
    DTP_TRY(status);
    DTP_TRY(dtp_runner_end(s->runner, NULL, err));
    return dtp_runner_finish(s->runner, &times, NULL, err);
}

static void describe(const dtp_session *s, int64_t place, char *out, size_t bytes)
{
    static const char *const kinds[] = {
        [DTP_TENSOR_INPUT] = "input", [DTP_TENSOR_PARAM] = "parameter"};
    const dtp_program *p = s->program;
    const dtp_value_id v = (dtp_value_id)(place % p->n_values);
    const int32_t i = (int32_t)(place / p->n_values % (p->n_instrs + 1)) - 1;
    const dtp_graph *g = p->graph;
    if (i >= 0 && p->instrs[i].node >= 0) {
        const dtp_node *node = &g->nodes[p->instrs[i].node];
        (void)snprintf(out, bytes, "node '%s' (%s)", node->name, node->op->name);
        return;
    }
    const dtp_tensor_id t = p->values[v].tensor;
    const dtp_tensor_kind kind = t >= 0 ? g->tensors[t].kind : DTP_TENSOR_INPUT;
    (void)snprintf(out, bytes, "%s '%s'",
                   kind == DTP_TENSOR_INPUT || kind == DTP_TENSOR_PARAM ? kinds[kind]
                                                                        : "optimizer state",
                   t >= 0 ? g->tensors[t].name : "?");
}

dtp_status dtp_session__origin_find(dtp_session *s, int64_t step, char *out, size_t bytes,
                                    dtp_err *err)
{
    dtp_session__origin *o = &s->origin;
    int64_t all = o->copies != NULL, first[N_CLASSES], holder;
    out[0] = '\0';
    DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MIN, DTP_I64, 1, &all, err));
    if (all == 0) {
        return DTP_OK;
    }
    o->found[0] = o->found[1] = INT64_MAX;
    restore_states(s);
    DTP_TRY(look_at_step(s, step, err));
    memcpy(first, o->found, sizeof first);
    DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MIN, DTP_I64, N_CLASSES, first, err));
    const int32_t of = first[0] < INT64_MAX ? 0 : 1;
    holder = o->found[of] == first[of] ? s->comm->rank : s->comm->size;
    DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MIN, DTP_I64, 1, &holder, err));
    if (first[of] < INT64_MAX) {
        int64_t is_nan = holder == s->comm->rank && isnan(o->value[of]);
        char what[160];
        DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MAX, DTP_I64, 1, &is_nan, err));
        describe(s, first[of], what, sizeof what);
        (void)snprintf(out, bytes, "; the first %s: %s, %s at rank %" PRId64,
                       of == 0 ? "nan or inf" : "-inf", what,
                       is_nan != 0 ? "nan"
                       : of == 0   ? "inf"
                                   : "-inf",
                       holder);
    }
    return DTP_OK;
}
