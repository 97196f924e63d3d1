/* Reads dtp.plan/1 for a graph. In rules mode the layouts are derived from the rules again and the
 * "tensors" object must agree with them; in tensor mode it is the decision itself. */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/plan/plan_internal.h"
#include "core/graph/op_rules.h"

typedef struct plan_reader {
    const dtp_json *root;
    const dtp_graph *g;
    dtp_plan *plan;
} plan_reader;

/* ---- the decision ---- */

static dtp_status read_rules(const plan_reader *r, dtp_err *err)
{
    const dtp_json *rules;
    dtp_plan *plan = r->plan;
    DTP_TRY(dtp_json_get_kind(r->root, "rules", DTP_JSON_OBJECT, &rules, err));
    DTP_TRY(dtp_layout_rules_create(plan->arena, r->g->dims.n, &plan->rules, err));
    for (int32_t i = 0; i < dtp_json_size(rules); i++) {
        const dtp_json *v = dtp_json_at(rules, i);
        const dtp_dim_id d = dtp_dims_find(&r->g->dims, dtp_json_key(v));
        if (d < 0) {
            return dtp_json_fail(v, err, "the model '%s' has no dim '%s'", r->g->name,
                                 dtp_json_key(v));
        }
        DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
        dtp_rule_splits *s = &plan->rules.splits[d];
        for (int32_t k = 0; k < dtp_json_size(v); k++) {
            const char *name;
            DTP_TRY(dtp_json_string(dtp_json_at(v, k), &name, err));
            const int32_t m = dtp_mesh_find(&plan->mesh, name);
            if (m < 0) {
                return dtp_json_fail(dtp_json_at(v, k), err, "the mesh has no dim '%.60s'", name);
            }
            if (memchr(s->mesh_dims, m, (size_t)s->n) != NULL) {
                return dtp_json_fail(dtp_json_at(v, k), err, "mesh dim '%s' occurs twice", name);
            }
            s->mesh_dims[s->n++] = (int8_t)m;
        }
    }
    return dtp_json_prefixed(rules,
                             dtp_sharding_from_rules(r->g, &plan->mesh, &plan->rules, plan->uneven,
                                                     plan->arena, &plan->sharding, err),
                             err);
}

/* The tensor that a key names. */
static dtp_status find_tensor(const dtp_json *v, const plan_reader *r, dtp_tensor_id *id,
                              dtp_err *err)
{
    *id = dtp_graph_find(r->g, dtp_json_key(v));
    return *id >= 0 ? DTP_OK
                    : dtp_json_fail(v, err, "the model '%s' has no such tensor", r->g->name);
}

static dtp_status read_layout(const dtp_json *v, const plan_reader *r, dtp_tensor_id id,
                              dtp_layout *out, dtp_err *err)
{
    const char *text;
    const dtp_ttype *type = &r->g->tensors[id].type;
    DTP_TRY(dtp_json_string(v, &text, err));
    DTP_TRY(dtp_json_prefixed(
        v, dtp_layout_parse(text, &r->plan->mesh, type, &r->g->dims, out, err), err));
    DTP_TRY(dtp_json_prefixed(v, dtp_layout_check(out, &r->plan->mesh, type, err), err));
    if (!r->plan->uneven && !dtp_layout_is_even(out, &r->plan->mesh, type)) {
        char shape[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(type, &r->g->dims, shape);
        return dtp_json_fail(v, err, "layout '%.100s' does not divide %.200s evenly", text, shape);
    }
    return DTP_OK;
}

/* Tensor mode: every tensor has a layout. */
static dtp_status read_layouts(const plan_reader *r, const dtp_json *tensors, dtp_err *err)
{
    dtp_sharding *s = &r->plan->sharding;
    bool *seen;
    DTP_TRY(DTP_NEW(r->plan->arena, seen, r->g->n_tensors, err));
    DTP_TRY(DTP_NEW(r->plan->arena, s->layouts, r->g->n_tensors, err));
    DTP_TRY(DTP_NEW(r->plan->arena, s->strategies, r->g->n_nodes, err));
    s->mesh = r->plan->mesh;
    s->n_tensors = r->g->n_tensors;
    s->n_nodes = r->g->n_nodes;
    for (int32_t i = 0; i < dtp_json_size(tensors); i++) {
        dtp_tensor_id id;
        dtp_layout layout;
        DTP_TRY(find_tensor(dtp_json_at(tensors, i), r, &id, err));
        DTP_TRY(read_layout(dtp_json_at(tensors, i), r, id, &layout, err));
        s->layouts[id] = layout;
        seen[id] = true;
    }
    for (int32_t t = 0; t < r->g->n_tensors; t++) {
        if (!seen[t]) {
            return dtp_json_fail(tensors, err, "tensor '%s' has no layout", r->g->tensors[t].name);
        }
    }
    return DTP_OK;
}

static dtp_status read_replicas(const plan_reader *r, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(r->root, "views");
    if (list == NULL) {
        return DTP_OK;
    }
    if (r->plan->rules_mode) {
        return dtp_json_fail(list, err, "a plan in rules mode has no views");
    }
    DTP_TRY(dtp_json_expect(list, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_sharding_add_replicas(&r->plan->sharding, r->plan->arena, err));
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const dtp_json *v = dtp_json_at(list, i);
        dtp_tensor_id t;
        DTP_TRY(find_tensor(v, r, &t, err));
        DTP_TRY(dtp_json_keys(v, dtp_plan__phases, err));
        for (int phase = 0; dtp_plan__phases[phase] != NULL; phase++) {
            const dtp_json *layout = dtp_json_get(v, dtp_plan__phases[phase]);
            if (layout != NULL) {
                DTP_TRY(read_layout(layout, r, t, &r->plan->sharding.replicas[phase][t], err));
            }
        }
    }
    return DTP_OK;
}

/* ---- strategies and implementations of nodes ---- */

static dtp_status read_strategy(const dtp_json *list, plan_reader *r, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &r->g->nodes[n];
    dtp_call_types types;
    dtp_sharding_rules set;
    const dtp_op_call call = dtp_node_call(r->g, node, &types);
    dtp_sharding_rules_of(&call, true, &set);
    for (int32_t k = 0; k < dtp_json_size(list); k++) {
        const dtp_json *v = dtp_json_at(list, k);
        const char *text;
        const int32_t m = dtp_mesh_find(&r->plan->mesh, dtp_json_key(v));
        if (m < 0) {
            return dtp_json_fail(v, err, "the mesh has no dim '%.60s'", dtp_json_key(v));
        }
        DTP_TRY(dtp_json_string(v, &text, err));
        const int32_t row = dtp_plan__row_find(&set, text, node->n_in, &r->g->dims);
        if (row < 0) {
            return dtp_json_fail(v, err, "op '%s' has no strategy '%.80s' here", node->op->name,
                                 text);
        }
        r->plan->sharding.strategies[n].row[m] = (int16_t)row;
    }
    return DTP_OK;
}

static dtp_status read_implementation(const dtp_json *v, plan_reader *r, dtp_node_id n,
                                      dtp_err *err)
{
    dtp_plan *plan = r->plan;
    const dtp_op_def *op = r->g->nodes[n].op;
    for (int32_t k = 0; k < dtp_json_size(v); k++) {
        const dtp_json *given = dtp_json_at(v, k);
        const dtp_attr_spec *spec = dtp_implementation_spec(op, dtp_json_key(given));
        int32_t choice = 0;
        if (spec == NULL) {
            return dtp_json_fail(given, err, "op '%s' has no attribute that a plan may set so",
                                 op->name);
        }
        DTP_TRY(dtp_json_choice(given, spec->choices, &choice, err));
        if (plan->n_implementations == r->g->n_nodes) {
            return dtp_json_fail(given, err, "more than %d settings", r->g->n_nodes);
        }
        plan->implementations[plan->n_implementations++] =
            (dtp_implementation){.node = n, .key = spec->key, .value = choice};
    }
    return DTP_OK;
}

/* Nodes that are not listed run replicated. Listed nodes come in graph order, which the writer
 * keeps, so the search goes on where the last one was found. */
static dtp_status read_nodes(plan_reader *r, const dtp_json *list,
                             dtp_status (*read)(const dtp_json *, plan_reader *, dtp_node_id,
                                                dtp_err *),
                             dtp_err *err)
{
    DTP_TRY(dtp_json_expect(list, DTP_JSON_OBJECT, err));
    dtp_node_id n = 0;
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const dtp_json *v = dtp_json_at(list, i);
        while (n < r->g->n_nodes && strcmp(r->g->nodes[n].name, dtp_json_key(v)) != 0) {
            n++;
        }
        if (n == r->g->n_nodes) {
            return dtp_json_fail(v, err,
                                 "the model '%s' has no such node at or after this place (nodes "
                                 "are listed in the model's order)",
                                 r->g->name);
        }
        DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
        DTP_TRY(read(v, r, n, err));
    }
    return DTP_OK;
}

static dtp_status read_implementations(plan_reader *r, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(r->root, "settings");
    if (list == NULL) {
        return DTP_OK;
    }
    if (r->plan->rules_mode) {
        return dtp_json_fail(list, err, "a plan in rules mode has no settings");
    }
    DTP_TRY(DTP_NEW(r->plan->arena, r->plan->implementations, r->g->n_nodes, err));
    return read_nodes(r, list, read_implementation, err);
}

/* ---- the file ---- */

static dtp_status read_decision(plan_reader *r, dtp_err *err)
{
    const bool rules_mode = r->plan->rules_mode;
    const dtp_json *tensors = dtp_json_get(r->root, "tensors");
    const dtp_json *strategies = dtp_json_get(r->root, "strategies");
    if (rules_mode) {
        if (strategies != NULL) {
            return dtp_json_fail(strategies, err, "a plan in rules mode has no strategies");
        }
        DTP_TRY(read_rules(r, err));
    }
    if (tensors == NULL && rules_mode) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_get_kind(r->root, "tensors", DTP_JSON_OBJECT, &tensors, err));
    if (rules_mode) {
        /* Rules mode: a stated layout is the one that the rules give. */
        for (int32_t i = 0; i < dtp_json_size(tensors); i++) {
            const dtp_json *v = dtp_json_at(tensors, i);
            dtp_tensor_id id;
            dtp_layout stated;
            const char *given = "";
            DTP_TRY(find_tensor(v, r, &id, err));
            DTP_TRY(read_layout(v, r, id, &stated, err));
            if (!dtp_layout_equal(&stated, &r->plan->sharding.layouts[id])) {
                char text[DTP_LAYOUT_TEXT_BYTES];
                dtp_layout_print(&r->plan->sharding.layouts[id], &r->plan->mesh,
                                 &r->g->tensors[id].type, &r->g->dims, text);
                DTP_TRY(dtp_json_string(v, &given, err));
                return dtp_json_fail(v, err, "layout '%.160s', but the rules give '%.160s'", given,
                                     text);
            }
        }
        return DTP_OK;
    }
    if (dtp_json_get(r->root, "rules") != NULL) {
        return dtp_json_fail(dtp_json_get(r->root, "rules"), err,
                             "a plan in tensor mode has no rules");
    }
    DTP_TRY(read_layouts(r, tensors, err));
    DTP_TRY(dtp_json_require(r->root, "strategies", &strategies, err));
    return read_nodes(r, strategies, read_strategy, err);
}

/* ---- graph variant ---- */

static dtp_status read_precision(const dtp_json *v, dtp_precision *out, dtp_err *err)
{
    static const char *const keys[] = {"compute", "gradients", "products", NULL};
    static const char *const names[] = {"bf16", "f16", "f32", NULL};
    static const char *const products[] = {"tf32", "fp8", "fp8_row", NULL};
    static const dtp_dtype dtypes[] = {DTP_BF16, DTP_F16, DTP_F32};
    int32_t compute, gradients, product = -1;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_choice(v, "compute", names, &compute, err));
    DTP_TRY(dtp_json_get_choice(v, "gradients", names, &gradients, err));
    if (dtp_json_get(v, "products") != NULL) {
        DTP_TRY(dtp_json_get_choice(v, "products", products, &product, err));
    }
    *out = (dtp_precision){.compute = dtypes[compute],
                           .gradients = dtypes[gradients],
                           .tf32 = product == 0,
                           .fp8 = product == 1   ? DTP_SCALED_BY_TENSOR
                                  : product == 2 ? DTP_SCALED_BY_ROW
                                                 : DTP_SCALED_NOT};
    if (out->tf32) {
        return out->compute == DTP_F32 && out->gradients == DTP_F32
                   ? DTP_OK
                   : dtp_json_fail(v, err,
                                   "with 'products' tf32, 'compute' and 'gradients' are f32");
    }
    if (out->fp8 && out->compute != DTP_BF16) {
        return dtp_json_fail(v, err, "with 'products' %s, 'compute' is bf16", products[product]);
    }
    return out->compute != DTP_F32 && (out->gradients == out->compute || out->gradients == DTP_F32)
               ? DTP_OK
               : dtp_json_fail(v, err, "'compute' is bf16 or f16, and 'gradients' the same or f32");
}

static dtp_status read_remat(const dtp_json *list, const plan_reader *r, dtp_err *err)
{
    const char **items;
    dtp_remat *remat = &r->plan->variant.remat;
    DTP_TRY(dtp_plan__texts(list, r->plan->arena, &remat->n, &items, err));
    remat->items = items;
    return dtp_json_prefixed(list, dtp_remat_check(remat, r->g, err), err);
}

/* Borders, and slots and chunks of a stage, absent ones 1. */
static dtp_status read_stages(const dtp_json *list, const plan_reader *r, dtp_err *err)
{
    const char **borders;
    dtp_stage_choice *stages = &r->plan->variant.stages;
    const dtp_json *slots = dtp_json_get(r->root, "slots");
    const dtp_json *chunks = dtp_json_get(r->root, "chunks");
    int64_t value = 1, each = 1;
    int32_t *unit, *chunk, n;
    DTP_TRY(dtp_plan__texts(list, r->plan->arena, &n, &borders, err));
    DTP_TRY(chunks == NULL ? DTP_OK : dtp_json_int(chunks, 2, DTP_MAX_STAGES, &each, err));
    if (n < 2 * each || n > DTP_MAX_STAGES || n % each != 0) {
        return dtp_json_fail(list, err, "%d stages, expected %d to %d%s", n, 2 * (int32_t)each,
                             DTP_MAX_STAGES, each > 1 ? ", as many chunks on each" : "");
    }
    stages->chunks = (int32_t)each;
    stages->n = n / stages->chunks;
    DTP_TRY(slots == NULL
                ? DTP_OK
                : dtp_json_int(slots, 1, each * r->plan->variant.microbatches, &value, err));
    stages->borders = borders;
    stages->slots = (int32_t)value;
    return dtp_json_prefixed(
        list, dtp_stage_units(r->g, stages, r->plan->arena, &unit, &chunk, err), err);
}

static dtp_status read_outputs(const dtp_json *list, const plan_reader *r, dtp_err *err)
{
    const char **names;
    dtp_outputs *outputs = &r->plan->variant.outputs;
    DTP_TRY(dtp_plan__texts(list, r->plan->arena, &outputs->n, &names, err));
    outputs->chosen = true;
    outputs->names = names;
    return dtp_json_prefixed(list, dtp_outputs_check(outputs, r->g, err), err);
}

/* The graph that the rest of the plan is about: in *out, NULL when it is the model's. */
static dtp_status read_variant(const plan_reader *r, dtp_graph **out, dtp_err *err)
{
    const dtp_graph *model = r->g;
    const dtp_json *outputs = dtp_json_get(r->root, "outputs");
    const dtp_json *precision = dtp_json_get(r->root, "precision");
    const dtp_json *remat = dtp_json_get(r->root, "remat");
    const dtp_json *regather = dtp_json_get(r->root, "regather");
    const dtp_json *count = dtp_json_get(r->root, "microbatches");
    const dtp_json *dim = dtp_json_get(r->root, "microbatch_dim");
    const dtp_json *stages = dtp_json_get(r->root, "stages");
    const dtp_json *slots = dtp_json_get(r->root, "slots");
    dtp_graph_variant *c = &r->plan->variant;
    c->micro_dim = -1;
    if (outputs != NULL) {
        DTP_TRY(read_outputs(outputs, r, err));
    }
    if (precision != NULL) {
        DTP_TRY(read_precision(precision, &c->precision, err));
    }
    if (remat != NULL) {
        DTP_TRY(read_remat(remat, r, err));
    }
    if (regather != NULL) {
        const char *text;
        DTP_TRY(dtp_json_string(regather, &text, err));
        c->regather = dtp_arena_strdup(r->plan->arena, text);
        DTP_TRY(DTP_MEMORY(err, c->regather));
    }
    if (count != NULL) {
        int64_t value = 1;
        DTP_TRY(dtp_json_int(count, 1, INT32_MAX, &value, err));
        c->microbatches = (int32_t)value;
    }
    if (dim != NULL) {
        const char *name;
        DTP_TRY(dtp_json_string(dim, &name, err));
        c->micro_dim = dtp_dims_find(&model->dims, name);
        if (c->micro_dim < 0) {
            return dtp_json_fail(dim, err, "the model '%s' has no dim '%.60s'", model->name, name);
        }
    }
    const dtp_json *of_stages = slots != NULL ? slots : dtp_json_get(r->root, "chunks");
    if (of_stages != NULL && stages == NULL) {
        return dtp_json_fail(of_stages, err, "%s are those of stages",
                             slots != NULL ? "slots" : "chunks");
    }
    DTP_TRY(stages != NULL ? read_stages(stages, r, err) : DTP_OK);
    return dtp_graph_variant_any(c)
               ? dtp_json_prefixed(r->root, dtp_graph_with_variant(model, c, 0, NULL, out, err),
                                   err)
               : DTP_OK;
}

static void add_globs(dtp_strbuf *out, int32_t n, const char *const *globs)
{
    for (int32_t i = 0; i < n; i++) {
        dtp_strbuf_addf(out, "%s'%.200s'", i > 0 ? ", " : "", globs[i]);
    }
    dtp_strbuf_add(out, n == 0 ? "no parameters" : "");
}

/* A model that trains was read with the parameters frozen that the plan freezes. */
static dtp_status check_freeze(const plan_reader *r, dtp_err *err)
{
    const dtp_plan *plan = r->plan;
    const dtp_graph *g = r->g;
    const dtp_json *at = dtp_json_get(r->root, "freeze");
    bool same = plan->n_freeze == g->n_freeze;
    for (int32_t i = 0; i < plan->n_freeze && same; i++) {
        same = strcmp(plan->freeze[i], g->freeze[i]) == 0;
    }
    if (same || g->loss < 0) {
        return DTP_OK;
    }
    dtp_strbuf text = {0};
    dtp_strbuf_add(&text, "the plan freezes ");
    add_globs(&text, plan->n_freeze, plan->freeze);
    dtp_strbuf_add(&text, ", and the model was read with ");
    add_globs(&text, g->n_freeze, g->freeze);
    const dtp_status s =
        dtp_json_fail(at != NULL ? at : r->root, err, "%.900s frozen", dtp_strbuf_text(&text));
    dtp_strbuf_free(&text);
    return s;
}

static dtp_status read_plan(const dtp_json *root, const dtp_graph *g, bool uneven,
                            const dtp_mesh *mesh, dtp_plan *plan, dtp_err *err)
{
    plan_reader r = {.root = root, .g = g, .plan = plan};
    dtp_graph *changed = NULL;
    DTP_TRY(dtp_plan__fields(root, plan, err));
    plan->uneven = plan->uneven || uneven;
    DTP_TRY(check_freeze(&r, err));
    plan->mesh = mesh != NULL ? *mesh : plan->mesh;
    DTP_TRY(read_variant(&r, &changed, err));
    r.g = changed != NULL ? changed : g;
    dtp_status s = read_decision(&r, err);
    s = s == DTP_OK ? read_implementations(&r, err) : s;
    s = s == DTP_OK ? read_replicas(&r, err) : s;
    s = s == DTP_OK ? dtp_json_prefixed(root, dtp_sharding_check(r.g, &plan->sharding, err), err)
                    : s;
    dtp_graph_destroy(changed);
    return s;
}

static dtp_status read_text(const char *file, const char *text, size_t len, const dtp_graph *g,
                            bool uneven, const dtp_mesh *mesh, dtp_plan **out, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    dtp_plan *plan = NULL;
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    dtp_status s = dtp_plan_create(&plan, err);
    if (s == DTP_OK) {
        s = read_plan(dtp_json_root(doc), g, uneven, mesh, plan, err);
    }
    dtp_json_destroy(doc);
    if (s != DTP_OK) {
        dtp_plan_destroy(plan);
        return s;
    }
    *out = plan;
    return DTP_OK;
}

dtp_status dtp_plan_read(const char *file, const char *text, size_t len, const dtp_graph *g,
                         dtp_plan **out, dtp_err *err)
{
    return read_text(file, text, len, g, false, NULL, out, err);
}

dtp_status dtp_plan_read_resized(const char *file, const char *text, size_t len, const dtp_graph *g,
                                 const dtp_mesh *mesh, dtp_plan **out, dtp_err *err)
{
    return read_text(file, text, len, g, true, mesh, out, err);
}
