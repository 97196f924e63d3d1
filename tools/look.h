/* How text for people looks: lines end within the width, and a terminal shows headings, verdicts
 * and notes in colour. Reports are plain text; all of it is done here, when it is printed. */
#ifndef DTP_TOOLS_LOOK_H
#define DTP_TOOLS_LOOK_H

#include <stdio.h>

#include "core/base/strbuf.h"

/* Columns of text: 80; on a terminal COLUMNS, else as many as it has, at least 60. */
size_t tool_columns(FILE *file);

/* Prints text, its lines broken to the width. A terminal, unless NO_COLOR is set or TERM is "dumb",
 * has the first line of a paragraph in bold up to a colon, verdicts (pass, WRONG) in green and red,
 * lines that begin with '#' or '*' dimmed. */
dtp_status tool_show(FILE *file, const dtp_strbuf *text, dtp_err *err) DTP_MUST_CHECK;

#endif
