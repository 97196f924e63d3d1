/* Reference: NEP 1 / numpy.lib.format. The header is a Python dict literal; the reader takes the
 * three keys in any order, plain strings, True or False and a tuple of integers, and nothing else.
 */
#include "executor/files/npy.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file_in.h"
#include "core/base/safe_int.h"
#include "core/files/file_out.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
enum { MAX_HEADER = 65536 };

/* Without the mark of the byte order: '<', '>', and '|' for elements of one byte. */
typedef struct type_code {
    const char *text;
    dtp_store store;
} type_code;

static const type_code codes[] = {
    {"f2", DTP_STORE_F16}, {"f4", DTP_STORE_F32}, {"f8", DTP_STORE_F64}, {"i1", DTP_STORE_I8},
    {"i2", DTP_STORE_I16}, {"i4", DTP_STORE_I32}, {"i8", DTP_STORE_I64}, {"u1", DTP_STORE_U8},
    {"u2", DTP_STORE_U16}, {"u4", DTP_STORE_U32}, {"u8", DTP_STORE_U64}, {"b1", DTP_STORE_BOOL}};
enum { N_CODES = sizeof codes / sizeof *codes };

/* A reader of the header text. */
typedef struct cursor {
    const char *file;
    const char *at;
} cursor;

static void skip_space(cursor *c)
{
    while (*c->at == ' ' || *c->at == '\n' || *c->at == '\t') {
        c->at++;
    }
}

static bool take(cursor *c, char want)
{
    skip_space(c);
    if (*c->at != want) {
        return false;
    }
    c->at++;
    return true;
}

static dtp_status wrong(const cursor *c, const char *what, dtp_err *err)
{
    return DTP_FAIL(err, DTP_INVALID, "%s: npy header: expected %s at '%.30s'", c->file, what,
                    c->at);
}

static dtp_status read_string(cursor *c, char *out, size_t room, dtp_err *err)
{
    skip_space(c);
    char quote = *c->at;
    if (quote != '\'' && quote != '"') {
        return wrong(c, "a string", err);
    }
    const char *start = c->at + 1, *end = strchr(start, quote);
    if (end == NULL || (size_t)(end - start) >= room) {
        return wrong(c, "a short string", err);
    }
    memcpy(out, start, (size_t)(end - start));
    out[end - start] = '\0';
    c->at = end + 1;
    return DTP_OK;
}

static dtp_status read_shape(cursor *c, dtp_npy *npy, dtp_err *err)
{
    if (!take(c, '(')) {
        return wrong(c, "a tuple of sizes", err);
    }
    npy->rank = 0;
    while (!take(c, ')')) {
        if (!isdigit((unsigned char)*c->at)) {
            return wrong(c, "a size", err);
        }
        if (npy->rank == DTP_MAX_RANK) {
            return DTP_FAIL(err, DTP_INVALID, "%s: npy array has more than %d dims", c->file,
                            DTP_MAX_RANK);
        }
        char *end;
        errno = 0;
        long long size = strtoll(c->at, &end, 10);
        if (errno != 0) {
            return wrong(c, "a size below 2^63", err);
        }
        npy->dims[npy->rank++] = size;
        c->at = end;
        if (!take(c, ',')) {
            if (npy->rank == 1 || !take(c, ')')) {
                return wrong(c, "',' or ')'", err);
            }
            return DTP_OK;
        }
    }
    return DTP_OK;
}

static dtp_status read_descr(cursor *c, dtp_npy *npy, dtp_err *err)
{
    char text[32];
    skip_space(c);
    if (*c->at == '[') {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: npy arrays of records cannot be read", c->file);
    }
    DTP_TRY(read_string(c, text, sizeof text, err));
    for (int i = 0; text[0] != '\0' && i < N_CODES; i++) {
        const bool wide = dtp_store_bytes(codes[i].store) > 1;
        if (strcmp(text + 1, codes[i].text) == 0 && strchr(wide ? "<>" : "|<>", text[0]) != NULL) {
            npy->store = codes[i].store;
            npy->big_endian = wide && text[0] == '>';
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "%s: npy element type '%s' is none of f2 f4 f8 i2 i4 i8 u2 u4 u8 with '<' or "
                    "'>' before it, |i1 |u1 |b1",
                    c->file, text);
}

static dtp_status read_member(cursor *c, dtp_npy *npy, uint32_t *seen, dtp_err *err)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    uint32_t k = 0;
    DTP_TRY(read_string(c, key, sizeof key, err));
    while (k < 3 && strcmp(key, keys[k]) != 0) {
        k++;
    }
    if (k == 3 || (*seen >> k & 1U) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "%s: npy header: %s key '%s'", c->file,
                        k == 3 ? "unknown" : "repeated", key);
    }
    *seen |= 1U << k;
    if (!take(c, ':')) {
        return wrong(c, "':'", err);
    }
    switch (k) {
    case 0:
        return read_descr(c, npy, err);
    case 1:
        skip_space(c);
        npy->fortran = strncmp(c->at, "True", 4) == 0;
        if (!npy->fortran && strncmp(c->at, "False", 5) != 0) {
            return wrong(c, "True or False", err);
        }
        c->at += npy->fortran ? 4 : 5;
        return DTP_OK;
    default:
        return read_shape(c, npy, err);
    }
}

static dtp_status read_dict(const char *file, const char *text, dtp_npy *npy, dtp_err *err)
{
    cursor c = {.file = file, .at = text};
    uint32_t seen = 0;
    if (!take(&c, '{')) {
        return wrong(&c, "'{'", err);
    }
    while (!take(&c, '}')) {
        DTP_TRY(read_member(&c, npy, &seen, err));
        if (!take(&c, ',')) {
            if (!take(&c, '}')) {
                return wrong(&c, "',' or '}'", err);
            }
            break;
        }
    }
    skip_space(&c);
    if (*c.at != '\0') {
        return wrong(&c, "the end of the header", err);
    }
    if (seen != 7) {
        return DTP_FAIL(err, DTP_INVALID, "%s: npy header lacks %s", file,
                        (seen & 1U) == 0   ? "'descr'"
                        : (seen & 2U) == 0 ? "'fortran_order'"
                                           : "'shape'");
    }
    return DTP_OK;
}

/* The text of the header, behind the magic, the version and its own length. Sets data_at. */
static dtp_status find_header(const char *path, dtp_npy *npy, const char **text, int64_t *len,
                              dtp_err *err)
{
    const int64_t held = npy->map.bytes;
    const unsigned char *head = (const unsigned char *)npy->map.data;
    if (held < 10) {
        return DTP_FAIL(err, DTP_INVALID, "%s: too short for a npy file (%" PRId64 " bytes)", path,
                        held);
    }
    if (memcmp(head, magic, sizeof magic) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "%s: not a npy file", path);
    }
    if ((head[6] != 1 && head[6] != 2) || head[7] != 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: npy version %d.%d is none of 1.0, 2.0", path,
                        head[6], head[7]);
    }
    const int64_t start = head[6] == 1 ? 10 : 12;
    *len = head[8] | head[9] << 8;
    if (start <= held && start == 12) {
        *len |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
    }
    if (*len > MAX_HEADER || start + *len > held) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: npy header of %" PRId64 " bytes in a file of %" PRId64, path, *len,
                        held);
    }
    *text = npy->map.data + start;
    npy->data_at = start + *len;
    return DTP_OK;
}

/* The data has as many bytes as the header asks for. */
static dtp_status check_size(const char *path, const dtp_npy *npy, dtp_err *err)
{
    const int64_t held = npy->map.bytes - npy->data_at;
    int64_t bytes = dtp_store_bytes(npy->store);
    bool empty = false, fits = true;
    for (int32_t i = 0; i < npy->rank; i++) {
        empty = empty || npy->dims[i] == 0;
        fits = fits && (npy->dims[i] == 0 || dtp_mul_i64(bytes, npy->dims[i], &bytes));
    }
    bytes = empty ? 0 : bytes;
    if (!fits || bytes != held) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: npy header asks for %s%" PRId64 " data bytes, the file has %" PRId64,
                        path, fits ? "" : "more than ", fits ? bytes : INT64_MAX, held);
    }
    return DTP_OK;
}

static dtp_status read_header(const char *path, dtp_npy *npy, dtp_err *err)
{
    const char *mapped;
    int64_t len;
    DTP_TRY(find_header(path, npy, &mapped, &len, err));
    char *text = calloc((size_t)len + 1, 1);
    DTP_TRY(DTP_MEMORY(err, text));
    memcpy(text, mapped, (size_t)len);
    dtp_status status = DTP_OK;
    if (strlen(text) != (size_t)len) {
        status = DTP_FAIL(err, DTP_INVALID, "%s: npy header holds a NUL byte", path);
    }
    if (status == DTP_OK) {
        status = read_dict(path, text, npy, err);
    }
    free(text);
    DTP_TRY(status);
    return check_size(path, npy, err);
}

dtp_status dtp_npy_open(const char *path, dtp_npy *out, dtp_err *err)
{
    memset(out, 0, sizeof *out);
    DTP_TRY(dtp_file_map_open(path, &out->map, err));
    dtp_status status = read_header(path, out, err);
    if (status != DTP_OK) {
        dtp_npy_close(out);
    }
    return status;
}

void dtp_npy_close(dtp_npy *npy)
{
    dtp_file_map_close(&npy->map);
}

bool dtp_npy_is(const char *path)
{
    char head[sizeof magic];
    int fd = -1;
    bool is = dtp_file_in_open(path, &fd, NULL) == DTP_OK &&
              read(fd, head, sizeof head) == (ssize_t)sizeof head &&
              memcmp(head, magic, sizeof magic) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is;
}

/* A part whose dims are in reverse order, as Fortran order stores them, to row-major order. */
static void transpose(const dtp_shard *part, int64_t bytes, const char *from, char *to)
{
    int64_t stride[DTP_MAX_RANK] = {0}, at[DTP_MAX_RANK] = {0}, step = bytes;
    for (int32_t d = 0; d < part->rank; d++) {
        stride[d] = step;
        step *= part->size[d];
    }
    for (int64_t n = dtp_shard_elems(part), offset = 0; n > 0; n--, to += bytes) {
        memcpy(to, from + offset, (size_t)bytes);
        for (int32_t d = part->rank - 1; d >= 0; d--) {
            offset += stride[d];
            if (++at[d] < part->size[d]) {
                break;
            }
            offset -= stride[d] * at[d];
            at[d] = 0;
        }
    }
}

static dtp_shard reversed(const dtp_shard *part)
{
    dtp_shard out = {.rank = part->rank};
    for (int32_t d = 0, r = part->rank - 1; d < part->rank; d++, r--) {
        out.global[d] = part->global[r];
        out.offset[d] = part->offset[r];
        out.size[d] = part->size[r];
    }
    return out;
}

dtp_status dtp_npy_read(const dtp_npy *npy, const char *path, const dtp_shard *part, void *out,
                        dtp_err *err)
{
    const int64_t n = dtp_shard_elems(part), bytes = dtp_store_bytes(npy->store);
    dtp_shard whole = {.rank = npy->rank};
    memcpy(whole.global, npy->dims, sizeof whole.global);
    memcpy(whole.size, npy->dims, sizeof whole.size);
    if (n == 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_file_map_check(&npy->map, path, err));
    const char *data = npy->map.data + npy->data_at;
    if (npy->fortran && npy->rank > 1) {
        const dtp_shard from = reversed(&whole), held = reversed(part);
        char *copy = malloc((size_t)(n * bytes));
        DTP_TRY(DTP_MEMORY(err, copy));
        dtp_shard_copy(&held, &from, data, &held, copy, bytes);
        transpose(part, bytes, copy, out);
        free(copy);
    } else {
        dtp_shard_copy(part, &whole, data, part, out, bytes);
    }
    if (npy->big_endian) {
        dtp_swap_bytes(out, n, bytes);
    }
    return DTP_OK;
}

dtp_status dtp_npy_write(const char *path, const dtp_ttype *type, const void *data, dtp_err *err)
{
    char shape[DTP_MAX_RANK * 24] = "", head[512];
    const char *code = NULL;
    for (int i = 0; i < N_CODES; i++) {
        code = (int)codes[i].store == (int)type->dtype ? codes[i].text : code;
    }
    if (code == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: npy files cannot hold %s", path,
                        dtp_dtype_name(type->dtype));
    }
    size_t used = 0;
    for (int32_t i = 0; i < type->rank; i++) {
        used +=
            (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64 "%s", i > 0 ? " " : "",
                             type->dims[i].size, i + 1 < type->rank || type->rank == 1 ? "," : "");
    }
    int n = snprintf(head + 10, sizeof head - 10,
                     "{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }",
                     type->dtype == DTP_BOOL ? "|" : "<", code, shape);
    size_t total = ((size_t)n + 11 + 63) / 64 * 64;
    memset(head + 10 + n, ' ', total - 10 - (size_t)n);
    head[total - 1] = '\n';
    memcpy(head, magic, sizeof magic);
    head[6] = 1;
    head[7] = 0;
    head[8] = (char)((total - 10) & 255);
    head[9] = (char)((total - 10) >> 8);
    size_t bytes = (size_t)dtp_ttype_bytes(type);
    char *text = malloc(total + bytes);
    DTP_TRY(DTP_MEMORY(err, text));
    memcpy(text, head, total);
    memcpy(text + total, data, bytes);
    dtp_status status = dtp_file_write(path, text, total + bytes, err);
    free(text);
    return status;
}
