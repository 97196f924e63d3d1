/* The graph is copied in the order of its ids, which keeps sources where they were. UPDATE nodes
 * know gradients of S / R. What they make of them is followed as a power of the gradients: a sum of
 * squares has 2. Where another op reads it, it is multiplied by as many factors. */
#include "core/transform/mean_loss.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/clip.h"
#include "core/graph/graph_copy.h"
#include "core/graph/ops/cross_entropy.h"
#include "core/graph/optimizer.h"
#include "core/graph/uses.h"
#include "core/transform/precision.h"

typedef struct mean_work {
    const dtp_graph *g;
    dtp_node_id loss; /* node */
    bool quotient;    /* it divides, else it is a cross_entropy */
    bool trains;
    dtp_readers readers;
    int8_t *power; /* by tensor of g: how often its copy has the gradients of S / R as a factor */
    dtp_tensor_id given, factor; /* the last factor of updates, and what it became; -1 = none */
    dtp_mean_loss parts;
    dtp_graph_copy copy;
} mean_work;

static dtp_node_id loss_node(const dtp_graph *g)
{
    const dtp_node_id n = g->loss >= 0 ? g->tensors[g->loss].producer : -1;
    return n >= 0 && g->tensors[g->loss].out_index == 0 ? n : -1;
}

/* Whether a node divides two numbers that nodes make. */
static bool divides(const dtp_graph *g, const dtp_node *node)
{
    bool numbers = node->op == dtp_op_set_find(g->ops, "div");
    for (int32_t i = 0; i < node->n_in && numbers; i++) {
        const dtp_graph_tensor *t = &g->tensors[node->in[i]];
        numbers = t->producer >= 0 && t->type.rank == 0 && g->nodes[t->producer].n_in > 0;
    }
    return numbers;
}

/* Whether what t is made of has a parameter that is trained; so it is said when there is no memory.
 */
static bool depends_on_trained(const dtp_graph *g, dtp_tensor_id t)
{
    bool *depends = calloc((size_t)g->n_tensors, sizeof *depends);
    bool result = depends == NULL;
    for (dtp_tensor_id i = 0; i <= t && depends != NULL; i++) {
        const dtp_node_id n = g->tensors[i].producer;
        depends[i] = dtp_tensor_trains(&g->tensors[i]);
        for (int32_t k = 0; n >= 0 && k < g->nodes[n].n_in; k++) {
            depends[i] = depends[i] || depends[g->nodes[n].in[k]];
        }
        result = depends[i]; /* of t at the end */
    }
    free(depends);
    return result;
}

/* Whether the loss divides by a count. */
static bool is_quotient(const dtp_graph *g, dtp_node_id loss)
{
    return divides(g, &g->nodes[loss]) && !depends_on_trained(g, g->nodes[loss].in[1]);
}

bool dtp_has_mean_loss(const dtp_graph *g)
{
    const dtp_node_id n = loss_node(g);
    dtp_call_types types;
    if (n < 0) {
        return false;
    }
    const dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
    return dtp_loss_weighs_labels(&call) || is_quotient(g, n);
}

/* ---- nodes that are added ---- */

/* "<loss><suffix>" */
static const char *name_of(const mean_work *w, const char *suffix)
{
    return dtp_arena_printf(w->copy.to->arena, "%s%s", w->g->tensors[w->g->loss].name, suffix);
}

/* One number of one or two. */
static dtp_status add_number(mean_work *w, const char *name, const char *op, dtp_tensor_id a,
                             dtp_tensor_id b, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_tensor_id in[2] = {a, b};
    DTP_TRY(DTP_MEMORY(err, name));
    dtp_node_spec spec = dtp_node_spec_init(name, op);
    spec.n_in = b >= 0 ? 2 : 1;
    spec.in = in;
    spec.phase = w->trains ? DTP_UPDATE : DTP_FORWARD;
    return dtp_graph_add_node(w->copy.to, &spec, out, err);
}

static dtp_status add_scale(mean_work *w, const dtp_node_spec *beside, const char *name,
                            double factor, dtp_tensor_id *t, dtp_err *err)
{
    const dtp_attr attr = dtp_attr_float("factor", factor);
    return dtp_graph_add_beside(w->copy.to, beside, name, "scale", attr, t, err);
}

/* Of a quotient: the elements that the count is made of. */
static double rows_of(const mean_work *w)
{
    const dtp_graph *g = w->g;
    dtp_tensor_id t = g->nodes[w->loss].in[1];
    t = w->quotient ? g->nodes[g->tensors[t].producer].in[0] : t;
    return (double)dtp_ttype_elems(&g->tensors[t].type);
}

dtp_status dtp_graph_add_loss_count(dtp_graph *g, const dtp_node_spec *of, const char *name,
                                    dtp_dtype dtype, dtp_tensor_id *count, dtp_err *err)
{
    dtp_tensor_id out[DTP_MAX_OP_OUT];
    const dtp_op_call call = {.attrs = of->attrs, .n_attrs = of->n_attrs};
    const dtp_attr attrs[] = {*dtp_call_attr(&call, "over"), *dtp_call_attr(&call, "ignore"),
                              dtp_attr_int("dtype", dtype)};
    dtp_node_spec spec = *of;
    DTP_TRY(DTP_MEMORY(err, name));
    spec.name = name;
    spec.op = NULL;
    spec.def = dtp_loss_part(DTP_LOSS_COUNT);
    spec.n_in = of->n_in - 1;
    spec.in = of->in + 1;
    spec.n_attrs = 3;
    spec.attrs = attrs;
    spec.out = NULL;
    DTP_TRY(dtp_graph_add_node(g, &spec, out, err));
    *count = out[1];
    return DTP_OK;
}

static const double LEAST_COUNT = 1e-30; /* rows over it are finite in f32 */

/* loss = S / C, and R / C */
static dtp_status add_quotient(mean_work *w, dtp_err *err)
{
    const dtp_graph_tensor *loss = &w->g->tensors[w->g->loss];
    dtp_tensor_id *to = &w->copy.tensor[w->g->loss], t;
    DTP_TRY(add_number(w, loss->name, "div", w->parts.sum, w->parts.count, to, err));
    if (!w->trains) {
        return DTP_OK;
    }
    dtp_node_spec spec = dtp_node_spec_init(NULL, NULL);
    spec.phase = DTP_UPDATE;
    t = w->parts.count;
    if (!w->quotient) { /* without a label that counts the gradients are 0, and stay it */
        const dtp_attr least = dtp_attr_float("low", LEAST_COUNT);
        DTP_TRY(dtp_graph_add_beside(w->copy.to, &spec, name_of(w, ".weight"), "clamp", least, &t,
                                     err));
    }
    DTP_TRY(add_number(w, name_of(w, ".reciprocal"), "reciprocal", t, -1, &t, err));
    DTP_TRY(add_scale(w, &spec, name_of(w, ".factor"), rows_of(w), &t, err));
    w->copy.to->grad_factor = t;
    return DTP_OK;
}

/* ---- forward and backward ---- */

enum { MAX_ATTRS = 8 };

/* The node with reduce "sum". */
static dtp_status copy_sum(mean_work *w, dtp_node_id n, dtp_node_spec spec, dtp_err *err)
{
    dtp_attr attrs[MAX_ATTRS];
    for (int32_t i = 0; i < spec.n_attrs && i < MAX_ATTRS; i++) {
        attrs[i] = spec.attrs[i];
        attrs[i].i = strcmp(attrs[i].key, "reduce") == 0 ? DTP_LOSS_SUM : attrs[i].i;
    }
    spec.attrs = attrs;
    return dtp_graph_copy_node(&w->copy, n, &spec, err);
}

static dtp_status copy_loss(mean_work *w, dtp_node_spec *spec, dtp_err *err)
{
    if (w->quotient) { /* backward nodes are those of the sum */
        w->parts = (dtp_mean_loss){.sum = spec->in[0], .count = spec->in[1]};
        w->copy.tensor[w->g->loss] = spec->in[0];
        w->copy.node[w->loss] = w->copy.to->tensors[spec->in[0]].producer;
        return w->trains ? DTP_OK : add_quotient(w, err);
    }
    spec->name = name_of(w, ".sum");
    DTP_TRY(DTP_MEMORY(err, spec->name));
    DTP_TRY(copy_sum(w, w->loss, *spec, err));
    w->parts.sum = w->copy.tensor[w->g->loss];
    DTP_TRY(dtp_graph_add_loss_count(w->copy.to, spec, name_of(w, ".count"),
                                     w->g->tensors[w->g->loss].type.dtype, &w->parts.count, err));
    return w->trains ? DTP_OK : add_quotient(w, err);
}

/* The gradient of S / R: without the total weight. Of a quotient: that of the loss over R. */
static dtp_status copy_gradient(mean_work *w, dtp_node_id n, dtp_node_spec *spec, dtp_tensor_id *in,
                                dtp_err *err)
{
    enum { DLOSS = 3 };
    if (w->quotient) {
        w->copy.tensor[w->g->nodes[n].out[0]] = in[0];
        return add_scale(w, spec, spec->name, 1.0 / rows_of(w),
                         &w->copy.tensor[w->g->nodes[n].out[0]], err);
    }
    const char *name = dtp_arena_printf(w->copy.to->arena, "%s.rows", spec->name);
    DTP_TRY(add_scale(w, spec, name, 1.0 / rows_of(w), &in[DLOSS], err));
    spec->n_in--;
    return copy_sum(w, n, *spec, err);
}

/* Forward and backward nodes. */
static dtp_status copy_pass(mean_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    const bool of_loss = node->origin == w->loss;
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    if (n == w->loss) {
        return copy_loss(w, &spec, err);
    }
    if (of_loss && node->repeats && !w->quotient) {
        return copy_sum(w, n, spec, err);
    }
    if (of_loss && (node->op == dtp_loss_part(DTP_LOSS_GRADIENT) ||
                    (w->quotient && (node->op->flags & DTP_OP_CONSTANT) == 0))) {
        return copy_gradient(w, n, &spec, in, err);
    }
    if (of_loss && node->op == dtp_loss_part(DTP_LOSS_COUNT)) {
        return DTP_OK; /* the total, which nothing reads any more */
    }
    for (int32_t i = 0; i < node->n_in && w->trains; i++) {
        if (node->in[i] == w->g->loss && strcmp(node->name, DTP_LOSS_SCALE ".loss") != 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "node '%s' (%s) reads the loss '%s', which is known when all parts of "
                            "the batch have been added up",
                            node->name, node->op->name, w->g->tensors[w->g->loss].name);
        }
    }
    return dtp_graph_copy_node(&w->copy, n, &spec, err);
}

/* ---- updates ---- */

/* What is linear in its operands, each or together: a product, a sum of elements, a sum of numbers.
 */
static bool is_fold(const dtp_node *node)
{
    return node->op->linear != DTP_LINEAR_NONE && node->n_out == 1;
}

/* Whether a node other than one that folds on reads it. */
static bool is_result(const mean_work *w, dtp_tensor_id t)
{
    bool is = false;
    for (int32_t i = w->readers.first[t]; i < w->readers.first[t + 1]; i++) {
        is = is || !is_fold(&w->g->nodes[w->readers.node[i]]);
    }
    return is;
}

/* What folds gradients to a number; the number that something else reads is that of the gradients
 * of the loss, and has its name. */
static dtp_status copy_fold(mean_work *w, dtp_node_id n, dtp_node_spec *spec, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    const dtp_tensor_id t = node->out[0];
    const char *name = node->name;
    int power = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const int of = w->power[node->in[i]];
        power = node->op->linear == DTP_LINEAR_JOINT ? of : power + of;
    }
    const bool result = power > 0 && is_result(w, t);
    spec->name = result ? dtp_arena_printf(w->copy.to->arena, "%s.sum", name) : name;
    DTP_TRY(DTP_MEMORY(err, spec->name));
    DTP_TRY(dtp_graph_copy_node(&w->copy, n, spec, err));
    w->power[t] = (int8_t)(result ? 0 : power);
    for (int k = 1; k <= power && result; k++) {
        const char *as =
            k < power ? dtp_arena_printf(w->copy.to->arena, "%s.sum.%d", name, k) : name;
        DTP_TRY(add_number(w, as, "mul", w->copy.tensor[t], w->copy.to->grad_factor,
                           &w->copy.tensor[t], err));
    }
    return DTP_OK;
}

/* An update of a parameter: its factor times R / C. */
static dtp_status copy_optimizer(mean_work *w, dtp_node_id n, dtp_node_spec *spec,
                                 dtp_tensor_id *in, dtp_err *err)
{
    const int32_t at = 1 + spec->def->n_out; /* behind parameter, gradient and states */
    const dtp_tensor_id given = spec->n_in > at ? in[at] : -1;
    if (w->factor < 0 || w->given != given) {
        w->given = given;
        w->factor = w->copy.to->grad_factor;
        if (given >= 0) {
            DTP_TRY(dtp_gradient_factor(w->copy.to, w->g->tensors[w->g->loss].name, given,
                                        &w->factor, err));
        }
    }
    in[at] = w->factor;
    spec->n_in = at + 1;
    return dtp_graph_copy_node(&w->copy, n, spec, err);
}

static dtp_status copy_update(mean_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_tensor_id in[DTP_MAX_OP_IN];
    bool reads = false;
    DTP_TRY(w->copy.to->grad_factor < 0 ? add_quotient(w, err) : DTP_OK);
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    for (int32_t i = 0; i < node->n_in; i++) {
        reads = reads || w->power[node->in[i]] > 0;
    }
    if (reads && is_fold(node)) {
        return copy_fold(w, n, &spec, err);
    }
    if (reads && dtp_optimizer_find(w->g->ops, node->op->name) != NULL) {
        return copy_optimizer(w, n, &spec, in, err);
    }
    if (reads) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "node '%s' (%s) reads a gradient", node->name,
                        node->op->name);
    }
    return dtp_graph_copy_node(&w->copy, n, &spec, err);
}

/* ---- all ---- */

static dtp_status copy_all(mean_work *w, dtp_err *err)
{
    const dtp_graph *g = w->g;
    for (int32_t i = 0; i < g->n_grads; i++) {
        w->power[g->grads[i].grad] = 1;
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, NULL, err));
        } else if (tensor->out_index == 0) {
            const dtp_node_id n = tensor->producer;
            DTP_TRY(g->nodes[n].phase == DTP_UPDATE ? copy_update(w, n, err)
                                                    : copy_pass(w, n, err));
        }
    }
    if (w->trains && w->copy.to->grad_factor < 0) {
        DTP_TRY(add_quotient(w, err));
    }
    const dtp_tensor_id factor = w->copy.to->grad_factor;
    DTP_TRY(dtp_graph_copy_results(&w->copy, err));
    w->copy.to->grad_factor = factor;
    return DTP_OK;
}

dtp_status dtp_graph_with_summed_loss(const dtp_graph *g, dtp_graph **out, dtp_mean_loss *parts,
                                      dtp_err *err)
{
    mean_work w = {
        .g = g, .loss = loss_node(g), .trains = g->n_grads > 0, .given = -1, .factor = -1};
    DTP_TRY(dtp_graph_copy_begin(g, &w.copy, err));
    dtp_arena *arena = w.copy.to->arena;
    w.quotient = is_quotient(g, w.loss);
    dtp_status s = DTP_NEW(arena, w.power, g->n_tensors, err);
    s = s == DTP_OK ? dtp_readers_find(g, arena, &w.readers, err) : s;
    s = s == DTP_OK ? copy_all(&w, err) : s;
    if (s == DTP_OK && parts != NULL) {
        *parts = w.parts;
    }
    return dtp_graph_deliver(w.copy.to, s, out);
}
