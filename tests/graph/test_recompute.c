/* Recomputed blocks: which nodes are copied and where, on the graphs alone. */
#include "core/transform/recompute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/transform/graph_variant.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"

static dtp_graph *model(const char *name, bool forward)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const dtp_model_options options = {.size = sizeof options, .forward_only = forward};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.json", name);
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_graph *recomputed(const dtp_graph *g, const char *text)
{
    dtp_err err = {0};
    dtp_remat remat;
    dtp_graph *out = NULL;
    dtp_arena *arena = dtp_arena_create();
    if (dtp_remat_parse(text, g, arena, &remat, &err) != DTP_OK ||
        dtp_graph_rematerialize(g, &remat, &out, &err) != DTP_OK ||
        dtp_graph_check(out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    dtp_arena_destroy(arena);
    return out;
}

/* What goes out of an instance: something outside reads it. */
static bool goes_out(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node *p = &g->nodes[g->tensors[t].producer];
    bool out = t == g->loss;
    for (dtp_node_id n = 0; n < g->n_nodes && !out; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in; i++) {
            out = out ||
                  (node->in[i] == t && !(node->block == p->block && node->instance == p->instance));
        }
    }
    return out;
}

static bool is_read(const dtp_graph *g, const dtp_node *by_outputs_of)
{
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            for (int32_t k = 0; k < by_outputs_of->n_out; k++) {
                if (g->nodes[n].in[i] == by_outputs_of->out[k]) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* No backward node reads what died with the forward pass, no copy is made in vain, and copies are
 * what they copy. */
static void check_recomputed(const dtp_graph *g, int32_t first, int32_t last)
{
    int32_t copies = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool chosen = node->block >= 0 && node->instance >= first && node->instance <= last;
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_BACKWARD; i++) {
            const dtp_node_id p = g->tensors[node->in[i]].producer;
            const bool inside = chosen && p >= 0 && g->nodes[p].phase == DTP_FORWARD &&
                                g->nodes[p].block == node->block &&
                                g->nodes[p].instance == node->instance;
            if (inside && !goes_out(g, node->in[i])) {
                fail_msg("'%s' reads '%s' of the forward pass", node->name,
                         g->tensors[node->in[i]].name);
            }
        }
        if (!node->repeats) {
            continue;
        }
        const dtp_node *origin = &g->nodes[node->origin];
        copies++;
        assert_true(chosen && node->phase == DTP_BACKWARD && origin->phase == DTP_FORWARD);
        assert_ptr_equal(node->op, origin->op);
        assert_int_equal(node->block, origin->block);
        assert_int_equal(node->instance, origin->instance);
        assert_true(strncmp(node->name, "remat.", 6) == 0);
        assert_string_equal(node->name + 6, origin->name);
        assert_true(is_read(g, node));
        for (int32_t i = 0; i < node->n_attrs; i++) {
            assert_true(node->attrs[i].i == origin->attrs[i].i);
        }
    }
    assert_true(copies > 0);
}

static void test_recompute__backward_reads_copies(void **state)
{
    static const char *const models[] = {"gpt_bytes", "gpt_bytes_dropout"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        dtp_graph *g = model(models[i], false);
        dtp_graph *all = recomputed(g, "all"), *some = recomputed(g, "layer:1-2");
        check_recomputed(all, 0, 3);
        check_recomputed(some, 1, 2);
        assert_int_equal(2 * (some->n_nodes - g->n_nodes), all->n_nodes - g->n_nodes);
        assert_int_equal(all->n_grads, g->n_grads);
        for (int32_t k = 0; k < g->n_grads; k++) {
            assert_string_equal(all->tensors[all->grads[k].grad].name,
                                g->tensors[g->grads[k].grad].name);
        }
        dtp_graph_destroy(some);
        dtp_graph_destroy(all);
        dtp_graph_destroy(g);
    }
}

/* Node number k of an instance, in a phase; NULL = it has fewer. */
static const dtp_node *node_of(const dtp_graph *g, int32_t instance, dtp_phase phase, int32_t k)
{
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        if (node->block == 0 && node->instance == instance && node->phase == phase && k-- == 0) {
            return node;
        }
    }
    return NULL;
}

/* Folding: instances of a block are alike, copies included. */
static void test_recompute__instances_are_alike(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes_dropout", false), *all = recomputed(g, "layer");
    for (int32_t instance = 1; instance < 4; instance++) {
        const dtp_node *a, *b;
        int32_t k = 0;
        do {
            a = node_of(all, 0, DTP_BACKWARD, k);
            b = node_of(all, instance, DTP_BACKWARD, k++);
            assert_true((a == NULL) == (b == NULL));
            assert_true(a == NULL || (a->op == b->op && a->repeats == b->repeats));
        } while (a != NULL);
    }
    dtp_graph_destroy(all);
    dtp_graph_destroy(g);
}

static void test_recompute__texts(void **state)
{
    static const char *const bad[] = {"nolayer",   "layer,",  "",          "layer:",      "layer:4",
                                      "layer:2-1", "layer:x", "layer:0-4", "layer,layer", ":1"};
    (void)state;
    dtp_graph *g = model("gpt_bytes", false), *mlp = model("mlp_digits", false);
    dtp_arena *arena = dtp_arena_create();
    dtp_remat remat, *choices;
    int32_t n;
    dtp_err err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dtp_remat_parse(bad[i], g, arena, &remat, &err), DTP_INVALID);
        assert_non_null(strstr(err.msg, "remat '"));
    }
    assert_int_equal(dtp_remat_parse("all", mlp, arena, &remat, &err), DTP_INVALID);
    assert_int_equal(dtp_remat_parse("none", mlp, arena, &remat, &err), DTP_OK);
    assert_int_equal(remat.n, 0);
    assert_int_equal(dtp_remat_parse("all", g, arena, &remat, &err), DTP_OK);
    assert_int_equal(remat.n, 1);
    assert_string_equal(remat.items[0], "layer");
    assert_int_equal(dtp_remat_variants(g, arena, &n, &choices, &err), DTP_OK);
    assert_int_equal(n, 2);
    assert_int_equal(choices[0].n, 0);
    assert_string_equal(choices[1].items[0], "layer");
    assert_int_equal(dtp_remat_variants(mlp, arena, &n, &choices, &err), DTP_OK);
    assert_int_equal(n, 1);
    dtp_arena_destroy(arena);
    dtp_graph_destroy(mlp);
    dtp_graph_destroy(g);
}

/* Without a backward pass nothing is copied. */
static void test_recompute__forward_graph_is_unchanged(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes", true), *same = recomputed(g, "all");
    assert_true(dtp_graph_hash(g) == dtp_graph_hash(same));
    dtp_graph_destroy(same);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute__backward_reads_copies),
        cmocka_unit_test(test_recompute__instances_are_alike),
        cmocka_unit_test(test_recompute__texts),
        cmocka_unit_test(test_recompute__forward_graph_is_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
