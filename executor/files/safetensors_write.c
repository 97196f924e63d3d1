/* Streaming writer: the header is known first, the data follows tensor by tensor. A checksum of the
 * data that the header is to hold takes its place at the end. */
#include "executor/files/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "core/files/file_out.h"
#include "core/base/json_writer.h"
#include "core/base/safe_int.h"
#include "executor/files/checksum.h"

struct dtp_st_writer {
    char *path;
    dtp_file_out *file;
    int32_t n, next;
    int64_t *sizes;   /* bytes of every entry */
    int64_t bytes;    /* of the data, written so far */
    uLong crc;        /* of the data */
    char length[8];   /* of the header, as in the file */
    dtp_strbuf head;  /* the header */
    size_t crc_place; /* in head, of the 8 digits; 0: none */
    bool seals;       /* head has a checksum of its own */
    bool replaces;    /* the name itself, where it is a link */
};

void dtp_st_discard(dtp_st_writer *w)
{
    if (w != NULL) {
        dtp_file_out_discard(w->file);
        dtp_strbuf_free(&w->head);
        free(w->path);
        free(w->sizes);
        free(w);
    }
}

/* The header, padded with spaces so that the data starts at a multiple of 8 bytes. */
static dtp_status write_header(dtp_st_writer *w, const dtp_st_entry *entries, int32_t n_meta,
                               const dtp_st_meta *meta, dtp_err *err)
{
    dtp_json_writer j = {0};
    int64_t at = 0;
    dtp_json_begin_object(&j, NULL);
    if (n_meta > 0) {
        dtp_json_begin_object(&j, "__metadata__");
        for (int32_t i = 0; i < n_meta; i++) {
            const bool crc = strcmp(meta[i].key, DTP_ST_CRC) == 0;
            const bool head = strcmp(meta[i].key, DTP_ST_HEADER_CRC) == 0;
            dtp_json_write_string(&j, meta[i].key, crc || head ? DTP_CRC_ZEROS : meta[i].value);
            w->seals = w->seals || head;
            if (crc) {
                w->crc_place = j.buf.len - sizeof DTP_CRC_ZEROS; /* before the closing quote */
            }
        }
        dtp_json_end_object(&j);
    }
    for (int32_t i = 0; i < w->n; i++) {
        const dtp_st_entry *e = &entries[i];
        dtp_json_begin_object(&j, e->name);
        dtp_json_write_string(&j, "dtype", dtp_store_name(e->store));
        dtp_json_write_ints(&j, "shape", e->rank, e->dims);
        dtp_json_write_ints(&j, "data_offsets", 2, (const int64_t[]){at, at + w->sizes[i]});
        dtp_json_end_object(&j);
        at += w->sizes[i];
    }
    dtp_json_end_object(&j);
    while (j.buf.len % 8 != 0 && !j.buf.failed) {
        dtp_strbuf_add(&j.buf, " ");
    }
    for (int i = 0; i < 8; i++) {
        w->length[i] = (char)(unsigned char)((uint64_t)j.buf.len >> (8 * i));
    }
    w->head = j.buf;
    if (j.buf.failed) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: no memory for the header", w->path);
    }
    DTP_TRY(dtp_file_out_write(w->file, w->length, sizeof w->length, err));
    return dtp_file_out_write(w->file, dtp_strbuf_text(&w->head), w->head.len, err);
}

static dtp_status start(dtp_st_writer *w, const char *path, int32_t n, const dtp_st_entry *entries,
                        dtp_err *err)
{
    w->path = strdup(path);
    w->sizes = calloc((size_t)n + 1, sizeof *w->sizes);
    DTP_TRY(DTP_MEMORY(err, w->path, w->sizes));
    w->n = n;
    for (int32_t i = 0; i < n; i++) {
        const dtp_st_entry *e = &entries[i];
        int64_t *out = &w->sizes[i];
        *out = dtp_store_bytes(e->store);
        for (int32_t d = 0; d < e->rank; d++) {
            if (!dtp_mul_i64(*out, e->dims[d], out)) {
                return DTP_FAIL(err, DTP_RANGE, "tensor '%s' is too large to store", e->name);
            }
        }
    }
    return w->replaces ? dtp_file_out_open_name(path, &w->file, err)
                       : dtp_file_out_open(path, &w->file, err);
}

/* A writer of nothing yet. */
static dtp_status new_writer(bool replaces, dtp_st_writer **out, dtp_err *err)
{
    dtp_st_writer *w = calloc(1, sizeof *w);
    DTP_TRY(DTP_MEMORY(err, w));
    w->crc = crc32(0, NULL, 0);
    w->replaces = replaces;
    *out = w;
    return DTP_OK;
}

/* Destroys w after a failure. */
static dtp_status create(dtp_st_writer *w, const char *path, int32_t n, const dtp_st_entry *entries,
                         int32_t n_meta, const dtp_st_meta *meta, dtp_err *err)
{
    dtp_status status = start(w, path, n, entries, err);
    if (status == DTP_OK) {
        status = write_header(w, entries, n_meta, meta, err);
    }
    if (status != DTP_OK) {
        dtp_st_discard(w);
    }
    return status;
}

dtp_status dtp_st_create(const char *path, int32_t n, const dtp_st_entry *entries, int32_t n_meta,
                         const dtp_st_meta *meta, dtp_st_writer **out, dtp_err *err)
{
    dtp_st_writer *w;
    DTP_TRY(new_writer(false, &w, err));
    DTP_TRY(create(w, path, n, entries, n_meta, meta, err));
    *out = w;
    return DTP_OK;
}

dtp_status dtp_st_create_name(const char *path, int32_t n, const dtp_st_entry *entries,
                              int32_t n_meta, const dtp_st_meta *meta, dtp_st_writer **out,
                              dtp_err *err)
{
    dtp_st_writer *w;
    DTP_TRY(new_writer(true, &w, err));
    DTP_TRY(create(w, path, n, entries, n_meta, meta, err));
    *out = w;
    return DTP_OK;
}

dtp_status dtp_st_put(dtp_st_writer *w, const void *data, int64_t bytes, dtp_err *err)
{
    if (w->next >= w->n || bytes != w->sizes[w->next]) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: entry %d of %d got %" PRId64 " bytes", w->path,
                        w->next, w->n, bytes);
    }
    w->next++;
    w->bytes += bytes;
    w->crc = crc32_z(w->crc, data, (size_t)bytes);
    return dtp_file_out_write(w->file, data, (size_t)bytes, err);
}

/* The checksums of the data and of the header go into the header, in memory and in the file. */
static dtp_status put_crc(dtp_st_writer *w, dtp_err *err)
{
    if (w->crc_place == 0 && !w->seals) {
        return DTP_OK;
    }
    if (w->crc_place != 0) {
        char digits[sizeof DTP_CRC_ZEROS];
        (void)snprintf(digits, sizeof digits, "%08" PRIx32, (uint32_t)w->crc);
        memcpy(w->head.text + w->crc_place, digits, sizeof digits - 1);
    }
    if (w->seals && !dtp_crc_seal(w->head.text, w->head.len, DTP_ST_HEADER_CRC)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: the header has no place for its checksum", w->path);
    }
    const ssize_t put =
        pwrite(dtp_file_out_fd(w->file), w->head.text, w->head.len, (off_t)sizeof w->length);
    return put == (ssize_t)w->head.len
               ? DTP_OK
               : DTP_FAIL(err, DTP_OUTPUT, "%s: cannot write the checksum: %s", w->path,
                          strerror(errno));
}

dtp_status dtp_st_commit(dtp_st_writer *w, int64_t *bytes, uint32_t *crc, dtp_err *err)
{
    dtp_status status =
        w->next == w->n
            ? put_crc(w, err)
            : DTP_FAIL(err, DTP_INTERNAL, "%s: %d of %d entries written", w->path, w->next, w->n);
    if (status == DTP_OK) {
        dtp_file_out *file = w->file;
        w->file = NULL;
        status = dtp_file_out_commit(file, err);
    }
    if (status == DTP_OK && bytes != NULL) {
        *bytes = (int64_t)(sizeof w->length + w->head.len) + w->bytes;
    }
    if (status == DTP_OK && crc != NULL) {
        const unsigned char *length = (const unsigned char *)w->length;
        const unsigned char *text = (const unsigned char *)dtp_strbuf_text(&w->head);
        const uLong head =
            crc32_z(crc32_z(crc32(0, NULL, 0), length, sizeof w->length), text, w->head.len);
        *crc = (uint32_t)crc32_combine(head, w->crc, (z_off_t)w->bytes);
    }
    dtp_st_discard(w);
    return status;
}
