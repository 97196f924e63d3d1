/* Protocol buffers' wire format: the members of a message that a table names, into a struct. A
 * message within one is handed to a function of the table: what is not named there is passed over,
 * so that nothing recurses deeper than the tables do. */
#ifndef DTP_IMPORTERS_FILES_PROTOBUF_H
#define DTP_IMPORTERS_FILES_PROTOBUF_H

#include "core/base/arena.h"

typedef struct dtp_pb {
    const char *file, *begin; /* its name for errors, its first byte */
    dtp_arena *arena;
    void *context;
} dtp_pb;

typedef struct dtp_pb_span {
    const char *data; /* within the file */
    int64_t bytes;
} dtp_pb_span;

typedef struct dtp_pb_ints {
    int64_t *of;
    int32_t n, capacity;
} dtp_pb_ints;

typedef struct dtp_pb_texts {
    const char **of;
    int32_t n, capacity;
} dtp_pb_texts;

typedef enum dtp_pb_kind {
    PB_INT,   /* int64_t */
    PB_FLOAT, /* double, of 32 bits */
    PB_TEXT,  /* const char *, one line from the arena */
    PB_SPAN,  /* dtp_pb_span */
    PB_INTS,  /* dtp_pb_ints: one by one, or packed */
    PB_TEXTS, /* dtp_pb_texts */
    PB_MESSAGE
} dtp_pb_kind;

typedef struct dtp_pb_member {
    int32_t number; /* 0: behind the last one */
    dtp_pb_kind kind;
    size_t at; /* offset in the struct */
    dtp_status (*read)(const dtp_pb *p, dtp_pb_span message, void *to, dtp_err *err);
} dtp_pb_member;

/* DTP_INVALID naming the file and the byte: a length behind the message's end, a number above 64
 * bits, a wire type that is not the member's. */
dtp_status dtp_pb_read(const dtp_pb *p, dtp_pb_span message, const dtp_pb_member *members, void *to,
                       dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID naming the file and the byte. */
dtp_status dtp_pb_fail(const dtp_pb *p, const char *at, dtp_err *err, const char *fmt, ...)
    DTP_PRINTF(4, 5);

#endif
