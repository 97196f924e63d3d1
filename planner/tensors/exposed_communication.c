#include "planner/tensors/exposed_communication.h"

#include <math.h>
#include <stdlib.h>

#include "cost_models/timeline.h"
#include "planner/problem/tensors/tensor_internal.h"

/* Of the exposed share of an edge's own tensors, beside that of all communication: it damps the
 * iteration (docs/decisions/0029-planning-loop.md). */
static const double OWN_WEIGHT = 0.3;

static int32_t place_of(dtp_tensor_id tensor, dtp_phase phase)
{
    return DTP_N_PHASES * tensor + (int32_t)phase;
}

dtp_status dtp_exposed_create(const dtp_graph *g, dtp_arena *arena, dtp_exposed *out, dtp_err *err)
{
    const size_t n = DTP_N_PHASES * (size_t)g->n_tensors;
    *out = (dtp_exposed){
        .n_places = DTP_N_PHASES * g->n_tensors,
        .step_s = INFINITY,
        .share = 1.0,
        .sent_s = dtp_arena_alloc(arena, n, sizeof *out->sent_s),
        .alone_s = dtp_arena_alloc(arena, n, sizeof *out->alone_s),
        .of_fastest = dtp_arena_alloc(arena, n, sizeof *out->of_fastest),
    };
    return out->sent_s != NULL && out->alone_s != NULL && out->of_fastest != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for what is sent of %d tensors",
                          g->n_tensors);
}

/* ---- what a timeline shows ---- */

typedef struct shown {
    double all_s, *sent_s, *alone_s; /* by place */
} shown;

dtp_status dtp_exposed_note(dtp_exposed *x, const dtp_program *p, const dtp_machine *machine,
                            double step_s, dtp_err *err)
{
    dtp_schedule_result r;
    double *by_instr = calloc((size_t)p->n_instrs + 1, sizeof *by_instr);
    shown s = {.sent_s = calloc((size_t)x->n_places + 1, sizeof *s.sent_s),
               .alone_s = calloc((size_t)x->n_places + 1, sizeof *s.alone_s)};
    const bool ok = by_instr != NULL && s.sent_s != NULL && s.alone_s != NULL &&
                    dtp_schedule_program(p, machine, &r, by_instr);
    for (int32_t i = 0; i < p->n_instrs && ok; i++) {
        if (p->instrs[i].kind == DTP_INSTR_START) {
            const dtp_instr *instr = &p->instrs[i];
            const double sent_s = dtp_instr_runs(p, instr) * instr->time_s;
            s.all_s += sent_s;
            for (int32_t k = 0; k < instr->n_in; k++) { /* several in a bucket */
                const dtp_tensor_id t = p->values[instr->in[k]].tensor;
                if (t >= 0) {
                    s.sent_s[place_of(t, instr->phase)] += sent_s;
                    s.alone_s[place_of(t, instr->phase)] += by_instr[i];
                }
            }
        }
    }
    if (ok) {
        const bool fastest = step_s < x->step_s;
        for (int32_t i = 0; i < x->n_places; i++) {
            const bool sent = s.sent_s[i] > 0.0;
            if (sent && (fastest || !x->of_fastest[i])) {
                x->sent_s[i] = s.sent_s[i];
                x->alone_s[i] = s.alone_s[i];
            }
            x->of_fastest[i] = fastest ? sent : x->of_fastest[i];
        }
        if (fastest) {
            x->step_s = step_s;
            x->share = s.all_s > 0.0 ? r.exposed_comm_s / s.all_s : 1.0;
        }
    }
    free(by_instr);
    free(s.sent_s);
    free(s.alone_s);
    return ok ? DTP_OK
              : DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                         p->n_instrs);
}

/* ---- costs of edges ---- */

dtp_status dtp_exposed_scale(const dtp_exposed *x, const dtp_tensor_problem *p, dtp_overlay *o,
                             dtp_err *err)
{
    const dtp_problem *s = o->base;
    const size_t n = (size_t)s->n_edges + 1;
    int64_t *cost = NULL;
    double *sent = calloc(2 * n, sizeof *sent);
    DTP_TRY(DTP_MEMORY(err, sent));
    const dtp_status status = dtp_overlay_edges(o, &cost, err);
    double *alone = sent + n;
    for (int32_t i = 0; i < p->n_sent && status == DTP_OK; i++) {
        const dtp_sent_tensor *t = &p->sent[i];
        sent[t->edge] += x->sent_s[place_of(t->tensor, t->phase)];
        alone[t->edge] += x->alone_s[place_of(t->tensor, t->phase)];
    }
    for (int32_t e = 0; e < s->n_edges && status == DTP_OK; e++) {
        const double own = sent[e] > 0.0 ? alone[e] / sent[e] : x->share;
        const double scale = x->share + OWN_WEIGHT * (own - x->share);
        const int64_t *full = s->edge_cost + s->edge_first[e];
        int64_t *scaled = cost + o->problem.edge_first[e];
        const int64_t size = dtp_problem_edge_end(s, e) - s->edge_first[e];
        for (int64_t k = 0; k < size; k++) {
            scaled[k] = full[k] >= DTP_FORBIDDEN ? full[k] : (int64_t)(scale * (double)full[k]);
        }
    }
    free(sent);
    return status;
}
