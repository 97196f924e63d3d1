/* A line on standard error that says what takes long: "planning, 12 s", from two seconds on, on a
 * terminal; elsewhere a line every ten seconds, which stays. */
#ifndef DTP_TOOLS_PROGRESS_H
#define DTP_TOOLS_PROGRESS_H

/* From here on the command does `what`, a text that stays; one at a time. */
void tool_progress_begin(const char *what);
/* What of it was done last: "planning, 12 s: 3 of 8"; cut to 63 bytes on a
 * terminal, to 127 elsewhere. */
void tool_progress_note(const char *note);
/* The line goes away. To be called before anything is printed, which tool_show, tool_put and
 * tool_fail do themselves; harmless when there is none. */
void tool_progress_end(void);

#endif
