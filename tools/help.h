/* What people read of the rows of tools/options.def: help, manual pages, completion, a document. */
#ifndef DTP_TOOLS_HELP_H
#define DTP_TOOLS_HELP_H

#include <stdio.h>

#include "tools/option_rows.h"

/* `--help` of a command, on standard output. */
dtp_status tool_help_command(tool_command_id command, dtp_err *err) DTP_MUST_CHECK;

/* `help` of a tool, whose commands are listed on `file`; with an argument on standard output:
 * COMMAND its help; --man [COMMAND] a manual page; --completion what bash completes; --markdown
 * docs/options.md. DTP_INVALID on others. */
dtp_status tool_help(const char *program, FILE *file, int argc, char **argv,
                     dtp_err *err) DTP_MUST_CHECK;

#endif
