/* A program of ATen ops, as torch.export writes it: values, and nodes in the order in which they
 * run. */
#include "importers/aten/aten_graph.h"

#include <string.h>

static const struct {
    int64_t bytes;
    const char *name;
} types[16] = {[ATEN_U8] = {1, NULL},     [ATEN_I8] = {1, NULL},   [ATEN_I16] = {2, NULL},
               [ATEN_I32] = {4, "i32"},   [ATEN_I64] = {8, "i64"}, [ATEN_F16] = {2, "f16"},
               [ATEN_F32] = {4, "f32"},   [ATEN_F64] = {8, "f64"}, [ATEN_BOOL] = {1, "bool"},
               [ATEN_BF16] = {2, "bf16"}, [10] = {8, NULL},        [11] = {16, NULL}};

int64_t dtp_aten_bytes(int32_t dtype)
{
    return dtype >= 0 && dtype < 16 ? types[dtype].bytes : 0;
}

const char *dtp_aten_type(int32_t dtype)
{
    return dtype >= 0 && dtype < 16 ? types[dtype].name : NULL;
}

static int32_t kind_of(int32_t dtype)
{
    return dtp_aten_real_type(dtype) ? 2 : dtype == ATEN_BOOL ? 0 : 1;
}

int32_t dtp_aten_promote(int32_t a, int32_t b, bool equal)
{
    if (a < 0 || kind_of(a) != kind_of(b)) {
        return a < 0 || kind_of(a) < kind_of(b) ? b : a;
    }
    if (!equal || a == b) {
        return a;
    }
    if (dtp_aten_bytes(a) == dtp_aten_bytes(b)) { /* f16 and bf16; u8 and i8 */
        return kind_of(a) == 2 ? ATEN_F32 : ATEN_I16;
    }
    return dtp_aten_bytes(a) > dtp_aten_bytes(b) ? a : b;
}

const dtp_aten_arg *dtp_aten_arg_of(const dtp_aten_node *node, const char *name)
{
    for (int32_t i = 0; i < node->n_args; i++) {
        if (strcmp(node->args[i].name, name) == 0) {
            return node->args[i].kind == ATEN_NONE ? NULL : &node->args[i];
        }
    }
    return NULL;
}

int32_t dtp_aten_operand(const dtp_aten_node *node, const char *name)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    return a != NULL && a->kind == ATEN_VALUE ? a->values[0] : -1;
}

int64_t dtp_aten_int(const dtp_aten_node *node, const char *name, int64_t fallback)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    return a != NULL && (a->kind == ATEN_INT || a->kind == ATEN_BOOLEAN) ? a->ints[0] : fallback;
}

double dtp_aten_real(const dtp_aten_node *node, const char *name, double fallback)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    const bool number =
        a != NULL && (a->kind == ATEN_INT || a->kind == ATEN_FLOAT || a->kind == ATEN_BOOLEAN);
    return number ? a->real : fallback;
}

static void need(dtp_aten *g, int32_t value)
{
    if (value >= 0 && g->values[value].node >= 0) {
        g->nodes[g->values[value].node].live = true;
    }
}

void dtp_aten_mark(dtp_aten *g)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        g->nodes[i].live = g->nodes[i].effect;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        need(g, g->outputs[i]);
    }
    for (int32_t i = 0; i < g->n_inputs; i++) {
        const int32_t update = g->values[g->inputs[i]].update;
        need(g, update > 0 ? update : -1);
    }
    for (int32_t i = g->n_nodes; i-- > 0;) { /* operands stand before their use */
        const dtp_aten_node *node = &g->nodes[i];
        for (int32_t k = 0; k < node->n_args && node->live; k++) {
            const dtp_aten_arg *a = &node->args[k];
            for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
                need(g, a->values[j]);
            }
        }
    }
}

bool dtp_aten_is(const dtp_aten_node *node, const char *name)
{
    const size_t n = strlen(name);
    if (node == NULL || strncmp(node->op, "aten.", 5) != 0) {
        return node != NULL && strncmp(name, "dtp.", 4) == 0 && strcmp(node->op, name) == 0;
    }
    const char *op = node->op + 5;
    return strncmp(op, name, n) == 0 && (op[n] == '.' || op[n] == '\0');
}

int32_t dtp_aten_from(const dtp_aten *g, const dtp_aten_node *node, int32_t i)
{
    const dtp_aten_value *v = &g->values[dtp_aten_input(node, 0)], *out = &g->values[node->outs[0]];
    if (dtp_aten_is(node, "expand") || dtp_aten_is(node, "expand_as")) {
        const int32_t at = i - (out->rank - v->rank);
        return at >= 0 && v->sizes[at] != 1 ? at : -1;
    }
    const dtp_aten_arg *dims = dtp_aten_arg_of(node, "dims");
    if (dims != NULL) {
        return i < dims->n && dims->kind == ATEN_INTS ? dtp_aten_axis(dims->ints[i], v->rank) : -1;
    }
    if (dtp_aten_is(node, "t") || dtp_aten_is(node, "numpy_T")) {
        return v->rank - 1 - i;
    }
    const int64_t last = dtp_aten_is(node, "mT") ? -1 : 0;
    const int64_t first = dtp_aten_int(node, "axis0", last),
                  second = dtp_aten_int(node, "axis1", 2 * last);
    const int32_t a = dtp_aten_axis(dtp_aten_int(node, "dim0", first), v->rank);
    const int32_t b = dtp_aten_axis(dtp_aten_int(node, "dim1", second), v->rank);
    return a < 0 || b < 0 ? -1 : i == a ? b : i == b ? a : i;
}

bool dtp_aten_reduces(const dtp_aten *g, const dtp_aten_node *node, int32_t axis)
{
    const dtp_aten_arg *dim = dtp_aten_arg_of(node, "dim");
    const int32_t rank = g->values[dtp_aten_input(node, 0)].rank;
    const int32_t n = dim == NULL ? 0 : dim->kind == ATEN_INT ? 1 : dim->n;
    for (int32_t i = 0; i < n; i++) {
        if (dtp_aten_axis(dim->ints[i], rank) == axis) {
            return true;
        }
    }
    return n == 0;
}

bool dtp_aten_all_are(const dtp_aten_node *node, const char *name, int64_t is)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    bool all = a == NULL || a->kind == ATEN_INTS;
    for (int32_t i = 0; a != NULL && i < a->n && all; i++) {
        all = a->ints[i] == is;
    }
    return all;
}
