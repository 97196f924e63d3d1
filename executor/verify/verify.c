/* The reference runs on rank 0 alone; the shards of every rank (replicas too) are streamed there
 * and compared element by element, so no other rank holds a whole tensor. Beside the reference,
 * rank 0 holds a few copies of one tensor at a time.
 *
 * A step has two parts that are compared on their own. Forward and backward: same parameters, so
 * outputs and gradients agree up to rounding. The update: same parameters, states and gradients
 * (those of the ranks), so the new values agree up to rounding. Compared as one they would not:
 * Adam divides a gradient by its own size, which makes full steps of what rounding left of a
 * gradient that is nearly zero. After the comparison the reference takes over the parameters and
 * states of the ranks.
 *
 * Where exact arithmetic gives a gradient of zero (the bias of the keys of attention) rounding is
 * all there is, and it is relative to the terms that cancelled. The reference does not know them;
 * it takes the largest of all gradients for their size: an error below u times that passes. This
 * limits the errors that are found where the gradients of a tensor are smaller than u / tolerance
 * of the largest (0.3 % in f32).
 *
 * A step whose gradients overflow f16 under the loss scale is one that training skips: its
 * gradients and norm are not compared, the updates are, which leave everything as it is. It is run
 * beside the steps that were asked for, up to MAX_SKIPPED of them: the scale is halved each time,
 * and a model or a plan whose gradients are still not finite then is compared as it is. Sums of the
 * whole batch may overflow on the one device where those of the parts that ranks or microbatches
 * have do not: training goes on there, and the scale is halved here.
 *
 * The finished result is sent to all ranks, element by element of a small table. */
#include "executor/verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/transform/precision.h"
#include "core/transform/microbatch.h"
#include "executor/verify/verify_internal.h"

static const double tiny = 1e-30, TOLERANCE = 2e-5;
enum { MAX_SKIPPED = 40 }; /* from 2^16 to 2^-24, the least number of f16 */

dtp_verify_options dtp_verify_options_init(void)
{
    return (dtp_verify_options){.steps = 3, .tolerance = -1.0};
}

const char *dtp_verify_kind_name(dtp_verify_kind kind)
{
    static const char *const names[] = {"initial", "outputs", "gradients", "updates"};
    return names[kind];
}

double dtp_verify_bound(const dtp_verify_result *r, dtp_verify_kind kind)
{
    const bool computed = kind == DTP_VERIFY_OUTPUT || kind == DTP_VERIFY_GRADIENT;
    return computed ? r->compute_tolerance : r->tolerance;
}

/* Bound on errors of 16-bit graphs, in units roundoff of the type; of tf32, which rounds operands
 * of products alone; of products in 8 bits, where a sum over ranks that rounds otherwise moves an
 * operand to the next number of the grid. */
enum { HALF_UNITS = 16, TF32_UNITS = 4, FP8_UNITS = 2 };
static const double TF32_UNIT = 0x1p-11, FP8_UNIT = 0x1p-3;

/* The unit roundoff of what a graph computes in; at least that of f32, the type of its losses. */
static double unit_of(const dtp_graph *g)
{
    double unit = g->tf32 ? TF32_UNIT : dtp_verify__unit(DTP_F32);
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_dtype dtype = g->tensors[t].type.dtype;
        unit = dtp_dtype_is_half(dtype) ? fmax(unit, dtp_verify__unit(dtype)) : unit;
    }
    return unit;
}

static double least_bound(const dtp_graph *g, double unit)
{
    bool fp8 = false;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        fp8 = fp8 || (g->nodes[n].op->flags & DTP_OP_SCALE) != 0;
    }
    return fp8 ? FP8_UNIT * FP8_UNITS : unit * (g->tf32 ? TF32_UNITS : HALF_UNITS);
}

const dtp_verify_item *dtp_verify_worst(const dtp_verify_result *r, dtp_verify_kind kind)
{
    const dtp_verify_item *worst = NULL;
    for (int32_t i = 0; i < r->n; i++) {
        const dtp_verify_item *item = &r->items[i];
        const bool compared = item->kind == kind && item->rel_err >= 0;
        if (compared && (worst == NULL || item->rel_err > worst->rel_err)) {
            worst = item;
        }
    }
    return worst;
}

/* ---- what is compared ---- */

/* Beside an item of the result. */
typedef struct subject {
    dtp_tensor_id reference; /* the tensor in the reference's graph */
    dtp_tensor_id value;     /* updates: its new value there, -1 = it keeps the old one */
    bool follows;            /* the reference's microbatches change it as those of the ranks do */
    dtp_verify__error now;   /* of this step; on rank 0 */
} subject;

/* Host memory for whole tensors; on rank 0. */
enum { EXPECTED, PREVIOUS, HAVE, N_HOSTS };

typedef struct verification {
    const dtp_graph *g, *ref_graph;
    dtp_session *s;
    dtp_verify_reference *ref; /* rank 0 only, else NULL */
    subject *subjects;         /* by item */
    void *host[N_HOSTS];
    dtp_verify__update update;
    bool rounds; /* the graph computes in tf32 or 16 bits, of this unit roundoff */
    double unit;
    int32_t failed; /* the first step with an error past the tolerance; on rank 0. -1 = none */
    bool scales;    /* the loss: steps may be skipped */
    bool skips;     /* this step is; on rank 0 */
    dtp_verify_result *out;
} verification;

static dtp_status add_item(verification *v, dtp_verify_kind kind, dtp_tensor_id t, const char *name,
                           dtp_err *err)
{
    dtp_verify_result *r = v->out;
    const dtp_graph_tensor *tensor = &v->g->tensors[t];
    const dtp_tensor_id same =
        v->ref_graph == v->g ? t : dtp_graph_find(v->ref_graph, tensor->name);
    if (same < 0 || !dtp_ttype_equal(&v->ref_graph->tensors[same].type, &tensor->type)) {
        return DTP_FAIL(err, DTP_INVALID, "verify: the reference has no tensor like '%s'",
                        tensor->name);
    }
    v->subjects[r->n] = (subject){.reference = same, .value = -1};
    r->items[r->n++] =
        (dtp_verify_item){.kind = kind, .tensor = t, .name = name, .rel_err = -1.0, .nan_step = -1};
    return DTP_OK;
}

static dtp_status list_items(verification *v, dtp_err *err)
{
    const dtp_graph *g = v->g;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (dtp_tensor_lasts(&g->tensors[t])) {
            DTP_TRY(add_item(v, DTP_VERIFY_INITIAL, t, g->tensors[t].name, err));
        }
    }
    if (g->loss >= 0) {
        DTP_TRY(add_item(v, DTP_VERIFY_OUTPUT, g->loss, g->tensors[g->loss].name, err));
    }
    if (g->norm >= 0) {
        DTP_TRY(add_item(v, DTP_VERIFY_OUTPUT, g->norm, g->tensors[g->norm].name, err));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const dtp_tensor_id t = g->outputs[i];
        if (t != g->loss) {
            DTP_TRY(add_item(v, DTP_VERIFY_OUTPUT, t, g->tensors[t].name, err));
        }
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        const dtp_param_grad *pg = &g->grads[i];
        DTP_TRY(add_item(v, DTP_VERIFY_GRADIENT, pg->grad, g->tensors[pg->param].name, err));
    }
    /* One item per updated tensor, in the order of the updates: those of a node follow each other.
     * Then the parameters and states that no node updates. */
    bool *listed = calloc((size_t)g->n_tensors + 1, sizeof *listed);
    dtp_status status = DTP_MEMORY(err, listed);
    for (int32_t i = 0; i < v->ref_graph->n_updates && status == DTP_OK; i++) {
        const dtp_update *u = &v->ref_graph->updates[i];
        const char *name = v->ref_graph->tensors[u->target].name;
        const dtp_tensor_id t = dtp_graph_find(g, name);
        if (!dtp_tensor_lasts(&v->ref_graph->tensors[u->target])) {
            continue;
        }
        if (t < 0) {
            status = DTP_FAIL(err, DTP_INVALID, "verify: the ranks do not update '%s'", name);
        } else {
            listed[t] = true;
            status = add_item(v, DTP_VERIFY_UPDATE, t, g->tensors[t].name, err);
        }
        if (status == DTP_OK) {
            subject *x = &v->subjects[v->out->n - 1];
            x->follows = dtp_microbatch_changes(v->ref_graph, u->value);
            x->value = x->follows ? -1 : u->value;
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors && status == DTP_OK; t++) {
        if (dtp_tensor_lasts(&g->tensors[t]) && !listed[t] && g->n_updates > 0) {
            status = add_item(v, DTP_VERIFY_UPDATE, t, g->tensors[t].name, err);
        }
    }
    free(listed);
    return status;
}

static dtp_status make_room(verification *v, dtp_err *err)
{
    const dtp_graph *g = v->g;
    dtp_verify_result *r = v->out;
    int64_t largest = 0;
    int32_t lasting = 0;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        lasting += dtp_tensor_lasts(&g->tensors[t]);
    }
    r->capacity = 2 * lasting + 2 + g->n_outputs + g->n_grads;
    r->items = calloc((size_t)r->capacity, sizeof *r->items);
    r->peak_bytes = calloc((size_t)r->ranks, sizeof *r->peak_bytes);
    const bool stages = v->s->program->chunks != NULL;
    r->predicted_bytes = stages ? calloc((size_t)r->ranks, sizeof *r->predicted_bytes) : NULL;
    r->losses = g->loss >= 0 ? calloc((size_t)r->steps, sizeof *r->losses) : NULL;
    r->ref_losses = g->loss >= 0 ? calloc((size_t)r->steps, sizeof *r->ref_losses) : NULL;
    v->subjects = calloc((size_t)r->capacity, sizeof *v->subjects);
    if (r->items == NULL || r->peak_bytes == NULL || v->subjects == NULL ||
        (stages && r->predicted_bytes == NULL) ||
        (g->loss >= 0 && (r->losses == NULL || r->ref_losses == NULL))) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the results");
    }
    for (int32_t i = 0; v->s->program->chunks != NULL && i < r->ranks; i++) {
        const int32_t stage = i / dtp_mesh_ranks(&v->s->program->mesh);
        r->predicted_bytes[i] = v->s->program->chunks[stage]->peak_bytes;
        r->predicted_peak_bytes = r->predicted_bytes[i] > r->predicted_peak_bytes
                                      ? r->predicted_bytes[i]
                                      : r->predicted_peak_bytes;
    }
    DTP_TRY(list_items(v, err));
    for (int32_t i = 0; i < r->n; i++) {
        const int64_t bytes = dtp_ttype_bytes(&g->tensors[r->items[i].tensor].type);
        largest = bytes > largest ? bytes : largest;
    }
    for (int32_t i = 0; i < N_HOSTS && v->ref != NULL; i++) {
        v->host[i] = malloc((size_t)largest + 1);
        DTP_TRY(DTP_MEMORY(err, v->host[i]));
    }
    return DTP_OK;
}

/* ---- comparison ---- */

/* What rank 0 has to prepare before item i is compared: what is expected, and for an update what
 * was there before. */
static dtp_status expect(verification *v, int32_t i, dtp_err *err)
{
    const subject *s = &v->subjects[i];
    const dtp_ttype *type = &v->ref_graph->tensors[s->reference].type;
    const size_t bytes = (size_t)dtp_ttype_bytes(type);
    if (v->out->items[i].kind != DTP_VERIFY_UPDATE) {
        return dtp_session_gather(v->ref->session, s->reference, v->host[EXPECTED], err);
    }
    DTP_TRY(dtp_session_gather(v->ref->session, s->reference, v->host[PREVIOUS], err));
    if (s->value < 0) {
        memcpy(v->host[EXPECTED], v->host[PREVIOUS], bytes);
        return DTP_OK;
    }
    const dtp_backend *b = v->update.backend;
    const void *from = v->update.out[v->ref_graph->tensors[s->value].out_index].data;
    return b->ops->download(v->update.backend, v->host[EXPECTED], from, bytes, err);
}

/* Compares item i; the reference takes over what the ranks have of a parameter or state. */
static dtp_status compare(verification *v, int32_t i, dtp_err *err)
{
    const dtp_verify_item *item = &v->out->items[i];
    const bool update = item->kind == DTP_VERIFY_UPDATE;
    const bool takes_over = update || item->kind == DTP_VERIFY_INITIAL;
    const dtp_verify__want want = {.value = v->host[EXPECTED],
                                   .previous =
                                       update && !v->subjects[i].follows ? v->host[PREVIOUS] : NULL,
                                   .have = takes_over ? v->host[HAVE] : NULL};
    dtp_status status = v->ref != NULL ? expect(v, i, err) : DTP_OK;
    DTP_TRY(dtp_comm_agree_status(v->s->comm, status, err));
    DTP_TRY(dtp_verify__compare(v->s, item->tensor, &want, &v->subjects[i].now, err));
    if (v->ref != NULL && takes_over) {
        dtp_session *one = v->ref->session;
        const dtp_value_id value = one->tensor_value[v->subjects[i].reference];
        const dtp_view *view = dtp_runner_view(one->runner, value);
        status = one->backend->ops->upload(one->backend, view->data, v->host[HAVE],
                                           (size_t)dtp_ttype_bytes(&view->local), err);
    }
    return dtp_comm_agree_status(v->s->comm, status, err);
}

/* The update node that makes an item's new value, run unless it has just been. */
static dtp_status update_of(verification *v, int32_t i, int64_t step, dtp_err *err)
{
    const dtp_tensor_id value = v->subjects[i].value;
    const dtp_node_id node = value >= 0 ? v->ref_graph->tensors[value].producer : -1;
    const dtp_verify__update_job job = {.g = v->ref_graph,
                                        .ranks = v->g,
                                        .s = v->s,
                                        .ref = v->ref,
                                        .host = v->host[EXPECTED],
                                        .step = step};
    return node < 0 || node == v->update.node ? DTP_OK
                                              : dtp_verify__update_run(&job, node, &v->update, err);
}

/* Every item keeps its worst step. Steps after the first that fails do not count: replicas may
 * differ from then on, and what else is wrong then need not be another fault. */
static void merge(verification *v, dtp_verify_kind kind, int32_t step)
{
    double top = 0;
    const dtp_tensor_id unknown = v->skips ? v->g->norm : -1;
    if (v->failed >= 0 && step > v->failed) {
        return;
    }
    for (int32_t i = 0; i < v->out->n; i++) {
        const bool of_kind = v->out->items[i].kind == kind;
        top = of_kind ? fmax(top, v->subjects[i].now.scale) : top;
    }
    for (int32_t i = 0; i < v->out->n; i++) {
        dtp_verify_item *item = &v->out->items[i];
        const dtp_verify__error *now = &v->subjects[i].now;
        const double bound = dtp_verify_bound(v->out, kind);
        const dtp_dtype dtype = v->g->tensors[item->tensor].type.dtype;
        const double unit = v->rounds ? v->unit : dtp_verify__unit(dtype);
        const double least = kind == DTP_VERIFY_GRADIENT ? unit / fmax(bound, unit) * top : 0.0;
        const double rel =
            now->broken ? (double)INFINITY : now->beyond / fmax(fmax(now->scale, least), tiny);
        if (item->kind == kind && rel > item->rel_err && item->tensor != unknown) {
            item->rel_err = rel;
            item->abs_err = now->broken ? (double)INFINITY : now->abs_err;
            item->ref_max = now->largest;
            item->step = step;
        }
        if (item->kind == kind && now->nan && item->nan_step < 0) {
            item->nan_step = step;
        }
        v->failed = item->rel_err > bound ? step : v->failed;
    }
}

/* `step` counts from 1; 0: before the first. */
static dtp_status compare_kind(verification *v, dtp_verify_kind kind, int32_t step, dtp_err *err)
{
    for (int32_t i = 0; i < v->out->n; i++) {
        const dtp_verify_item *item = &v->out->items[i];
        if (item->kind != kind) {
            continue;
        }
        dtp_status status =
            kind == DTP_VERIFY_UPDATE ? update_of(v, i, (int64_t)step - 1, err) : DTP_OK;
        status = status == DTP_OK ? compare(v, i, err) : status;
        DTP_TRY(dtp_err_prefixed(status, err, "verify %s '%s'", dtp_verify_kind_name(kind),
                                 item->name));
        const dtp_verify__error *now = &v->subjects[i].now;
        v->skips = v->skips || (kind == DTP_VERIFY_GRADIENT && v->scales &&
                                (now->broken || !isfinite(now->largest)));
    }
    dtp_verify__update_free(&v->update);
    if (v->ref != NULL && (kind != DTP_VERIFY_GRADIENT || !v->skips)) {
        merge(v, kind, step);
    }
    return DTP_OK;
}

/* ---- the run ---- */

/* The loss scale of a session on this rank: its view, NULL: there is none. */
static const dtp_view *scale_of(const dtp_session *s)
{
    const dtp_tensor_id t = dtp_graph_find(s->program->graph, DTP_LOSS_SCALE);
    const dtp_value_id value = t >= 0 ? s->tensor_value[t] : -1;
    const dtp_view *view = value >= 0 ? dtp_runner_view(s->runner, value) : NULL;
    return view != NULL && view->data != NULL && view->local.dtype == DTP_F32 ? view : NULL;
}

static dtp_status read_scale(const dtp_session *s, float *out, dtp_err *err)
{
    const dtp_view *view = scale_of(s);
    *out = 0.0F;
    return view != NULL ? s->backend->ops->download(s->backend, out, view->data, sizeof *out, err)
                        : DTP_OK;
}

/* After a step that is skipped because the one device overflows: the scale is `before` still where
 * the ranks did not. */
static dtp_status lower_scale(const verification *v, float before, dtp_err *err)
{
    float now;
    DTP_TRY(read_scale(v->s, &now, err));
    const float half = before / 2.0F;
    for (int i = 0; i < 2 && now == before && before > 0.0F; i++) {
        const dtp_session *s = i == 0 ? v->s : v->ref != NULL ? v->ref->session : NULL;
        const dtp_view *view = s != NULL ? scale_of(s) : NULL;
        DTP_TRY(view != NULL
                    ? s->backend->ops->upload(s->backend, view->data, &half, sizeof half, err)
                    : DTP_OK);
    }
    return DTP_OK;
}

/* One more step, the `counted`th that is compared or one that is skipped, which all ranks learn. */
static dtp_status one_step(verification *v, int32_t counted, bool *skipped, dtp_err *err)
{
    dtp_verify_result *r = v->out;
    const int32_t step = counted + r->skipped + 1;
    dtp_step_result result, expected;
    float scale;
    DTP_TRY(read_scale(v->s, &scale, err));
    DTP_TRY(dtp_session_step(v->s, &result, err));
    dtp_status status = DTP_OK;
    if (v->ref != NULL) {
        status = dtp_session_step(v->ref->session, &expected, err);
    }
    DTP_TRY(dtp_comm_agree_status(v->s->comm, status, err));
    if (r->losses != NULL) {
        r->losses[counted] = result.loss;
        r->ref_losses[counted] = v->ref != NULL ? expected.loss : 0.0;
    }
    v->skips = false;
    v->scales = dtp_graph_find(v->g, DTP_LOSS_SCALE) >= 0 && r->skipped < MAX_SKIPPED &&
                isfinite(result.loss);
    DTP_TRY(compare_kind(v, DTP_VERIFY_GRADIENT, step, err));
    DTP_TRY(compare_kind(v, DTP_VERIFY_OUTPUT, step, err));
    DTP_TRY(compare_kind(v, DTP_VERIFY_UPDATE, step, err));
    double skips = v->skips ? 1.0 : 0.0;
    DTP_TRY(v->scales ? dtp_comm_all_reduce(v->s->comm, DTP_REDUCE_MAX, DTP_F64, 1, &skips, err)
                      : DTP_OK);
    *skipped = skips > 0.0;
    return *skipped ? dtp_comm_agree_status(v->s->comm, lower_scale(v, scale, err), err) : DTP_OK;
}

/* Errors found on rank 0 become known to all: maxima over the ranks, nothing elsewhere. */
static dtp_status share(verification *v, dtp_err *err)
{
    dtp_verify_result *r = v->out;
    for (int32_t i = 0; i < r->n; i++) {
        dtp_verify_item *item = &r->items[i];
        double x[5] = {item->rel_err, item->abs_err, item->ref_max, (double)item->step,
                       (double)item->nan_step};
        DTP_TRY(dtp_comm_all_reduce(v->s->comm, DTP_REDUCE_MAX, DTP_F64, 5, x, err));
        item->rel_err = x[0];
        item->abs_err = x[1];
        item->ref_max = x[2];
        item->step = (int32_t)x[3];
        item->nan_step = (int32_t)x[4];
        r->max_rel_err = fmax(r->max_rel_err, item->rel_err);
        r->pass = r->pass && item->rel_err <= dtp_verify_bound(r, item->kind);
    }
    return dtp_session_peaks(v->s, r->peak_bytes, err);
}

/* Everything after the one device exists. */
static dtp_status all_steps(verification *v, dtp_err *err)
{
    DTP_TRY(dtp_comm_agree_status(v->s->comm, make_room(v, err), err));
    DTP_TRY(compare_kind(v, DTP_VERIFY_INITIAL, 0, err));
    for (int32_t i = 0; i < v->out->steps;) {
        bool skipped;
        DTP_TRY(one_step(v, i, &skipped, err));
        v->out->skipped += skipped ? 1 : 0;
        i += skipped ? 0 : 1;
    }
    return share(v, err);
}

/* Everything after the sharded session exists. */
static dtp_status with_reference(verification *v, const dtp_verify_options *o, dtp_err *err)
{
    dtp_verify_reference *made = NULL;
    dtp_status status = DTP_OK;
    if (v->s->comm->rank == 0 && o->kept == NULL) {
        status = dtp_verify_reference_create(v->ref_graph, o, &made, err);
    } else if (v->s->comm->rank == 0) {
        status = dtp_verify__reference_start(o->kept, v->ref_graph, o, err);
    }
    status = dtp_comm_agree_status(v->s->comm, status, err);
    if (status == DTP_OK) {
        v->ref = made != NULL || v->s->comm->rank != 0 ? made : o->kept;
        status = all_steps(v, err);
    }
    dtp_verify__update_free(&v->update);
    for (int32_t i = 0; i < N_HOSTS; i++) {
        free(v->host[i]);
    }
    free(v->subjects);
    dtp_verify_reference_destroy(made);
    return status;
}

dtp_status dtp_verify(const dtp_graph *g, const dtp_program *sharded, dtp_backend *backend,
                      dtp_comm *comm, const dtp_verify_options *options, dtp_verify_result *out,
                      dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    const double unit = unit_of(g);
    const bool given = options->tolerance >= 0.0, rounds = unit > dtp_verify__unit(DTP_F32);
    const double least = rounds ? least_bound(g, unit) : 0.0;
    *out = (dtp_verify_result){.ranks = comm->size,
                               .steps = options->steps,
                               .tolerance = given ? options->tolerance : TOLERANCE,
                               .compute_tolerance =
                                   given ? options->tolerance : fmax(TOLERANCE, least),
                               .pass = true,
                               .predicted_peak_bytes = sharded->peak_bytes};
    if (options->steps < 1) {
        return DTP_FAIL(err, DTP_INVALID, "verify: %d steps, expected at least 1", options->steps);
    }
    dtp_session_options so = dtp_session_options_init();
    so.seed = options->seed;
    so.n_feeds = options->n_feeds;
    so.feeds = options->feeds;
    so.allow_nan = true;
    verification v = {.g = g,
                      .ref_graph = options->reference_graph != NULL ? options->reference_graph : g,
                      .update = {.node = -1},
                      .failed = -1,
                      .rounds = rounds,
                      .unit = unit,
                      .out = out};
    DTP_TRY(dtp_session_create(sharded, backend, comm, &so, &v.s, err));
    dtp_status status = with_reference(&v, options, err);
    dtp_session_destroy(v.s);
    return status;
}

void dtp_verify_result_free(dtp_verify_result *r)
{
    free(r->items);
    free(r->losses);
    free(r->ref_losses);
    free(r->peak_bytes);
    free(r->predicted_bytes);
    *r = (dtp_verify_result){0};
}
