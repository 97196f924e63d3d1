/* The layout optimizer of Mesh TensorFlow, reproduced. */
#include "planner/mtf/mtf_layout.h"

#include "core/base/safe_int.h"
#include "core/base/strbuf.h"
#include "planner/mtf/assignments.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SET = 64, MAX_MAPS = 200000 };

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf problem");
}

/* ---- splittable dims ---- */

static bool is_anonymous(const char *name)
{
    return strncmp(name, "_anonymous_", strlen("_anonymous_")) == 0;
}

static bool is_forbidden(const dtp_mtf_graph *g, const char *name)
{
    for (int32_t o = 0; o < g->n_ops; o++) {
        for (int32_t i = 0; i < g->ops[o].n_unsplittable; i++) {
            if (strcmp(g->ops[o].unsplittable[i], name) == 0) {
                return true;
            }
        }
    }
    return false;
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

static int64_t gcd_of(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Adds the name in sorted place. */
static dtp_status note_dim(dtp_mtf_problem *p, const char *name, int32_t *cap, dtp_err *err)
{
    int32_t cap_gcd = *cap;
    DTP_TRY(
        dtp_arena_grow(p->arena, &p->dims, p->n_dims, p->n_dims + 1, cap, sizeof *p->dims, err));
    DTP_TRY(
        dtp_arena_grow(p->arena, &p->gcd, p->n_dims, p->n_dims + 1, &cap_gcd, sizeof *p->gcd, err));
    int32_t at = p->n_dims++;
    for (; at > 0 && strcmp(p->dims[at - 1], name) > 0; at--) {
        p->dims[at] = p->dims[at - 1];
    }
    p->dims[at] = name;
    return DTP_OK;
}

static dtp_status find_dims(dtp_mtf_problem *p, dtp_err *err)
{
    int32_t cap = 0;
    for (int32_t v = 0; v < p->g->n_tensors; v++) {
        const dtp_mtf_shape *shape = &p->g->tensors[v].shape;
        for (int32_t i = 0; i < shape->n; i++) {
            const char *name = shape->dims[i].name;
            if (name != NULL && !is_anonymous(name) && dtp_mtf_problem_find_dim(p, name) < 0 &&
                !is_forbidden(p->g, name)) {
                DTP_TRY(note_dim(p, name, &cap, err));
            }
        }
    }
    for (int32_t v = 0; v < p->g->n_tensors; v++) {
        const dtp_mtf_shape *shape = &p->g->tensors[v].shape;
        for (int32_t i = 0; i < shape->n; i++) {
            const char *name = shape->dims[i].name;
            int32_t t = name != NULL ? dtp_mtf_problem_find_dim(p, name) : -1;
            if (t >= 0) {
                p->gcd[t] = gcd_of(p->gcd[t], shape->dims[i].size);
            }
        }
    }
    return DTP_OK;
}

bool dtp_mtf_is_valid_assignment(const dtp_mtf_problem *p, const char *dim, const char *mesh_dim)
{
    int32_t t = dtp_mtf_problem_find_dim(p, dim);
    int32_t m = dtp_mesh_find(&p->mesh, mesh_dim);
    return t >= 0 && m >= 0 && p->gcd[t] % p->mesh.sizes[m] == 0;
}

/* ---- dimension sets ---- */

typedef struct building {
    int32_t n;
    int32_t dims[MAX_SET];
} building;

static dtp_status collect(const dtp_mtf_problem *p, int32_t tensor, building *set, dtp_err *err)
{
    const dtp_mtf_shape *shape = &p->g->tensors[tensor].shape;
    for (int32_t i = 0; i < shape->n; i++) {
        int32_t t =
            shape->dims[i].name != NULL ? dtp_mtf_problem_find_dim(p, shape->dims[i].name) : -1;
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
    size_t bytes = (size_t)set->n * sizeof set->dims[0];
    for (int32_t i = 0; i < p->n_sets; i++) {
        if (p->sets[i].n == set->n && memcmp(p->sets[i].dims, set->dims, bytes) == 0) {
            *index = i;
            return DTP_OK;
        }
    }
    DTP_TRY(
        dtp_arena_grow(p->arena, &p->sets, p->n_sets, p->n_sets + 1, cap, sizeof *p->sets, err));
    int32_t *dims = dtp_arena_alloc(p->arena, (size_t)set->n, sizeof *dims);
    if (dims == NULL) {
        return no_memory(err);
    }
    memcpy(dims, set->dims, bytes);
    int8_t *maps = NULL;
    int32_t n_maps = 0;
    DTP_TRY(dtp_assignments_make(p->arena, set->n, p->mesh.n_dims, MAX_MAPS, &maps, &n_maps, err));
    *index = p->n_sets;
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
    for (int32_t v = 0; v < g->n_tensors; v++) {
        building set = {0};
        DTP_TRY(collect(p, v, &set, err));
        DTP_TRY(intern_set(p, &set, &cap, &p->tensor_set[v], err));
        if (dtp_mtf_on_canonical_device(g, v) &&
            !dtp_add_i64(p->upper_bound, g->tensors[v].bytes, &p->upper_bound)) {
            return DTP_FAIL(err, DTP_RANGE, "auto_mtf: the bytes of all tensors do not fit");
        }
    }
    p->n_variables = p->n_dims * p->mesh.n_dims + 1;
    for (int32_t i = 0; i < p->n_sets; i++) {
        p->n_variables += p->sets[i].n_maps;
    }
    return DTP_OK;
}

static dtp_status build(dtp_mtf_problem *p, dtp_mtf_scheduler scheduler, dtp_err *err)
{
    const dtp_mtf_graph *g = p->g;
    p->order = dtp_arena_alloc(p->arena, (size_t)g->n_ops, sizeof *p->order);
    p->freed = dtp_arena_alloc(p->arena, (size_t)g->n_ops, sizeof *p->freed);
    p->tensor_set = dtp_arena_alloc(p->arena, (size_t)g->n_tensors, sizeof *p->tensor_set);
    if (p->order == NULL || p->freed == NULL || p->tensor_set == NULL) {
        return no_memory(err);
    }
    DTP_TRY(find_dims(p, err));
    DTP_TRY(find_sets(p, err));
    DTP_TRY(dtp_mtf_schedule(g, scheduler, p->order, p->freed, err));
    return dtp_mtf_live_sets(g, p->order, p->arena, &p->live, err);
}

dtp_status dtp_mtf_problem_create(const dtp_mtf_graph *g, const dtp_mesh *mesh,
                                  dtp_mtf_scheduler scheduler, dtp_mtf_problem **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_problem *p = arena != NULL ? dtp_arena_alloc(arena, 1, sizeof *p) : NULL;
    if (p == NULL) {
        dtp_arena_destroy(arena);
        return no_memory(err);
    }
    p->arena = arena;
    p->g = g;
    p->mesh = *mesh;
    dtp_status status = build(p, scheduler, err);
    if (status != DTP_OK) {
        dtp_mtf_problem_destroy(p);
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
    if (!dtp_mtf_on_canonical_device(p->g, tensor)) {
        return 0;
    }
    int64_t n = 1;
    for (int32_t i = 0; i < v->shape.n; i++) {
        n *= v->shape.dims[i].size;
    }
    for (int32_t i = 0; i < v->shape.n; i++) {
        const char *name = v->shape.dims[i].name;
        int32_t t = name != NULL ? dtp_mtf_problem_find_dim(p, name) : -1;
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

static dtp_status read_pair(const dtp_mtf_problem *p, const char *at, size_t n, int8_t *split,
                            dtp_err *err)
{
    char pair[256];
    if (n >= sizeof pair) {
        return DTP_FAIL(err, DTP_INVALID, "layout: pair too long at '%.60s'", at);
    }
    memcpy(pair, at, n);
    pair[n] = '\0';
    char *colon = strchr(pair, ':');
    if (colon == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "layout: expected 'DIM:MESH DIM', found '%s'", pair);
    }
    *colon = '\0';
    int32_t t = dtp_mtf_problem_find_dim(p, pair);
    if (t < 0) {
        return DTP_OK;
    }
    int32_t m = dtp_mesh_find(&p->mesh, colon + 1);
    if (m < 0) {
        return DTP_FAIL(err, DTP_INVALID, "layout: '%s:%s': the mesh has no dim '%s'", pair,
                        colon + 1, colon + 1);
    }
    split[t] = (int8_t)m;
    return DTP_OK;
}

static dtp_status read_layout(const dtp_mtf_problem *p, const char *text, int8_t *split,
                              dtp_err *err)
{
    memset(split, -1, (size_t)p->n_dims);
    while (*text != '\0') {
        size_t n = strcspn(text, ";");
        DTP_TRY(read_pair(p, text, n, split, err));
        text += n;
        text += *text == ';' ? 1 : 0;
    }
    return DTP_OK;
}

dtp_status dtp_mtf_evaluate(const dtp_mtf_problem *p, const char *layout, int64_t *peak,
                            dtp_err *err)
{
    int8_t *split = malloc((size_t)p->n_dims + 1);
    if (split == NULL) {
        return no_memory(err);
    }
    dtp_status status = read_layout(p, layout, split, err);
    if (status == DTP_OK) {
        *peak = dtp_mtf_peak(p, split);
    }
    free(split);
    return status;
}

/* ---- names ---- */

char *dtp_mtf_global_name(dtp_arena *arena, const char *dim, const char *mesh_dim)
{
    return dtp_arena_printf(arena, "x_(%s:%s)", dim, mesh_dim);
}

/* Index of the smallest name above `last` (NULL: of all), -1 when there is none. */
static int32_t following(int32_t n, const char *const *dims, const char *last)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if ((last == NULL || strcmp(dims[i], last) > 0) &&
            (best < 0 || strcmp(dims[i], dims[best]) < 0)) {
            best = i;
        }
    }
    return best;
}

char *dtp_mtf_local_name(dtp_arena *arena, int32_t n, const char *const *dims,
                         const char *const *mesh_dims)
{
    dtp_strbuf b = {0};
    dtp_strbuf_add(&b, "y_(");
    const char *last = NULL;
    for (int32_t i = following(n, dims, last); i >= 0; i = following(n, dims, last)) {
        dtp_strbuf_addf(&b, "%s%s", last != NULL ? "," : "", dims[i]);
        if (mesh_dims[i] != NULL) {
            dtp_strbuf_addf(&b, ":%s", mesh_dims[i]);
        }
        last = dims[i];
    }
    dtp_strbuf_add(&b, ")");
    char *text = b.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&b));
    dtp_strbuf_free(&b);
    return text;
}
