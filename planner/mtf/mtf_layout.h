/* The layout optimizer of `--compat auto_mtf`: Mesh TensorFlow's integer program for layout rules
 * that minimise peak memory, reproduced with its own schedule, live sets and memory estimate.
 *
 * S = splittable dim names, M = mesh dims, D = distinct sets of splittable names that meet in an
 * operation or a tensor, A(d) = injective partial maps d -> M.
 *
 *   x[t,m] in {0,1}: t is split over m.   y[d,a] in {0,1}: the layout restricted to d is a.
 *   minimise    (|S|+1) z - sum x                      (peak bytes, then most dims split)
 *   subject to  sum_{t in o} x[t,m] <= 1               for every operation's set o, every m
 *               sum_m x[t,m] <= 1                      for every t
 *               x[t,m] = 0                             where size(m) does not divide gcd(t)
 *               sum_a y[d,a] = 1                       for every d
 *               sum_{a: a(t)=m} y[d,a] = x[t,m]        for every d, t in d, m
 *               sum_{v live at i} sum_a bytes(v,a) y[set(v),a] <= z   for every step i
 *
 * The fifth line replaces the implications "y[d,a] => x[t,m] when a(t)=m, x[t,m] => not y[d,a] when
 * a leaves t whole": the integer points are the same and the relaxation is tighter. The objective
 * is solved lexicographically, each part recomputed in exact integers.
 *
 * Reference: mesh_tensorflow/auto_mtf/layout_optimizer.py, valid_layouts.py, memory_estimator.py.
 */
#ifndef DTP_PLANNER_MTF_MTF_LAYOUT_H
#define DTP_PLANNER_MTF_MTF_LAYOUT_H

#include "core/layout/mesh.h"
#include "planner/mtf/mtf_schedule.h"

/* A set of splittable dims, ascending by index. */
typedef struct dtp_mtf_set {
    int32_t n;
    const int32_t *dims;
    int32_t n_maps; /* assignments, rows of n mesh dims */
    const int8_t *maps;
} dtp_mtf_set;

typedef struct dtp_mtf_problem {
    dtp_arena *arena;
    const dtp_mtf_graph *g; /* borrowed */
    dtp_mesh mesh;
    int32_t n_dims; /* S, sorted by name */
    const char **dims;
    int64_t *gcd;              /* of every size with which a dim occurs in an output */
    int32_t n_sets, n_op_sets; /* D; the first n_op_sets belong to operations */
    dtp_mtf_set *sets;
    int32_t *tensor_set; /* by tensor */
    int32_t n_variables; /* |S||M| + sum A(|d|,|M|) + 1 */
    int64_t upper_bound; /* unsplit bytes of all tensors on the canonical device */
    int32_t *order;
    int64_t *freed;
    dtp_mtf_live live;
} dtp_mtf_problem;

/* Borrows g, which must not change afterwards. DTP_RANGE when a set has too many assignments. */
dtp_status dtp_mtf_problem_create(const dtp_mtf_graph *g, const dtp_mesh *mesh,
                                  dtp_mtf_scheduler scheduler, dtp_mtf_problem **out,
                                  dtp_err *err) DTP_MUST_CHECK;
void dtp_mtf_problem_destroy(dtp_mtf_problem *p);

/* Index of a splittable dim, -1 when the name is not splittable. */
int32_t dtp_mtf_problem_find_dim(const dtp_mtf_problem *p, const char *name);
/* The dim is splittable and the mesh dim's size divides its gcd; false for unknown names. */
bool dtp_mtf_is_valid_assignment(const dtp_mtf_problem *p, const char *dim, const char *mesh_dim);

/* Bytes of a tensor when dim t is split over mesh dim split[t] (-1 = whole): n is the product of
 * the sizes, then n := ceil(n / size) for each split dim in shape order, on the running total. */
int64_t dtp_mtf_tensor_bytes(const dtp_mtf_problem *p, int32_t tensor, const int8_t *split);
/* The largest sum over the live sets. */
int64_t dtp_mtf_peak(const dtp_mtf_problem *p, const int8_t *split);
/* The same for a text such as "a:x;b:y"; names that are not splittable are ignored, legality is not
 * checked. DTP_INVALID on malformed pairs and unknown mesh dims. */
dtp_status dtp_mtf_evaluate(const dtp_mtf_problem *p, const char *layout, int64_t *peak,
                            dtp_err *err) DTP_MUST_CHECK;

typedef struct dtp_mtf_solution {
    const char *layout; /* "a:x;c:y", sorted; in the problem's arena */
    int8_t *split;      /* by dim */
    int64_t peak;       /* bytes */
    int32_t n_split;
    int64_t objective; /* (|S|+1) peak - n_split */
    int64_t nodes;     /* of branch and bound, all solves */
} dtp_mtf_solution;

/* Among equal optima: the one whose pairs (dim by name, mesh dim in mesh order) come first. */
dtp_status dtp_mtf_solve(dtp_mtf_problem *p, dtp_mtf_solution *out, dtp_err *err) DTP_MUST_CHECK;

/* Names of the variables, in `arena`; NULL when out of memory: "x_(cake:lie)" and, with the dims
 * sorted and an entry of mesh_dims NULL where a dim is whole, "y_(channel:y,hidden)". */
char *dtp_mtf_global_name(dtp_arena *arena, const char *dim, const char *mesh_dim);
char *dtp_mtf_local_name(dtp_arena *arena, int32_t n, const char *const *dims,
                         const char *const *mesh_dims);

#endif
