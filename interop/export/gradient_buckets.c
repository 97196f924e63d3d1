/* The buckets in which the program of a plan reduces gradients over data dims, for frameworks that
 * make such buckets themselves. */
#include "interop/export/forms.h"
#include "interop/export/torch_modules.h"

typedef struct collector {
    const dtp_torch_plan *t;
    bool *known; /* by parameter of the placements: it is in a bucket */
} collector;

/* The parameter of the placements whose gradient, or that of one of its parts, is a tensor; -1:
 * none. */
static int32_t param_of(const dtp_placements *p, dtp_tensor_id grad)
{
    for (int32_t g = 0; g < p->graph->n_grads; g++) {
        for (int32_t i = 0; i < p->n_params && p->graph->grads[g].grad == grad; i++) {
            for (int32_t k = 0; k < p->params[i].n_of; k++) {
                if (p->params[i].of[k] == p->graph->grads[g].param) {
                    return i;
                }
            }
        }
    }
    return -1;
}

static void write_bucket(const collector *c, const dtp_instr *instr, dtp_json_writer *w)
{
    const dtp_placements *p = c->t->p;
    bool any = false;
    for (int32_t i = 0; i < instr->n_in; i++) {
        const int32_t param = param_of(p, p->program->values[instr->in[i]].tensor);
        if (param < 0 || c->known[param]) {
            continue;
        }
        if (!any) {
            dtp_json_begin_array(w, NULL, true);
        }
        any = c->known[param] = true;
        dtp_json_write_string(w, NULL, p->params[param].name);
    }
    if (any) {
        dtp_json_end_array(w);
    }
}

dtp_status dtp_export__gradient_buckets(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    const dtp_program *program = t->p->program;
    collector c = {.t = t};
    DTP_TRY(DTP_NEW(t->p->arena, c.known, t->p->n_params + 1, err));
    dtp_json_begin_array(w, "gradient_buckets", false);
    for (int32_t i = 0; program != NULL && i < program->n_instrs; i++) {
        const dtp_instr *instr = &program->instrs[i];
        bool data = instr->coll.set != 0 && instr->kind == DTP_INSTR_START &&
                    instr->coll.kind == DTP_ALL_REDUCE && instr->phase != DTP_FORWARD;
        for (int32_t m = 0; m < t->p->plan->mesh.n_dims; m++) {
            data = data && ((instr->coll.set & 1U << m) == 0 || t->dim[m] == DTP_TORCH_DATA);
        }
        if (data) {
            write_bucket(&c, &program->instrs[i], w);
        }
    }
    dtp_json_end_array(w);
    return DTP_OK;
}
