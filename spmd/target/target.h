/* Targets: what memory and prices must know of a backend and a transport, as plain data and host
 * functions (docs/targets.md). The planner and the lowering read them; the executor asserts when it
 * binds a program that its backend and its transport agree.
 */
#ifndef DTP_SPMD_TARGET_TARGET_H
#define DTP_SPMD_TARGET_TARGET_H

#include "core/graph/op.h"

/* How the kernels run a built-in op, where that matters before they run. */
typedef struct dtp_target_op {
    const char *op;
    /* Scratch bytes that a call on local types needs; NULL: 0. */
    int64_t (*workspace)(const dtp_op_call *call);
    /* Work of a call on local types, packing included; NULL: that of the op's row. */
    void (*work)(const dtp_op_call *call, dtp_work *out);
} dtp_target_op;

typedef struct dtp_target {
    const char *name;
    const dtp_target_op *ops; /* ended by a NULL op; ops that are not listed need nothing */
} dtp_target;

extern const dtp_target dtp_target_cpu;

/* Scratch bytes of a call on local types: of a registered op what its row says. */
int64_t dtp_target_workspace(const dtp_target *target, const dtp_op_call *call);
/* Work of a call on local types. */
void dtp_target_work(const dtp_target *target, const dtp_op_call *call, dtp_work *out);

#endif
