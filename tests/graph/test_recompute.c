/* Recomputed blocks: which nodes are copied and where, on the graphs alone. */
#include "core/transform/recompute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/glob.h"
#include "core/transform/graph_variant.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"
#include "tests/support/graph_check.h"

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
        graph_check(out, &err) != DTP_OK) {
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

/* Whether a copy of a node is there. */
static bool is_copied(const dtp_graph *g, const char *name)
{
    bool copied = false;
    for (dtp_node_id n = 0; n < g->n_nodes && !copied; n++) {
        copied = g->nodes[n].repeats && strcmp(g->nodes[g->nodes[n].origin].name, name) == 0;
    }
    return copied;
}

/* Selective recomputation. What backward nodes read of their instance's forward pass goes out of it
 * or is named by a glob; what a glob names has no copy, and what recomputing alone needs neither
 * has. */
static void check_kept(const char *file, const char *keep, int32_t n_gone, const char *const *gone)
{
    char text[256];
    dtp_graph *g = model(file, false), *all = recomputed(g, "all");
    (void)snprintf(text, sizeof text, "all keep=%s", keep);
    dtp_graph *kept = recomputed(g, text);
    int32_t copies = 0, read = 0;
    for (dtp_node_id n = 0; n < kept->n_nodes; n++) {
        const dtp_node *node = &kept->nodes[n];
        copies += node->repeats ? 1 : 0;
        if (node->repeats) {
            assert_false(dtp_glob_match_prefix(keep, kept->nodes[node->origin].name));
            assert_true(is_copied(all, kept->nodes[node->origin].name) && is_read(kept, node));
        }
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_BACKWARD; i++) {
            const dtp_node_id p = kept->tensors[node->in[i]].producer;
            const bool inside = p >= 0 && node->block >= 0 && kept->nodes[p].phase == DTP_FORWARD &&
                                kept->nodes[p].block == node->block &&
                                kept->nodes[p].instance == node->instance;
            const bool named = p >= 0 && dtp_glob_match_prefix(keep, kept->nodes[p].name);
            if (inside && !named && !goes_out(kept, node->in[i])) {
                fail_msg("%s: '%s' reads '%s'", keep, node->name, kept->nodes[p].name);
            }
            read += inside && named ? 1 : 0;
        }
    }
    assert_true(copies > 0 && read > 0 && kept->n_nodes < all->n_nodes &&
                kept->n_nodes > g->n_nodes);
    for (int32_t i = 0; i < n_gone; i++) {
        assert_true(is_copied(all, gone[i]) && !is_copied(kept, gone[i]));
    }
    dtp_graph_destroy(kept);
    dtp_graph_destroy(all);
    dtp_graph_destroy(g);
}

static void test_recompute__results_are_kept_by_name(void **state)
{
    static const char *const rest[] = {"layers.1.attn.q", "layers.1.attn.k", "layers.1.attn.k.mm"};
    (void)state;
    check_kept("gpt_bytes", "layers.*.{attn.q.mm,attn.v.mm,attn,mlp.up.mm}$", 0, NULL);
    check_kept("gpt_bytes_dropout", "**.{attn,attn.mm,mlp.up.mm}$", 0, NULL);
    check_kept("llama3_8b", "**.{attn.q.mm,attn.v,attn,mlp.gate.mm,mlp.out}$", 0, NULL);
    check_kept("llama3_8b", "layers.*.{norm_1,attn.*,x1,norm_2,mlp}", 3, rest); /* but attention */
    check_kept("mixtral_8x7b", "**.attn$", 0, NULL);
    check_kept("bert_large", "**.attn$", 0, NULL);
}

/* Some instances keep other results than others; what several items say adds up. */
static void test_recompute__instances_keep_their_own(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes", false);
    dtp_graph *r = recomputed(g, "layer:0 keep=**.attn$; layer:1 keep=**.mlp.up,**.ln_1;layer");
    assert_true(!is_copied(r, "layers.0.attn") && is_copied(r, "layers.0.mlp.up"));
    assert_true(is_copied(r, "layers.1.attn") && !is_copied(r, "layers.1.mlp.up.mm"));
    assert_true(!is_copied(r, "layers.1.ln_1") && is_copied(r, "layers.1.ln_2"));
    assert_true(is_copied(r, "layers.2.attn") && is_copied(r, "layers.3.mlp.up"));
    dtp_graph_destroy(r);
    dtp_graph_destroy(g);
}

static void test_recompute__globs_that_match_nothing(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"layer keep=**.atn$",
         "'**.atn$' matches no node of the block; the nearest names are 'layers.0.attn'"},
        {"all keep=**.mlp.upp$",
         "'**.mlp.upp$' matches no node of any block; the nearest names are 'layers.0.mlp.up'"},
        {"layer:1-2 keep=layers.0.attn",
         "'layers.0.attn' matches no node of the block; the nearest names are 'layers.1.attn'"},
        {"layer keep=**.attn,logits", "'logits' matches no node of the block"},
        {"layer keep=grad.**", "'grad.**' matches no node of the block"},
        {"layer keep=", "keep: a glob is missing"},
        {"all keep=**.attn,", "keep: a glob is missing"},
        {"layer keep=**.attn,,b", "keep: a name pattern of 0 characters"},
        {"layer keep={a,b", "the braces in '{a,b' do not pair up"},
        {"layer keeps=**.attn", "no such block"},
        {"layer keep=**.attn;layer keep=**.attn", "is given twice"},
        {"none keep=**.attn", "no such block"},
    };
    (void)state;
    dtp_graph *g = model("gpt_bytes", false);
    dtp_arena *arena = dtp_arena_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_remat remat;
        dtp_err err = {0};
        assert_int_equal(dtp_remat_parse(cases[i].text, g, arena, &remat, &err), DTP_INVALID);
        if (strstr(err.msg, cases[i].words) == NULL) {
            fail_msg("%s: %s", cases[i].text, err.msg);
        }
    }
    dtp_arena_destroy(arena);
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
        cmocka_unit_test(test_recompute__results_are_kept_by_name),
        cmocka_unit_test(test_recompute__instances_keep_their_own),
        cmocka_unit_test(test_recompute__globs_that_match_nothing),
        cmocka_unit_test(test_recompute__texts),
        cmocka_unit_test(test_recompute__forward_graph_is_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
