#include "tools/dtplan/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report.h"
#include "core/graph/op_rules.h"

static const char *const KINDS[] = {"input", "param", "state", "value"};
static const char *const PHASES[] = {"forward", "backward", "update"};

const char *tool_tensor_kind(dtp_tensor_kind kind)
{
    return KINDS[kind];
}

/* ---- graph --------------------------------------------------------------------------------------
 */

static void print_attr(const dtp_graph *g, const dtp_op_def *op, int32_t index, const dtp_attr *a,
                       dtp_strbuf *out)
{
    switch (a->kind) {
    case DTP_ATTR_FLOAT:
        dtp_strbuf_addf(out, " %s=%g", a->key, a->f);
        break;
    case DTP_ATTR_ENUM:
        dtp_strbuf_addf(out, " %s=%s", a->key, op->attrs[index].choices[a->i]);
        break;
    case DTP_ATTR_DTYPE:
        dtp_strbuf_addf(out, " %s=%s", a->key, dtp_dtype_name((dtp_dtype)a->i));
        break;
    case DTP_ATTR_DIM:
        dtp_strbuf_addf(out, " %s=%s", a->key, dtp_dims_name(&g->dims, (dtp_dim_id)a->i));
        break;
    case DTP_ATTR_DIMS:
        for (int32_t i = 0; i < a->n; i++) {
            dtp_strbuf_addf(out, "%s%s", i == 0 ? " over=" : "+",
                            dtp_dims_name(&g->dims, a->ids[i]));
        }
        break;
    case DTP_ATTR_INT:
    case DTP_ATTR_BOOL:
        dtp_strbuf_addf(out, " %s=%" PRId64, a->key, a->i);
        break;
    }
}

void tool_print_graph(const dtp_graph *g, dtp_strbuf *out)
{
    int64_t elems = 0, bytes = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind == DTP_TENSOR_VALUE) {
            continue;
        }
        char type[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&tensor->type, &g->dims, type);
        dtp_strbuf_addf(out, "%-8s %s %s\n", KINDS[tensor->kind], tensor->name, type);
        bool param = tensor->kind == DTP_TENSOR_PARAM;
        elems += param ? dtp_ttype_elems(&tensor->type) : 0;
        bytes += tensor->kind == DTP_TENSOR_INPUT ? 0 : dtp_ttype_bytes(&tensor->type);
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        dtp_strbuf_addf(out, "%-8s %s = %s(", PHASES[node->phase], node->name, node->op->name);
        for (int32_t i = 0; i < node->n_in; i++) {
            dtp_strbuf_addf(out, "%s%s", i > 0 ? ", " : "", g->tensors[node->in[i]].name);
        }
        dtp_strbuf_add(out, ")");
        for (int32_t i = 0; i < node->n_attrs; i++) {
            print_attr(g, node->op, i, &node->attrs[i], out);
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            char type[DTP_TTYPE_TEXT_BYTES];
            dtp_ttype_print(&g->tensors[node->out[i]].type, &g->dims, type);
            dtp_strbuf_addf(out, "%s %s", i == 0 ? " ->" : ",", type);
        }
        dtp_strbuf_add(out, "\n");
    }
    dtp_strbuf_addf(out,
                    "# %s: %d tensors, %d nodes, %" PRId64 " parameters, %" PRId64
                    " bytes of parameters and optimizer state\n",
                    g->name, g->n_tensors, g->n_nodes, elems, bytes);
}

/* ---- strategies ---------------------------------------------------------------------------------
 */

static void print_place(const dtp_graph *g, const dtp_ttype *type, const dtp_placement *p,
                        dtp_strbuf *out)
{
    if (p->kind == DTP_SHARD) {
        dtp_strbuf_addf(out, "S(%s)", dtp_dims_name(&g->dims, type->dims[p->axis].id));
    } else if (p->kind == DTP_PARTIAL) {
        dtp_strbuf_addf(out, "P(%s)", dtp_reduce_op_name((dtp_reduce_op)p->op));
    } else {
        dtp_strbuf_add(out, "R");
    }
}

void tool_print_strategies(const dtp_graph *g, dtp_strbuf *out)
{
    for (int32_t n = 0; n < g->n_nodes; n++) {
        dtp_call_types types;
        dtp_sharding_rules set;
        dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        dtp_sharding_rules_of(&call, true, &set);
        dtp_strbuf_addf(out, "%s (%s): %d rows on one mesh dim\n", g->nodes[n].name, call.op->name,
                        set.n);
        for (int32_t r = 0; r < set.n; r++) {
            const dtp_sharding_rule *row = &set.rows[r];
            dtp_strbuf_addf(out, "  %2d ", r);
            for (int32_t i = 0; i < call.n_in; i++) {
                dtp_strbuf_add(out, i > 0 ? ", " : "");
                print_place(g, &call.in[i], &row->in[i], out);
            }
            dtp_strbuf_add(out, " -> ");
            for (int32_t i = 0; i < call.n_out; i++) {
                dtp_strbuf_add(out, i > 0 ? ", " : "");
                print_place(g, &call.out[i], &row->out[i], out);
            }
            dtp_strbuf_add(out, row->internal ? "  (as its decomposition)\n" : "\n");
        }
    }
}

/* ---- plan ---------------------------------------------------------------------------------------
 */

void tool_print_layouts(const dtp_graph *g, const dtp_sharding *s, dtp_strbuf *out)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        char type[DTP_TTYPE_TEXT_BYTES], layout[DTP_LAYOUT_TEXT_BYTES];
        dtp_ttype_print(&tensor->type, &g->dims, type);
        dtp_layout_print(&s->layouts[t], &s->mesh, &tensor->type, &g->dims, layout);
        dtp_strbuf_addf(out, "%-8s %s %s: %s\n", KINDS[tensor->kind], tensor->name, type, layout);
    }
}

/* ---- memory -------------------------------------------------------------------------------------
 */

typedef struct buffer {
    int64_t offset;
    dtp_value_id value;
} buffer;

static int by_offset(const void *a, const void *b)
{
    const buffer *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->value > y->value) - (x->value < y->value);
}

void tool_print_memory(const dtp_program *p, dtp_strbuf *out)
{
    static const char *const kinds[] = {"resident", "input", "temp", "staging", "workspace"};
    buffer *list = calloc((size_t)p->n_values + 1, sizeof *list);
    int32_t n = 0;
    if (list == NULL) {
        out->failed = true;
        return;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].parent < 0) {
            list[n++] = (buffer){p->values[v].offset, v};
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_offset);
    dtp_strbuf_addf(out, "# peak %" PRId64 " bytes per rank, %d buffers\n", p->peak_bytes, n);
    dtp_strbuf_addf(out, "%14s %14s %10s %7s..%-7s %s\n", "offset", "bytes", "kind", "first",
                    "last", "value");
    for (int32_t i = 0; i < n; i++) {
        const dtp_value *v = &p->values[list[i].value];
        dtp_strbuf_addf(out, "%14" PRId64 " %14" PRId64 " %10s %7d..%-7d %s\n", v->offset, v->bytes,
                        kinds[v->kind], v->first, v->last, v->name);
    }
    free(list);
}
