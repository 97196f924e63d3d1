/* Small training graphs, their values computed node by node without any sharding, and programs
 * compared with them. */
#include "tests/lower/lower_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "tests/support/spmd_kernels.h"

/* ---- values ---- */

static double *new_values(const dtp_graph *g, dtp_tensor_id t)
{
    return calloc((size_t)dtp_ttype_elems(&g->tensors[t].type) + 1, sizeof(double));
}

static void fill_sources(spmd_fixture *f)
{
    uint64_t seed = 42;
    const dtp_graph *g = f->graph;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        f->value[t] = new_values(g, t);
        if (g->tensors[t].kind == DTP_TENSOR_VALUE) {
            continue;
        }
        f->start[t] = new_values(g, t);
        for (int64_t i = 0; i < dtp_ttype_elems(&g->tensors[t].type); i++) {
            f->start[t][i] = (double)(spmd_sim_random(&seed) % 2001) / 1000 - 1;
            f->value[t][i] = f->start[t][i];
        }
    }
}

static void compute(spmd_fixture *f)
{
    const dtp_graph *g = f->graph;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        dtp_call_types types;
        dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        double *in[DTP_MAX_OP_IN], *out[DTP_MAX_OP_OUT], factor = 1;
        for (int32_t i = 0; i < call.n_in; i++) {
            in[i] = f->value[g->nodes[n].in[i]];
        }
        for (int32_t i = 0; i < call.n_out; i++) {
            out[i] = f->value[g->nodes[n].out[i]];
        }
        if (strcmp(call.op->name, "reduce") == 0) {
            factor = (double)dtp_ttype_elems(&types.out[0]) / (double)dtp_ttype_elems(&types.in[0]);
        }
        spmd_kernels_call(&call, factor, in, out);
    }
}

static spmd_fixture from_text(const char *text)
{
    spmd_fixture f = {0};
    dtp_model_options options = {.size = sizeof options, .f64 = true};
    dtp_err err;
    if (dtp_model_parse("test", text, strlen(text), &options, &f.graph, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    f.start = calloc((size_t)f.graph->n_tensors, sizeof *f.start);
    f.value = calloc((size_t)f.graph->n_tensors, sizeof *f.value);
    fill_sources(&f);
    compute(&f);
    return f;
}

spmd_fixture spmd_fixture_mlp(const int64_t sizes[4])
{
    char text[2048];
    (void)snprintf(
        text, sizeof text,
        "{\"format\": \"dtp.model/1\", \"name\": \"mlp\","
        "\"dims\": {\"batch\": %lld, \"pix\": %lld, \"hid\": %lld, \"cls\": %lld},"
        "\"inputs\": {\"x\": {\"dims\": [\"batch\", \"pix\"], \"dtype\": \"f32\"},"
        "             \"t\": {\"dims\": [\"batch\", \"cls\"], \"dtype\": \"f32\"}},"
        "\"params\": {\"w1\": {\"dims\": [\"pix\", \"hid\"], \"init\": {\"normal\": 1}},"
        "             \"b1\": {\"dims\": [\"hid\"], \"init\": {\"normal\": 1}},"
        "             \"w2\": {\"dims\": [\"hid\", \"cls\"], \"init\": {\"normal\": 1}}},"
        "\"nodes\": ["
        " {\"id\": \"h\", \"op\": \"einsum\", \"in\": [\"x\", \"w1\"], \"out\": [\"batch\", "
        "\"hid\"]},"
        " {\"id\": \"hb\", \"op\": \"add\", \"in\": [\"h\", \"b1\"]},"
        " {\"id\": \"a\", \"op\": \"relu\", \"in\": [\"hb\"]},"
        " {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"a\", \"w2\"], \"out\": [\"batch\", "
        "\"cls\"]},"
        " {\"id\": \"p\", \"op\": \"softmax\", \"in\": [\"y\"], \"over\": \"cls\"},"
        " {\"id\": \"d\", \"op\": \"mul\", \"in\": [\"p\", \"t\"]},"
        " {\"id\": \"loss\", \"op\": \"reduce\", \"in\": [\"d\"], \"kind\": \"mean\","
        "  \"over\": [\"batch\", \"cls\"]}],"
        "\"outputs\": [\"p\"],"
        "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"momentum\": {\"lr\": 0.1}}}}",
        (long long)sizes[0], (long long)sizes[1], (long long)sizes[2], (long long)sizes[3]);
    return from_text(text);
}

spmd_fixture spmd_fixture_relabel(void)
{
    return from_text(
        "{\"format\": \"dtp.model/1\", \"name\": \"relabel\","
        "\"dims\": {\"a\": 4, \"b\": 6, \"c\": 8, \"heads\": 2, \"key\": 4, \"n\": 24, \"out\": 6},"
        "\"inputs\": {\"x\": {\"dims\": [\"a\", \"b\", \"c\"], \"dtype\": \"f32\"}},"
        "\"params\": {\"w\": {\"dims\": [\"heads\", \"key\", \"out\"], \"init\": {\"normal\": 1}},"
        "             \"v\": {\"dims\": [\"n\"], \"init\": {\"normal\": 1}}},"
        "\"nodes\": ["
        " {\"id\": \"m\", \"op\": \"relabel\", \"in\": [\"x\"], \"out\": [\"n\", \"heads\", "
        "\"key\"]},"
        " {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"m\", \"w\"], \"out\": [\"n\", \"out\"]},"
        " {\"id\": \"z\", \"op\": \"mul\", \"in\": [\"y\", \"v\"]},"
        " {\"id\": \"q\", \"op\": \"relabel\", \"in\": [\"z\"], \"out\": [\"a\", \"b\", \"out\"]},"
        " {\"id\": \"loss\", \"op\": \"reduce\", \"in\": [\"q\"], \"kind\": \"sum\","
        "  \"over\": [\"a\", \"b\", \"out\"]}],"
        "\"outputs\": [\"q\"],"
        "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}");
}

spmd_fixture spmd_fixture_sum(void)
{
    return from_text(
        "{\"format\": \"dtp.model/1\", \"name\": \"sum\","
        "\"dims\": {\"a\": 4, \"k\": 6, \"b\": 3},"
        "\"inputs\": {\"x\": {\"dims\": [\"a\", \"k\"], \"dtype\": \"f32\"}},"
        "\"params\": {\"u\": {\"dims\": [\"k\", \"b\"], \"init\": {\"normal\": 1}},"
        "             \"v\": {\"dims\": [\"k\", \"b\"], \"init\": {\"normal\": 1}},"
        "             \"w\": {\"dims\": [\"k\"], \"init\": {\"normal\": 1}}},"
        "\"nodes\": ["
        " {\"id\": \"p\", \"op\": \"einsum\", \"in\": [\"x\", \"u\"], \"out\": [\"a\", \"b\"]},"
        " {\"id\": \"q\", \"op\": \"einsum\", \"in\": [\"x\", \"v\"], \"out\": [\"a\", \"b\"]},"
        " {\"id\": \"r\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"a\"]},"
        " {\"id\": \"s\", \"op\": \"add\", \"in\": [\"p\", \"q\"]},"
        " {\"id\": \"t\", \"op\": \"add\", \"in\": [\"s\", \"r\"]},"
        " {\"id\": \"y\", \"op\": \"relu\", \"in\": [\"t\"]},"
        " {\"id\": \"loss\", \"op\": \"reduce\", \"in\": [\"y\"], \"kind\": \"sum\","
        "  \"over\": [\"a\", \"b\"]}],"
        "\"outputs\": [\"y\"],"
        "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"momentum\": {\"lr\": 0.1}}}}");
}

spmd_fixture spmd_fixture_cast(void)
{
    return from_text(
        "{\"format\": \"dtp.model/1\", \"name\": \"cast\","
        "\"dims\": {\"a\": 4, \"k\": 8, \"b\": 6},"
        "\"inputs\": {\"x\": {\"dims\": [\"a\", \"k\"], \"dtype\": \"f32\"}},"
        "\"params\": {\"u\": {\"dims\": [\"k\", \"b\"], \"init\": {\"normal\": 1}},"
        "             \"g\": {\"dims\": [\"b\"], \"init\": {\"normal\": 1}},"
        "             \"v\": {\"dims\": [\"b\", \"k\"], \"init\": {\"normal\": 1}}},"
        "\"nodes\": ["
        " {\"id\": \"uc\", \"op\": \"cast\", \"in\": [\"u\"], \"dtype\": \"f64\"},"
        " {\"id\": \"gc\", \"op\": \"cast\", \"in\": [\"g\"], \"dtype\": \"f64\"},"
        " {\"id\": \"p\", \"op\": \"einsum\", \"in\": [\"x\", \"uc\"], \"out\": [\"a\", \"b\"]},"
        " {\"id\": \"q\", \"op\": \"mul\", \"in\": [\"p\", \"gc\"]},"
        " {\"id\": \"qc\", \"op\": \"cast\", \"in\": [\"q\"], \"dtype\": \"f64\"},"
        " {\"id\": \"qd\", \"op\": \"cast\", \"in\": [\"q\"], \"dtype\": \"f64\"},"
        " {\"id\": \"r\", \"op\": \"relu\", \"in\": [\"qc\"]},"
        " {\"id\": \"s\", \"op\": \"scale\", \"in\": [\"q\"], \"factor\": 0.5},"
        " {\"id\": \"t\", \"op\": \"mul\", \"in\": [\"r\", \"s\"]},"
        " {\"id\": \"vc\", \"op\": \"cast\", \"in\": [\"v\"], \"dtype\": \"f64\"},"
        " {\"id\": \"tc\", \"op\": \"cast\", \"in\": [\"t\"], \"dtype\": \"f64\"},"
        " {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"tc\", \"vc\"], \"out\": [\"a\", \"k\"]},"
        " {\"id\": \"w\", \"op\": \"einsum\", \"in\": [\"qd\", \"vc\"], \"out\": [\"a\", \"k\"]},"
        " {\"id\": \"yw\", \"op\": \"add\", \"in\": [\"y\", \"w\"]},"
        " {\"id\": \"z\", \"op\": \"add\", \"in\": [\"yw\", \"x\"]},"
        " {\"id\": \"loss\", \"op\": \"reduce\", \"in\": [\"z\"], \"kind\": \"sum\","
        "  \"over\": [\"a\", \"k\"]}],"
        "\"outputs\": [\"z\"],"
        "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}");
}

void spmd_fixture_destroy(spmd_fixture *f)
{
    for (int32_t t = 0; t < f->graph->n_tensors; t++) {
        free(f->start[t]);
        free(f->value[t]);
    }
    free(f->start);
    free(f->value);
    dtp_graph_destroy(f->graph);
}

/* ---- programs ---- */

dtp_sharding spmd_fixture_rules(const spmd_fixture *f, const char *mesh, const char *rules)
{
    dtp_graph *g = f->graph;
    dtp_sharding s;
    dtp_layout_rules parsed;
    dtp_mesh m;
    dtp_err err;
    assert_int_equal(dtp_mesh_parse(mesh, &m, NULL), DTP_OK);
    if (dtp_layout_rules_parse(rules, &m, &g->dims, g->arena, &parsed, &err) != DTP_OK ||
        dtp_sharding_from_rules(g, &m, &parsed, true, g->arena, &s, &err) != DTP_OK) {
        fail_msg("%s / %s: %s", mesh, rules, err.msg);
    }
    return s;
}

static bool agrees_when(const spmd_fixture *f, const dtp_program *p, bool late)
{
    const dtp_graph *g = f->graph;
    uint64_t seed = 3;
    bool agrees = true;
    spmd_sim sim = spmd_sim_create(p, spmd_kernels_run);
    sim.late = late;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (f->start[t] != NULL) {
            spmd_sim_scatter(&sim, p->tensor_value[t], f->start[t], &seed);
        }
    }
    spmd_sim_run(&sim);
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (value->keep && value->kind != DTP_VALUE_RESIDENT &&
            !spmd_sim_matches(&sim, v, f->value[value->tensor], 1e-11)) {
            (void)fprintf(stderr, "'%s' differs\n", value->name);
            agrees = false;
        }
    }
    for (int32_t i = 0; i < p->n_updates; i++) {
        const dtp_value *target = &p->values[p->updates[i].target];
        dtp_tensor_id t = p->values[p->updates[i].value].tensor;
        if (!spmd_sim_matches(&sim, p->updates[i].target, f->value[t], 1e-11)) {
            (void)fprintf(stderr, "updated '%s' differs\n", target->name);
            agrees = false;
        }
    }
    spmd_sim_destroy(&sim);
    return agrees;
}

bool spmd_fixture_agrees(const spmd_fixture *f, const dtp_program *p)
{
    return agrees_when(f, p, false) && (p->overlap.depth == 0 || agrees_when(f, p, true));
}

int32_t spmd_count(const dtp_program *p, dtp_coll_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += p->instrs[i].kind == DTP_INSTR_START && p->instrs[i].coll.kind == kind;
    }
    return n;
}
