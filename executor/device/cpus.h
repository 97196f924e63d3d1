/* The processors that this process may use. */
#ifndef DTP_EXECUTOR_DEVICE_CPUS_H
#define DTP_EXECUTOR_DEVICE_CPUS_H

#include <stdbool.h>
#include <stdint.h>

/* Those that its affinity allows, at least 1; not all that there are. */
int32_t dtp_cpus_usable(void);
/* Whether these are all processors of the machine that are online. */
bool dtp_cpus_all(void);
/* Hardware threads of a core, at least 1. */
int32_t dtp_cpus_per_core(void);
/* Equal for processes of one machine that may use the very same processors; where that is not
 * known, equal for all. */
uint64_t dtp_cpus_key(void);

#endif
