/* CRC-32 (zlib), written as 8 hexadecimal digits: of files, and of JSON texts that hold their
 * own. */
#include "executor/files/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { DIGITS = sizeof DTP_CRC_ZEROS - 1 };

bool dtp_crc_parse(const char *digits, uint32_t *out)
{
    const bool good = strlen(digits) == DIGITS && strspn(digits, "0123456789abcdef") == DIGITS;
    *out = good ? (uint32_t)strtoul(digits, NULL, 16) : 0;
    return good;
}

dtp_status dtp_crc_sampled(const dtp_file_map *map, const char *path, uint32_t *out, dtp_err *err)
{
    enum { WHOLE = 1 << 24, SAMPLE = 1 << 16, SAMPLES = 64 };
    const bool whole = map->bytes <= WHOLE;
    const int64_t bytes = whole ? map->bytes : SAMPLE, n = whole ? 1 : SAMPLES;
    DTP_TRY(dtp_file_map_check(map, path, err));
    *out = 0;
    for (int64_t i = 0; i < n && bytes > 0; i++) { /* the last one ends where the file ends */
        const int64_t at = whole ? 0 : (map->bytes - bytes) / (n - 1) * i;
        const int64_t from = i < n - 1 || whole ? at : map->bytes - bytes;
        *out = (uint32_t)crc32(*out, (const unsigned char *)map->data + from, (uInt)bytes);
    }
    return DTP_OK;
}

dtp_status dtp_crc_file(const char *path, int64_t from, uint32_t *out, dtp_err *err)
{
    unsigned char block[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    uLong crc = crc32(0, NULL, 0);
    ssize_t n;
    while ((n = pread(fd, block, sizeof block, (off_t)from)) > 0) {
        crc = crc32(crc, block, (uInt)n);
        from += n;
    }
    int code = errno;
    close(fd);
    if (n < 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(code));
    }
    *out = (uint32_t)crc;
    return DTP_OK;
}

/* The digits of the first member `key`, as our writer spaces it; NULL: there is none. */
static char *digits_of(char *text, size_t len, const char *key)
{
    char member[64];
    const int n = snprintf(member, sizeof member, "\"%s\": \"", key);
    char *at = strstr(text, member);
    return at != NULL && (size_t)(at - text) + (size_t)n + DIGITS < len ? at + n : NULL;
}

static void digits_for(const char *text, size_t len, char out[DIGITS + 1])
{
    const uLong crc = crc32_z(crc32(0, NULL, 0), (const unsigned char *)text, len);
    (void)snprintf(out, DIGITS + 1, "%08" PRIx32, (uint32_t)crc);
}

bool dtp_crc_seal(char *text, size_t len, const char *key)
{
    char *at = digits_of(text, len, key), digits[DIGITS + 1];
    if (at == NULL || memcmp(at, DTP_CRC_ZEROS, DIGITS) != 0) {
        return false;
    }
    digits_for(text, len, digits);
    memcpy(at, digits, DIGITS);
    return true;
}

dtp_status dtp_crc_check(const char *path, char *text, size_t len, const char *key,
                         const char *digits, dtp_err *err)
{
    char *at = digits_of(text, len, key), found[DIGITS + 1] = "";
    uint32_t unused;
    if (!dtp_crc_parse(digits, &unused) || at == NULL || memcmp(at, digits, DIGITS) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "%s: %s '%.20s' is not a checksum of 8 hex digits", path,
                        key, digits);
    }
    memcpy(at, DTP_CRC_ZEROS, DIGITS);
    digits_for(text, len, found);
    memcpy(at, digits, DIGITS);
    return memcmp(found, digits, DIGITS) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "%s: %s is %s, its text has %s: the file is damaged",
                          path, key, digits, found);
}
