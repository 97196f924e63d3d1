/* Texts of others in messages: one line, no control characters, cut between characters; lines of a
 * report within a width. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dtp/status.h"
#include "core/base/strbuf.h"
#include "core/base/text.h"
#include "core/base/philox.h"

static void test_one_line__escapes_what_terminals_obey(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain text, 'quoted' \\n", "plain text, 'quoted' \\n"},
        {"a\nb\rc\td", "a\\nb\\rc\\td"},
        {"\x1b[31mred\x1b[0m\x07\x7f", "\\x1b[31mred\\x1b[0m\\x07\\x7f"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"},
        {"\xc2\x9b[31m", "\\u009b[31m"},                           /* C1: CSI */
        {"a\xe2\x80\xa8z\xe2\x80\xaez", "a\\u2028z\\u202ez"},      /* separator, direction */
        {"\xff\xc3(\xed\xa0\x80|", "\\xff\\xc3(\\xed\\xa0\\x80|"}, /* not UTF-8 */
        {"\xc0\xaf \xf4\x90\x80\x80.",
         "\\xc0\\xaf \\xf4\\x90\\x80\\x80."}, /* too long, too large */
        {"cut \xe2\x82", "cut "},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[128], again[128];
        assert_int_equal(dtp_one_line(cases[i][0], out, sizeof out), strlen(cases[i][1]));
        assert_string_equal(out, cases[i][1]);
        (void)dtp_one_line(out, again, sizeof again);
        assert_string_equal(again, out);
    }
}

static void test_one_line__cuts_between_characters(void **state)
{
    (void)state;
    const char *text = "a\xe2\x82\xac\nz";
    static const char *const want[] = {"",
                                       "a",
                                       "a",
                                       "a",
                                       "a\xe2\x82\xac",
                                       "a\xe2\x82\xac",
                                       "a\xe2\x82\xac\\n",
                                       "a\xe2\x82\xac\\nz"};
    for (size_t size = 1; size <= 8; size++) {
        char out[16];
        memset(out, '#', sizeof out);
        (void)dtp_one_line(text, out, size);
        assert_string_equal(out, want[size - 1]);
        assert_int_equal(out[size], '#');
    }
}

/* Random bytes: never longer than the buffer, printable UTF-8, unchanged by a second pass. */
static void test_one_line__random_bytes(void **state)
{
    (void)state;
    const uint64_t seed = 20240611;
    for (uint64_t i = 0; i < 20000; i++) {
        char text[33], out[64], again[64];
        uint32_t words[4];
        for (uint64_t k = 0; k < 2; k++) {
            dtp_philox_block(seed, 1, (uint32_t)k, i, words);
            memcpy(text + 16 * k, words, 16);
        }
        text[32] = '\0';
        const size_t size = 1 + words[0] % sizeof out;
        const size_t n = dtp_one_line(text, out, size);
        if (n >= size || strlen(out) != n) {
            fail_msg("seed %llu case %llu: length", (unsigned long long)seed,
                     (unsigned long long)i);
        }
        for (size_t at = 0, step; at < n; at += step) {
            uint32_t code = 0;
            step = dtp_utf8_next(out + at, n - at, &code);
            if (step == 0 || code < 0x20 || (code >= 0x7F && code < 0xA0)) {
                fail_msg("seed %llu case %llu: byte %zu", (unsigned long long)seed,
                         (unsigned long long)i, at);
            }
        }
        (void)dtp_one_line(out, again, sizeof again);
        assert_string_equal(again, out);
    }
}

static void test_one_line__errors(void **state)
{
    (void)state;
    dtp_err err = {0};
    (void)dtp_err_set(&err, DTP_INVALID, __FILE__, __LINE__, "no '%s'", "x\n\x1b[2J");
    assert_string_equal(err.msg, "no 'x\\n\\x1b[2J'");
    dtp_err_prefix(&err, "%s", "dir\r/file");
    assert_string_equal(err.msg, "dir\\r/file: no 'x\\n\\x1b[2J'");
    /* A message that is passed on as its own argument. */
    (void)dtp_err_set(&err, DTP_INVALID, __FILE__, __LINE__, "again: %s", err.msg);
    assert_string_equal(err.msg, "again: dir\\r/file: no 'x\\n\\x1b[2J'");
    char text[2000];
    for (size_t i = 0; i + 3 < sizeof text; i += 3) {
        memcpy(text + i, "\xe2\x82\xac", 4);
    }
    (void)dtp_err_set(&err, DTP_INVALID, __FILE__, __LINE__, "%s", text);
    assert_int_equal(strlen(err.msg), 1023);
    dtp_err_prefix(&err, "ab");
    assert_int_equal(strlen(err.msg), 4 + 1017);
    assert_int_equal((unsigned char)err.msg[strlen(err.msg) - 3], 0xe2);
}

static void keep(void *user, dtp_log_level level, const char *line)
{
    (void)level;
    (void)snprintf(user, 64, "%s", line);
}

static void test_one_line__log(void **state)
{
    (void)state;
    char line[64] = "";
    dtp_ctx ctx = dtp_ctx_default();
    ctx.log_sink = keep;
    ctx.log_user = line;
    dtp_log(&ctx, DTP_LOG_WARN, "io", "skip", "name=%s", "a\n\x1b");
    assert_string_equal(line, "warn io skip name=a\\n\\x1b");
}

/* ---- lines of a width ---- */

static void test_wrap__breaks_lines(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"short  \n\nlines\n", "short\n\nlines\n"},
        {"one two three four five", "one two three four\n    five"},
        {"  one two three four five", "  one two three four\n    five"},
        {"the size is now 12 KiB", "the size is now\n    12 KiB"}, /* a number keeps its unit */
        {"the sizes are now 12 kept", "the sizes are now 12\n    kept"},
        {"--name  what it is called", "--name  what it is\n        called"}, /* below its column */
        {"a_name_that_is_longer_than_a_line then", "a_name_that_is_longer_than_a_line\n    then"},
        {"S(0)\u2192R S(1)\u2192R S(2)", "S(0)\u2192R S(1)\u2192R S(2)"}, /* 20 characters */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_strbuf b = {0};
        dtp_strbuf_add(&b, "begin\n");
        dtp_strbuf_add(&b, cases[i][0]);
        dtp_strbuf_wrap(&b, 6, 20);
        assert_string_equal(dtp_strbuf_text(&b) + 6, cases[i][1]);
        dtp_strbuf_free(&b);
    }
}

/* Random words: nothing is lost, and a line that is too long is one word. */
static void test_wrap__keeps_every_word(void **state)
{
    (void)state;
    static const char alphabet[] = "aaaaaa1  \n";
    for (uint32_t run = 0; run < 300; run++) {
        dtp_strbuf in = {0}, out = {0};
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t words[4];
            dtp_philox_block(7, run, 0, i, words);
            const char c = alphabet[words[0] % (sizeof alphabet - 1)];
            dtp_strbuf_addf(&in, "%c", c);
            dtp_strbuf_addf(&out, "%c", c);
        }
        dtp_strbuf_wrap(&out, 0, 12);
        const char *a = dtp_strbuf_text(&in), *b = dtp_strbuf_text(&out);
        for (;; a++, b++) {
            a += strspn(a, " \n");
            b += strspn(b, " \n");
            assert_int_equal(*a, *b);
            if (*a == '\0') {
                break;
            }
        }
        for (const char *line = dtp_strbuf_text(&out); *line != '\0';) {
            const size_t n = strcspn(line, "\n"), lead = strspn(line, " ");
            assert_true(n <= 12 || strcspn(line + lead, " \n") == n - lead);
            line += n + (line[n] == '\n' ? 1 : 0);
        }
        dtp_strbuf_free(&in);
        dtp_strbuf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line__escapes_what_terminals_obey),
        cmocka_unit_test(test_one_line__cuts_between_characters),
        cmocka_unit_test(test_one_line__random_bytes),
        cmocka_unit_test(test_one_line__errors),
        cmocka_unit_test(test_one_line__log),
        cmocka_unit_test(test_wrap__breaks_lines),
        cmocka_unit_test(test_wrap__keeps_every_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
