/* Devices by name. */
#ifndef DTP_EXECUTOR_RUN_DEVICES_H
#define DTP_EXECUTOR_RUN_DEVICES_H

#include "executor/comm/device_module.h"

/* A built-in device; NULL: there is none of this name. */
const dtp_device *dtp_device_builtin(const char *name);
/* A built-in device, or that of the module dtp_NAME.so, which is looked for where the program or
 * library that holds this code looks for its libraries (lib/dtp) and stays open. Static storage.
 * DTP_INVALID: there is no such backend. DTP_UNSUPPORTED: its module is missing, is of another
 * build, or lacks a library. */
dtp_status dtp_device_find(const char *name, const dtp_device **out, dtp_err *err) DTP_MUST_CHECK;

#endif
