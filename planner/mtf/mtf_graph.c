#include "planner/mtf/mtf_graph.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "core/graph/op_rules.h"

struct dtp_mtf_used {
    const char *key; /* lower case */
    int32_t count;
};

dtp_status dtp_mtf_graph_create(dtp_mtf_graph **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_graph *g = dtp_arena_alloc(arena, 1, sizeof *g);
    if (g == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf graph");
    }
    g->arena = arena;
    *out = g;
    return DTP_OK;
}

void dtp_mtf_graph_destroy(dtp_mtf_graph *g)
{
    if (g != NULL) {
        dtp_arena_destroy(g->arena);
    }
}

/* ---- operations ---- */

static struct dtp_mtf_used *find_used(const dtp_mtf_graph *g, const char *key)
{
    for (int32_t i = 0; i < g->n_used; i++) {
        if (strcmp(g->used[i].key, key) == 0) {
            return &g->used[i];
        }
    }
    return NULL;
}

/* A name not used yet. The count of a key is the first suffix to try when the name is asked for
 * again. */
static dtp_status unique_name(dtp_mtf_graph *g, const char *name, const char **out, dtp_err *err)
{
    char *base = dtp_arena_strdup(g->arena, name);
    DTP_TRY(DTP_MEMORY(err, base));
    for (char *c = base; *c != '\0'; c++) {
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    }
    const char *key = base;
    struct dtp_mtf_used *used = find_used(g, base);
    if (used != NULL) {
        int32_t suffix = used->count++;
        while (key != NULL && find_used(g, key) != NULL) {
            key = dtp_arena_printf(g->arena, "%s_%d", base, suffix++);
        }
        *out = dtp_arena_printf(g->arena, "%s_%d", name, suffix - 1);
    } else {
        *out = dtp_arena_strdup(g->arena, name);
    }
    DTP_TRY(DTP_MEMORY(err, key, *out));
    DTP_TRY(dtp_arena_grow(g->arena, &g->used, g->n_used, g->n_used + 1, &g->cap_used,
                           sizeof *g->used, err));
    g->used[g->n_used++] = (struct dtp_mtf_used){.key = key, .count = 1};
    return DTP_OK;
}

dtp_status dtp_mtf_add_op(dtp_mtf_graph *g, const dtp_mtf_op_spec *spec, int32_t *first_out,
                          dtp_err *err)
{
    const char *name = NULL, **unsplittable;
    int32_t *in, *out;
    DTP_TRY(unique_name(g, spec->name, &name, err));
    DTP_TRY(DTP_NEW(g->arena, in, spec->n_in, err));
    DTP_TRY(DTP_NEW(g->arena, out, spec->n_out, err));
    DTP_TRY(DTP_NEW(g->arena, unsplittable, spec->n_unsplittable, err));
    for (int32_t i = 0; i < spec->n_in; i++) {
        in[i] = spec->in[i];
    }
    for (int32_t i = 0; i < spec->n_unsplittable; i++) {
        unsplittable[i] = spec->unsplittable[i];
    }
    *first_out = g->n_tensors;
    for (int32_t i = 0; i < spec->n_out; i++) {
        DTP_TRY(dtp_arena_grow(g->arena, &g->tensors, g->n_tensors, g->n_tensors + 1,
                               &g->cap_tensors, sizeof *g->tensors, err));
        dtp_mtf_tensor *t = &g->tensors[g->n_tensors];
        *t = (dtp_mtf_tensor){.name = dtp_arena_printf(g->arena, "%s:%d", name, i),
                              .dtype = spec->dtype,
                              .shape = spec->out[i],
                              .bytes = dtp_dtype_bytes(spec->dtype)};
        DTP_TRY(DTP_MEMORY(err, t->name));
        for (int32_t k = 0; k < t->shape.n; k++) {
            const dtp_mtf_dim *d = &t->shape.dims[k];
            if (!dtp_mul_i64(t->bytes, d->size, &t->bytes)) {
                return DTP_FAIL(err, DTP_RANGE, "tensor '%s': dim '%s' of size %lld", t->name,
                                d->name, (long long)d->size);
            }
        }
        out[i] = g->n_tensors++;
    }
    DTP_TRY(dtp_arena_grow(g->arena, &g->ops, g->n_ops, g->n_ops + 1, &g->cap_ops, sizeof *g->ops,
                           err));
    g->ops[g->n_ops++] = (dtp_mtf_op){.name = name,
                                      .n_in = spec->n_in,
                                      .n_out = spec->n_out,
                                      .n_unsplittable = spec->n_unsplittable,
                                      .in = in,
                                      .out = out,
                                      .unsplittable = unsplittable};
    return DTP_OK;
}

/* ---- from a dtp_graph ---- */

static dtp_mtf_shape shape_of(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_ttype *type = &g->tensors[t].type;
    dtp_mtf_shape shape = {.n = type->rank};
    for (int32_t i = 0; i < type->rank; i++) {
        shape.dims[i] = (dtp_mtf_dim){.name = dtp_dims_name(&g->dims, type->dims[i].id),
                                      .size = type->dims[i].size};
    }
    return shape;
}

static bool may_split(const dtp_sharding_rules *rules, dtp_dim_id d)
{
    for (int32_t r = 0; r < rules->n; r++) {
        if (rules->rows[r].dim == d || rules->rows[r].out_dim == d) {
            return true;
        }
    }
    return false;
}

/* tensor: those of `to` by dtp_tensor_id, -1 = not made yet. */
static dtp_status add_node(const dtp_graph *g, dtp_node_id n, dtp_mtf_graph *to, int32_t *tensor,
                           dtp_err *err)
{
    const dtp_node *node = &g->nodes[n];
    int32_t in[DTP_MAX_OP_IN], first = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        if (tensor[t] < 0) {
            const dtp_mtf_shape shape = shape_of(g, t);
            const dtp_mtf_op_spec source = {.name = g->tensors[t].name,
                                            .n_out = 1,
                                            .out = &shape,
                                            .dtype = g->tensors[t].type.dtype};
            DTP_TRY(dtp_mtf_add_op(to, &source, &tensor[t], err));
        }
        in[i] = tensor[t];
    }
    dtp_mtf_shape out[DTP_MAX_OP_OUT];
    for (int32_t i = 0; i < node->n_out; i++) {
        out[i] = shape_of(g, node->out[i]);
    }
    const char *unsplittable[DTP_MAX_OP_DIMS];
    dtp_mtf_op_spec spec = {.name = node->name,
                            .n_in = node->n_in,
                            .in = in,
                            .n_out = node->n_out,
                            .out = out,
                            .dtype = g->tensors[node->out[0]].type.dtype,
                            .unsplittable = unsplittable};
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    const dtp_op_call call = dtp_node_call(g, node, &types);
    const int32_t n_dims = (node->op->flags & DTP_OP_RELABEL) != 0 ? 0 : dtp_call_dims(&call, dims);
    dtp_sharding_rules_of(&call, false, &rules);
    for (int32_t i = 0; i < n_dims; i++) {
        if (!may_split(&rules, dims[i])) {
            unsplittable[spec.n_unsplittable++] = dtp_dims_name(&g->dims, dims[i]);
        }
    }
    DTP_TRY(dtp_mtf_add_op(to, &spec, &first, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        tensor[node->out[i]] = first + i;
    }
    return DTP_OK;
}

static dtp_status convert(const dtp_graph *g, dtp_mtf_graph *to, dtp_err *err)
{
    int32_t *tensor;
    DTP_TRY(DTP_NEW(to->arena, tensor, g->n_tensors, err));
    memset(tensor, -1, (size_t)g->n_tensors * sizeof *tensor);
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        DTP_TRY(add_node(g, n, to, tensor, err));
    }
    for (int32_t i = 0; i <= g->n_outputs; i++) {
        const dtp_tensor_id t = i < g->n_outputs ? g->outputs[i] : g->loss;
        if (t >= 0 && tensor[t] >= 0) {
            to->tensors[tensor[t]].final = true;
        }
    }
    return DTP_OK;
}

dtp_status dtp_mtf_from_graph(const dtp_graph *g, dtp_mtf_graph **out, dtp_err *err)
{
    dtp_mtf_graph *to = NULL;
    if (g == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "auto_mtf: no graph");
    }
    DTP_TRY(dtp_mtf_graph_create(&to, err));
    const dtp_status s = convert(g, to, err);
    if (s != DTP_OK) {
        dtp_mtf_graph_destroy(to);
        return s;
    }
    *out = to;
    return DTP_OK;
}
