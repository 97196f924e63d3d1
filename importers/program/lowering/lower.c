/* Writing nodes of the model. */
#include "importers/program/lowering/lower.h"

#include <string.h>

/* ---- groups ---- */

dtp_lowering dtp_lowering_of(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             int32_t value)
{
    return (dtp_lowering){
        .m = m, .node = node, .op = op, .x = dtp_aten_input(node, 0), .out = value};
}

dtp_status dtp_groups_add(dtp_lowering *l, int32_t value, int32_t axis, int32_t *first,
                          dtp_err *err)
{
    int32_t cls[DTP_FLAT_PARTS];
    dtp_groups *groups = &l->groups;
    const int32_t n =
        dtp_axis_leaves(&l->m->axes, 1, &l->m->axes.of[value][axis], cls, DTP_FLAT_PARTS);
    if (n < 0 || groups->n + n > DTP_MOST_GROUPS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "an op over more than %d dims", DTP_MOST_GROUPS);
    }
    *first = n == 0 ? -1 : groups->n;
    for (int32_t i = 0; i < n; i++) {
        groups->cls[groups->n] = cls[i];
        groups->alias[groups->n++] = -1;
    }
    return DTP_OK;
}

dtp_status dtp_groups_of(dtp_lowering *l, int32_t value, int32_t *firsts, dtp_err *err)
{
    for (int32_t i = 0; i < dtp_value_of(l, value)->rank; i++) {
        DTP_TRY(dtp_groups_add(l, value, i, &firsts[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_use_add(dtp_lowering *l, int32_t value, const int32_t *firsts, dtp_err *err)
{
    dtp_use *out = &l->uses[l->n++];
    *out = (dtp_use){.value = value};
    for (int32_t i = 0; i < dtp_value_of(l, value)->rank; i++) {
        const int32_t n = dtp_axis_parts(l->m, value, i);
        if (n < 0 || out->n + n > DTP_FLAT_PARTS || (n > 0 && firsts[i] < 0)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "an operand of more than %d dims",
                            DTP_FLAT_PARTS);
        }
        for (int32_t k = 0; k < n; k++) {
            out->group[out->n++] = (int8_t)(firsts[i] + k);
        }
    }
    return DTP_OK;
}

static bool taken(const dtp_groups *groups, int32_t group, int8_t alias)
{
    for (int32_t i = 0; i < groups->n; i++) {
        if (i != group && groups->cls[i] == groups->cls[group] && groups->alias[i] == alias) {
            return true;
        }
    }
    return false;
}

void dtp_name_group(dtp_groups *groups, int32_t group, int8_t wanted)
{
    if (groups->alias[group] < 0) {
        groups->alias[group] = wanted;
        for (int8_t a = 0; taken(groups, group, groups->alias[group]); a++) {
            groups->alias[group] = a;
        }
    }
}

dtp_status dtp_settle(dtp_lowering *l, dtp_err *err)
{
    const dtp_low *low;
    for (int32_t i = 0; i < l->n; i++) {
        const dtp_use *use = &l->uses[i];
        if (use->id != NULL) {
            continue;
        }
        DTP_TRY(dtp_low_get(l, use->value, &low, err));
        for (int32_t k = 0; k < low->n_dims; k++) {
            dtp_name_group(&l->groups, use->group[low->order[k]], low->alias[low->order[k]]);
        }
    }
    for (int32_t i = 0; i < l->n; i++) {
        dtp_use *use = &l->uses[i];
        bool other = false;
        if (use->id != NULL) {
            continue;
        }
        DTP_TRY(dtp_low_get(l, use->value, &low, err));
        dtp_low to = *low;
        for (int32_t k = 0; k < low->n_dims; k++) {
            const int32_t part = low->order[k];
            to.alias[part] = l->groups.alias[use->group[part]];
            other = other || to.alias[part] != low->alias[part];
        }
        use->id = low->id;
        DTP_TRY(other ? dtp_emit_one(l, "relabel", "relabel", &use->id, dtp_low_dims(l->m, &to), "",
                                     err)
                      : DTP_OK);
    }
    return DTP_OK;
}

bool dtp_low_is_whole(const dtp_low *low)
{
    bool whole = low->n_dims == low->n;
    for (int32_t i = 0; i < low->n_dims; i++) {
        whole = whole && low->order[i] == i;
    }
    return whole;
}

dtp_status dtp_whole(dtp_lowering *l, dtp_use *use, dtp_err *err)
{
    const dtp_low *low;
    DTP_TRY(dtp_low_get(l, use->value, &low, err));
    use->whole = true;
    if (dtp_low_is_whole(low)) {
        return DTP_OK;
    }
    const char *dims = "", *op = low->n_dims == use->n ? "permute" : "broadcast";
    for (int32_t i = 0; i < use->n; i++) {
        dtp_name_group(&l->groups, use->group[i], 0);
        dims = dtp_joined(l->m, dims, ",", dtp_group_name(l, use->group[i]));
    }
    DTP_TRY(DTP_MEMORY(err, dims));
    return dtp_emit_one(l, op, op, &use->id, dims, "", err);
}

bool dtp_same_axis(const dtp_importer *m, int32_t a, int32_t b, int32_t axis)
{
    int32_t one[DTP_FLAT_PARTS], other[DTP_FLAT_PARTS];
    const int32_t n = dtp_axis_leaves(&m->axes, 1, &m->axes.of[a][axis], one, DTP_FLAT_PARTS);
    return n > 0 &&
           n == dtp_axis_leaves(&m->axes, 1, &m->axes.of[b][axis], other, DTP_FLAT_PARTS) &&
           memcmp(one, other, (size_t)n * sizeof one[0]) == 0;
}

dtp_status dtp_only_operand(dtp_lowering *l, dtp_err *err)
{
    DTP_TRY(dtp_groups_of(l, l->x, l->firsts, err));
    DTP_TRY(dtp_use_add(l, l->x, l->firsts, err));
    return dtp_settle(l, err);
}

/* "gelu" of "aten.gelu.default"; layers with weights are named by their module alone. */
static const char *what_of(const dtp_lowering *l)
{
    static const char *const layers[] = {"linear", "layer_norm", "rms_norm", "dtp.rms_norm",
                                         "addmm",  "embedding",  NULL};
    const char *op = strchr(l->node->op, '.') + 1;
    if (l->what != NULL) {
        return l->what;
    }
    for (int32_t i = 0; layers[i] != NULL && l->node->path[0] != '\0'; i++) {
        if (dtp_aten_is(l->node, layers[i])) {
            return "";
        }
    }
    return dtp_arena_printf(l->m->arena, "%.*s", (int)strcspn(op, "."), op);
}

/* Ops whose result has the dims in the order that "out" says; others keep that of operand 0. */
static bool order_is_free(const char *op)
{
    static const char *const free_ops[] = {
        "einsum",     "add",     "sub",     "mul",    "div",         "max",       "min",
        "compare",    "select",  "relabel", "concat", "stack",       "broadcast", "logical_and",
        "logical_or", "permute", "gather",  "mod",    "logical_xor", NULL};
    for (int32_t i = 0; free_ops[i] != NULL; i++) {
        if (strcmp(free_ops[i], op) == 0) {
            return true;
        }
    }
    return false;
}

/* Parts of a result in the order of the tensor's dims: those of the operand first. */
static dtp_status order_parts(dtp_lowering *l, const dtp_use *like, const int8_t *groups,
                              dtp_low *low, dtp_err *err)
{
    bool done[DTP_FLAT_PARTS] = {false};
    if (like != NULL) {
        const dtp_low *in;
        DTP_TRY(dtp_low_get(l, like->value, &in, err));
        for (int32_t i = 0; i < (like->whole ? like->n : in->n_dims); i++) {
            const int32_t group = like->group[like->whole ? i : in->order[i]];
            for (int32_t k = 0; k < low->n; k++) {
                if (groups[k] == group && low->alias[k] >= 0 && !done[k]) {
                    low->order[low->n_dims++] = (int8_t)k;
                    done[k] = true;
                }
            }
        }
    }
    for (int32_t k = 0; k < low->n; k++) {
        if (!done[k] && low->alias[k] >= 0) {
            low->order[low->n_dims++] = (int8_t)k;
        }
    }
    return DTP_OK;
}

dtp_status dtp_emit_value(dtp_lowering *l, const char *op, const char *attrs, dtp_err *err)
{
    dtp_importer *m = l->m;
    const char *in[DTP_MOST_OPERANDS], *what = what_of(l);
    int8_t group[DTP_FLAT_PARTS] = {0};
    dtp_low low = {0};
    DTP_TRY(DTP_MEMORY(err, what));
    low.n = dtp_axis_leaves(&m->axes, m->g->values[l->out].rank, m->axes.of[l->out], low.cls,
                            DTP_FLAT_PARTS);
    if (low.n < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a result of more than %d dims", DTP_FLAT_PARTS);
    }
    int32_t part = 0;
    for (int32_t i = 0; i < m->g->values[l->out].rank; i++) {
        const int32_t parts = dtp_axis_parts(m, l->out, i), first = l->firsts[i];
        if (parts > 0 && (first < 0 || first + parts > l->groups.n)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "axes of the result that no operand has");
        }
        for (int32_t k = 0; k < parts; k++, part++) {
            group[part] = (int8_t)(first + k);
            low.alias[part] = l->groups.alias[first + k];
        }
    }
    const dtp_use *like = &l->uses[strcmp(op, "embedding") == 0 ? 1 : 0];
    like = l->n == 0 || like->value < 0 || order_is_free(op) ? NULL : like;
    DTP_TRY(order_parts(l, like, group, &low, err));
    for (int32_t i = 0; i < l->n; i++) {
        in[i] = l->uses[i].id;
    }
    const dtp_out_node o = {what, op, l->n, in, dtp_low_dims(m, &low), attrs, NULL, 0, NULL, -1};
    DTP_TRY(dtp_emit(l, &o, &low.id, err));
    m->low[l->out] = low;
    return DTP_OK;
}

/* ---- values that no node makes, views ---- */

/* The tensor has all parts; of two of one class the last has the plain name. */
static dtp_status low_whole(dtp_importer *m, int32_t value, const char *id, dtp_err *err)
{
    dtp_low *low = &m->low[value];
    low->n = dtp_axis_leaves(&m->axes, m->g->values[value].rank, m->axes.of[value], low->cls,
                             DTP_FLAT_PARTS);
    if (low->n < 0 || low->n > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s' has %d dims, at most %d", id, low->n,
                        DTP_MAX_RANK);
    }
    for (int32_t i = low->n; i-- > 0;) {
        low->alias[i] = 0;
        for (int32_t k = i + 1; k < low->n; k++) {
            low->alias[i] = (int8_t)(low->alias[i] + (low->cls[k] == low->cls[i] ? 1 : 0));
        }
        low->order[i] = (int8_t)i;
    }
    low->n_dims = low->n;
    low->id = id;
    return DTP_OK;
}

/* start + by times the index along an axis, whose parts are the dims `names`. An axis of several
 * parts is one dim meanwhile, of `size` elements. */
static dtp_status emit_index(dtp_lowering *l, const char *names, const char *size,
                             const dtp_const *c, int32_t dtype, const char **id, dtp_err *err)
{
    dtp_importer *m = l->m;
    const double numbers[2] = {c->kind == DTP_CONST_INDEX ? 1 : c->high, c->low};
    const bool several = names != NULL && strchr(names, ',') != NULL;
    const char *dim = several ? DTP_PIECE : names;
    const char *out = several ? dtp_joined(m, dim, "=", size) : dim, *in[2], *type;
    DTP_TRY(DTP_MEMORY(err, out));
    DTP_TRY(dtp_type_attr(m, dtype, &type, err));
    const dtp_out_node index = {"index", "iota", .out = out,
                                .attrs =
                                    dtp_arena_printf(m->arena, "\"dim\": \"%s\", %s", dim, type)};
    DTP_TRY(dtp_emit(l, &index, id, err));
    DTP_TRY(several ? dtp_emit_one(l, "index", "relabel", id, names, "", err) : DTP_OK);
    for (int32_t i = 0; i < 2; i++) {
        const dtp_out_node o = {"index", i == 0 ? "mul" : "add", 2, in, names, "", NULL, 0, NULL,
                                -1};
        if (numbers[i] != (i == 0 ? 1 : 0)) {
            in[0] = *id;
            DTP_TRY(dtp_emit_number(l, numbers[i], dtype, "", &in[1], err));
            DTP_TRY(dtp_emit(l, &o, id, err));
        }
    }
    return DTP_OK;
}

/* One value on and below a diagonal, another above it: compare(index, index), and a choice. */
static dtp_status low_step(dtp_lowering *l, int32_t value, const dtp_const *s, dtp_low *low,
                           dtp_err *err)
{
    const dtp_aten_value *v = dtp_value_of(l, value);
    const char *ids[3], *dims[2], *both;
    for (int32_t i = 0; i < 2; i++) {
        int32_t part = 0; /* the place of the axis among the parts; -1: it is not one part */
        for (int32_t a = 0; a < s->axis[i]; a++) {
            part += dtp_axis_parts(l->m, value, a);
        }
        part = dtp_axis_parts(l->m, value, s->axis[i]) == 1 ? part : -1;
        if (part < 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "the constant '%s' has dims that are split",
                            v->name);
        }
        low->order[i] = (int8_t)part;
        dims[i] = dtp_class_name(&l->m->axes, low->cls[part], low->alias[part]);
        DTP_TRY(DTP_MEMORY(err, dims[i]));
        const dtp_const at = {.kind = DTP_CONST_INDEX, .low = i == 0 ? (double)s->at : 0};
        DTP_TRY(emit_index(l, dims[i], "", &at, ATEN_I64, &ids[1 - i], err));
    }
    low->n_dims = 2;
    both = dtp_joined(l->m, dims[0], ",", dims[1]);
    DTP_TRY(DTP_MEMORY(err, both));
    const bool flipped = v->dtype == ATEN_BOOL && s->low == 0;
    const char *cmp = flipped ? "\"cmp\": \"gt\"" : "\"cmp\": \"le\"";
    const dtp_out_node test = {"mask", "compare", 2, ids, both, cmp, NULL, 0, NULL, -1};
    const dtp_out_node choice = {"mask", "select", 3, ids, both, "", NULL, 0, NULL, -1};
    DTP_TRY(dtp_emit(l, &test, &low->id, err));
    if (v->dtype == ATEN_BOOL) {
        return DTP_OK;
    }
    ids[0] = low->id;
    DTP_TRY(dtp_emit_number(l, s->low, v->dtype, "", &ids[1], err));
    DTP_TRY(dtp_emit_number(l, s->high, v->dtype, "", &ids[2], err));
    return dtp_emit(l, &choice, &low->id, err);
}

/* A constant that is one value, an index, or a step along a diagonal. */
static dtp_status low_const(dtp_lowering *l, int32_t value, dtp_err *err)
{
    dtp_importer *m = l->m;
    const dtp_aten_value *v = &m->g->values[value];
    const dtp_const *c = &m->consts[value];
    dtp_low *low = &m->low[value];
    low->owner = l->node;
    DTP_TRY(low_whole(m, value, "", err));
    low->n_dims = 0;
    if (c->kind == DTP_CONST_UNIFORM) {
        memset(low->alias, -1, sizeof low->alias);
        return dtp_emit_number(l, c->low, v->dtype, "", &low->id, err);
    }
    if (c->kind == DTP_CONST_STEP) {
        DTP_TRY(low_step(l, value, c, low, err));
    } else if (c->kind == DTP_CONST_INDEX || c->kind == DTP_CONST_LINEAR) {
        const int32_t n = dtp_axis_parts(m, value, c->axis[0]);
        int32_t part = 0;
        const char *names = "";
        for (int32_t i = 0; i < c->axis[0]; i++) {
            part += dtp_axis_parts(m, value, i);
        }
        for (int32_t i = part; i < part + n; i++) {
            low->order[low->n_dims++] = (int8_t)i;
            names = dtp_joined(m, names, ",", dtp_class_name(&m->axes, low->cls[i], low->alias[i]));
        }
        DTP_TRY(
            emit_index(l, names, dtp_axis_size(m, value, c->axis[0]), c, v->dtype, &low->id, err));
    } else {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the constant '%s' is none that can be written",
                        v->name);
    }
    for (int32_t i = 0; i < low->n; i++) { /* the others it lacks */
        bool has = false;
        for (int32_t k = 0; k < low->n_dims; k++) {
            has = has || low->order[k] == i;
        }
        low->alias[i] = has ? low->alias[i] : -1;
    }
    return DTP_OK;
}

/* Inputs and parameters have the axes that they are fed with: axes of size 1 of a parameter are
 * gone behind it, and an axis of an input that is split is split there. */
static dtp_status low_fed(dtp_lowering *l, int32_t value, dtp_err *err)
{
    const dtp_aten_value *v = dtp_value_of(l, value);
    dtp_low *low = &l->m->low[value];
    bool same = true;
    low->param = v->role == ATEN_PARAM;
    if (low->param && v->id == NULL) {
        dtp_aten_value *to = &l->m->g->values[value];
        const char *shorter = dtp_shorter(l->m, v->source);
        DTP_TRY(DTP_MEMORY(err, shorter));
        to->id = strcmp(shorter, v->source) == 0 ? v->source : shorter;
        while (dtp_hides_input(l->m, to->id) ||
               (to->id != v->source && (dtp_name_find(&l->m->g->sources, to->id) >= 0 ||
                                        dtp_name_find(&l->m->ids, to->id) >= 0))) {
            to->id = dtp_arena_printf(l->m->arena, "%s_1", to->id);
            DTP_TRY(DTP_MEMORY(err, to->id));
        }
        DTP_TRY(dtp_name_find(&l->m->g->sources, to->id) >= 0
                    ? DTP_OK
                    : dtp_name_add(&l->m->g->sources, l->m->arena, to->id, value, err));
    }
    const char *id = low->param ? v->id : v->source;
    for (int32_t i = 0; i < v->rank; i++) {
        same = same && (low->param ? v->sizes[i] != 1 || (v->same >> i & 1) != 0
                                   : dtp_axis_parts(l->m, value, i) < 2);
    }
    if (dtp_aten_type(v->dtype) == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s' has element type %d", v->source, v->dtype);
    }
    DTP_TRY(low_whole(l->m, value, id, err));
    low->n_dims = 0; /* a table has no dims for the axes along which it is the same */
    for (int32_t i = 0, part = 0; i < v->rank; i++) {
        for (int32_t k = dtp_axis_parts(l->m, value, i); k > 0; k--, part++) {
            if ((v->same >> i & 1) != 0) {
                low->alias[part] = -1;
            } else {
                low->order[low->n_dims++] = (int8_t)part;
            }
        }
    }
    DTP_TRY(
        same ? DTP_OK
             : dtp_emit_one(l, "relabel", "relabel", &low->id, dtp_low_dims(l->m, low), "", err));
    if (!v->table || v->stored == v->dtype) {
        return DTP_OK;
    }
    const char *type;
    DTP_TRY(dtp_type_attr(l->m, v->dtype, &type, err));
    return dtp_emit_one(l, "cast", "cast", &low->id, NULL, type, err);
}

dtp_status dtp_low_get(dtp_lowering *l, int32_t value, const dtp_low **out, dtp_err *err)
{
    const dtp_aten_value *v = dtp_value_of(l, value);
    *out = &l->m->low[value];
    if ((*out)->id != NULL && (v->role != ATEN_CONST || (*out)->owner == l->node)) {
        return DTP_OK;
    }
    switch (v->role) {
    case ATEN_CONST:
        return low_const(l, value, err);
    case ATEN_INPUT:
    case ATEN_PARAM:
        return low_fed(l, value, err);
    case ATEN_BUFFER:
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the elements of the buffer '%s' are not in the file",
                        v->source);
    default:
        return DTP_FAIL(err, DTP_INTERNAL, "'%s' is not there yet", v->name);
    }
}

dtp_status dtp_low_view(dtp_lowering *l, const int32_t *from, dtp_err *err)
{
    const dtp_importer *m = l->m;
    const dtp_low *in;
    dtp_low *low = &m->low[l->out];
    int32_t firsts[DTP_MAX_RANK + 1] = {0}, part = 0, place[DTP_FLAT_PARTS];
    DTP_TRY(dtp_low_get(l, l->x, &in, err));
    if (from == NULL) { /* all parts in their order */
        *low = *in;
        return DTP_OK;
    }
    for (int32_t i = 0; i < m->g->values[l->x].rank; i++) {
        firsts[i + 1] = firsts[i] + dtp_axis_parts(m, l->x, i);
    }
    *low = (dtp_low){.id = in->id, .n_dims = in->n_dims};
    low->n = dtp_axis_leaves(&m->axes, m->g->values[l->out].rank, m->axes.of[l->out], low->cls,
                             DTP_FLAT_PARTS);
    memset(low->alias, -1, sizeof low->alias);
    for (int32_t i = 0; i < m->g->values[l->out].rank; i++) {
        const int32_t n = dtp_axis_parts(m, l->out, i);
        for (int32_t k = 0; k < n; k++, part++) {
            if (from[i] >= 0) {
                place[firsts[from[i]] + k] = part;
                low->alias[part] = in->alias[firsts[from[i]] + k];
            }
        }
    }
    for (int32_t i = 0; i < in->n_dims; i++) {
        low->order[i] = (int8_t)place[in->order[i]];
    }
    return DTP_OK;
}
