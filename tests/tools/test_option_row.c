/* A row that is added to a copy of tools/options.def, and nowhere else, is an option of the command
 * line, a key of suites, and stands in help, the manual page, what bash completes, and the
 * document. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "dtp/planner.h"
#include "tools/help.h"
#include "tools/options.h"
#include "tools/regress/suite.h"

/* Standard output of a function, up to the room. */
static void printed(dtp_status (*print)(dtp_err *err), char *out, size_t room)
{
    dtp_err err = {0};
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
    const dtp_status s = print(&err);
    (void)fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    (void)close(kept);
    rewind(file);
    out[fread(out, 1, room - 1, file)] = '\0';
    (void)fclose(file);
    assert_int_equal(s, DTP_OK);
}

static dtp_status help_of_plan(dtp_err *err)
{
    return tool_help_command(TOOL_PLAN, err);
}

static dtp_status help_of_show(dtp_err *err)
{
    return tool_help_command(TOOL_SHOW, err);
}

static dtp_status manual(dtp_err *err)
{
    char *argv[] = {"dtplan", "help", "--man", "plan", NULL};
    return tool_help("dtplan", stdout, 4, argv, err);
}

static dtp_status completion(dtp_err *err)
{
    char *argv[] = {"dtplan", "help", "--completion", NULL};
    return tool_help("dtplan", stdout, 3, argv, err);
}

static dtp_status document(dtp_err *err)
{
    char *argv[] = {"dtplan", "help", "--markdown", NULL};
    return tool_help("dtplan", stdout, 3, argv, err);
}

static void test_row__is_in_help_manual_completion_and_document(void **state)
{
    static const struct {
        dtp_status (*print)(dtp_err *err);
        const char *line; /* NULL: it is not there */
    } places[] = {
        {help_of_plan, "  --added-row left|right     a row of this test (default left)\n"},
        {help_of_show, NULL},
        {manual, ".B \\-\\-added\\-row left|right\na row of this test (default left)\n"},
        {completion, "*:plan:--added-row:*) words=\"left right\""},
        {completion, " --added-row"},
        {document,
         "- `--added-row left|right` of dtplan plan: a row of this test (default left).\n"}};
    static char text[1 << 17];
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        printed(places[i].print, text, sizeof text);
        assert_true((strstr(text, places[i].line != NULL ? places[i].line : "added-row") != NULL) ==
                    (places[i].line != NULL));
    }
}

static dtp_status parse(int argc, char **argv, tool_source *source, dtp_err *err)
{
    const char *operands[TOOL_MAX_OPERANDS];
    int32_t n;
    bool done;
    dtp_plan_options own = dtp_plan_options_init();
    const tool_call call = {TOOL_PLAN, NULL, NULL, source, &own};
    *source = (tool_source){0};
    return tool_options_parse(&call, argc, argv, operands, &n, &done, err);
}

static void test_row__is_on_the_command_line(void **state)
{
    char *given[] = {"plan", "M", "--added-row=right", NULL}, *none[] = {"plan", "M", NULL},
         *wrong[] = {"plan", "M", "--added-row", "rihgt", NULL},
         *unknown[] = {"plan", "M", "--aded-row", "left", NULL};
    static tool_source source;
    dtp_err err = {0};
    (void)state;
    assert_int_equal(parse(3, given, &source, &err), DTP_OK);
    assert_string_equal(source.added_row, "right");
    assert_int_equal(parse(2, none, &source, &err), DTP_OK);
    assert_string_equal(source.added_row, "left");
    assert_int_equal(parse(4, wrong, &source, &err), DTP_INVALID);
    assert_non_null(
        strstr(err.msg, "--added-row: 'rihgt' is none of left, right; did you mean 'right'?"));
    assert_int_equal(parse(4, unknown, &source, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "unknown option '--aded-row'; did you mean '--added-row'?"));
}

static void test_row__is_a_key_of_suites(void **state)
{
    static const suite_metric metrics[] = {{.name = NULL}};
    static const suite_kind plans = {"dtp.suite/1", TOOL_PLAN, metrics},
                            jobs = {"dtp.jobs/1", TOOL_RUN, metrics};
    suite s;
    dtp_err err = {0};
    (void)state;
    assert_int_equal(suite_read("s.json",
                                "{\"format\": \"dtp.suite/1\", \"cases\": [{\"name\": \"a\", "
                                "\"model\": \"M\", \"added_row\": \"right\"}]}",
                                &plans, &s, &err),
                     DTP_OK);
    assert_null(s.cases[0].failure);
    assert_int_equal(s.cases[0].n_args, 3);
    assert_string_equal(s.cases[0].args[1], "--added-row");
    assert_string_equal(s.cases[0].args[2], "right");
    suite_free(&s);
    assert_int_equal(suite_read("s.json",
                                "{\"format\": \"dtp.jobs/1\", \"cases\": [{\"name\": \"a\", "
                                "\"model\": \"M\", \"added_row\": \"right\"}]}",
                                &jobs, &s, &err),
                     DTP_OK);
    assert_non_null(strstr(s.cases[0].failure, "unknown key, which is no option of 'run'"));
    suite_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row__is_in_help_manual_completion_and_document),
        cmocka_unit_test(test_row__is_on_the_command_line),
        cmocka_unit_test(test_row__is_a_key_of_suites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
