/* Keys come in any order, so the lists are read as they come and put together at the end; the place
 * of every inner list is kept for the messages of that last step. */
#include "planner/problem/read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/safe_int.h"
#include "planner/problem/json_stream.h"

/* A list of lists of whole numbers. */
typedef struct ragged {
    const char *path;
    int64_t fixed; /* length of the inner lists, 0 = any */
    int64_t n, *first, *values;
    int64_t n_values; /* stored */
    bool share;       /* equal inner lists are stored once; start: by inner list, where */
    int64_t *start, cap_start;
    dtp_hash_table table;
    solver_json_place *at; /* by inner list */
    int64_t cap_first, cap_at, cap_values;
    solver_json_place begin; /* of the outer list */
    bool seen;
} ragged;

typedef struct problem_reader {
    solver_json *in;
    dtp_arena *arena; /* of the hash table */
    char name[SOLVER_JSON_STRING_BYTES];
    bool has_name, has_limit, has_variables, has_edges, has_problem;
    int64_t limit;
    int64_t bytes, max_bytes; /* that the lists have, and may have */
    ragged intervals, costs, usages, pairs, matrices;
} problem_reader;

/* A member of an object: what reads its value. */
typedef struct json_member {
    const char *key;
    bool *seen;
    dtp_status (*read)(problem_reader *r, void *dest, dtp_err *err);
    void *dest;
} json_member;

static dtp_status read_member(problem_reader *r, const char *path, const json_member *members,
                              int32_t n, dtp_err *err)
{
    char key[SOLVER_JSON_STRING_BYTES];
    const solver_json_place at = solver_json_here(r->in);
    DTP_TRY(solver_json_string(r->in, key, err));
    for (int32_t m = 0; m < n; m++) {
        if (strcmp(members[m].key, key) == 0) {
            if (*members[m].seen) {
                return solver_json_fail(r->in, &at, err, "'%s' occurs twice", key);
            }
            *members[m].seen = true;
            DTP_TRY(solver_json_take(r->in, ':', err));
            DTP_TRY(members[m].read(r, members[m].dest, err));
            solver_json_set_path(r->in, path, -1, -1);
            return DTP_OK;
        }
    }
    return solver_json_fail(r->in, &at, err, "unknown key '%s'", key);
}

/* An object with these members; all but "name" must be there. */
static dtp_status read_object(problem_reader *r, const char *path, const json_member *members,
                              int32_t n, dtp_err *err)
{
    bool more = true;
    int c = -1;
    solver_json_set_path(r->in, path, -1, -1);
    DTP_TRY(solver_json_take(r->in, '{', err));
    for (int64_t k = 0;; k++) {
        DTP_TRY(solver_json_next(r->in, '}', k, &more, err));
        if (!more) {
            break;
        }
        DTP_TRY(solver_json_peek(r->in, &c, err));
        DTP_TRY(read_member(r, path, members, n, err));
    }
    for (int32_t m = 0; m < n; m++) {
        if (!*members[m].seen && strcmp(members[m].key, "name") != 0) {
            return solver_json_fail(r->in, NULL, err, "'%s' is missing", members[m].key);
        }
    }
    return DTP_OK;
}

/* Room for `need` elements of `size` bytes in *array, which at least doubles while the limit allows
 * it. */
static dtp_status reserve(problem_reader *r, void *array, int64_t need, int64_t *capacity,
                          size_t size, dtp_err *err)
{
    void *old;
    size_t bytes;
    const int64_t width = (int64_t)size, most = *capacity + (r->max_bytes - r->bytes) / width;
    if (need <= *capacity) {
        return DTP_OK;
    }
    if (need > most) {
        return solver_json_fail(r->in, NULL, err,
                                "up to here the problem takes %" PRId64
                                " bytes of memory, the limit (--max-problem) is %" PRId64,
                                r->bytes + (need - *capacity) * width, r->max_bytes);
    }
    const int64_t twice = *capacity > need / 2 ? *capacity * 2 : need + 16;
    const int64_t room = twice < most ? twice : most;
    memcpy(&old, array, sizeof old);
    void *grown = dtp_mul_size((size_t)room, size, &bytes) ? realloc(old, bytes) : NULL;
    DTP_TRY(DTP_MEMORY(err, grown));
    memcpy(array, &grown, sizeof grown);
    r->bytes += (room - *capacity) * width;
    *capacity = room;
    return DTP_OK;
}

static int64_t length_of(const ragged *list, int64_t i)
{
    return list->first[i + 1] - list->first[i];
}

/* Drops the n values of the last inner list, stored at `start`, if an earlier list has the same. */
static dtp_status share_inner(problem_reader *r, ragged *list, int64_t start, int64_t n,
                              dtp_err *err)
{
    const size_t bytes = (size_t)n * sizeof *list->values;
    uint64_t hash = (uint64_t)n;
    for (int64_t i = start; i < start + n; i++) {
        hash = (hash ^ (uint64_t)list->values[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    DTP_TRY(reserve(r, &list->start, list->n + 1, &list->cap_start, sizeof *list->start, err));
    list->start[list->n] = start;
    uint32_t at = (uint32_t)hash;
    int32_t i = dtp_hash_table_next(&list->table, (uint32_t)hash, &at);
    while (i >= 0 && (length_of(list, i) != n ||
                      memcmp(list->values + list->start[i], list->values + start, bytes) != 0)) {
        i = dtp_hash_table_next(&list->table, (uint32_t)hash, &at);
    }
    if (i < 0) {
        return dtp_hash_table_add(&list->table, r->arena, (uint32_t)hash, (int32_t)list->n, err);
    }
    list->start[list->n] = list->start[i];
    list->n_values = start;
    return DTP_OK;
}

static dtp_status read_inner(problem_reader *r, ragged *list, dtp_err *err)
{
    bool more = true;
    const int64_t start = list->n_values;
    int64_t n = 0;
    DTP_TRY(solver_json_take(r->in, '[', err));
    for (;; n++) {
        DTP_TRY(solver_json_next(r->in, ']', n, &more, err));
        if (!more) {
            break;
        }
        if (start + n == list->cap_values) {
            DTP_TRY(reserve(r, &list->values, start + n + 1, &list->cap_values,
                            sizeof *list->values, err));
        }
        solver_json_set_path(r->in, list->path, list->n, n);
        DTP_TRY(solver_json_whole(r->in, &list->values[start + n], err));
    }
    if (list->fixed > 0 && n != list->fixed) {
        solver_json_set_path(r->in, list->path, list->n, -1);
        return solver_json_fail(r->in, &list->at[list->n], err,
                                "has %" PRId64 " numbers, not %" PRId64, n, list->fixed);
    }
    list->first[list->n + 1] = list->first[list->n] + n;
    list->n_values += n;
    DTP_TRY(list->share ? share_inner(r, list, start, n, err) : DTP_OK);
    list->n++;
    return DTP_OK;
}

static dtp_status read_ragged(problem_reader *r, void *dest, dtp_err *err)
{
    ragged *list = dest;
    bool more = true;
    int c = -1;
    solver_json_set_path(r->in, list->path, -1, -1);
    DTP_TRY(solver_json_peek(r->in, &c, err));
    list->begin = solver_json_here(r->in);
    DTP_TRY(solver_json_take(r->in, '[', err));
    DTP_TRY(reserve(r, &list->first, 1, &list->cap_first, sizeof *list->first, err));
    list->first[0] = 0;
    for (;;) {
        DTP_TRY(solver_json_next(r->in, ']', list->n, &more, err));
        if (!more) {
            return DTP_OK;
        }
        if (list->n >= INT32_MAX / 4) {
            return solver_json_fail(r->in, NULL, err, "more than %d elements", INT32_MAX / 4);
        }
        DTP_TRY(reserve(r, &list->first, list->n + 2, &list->cap_first, sizeof *list->first, err));
        DTP_TRY(reserve(r, &list->at, list->n + 1, &list->cap_at, sizeof *list->at, err));
        solver_json_set_path(r->in, list->path, list->n, -1);
        DTP_TRY(solver_json_peek(r->in, &c, err));
        list->at[list->n] = solver_json_here(r->in);
        DTP_TRY(read_inner(r, list, err));
        solver_json_set_path(r->in, list->path, -1, -1);
    }
}

static dtp_status read_name(problem_reader *r, void *dest, dtp_err *err)
{
    solver_json_set_path(r->in, "problem.name", -1, -1);
    return solver_json_string(r->in, dest, err);
}

static dtp_status read_limit(problem_reader *r, void *dest, dtp_err *err)
{
    solver_json_set_path(r->in, "problem.usage_limit", -1, -1);
    return solver_json_whole(r->in, dest, err);
}

static dtp_status read_variables(problem_reader *r, void *dest, dtp_err *err)
{
    (void)dest;
    const json_member members[] = {
        {"intervals", &r->intervals.seen, read_ragged, &r->intervals},
        {"costs", &r->costs.seen, read_ragged, &r->costs},
        {"usages", &r->usages.seen, read_ragged, &r->usages},
    };
    return read_object(r, "problem.nodes", members, 3, err);
}

static dtp_status read_edges(problem_reader *r, void *dest, dtp_err *err)
{
    (void)dest;
    const json_member members[] = {
        {"nodes", &r->pairs.seen, read_ragged, &r->pairs},
        {"costs", &r->matrices.seen, read_ragged, &r->matrices},
    };
    return read_object(r, "problem.edges", members, 2, err);
}

static dtp_status read_problem(problem_reader *r, void *dest, dtp_err *err)
{
    (void)dest;
    const json_member members[] = {
        {"name", &r->has_name, read_name, r->name},
        {"nodes", &r->has_variables, read_variables, NULL},
        {"edges", &r->has_edges, read_edges, NULL},
        {"usage_limit", &r->has_limit, read_limit, &r->limit},
    };
    return read_object(r, "problem", members, 4, err);
}

/* ---- putting it together ---- */

/* Both lists are indexed alike. */
static dtp_status same_length(problem_reader *r, const ragged *list, const ragged *other,
                              dtp_err *err)
{
    solver_json_set_path(r->in, list->path, -1, -1);
    return list->n == other->n ? DTP_OK
                               : solver_json_fail(r->in, &list->begin, err,
                                                  "has %" PRId64 " elements, %s has %" PRId64,
                                                  list->n, other->path, other->n);
}

static void move_array(int64_t **dest, int64_t **source)
{
    free(*dest);
    *dest = *source;
    *source = NULL;
}

/* Moves the large arrays into the problem. */
static dtp_status assemble(problem_reader *r, dtp_problem *p, dtp_err *err)
{
    const size_t variables = (size_t)r->costs.n, edges = (size_t)r->pairs.n;
    free(p->begin);
    free(p->end);
    free(p->edge_a);
    free(p->edge_b);
    p->begin = malloc((variables + 1) * sizeof *p->begin);
    p->end = malloc((variables + 1) * sizeof *p->end);
    p->edge_a = malloc((edges + 1) * sizeof *p->edge_a);
    p->edge_b = malloc((edges + 1) * sizeof *p->edge_b);
    DTP_TRY(DTP_MEMORY(err, p->begin, p->end, p->edge_a, p->edge_b));
    for (size_t i = 0; i < variables; i++) {
        p->begin[i] = r->intervals.values[2 * i];
        p->end[i] = r->intervals.values[2 * i + 1];
    }
    for (size_t e = 0; e < edges; e++) {
        p->edge_a[e] = (int32_t)r->pairs.values[2 * e];
        p->edge_b[e] = (int32_t)r->pairs.values[2 * e + 1];
    }
    move_array(&p->first, &r->costs.first);
    move_array(&p->cost, &r->costs.values);
    move_array(&p->usage, &r->usages.values);
    move_array(&p->edge_first, &r->matrices.start);
    move_array(&p->edge_cost, &r->matrices.values);
    p->n_variables = p->cap_variables = (int32_t)variables;
    p->n_edges = p->cap_edges = (int32_t)edges;
    p->cap_strategies = p->first[variables];
    p->n_stored = p->cap_entries = r->matrices.n_values;
    return dtp_problem_check(p, err);
}

static dtp_status read_all(problem_reader *r, dtp_err *err)
{
    const json_member members[] = {{"problem", &r->has_problem, read_problem, NULL}};
    int c = -1;
    DTP_TRY(read_object(r, NULL, members, 1, err));
    DTP_TRY(solver_json_peek(r->in, &c, err));
    if (c >= 0) {
        return solver_json_fail(r->in, NULL, err, "text after the end of the problem");
    }
    DTP_TRY(same_length(r, &r->usages, &r->costs, err));
    DTP_TRY(same_length(r, &r->intervals, &r->costs, err));
    for (int64_t i = 0; i < r->costs.n; i++) {
        const int64_t n = length_of(&r->costs, i);
        solver_json_set_path(r->in, r->costs.path, i, -1);
        if (n < 1 || n > DTP_MAX_STRATEGIES) {
            return solver_json_fail(r->in, &r->costs.at[i], err,
                                    "has %" PRId64 " strategies (1 to %d)", n, DTP_MAX_STRATEGIES);
        }
        solver_json_set_path(r->in, r->usages.path, i, -1);
        if (length_of(&r->usages, i) != n) {
            return solver_json_fail(r->in, &r->usages.at[i], err,
                                    "has %" PRId64 " numbers, the node has %" PRId64 " strategies",
                                    length_of(&r->usages, i), n);
        }
    }
    DTP_TRY(same_length(r, &r->matrices, &r->pairs, err));
    for (int64_t e = 0; e < r->pairs.n; e++) {
        const int64_t a = r->pairs.values[2 * e], b = r->pairs.values[2 * e + 1];
        solver_json_set_path(r->in, r->pairs.path, e, -1);
        if (a >= r->costs.n || b >= r->costs.n || a == b) {
            return solver_json_fail(r->in, &r->pairs.at[e], err,
                                    "%" PRId64 " and %" PRId64 " are not two of the %" PRId64
                                    " nodes",
                                    a, b, r->costs.n);
        }
        const int64_t rows = length_of(&r->costs, a), cols = length_of(&r->costs, b);
        solver_json_set_path(r->in, r->matrices.path, e, -1);
        if (length_of(&r->matrices, e) != rows * cols) {
            return solver_json_fail(r->in, &r->matrices.at[e], err,
                                    "has %" PRId64 " numbers, nodes %" PRId64 " and %" PRId64
                                    " have %" PRId64 " x %" PRId64 " strategies",
                                    length_of(&r->matrices, e), a, b, rows, cols);
        }
    }
    return DTP_OK;
}

dtp_status dtp_problem_read(const char *file, int64_t max_bytes, dtp_problem **out, dtp_err *err)
{
    problem_reader r = {.max_bytes = max_bytes,
                        .intervals = {.path = "problem.nodes.intervals", .fixed = 2},
                        .costs = {.path = "problem.nodes.costs"},
                        .usages = {.path = "problem.nodes.usages"},
                        .pairs = {.path = "problem.edges.nodes", .fixed = 2},
                        .matrices = {.path = "problem.edges.costs", .share = true}};
    r.arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, r.arena));
    dtp_problem *p = NULL;
    dtp_status s = solver_json_open(file, &r.in, err);
    s = s == DTP_OK ? read_all(&r, err) : s;
    solver_json_close(r.in);
    dtp_arena_destroy(r.arena);
    if (s == DTP_OK) {
        s = dtp_problem_create(r.name, r.limit, &p, err);
    }
    if (s == DTP_OK) {
        s = assemble(&r, p, err);
        if (s != DTP_OK) {
            dtp_err_prefix(err, "%s: problem", file);
        }
    }
    ragged *const lists[] = {&r.intervals, &r.costs, &r.usages, &r.pairs, &r.matrices};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        free(lists[k]->first);
        free(lists[k]->values);
        free(lists[k]->start);
        free(lists[k]->at);
    }
    if (s != DTP_OK) {
        dtp_problem_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}
