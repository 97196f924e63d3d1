/* The words about a plan against plans whose parallelism is known: baselines of GPT-2 small and of
 * a mixture of experts. Where memory peaks, against a sum over the values that live at each
 * instruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/units.h"
#include "dtp/model.h"
#include "planner/baselines/baselines.h"
#include "planner/reports/words.h"
#include "spmd/lower/lower.h"
#include "tests/support/small_models.h"

/* The words about each mesh dim of a baseline. */
typedef struct expectation {
    const char *model, *mesh, *baseline;
    const char *words[2]; /* of mesh dims 0 and 1; parts that must be there, by '|' */
} expectation;

static const expectation CASES[] = {
    {"gpt2_small", "x:4", "replicated", {"replicated", NULL}},
    {"gpt2_small", "x:4", "data_parallel", {"data parallel over batch\n", NULL}},
    {"gpt2_small",
     "x:4",
     "zero1",
     {"data parallel over batch|ZeRO: |of the optimizer states kept split", NULL}},
    {"gpt2_small",
     "x:4",
     "zero3",
     {"data parallel over batch|FSDP: 100 % of the parameters kept split", NULL}},
    {"gpt2_small", "x:4", "megatron", {"tensor parallel by |heads|d_ff", NULL}},
    {"gpt2_small",
     "x:4",
     "megatron_sp",
     {"tensor parallel by |heads|d_ff|sequence parallel: norms by length", NULL}},
    {"gpt2_small",
     "x:2;y:2",
     "data_megatron",
     {"data parallel over batch", "tensor parallel by |heads|d_ff"}},
    {"gpt2_small",
     "x:2;y:2",
     "zero3_megatron_sp",
     {"data parallel over batch|FSDP: ",
      "tensor parallel by |heads|d_ff|sequence parallel: norms by length"}},
    {"mixtral_8x7b",
     "x:4",
     "expert_parallel",
     {"mixed: data parallel over batch |expert parallel by experts", NULL}},
    {"mixtral_8x7b",
     "x:2;y:4",
     "zero3_expert",
     {"data parallel over batch|FSDP: ", "expert parallel by experts"}},
};

static void check_words(const dtp_graph *g, const expectation *e, const dtp_candidate *c)
{
    for (int32_t m = 0; m < 2 && e->words[m] != NULL; m++) {
        dtp_words_dim dim;
        dtp_strbuf text = {0};
        char parts[256];
        assert_int_equal(dtp_words_dim_of(g, &c->sharding, m, &dim, NULL), DTP_OK);
        dtp_words_dim_print(g, &dim, &text);
        (void)snprintf(parts, sizeof parts, "%s", e->words[m]);
        for (char *save, *part = strtok_r(parts, "|", &save); part != NULL;
             part = strtok_r(NULL, "|", &save)) {
            if (strstr(text.text, part) == NULL) {
                fail_msg("%s of %s on '%s', mesh dim %d: '%s' lacks '%s'", e->baseline, e->model,
                         e->mesh, m, text.text, part);
            }
        }
        dtp_strbuf_free(&text);
    }
}

/* Most bytes of buffers that live at one instruction, by a plain sum. */
static int64_t most_bytes(const dtp_program *p)
{
    int64_t most = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        int64_t sum = 0;
        for (dtp_value_id root = 0; root < p->n_values; root++) {
            bool lives = false;
            for (dtp_value_id v = root; v < p->n_values && !lives && p->values[root].parent < 0;
                 v++) {
                const dtp_value *value = &p->values[v];
                lives = dtp_value_root(p, v) == root && value->first >= 0 && value->first <= i &&
                        i <= value->last;
            }
            sum += lives ? p->values[root].bytes : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void check_peak(const dtp_graph *g, const dtp_candidate *c)
{
    const dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_program *p = NULL;
    dtp_strbuf text = {0};
    char peak[64];
    assert_int_equal(dtp_lower(g, &c->sharding, &options, &p, NULL), DTP_OK);
    assert_int_equal(dtp_words_print(g, &c->sharding, p, &text, NULL), DTP_OK);
    (void)snprintf(peak, sizeof peak, ": %s\n", dtp_byte_count((double)most_bytes(p)).text);
    const char *line = strstr(text.text, "memory peaks in the ");
    assert_non_null(line);
    assert_non_null(strstr(line, peak));
    assert_true(strstr(line, peak) < strchr(line, '\n') + 1);
    dtp_strbuf_free(&text);
    dtp_program_destroy(p);
}

static void test_words__name_the_parallelism(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const expectation *e = &CASES[i];
        const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                              .generic = dtp_redistributor_generic()};
        small_pricer pricer = small_pricer_read("h100_64", e->mesh);
        dtp_arena *arena = dtp_arena_create();
        dtp_candidate *list = NULL;
        dtp_graph *g = NULL;
        char path[256];
        int32_t n = 0, k = 0;
        dtp_err err = {0};
        (void)snprintf(path, sizeof path, "%s/models/%s.json", DTP_SOURCE_DIR, e->model);
        assert_int_equal(dtp_model_read(path, NULL, &g, &err), DTP_OK);
        assert_int_equal(dtp_baselines_create(g, &pricer.pricer, &options, arena, &n, &list, &err),
                         DTP_OK);
        while (k < n && strcmp(list[k].name, e->baseline) != 0) {
            k++;
        }
        if (k == n || !list[k].legal) {
            fail_msg("%s of %s on '%s': %s", e->baseline, e->model, e->mesh,
                     k == n ? "none" : list[k].why);
        }
        check_words(g, e, &list[k]);
        if (strcmp(e->baseline, "data_megatron") == 0) {
            check_peak(g, &list[k]);
        }
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
        small_pricer_free(&pricer);
    }
}

static void test_units__have_four_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *seconds, *bytes;
    } cases[] = {{0, "0 s", "0 B"},
                 {1, "1.000 s", "1 B"},
                 {0.00018249, "182.5 us", NULL},
                 {9.9996e-4, "1.000 ms", NULL},
                 {12.3456, "12.35 s", NULL},
                 {3.2e9, "3.2e+09 s", "2.980 GiB"},
                 {2e-13, "0.000 ns", NULL},
                 {-0.5, "-500.0 ms", NULL},
                 {1023, NULL, "1023 B"},
                 {1024, NULL, "1.000 KiB"},
                 {1048575, NULL, "1.000 MiB"},
                 {55842955328.0, NULL, "52.01 GiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].seconds != NULL) {
            assert_string_equal(dtp_seconds(cases[i].value).text, cases[i].seconds);
        }
        if (cases[i].bytes != NULL) {
            assert_string_equal(dtp_byte_count(cases[i].value).text, cases[i].bytes);
        }
    }
    assert_string_equal(dtp_amount(999999).text, "999999");
    assert_string_equal(dtp_amount(12.36e6).text, "12.4 million");
    assert_string_equal(dtp_amount(999.6e6).text, "1 billion");
    assert_string_equal(dtp_amount(8.03e9).text, "8.03 billion");
    assert_string_equal(dtp_seconds_more(0.25).text, "+250.0 ms");
    assert_string_equal(dtp_bytes_more(-2048).text, "-2.000 KiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units__have_four_digits),
        cmocka_unit_test(test_words__name_the_parallelism),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
