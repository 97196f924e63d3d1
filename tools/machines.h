/* Machine files by name: those that are shipped, and that of this machine which was measured
 * last. */
#ifndef DTP_TOOLS_MACHINES_H
#define DTP_TOOLS_MACHINES_H

#include "dtp/plan.h"
#include "spmd/target/target.h"
#include "tools/options.h"

/* The machine of a file or name (tools/shipped.h). DTP_INVALID also for a number that looks as if
 * it were in another unit, unless `yes_units` says that it is meant. Levels that do not state their
 * collectives get those of the level of this name of a shipped machine, if possible of the same
 * device; not of kind cpu. */
dtp_status tool_machine_read(const char *name, bool yes_units, dtp_machine **out,
                             dtp_err *err) DTP_MUST_CHECK;

/* The machine of --machine with --yes-units and every --set; without --machine *out stays, and
 * --set is DTP_INVALID. */
dtp_status tool_machine_of(const tool_source *source, dtp_machine **out,
                           dtp_err *err) DTP_MUST_CHECK;

/* Where the machine that was measured last with so many ranks is kept, in the user's cache
 * ($XDG_CACHE_HOME or ~/.cache, folder dtp, made here). DTP_IO when there is no such folder. */
dtp_status tool_machine_cache(int32_t ranks, char *path, size_t size, dtp_err *err) DTP_MUST_CHECK;

/* This machine with so many ranks, with every --set: from the cache, else measured by `dtrun bench
 * --quick`, which is said on standard error. DTP_INVALID when there are more ranks than this
 * machine can stand for. */
dtp_status tool_machine_here(const tool_source *source, int32_t ranks, dtp_machine **out,
                             dtp_err *err) DTP_MUST_CHECK;

/* A machine without efficiencies, but of kind cpu, takes those of a shipped machine with the same
 * peaks. */
dtp_status tool_machine_borrow(dtp_machine *m, dtp_err *err) DTP_MUST_CHECK;
/* The same, then sets the machine to the runtime of `name`, else of the target, where it has
 * efficiencies; of one that is borrowed standard error says so. `name` "datasheet": none. `target`
 * NULL: a name is given. */
dtp_status tool_machine_runtime(dtp_machine *m, const char *name, const dtp_target *target,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
