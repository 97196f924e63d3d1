/* Fused instructions in a report: how many ran as one, and why others ran apart. */
#include <string.h>

#include "tools/run_report.h"

dtp_status dtp_report_find_fused(dtp_report *r, dtp_err *err)
{
    const int32_t n = dtp_runner_program(r->runner)->n_instrs;
    DTP_TRY(DTP_NEW(r->arena, r->apart, n, err));
    r->n_as_one = r->n_apart = 0;
    for (int32_t i = 0; i < n; i++) {
        const char *why = dtp_runner_why_apart(r->runner, i);
        if (why != NULL && why[0] != '\0') {
            r->apart[r->n_apart++] = i;
        }
        r->n_as_one += why != NULL && why[0] == '\0' ? 1 : 0;
    }
    return DTP_OK;
}

/* Whether two of the instructions that ran apart are printed on one line. */
static bool alike(const dtp_report *r, int32_t i, int32_t k)
{
    const dtp_instr *instrs = dtp_runner_program(r->runner)->instrs;
    return instrs[r->apart[i]].op == instrs[r->apart[k]].op &&
           strcmp(dtp_runner_why_apart(r->runner, r->apart[i]),
                  dtp_runner_why_apart(r->runner, r->apart[k])) == 0;
}

void dtp_report_fused_text(const dtp_report *r, dtp_strbuf *out)
{
    const dtp_program *p = dtp_runner_program(r->runner);
    if (r->n_as_one + r->n_apart > 0) {
        dtp_strbuf_addf(out, "fused products: %d as one, %d apart\n", r->n_as_one, r->n_apart);
    }
    for (int32_t i = 0; i < r->n_apart; i++) {
        const dtp_instr *in = &p->instrs[r->apart[i]];
        int32_t first = 0, n = 0;
        while (!alike(r, i, first)) {
            first++;
        }
        for (int32_t k = i; k < r->n_apart; k++) {
            n += alike(r, i, k) ? 1 : 0;
        }
        if (first == i) {
            dtp_strbuf_addf(out, "  %-18s %6d apart, first '%s': %s\n", dtp_instr_name(in), n,
                            in->node >= 0 ? p->graph->nodes[in->node].name : "-",
                            dtp_runner_why_apart(r->runner, r->apart[i]));
        }
    }
}
