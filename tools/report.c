#include "tools/report.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/files/file_out.h"

void tool_report_begin(dtp_json_writer *w, const char *format)
{
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "format", format);
}

void tool_report_end(dtp_json_writer *w)
{
    dtp_json_end_object(w);
    dtp_strbuf_add(&w->buf, "\n");
}

void tool_print_bounds(int64_t cost, const char *unit, int64_t bound, double gap, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "cost %" PRId64 "%s, bound %" PRId64 ", gap %.4f %%", cost, unit, bound,
                    100.0 * gap);
}

dtp_status tool_put_in(const char *file, dtp_strbuf *report, dtp_err *err)
{
    dtp_status s = report->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    if (s == DTP_OK && file != NULL) {
        s = dtp_file_write(file, dtp_strbuf_text(report), report->len, err);
    } else if (s == DTP_OK) {
        (void)fputs(dtp_strbuf_text(report), stdout);
    }
    dtp_strbuf_free(report);
    return s;
}

dtp_status tool_put(dtp_strbuf *report, dtp_err *err)
{
    return tool_put_in(NULL, report, err);
}

dtp_status tool_put_both(const char *file, dtp_strbuf *product, dtp_strbuf *report, dtp_err *err)
{
    dtp_status s = report->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    s = s == DTP_OK && file != NULL ? tool_put_in(file, product, err) : s;
    s = s == DTP_OK ? tool_put(report, err) : s;
    dtp_strbuf_free(product);
    dtp_strbuf_free(report);
    return s;
}
