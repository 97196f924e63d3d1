/* Context parallelism: attention over a split sequence, gathered or in a ring, forward and backward
 * on 2 to 8 virtual ranks against one device; how often it communicates (row X3 of PyTorch's
 * counts: a ring of W ranks sends W - 1 times forward and 2W - 1 times backward); what it holds;
 * and the zigzag order, which balances the work. Usage: test_ring [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/sequence.h"
#include "tests/support/context_case.h"

static uint64_t seed = 20240517;

static const double BOUND = 1e-12; /* f64, relative */

/* ---- values ---- */

static void check_model(const context_model *m, const char *mesh, const char *rules)
{
    dtp_graph *g = context_graph(m);
    context_values v;
    context_values_init(&v, g, seed);
    dtp_program *p = context_lower(g, mesh, rules);
    double error = context_error(p, "ref", &v);
    if (!(error <= BOUND)) {
        fail_msg(
            "%s of %lld places on '%s' under '%s', causal %d, %lld chunks: off by %g, seed %llu",
            m->ring ? "ring" : "gather", (long long)m->sequence, mesh, rules, m->causal,
            (long long)m->chunks, error, (unsigned long long)seed);
    }
    dtp_program_destroy(p);
    context_values_free(&v);
    dtp_graph_destroy(g);
}

static void check_meshes(context_model m)
{
    static const struct {
        const char *mesh, *rules;
    } cases[] = {{"x:2", "s:x"},         {"x:3", "s:x"},         {"x:4", "s:x"},
                 {"x:8", "s:x"},         {"x:2;y:2", "s:x,s:y"}, {"x:2;y:2", "s:y,s:x"},
                 {"x:2;y:3", "b:x,s:y"}, {"x:2;y:4", "h:x,s:y"}, {"x:4;y:2", "s:x,g:y"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int32_t k = 0; k < 4; k++) {
            m.ring = k % 2 == 1;
            m.causal = k < 2;
            check_model(&m, cases[i].mesh, cases[i].rules);
        }
    }
}

static void test_ring__forward_and_backward_equal_one_device(void **state)
{
    (void)state;
    context_model m = {.batch = 3, .sequence = 24, .heads = 2, .groups = 2, .features = 2};
    m.layers = 1;
    check_meshes(m);
    m.gradients = true;
    check_meshes(m);
}

static void test_ring__layers_on_one_input(void **state)
{
    (void)state;
    context_model m = {.sequence = 16, .heads = 1, .features = 4, .layers = 2};
    m.ring = m.causal = m.one_input = m.gradients = m.rope = true;
    check_model(&m, "x:4", "s:x");
    check_model(&m, "x:8", "s:x");
}

/* Uneven pieces: a ring falls back to gather. */
static void test_ring__uneven_sequences_are_gathered(void **state)
{
    (void)state;
    context_model m = {.sequence = 7, .heads = 1, .features = 2, .layers = 1};
    m.ring = m.causal = m.gradients = true;
    check_model(&m, "x:3", "s:x");
    check_model(&m, "x:8", "s:x");
    dtp_graph *g = context_graph(&m);
    dtp_program *p = context_lower(g, "x:3", "s:x");
    assert_int_equal(context_count(p, DTP_FORWARD, DTP_PERMUTE), 0);
    assert_int_equal(context_count(p, DTP_FORWARD, DTP_ALL_GATHER), 1);
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
}

/* ---- counts ---- */

static void check_counts(int32_t w, int32_t layers, bool ring)
{
    context_model m = {.batch = 2, .sequence = 840, .heads = 2, .features = 4, .layers = layers};
    char mesh[16];
    m.ring = ring;
    m.causal = m.one_input = m.gradients = true;
    (void)snprintf(mesh, sizeof mesh, "x:%d", w);
    dtp_graph *g = context_graph(&m);
    dtp_program *p = context_lower(g, mesh, "s:x");
    const int32_t fwd = layers * (ring ? w - 1 : 1), bwd = layers * (ring ? 2 * w - 1 : 2);
    assert_int_equal(context_count(p, DTP_FORWARD, DTP_N_COLLS), fwd);
    assert_int_equal(context_count(p, DTP_BACKWARD, DTP_N_COLLS), bwd);
    if (ring) {
        assert_int_equal(context_count(p, DTP_FORWARD, DTP_PERMUTE), fwd);
        assert_int_equal(context_count(p, DTP_BACKWARD, DTP_PERMUTE), bwd);
    } else {
        assert_int_equal(context_count(p, DTP_FORWARD, DTP_ALL_GATHER), fwd);
        assert_int_equal(context_count(p, DTP_BACKWARD, DTP_ALL_GATHER), layers);
        assert_int_equal(context_count(p, DTP_BACKWARD, DTP_REDUCE_SCATTER), layers);
    }
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
}

static void test_ring__counts(void **state)
{
    (void)state;
    for (int32_t w = 2; w <= 8; w++) {
        for (int32_t layers = 1; layers <= 3; layers++) {
            check_counts(w, layers, true);
            check_counts(w, layers, false);
        }
    }
}

/* ---- memory ---- */

/* A ring never holds all keys and values, which gather does. */
static void test_ring__holds_two_pieces_of_keys(void **state)
{
    (void)state;
    context_model m = {.sequence = 1 << 16, .heads = 4, .features = 64, .layers = 1};
    m.causal = true;
    const int64_t all = 2 * m.sequence * m.heads * m.features * 8; /* keys and values */
    for (int32_t k = 0; k < 2; k++) {
        m.gradients = k == 1;
        int64_t peak[2];
        for (int32_t ring = 0; ring < 2; ring++) {
            m.ring = ring == 1;
            dtp_graph *g = context_graph(&m);
            dtp_program *p = context_lower(g, "x:8", "s:x");
            peak[ring] = p->peak_bytes;
            dtp_program_destroy(p);
            dtp_graph_destroy(g);
        }
        (void)printf("%s: gather %.1f MB, ring %.1f MB, all keys and values %.1f MB\n",
                     m.gradients ? "training" : "forward", (double)peak[0] / 1e6,
                     (double)peak[1] / 1e6, (double)all / 1e6);
        assert_true(peak[0] >= all);
        assert_true(peak[1] < (m.gradients ? 3 * all / 2 : all));
        assert_true(2 * peak[1] < (m.gradients ? 3 : 2) * peak[0]);
    }
}

/* ---- zigzag ---- */

/* Putting a sequence into zigzag order, attending there and putting the result back is causal
 * attention; its gradients too. The wanted values come from the contiguous graph. */
static void check_zigzag(context_model m, const char *mesh, const char *rules)
{
    context_model plain = m;
    context_values v, other;
    plain.chunks = 0;
    plain.ring = false;
    dtp_graph *g = context_graph(&plain), *zigzag = context_graph(&m);
    context_values_init(&v, g, seed);
    context_values_init(&other, zigzag, seed);
    dtp_program *p = context_lower(zigzag, mesh, rules);
    context_values mixed = {0};
    memcpy(mixed.in, other.in, sizeof mixed.in);
    memcpy(mixed.want, v.want, sizeof mixed.want);
    assert_true(context_error(p, "ref", &mixed) <= BOUND);
    dtp_program_destroy(p);
    context_values_free(&v);
    context_values_free(&other);
    dtp_graph_destroy(g);
    dtp_graph_destroy(zigzag);
}

static void test_zigzag__is_causal_attention(void **state)
{
    (void)state;
    context_model m = {.batch = 2, .sequence = 24, .heads = 2, .features = 4, .layers = 1};
    m.causal = true;
    for (int32_t k = 0; k < 8; k++) {
        m.ring = k % 2 == 1;
        m.gradients = k / 2 % 2 == 1;
        m.rope = k / 4 == 1;
        m.chunks = 2;
        check_zigzag(m, "x:2", "s:x");
        m.chunks = 4;
        check_zigzag(m, "x:4", "s:x");
        check_zigzag(m, "x:3", "s:x");
        check_zigzag(m, "x:2;y:2", "s:x,s:y");
    }
}

/* Pairs of a query and a key that rank r of w computes. */
static int64_t pairs_of(const dtp_sequence *s, int64_t r, int64_t w)
{
    int64_t n = s->size / w, pairs = 0;
    for (int64_t i = r * n; i < (r + 1) * n; i++) {
        pairs += dtp_sequence_position(s, i) + 1;
    }
    return pairs;
}

static void test_zigzag__balances_the_ranks(void **state)
{
    (void)state;
    for (int64_t w = 2; w <= 8; w++) {
        const int64_t size = 2 * w * 15;
        dtp_sequence zigzag = dtp_sequence_make(size, w), contiguous = dtp_sequence_make(size, 0);
        bool seen[256] = {false};
        for (int64_t i = 0; i < size; i++) {
            int64_t at = dtp_sequence_position(&zigzag, i);
            assert_in_range(at, 0, size - 1);
            assert_false(seen[at]);
            seen[at] = true;
            assert_int_equal(dtp_sequence_place(&zigzag, at), i);
        }
        for (int64_t r = 0; r < w; r++) {
            assert_int_equal(pairs_of(&zigzag, r, w), size * (size + 1) / 2 / w);
        }
        /* Contiguous, the last rank has (2W - 1) times the work of the first, about. */
        assert_true(pairs_of(&contiguous, w - 1, w) > (w - 1) * pairs_of(&contiguous, 0, w));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring__forward_and_backward_equal_one_device),
        cmocka_unit_test(test_ring__layers_on_one_input),
        cmocka_unit_test(test_ring__uneven_sequences_are_gathered),
        cmocka_unit_test(test_ring__counts),
        cmocka_unit_test(test_ring__holds_two_pieces_of_keys),
        cmocka_unit_test(test_zigzag__is_causal_attention),
        cmocka_unit_test(test_zigzag__balances_the_ranks),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
