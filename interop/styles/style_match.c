/* What a glob means in a graph, and the collection of pins. */
#include <string.h>

#include "core/base/strbuf.h"
#include "core/transform/microbatch.h"
#include "core/base/glob.h"
#include "interop/styles/style_internal.h"

/* ---- matching ---- */

static bool is_named(const dtp_graph *g, int32_t t)
{
    return g->tensors[t].kind == DTP_TENSOR_PARAM || g->tensors[t].kind == DTP_TENSOR_INPUT;
}

/* By the name that a node has in the model, or in the graph of microbatches. */
static bool names_node(const dtp_graph *g, dtp_node_id n, const char *glob)
{
    const char *own = g->nodes[n].name, *name = dtp_microbatch_name(g, n);
    return dtp_glob_match_prefix(glob, own) || (name != own && dtp_glob_match_prefix(glob, name));
}

static dtp_status fail_unmatched(const dtp_style_job *job, dtp_err *err)
{
    const dtp_graph *g = job->g;
    const char *glob = job->style->glob;
    dtp_near_names near = {{NULL}, {0}};
    for (int32_t n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].phase == DTP_FORWARD) {
            dtp_near_names_offer(&near, glob, dtp_microbatch_name(g, n));
        }
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (is_named(g, t)) {
            dtp_near_names_offer(&near, glob, g->tensors[t].name);
        }
    }
    dtp_strbuf text = {0};
    dtp_near_names_print(&near, &text);
    dtp_status s = text.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of names")
                               : DTP_FAIL(err, DTP_INVALID,
                                          "'%.100s' matches no node and no parameter of '%s'%s",
                                          glob, g->name, dtp_strbuf_text(&text));
    dtp_strbuf_free(&text);
    return s;
}

dtp_status dtp_style__match(dtp_style_job *job, dtp_err *err)
{
    const dtp_graph *g = job->g;
    const char *glob = job->style->glob;
    int32_t found = 0;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        job->node[n] = g->nodes[n].phase == DTP_FORWARD && names_node(g, n, glob);
        found += job->node[n] ? 1 : 0;
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        job->param[t] = is_named(g, t) && dtp_glob_match_prefix(glob, g->tensors[t].name);
        found += job->param[t] ? 1 : 0;
    }
    return found > 0 ? DTP_OK : fail_unmatched(job, err);
}

int32_t dtp_style__axis(const dtp_graph *g, dtp_tensor_id t, const char *name)
{
    dtp_dim_id d = dtp_dims_find(&g->dims, name);
    return d < 0 ? -1 : dtp_ttype_find(&g->tensors[t].type, d);
}

/* ---- pins ---- */

dtp_status dtp_style__pin(dtp_style_job *job, dtp_tensor_id t, dtp_node_id node, int32_t axis,
                          dtp_err *err)
{
    int32_t i = job->first_pin[t];
    while (i >= 0 && job->pins[i].pin.node != node) {
        i = job->next_pin[i];
    }
    if (i < 0) {
        DTP_TRY(dtp_arena_grow(job->arena, &job->pins, job->n_pins, job->n_pins + 1, &job->cap_pins,
                               sizeof *job->pins, err));
        DTP_TRY(dtp_arena_grow(job->arena, &job->next_pin, job->n_pins, job->n_pins + 1,
                               &job->cap_next, sizeof *job->next_pin, err));
        i = job->n_pins++;
        job->next_pin[i] = job->first_pin[t];
        job->first_pin[t] = i;
        job->pins[i] =
            (dtp_style_pin){.pin = {.tensor = t,
                                    .node = node,
                                    .layout = dtp_layout_replicated(job->g->tensors[t].type.rank,
                                                                    job->mesh->n_dims)}};
    }
    dtp_style_pin *p = &job->pins[i];
    const dtp_placement *place = &p->pin.layout.placement[job->m];
    if ((p->pin.dims >> job->m & 1U) != 0) {
        const bool same = axis < 0 ? place->kind == DTP_REPLICATE
                                   : place->kind == DTP_SHARD && place->axis == axis;
        if (same) {
            return DTP_OK;
        }
        dtp_layout wanted = dtp_layout_replicated(p->pin.layout.rank, p->pin.layout.n_mesh);
        if (axis >= 0) {
            dtp_layout_split(&wanted, job->m, axis);
        }
        const dtp_graph_tensor *tensor = &job->g->tensors[t];
        char have[DTP_LAYOUT_TEXT_BYTES], want[DTP_LAYOUT_TEXT_BYTES];
        dtp_layout_print(&p->pin.layout, job->mesh, &tensor->type, &job->g->dims, have);
        dtp_layout_print(&wanted, job->mesh, &tensor->type, &job->g->dims, want);
        return DTP_FAIL(err, DTP_INVALID,
                        "it pins '%.100s'%s%.100s to '%.150s', but '%.150s' pinned it to '%.150s'",
                        tensor->name, node >= 0 ? " as read by " : "",
                        node >= 0 ? job->g->nodes[node].name : "", want, p->by[job->m]->text, have);
    }
    if (axis >= 0) {
        dtp_layout_split(&p->pin.layout, job->m, axis);
    }
    p->pin.dims |= 1U << job->m;
    p->by[job->m] = job->style;
    return DTP_OK;
}

dtp_status dtp_style__pin_param(dtp_style_job *job, dtp_tensor_id t, int32_t axis, dtp_err *err)
{
    const dtp_tensor_id param = dtp_graph_param_of(job->g, t);
    DTP_TRY(dtp_style__pin(job, t, -1, axis, err));
    while (t != param) {
        const dtp_node_id copy = job->g->tensors[t].producer;
        t = job->g->nodes[copy].in[0];
        DTP_TRY(dtp_style__pin(job, t, -1, axis, err));
        DTP_TRY(dtp_style__pin(job, t, copy, axis, err));
    }
    return DTP_OK;
}

const dtp_placement *dtp_style__place(const dtp_style_job *job, dtp_tensor_id t, dtp_node_id node,
                                      int32_t m)
{
    for (int32_t i = job->first_pin[t]; i >= 0; i = job->next_pin[i]) {
        const dtp_pin *pin = &job->pins[i].pin;
        if (pin->node == node && (pin->dims >> m & 1U) != 0) {
            return &pin->layout.placement[m];
        }
    }
    return NULL;
}
