#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/json.h"
#include "cost_models/machine/machine.h"

static const char FULL[] =
    "{\"format\": \"dtp.machine/1\", \"name\": \"full\", \"device\": {\"kind\": \"cuda\", "
    "\"memory_bytes\": 1024, \"mem_bw_Bps\": 1e9, \"launch_s\": 0, \"launch_graph_s\": 0, "
    "\"host_s\": 2e-6, "
    "\"flops\": {\"bf16\": 1e12, \"tf32\": 5e11, "
    "\"f32\": "
    "1e11}, \"overlap\": true, \"overlap_slowdown\": 1.25, \"curves\": {\"ops\": [{\"op\": "
    "\"mul\", "
    "\"flops\": 5e9, \"fit_error\": 0.5, \"points\": [[1, 2, 3], [4, 2, 1.5]]}, {\"op\": \"mul\", "
    "\"dtype\": \"bf16\", \"points\": [[1, 9, 9]]}, {\"op\": \"*\", "
    "\"points\": [[1, 1, 1]]}], \"gemm\": {\"points\": [[1, 2, 3, 0, 1, 1e9], [2, 2, 3, 0, 1, "
    "1e9], [1, 2, 3, 0, 1, 4e9, \"bf16\"], [1, 2, 3, 0, 1, 2e9, \"tf32\"]]}, "
    "\"collectives\": [{\"kind\": \"all_gather\", \"level\": \"net\", \"ranks\": 2, \"points\": "
    "[[64, "
    "1e-6, 2e-6]]}]}}, \"levels\": [{\"name\": \"net\", \"size\": 3, \"latency_s\": 1e-6, "
    "\"bw_Bps\": "
    "1e9}], \"provenance\": {\"how\": \"measured\", \"date\": \"d\", \"host\": \"h\", \"tool\": "
    "\"t\", "
    "\"blas\": \"b\", \"threads\": 2, \"ranks\": 3}}";

static dtp_machine *parse(const char *text)
{
    dtp_machine *m = NULL;
    dtp_err err = {0};
    if (dtp_machine_parse("test.json", text, strlen(text), &m, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return m;
}

static void test_machine__written_text_reads_back_equal(void **state)
{
    (void)state;
    dtp_machine *a = parse(FULL);
    char *first = NULL;
    char *second = NULL;
    assert_int_equal(dtp_machine_write(a, &first, NULL), DTP_OK);
    dtp_machine *b = parse(first);
    assert_int_equal(dtp_machine_write(b, &second, NULL), DTP_OK);
    assert_string_equal(first, second);
    assert_true(dtp_machine_hash(a) == dtp_machine_hash(b));
    assert_int_equal(b->n_op_curves, 3);
    assert_string_equal(b->op_curves[0].op, "*");
    assert_true(b->op_curves[1].time_s.measured[0] > 2.5);
    assert_true(!(b->launch_graph_s < 0.0) && !(b->launch_graph_s > 0.0));
    assert_true(fabs(b->host_s - 2e-6) < 1e-18);
    assert_int_equal(b->provenance_threads, 2);
    assert_int_equal(b->n_gemm, 4);
    assert_true(b->gemm[0].trans_b && !b->gemm[0].trans_a);
    assert_int_equal(b->gemm[1].arithmetic, DTP_F32);
    assert_int_equal(b->gemm[2].arithmetic, DTP_BF16);
    assert_int_equal(b->gemm[3].arithmetic, DTP_TF32);
    assert_true(b->flops[DTP_TF32] > b->flops[DTP_F32]);
    assert_int_equal(b->coll_curves[0].kind, DTP_ALL_GATHER);
    free(first);
    free(second);
    dtp_machine_destroy(a);
    dtp_machine_destroy(b);
}

static void test_machine__hash_covers_prices_only(void **state)
{
    (void)state;
    dtp_machine *m = parse(FULL);
    uint64_t h = dtp_machine_hash(m);
    m->provenance_host = "elsewhere";
    assert_true(dtp_machine_hash(m) == h);
    m->levels[0].bw_Bps *= 2.0;
    assert_true(dtp_machine_hash(m) != h);
    h = dtp_machine_hash(m);
    m->gemm[2].arithmetic = DTP_F16;
    assert_true(dtp_machine_hash(m) != h);
    h = dtp_machine_hash(m);
    m->flops[DTP_TF32] *= 2.0;
    assert_true(dtp_machine_hash(m) != h);
    h = dtp_machine_hash(m);
    m->op_curves[2].dtype = DTP_F16;
    assert_true(dtp_machine_hash(m) != h);
    dtp_machine_destroy(m);
}

static void test_machine__op_curves_are_found_by_name(void **state)
{
    (void)state;
    dtp_machine *m = parse(FULL);
    assert_string_equal(dtp_machine_op_curve(m, "mul", DTP_F32)->op, "mul");
    assert_string_equal(dtp_machine_op_curve(m, "*", DTP_BF16)->op, "*");
    assert_null(dtp_machine_op_curve(m, "exp", DTP_F32));
    assert_null(dtp_machine_op_curve(m, "pack", DTP_F32));
    dtp_machine_destroy(m);
}

static void test_machine__datasheets_load(void **state)
{
    (void)state;
    const struct {
        const char *file;
        int64_t devices;
    } rows[] = {{"h100_64", 64}, {"a100_8", 8}, {"cpu_2", 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512];
        dtp_machine *m = NULL;
        dtp_err err = {0};
        (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/machines/%s.json", rows[i].file);
        if (dtp_machine_read(path, &m, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        assert_int_equal(dtp_machine_devices(m), rows[i].devices);
        dtp_machine_destroy(m);
    }
}

/* expect.txt: file, tab, a part of the message. */
static void test_machine__bad_files_are_refused_with_their_place(void **state)
{
    (void)state;
    FILE *list = fopen(DTP_SOURCE_DIR "/tests/bad/machines/expect.txt", "r");
    char line[512];
    int files = 0;
    assert_non_null(list);
    while (fgets(line, sizeof line, list) != NULL) {
        char path[768];
        dtp_machine *m = NULL;
        dtp_err err = {0};
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        *tab = '\0';
        (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/tests/bad/machines/%s", line);
        dtp_status status = dtp_machine_read(path, &m, &err);
        if (status == DTP_OK || !dtp_status_is_input(status)) {
            fail_msg("%s: status %d", line, (int)status);
        }
        if (strstr(err.msg, tab + 1) == NULL || strstr(err.msg, line) == NULL ||
            strchr(err.msg, '\n') != NULL) {
            fail_msg("%s: '%s' lacks '%s' or the file name", line, err.msg, tab + 1);
        }
        files++;
    }
    (void)fclose(list);
    assert_true(files >= 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine__written_text_reads_back_equal),
        cmocka_unit_test(test_machine__hash_covers_prices_only),
        cmocka_unit_test(test_machine__op_curves_are_found_by_name),
        cmocka_unit_test(test_machine__datasheets_load),
        cmocka_unit_test(test_machine__bad_files_are_refused_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
