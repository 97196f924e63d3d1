/* What pins on the weights of known models lead to: collectives of the lowered training step. The
 * counts are those of PyTorch's tests of the same modules (a scalar loss that is summed over ranks
 * is left out, as it is there). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "spmd/lower/lower.h"
#include "spmd/propagate/propagate.h"

/* Two linear layers; w1 is split by columns, w2 by rows. */
static const char MLP[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"mlp\","
    " \"dims\": {\"batch\": 8, \"d\": 10, \"hidden\": 16, \"o\": 10},"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"], \"dtype\": \"f32\"},"
    "  \"dy\": {\"dims\": [\"batch\", \"o\"], \"dtype\": \"f32\"}},"
    " \"params\": {\"w1\": {\"dims\": [\"d\", \"hidden\"], \"init\": \"ones\"},"
    "  \"b1\": {\"dims\": [\"hidden\"], \"init\": \"zeros\"},"
    "  \"w2\": {\"dims\": [\"hidden\", \"o\"], \"init\": \"ones\"}},"
    " \"nodes\": ["
    "  {\"id\": \"h\", \"op\": \"einsum\", \"in\": [\"x\", \"w1\"], \"out\": [\"batch\", "
    "\"hidden\"]},"
    "  {\"id\": \"hb\", \"op\": \"add\", \"in\": [\"h\", \"b1\"]},"
    "  {\"id\": \"a\", \"op\": \"relu\", \"in\": [\"hb\"]},"
    "  {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"a\", \"w2\"], \"out\": [\"batch\", \"o\"]},"
    "  {\"id\": \"loss\", \"op\": \"einsum\", \"in\": [\"y\", \"dy\"], \"out\": []}],"
    " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.25}}}}";

typedef struct named_pin {
    const char *tensor, *layout, *node; /* node NULL: everywhere */
} named_pin;

enum { MAX_PINS = 8 };

typedef struct model_case {
    const char *what, *mesh;
    named_pin pins[MAX_PINS];
    int counts[DTP_N_COLLS]; /* all-reduce, all-gather, reduce-scatter, all-to-all */
} model_case;

static dtp_node_id find_node(const dtp_graph *g, const char *name)
{
    for (int32_t n = 0; n < g->n_nodes; n++) {
        if (strcmp(g->nodes[n].name, name) == 0) {
            return n;
        }
    }
    fail_msg("no node '%s'", name);
    return -1;
}

static int32_t read_pins(const dtp_graph *g, const dtp_mesh *mesh, const named_pin *from,
                         dtp_pin *out)
{
    int32_t n = 0;
    dtp_err err = {0};
    for (; n < MAX_PINS && from[n].tensor != NULL; n++) {
        out[n] = (dtp_pin){.tensor = dtp_graph_find(g, from[n].tensor)};
        assert_true(out[n].tensor >= 0);
        out[n].node = from[n].node != NULL ? find_node(g, from[n].node) : -1;
        if (dtp_layout_parse(from[n].layout, mesh, &g->tensors[out[n].tensor].type, &g->dims,
                             &out[n].layout, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
    }
    return n;
}

static void count(const dtp_program *p, int out[DTP_N_COLLS])
{
    memset(out, 0, DTP_N_COLLS * sizeof *out);
    for (int32_t i = 0; p != NULL && i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_START && p->instrs[i].coll.count > 1) {
            out[p->instrs[i].coll.kind]++;
        }
    }
}

static void check_case(const char *text, const model_case *c)
{
    dtp_graph *g = NULL;
    dtp_mesh mesh;
    dtp_pin pins[MAX_PINS];
    dtp_sharding s;
    dtp_program *p = NULL;
    dtp_err err = {0};
    int counts[DTP_N_COLLS];
    assert_int_equal(dtp_model_parse("m", text, strlen(text), NULL, &g, &err), DTP_OK);
    assert_int_equal(dtp_mesh_parse(c->mesh, &mesh, NULL), DTP_OK);
    dtp_propagate_options o = {.price = dtp_step_generic_price,
                               .redistributor = dtp_redistributor_generic(),
                               .pins = pins,
                               .n_pins = read_pins(g, &mesh, c->pins, pins)};
    dtp_status st = dtp_propagate(g, &mesh, &o, g->arena, &s, &err);
    const dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    st = st == DTP_OK ? dtp_lower(g, &s, &passes, &p, &err) : st;
    if (st != DTP_OK) {
        fail_msg("%s: %s", c->what, err.msg);
    }
    assert_non_null(p);
    count(p, counts);
    for (int k = 0; k < DTP_N_COLLS; k++) {
        if (counts[k] != c->counts[k]) {
            fail_msg("%s: %d %s, want %d", c->what, counts[k], dtp_coll_name((dtp_coll_kind)k),
                     c->counts[k]);
        }
    }
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
}

static void test_propagate__tensor_parallel_mlp(void **unused)
{
    (void)unused;
    static const model_case cases[] = {
        {"replicated", "x:4", {{0}}, {0, 0, 0, 0}},
        {"column and row parallel (T6)",
         "x:2",
         {{"w1", "hidden@x", NULL},
          {"b1", "hidden@x", NULL},
          {"w2", "hidden@x", NULL},
          {"y", "replicated", NULL}},
         {1, 0, 0, 0}},
        {"the same on 4 ranks",
         "x:4",
         {{"w1", "hidden@x", NULL},
          {"b1", "hidden@x", NULL},
          {"w2", "hidden@x", NULL},
          {"y", "replicated", NULL}},
         {1, 0, 0, 0}},
        {"sequence parallel (T7)",
         "x:2",
         {{"x", "batch@x", NULL},
          {"dy", "batch@x", NULL},
          {"w1", "hidden@x", NULL},
          {"b1", "hidden@x", NULL},
          {"w2", "hidden@x", NULL},
          {"y", "batch@x", NULL}},
         {0, 2, 1, 0}},
        {"data parallel, gradients are fused",
         "x:2",
         {{"x", "batch@x", NULL}, {"dy", "batch@x", NULL}},
         {1, 0, 0, 0}},
        {"data and tensor parallel",
         "dp:2;tp:2",
         {{"x", "batch@dp", NULL},
          {"dy", "batch@dp", NULL},
          {"w1", "hidden@tp", NULL},
          {"b1", "hidden@tp", NULL},
          {"w2", "hidden@tp", NULL},
          {"y", "batch@dp", NULL}},
         {2, 0, 0, 0}},
        {"a parameter is stored in pieces and read whole",
         "x:2",
         {{"w1", "hidden@x", NULL}, {"w1", "replicated", "h"}, {"b1", "replicated", NULL}},
         {0, 1, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_case(MLP, &cases[i]);
    }
}

/* What no strategy satisfies is refused with the place. */
static void test_propagate__impossible_pins(void **unused)
{
    (void)unused;
    dtp_graph *g = NULL;
    dtp_mesh mesh;
    dtp_pin pins[MAX_PINS];
    dtp_sharding s;
    dtp_err err = {0};
    assert_int_equal(dtp_model_parse("m", MLP, strlen(MLP), NULL, &g, &err), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    dtp_propagate_options o = {.price = dtp_step_generic_price,
                               .redistributor = dtp_redistributor_generic(),
                               .pins = pins,
                               .n_pins = 1};
    pins[0] = (dtp_pin){.tensor = dtp_graph_find(g, "a"), .node = -1};
    pins[0].layout = dtp_layout_replicated(1, 1);
    assert_int_equal(dtp_propagate(g, &mesh, &o, g->arena, &s, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "pin 0 of tensor 'a'"));
    pins[0] = (dtp_pin){.tensor = dtp_graph_find(g, "w2"),
                        .node = find_node(g, "h"),
                        .layout = dtp_layout_replicated(2, 1)};
    assert_int_equal(dtp_propagate(g, &mesh, &o, g->arena, &s, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'h' does not read it"));
    pins[0].tensor = g->n_tensors;
    assert_int_equal(dtp_propagate(g, &mesh, &o, g->arena, &s, &err), DTP_INVALID);
    /* relu of partial values: no row reads them */
    pins[0] = (dtp_pin){.tensor = dtp_graph_find(g, "hb"), .node = find_node(g, "a")};
    pins[0].layout = dtp_layout_replicated(2, 1);
    pins[0].layout.placement[0] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    assert_int_equal(dtp_propagate(g, &mesh, &o, g->arena, &s, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "node 'a': relu: no strategy reads operand 0 as '+sum(x)'"));
    dtp_graph_destroy(g);
}

/* Strict: nothing is sent that was not asked for. */
static void test_propagate__strict(void **unused)
{
    (void)unused;
    static const named_pin moving[] = {{"x", "batch@x", NULL}, {"w1", "hidden@x", NULL}, {0}};
    static const named_pin asked[] = {{"x", "batch@x", NULL},
                                      {"dy", "batch@x", NULL},
                                      {"w1", "hidden@x", NULL},
                                      {"w1", "replicated", "h"},
                                      {0}};
    dtp_graph *g = NULL;
    dtp_mesh mesh;
    dtp_pin pins[MAX_PINS];
    dtp_sharding s;
    dtp_err err = {0};
    assert_int_equal(dtp_model_parse("m", MLP, strlen(MLP), NULL, &g, &err), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    dtp_propagate_options o = {.price = dtp_step_generic_price,
                               .redistributor = dtp_redistributor_generic(),
                               .pins = pins,
                               .strict = true};
    o.n_pins = read_pins(g, &mesh, moving, pins);
    assert_int_equal(dtp_propagate(g, &mesh, &o, g->arena, &s, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "node 'h': einsum: operand "));
    assert_non_null(strstr(err.msg, "strict"));
    o.n_pins = read_pins(g, &mesh, asked, pins);
    if (dtp_propagate(g, &mesh, &o, g->arena, &s, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_propagate__tensor_parallel_mlp),
        cmocka_unit_test(test_propagate__impossible_pins),
        cmocka_unit_test(test_propagate__strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
