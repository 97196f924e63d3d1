/* Slots of experts: where each choice of a token goes, and what each slot holds. */
#include <string.h>

#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"

/* Dims of the tokens of a row and of their choices; rows before them, slots in their place. */
typedef struct names {
    const char *rows, *tokens, *entries; /* "batch", "length", "length,choices" */
    const char *all, *slots;        /* "batch,length,choices", "batch,slots=experts*capacity" */
    const char *experts, *capacity; /* sizes */
    int32_t by_slot[2];             /* groups of experts and of their slots */
} names;

static dtp_status name_all(dtp_lowering *l, int32_t ids, int32_t source, names *n, dtp_err *err)
{
    dtp_importer *m = l->m;
    int32_t parts[3];
    for (int32_t i = 0; i < 2; i++) {
        DTP_TRY(dtp_groups_add(l, source, 1 + i, &n->by_slot[i], err));
    }
    for (int32_t i = 0; i < l->groups.n; i++) {
        dtp_name_group(&l->groups, i, 0);
    }
    for (int32_t i = 0; i < 3; i++) {
        parts[i] = dtp_axis_parts(m, ids, i);
    }
    n->rows = dtp_group_names(l, l->firsts[0], parts[0], ",");
    n->tokens = dtp_group_names(l, l->firsts[1], parts[1], ",");
    n->entries = dtp_joined(m, n->tokens, ",", dtp_group_names(l, l->firsts[2], parts[2], ","));
    n->all = dtp_joined(m, n->rows, ",", n->entries);
    n->experts = dtp_axis_size(m, source, 1);
    n->capacity = dtp_axis_size(m, source, 2);
    n->slots = dtp_joined(m, n->rows, ",",
                          dtp_arena_printf(m->arena, "slots=%s*%s", n->experts, n->capacity));
    return DTP_MEMORY(err, n->all, n->slots);
}

static dtp_status two(dtp_lowering *l, const char *what, const char *op, const char *const *in,
                      const char *out, const char *attrs, const char **id, dtp_err *err)
{
    const dtp_out_node o = {what, op, 2, in, out, attrs, NULL, 0, NULL, -1};
    return dtp_emit(l, &o, id, err);
}

/* value is the result of an op on `in`, over all its dims. */
static dtp_status give(dtp_lowering *l, int32_t value, const char *what, const char *op, int32_t n,
                       const char *const *in, const char *attrs, dtp_err *err)
{
    l->out = value;
    l->what = what;
    l->n = n;
    for (int32_t i = 0; i < n; i++) {
        l->uses[i] = (dtp_use){.value = -1, .id = in[i]};
    }
    return dtp_emit_value(l, op, attrs, err);
}

/* l->out: what the slots hold of the index along `dims`, of `size` elements. Slots that hold
 * nothing have the first. */
static dtp_status fill_slots(dtp_lowering *l, const names *n, const char *slot, const char *kept,
                             const char *dims, const char *size, dtp_err *err)
{
    dtp_importer *m = l->m;
    const int32_t by_slot[3] = {l->firsts[0], n->by_slot[0], n->by_slot[1]};
    const int32_t value = l->out;
    const char *in[3] = {kept, NULL, NULL}, *at;
    const dtp_out_node index = {"index", "iota", .out = dtp_joined(m, DTP_PIECE, "=", size),
                                .attrs = "\"dim\": \"" DTP_PIECE "\", \"dtype\": \"i32\""};
    DTP_TRY(DTP_MEMORY(err, index.out));
    DTP_TRY(dtp_emit(l, &index, &in[1], err));
    DTP_TRY(dtp_emit_one(l, "index", "relabel", &in[1], dims, "", err));
    DTP_TRY(dtp_emit_number(l, 0, ATEN_I32, "", &in[2], err));
    const dtp_out_node from = {"from", "select", 3, in, n->all, "", NULL, 0, NULL, -1};
    DTP_TRY(dtp_emit(l, &from, &at, err));
    const char *to[2] = {slot, at}, *along = "";
    for (const char *c = n->entries; *c != '\0';) {
        const size_t len = strcspn(c, ",");
        along = dtp_joined(m, along, ", ", dtp_arena_printf(m->arena, "\"%.*s\"", (int)len, c));
        c += c[len] == '\0' ? len : len + 1;
    }
    const char *attrs =
        dtp_arena_printf(m->arena, "\"over\": \"slots\", \"along\": [%s], \"size\": \"%s*%s\"",
                         along, n->experts, n->capacity);
    DTP_TRY(DTP_MEMORY(err, along, attrs));
    DTP_TRY(two(l, "held", "scatter_add", to, n->slots, attrs, &at, err));
    memcpy(l->firsts, by_slot, sizeof by_slot);
    return give(l, value, "held", "relabel", 1, &at, "", err);
}

/* Which place among the choices of its expert each one has, from 0 on. */
static dtp_status count_places(dtp_lowering *l, const names *n, const char *ids, const char **place,
                               dtp_err *err)
{
    dtp_importer *m = l->m;
    const char *routes = dtp_arena_printf(m->arena, "routes=%s", n->experts);
    const char *all = dtp_joined(m, n->all, ",", routes), *in[2], *size = "";
    for (const char *c = n->entries; *c != '\0';) {
        const size_t len = strcspn(c, ",");
        size = dtp_joined(m, size, "*", dtp_arena_printf(m->arena, "%.*s", (int)len, c));
        c += c[len] == '\0' ? len : len + 1;
    }
    const char *queue =
        dtp_joined(m, n->rows, ",", dtp_arena_printf(m->arena, "entries=%s,%s", size, routes));
    DTP_TRY(DTP_MEMORY(err, all, queue));
    const char *id = ids;
    DTP_TRY(dtp_emit_one(l, "chosen", "one_hot", &id, all, "\"dim\": \"routes\"", err));
    DTP_TRY(dtp_emit_one(l, "mask", "cast", &id, NULL, "\"dtype\": \"i32\"", err));
    DTP_TRY(dtp_emit_one(l, "queue", "relabel", &id, queue, "", err));
    DTP_TRY(dtp_emit_one(l, "counts", "cumsum", &id, NULL, "\"dim\": \"entries\"", err));
    DTP_TRY(dtp_emit_one(l, "counts", "relabel", &id, all, "", err));
    in[0] = id;
    in[1] = ids;
    DTP_TRY(two(l, "count", "gather", in, n->all, "\"over\": \"routes\"", &in[0], err));
    DTP_TRY(dtp_emit_number(l, 1, ATEN_I32, "", &in[1], err));
    return two(l, "place", "sub", in, n->all, "", place, err);
}

dtp_status dtp_lower_slots(dtp_lowering *l, dtp_err *err)
{
    dtp_importer *m = l->m;
    const int32_t slot = l->node->outs[0], kept = l->node->outs[1], source = l->node->outs[2];
    const int32_t one = dtp_axis_one(&m->axes, &m->axes.of[source][2]);
    const char *in[3], *room = "1", *place;
    names n;
    if (one >= 0 ? m->axes.cls[one].base < 0 : dtp_axis_parts(m, source, 2) > 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "experts of tokens whose rows are not known");
    }
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    DTP_TRY(name_all(l, l->x, source, &n, err));
    const char *ids = l->uses[0].id;
    DTP_TRY(dtp_emit_one(l, "expert", "cast", &ids, NULL, "\"dtype\": \"i32\"", err));
    DTP_TRY(count_places(l, &n, ids, &place, err));
    DTP_TRY(dtp_emit_number(l, 1, ATEN_I32, one < 0 ? "" : n.capacity, &room, err));
    DTP_TRY(one < 0 ? DTP_OK
                    : dtp_emit_one(l, "room", "reduce", &room, "",
                                   dtp_arena_printf(m->arena, "\"kind\": \"sum\", \"over\": \"%s\"",
                                                    n.capacity),
                                   err));
    in[0] = place;
    in[1] = room;
    DTP_TRY(give(l, kept, "kept", "compare", 2, in, "\"cmp\": \"lt\"", err));
    in[0] = ids;
    DTP_TRY(two(l, "first", "mul", in, n.all, "", &in[0], err));
    in[1] = place;
    DTP_TRY(two(l, "slot", "add", in, n.all, "", &in[1], err));
    in[0] = m->low[kept].id;
    DTP_TRY(dtp_emit_number(l, 0, ATEN_I32, "", &in[2], err));
    DTP_TRY(give(l, slot, "slot", "select", 3, in, "", err));
    l->out = source;
    return fill_slots(l, &n, m->low[slot].id, m->low[kept].id, n.tokens, dtp_axis_size(m, l->x, 1),
                      err);
}

dtp_status dtp_lower_entries(dtp_lowering *l, dtp_err *err)
{
    dtp_importer *m = l->m;
    const int32_t out = l->out, kept = dtp_aten_operand(l->node, "kept");
    names n;
    DTP_TRY(dtp_groups_of(l, l->x, l->firsts, err));
    DTP_TRY(dtp_use_add(l, l->x, l->firsts, err));
    DTP_TRY(dtp_use_add(l, kept, l->firsts, err));
    DTP_TRY(dtp_settle(l, err));
    DTP_TRY(name_all(l, l->x, out, &n, err));
    const char *size = dtp_joined(m, dtp_axis_size(m, l->x, 1), "*", dtp_axis_size(m, l->x, 2));
    return fill_slots(l, &n, l->uses[0].id, l->uses[1].id, n.entries, size, err);
}
