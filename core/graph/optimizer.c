/* Optimizers: hyperparameters, groups of parameters, update nodes. */
#include "core/graph/optimizer.h"

#include <stdio.h>
#include <string.h>

#include "core/base/glob.h"
#include "core/graph/autodiff.h"
#include "core/graph/clip.h"

enum { NAME_BYTES = 640 };

/* ---- the table ---- */

static bool is_optimizer(const dtp_op_def *op)
{
    return (op->flags & DTP_OP_UPDATE) != 0 && op->attrs != NULL && op->attrs[0].key != NULL;
}

const dtp_op_def *dtp_optimizer_at(const dtp_op_set *ops, int32_t i)
{
    for (; ops != NULL; ops = ops->base) {
        const dtp_op_def *op;
        for (int32_t k = 0; (op = dtp_op_set_at(ops, k)) != NULL; k++) {
            if (is_optimizer(op) && i-- == 0) {
                return op;
            }
        }
    }
    return NULL;
}

const dtp_op_def *dtp_optimizer_find(const dtp_op_set *ops, const char *name)
{
    const dtp_op_def *op = dtp_op_set_find(ops, name);
    return op != NULL && is_optimizer(op) ? op : NULL;
}

int32_t dtp_optimizer_hypers(const dtp_op_def *op)
{
    int32_t n = 0;
    while (n < DTP_OPTIMIZER_MAX_HYPERS && op->attrs[n].key != NULL) {
        n++;
    }
    return n;
}

const char *dtp_optimizer_state_name(const dtp_op_def *op, int32_t i)
{
    return i >= 0 && i < op->n_out - 1 ? op->out_names[i] : NULL;
}

dtp_optimizer_spec dtp_optimizer_spec_of(const dtp_op_def *op)
{
    dtp_optimizer_spec spec = {.op = op};
    for (int32_t i = 0; i < dtp_optimizer_hypers(op); i++) {
        spec.hyper[i] = op->attrs[i].def;
    }
    return spec;
}

dtp_status dtp_optimizer_spec_set(dtp_optimizer_spec *spec, const char *key, double value,
                                  dtp_err *err)
{
    for (int32_t i = 0; i < dtp_optimizer_hypers(spec->op); i++) {
        const dtp_attr_spec *attr = &spec->op->attrs[i];
        if (strcmp(attr->key, key) != 0) {
            continue;
        }
        if (!(value >= attr->min && value < attr->max)) {
            return DTP_FAIL(err, DTP_RANGE, "%g is not in [%g, %g)", value, attr->min, attr->max);
        }
        spec->hyper[i] = value;
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_NOT_FOUND, "'%s' has no hyperparameter '%s'", spec->op->name, key);
}

/* ---- in graphs: states are STATE tensors, one update node per parameter ---- */

dtp_status dtp_optimizer_check_type(dtp_dtype dtype, dtp_err *err)
{
    if (!dtp_dtype_is_half(dtype)) {
        return DTP_OK;
    }
    const char *name = dtp_dtype_name(dtype);
    return DTP_FAIL(err, DTP_INVALID,
                    "it is %s, in which updates below 1/%d of an element are lost: parameters are "
                    "f32, and --precision %s computes in %s",
                    name, dtype == DTP_BF16 ? 256 : 2048, name, name);
}

/* The optimizer of a parameter: that of the first group that it is in. */
static const dtp_optimizer_spec *optimizer_of(const dtp_graph *g, dtp_tensor_id param)
{
    const dtp_training *t = &g->training;
    for (int32_t i = 0; i < t->n_groups; i++) {
        if (dtp_glob_match_prefix(t->groups[i].params, g->tensors[param].name)) {
            return &t->groups[i].optimizer;
        }
    }
    return &t->optimizer;
}

static dtp_status append(dtp_graph *g, dtp_param_grad pg, dtp_tensor_id factor, dtp_err *err)
{
    const dtp_optimizer_spec *o = optimizer_of(g, pg.param);
    const int32_t states = o->op->n_out - 1;
    dtp_tensor_id in[2 + DTP_MAX_OP_OUT] = {pg.param, pg.grad}, out[DTP_MAX_OP_OUT];
    dtp_attr attrs[DTP_OPTIMIZER_MAX_HYPERS];
    char name[NAME_BYTES];
    DTP_TRY(dtp_err_prefixed(dtp_optimizer_check_type(g->tensors[pg.param].type.dtype, err), err,
                             "parameter '%.200s'", g->tensors[pg.param].name));
    for (int32_t i = 0; i < states; i++) {
        const dtp_graph_tensor *param = &g->tensors[pg.param];
        (void)snprintf(name, sizeof name, "%s.%s.%s", o->op->name,
                       dtp_optimizer_state_name(o->op, i), param->name);
        const dtp_graph_tensor state = {
            .name = name, .kind = DTP_TENSOR_STATE, .type = param->type};
        DTP_TRY(dtp_graph_add_tensor(g, &state, &in[2 + i], err));
    }
    (void)snprintf(name, sizeof name, "update.%s", g->tensors[pg.param].name);
    dtp_node_spec spec = dtp_node_spec_init(name, o->op->name);
    spec.n_attrs = dtp_optimizer_hypers(o->op);
    for (int32_t i = 0; i < spec.n_attrs; i++) {
        attrs[i] = dtp_attr_float(o->op->attrs[i].key, o->hyper[i]);
    }
    const dtp_node_id producer = g->tensors[pg.grad].producer;
    in[2 + states] = factor;
    spec.n_in = 2 + states + (factor >= 0 ? 1 : 0);
    spec.in = in;
    spec.attrs = attrs;
    spec.phase = DTP_UPDATE;
    spec.block = producer < 0 ? -1 : g->nodes[producer].block;
    spec.instance = producer < 0 ? 0 : g->nodes[producer].instance;
    DTP_TRY(dtp_graph_add_node(g, &spec, out, err));
    DTP_TRY(dtp_graph_add_update(g, (dtp_update){pg.param, out[0]}, err));
    for (int32_t i = 0; i < states; i++) {
        DTP_TRY(dtp_graph_add_update(g, (dtp_update){in[2 + i], out[1 + i]}, err));
    }
    return DTP_OK;
}

dtp_status dtp_optimizer_append(dtp_graph *g, dtp_tensor_id sum, dtp_tensor_id factor, dtp_err *err)
{
    const int32_t n = g->training.optimizer.op != NULL ? g->n_grads : 0;
    if (n > 0 && g->training.clip_norm > 0.0) {
        DTP_TRY(sum < 0 ? dtp_gradient_sum(g, &sum, err) : DTP_OK);
        DTP_TRY(dtp_gradient_clip(g, sum, &factor, err));
    }
    for (int32_t k = 0; k < n; k++) {
        DTP_TRY(append(g, g->grads[k], factor, err));
    }
    return DTP_OK;
}

bool dtp_optimizer_is_state(const dtp_graph *g, const char *name)
{
    const dtp_op_def *op;
    for (int32_t k = 0; (op = dtp_optimizer_at(g->ops, k)) != NULL; k++) {
        const char *state;
        for (int32_t i = 0; (state = dtp_optimizer_state_name(op, i)) != NULL; i++) {
            char prefix[NAME_BYTES];
            const int n = snprintf(prefix, sizeof prefix, "%s.%s.", op->name, state);
            if (strncmp(name, prefix, (size_t)n) == 0) {
                const dtp_tensor_id t = dtp_graph_find(g, name + n);
                return t >= 0 && g->tensors[t].kind == DTP_TENSOR_PARAM;
            }
        }
    }
    return false;
}

dtp_status dtp_training_graph(dtp_graph *g, dtp_err *err)
{
    if (g->loss < 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_autodiff(g, g->loss, 0, NULL, NULL, err));
    bool frozen = false;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        frozen = frozen || g->tensors[t].frozen;
    }
    if (g->n_grads == 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "the loss '%.200s' depends on no parameter%s: there is nothing to train",
                        g->tensors[g->loss].name, frozen ? " that is not frozen" : "");
    }
    return dtp_optimizer_append(g, -1, -1, err);
}
