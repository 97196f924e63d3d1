/* Numbers as people write them. */
#include "core/base/json.h"
#include "core/base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct number_case {
    const char *text;
    bool good;
    int64_t value;
} number_case;

static void test_int__is_read_exactly(void **state)
{
    (void)state;
    static const number_case cases[] = {
        {"0", true, 0},
        {"40", true, 40},
        {"007", true, 7},
        {"-3", true, -3},
        {"40e9", true, INT64_C(40000000000)},
        {"4E+2", true, 400},
        {"1.5e3", true, 1500},
        {"-1.25e2", true, -125},
        {"12.0", true, 12},
        {"1500e-2", true, 15},
        {"0e99", true, 0},
        {"0.0e-99", true, 0},
        {"9007199254740993", true, INT64_C(9007199254740993)},
        {"9223372036854775807", true, INT64_MAX},
        {"922337203685477580.7e1", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"1e19", false, 0},
        {"1e99999999999", false, 0},
        {"1.5", false, 0},
        {"15e-2", false, 0},
        {"1e-99999999999", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+4", false, 0},
        {" 4", false, 0},
        {"4 ", false, 0},
        {"4e", false, 0},
        {"4e+", false, 0},
        {"4.", false, 0},
        {".5e1", false, 0},
        {"0x10", false, 0},
        {"4k", false, 0},
        {"nan", false, 0},
        {"1e3e3", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value = 0;
        if (dtp_int_parse(cases[i].text, &value) != cases[i].good || value != cases[i].value) {
            fail_msg("'%s' gave %lld", cases[i].text, (long long)value);
        }
    }
    const char *text = "12e1,3", *list = text;
    int64_t value = 0;
    assert_true(dtp_int_read(&list, &value) && value == 120 && strcmp(list, ",3") == 0);
}

static void test_duration__is_in_seconds_minutes_or_hours(void **state)
{
    (void)state;
    static const number_case cases[] = {
        {"30s", true, 30},   {"10m", true, 600},  {"2h", true, 7200}, {"1.5e3s", true, 1500},
        {"30", false, 0},    {"0s", false, 0},    {"-1m", false, 0},  {"1.5h", false, 0},
        {"1d", false, 0},    {"10 m", false, 0},  {"10ms", false, 0}, {"h", false, 0},
        {"1e18h", false, 0}, {"10min", false, 0}, {"", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t seconds = 0;
        if (dtp_duration_parse(cases[i].text, &seconds) != cases[i].good ||
            (cases[i].good && seconds != cases[i].value)) {
            fail_msg("'%s' gave %lld", cases[i].text, (long long)seconds);
        }
    }
}

static void test_bytes__have_units_of_1000_and_of_1024(void **state)
{
    (void)state;
    static const number_case cases[] = {
        {"1", true, 1},
        {"4096", true, 4096},
        {"40e9", true, INT64_C(40000000000)},
        {"4096B", true, 4096},
        {"2K", true, 2048},
        {"2k", true, 2048},
        {"2KiB", true, 2048},
        {"2kB", true, 2000},
        {"512M", true, INT64_C(512) << 20},
        {"1.5G", true, INT64_C(3) << 29},
        {"80GB", true, INT64_C(80000000000)},
        {"40GiB", true, INT64_C(40) << 30},
        {"1TB", true, INT64_C(1000000000000)},
        {"1TiB", true, INT64_C(1) << 40},
        {"2PB", true, INT64_C(2000000000000000)},
        {"2P", true, INT64_C(2) << 50},
        {"0", false, 0},
        {"0.5", false, 0},
        {"-1G", false, 0},
        {"80Gb", false, 0},
        {"80Gi", false, 0},
        {"80iB", false, 0},
        {"80GBs", false, 0},
        {"80 G B", false, 0},
        {"9e18K", false, 0},
        {"G", false, 0},
        {"", false, 0},
        {"inf", false, 0},
        {"nan", false, 0},
        {" 4", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value = 0;
        if (dtp_bytes_parse(cases[i].text, &value) != cases[i].good || value != cases[i].value) {
            fail_msg("'%s' gave %lld", cases[i].text, (long long)value);
        }
    }
}

/* The readers of JSON take the same integers, and sizes as numbers or texts. */
static void test_json__takes_integers_and_sizes_as_people_write_them(void **state)
{
    (void)state;
    static const char text[] =
        "[40e9, 1.5e3, 12.0, 1.5, 1e30, \"80GB\", \"40GiB\", 4096, \"80 apples\", true]";
    static const int64_t ints[] = {INT64_C(40000000000), 1500, 12, -1, -1, -1, -1, 4096, -1, -1};
    static const int64_t bytes[] = {INT64_C(40000000000), 1500, 12, -1, -1, INT64_C(80000000000),
                                    INT64_C(40) << 30,    4096, -1, -1};
    dtp_json_doc *doc = NULL;
    assert_int_equal(dtp_json_parse("f", text, strlen(text), &doc, NULL), DTP_OK);
    for (int i = 0; i < 10; i++) {
        const dtp_json *v = dtp_json_at(dtp_json_root(doc), i);
        int64_t got = -1;
        dtp_status s = dtp_json_int(v, 0, INT64_C(1) << 53, &got, NULL);
        assert_true(s == DTP_OK ? got == ints[i] : ints[i] == -1);
        got = -1;
        s = dtp_json_bytes(v, 1, INT64_C(1) << 53, &got, NULL);
        assert_true(s == DTP_OK ? got == bytes[i] : bytes[i] == -1);
    }
    dtp_json_destroy(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int__is_read_exactly),
        cmocka_unit_test(test_duration__is_in_seconds_minutes_or_hours),
        cmocka_unit_test(test_bytes__have_units_of_1000_and_of_1024),
        cmocka_unit_test(test_json__takes_integers_and_sizes_as_people_write_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
