/* The attention kernels of the CPU backend against the reference: forms, orders, parts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/cpu_harness.h"

typedef struct attention_case {
    const char *q, *k, *v, *out, *lse;
    const char *key, *value; /* NULL: default */
    bool causal;
    int64_t chunks;   /* zigzag over so many; 0: contiguous */
    const char *mask; /* its dims; of truth values, then of floats */
} attention_case;

/* The mask, the last operand, hides some of the pairs; floats as -inf and as what the models of
 * libraries have for it. */
static void add_mask(cpu_case *c, const char *dims, bool truth)
{
    if (truth) {
        cpu_ints(c, DTP_BOOL, dims, 3);
        return;
    }
    cpu_floats(c, dims);
    float *x = c->data[c->n_in - 1];
    for (int64_t i = 0, n = dtp_ttype_elems(&c->in[c->n_in - 1]); i < n; i++) {
        x[i] = x[i] > 0.7f ? -INFINITY : x[i] > 0.4f ? -1e9f : x[i];
    }
}

static void check_attention(const attention_case *a, bool truth)
{
    cpu_case c;
    void *out[8];
    cpu_case_start(&c, "attention");
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            cpu_case_start(&c, "attention_grad");
        }
        cpu_attr_dim(&c, "query", "q");
        cpu_attr_dim(&c, "feature", "f");
        cpu_attr_int(&c, "causal", a->causal);
        cpu_attr_int(&c, "order", a->chunks > 0 ? 1 : 0);
        cpu_attr_int(&c, "chunks", a->chunks > 0 ? a->chunks : 1);
        if (a->key != NULL) {
            cpu_attr_dim(&c, "key", a->key);
        }
        if (a->value != NULL) {
            cpu_attr_dim(&c, "value", a->value);
        }
        cpu_floats(&c, a->q);
        cpu_floats(&c, a->k);
        cpu_floats(&c, a->v);
        if (pass == 1) {
            cpu_floats(&c, a->out);
            memcpy(c.data[3], out[0], (size_t)dtp_ttype_bytes(&c.in[3]));
            cpu_floats(&c, a->lse);
            memcpy(c.data[4], out[1], (size_t)dtp_ttype_bytes(&c.in[4]));
            cpu_floats(&c, a->out);
            free(out[0]);
            free(out[1]);
        }
        if (a->mask != NULL) {
            add_mask(&c, a->mask, truth);
        }
        cpu_infer(&c, NULL);
        cpu_check(&c, 5e-6);
        if (pass == 0) {
            cpu_run(&c, "cpu", 1, out);
        }
        cpu_case_free(&c);
    }
}

/* Chunks longer than a block of queries or keys, so that blocks are cut at the ends of runs. */
static void check_part(int64_t shift, int64_t chunks, bool causal)
{
    static const char *const ops[] = {"attention_part", "attention_part_grad"};
    for (int pass = 0; pass < 2; pass++) {
        cpu_case c;
        cpu_case_start(&c, ops[pass]);
        cpu_attr_dim(&c, "query", "q");
        cpu_attr_dim(&c, "feature", "f");
        cpu_attr_dim(&c, "chunk", "c");
        cpu_attr_int(&c, "shift", shift);
        cpu_attr_int(&c, "causal", causal);
        cpu_attr_int(&c, "order", chunks > 0 ? 1 : 0);
        cpu_attr_int(&c, "chunks", chunks > 0 ? chunks : 1);
        cpu_floats(&c, "h=2 c=3 q=300 f=8");
        cpu_floats(&c, "h=2 c=3 q=300 f=16");
        if (pass == 1) {
            cpu_floats(&c, "h=2 c=3 q=300 f=8");
            cpu_floats(&c, "h=2 c=3 q=300");
            for (int64_t i = 0, n = dtp_ttype_elems(&c.in[3]); i < n; i++) {
                ((float *)c.data[3])[i] = 6.5f;
            }
            cpu_floats(&c, "h=2 c=3 q=300 f=8");
        }
        cpu_infer(&c, NULL);
        cpu_check(&c, 5e-6);
        cpu_case_free(&c);
    }
}

static void test_attention__parts_of_a_sequence(void **state)
{
    (void)state;
    check_part(0, 0, false);
    check_part(0, 0, true);
    check_part(0, 3, true);
    check_part(1, 3, false);
}

/* Rows that see no key have lse -inf and out 0; the others equal the reference. */
static void test_attention__rows_without_keys(void **state)
{
    (void)state;
    for (int64_t chunks = 0; chunks < 4; chunks += 3) {
        cpu_case c;
        void *cpu[8], *ref[8];
        int64_t without = 0;
        cpu_case_start(&c, "attention_part");
        cpu_attr_dim(&c, "query", "q");
        cpu_attr_dim(&c, "feature", "f");
        cpu_attr_dim(&c, "chunk", "c");
        cpu_attr_int(&c, "shift", 2);
        cpu_attr_int(&c, "order", chunks > 0 ? 1 : 0);
        cpu_attr_int(&c, "chunks", chunks > 0 ? chunks : 1);
        cpu_floats(&c, "c=3 q=150 f=4");
        cpu_floats(&c, "c=3 q=150 f=8");
        cpu_infer(&c, NULL);
        cpu_run(&c, "cpu", 2, cpu);
        cpu_run(&c, "ref", 1, ref);
        for (int64_t i = 0; i < dtp_ttype_elems(&c.out[1]); i++) {
            const float got = ((float *)cpu[1])[i], want = ((float *)ref[1])[i];
            const float *row = (const float *)cpu[0] + 4 * i;
            without += isinf(want) ? 1 : 0;
            assert_true(isinf(want) ? got == want && row[0] == 0.0f && row[3] == 0.0f
                                    : fabsf(got - want) < 1e-5f);
        }
        assert_int_equal(without, chunks > 0 ? 150 : 300);
        cpu_release(&c, cpu);
        cpu_release(&c, ref);
        cpu_case_free(&c);
    }
}

static void test_attention__forms(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {"b=2 q=150 h=3 f=16", "b=2 q=150 h=3 f=16", "b=2 q=150 h=3 f=16", "b=2 q=150 h=3 f=16",
         "b=2 q=150 h=3", NULL, NULL, true, 0, NULL},
        {"b=2 q=520 f=8", "b=2 q=520 f=8", "b=2 q=520 f=8", "b=2 q=520 f=8", "b=2 q=520", NULL,
         NULL, true, 2, NULL},
        {"b=2 q=33 h=3 f=16", "b=2 q=33 h=3 f=16", "b=2 q=33 h=3 f=16", "b=2 q=33 h=3 f=16",
         "b=2 q=33 h=3", NULL, NULL, false, 0, NULL},
        /* other dim orders, rows not contiguous, another value size */
        {"f=16 h=3 q=70 b=2", "h=3 f=16 b=2 q=70", "q=70 v=5 b=2 h=3", "v=5 h=3 q=70 b=2",
         "h=3 q=70 b=2", NULL, "v", true, 0, NULL},
        /* grouped heads, keys longer than queries */
        {"b=2 q=70 h=2 g=3 f=8", "b=2 k=260 h=2 f=8", "b=2 k=260 h=2 f=8", "b=2 q=70 h=2 g=3 f=8",
         "b=2 q=70 h=2 g=3", "k", NULL, true, 0, NULL},
        {"q=1 f=8", "k=300 f=8", "k=300 f=8", "q=1 f=8", "q=1", "k", NULL, true, 0, NULL},
        /* masks: of all dims, of batch and keys, of queries and keys in another order */
        {"b=2 q=150 h=3 f=8", "b=2 k=150 h=3 f=8", "b=2 k=150 h=3 f=8", "b=2 q=150 h=3 f=8",
         "b=2 q=150 h=3", "k", NULL, false, 0, "b=2 h=3 q=150 k=150"},
        {"b=2 q=70 h=2 g=3 f=8", "b=2 k=260 h=2 f=8", "b=2 k=260 h=2 f=8", "b=2 q=70 h=2 g=3 f=8",
         "b=2 q=70 h=2 g=3", "k", NULL, false, 0, "b=2 k=260"},
        {"b=2 q=70 h=2 g=3 f=8", "b=2 k=260 h=2 f=8", "b=2 k=260 h=2 f=8", "b=2 q=70 h=2 g=3 f=8",
         "b=2 q=70 h=2 g=3", "k", NULL, true, 0, "k=260 g=3 q=70"},
        {"q=1 f=8", "k=300 f=8", "k=300 f=8", "q=1 f=8", "q=1", "k", NULL, false, 0, "k=300"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_attention(&cases[i], false);
        if (cases[i].mask != NULL) {
            check_attention(&cases[i], true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention__forms),
        cmocka_unit_test(test_attention__parts_of_a_sequence),
        cmocka_unit_test(test_attention__rows_without_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
