/* Costs of redistributions between layouts of tensors of one size, each found once: the edges ask
 * for the same pairs again and again, two dozen times each on large meshes. */
#include "planner/problem/tensors/redistribution_costs.h"

#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = -1 };

/* Costs to one layout, by the index of the layout that a redistribution comes from. */
typedef struct prices_to {
    int32_t n;
    int64_t *ps;
} prices_to;

struct redistribution_costs {
    struct redistribution_costs *next;
    dtp_ttype type; /* names of dims do not matter */
    layout_set layouts;
    int32_t cap;
    prices_to *to; /* by the number of a layout */
};

bool dtp_tensor__same_sizes(const dtp_ttype *a, const dtp_ttype *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t i = 0; i < a->rank && same; i++) {
        same = a->dims[i].size == b->dims[i].size;
    }
    return same;
}

/* Brings the costs of the type to the head of the list. */
static dtp_status find_prices(tensor_build *b, const dtp_ttype *type, redistribution_costs **out,
                              dtp_err *err)
{
    redistribution_costs **at = &b->prices;
    while (*at != NULL && !dtp_tensor__same_sizes(&(*at)->type, type)) {
        at = &(*at)->next;
    }
    redistribution_costs *x = *at;
    if (x != NULL) {
        *at = x->next;
    } else {
        DTP_TRY(DTP_NEW(b->arena, x, 1, err));
        x->type = *type;
    }
    x->next = b->prices;
    *out = b->prices = x;
    return DTP_OK;
}

/* n_from + n_to of them; those that are not asked for have none. */
static dtp_status number_layouts(tensor_build *b, redistribution_costs *x, const move_table *t,
                                 int32_t *out, dtp_err *err)
{
    for (int32_t i = 0; i < t->n_from + t->n_to; i++) {
        if (t->layouts[i] == NULL) {
            continue;
        }
        out[i] = dtp_tensor__find_layout(&x->layouts, t->layouts[i]);
        if (out[i] < 0) {
            out[i] = x->layouts.list.n;
            DTP_TRY(dtp_tensor__add_layout(b, &x->layouts, t->layouts[i], err));
        }
    }
    const int32_t used = x->cap;
    return dtp_arena_grow(b->arena, &x->to, used, x->layouts.list.n, &x->cap, sizeof *x->to, err);
}

/* All that lead to one layout together, since they are found together. */
static dtp_status fill(tensor_build *b, const redistribution_costs *x, const int32_t *number,
                       move_table *t, dtp_err *err)
{
    for (int32_t j = 0; j < t->n_to; j++) {
        const dtp_layout *target = t->layouts[t->n_from + j];
        if (target == NULL) {
            continue;
        }
        prices_to *to = &x->to[number[t->n_from + j]];
        int32_t cap = to->n;
        DTP_TRY(
            dtp_arena_grow(b->arena, &to->ps, to->n, x->layouts.list.n, &cap, sizeof *to->ps, err));
        for (int32_t i = to->n; i < cap; i++) {
            to->ps[i] = UNKNOWN;
        }
        to->n = cap;
        for (int32_t i = 0; i < t->n_from; i++) {
            const dtp_layout *source = t->layouts[i];
            int64_t *ps = source != NULL ? &to->ps[number[i]] : NULL;
            if (ps != NULL && *ps == UNKNOWN) {
                DTP_TRY(dtp_tensor__redistribution(b, &x->type, source, target, ps, err));
            }
            t->ps[(size_t)i * (size_t)t->n_to + (size_t)j] = ps != NULL ? *ps : 0;
        }
    }
    return DTP_OK;
}

/* ---- entry -------------------------------------------------------------------------------------
 */

dtp_status dtp_tensor__redistribution(tensor_build *b, const dtp_ttype *type,
                                      const dtp_layout *from, const dtp_layout *to, int64_t *ps,
                                      dtp_err *err)
{
    DTP_TRY(dtp_redistribution_price(b->redistributions, type, from, to, ps, err));
    *ps = *ps < DTP_FORBIDDEN ? *ps : DTP_FORBIDDEN;
    return DTP_OK;
}

dtp_status dtp_tensor__redistributions_create(int32_t n_from, int32_t n_to, move_table *out,
                                              dtp_err *err)
{
    const size_t n = (size_t)n_from + (size_t)n_to, n_prices = (size_t)n_from * (size_t)n_to;
    *out = (move_table){.n_from = n_from,
                        .n_to = n_to,
                        .layouts = calloc(n + 1, sizeof(const dtp_layout *)),
                        .ps = calloc(n_prices + 1, sizeof *out->ps)};
    if (out->layouts == NULL || out->ps == NULL) {
        dtp_tensor__redistributions_free(out);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu prices", n_prices);
    }
    return DTP_OK;
}

void dtp_tensor__redistributions_free(move_table *t)
{
    free(t->layouts);
    free(t->ps);
    *t = (move_table){0};
}

dtp_status dtp_tensor__redistributions_price(tensor_build *b, const dtp_ttype *type, move_table *t,
                                             dtp_err *err)
{
    redistribution_costs *x = NULL;
    const size_t n = (size_t)t->n_from + (size_t)t->n_to;
    int32_t *number = calloc(n + 1, sizeof *number);
    dtp_status s = number != NULL ? find_prices(b, type, &x, err)
                                  : DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu layouts", n);
    s = s == DTP_OK ? number_layouts(b, x, t, number, err) : s;
    s = s == DTP_OK ? fill(b, x, number, t, err) : s;
    free(number);
    return s;
}
