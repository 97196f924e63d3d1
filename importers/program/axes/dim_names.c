/* Names of dims: sizes that have a name in the program keep it; others are named after what they
 * are in attention, norms and embeddings, else after the module that they come from. */
#include <ctype.h>
#include <string.h>

#include "importers/program/axes/dim_names.h"

/* Names that the model has: of a class, and of the dims by which its size is given. */
static void use(dtp_axes *x, int32_t cls)
{
    int32_t of[DTP_FLAT_PARTS];
    dtp_class *c = &x->cls[dtp_class_root(x, cls)];
    const dtp_axis base = {1, {c->base}};
    const int32_t n = c->used || c->base < 0 ? 0 : dtp_axis_leaves(x, 1, &base, of, DTP_FLAT_PARTS);
    c->used = true;
    for (int32_t i = 0; i < n; i++) {
        use(x, of[i]);
    }
}

const char *dtp_class_name(dtp_axes *x, int32_t cls, int32_t alias)
{
    dtp_class *c = &x->cls[dtp_class_root(x, cls)];
    c->aliases = alias > c->aliases ? alias : c->aliases;
    use(x, cls);
    return alias == 0 ? c->name : dtp_arena_printf(x->arena, "%s_%d", c->name, alias + 1);
}

/* Names a class that has no name yet; one that is taken gets a letter. */
enum { MOST_NAME = 44 }; /* models have up to 63 characters; "_inner", "_b", "_2" follow */

static dtp_status propose(dtp_axes *x, int32_t cls, const char *name, dtp_err *err)
{
    cls = dtp_class_root(x, cls);
    const char *given = name;
    const int32_t first = dtp_name_find(&x->names, name);
    if (x->cls[cls].name != NULL) {
        return DTP_OK;
    }
    while (dtp_name_find(&x->names, given) >= 0) {
        const int32_t k = ++x->cls[first].others;
        given = k < 26 ? dtp_arena_printf(x->arena, "%s_%c", name, 'a' + k)
                       : dtp_arena_printf(x->arena, "%s_z%d", name, k);
        DTP_TRY(DTP_MEMORY(err, given));
    }
    x->cls[cls].name = given;
    return dtp_name_add(&x->names, x->arena, given, cls, err);
}

/* The first part of an axis gets the name `outer`, those within it "group" of heads, else a name
 * after `one`; an only part is called `one`. An axis that a malformed program lacks gets none. */
static dtp_status propose_axis(dtp_axes *x, int32_t value, int32_t axis, const char *one,
                               const char *outer, dtp_err *err)
{
    int32_t cls[DTP_FLAT_PARTS];
    if (value < 0 || axis < 0 || axis >= x->g->values[value].rank) {
        return DTP_OK;
    }
    const int32_t n = dtp_axis_leaves(x, 1, &x->of[value][axis], cls, DTP_FLAT_PARTS);
    const char *inner =
        strcmp(outer, "kv_heads") == 0 ? "group" : dtp_arena_printf(x->arena, "%s_inner", one);
    DTP_TRY(DTP_MEMORY(err, inner));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(propose(x, cls[i], n == 1 ? one : i == 0 ? outer : inner, err));
    }
    return DTP_OK;
}

static int32_t rank_of(const dtp_axes *x, int32_t value)
{
    return x->g->values[value].rank;
}

/* torch calls sizes of its own s0, s17, ..: no names. */
static bool is_name(const char *symbol)
{
    size_t n = 0;
    bool digits = symbol[0] == 's' && symbol[1] != '\0';
    for (; symbol[n] != '\0'; n++) {
        digits = digits && (n == 0 || isdigit((unsigned char)symbol[n]));
        if (!isalnum((unsigned char)symbol[n]) && symbol[n] != '_') {
            return false;
        }
    }
    return isalpha((unsigned char)symbol[0]) && !digits && n <= MOST_NAME;
}

static dtp_status name_symbols(dtp_axes *x, dtp_err *err)
{
    for (int32_t i = 0; i < x->g->n_inputs; i++) {
        const dtp_aten_value *v = &x->g->values[x->g->inputs[i]];
        for (int32_t a = 0; a < v->rank && v->role == ATEN_INPUT; a++) {
            if (v->symbols[a] != NULL && is_name(v->symbols[a])) {
                DTP_TRY(propose_axis(x, x->g->inputs[i], a, v->symbols[a], v->symbols[a], err));
            }
        }
    }
    return DTP_OK;
}

static dtp_status name_attention(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t q = dtp_aten_operand(node, "query"), k = dtp_aten_operand(node, "key");
    const int32_t v = dtp_aten_operand(node, "value"), r = rank_of(x, q);
    DTP_TRY(propose_axis(x, q, r - 2, "length", "length", err));
    DTP_TRY(propose_axis(x, k, r - 2, "key_length", "key_length", err));
    DTP_TRY(propose_axis(x, q, r - 1, "d_head", "d_head", err));
    DTP_TRY(propose_axis(x, v, r - 1, "d_value", "d_value", err));
    DTP_TRY(r < 4 ? DTP_OK : propose_axis(x, q, 0, "batch", "batch", err));
    if (r > 4 && x->g->values[k].sizes[r - 3] == 1) { /* heads of keys apart from their groups */
        DTP_TRY(propose_axis(x, q, r - 4, "kv_heads", "kv_heads", err));
        return propose_axis(x, q, r - 3, "group", "group", err);
    }
    return propose_axis(x, q, r - 3, "heads", "kv_heads", err);
}

static dtp_status name_rows(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t w = dtp_aten_operand(node, "weight");
    if (node->live && dtp_aten_is(node, "embedding")) {
        const int32_t ids = dtp_aten_operand(node, "indices");
        const char *rows = x->g->values[ids].role == ATEN_CONST ? "positions" : "vocab";
        DTP_TRY(propose_axis(x, w, 0, rows, rows, err));
        return propose_axis(x, w, 1, "d_model", "d_model", err);
    }
    if (node->live && strstr(node->op, "_norm") != NULL && w >= 0) {
        return propose_axis(x, w, rank_of(x, w) - 1, "d_model", "d_model", err);
    }
    if (node->live && dtp_aten_is(node, "cross_entropy_loss")) {
        const int32_t logits = node->args[0].values[0];
        return propose_axis(x, logits, rank_of(x, logits) > 1 ? 1 : 0, "classes", "classes", err);
    }
    return DTP_OK;
}

static dtp_status name_slots(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    if (!node->live || !dtp_aten_is(node, "dtp.slots")) {
        return DTP_OK;
    }
    DTP_TRY(propose_axis(x, dtp_aten_input(node, 0), 2, "choices", "choices", err));
    DTP_TRY(propose_axis(x, node->outs[2], 1, "experts", "experts", err));
    return propose_axis(x, node->outs[2], 2, "capacity", "capacity", err);
}

static bool is_called(const dtp_axes *x, int32_t value, int32_t axis, const char *name)
{
    const int32_t cls = dtp_axis_one(x, &x->of[value][axis]);
    return cls >= 0 && x->cls[cls].name != NULL && strcmp(x->cls[cls].name, name) == 0;
}

/* What a linear layer sums into d_model, where it is no head. */
static dtp_status name_hidden(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t in = dtp_aten_is(node, "linear") ? 1 : 0;
    const int32_t w = in == 1                      ? dtp_aten_operand(node, "weight")
                      : dtp_aten_is(node, "addmm") ? dtp_aten_operand(node, "mat2")
                                                   : -1;
    if (!node->live || w < 0 || rank_of(x, w) != 2 || !is_called(x, w, 1 - in, "d_model")) {
        return DTP_OK;
    }
    const int32_t cls = dtp_axis_one(x, &x->of[w][in]);
    return cls < 0 ? DTP_OK : propose(x, cls, "d_ff", err);
}

/* "layers.*.fc1.weight.0" gives "layers_fc1_weight_0": letters, digits and '_'. */
static dtp_status name_by_origin(dtp_axes *x, int32_t cls, dtp_err *err)
{
    const char *origin = x->cls[cls].pieces ? "pieces" : x->cls[cls].origin;
    char *name = dtp_arena_printf(x->arena, "%s", origin);
    DTP_TRY(DTP_MEMORY(err, name));
    size_t n = 0;
    for (const char *c = origin; *c != '\0'; c++) {
        const bool keep = isalnum((unsigned char)*c) && (n > 0 || isalpha((unsigned char)*c));
        if (keep) {
            name[n++] = *c;
        } else if (n > 0 && name[n - 1] != '_') {
            name[n++] = '_';
        }
    }
    n -= n > 0 && name[n - 1] == '_' ? 1 : 0;
    name[n] = '\0';
    if (n > MOST_NAME) { /* its end says most */
        name += n - MOST_NAME;
        while (!isalpha((unsigned char)*name) && *name != '\0') {
            name++;
        }
    }
    return propose(x, cls, name[0] == '\0' ? "dim" : name, err);
}

/* The last axis of an output or of logits is the vocabulary when it has its size. */
static dtp_status join_vocab(dtp_axes *x, dtp_err *err)
{
    const dtp_aten *g = x->g;
    int32_t vocab = -1;
    for (int32_t i = 0; i < g->n_nodes + g->n_outputs; i++) {
        const dtp_aten_node *node = i < g->n_nodes && g->nodes[i].live ? &g->nodes[i] : NULL;
        int32_t v = i < g->n_nodes ? -1 : g->outputs[i - g->n_nodes];
        if (node != NULL && dtp_aten_is(node, "cross_entropy_loss")) {
            v = node->args[0].values[0];
        }
        if (vocab < 0 && node != NULL && dtp_aten_is(node, "embedding") &&
            g->values[dtp_aten_operand(node, "indices")].role != ATEN_CONST) {
            vocab = dtp_axis_one(x, x->of[dtp_aten_operand(node, "weight")]);
        }
        const int32_t last = v < 0 || g->values[v].rank == 0
                                 ? -1
                                 : dtp_axis_one(x, &x->of[v][g->values[v].rank - 1]);
        if (last >= 0 && vocab >= 0 && x->cls[last].size == x->cls[dtp_class_root(x, vocab)].size) {
            DTP_TRY(dtp_class_unify(x, vocab, last, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_axes_name(dtp_axes *x, dtp_err *err)
{
    const dtp_aten *g = x->g;
    DTP_TRY(join_vocab(x, err));
    DTP_TRY(name_symbols(x, err));
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].live && strcmp(g->nodes[i].op, "dtp.attention") == 0) {
            DTP_TRY(name_attention(x, &g->nodes[i], err));
        }
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        DTP_TRY(name_rows(x, &g->nodes[i], err));
        DTP_TRY(name_slots(x, &g->nodes[i], err));
    }
    for (int32_t i = 0; i < g->n_inputs; i++) {
        const int32_t v = g->inputs[i];
        if (g->values[v].role == ATEN_INPUT && g->values[v].rank > 0) {
            DTP_TRY(propose_axis(x, v, 0, "batch", "batch", err));
        }
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        DTP_TRY(name_hidden(x, &g->nodes[i], err));
    }
    for (int32_t i = 0; i < x->n; i++) {
        if (x->cls[i].parent == i && x->cls[i].outer < 0) {
            DTP_TRY(name_by_origin(x, i, err));
        }
    }
    return DTP_OK;
}
