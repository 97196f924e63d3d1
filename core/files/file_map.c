/* A regular file as memory that is only read. */
#include "core/files/file_map.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file_in.h"

dtp_status dtp_file_map_open(const char *path, dtp_file_map *out, dtp_err *err)
{
    struct stat st;
    *out = (dtp_file_map){.fd = -1};
    DTP_TRY(dtp_file_in_open(path, &out->fd, err));
    if (fstat(out->fd, &st) == 0) {
        out->bytes = (int64_t)st.st_size;
        if (out->bytes == 0) {
            return DTP_OK;
        }
        void *data = mmap(NULL, (size_t)out->bytes, PROT_READ, MAP_SHARED, out->fd, 0);
        if (data != MAP_FAILED) {
            out->data = data;
            return DTP_OK;
        }
    }
    const int code = errno;
    dtp_file_map_close(out);
    return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(code));
}

dtp_status dtp_file_map_check(const dtp_file_map *map, const char *path, dtp_err *err)
{
    struct stat st;
    if (fstat(map->fd, &st) != 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    if ((int64_t)st.st_size < map->bytes) {
        return DTP_FAIL(err, DTP_IO,
                        "%s: has %" PRId64 " bytes now, it had %" PRId64 " when it was opened",
                        path, (int64_t)st.st_size, map->bytes);
    }
    return DTP_OK;
}

void dtp_file_map_close(dtp_file_map *map)
{
    if (map->data != NULL) {
        (void)munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    }
    if (map->fd >= 0) {
        (void)close(map->fd);
    }
    *map = (dtp_file_map){.fd = -1};
}
