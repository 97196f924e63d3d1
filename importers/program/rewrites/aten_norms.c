/* Norms over groups of channels and over batches, as means, variances and products; the buffers
 * that batch norms keep in training. */
#include "importers/program/rewrites/aten_expand.h"

/* A weight of channels, which are axis 1. */
static int32_t of_channels(dtp_expansion *e, const char *op, int32_t x, int32_t w)
{
    const dtp_aten_value v = e->g->values[x];
    dtp_aten_value like = v;
    for (int32_t i = 0; i < v.rank; i++) {
        like.sizes[i] = i == 1 ? v.sizes[1] : 1;
    }
    w = w < 0 || x < 0 ? -1 : dtp_expand_one(e, "aten.view", w, &like);
    return w < 0 ? x : dtp_expand_two(e, op, x, w);
}

/* group_norm, instance_norm: a layer_norm over the elements of each group of channels. */
bool dtp_expand_group_norm(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value v = e->g->values[x];
    const bool one = dtp_aten_is(e->of, "instance_norm");
    const int64_t groups = dtp_aten_int(e->of, "num_groups", v.rank < 2 ? 0 : v.sizes[1]);
    int64_t n = 1;
    if (v.rank < 2 || groups < 1 || v.sizes[1] % groups != 0 ||
        (one && dtp_aten_int(e->of, "use_input_stats", 1) == 0)) {
        return false;
    }
    for (int32_t i = 1; i < v.rank; i++) {
        n *= v.sizes[i];
    }
    dtp_aten_value like = v;
    like.rank = 3;
    like.sizes[1] = groups;
    like.sizes[2] = n / groups;
    const int32_t flat = dtp_expand_one(e, "aten.view", x, &like);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "input", flat),
                                 dtp_expand_ints(e, "normalized_shape", 1, &like.sizes[2]),
                                 dtp_expand_number(e, "eps", dtp_aten_real(e->of, "eps", 1e-5))};
    const int32_t normed = dtp_expand_node(e, "aten.layer_norm", 3, args, 1, &like);
    int32_t y = dtp_expand_one(e, "aten.view", normed, &v);
    y = of_channels(e, "aten.mul", y, dtp_aten_operand(e->of, "weight"));
    y = of_channels(e, "aten.add", y, dtp_aten_operand(e->of, "bias"));
    dtp_expand_out(e, 0, y);
    return true;
}

/* What a buffer is from here on, and after a step. */
static void put_buffer(dtp_expansion *e, int32_t now, int32_t next)
{
    for (int32_t v = 0; v < e->n_file && next >= 0; v++) {
        const bool same = e->is[v] == now && e->g->values[v].role == ATEN_BUFFER;
        e->is[v] = same ? next : e->is[v];
    }
}

/* (1 - share) now + share other */
static int32_t moved(dtp_expansion *e, int32_t now, int32_t other, double share, double factor)
{
    const dtp_aten_value like = e->g->values[now];
    const int32_t old = dtp_expand_with(e, "aten.mul", now, 1.0 - share, &like);
    const int32_t new = dtp_expand_with(e, "aten.mul", other, share * factor, &like);
    return old < 0 || new < 0 ? -1 : dtp_expand_two(e, "aten.add", old, new);
}

/* The mean of x over all but the channels, in training; else what is kept, if it is (-1). A kept
 * one moves. */
static int32_t statistic(dtp_expansion *e, int32_t x, int32_t kept, double factor)
{
    const dtp_aten_value v = e->g->values[x];
    const dtp_aten_arg *momentum = dtp_aten_arg_of(e->of, "momentum");
    dtp_aten_value like = v;
    int64_t over[DTP_MAX_RANK];
    for (int32_t i = 0, k = 0; i < v.rank; i++) {
        over[k] = i;
        k += i != 1;
    }
    like.rank = 1;
    like.sizes[0] = v.sizes[1];
    like.symbols[0] = v.symbols[1];
    like.sympy[0] = v.sympy[1];
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_ints(e, "dim", v.rank - 1, over)};
    int32_t s = dtp_expand_node(e, "aten.mean", 2, args, 1, &like);
    if (kept >= 0 && s >= 0) {
        s = dtp_expand_two(e, "dtp.in_training", s, kept);
        put_buffer(e, kept, moved(e, kept, s, momentum->real, factor));
    }
    return s;
}

/* batch_norm: (x - mean) rsqrt(var + eps) weight + bias, by statistics that are given, or by those
 * of the batch in training. */
bool dtp_expand_batch_norm(dtp_expansion *e, int32_t x)
{
    const int32_t weight = dtp_aten_operand(e->of, "weight");
    const bool trains = dtp_aten_int(e->of, "training", 0) != 0;
    const dtp_aten_value v = e->g->values[x];
    int32_t s[2] = {dtp_aten_operand(e->of, "running_mean"),
                    dtp_aten_operand(e->of, "running_var")};
    bool fits = (s[0] >= 0) == (s[1] >= 0) && (trains || s[0] >= 0) && v.rank >= 2 &&
                dtp_aten_real_type(v.dtype);
    const int32_t of_channel[] = {s[0], s[1], weight, dtp_aten_operand(e->of, "bias")};
    for (int32_t i = 0; i < 4 && fits; i++) {
        const dtp_aten_value *c = of_channel[i] < 0 ? NULL : &e->g->values[of_channel[i]];
        fits = c == NULL || (c->rank == 1 && c->sizes[0] == v.sizes[1]);
    }
    for (int32_t k = 1; k < e->of->n_outs; k++) { /* statistics of training */
        fits = fits && e->of->outs[k] < e->n_file && e->uses[e->of->outs[k]] == 0;
    }
    int64_t n = 1;
    for (int32_t i = 0; i < v.rank; i++) {
        n *= i == 1 ? 1 : v.sizes[i];
    }
    const bool moves = trains && s[0] >= 0;
    if (!fits || (trains && n < 2) || (moves && dtp_aten_arg_of(e->of, "momentum") == NULL)) {
        return false;
    }
    s[0] = trains ? statistic(e, x, s[0], 1.0) : s[0];
    int32_t y = of_channels(e, "aten.sub", x, s[0]);
    if (trains && y >= 0) { /* what is kept is unbiased */
        const int32_t squares = dtp_expand_two(e, "aten.mul", y, y);
        s[1] = squares < 0 ? -1 : statistic(e, squares, s[1], (double)n / (double)(n - 1));
    }
    if (s[0] < 0 || s[1] < 0) {
        return false;
    }
    const dtp_aten_value like = e->g->values[s[1]];
    int32_t rate = dtp_expand_with(e, "aten.add", s[1], dtp_aten_real(e->of, "eps", 1e-5), &like);
    rate = rate < 0 ? -1 : dtp_expand_one(e, "aten.rsqrt", rate, &like);
    rate = rate < 0 || weight < 0 ? rate : dtp_expand_two(e, "aten.mul", rate, weight);
    y = rate < 0 ? -1 : of_channels(e, "aten.mul", y, rate);
    y = y < 0 ? -1 : of_channels(e, "aten.add", y, of_channel[3]);
    if (y >= 0) {
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}

/* _weight_norm(v, g, dim): v by g over the norm of v along all other axes. */
bool dtp_expand_weight_norm(dtp_expansion *e, int32_t v)
{
    const dtp_aten_value like = e->g->values[v];
    const int32_t g = dtp_aten_operand(e->of, "g");
    const int32_t axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", 0), like.rank);
    dtp_aten_value norms = like;
    int64_t over[DTP_MAX_RANK];
    if (g < 0 || axis < 0 || like.rank < 2 || dtp_aten_int(e->of, "dim", 0) < 0) {
        return false;
    }
    for (int32_t i = 0, k = 0; i < like.rank; i++) {
        norms.sizes[i] = i == axis ? like.sizes[i] : 1;
        over[k] = i;
        k += i != axis;
    }
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", v), dtp_expand_number(e, "ord", 2),
                                 dtp_expand_ints(e, "dim", like.rank - 1, over)};
    dtp_aten_value flat = like;
    flat.rank = 1;
    flat.sizes[0] = like.sizes[axis];
    int32_t norm = dtp_expand_node(e, "aten.linalg_vector_norm", 3, args, 1, &flat);
    norm = norm < 0 ? -1 : dtp_expand_one(e, "aten.view", norm, &norms);
    const int32_t by = norm < 0 ? -1 : dtp_expand_two(e, "aten.div", g, norm);
    if (by >= 0) {
        dtp_expand_out(e, 0, dtp_expand_two(e, "aten.mul", v, by));
    }
    return by >= 0;
}
