/* A machine with numbers of its file set by text: --set. */
#ifndef DTP_COST_MODELS_MACHINE_SET_H
#define DTP_COST_MODELS_MACHINE_SET_H

#include "cost_models/machine/machine.h"

/* Replaces *m, which is destroyed, by the machine in which each "NAME=VALUE" holds, in their order.
 * NAME is a quantity of dtp_machine_params (machine_scale.h), "memory" in bytes, or "LEVEL.size" in
 * members. VALUE is a factor, "0.5x", or the new number: "141GiB", "400GB/s", "2.7us", "16";
 * quantities of many numbers take factors alone. Its name and place say what was set. DTP_INVALID
 * naming the text, and *m stays, when the name or the value is none, or the machine's file could
 * not have it. */
dtp_status dtp_machine_set(dtp_machine **m, int32_t n, const char *const *texts,
                           dtp_err *err) DTP_MUST_CHECK;

#endif
