/* What the commands of dtrun share. */
#ifndef DTP_TOOLS_DTRUN_OPTIONS_H
#define DTP_TOOLS_DTRUN_OPTIONS_H

#include "executor/session/feed.h"
#include "tools/job.h"
#include "tools/dtrun/ranks.h"

/* How a framework stores the parameters, after the names file of the model: where it is needed, for
 * a checkpoint `load` that another system wrote, or `save` (NULL: none). *out is NULL without a
 * names file, with which `save` is an error. */
dtp_status dtrun_stored(const tool_source *source, const tool_job *job, const char *load,
                        const char *save, const dtp_stored_params **out,
                        dtp_err *err) DTP_MUST_CHECK;

#endif
