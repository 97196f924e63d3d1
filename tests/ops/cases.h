/* Cases of ops (executor/rule_verify/op_case.h) for tests: building fails the test. */
#ifndef DTP_TESTS_OPS_CASES_H
#define DTP_TESTS_OPS_CASES_H

#include "executor/rule_verify/op_case.h"

/* Builds a case of the table's op or fails the test. */
void case_build(const dtp_op_case *c, dtp_dtype float_dtype, uint64_t seed, dtp_case_graph *out);

#endif
