/* safetensors files: 8 bytes of header length (little-endian), a JSON header, the data. Reading
 * checks everything: header within the file, exact sizes, no overlap and no holes. What other
 * writers put beside the tensors is no error: metadata that are no texts, and tensors of other
 * element types or more dims, which cannot be read. */
#ifndef DTP_EXECUTOR_FILES_SAFETENSORS_H
#define DTP_EXECUTOR_FILES_SAFETENSORS_H

#include "core/layout/tensor_type.h"
#include "executor/device/convert.h"
#include "executor/device/shard.h"
#include "executor/device/strided.h"

/* "F32", "BF16", ...: the format's name of a type. */
const char *dtp_store_name(dtp_store store);

typedef struct dtp_st_entry {
    const char *name;
    dtp_store store;
    int32_t rank;
    int64_t dims[DTP_MAX_RANK];
    int64_t begin, end;     /* bytes from the start of the data */
    const char *unreadable; /* what keeps the data from being read: "element type 'C64'"; NULL */
} dtp_st_entry;

/* A "__metadata__" member. */
typedef struct dtp_st_meta {
    const char *key, *value;
} dtp_st_meta;

/* The value of the metadata key "format" in files that dtrun writes. */
#define DTP_ST_FORMAT "dtp"
/* The metadata key of a checksum: the CRC-32 (zlib) of the data in 8 hexadecimal digits. */
#define DTP_ST_CRC "crc32"
/* The same of the header, with zeros in place of these digits; checked when a file is opened. */
#define DTP_ST_HEADER_CRC "header_crc32"

typedef struct dtp_st_file dtp_st_file;

dtp_status dtp_st_open(const char *path, dtp_st_file **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_st_close(dtp_st_file *file);
int32_t dtp_st_count(const dtp_st_file *file);
const dtp_st_entry *dtp_st_at(const dtp_st_file *file, int32_t index);
/* NULL when there is none. */
const dtp_st_entry *dtp_st_find(const dtp_st_file *file, const char *name);
/* Value of a "__metadata__" key, NULL when there is none or it is no text. */
const char *dtp_st_meta_get(const dtp_st_file *file, const char *key);
/* The byte of the file at which its data starts. */
int64_t dtp_st_data_at(const dtp_st_file *file);
/* The elements `part` of an entry, unconverted, one behind the other. DTP_UNSUPPORTED when it is
 * unreadable. */
dtp_status dtp_st_read(const dtp_st_file *file, const dtp_st_entry *entry, const dtp_strided *part,
                       void *out, dtp_err *err) DTP_MUST_CHECK;

/* Whether another program wrote the file, or wrote one of ours again: checksums among its metadata
 * are not of this header and this order of the data. */
bool dtp_st_is_foreign(const dtp_st_file *file);

typedef struct dtp_st_writer dtp_st_writer;

/* Opens a file that appears at the end (core/files/file_out.h, with its codes) and writes the
 * header of n entries (begin and end are computed here; store must be a dtp_dtype). The values of
 * DTP_ST_CRC and DTP_ST_HEADER_CRC in `meta` are found by the writer. */
dtp_status dtp_st_create(const char *path, int32_t n, const dtp_st_entry *entries, int32_t n_meta,
                         const dtp_st_meta *meta, dtp_st_writer **out, dtp_err *err) DTP_MUST_CHECK;
/* The same with dtp_file_out_open_name. */
dtp_status dtp_st_create_name(const char *path, int32_t n, const dtp_st_entry *entries,
                              int32_t n_meta, const dtp_st_meta *meta, dtp_st_writer **out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Data of the next entry, all of it. */
dtp_status dtp_st_put(dtp_st_writer *w, const void *data, int64_t bytes,
                      dtp_err *err) DTP_MUST_CHECK;
/* Gives the file its name; size and CRC-32 of the whole file may be NULL. Destroys w, also on
 * failure. */
dtp_status dtp_st_commit(dtp_st_writer *w, int64_t *bytes, uint32_t *crc,
                         dtp_err *err) DTP_MUST_CHECK;
/* Drops the temporary file; NULL allowed. */
void dtp_st_discard(dtp_st_writer *w);

#endif
