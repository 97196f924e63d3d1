/* Globs over dotted names such as "layers.3.attn.wq", and the names that one which matches nothing
 * may have meant. */
#ifndef DTP_CORE_BASE_GLOB_H
#define DTP_CORE_BASE_GLOB_H

#include "core/base/strbuf.h"

enum { DTP_GLOB_BYTES = 512, DTP_GLOB_STEPS = 1 << 20 };

/* '*' stands for any characters but a dot, '**' for any characters, '?' for one character but a
 * dot, '{a,b}' for one of its parts (which may hold globs); a '$' at the end: whole names only, no
 * prefixes. DTP_INVALID: the glob is empty, longer than DTP_GLOB_BYTES - 1, or its braces do not
 * pair up. */
dtp_status dtp_glob_check(const char *glob, dtp_err *err) DTP_MUST_CHECK;

/* Whether a checked glob matches the name or one of its dotted prefixes: the name of a module
 * stands for all that is inside. A match that takes more than DTP_GLOB_STEPS comparisons counts as
 * none. */
bool dtp_glob_match_prefix(const char *glob, const char *name);

/* Copies the glob at *list, cut to the buffer, and moves behind it and its comma; commas in braces
 * are the glob's. False at the end. */
bool dtp_glob_next(const char **list, char out[DTP_GLOB_BYTES]);

enum { DTP_NEAR_NAMES = 3 };

/* The names nearest to a glob, nearest first; of the instances of a block the first. NULL: fewer.
 * Names are borrowed; empty at the start. */
typedef struct dtp_near_names {
    const char *names[DTP_NEAR_NAMES];
    int32_t distance[DTP_NEAR_NAMES];
} dtp_near_names;

/* Takes a name in when it is near: by its edits, of a glob that begins with "**." those of the ends
 * of the name. */
void dtp_near_names_offer(dtp_near_names *near, const char *glob, const char *name);
/* Appends "; the nearest names are 'a', 'b'", of none nothing. */
void dtp_near_names_print(const dtp_near_names *near, dtp_strbuf *out);

#endif
