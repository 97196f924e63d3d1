/* The forward nodes are copied with casts where types differ, differentiated again, and updated as
 * before. For gradients in f32 the backward nodes are then copied once more: from every cast of a
 * parameter's gradient back through what is linear, up to the node that makes it. */
#include "core/transform/precision.h"

#include <stdio.h>
#include <string.h>

#include "core/graph/autodiff.h"
#include "core/graph/clip.h"
#include "core/graph/graph_copy.h"
#include "core/graph/optimizer.h"
#include "core/transform/quantize.h"

/* ---- texts ---- */

dtp_status dtp_precision_parse(const char *text, dtp_precision *out, dtp_err *err)
{
    static const dtp_precision known[] = {
        {.compute = DTP_F32, .gradients = DTP_F32},
        {.compute = DTP_F32, .gradients = DTP_F32, .tf32 = true},
        {.compute = DTP_BF16, .gradients = DTP_BF16},
        {.compute = DTP_F16, .gradients = DTP_F16},
        {.compute = DTP_BF16, .gradients = DTP_F32},
        {.compute = DTP_F16, .gradients = DTP_F32},
        {.compute = DTP_BF16, .gradients = DTP_BF16, .fp8 = DTP_SCALED_BY_TENSOR},
        {.compute = DTP_BF16, .gradients = DTP_F32, .fp8 = DTP_SCALED_BY_TENSOR},
        {.compute = DTP_BF16, .gradients = DTP_BF16, .fp8 = DTP_SCALED_BY_ROW},
        {.compute = DTP_BF16, .gradients = DTP_F32, .fp8 = DTP_SCALED_BY_ROW}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char name[DTP_PRECISION_TEXT_BYTES];
        dtp_precision_print(&known[i], name);
        if (strcmp(text, name) == 0) {
            *out = known[i];
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "precision '%.80s': expected f32, tf32, bf16, f16, fp8 or fp8_row, the last "
                    "four also with ',gradients=f32'",
                    text);
}

const char *dtp_precision_products(const dtp_precision *p)
{
    static const char *const scaled[] = {NULL, "fp8", "fp8_row"};
    return p->tf32 ? "tf32" : scaled[p->fp8];
}

void dtp_precision_print(const dtp_precision *p, char out[DTP_PRECISION_TEXT_BYTES])
{
    (void)snprintf(out, DTP_PRECISION_TEXT_BYTES, "%s%s",
                   dtp_precision_products(p) != NULL ? dtp_precision_products(p)
                                                     : dtp_dtype_name(p->compute),
                   p->gradients != p->compute ? ",gradients=f32" : "");
}

/* ---- forward ---- */

typedef struct forward_work {
    const dtp_graph *g;
    dtp_dtype compute;
    dtp_graph_copy copy;
    dtp_tensor_id *other; /* by tensor: its copy in the other of the two types, -1 = none */
    dtp_node_id *reader;  /* by tensor: the first forward node that reads it, -1 = none */
    bool *shared;         /* by tensor: nodes of several instances of blocks read it */
    bool *wide;           /* by tensor: a node that computes in f32 reads it */
    bool *kept;           /* by tensor: it is for updates of parameters alone, or a statistic */
} forward_work;

static const dtp_ttype *type_of(const dtp_graph *g, dtp_tensor_id t)
{
    return &g->tensors[t].type;
}

static bool has_result(const dtp_node *node)
{
    return dtp_op_attr(node->op, "result") != NULL;
}

/* Nodes that are in f32 whatever they read: statistics, what makes new values of parameters, and
 * what makes a scalar of scalars or cannot give f32 for 16-bit operands. */
static bool stays_wide(const forward_work *w, const dtp_node *node)
{
    const dtp_graph *g = w->g;
    bool scalars = type_of(g, node->out[0])->rank == 0;
    const bool sums = has_result(node) || (node->op->flags & DTP_OP_SOFTMAX_LOSS) != 0;
    for (int32_t i = 0; i < node->n_in && scalars && sums; i++) {
        scalars = type_of(g, node->in[i])->rank == 0;
    }
    return scalars || (node->op->flags & (DTP_OP_STATISTIC | DTP_OP_IN_TRAINING)) != 0 ||
           (w->kept[node->out[0]] && !has_result(node));
}

/* Nodes without float results, such as comparisons, that read only what is in f32 anyway. */
static bool compares_wide(const forward_work *w, const dtp_node *node)
{
    bool wide = true;
    for (int32_t i = 0; i < node->n_out; i++) {
        wide = wide && !dtp_dtype_is_float(type_of(w->g, node->out[i])->dtype);
    }
    for (int32_t i = 0; i < node->n_in && wide; i++) {
        wide = type_of(w->copy.to, w->copy.tensor[node->in[i]])->dtype != w->compute;
    }
    return wide;
}

/* The operand in this float type: as it is, or cast, once. */
static dtp_status operand(forward_work *w, dtp_tensor_id t, dtp_dtype dtype, dtp_tensor_id *out,
                          dtp_err *err)
{
    const dtp_node *reader = &w->g->nodes[w->reader[t]];
    dtp_graph *to = w->copy.to;
    *out = w->copy.tensor[t];
    if (type_of(w->g, t)->dtype != DTP_F32 || type_of(to, *out)->dtype == dtype) {
        return DTP_OK;
    }
    if (w->other[t] < 0) {
        const char *name =
            dtp_arena_printf(to->arena, "%s.%s", dtp_dtype_name(dtype), w->g->tensors[t].name);
        dtp_node_spec spec = dtp_node_spec_init(name, "cast");
        spec.block = w->shared[t] ? -1 : reader->block;
        spec.instance = w->shared[t] ? 0 : reader->instance;
        w->other[t] = *out;
        DTP_TRY(dtp_graph_add_beside(to, &spec, name, "cast", dtp_attr_int("dtype", (int64_t)dtype),
                                     &w->other[t], err));
    }
    *out = w->other[t];
    return DTP_OK;
}

enum { MAX_ATTRS = 16 };

/* The node's attributes with another value of a DTYPE attribute. */
static dtp_status set_dtype(dtp_node_spec *spec, dtp_attr attrs[MAX_ATTRS], const char *key,
                            dtp_dtype dtype, dtp_err *err)
{
    if (spec->n_attrs > MAX_ATTRS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "node '%s' has more than %d attributes", spec->name,
                        MAX_ATTRS);
    }
    for (int32_t i = 0; i < spec->n_attrs; i++) {
        attrs[i] = spec->attrs[i];
        attrs[i].i = strcmp(attrs[i].key, key) == 0 ? (int64_t)dtype : attrs[i].i;
    }
    spec->attrs = attrs;
    return DTP_OK;
}

/* Numbers made of none, which only nodes in the compute type read, are made in it. Random ones are
 * drawn in f32: comparisons with them come out the same. */
static bool makes_numbers(const forward_work *w, const dtp_node *node)
{
    bool makes = dtp_op_attr(node->op, "dtype") != NULL && (node->op->flags & DTP_OP_RANDOM) == 0 &&
                 !w->wide[node->out[0]] && type_of(w->g, node->out[0])->dtype == DTP_F32;
    for (int32_t i = 0; i < node->n_in && makes; i++) {
        makes = !dtp_dtype_is_float(type_of(w->g, node->in[i])->dtype);
    }
    return makes;
}

/* A cast to f32 of what is in the compute type: its readers cast it back, or read that. */
static bool widens(const forward_work *w, const dtp_node *node)
{
    const dtp_tensor_id to = node->out[0];
    bool output = false;
    for (int32_t i = 0; i < w->g->n_outputs; i++) {
        output = output || w->g->outputs[i] == to;
    }
    return (node->op->flags & DTP_OP_CAST) != 0 && !output && to != w->g->loss &&
           type_of(w->g, node->in[0])->dtype == w->compute && type_of(w->g, to)->dtype == DTP_F32;
}

static dtp_status copy_forward(forward_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    if (widens(w, node)) {
        w->copy.tensor[node->out[0]] = w->copy.tensor[node->in[0]];
        return DTP_OK;
    }
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_attr attrs[MAX_ATTRS];
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    const bool wide = stays_wide(w, node) || compares_wide(w, node);
    for (int32_t i = 0; i < node->n_in; i++) {
        const bool weights = (node->op->flags & DTP_OP_SOFTMAX_LOSS) != 0 && i > 0;
        DTP_TRY(operand(w, node->in[i], wide || weights ? DTP_F32 : w->compute, &in[i], err));
    }
    if (makes_numbers(w, node)) {
        DTP_TRY(set_dtype(&spec, attrs, "dtype", w->compute, err));
    } else if (!wide && has_result(node) && type_of(w->g, node->in[0])->dtype == DTP_F32 &&
               (type_of(w->g, node->out[0])->rank == 0 || w->kept[node->out[0]])) {
        DTP_TRY(set_dtype(&spec, attrs, "result", DTP_F32, err));
    }
    return dtp_graph_copy_node(&w->copy, n, &spec, err);
}

/* Marks what updates of parameters are made of, as far as nothing else reads it, and what
 * in_training takes in training. */
static dtp_status find_kept(forward_work *w, dtp_arena *scratch, dtp_err *err)
{
    const dtp_graph *g = w->g;
    bool *others, *statistic; /* by tensor: something else reads it; in_training does */
    DTP_TRY(DTP_NEW(scratch, others, g->n_tensors, err));
    DTP_TRY(DTP_NEW(scratch, statistic, g->n_tensors, err));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        others[g->outputs[i]] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        w->kept[g->updates[i].value] = true;
    }
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        const dtp_tensor_id out = node->out[0];
        const bool keeps = w->kept[out] && !others[out];
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_FORWARD; i++) {
            bool *reads = keeps ? w->kept : others;
            reads[node->in[i]] = true;
            statistic[node->in[i]] =
                statistic[node->in[i]] || (i == 0 && (node->op->flags & DTP_OP_IN_TRAINING) != 0);
        }
        w->kept[out] = keeps || statistic[out];
    }
    return DTP_OK;
}

/* Fills the readers of every tensor. */
static void find_readers(forward_work *w)
{
    for (dtp_node_id n = 0; n < w->g->n_nodes; n++) {
        const dtp_node *node = &w->g->nodes[n];
        const bool wide =
            stays_wide(w, node) || !dtp_dtype_is_float(type_of(w->g, node->out[0])->dtype);
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_FORWARD; i++) {
            const dtp_tensor_id t = node->in[i];
            const dtp_node *first = w->reader[t] >= 0 ? &w->g->nodes[w->reader[t]] : NULL;
            w->shared[t] = w->shared[t] || (first != NULL && (first->block != node->block ||
                                                              first->instance != node->instance));
            w->reader[t] = first != NULL ? w->reader[t] : n;
            w->wide[t] = w->wide[t] || wide;
        }
    }
}

/* Tensors come in the order of their ids, which keeps sources where they were. */
static dtp_status add_forward(forward_work *w, dtp_err *err)
{
    const dtp_graph *g = w->g;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind == DTP_TENSOR_INPUT || tensor->kind == DTP_TENSOR_PARAM) {
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, NULL, err));
        } else if (tensor->producer >= 0 && tensor->out_index == 0 &&
                   g->nodes[tensor->producer].phase == DTP_FORWARD) {
            DTP_TRY(copy_forward(w, tensor->producer, err));
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        DTP_TRY(dtp_graph_add_output(w->copy.to, w->copy.tensor[g->outputs[i]], err));
    }
    for (int32_t i = 0; i < g->n_updates; i++) { /* those of optimizers are made anew */
        const dtp_update *u = &g->updates[i];
        if (g->nodes[g->tensors[u->value].producer].phase == DTP_FORWARD) {
            DTP_TRY(dtp_graph_add_update(
                w->copy.to, (dtp_update){w->copy.tensor[u->target], w->copy.tensor[u->value]},
                err));
        }
    }
    w->copy.to->loss = g->loss >= 0 ? w->copy.tensor[g->loss] : -1;
    return DTP_OK;
}

static dtp_status forward(const dtp_graph *g, const dtp_precision *p, dtp_arena *scratch,
                          dtp_graph **out, dtp_err *err)
{
    forward_work w = {.g = g, .compute = p->compute};
    const size_t n = (size_t)g->n_tensors;
    DTP_TRY(DTP_NEW(scratch, w.other, n, err));
    DTP_TRY(DTP_NEW(scratch, w.reader, n, err));
    DTP_TRY(DTP_NEW(scratch, w.shared, n, err));
    DTP_TRY(DTP_NEW(scratch, w.wide, n, err));
    DTP_TRY(DTP_NEW(scratch, w.kept, n, err));
    for (size_t t = 0; t < n; t++) {
        w.other[t] = -1;
        w.reader[t] = -1;
    }
    DTP_TRY(find_kept(&w, scratch, err));
    find_readers(&w);
    DTP_TRY(dtp_graph_copy_begin(g, &w.copy, err));
    *out = w.copy.to;
    return add_forward(&w, err);
}

/* ---- gradients in f32 ---- */

/* How a node gives f32 where it gave 16 bits. */
typedef enum widening { AS_IT_IS, BY_RESULT, BY_OPERANDS } widening;

typedef struct gradient_work {
    const dtp_graph *g;
    dtp_graph_copy copy;
    int32_t *readers; /* by tensor */
    bool *wanted;     /* by tensor: its reader wants it in f32 */
    widening *by_node;
} gradient_work;

static bool is_widening_cast(const dtp_graph *g, const dtp_node *node)
{
    return (node->op->flags & DTP_OP_CAST) != 0 &&
           dtp_dtype_is_half(type_of(g, node->in[0])->dtype) &&
           type_of(g, node->out[0])->dtype == DTP_F32;
}

/* Backward nodes in reverse order: the readers of a result are known before the node that makes it.
 * Of several results of a norm's gradient, all but the first belong to parameters. */
static void find_widenings(gradient_work *w)
{
    for (dtp_node_id n = 0; n < w->g->n_nodes; n++) {
        for (int32_t i = 0; i < w->g->nodes[n].n_in; i++) {
            w->readers[w->g->nodes[n].in[i]]++;
        }
    }
    for (dtp_node_id n = w->g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &w->g->nodes[n];
        bool wanted = node->phase == DTP_BACKWARD;
        for (int32_t i = node->n_out > 1 ? 1 : 0; i < node->n_out; i++) {
            wanted = wanted && w->wanted[node->out[i]] && w->readers[node->out[i]] == 1;
        }
        if (node->phase == DTP_BACKWARD && is_widening_cast(w->g, node)) {
            w->wanted[node->in[0]] = true;
        } else if (wanted && has_result(node)) {
            w->by_node[n] = BY_RESULT;
        } else if (wanted && node->n_out == 1 && node->op->linear != DTP_LINEAR_NONE &&
                   (node->op->flags & DTP_OP_CAST) == 0) {
            w->by_node[n] = BY_OPERANDS;
            for (int32_t i = 0; i < node->n_in; i++) {
                w->wanted[node->in[i]] = true;
            }
        }
    }
}

static dtp_status widen(gradient_work *w, const dtp_node_spec *of, dtp_tensor_id *t, dtp_err *err)
{
    dtp_graph *to = w->copy.to;
    if (!dtp_dtype_is_half(type_of(to, *t)->dtype)) {
        return DTP_OK;
    }
    const char *name = dtp_arena_printf(to->arena, "f32.%d.%s", to->n_nodes, to->tensors[*t].name);
    return dtp_graph_add_beside(to, of, name, "cast", dtp_attr_int("dtype", DTP_F32), t, err);
}

static dtp_status copy_backward(gradient_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_attr attrs[MAX_ATTRS];
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    if (is_widening_cast(w->g, node) && type_of(w->copy.to, in[0])->dtype == DTP_F32) {
        w->copy.tensor[node->out[0]] = in[0];
        return DTP_OK;
    }
    if (w->by_node[n] == BY_RESULT) {
        DTP_TRY(set_dtype(&spec, attrs, "result", DTP_F32, err));
    }
    for (int32_t i = 0; i < node->n_in && w->by_node[n] == BY_OPERANDS; i++) {
        DTP_TRY(widen(w, &spec, &in[i], err));
    }
    return dtp_graph_copy_node(&w->copy, n, &spec, err);
}

static dtp_status widen_gradients(const dtp_graph *g, dtp_arena *scratch, dtp_graph **out,
                                  dtp_err *err)
{
    gradient_work w = {.g = g};
    DTP_TRY(DTP_NEW(scratch, w.readers, g->n_tensors, err));
    DTP_TRY(DTP_NEW(scratch, w.wanted, g->n_tensors, err));
    DTP_TRY(DTP_NEW(scratch, w.by_node, g->n_nodes, err));
    find_widenings(&w);
    DTP_TRY(dtp_graph_copy_begin(g, &w.copy, err));
    *out = w.copy.to;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(&w.copy, t, NULL, err));
        } else if (tensor->out_index == 0) {
            DTP_TRY(copy_backward(&w, tensor->producer, err));
        }
    }
    return dtp_graph_copy_results(&w.copy, err);
}

/* ---- loss scaling ---- */

enum { SCALE, GOOD, SKIPPED, N_SCALE_STATES };

typedef struct loss_scale {
    dtp_tensor_id loss;   /* what is differentiated */
    dtp_tensor_id factor; /* of the gradients in updates; -1 = none */
    dtp_tensor_id sum;    /* over all gradients; -1 = none */
} loss_scale;

static const char *const STATES[N_SCALE_STATES] = {DTP_LOSS_SCALE, DTP_LOSS_SCALE ".good",
                                                   DTP_LOSS_SKIPPED};
static const dtp_ttype NUMBER = {.dtype = DTP_F32};

/* One number from `n_in` operands. */
static dtp_status add_number(dtp_graph *g, dtp_node_spec *spec, const char *op, int32_t n_in,
                             const dtp_tensor_id *in, dtp_tensor_id *out, dtp_err *err)
{
    DTP_TRY(DTP_MEMORY(err, spec->name));
    spec->op = op;
    spec->n_in = n_in;
    spec->in = in;
    spec->out = &NUMBER;
    return dtp_graph_add_node(g, spec, out, err);
}

static dtp_status scale_loss(dtp_graph *g, loss_scale *scale, dtp_err *err)
{
    enum { FIRST_SCALE = 65536 };
    dtp_tensor_id in[] = {scale->loss, -1}, state;
    for (int32_t i = 0; i < N_SCALE_STATES; i++) {
        const dtp_graph_tensor tensor = {
            .name = STATES[i],
            .kind = DTP_TENSOR_STATE,
            .type = NUMBER,
            .init = {.kind = i == SCALE ? DTP_INIT_CONSTANT : DTP_INIT_ZEROS, .a = FIRST_SCALE}};
        DTP_TRY(dtp_graph_add_tensor(g, &tensor, i == SCALE ? &in[1] : &state, err));
    }
    dtp_node_spec spec = dtp_node_spec_init(DTP_LOSS_SCALE ".loss", NULL);
    return add_number(g, &spec, "mul", 2, in, &scale->loss, err);
}

/* The sum over all gradients is finite only if all of them are. */
static dtp_status check_gradients(dtp_graph *g, loss_scale *scale, dtp_err *err)
{
    dtp_tensor_id in[N_SCALE_STATES + 1], out[N_SCALE_STATES + 1];
    DTP_TRY(dtp_gradient_sum(g, &scale->sum, err));
    for (int32_t i = 0; i < N_SCALE_STATES; i++) {
        in[i] = dtp_graph_find(g, STATES[i]);
    }
    in[N_SCALE_STATES] = scale->sum;
    dtp_node_spec spec = dtp_node_spec_init("update." DTP_LOSS_SCALE, NULL);
    spec.phase = DTP_UPDATE;
    DTP_TRY(add_number(g, &spec, "loss_scale", N_SCALE_STATES + 1, in, out, err));
    for (int32_t i = 0; i < N_SCALE_STATES; i++) {
        DTP_TRY(dtp_graph_add_update(g, (dtp_update){.target = in[i], .value = out[i]}, err));
    }
    scale->factor = out[N_SCALE_STATES];
    return DTP_OK;
}

/* ---- all ---- */

/* *g is replaced; on failure it is NULL. */
static dtp_status quantize(dtp_graph **g, dtp_scaling scaling, dtp_phase phase, dtp_err *err)
{
    dtp_graph *plain = *g;
    *g = NULL;
    if (scaling == DTP_SCALED_NOT) {
        *g = plain;
        return DTP_OK;
    }
    const dtp_status s = dtp_graph_with_quantized(plain, scaling, phase, g, err);
    dtp_graph_destroy(plain);
    return s;
}

/* *out is replaced; on failure it is what there is to destroy. */
static dtp_status build(const dtp_graph *g, const dtp_precision *p, dtp_arena *scratch,
                        dtp_graph **out, dtp_err *err)
{
    DTP_TRY(forward(g, p, scratch, out, err));
    DTP_TRY(quantize(out, p->fp8, DTP_FORWARD, err));
    if (g->loss < 0) {
        return DTP_OK;
    }
    loss_scale scale = {.loss = (*out)->loss, .factor = -1, .sum = -1};
    if (p->compute == DTP_F16) {
        DTP_TRY(scale_loss(*out, &scale, err));
    }
    DTP_TRY(dtp_autodiff(*out, scale.loss, 0, NULL, NULL, err));
    DTP_TRY(quantize(out, p->fp8, DTP_BACKWARD, err));
    if (p->gradients == DTP_F32) {
        dtp_graph *narrow = *out;
        *out = NULL;
        const dtp_status s = widen_gradients(narrow, scratch, out, err);
        dtp_graph_destroy(narrow);
        DTP_TRY(s);
    }
    if (p->compute == DTP_F16) {
        DTP_TRY(check_gradients(*out, &scale, err));
    }
    return dtp_optimizer_append(*out, scale.sum, scale.factor, err);
}

/* The graph with the flag. */
static dtp_status with_tf32(const dtp_graph *g, dtp_graph **out, dtp_err *err)
{
    dtp_graph_copy copy;
    DTP_TRY(dtp_graph_copy_begin(g, &copy, err));
    *out = copy.to;
    copy.to->tf32 = true;
    DTP_TRY(dtp_graph_copy_nodes(&copy, NULL, err));
    return dtp_graph_copy_results(&copy, err);
}

dtp_status dtp_graph_with_precision(const dtp_graph *g, const dtp_precision *p, dtp_graph **out,
                                    dtp_err *err)
{
    bool any = false;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_dtype dtype = g->tensors[t].type.dtype;
        any = any || (g->tensors[t].kind == DTP_TENSOR_PARAM &&
                      (dtype == DTP_F32 || (p->tf32 && dtype == DTP_F64)));
    }
    if (!any) {
        return DTP_FAIL(err, DTP_INVALID, "precision: the model '%s' has no f32 parameter",
                        g->name);
    }
    dtp_graph *made = NULL;
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status s = scratch == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory for casts")
                         : p->tf32       ? with_tf32(g, &made, err)
                                         : build(g, p, scratch, &made, err);
    dtp_arena_destroy(scratch);
    return dtp_graph_deliver(made, s, out);
}
