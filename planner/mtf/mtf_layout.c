#include "planner/mtf/mtf_layout.h"

#include <string.h>

#include "core/base/safe_int.h"

enum { MAX_SET = 64, MAX_MAPS = 200000 };

/* ---- splittable dims ---- */

/* Anonymous, or an operation needs it whole. */
static bool is_forbidden(const dtp_mtf_graph *g, const char *name)
{
    for (int32_t o = 0; o < g->n_ops; o++) {
        for (int32_t i = 0; i < g->ops[o].n_unsplittable; i++) {
            if (strcmp(g->ops[o].unsplittable[i], name) == 0) {
                return true;
            }
        }
    }
    return strncmp(name, "_anonymous_", strlen("_anonymous_")) == 0;
}

int32_t dtp_mtf_problem_find_dim(const dtp_mtf_problem *p, const char *name)
{
    for (int32_t t = 0; t < p->n_dims; t++) {
        if (strcmp(p->dims[t], name) == 0) {
            return t;
        }
    }
    return -1;
}

/* Greatest common divisor. */
static int64_t gcd_of(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static dtp_status find_dims(dtp_mtf_problem *p, dtp_err *err)
{
    const dtp_mtf_graph *g = p->g;
    size_t most = 0;
    for (int32_t v = 0; v < g->n_tensors; v++) {
        most += (size_t)g->tensors[v].shape.n;
    }
    DTP_TRY(DTP_NEW(p->arena, p->dims, most, err));
    DTP_TRY(DTP_NEW(p->arena, p->gcd, most, err));
    for (int32_t v = 0; v < g->n_tensors; v++) {
        for (int32_t i = 0; i < g->tensors[v].shape.n; i++) {
            const char *name = g->tensors[v].shape.dims[i].name;
            if (dtp_mtf_problem_find_dim(p, name) >= 0 || is_forbidden(g, name)) {
                continue;
            }
            int32_t at = p->n_dims++;
            for (; at > 0 && strcmp(p->dims[at - 1], name) > 0; at--) {
                p->dims[at] = p->dims[at - 1];
            }
            p->dims[at] = name;
        }
    }
    for (int32_t v = 0; v < g->n_tensors; v++) {
        const dtp_mtf_shape *shape = &g->tensors[v].shape;
        for (int32_t i = 0; i < shape->n; i++) {
            const int32_t t = dtp_mtf_problem_find_dim(p, shape->dims[i].name);
            if (t >= 0) {
                p->gcd[t] = gcd_of(p->gcd[t], shape->dims[i].size);
            }
        }
    }
    return DTP_OK;
}

/* ---- assignments ---- */

int32_t dtp_mtf_assignments_count(int32_t n, int32_t k)
{
    double sum = 0.0, term = 1.0; /* C(n,j) k!/(k-j)! */
    for (int32_t j = 0; j <= n && j <= k; j++) {
        sum += term;
        term *= (double)(n - j) * (double)(k - j) / (double)(j + 1);
    }
    return sum < (double)INT32_MAX ? (int32_t)(sum + 0.5) : INT32_MAX;
}

/* The next map in lexicographic order: an odometer over -1..k-1 that skips used mesh dims. */
static void next_map(int8_t *map, int32_t n, int32_t k, uint32_t *used)
{
    for (int32_t i = n - 1; i >= 0; i--) {
        if (map[i] >= 0) {
            *used &= ~(1u << map[i]);
        }
        for (int32_t m = map[i] + 1; m < k; m++) {
            if ((*used >> m & 1u) == 0) {
                map[i] = (int8_t)m;
                *used |= 1u << m;
                return;
            }
        }
        map[i] = -1;
    }
}

dtp_status dtp_mtf_assignments_make(dtp_arena *arena, int32_t n, int32_t k, int32_t limit,
                                    int8_t **rows, int32_t *count, dtp_err *err)
{
    const int32_t total = dtp_mtf_assignments_count(n, k);
    uint32_t used = 0;
    if (total > limit) {
        return DTP_FAIL(err, DTP_RANGE, "%d dims on %d mesh dims have more than %d assignments", n,
                        k, limit);
    }
    DTP_TRY(DTP_NEW(arena, *rows, (size_t)total * (size_t)n, err));
    memset(*rows, -1, (size_t)n);
    for (int32_t r = 1; r < total; r++) {
        int8_t *map = *rows + (size_t)r * (size_t)n;
        memcpy(map, map - n, (size_t)n);
        next_map(map, n, k, &used);
    }
    *count = total;
    return DTP_OK;
}

/* ---- dimension sets ---- */

typedef struct building {
    int32_t n;
    int32_t dims[MAX_SET];
} building;

/* Adds the splittable dims of a tensor in their places. */
static dtp_status collect(const dtp_mtf_problem *p, int32_t tensor, building *set, dtp_err *err)
{
    const dtp_mtf_shape *shape = &p->g->tensors[tensor].shape;
    for (int32_t i = 0; i < shape->n; i++) {
        const int32_t t = dtp_mtf_problem_find_dim(p, shape->dims[i].name);
        int32_t at = 0;
        while (at < set->n && set->dims[at] < t) {
            at++;
        }
        if (t < 0 || (at < set->n && set->dims[at] == t)) {
            continue;
        }
        if (set->n == MAX_SET) {
            return DTP_FAIL(err, DTP_RANGE, "operation of '%s' has more than %d splittable dims",
                            p->g->tensors[tensor].name, MAX_SET);
        }
        memmove(&set->dims[at + 1], &set->dims[at], (size_t)(set->n - at) * sizeof set->dims[0]);
        set->dims[at] = t;
        set->n++;
    }
    return DTP_OK;
}

static dtp_status intern_set(dtp_mtf_problem *p, const building *set, int32_t *cap, int32_t *index,
                             dtp_err *err)
{
    const size_t bytes = (size_t)set->n * sizeof set->dims[0];
    int32_t *dims;
    for (*index = 0; *index < p->n_sets; ++*index) {
        if (p->sets[*index].n == set->n && memcmp(p->sets[*index].dims, set->dims, bytes) == 0) {
            return DTP_OK;
        }
    }
    DTP_TRY(
        dtp_arena_grow(p->arena, &p->sets, p->n_sets, p->n_sets + 1, cap, sizeof *p->sets, err));
    DTP_TRY(DTP_NEW(p->arena, dims, set->n, err));
    memcpy(dims, set->dims, bytes);
    int8_t *maps = NULL;
    int32_t n_maps = 0;
    DTP_TRY(
        dtp_mtf_assignments_make(p->arena, set->n, p->mesh.n_dims, MAX_MAPS, &maps, &n_maps, err));
    p->sets[p->n_sets++] = (dtp_mtf_set){.n = set->n, .dims = dims, .n_maps = n_maps, .maps = maps};
    return DTP_OK;
}

static dtp_status find_sets(dtp_mtf_problem *p, dtp_err *err)
{
    const dtp_mtf_graph *g = p->g;
    int32_t cap = 0, index = 0;
    for (int32_t o = 0; o < g->n_ops; o++) {
        building set = {0};
        for (int32_t i = 0; i < g->ops[o].n_in; i++) {
            DTP_TRY(collect(p, g->ops[o].in[i], &set, err));
        }
        for (int32_t i = 0; i < g->ops[o].n_out; i++) {
            DTP_TRY(collect(p, g->ops[o].out[i], &set, err));
        }
        DTP_TRY(intern_set(p, &set, &cap, &index, err));
    }
    p->n_op_sets = p->n_sets;
    DTP_TRY(DTP_NEW(p->arena, p->tensor_set, g->n_tensors, err));
    for (int32_t v = 0; v < g->n_tensors; v++) {
        building set = {0};
        DTP_TRY(collect(p, v, &set, err));
        DTP_TRY(intern_set(p, &set, &cap, &p->tensor_set[v], err));
        if (!dtp_add_i64(p->upper_bound, g->tensors[v].bytes, &p->upper_bound)) {
            return DTP_FAIL(err, DTP_RANGE, "auto_mtf: the bytes of all tensors do not fit");
        }
    }
    p->n_variables = p->n_dims * p->mesh.n_dims + 1;
    for (int32_t i = 0; i < p->n_sets; i++) {
        p->n_variables += p->sets[i].n_maps;
    }
    return DTP_OK;
}

dtp_status dtp_mtf_problem_create(const dtp_mtf_graph *g, const dtp_mesh *mesh,
                                  dtp_mtf_problem **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_problem *p = dtp_arena_alloc(arena, 1, sizeof *p);
    dtp_status status = DTP_MEMORY(err, p);
    if (status == DTP_OK) {
        *p = (dtp_mtf_problem){.arena = arena, .g = g, .mesh = *mesh};
        DTP_TRY(find_dims(p, err));
        DTP_TRY(find_sets(p, err));
        DTP_TRY(DTP_NEW(p->arena, p->order, p->g->n_ops, err));
        DTP_TRY(DTP_NEW(p->arena, p->freed, p->g->n_ops, err));
        DTP_TRY(dtp_mtf_schedule(p->g, p->order, p->freed, err));
        status = dtp_mtf_live_sets(p->g, p->order, p->arena, &p->live, err);
    }
    if (status != DTP_OK) {
        dtp_arena_destroy(arena);
        return status;
    }
    *out = p;
    return DTP_OK;
}

void dtp_mtf_problem_destroy(dtp_mtf_problem *p)
{
    if (p != NULL) {
        dtp_arena_destroy(p->arena);
    }
}

/* ---- memory ---- */

int64_t dtp_mtf_tensor_bytes(const dtp_mtf_problem *p, int32_t tensor, const int8_t *split)
{
    const dtp_mtf_tensor *v = &p->g->tensors[tensor];
    int64_t n = v->bytes / dtp_dtype_bytes(v->dtype);
    for (int32_t i = 0; i < v->shape.n; i++) {
        const int32_t t = dtp_mtf_problem_find_dim(p, v->shape.dims[i].name);
        if (t >= 0 && split[t] >= 0) {
            n = dtp_ceil_div(n, p->mesh.sizes[split[t]]);
        }
    }
    return n * dtp_dtype_bytes(v->dtype);
}

int64_t dtp_mtf_peak(const dtp_mtf_problem *p, const int8_t *split)
{
    int64_t peak = 0;
    for (int32_t step = 0; step < p->live.n_steps; step++) {
        int64_t sum = 0;
        for (int32_t k = p->live.first[step]; k < p->live.first[step + 1]; k++) {
            sum += dtp_mtf_tensor_bytes(p, p->live.tensors[k], split);
        }
        peak = sum > peak ? sum : peak;
    }
    return peak;
}
