/* What a runtime makes of a device: shares of its peaks, and the time of its host. A machine file
 * has a set for every runtime that was fitted or measured (docs/formats/machine.md).
 *
 * A machine is set to one runtime before anything is priced (dtp_machine_set_runtime,
 * dtp/plan.h): its rates become the shares of its peaks, the curves of other kernels go, and what
 * prices products, attention and memory-bound ops works on these rates as on any others.
 */
#ifndef DTP_COST_MODELS_EFFICIENCY_H
#define DTP_COST_MODELS_EFFICIENCY_H

#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "cost_models/machine/machine.h"

/* The value of "efficiency": an object of sets by runtime. */
dtp_status dtp_efficiency_read(dtp_machine *m, const dtp_json *sets, dtp_err *err) DTP_MUST_CHECK;
/* "efficiency", where the machine has sets. */
void dtp_efficiency_write(dtp_json_writer *w, const dtp_machine *m);

/* The set of a runtime, NULL when there is none. */
const dtp_efficiency *dtp_efficiency_find(const dtp_machine *m, const char *runtime);
/* The sets of another machine, where this one has none. */
dtp_status dtp_efficiency_borrow(dtp_machine *m, const dtp_machine *from,
                                 dtp_err *err) DTP_MUST_CHECK;

#endif
