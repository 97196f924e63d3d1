/* How messages name a place of a runner: its rank, step, instruction and node. */
#ifndef DTP_EXECUTOR_RUN_RUNNER_NAMES_H
#define DTP_EXECUTOR_RUN_RUNNER_NAMES_H

#include "executor/run/runner_data.h"

/* "-": the instruction is of no node. */
const char *dtp_runner__node_name(const dtp_program *p, const dtp_instr *i);
/* Prefixes a message with rank, step and instruction i; -1: it is not known. */
void dtp_runner__name_instr(const dtp_runner *r, int64_t step, int32_t i, dtp_err *err);

#endif
