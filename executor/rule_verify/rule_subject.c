/* What the rule verifier runs: one op of a case (and its gradients) as a graph with the answers
 * of one device, and one choice of rules and layouts for it. */
#include "executor/rule_verify/rule_subject.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/autodiff.h"
#include "core/base/strbuf.h"
#include "core/graph/op_rules.h"
#include "executor/device/convert.h"

dtp_status dtp_rule_target_init(dtp_rule_target *t, const char *backend, const char *dtype,
                                uint64_t seed, dtp_err *err)
{
    const bool ref = strcmp(backend, "ref") == 0;
    if (!ref && strcmp(backend, "cpu") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "there is no backend '%s' to verify on: ref or cpu",
                        backend);
    }
    *t = (dtp_rule_target){.backend = backend,
                           .seed = seed,
                           .float_dtype = ref ? DTP_F64 : DTP_F32,
                           .feed = -1,
                           .bound = ref ? 1e-12 : 2e-5};
    if (dtype != NULL) {
        DTP_TRY(dtp_dtype_parse(dtype, &t->float_dtype, err));
        if (!dtp_dtype_is_half(t->float_dtype)) {
            return DTP_FAIL(err, DTP_INVALID, "verification in %s: bf16 or f16 is expected", dtype);
        }
        t->bound = 16.0 * (t->float_dtype == DTP_BF16 ? 0x1p-8 : 0x1p-11);
    }
    return DTP_OK;
}

/* ---- subjects ---- */

/* Appends loss = sum(y * y) and the gradients of the float operands, which become the outputs. */
static dtp_status add_gradients(dtp_case_graph *cg, dtp_dtype dtype, bool *applies, dtp_err *err)
{
    dtp_graph *g = cg->g;
    const dtp_tensor_id y = g->nodes[cg->node].out[0];
    const dtp_tensor_id ins[2] = {y, y};
    const dtp_ttype scalar = {.rank = 0};
    dtp_tensor_id also[DTP_OP_CASE_MAX_IN], grads[DTP_OP_CASE_MAX_IN], loss;
    int32_t n = 0;
    for (int32_t i = 0; i < cg->n_in; i++) {
        if (cg->is_float[i]) {
            also[n++] = i;
        }
    }
    /* The f32 backend computes the loss in f32 only. */
    const dtp_dtype of_y = g->tensors[y].type.dtype;
    *applies = g->nodes[cg->node].op->vjp != NULL && n > 0 && dtp_dtype_is_float(of_y) &&
               (dtype == DTP_F64 || of_y == dtype);
    if (!*applies) {
        return DTP_OK;
    }
    dtp_node_spec spec = dtp_node_spec_init("loss", "einsum");
    spec.n_in = 2;
    spec.in = ins;
    spec.out = &scalar;
    DTP_TRY(dtp_graph_add_node(g, &spec, &loss, err));
    DTP_TRY(dtp_autodiff(g, loss, n, also, grads, err));
    for (int32_t i = 0; i < n; i++) {
        if (grads[i] >= 0) {
            DTP_TRY(dtp_graph_add_output(g, grads[i], err));
        }
    }
    *applies = g->n_outputs > 0;
    return DTP_OK;
}

/* The same graph in f64 on one device; its outputs are the wanted ones. */
static dtp_status run_exact(dtp_rule_subject *s, const dtp_case_graph *exact,
                            const dtp_rule_target *t, dtp_err *err)
{
    dtp_rule_choice c;
    dtp_program *p = NULL;
    const dtp_graph *g = exact->g;
    dtp_rule_run r = {.backend = "ref",
                      .inputs = (const double *const *)exact->values,
                      .seed = t->seed,
                      .pool = t->pool,
                      .n_kernels = t->n_kernels,
                      .kernels = t->kernels};
    DTP_TRY(dtp_rule_choice_init(&c, g, "", err));
    DTP_TRY(dtp_lower(g, &c.sharding, &c.options, &p, err));
    r.p = p;
    dtp_status status = dtp_rule_run_execute(&r, err);
    for (int32_t o = 0; o < g->n_outputs && status == DTP_OK; o++) {
        s->want[o] = r.got[0][o];
        r.got[0][o] = NULL;
    }
    dtp_rule_run_free(&r);
    dtp_program_destroy(p);
    return status;
}

static dtp_status prepare(const dtp_op_case *c, const dtp_op_def *op, bool gradients,
                          dtp_dtype dtype, const dtp_rule_target *t, dtp_case_graph *cg,
                          bool *applies, dtp_err *err)
{
    DTP_TRY(dtp_case_build(c, op, dtype, t->seed, cg, err));
    if (t->ops != NULL) {
        cg->g->ops = t->ops;
    }
    for (int32_t i = 0; i < cg->n_in && dtp_dtype_is_half(t->float_dtype); i++) {
        const dtp_ttype *type = &cg->g->tensors[i].type;
        for (int64_t k = 0; k < dtp_ttype_elems(type) && dtp_dtype_is_float(type->dtype); k++) {
            uint16_t rounded;
            dtp_element_set(t->float_dtype, &rounded, 0, cg->values[i][k]);
            cg->values[i][k] = dtp_element(t->float_dtype, &rounded, 0);
        }
    }
    if (t->feed >= 0) {
        dtp_case_feed(cg, t->feed);
    }
    *applies = true;
    if (gradients) {
        DTP_TRY(add_gradients(cg, dtype, applies, err));
    }
    const dtp_node *node = &cg->g->nodes[cg->node];
    for (int32_t i = 0; i < node->n_out && !gradients; i++) {
        DTP_TRY(dtp_graph_add_output(cg->g, node->out[i], err));
    }
    if (cg->g->n_tensors > DTP_RULE_MAX_TENSORS || cg->g->n_outputs > DTP_RULE_MAX_OUTPUTS) {
        return DTP_FAIL(err, DTP_RANGE, "a case of %d tensors and %d outputs is too large",
                        cg->g->n_tensors, cg->g->n_outputs);
    }
    return DTP_OK;
}

dtp_status dtp_rule_subject_create(const dtp_op_case *c, const dtp_op_def *op, bool gradients,
                                   const dtp_rule_target *t, dtp_rule_subject *out, bool *applies,
                                   dtp_err *err)
{
    dtp_case_graph exact;
    memset(out, 0, sizeof *out);
    DTP_TRY(prepare(c, op, gradients, t->float_dtype, t, &out->cg, applies, err));
    if (!*applies) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < out->cg.n_in; i++) {
        out->inputs[i] = out->cg.values[i];
    }
    dtp_status s = prepare(c, op, gradients, DTP_F64, t, &exact, applies, err);
    if (s == DTP_OK) {
        s = run_exact(out, &exact, t, err);
    }
    dtp_case_free(&exact);
    return s;
}

void dtp_rule_subject_free(dtp_rule_subject *s)
{
    for (int32_t o = 0; o < DTP_RULE_MAX_OUTPUTS; o++) {
        free(s->want[o]);
    }
    dtp_case_free(&s->cg);
}

/* ---- one run ---- */

dtp_status dtp_rule_choice_init(dtp_rule_choice *c, const dtp_graph *g, const char *mesh,
                                dtp_err *err)
{
    memset(c, 0, sizeof *c);
    DTP_TRY(dtp_mesh_parse(mesh, &c->sharding.mesh, err));
    c->sharding.n_tensors = g->n_tensors;
    c->sharding.n_nodes = g->n_nodes;
    c->sharding.layouts = c->layouts;
    c->sharding.strategies = c->strategies;
    c->options = dtp_lower_options_init(dtp_redistributor_generic());
    if (dtp_mesh_ranks(&c->sharding.mesh) > DTP_RULE_MAX_RANKS) {
        return DTP_FAIL(err, DTP_INVALID, "a mesh '%s' of more than %d ranks", mesh,
                        DTP_RULE_MAX_RANKS);
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        c->layouts[t] = dtp_layout_replicated(g->tensors[t].type.rank, c->sharding.mesh.n_dims);
    }
    return DTP_OK;
}

/* Adds what a row does to a tensor on mesh dim m. */
static void apply_place(dtp_layout *layout, int32_t m, dtp_placement place)
{
    if (place.kind == DTP_SHARD) {
        dtp_layout_split(layout, m, place.axis);
    } else {
        layout->placement[m] = place;
    }
}

void dtp_rule_lay_out(dtp_rule_choice *c, const dtp_graph *g, dtp_node_id id, bool reverse)
{
    const dtp_node *node = &g->nodes[id];
    const int32_t n_mesh = c->sharding.mesh.n_dims;
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_op_call call = dtp_node_call(g, node, &types);
    dtp_sharding_rules_of(&call, true, &rules);
    for (int32_t k = 0; k < n_mesh; k++) {
        int32_t m = reverse ? n_mesh - 1 - k : k;
        const dtp_sharding_rule *row = &rules.rows[c->strategies[id].row[m]];
        for (int32_t i = 0; i < node->n_in; i++) {
            bool again = false;
            for (int32_t j = 0; j < i; j++) {
                again = again || node->in[j] == node->in[i];
            }
            if (!again && g->tensors[node->in[i]].kind == DTP_TENSOR_INPUT &&
                c->layouts[node->in[i]].placement[m].kind == DTP_REPLICATE) {
                apply_place(&c->layouts[node->in[i]], m, row->in[i]);
            }
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            apply_place(&c->layouts[node->out[i]], m, row->out[i]);
        }
    }
}

bool dtp_rule_is_refused(const dtp_graph *g, const dtp_rule_choice *c, dtp_node_id id)
{
    const dtp_strategy *st = &c->strategies[id];
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_op_call call = dtp_node_call(g, &g->nodes[id], &types);
    dtp_sharding_rules_of(&call, true, &rules);
    for (int32_t m = 0; m < c->sharding.mesh.n_dims; m++) {
        const dtp_sharding_rule *row = &rules.rows[st->row[m]];
        int64_t parts = 1;
        if ((call.op->flags & DTP_OP_RENAMES) == 0 || row->dim < 0) {
            continue;
        }
        for (int32_t k = 0; k < c->sharding.mesh.n_dims; k++) {
            parts *= st->row[k] == st->row[m] ? c->sharding.mesh.sizes[k] : 1;
        }
        int64_t in = call.in[0].dims[row->in[0].axis].size;
        int64_t out = call.out[0].dims[row->out[0].axis].size;
        if (in != out && (in % parts != 0 || out % parts != 0)) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_rule_error(const dtp_rule_subject *s, const dtp_rule_target *t, const dtp_program *p,
                          double *error, dtp_err *err)
{
    dtp_rule_run r = {.p = p,
                      .backend = t->backend,
                      .inputs = s->inputs,
                      .seed = t->seed,
                      .pool = t->pool,
                      .n_kernels = t->n_kernels,
                      .kernels = t->kernels};
    dtp_status status = dtp_rule_run_execute(&r, err);
    *error = 0.0;
    for (int32_t o = 0; o < s->cg.g->n_outputs && status == DTP_OK; o++) {
        *error = fmax(*error, dtp_rule_run_error(&r, o, s->want[o]));
    }
    dtp_rule_run_free(&r);
    return status;
}

dtp_status dtp_rule_check(const dtp_rule_subject *s, const dtp_rule_target *t,
                          const dtp_rule_choice *c, bool any_layouts, dtp_rule_verdict *verdict,
                          double *error, dtp_err *why)
{
    dtp_program *p = NULL;
    bool refuse = false;
    *error = 0.0;
    for (int32_t n = 0; n < s->cg.g->n_nodes; n++) {
        refuse = refuse || dtp_rule_is_refused(s->cg.g, c, n);
    }
    dtp_status status = dtp_lower(s->cg.g, &c->sharding, &c->options, &p, why);
    if (status == DTP_OK && refuse) {
        status = DTP_FAIL(why, DTP_INTERNAL, "a renaming that does not fit was accepted");
    } else if (refuse || (any_layouts && status == DTP_UNSUPPORTED)) {
        *verdict = DTP_RULE_REFUSED;
        return DTP_OK;
    } else if (status == DTP_OK) {
        status = dtp_program_check(p, why);
        status = status == DTP_OK ? dtp_rule_error(s, t, p, error, why) : status;
        if (status == DTP_OK && !(*error <= t->bound)) {
            status =
                DTP_FAIL(why, DTP_INTERNAL, "off by %g relative, allowed %g", *error, t->bound);
        }
    }
    dtp_program_destroy(p);
    if (status == DTP_NOMEM) {
        return status;
    }
    *verdict = status == DTP_OK ? DTP_RULE_EQUAL : DTP_RULE_WRONG;
    if (*verdict == DTP_RULE_WRONG) {
        /* Prefixes a failure with everything that is needed to see it again. */
        char mesh[DTP_MESH_TEXT_BYTES], layout[DTP_LAYOUT_TEXT_BYTES] = "-";
        const dtp_graph *g = s->cg.g;
        dtp_strbuf b = {0};
        dtp_mesh_print(&c->sharding.mesh, mesh);
        if (s->cg.n_in > 0) {
            dtp_layout_print(&c->layouts[0], &c->sharding.mesh, &g->tensors[0].type, &g->dims,
                             layout);
        }
        for (int32_t n = 0; n < g->n_nodes; n++) {
            for (int32_t m = 0; m < c->sharding.mesh.n_dims; m++) {
                dtp_strbuf_addf(&b, "%c%d", m == 0 ? ' ' : '/', c->strategies[n].row[m]);
            }
        }
        dtp_err_prefix(
            why, "on '%s', %s, seed %llu%s%s, operand 0 %.200s, merge %d, in place %d, rows%.200s",
            mesh, t->backend, (unsigned long long)t->seed, s->cg.feed[0] == '\0' ? "" : ", ",
            s->cg.feed, layout, c->options.merge_collectives, c->options.in_place,
            dtp_strbuf_text(&b));
        dtp_strbuf_free(&b);
    }
    return DTP_OK;
}
