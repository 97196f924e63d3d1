/* Graphs of self-attention layers and their programs under layout rules, for tests of context
 * parallelism. */
#include "tests/support/context_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/autodiff.h"
#include "core/graph/ops/op_table.h"
#include "core/plan/sharding.h"
#include "executor/rule_verify/op_case.h"
#include "tests/support/op_fixture.h"

enum { TEXT = 160 };

/* ---- graphs ---- */

static void type_text(const context_model *m, bool of_query, char out[TEXT])
{
    int n = snprintf(out, TEXT, "f64");
    if (m->batch > 0) {
        n += snprintf(out + n, (size_t)(TEXT - n), " b=%lld", (long long)m->batch);
    }
    n += snprintf(out + n, (size_t)(TEXT - n), " s=%lld h=%lld", (long long)m->sequence,
                  (long long)m->heads);
    if (m->groups > 0 && of_query) {
        n += snprintf(out + n, (size_t)(TEXT - n), " g=%lld", (long long)m->groups);
    }
    (void)snprintf(out + n, (size_t)(TEXT - n), " f=%lld", (long long)m->features);
}

static dtp_tensor_id add(dtp_graph *g, const char *op, const char *attrs, int32_t layer, int32_t n,
                         const dtp_tensor_id *in)
{
    char name[TEXT];
    (void)snprintf(name, sizeof name, "l%d.%s.%d", layer, op, g->n_nodes);
    return fx_add(g, name, (fx_node){op, attrs, NULL}, n, in);
}

static dtp_tensor_id prepare(dtp_graph *g, const context_model *m, dtp_tensor_id x, bool rotate)
{
    char attrs[TEXT];
    if (m->chunks > 0) {
        (void)snprintf(attrs, sizeof attrs, "dim:dim=s int:chunks=%lld", (long long)m->chunks);
        x = add(g, "reorder", attrs, 0, 1, &x);
    }
    if (m->rope && rotate) {
        (void)snprintf(attrs, sizeof attrs,
                       "dim:position=s dim:feature=f int:order=%d int:chunks=%lld",
                       m->chunks > 0 ? 1 : 0, (long long)(m->chunks > 0 ? m->chunks : 1));
        x = add(g, "rope", attrs, 0, 1, &x);
    }
    return x;
}

static dtp_tensor_id add_layers(dtp_graph *g, const context_model *m, dtp_tensor_id in[3])
{
    char attrs[TEXT];
    (void)snprintf(attrs, sizeof attrs,
                   "dim:query=s dim:feature=f int:causal=%d int:context=%d int:order=%d "
                   "int:chunks=%lld",
                   m->causal ? 1 : 0, m->ring ? 1 : 0, m->chunks > 0 ? 1 : 0,
                   (long long)(m->chunks > 0 ? m->chunks : 1));
    dtp_tensor_id y = -1;
    for (int32_t l = 0; l < m->layers; l++) {
        y = add(g, "attention", attrs, l, 3, in);
        in[0] = y;
        in[1] = m->one_input ? y : in[1];
        in[2] = m->one_input ? y : in[2];
    }
    if (m->chunks > 0) {
        (void)snprintf(attrs, sizeof attrs, "dim:dim=s int:chunks=%lld int:inverse=1",
                       (long long)m->chunks);
        y = add(g, "reorder", attrs, m->layers, 1, &y);
    }
    return y;
}

static void add_gradients(dtp_graph *g, dtp_tensor_id y, int32_t n, const dtp_tensor_id *inputs)
{
    const dtp_graph_tensor spec = {
        .name = "w", .kind = DTP_TENSOR_INPUT, .type = g->tensors[y].type};
    dtp_tensor_id pair[2] = {y, -1}, grads[3];
    dtp_err err = {0};
    assert_int_equal(dtp_graph_add_tensor(g, &spec, &pair[1], NULL), DTP_OK);
    dtp_tensor_id loss = fx_add(g, "loss", (fx_node){"einsum", NULL, ""}, 2, pair);
    if (dtp_autodiff(g, loss, n, inputs, grads, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(dtp_graph_add_output(g, grads[i], NULL), DTP_OK);
    }
}

dtp_graph *context_graph(const context_model *m)
{
    static const char *const names[] = {"q", "k", "v"};
    dtp_graph *g = NULL;
    dtp_tensor_id inputs[3], in[3];
    char of_query[TEXT], of_key[TEXT];
    assert_int_equal(dtp_graph_create("context", dtp_builtin_ops(), &g, NULL), DTP_OK);
    type_text(m, true, of_query);
    type_text(m, false, of_key);
    for (int32_t i = 0; i < 3; i++) {
        inputs[i] = i > 0 && m->one_input
                        ? inputs[0]
                        : fx_tensor(g, names[i], DTP_TENSOR_INPUT, i == 0 ? of_query : of_key);
        in[i] = i > 0 && m->one_input ? in[0] : prepare(g, m, inputs[i], i < 2 || m->one_input);
    }
    dtp_tensor_id y = add_layers(g, m, in);
    if (m->gradients) {
        add_gradients(g, y, m->one_input ? 1 : 3, inputs);
    } else {
        assert_int_equal(dtp_graph_add_output(g, y, NULL), DTP_OK);
    }
    return g;
}

/* ---- programs ---- */

/* As the rules say, but class weights ("weights") stay replicated, and so do the rows of the
 * reorder at both ends, which needs the sequence whole. */
static dtp_status shard(const dtp_graph *g, const dtp_mesh *mesh, const char *text,
                        dtp_arena *arena, dtp_sharding *s, dtp_err *err)
{
    dtp_layout_rules rules;
    DTP_TRY(dtp_layout_rules_parse(text, mesh, &g->dims, arena, &rules, err));
    *s = (dtp_sharding){.mesh = *mesh, .n_tensors = g->n_tensors, .n_nodes = g->n_nodes};
    s->layouts = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *s->layouts);
    s->strategies = dtp_arena_alloc(arena, (size_t)g->n_nodes, sizeof *s->strategies);
    assert_non_null(s->layouts);
    assert_non_null(s->strategies);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_ttype *type = &g->tensors[t].type;
        DTP_TRY(dtp_layout_rules_layout(&rules, mesh, &g->dims, type, true, &s->layouts[t], err));
        if (strcmp(g->tensors[t].name, "weights") == 0) {
            s->layouts[t] = dtp_layout_replicated(type->rank, mesh->n_dims);
        }
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        memset(&s->strategies[n], 0, sizeof s->strategies[n]);
        if (strcmp(g->nodes[n].op->name, "reorder") != 0) {
            DTP_TRY(dtp_strategy_from_rules(g, n, mesh, &rules, &s->strategies[n], err));
        }
    }
    return DTP_OK;
}

static dtp_status lower(const dtp_graph *g, const char *mesh_text, const char *rules,
                        dtp_arena *arena, dtp_program **out, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_sharding s;
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    DTP_TRY(dtp_mesh_parse(mesh_text, &mesh, err));
    DTP_TRY(shard(g, &mesh, rules, arena, &s, err));
    DTP_TRY(dtp_lower(g, &s, &options, out, err));
    return dtp_program_check(*out, err);
}

dtp_program *context_lower(const dtp_graph *g, const char *mesh, const char *rules)
{
    dtp_program *p = NULL;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    if (lower(g, mesh, rules, arena, &p, &err) != DTP_OK) {
        fail_msg("mesh '%s', rules '%s': %s", mesh, rules, err.msg);
    }
    dtp_arena_destroy(arena);
    return p;
}

int32_t context_count(const dtp_program *p, dtp_phase phase, dtp_coll_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *in = &p->instrs[i];
        n += in->kind == DTP_INSTR_START && in->phase == phase &&
                     (kind == DTP_N_COLLS || in->coll.kind == kind)
                 ? 1
                 : 0;
    }
    return n;
}

/* ---- values ---- */

void context_values_init(context_values *v, const dtp_graph *g, uint64_t seed)
{
    dtp_program *p = context_lower(g, "", "");
    dtp_rule_run r = {.p = p, .backend = "ref", .inputs = (const double *const *)v->in};
    dtp_err err = {0};
    memset(v, 0, sizeof *v);
    assert_in_range(g->n_tensors, 1, CONTEXT_MAX_TENSORS);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        int64_t n = dtp_ttype_elems(&g->tensors[t].type);
        if (g->tensors[t].kind != DTP_TENSOR_INPUT) {
            continue;
        }
        v->in[t] = calloc((size_t)n, sizeof(double));
        assert_non_null(v->in[t]);
        for (int64_t i = 0; i < n; i++) {
            v->in[t][i] = (double)(float)(4.0 * dtp_case_uniform(&seed) - 2.0);
        }
    }
    if (dtp_rule_run_execute(&r, &err) != DTP_OK) {
        fail_msg("one device: %s", err.msg);
    }
    for (int32_t o = 0; o < g->n_outputs; o++) {
        v->want[o] = r.got[0][o];
        r.got[0][o] = NULL;
    }
    dtp_rule_run_free(&r);
    dtp_program_destroy(p);
}

void context_values_free(context_values *v)
{
    for (int32_t t = 0; t < CONTEXT_MAX_TENSORS; t++) {
        free(v->in[t]);
    }
    for (int32_t o = 0; o < DTP_RULE_MAX_OUTPUTS; o++) {
        free(v->want[o]);
    }
}

double context_error(const dtp_program *p, const char *backend, const context_values *v)
{
    dtp_rule_run r = {.p = p, .backend = backend, .inputs = (const double *const *)v->in};
    dtp_err err = {0};
    double worst = 0.0;
    if (dtp_rule_run_execute(&r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t o = 0; o < p->graph->n_outputs; o++) {
        worst = fmax(worst, dtp_rule_run_error(&r, o, v->want[o]));
    }
    dtp_rule_run_free(&r);
    return worst;
}
