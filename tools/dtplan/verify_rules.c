/* dtplan verify-rules: runs ops under every sharding rule on virtual ranks against the unsharded op
 * (executor/rule_verify). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/graph/ops/op_table.h"
#include "dtp/op.h"
#include "tools/job.h"
#include "tools/progress.h"

enum { MAX_OPS = 256 };

typedef struct verify_rules_command {
    tool_source source;
    dtp_rule_verify_options options;
    int32_t n;
    dtp_rule_report reports[MAX_OPS];
} verify_rules_command;

static dtp_status verify_one(verify_rules_command *c, const dtp_op_def *op, dtp_err *err)
{
    tool_progress_note(op->name);
    return dtp_rule_verify(op, &c->options, &c->reports[c->n++], err);
}

static bool all_pass(const verify_rules_command *c)
{
    bool pass = true;
    for (int32_t i = 0; i < c->n; i++) {
        pass = pass && c->reports[i].pass;
    }
    return pass;
}

static void rule_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_rule_report *r = &((const verify_rules_command *)user)->reports[i];
    dtp_strbuf error = {0};
    dtp_strbuf_addf(&error, "%.2g%s%s", r->max_error,
                    r->pass ? "" : "  WRONG: ", r->pass ? "" : r->first_wrong.msg);
    tool_row(rows, TOOL_FIELDS(FIELD_TEXT("op", r->op), FIELD_INT("cases", r->cases),
                               FIELD_INT("rules", r->rules), FIELD_INT("programs", r->programs),
                               FIELD_INT("gradient_programs", r->gradient_programs),
                               FIELD_INT("refused", r->refused), FIELD_NOTE(&error),
                               FIELD_REAL("max_error", r->max_error), FIELD_BOOL("pass", r->pass),
                               FIELD_TEXT_IF(!r->pass, "first_wrong", r->first_wrong.msg)));
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    verify_rules_command *c = command;
    tool_progress_begin("running rules");
    if (operands[0] != NULL) {
        const dtp_op_def *op = dtp_op_find(operands[0]);
        char hint[DTP_OP_HINT_BYTES];
        dtp_op_hint(dtp_builtin_ops(), operands[0], hint);
        if (op == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "there is no op '%s'%s", operands[0], hint);
        }
        DTP_TRY(verify_one(c, op, err));
    }
    for (int32_t i = 0; i < dtp_op_count() && i < MAX_OPS && operands[0] == NULL; i++) {
        DTP_TRY(verify_one(c, dtp_op_at(i), err));
    }
    dtp_json_writer w = {0};
    if (c->source.json) {
        tool_report(&w, "dtp.verify_rules/1",
                    TOOL_FIELDS(FIELD_TEXT("backend", c->options.backend),
                                FIELD_TEXT_IF(c->options.dtype != NULL, "dtype", c->options.dtype),
                                FIELD_INT("seed", (int64_t)c->options.seed),
                                FIELD_BOOL("pass", all_pass(c)),
                                FIELD_LIST("ops", c->n, rule_row, c)));
    } else {
        static const tool_column columns[] = {{"op", -26},      {"cases", 5},     {"rules", 5},
                                              {"programs", 9},  {"gradients", 9}, {"refused", 8},
                                              {"max error", 0}, {NULL, 0}};
        int64_t programs = 0, gradients = 0;
        tool_print_table(&w.buf, columns, c->n, rule_row, c);
        for (int32_t i = 0; i < c->n; i++) {
            programs += c->reports[i].programs;
            gradients += c->reports[i].gradient_programs;
        }
        dtp_strbuf_addf(&w.buf, "%d ops, %" PRId64 " programs and %" PRId64 " with gradients: %s\n",
                        c->n, programs, gradients,
                        all_pass(c) ? "all equal the unsharded op" : "WRONG");
    }
    return (c->source.json ? tool_put : tool_put_text)(&w.buf, err);
}

int dtplan_verify_rules(int argc, char **argv)
{
    verify_rules_command c = {.options = dtp_rule_verify_options_init()};
    const tool_call call = {TOOL_VERIFY_RULES, execute, &c, &c.source, &c.options};
    const int code = tool_run(&call, argc, argv);
    return code == TOOL_OK && !all_pass(&c) ? TOOL_MISMATCH : code;
}
