/* JSON of other systems: what is refused before cJSON reads it and what is refused after, the paths
 * in messages, and texts with bytes changed at random. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/foreign_json.h"
#include "tests/support/data_files.h"

static dtp_status parse(const char *text, size_t len, dtp_err *err)
{
    dtp_foreign_doc *doc = NULL;
    const dtp_status s = dtp_foreign_parse("config.json", text, len, &doc, err);
    dtp_foreign_destroy(doc);
    return s;
}

static void expect_refused(const char *text, size_t len, const char *message)
{
    dtp_err err = {0};
    if (parse(text, len, &err) == DTP_OK || strstr(err.msg, message) == NULL) {
        fail_msg("'%.60s': message '%s', expected '%s'", text, err.msg, message);
    }
}

static void test_foreign_json__refuses_what_is_not_one_value(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "config.json: this is not JSON at byte 0"},
        {"{\"a\": 1", "config.json: this is not JSON at byte 6"},
        {"{\"a\": [1, }", "config.json: this is not JSON at byte 10"},
        {"{} x", "config.json: text after the JSON value at byte 2"},
        {"{\"a\": \"\\u0000\"}", "config.json: NUL or bytes that are not UTF-8 at byte 7"},
        {"{\"a\": \"\xff\"}", "config.json: NUL or bytes that are not UTF-8 at byte 7"},
        {"{\"a\": {\"k\": 1, \"b\": 2, \"k\": 3}}", "config.json: a.k: the key occurs twice"},
        {"{\"a\": [1, 1e999]}", "config.json: a[1]: the number does not fit into a double"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused(cases[i].text, strlen(cases[i].text), cases[i].message);
    }
    expect_refused("{\"a\"\0: 1}", 9, "config.json: NUL");
}

static void test_foreign_json__bounds_depth(void **state)
{
    char text[4 * DTP_FOREIGN_MAX_DEPTH];
    dtp_err err = {0};
    (void)state;
    const size_t n = DTP_FOREIGN_MAX_DEPTH;
    memset(text, '[', n + 1);
    memset(text + n + 1, ']', n + 1);
    assert_int_equal(parse(text + 1, 2 * n, &err), DTP_OK);
    expect_refused(text, 2 * n + 2, "levels of JSON");
    /* brackets in strings are no levels */
    text[0] = '"';
    text[n + 1] = '"';
    assert_int_equal(parse(text, n + 2, &err), DTP_OK);
}

static void expect_read(const char *text,
                        dtp_status (*read)(const dtp_foreign_doc *doc, const dtp_foreign *v,
                                           dtp_err *err),
                        const char *message)
{
    dtp_foreign_doc *doc = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_foreign_parse("c.json", text, strlen(text), &doc, &err), DTP_OK);
    const dtp_foreign *list = dtp_foreign_get(dtp_foreign_root(doc), "list");
    const dtp_status s = read(doc, dtp_foreign_next(dtp_foreign_first(list)), &err);
    if ((message == NULL) != (s == DTP_OK) || (message != NULL && strcmp(err.msg, message) != 0)) {
        fail_msg("%s: '%s', expected '%s'", text, err.msg, message != NULL ? message : "success");
    }
    dtp_foreign_destroy(doc);
}

static dtp_status read_int(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_err *err)
{
    int64_t x;
    return dtp_foreign_int(doc, v, 0, INT64_MAX, &x, err);
}

static dtp_status read_bool(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_err *err)
{
    bool x;
    return dtp_foreign_bool(doc, v, &x, err);
}

static dtp_status read_text(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_err *err)
{
    const char *x;
    return dtp_foreign_string(doc, v, &x, err);
}

static dtp_status read_member(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_err *err)
{
    const dtp_foreign *member;
    return dtp_foreign_require(doc, v, "k", DTP_FOREIGN_NUMBER, &member, err);
}

static void test_foreign_json__names_place_and_kind(void **state)
{
    (void)state;
    expect_read("{\"list\": [0, 9007199254740992]}", read_int, NULL);
    expect_read("{\"list\": [0, \"4\"]}", read_int,
                "c.json: list[1]: expected a number, found a string");
    expect_read("{\"list\": [0, 0.5]}", read_int,
                "c.json: list[1]: expected an integer, found 0.5");
    expect_read("{\"list\": [0, 9007199254740994]}", read_int,
                "c.json: list[1]: expected an integer, found 9007199254740994");
    expect_read("{\"list\": [0, -1]}", read_int,
                "c.json: list[1]: -1 is not in 0..9223372036854775807");
    expect_read("{\"list\": [0, true]}", read_bool, NULL);
    expect_read("{\"list\": [0, null]}", read_bool,
                "c.json: list[1]: expected true or false, found null");
    expect_read("{\"list\": [0, {}]}", read_text,
                "c.json: list[1]: expected a string, found an object");
    expect_read("{\"list\": [0, {\"k\": 1}]}", read_member, NULL);
    expect_read("{\"list\": [0, {\"j\": 1}]}", read_member,
                "c.json: list[1]: the key 'k' is missing");
    expect_read("{\"list\": [0, {\"k\": []}]}", read_member,
                "c.json: list[1].k: expected a number, found a list");
}

/* Walks a document: the sanitizers see what a broken one would touch. */
static int64_t count(const dtp_foreign *v)
{
    int64_t n = 1;
    for (const dtp_foreign *c = dtp_foreign_first(v); c != NULL; c = dtp_foreign_next(c)) {
        n += count(c) + (dtp_foreign_key(c) != NULL ? (int64_t)strlen(dtp_foreign_key(c)) : 0);
    }
    return n;
}

static void test_foreign_json__survives_changed_bytes(void **state)
{
    static const char text[] =
        "{\"rope_scaling\": {\"factor\": 8.0e0, \"type\": \"li\\u00e9near\"}, "
        "\"layers\": [[1, -2], {\"a\": null, \"b\": true}, \"\\\"x\\\\\"]}";
    uint32_t random = 36;
    int32_t accepted = 0;
    (void)state;
    print_message("seed %" PRIu32 "\n", random);
    for (int32_t i = 0; i < 20000; i++) {
        char changed[sizeof text];
        memcpy(changed, text, sizeof text);
        const size_t len = data_random(&random) % sizeof text;
        for (uint32_t k = data_random(&random) % 4; k > 0 && len > 0; k--) {
            changed[data_random(&random) % len] = (char)data_random(&random);
        }
        dtp_foreign_doc *doc = NULL;
        dtp_err err = {0};
        if (dtp_foreign_parse("t", changed, i % 4 == 0 ? len : sizeof text - 1, &doc, &err) ==
            DTP_OK) {
            accepted += count(dtp_foreign_root(doc)) > 0 ? 1 : 0;
        }
        dtp_foreign_destroy(doc);
    }
    assert_in_range(accepted, 100, 19000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_json__refuses_what_is_not_one_value),
        cmocka_unit_test(test_foreign_json__bounds_depth),
        cmocka_unit_test(test_foreign_json__names_place_and_kind),
        cmocka_unit_test(test_foreign_json__survives_changed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
