/* The version of these headers and of the library. */
#ifndef DTP_VERSION_H
#define DTP_VERSION_H

#include "dtp/status.h"

#define DTP_VERSION_MAJOR 0
#define DTP_VERSION_MINOR 1
#define DTP_VERSION_PATCH 0

DTP_API_BEGIN

/* "0.1.0": the version of the library that runs. Static storage. */
const char *dtp_version(void);

DTP_API_END

#endif
