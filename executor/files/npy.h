/* NumPy .npy files, versions 1.0 and 2.0: little-endian f4 f8 i4 i8 u1 b1 in C order. */
#ifndef DTP_EXECUTOR_FILES_NPY_H
#define DTP_EXECUTOR_FILES_NPY_H

#include "core/layout/tensor_type.h"
#include "executor/device/convert.h"
#include "executor/device/shard.h"

typedef struct dtp_npy {
    int fd; /* open for reading; -1 when closed */
    dtp_store store;
    int32_t rank;
    int64_t dims[DTP_MAX_RANK];
    int64_t data_at; /* first byte of the data */
} dtp_npy;

/* Reads and checks the header; the data is read later with dtp_npy_read. DTP_IO when the file
 * cannot be read, DTP_INVALID naming the file and what is wrong, DTP_UNSUPPORTED for other element
 * types or Fortran order. */
dtp_status dtp_npy_open(const char *path, dtp_npy *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_npy_close(dtp_npy *npy);
/* True when the file starts as a .npy file does. */
bool dtp_npy_is(const char *path);

/* Part of the array, unconverted. */
dtp_status dtp_npy_read(const dtp_npy *npy, const char *path, const dtp_shard *part, void *out,
                        dtp_err *err) DTP_MUST_CHECK;

/* Writes a file completely or not at all. f32 f64 i32 i64 bool. */
dtp_status dtp_npy_write(const char *path, const dtp_ttype *type, const void *data,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
