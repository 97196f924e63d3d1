/* Complex numbers as pairs: a complex tensor is one of real numbers with a last axis of two, its
 * real and its imaginary part. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

enum { COMPLEX64 = 10, COMPLEX128 = 11 }; /* of torch, as enum dtp_aten_dtype */

dtp_status dtp_complex_begin(dtp_expansion *e)
{
    dtp_aten *g = e->g;
    DTP_TRY(DTP_NEW(g->arena, e->pair, g->n_values + 1, e->err));
    for (int32_t i = 0; i < g->n_values; i++) {
        dtp_aten_value *v = &g->values[i];
        if ((v->dtype != COMPLEX64 && v->dtype != COMPLEX128) || v->rank == DTP_MAX_RANK) {
            continue;
        }
        e->pair[i] = true;
        v->dtype = v->dtype == COMPLEX64 ? ATEN_F32 : ATEN_F64;
        v->symbols[v->rank] = NULL;
        v->sizes[v->rank++] = 2;
    }
    return DTP_OK;
}

static bool is_pair(const dtp_expansion *e, int32_t value)
{
    return value >= 0 && (value < e->n_file ? e->pair[value] : false);
}

/* One part of a pair: a tensor without the last axis. */
static int32_t part(dtp_expansion *e, int32_t x, int64_t k)
{
    dtp_aten_value like = e->g->values[x];
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_number(e, "dim", --like.rank),
                                 dtp_expand_number(e, "index", (double)k)};
    return dtp_expand_node(e, "aten.select", 3, args, 1, &like);
}

static void out_of_parts(dtp_expansion *e, int32_t re, int32_t im)
{
    dtp_aten_arg list = dtp_expand_list(e, "tensors", 2, (const int32_t[2]){re, im});
    const dtp_aten_value like = e->g->values[e->of->outs[0]];
    const dtp_aten_arg args[] = {list, dtp_expand_number(e, "dim", like.rank - 1)};
    if (re >= 0 && im >= 0) {
        dtp_expand_out(e, 0, dtp_expand_node(e, "aten.stack", 2, args, 1, &like));
    }
}

/* Of a pair and a real number or tensor, which gets a last axis. */
static bool scaled(dtp_expansion *e, const char *op, int32_t x, const dtp_aten_arg *by)
{
    const dtp_aten_value like = e->g->values[e->of->outs[0]];
    dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), *by};
    if (by->kind == ATEN_VALUE) {
        dtp_aten_value wide = e->g->values[by->values[0]];
        if (wide.rank == DTP_MAX_RANK) {
            return false;
        }
        wide.sizes[wide.rank++] = 1;
        args[1] =
            dtp_expand_tensor(e, "other", dtp_expand_one(e, "aten.view", by->values[0], &wide));
    }
    args[1].name = "other";
    dtp_expand_out(e, 0, dtp_expand_node(e, op, 2, args, 1, &like));
    return true;
}

static bool arithmetic(dtp_expansion *e, int32_t x)
{
    (void)x;
    const dtp_aten_node *node = e->of;
    const bool mul = dtp_aten_is(node, "mul"), div = dtp_aten_is(node, "div");
    const bool add = dtp_aten_is(node, "add"), sub = dtp_aten_is(node, "sub");
    const dtp_aten_arg *a = &node->args[0], *b = node->n_args > 1 ? &node->args[1] : NULL;
    if (!(mul || div || add || sub) || b == NULL || dtp_aten_real(node, "alpha", 1) != 1 ||
        a->kind != ATEN_VALUE || b->kind == ATEN_NONE || dtp_aten_arg_of(node, "rounding_mode")) {
        return false;
    }
    const bool first = e->is_pair[0], second = e->is_pair[1];
    if (first && second && !div) {
        if (mul) {
            const int32_t ar = part(e, a->values[0], 0), ai = part(e, a->values[0], 1);
            const int32_t br = part(e, b->values[0], 0), bi = part(e, b->values[0], 1);
            const int32_t re = dtp_expand_two(e, "aten.sub", dtp_expand_two(e, "aten.mul", ar, br),
                                              dtp_expand_two(e, "aten.mul", ai, bi));
            const int32_t im = dtp_expand_two(e, "aten.add", dtp_expand_two(e, "aten.mul", ar, bi),
                                              dtp_expand_two(e, "aten.mul", ai, br));
            out_of_parts(e, re, im);
            return true;
        }
        dtp_expand_out(
            e, 0, dtp_expand_two(e, add ? "aten.add" : "aten.sub", a->values[0], b->values[0]));
        return true;
    }
    if (first && !second && (mul || div)) {
        return scaled(e, mul ? "aten.mul" : "aten.div", a->values[0], b);
    }
    return !first && second && mul && scaled(e, "aten.mul", b->values[0], a);
}

/* polar(abs, angle), complex(real, imag) */
static bool from_parts(dtp_expansion *e, int32_t x)
{
    (void)x;
    const bool polar = dtp_aten_is(e->of, "polar");
    int32_t a = dtp_aten_input(e->of, 0), b = dtp_aten_input(e->of, 1);
    if ((!polar && !dtp_aten_is(e->of, "complex")) || a < 0 || b < 0) {
        return false;
    }
    if (polar) {
        const dtp_aten_value like = e->g->values[b];
        const int32_t cos = dtp_expand_one(e, "aten.cos", b, &like);
        const int32_t sin = dtp_expand_one(e, "aten.sin", b, &like);
        b = dtp_expand_two(e, "aten.mul", a, sin);
        a = dtp_expand_two(e, "aten.mul", a, cos);
    }
    out_of_parts(e, a, b);
    return true;
}

static bool to_real(dtp_expansion *e, int32_t x)
{
    const dtp_aten_node *node = e->of;
    const dtp_aten_value like = e->g->values[node->outs[0]];
    if (dtp_aten_is(node, "view_as_real") || dtp_aten_is(node, "view_as_complex")) {
        dtp_expand_out(e, 0, x);
    } else if (dtp_aten_is(node, "real") || dtp_aten_is(node, "imag")) {
        dtp_expand_out(e, 0, part(e, x, dtp_aten_is(node, "imag") ? 1 : 0));
    } else if (dtp_aten_is(node, "abs")) {
        const int32_t re = part(e, x, 0), im = part(e, x, 1);
        const int32_t sum = dtp_expand_two(e, "aten.add", dtp_expand_two(e, "aten.mul", re, re),
                                           dtp_expand_two(e, "aten.mul", im, im));
        dtp_expand_out(e, 0, dtp_expand_one(e, "aten.sqrt", sum, &like));
    } else if (dtp_aten_is(node, "conj") || dtp_aten_is(node, "_conj")) {
        const int32_t re = part(e, x, 0), im = part(e, x, 1);
        const dtp_aten_value one = e->g->values[im];
        out_of_parts(e, re, dtp_expand_one(e, "aten.neg", im, &one));
    } else {
        return false;
    }
    return true;
}

/* Views: sizes say what they do; an axis that is counted from the end is one further away. */
static bool view(dtp_expansion *e, int32_t x)
{
    static const char *const by_size[] = {"view",      "reshape", "_unsafe_view", "flatten",
                                          "unflatten", "squeeze", "unsqueeze",    NULL};
    static const char *const same[] = {"alias",  "contiguous",   "clone",       "lift_fresh_copy",
                                       "detach", "resolve_conj", "resolve_neg", NULL};
    static const char *const along[] = {"slice", "select", "index", "expand", NULL};
    const dtp_aten_node *node = e->of;
    const dtp_aten_value like = e->g->values[node->outs[0]];
    dtp_aten_arg args[8];
    for (int32_t i = 0; by_size[i] != NULL; i++) {
        if (dtp_aten_is(node, by_size[i])) {
            dtp_expand_out(e, 0, dtp_expand_one(e, "aten.view", x, &like));
            return true;
        }
    }
    for (int32_t i = 0; same[i] != NULL; i++) {
        if (dtp_aten_is(node, same[i])) {
            dtp_expand_out(e, 0, x);
            return true;
        }
    }
    if (dtp_aten_is(node, "transpose") || dtp_aten_is(node, "permute")) {
        int64_t dims[DTP_MAX_RANK];
        dtp_aten_value *v = &e->g->values[x];
        v->rank--; /* its own axes */
        for (int32_t i = 0; i < like.rank; i++) {
            dims[i] = i == like.rank - 1 ? i : dtp_aten_from(e->g, node, i);
        }
        v->rank++;
        args[0] = dtp_expand_tensor(e, "self", x);
        args[1] = dtp_expand_ints(e, "dims", like.rank, dims);
        dtp_expand_out(e, 0, dtp_expand_node(e, "aten.permute", 2, args, 1, &like));
        return true;
    }
    for (int32_t i = 0; along[i] != NULL && node->n_args <= 8; i++) {
        if (!dtp_aten_is(node, along[i])) {
            continue;
        }
        memcpy(args, node->args, (size_t)node->n_args * sizeof args[0]);
        for (int32_t k = 0; k < node->n_args; k++) {
            if (strcmp(args[k].name, "dim") == 0 && args[k].kind == ATEN_INT && args[k].real < 0) {
                args[k] = dtp_expand_number(e, "dim", args[k].real - 1);
            }
        }
        dtp_expand_out(e, 0, dtp_expand_node(e, node->op, node->n_args, args, 1, &like));
        return true;
    }
    return false;
}

/* Which of the operands 0 and 1 of a node of the file is a pair; the node reads or makes one. */
bool dtp_complex_reads(dtp_expansion *e, const dtp_aten_node *node)
{
    bool any = false;
    for (int32_t i = 0; i < node->n_outs; i++) {
        any = any || is_pair(e, node->outs[i]);
    }
    for (int32_t k = 0; k < node->n_args; k++) {
        const dtp_aten_arg *a = &node->args[k];
        for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
            any = any || is_pair(e, a->values[j]);
        }
    }
    for (int32_t k = 0; k < 2; k++) {
        e->is_pair[k] = is_pair(e, dtp_aten_input(node, k));
    }
    return any;
}

bool dtp_expand_complex(dtp_expansion *e)
{
    static bool (*const all[])(dtp_expansion * e, int32_t x) = {arithmetic, from_parts, to_real,
                                                                view};
    const int32_t x = dtp_aten_input(e->of, 0);
    bool made = false;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && e->of->n_outs == 1 && x >= 0 && !made;
         i++) {
        made = all[i](e, x);
    }
    return made;
}
