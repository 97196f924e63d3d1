/* Machine files: what is read, and what is refused. */
#include "tests/support/data_files.h"

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
    "\"bw_Bps\": 1e9, \"hop_s\": 5e-6, \"skew\": 0.01, \"collectives\": {\"all_reduce\": "
    "{\"start_s\": 3e-6, \"rank_s\": 5e-7, "
    "\"ramp_bytes\": 1e6, \"share\": 0.75, \"in_switch\": 1.25}, \"all_to_all\": {\"start_s\": "
    "1e-6, \"rank_s\": 0, \"ramp_bytes\": 0, \"share\": 1}}}], \"provenance\": {\"how\": "
    "\"measured\", \"date\": \"d\", \"host\": \"h\", \"tool\": "
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
    assert_true(fabs(b->levels[0].hop_s - 5e-6) < 1e-15);
    assert_true(fabs(b->levels[0].skew - 0.01) < 1e-12);
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
    const dtp_coll_rate *r = b->levels[0].rates;
    assert_true(fabs(r[DTP_ALL_REDUCE].in_switch - 1.25) < 1e-12);
    assert_true(fabs(r[DTP_ALL_REDUCE].start_s - 3e-6) < 1e-18);
    assert_true(fabs(r[DTP_ALL_TO_ALL].in_switch - DTP_NO_SWITCH) < 1e-12);
    assert_true(r[DTP_ALL_GATHER].share > 0.0); /* fitted to the curve of an older file */
    assert_false(r[DTP_PERMUTE].share > 0.0);
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
    double *const rates[] = {
        &m->levels[0].rates[DTP_ALL_REDUCE].start_s, &m->levels[0].rates[DTP_ALL_REDUCE].rank_s,
        &m->levels[0].rates[DTP_ALL_TO_ALL].ramp_bytes, &m->levels[0].rates[DTP_ALL_TO_ALL].share,
        &m->levels[0].rates[DTP_ALL_REDUCE].in_switch};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        h = dtp_machine_hash(m);
        *rates[i] = 0.5 * *rates[i] + 1e-9;
        assert_true(dtp_machine_hash(m) != h);
    }
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

/* A machine whose number `key` is `value`; the other numbers are usual ones. */
static const char *machine_text(const char *key, const char *value, const char *more, char *out,
                                size_t room)
{
    static const char *const rows[][2] = {{"memory_bytes", "80e9"}, {"mem_bw_Bps", "2e12"},
                                          {"launch_s", "4e-6"},     {"launch_graph_s", "1e-6"},
                                          {"host_s", "5e-6"},       {"f32", "2e13"},
                                          {"bw_Bps", "5e10"},       {"latency_s", "2e-6"}};
    const char *n[8];
    for (size_t i = 0; i < 8; i++) {
        n[i] = strcmp(rows[i][0], key) == 0 ? value : rows[i][1];
    }
    (void)snprintf(
        out, room,
        "{\"format\": \"dtp.machine/1\", \"name\": \"m\",%s \"device\": {\"kind\": \"cuda\", "
        "\"memory_bytes\": %s, \"mem_bw_Bps\": %s, \"launch_s\": %s, \"launch_graph_s\": "
        "%s, \"host_s\": %s, \"flops\": {\"f32\": %s}},\n\"levels\": [{\"name\": \"l\", "
        "\"size\": 2, \"bw_Bps\": %s, \"latency_s\": %s}], \"provenance\": {\"how\": "
        "\"datasheet\"}}",
        more, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]);
    return out;
}

/* Numbers as they look in other units are asked about, wherever they stand; those at the edges of
 * what is usual are not. */
static void test_machine__units_that_look_wrong_are_asked_about(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        bool asks;
    } cases[] = {
        {"launch_s", "4", true},
        {"launch_s", "1e-3", false},
        {"launch_graph_s", "2", true},
        {"host_s", "20", true},
        {"mem_bw_Bps", "2000", true},
        {"mem_bw_Bps", "1e9", false},
        {"mem_bw_Bps", "2e15", true},
        {"mem_bw_Bps", "1e14", false},
        {"bw_Bps", "50", true},
        {"bw_Bps", "4e17", true},
        {"latency_s", "2", true},
        {"latency_s", "1e-2", false},
        {"f32", "19.5", true},
        {"f32", "2e19", true},
        {"memory_bytes", "80", true},
        {"memory_bytes", "\"80GB\"", false},
        {"memory_bytes", "\"80\"", true},
        {"memory_bytes", "40000000000", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int said = 0; said < 3; said++) { /* not, in the file, by the caller */
            char text[1024];
            (void)machine_text(cases[i].key, cases[i].value,
                               said == 1 ? " \"yes_units\": true," : "", text, sizeof text);
            const char *path = data_write("machine.json", text, strlen(text));
            dtp_machine *m = NULL;
            dtp_err err = {0};
            const dtp_status s = said == 2 ? dtp_machine_read_units(path, true, &m, &err)
                                           : dtp_machine_read(path, &m, &err);
            const bool asks = cases[i].asks && said == 0;
            if ((s == DTP_OK) == asks || (asks && (strstr(err.msg, cases[i].key) == NULL ||
                                                   strstr(err.msg, "--yes-units") == NULL))) {
                fail_msg("%s %s: status %d, '%s'", cases[i].key, cases[i].value, (int)s, err.msg);
            }
            dtp_machine_destroy(m);
        }
    }
    data_remove();
}

/* A measured machine is written so that it is read without a question; the hash stays. */
static void test_machine__measured_numbers_are_meant(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        char text[1024], *written = NULL;
        dtp_machine *m = NULL, *back = NULL;
        (void)machine_text("bw_Bps", odd != 0 ? "1.1e8" : "5e9", "", text, sizeof text);
        assert_int_equal(dtp_machine_parse("m", text, strlen(text), &m, NULL), DTP_OK);
        const uint64_t hash = dtp_machine_hash(m);
        assert_int_equal(dtp_machine_say_units(m, NULL), DTP_OK);
        assert_int_equal(m->yes_units, odd != 0);
        assert_true(dtp_machine_hash(m) == hash);
        assert_int_equal(dtp_machine_write(m, &written, NULL), DTP_OK);
        const char *path = data_write("machine.json", written, strlen(written));
        assert_int_equal(dtp_machine_read(path, &back, NULL), DTP_OK);
        free(written);
        dtp_machine_destroy(m);
        dtp_machine_destroy(back);
    }
    data_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machine__written_text_reads_back_equal),
        cmocka_unit_test(test_machine__hash_covers_prices_only),
        cmocka_unit_test(test_machine__op_curves_are_found_by_name),
        cmocka_unit_test(test_machine__datasheets_load),
        cmocka_unit_test(test_machine__bad_files_are_refused_with_their_place),
        cmocka_unit_test(test_machine__units_that_look_wrong_are_asked_about),
        cmocka_unit_test(test_machine__measured_numbers_are_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
