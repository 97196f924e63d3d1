/* Helpers shared by the auto_mtf replay tests: Mesh TensorFlow's constructors, short forms,
 * assertions. */
#ifndef DTP_TESTS_PLANNER_AUTO_MTF_H
#define DTP_TESTS_PLANNER_AUTO_MTF_H

#include "core/base/safe_int.h"
#include "planner/mtf/mtf_mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- operations as Mesh TensorFlow makes them; *out is the (first) output ---- */

static inline dtp_status check_inputs(const dtp_mtf_graph *g, const char *name, int32_t n_in,
                                      const int32_t *in, dtp_err *err)
{
    if (n_in < 1) {
        return DTP_FAIL(err, DTP_INVALID, "operation '%s' needs an input", name);
    }
    for (int32_t i = 0; i < n_in; i++) {
        if (in[i] < 0 || in[i] >= g->n_tensors) {
            return DTP_FAIL(err, DTP_INVALID, "operation '%s': input %d does not exist", name,
                            in[i]);
        }
    }
    return DTP_OK;
}

static inline dtp_status dtp_mtf_einsum(dtp_mtf_graph *g, const char *name, int32_t n_in,
                                        const int32_t *in, const dtp_mtf_shape *shape, int32_t *out,
                                        dtp_err *err)
{
    name = name != NULL ? name : "einsum";
    DTP_TRY(check_inputs(g, name, n_in, in, err));
    dtp_mtf_op_spec spec = {.name = name,
                            .n_in = n_in,
                            .in = in,
                            .n_out = 1,
                            .out = shape,
                            .dtype = g->tensors[in[0]].dtype};
    return dtp_mtf_add_op(g, &spec, out, err);
}

static inline dtp_status dtp_mtf_broadcast(dtp_mtf_graph *g, const char *name, int32_t in,
                                           const dtp_mtf_shape *shape, int32_t *out, dtp_err *err)
{
    return dtp_mtf_einsum(g, name != NULL ? name : "broadcast", 1, &in, shape, out, err);
}

static inline dtp_status dtp_mtf_unstack(dtp_mtf_graph *g, const char *name, int32_t in,
                                         const char *dim, int32_t *out, dtp_err *err)
{
    name = name != NULL ? name : "unstack";
    DTP_TRY(check_inputs(g, name, 1, &in, err));
    dtp_mtf_shape part = g->tensors[in].shape;
    int32_t at = dtp_mtf_shape_find(&part, dim);
    if (at < 0) {
        return DTP_FAIL(err, DTP_NOT_FOUND, "unstack '%s': its input has no dim '%s'", name, dim);
    }
    int64_t n = part.dims[at].size;
    if (n > INT32_MAX) {
        return DTP_FAIL(err, DTP_RANGE, "unstack '%s': %lld outputs", name, (long long)n);
    }
    memmove(&part.dims[at], &part.dims[at + 1], (size_t)(part.n - at - 1) * sizeof part.dims[0]);
    part.n--;
    dtp_mtf_shape *shapes = dtp_arena_alloc(g->arena, (size_t)n, sizeof *shapes);
    if (shapes == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf graph");
    }
    for (int64_t i = 0; i < n; i++) {
        shapes[i] = part;
    }
    dtp_mtf_op_spec spec = {.name = name,
                            .n_in = 1,
                            .in = &in,
                            .n_out = (int32_t)n,
                            .out = shapes,
                            .dtype = g->tensors[in].dtype,
                            .n_unsplittable = 1,
                            .unsplittable = &dim};
    return dtp_mtf_add_op(g, &spec, out, err);
}

static inline dtp_status dtp_mtf_concat(dtp_mtf_graph *g, const char *name, int32_t n_in,
                                        const int32_t *in, const char *dim, int32_t *out,
                                        dtp_err *err)
{
    name = name != NULL ? name : "concat";
    DTP_TRY(check_inputs(g, name, n_in, in, err));
    dtp_mtf_shape shape = g->tensors[in[0]].shape;
    int32_t at = dtp_mtf_shape_find(&shape, dim);
    for (int32_t i = 0; i < n_in; i++) {
        const dtp_mtf_shape *other = &g->tensors[in[i]].shape;
        if (at < 0 || other->n != shape.n || dtp_mtf_shape_find(other, dim) != at) {
            return DTP_FAIL(err, DTP_INVALID, "concat '%s': input %d lacks dim '%s' at its place",
                            name, i, dim);
        }
        if (i > 0 &&
            !dtp_add_i64(shape.dims[at].size, other->dims[at].size, &shape.dims[at].size)) {
            return DTP_FAIL(err, DTP_RANGE, "concat '%s': dim '%s' is too long", name, dim);
        }
    }
    dtp_mtf_op_spec spec = {.name = name,
                            .n_in = n_in,
                            .in = in,
                            .n_out = 1,
                            .out = &shape,
                            .dtype = g->tensors[in[0]].dtype,
                            .n_unsplittable = 1,
                            .unsplittable = &dim};
    return dtp_mtf_add_op(g, &spec, out, err);
}

static inline dtp_mtf_shape dtp_mtf_anonymous_shape(int32_t n, const int64_t *sizes)
{
    static const char *const names[DTP_MAX_RANK] = {"_anonymous_0", "_anonymous_1", "_anonymous_2",
                                                    "_anonymous_3", "_anonymous_4", "_anonymous_5",
                                                    "_anonymous_6", "_anonymous_7"};
    dtp_mtf_shape shape = {.n = n};
    for (int32_t i = 0; i < n; i++) {
        shape.dims[i] = (dtp_mtf_dim){.name = names[i], .size = sizes[i]};
    }
    return shape;
}

static inline int32_t dtp_mtf_find_tensor(const dtp_mtf_graph *g, const char *name)
{
    for (int32_t i = 0; i < g->n_tensors; i++) {
        if (strcmp(g->tensors[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- short forms ---- */

/* "a:10 b:5" as a shape; the text must outlive it. */
static inline dtp_mtf_shape shape_of(dtp_mtf_graph *g, const char *text)
{
    dtp_mtf_shape shape = {0};
    char name[32];
    int size = 0, used = 0;
    while (sscanf(text, " %31[^:]:%d%n", name, &size, &used) == 2) {
        shape.dims[shape.n].name = dtp_arena_strdup(g->arena, name);
        shape.dims[shape.n++].size = size;
        text += used;
    }
    return shape;
}

static inline dtp_mtf_graph *graph_new(void)
{
    dtp_mtf_graph *g = NULL;
    assert_int_equal(dtp_mtf_graph_create(&g, NULL), DTP_OK);
    return g;
}

static inline int32_t constant(dtp_mtf_graph *g, const char *name, dtp_dtype dtype,
                               const char *shape)
{
    dtp_mtf_shape s = shape_of(g, shape);
    int32_t out = -1;
    assert_int_equal(dtp_mtf_constant(g, name, dtype, &s, &out, NULL), DTP_OK);
    return out;
}

static inline int32_t zeros(dtp_mtf_graph *g, const char *shape)
{
    return constant(g, NULL, DTP_F32, shape);
}

static inline int32_t einsum2(dtp_mtf_graph *g, const char *name, int32_t a, int32_t b,
                              const char *shape)
{
    dtp_mtf_shape s = shape_of(g, shape);
    int32_t out = -1;
    int32_t in[2] = {a, b};
    assert_int_equal(dtp_mtf_einsum(g, name, 2, in, &s, &out, NULL), DTP_OK);
    return out;
}

static inline int32_t broadcast(dtp_mtf_graph *g, const char *name, int32_t a, const char *shape)
{
    dtp_mtf_shape s = shape_of(g, shape);
    int32_t out = -1;
    assert_int_equal(dtp_mtf_broadcast(g, name, a, &s, &out, NULL), DTP_OK);
    return out;
}

static inline dtp_mtf_problem *problem_new(const dtp_mtf_graph *g, const char *mesh_text)
{
    dtp_mesh mesh;
    dtp_mtf_problem *p = NULL;
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_mtf_problem_create(g, &mesh, DTP_MTF_LIST, &p, NULL), DTP_OK);
    return p;
}

static inline int64_t value_of(const dtp_mtf_problem *p, const char *layout)
{
    int64_t peak = -1;
    assert_int_equal(dtp_mtf_evaluate(p, layout, &peak, NULL), DTP_OK);
    return peak;
}

static inline void assert_order(const int32_t *order, int32_t n, const int32_t *expected)
{
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(order[i], expected[i]);
    }
}

static inline void assert_freed(const int64_t *freed, int32_t n, const int64_t *expected)
{
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(freed[i], expected[i]);
    }
}

/* The live set of a step is exactly the n tensors given, ascending. */
static inline void assert_live(const dtp_mtf_live *live, int32_t step, int32_t n,
                               const int32_t *tensors)
{
    assert_int_equal(live->first[step + 1] - live->first[step], n);
    assert_order(&live->tensors[live->first[step]], n, tensors);
}

#endif
