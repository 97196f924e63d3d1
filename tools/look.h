/* How text for people looks: lines end within the width, and a terminal shows headings, verdicts
 * and notes in colour. Reports are plain text; all of it is done here, when it is printed. */
#ifndef DTP_TOOLS_LOOK_H
#define DTP_TOOLS_LOOK_H

#include <stdio.h>

#include "core/base/strbuf.h"

/* Gives a text the look that it has on `file`. Lines are broken to 80 columns; on a terminal to
 * COLUMNS, else as many as it has, at least 60. A terminal, unless NO_COLOR is set or TERM is
 * "dumb", has the first line of a paragraph in bold up to a colon, verdicts (pass, WRONG) in green
 * and red, lines that begin with '#' or '*' dimmed. */
void tool_look(FILE *file, dtp_strbuf *text);
/* Prints the text so and frees it. */
dtp_status tool_show(FILE *file, dtp_strbuf *text, dtp_err *err) DTP_MUST_CHECK;

#endif
