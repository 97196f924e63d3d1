/* Helpers shared by the auto_mtf replay tests. */
#ifndef DTP_TESTS_PLANNER_AUTO_MTF_H
#define DTP_TESTS_PLANNER_AUTO_MTF_H

#include "planner/mtf/mtf_mesh.h"

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
