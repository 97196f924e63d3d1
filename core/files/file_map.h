/* A regular file as memory that is only read. */
#ifndef DTP_CORE_FILES_FILE_MAP_H
#define DTP_CORE_FILES_FILE_MAP_H

#include <stdint.h>

#include "core/base/status.h"

typedef struct dtp_file_map {
    int fd;           /* -1 when closed */
    const char *data; /* NULL when the file is empty or closed */
    int64_t bytes;
} dtp_file_map;

/* DTP_IO naming the path. The caller closes it. */
dtp_status dtp_file_map_open(const char *path, dtp_file_map *out, dtp_err *err) DTP_MUST_CHECK;
/* Before a read: DTP_IO when the file was cut since it was opened, since memory behind its end
 * cannot be read. */
dtp_status dtp_file_map_check(const dtp_file_map *map, const char *path,
                              dtp_err *err) DTP_MUST_CHECK;
void dtp_file_map_close(dtp_file_map *map);

#endif
