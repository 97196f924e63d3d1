/* Helpers shared by the auto_mtf replay tests. */
#ifndef DTP_TESTS_PLANNER_AUTO_MTF_H
#define DTP_TESTS_PLANNER_AUTO_MTF_H

#include "planner/mtf/mtf_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

/* ---- operations as Mesh TensorFlow's constructors make them: the first output ---- */

/* `whole`: a dim that becomes unsplittable, or NULL. */
static inline int32_t add_op(dtp_mtf_graph *g, const char *name, int32_t n_in, const int32_t *in,
                             int32_t n_out, const dtp_mtf_shape *shapes, dtp_dtype dtype,
                             const char *whole)
{
    const dtp_mtf_op_spec spec = {.name = name,
                                  .n_in = n_in,
                                  .in = in,
                                  .n_out = n_out,
                                  .out = shapes,
                                  .dtype = dtype,
                                  .n_unsplittable = whole != NULL ? 1 : 0,
                                  .unsplittable = &whole};
    int32_t out = -1;
    assert_int_equal(dtp_mtf_add_op(g, &spec, &out, NULL), DTP_OK);
    return out;
}

static inline int32_t constant(dtp_mtf_graph *g, const char *name, dtp_dtype dtype,
                               const char *shape)
{
    dtp_mtf_shape s = shape_of(g, shape);
    return add_op(g, name, 0, NULL, 1, &s, dtype, NULL);
}

static inline int32_t zeros(dtp_mtf_graph *g, const char *shape)
{
    return constant(g, "constant", DTP_F32, shape);
}

static inline int32_t einsum2(dtp_mtf_graph *g, const char *name, int32_t a, int32_t b,
                              const char *shape)
{
    dtp_mtf_shape s = shape_of(g, shape);
    int32_t in[2] = {a, b};
    return add_op(g, name, 2, in, 1, &s, g->tensors[a].dtype, NULL);
}

static inline int32_t broadcast(dtp_mtf_graph *g, const char *name, int32_t a, const char *shape)
{
    dtp_mtf_shape s = shape_of(g, shape);
    return add_op(g, name, 1, &a, 1, &s, g->tensors[a].dtype, NULL);
}

/* size(dim) outputs without `dim`, the first of its input. */
static inline int32_t unstack(dtp_mtf_graph *g, int32_t in, const char *dim)
{
    dtp_mtf_shape parts[32];
    const dtp_mtf_shape *whole = &g->tensors[in].shape;
    assert_string_equal(whole->dims[0].name, dim);
    assert_in_range(whole->dims[0].size, 1, 32);
    for (int64_t i = 0; i < whole->dims[0].size; i++) {
        parts[i] = (dtp_mtf_shape){.n = whole->n - 1};
        memcpy(parts[i].dims, &whole->dims[1], (size_t)(whole->n - 1) * sizeof whole->dims[0]);
    }
    return add_op(g, "unstack", 1, &in, (int32_t)whole->dims[0].size, parts, g->tensors[in].dtype,
                  dim);
}

static inline int32_t find_tensor(const dtp_mtf_graph *g, const char *name)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (strcmp(g->tensors[t].name, name) == 0) {
            return t;
        }
    }
    fail_msg("there is no tensor '%s'", name);
    return -1;
}

static inline void set_final(dtp_mtf_graph *g, int32_t tensor)
{
    g->tensors[tensor].final = true;
}

/* ---- problems ---- */

static inline dtp_mtf_problem *problem_new(const dtp_mtf_graph *g, const char *mesh_text)
{
    dtp_mesh mesh;
    dtp_mtf_problem *p = NULL;
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_mtf_problem_create(g, &mesh, &p, NULL), DTP_OK);
    return p;
}

/* The peak under a layout "a:m1;b:m2"; names that are not splittable are ignored. */
static inline int64_t value_of(const dtp_mtf_problem *p, const char *layout)
{
    char dim[32], mesh_dim[32];
    int8_t split[16];
    int used = 0;
    memset(split, -1, sizeof split);
    for (; sscanf(layout, "%31[^:]:%31[^;]%n", dim, mesh_dim, &used) == 2; layout += used) {
        const int32_t t = dtp_mtf_problem_find_dim(p, dim);
        if (t >= 0) {
            split[t] = (int8_t)dtp_mesh_find(&p->mesh, mesh_dim);
        }
        used += layout[used] == ';' ? 1 : 0;
    }
    assert_string_equal(layout, "");
    return dtp_mtf_peak(p, split);
}

/* The dim is splittable and the mesh dim's size divides all of its sizes. */
static inline bool may_assign(const dtp_mtf_problem *p, const char *dim, const char *mesh_dim)
{
    const int32_t t = dtp_mtf_problem_find_dim(p, dim);
    return t >= 0 && p->gcd[t] % p->mesh.sizes[dtp_mesh_find(&p->mesh, mesh_dim)] == 0;
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
