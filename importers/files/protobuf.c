/* Protocol buffers' wire format: the members of a message that a table names, into a struct. */
#include "importers/files/protobuf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* What is left of a message. */
typedef struct cursor {
    const dtp_pb *p;
    const char *at, *end;
} cursor;

typedef struct field {
    int32_t number, wire;
    uint64_t value; /* of all but WIRE_BYTES */
    dtp_pb_span span;
} field;

dtp_status dtp_pb_fail(const dtp_pb *p, const char *at, dtp_err *err, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return DTP_FAIL(err, DTP_INVALID, "%s: byte %td: %s", p->file, at - p->begin, text);
}

/* Seven bits a byte, the lowest first, in at most ten of them. */
static dtp_status varint(cursor *c, uint64_t *out, dtp_err *err)
{
    *out = 0;
    for (int shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        const uint64_t byte = (unsigned char)*c->at;
        if (shift == 63 && byte > 1) {
            break;
        }
        c->at++;
        *out |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            return DTP_OK;
        }
    }
    return dtp_pb_fail(c->p, c->at, err, "a number that is cut, or of more than 64 bits");
}

static dtp_status next(cursor *c, field *f, dtp_err *err)
{
    uint64_t key, n = 0;
    DTP_TRY(varint(c, &key, err));
    *f = (field){.number = (int32_t)(key >> 3 & 0x1fffffff), .wire = (int32_t)(key & 7)};
    f->span.data = c->at;
    if (f->wire == WIRE_VARINT) {
        return varint(c, &f->value, err);
    }
    if (f->wire == WIRE_BYTES) {
        DTP_TRY(varint(c, &n, err));
    }
    n = f->wire == WIRE_FIXED64 ? 8 : f->wire == WIRE_FIXED32 ? 4 : n;
    if (key >> 32 != 0 || f->number == 0 || f->wire == 3 || f->wire == 4 || f->wire > 5 ||
        n > (uint64_t)(c->end - c->at)) {
        return dtp_pb_fail(c->p, c->at, err,
                           "field %d of wire type %d and %" PRIu64 " bytes, of which %td are there",
                           f->number, f->wire, n, c->end - c->at);
    }
    f->span = (dtp_pb_span){c->at, (int64_t)n};
    for (uint64_t i = 0; i < n && f->wire != WIRE_BYTES; i++) {
        f->value |= (uint64_t)(unsigned char)c->at[i] << (8 * i);
    }
    c->at += n;
    return DTP_OK;
}

static dtp_status read_text(const dtp_pb *p, dtp_pb_span s, const char **out, dtp_err *err)
{
    if (s.bytes > 1 << 20 || memchr(s.data, '\0', (size_t)s.bytes) != NULL) {
        return dtp_pb_fail(p, s.data, err, "a text with a zero byte, or of more than 1 MiB");
    }
    char *text = dtp_arena_alloc(p->arena, (size_t)s.bytes + 1, 1);
    DTP_TRY(DTP_MEMORY(err, text));
    memcpy(text, s.data, (size_t)s.bytes);
    *out = dtp_arena_line(p->arena, text);
    return DTP_MEMORY(err, *out);
}

/* One integer, or all that are packed. */
static dtp_status read_ints(const dtp_pb *p, const field *f, dtp_pb_ints *out, dtp_err *err)
{
    cursor c = {p, f->span.data, f->span.data + f->span.bytes};
    uint64_t x = f->value;
    while (f->wire == WIRE_VARINT || c.at < c.end) {
        DTP_TRY(f->wire == WIRE_VARINT ? DTP_OK : varint(&c, &x, err));
        DTP_TRY(DTP_ONE_MORE(p->arena, out->of, out->n, out->capacity, err));
        memcpy(&out->of[out->n++], &x, sizeof x);
        if (f->wire == WIRE_VARINT) {
            break;
        }
    }
    return DTP_OK;
}

static dtp_status read_member(const dtp_pb *p, const field *f, const dtp_pb_member *m, void *to,
                              dtp_err *err)
{
    void *at = (char *)to + m->at;
    dtp_pb_texts *texts = at;
    const uint32_t bits = (uint32_t)f->value;
    float real;
    if (f->wire != (m->kind == PB_FLOAT ? WIRE_FIXED32
                    : m->kind == PB_INT ? WIRE_VARINT
                                        : 2) &&
        !(m->kind == PB_INTS && f->wire == WIRE_VARINT)) {
        return dtp_pb_fail(p, f->span.data, err, "field %d has wire type %d", f->number, f->wire);
    }
    switch (m->kind) {
    case PB_INT:
        memcpy(at, &f->value, sizeof f->value);
        return DTP_OK;
    case PB_FLOAT:
        memcpy(&real, &bits, sizeof real);
        *(double *)at = (double)real;
        return DTP_OK;
    case PB_TEXT:
        return read_text(p, f->span, at, err);
    case PB_SPAN:
        *(dtp_pb_span *)at = f->span;
        return DTP_OK;
    case PB_INTS:
        return read_ints(p, f, at, err);
    case PB_TEXTS:
        DTP_TRY(DTP_ONE_MORE(p->arena, texts->of, texts->n, texts->capacity, err));
        return read_text(p, f->span, &texts->of[texts->n++], err);
    default:
        return m->read(p, f->span, to, err);
    }
}

dtp_status dtp_pb_read(const dtp_pb *p, dtp_pb_span message, const dtp_pb_member *members, void *to,
                       dtp_err *err)
{
    cursor c = {p, message.data, message.data + message.bytes};
    field f;
    while (c.at < c.end) {
        DTP_TRY(next(&c, &f, err));
        const dtp_pb_member *m = members;
        while (m->number != 0 && m->number != f.number) {
            m++;
        }
        DTP_TRY(m->number == 0 ? DTP_OK : read_member(p, &f, m, to, err));
    }
    return DTP_OK;
}
