/* The model graph: tensors and nodes in a topological order, owned by one arena. */
#include "core/graph/graph.h"

#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/philox.h"

dtp_status dtp_graph_create(const char *name, const dtp_op_set *ops, dtp_graph **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *g = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *g);
    const char *copy = g == NULL ? NULL : dtp_arena_line(arena, name);
    if (copy == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for graph '%s'", name);
    }
    g->arena = arena;
    g->name = copy;
    g->ops = ops;
    g->loss = -1;
    g->norm = -1;
    g->grad_factor = -1;
    dtp_dims_init(&g->dims, arena);
    *out = g;
    return DTP_OK;
}

void dtp_graph_destroy(dtp_graph *g)
{
    if (g != NULL) {
        dtp_arena_destroy(g->arena);
    }
}

dtp_status dtp_graph_deliver(dtp_graph *g, dtp_status s, dtp_graph **out)
{
    if (s == DTP_OK) {
        *out = g;
    } else {
        dtp_graph_destroy(g);
    }
    return s;
}

/* ---- names ---- */

dtp_tensor_id dtp_graph_find(const dtp_graph *g, const char *name)
{
    const uint32_t hash = dtp_hash_name(name);
    uint32_t at = hash;
    int32_t t;
    do {
        t = dtp_hash_table_next(&g->names, hash, &at);
    } while (t >= 0 && strcmp(g->tensors[t].name, name) != 0);
    return t;
}

/* ---- tensors ---- */

/* Checks and appends a tensor under a name that the arena owns. */
static dtp_status append_tensor(dtp_graph *g, const dtp_graph_tensor *t, dtp_tensor_id *out,
                                dtp_err *err)
{
    for (int32_t i = 0; i < t->type.rank; i++) {
        const char *dim = dtp_dims_name(&g->dims, t->type.dims[i].id);
        if (dtp_ttype_find(&t->type, t->type.dims[i].id) != i) {
            return DTP_FAIL(err, DTP_INVALID, "tensor '%s': dim '%s' occurs twice", t->name, dim);
        }
        if (t->type.dims[i].size < 1) {
            return DTP_FAIL(err, DTP_RANGE, "tensor '%s': dim '%s' has size %lld", t->name, dim,
                            (long long)t->type.dims[i].size);
        }
    }
    DTP_TRY(dtp_err_prefixed(dtp_ttype_check_size(&t->type, err), err, "tensor '%s'", t->name));
    if (dtp_graph_find(g, t->name) >= 0) {
        return DTP_FAIL(err, DTP_INVALID, "the name '%s' is used twice", t->name);
    }

    DTP_TRY(DTP_ONE_MORE(g->arena, g->tensors, g->n_tensors, g->cap_tensors, err));
    DTP_TRY(dtp_hash_table_add(&g->names, g->arena, dtp_hash_name(t->name), g->n_tensors, err));
    g->tensors[g->n_tensors] = *t;
    *out = g->n_tensors++;
    return DTP_OK;
}

dtp_status dtp_graph_add_tensor(dtp_graph *g, const dtp_graph_tensor *tensor, dtp_tensor_id *out,
                                dtp_err *err)
{
    dtp_graph_tensor t = *tensor;
    t.name = dtp_arena_strdup(g->arena, tensor->name);
    DTP_TRY(DTP_MEMORY(err, t.name));
    t.producer = -1;
    t.stream = dtp_stream_of(t.name);
    return append_tensor(g, &t, out, err);
}

/* ---- attributes ---- */

dtp_attr dtp_attr_int(const char *key, int64_t value)
{
    return (dtp_attr){.key = key, .kind = DTP_ATTR_INT, .i = value};
}

dtp_attr dtp_attr_float(const char *key, double value)
{
    return (dtp_attr){.key = key, .kind = DTP_ATTR_FLOAT, .f = value};
}

dtp_attr dtp_attr_dim(const char *key, dtp_dim_id value)
{
    return (dtp_attr){.key = key, .kind = DTP_ATTR_DIM, .i = value};
}

dtp_attr dtp_attr_dims(const char *key, int32_t n, const dtp_dim_id *ids)
{
    return (dtp_attr){.key = key, .kind = DTP_ATTR_DIMS, .n = n, .ids = ids};
}

dtp_attr dtp_attr_ints(const char *key, int32_t n, const int32_t *ints)
{
    return (dtp_attr){.key = key, .kind = DTP_ATTR_INTS, .n = n, .ints = ints};
}

/* A copy of n ids of tensors or dims in the graph's arena. */
static dtp_status copy_ids(dtp_graph *g, int32_t n, const int32_t *from, const int32_t **out,
                           dtp_err *err)
{
    int32_t *ids;
    DTP_TRY(DTP_NEW(g->arena, ids, n, err));
    for (int32_t i = 0; i < n; i++) {
        ids[i] = from[i];
    }
    *out = ids;
    return DTP_OK;
}

static dtp_status check_range(const dtp_attr_spec *spec, double value, dtp_err *err)
{
    return !(spec->min < spec->max) || (value >= spec->min && value <= spec->max)
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "'%s' is %g, which is not in %g..%g", spec->key, value,
                          spec->min, spec->max);
}

/* The attribute of the spec: as given by the node, or its default. */
static dtp_status fill_attr(dtp_graph *g, const dtp_attr_spec *spec, const dtp_node_spec *node,
                            dtp_attr *out, dtp_err *err)
{
    const dtp_attr *given = NULL;
    for (int32_t i = 0; i < node->n_attrs; i++) {
        if (strcmp(node->attrs[i].key, spec->key) == 0) {
            given = &node->attrs[i];
        }
    }
    const bool is_float = spec->kind == DTP_ATTR_FLOAT, is_ints = spec->kind == DTP_ATTR_INTS;
    const bool is_list = spec->kind == DTP_ATTR_DIMS || is_ints;
    const int32_t def = is_ints ? (int32_t)spec->def : 0;
    if (given == NULL) {
        if (spec->required) {
            return DTP_FAIL(err, DTP_INVALID, "'%s' is missing", spec->key);
        }
        *out = (dtp_attr){.key = spec->key,
                          .kind = spec->kind,
                          .f = is_float ? spec->def : 0.0,
                          .i = spec->kind == DTP_ATTR_DIM ? -1
                               : is_float || is_list      ? 0
                                                          : (int64_t)spec->def};
        out->n = is_ints ? 1 : 0;
        return is_ints ? copy_ids(g, 1, &def, &out->ints, err) : DTP_OK;
    }
    /* integers are stored in `i` whatever the exact kind, so INT stands for BOOL, ENUM and DTYPE */
    const bool fits = given->kind == DTP_ATTR_INT &&
                      (spec->kind == DTP_ATTR_BOOL || spec->kind == DTP_ATTR_ENUM ||
                       spec->kind == DTP_ATTR_DTYPE);
    if (given->kind != spec->kind && !fits) {
        return DTP_FAIL(err, DTP_INVALID, "'%s' has the wrong type", spec->key);
    }
    *out = *given;
    out->key = spec->key;
    out->kind = spec->kind;
    if (is_list) {
        DTP_TRY(copy_ids(g, given->n, given->ids, &out->ids, err));
    }
    for (int32_t i = 0; i < given->n && is_ints; i++) {
        DTP_TRY(check_range(spec, (double)given->ints[i], err));
    }
    if (is_ints && given->n < 1) {
        return DTP_FAIL(err, DTP_INVALID, "'%s' is an empty list", spec->key);
    }
    return is_float || spec->kind == DTP_ATTR_INT
               ? check_range(spec, is_float ? out->f : (double)out->i, err)
               : DTP_OK;
}

static dtp_status fill_attrs(dtp_graph *g, const dtp_op_def *op, const dtp_node_spec *spec,
                             dtp_node *node, dtp_err *err)
{
    int32_t n = 0;
    while (op->attrs != NULL && op->attrs[n].key != NULL) {
        n++;
    }
    dtp_attr *attrs;
    DTP_TRY(DTP_NEW(g->arena, attrs, n, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(fill_attr(g, &op->attrs[i], spec, &attrs[i], err));
        bool is_stream = (op->flags & DTP_OP_RANDOM) != 0 && strcmp(attrs[i].key, "stream") == 0;
        if (is_stream && attrs[i].i == 0) {
            attrs[i].i = (int64_t)dtp_stream_of(spec->name);
        }
    }
    for (int32_t i = 0; i < spec->n_attrs; i++) {
        bool known = false;
        for (int32_t k = 0; k < n && !known; k++) {
            known = strcmp(spec->attrs[i].key, attrs[k].key) == 0;
        }
        if (!known) {
            return DTP_FAIL(err, DTP_INVALID, "unknown attribute '%s'", spec->attrs[i].key);
        }
    }
    node->attrs = attrs;
    node->n_attrs = n;
    return DTP_OK;
}

/* ---- nodes ---- */

dtp_node_spec dtp_node_spec_init(const char *name, const char *op)
{
    return (dtp_node_spec){.name = name, .op = op, .origin = -1, .block = -1};
}

dtp_op_call dtp_node_call(const dtp_graph *g, const dtp_node *node, dtp_call_types *types)
{
    for (int32_t i = 0; i < node->n_in; i++) {
        types->in[i] = g->tensors[node->in[i]].type;
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        types->out[i] = g->tensors[node->out[i]].type;
    }
    return (dtp_op_call){.op = node->op,
                         .dims = &g->dims,
                         .attrs = node->attrs,
                         .n_attrs = node->n_attrs,
                         .n_in = node->n_in,
                         .n_out = node->n_out,
                         .in = types->in,
                         .out = types->out};
}

const char *dtp_op_takes(const dtp_op_def *op, char out[DTP_OP_TAKES_BYTES])
{
    char most[16] = "";
    if (op->max_in > op->min_in) {
        (void)snprintf(most, sizeof most, " to %d", op->max_in);
    }
    (void)snprintf(out, DTP_OP_TAKES_BYTES, "%d%s operand%s", op->min_in, most,
                   op->max_in == 1 ? "" : "s");
    return out;
}

static dtp_status build_node(dtp_graph *g, const dtp_node_spec *spec, dtp_node *node, dtp_err *err)
{
    dtp_call_types types;
    const dtp_op_def *op = node->op;
    if (spec->n_in < op->min_in || spec->n_in > op->max_in) {
        char takes[DTP_OP_TAKES_BYTES];
        return DTP_FAIL(err, DTP_INVALID, "takes %s, got %d", dtp_op_takes(op, takes), spec->n_in);
    }
    for (int32_t i = 0; i < spec->n_in; i++) {
        if (spec->in[i] < 0 || spec->in[i] >= g->n_tensors) {
            return DTP_FAIL(err, DTP_INTERNAL, "operand %d is tensor %d of %d", i, spec->in[i],
                            g->n_tensors);
        }
    }
    DTP_TRY(fill_attrs(g, op, spec, node, err));
    DTP_TRY(copy_ids(g, spec->n_in, spec->in, &node->in, err));
    node->n_in = spec->n_in;
    dtp_op_call call = dtp_node_call(g, node, &types);
    call.n_out = op->n_out;
    memset(types.out, 0, sizeof types.out);
    const int32_t rank = spec->out != NULL ? spec->out->rank : 0;
    types.out[0].rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        types.out[0].dims[i] = spec->out->dims[i];
    }
    DTP_TRY(op->infer(&call, spec->out != NULL, types.out, err));
    DTP_TRY(DTP_ONE_MORE(g->arena, g->nodes, g->n_nodes, g->cap_nodes, err));
    dtp_tensor_id ids[DTP_MAX_OP_OUT];
    for (int32_t i = 0; i < op->n_out; i++) {
        const char *name =
            i == 0 ? node->name
                   : dtp_arena_printf(g->arena, "%s.%s", node->name, op->out_names[i - 1]);
        DTP_TRY(DTP_MEMORY(err, name));
        dtp_graph_tensor t = {.name = name,
                              .kind = DTP_TENSOR_VALUE,
                              .type = types.out[i],
                              .producer = g->n_nodes,
                              .out_index = i};
        DTP_TRY(append_tensor(g, &t, &ids[i], err));
    }
    node->n_out = op->n_out;
    return copy_ids(g, node->n_out, ids, &node->out, err);
}

dtp_status dtp_graph_add_node(dtp_graph *g, const dtp_node_spec *spec, dtp_tensor_id *outs,
                              dtp_err *err)
{
    const dtp_op_def *op = spec->def != NULL ? spec->def : dtp_op_set_find(g->ops, spec->op);
    if (op == NULL) {
        char hint[DTP_OP_HINT_BYTES];
        dtp_op_hint(g->ops, spec->op, hint);
        return DTP_FAIL(err, DTP_INVALID, "node '%s': unknown op '%s'%s", spec->name, spec->op,
                        hint);
    }
    dtp_node node = {.name = dtp_arena_strdup(g->arena, spec->name),
                     .op = op,
                     .phase = spec->phase,
                     .origin = spec->origin,
                     .block = spec->block,
                     .instance = spec->instance,
                     .repeats = spec->repeats};
    DTP_TRY(DTP_MEMORY(err, node.name));
    const dtp_status s = build_node(g, spec, &node, err);
    if (s != DTP_OK) {
        return dtp_err_prefixed(s, err, "node '%s': %s", spec->name, op->name);
    }
    g->nodes[g->n_nodes++] = node;
    for (int32_t i = 0; i < node.n_out && outs != NULL; i++) {
        outs[i] = node.out[i];
    }
    return DTP_OK;
}

/* ---- results of a graph ---- */

dtp_status dtp_graph_add_output(dtp_graph *g, dtp_tensor_id t, dtp_err *err)
{
    DTP_TRY(DTP_ONE_MORE(g->arena, g->outputs, g->n_outputs, g->cap_outputs, err));
    g->outputs[g->n_outputs++] = t;
    return DTP_OK;
}

dtp_status dtp_graph_add_update(dtp_graph *g, dtp_update u, dtp_err *err)
{
    DTP_TRY(DTP_ONE_MORE(g->arena, g->updates, g->n_updates, g->cap_updates, err));
    g->updates[g->n_updates++] = u;
    return DTP_OK;
}

dtp_status dtp_graph_add_grad(dtp_graph *g, dtp_param_grad pg, dtp_err *err)
{
    DTP_TRY(DTP_ONE_MORE(g->arena, g->grads, g->n_grads, g->cap_grads, err));
    g->grads[g->n_grads++] = pg;
    return DTP_OK;
}

bool dtp_graph_is_quantized(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    const bool two = n >= 0 && g->nodes[n].n_in == 2;
    const dtp_node_id scale = two ? g->tensors[g->nodes[n].in[1]].producer : -1;
    return scale >= 0 && (g->nodes[scale].op->flags & DTP_OP_SCALE) != 0;
}

dtp_tensor_id dtp_graph_param_of(const dtp_graph *g, dtp_tensor_id t)
{
    dtp_node_id n = g->tensors[t].producer;
    if (dtp_graph_is_quantized(g, t)) {
        t = g->nodes[n].in[0];
        n = g->tensors[t].producer;
    }
    if (n >= 0 && (g->nodes[n].op->flags & DTP_OP_CAST) != 0) {
        t = g->nodes[n].in[0];
    }
    return g->tensors[t].kind == DTP_TENSOR_PARAM ? t : -1;
}

dtp_tensor_id dtp_graph_repeated(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    return n >= 0 && g->nodes[n].repeats ? g->nodes[g->nodes[n].origin].out[g->tensors[t].out_index]
                                         : t;
}

dtp_tensor_id dtp_graph_output(const dtp_graph *g, const char *name)
{
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->tensors[g->outputs[i]].name, name) == 0) {
            return g->outputs[i];
        }
    }
    return -1;
}

bool dtp_tensor_trains(const dtp_graph_tensor *t)
{
    return t->kind == DTP_TENSOR_PARAM && !t->frozen && dtp_dtype_is_float(t->type.dtype);
}

bool dtp_tensor_lasts(const dtp_graph_tensor *t)
{
    return t->kind == DTP_TENSOR_PARAM || (t->kind == DTP_TENSOR_STATE && !t->per_step);
}

dtp_tensor_id dtp_graph_gradient(const dtp_graph *g, const char *name)
{
    static const char prefix[] = "grad.";
    const size_t n = sizeof prefix - 1;
    for (int32_t i = 0; i < g->n_grads && strncmp(name, prefix, n) == 0; i++) {
        if (strcmp(g->tensors[g->grads[i].param].name, name + n) == 0) {
            return g->grads[i].grad;
        }
    }
    return -1;
}

int32_t dtp_graph_runs(const dtp_graph *g, dtp_phase phase)
{
    return phase != DTP_UPDATE && g->microbatches > 1 ? g->microbatches : 1;
}

dtp_status dtp_graph_set_evaluation(dtp_graph *g, dtp_err *err)
{
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        dtp_node *node = &g->nodes[n];
        dtp_attr *attrs;
        if ((node->op->flags & DTP_OP_IN_TRAINING) != 0) {
            dtp_tensor_id *in;
            DTP_TRY(DTP_NEW(g->arena, in, node->n_in, err));
            in[0] = in[1] = node->in[1];
            node->in = in;
        }
        if ((node->op->flags & DTP_OP_RANDOM) == 0 || dtp_op_attr(node->op, "rate") == NULL) {
            continue;
        }
        DTP_TRY(DTP_NEW(g->arena, attrs, node->n_attrs, err));
        for (int32_t i = 0; i < node->n_attrs; i++) {
            attrs[i] = node->attrs[i];
            attrs[i].f = strcmp(attrs[i].key, "rate") == 0 ? 0.0 : attrs[i].f;
        }
        node->attrs = attrs;
    }
    return DTP_OK;
}

dtp_status dtp_graph_results(const dtp_graph *g, dtp_arena *arena, int32_t *n,
                             const dtp_tensor_id **out, dtp_err *err)
{
    dtp_tensor_id *ids;
    bool *listed;
    DTP_TRY(DTP_NEW(arena, ids, g->n_outputs + g->n_grads + g->n_tensors + 3, err));
    DTP_TRY(DTP_NEW(arena, listed, g->n_tensors, err));
    *n = 0;
    if (g->loss >= 0) {
        ids[(*n)++] = g->loss;
    }
    if (g->norm >= 0) {
        ids[(*n)++] = g->norm;
        listed[g->norm] = true;
    }
    if (g->grad_factor >= 0) {
        ids[(*n)++] = g->grad_factor;
        listed[g->grad_factor] = true;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        ids[(*n)++] = g->outputs[i];
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        ids[(*n)++] = g->grads[i].grad;
        listed[g->grads[i].grad] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        const dtp_node_id producer = g->tensors[g->updates[i].value].producer;
        const bool lasts = dtp_tensor_lasts(&g->tensors[g->updates[i].target]);
        for (int32_t k = 0; lasts && producer >= 0 && k < g->nodes[producer].n_in; k++) {
            const dtp_tensor_id t = g->nodes[producer].in[k];
            if (g->tensors[t].kind == DTP_TENSOR_VALUE && !listed[t]) {
                ids[(*n)++] = t;
                listed[t] = true;
            }
        }
    }
    *out = ids;
    return DTP_OK;
}
