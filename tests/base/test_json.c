/* The JSON reader and writer: texts that are read, and that are refused. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/philox.h"
#include "core/files/file_in.h"
#include "core/files/file_out.h"

static dtp_json_doc *parse_ok(const char *text)
{
    dtp_json_doc *doc = NULL;
    dtp_err err = {0};
    if (dtp_json_parse("t.json", text, strlen(text), &doc, &err) != DTP_OK) {
        fail_msg("'%s': %s", text, err.msg);
    }
    return doc;
}

static void expect_error(const char *text, size_t len, const char *message)
{
    dtp_json_doc *doc = NULL;
    dtp_err err = {0};
    dtp_status s = dtp_json_parse("t.json", text, len, &doc, &err);
    if (s != DTP_INVALID || strstr(err.msg, message) == NULL) {
        fail_msg("'%s': status %d, message '%s', expected '%s'", text, (int)s, err.msg, message);
    }
}

static void test_json__accepts_the_grammar(void **state)
{
    (void)state;
    static const char *const good[] = {
        "null",
        " \t\r\n true \n",
        "-0",
        "0.5",
        "1e3",
        "1E+3",
        "-12.25e-10",
        "\"\"",
        "\"a\\u0041\\n\\\"\\\\\\/\\b\\f\\r\\t\"",
        "\"\\ud83d\\ude00\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[1,2,[3,{}],{\"a\":[{}]}]",
        "{\"a\":1,\"A\":2,\"\":3}",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        dtp_json_destroy(parse_ok(good[i]));
    }
}

static void test_json__rejects_everything_else_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "t.json:1:1: expected a value, found the end of the file"},
        {" \n ", "t.json:2:2: expected a value"},
        {"{", "t.json:1:2: expected a key in double quotes, found the end"},
        {"[1,2", "t.json:1:5: expected ',' or ']'"},
        {"[1,]", "t.json:1:4: expected a value, found ']'"},
        {"[,1]", "t.json:1:2: expected a value"},
        {"[1 2]", "t.json:1:4: expected ',' or ']', found '2'"},
        {"{\"a\":1,}", "t.json:1:8: expected a key"},
        {"{\"a\" 1}", "t.json:1:6: expected ':' after the key"},
        {"{\"a\":}", "t.json:1:6: expected a value"},
        {"{a:1}", "t.json:1:2: expected a key in double quotes, found 'a'"},
        {"{'a':1}", "t.json:1:2: expected a key in double quotes"},
        {"{1:1}", "t.json:1:2: expected a key"},
        {"[1}", "t.json:1:3: expected ',' or ']', found '}'"},
        {"1 2", "t.json:1:3: expected the end of the file, found '2'"},
        {"{} x", "t.json:1:4: expected the end of the file"},
        {"[]]", "t.json:1:3: expected the end of the file"},
        {"nul", "t.json:1:1: expected a value"},
        {"nulll", "t.json:1:5: expected the end of the file"},
        {"True", "t.json:1:1: expected a value, found 'T'"},
        {"NaN", "t.json:1:1: expected a value"},
        {"Infinity", "t.json:1:1: expected a value"},
        {"-Infinity", "t.json:1:2: expected a digit"},
        {"+1", "t.json:1:1: expected a value"},
        {"01", "t.json:1:1: a number with a leading zero"},
        {"-01", "t.json:1:1: a number with a leading zero"},
        {"1.", "t.json:1:3: expected a digit after the decimal point"},
        {".5", "t.json:1:1: expected a value"},
        {"1e", "t.json:1:3: expected a digit in the exponent"},
        {"1e+", "t.json:1:4: expected a digit in the exponent"},
        {"-", "t.json:1:2: expected a digit"},
        {"0x10", "t.json:1:2: expected the end of the file"},
        {"1_000", "t.json:1:2: expected the end of the file"},
        {"1e999", "t.json:1:1: the number does not fit into a double"},
        {"[-1e309]", "t.json:1:2: [0]: the number does not fit into a double"},
        {"1111111111111111111111111111111111111111111111111111111111111",
         "more than 60 characters"},
        {"\"a", "t.json:1:1: the string that starts here does not end"},
        {"\"a\nb\"", "t.json:1:3: control character 0x0a in a string"},
        {"\"\t\"", "t.json:1:2: control character 0x09"},
        {"\"\\x41\"", "t.json:1:2: unknown escape"},
        {"\"\\u12g4\"", "t.json:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u12", "t.json:1:2: \\u needs four hexadecimal digits"},
        {"\"\\u0000\"", "t.json:1:2: \\u0000 is not allowed"},
        {"\"\\ud800\"", "t.json:1:2: a lone surrogate"},
        {"\"\\udc00\\ud800\"", "t.json:1:2: a lone surrogate"},
        {"\"\\ud800\\u0041\"", "t.json:1:2: a lone surrogate"},
        {"\"\xff\"", "t.json:1:2: not UTF-8 (byte 0xff)"},
        {"\"\xc0\x80\"", "t.json:1:2: not UTF-8"},
        {"\"\xe0\x80\x80\"", "t.json:1:2: not UTF-8"},
        {"\"\xed\xa0\x80\"", "t.json:1:2: not UTF-8"},
        {"\"\xf5\x80\x80\x80\"", "t.json:1:2: not UTF-8"},
        {"\"\xc3\"", "t.json:1:2: not UTF-8"},
        {"\xef\xbb\xbf{}", "t.json:1:1: expected a value, found the byte 0xef"},
        {"// x\n1", "t.json:1:1: expected a value, found '/'"},
        {"{\"a\":1,\n \"b\":2,\n \"a\":3}", "t.json:3:2: a: the key 'a' occurs twice"},
        {"{\"a\":1,\"\\u0061\":3}", "t.json:1:8: a: the key 'a' occurs twice"},
        {"[{\"x\":{\"k\":1,\"k\":1}}]", "t.json:1:14: [0].x.k: the key 'k' occurs twice"},
        {"[\"\xc3\xa9\", x]", "t.json:1:7: expected a value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        expect_error(bad[i].text, strlen(bad[i].text), bad[i].message);
    }
    expect_error("[\"a\0b\"]", 7, "t.json:1:4: control character 0x00");
    expect_error("[1]\0", 4, "t.json:1:4: expected the end of the file");
}

static void test_json__limits_depth(void **state)
{
    (void)state;
    char text[2 * 70 + 1];
    for (int depth = DTP_JSON_MAX_DEPTH; depth <= DTP_JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        if (depth == DTP_JSON_MAX_DEPTH) {
            dtp_json_destroy(parse_ok(text));
        } else {
            expect_error(text, strlen(text), "t.json:1:65: nested deeper than 64");
        }
    }
}

static void test_json__reads_integers_exactly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"9007199254740993", 9007199254740993},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN},
                {"-0", 0},
                {"1.0", 1},
                {"1e3", 1000},
                {"7", 7}};
    static const char *const bad[] = {"9223372036854775808",
                                      "-9223372036854775809",
                                      "1.5",
                                      "15e-2",
                                      "99999999999999999999999999",
                                      "\"1\"",
                                      "true"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        dtp_json_doc *doc = parse_ok(good[i].text);
        int64_t value = 1;
        assert_int_equal(dtp_json_int(dtp_json_root(doc), INT64_MIN, INT64_MAX, &value, NULL),
                         DTP_OK);
        assert_true(value == good[i].value);
        dtp_json_destroy(doc);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dtp_json_doc *doc = parse_ok(bad[i]);
        int64_t value;
        dtp_err err;
        assert_int_equal(dtp_json_int(dtp_json_root(doc), INT64_MIN, INT64_MAX, &value, &err),
                         DTP_INVALID);
        assert_non_null(strstr(err.msg, "t.json:1:1: "));
        dtp_json_destroy(doc);
    }
    dtp_json_doc *doc = parse_ok("[11]");
    int64_t value;
    dtp_err err;
    assert_int_equal(dtp_json_int(dtp_json_at(dtp_json_root(doc), 0), 1, 10, &value, &err),
                     DTP_INVALID);
    assert_string_equal(err.msg, "t.json:1:2: [0]: 11 is not in 1..10");
    dtp_json_destroy(doc);
}

static void test_json__names_place_and_path(void **state)
{
    (void)state;
    static const char *const known[] = {"id", "in", NULL};
    dtp_json_doc *doc =
        parse_ok("{\"nodes\": [\n  {\"id\": 1},\n  {\"in\": 5, \"a.b\\n\": {\"c\": 1}}]}");
    const dtp_json *node = dtp_json_at(dtp_json_get(dtp_json_root(doc), "nodes"), 1);
    const char *text;
    dtp_err err;
    assert_int_equal(dtp_json_expect(dtp_json_get(node, "in"), DTP_JSON_ARRAY, &err), DTP_INVALID);
    assert_string_equal(err.msg, "t.json:3:4: nodes[1].in: expected a list, found a number");
    assert_int_equal(dtp_json_string(dtp_json_get(dtp_json_get(node, "a.b\n"), "c"), &text, &err),
                     DTP_INVALID);
    assert_string_equal(err.msg,
                        "t.json:3:23: nodes[1][\"a.b\\n\"].c: expected a string, found a number");
    assert_int_equal(dtp_json_keys(node, known, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "unknown key 'a.b\\n' (known: id in)"));
    assert_int_equal(dtp_json_require(node, "id", &node, &err), DTP_INVALID);
    assert_string_equal(err.msg, "t.json:3:3: nodes[1]: the key 'id' is missing");
    dtp_json_destroy(doc);
}

static void test_json__keeps_document_order(void **state)
{
    (void)state;
    dtp_json_doc *doc =
        parse_ok("{\"z\": [1, [2], {\"k\": 3}], \"a\": {}, \"m\": [[]], \"b\": \"s\"}");
    const dtp_json *root = dtp_json_root(doc);
    static const char *const keys[] = {"z", "a", "m", "b"};
    assert_int_equal(dtp_json_size(root), 4);
    for (int32_t i = 0; i < 4; i++) {
        assert_string_equal(dtp_json_key(dtp_json_at(root, i)), keys[i]);
        assert_ptr_equal(dtp_json_get(root, keys[i]), dtp_json_at(root, i));
    }
    assert_null(dtp_json_get(root, "q"));
    assert_null(dtp_json_at(root, 4));
    const dtp_json *z = dtp_json_get(root, "z");
    int64_t value = 0;
    assert_int_equal(dtp_json_size(z), 3);
    assert_int_equal(dtp_json_int(dtp_json_get(dtp_json_at(z, 2), "k"), 0, 9, &value, NULL),
                     DTP_OK);
    assert_int_equal(value, 3);
    dtp_json_destroy(doc);
}

static void test_json__double_print_round_trips(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"}, {1.0, "1"}, {-2.5, "-2.5"}, {1e300, "1e+300"}};
    char out[32];
    for (size_t i = 0; i < 4; i++) {
        dtp_double_print(cases[i].value, out);
        assert_string_equal(out, cases[i].text);
    }
    const uint64_t seed = 20240607;
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t words[4];
        uint64_t bits;
        double value, back;
        dtp_philox_block(seed, 1, 0, i, words);
        bits = (uint64_t)words[0] << 32 | words[1];
        memcpy(&value, &bits, sizeof value);
        if (value - value != 0.0) {
            continue;
        }
        dtp_double_print(value, out);
        back = strtod(out, NULL);
        if (memcmp(&back, &value, sizeof value) != 0) {
            fail_msg("seed %" PRIu64 " case %" PRIu64 ": %a printed as %s", seed, i, value, out);
        }
    }
}

static void test_json__writer_text_is_fixed_and_reads_back(void **state)
{
    (void)state;
    dtp_json_writer w = {0};
    dtp_json_begin_object(&w, NULL);
    dtp_json_write_string(&w, "s", "a\"\\\n\x01\xc3\xa9");
    dtp_json_begin_array(&w, "mesh", true);
    dtp_json_begin_array(&w, NULL, false);
    dtp_json_write_string(&w, NULL, "x");
    dtp_json_write_int(&w, NULL, -3);
    dtp_json_end_array(&w);
    dtp_json_end_array(&w);
    dtp_json_begin_array(&w, "long", false);
    dtp_json_write_bool(&w, NULL, true);
    dtp_json_write_null(&w, NULL);
    dtp_json_end_array(&w);
    dtp_json_begin_object(&w, "empty");
    dtp_json_end_object(&w);
    dtp_json_write_double(&w, "d", 0.25);
    dtp_json_end_object(&w);
    assert_string_equal(dtp_strbuf_text(&w.buf), "{\n  \"s\": \"a\\\"\\\\\\n\\u0001\xc3\xa9\",\n"
                                                 "  \"mesh\": [[\"x\", -3]],\n"
                                                 "  \"long\": [\n    true,\n    null\n  ],\n"
                                                 "  \"empty\": {},\n  \"d\": 0.25\n}");
    dtp_json_doc *doc = parse_ok(dtp_strbuf_text(&w.buf));
    const char *text = NULL;
    assert_int_equal(dtp_json_string(dtp_json_get(dtp_json_root(doc), "s"), &text, NULL), DTP_OK);
    assert_string_equal(text, "a\"\\\n\x01\xc3\xa9");
    dtp_json_destroy(doc);
    dtp_strbuf_free(&w.buf);
}

/* Random byte edits of a valid document: the reader never crashes, and what it accepts has a place
 * for every value that matches the text. */
static void test_json__survives_random_edits(void **state)
{
    (void)state;
    static const char base[] = "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\"], \"b\": {\"c\": null, \"d\": "
                               "[true, false, [], {}]}, \"e\": \"\xc3\xa9\"}";
    static const char pieces[] = "{}[]:,\"\\ue0123456789.-+ntfalsr \n\x01\xff\xc3\xa9";
    const uint64_t seed = 7;
    int accepted = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        char text[sizeof base];
        uint32_t words[4];
        dtp_json_doc *doc;
        dtp_err err;
        memcpy(text, base, sizeof base);
        dtp_philox_block(seed, 2, 0, i, words);
        for (uint32_t k = 0; k <= words[0] % 2; k++) {
            text[words[1 + k] % (sizeof base - 1)] =
                pieces[words[3] / (k + 1) % (sizeof pieces - 1)];
        }
        if (dtp_json_parse("t.json", text, sizeof base - 1, &doc, &err) == DTP_OK) {
            accepted++;
            dtp_json_destroy(doc);
        } else if (err.code != DTP_INVALID || strchr(err.msg, '\n') != NULL ||
                   strncmp(err.msg, "t.json:", 7) != 0) {
            fail_msg("seed %" PRIu64 " case %" PRIu64 ": %s", seed, i, err.msg);
        }
    }
    assert_in_range(accepted, 100, 19000);
}

static void test_file__writes_whole_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/dtp_test_json.XXXXXX", path[64], *text;
    size_t len;
    dtp_err err;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/f.json", folder);
    assert_int_equal(dtp_file_read(path, 10, &text, &len, &err), DTP_IO);
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(dtp_file_write(path, "first text", 10, NULL), DTP_OK);
    assert_int_equal(dtp_file_write(path, "second", 6, NULL), DTP_OK);
    assert_int_equal(dtp_file_read(path, 6, &text, &len, NULL), DTP_OK);
    assert_int_equal(len, 6);
    assert_string_equal(text, "second");
    free(text);
    assert_int_equal(dtp_file_read(path, 5, &text, &len, &err), DTP_RANGE);
    assert_int_equal(dtp_file_read(folder, 5, &text, &len, &err), DTP_IO);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/no/f.json", folder);
    assert_int_equal(dtp_file_write(path, "x", 1, &err), DTP_IO);
    assert_int_equal(dtp_file_write("/dev/null", "x", 1, NULL), DTP_OK);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__accepts_the_grammar),
        cmocka_unit_test(test_json__rejects_everything_else_with_its_place),
        cmocka_unit_test(test_json__limits_depth),
        cmocka_unit_test(test_json__reads_integers_exactly),
        cmocka_unit_test(test_json__names_place_and_path),
        cmocka_unit_test(test_json__keeps_document_order),
        cmocka_unit_test(test_json__double_print_round_trips),
        cmocka_unit_test(test_json__writer_text_is_fixed_and_reads_back),
        cmocka_unit_test(test_json__survives_random_edits),
        cmocka_unit_test(test_file__writes_whole_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
