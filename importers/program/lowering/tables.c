/* Tables: constants that are stored beside the weights, as parameters that nothing trains. */
#include "importers/program/lowering/tables.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "importers/program/lowering/aten_ops.h"

enum { MOST_EXACT = 1 << 24 }; /* of f32 */

/* Elements of 4 bytes, or of 8; the axes of `same` are left out. */
static dtp_status write_elements(dtp_importer *m, dtp_aten_value *v, const dtp_const *c,
                                 dtp_err *err)
{
    const bool wide = v->stored == ATEN_F64;
    const double most = wide ? DBL_MAX : (double)FLT_MAX;
    int64_t n = 1, index[DTP_MAX_RANK] = {0};
    for (int32_t i = 0; i < v->rank; i++) {
        n *= (v->same >> i & 1) == 0 ? v->sizes[i] : 1; /* no more than the constant has */
    }
    char *data = dtp_arena_alloc(m->arena, (size_t)n, wide ? sizeof(double) : sizeof(float));
    DTP_TRY(DTP_MEMORY(err, data));
    for (int64_t k = 0; k < n; k++) {
        int64_t at = 0;
        for (int32_t i = 0; i < v->rank; i++) {
            at += c->strides[i] * index[i];
        }
        double x = dtp_const_at(c, at);
        if (!dtp_aten_real_type(v->dtype) && !(fabs(x) <= MOST_EXACT)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "%s: the table '%s' has the integer %.17g: at most %d", m->g->file,
                            v->source, x, MOST_EXACT);
        }
        x = x > most ? most : x < -most ? -most : x;
        const float narrow = (float)x;
        memcpy(data + k * (wide ? 8 : 4), wide ? (const void *)&x : &narrow, wide ? 8 : 4);
        for (int32_t i = v->rank; i-- > 0;) {
            if ((v->same >> i & 1) == 0 && ++index[i] < v->sizes[i]) {
                break;
            }
            index[i] = 0;
        }
    }
    v->data = data;
    v->bytes = n * (wide ? 8 : 4);
    return DTP_OK;
}

/* Makes a value a table. Its name is one that nothing else has. */
static dtp_status store(dtp_importer *m, int32_t value, const char *name, dtp_err *err)
{
    dtp_aten_value *v = &m->g->values[value];
    const dtp_const *c = &m->consts[value];
    const bool computed = v->role == ATEN_NODE;
    char *id = dtp_arena_printf(m->arena, "%.100s", name[0] == '\0' ? "table" : name);
    DTP_TRY(DTP_MEMORY(err, id));
    for (char *at = id; *at != '\0'; at++) {
        const bool good = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                          (*at >= '0' && *at <= '9') || strchr("_.-/", *at) != NULL;
        *at = good ? *at : '_';
    }
    v->source = id;
    for (int32_t k = 2; dtp_name_find(&m->g->sources, v->source) >= 0; k++) {
        v->source = dtp_arena_printf(m->arena, "%s_%d", id, k);
        DTP_TRY(DTP_MEMORY(err, v->source));
    }
    DTP_TRY(dtp_name_add(&m->g->sources, m->arena, v->source, value, err));
    v->role = ATEN_PARAM;
    v->node = -1;
    v->table = v->frozen = true;
    v->stored = dtp_aten_real_type(v->dtype) ? v->dtype : ATEN_F32;
    if (dtp_const_known(c)) {
        v->stored = v->dtype == ATEN_F64 ? ATEN_F64 : ATEN_F32;
        for (int32_t i = 0; i < v->rank; i++) {
            v->same |= c->strides[i] == 0 ? UINT32_C(1) << i : 0;
        }
        DTP_TRY(write_elements(m, v, c, err));
    }
    if (computed) {
        m->g->inputs[m->g->n_inputs++] = value;
    }
    return DTP_OK;
}

/* Whether a node makes a constant whose elements are known, and that is stored: no row of ours
 * computes it, or it is of integers and made of tables. What is computed by nodes of ours stays so:
 * sizes are free in it. */
static bool is_stored(const dtp_importer *m, const dtp_aten_node *node, const bool *table)
{
    const int32_t out = node->n_outs == 1 ? node->outs[0] : -1;
    bool of_tables = false;
    if (node->effect || out < 0 || m->g->values[out].role != ATEN_NODE ||
        !dtp_const_known(&m->consts[out])) {
        return false;
    }
    for (int32_t k = 0; k < node->n_args; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
            const int32_t v = node->args[k].values[j];
            of_tables = of_tables || (v >= 0 && table[v]);
        }
    }
    return dtp_aten_op_find(node) == NULL ||
           (dtp_aten_is(node, "pow") && dtp_aten_operand(node, "exponent") >= 0) ||
           (of_tables && !dtp_aten_real_type(m->g->values[out].dtype));
}

static dtp_status store_output(dtp_importer *m, int32_t value, const bool *table, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    if (!table[value] || v->role == ATEN_PARAM) {
        return DTP_OK;
    }
    const char *name = v->source;
    if (v->node >= 0) { /* "layers.0.attn.eye" */
        const dtp_aten_node *made = &m->g->nodes[v->node];
        const char *op = strchr(made->op, '.') == NULL ? made->op : strchr(made->op, '.') + 1;
        name = dtp_arena_printf(m->arena, "%s%s%.*s", made->path, made->path[0] == '\0' ? "" : ".",
                                (int)strcspn(op, "."), op);
    }
    DTP_TRY(DTP_MEMORY(err, name));
    return store(m, value, name, err);
}

dtp_status dtp_tables_store(dtp_importer *m, dtp_err *err)
{
    dtp_aten *g = m->g;
    int32_t *inputs;
    bool *table; /* by value */
    DTP_TRY(DTP_NEW(m->arena, inputs, g->n_inputs + g->n_nodes + 1, err));
    DTP_TRY(DTP_NEW(m->arena, table, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_inputs; i++) {
        inputs[i] = g->inputs[i];
        const dtp_aten_value *v = &g->values[inputs[i]];
        table[inputs[i]] =
            v->role == ATEN_BUFFER && (dtp_const_known(&m->consts[inputs[i]]) || v->update > 0 ||
                                       (v->data != NULL && dtp_aten_real_type(v->dtype)));
    }
    g->inputs = inputs;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const dtp_aten_node *node = &g->nodes[i];
        if (!node->live) {
            continue;
        }
        if (is_stored(m, node, table)) {
            table[node->outs[0]] = true;
            continue;
        }
        for (int32_t k = 0; k < node->n_args; k++) {
            for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
                const int32_t v = node->args[k].values[j];
                DTP_TRY(v < 0 ? DTP_OK : store_output(m, v, table, err));
            }
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        DTP_TRY(store_output(m, g->outputs[i], table, err));
    }
    dtp_aten_mark(g);
    return DTP_OK;
}
