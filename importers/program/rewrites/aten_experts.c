/* Experts that are computed over rows in the order of their experts, as transformers writes them:
 *
 *     sorted, order = sort(ids)                      ids: expert of each (token, choice), from topk
 *     rows = x[order // k]; w = weights[order]; b = bias[sorted]
 *     ends = cumsum(histc(sorted)); y = grouped_mm(rows, W, ends); ..
 *     out = y[inverse]                               inverse[order] = 0, 1, ..
 *
 * A tensor over such rows becomes one over slots, [batch, expert, capacity, ..]: every row has a
 * slot of its expert, slots without a row hold values that no op reads. Ops that treat each row by
 * itself are the same ops over slots, a grouped product is one product per expert, and what is
 * brought back into the order of tokens is read at the slots. Nothing else may be done with such
 * rows: the sort is still read then, and is reported as not supported. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

enum { MOST_STEPS = 64, MOST_EXPERTS = 1 << 20 };
#define MOST_ROWS (INT64_C(1) << 40)

typedef enum rows_kind {
    NO_ROWS,
    IDS,     /* the expert of each (token, choice) */
    SORTED,  /* the same in the order of experts */
    ORDER,   /* which (token, choice) each row is */
    TOKEN,   /* which token */
    INVERSE, /* where each (token, choice) is among the rows */
    COUNTS,  /* rows of each expert */
    ENDS,    /* their sums up to each */
    ROWS     /* a tensor over rows, whose version over slots is `slots` */
} rows_kind;

struct dtp_rows {
    rows_kind kind;
    int32_t of; /* which sort */
    int32_t slots;
};

struct dtp_sorted {
    int64_t batch, length, choices, experts;
    int32_t ids;                /* output of topk */
    int32_t slot, kept, source; /* outputs of dtp.slots */
    int32_t entries;            /* of dtp.entries; -1: not made yet */
};

static const dtp_rows *rows_of(const dtp_expansion *e, int32_t value)
{
    static const dtp_rows none = {NO_ROWS, -1, -1};
    return value < 0 || value >= e->n_rows ? &none : &e->rows[value];
}

static rows_kind kind_of(const dtp_expansion *e, int32_t value)
{
    return rows_of(e, value)->kind;
}

static void mark(dtp_expansion *e, int32_t value, rows_kind kind, int32_t of, int32_t slots)
{
    if (e->status != DTP_OK || value < 0 || (kind == ROWS && slots < 0)) {
        return;
    }
    if (value >= e->n_rows) {
        e->status = dtp_arena_grow(e->g->arena, &e->rows, e->n_rows, value + 1, &e->rows_capacity,
                                   sizeof *e->rows, e->err);
        if (e->status != DTP_OK) {
            return;
        }
        memset(e->rows + e->n_rows, 0, (size_t)(value + 1 - e->n_rows) * sizeof *e->rows);
        e->n_rows = value + 1;
    }
    e->rows[value] = (dtp_rows){kind, of, slots};
}

/* ---- types and small nodes ---- */

/* A type of `of` over n leading axes and those of `of` from `from` on. */
static dtp_aten_value shaped(const dtp_expansion *e, int32_t of, int32_t n, const int64_t *sizes,
                             int32_t from)
{
    const dtp_aten_value v = e->g->values[of];
    dtp_aten_value like = {.dtype = v.dtype, .node = -1};
    for (int32_t i = 0; i < n; i++) {
        like.sizes[like.rank++] = sizes[i];
    }
    for (int32_t i = from; i < v.rank && like.rank < DTP_MAX_RANK; i++) {
        like.sizes[like.rank++] = v.sizes[i];
    }
    return like;
}

static int32_t viewed(dtp_expansion *e, int32_t x, int32_t n, const int64_t *sizes, int32_t from)
{
    if (x < 0 || e->g->values[x].rank - from + n > DTP_MAX_RANK) {
        return -1;
    }
    const dtp_aten_value like = shaped(e, x, n, sizes, from);
    return dtp_expand_one(e, "aten.view", x, &like);
}

/* x [batch, n, ..] at positions of n, which go along with the batch. */
static int32_t taken(dtp_expansion *e, int32_t x, int32_t at)
{
    if (x < 0 || at < 0 || e->status != DTP_OK) {
        return -1;
    }
    const dtp_aten_value ids = e->g->values[at];
    const dtp_aten_value like = shaped(e, x, ids.rank, ids.sizes, 2);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_tensor(e, "index", at)};
    return ids.rank + e->g->values[x].rank - 2 > DTP_MAX_RANK
               ? -1
               : dtp_expand_node(e, "dtp.take", 2, args, 1, &like);
}

static bool is_any(const dtp_aten_node *node, const char *const *names)
{
    bool is = false;
    for (int32_t i = 0; names[i] != NULL && !is; i++) {
        is = dtp_aten_is(node, names[i]);
    }
    return is;
}

static const char *const views[] = {"to",   "_to_copy", "alias",   "clone",  "contiguous",
                                    "view", "reshape",  "flatten", "detach", NULL};
static const char *const copies[] = {"to",         "_to_copy", "alias", "clone",
                                     "contiguous", "detach",   NULL};

/* The node that makes a value, if it was there already. */
static const dtp_aten_node *made(const dtp_expansion *e, int32_t value)
{
    const int32_t node = value < 0 ? -1 : e->g->values[value].node;
    bool is = false;
    for (int32_t k = 0; node >= 0 && node < e->n && k < e->nodes[node].n_outs; k++) {
        is = is || e->nodes[node].outs[k] == value;
    }
    return is ? &e->nodes[node] : NULL;
}

/* ---- the sort ---- */

/* What a value is the same elements as, in the same order. */
static int32_t root_of(const dtp_expansion *e, int32_t value)
{
    for (const dtp_aten_node *node; (node = made(e, value)) != NULL && is_any(node, views);) {
        value = dtp_aten_input(node, 0);
    }
    return value;
}

/* Experts that each token chooses once at most: places of the largest along the last axis. */
static bool are_choices(const dtp_expansion *e, int32_t ids, dtp_sorted *s)
{
    s->ids = ids = root_of(e, ids);
    const dtp_aten_node *node = made(e, ids);
    const int32_t x = dtp_aten_input(node, 0);
    if (!dtp_aten_is(node, "topk") || node->n_outs != 2 || node->outs[1] != ids || x < 0) {
        return false;
    }
    const dtp_aten_value *v = &e->g->values[x], *out = &e->g->values[ids];
    s->choices = v->rank > 0 && out->rank == v->rank ? out->sizes[v->rank - 1] : 0;
    s->experts = v->rank > 0 ? v->sizes[v->rank - 1] : 0;
    return v->rank > 0 && s->choices > 0 && s->choices <= s->experts &&
           dtp_aten_axis(dtp_aten_int(node, "dim", -1), v->rank) == v->rank - 1;
}

static int32_t index_of(const dtp_aten_node *node)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(node, "indices");
    if (dtp_aten_is(node, "index_select")) {
        return dtp_aten_int(node, "dim", 1) == 0 ? dtp_aten_operand(node, "index") : -1;
    }
    return dtp_aten_is(node, "index") && list != NULL && list->kind == ATEN_VALUES && list->n == 1
               ? list->values[0]
               : -1;
}

/* How tokens are split into rows of the batch: by axes of the choices, [batch, length, choices];
 * of [tokens, choices] by what they are computed from, up to a view of [batch, length, ..]. */
static void find_batch(const dtp_expansion *e, dtp_sorted *s)
{
    int32_t x = s->ids, leading = e->g->values[s->ids].rank - 1;
    for (int32_t steps = 0; steps < MOST_STEPS && leading < 2; steps++) {
        const dtp_aten_node *node = made(e, x);
        const dtp_aten_value *v = &e->g->values[x];
        const int32_t from = dtp_aten_input(node, 0);
        const dtp_aten_value *f = from < 0 ? v : &e->g->values[from];
        const int32_t more = f->rank - v->rank + 1;
        bool fits = from >= 0 && more >= 2 && is_any(node, views);
        for (int32_t i = 1; fits && i < v->rank; i++) {
            fits = f->sizes[more + i - 1] == v->sizes[i];
        }
        if (from < 0 || (!fits && (f->rank < 1 || f->sizes[0] != s->length))) {
            return;
        }
        leading = fits ? more : leading;
        x = from;
    }
    const int64_t length = leading < 2 ? 0 : e->g->values[x].sizes[leading - 1];
    if (length > 1 && s->length % length == 0) {
        s->batch = s->length / length;
        s->length = length;
    }
}

/* sort and argsort of the experts of each (token, choice). */
static void follow_sort(dtp_expansion *e, const dtp_aten_node *node)
{
    const bool both = dtp_aten_is(node, "sort");
    const int32_t ids = dtp_aten_input(node, 0), order = node->outs[both ? node->n_outs - 1 : 0];
    const dtp_aten_value *v = ids < 0 ? NULL : &e->g->values[ids];
    const rows_kind kind = kind_of(e, ids);
    dtp_sorted s = {.batch = 1, .slot = -1, .entries = -1};
    if (v == NULL || v->rank != 1 || (both && node->n_outs != 2) ||
        dtp_aten_int(node, "descending", 0) != 0 ||
        (v->dtype != ATEN_I64 && v->dtype != ATEN_I32)) {
        return;
    }
    if (kind == ORDER) {
        mark(e, order, INVERSE, rows_of(e, ids)->of, -1);
        return;
    }
    if (kind != NO_ROWS || !are_choices(e, ids, &s) || v->sizes[0] < 2 || v->sizes[0] > MOST_ROWS ||
        s.experts > MOST_EXPERTS || v->sizes[0] % s.choices != 0) {
        return;
    }
    s.length = v->sizes[0] / s.choices;
    find_batch(e, &s);
    const int64_t by_token[3] = {s.batch, s.length, s.choices};
    const int64_t by_slot[3] = {s.batch, s.experts, s.length};
    const int32_t x = viewed(e, ids, 3, by_token, 1);
    dtp_aten_value like = e->g->values[x < 0 ? 0 : x];
    like.dtype = ATEN_I32;
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_number(e, "experts", (double)s.experts)};
    s.slot = x < 0 ? -1 : dtp_expand_node(e, "dtp.slots", 2, args, 3, &like);
    if (s.slot < 0 || e->status != DTP_OK) {
        return;
    }
    s.kept = s.slot + 1;
    s.source = s.slot + 2;
    e->g->values[s.kept].dtype = ATEN_BOOL;
    memcpy(e->g->values[s.source].sizes, by_slot, sizeof by_slot);
    e->status = DTP_ONE_MORE(e->g->arena, e->sorted, e->n_sorted, e->sorted_capacity, e->err);
    if (e->status == DTP_OK) {
        e->sorted[e->n_sorted] = s;
        mark(e, ids, IDS, e->n_sorted, -1);
        mark(e, order, ORDER, e->n_sorted, -1);
        mark(e, both ? node->outs[0] : -1, SORTED, e->n_sorted, -1);
        e->n_sorted++;
    }
}

/* ---- indices of rows ---- */

/* What an op makes of integers that belong to a sort. */
static rows_kind indices_by(const dtp_expansion *e, const dtp_aten_node *node, rows_kind kind,
                            const dtp_sorted *s)
{
    const dtp_aten_arg *by = dtp_aten_arg_of(node, "other");
    if (is_any(node, copies)) {
        return kind;
    }
    if (kind == ORDER && (dtp_aten_is(node, "floor_divide") || dtp_aten_is(node, "div"))) {
        const dtp_aten_arg *mode = dtp_aten_arg_of(node, "rounding_mode");
        const char *text = mode == NULL ? NULL : mode->text;
        const bool whole = text == NULL ? dtp_aten_is(node, "floor_divide")
                                        : strcmp(text, "floor") == 0 || strcmp(text, "trunc") == 0;
        return whole && by != NULL && by->kind == ATEN_INT && by->ints[0] == s->choices ? TOKEN
                                                                                        : NO_ROWS;
    }
    if ((kind == IDS || kind == SORTED) && dtp_aten_is(node, "histc")) {
        return dtp_aten_int(node, "bins", 100) == s->experts &&
                       dtp_aten_real(node, "min", 0) == 0 &&
                       dtp_aten_real(node, "max", 0) == (double)(s->experts - 1) && s->experts > 1
                   ? COUNTS
                   : NO_ROWS;
    }
    if ((kind == IDS || kind == SORTED) && dtp_aten_is(node, "bincount")) {
        return dtp_aten_operand(node, "weights") < 0 &&
                       dtp_aten_int(node, "minlength", 0) == s->experts
                   ? COUNTS
                   : NO_ROWS;
    }
    if (kind == COUNTS && dtp_aten_is(node, "cumsum")) {
        return e->g->values[node->outs[0]].rank == 1 ? ENDS : NO_ROWS;
    }
    return NO_ROWS;
}

/* inverse[order] = 0, 1, .. */
static bool inverts(const dtp_expansion *e, const dtp_aten_node *node, int32_t *of)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(node, "indices");
    const int32_t at = list != NULL && list->kind == ATEN_VALUES && list->n == 1
                           ? list->values[0]
                           : dtp_aten_operand(node, "index");
    const int32_t values = dtp_aten_operand(node, list != NULL ? "values" : "src");
    const dtp_aten_node *count = made(e, values);
    while (count != NULL && is_any(count, copies)) {
        count = made(e, dtp_aten_input(count, 0));
    }
    *of = rows_of(e, at)->of;
    return (dtp_aten_is(node, "index_put") || dtp_aten_is(node, "scatter")) &&
           kind_of(e, at) == ORDER && dtp_aten_int(node, "accumulate", 0) == 0 && values >= 0 &&
           e->g->values[node->outs[0]].rank == 1 &&
           e->g->values[node->outs[0]].sizes[0] == e->g->values[at].sizes[0] &&
           dtp_aten_is(count, "arange") && dtp_aten_int(count, "start", 0) == 0 &&
           dtp_aten_int(count, "step", 1) == 1 &&
           dtp_aten_int(count, "end", -1) == e->g->values[at].sizes[0];
}

/* ---- rows that are read: their version over slots ---- */

/* x[token], weights[order], bias[sorted]; -1. */
static int32_t slots_of_index(dtp_expansion *e, int32_t x, rows_kind by, dtp_sorted *s)
{
    const dtp_aten_value v = e->g->values[x];
    const int64_t tokens[2] = {s->batch, s->length};
    const int64_t entries[2] = {s->batch, s->length * s->choices};
    const int64_t experts[3] = {1, s->experts, 1};
    if (v.rank < 1) {
        return -1;
    }
    if (by == TOKEN && v.sizes[0] == s->batch * s->length) {
        return taken(e, viewed(e, x, 2, tokens, 1), s->source);
    }
    if (by == SORTED && v.sizes[0] == s->experts) {
        return viewed(e, x, 3, experts, 1);
    }
    if (by != ORDER || v.sizes[0] != s->batch * entries[1]) {
        return -1;
    }
    if (s->entries < 0) {
        const dtp_aten_value like = e->g->values[s->source];
        const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", s->slot),
                                     dtp_expand_tensor(e, "kept", s->kept),
                                     dtp_expand_tensor(e, "like", s->source)};
        s->entries = dtp_expand_node(e, "dtp.entries", 3, args, 1, &like);
    }
    return taken(e, viewed(e, x, 2, entries, 1), s->entries);
}

/* ---- ops on rows ---- */

typedef enum row_op { NO_OP, ELEMENTS, ALONG, VIEWS, PRODUCT, CONCAT } row_op;

/* Axes that the argument names, two further on; false: one is that of rows, or the argument names
 * none. */
static bool axes_moved(dtp_expansion *e, dtp_aten_arg *a, int32_t rank)
{
    int64_t ints[DTP_MAX_RANK];
    const int32_t n = a->kind == ATEN_INT ? 1 : a->n;
    if ((a->kind != ATEN_INT && a->kind != ATEN_INTS) || n < 1 || n > DTP_MAX_RANK) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t axis = dtp_aten_axis(a->ints[i], rank);
        if (axis < 1) {
            return false;
        }
        ints[i] = axis + 2;
    }
    *a = a->kind == ATEN_INT ? dtp_expand_number(e, a->name, (double)ints[0])
                             : dtp_expand_ints(e, a->name, n, ints);
    return true;
}

/* A tensor operand over slots: rows of the same sort, or what is the same for all of them; -1. */
static int32_t over_slots(dtp_expansion *e, int32_t value, int32_t of, int32_t rank, row_op op)
{
    const dtp_rows r = *rows_of(e, value);
    const dtp_aten_value v = e->g->values[value];
    if (r.kind == ROWS) {
        return r.of == of && v.rank == rank && op != PRODUCT ? r.slots : -1;
    }
    if (r.kind != NO_ROWS || op == CONCAT) {
        return -1;
    }
    if (v.rank < rank || op == PRODUCT) {
        return value;
    }
    const int64_t none = 0;
    return v.rank == rank && v.sizes[0] == 1 ? viewed(e, value, 0, &none, 1) : -1;
}

/* The node over slots instead of rows: its first output; -1. Its arguments are copies. */
static int32_t node_over_slots(dtp_expansion *e, const dtp_aten_node *node, int32_t of, row_op op)
{
    const int32_t x = dtp_aten_input(node, 0);
    const dtp_aten_value out = e->g->values[node->outs[0]];
    const int32_t rank = op == ELEMENTS || op == CONCAT || x < 0 ? out.rank : e->g->values[x].rank;
    dtp_aten_arg *args;
    int64_t sizes[3] = {1, 1, 1}; /* of the slots of all operands: 1 of an axis that all lack */
    for (int32_t k = 0; k < node->n_args; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
            const dtp_rows *r = rows_of(e, node->args[k].values[j]);
            for (int32_t i = 0; r->kind == ROWS && i < 3; i++) {
                const int64_t n = e->g->values[r->slots].sizes[i];
                sizes[i] = n > sizes[i] ? n : sizes[i];
            }
        }
    }
    if (DTP_NEW(e->g->arena, args, node->n_args + 1, e->err) != DTP_OK) {
        e->status = DTP_NOMEM;
        return -1;
    }
    for (int32_t k = 0; k < node->n_args; k++) {
        const dtp_aten_arg *from = &node->args[k];
        const row_op as = op == PRODUCT && k == 0 ? ELEMENTS : op; /* of weights: no rows */
        args[k] = *from;
        if (dtp_aten_tensors(from) > 0) {
            args[k] = from->kind == ATEN_VALUE
                          ? dtp_expand_tensor(e, from->name, from->values[0])
                          : dtp_expand_list(e, from->name, from->n, from->values);
        }
        for (int32_t j = 0; j < dtp_aten_tensors(&args[k]) && e->status == DTP_OK; j++) {
            const int32_t v = args[k].values[j];
            args[k].values[j] = v < 0 ? -1 : over_slots(e, v, of, rank, as);
            if (v >= 0 && args[k].values[j] < 0) {
                return -1;
            }
        }
        if ((op == ALONG || op == CONCAT) && strcmp(args[k].name, "dim") == 0 &&
            !axes_moved(e, &args[k], rank + (dtp_aten_is(node, "unsqueeze") ? 1 : 0))) {
            return -1;
        }
    }
    const dtp_aten_value like = shaped(e, node->outs[0], 3, sizes, 1);
    return e->again(e, node, op == VIEWS ? "aten.view" : node->op, op == VIEWS ? 1 : node->n_args,
                    args, &like);
}

static void follow_rows(dtp_expansion *e, const dtp_aten_node *node, int32_t of)
{
    const dtp_sorted *s = &e->sorted[of];
    static const char *const elements[] = {
        "to",      "_to_copy", "alias",       "clone", "contiguous",  "neg",       "exp",
        "sigmoid", "tanh",     "silu",        "gelu",  "relu",        "square",    "sqrt",
        "rsqrt",   "abs",      "pow",         "log",   "softplus",    "elu",       "leaky_relu",
        "relu6",   "hardtanh", "hardswish",   "clamp", "clamp_min",   "clamp_max", "reciprocal",
        "mul",     "add",      "sub",         "rsub",  "div",         "maximum",   "minimum",
        "where",   "mish",     "hardsigmoid", "selu",  "masked_fill", NULL};
    static const char *const along[] = {
        "chunk", "split",   "split_with_sizes", "slice",     "select", "sum",
        "mean",  "softmax", "squeeze",          "unsqueeze", "amax",   NULL};
    static const char *const shapes[] = {"view", "reshape", "flatten", "unflatten", NULL};
    static const char *const products[] = {"linear", "rms_norm", "layer_norm", NULL};
    const row_op op = is_any(node, elements)     ? ELEMENTS
                      : is_any(node, along)      ? ALONG
                      : is_any(node, shapes)     ? VIEWS
                      : is_any(node, products)   ? PRODUCT
                      : dtp_aten_is(node, "cat") ? CONCAT
                                                 : NO_OP;
    const int32_t x = dtp_aten_input(node, 0);
    const dtp_aten_arg *shape = dtp_aten_arg_of(node, "normalized_shape");
    bool keeps = true;
    for (int32_t k = 0; k < node->n_outs; k++) {
        const dtp_aten_value *v = node->outs[k] < 0 ? NULL : &e->g->values[node->outs[k]];
        keeps = keeps && v != NULL && v->rank >= 1 && v->rank + 2 <= DTP_MAX_RANK &&
                v->sizes[0] == s->batch * s->length * s->choices;
    }
    if (op == NO_OP || !keeps ||
        ((op == ALONG || op == CONCAT) && dtp_aten_arg_of(node, "dim") == NULL) ||
        (op == PRODUCT &&
         (x < 0 || kind_of(e, x) != ROWS || (shape != NULL && shape->n >= e->g->values[x].rank)))) {
        return;
    }
    const int32_t first = node_over_slots(e, node, of, op);
    for (int32_t k = 0; k < node->n_outs && first >= 0; k++) {
        mark(e, node->outs[k], ROWS, of, first + k);
    }
}

/* grouped_mm(rows, weights of experts, ends) */
static void follow_grouped(dtp_expansion *e, const dtp_aten_node *node)
{
    const int32_t x = dtp_aten_input(node, 0), w = dtp_aten_input(node, 1);
    const dtp_rows r = *rows_of(e, x);
    const int32_t ends = node->n_args > 2 ? dtp_aten_input(node, 2) : -1;
    if (r.kind != ROWS || w < 0 || kind_of(e, w) != NO_ROWS || kind_of(e, ends) != ENDS ||
        rows_of(e, ends)->of != r.of || dtp_aten_operand(node, "bias") >= 0 ||
        e->g->values[x].rank != 2 || e->g->values[w].rank != 3 ||
        e->g->values[w].sizes[0] != e->sorted[r.of].experts ||
        e->g->values[w].sizes[1] != e->g->values[x].sizes[1]) {
        return;
    }
    int64_t sizes[4];
    memcpy(sizes, e->g->values[r.slots].sizes, 3 * sizeof sizes[0]);
    sizes[3] = e->g->values[w].sizes[2];
    const dtp_aten_value like = shaped(e, node->outs[0], 4, sizes, DTP_MAX_RANK);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", r.slots),
                                 dtp_expand_tensor(e, "other", w)};
    mark(e, node->outs[0], ROWS, r.of, dtp_expand_node(e, "aten.matmul", 2, args, 1, &like));
}

void dtp_experts_follow(dtp_expansion *e, const dtp_aten_node *node)
{
    dtp_rows r = {NO_ROWS, -1, -1};
    if (node->n_outs < 1 || node->outs[0] < 0 || node->n_args < 1) {
        return;
    }
    if (dtp_aten_is(node, "sort") || dtp_aten_is(node, "argsort")) {
        follow_sort(e, node);
        return;
    }
    for (int32_t k = 0; k < node->n_args; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
            const dtp_rows *a = rows_of(e, node->args[k].values[j]);
            r = a->kind > r.kind ? *a : r; /* ROWS before indices */
        }
    }
    const int32_t x = dtp_aten_input(node, 0), at = index_of(node);
    int32_t of = -1;
    if (r.kind == NO_ROWS || x < 0) {
        if (r.kind == ROWS && dtp_aten_is(node, "cat")) {
            follow_rows(e, node, r.of);
        }
    } else if (at >= 0 && kind_of(e, at) != NO_ROWS) {
        const dtp_rows by = *rows_of(e, at);
        const dtp_aten_value *v = &e->g->values[x];
        if (by.kind == ORDER && v->rank == 1 && v->sizes[0] == e->g->values[at].sizes[0] &&
            root_of(e, x) == e->sorted[by.of].ids) {
            mark(e, node->outs[0], SORTED, by.of, -1);
        } else if (kind_of(e, x) == NO_ROWS) {
            mark(e, node->outs[0], ROWS, by.of, slots_of_index(e, x, by.kind, &e->sorted[by.of]));
        }
    } else if (inverts(e, node, &of)) {
        mark(e, node->outs[0], INVERSE, of, -1);
    } else if (strncmp(node->op, "transformers.grouped_mm_fallback", 32) == 0 ||
               dtp_aten_is(node, "_grouped_mm")) {
        follow_grouped(e, node);
    } else if (r.kind == ROWS) {
        follow_rows(e, node, r.of);
    } else {
        mark(e, node->outs[0], indices_by(e, node, kind_of(e, x), &e->sorted[r.of]), r.of, -1);
    }
}

/* ---- back into the order of tokens ---- */

/* Rows in the order of (token, choice): [batch, length, choices, ..]; those that found no slot are
 * zeros. */
static int32_t brought_back(dtp_expansion *e, const dtp_rows *r)
{
    const dtp_sorted s = e->sorted[r->of];
    const dtp_aten_value v = e->g->values[r->slots];
    const int64_t slots[2] = {s.batch, s.experts * s.length};
    if (v.sizes[0] != s.batch || v.sizes[1] != s.experts || v.sizes[2] != s.length) {
        return -1; /* the same for all rows of an expert */
    }
    const int32_t y = taken(e, viewed(e, r->slots, 2, slots, 3), s.slot);
    if (y < 0) {
        return -1;
    }
    dtp_aten_value like = e->g->values[y], flag = e->g->values[s.kept];
    for (flag.rank = 3; flag.rank < like.rank; flag.rank++) {
        flag.sizes[flag.rank] = 1;
    }
    const dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "condition", dtp_expand_one(e, "aten.view", s.kept, &flag)),
        dtp_expand_tensor(e, "self", y), dtp_expand_number(e, "other", 0)};
    return e->status == DTP_OK ? dtp_expand_node(e, "aten.where", 3, args, 1, &like) : -1;
}

/* y[inverse]; zeros.index_add(0, token, y), the sum over the choices of each token. */
bool dtp_expand_experts(dtp_expansion *e)
{
    const int32_t x = dtp_aten_input(e->of, 0), at = index_of(e->of);
    int32_t y = -1;
    if (e->of->n_outs != 1 || x < 0 || e->of->outs[0] < 0) {
        return false;
    }
    const dtp_aten_value out = e->g->values[e->of->outs[0]];
    if (at >= 0 && kind_of(e, at) == INVERSE && kind_of(e, x) == ROWS &&
        rows_of(e, at)->of == rows_of(e, x)->of) {
        y = brought_back(e, rows_of(e, x));
        y = y < 0 ? -1 : dtp_expand_one(e, "aten.view", y, &out);
    } else if (dtp_aten_is(e->of, "index_add") && dtp_aten_int(e->of, "dim", -1) == 0) {
        const int32_t token = dtp_aten_operand(e->of, "index");
        const int32_t rows = dtp_aten_operand(e->of, "source");
        const dtp_sorted *s = kind_of(e, token) == TOKEN ? &e->sorted[rows_of(e, token)->of] : NULL;
        if (s != NULL && kind_of(e, rows) == ROWS &&
            rows_of(e, rows)->of == rows_of(e, token)->of &&
            dtp_aten_real(e->of, "alpha", 1) == 1 && out.sizes[0] == s->batch * s->length &&
            e->g->values[rows].rank == out.rank && e->g->values[rows].dtype == out.dtype &&
            memcmp(&out.sizes[1], &e->g->values[rows].sizes[1],
                   (size_t)(out.rank - 1) * sizeof out.sizes[0]) == 0) {
            const int64_t axis = 2;
            y = brought_back(e, rows_of(e, rows));
            dtp_aten_value like = e->g->values[y < 0 ? x : y];
            like.rank -= y < 0 ? 0 : 1;
            memmove(&like.sizes[2], &like.sizes[3], (size_t)(out.rank - 1) * sizeof like.sizes[0]);
            const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", y),
                                         dtp_expand_ints(e, "dim", 1, &axis)};
            y = y < 0 || e->status != DTP_OK ? -1
                                             : dtp_expand_node(e, "aten.sum", 2, args, 1, &like);
            y = dtp_expand_two(e, "aten.add", x, dtp_expand_one(e, "aten.view", y, &out));
        }
    }
    if (y >= 0) {
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}
