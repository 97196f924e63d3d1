/* The reference runs on rank 0 alone; the pieces of every rank (replicas too) are streamed there
 * and compared element by element, so no other rank holds a whole tensor. The finished result is
 * sent to all ranks, element by element of a small table. */
#include "executor/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "executor/convert.h"
#include "executor/session_internal.h"
#include "spmd/lower.h"

static const double tiny = 1e-30;

dtp_verify_options dtp_verify_options_init(void)
{
    return (dtp_verify_options){.steps = 3, .tolerance = 2e-5};
}

const char *dtp_verify_kind_name(dtp_verify_kind kind)
{
    static const char *const names[] = {"outputs", "gradients", "params"};
    return names[kind];
}

dtp_status dtp_verify_fetches(const dtp_graph *g, dtp_arena *arena, int32_t *n,
                              const dtp_tensor_id **out, dtp_err *err)
{
    dtp_tensor_id *ids =
        dtp_arena_alloc(arena, (size_t)g->n_outputs + (size_t)g->n_grads + 1, sizeof *ids);
    if (ids == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the list of fetches");
    }
    *n = 0;
    if (g->loss >= 0) {
        ids[(*n)++] = g->loss;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        ids[(*n)++] = g->outputs[i];
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        ids[(*n)++] = g->grads[i].grad;
    }
    *out = ids;
    return DTP_OK;
}

/* ---- the reference ---- */

typedef struct reference {
    dtp_arena *arena;
    dtp_sharding sharding;
    dtp_program *program;
    dtp_comm *comm;
    dtp_session *session;
} reference;

static void reference_free(reference *r)
{
    dtp_session_destroy(r->session);
    dtp_comm_destroy(r->comm);
    dtp_program_destroy(r->program);
    dtp_arena_destroy(r->arena);
}

static dtp_status replicate_all(const dtp_graph *g, dtp_arena *arena, dtp_sharding *s, dtp_err *err)
{
    s->mesh = (dtp_mesh){0};
    s->n_tensors = g->n_tensors;
    s->n_nodes = g->n_nodes;
    s->layouts = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *s->layouts);
    s->strategies = dtp_arena_alloc(arena, (size_t)g->n_nodes, sizeof *s->strategies);
    if (s->layouts == NULL || s->strategies == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the reference plan");
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        s->layouts[t] = dtp_layout_replicated(g->tensors[t].type.rank, 0);
    }
    return DTP_OK;
}

static dtp_status reference_make(const dtp_graph *g, const dtp_verify_options *o, reference *r,
                                 dtp_err *err)
{
    dtp_lower_options lower = dtp_lower_options_init();
    dtp_session_options session = dtp_session_options_init();
    r->arena = dtp_arena_create();
    if (r->arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the reference");
    }
    DTP_TRY(replicate_all(g, r->arena, &r->sharding, err));
    DTP_TRY(dtp_verify_fetches(g, r->arena, &lower.n_fetch, &lower.fetch, err));
    DTP_TRY(dtp_lower(g, &r->sharding, &lower, &r->program, err));
    DTP_TRY(dtp_comm_self_create(&r->comm, err));
    session.seed = o->seed;
    session.n_feeds = o->n_feeds;
    session.feeds = o->feeds;
    return dtp_session_create(r->program, o->reference, r->comm, &session, &r->session, err);
}

/* ---- comparison ---- */

typedef struct comparison {
    dtp_dtype dtype;
    const void *reference; /* whole tensor, on host memory */
    double abs_err;
    bool broken; /* a NaN or an infinity on one side only */
} comparison;

static void compare_run(void *user, int64_t in_tensor, const void *data, int64_t n)
{
    comparison *c = user;
    for (int64_t i = 0; i < n; i++) {
        double a = dtp_element(c->dtype, data, i);
        double b = dtp_element(c->dtype, c->reference, in_tensor + i);
        double diff = a == b ? 0.0 : fabs(a - b);
        if (!isfinite(diff)) {
            c->broken = true;
        } else if (diff > c->abs_err) {
            c->abs_err = diff;
        }
    }
}

static dtp_status compare_chunk(void *user, int32_t rank, const dtp_piece *piece, int64_t first,
                                int64_t n, const void *data, dtp_err *err)
{
    (void)rank;
    (void)err;
    comparison *c = user;
    dtp_session__runs(piece, first, n, data, dtp_dtype_bytes(c->dtype), compare_run, c);
    return DTP_OK;
}

typedef struct verification {
    const dtp_graph *g, *ref_graph;
    dtp_session *s;
    reference *ref; /* rank 0 only, else NULL */
    dtp_verify_result *out;
} verification;

static double largest(dtp_dtype dtype, const void *data, int64_t n)
{
    double top = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(dtp_element(dtype, data, i));
        top = isfinite(v) && v > top ? v : top;
    }
    return top;
}

/* Adds one comparison to an item; an item keeps its worst. */
static void merge(dtp_verify_item *item, const comparison *c, double ref_max)
{
    double abs_err = c->broken ? (double)INFINITY : c->abs_err;
    double rel = abs_err / (ref_max > tiny ? ref_max : tiny);
    if (rel >= item->rel_err) {
        item->rel_err = rel;
        item->abs_err = abs_err;
        item->ref_max = ref_max;
    }
}

/* The whole tensor as the reference has it, in *whole; on rank 0. */
static dtp_status gather_reference(verification *v, dtp_tensor_id t, void **whole, dtp_err *err)
{
    const dtp_graph_tensor *tensor = &v->g->tensors[t];
    const dtp_tensor_id same =
        v->ref_graph == v->g ? t : dtp_graph_find(v->ref_graph, tensor->name);
    if (same < 0 || !dtp_ttype_equal(&v->ref_graph->tensors[same].type, &tensor->type)) {
        return DTP_FAIL(err, DTP_INVALID, "the reference has no tensor like '%s'", tensor->name);
    }
    *whole = malloc((size_t)dtp_ttype_bytes(&tensor->type) + 1);
    return *whole != NULL ? dtp_session_gather(v->ref->session, same, *whole, err)
                          : DTP_FAIL(err, DTP_NOMEM, "no memory for the reference");
}

static dtp_status compare(verification *v, dtp_verify_item *item, dtp_tensor_id t, dtp_err *err)
{
    const dtp_ttype *type = &v->g->tensors[t].type;
    comparison c = {.dtype = type->dtype};
    void *whole = NULL;
    dtp_status status = DTP_OK;
    if (v->ref != NULL) {
        status = gather_reference(v, t, &whole, err);
        c.reference = whole;
    }
    status = dtp_comm_settle(v->s->comm, status, err);
    if (status == DTP_OK) {
        status = dtp_session_collect(v->s, t, true, compare_chunk, &c, err);
    }
    if (status == DTP_OK && v->ref != NULL) {
        merge(item, &c, largest(type->dtype, whole, dtp_ttype_elems(type)));
    }
    free(whole);
    return status;
}

/* ---- the run ---- */

static void add_item(dtp_verify_result *r, dtp_verify_kind kind, dtp_tensor_id t, const char *name)
{
    r->items[r->n++] = (dtp_verify_item){.kind = kind, .tensor = t, .name = name};
}

/* The list of items: the loss and the outputs, the gradients, the parameters. */
static dtp_status list_items(const dtp_graph *g, int32_t steps, dtp_verify_result *r, dtp_err *err)
{
    int32_t params = 0;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        params += g->tensors[t].kind == DTP_TENSOR_PARAM;
    }
    r->capacity = 1 + g->n_outputs + g->n_grads + params;
    r->items = calloc((size_t)r->capacity, sizeof *r->items);
    r->peak_bytes = calloc((size_t)r->ranks, sizeof *r->peak_bytes);
    r->losses = g->loss >= 0 ? calloc((size_t)steps, sizeof *r->losses) : NULL;
    r->ref_losses = g->loss >= 0 ? calloc((size_t)steps, sizeof *r->ref_losses) : NULL;
    if (r->items == NULL || r->peak_bytes == NULL ||
        (g->loss >= 0 && (r->losses == NULL || r->ref_losses == NULL))) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the results");
    }
    if (g->loss >= 0) {
        add_item(r, DTP_VERIFY_OUTPUT, g->loss, g->tensors[g->loss].name);
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i] != g->loss) {
            add_item(r, DTP_VERIFY_OUTPUT, g->outputs[i], g->tensors[g->outputs[i]].name);
        }
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        add_item(r, DTP_VERIFY_GRADIENT, g->grads[i].grad, g->tensors[g->grads[i].param].name);
    }
    for (dtp_tensor_id t = 0; g->n_updates > 0 && t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM) {
            add_item(r, DTP_VERIFY_PARAM, t, g->tensors[t].name);
        }
    }
    return DTP_OK;
}

static dtp_status compare_kind(verification *v, dtp_verify_kind kind, dtp_err *err)
{
    for (int32_t i = 0; i < v->out->n; i++) {
        dtp_verify_item *item = &v->out->items[i];
        if (item->kind != kind) {
            continue;
        }
        dtp_status status = compare(v, item, item->tensor, err);
        if (status != DTP_OK) {
            dtp_err_prefix(err, "verify %s '%s'", dtp_verify_kind_name(kind), item->name);
            return status;
        }
    }
    return DTP_OK;
}

static dtp_status one_step(verification *v, int32_t step, dtp_err *err)
{
    dtp_step_result result, expected;
    DTP_TRY(dtp_session_step(v->s, &result, err));
    dtp_status status = DTP_OK;
    if (v->ref != NULL) {
        status = dtp_session_step(v->ref->session, &expected, err);
    }
    DTP_TRY(dtp_comm_settle(v->s->comm, status, err));
    if (v->out->losses != NULL) {
        v->out->losses[step] = result.loss;
        v->out->ref_losses[step] = v->ref != NULL ? expected.loss : 0.0;
    }
    DTP_TRY(compare_kind(v, DTP_VERIFY_OUTPUT, err));
    return step == 0 ? compare_kind(v, DTP_VERIFY_GRADIENT, err) : DTP_OK;
}

/* Gradients and parameters that rounding alone made: where exact arithmetic gives zero (the bias of
 * the keys of attention) any two runs differ by as much as is there. So an error is never measured
 * against less than 1e-8 of the largest value of its kind, which is less than f32 resolves. */
static void judge(dtp_verify_result *r)
{
    static const double resolved = 1e-8;
    double top[DTP_VERIFY_PARAM + 1] = {0};
    for (int32_t i = 0; i < r->n; i++) {
        const dtp_verify_item *item = &r->items[i];
        top[item->kind] = fmax(top[item->kind], item->ref_max);
    }
    for (int32_t i = 0; i < r->n; i++) {
        dtp_verify_item *item = &r->items[i];
        const double least = resolved * top[item->kind];
        if (item->kind != DTP_VERIFY_OUTPUT && item->ref_max < least) {
            item->rel_err = item->abs_err / least;
        }
        r->max_rel_err = fmax(r->max_rel_err, item->rel_err);
    }
    r->pass = r->max_rel_err <= r->tolerance;
}

/* Errors found on rank 0 become known to all: maxima over the ranks, zero elsewhere. */
static dtp_status share(verification *v, dtp_err *err)
{
    dtp_comm *comm = v->s->comm;
    dtp_coll coll = {.kind = DTP_ALL_REDUCE,
                     .set = dtp_session__all(v->s),
                     .op = DTP_REDUCE_MAX,
                     .dtype = DTP_F64,
                     .count = 3};
    for (int32_t i = 0; i < v->out->n; i++) {
        dtp_verify_item *item = &v->out->items[i];
        double x[3] = {item->rel_err, item->abs_err, item->ref_max};
        DTP_TRY(comm->ops->run(comm, &coll, x, x, err));
        item->rel_err = x[0];
        item->abs_err = x[1];
        item->ref_max = x[2];
    }
    judge(v->out);
    return dtp_session_peaks(v->s, v->out->peak_bytes, err);
}

static dtp_status run(verification *v, int32_t steps, dtp_err *err)
{
    for (int32_t i = 0; i < steps; i++) {
        DTP_TRY(one_step(v, i, err));
    }
    DTP_TRY(compare_kind(v, DTP_VERIFY_PARAM, err));
    return share(v, err);
}

/* Everything after the sharded session exists. */
static dtp_status with_reference(verification *v, const dtp_verify_options *o, dtp_err *err)
{
    reference ref = {0};
    bool first = v->s->comm->rank == 0;
    dtp_status status = first ? reference_make(v->ref_graph, o, &ref, err) : DTP_OK;
    if (status != DTP_OK) {
        dtp_err_prefix(err, "verify: reference");
    }
    status = dtp_comm_settle(v->s->comm, status, err);
    if (status == DTP_OK) {
        v->ref = first ? &ref : NULL;
        status = list_items(v->g, o->steps, v->out, err);
        status = dtp_comm_settle(v->s->comm, status, err);
    }
    if (status == DTP_OK) {
        status = run(v, o->steps, err);
    }
    v->ref = NULL;
    reference_free(&ref);
    return status;
}

dtp_status dtp_verify(const dtp_graph *g, const dtp_program *sharded, dtp_backend *backend,
                      dtp_comm *comm, const dtp_verify_options *options, dtp_verify_result *out,
                      dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    *out = (dtp_verify_result){.ranks = comm->size,
                               .steps = options->steps,
                               .tolerance = options->tolerance,
                               .predicted_peak_bytes = sharded->peak_bytes};
    if (options->steps < 1) {
        return DTP_FAIL(err, DTP_INVALID, "verify: %d steps, expected at least 1", options->steps);
    }
    dtp_session_options so = dtp_session_options_init();
    so.seed = options->seed;
    so.n_feeds = options->n_feeds;
    so.feeds = options->feeds;
    verification v = {.g = g,
                      .ref_graph = options->reference_graph != NULL ? options->reference_graph : g,
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
    *r = (dtp_verify_result){0};
}
