/* --as rules: logical axis rules, a list of [dim, mesh dims]. In rules mode the plan is one. In
 * tensor mode a rule is taken for every dim, as the first parameter, else input, else activation
 * that splits it says, if the model can follow it together with those before; what lies otherwise
 * than the rules say is lost. */
#include "interop/export/forms.h"

/* The mesh dims over which a tensor splits dim d, n of them. */
static bool splits_of(const dtp_graph *g, const dtp_sharding *s, dtp_tensor_id t, dtp_dim_id d,
                      dtp_rule_splits *out)
{
    const int32_t axis = dtp_ttype_find(&g->tensors[t].type, d);
    int32_t dims[DTP_MAX_MESH_DIMS];
    out->n = axis < 0 ? 0 : (int8_t)dtp_layout_axis_splits(&s->layouts[t], axis, dims);
    for (int32_t i = 0; i < out->n; i++) {
        out->mesh_dims[i] = (int8_t)dims[i];
    }
    return out->n > 0;
}

/* How the first tensor of a kind that splits d splits it. */
static bool find_rule(const dtp_placements *p, dtp_dim_id d, dtp_rule_splits *out)
{
    static const dtp_tensor_kind kinds[] = {DTP_TENSOR_PARAM, DTP_TENSOR_INPUT, DTP_TENSOR_VALUE};
    const dtp_graph *g = p->graph;
    for (int32_t k = 0; k < 3; k++) {
        for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
            const dtp_tensor_kind kind = g->tensors[t].kind;
            const bool speaks =
                kind == kinds[k] && (kind != DTP_TENSOR_VALUE || dtp_placements_is_value(g, t));
            if (speaks && splits_of(g, &p->plan->sharding, t, d, out)) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the model can follow rules. */
static dtp_status can_follow(const dtp_placements *p, const dtp_layout_rules *rules, bool *can,
                             dtp_err *err)
{
    dtp_sharding followed;
    dtp_err why = {0};
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status s = dtp_sharding_from_rules(p->graph, &p->plan->mesh, rules, p->plan->uneven,
                                                 scratch, &followed, &why);
    dtp_arena_destroy(scratch);
    *can = s == DTP_OK;
    return s == DTP_NOMEM ? DTP_FAIL(err, DTP_NOMEM, "%s", why.msg) : DTP_OK;
}

static dtp_status make_rules(const dtp_placements *p, dtp_layout_rules *out, dtp_err *err)
{
    const dtp_plan *plan = p->plan;
    const dtp_graph *g = p->graph;
    DTP_TRY(dtp_layout_rules_create(p->arena, g->dims.n, out, err));
    for (dtp_dim_id d = 0; d < g->dims.n; d++) {
        bool can = true;
        if (plan->rules_mode) {
            out->splits[d] = d < plan->rules.n ? plan->rules.splits[d] : out->splits[d];
        } else if (find_rule(p, d, &out->splits[d])) {
            DTP_TRY(can_follow(p, out, &can, err));
        }
        if (!can) {
            out->splits[d] = (dtp_rule_splits){0};
        }
    }
    return DTP_OK;
}

/* Rules speak of splits: whether a sum is made later is not among what they say. */
static bool is_split_so(const dtp_layout *a, const dtp_layout *b)
{
    const dtp_layout whole_a = dtp_layout_without_partial(a),
                     whole_b = dtp_layout_without_partial(b);
    return dtp_layout_equal(&whole_a, &whole_b);
}

/* What lies otherwise than under the rules: parameters, inputs, forward values. */
static dtp_status compare(const dtp_placements *p, const dtp_layout_rules *rules, dtp_lost *lost,
                          dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const dtp_sharding *s = &p->plan->sharding;
    dtp_sharding followed;
    DTP_TRY(dtp_sharding_from_rules(g, &p->plan->mesh, rules, p->plan->uneven, p->arena, &followed,
                                    err));
    for (int32_t i = 0; i < p->n_params; i++) {
        for (int32_t k = 0; k < p->params[i].n_of; k++) {
            const dtp_tensor_id t = p->params[i].of[k];
            if (!is_split_so(&s->layouts[t], &followed.layouts[t])) {
                DTP_TRY(dtp_lost_add(lost, p->arena, DTP_LOST_RULES, p->params[i].name, err));
            }
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const bool speaks = g->tensors[t].kind == DTP_TENSOR_INPUT || dtp_placements_is_value(g, t);
        if (speaks && !is_split_so(&s->layouts[t], &followed.layouts[t])) {
            DTP_TRY(dtp_lost_add(lost, p->arena, DTP_LOST_RULES, g->tensors[t].name, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_export__rules(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                             dtp_err *err)
{
    dtp_layout_rules rules;
    DTP_TRY(make_rules(p, &rules, err));
    DTP_TRY(compare(p, &rules, lost, err));
    dtp_export__begin(p, "dtp.axis_rules/1", w);
    dtp_json_begin_array(w, "rules", false);
    for (dtp_dim_id d = 0; d < rules.n; d++) {
        if (rules.splits[d].n > 0) {
            dtp_json_begin_array(w, NULL, true);
            dtp_json_write_string(w, NULL, dtp_dims_name(&p->graph->dims, d));
            dtp_json_begin_array(w, NULL, true);
            for (int32_t i = 0; i < rules.splits[d].n; i++) {
                dtp_json_write_string(w, NULL, p->plan->mesh.names[rules.splits[d].mesh_dims[i]]);
            }
            dtp_json_end_array(w);
            dtp_json_end_array(w);
        }
    }
    dtp_json_end_array(w);
    return DTP_OK;
}
