/* What the reports of all commands share. */
#ifndef DTP_TOOLS_REPORT_H
#define DTP_TOOLS_REPORT_H

#include "core/base/json_writer.h"
#include "core/base/status.h"
#include "core/base/strbuf.h"

/* A report as JSON: an object that begins with its format, such as "dtp.explain/1"... */
void tool_report_begin(dtp_json_writer *w, const char *format);
/* ... and ends the line. */
void tool_report_end(dtp_json_writer *w);
/* "cost 12 ps, bound 10, gap 16.6667 %"; unit: " ps", " bytes" or "". */
void tool_print_bounds(int64_t cost, const char *unit, int64_t bound, double gap, dtp_strbuf *out);
/* Prints a report on standard output, or writes it to a file, and frees it. */
dtp_status tool_put(dtp_strbuf *report, dtp_err *err) DTP_MUST_CHECK;
dtp_status tool_put_in(const char *file, dtp_strbuf *report, dtp_err *err) DTP_MUST_CHECK;
/* Writes a product to a file (NULL: leaves it out), then prints a report; frees both. Nothing is
 * written when memory ran out for either. */
dtp_status tool_put_both(const char *file, dtp_strbuf *product, dtp_strbuf *report,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
