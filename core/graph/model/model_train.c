/* "train" of a model file: the loss, the optimizer, groups of parameters, clipping, the schedule.
 */
#include <string.h>

#include "core/graph/model/model_internal.h"
#include "core/graph/optimizer.h"
#include "core/graph/param_globs.h"

enum { MAX_OPTIMIZERS = 31 };

/* ---- the optimizer ---- */

/* Sets the hyperparameters that `fields` gives; `extra` is another key that it has, NULL: none.
 * With `all` those without a default are required. */
static dtp_status read_hypers(const dtp_json *fields, const char *extra, bool all,
                              dtp_optimizer_spec *opt, dtp_err *err)
{
    const dtp_attr_spec *attrs = opt->op->attrs;
    const char *keys[DTP_OPTIMIZER_MAX_HYPERS + 2] = {NULL};
    const int32_t n = dtp_optimizer_hypers(opt->op);
    for (int32_t i = 0; i < n; i++) {
        keys[i] = attrs[i].key;
    }
    keys[n] = extra;
    DTP_TRY(dtp_json_keys(fields, keys, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *given = dtp_json_get(fields, keys[i]);
        double value;
        dtp_err why = {0};
        if (given == NULL && !(all && attrs[i].required)) {
            continue;
        }
        DTP_TRY(dtp_json_require(fields, keys[i], &given, err));
        DTP_TRY(dtp_json_double(given, &value, err));
        if (dtp_optimizer_spec_set(opt, keys[i], value, &why) != DTP_OK) {
            return dtp_json_fail(given, err, "%s", why.msg);
        }
    }
    return DTP_OK;
}

/* {"adamw": {"lr": ...}} */
static dtp_status read_optimizer(const dtp_op_set *ops, const dtp_json *v, dtp_optimizer_spec *opt,
                                 dtp_err *err)
{
    const char *names[MAX_OPTIMIZERS + 1] = {NULL};
    for (int32_t i = 0; i < MAX_OPTIMIZERS && dtp_optimizer_at(ops, i) != NULL; i++) {
        names[i] = dtp_optimizer_at(ops, i)->name;
    }
    DTP_TRY(dtp_json_keys(v, names, err));
    if (dtp_json_size(v) != 1) {
        return dtp_json_fail(v, err, "expected one optimizer, found %d", dtp_json_size(v));
    }
    const dtp_json *fields = dtp_json_at(v, 0);
    *opt = dtp_optimizer_spec_of(dtp_optimizer_find(ops, dtp_json_key(fields)));
    return read_hypers(fields, NULL, true, opt, err);
}

/* ---- groups ---- */

/* A group without parameters is a mistake. `taken`: tensors that a group before has; `own`:
 * scratch. */
static dtp_status check_group(const dtp_graph *g, const char *glob, bool *taken, bool *own,
                              const dtp_json *place, dtp_err *err)
{
    bool has = false;
    memset(own, 0, (size_t)g->n_tensors * sizeof *own);
    DTP_TRY(dtp_json_prefixed(place, dtp_params_match(g, glob, own, err), err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        has = has || (own[t] && !taken[t]);
        taken[t] = taken[t] || own[t];
    }
    return has ? DTP_OK
               : dtp_json_fail(place, err,
                               "groups before it have all parameters that '%.200s' matches", glob);
}

/* [{"params": "**.bias", "weight_decay": 0}, ...] */
static dtp_status read_groups(dtp_graph *g, const dtp_json *list, dtp_training *train, dtp_err *err)
{
    dtp_param_group *groups;
    bool *taken, *own;
    DTP_TRY(dtp_json_expect(list, DTP_JSON_ARRAY, err));
    if (dtp_json_size(list) > DTP_MODEL_MAX_GROUPS) {
        return dtp_json_fail(list, err, "%d groups, the limit is %d", dtp_json_size(list),
                             DTP_MODEL_MAX_GROUPS);
    }
    DTP_TRY(DTP_NEW(g->arena, groups, dtp_json_size(list), err));
    DTP_TRY(DTP_NEW(g->arena, taken, g->n_tensors, err));
    DTP_TRY(DTP_NEW(g->arena, own, g->n_tensors, err));
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const dtp_json *item = dtp_json_at(list, i), *place;
        const char *glob;
        DTP_TRY(dtp_json_expect(item, DTP_JSON_OBJECT, err));
        DTP_TRY(dtp_json_require(item, "params", &place, err));
        DTP_TRY(dtp_json_string(place, &glob, err));
        groups[i] = (dtp_param_group){.params = dtp_arena_strdup(g->arena, glob),
                                      .optimizer = train->optimizer};
        DTP_TRY(DTP_MEMORY(err, groups[i].params));
        DTP_TRY(read_hypers(item, "params", false, &groups[i].optimizer, err));
        DTP_TRY(check_group(g, groups[i].params, taken, own, place, err));
    }
    train->n_groups = dtp_json_size(list);
    train->groups = groups;
    return DTP_OK;
}

/* ---- the schedule ---- */

static const char *const KINDS[] = {"constant",     "linear",    "cosine",
                                    "inverse_sqrt", "piecewise", NULL};

static dtp_status read_pieces(const dtp_json *v, dtp_schedule *s, dtp_err *err)
{
    const dtp_json *at, *scale;
    DTP_TRY(dtp_json_require(v, "at", &at, err));
    DTP_TRY(dtp_json_require(v, "scale", &scale, err));
    DTP_TRY(dtp_json_expect(at, DTP_JSON_ARRAY, err));
    DTP_TRY(dtp_json_expect(scale, DTP_JSON_ARRAY, err));
    s->n = dtp_json_size(at);
    if (s->n > DTP_SCHEDULE_PIECES || s->n != dtp_json_size(scale)) {
        return dtp_json_fail(v, err,
                             "%d steps in 'at' and %d factors in 'scale', expected as many "
                             "of both, up to %d",
                             s->n, dtp_json_size(scale), DTP_SCHEDULE_PIECES);
    }
    for (int32_t i = 0; i < s->n; i++) {
        DTP_TRY(dtp_json_int(dtp_json_at(at, i), 0, INT64_MAX, &s->at[i], err));
        DTP_TRY(dtp_json_double(dtp_json_at(scale, i), &s->scale[i], err));
    }
    return DTP_OK;
}

/* {"cosine": {"warmup": 100, "steps": 10000, "last": 0.1}} */
static dtp_status read_schedule(const dtp_json *v, dtp_schedule *s, dtp_err *err)
{
    static const char *const keys[][5] = {
        [DTP_SCHEDULE_CONSTANT] = {"warmup", NULL},
        [DTP_SCHEDULE_LINEAR] = {"warmup", "steps", "last", NULL},
        [DTP_SCHEDULE_COSINE] = {"warmup", "steps", "last", NULL},
        [DTP_SCHEDULE_INVERSE_SQRT] = {"warmup", NULL},
        [DTP_SCHEDULE_PIECEWISE] = {"warmup", "at", "scale", NULL}};
    DTP_TRY(dtp_json_keys(v, KINDS, err));
    if (dtp_json_size(v) != 1) {
        return dtp_json_fail(v, err, "expected one schedule, found %d", dtp_json_size(v));
    }
    const dtp_json *fields = dtp_json_at(v, 0);
    while (strcmp(KINDS[s->kind], dtp_json_key(fields)) != 0) {
        s->kind++;
    }
    DTP_TRY(dtp_json_keys(fields, keys[s->kind], err));
    if (dtp_json_get(fields, "warmup") != NULL || s->kind == DTP_SCHEDULE_INVERSE_SQRT) {
        DTP_TRY(dtp_json_get_int(fields, "warmup", 0, INT64_MAX, &s->warmup, err));
    }
    if (s->kind == DTP_SCHEDULE_LINEAR || s->kind == DTP_SCHEDULE_COSINE) {
        DTP_TRY(dtp_json_get_int(fields, "steps", 1, INT64_MAX, &s->steps, err));
    }
    if (dtp_json_get(fields, "last") != NULL) {
        DTP_TRY(dtp_json_get_double(fields, "last", &s->last, err));
    }
    DTP_TRY(s->kind == DTP_SCHEDULE_PIECEWISE ? read_pieces(fields, s, err) : DTP_OK);
    return dtp_json_prefixed(fields, dtp_schedule_check(s, err), err);
}

/* ---- all ---- */

static dtp_status read_loss(const dtp_model_reader *r, const dtp_model_scope *scope,
                            const dtp_json *train, dtp_tensor_id *loss, dtp_err *err)
{
    const dtp_json *name;
    DTP_TRY(dtp_json_require(train, "loss", &name, err));
    DTP_TRY(dtp_model__tensor(r, scope, name, loss, err));
    const dtp_graph_tensor *t = &r->g->tensors[*loss];
    if (t->kind != DTP_TENSOR_VALUE || t->type.rank != 0 || !dtp_dtype_is_float(t->type.dtype)) {
        char text[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&t->type, &r->g->dims, text);
        return dtp_json_fail(
            name, err, "the loss is a floating-point scalar made by a node, '%s' is %s%.200s",
            t->name, t->kind == DTP_TENSOR_VALUE ? "" : "an input or param ", text);
    }
    return DTP_OK;
}

static dtp_status read_clip(const dtp_json *v, double *out, dtp_err *err)
{
    DTP_TRY(dtp_json_double(v, out, err));
    return *out > 0.0 && *out <= 1e30 ? DTP_OK
                                      : dtp_json_fail(v, err, "%g is not in (0, 1e30]", *out);
}

dtp_status dtp_model__train(dtp_model_reader *r, const dtp_model_scope *scope,
                            const dtp_json *train, dtp_tensor_id *loss, dtp_err *err)
{
    static const char *const keys[] = {"loss",      "optimizer", "groups",
                                       "clip_norm", "schedule",  NULL};
    dtp_training *t = &r->g->training;
    const dtp_json *optimizer, *groups, *clip, *schedule;
    DTP_TRY(dtp_json_keys(train, keys, err));
    DTP_TRY(read_loss(r, scope, train, loss, err));
    DTP_TRY(dtp_json_require(train, "optimizer", &optimizer, err));
    DTP_TRY(read_optimizer(r->g->ops, optimizer, &t->optimizer, err));
    groups = dtp_json_get(train, "groups");
    clip = dtp_json_get(train, "clip_norm");
    schedule = dtp_json_get(train, "schedule");
    DTP_TRY(groups != NULL ? read_groups(r->g, groups, t, err) : DTP_OK);
    DTP_TRY(clip != NULL ? read_clip(clip, &t->clip_norm, err) : DTP_OK);
    return schedule != NULL ? read_schedule(schedule, &t->schedule, err) : DTP_OK;
}
