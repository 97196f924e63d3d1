#include "core/transform/recompute.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph_copy.h"

/* ---- items --------------------------------------------------------------------------------------
 */

/* An item as it is read: a name of so many bytes and the instances first..last. */
typedef struct remat_item {
    const char *name;
    size_t name_bytes;
    int64_t first, last; /* last -1: all from the first on */
} remat_item;

/* A number at *text, which moves behind it. */
static bool read_number(const char **text, int64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    *out = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0 && *out <= INT32_MAX;
}

static dtp_status read_item(const char *text, remat_item *out, dtp_err *err)
{
    const char *colon = strchr(text, ':');
    const char *at = colon != NULL ? colon + 1 : "";
    *out = (remat_item){.name = text,
                        .name_bytes = colon != NULL ? (size_t)(colon - text) : strlen(text),
                        .last = -1};
    bool ok = out->name_bytes > 0;
    if (colon != NULL) {
        ok = ok && read_number(&at, &out->first);
        out->last = out->first;
        if (ok && *at == '-') {
            at++;
            ok = read_number(&at, &out->last);
        }
    }
    if (!ok || *at != '\0' || (colon != NULL && out->last < out->first)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "remat '%.80s': expected BLOCK, BLOCK:INSTANCE or BLOCK:FIRST-LAST", text);
    }
    return DTP_OK;
}

static bool names_block(const remat_item *it, const char *block)
{
    return strlen(block) == it->name_bytes && strncmp(block, it->name, it->name_bytes) == 0;
}

dtp_status dtp_remat_check(const dtp_remat *remat, const dtp_graph *g, dtp_err *err)
{
    enum { MAX_ITEMS = 256 };
    if (remat->n > MAX_ITEMS) {
        return DTP_FAIL(err, DTP_RANGE, "remat: %d items, the limit is %d", remat->n, MAX_ITEMS);
    }
    for (int32_t i = 0; i < remat->n; i++) {
        remat_item it;
        bool known = false;
        int64_t instances = 0;
        DTP_TRY(read_item(remat->items[i], &it, err));
        for (int32_t b = 0; b < g->n_blocks; b++) {
            known = known || names_block(&it, g->blocks[b]);
        }
        if (!known) {
            return DTP_FAIL(err, DTP_INVALID, "remat '%.80s': the model '%s' has no such block",
                            remat->items[i], g->name);
        }
        for (dtp_node_id n = 0; n < g->n_nodes; n++) {
            const dtp_node *node = &g->nodes[n];
            const bool same = node->block >= 0 && names_block(&it, g->blocks[node->block]);
            instances =
                same && node->instance >= instances ? (int64_t)node->instance + 1 : instances;
        }
        if (it.last >= instances) {
            return DTP_FAIL(err, DTP_INVALID, "remat '%.80s': the block has the instances 0-%lld",
                            remat->items[i], (long long)instances - 1);
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(remat->items[k], remat->items[i]) == 0) {
                return DTP_FAIL(err, DTP_INVALID, "remat '%.80s' is given twice", remat->items[i]);
            }
        }
    }
    return DTP_OK;
}

/* Names of all blocks, each once. */
static dtp_status list_blocks(const dtp_graph *g, dtp_arena *arena, dtp_remat *out, dtp_err *err)
{
    const char **names = dtp_arena_alloc(arena, (size_t)g->n_blocks, sizeof *names);
    int32_t n = 0;
    DTP_TRY(DTP_MEMORY(err, names));
    for (int32_t b = 0; b < g->n_blocks; b++) {
        int32_t k = 0;
        while (k < n && strcmp(names[k], g->blocks[b]) != 0) {
            k++;
        }
        if (k == n) {
            names[n] = dtp_arena_strdup(arena, g->blocks[b]);
            DTP_TRY(DTP_MEMORY(err, names[n]));
            n++;
        }
    }
    *out = (dtp_remat){.n = n, .items = names};
    return DTP_OK;
}

dtp_status dtp_remat_parse(const char *text, const dtp_graph *g, dtp_arena *arena, dtp_remat *out,
                           dtp_err *err)
{
    *out = (dtp_remat){0};
    if (strcmp(text, "none") == 0) {
        return DTP_OK;
    }
    if (strcmp(text, "all") == 0) {
        DTP_TRY(list_blocks(g, arena, out, err));
        return out->n > 0 ? DTP_OK
                          : DTP_FAIL(err, DTP_INVALID, "remat 'all': the model '%s' has no blocks",
                                     g->name);
    }
    char *copy = dtp_arena_strdup(arena, text);
    const char **items = dtp_arena_alloc(arena, strlen(text) + 1, sizeof *items);
    DTP_TRY(DTP_MEMORY(err, copy, items));
    for (char *next = copy; next != NULL;) {
        items[out->n++] = next;
        next = strchr(next, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
    }
    out->items = items;
    return dtp_remat_check(out, g, err);
}

dtp_status dtp_remat_variants(const dtp_graph *g, dtp_arena *arena, int32_t *n, dtp_remat **out,
                              dtp_err *err)
{
    dtp_remat all;
    DTP_TRY(list_blocks(g, arena, &all, err));
    const int32_t blocks = g->loss >= 0 ? all.n : 0;
    dtp_remat *list;
    DTP_TRY(DTP_NEW(arena, list, (size_t)blocks + 2, err));
    *n = 1;
    for (int32_t b = 0; b < blocks; b++) {
        list[(*n)++] = (dtp_remat){.n = 1, .items = &all.items[b]};
    }
    if (blocks > 1) {
        list[(*n)++] = all;
    }
    *out = list;
    return DTP_OK;
}

/* ---- what is recomputed -------------------------------------------------------------------------
 */

/* A group is one chosen instance; -1 = the node is in none. */
typedef struct remat_work {
    const dtp_graph *g;
    int32_t n_groups;
    int32_t *group;       /* by node */
    int32_t *home;        /* by tensor: group of the forward node that makes it */
    bool *kept;           /* by tensor: something outside its group reads it */
    bool *again;          /* by tensor: recomputed */
    dtp_tensor_id *clone; /* by tensor: its recomputed copy in the new graph */
    dtp_node_id *place;   /* by group: the node before which its copies stand, -1 = no copies */
    dtp_graph_copy copy;
} remat_work;

static bool is_chosen(const remat_work *w, const dtp_remat *remat, const dtp_node *node)
{
    bool chosen = false;
    for (int32_t i = 0; i < remat->n && !chosen && node->phase != DTP_UPDATE; i++) {
        remat_item it;
        dtp_err ignored;
        chosen = read_item(remat->items[i], &it, &ignored) == DTP_OK && node->block >= 0 &&
                 names_block(&it, w->g->blocks[node->block]) && node->instance >= it.first &&
                 (it.last < 0 || node->instance <= it.last);
    }
    return chosen;
}

/* Numbers the chosen instances. Nodes of one instance of one phase mostly follow each other, so the
 * number is looked for backwards from the last one. */
static dtp_status find_groups(remat_work *w, const dtp_remat *remat, dtp_arena *scratch,
                              dtp_err *err)
{
    dtp_node_id *example;
    DTP_TRY(DTP_NEW(scratch, example, w->g->n_nodes, err));
    for (dtp_node_id n = 0; n < w->g->n_nodes; n++) {
        const dtp_node *node = &w->g->nodes[n];
        w->group[n] = -1;
        if (!is_chosen(w, remat, node)) {
            continue;
        }
        int32_t k = w->n_groups - 1;
        while (k >= 0 && (w->g->nodes[example[k]].block != node->block ||
                          w->g->nodes[example[k]].instance != node->instance)) {
            k--;
        }
        w->group[n] = k >= 0 ? k : w->n_groups;
        if (k < 0) {
            example[w->n_groups++] = n;
        }
    }
    return DTP_OK;
}

static void find_kept(remat_work *w)
{
    const dtp_graph *g = w->g;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_node_id p = g->tensors[t].producer;
        w->home[t] = p >= 0 && g->nodes[p].phase == DTP_FORWARD ? w->group[p] : -1;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            const dtp_tensor_id t = g->nodes[n].in[i];
            w->kept[t] = w->kept[t] || w->home[t] != w->group[n];
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        w->kept[g->outputs[i]] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        w->kept[g->updates[i].value] = true;
    }
    if (g->loss >= 0) {
        w->kept[g->loss] = true;
    }
}

/* From the reads of backward nodes back to what is needed to make them. */
static void find_again(remat_work *w)
{
    const dtp_graph *g = w->g;
    for (int32_t k = 0; k < w->n_groups; k++) {
        w->place[k] = -1;
    }
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        bool needs = node->phase == DTP_BACKWARD;
        for (int32_t i = 0; i < node->n_out && !needs; i++) {
            needs = w->again[node->out[i]];
        }
        for (int32_t i = 0; i < node->n_in && needs && w->group[n] >= 0; i++) {
            const dtp_tensor_id t = node->in[i];
            if (w->home[t] == w->group[n] && !w->kept[t]) {
                w->again[t] = true;
                w->place[w->group[n]] = node->phase == DTP_BACKWARD ? n : w->place[w->group[n]];
            }
        }
    }
}

/* ---- the new graph ------------------------------------------------------------------------------
 */

/* Copies of the forward nodes of a group that are recomputed. */
static dtp_status add_clones(remat_work *w, int32_t group, dtp_err *err)
{
    for (dtp_node_id n = 0; n < w->place[group]; n++) {
        const dtp_node *node = &w->g->nodes[n];
        dtp_tensor_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
        bool again = false;
        for (int32_t i = 0; i < node->n_out && w->group[n] == group; i++) {
            again = again || (w->again[node->out[i]] && node->phase == DTP_FORWARD);
        }
        if (!again) {
            continue;
        }
        dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
        spec.name = dtp_arena_printf(w->copy.to->arena, "remat.%s", node->name);
        DTP_TRY(DTP_MEMORY(err, spec.name));
        for (int32_t i = 0; i < node->n_in; i++) {
            in[i] = w->again[node->in[i]] ? w->clone[node->in[i]] : in[i];
        }
        spec.phase = DTP_BACKWARD;
        spec.origin = w->copy.node[n];
        spec.repeats = true;
        DTP_TRY(dtp_graph_add_node(w->copy.to, &spec, out, err));
        for (int32_t i = 0; i < node->n_out; i++) {
            w->clone[node->out[i]] = out[i];
        }
    }
    return DTP_OK;
}

/* Tensors come in the order of their ids, which keeps sources where they were. */
static dtp_status add_all(remat_work *w, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, NULL, err));
        } else if (tensor->out_index == 0) {
            dtp_node_id n = tensor->producer;
            const dtp_node *node = &w->g->nodes[n];
            dtp_tensor_id in[DTP_MAX_OP_IN];
            const int32_t group = w->group[n];
            if (group >= 0 && w->place[group] == n) {
                DTP_TRY(add_clones(w, group, err));
            }
            dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
            for (int32_t i = 0; i < node->n_in && node->phase == DTP_BACKWARD; i++) {
                in[i] = w->again[node->in[i]] ? w->clone[node->in[i]] : in[i];
            }
            DTP_TRY(dtp_graph_copy_node(&w->copy, n, &spec, err));
        }
    }
    return dtp_graph_copy_results(&w->copy, err);
}

static dtp_status build(remat_work *w, const dtp_remat *remat, dtp_arena *scratch, dtp_err *err)
{
    DTP_TRY(dtp_remat_check(remat, w->g, err));
    const size_t nodes = (size_t)w->g->n_nodes, tensors = (size_t)w->g->n_tensors;
    DTP_TRY(DTP_NEW(scratch, w->group, nodes, err));
    DTP_TRY(DTP_NEW(scratch, w->home, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->kept, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->again, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->clone, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->place, nodes, err));
    DTP_TRY(find_groups(w, remat, scratch, err));
    find_kept(w);
    find_again(w);
    DTP_TRY(dtp_graph_copy_begin(w->g, &w->copy, err));
    dtp_status s = add_all(w, err);
    if (s != DTP_OK) {
        dtp_graph_destroy(w->copy.to);
    }
    return s;
}

dtp_status dtp_graph_rematerialize(const dtp_graph *g, const dtp_remat *remat, dtp_graph **out,
                                   dtp_err *err)
{
    remat_work w = {.g = g};
    dtp_arena *scratch = dtp_arena_create();
    dtp_status s = build(&w, remat, scratch, err);
    dtp_arena_destroy(scratch);
    if (s == DTP_OK) {
        *out = w.copy.to;
    }
    return s;
}
