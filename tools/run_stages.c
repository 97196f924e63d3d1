/* Stages in a report: what each predicts and measures, and what is sent between them. */
#include <math.h>

#include "core/base/units.h"
#include "tools/report.h"
#include "tools/run_report.h"

dtp_status dtp_report_find_stages(dtp_report *r, dtp_session *s, const double *own, dtp_err *err)
{
    if (r->pipeline == NULL) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(r->arena, r->medians, (size_t)DTP_REPORT_MEDIANS * (size_t)r->ranks, err));
    return dtp_session_numbers(s, DTP_REPORT_MEDIANS, own, r->medians[0], err);
}

/* What a stage takes: predicted, NaN where it is not, and measured on its first rank. */
typedef struct stage_figures {
    double compute_s[2], exposed_s[2], waiting_s[2], step_s[2];
    int64_t predicted_bytes, peak_bytes;
} stage_figures;

static stage_figures figures_of(const dtp_report *r, int32_t k)
{
    const dtp_pipeline *p = r->pipeline;
    const dtp_prediction *x = &p->stages[k];
    const int32_t ranks = r->ranks / p->table.n_stages;
    const double *measured = r->medians[(ptrdiff_t)k * ranks];
    const double waiting_s =
        measured[0] - measured[1] - measured[2]; /* medians of each: may be < 0 */
    const bool priced = p->times.section_s != NULL;
    stage_figures f = {.compute_s = {(double)NAN, measured[1]},
                       .exposed_s = {(double)NAN, measured[2]},
                       .waiting_s = {(double)NAN, waiting_s < 0.0 ? 0.0 : waiting_s},
                       .step_s = {(double)NAN, measured[0]},
                       .predicted_bytes = p->programs[k]->peak_bytes};
    if (priced) {
        f.compute_s[0] = x->compute_s;
        f.exposed_s[0] = x->exposed_comm_s;
        f.waiting_s[0] = x->step_time_s - dtp_pipeline_work_s(p, k);
        f.step_s[0] = x->step_time_s;
    }
    for (int32_t i = k * ranks; i < (k + 1) * ranks; i++) {
        f.peak_bytes = r->peak_bytes[i] > f.peak_bytes ? r->peak_bytes[i] : f.peak_bytes;
    }
    return f;
}

static void put_pair(dtp_strbuf *out, const double *pair)
{
    for (int32_t i = 0; i < 2; i++) {
        dtp_strbuf_addf(out, " %10s", isnan(pair[i]) ? "-" : dtp_seconds(pair[i]).text);
    }
}

void dtp_report_stages_text(const dtp_report *r, dtp_strbuf *out)
{
    const dtp_pipeline *p = r->pipeline;
    dtp_strbuf_addf(out,
                    "stages, on the first rank of each: predicted, measured\n%7s %21s %21s %21s\n",
                    "", "compute", "exposed comm", "waiting for stages");
    for (int32_t k = 0; k < p->table.n_stages; k++) {
        const stage_figures f = figures_of(r, k);
        dtp_strbuf_addf(out, "%7d", k);
        put_pair(out, f.compute_s);
        put_pair(out, f.exposed_s);
        put_pair(out, f.waiting_s);
        dtp_strbuf_add(out, "\n");
    }
    dtp_strbuf_add(out, "collectives per rank and step, peaks predicted and measured\n");
    for (int32_t k = 0; k < p->table.n_stages; k++) {
        const stage_figures f = figures_of(r, k);
        dtp_strbuf_addf(out, "  stage %d:", k);
        dtp_pipeline_print_collectives(p, k, out);
        dtp_strbuf_addf(out, " peak %s and %s%s\n", dtp_byte_count((double)f.predicted_bytes).text,
                        dtp_byte_count((double)f.peak_bytes).text,
                        f.predicted_bytes == f.peak_bytes ? " (equal)" : " (DIFFERENT)");
    }
    dtp_strbuf_add(out, "sends per rank and step\n");
    for (int32_t i = 0; i < p->times.n_messages; i++) {
        const dtp_stage_message *x = &p->times.messages[i];
        const int32_t n = dtp_message_sends(p, x);
        dtp_strbuf_addf(out, "  %-30s %6d calls %10s", dtp_message_print(p, x).text, n,
                        dtp_byte_count((double)(n * x->bytes)).text);
        if (p->times.section_s != NULL) {
            dtp_strbuf_addf(out, ", predicted %s", dtp_seconds(n * x->time_s).text);
        }
        dtp_strbuf_add(out, "\n");
    }
}

void dtp_report_stage_row(struct tool_rows *rows, const void *user, int32_t k)
{
    const dtp_report *r = user;
    const stage_figures f = figures_of(r, k);
    tool_row(rows,
             TOOL_FIELDS(FIELD_INT("stage", k),
                         FIELD_OBJECT_OR_NULL(!isnan(f.step_s[0]), "predicted",
                                              FIELD_REAL("step_time_s", f.step_s[0]),
                                              FIELD_REAL("compute_s", f.compute_s[0]),
                                              FIELD_REAL("comm_s", r->pipeline->stages[k].comm_s),
                                              FIELD_REAL("exposed_comm_s", f.exposed_s[0]),
                                              FIELD_REAL("waiting_s", f.waiting_s[0])),
                         FIELD_OBJECT("measured", FIELD_REAL("step_time_s", f.step_s[1]),
                                      FIELD_REAL("compute_s", f.compute_s[1]),
                                      FIELD_REAL("exposed_comm_s", f.exposed_s[1]),
                                      FIELD_REAL("waiting_s", f.waiting_s[1])),
                         FIELD_INT("predicted_peak_bytes", f.predicted_bytes),
                         FIELD_INT("peak_bytes", f.peak_bytes),
                         FIELD_MAP("collectives", DTP_N_COLL_TOTALS, tool_total_row,
                                   &r->pipeline->stages[k])));
}
