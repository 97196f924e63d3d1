/* Optimizers of eager training: update ops (core/graph/optimizer.h) run as calls that know their
 * step. */
#include "dtp/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/ops/op_table.h"
#include "core/graph/optimizer.h"
#include "dtensor/canonical_call.h"
#include "dtensor/gradient_norm.h"

static const char WHAT[] = "optimizer";

/* A parameter, its hyperparameters and its states. */
typedef struct entry {
    dtp_tensor param; /* the caller's */
    dtp_optimizer_spec spec;
    dtp_tensor states[DTP_MAX_OP_OUT];
} entry;

struct dtp_optimizer {
    dtp_device_mesh *mesh;
    dtp_optimizer_spec spec; /* of parameters that have none of their own */
    dtp_schedule schedule;
    double clip_norm, grad_norm; /* 0: gradients are not clipped; NaN */
    int64_t steps;
    int32_t n, cap;
    entry *entries;
};

static dtp_status set_hypers(dtp_optimizer_spec *spec, int32_t n, const dtp_hyper *hypers,
                             dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(dtp_optimizer_spec_set(spec, hypers[i].key, hypers[i].value, err));
    }
    return DTP_OK;
}

static dtp_status read_hypers(dtp_optimizer_spec *spec, int32_t n, const dtp_hyper *hypers,
                              dtp_err *err)
{
    const dtp_attr_spec *attrs = spec->op->attrs;
    DTP_TRY(set_hypers(spec, n, hypers, err));
    for (int32_t k = 0; k < dtp_optimizer_hypers(spec->op); k++) {
        bool given = !attrs[k].required;
        for (int32_t i = 0; i < n; i++) {
            given = given || strcmp(hypers[i].key, attrs[k].key) == 0;
        }
        if (!given) {
            return DTP_FAIL(err, DTP_INVALID, "hyperparameter '%s' is required", attrs[k].key);
        }
    }
    return DTP_OK;
}

dtp_status dtp_optimizer_create(dtp_device_mesh *mesh, const char *name, int32_t n,
                                const dtp_hyper *hypers, dtp_optimizer **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, name, out));
    if (n > 0) {
        DTP_TRY(DTP_NOT_NULL(err, hypers));
    }
    const dtp_op_def *op = dtp_optimizer_find(dtp_builtin_ops(), name);
    if (op == NULL) {
        char known[128] = "";
        for (int32_t i = 0; dtp_optimizer_at(dtp_builtin_ops(), i) != NULL; i++) {
            (void)strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
            (void)strncat(known, dtp_optimizer_at(dtp_builtin_ops(), i)->name,
                          sizeof known - strlen(known) - 1);
        }
        return DTP_FAIL(err, DTP_INVALID, "optimizer: there is no '%.80s'; there are: %s", name,
                        known);
    }
    dtp_optimizer_spec spec = dtp_optimizer_spec_of(op);
    const dtp_status status = read_hypers(&spec, n, hypers, err);
    if (status != DTP_OK) {
        dtp_err_prefix(err, "optimizer '%s'", name);
        return status;
    }
    dtp_optimizer *opt = calloc(1, sizeof *opt);
    DTP_TRY(DTP_MEMORY(err, opt));
    *opt = (dtp_optimizer){.mesh = mesh, .spec = spec, .grad_norm = (double)NAN};
    *out = opt;
    return DTP_OK;
}

void dtp_optimizer_destroy(dtp_optimizer *opt)
{
    if (opt == NULL) {
        return;
    }
    for (int32_t i = 0; i < opt->n; i++) {
        for (int32_t k = 0; k < opt->spec.op->n_out - 1; k++) {
            dtp_tensor_destroy(opt->entries[i].states[k]);
        }
    }
    free(opt->entries);
    free(opt);
}

int64_t dtp_optimizer_steps(const dtp_optimizer *opt)
{
    return opt != NULL ? opt->steps : 0;
}

dtp_status dtp_optimizer_set_steps(dtp_optimizer *opt, int64_t steps, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, opt));
    if (steps < 0) {
        return DTP_FAIL(err, DTP_RANGE, "optimizer: %lld steps", (long long)steps);
    }
    opt->steps = steps;
    return DTP_OK;
}

dtp_status dtp_optimizer_set_schedule(dtp_optimizer *opt, const dtp_schedule *schedule,
                                      dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, opt));
    DTP_TRY(schedule != NULL ? dtp_schedule_check(schedule, err) : DTP_OK);
    opt->schedule = schedule != NULL ? *schedule : (dtp_schedule){0};
    return DTP_OK;
}

dtp_status dtp_optimizer_set_clip_norm(dtp_optimizer *opt, double norm, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, opt));
    if (!(norm >= 0.0 && norm <= 1e30)) {
        return DTP_FAIL(err, DTP_RANGE, "optimizer: the norm %g is not in [0, 1e30]", norm);
    }
    opt->clip_norm = norm;
    return DTP_OK;
}

double dtp_optimizer_grad_norm(const dtp_optimizer *opt)
{
    return opt != NULL ? opt->grad_norm : (double)NAN;
}

/* ---- states ---- */

static bool same_handle(dtp_tensor a, dtp_tensor b)
{
    return a.mesh == b.mesh && a.slot == b.slot && a.generation == b.generation;
}

/* Room for one more, beginning with the states that are there: entries of parameters that were
 * destroyed are used again. */
static dtp_status take_entry(dtp_optimizer *opt, entry **out, dtp_err *err)
{
    for (int32_t i = 0; i < opt->n; i++) {
        if (!dtp_tensor_is_valid(opt->entries[i].param)) {
            for (int32_t k = 0; k < opt->spec.op->n_out - 1; k++) {
                dtp_tensor_destroy(opt->entries[i].states[k]);
            }
            *out = &opt->entries[i];
            **out = (entry){.spec = opt->spec};
            return DTP_OK;
        }
    }
    if (opt->n == opt->cap) {
        const int32_t cap = opt->cap == 0 ? 16 : 2 * opt->cap;
        entry *grown = realloc(opt->entries, (size_t)cap * sizeof *grown);
        DTP_TRY(DTP_MEMORY(err, grown));
        opt->entries = grown;
        opt->cap = cap;
    }
    *out = &opt->entries[opt->n++];
    **out = (entry){.spec = opt->spec};
    return DTP_OK;
}

/* The states of a parameter, zeros at first. */
static dtp_status find_entry(dtp_optimizer *opt, dtp_tensor param, entry **out, dtp_err *err)
{
    dtp_tensor_desc desc;
    dtp_status status = DTP_OK;
    for (int32_t i = 0; i < opt->n; i++) {
        if (same_handle(opt->entries[i].param, param)) {
            *out = &opt->entries[i];
            return DTP_OK;
        }
    }
    DTP_TRY(dtp_tensor_describe(param, &desc, err));
    DTP_TRY(take_entry(opt, out, err));
    for (int32_t k = 0; k < opt->spec.op->n_out - 1 && status == DTP_OK; k++) {
        status = dtp_tensor_zeros(opt->mesh, &desc, &(*out)->states[k], err);
    }
    (*out)->param = status == DTP_OK ? param : (dtp_tensor){0};
    return status;
}

static dtp_status check_param(const dtp_optimizer *opt, dtp_tensor param, dtp_tensor_slot **out,
                              dtp_err *err)
{
    DTP_TRY(dtp_tensor__slot_on(opt->mesh, param, WHAT, out, err));
    if (!(*out)->variable) {
        return DTP_FAIL(err, DTP_INVALID, "it is not a variable");
    }
    if (dtp_layout_has_partial(&(*out)->layout)) {
        char text[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor__text(opt->mesh, &(*out)->type, &(*out)->layout, text);
        return DTP_FAIL(err, DTP_INVALID, "%.400s is partial", text);
    }
    return dtp_optimizer_check_type((*out)->type.dtype, err);
}

/* Entry and number of a state by name. */
static dtp_status find_state(dtp_optimizer *opt, dtp_tensor param, const char *name, entry **e,
                             int32_t *k, dtp_err *err)
{
    const char *have;
    dtp_tensor_slot *slot;
    DTP_TRY(check_param(opt, param, &slot, err));
    for (*k = 0; (have = dtp_optimizer_state_name(opt->spec.op, *k)) != NULL; (*k)++) {
        if (strcmp(have, name) == 0) {
            return find_entry(opt, param, e, err);
        }
    }
    return DTP_FAIL(err, DTP_NOT_FOUND, "optimizer '%s' has no state '%.80s'", opt->spec.op->name,
                    name);
}

dtp_status dtp_optimizer_state(dtp_optimizer *opt, dtp_tensor param, const char *name,
                               dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, opt, name, out));
    entry *e;
    int32_t k;
    DTP_TRY(find_state(opt, param, name, &e, &k, err));
    return dtp_tensor_share(e->states[k], out, err);
}

static dtp_status check_type(const dtp_optimizer *opt, dtp_tensor t, const dtp_ttype *type,
                             const char *what, dtp_err *err)
{
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot_on(opt->mesh, t, what, &slot, err));
    if (!dtp_ttype_equal(&slot->type, type)) {
        char have[DTP_TENSOR_TEXT_BYTES], want[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor__text(opt->mesh, &slot->type, &slot->layout, have);
        const dtp_layout whole = dtp_layout_replicated(type->rank, slot->layout.n_mesh);
        dtp_tensor__text(opt->mesh, type, &whole, want);
        want[strcspn(want, " ")] = '\0';
        return DTP_FAIL(err, DTP_INVALID, "the %s is %.400s, the parameter %.200s", what, have,
                        want);
    }
    return DTP_OK;
}

dtp_status dtp_optimizer_set_state(dtp_optimizer *opt, dtp_tensor param, const char *name,
                                   dtp_tensor value, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, opt, name));
    entry *e;
    int32_t k;
    dtp_tensor made;
    dtp_tensor_slot *slot;
    dtp_layout layout;
    dtp_status status = find_state(opt, param, name, &e, &k, err);
    status = status == DTP_OK ? check_param(opt, param, &slot, err) : status;
    status = status == DTP_OK ? check_type(opt, value, &slot->type, "state", err) : status;
    if (status != DTP_OK) {
        return dtp_call__refuse(opt->mesh, status, WHAT, err);
    }
    layout = slot->layout;
    DTP_TRY(dtp_tensor__relaid(value, &layout, &made, err));
    dtp_tensor_destroy(e->states[k]);
    e->states[k] = made;
    return DTP_OK;
}

/* ---- steps ---- */

/* The norm of gradients needs one type, which holds their squares. */
static dtp_status check_clipped(const dtp_optimizer *opt, dtp_dtype first, dtp_dtype dtype,
                                dtp_err *err)
{
    if (opt->clip_norm == 0.0 || (dtype == first && !dtp_dtype_is_half(dtype))) {
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "it is %s, the first is %s: gradients that are clipped "
                    "are all f32 or all f64",
                    dtp_dtype_name(dtype), dtp_dtype_name(first));
}

/* grads NULL: not looked at. */
static dtp_status check_step(const dtp_optimizer *opt, int32_t n, const dtp_tensor *params,
                             const dtp_tensor *grads, dtp_err *err)
{
    dtp_dtype first = DTP_F32;
    for (int32_t i = 0; i < n; i++) {
        dtp_tensor_slot *slot;
        dtp_status status = check_param(opt, params[i], &slot, err);
        if (status == DTP_OK && grads != NULL) {
            first = i == 0 ? slot->type.dtype : first;
            status = check_clipped(opt, first, slot->type.dtype, err);
            status =
                status == DTP_OK ? check_type(opt, grads[i], &slot->type, "gradient", err) : status;
        }
        for (int32_t k = 0; k < i && status == DTP_OK; k++) {
            if (same_handle(params[k], params[i])) {
                status = DTP_FAIL(err, DTP_INVALID, "it is also parameter %d", k);
            }
        }
        if (status != DTP_OK) {
            dtp_err_prefix(err, "optimizer '%s': parameter %d", opt->spec.op->name, i);
            return status;
        }
    }
    return DTP_OK;
}

dtp_status dtp_optimizer_set_group(dtp_optimizer *opt, int32_t n, const dtp_tensor *params,
                                   int32_t n_hypers, const dtp_hyper *hypers, dtp_err *err)
{
    dtp_optimizer_spec spec;
    DTP_TRY(DTP_NOT_NULL(err, opt));
    if (n > 0) {
        DTP_TRY(DTP_NOT_NULL(err, params));
    }
    if (n_hypers > 0) {
        DTP_TRY(DTP_NOT_NULL(err, hypers));
    }
    spec = opt->spec;
    DTP_TRY(dtp_err_prefixed(set_hypers(&spec, n_hypers, hypers, err), err, "optimizer '%s'",
                             spec.op->name));
    DTP_TRY(check_step(opt, n, params, NULL, err));
    for (int32_t i = 0; i < n; i++) {
        entry *e;
        DTP_TRY(find_entry(opt, params[i], &e, err));
        e->spec = spec;
    }
    return DTP_OK;
}

/* The gradients of a step where their parameters lie, and the factor of the updates. */
typedef struct gradients {
    int32_t n;
    dtp_tensor *of;
    bool clipped;
    dtp_tensor factor; /* clipped */
} gradients;

/* The update op on parameter, gradient and states, all in one layout. */
static dtp_status run_update(const dtp_optimizer *opt, const entry *e, const gradients *g,
                             int32_t at, dtp_tensor *outs, dtp_err *err)
{
    const dtp_op_def *op = opt->spec.op;
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(e->param, WHAT, &slot, err));
    const dtp_layout layout = slot->layout;
    dtp_tensor in[2 + DTP_MAX_OP_OUT] = {e->param, g->of[at]};
    dtp_arg args[DTP_OPTIMIZER_MAX_HYPERS];
    dtp_call call = {.op = op->name,
                     .n_in = op->min_in + (g->clipped ? 1 : 0),
                     .in = in,
                     .n_args = dtp_optimizer_hypers(op),
                     .args = args,
                     .out_layout = &layout};
    dtp_canonical_call canonical;
    memcpy(in + 2, e->states, (size_t)(op->n_out - 1) * sizeof *in);
    in[op->min_in] = g->factor;
    for (int32_t i = 0; i < call.n_args; i++) {
        args[i] = (dtp_arg){.key = op->attrs[i].key, .kind = DTP_ARG_FLOAT, .f = e->spec.hyper[i]};
    }
    DTP_TRY(dtp_canonical__read(&call, "dtp_optimizer_step", &canonical, err));
    canonical.step = opt->steps;
    canonical.lr_scale = dtp_schedule_at(&opt->schedule, opt->steps);
    return dtp_canonical__run(&canonical, outs, err);
}

static dtp_status update(dtp_optimizer *opt, dtp_tensor param, const gradients *g, int32_t at,
                         dtp_err *err)
{
    const int32_t n_out = opt->spec.op->n_out;
    dtp_tensor outs[DTP_MAX_OP_OUT];
    entry *e;
    DTP_TRY(find_entry(opt, param, &e, err));
    DTP_TRY(run_update(opt, e, g, at, outs, err));
    const dtp_status status = dtp_variable_assign(param, outs[0], err);
    dtp_tensor_destroy(outs[0]);
    for (int32_t k = 1; k < n_out; k++) {
        dtp_tensor_destroy(status == DTP_OK ? e->states[k - 1] : outs[k]);
        e->states[k - 1] = status == DTP_OK ? outs[k] : e->states[k - 1];
    }
    return status;
}

/* The next gradient as its parameter lies. */
static dtp_status lay_out(gradients *g, const dtp_tensor *params, const dtp_tensor *grads,
                          dtp_err *err)
{
    dtp_tensor_slot *slot;
    DTP_TRY(dtp_tensor__slot(params[g->n], WHAT, &slot, err));
    const dtp_layout layout = slot->layout;
    DTP_TRY(dtp_tensor__relaid(grads[g->n], &layout, &g->of[g->n], err));
    g->n++;
    return DTP_OK;
}

/* min(1, clip_norm / (norm + 1e-6)), as core/graph/clip.h. */
static dtp_status clip(dtp_optimizer *opt, gradients *g, int32_t n, const dtp_tensor *params,
                       const dtp_tensor *grads, dtp_err *err)
{
    dtp_tensor_desc param, one = {0};
    while (g->n < n) {
        DTP_TRY(lay_out(g, params, grads, err));
    }
    DTP_TRY(dtp_gradient__norm(g->n, g->of, &opt->grad_norm, err));
    if (!isfinite(opt->grad_norm)) {
        return DTP_FAIL(err, DTP_NOT_FINITE, "%s: the norm of the gradients is %g", WHAT,
                        opt->grad_norm);
    }
    DTP_TRY(dtp_tensor_describe(g->of[0], &param, err));
    DTP_TRY(dtp_tensor_desc_init(opt->mesh, param.dtype, 0, NULL, "replicated", &one, err));
    const double factor = fmin(1.0, opt->clip_norm / (opt->grad_norm + 1e-6));
    DTP_TRY(dtp_tensor_full(opt->mesh, &one, factor, &g->factor, err));
    g->clipped = true;
    return DTP_OK;
}

static void free_gradients(gradients *g)
{
    for (int32_t i = 0; i < g->n; i++) {
        dtp_tensor_destroy(g->of[i]);
    }
    if (g->clipped) {
        dtp_tensor_destroy(g->factor);
    }
    free(g->of);
}

dtp_status dtp_optimizer_step(dtp_optimizer *opt, int32_t n, const dtp_tensor *params,
                              const dtp_tensor *grads, dtp_err *err)
{
    gradients g = {.of = NULL};
    DTP_TRY(DTP_NOT_NULL(err, opt));
    if (n > 0) {
        DTP_TRY(DTP_NOT_NULL(err, params, grads));
    }
    dtp_status status = check_step(opt, n, params, grads, err);
    if (status != DTP_OK) {
        return dtp_call__refuse(opt->mesh, status, WHAT, err);
    }
    opt->grad_norm = (double)NAN;
    g.of = calloc((size_t)n + 1, sizeof *g.of);
    status = DTP_MEMORY(err, g.of);
    if (status == DTP_OK && n > 0 && opt->clip_norm > 0.0) {
        status = clip(opt, &g, n, params, grads, err);
    }
    for (int32_t i = 0; i < n && status == DTP_OK; i++) { /* without clipping one at a time */
        status = g.clipped ? DTP_OK : lay_out(&g, params, grads, err);
        status = status == DTP_OK ? update(opt, params[i], &g, i, err) : status;
        if (i < g.n) {
            dtp_tensor_destroy(g.of[i]);
            g.of[i] = (dtp_tensor){0};
        }
    }
    free_gradients(&g);
    opt->steps += status == DTP_OK ? 1 : 0;
    return status;
}
