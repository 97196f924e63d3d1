/* Convolutions of 16 and more channels on the cpu backend, which may run them by a library: random
 * axes, kernels, strides, dilations, paddings (also less than none), groups, channels before and
 * behind the spatial dims, in f32 and bf16 against the reference in f64; one and three threads
 * give the same bits.
 * Usage: test_cpu_conv [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"
#include "spmd/target/conv_plan.h"
#include "tests/ops/against_ref.h"
#include "tests/ops/cpu_harness.h"
#include "tests/ops/eval.h"
#include "tests/support/quarter.h"

enum { CASES = 24, TEXT = 192, THREADS = CPU_TEAM < 3 ? CPU_TEAM : 3 };
static const int64_t WORK = 1100000, MOST = 2000000; /* multiply-adds of a case */

static uint64_t seed = 20261201;

static int64_t pick(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(dtp_case_random(state) % (uint64_t)(high - low + 1));
}

typedef struct conv_case {
    char x[TEXT], w[TEXT], y[TEXT], attrs[TEXT];
    dtp_op_case text;
} conv_case;

static size_t add(char *to, size_t used, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int n = vsnprintf(to + used, TEXT - used, format, values);
    va_end(values);
    return used + (size_t)n;
}

/* The dims of x or y: those of channels before or behind the spatial ones. */
static void write_dims(char to[TEXT], int64_t batch, const char *channels, const char *spatial,
                       bool last)
{
    (void)add(to, 0, "n=%lld,%s%s%s", (long long)batch, last ? spatial + 1 : channels,
              last ? "," : "", last ? channels : spatial);
}

static bool random_case(conv_case *c, uint64_t *state)
{
    static const char *const ops[] = {"conv", "conv_transpose", "conv_weight"};
    static const int64_t channels[] = {16, 20, 32, 64, 128, 3};
    const int64_t kind = pick(state, 0, 2), n = pick(state, 1, 3), grouping = pick(state, 0, 3);
    const bool last = pick(state, 0, 2) == 0, depthwise = grouping == 0;
    const int64_t g = depthwise ? 16 * pick(state, 2, 5) : grouping == 1 ? 2 : 1;
    const int64_t ins = depthwise ? 1 : channels[pick(state, 0, kind == 1 ? 3 : 5)];
    const int64_t outs = depthwise ? 1 : channels[pick(state, 0, 4)];
    int64_t each = g * ins * outs;
    char in[TEXT] = "", out[TEXT] = "", kernel[TEXT] = "", own[4][TEXT] = {"", "", "", ""};
    size_t used[7] = {0};
    for (int32_t i = 0; i < n; i++) {
        const char *comma = i > 0 ? "," : "";
        const int64_t size = pick(state, 1, n == 3 ? 2 : 4), dilation = pick(state, 1, 2);
        const int64_t stride = pick(state, 1, 2), reach = (size - 1) * dilation + 1;
        const int64_t at_least = pick(state, n == 3 ? 3 : 5, n == 3 ? 5 : 13);
        const int64_t x = at_least > reach + 2 ? at_least : reach + 2;
        const int64_t before = pick(state, 0, 3) == 0 ? -1 : pick(state, 0, reach - 1);
        const int64_t after = pick(state, 0, 3) == 0 ? -1 : pick(state, 0, reach - 1);
        const int64_t places = (x + before + after - reach) / stride + 1;
        each *= places * size;
        used[0] = add(in, used[0], ",%c=%lld", 'h' + i, (long long)x);
        used[1] = add(out, used[1], ",%c=%lld", 'h' + i, (long long)places);
        used[2] = add(kernel, used[2], ",%c=%lld", 'p' + i, (long long)size);
        used[3] = add(own[0], used[3], "%s%lld", comma, (long long)stride);
        used[4] = add(own[1], used[4], "%s%lld", comma, (long long)dilation);
        used[5] = add(own[2], used[5], "%s%lld", comma, (long long)before);
        used[6] = add(own[3], used[6], "%s%lld", comma, (long long)after);
    }
    const int64_t batch = (WORK + each - 1) / each;
    char of_x[TEXT], of_y[TEXT];
    const size_t of_g = g > 1 ? add(of_x, 0, "g=%lld,", (long long)g) : 0;
    (void)add(of_y, g > 1 ? add(of_y, 0, "g=%lld,", (long long)g) : 0, "o=%lld", (long long)outs);
    (void)add(of_x, of_g, "c=%lld", (long long)ins);
    write_dims(c->x, batch, of_x, in, last);
    write_dims(c->y, batch, of_y, out, last);
    (void)add(c->w, 0, "%s,c=%lld%s", of_y, (long long)ins, kernel);
    (void)add(c->attrs, 0,
              "spatial=%.*s; kernel=%.*s%s; stride=%s; dilation=%s; before=%s; after=%s",
              (int)(2 * n - 1), "h,i,j", (int)(2 * n - 1), "p,q,r", g > 1 ? "; groups=g" : "",
              own[0], own[1], own[2], own[3]);
    c->text = (dtp_op_case){.op = ops[kind],
                            .in = {kind == 1 ? c->y : c->x, kind == 2 ? c->y : c->w},
                            .out = kind == 0   ? c->y
                                   : kind == 1 ? c->x
                                               : c->w,
                            .attrs = c->attrs};
    return each * batch <= MOST;
}

/* The result; whether pieces for a library were planned for it. */
static void *result_of(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b, size_t *bytes,
                       bool *pieces)
{
    dtp_case_graph cg;
    dtp_call_types types;
    dtp_conv_plan plan;
    eval e;
    case_build(c, dtype, seed, &cg);
    eval_init(&e, cg.g, b);
    for (int32_t i = 0; i < cg.n_in; i++) {
        eval_set(&e, i, cg.values[i]);
    }
    eval_run(&e);
    const dtp_node *node = &cg.g->nodes[cg.node];
    const dtp_op_call call = dtp_node_call(cg.g, node, &types);
    dtp_conv_plan_make(&call, &plan);
    *pieces = plan.piece.bytes > 0;
    *bytes = (size_t)dtp_ttype_bytes(&cg.g->tensors[node->out[0]].type);
    void *copy = malloc(*bytes);
    assert_non_null(copy);
    memcpy(copy, e.data[node->out[0]], *bytes);
    eval_free(&e);
    dtp_case_free(&cg);
    return copy;
}

static void test_conv__equals_ref_on_any_threads(void **state)
{
    static const dtp_dtype types[] = {DTP_F32, DTP_BF16};
    dtp_backend *one = NULL, *more = NULL, *ref = NULL;
    int32_t planned = 0, ran = 0;
    (void)state;
    assert_int_equal(dtp_backend_cpu_create(1, &one, NULL), DTP_OK);
    assert_int_equal(dtp_backend_cpu_create(THREADS, &more, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < CASES; i++) {
        conv_case c;
        uint64_t random = seed + (uint64_t)i * 1000003u;
        while (!random_case(&c, &random)) {
        }
        for (size_t k = 0; k < sizeof types / sizeof types[0] && quarter_has(i, CASES); k++) {
            size_t bytes;
            bool pieces;
            against_ref_case(&c.text, types[k], one, ref);
            void *a = result_of(&c.text, types[k], one, &bytes, &pieces);
            void *b = result_of(&c.text, types[k], more, &bytes, &pieces);
            if (memcmp(a, b, bytes) != 0) {
                fail_msg("'%s' %s | %s | %s: other bits by %d threads", c.text.op, c.text.in[0],
                         c.text.in[1], c.attrs, THREADS);
            }
            free(a);
            free(b);
            planned += pieces ? 1 : 0;
            ran++;
        }
    }
    printf("%d runs, %d in pieces\n", ran, planned);
    assert_true(planned > ran / 3);
    dtp_backend_destroy(one);
    dtp_backend_destroy(more);
    dtp_backend_destroy(ref);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv__equals_ref_on_any_threads)};
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
