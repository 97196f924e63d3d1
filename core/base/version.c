/* The version of the library. */
#include "dtp/version.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *dtp_version(void)
{
    return VERSION(DTP_VERSION_MAJOR, DTP_VERSION_MINOR, DTP_VERSION_PATCH);
}
