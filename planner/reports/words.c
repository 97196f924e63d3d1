/* The parallelism of every mesh dim (words.h): read from strategies and layouts, not from names. */
#include "planner/reports/words.h"

#include <string.h>

#include "core/graph/op_rules.h"
#include "planner/baselines/baseline_internal.h"

static const double SOME = 0.005; /* a share that is worth a word */

/* ---- facts ---- */

/* Whether a layout splits the tensor over a mesh dim. */
static bool splits(const dtp_layout *l, int32_t mesh_dim)
{
    return l->placement[mesh_dim].kind == DTP_SHARD;
}

/* The tensor dim that a node's strategy splits over a mesh dim; -1: none. */
static dtp_dim_id split_dim(const dtp_graph *g, const dtp_sharding *s, dtp_node_id n,
                            int32_t mesh_dim)
{
    dtp_call_types types;
    dtp_sharding_rules rules;
    const dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
    const int32_t row = s->strategies[n].row[mesh_dim];
    dtp_sharding_rules_of(&call, true, &rules);
    return row > 0 && row < rules.n ? rules.rows[row].dim : -1;
}

/* The operand of a product that is a parameter; -1: none. Convolutions are products. */
static int32_t param_operand(const dtp_graph *g, const dtp_node *n)
{
    int32_t found = -1;
    for (int32_t i = 0; i < n->n_in; i++) {
        found = dtp_graph_param_of(g, n->in[i]) >= 0 ? i : found;
    }
    if (found >= 0 && (n->op->flags & DTP_OP_CONTRACTION) == 0) {
        dtp_call_types types;
        dtp_work work;
        const dtp_op_call call = dtp_node_call(g, n, &types);
        dtp_call_work(&call, &work);
        found = work.cls == DTP_WORK_GEMM ? found : -1;
    }
    return found;
}

static dtp_way way_of(const dtp_graph *g, const dtp_node *n, int32_t operand, dtp_dim_id dim,
                      dtp_dim_id batch)
{
    if (dim < 0) {
        return DTP_WAY_NONE;
    }
    switch (dtp_baseline__use(g, n, operand, dim)) {
    case DTP_USE_NONE:
        return dim == batch ? DTP_WAY_DATA : DTP_WAY_SEQUENCE;
    case DTP_USE_SHARED: /* of a convolution: groups */
        return (n->op->flags & DTP_OP_CONTRACTION) != 0 ? DTP_WAY_EXPERT : DTP_WAY_TENSOR;
    case DTP_USE_MADE:
    case DTP_USE_CONTRACTED:
        break;
    }
    return DTP_WAY_TENSOR;
}

static void add_dim(dtp_words_dim *out, dtp_way way, dtp_dim_id dim)
{
    int32_t *n = &out->n_dims[way], i = 0;
    while (i < *n && out->dims[way][i] != dim) {
        i++;
    }
    if (dim >= 0 && i == *n && i < DTP_WORDS_DIMS) {
        out->dims[way][(*n)++] = dim;
    }
}

/* The product with a parameter that a tensor comes from, by first operands; -1: none. */
static dtp_node_id product_behind(const dtp_graph *g, dtp_tensor_id t)
{
    dtp_node_id n = g->tensors[t].producer;
    while (n >= 0 && param_operand(g, &g->nodes[n]) < 0) {
        n = g->nodes[n].n_in > 0 ? g->tensors[g->nodes[n].in[0]].producer : -1;
    }
    return n;
}

/* The dim that an attribute names; -1: none. */
static dtp_dim_id dim_attr(const dtp_node *n, const char *key)
{
    dtp_dim_id found = -1;
    for (int32_t a = 0; a < n->n_attrs; a++) {
        found = strcmp(n->attrs[a].key, key) == 0 ? (dtp_dim_id)n->attrs[a].i : found;
    }
    return found;
}

/* Products, attention and norms of the forward pass; *used[t]: parameter t is used split. */
static void look_at_nodes(const dtp_graph *g, const dtp_sharding *s, int32_t mesh_dim,
                          dtp_dim_id batch, bool *used, dtp_words_dim *out)
{
    double flops = 0.0;
    for (dtp_node_id i = 0; i < g->n_nodes; i++) {
        const dtp_node *n = &g->nodes[i];
        const dtp_dim_id dim = n->phase == DTP_FORWARD ? split_dim(g, s, i, mesh_dim) : -1;
        const int32_t operand = n->phase == DTP_FORWARD ? param_operand(g, n) : -1;
        if (operand >= 0) {
            dtp_call_types types;
            dtp_work work;
            const dtp_op_call call = dtp_node_call(g, n, &types);
            const dtp_way way = way_of(g, n, operand, dim, batch);
            dtp_call_work(&call, &work);
            out->ways[way] += work.flops;
            flops += work.flops;
            add_dim(out, way, dim);
            if (way == DTP_WAY_TENSOR || way == DTP_WAY_EXPERT) {
                used[dtp_graph_param_of(g, n->in[operand])] = true;
            }
        } else if (dim >= 0 && (n->op->flags & DTP_OP_ATTENTION) != 0) {
            const dtp_dim_id query = dim_attr(n, "query");
            out->context = query == dim ? dim : out->context;
            const dtp_node_id product = product_behind(g, n->in[0]);
            if (query != dim && dim != batch && product >= 0 &&
                split_dim(g, s, product, mesh_dim) == query) {
                out->heads = dim;
                out->sequence = query;
            }
        } else if (dim >= 0 && (n->op->flags & DTP_OP_NORM) != 0 && dim != batch) {
            const dtp_node_id product = product_behind(g, n->in[0]);
            const bool own = product < 0 || split_dim(g, s, product, mesh_dim) != dim;
            out->norms = own ? dim : out->norms; /* else as its product is, such as by heads */
        } else if (dim >= 0 && (n->op->flags & DTP_OP_LOOKUP) != 0) {
            const dtp_tensor_id t = dtp_graph_param_of(g, n->in[0]);
            if (t >= 0 && dtp_ttype_find(&g->tensors[t].type, dim) >= 0) {
                used[t] = true;
            }
            if (t >= 0 && dim_attr(n, "over") == dim) {
                out->table = t;
                out->rows = dim;
            }
        }
    }
    for (int32_t w = 0; w < DTP_N_WAYS && flops > 0.0; w++) {
        out->ways[w] /= flops;
    }
}

/* The parameter that an optimizer state belongs to: the update that makes both; -1: none. */
static dtp_tensor_id param_of_state(const dtp_graph *g, dtp_tensor_id state)
{
    dtp_node_id made = -1;
    for (int32_t u = 0; u < g->n_updates; u++) {
        made = g->updates[u].target == state ? g->tensors[g->updates[u].value].producer : made;
    }
    for (int32_t u = 0; u < g->n_updates && made >= 0; u++) {
        const dtp_tensor_id target = g->updates[u].target;
        if (g->tensors[target].kind == DTP_TENSOR_PARAM &&
            g->tensors[g->updates[u].value].producer == made) {
            return target;
        }
    }
    return -1;
}

/* What is kept split between steps. */
static void look_at_tensors(const dtp_graph *g, const dtp_sharding *s, int32_t mesh_dim,
                            const bool *used, dtp_words_dim *out)
{
    double bytes[2] = {0.0, 0.0}, split[2] = {0.0, 0.0};
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        const bool state = tensor->kind == DTP_TENSOR_STATE && !tensor->per_step;
        const double size = (double)dtp_ttype_bytes(&tensor->type);
        if (tensor->kind == DTP_TENSOR_PARAM) {
            bytes[0] += size;
            split[0] += splits(&s->layouts[t], mesh_dim) && !used[t] ? size : 0.0;
        } else if (state) {
            const dtp_tensor_id param = param_of_state(g, t);
            bytes[1] += size;
            split[1] += param >= 0 && splits(&s->layouts[t], mesh_dim) &&
                                !splits(&s->layouts[param], mesh_dim)
                            ? size
                            : 0.0;
        }
    }
    out->params_split = bytes[0] > 0.0 ? split[0] / bytes[0] : 0.0;
    out->states_split = bytes[1] > 0.0 ? split[1] / bytes[1] : 0.0;
}

dtp_status dtp_words_dim_of(const dtp_graph *g, const dtp_sharding *s, int32_t mesh_dim,
                            dtp_words_dim *out, dtp_err *err)
{
    dtp_dim_id batch = -1;
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    memset(out, 0, sizeof *out);
    out->context = out->norms = out->heads = out->sequence = out->table = out->rows = -1;
    for (dtp_tensor_id t = 0; t < g->n_tensors && batch < 0; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        batch = tensor->kind == DTP_TENSOR_INPUT && tensor->type.rank > 0 ? tensor->type.dims[0].id
                                                                          : -1;
    }
    bool *used = dtp_arena_alloc(arena, (size_t)g->n_tensors + 1, sizeof *used);
    const dtp_status status = DTP_MEMORY(err, used);
    if (status == DTP_OK) {
        look_at_nodes(g, s, mesh_dim, batch, used, out);
        look_at_tensors(g, s, mesh_dim, used, out);
    }
    dtp_arena_destroy(arena);
    return status;
}

/* ---- sentences ---- */

static void print_dims(const dtp_graph *g, const dtp_words_dim *d, dtp_way way, dtp_strbuf *out)
{
    for (int32_t i = 0; i < d->n_dims[way]; i++) {
        dtp_strbuf_addf(out, "%s%s", i == 0 ? "" : ", ", dtp_dims_name(&g->dims, d->dims[way][i]));
    }
}

void dtp_words_dim_print(const dtp_graph *g, const dtp_words_dim *d, dtp_strbuf *out)
{
    static const char *const names[DTP_N_WAYS] = {NULL, "data parallel over ", "split over ",
                                                  "tensor parallel by ", "expert parallel by "};
    const char *between = "";
    int32_t ways = 0;
    for (int32_t w = 1; w < DTP_N_WAYS; w++) {
        ways += d->ways[w] > SOME ? 1 : 0;
    }
    dtp_strbuf_add(out, ways > 1 ? "mixed: " : "");
    for (int32_t w = 1; w < DTP_N_WAYS; w++) {
        if (d->ways[w] <= SOME) {
            continue;
        }
        dtp_strbuf_addf(out, "%s%s", between, names[w]);
        print_dims(g, d, (dtp_way)w, out);
        if (ways > 1 || d->ways[w] < 1.0 - SOME) {
            dtp_strbuf_addf(out, " (%.0f %% of the products)", 100.0 * d->ways[w]);
        }
        between = "; ";
    }
    if (d->context >= 0) {
        dtp_strbuf_addf(out, "%scontext parallel: attention by %s", between,
                        dtp_dims_name(&g->dims, d->context));
        between = "; ";
    } else if (d->heads >= 0) {
        dtp_strbuf_addf(out, "%sUlysses: attention by %s between splits of %s", between,
                        dtp_dims_name(&g->dims, d->heads), dtp_dims_name(&g->dims, d->sequence));
        between = "; ";
    } else if (d->norms >= 0 && d->ways[DTP_WAY_TENSOR] > SOME) {
        dtp_strbuf_addf(out, "%ssequence parallel: norms by %s", between,
                        dtp_dims_name(&g->dims, d->norms));
        between = "; ";
    }
    if (d->table >= 0) {
        dtp_strbuf_addf(out, "%sembedding table %s split by rows, %s", between,
                        g->tensors[d->table].name, dtp_dims_name(&g->dims, d->rows));
        between = "; ";
    }
    if (d->params_split > SOME) {
        dtp_strbuf_addf(out, "%sFSDP: %.0f %% of the parameters kept split", between,
                        100.0 * d->params_split);
        between = "; ";
    }
    if (d->states_split > SOME) {
        dtp_strbuf_addf(out, "%sZeRO: %.0f %% of the optimizer states kept split", between,
                        100.0 * d->states_split);
        between = "; ";
    }
    dtp_strbuf_add(out, between[0] == '\0' ? "replicated: every rank does the same\n" : "\n");
}
