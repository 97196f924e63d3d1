#include "planner/reports/plan_diff.h"

#include <string.h>

#include "cost_models/predict.h"
#include "spmd/program/peak.h"

/* What is known of one plan before it is compared. */
typedef struct half {
    const dtp_diff_input *input;
    dtp_cost_split *nodes; /* by node */
    int64_t *peak_bytes;   /* by tensor */
} half;

typedef struct making {
    half half[2];
    dtp_arena *arena;
    dtp_plan_diff *out;
} making;

/* ---- costs --------------------------------------------------------------------------------------
 */

static dtp_status split_cost(const dtp_diff_input *in, const dtp_pricer *pricer, half *h,
                             dtp_diff_side *side, dtp_err *err)
{
    const dtp_lower_options plain = {.redistributor = in->options->redistributor};
    dtp_program *program = NULL;
    DTP_TRY(dtp_lower(in->graph, in->sharding, &plain, &program, err));
    dtp_status s = dtp_cost_split_program(pricer, program, h->nodes, &side->cost, err);
    dtp_program_destroy(program);
    return s;
}

static dtp_status count_peak(const dtp_program *p, dtp_arena *arena, half *h, dtp_diff_side *side,
                             dtp_err *err)
{
    dtp_peak peak;
    DTP_TRY(dtp_peak_find(p, arena, &peak, err));
    side->needed_bytes = peak.bytes;
    for (int32_t i = 0; i < peak.n; i++) {
        const dtp_value *v = &p->values[peak.buffers[i].value];
        if (v->tensor >= 0) {
            h->peak_bytes[v->tensor] += peak.buffers[i].bytes;
        } else {
            side->other_bytes += peak.buffers[i].bytes;
        }
    }
    return DTP_OK;
}

static dtp_status price_half(const dtp_machine *machine, dtp_arena *arena, half *h,
                             dtp_diff_side *side, dtp_err *err)
{
    const dtp_diff_input *in = h->input;
    dtp_pricer pricer;
    dtp_program *program = NULL;
    DTP_TRY(dtp_pricer_init(machine, &in->sharding->mesh, &pricer, err));
    DTP_TRY(split_cost(in, &pricer, h, side, err));
    DTP_TRY(dtp_lower(in->graph, in->sharding, in->options, &program, err));
    dtp_status s = dtp_predict(&pricer, program, &side->predicted, err);
    s = s == DTP_OK ? count_peak(program, arena, h, side, err) : s;
    dtp_program_destroy(program);
    return s;
}

/* ---- tensors ------------------------------------------------------------------------------------
 */

static dtp_status print_layout(const dtp_diff_input *in, dtp_tensor_id t, dtp_arena *arena,
                               const char **out, dtp_err *err)
{
    char text[DTP_LAYOUT_TEXT_BYTES];
    dtp_layout_print(&in->sharding->layouts[t], &in->sharding->mesh, &in->graph->tensors[t].type,
                     &in->graph->dims, text);
    *out = dtp_arena_strdup(arena, text);
    return *out != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for layouts");
}

static bool same_mesh(const making *k)
{
    const dtp_mesh *x = &k->half[0].input->sharding->mesh, *y = &k->half[1].input->sharding->mesh;
    bool same = x->n_dims == y->n_dims;
    for (int32_t m = 0; m < x->n_dims && same; m++) {
        same = x->sizes[m] == y->sizes[m] && strcmp(x->names[m], y->names[m]) == 0;
    }
    return same;
}

static bool same_layout(const making *k, const dtp_tensor_id t[2])
{
    const dtp_sharding *x = k->half[0].input->sharding, *y = k->half[1].input->sharding;
    return t[0] >= 0 && t[1] >= 0 && same_mesh(k) &&
           dtp_layout_equal(&x->layouts[t[0]], &y->layouts[t[1]]);
}

/* t[i]: the tensor in graph i, -1 = none. */
static dtp_status compare_tensor(making *k, const dtp_tensor_id t[2], dtp_err *err)
{
    const int which = t[0] >= 0 ? 0 : 1;
    const dtp_graph_tensor *tensor = &k->half[which].input->graph->tensors[t[which]];
    dtp_diff_tensor *out = &k->out->tensors[k->out->n_tensors];
    if (same_layout(k, t)) {
        return DTP_OK;
    }
    *out = (dtp_diff_tensor){.name = tensor->name, .kind = tensor->kind};
    for (int i = 0; i < 2; i++) {
        out->id[i] = t[i];
        if (t[i] >= 0) {
            DTP_TRY(print_layout(k->half[i].input, t[i], k->arena, &out->layout[i], err));
            out->peak_bytes[i] = k->half[i].peak_bytes[t[i]];
        }
    }
    if (t[0] < 0 || t[1] < 0 || strcmp(out->layout[0], out->layout[1]) != 0 ||
        out->peak_bytes[0] != out->peak_bytes[1]) {
        k->out->n_tensors++;
    }
    return DTP_OK;
}

static dtp_status compare_tensors(making *k, dtp_err *err)
{
    const dtp_graph *a = k->half[0].input->graph, *b = k->half[1].input->graph;
    const size_t most = (size_t)a->n_tensors + (size_t)b->n_tensors;
    DTP_TRY(DTP_NEW(k->arena, k->out->tensors, most + 1, err));
    for (int32_t t = 0; t < a->n_tensors; t++) {
        const dtp_tensor_id pair[2] = {t, dtp_graph_find(b, a->tensors[t].name)};
        DTP_TRY(compare_tensor(k, pair, err));
    }
    for (int32_t t = 0; t < b->n_tensors; t++) {
        const dtp_tensor_id pair[2] = {dtp_graph_find(a, b->tensors[t].name), t};
        if (pair[0] < 0) {
            DTP_TRY(compare_tensor(k, pair, err));
        }
    }
    return DTP_OK;
}

/* ---- nodes --------------------------------------------------------------------------------------
 */

/* A node goes by the name of its first output. */
static dtp_node_id find_node(const dtp_graph *g, const dtp_graph *from, dtp_node_id n)
{
    const dtp_tensor_id t = dtp_graph_find(g, from->tensors[from->nodes[n].out[0]].name);
    return t < 0 ? -1 : g->tensors[t].producer;
}

static bool same_node(const making *k, const dtp_node_id n[2])
{
    const dtp_sharding *x = k->half[0].input->sharding, *y = k->half[1].input->sharding;
    return n[0] >= 0 && n[1] >= 0 && same_mesh(k) &&
           memcmp(&x->strategies[n[0]], &y->strategies[n[1]], sizeof *x->strategies) == 0 &&
           memcmp(&k->half[0].nodes[n[0]], &k->half[1].nodes[n[1]], sizeof(dtp_cost_split)) == 0;
}

static dtp_status compare_node(making *k, const dtp_node_id n[2], dtp_err *err)
{
    const int which = n[0] >= 0 ? 0 : 1;
    const dtp_node *node = &k->half[which].input->graph->nodes[n[which]];
    dtp_diff_node *out = &k->out->nodes[k->out->n_nodes];
    if (same_node(k, n)) {
        return DTP_OK;
    }
    *out = (dtp_diff_node){.name = node->name, .op = node->op->name};
    for (int i = 0; i < 2; i++) {
        const dtp_diff_input *in = k->half[i].input;
        out->id[i] = n[i];
        if (n[i] < 0) {
            continue;
        }
        char text[DTP_STRATEGY_TEXT_BYTES];
        dtp_strategy_print(in->graph, n[i], &in->sharding->mesh, &in->sharding->strategies[n[i]],
                           text);
        out->strategy[i] = dtp_arena_strdup(k->arena, text);
        out->cost[i] = k->half[i].nodes[n[i]];
        DTP_TRY(DTP_MEMORY(err, out->strategy[i]));
    }
    if (n[0] < 0 || n[1] < 0 || strcmp(out->strategy[0], out->strategy[1]) != 0 ||
        memcmp(&out->cost[0], &out->cost[1], sizeof out->cost[0]) != 0) {
        k->out->n_nodes++;
    }
    return DTP_OK;
}

static dtp_status compare_nodes(making *k, dtp_err *err)
{
    const dtp_graph *a = k->half[0].input->graph, *b = k->half[1].input->graph;
    const size_t most = (size_t)a->n_nodes + (size_t)b->n_nodes;
    DTP_TRY(DTP_NEW(k->arena, k->out->nodes, most + 1, err));
    for (int32_t n = 0; n < a->n_nodes; n++) {
        const dtp_node_id pair[2] = {n, find_node(b, a, n)};
        DTP_TRY(compare_node(k, pair, err));
    }
    for (int32_t n = 0; n < b->n_nodes; n++) {
        const dtp_node_id pair[2] = {find_node(a, b, n), n};
        if (pair[0] < 0) {
            DTP_TRY(compare_node(k, pair, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_plan_diff_make(const dtp_diff_input inputs[2], const dtp_machine *machine,
                              dtp_arena *arena, dtp_plan_diff *out, dtp_err *err)
{
    making k = {.arena = arena, .out = out};
    memset(out, 0, sizeof *out);
    out->priced = machine != NULL;
    for (int i = 0; i < 2; i++) {
        half *h = &k.half[i];
        const dtp_graph *g = inputs[i].graph;
        h->input = &inputs[i];
        DTP_TRY(DTP_NEW(arena, h->nodes, g->n_nodes, err));
        DTP_TRY(DTP_NEW(arena, h->peak_bytes, g->n_tensors, err));
        if (machine != NULL) {
            DTP_TRY(price_half(machine, arena, h, &out->side[i], err));
        }
    }
    DTP_TRY(compare_tensors(&k, err));
    return compare_nodes(&k, err);
}
