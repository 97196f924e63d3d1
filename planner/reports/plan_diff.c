/* What two plans of one model do differently, and what each difference costs. */
#include "planner/reports/plan_diff.h"

#include <stdlib.h>
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
    bool same_mesh;
    dtp_arena *arena;
    dtp_plan_diff *out;
} making;

/* ---- costs ---- */

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
    DTP_TRY(dtp_pricer_init(machine, &in->sharding->mesh, in->options->target, &pricer, err));
    const dtp_lower_options plain = {
        .redistributor = in->options->redistributor, .target = in->options->target, .plain = true};
    DTP_TRY(dtp_lower(in->graph, in->sharding, &plain, &program, err));
    dtp_status s = dtp_cost_split_program(&pricer, program, arena, h->nodes, &side->cost, err);
    dtp_program_destroy(program);
    DTP_TRY(s);
    DTP_TRY(dtp_lower(in->graph, in->sharding, in->options, &program, err));
    s = dtp_predict(&pricer, program, &side->predicted, err);
    s = s == DTP_OK ? count_peak(program, arena, h, side, err) : s;
    dtp_program_destroy(program);
    return s;
}

/* ---- tensors ---- */

/* A tensor is compared with that of its name; those that only one plan has differ. */
static dtp_status compare_tensors(making *k, dtp_err *err)
{
    const dtp_sharding *x = k->half[0].input->sharding, *y = k->half[1].input->sharding;
    const dtp_graph *const g[2] = {k->half[0].input->graph, k->half[1].input->graph};
    DTP_TRY(DTP_NEW(k->arena, k->out->tensors, g[0]->n_tensors + g[1]->n_tensors + 1, err));
    for (int32_t n = 0; n < g[0]->n_tensors + g[1]->n_tensors; n++) {
        const int side = n < g[0]->n_tensors ? 0 : 1;
        const dtp_tensor_id t = side == 0 ? n : n - g[0]->n_tensors;
        const dtp_graph_tensor *tensor = &g[side]->tensors[t];
        const dtp_tensor_id other = dtp_graph_find(g[1 - side], tensor->name);
        dtp_diff_tensor *out = &k->out->tensors[k->out->n_tensors];
        if (other >= 0 &&
            (side == 1 || (k->same_mesh && dtp_layout_equal(&x->layouts[t], &y->layouts[other])))) {
            continue;
        }
        *out = (dtp_diff_tensor){.name = tensor->name, .kind = tensor->kind, .id = {other, other}};
        out->id[side] = t;
        for (int i = 0; i < 2; i++) {
            if (out->id[i] >= 0) {
                const dtp_sharding *s = k->half[i].input->sharding;
                char text[DTP_LAYOUT_TEXT_BYTES];
                dtp_layout_print(&s->layouts[out->id[i]], &s->mesh, &g[i]->tensors[out->id[i]].type,
                                 &g[i]->dims, text);
                out->layout[i] = dtp_arena_strdup(k->arena, text);
                DTP_TRY(DTP_MEMORY(err, out->layout[i]));
                out->peak_bytes[i] = k->half[i].peak_bytes[out->id[i]];
            }
        }
        k->out->n_tensors += other < 0 || strcmp(out->layout[0], out->layout[1]) != 0 ||
                                     out->peak_bytes[0] != out->peak_bytes[1]
                                 ? 1
                                 : 0;
    }
    return DTP_OK;
}

/* ---- nodes ---- */

/* A node goes by the name of its first output. */
static dtp_status compare_nodes(making *k, dtp_err *err)
{
    const dtp_sharding *x = k->half[0].input->sharding, *y = k->half[1].input->sharding;
    const dtp_graph *const g[2] = {k->half[0].input->graph, k->half[1].input->graph};
    DTP_TRY(DTP_NEW(k->arena, k->out->nodes, g[0]->n_nodes + g[1]->n_nodes + 1, err));
    for (int32_t i = 0; i < g[0]->n_nodes + g[1]->n_nodes; i++) {
        const int side = i < g[0]->n_nodes ? 0 : 1;
        const dtp_node_id n = side == 0 ? i : i - g[0]->n_nodes;
        const dtp_node *node = &g[side]->nodes[n];
        const dtp_tensor_id t = dtp_graph_find(g[1 - side], g[side]->tensors[node->out[0]].name);
        const dtp_node_id other = t < 0 ? -1 : g[1 - side]->tensors[t].producer;
        dtp_diff_node *out = &k->out->nodes[k->out->n_nodes];
        if (other >= 0 && (side == 1 || (k->same_mesh &&
                                         memcmp(&x->strategies[n], &y->strategies[other],
                                                sizeof *x->strategies) == 0 &&
                                         memcmp(&k->half[0].nodes[n], &k->half[1].nodes[other],
                                                sizeof(dtp_cost_split)) == 0))) {
            continue;
        }
        *out = (dtp_diff_node){.name = node->name, .op = node->op->name, .id = {other, other}};
        out->id[side] = n;
        for (int h = 0; h < 2; h++) {
            if (out->id[h] >= 0) {
                const dtp_sharding *s = k->half[h].input->sharding;
                char text[DTP_STRATEGY_TEXT_BYTES];
                dtp_strategy_print(g[h], out->id[h], &s->mesh, &s->strategies[out->id[h]], text);
                out->strategy[h] = dtp_arena_strdup(k->arena, text);
                DTP_TRY(DTP_MEMORY(err, out->strategy[h]));
                out->cost[h] = k->half[h].nodes[out->id[h]];
            }
        }
        k->out->n_nodes += other < 0 || strcmp(out->strategy[0], out->strategy[1]) != 0 ||
                                   memcmp(&out->cost[0], &out->cost[1], sizeof out->cost[0]) != 0
                               ? 1
                               : 0;
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
    const dtp_mesh *x = &inputs[0].sharding->mesh, *y = &inputs[1].sharding->mesh;
    k.same_mesh = x->n_dims == y->n_dims;
    for (int32_t m = 0; m < x->n_dims && k.same_mesh; m++) {
        k.same_mesh = x->sizes[m] == y->sizes[m] && strcmp(x->names[m], y->names[m]) == 0;
    }
    DTP_TRY(compare_tensors(&k, err));
    return compare_nodes(&k, err);
}

/* By the size of the difference, largest first. */
typedef struct ranked {
    int64_t size;
    int32_t index;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->size != y->size) {
        return x->size > y->size ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

dtp_status dtp_plan_diff_order(const dtp_plan_diff *diff, bool nodes, dtp_arena *arena,
                               int32_t **out, dtp_err *err)
{
    const int32_t n = nodes ? diff->n_nodes : diff->n_tensors;
    int32_t *order;
    ranked *rows;
    DTP_TRY(DTP_NEW(arena, rows, n + 1, err));
    DTP_TRY(DTP_NEW(arena, order, n + 1, err));
    for (int32_t i = 0; i < n; i++) {
        rows[i] =
            (ranked){nodes ? llabs(dtp_cost_split_sum(&diff->nodes[i].cost[1]) -
                                   dtp_cost_split_sum(&diff->nodes[i].cost[0]))
                           : llabs(diff->tensors[i].peak_bytes[1] - diff->tensors[i].peak_bytes[0]),
                     i};
    }
    qsort(rows, (size_t)n, sizeof *rows, compare_ranked);
    for (int32_t i = 0; i < n; i++) {
        order[i] = rows[i].index;
    }
    *out = order;
    return DTP_OK;
}
