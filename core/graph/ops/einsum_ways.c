#include "core/graph/ops/einsum_ways.h"

#include "core/base/safe_int.h"

enum { MIN_MATRIX_SIDE = 16 };

int32_t dtp_einsum__find(const dtp_einsum_tensor *t, dtp_dim_id id)
{
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->id[i] == id) {
            return i;
        }
    }
    return -1;
}

bool dtp_einsum__has(const dtp_einsum_tensor *t, dtp_dim_id id)
{
    return dtp_einsum__find(t, id) >= 0;
}

int64_t dtp_einsum__stride_of(const dtp_einsum_tensor *t, dtp_dim_id id)
{
    int32_t i = dtp_einsum__find(t, id);
    return i < 0 ? 0 : t->stride[i];
}

/* Elements as a double: safe for shapes whose product is not. */
double dtp_einsum__elems(const dtp_einsum_tensor *t)
{
    double n = 1.0;
    for (int32_t i = 0; i < t->rank; i++) {
        n *= (double)t->size[i];
    }
    return n;
}

void dtp_einsum__add_dim(dtp_einsum_tensor *t, dtp_dim_id id, int64_t size)
{
    if (size != 1) {
        t->id[t->rank] = id;
        t->size[t->rank++] = size;
    }
}

/* Row-major strides; false when the number of elements does not fit. An empty tensor counts as one
 * of size 1 along its empty dims. */
bool dtp_einsum__set_strides(dtp_einsum_tensor *t, int64_t *n_elems)
{
    int64_t n = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = n;
        if (!dtp_mul_i64(n, t->size[i] > 0 ? t->size[i] : 1, &n)) {
            return false;
        }
    }
    *n_elems = n;
    return true;
}

/* ---- ways ---------------------------------------------------------------------------------------
 */

/* The dims of `order` that are in `with` and, unlike those of `without`, not in there. */
dtp_einsum_group dtp_einsum__select_dims(const dtp_einsum_tensor *order,
                                         const dtp_einsum_tensor *with,
                                         const dtp_einsum_tensor *without)
{
    dtp_einsum_group g = {.n = 0};
    for (int32_t i = 0; i < order->rank; i++) {
        if (dtp_einsum__has(with, order->id[i]) &&
            (without == NULL || !dtp_einsum__has(without, order->id[i]))) {
            g.id[g.n++] = order->id[i];
        }
    }
    return g;
}

/* Size of a group, and its stride when the tensor holds it as one run. */
static bool run_of(const dtp_einsum_tensor *t, const dtp_einsum_group *g, int64_t *size,
                   int64_t *stride)
{
    *size = 1;
    *stride = 1;
    for (int32_t i = g->n - 1; i >= 0; i--) {
        const int32_t at = dtp_einsum__find(t, g->id[i]);
        if (i == g->n - 1) {
            *stride = t->stride[at];
        } else if (t->stride[at] != *stride * *size) {
            return false;
        }
        *size *= t->size[at];
    }
    return true;
}

dtp_einsum_matrix dtp_einsum__matrix_of(const dtp_einsum_tensor *t, const dtp_einsum_group *rows,
                                        const dtp_einsum_group *cols)
{
    int64_t nr, nc, sr, sc;
    if (!run_of(t, rows, &nr, &sr) || !run_of(t, cols, &nc, &sc)) {
        return (dtp_einsum_matrix){.packed = true};
    }
    if (nc == 1 || sc == 1) {
        return (dtp_einsum_matrix){.row_major = true, .ld = nr > 1 ? sr : nc};
    }
    if (nr == 1 || sr == 1) {
        return (dtp_einsum_matrix){.ld = nc > 1 ? sc : nr};
    }
    return (dtp_einsum_matrix){.packed = true};
}

/* Moves all dims of the group but the last to the end of `batch`; false when that is pointless. */
static bool demote(dtp_einsum_group *g, dtp_einsum_group *batch, const dtp_einsum_tensor *t)
{
    if (g->n < 2 || batch->n + g->n - 1 > DTP_MAX_RANK ||
        t->size[dtp_einsum__find(t, g->id[g->n - 1])] < MIN_MATRIX_SIDE) {
        return false;
    }
    for (int32_t i = 0; i < g->n - 1; i++) {
        batch->id[batch->n++] = g->id[i];
    }
    g->id[0] = g->id[g->n - 1];
    g->n = 1;
    return true;
}

/* Batch dims in the memory order of the result. */
static void sort_batch(dtp_einsum_group *batch, const dtp_einsum_tensor *c)
{
    dtp_einsum_group sorted = {.n = 0};
    for (int32_t i = 0; i < c->rank; i++) {
        for (int32_t k = 0; k < batch->n; k++) {
            if (batch->id[k] == c->id[i]) {
                sorted.id[sorted.n++] = c->id[i];
            }
        }
    }
    *batch = sorted;
}

/* Bits of a way: which tensor the order of a group comes from, and which groups are demoted. */
enum {
    M_FROM_RESULT = 1,
    N_FROM_RESULT = 2,
    K_FROM_SECOND = 4,
    M_DEMOTED = 8,
    N_DEMOTED = 16,
    N_WAYS = 32
};

static bool make_way(const dtp_einsum_tensor *a, const dtp_einsum_tensor *b,
                     const dtp_einsum_tensor *c, int32_t bits, dtp_einsum_way *w)
{
    const dtp_einsum_tensor *const parts[DTP_EINSUM_PARTS] = {a, b, c};
    const bool demote_m = (bits & M_DEMOTED) != 0, demote_n = (bits & N_DEMOTED) != 0;
    const dtp_einsum_group both = dtp_einsum__select_dims(c, a, NULL);
    w->batch.n = 0;
    for (int32_t i = 0; i < both.n; i++) {
        if (dtp_einsum__has(b, both.id[i])) {
            w->batch.id[w->batch.n++] = both.id[i];
        }
    }
    w->m = (bits & M_FROM_RESULT) != 0 || demote_m ? dtp_einsum__select_dims(c, a, b)
                                                   : dtp_einsum__select_dims(a, c, b);
    w->n = (bits & N_FROM_RESULT) != 0 || demote_n ? dtp_einsum__select_dims(c, b, a)
                                                   : dtp_einsum__select_dims(b, c, a);
    w->k = (bits & K_FROM_SECOND) != 0 ? dtp_einsum__select_dims(b, a, c)
                                       : dtp_einsum__select_dims(a, b, c);
    if ((demote_m && !demote(&w->m, &w->batch, a)) || (demote_n && !demote(&w->n, &w->batch, b))) {
        return false;
    }
    sort_batch(&w->batch, c);
    w->part[DTP_EINSUM_A] = dtp_einsum__matrix_of(a, &w->m, &w->k);
    w->part[DTP_EINSUM_B] = dtp_einsum__matrix_of(b, &w->k, &w->n);
    w->part[DTP_EINSUM_C] = dtp_einsum__matrix_of(c, &w->m, &w->n);
    w->moved = 0.0;
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        w->moved += w->part[p].packed ? dtp_einsum__elems(parts[p]) : 0.0;
    }
    return true;
}

void dtp_einsum__best_way(const dtp_einsum_tensor *a, const dtp_einsum_tensor *b,
                          const dtp_einsum_tensor *c, dtp_einsum_way *best)
{
    dtp_einsum_way w;
    (void)make_way(a, b, c, 0, best);
    for (int32_t bits = 1; bits < N_WAYS && best->moved > 0.0; bits++) {
        if (make_way(a, b, c, bits, &w) && w.moved < best->moved) {
            *best = w;
        }
    }
}
