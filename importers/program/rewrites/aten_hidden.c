/* Rows of a softmax whose scores are all hidden: -inf gives NaN in PyTorch, and programs put a
 * number there. Infinities are the largest numbers here, so that such a row is found by its largest
 * score. */
#include <math.h>
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

static const dtp_aten_node *maker(const dtp_expansion *e, int32_t value)
{
    return dtp_expand_maker(e, dtp_expand_source(e, value));
}

static double number(const dtp_aten_node *node, const char *name)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    return a == NULL || a->sympy != NULL ? (double)NAN : dtp_aten_real(node, name, (double)NAN);
}

static const dtp_aten_node *softmax_of(const dtp_expansion *e, int32_t value)
{
    const dtp_aten_node *node = value < 0 ? NULL : maker(e, value);
    return dtp_aten_is(node, "softmax") || dtp_aten_is(node, "_softmax") ? node : NULL;
}

static bool is_one_of(const dtp_aten_node *node, const char *const *names)
{
    bool is = false;
    for (int32_t i = 0; names[i] != NULL && !is; i++) {
        is = dtp_aten_is(node, names[i]);
    }
    return is;
}

/* Whether the scores are finite: products, and numbers in their places or beside them. */
static bool are_finite(const dtp_expansion *e, int32_t value, int32_t depth)
{
    static const char *const products[] = {"matmul", "bmm",     "mm", "einsum",
                                           "linear", "baddbmm", NULL};
    static const char *const same[] = {"view",       "reshape", "expand",    "unsqueeze",
                                       "alias",      "slice",   "transpose", "permute",
                                       "contiguous", "squeeze", NULL};
    const dtp_aten_node *node = value < 0 ? NULL : maker(e, value);
    if (node == NULL || depth > 8) {
        return node == NULL && value >= 0 && e->g->values[value].role == ATEN_PARAM;
    }
    if (is_one_of(node, products)) {
        return true;
    }
    const int32_t first = dtp_aten_input(node, 0);
    if (is_one_of(node, same)) {
        return are_finite(e, first, depth + 1);
    }
    if (dtp_aten_is(node, "masked_fill")) {
        return isfinite(number(node, "value")) && are_finite(e, first, depth + 1);
    }
    bool all = dtp_aten_is(node, "where") || dtp_aten_is(node, "add") || dtp_aten_is(node, "sub") ||
               dtp_aten_is(node, "mul") || dtp_aten_is(node, "div");
    for (int32_t i = dtp_aten_is(node, "where") ? 1 : 0; i < node->n_args && all; i++) {
        const int32_t x = dtp_aten_input(node, i);
        all = x >= 0 ? are_finite(e, x, depth + 1) : isfinite(node->args[i].real);
    }
    return all;
}

/* The value that is there where a row has a score: where(largest <= -most, ..). */
static int32_t chosen(dtp_expansion *e, const dtp_aten_node *soft, int32_t kept,
                      const dtp_aten_arg *otherwise)
{
    const int32_t x = dtp_aten_input(soft, 0);
    dtp_aten_value like = e->g->values[x];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(soft, "dim", -1), like.rank);
    if (axis < 0) {
        return -1;
    }
    const double low = like.dtype == ATEN_F16 ? -65000 : -3.3e38;
    const dtp_aten_value out = e->g->values[e->of->outs[0]];
    dtp_aten_arg over[] = {dtp_expand_tensor(e, "self", x), dtp_expand_number(e, "dim", axis),
                           dtp_expand_number(e, "keepdim", 1)};
    over[2].kind = ATEN_BOOLEAN;
    like.sizes[axis] = 1;
    const int32_t most = dtp_expand_node(e, "aten.amax", 3, over, 1, &like);
    like.dtype = ATEN_BOOL;
    const dtp_aten_arg test[] = {dtp_expand_tensor(e, "self", most),
                                 dtp_expand_number(e, "other", low)};
    const int32_t hidden = most < 0 ? -1 : dtp_expand_node(e, "aten.le", 2, test, 1, &like);
    dtp_aten_arg args[] = {dtp_expand_tensor(e, "condition", hidden), *otherwise,
                           dtp_expand_tensor(e, "other", kept)};
    args[1].name = "self";
    return hidden < 0 ? -1 : dtp_expand_node(e, "aten.where", 3, args, 1, &out);
}

bool dtp_expand_no_nan(dtp_expansion *e, int32_t x)
{
    const dtp_aten_node *node = e->of;
    const bool where = dtp_aten_is(node, "where"), to = dtp_aten_is(node, "nan_to_num");
    const int32_t condition = to ? -1 : dtp_aten_input(node, where ? 0 : 1);
    const int32_t kept = where ? dtp_aten_input(node, 2) : x;
    const dtp_aten_node *made = condition < 0 ? NULL : dtp_expand_maker(e, condition);
    const dtp_aten_node *soft = softmax_of(e, kept);
    const bool tests = dtp_aten_is(made, "ne") && kept >= 0 && dtp_aten_input(made, 0) == kept &&
                       dtp_aten_input(made, 1) == kept;
    if (soft == NULL || (!to && !tests)) {
        return false;
    }
    if (tests && e->uses[condition] == 1) { /* the test is gone */
        e->uses[kept]--;
    }
    if (are_finite(e, dtp_aten_input(soft, 0), 0)) {
        dtp_expand_out(e, 0, kept);
        return true;
    }
    const dtp_aten_arg zero = dtp_expand_number(e, "self", 0);
    const dtp_aten_arg *put = dtp_aten_arg_of(node, to ? "nan" : where ? "self" : "value");
    const dtp_aten_node copy = *soft; /* nodes move when more are made */
    const int32_t y = chosen(e, &copy, kept, put == NULL ? &zero : put);
    if (y >= 0) {
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}

int32_t dtp_expand_shown(const dtp_expansion *e, int32_t value)
{
    const dtp_aten_node *where = maker(e, value);
    const dtp_aten_node *le =
        dtp_aten_is(where, "where") ? dtp_expand_maker(e, dtp_aten_input(where, 0)) : NULL;
    const dtp_aten_node *most =
        dtp_aten_is(le, "le") ? dtp_expand_maker(e, dtp_aten_input(le, 0)) : NULL;
    const int32_t kept = most == NULL ? -1 : dtp_aten_input(where, 2);
    const dtp_aten_node *soft = softmax_of(e, kept);
    return dtp_aten_is(most, "amax") && soft != NULL &&
                   dtp_aten_input(soft, 0) == dtp_aten_input(most, 0) && number(where, "self") == 0
               ? dtp_expand_source(e, kept)
               : value;
}
