/* Globs over dotted names such as "layers.3.attn.wq". */
#ifndef DTP_PLANNER_GLOB_H
#define DTP_PLANNER_GLOB_H

#include "core/base/status.h"

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

#endif
