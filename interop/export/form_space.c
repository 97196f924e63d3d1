/* The plans of which nothing of some kinds is lost, for a search: which layouts must be equal,
 * and which layouts of single tensors may be. */
#include "interop/export/form_space.h"

static bool loses(const dtp_form_space *s, dtp_lost_kind kind)
{
    return (s->loses >> kind & 1U) != 0;
}

static dtp_layout_place kept(dtp_tensor_id t)
{
    return (dtp_layout_place){t, -1, 0};
}

/* As the first node of the forward pass reads it. */
static dtp_layout_place read(const dtp_placements *p, dtp_tensor_id t)
{
    return (dtp_layout_place){t, p->uses.reader[t], p->uses.operand[t]};
}

static dtp_status tie(dtp_form_space *s, dtp_layout_place a, dtp_layout_place b, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(s->p->arena, &s->ties, s->n_ties, s->n_ties + 1, &s->capacity,
                           sizeof *s->ties, err));
    s->ties[s->n_ties++] = (dtp_layout_tie){a, b};
    return DTP_OK;
}

/* Other readers read a tensor as the first does. */
static dtp_status tie_readers(dtp_form_space *s, const dtp_node *node, dtp_node_id n, dtp_err *err)
{
    const dtp_placements *p = s->p;
    const bool forward = node->phase == DTP_FORWARD;
    for (int32_t i = 0; i < node->n_in && node->phase != DTP_UPDATE; i++) {
        const dtp_tensor_id t = dtp_uses_of_layouts_tensor(p->graph, node, i);
        const bool first = t >= 0 && p->uses.reader[t] == n && p->uses.operand[t] == i;
        const bool speaks = t >= 0 && p->uses.reader[t] >= 0 && !first &&
                            (forward ? loses(s, DTP_LOST_READERS) && dtp_placements_sum(p, t) < 0
                                     : loses(s, DTP_LOST_BACKWARD) &&
                                           p->graph->tensors[t].kind == DTP_TENSOR_PARAM);
        if (speaks) {
            DTP_TRY(tie(s, read(p, t), (dtp_layout_place){node->in[i], n, i}, err));
        }
    }
    return DTP_OK;
}

/* Gradients and states are kept as their parameters. */
static dtp_status tie_training(dtp_form_space *s, dtp_err *err)
{
    const dtp_graph *g = s->p->graph;
    for (int32_t i = 0; i < g->n_grads && loses(s, DTP_LOST_GRADIENTS); i++) {
        DTP_TRY(tie(s, kept(g->grads[i].param), kept(g->grads[i].grad), err));
    }
    for (dtp_node_id n = 0; n < g->n_nodes && loses(s, DTP_LOST_STATES); n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            const dtp_tensor_id param = dtp_placements_state_of(g, &g->nodes[n], i);
            if (param >= 0) {
                DTP_TRY(tie(s, kept(param), kept(g->nodes[n].in[i]), err));
            }
        }
    }
    return DTP_OK;
}

static bool is_output(const dtp_placements *p, dtp_tensor_id t)
{
    bool is = false;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        is = is || p->outputs[i].of[0] == t;
    }
    return is;
}

/* A value that no module makes stays where it is made; so does a product up to the bias that its
 * module adds. */
static dtp_status tie_value(dtp_form_space *s, dtp_tensor_id t, dtp_err *err)
{
    const dtp_placements *p = s->p;
    const dtp_graph_tensor *tensor = &p->graph->tensors[t];
    const dtp_layout_place made = {t, tensor->producer, DTP_MAX_OP_IN + tensor->out_index};
    const dtp_tensor_id sum = dtp_placements_sum(p, t);
    const bool inside = loses(s, DTP_LOST_INSIDE);
    const bool bound = dtp_placements_maker(p, sum >= 0 ? sum : t) != NULL;
    if (p->uses.reader[t] >= 0 && inside && (!bound || sum >= 0)) {
        DTP_TRY(tie(s, kept(t), read(p, t), err));
    }
    return inside && !bound && !(sum >= 0 && is_output(p, sum)) ? tie(s, made, kept(t), err)
                                                                : DTP_OK;
}

dtp_status dtp_form_space_make(uint32_t kinds, const dtp_placements *p, dtp_form_space *out,
                               dtp_err *err)
{
    const dtp_graph *g = p->graph;
    *out = (dtp_form_space){.loses = kinds, .p = p};
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        DTP_TRY(tie_readers(out, &g->nodes[n], n, err));
        for (int32_t i = 0; i < g->nodes[n].n_out && g->nodes[n].phase == DTP_FORWARD; i++) {
            const dtp_tensor_id t = g->nodes[n].out[i];
            if (dtp_graph_param_of(g, t) < 0 && !is_output(p, t)) {
                DTP_TRY(tie_value(out, t, err));
            }
        }
    }
    return tie_training(out, err);
}

bool dtp_form_takes_layout(const dtp_form_space *space, dtp_tensor_id t, const dtp_layout *layout,
                           bool kept_so)
{
    const dtp_graph *g = space->p->graph;
    const bool value = g->tensors[t].out_index == 0 && dtp_placements_is_value(g, t);
    const bool partial = dtp_layout_has_partial(layout);
    bool sum = partial && loses(space, DTP_LOST_PARTIAL) && value;
    for (dtp_node_id n = 0; n < g->n_nodes && partial && loses(space, DTP_LOST_TERMS); n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in && dtp_placements_sums(g, &g->nodes[n]); i++) {
            sum = sum || g->nodes[n].in[i] == t;
        }
    }
    return !sum && (dtp_placements_loses(space->p, t, layout, kept_so) & space->loses) == 0;
}

bool dtp_form_has_data(const dtp_form_space *space, dtp_tensor_id t, const dtp_layout *layout,
                       bool kept_so)
{
    const dtp_graph *g = space->p->graph;
    const dtp_graph_tensor *tensor = &g->tensors[t];
    const bool param = tensor->kind == DTP_TENSOR_PARAM || dtp_graph_param_of(g, t) >= 0;
    const bool value = tensor->kind == DTP_TENSOR_INPUT || dtp_placements_is_value(g, t);
    const dtp_ttype *fed =
        space->p->n_inputs > 0 ? &g->tensors[space->p->inputs[0].of[0]].type : NULL;
    const int32_t axis =
        value && fed != NULL && fed->rank > 0 ? dtp_ttype_find(&tensor->type, fed->dims[0].id) : -1;
    bool has = true;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *at = &layout->placement[m];
        if ((space->data_dims & 1U << m) != 0) {
            has = has && (param       ? kept_so || at->kind == DTP_REPLICATE
                          : axis >= 0 ? at->kind == DTP_SHARD && at->axis == axis
                                      : true);
        }
    }
    return has;
}
