/* Baselines: what people would do by hand, as complete decisions priced by the same model as a
 * plan. */
#include "planner/baselines/baselines.h"

#include <string.h>

#include "core/layout/layout_rules_file.h"
#include "core/base/safe_int.h"
#include "core/base/strbuf.h"
#include "planner/baselines/baseline_internal.h"
#include "cost_models/node_price.h"
#include "interop/styles/styles.h"
#include "spmd/propagate/propagate.h"
#include "core/graph/op_rules.h"

/* A usual layout that takes longer than the fastest one by this factor does not tie with it. */
static const double TIED = 1.01;

/* ---- layout rules ---- */

/* "batch:x;batch:y" for the first dim of the inputs and the names that it takes on; "" when there
 * is none. */
static char *data_parallel(const dtp_graph *g, const dtp_mesh *mesh, dtp_arena *arena)
{
    dtp_strbuf b = {0};
    bool any = false;
    bool *marked = dtp_arena_alloc(arena, (size_t)g->dims.n + 1, sizeof *marked);
    if (marked == NULL) {
        return NULL;
    }
    for (int32_t t = 0; t < g->n_tensors && !any; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_INPUT && g->tensors[t].type.rank > 0) {
            marked[g->tensors[t].type.dims[0].id] = any = true;
        }
    }
    /* Marks the dims that relabels make of a marked dim in the forward pass. */
    for (int32_t i = 0; i < g->n_nodes && g->nodes[i].phase == DTP_FORWARD; i++) {
        dtp_call_types types;
        dtp_sharding_rules rows;
        if ((g->nodes[i].op->flags & DTP_OP_RENAMES) == 0) {
            continue;
        }
        const dtp_op_call call = dtp_node_call(g, &g->nodes[i], &types);
        dtp_sharding_rules_of(&call, false, &rows);
        for (int32_t r = 1; r < rows.n; r++) {
            const dtp_sharding_rule *row = &rows.rows[r];
            if (row->dim >= 0 && row->out_dim >= 0 && marked[row->dim]) {
                marked[row->out_dim] = true;
            }
        }
    }
    for (dtp_dim_id d = 0; d < g->dims.n; d++) {
        for (int32_t m = 0; m < mesh->n_dims && marked[d]; m++) {
            dtp_strbuf_addf(&b, "%s%s:%s", b.len > 0 ? ";" : "", dtp_dims_name(&g->dims, d),
                            mesh->names[m]);
        }
    }
    char *text = b.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&b));
    dtp_strbuf_free(&b);
    return text;
}

static dtp_status add_baseline(const dtp_graph *g, const dtp_mesh *mesh, dtp_arena *arena,
                               const char *name, const char *text, int32_t *n, dtp_candidate *list,
                               dtp_err *err)
{
    const int32_t at = dtp_baseline__find(list, *n, name);
    dtp_err why;
    dtp_candidate c = {.name = name, .rules_text = text};
    dtp_status s = dtp_layout_rules_parse(text, mesh, &g->dims, arena, &c.rules, &why);
    if (s != DTP_OK && !dtp_status_is_input(s)) {
        return DTP_FAIL(err, s, "%s", why.msg);
    }
    c.legal = s == DTP_OK;
    c.why = s == DTP_OK ? NULL : dtp_arena_strdup(arena, why.msg);
    list[at] = c;
    *n += at == *n ? 1 : 0;
    return DTP_OK;
}

/* All that are meant for graph and mesh, not lowered yet. */
static dtp_status list_baselines(const dtp_graph *g, const dtp_mesh *mesh,
                                 const dtp_baseline_options *options, dtp_arena *arena, int32_t *n,
                                 dtp_candidate **out, dtp_err *err)
{
    dtp_layout_rules_file file = {0};
    if (options->rules_file != NULL) {
        DTP_TRY(dtp_layout_rules_file_read(options->rules_file, mesh, arena, &file, err));
    }
    const char *data = data_parallel(g, mesh, arena);
    const size_t most = (size_t)file.n + 2 + DTP_N_BASELINE_RECIPES + DTP_MAX_MESH_DIMS;
    dtp_candidate *list = dtp_arena_alloc(arena, most, sizeof *list);
    DTP_TRY(DTP_MEMORY(err, data, list));
    *n = 0;
    *out = list;
    if (options->usual != DTP_USUAL_ALL) {
        return dtp_baseline__add_recipes(g, mesh, options->usual, arena, n, list, err);
    }
    DTP_TRY(add_baseline(g, mesh, arena, "replicated", "", n, list, err));
    DTP_TRY(add_baseline(g, mesh, arena, "data_parallel", data, n, list, err));
    for (int32_t i = 0; i < file.n; i++) {
        DTP_TRY(add_baseline(g, mesh, arena, file.names[i], file.rules[i], n, list, err));
    }
    DTP_TRY(options->for_form ? dtp_baseline__add_alone(g, mesh, arena, n, list, err) : DTP_OK);
    return options->rules_only
               ? DTP_OK
               : dtp_baseline__add_recipes(g, mesh, DTP_USUAL_ALL, arena, n, list, err);
}

/* ---- pricing ---- */

/* On the generic machine, so that a style means the same layouts on every machine. */
static dtp_status shard_styles(const dtp_graph *g, const dtp_mesh *mesh,
                               const dtp_baseline_options *o, dtp_arena *arena, dtp_candidate *c,
                               dtp_err *err)
{
    dtp_styles list;
    dtp_pin *pins = NULL;
    dtp_propagate_options options = {
        .price = dtp_step_generic_price, .redistributor = o->generic, .even = true};
    dtp_styles_init(&list, arena);
    list.even = true;
    for (int32_t i = 0; i < c->n_styles; i++) {
        DTP_TRY(dtp_styles_parse(c->styles[i], &list, err));
    }
    DTP_TRY(dtp_styles_pins(g, mesh, &list, &options.n_pins, &pins, err));
    options.pins = pins;
    DTP_TRY(dtp_propagate(g, mesh, &options, arena, &c->sharding, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (!dtp_layout_is_even(&c->sharding.layouts[t], mesh, &g->tensors[t].type)) {
            return DTP_FAIL(err, DTP_INVALID, "tensor '%s' cannot be split evenly",
                            g->tensors[t].name);
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors && o->for_form; t++) {
        dtp_layout *kept = &c->sharding.layouts[t];
        const bool output = t == g->loss || dtp_graph_output(g, g->tensors[t].name) >= 0;
        *kept = output ? dtp_layout_without_partial(kept) : *kept;
    }
    return DTP_OK;
}

/* DTP_UNSUPPORTED where no program keeps the limit, as parameters and states alone exceed it. */
static dtp_status check_kept(const dtp_graph *g, const dtp_mesh *mesh, int64_t limit,
                             const dtp_sharding *sharding, dtp_err *err)
{
    int64_t kept = 0;
    for (dtp_tensor_id t = 0; t < g->n_tensors && limit > 0; t++) {
        const dtp_tensor_kind kind = g->tensors[t].kind;
        dtp_ttype local;
        if (kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE) {
            dtp_layout_local_max(&sharding->layouts[t], mesh, &g->tensors[t].type, &local);
            kept = dtp_add_i64(kept, dtp_ttype_bytes(&local), &kept) ? kept : INT64_MAX;
        }
    }
    return limit > 0 && kept > limit
               ? DTP_FAIL(err, DTP_UNSUPPORTED, "parameters and states do not fit")
               : DTP_OK;
}

/* One that does not fit is not looked at to the end. Usual ones are candidates for a plan and
 * nothing else: they are refused where that is known before they are lowered, or where a step is
 * not shorter than below_s, 0: any; their redistributions are those that frameworks make. */
static dtp_status predict(const dtp_graph *g, const dtp_pricer *pricer,
                          const dtp_baseline_options *o, double below_s, dtp_candidate *c,
                          dtp_err *err)
{
    const bool usual = o->usual != DTP_USUAL_ALL;
    dtp_lower_options options = dtp_lower_options_init(usual ? o->generic : o->machine);
    bool differs;
    options.target = pricer->target;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    options.overlap.memory_bytes = options.fit_bytes = o->limit;
    DTP_TRY(usual ? check_kept(g, &pricer->mesh, o->limit, &c->sharding, err) : DTP_OK);
    if (!usual) {
        return dtp_candidate_faster(g, pricer, &options, o->generic, c, err);
    }
    options.below_s = o->fastest ? below_s : 0.0;
    DTP_TRY(dtp_candidate_predict(g, pricer, &options, c, o->generic, &differs, err));
    return options.below_s > 0.0 && c->predicted.step_time_s >= options.below_s
               ? DTP_FAIL(err, DTP_UNSUPPORTED, "it is slower than others")
               : DTP_OK;
}

/* `legal` says whether a baseline fits the model, `why` gives the reason. */
static dtp_status price(const dtp_graph *g, const dtp_pricer *pricer,
                        const dtp_baseline_options *options, double below_s, dtp_candidate *c,
                        dtp_err *err)
{
    const dtp_mesh *mesh = &pricer->mesh;
    dtp_arena *arena = c->arena;
    dtp_err why = {0};
    dtp_status s = c->rules_text != NULL ? dtp_sharding_from_rules(g, mesh, &c->rules, false, arena,
                                                                   &c->sharding, &why)
                                         : shard_styles(g, mesh, options, arena, c, &why);
    s = s == DTP_OK ? predict(g, pricer, options, below_s, c, &why) : s;
    c->legal = s == DTP_OK;
    if (s == DTP_OK) {
        return DTP_OK;
    }
    memset(&c->sharding, 0, sizeof c->sharding);
    c->why = dtp_arena_strdup(arena, why.msg);
    return dtp_lowering_refuses(s) && c->why != NULL ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
}

dtp_status dtp_baselines_create(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_baseline_options *options, dtp_arena *arena, int32_t *n,
                                dtp_candidate **out, dtp_err *err)
{
    DTP_TRY(list_baselines(g, &pricer->mesh, options, arena, n, out, err));
    dtp_status s = DTP_OK;
    double below_s = 0.0;
    for (int32_t i = 0; i < *n && s == DTP_OK; i++) {
        dtp_candidate *c = &(*out)[i];
        if (c->legal && dtp_stopped(options->stop)) {
            c->legal = false;
            c->why = "planning was ended before it was priced";
        } else if (c->legal) {
            c->arena = arena;
            s = price(g, pricer, options, below_s, c, err);
            const double step_s = TIED * c->predicted.step_time_s;
            const bool fits = options->limit == 0 || c->predicted.peak_bytes <= options->limit;
            below_s = c->legal && fits && (below_s <= 0.0 || step_s < below_s) ? step_s : below_s;
        }
    }
    return s;
}

dtp_status dtp_plan_add_baselines(dtp_plan *plan, int32_t n, const dtp_candidate *baselines,
                                  dtp_err *err)
{
    DTP_TRY(DTP_NEW(plan->arena, plan->baselines, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_candidate *b = &baselines[i];
        plan->baselines[plan->n_baselines++] = (dtp_baseline){.name = b->name,
                                                              .rules = b->rules_text,
                                                              .n_styles = b->n_styles,
                                                              .styles = b->styles,
                                                              .legal = b->legal,
                                                              .why = b->why,
                                                              .predicted = b->predicted};
    }
    return DTP_OK;
}
