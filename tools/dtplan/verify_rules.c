/* dtplan verify-rules: runs ops under every sharding rule on virtual ranks against the unsharded op
 * (executor/rule_verify). */
#include <stdio.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/graph/ops/op_table.h"
#include "executor/rule_verify/rule_verify.h"
#include "tools/dtplan/options.h"

enum { MAX_OPS = 256 };

typedef struct verify_rules_command {
    const char *backend;
    int64_t seed;
    bool json;
    int32_t n;
    dtp_rule_report reports[MAX_OPS];
} verify_rules_command;

static dtp_status verify_one(verify_rules_command *c, const dtp_op_def *op, dtp_err *err)
{
    dtp_rule_verify_options o = dtp_rule_verify_options_init();
    o.backend = c->backend;
    o.seed = (uint64_t)c->seed;
    return dtp_rule_verify(op, &o, &c->reports[c->n++], err);
}

static dtp_status verify_all(verify_rules_command *c, const char *name, dtp_err *err)
{
    if (name != NULL) {
        const dtp_op_def *op = dtp_op_find(name);
        char hint[DTP_OP_HINT_BYTES];
        dtp_op_hint(dtp_builtin_ops(), name, hint);
        return op != NULL ? verify_one(c, op, err)
                          : DTP_FAIL(err, DTP_INVALID, "there is no op '%s'%s", name, hint);
    }
    for (int32_t i = 0; i < dtp_op_count() && i < MAX_OPS; i++) {
        DTP_TRY(verify_one(c, dtp_op_at(i), err));
    }
    return DTP_OK;
}

static bool all_pass(const verify_rules_command *c)
{
    bool pass = true;
    for (int32_t i = 0; i < c->n; i++) {
        pass = pass && c->reports[i].pass;
    }
    return pass;
}

static void print_text(const verify_rules_command *c)
{
    int64_t programs = 0, gradients = 0;
    (void)printf("%-26s %5s %5s %9s %9s %8s  %s\n", "op", "cases", "rules", "programs", "gradients",
                 "refused", "max error");
    for (int32_t i = 0; i < c->n; i++) {
        const dtp_rule_report *r = &c->reports[i];
        (void)printf("%-26s %5d %5d %9lld %9lld %8lld  %.2g%s%s\n", r->op, r->cases, r->rules,
                     (long long)r->programs, (long long)r->gradient_programs, (long long)r->refused,
                     r->max_error, r->pass ? "" : "  WRONG: ", r->pass ? "" : r->first_wrong.msg);
        programs += r->programs;
        gradients += r->gradient_programs;
    }
    (void)printf("%d ops, %lld programs and %lld with gradients: %s\n", c->n, (long long)programs,
                 (long long)gradients, all_pass(c) ? "all equal the unsharded op" : "WRONG");
}

static dtp_status print_json(const verify_rules_command *c, dtp_err *err)
{
    dtp_json_writer w = {0};
    tool_report_begin(&w, "dtp.verify_rules/1");
    dtp_json_write_string(&w, "backend", c->backend);
    dtp_json_write_int(&w, "seed", c->seed);
    dtp_json_write_bool(&w, "pass", all_pass(c));
    dtp_json_begin_array(&w, "ops", false);
    for (int32_t i = 0; i < c->n; i++) {
        const dtp_rule_report *r = &c->reports[i];
        dtp_json_begin_object(&w, NULL);
        dtp_json_write_string(&w, "op", r->op);
        dtp_json_write_int(&w, "cases", r->cases);
        dtp_json_write_int(&w, "rules", r->rules);
        dtp_json_write_int(&w, "programs", r->programs);
        dtp_json_write_int(&w, "gradient_programs", r->gradient_programs);
        dtp_json_write_int(&w, "refused", r->refused);
        dtp_json_write_double(&w, "max_error", r->max_error);
        dtp_json_write_bool(&w, "pass", r->pass);
        if (!r->pass) {
            dtp_json_write_string(&w, "first_wrong", r->first_wrong.msg);
        }
        dtp_json_end_object(&w);
    }
    dtp_json_end_array(&w);
    tool_report_end(&w);
    return tool_put(&w.buf, err);
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    verify_rules_command *c = command;
    DTP_TRY(verify_all(c, operands[0], err));
    if (c->json) {
        return print_json(c, err);
    }
    print_text(c);
    return DTP_OK;
}

int dtplan_verify_rules(int argc, char **argv)
{
    verify_rules_command c = {.backend = "ref", .seed = 20240517};
    const tool_option options[] = {
        {"--backend", TOOL_STRING, "ref|cpu", &c.backend, 0, 0,
         "arithmetic of the sharded runs: f64 (default) or the f32 kernels"},
        {"--seed", TOOL_INT, "N", &c.seed, 0, 9e15, "seed of values and random choices"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "result as JSON"},
        {NULL, TOOL_FLAG, NULL, NULL, 0, 0, NULL},
    };
    const tool_parse parse = {"dtplan verify-rules [OP] [options]", options, 0, 1};
    const int code = tool_run("dtplan", &parse, argc, argv, execute, &c);
    return code == TOOL_OK && !all_pass(&c) ? TOOL_MISMATCH : code;
}
