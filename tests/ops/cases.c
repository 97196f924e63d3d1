/* Cases of ops (executor/rule_verify/op_case.h) for tests: building fails the test. */
#include "tests/ops/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void case_build(const dtp_op_case *c, dtp_dtype float_dtype, uint64_t seed, dtp_case_graph *out)
{
    dtp_err err = {0};
    if (dtp_case_build(c, NULL, float_dtype, seed, out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}
