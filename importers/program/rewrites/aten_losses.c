/* Cross entropy with weights of classes, or against probabilities. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

static int32_t with_number(dtp_expansion *e, const char *op, int32_t x, double by)
{
    const dtp_aten_value like = e->g->values[x < 0 ? 0 : x];
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_number(e, "other", by)};
    return x < 0 ? -1 : dtp_expand_node(e, op, 2, args, 1, &like);
}

static int32_t sum_over(dtp_expansion *e, int32_t x, int32_t axis)
{
    dtp_aten_value like = e->g->values[x < 0 ? 0 : x];
    const int64_t dims[1] = {axis};
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_ints(e, "dim", 1, dims)};
    if (x < 0) {
        return -1;
    }
    like.rank--;
    memmove(&like.sizes[axis], &like.sizes[axis + 1],
            (size_t)(like.rank - axis) * sizeof like.sizes[0]);
    return dtp_expand_node(e, "aten.sum", 2, args, 1, &like);
}

static int32_t sum_all(dtp_expansion *e, int32_t x)
{
    dtp_aten_value like = e->g->values[x < 0 ? 0 : x];
    like.rank = 0;
    return x < 0 || e->g->values[x].rank == 0 ? x : dtp_expand_one(e, "aten.sum", x, &like);
}

static int32_t log_softmax(dtp_expansion *e, int32_t x, int32_t axis)
{
    const dtp_aten_value like = e->g->values[x];
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_number(e, "dim", axis)};
    return dtp_expand_node(e, "aten.log_softmax", 2, args, 1, &like);
}

/* A weight of classes over the axes of x, of which axis `axis` counts them. */
static int32_t over_classes(dtp_expansion *e, int32_t weight, int32_t x, int32_t axis)
{
    dtp_aten_value like = e->g->values[weight];
    like.rank = e->g->values[x].rank - axis;
    for (int32_t i = 0; i < like.rank; i++) {
        like.sizes[i] = i == 0 ? e->g->values[x].sizes[axis] : 1;
    }
    return dtp_expand_one(e, "aten.view", weight, &like);
}

typedef struct loss {
    int32_t logits, target, weight; /* weight -1: none */
    int32_t axis;                   /* of classes */
    int64_t reduction, ignore;
    double smoothing;
} loss;

/* -sum over classes of target times log softmax, a mean over rows. */
static int32_t of_probabilities(dtp_expansion *e, const loss *l)
{
    const double classes = (double)e->g->values[l->logits].sizes[l->axis];
    int32_t target = l->target;
    if (l->smoothing > 0) {
        target = with_number(e, "aten.mul", target, 1 - l->smoothing);
        target = with_number(e, "aten.add", target, l->smoothing / classes);
    }
    if (l->weight >= 0) {
        target =
            dtp_expand_two(e, "aten.mul", target, over_classes(e, l->weight, l->logits, l->axis));
    }
    int32_t x = dtp_expand_two(e, "aten.mul", log_softmax(e, l->logits, l->axis), target);
    x = sum_over(e, x, l->axis);
    x = with_number(e, "aten.mul", x, -1);
    if (l->reduction == 1 && x >= 0 && e->g->values[x].rank > 0) {
        dtp_aten_value like = e->g->values[x];
        like.rank = 0;
        return dtp_expand_one(e, "aten.mean", x,
                              &like); /* of all rows: the sum over their number */
    }
    return l->reduction == 0 ? x : sum_all(e, x);
}

/* The weight of each label, 0 where it is ignored. */
static int32_t weights_of(dtp_expansion *e, const loss *l, int32_t *counts)
{
    const dtp_aten_value t = e->g->values[l->target];
    dtp_aten_value flag = t, like = t, zero = t;
    flag.dtype = ATEN_BOOL;
    like.dtype = e->g->values[l->weight].dtype;
    const dtp_aten_arg test[] = {dtp_expand_tensor(e, "self", l->target),
                                 dtp_expand_number(e, "other", (double)l->ignore)};
    *counts = dtp_expand_node(e, "aten.ne", 2, test, 1, &flag);
    const dtp_aten_arg safe[] = {dtp_expand_tensor(e, "condition", *counts),
                                 dtp_expand_tensor(e, "self", l->target),
                                 dtp_expand_number(e, "other", 0)};
    const int32_t ids = dtp_expand_node(e, "aten.where", 3, safe, 1, &zero);
    const dtp_aten_arg look[] = {dtp_expand_tensor(e, "self", l->weight),
                                 dtp_expand_list(e, "indices", 1, &ids)};
    const int32_t w = dtp_expand_node(e, "aten.index", 2, look, 1, &like);
    const dtp_aten_arg choose[] = {dtp_expand_tensor(e, "condition", *counts),
                                   dtp_expand_tensor(e, "self", w),
                                   dtp_expand_number(e, "other", 0)};
    return dtp_expand_node(e, "aten.where", 3, choose, 1, &like);
}

/* (1 - s) w[y] nll + s / classes * -sum over classes of w log softmax, over the sum of w[y]. */
static int32_t of_labels(dtp_expansion *e, const loss *l)
{
    const dtp_aten_value v = e->g->values[l->logits];
    int32_t counts;
    const int32_t w = weights_of(e, l, &counts);
    dtp_aten_value rows = e->g->values[l->target];
    rows.dtype = v.dtype;
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", l->logits),
                                 dtp_expand_tensor(e, "target", l->target),
                                 dtp_expand_number(e, "reduction", 0),
                                 dtp_expand_number(e, "ignore_index", (double)l->ignore)};
    int32_t x = dtp_expand_node(e, "aten.cross_entropy_loss", 4, args, 1, &rows);
    x = dtp_expand_two(e, "aten.mul", x, w);
    if (l->smoothing > 0) {
        int32_t s = dtp_expand_two(e, "aten.mul", log_softmax(e, l->logits, l->axis),
                                   over_classes(e, l->weight, l->logits, l->axis));
        s = sum_over(e, s, l->axis);
        s = with_number(e, "aten.mul", s, -l->smoothing / (double)v.sizes[l->axis]);
        const dtp_aten_arg choose[] = {dtp_expand_tensor(e, "condition", counts),
                                       dtp_expand_tensor(e, "self", s),
                                       dtp_expand_number(e, "other", 0)};
        s = dtp_expand_node(e, "aten.where", 3, choose, 1, &rows);
        x = dtp_expand_two(e, "aten.add", with_number(e, "aten.mul", x, 1 - l->smoothing), s);
    }
    if (l->reduction == 0) {
        return x;
    }
    x = sum_all(e, x);
    return l->reduction == 2 ? x : dtp_expand_two(e, "aten.div", x, sum_all(e, w));
}

bool dtp_expand_cross_entropy(dtp_expansion *e, int32_t logits, const dtp_aten_node *node)
{
    loss l = {.logits = logits,
              .target = dtp_aten_operand(node, "target"),
              .weight = dtp_aten_operand(node, "weight"),
              .axis = e->g->values[logits].rank > 1 ? 1 : 0,
              .reduction = dtp_aten_int(node, "reduction", 1),
              .ignore = dtp_aten_int(node, "ignore_index", -100),
              .smoothing = dtp_aten_real(node, "label_smoothing", 0)};
    const dtp_aten_value *v = &e->g->values[logits];
    const bool soft = l.target >= 0 && dtp_aten_real_type(e->g->values[l.target].dtype);
    if (l.target < 0 || (!soft && l.weight < 0) || v->rank < 1 || l.reduction < 0 ||
        l.reduction > 2 || (l.weight >= 0 && e->g->values[l.weight].rank != 1) ||
        e->g->values[l.target].rank != v->rank - (soft ? 0 : 1)) {
        return false;
    }
    int32_t (*const made)(dtp_expansion * e, const loss *l) = soft ? of_probabilities : of_labels;
    const int32_t x = made(e, &l);
    if (x >= 0) {
        dtp_expand_out(e, 0, x);
    }
    return x >= 0;
}
