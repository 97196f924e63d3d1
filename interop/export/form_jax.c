/* --as jax: a PartitionSpec per parameter, and per activation, input and output that a constraint
 * binds by name: per axis null, a mesh dim, or several, the outermost first. JAX has no uneven
 * shards and no terms of a sum: what such a layout says beyond that is lost. */
#include "interop/export/forms.h"

/* Of the mesh dims that split an axis, the outermost ones that divide it. */
static int32_t even_splits(const dtp_placements *p, const dtp_placed *t, const dtp_layout *layout,
                           int32_t axis, int32_t mesh_dims[DTP_MAX_MESH_DIMS])
{
    const int32_t n = dtp_layout_axis_splits(layout, axis, mesh_dims);
    int64_t size = t->type.dims[axis].size;
    int32_t even = 0;
    while (even < n && size % p->plan->mesh.sizes[mesh_dims[even]] == 0) {
        size /= p->plan->mesh.sizes[mesh_dims[even++]];
    }
    return even;
}

static void write_spec(const dtp_placements *p, const char *key, const dtp_placed *t,
                       const dtp_layout *layout, dtp_json_writer *w)
{
    dtp_json_begin_array(w, key, true);
    for (int32_t a = 0; a < t->type.rank; a++) {
        int32_t dims[DTP_MAX_MESH_DIMS];
        const int32_t n = even_splits(p, t, layout, a, dims);
        if (n == 0) {
            dtp_json_write_null(w, NULL);
        }
        if (n > 1) {
            dtp_json_begin_array(w, NULL, true);
        }
        for (int32_t i = 0; i < n; i++) {
            dtp_json_write_string(w, NULL, p->plan->mesh.names[dims[i]]);
        }
        if (n > 1) {
            dtp_json_end_array(w);
        }
    }
    dtp_json_end_array(w);
}

static bool is_partial(const dtp_layout *layout)
{
    const dtp_layout whole = dtp_layout_without_partial(layout);
    return !dtp_layout_equal(layout, &whole);
}

/* Tensors by name. Where one layout has terms of a sum the other one is said; where both have, JAX
 * chooses, but for outputs, which are sums. */
static dtp_status write_tensors(const dtp_placements *p, const char *key, int32_t n,
                                const dtp_placed *list, dtp_lost *lost, dtp_json_writer *w,
                                dtp_err *err)
{
    dtp_json_begin_object(w, key);
    for (int32_t i = 0; i < n; i++) {
        const dtp_placed *t = &list[i];
        const bool kept_terms = is_partial(&t->kept), read_terms = is_partial(&t->read);
        const dtp_layout *kept = kept_terms ? &t->read : &t->kept;
        const dtp_layout *read = read_terms ? &t->kept : &t->read;
        int64_t shape[DTP_MAX_RANK];
        if (kept_terms || read_terms) {
            DTP_TRY(dtp_lost_add(lost, p->arena, DTP_LOST_PARTIAL, t->name, err));
        }
        if (kept_terms && read_terms && list != p->outputs) {
            continue;
        }
        for (int32_t a = 0; a < t->type.rank; a++) {
            shape[a] = t->type.dims[a].size;
        }
        dtp_json_begin_line(w, t->name);
        dtp_json_write_ints(w, "shape", t->type.rank, shape);
        write_spec(p, "kept", t, kept, w);
        if (!dtp_layout_equal(kept, read) && !(kept_terms && read_terms)) {
            write_spec(p, "read", t, read, w);
        }
        if (t->frozen) {
            dtp_json_write_bool(w, "frozen", true);
        }
        dtp_json_end_object(w);
    }
    dtp_json_end_object(w);
    return DTP_OK;
}

/* The forward values that are read as they are made, by the name of their node. The plan does not
 * redistribute them, but JAX may when it is not told where they lie. */
static dtp_status find_values(const dtp_placements *p, dtp_lost *lost, int32_t *n, dtp_placed **out,
                              dtp_err *err)
{
    const dtp_graph *g = p->graph;
    bool *said;
    DTP_TRY(DTP_NEW(p->arena, said, g->n_tensors, err));
    DTP_TRY(DTP_NEW(p->arena, *out, g->n_nodes, err));
    for (int32_t i = 0; i < p->n_activations; i++) {
        said[p->activations[i].of[0]] = true;
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        said[p->outputs[i].of[0]] = true;
    }
    for (dtp_node_id k = 0; k < g->n_nodes; k++) {
        const dtp_tensor_id t = g->nodes[k].out[0];
        const dtp_layout *kept = &p->plan->sharding.layouts[t];
        if (said[t] || !dtp_placements_is_value(g, t)) {
            continue;
        }
        (*out)[(*n)++] = (dtp_placed){g->tensors[t].name, .type = g->tensors[t].type, .kept = *kept,
                                      .read = *kept};
        if (!dtp_layout_is_even(kept, &p->plan->mesh, &g->tensors[t].type)) {
            DTP_TRY(dtp_lost_add(lost, p->arena, DTP_LOST_UNEVEN, g->tensors[t].name, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_export__jax(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                           dtp_err *err)
{
    dtp_placed *values;
    int32_t n_values = 0;
    DTP_TRY(find_values(p, lost, &n_values, &values, err));
    dtp_export__begin(p, "dtp.jax/1", w);
    dtp_export__variant(p, w);
    DTP_TRY(write_tensors(p, "params", p->n_params, p->params, lost, w, err));
    DTP_TRY(write_tensors(p, "activations", p->n_activations, p->activations, lost, w, err));
    DTP_TRY(write_tensors(p, "values", n_values, values, lost, w, err));
    DTP_TRY(write_tensors(p, "inputs", p->n_inputs, p->inputs, lost, w, err));
    DTP_TRY(write_tensors(p, "outputs", p->n_outputs, p->outputs, lost, w, err));
    return DTP_OK;
}
