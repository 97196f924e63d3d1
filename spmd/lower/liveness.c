/* Liveness: between which instructions the contents of every value matter. A value begins with the
 * instruction that writes it (parameters, state and inputs: before the first one) and ends with its
 * last reader (kept values, parameters and state: with the program). What is made once for all
 * microbatches and read in each of them lasts from the first instruction to the last of a
 * microbatch. A value that no instruction
 * writes is a view: it begins with the value it lies in, which lives at least as long as the view.
 */
#include "core/transform/stages.h"
#include "spmd/lower/memplan.h"
#include "spmd/program/program_internal.h"

static int32_t at_least(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

void dtp_program__liveness(dtp_program *p)
{
    const int32_t body = dtp_program_body(p);
    int32_t end = p->n_instrs > 0 ? p->n_instrs - 1 : 0;
    p->placed = false;
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].first = p->values[v].last = -1;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        for (int32_t k = 0; k < instr->n_in; k++) {
            p->values[instr->in[k]].last = i;
        }
        for (int32_t k = 0; k < instr->n_out; k++) {
            p->values[instr->out[k]].first = i;
            p->values[instr->out[k]].last = i;
        }
        if (instr->workspace >= 0) {
            p->values[instr->workspace].first = p->values[instr->workspace].last = i;
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        dtp_value *value = &p->values[v];
        if (value->kind == DTP_VALUE_RESIDENT || value->kind == DTP_VALUE_INPUT) {
            /* What other stages send once may come as soon as the last microbatch has ended. */
            const int32_t section =
                value->arrives < DTP_SECTION_UPDATE ? value->arrives : DTP_SECTION_UPDATE;
            const int32_t at = dtp_section_begin(p, p->instrs, p->n_instrs, section);
            value->first = section == 0 ? 0 : at < end ? at : end;
            value->last = at_least(value->last, value->first);
        }
        if (value->sent > 0) {
            const int32_t behind = dtp_section_begin(p, p->instrs, p->n_instrs, value->sent);
            value->last = at_least(value->last, behind - 1);
        } else if (value->kind == DTP_VALUE_RESIDENT || value->keep) {
            value->last = end;
        }
    }
    for (int32_t i = 0; i < body; i++) {
        for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
            const dtp_value_id v = dtp_program__lasting(p, &p->instrs[i], k);
            if (v >= 0) {
                p->values[v].first = 0;
                p->values[v].last = at_least(p->values[v].last, body - 1);
            }
        }
    }
    /* A view's contents are its parent's, so the parent lives at least as long. */
    for (int32_t v = p->n_values - 1; v >= 0; v--) {
        dtp_value *view = &p->values[v];
        if (view->first >= 0) {
            continue;
        }
        dtp_value_id origin = v; /* of its contents */
        while (p->values[origin].first < 0 && p->values[origin].parent >= 0) {
            origin = p->values[origin].parent;
        }
        view->first = p->values[origin].first;
        view->last = at_least(view->last, view->first);
        for (dtp_value_id up = view->parent; up >= 0; up = p->values[up].parent) {
            p->values[up].last = at_least(p->values[up].last, view->last);
            if (p->values[up].first >= 0) {
                break;
            }
        }
    }
}
