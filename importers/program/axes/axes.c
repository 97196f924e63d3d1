/* Named dims of a graph whose axes have none: an axis is a list of classes, the outermost first,
 * and what two axes share is found by unification. */
#include "importers/program/axes/axes.h"

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

int32_t dtp_axis_one(const dtp_axes *x, const dtp_axis *axis)
{
    part_list list;
    return leaves_of(x, 1, axis, &list) && list.n == 1 ? list.cls[0] : -1;
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
    part_list a, b;
    if (!leaves_of(x, 1, one, &a) || !leaves_of(x, 1, other, &b)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "an axis is split into more than %d parts",
                        MOST_PARTS);
    }
    for (int32_t i = 0; i < a.n && i < b.n; i++) {
        const int32_t p = dtp_class_root(x, a.cls[i]), q = dtp_class_root(x, b.cls[i]);
        const int64_t m = x->cls[p].size, n = x->cls[q].size;
        if (m == n) {
            join(x, p, q);
        } else if (m < 1 || n < 1 || (m > n ? m % n : n % m) != 0) {
            return no_factors(m, n, err);
        } else { /* and from the start, where the class may stand again */
            DTP_TRY(split(x, m > n ? p : q, m > n ? n : m, err));
            return dtp_axis_unify(x, one, other, err);
        }
    }
    return a.n == b.n ? DTP_OK : DTP_FAIL(err, DTP_UNSUPPORTED, "axes of different sizes meet");
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
        to[i] = (dtp_axis){0};
        for (int64_t need = sizes[i]; need > 1; at++) { /* parts whose product is the size */
            if (at >= list.n || to[i].n == DTP_AXIS_PARTS) {
                return DTP_FAIL(err, DTP_UNSUPPORTED, "a view of more elements than its operand");
            }
            const int64_t size = x->cls[list.cls[at]].size;
            if (size > need && size % need == 0) {
                DTP_TRY(split(x, list.cls[at], need, err));
                return dtp_axes_regroup(x, n, from, n_to, sizes, to, err);
            }
            if (size < 1 || need % size != 0) {
                return no_factors(size, need, err);
            }
            need /= size;
            to[i].cls[to[i].n++] = list.cls[at];
        }
    }
    return at == list.n
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "a view of fewer elements than its operand");
}
