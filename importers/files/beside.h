/* Files that a model names, in its folder or below. */
#ifndef DTP_IMPORTERS_FILES_BESIDE_H
#define DTP_IMPORTERS_FILES_BESIDE_H

#include <stdbool.h>

/* Whether `path`, relative to `folder` ("" or ending in '/'), stays in it: no part leads above the
 * folder, links are followed, and none is absolute. A part that is missing stays. */
bool dtp_path_stays(const char *folder, const char *path);

#endif
