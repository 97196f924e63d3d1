/* The standard streams of a tool. */
#ifndef DTP_TOOLS_STREAMS_H
#define DTP_TOOLS_STREAMS_H

/* Gives /dev/null to standard streams that are closed, so that no file opened later becomes one of
 * them. Writing to a standard output that was closed still fails. */
void tool_streams_open(void);

/* Closes standard output. Returns the exit code: `code`, or TOOL_FAILURE in place of TOOL_OK when
 * not all output could be written, which it says in one line on standard error. */
int tool_streams_close(const char *program, int code);

#endif
