/* CRC-32 (zlib), written as 8 hexadecimal digits: of files, and of JSON texts that hold their own.
 */
#ifndef DTP_EXECUTOR_FILES_CHECKSUM_H
#define DTP_EXECUTOR_FILES_CHECKSUM_H

#include "core/base/status.h"
#include "core/files/file_map.h"

/* What stands in place of the digits while the checksum of a text is computed. */
#define DTP_CRC_ZEROS "00000000"

/* False when this is not 8 lower-case hexadecimal digits. */
bool dtp_crc_parse(const char *digits, uint32_t *out);
/* Of a file, from a byte to the end. DTP_IO naming the file. */
dtp_status dtp_crc_file(const char *path, int64_t from, uint32_t *out, dtp_err *err) DTP_MUST_CHECK;
/* What ranks and runs tell files apart by: the checksum of all of a file of up to 16 MiB, of a
 * larger one that of 64 samples of 64 KiB. `path` names it. DTP_IO when it was cut meanwhile. */
dtp_status dtp_crc_sampled(const dtp_file_map *map, const char *path, uint32_t *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* Replaces the zeros of the first member `key` of a JSON text by the text's checksum. False when
 * there is no such member. */
bool dtp_crc_seal(char *text, size_t len, const char *key);
/* Whether a JSON text is what its member `key`, whose value is `digits`, says. The text is
 * NUL-terminated and unchanged afterwards. DTP_INVALID naming `path` when it is not. */
dtp_status dtp_crc_check(const char *path, char *text, size_t len, const char *key,
                         const char *digits, dtp_err *err) DTP_MUST_CHECK;

#endif
