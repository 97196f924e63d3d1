/* NumPy .npy files, versions 1.0 and 2.0: floats of 2, 4 and 8 bytes, integers of 1 to 8 and bools,
 * in either byte order, in C or Fortran order. Written: little-endian, C order. */
#ifndef DTP_EXECUTOR_FILES_NPY_H
#define DTP_EXECUTOR_FILES_NPY_H

#include "core/files/file_map.h"
#include "core/layout/tensor_type.h"
#include "executor/device/convert.h"
#include "executor/device/shard.h"

typedef struct dtp_npy {
    dtp_file_map map;
    dtp_store store;
    bool big_endian;
    bool fortran; /* stored with the dims in reverse order */
    int32_t rank;
    int64_t dims[DTP_MAX_RANK];
    int64_t data_at; /* first byte of the data */
} dtp_npy;

/* Reads and checks the header; the data is read later with dtp_npy_read. DTP_IO when the file
 * cannot be read, DTP_INVALID naming the file and what is wrong, DTP_UNSUPPORTED for other element
 * types. */
dtp_status dtp_npy_open(const char *path, dtp_npy *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_npy_close(dtp_npy *npy);
/* True when the file starts as a .npy file does. */
bool dtp_npy_is(const char *path);

/* Part of the array, in row-major order and the byte order of this machine, unconverted. */
dtp_status dtp_npy_read(const dtp_npy *npy, const char *path, const dtp_shard *part, void *out,
                        dtp_err *err) DTP_MUST_CHECK;

/* Writes a file completely or not at all. f16 f32 f64 i32 i64 bool. */
dtp_status dtp_npy_write(const char *path, const dtp_ttype *type, const void *data,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
