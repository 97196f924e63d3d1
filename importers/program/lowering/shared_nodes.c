/* Exporters compute what several layers read, such as a mask, in the first of them. */
#include <string.h>

#include "importers/program/lowering/importer.h"

/* Length of "model.layers.3" of a path, up to its first number, and of "model" in front of the
 * list; 0: no part of it is a number. */
static size_t instance_of(const char *path, size_t *parent)
{
    size_t before = 0; /* where the part in front begins */
    for (size_t at = 0; path[at] != '\0';) {
        const size_t n = strcspn(path + at, ".");
        if (n > 0 && strspn(path + at, "0123456789") == n && at > 0) {
            *parent = before > 0 ? before - 1 : 0;
            return at + n;
        }
        before = at;
        at += n + (path[at + n] == '.' ? 1 : 0);
    }
    *parent = 0;
    return 0;
}

static bool is_in(const char *path, const char *instance, size_t n)
{
    return strncmp(path, instance, n) == 0 && (path[n] == '.' || path[n] == '\0');
}

/* Whether all operands are inputs, constants, or made in no instance. */
static bool is_outside(const dtp_aten *g, const dtp_aten_node *node)
{
    size_t parent;
    bool all = true;
    for (int32_t k = 0; k < node->n_args && all; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]) && all; j++) {
            const int32_t v = node->args[k].values[j];
            const dtp_aten_node *from =
                v < 0 || g->values[v].node < 0 ? NULL : &g->nodes[g->values[v].node];
            all = v < 0 || (g->values[v].role != ATEN_PARAM &&
                            (from == NULL || instance_of(from->path, &parent) == 0));
        }
    }
    return all;
}

/* Whether a node of another instance reads an output of node number i. */
static bool is_shared(const dtp_aten *g, int32_t i, size_t instance)
{
    for (int32_t r = i + 1; r < g->n_nodes; r++) {
        const dtp_aten_node *reader = &g->nodes[r];
        for (int32_t k = 0; k < reader->n_args && reader->live; k++) {
            for (int32_t j = 0; j < dtp_aten_tensors(&reader->args[k]); j++) {
                const int32_t v = reader->args[k].values[j];
                if (v >= 0 && g->values[v].node == i &&
                    !is_in(reader->path, g->nodes[i].path, instance)) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Node i in front of the nodes of its instance, behind its operands. */
static void move_up(dtp_aten *g, int32_t i, size_t instance)
{
    const dtp_aten_node node = g->nodes[i];
    int32_t to = 0;
    while (to < i && !is_in(g->nodes[to].path, node.path, instance)) {
        to++;
    }
    for (int32_t k = 0; k < node.n_args; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node.args[k]); j++) {
            const int32_t v = node.args[k].values[j];
            to = v >= 0 && g->values[v].node >= to ? g->values[v].node + 1 : to;
        }
    }
    memmove(&g->nodes[to + 1], &g->nodes[to], (size_t)(i - to) * sizeof node);
    g->nodes[to] = node;
    for (int32_t k = to; k <= i; k++) {
        for (int32_t j = 0; j < g->nodes[k].n_outs; j++) {
            const int32_t v = g->nodes[k].outs[j];
            if (v >= 0 && g->values[v].node >= 0) {
                g->values[v].node = k;
            }
        }
    }
}

dtp_status dtp_import_share_nodes(dtp_importer *m, dtp_err *err)
{
    dtp_aten *g = m->g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        dtp_aten_node *node = &g->nodes[i];
        size_t parent;
        const size_t n = node->live ? instance_of(node->path, &parent) : 0;
        if (n > 0 && node->n_outs == 1 && g->values[node->outs[0]].node == i &&
            is_outside(g, node) && is_shared(g, i, n)) {
            const char *path = dtp_arena_printf(m->arena, "%.*s", (int)parent, node->path);
            DTP_TRY(DTP_MEMORY(err, path));
            const dtp_aten_value *out = &g->values[node->outs[0]];
            move_up(g, i, n);
            g->nodes[out->node].path = path;
        }
    }
    return DTP_OK;
}
