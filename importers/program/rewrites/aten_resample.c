/* Up-sampling between pixels, and means over windows that overlap: every axis is multiplied by a
 * table of weights, result by operand, as jax.image.resize does. */
#include "importers/program/rewrites/aten_expand.h"

/* A column or a row of floats 0, 1, 2, ... */
static int32_t places(dtp_expansion *e, int64_t n, int32_t axis)
{
    dtp_aten_value like = e->g->values[e->of->outs[0]];
    const dtp_aten_arg end = dtp_expand_number(e, "end", (double)n);
    like.rank = 1;
    like.sizes[0] = n;
    like.symbols[0] = like.sympy[0] = NULL;
    const int32_t x = dtp_expand_node(e, "aten.arange", 1, &end, 1, &like);
    like.rank = 2;
    like.sizes[axis] = n;
    like.sizes[1 - axis] = 1;
    like.symbols[1] = like.sympy[1] = NULL;
    return dtp_expand_one(e, "aten.view", x, &like);
}

static int32_t by(dtp_expansion *e, const char *op, int32_t x, double number)
{
    const dtp_aten_value like = e->g->values[x < 0 ? e->of->outs[0] : x];
    return dtp_expand_with(e, op, x, number, &like);
}

static int32_t one(dtp_expansion *e, const char *op, int32_t x)
{
    const dtp_aten_value like = e->g->values[x < 0 ? e->of->outs[0] : x];
    return dtp_expand_one(e, op, x, &like);
}

static int32_t two(dtp_expansion *e, const char *op, int32_t a, int32_t b)
{
    return a < 0 || b < 0 ? -1 : dtp_expand_two(e, op, a, b);
}

/* relu(1 - |place of the result - place of the operand|): the weights of both neighbours. */
static int32_t between(dtp_expansion *e, int64_t in, int64_t out, double scale, double offset)
{
    int32_t at = by(e, "aten.add", by(e, "aten.mul", places(e, out, 0), scale), offset);
    const dtp_aten_value like = e->g->values[at < 0 ? e->of->outs[0] : at];
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", at), dtp_expand_number(e, "min", 0),
                                 dtp_expand_number(e, "max", (double)(in - 1))};
    at = at < 0 ? -1 : dtp_expand_node(e, "aten.clamp", 3, args, 1, &like);
    const int32_t far = one(e, "aten.abs", two(e, "aten.sub", at, places(e, in, 1)));
    return one(e, "aten.relu", by(e, "aten.add", by(e, "aten.mul", far, -1.0), 1.0));
}

/* Axis `axis` of x by a table. */
static int32_t weighted(dtp_expansion *e, int32_t x, int32_t axis, int32_t table)
{
    char from[DTP_MAX_RANK + 1] = "", to[DTP_MAX_RANK + 1] = "";
    dtp_aten_value like = e->g->values[x];
    for (int32_t i = 0; i < like.rank; i++) {
        from[i] = (char)(i == axis ? 'z' : 'a' + i);
        to[i] = (char)(i == axis ? 'y' : 'a' + i);
    }
    like.sizes[axis] = e->g->values[table].sizes[0];
    const int32_t list[2] = {table, x};
    const dtp_aten_arg args[] = {{.name = "equation",
                                  .kind = ATEN_TEXT,
                                  .text = dtp_arena_printf(e->g->arena, "yz,%s->%s", from, to)},
                                 dtp_expand_list(e, "tensors", 2, list)};
    return args[0].text == NULL || e->status != DTP_OK
               ? -1
               : dtp_expand_node(e, "aten.einsum", 2, args, 1, &like);
}

bool dtp_expand_linear_image(dtp_expansion *e, int32_t x)
{
    static const char *const names[3][3] = {
        {"scales"}, {"scales_h", "scales_w"}, {"scales_d", "scales_h", "scales_w"}};
    const dtp_aten_value v = e->g->values[x], out = e->g->values[e->of->outs[0]];
    const dtp_aten_arg *list = dtp_aten_arg_of(e->of, "scale_factors");
    const int32_t n = out.rank - 2;
    const bool corners = dtp_aten_int(e->of, "align_corners", 0) != 0;
    if (e->of->n_outs != 1 || v.rank != out.rank || n < 1 || n > 3) {
        return false;
    }
    for (int32_t i = 0; i < n && x >= 0; i++) {
        const int64_t from = v.sizes[2 + i], to = out.sizes[2 + i];
        const bool listed = list != NULL && list->kind == ATEN_REALS && list->n == n;
        const double given = listed ? list->reals[i] : dtp_aten_real(e->of, names[n - 1][i], 0.0);
        if (v.symbols[2 + i] != NULL || from < 1 || to < 1) {
            return false;
        }
        const double scale = corners     ? to > 1 ? (double)(from - 1) / (double)(to - 1) : 0.0
                             : given > 0 ? 1.0 / given
                                         : (double)from / (double)to;
        const int32_t table = between(e, from, to, scale, corners ? 0.0 : 0.5 * scale - 0.5);
        x = from == to || table < 0 ? x : weighted(e, x, 2 + i, table);
    }
    if (x < 0 || e->status != DTP_OK) {
        return false;
    }
    dtp_expand_out(e, 0, x);
    return true;
}
