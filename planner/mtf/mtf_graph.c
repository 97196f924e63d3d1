/* The graph as auto_mtf (Mesh TensorFlow's layout optimizer) sees it: operations in graph order,
 * their input and output tensors, named dims, byte sizes, which tensors are final. */
#include "planner/mtf/mtf_graph.h"

#include "core/base/safe_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dtp_mtf_used {
    const char *key; /* lower case */
    int32_t count;
};

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf graph");
}

dtp_status dtp_mtf_graph_create(dtp_mtf_graph **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_graph *g = arena != NULL ? dtp_arena_alloc(arena, 1, sizeof *g) : NULL;
    if (g == NULL) {
        dtp_arena_destroy(arena);
        return no_memory(err);
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

/* ---- names ---- */

static struct dtp_mtf_used *find_used(const dtp_mtf_graph *g, const char *key)
{
    for (int32_t i = 0; i < g->n_used; i++) {
        if (strcmp(g->used[i].key, key) == 0) {
            return &g->used[i];
        }
    }
    return NULL;
}

static dtp_status add_used(dtp_mtf_graph *g, const char *key, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(g->arena, &g->used, g->n_used, g->n_used + 1, &g->cap_used,
                           sizeof *g->used, err));
    g->used[g->n_used++] = (struct dtp_mtf_used){.key = key, .count = 1};
    return DTP_OK;
}

static char *lower_case(dtp_arena *arena, const char *name)
{
    char *key = dtp_arena_strdup(arena, name);
    for (char *c = key; c != NULL && *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            *c = (char)(*c - 'A' + 'a');
        }
    }
    return key;
}

/* The count of a key is the first suffix to try when the name is asked for again. */
dtp_status dtp_mtf_unique_name(dtp_mtf_graph *g, const char *name, const char **out, dtp_err *err)
{
    const char *base = lower_case(g->arena, name);
    if (base == NULL) {
        return no_memory(err);
    }
    struct dtp_mtf_used *used = find_used(g, base);
    if (used == NULL) {
        *out = dtp_arena_strdup(g->arena, name);
        return *out != NULL ? add_used(g, base, err) : no_memory(err);
    }
    int32_t suffix = used->count++;
    const char *key = base;
    while (key != NULL && find_used(g, key) != NULL) {
        key = dtp_arena_printf(g->arena, "%s_%d", base, suffix++);
    }
    *out = dtp_arena_printf(g->arena, "%s_%d", name, suffix - 1);
    return key != NULL && *out != NULL ? add_used(g, key, err) : no_memory(err);
}

/* ---- operations ---- */

int32_t dtp_mtf_shape_find(const dtp_mtf_shape *shape, const char *dim)
{
    for (int32_t i = 0; i < shape->n; i++) {
        if (shape->dims[i].name != NULL && strcmp(shape->dims[i].name, dim) == 0) {
            return i;
        }
    }
    return -1;
}

static dtp_status copy_shape(dtp_mtf_graph *g, const dtp_mtf_shape *from, dtp_mtf_tensor *tensor,
                             dtp_err *err)
{
    int64_t bytes = dtp_dtype_bytes(tensor->dtype);
    tensor->shape.n = from->n;
    for (int32_t i = 0; i < from->n; i++) {
        const dtp_mtf_dim *d = &from->dims[i];
        const char *shown = d->name != NULL ? d->name : "?";
        if (d->size < 1 || !dtp_mul_i64(bytes, d->size, &bytes)) {
            return DTP_FAIL(err, d->size < 1 ? DTP_INVALID : DTP_RANGE,
                            "tensor '%s': dim '%s' of size %lld", tensor->name, shown,
                            (long long)d->size);
        }
        if (d->name != NULL && dtp_mtf_shape_find(from, d->name) != i) {
            return DTP_FAIL(err, DTP_INVALID, "tensor '%s' has dim '%s' twice", tensor->name,
                            shown);
        }
        tensor->shape.dims[i] = (dtp_mtf_dim){.size = d->size};
        if (d->name != NULL &&
            (tensor->shape.dims[i].name = dtp_arena_strdup(g->arena, d->name)) == NULL) {
            return no_memory(err);
        }
    }
    tensor->bytes = bytes;
    return DTP_OK;
}

static dtp_status add_tensor(dtp_mtf_graph *g, const dtp_mtf_op_spec *spec, const char *op_name,
                             int32_t index, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(g->arena, &g->tensors, g->n_tensors, g->n_tensors + 1, &g->cap_tensors,
                           sizeof *g->tensors, err));
    dtp_mtf_tensor *t = &g->tensors[g->n_tensors];
    *t = (dtp_mtf_tensor){.dtype = spec->dtype, .op = g->n_ops, .out_index = index};
    t->name = dtp_arena_printf(g->arena, "%s:%d", op_name, index);
    t->device = spec->device != NULL ? dtp_arena_strdup(g->arena, spec->device) : NULL;
    if (t->name == NULL || (spec->device != NULL && t->device == NULL)) {
        return no_memory(err);
    }
    DTP_TRY(copy_shape(g, &spec->out[index], t, err));
    g->n_tensors++;
    return DTP_OK;
}

dtp_status dtp_mtf_add_op(dtp_mtf_graph *g, const dtp_mtf_op_spec *spec, int32_t *first_out,
                          dtp_err *err)
{
    const char *name = NULL;
    DTP_TRY(dtp_mtf_unique_name(g, spec->name, &name, err));
    int32_t *in = dtp_arena_alloc(g->arena, (size_t)spec->n_in, sizeof *in);
    int32_t *out = dtp_arena_alloc(g->arena, (size_t)spec->n_out, sizeof *out);
    const char **unsplittable =
        dtp_arena_alloc(g->arena, (size_t)spec->n_unsplittable, sizeof *unsplittable);
    if (in == NULL || out == NULL || unsplittable == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < spec->n_in; i++) {
        if (spec->in[i] < 0 || spec->in[i] >= g->n_tensors) {
            return DTP_FAIL(err, DTP_INVALID, "operation '%s': input %d does not exist", name,
                            spec->in[i]);
        }
        in[i] = spec->in[i];
    }
    for (int32_t i = 0; i < spec->n_unsplittable; i++) {
        unsplittable[i] = dtp_arena_strdup(g->arena, spec->unsplittable[i]);
        if (unsplittable[i] == NULL) {
            return no_memory(err);
        }
    }
    if (first_out != NULL) {
        *first_out = g->n_tensors;
    }
    for (int32_t i = 0; i < spec->n_out; i++) {
        out[i] = g->n_tensors;
        DTP_TRY(add_tensor(g, spec, name, i, err));
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

dtp_status dtp_mtf_constant(dtp_mtf_graph *g, const char *name, dtp_dtype dtype,
                            const dtp_mtf_shape *shape, int32_t *out, dtp_err *err)
{
    dtp_mtf_op_spec spec = {
        .name = name != NULL ? name : "constant", .n_out = 1, .out = shape, .dtype = dtype};
    return dtp_mtf_add_op(g, &spec, out, err);
}

/* ---- queries ---- */

void dtp_mtf_set_final(dtp_mtf_graph *g, int32_t tensor)
{
    g->tensors[tensor].final = true;
}

bool dtp_mtf_on_canonical_device(const dtp_mtf_graph *g, int32_t tensor)
{
    const char *device = g->tensors[tensor].device;
    return device == NULL ||
           (g->canonical_device != NULL && strcmp(device, g->canonical_device) == 0);
}
