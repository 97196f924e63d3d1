#include "interop/import/program/axes.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_PARTS = 32 };

int32_t dtp_class_root(const dtp_axes *x, int32_t c)
{
    while (x->cls[c].parent != c) {
        x->cls[c].parent = x->cls[x->cls[c].parent].parent; /* path halving */
        c = x->cls[c].parent;
    }
    return c;
}

dtp_status dtp_class_new(dtp_axes *x, int64_t size, const char *origin, int32_t *out, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(x->arena, &x->cls, x->n, x->n + 1, &x->capacity, sizeof *x->cls, err));
    x->cls[x->n] = (dtp_class){
        .parent = x->n, .outer = -1, .inner = -1, .size = size, .base = -1, .origin = origin};
    *out = x->n++;
    return DTP_OK;
}

dtp_status dtp_axis_new(dtp_axes *x, int64_t size, const char *origin, dtp_axis *out, dtp_err *err)
{
    *out = (dtp_axis){0};
    if (size == 1) {
        return DTP_OK;
    }
    out->n = 1;
    return dtp_class_new(x, size, origin, out->cls, err);
}

/* ---- lists ---- */

typedef struct part_list {
    int32_t n;
    int32_t cls[MOST_PARTS];
} part_list;

static bool add_leaves(const dtp_axes *x, int32_t c, part_list *out)
{
    c = dtp_class_root(x, c);
    if (x->cls[c].outer >= 0) {
        return add_leaves(x, x->cls[c].outer, out) && add_leaves(x, x->cls[c].inner, out);
    }
    if (out->n == MOST_PARTS) {
        return false;
    }
    out->cls[out->n++] = c;
    return true;
}

static bool leaves_of(const dtp_axes *x, int32_t n, const dtp_axis *axes, part_list *out)
{
    *out = (part_list){0};
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < axes[i].n; k++) {
            if (!add_leaves(x, axes[i].cls[k], out)) {
                return false;
            }
        }
    }
    return true;
}

int32_t dtp_axis_leaves(const dtp_axes *x, int32_t n, const dtp_axis *axes, int32_t *out,
                        int32_t most)
{
    part_list list;
    if (!leaves_of(x, n, axes, &list) || list.n > most) {
        return -1;
    }
    memcpy(out, list.cls, (size_t)list.n * sizeof *out);
    return list.n;
}

/* ---- splitting and unification ---- */

/* Splits a leaf into outer parts of size `outer` and what is left. */
static dtp_status split(dtp_axes *x, int32_t c, int64_t outer, dtp_err *err)
{
    int32_t a, b;
    const char *origin = x->cls[c].origin;
    const int64_t size = x->cls[c].size;
    DTP_TRY(dtp_class_new(x, outer, dtp_arena_printf(x->arena, "%s.outer", origin), &a, err));
    DTP_TRY(
        dtp_class_new(x, size / outer, dtp_arena_printf(x->arena, "%s.inner", origin), &b, err));
    DTP_TRY(DTP_MEMORY(err, x->cls[a].origin, x->cls[b].origin));
    x->cls[c].outer = a;
    x->cls[c].inner = b;
    return DTP_OK;
}

static dtp_status no_factors(int64_t a, int64_t b, dtp_err *err)
{
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "an axis of %" PRId64 " elements cannot be split at %" PRId64, a, b);
}

dtp_status dtp_class_unify(dtp_axes *x, int32_t a, int32_t b, dtp_err *err)
{
    const dtp_axis one = {1, {a}}, other = {1, {b}};
    return dtp_axis_unify(x, &one, &other, err);
}

static void join(dtp_axes *x, int32_t a, int32_t b)
{
    /* the older one stays: inputs and parameters come first */
    const int32_t keep = a < b ? a : b, gone = a < b ? b : a;
    if (a != b) {
        x->cls[gone].parent = keep;
        if (x->cls[gone].base < 0 || x->cls[keep].base < 0) {
            x->cls[keep].base = -1; /* one of them has a size of its own */
        }
    }
}

dtp_status dtp_axis_unify(dtp_axes *x, const dtp_axis *one, const dtp_axis *other, dtp_err *err)
{
    part_list a, b, leaves;
    if (!leaves_of(x, 1, one, &a) || !leaves_of(x, 1, other, &b)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "an axis is split into more than %d parts",
                        MOST_PARTS);
    }
    int32_t i = 0, k = 0;
    while (i < a.n && k < b.n) {
        part_list *lists[2] = {&a, &b};
        int32_t *at[2] = {&i, &k};
        bool again = false;
        for (int s = 0; s < 2; s++) { /* what was split since the list was made */
            leaves = (part_list){0};
            const int32_t c = lists[s]->cls[*at[s]];
            if (!add_leaves(x, c, &leaves) || leaves.n + lists[s]->n > MOST_PARTS) {
                return DTP_FAIL(err, DTP_UNSUPPORTED, "an axis is split into more than %d parts",
                                MOST_PARTS);
            }
            memmove(&lists[s]->cls[*at[s] + leaves.n], &lists[s]->cls[*at[s] + 1],
                    (size_t)(lists[s]->n - *at[s] - 1) * sizeof(int32_t));
            memcpy(&lists[s]->cls[*at[s]], leaves.cls, (size_t)leaves.n * sizeof(int32_t));
            lists[s]->n += leaves.n - 1;
            again = again || leaves.n > 1;
        }
        const int32_t p = a.cls[i], q = b.cls[k];
        const int64_t m = x->cls[p].size, n = x->cls[q].size;
        if (again) {
            continue;
        }
        if (m == n) {
            join(x, p, q);
            i++;
            k++;
        } else if (m > n ? m % n != 0 : n % m != 0) {
            return no_factors(m, n, err);
        } else {
            DTP_TRY(split(x, m > n ? p : q, m > n ? n : m, err));
        }
    }
    return i == a.n && k == b.n ? DTP_OK
                                : DTP_FAIL(err, DTP_UNSUPPORTED, "axes of different sizes meet");
}

/* The outer and the inner part of the class at `at` in its place. */
static void open_part(const dtp_axes *x, part_list *list, int32_t at)
{
    const dtp_class *c = &x->cls[dtp_class_root(x, list->cls[at])];
    if (list->n < MOST_PARTS) {
        memmove(&list->cls[at + 1], &list->cls[at], (size_t)(list->n - at) * sizeof(int32_t));
        list->n++;
        list->cls[at + 1] = c->inner;
    }
    list->cls[at] = c->outer;
}

/* Parts from *at on whose product is `need`, the last one split where it is larger. */
static dtp_status take_parts(dtp_axes *x, part_list *list, int32_t *at, int64_t need, dtp_axis *to,
                             dtp_err *err)
{
    *to = (dtp_axis){0};
    while (need > 1) {
        if (*at >= list->n || to->n == DTP_AXIS_PARTS) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "a view of more elements than its operand");
        }
        const int32_t c = dtp_class_root(x, list->cls[*at]);
        const int64_t size = x->cls[c].size;
        if (x->cls[c].outer >= 0) {
            open_part(x, list, *at);
        } else if (size > need && size % need == 0) {
            DTP_TRY(split(x, c, need, err));
        } else if (size > need || need % size != 0) {
            return no_factors(size, need, err);
        } else {
            need /= size;
            to->cls[to->n++] = c;
            ++*at;
        }
    }
    return DTP_OK;
}

dtp_status dtp_axes_regroup(dtp_axes *x, int32_t n, const dtp_axis *from, int32_t n_to,
                            const int64_t *sizes, dtp_axis *to, dtp_err *err)
{
    part_list list;
    int32_t at = 0;
    if (!leaves_of(x, n, from, &list)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a tensor has more than %d dims", MOST_PARTS);
    }
    for (int32_t i = 0; i < n_to; i++) {
        DTP_TRY(take_parts(x, &list, &at, sizes[i], &to[i], err));
    }
    return at == list.n
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "a view of fewer elements than its operand");
}
