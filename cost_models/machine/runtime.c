/* A machine whose rates are those of one runtime (cost_models/machine/efficiency.h). */
#include <math.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/kernel_model.h"

static dtp_status no_such_runtime(const dtp_machine *m, const char *runtime, dtp_err *err)
{
    dtp_strbuf list = {0};
    for (int32_t i = 0; i < m->n_efficiencies; i++) {
        dtp_strbuf_addf(&list, "%s%s", i > 0 ? ", " : "", m->efficiencies[i].runtime);
    }
    const dtp_status s =
        list.len == 0
            ? DTP_FAIL(err, DTP_INVALID, "%s: no efficiencies of runtime '%.80s', nor of others",
                       m->place, runtime)
            : DTP_FAIL(err, DTP_INVALID, "%s: no efficiencies of runtime '%.80s', only of %.400s",
                       m->place, runtime, list.text);
    dtp_strbuf_free(&list);
    return s;
}

/* Attention of one dtype: bytes at the share of the bandwidth, at least a launch, and its FLOPs at
 * the share of the peak. */
static dtp_status attention_curve(dtp_machine *m, const char *op, dtp_dtype dtype, double flops,
                                  dtp_err *err)
{
    dtp_op_curve *c = &m->op_curves[m->n_op_curves++];
    double *x, *y;
    DTP_TRY(DTP_NEW(m->arena, x, 1, err));
    DTP_TRY(DTP_NEW(m->arena, y, 1, err));
    y[0] = fmax(dtp_machine_launch_s(m), 1.0 / m->mem_bw_Bps);
    x[0] = fmax(y[0] * m->mem_bw_Bps, 1.0);
    *c = (dtp_op_curve){.op = op,
                        .dtype = dtype,
                        .time_s = {.n = 1, .x = x, .y = y, .measured = NULL},
                        .flops = flops};
    return DTP_OK;
}

static dtp_status apply(dtp_machine *m, const dtp_efficiency *e, dtp_err *err)
{
    double peak[DTP_N_DTYPES];
    DTP_TRY(DTP_NEW(m->arena, m->op_curves, 2 * DTP_N_DTYPES, err));
    m->n_op_curves = m->n_gemm = 0;
    m->gemm_grid = NULL;
    m->mem_bw_Bps *= e->memory;
    for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
        if (d < DTP_N_DTYPES) {
            peak[d] = m->flops[d];
        }
        m->flops[d] *= e->products;
    }
    m->shares = (dtp_runtime_shares){.kernel = dtp_attention_model_find(m, e->kernel),
                                     .attention = e->attention,
                                     .attention_grad = e->attention_grad,
                                     .memory = e->memory};
    for (int32_t d = 0; d < DTP_N_DTYPES && m->shares.kernel < 0; d++) {
        if (peak[d] > 0.0) {
            const dtp_dtype dtype = (dtp_dtype)d;
            DTP_TRY(attention_curve(m, "attention", dtype, peak[d] * e->attention, err));
            DTP_TRY(attention_curve(m, "attention_grad", dtype, peak[d] * e->attention_grad, err));
        }
    }
    m->peak_share = e->products;
    m->host_s = e->host_s;
    m->runtime = e->runtime;
    m->provenance_how = strcmp(e->how, "borrowed") == 0 ? "fitted" : e->how;
    m->n_efficiencies = 0; /* they speak of the peaks */
    return dtp_machine_index(m, err);
}

dtp_status dtp_machine_set_runtime(dtp_machine *m, const char *runtime, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, m, runtime));
    const dtp_efficiency *e = dtp_efficiency_find(m, runtime);
    if (m->runtime[0] != '\0') {
        return DTP_FAIL(err, DTP_INVALID, "%s: runtime '%.80s': it is set to '%s' already",
                        m->place, runtime, m->runtime);
    }
    return e != NULL ? apply(m, e, err) : no_such_runtime(m, runtime, err);
}
