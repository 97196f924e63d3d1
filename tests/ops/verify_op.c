/* An op by name, with its gradient, under every sharding rule on ref and cpu, each against the op
 * that is not split. Usage: verify_op NAME */
#include <stdio.h>

#include "core/graph/ops/op_table.h"
#include "dtp/op.h"

int main(int argc, char **argv)
{
    const char *const backends[] = {"ref", "cpu"};
    const dtp_op_def *op = argc == 2 ? dtp_op_find(argv[1]) : NULL;
    if (op == NULL) {
        (void)fprintf(stderr, "verify_op: no such op\n");
        return 2;
    }
    for (int32_t i = 0; i < 2; i++) {
        dtp_rule_verify_options o = dtp_rule_verify_options_init();
        dtp_rule_report r;
        dtp_err err = {0};
        o.backend = backends[i];
        if (dtp_rule_verify(op, &o, &r, &err) != DTP_OK || !r.pass) {
            (void)fprintf(stderr, "%s: %s\n", backends[i],
                          err.msg[0] ? err.msg : r.first_wrong.msg);
            return 1;
        }
        (void)printf("%s: %lld programs, %lld with gradients\n", backends[i], (long long)r.programs,
                     (long long)r.gradient_programs);
        if (r.programs == 0 || (op->no_grad == NULL && r.gradient_programs == 0)) {
            return 1;
        }
    }
    return 0;
}
