/* Zip archives of stored entries: what torch.export writes. */
#include "importers/files/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "importers/files/name_table.h"

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    MOST_COMMENT = 0xFFFF
};
enum { SIGN_END = 0x06054b50, SIGN_LOCATOR = 0x07064b50, SIGN_END64 = 0x06064b50 };
enum { SIGN_CENTRAL = 0x02014b50, SIGN_LOCAL = 0x04034b50 };
enum { FLAG_ENCRYPTED = 1, EXTRA_ZIP64 = 1 };
enum { IN_ZIP64_16 = 0xFFFF };
#define IN_ZIP64_32 UINT64_C(0xFFFFFFFF)

typedef struct reader {
    const char *file;
    const unsigned char *bytes;
    uint64_t size;
    dtp_arena *arena;
} reader;

/* `width` bytes, the lowest first; the caller has checked that they are there. */
static uint64_t number(const reader *r, uint64_t at, int width)
{
    uint64_t v = 0;
    for (int i = width; i-- > 0;) {
        v = v << 8 | r->bytes[at + (uint64_t)i];
    }
    return v;
}

static bool within(const reader *r, uint64_t at, uint64_t bytes)
{
    return at <= r->size && bytes <= r->size - at;
}

static bool is_signed(const reader *r, uint64_t at, uint64_t bytes, uint64_t sign)
{
    return within(r, at, bytes) && number(r, at, 4) == sign;
}

typedef struct directory {
    uint64_t at, bytes, entries;
} directory;

/* The record at the end, behind which only a comment stands. */
static dtp_status find_directory(const reader *r, directory *out, dtp_err *err)
{
    uint64_t at = r->size - (r->size < END_BYTES ? r->size : END_BYTES);
    const uint64_t first = at < MOST_COMMENT ? 0 : at - MOST_COMMENT;
    while (!is_signed(r, at, END_BYTES, SIGN_END) ||
           number(r, at + 20, 2) != r->size - at - END_BYTES) {
        if (at == first) {
            return DTP_FAIL(err, DTP_INVALID, "%s: no end of a zip directory in %" PRIu64 " bytes",
                            r->file, r->size);
        }
        at--;
    }
    *out = (directory){number(r, at + 16, 4), number(r, at + 12, 4), number(r, at + 10, 2)};
    if (out->at == IN_ZIP64_32 || out->bytes == IN_ZIP64_32 || out->entries == IN_ZIP64_16) {
        const uint64_t end =
            at >= LOCATOR_BYTES && is_signed(r, at - LOCATOR_BYTES, LOCATOR_BYTES, SIGN_LOCATOR)
                ? number(r, at - LOCATOR_BYTES + 8, 8)
                : r->size;
        if (!is_signed(r, end, END64_BYTES, SIGN_END64)) {
            return DTP_FAIL(err, DTP_INVALID, "%s: no zip64 end of the directory", r->file);
        }
        *out = (directory){number(r, end + 48, 8), number(r, end + 40, 8), number(r, end + 32, 8)};
    }
    if (!within(r, out->at, out->bytes) || out->entries > out->bytes / CENTRAL_BYTES) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: zip directory of %" PRIu64 " entries in %" PRIu64 " bytes at %" PRIu64
                        " of %" PRIu64,
                        r->file, out->entries, out->bytes, out->at, r->size);
    }
    return DTP_OK;
}

/* Sizes and offset that stand in the zip64 field, in this order, where the header holds all ones.
 */
static void read_zip64(const reader *r, uint64_t at, uint64_t bytes, uint64_t *values[3])
{
    while (bytes >= 4 && number(r, at + 2, 2) <= bytes - 4) {
        const uint64_t length = number(r, at + 2, 2);
        if (number(r, at, 2) == EXTRA_ZIP64) {
            uint64_t used = 0;
            for (int i = 0; i < 3; i++) {
                if (*values[i] == IN_ZIP64_32 && used + 8 <= length) {
                    *values[i] = number(r, at + 4 + used, 8);
                    used += 8;
                }
            }
            return;
        }
        at += 4 + length;
        bytes -= 4 + length;
    }
}

static dtp_status read_entry(const reader *r, uint64_t *at, uint64_t end, dtp_zip_entry *e,
                             dtp_err *err)
{
    const uint64_t head = *at;
    if (end - head < CENTRAL_BYTES || number(r, head, 4) != SIGN_CENTRAL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: no zip entry at byte %" PRIu64, r->file, head);
    }
    const uint64_t name = number(r, head + 28, 2), extra = number(r, head + 30, 2);
    const uint64_t length = CENTRAL_BYTES + name + extra + number(r, head + 32, 2);
    if (length > end - head) {
        return DTP_FAIL(err, DTP_INVALID, "%s: zip entry at byte %" PRIu64 " is cut", r->file,
                        head);
    }
    *at += length;
    char *text;
    DTP_TRY(DTP_NEW(r->arena, text, name + 1, err));
    memcpy(text, r->bytes + head + CENTRAL_BYTES, name);
    e->name = dtp_arena_line(r->arena, text);
    DTP_TRY(DTP_MEMORY(err, e->name));
    if (name == 0 || strlen(text) != name) {
        return DTP_FAIL(err, DTP_INVALID, "%s: name '%s' of a zip entry", r->file, e->name);
    }
    uint64_t packed = number(r, head + 20, 4), bytes = number(r, head + 24, 4);
    uint64_t local = number(r, head + 42, 4);
    read_zip64(r, head + CENTRAL_BYTES + name, extra, (uint64_t *[3]){&bytes, &packed, &local});
    const uint64_t method = number(r, head + 10, 2), flags = number(r, head + 8, 2);
    if (method != 0 || packed != bytes || (flags & FLAG_ENCRYPTED) != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: entry '%s' is not stored as it is (method %" PRIu64 ", flags %" PRIu64
                        ")",
                        r->file, e->name, method, flags);
    }
    if (!is_signed(r, local, LOCAL_BYTES, SIGN_LOCAL) || number(r, local + 26, 2) != name ||
        !within(r, local, LOCAL_BYTES + name) ||
        memcmp(r->bytes + local + LOCAL_BYTES, text, name) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "%s: entry '%s' is not at byte %" PRIu64, r->file,
                        e->name, local);
    }
    const uint64_t data = local + LOCAL_BYTES + name + number(r, local + 28, 2);
    if (!within(r, data, bytes)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: entry '%s' has %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64, r->file,
                        e->name, bytes, data, r->size);
    }
    e->data = (const char *)r->bytes + data;
    e->bytes = (int64_t)bytes;
    return DTP_OK;
}

static int by_place(const void *a, const void *b)
{
    const dtp_zip_entry *x = a;
    const dtp_zip_entry *y = b;
    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static dtp_status check_entries(const reader *r, const dtp_zip *zip, dtp_err *err)
{
    dtp_zip_entry *e = zip->entries;
    dtp_name_table names = {0};
    for (int32_t i = 0; i < zip->n; i++) {
        if (dtp_name_find(&names, e[i].name) >= 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s: two entries '%s'", r->file, e[i].name);
        }
        DTP_TRY(dtp_name_add(&names, r->arena, e[i].name, i, err));
    }
    qsort(e, (size_t)zip->n, sizeof *e, by_place);
    for (int32_t i = 1; i < zip->n; i++) {
        if (e[i].data < e[i - 1].data + e[i - 1].bytes) {
            return DTP_FAIL(err, DTP_INVALID, "%s: entries '%s' and '%s' overlap", r->file,
                            e[i - 1].name, e[i].name);
        }
    }
    return DTP_OK;
}

dtp_status dtp_zip_read(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                        dtp_zip *out, dtp_err *err)
{
    const reader r = {file, (const unsigned char *)bytes, (uint64_t)size, arena};
    directory d;
    DTP_TRY(find_directory(&r, &d, err));
    if (d.entries > INT32_MAX) {
        return DTP_FAIL(err, DTP_RANGE, "%s: %" PRIu64 " zip entries", file, d.entries);
    }
    *out = (dtp_zip){.n = (int32_t)d.entries};
    DTP_TRY(DTP_NEW(arena, out->entries, d.entries + 1, err));
    uint64_t at = d.at;
    for (int32_t i = 0; i < out->n; i++) {
        DTP_TRY(read_entry(&r, &at, d.at + d.bytes, &out->entries[i], err));
    }
    return check_entries(&r, out, err);
}
