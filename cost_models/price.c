/* Prices of instructions (docs/cost-model.md). */
#include "cost_models/price.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "core/graph/ops/op_table.h"
#include "cost_models/machine/curve.h"
#include "cost_models/machine/gemm.h"
#include "cost_models/machine/kernel_model.h"

/* FLOP/s of an arithmetic; the rate of f32, else the first stated one, when the machine says
 * nothing. */
static double flop_rate(const dtp_machine *m, dtp_arithmetic arithmetic)
{
    if (m->flops[arithmetic] > 0.0) {
        return m->flops[arithmetic];
    }
    double rate = m->flops[DTP_F32];
    for (int32_t d = 0; d < DTP_N_ARITHMETICS && !(rate > 0.0); d++) {
        rate = m->flops[d];
    }
    return rate;
}

static double sum_of(dtp_kernel_time t)
{
    return t.start_s + t.arithmetic_s + t.bytes_s;
}

/* launch + GEMMs + packing. Measured GEMM times contain the traffic of their operands; those
 * of f32 are scaled for an arithmetic that was not measured. Without measurements it is the model
 * of the arithmetic, which contains the launch, or max(FLOPs / rate, bytes / bandwidth). */
static double price_gemm(const dtp_machine *m, dtp_arithmetic arithmetic, const dtp_work *w)
{
    double body;
    if (dtp_gemm_grid_has(m->gemm_grid, arithmetic)) {
        body = dtp_gemm_grid_time(m->gemm_grid, arithmetic, w);
    } else if (dtp_gemm_grid_has(m->gemm_grid, DTP_F32)) {
        double factor = flop_rate(m, DTP_F32) / flop_rate(m, arithmetic);
        body = dtp_gemm_grid_time(m->gemm_grid, DTP_F32, w) * factor;
    } else if (dtp_product_model_of(m, arithmetic) >= 0) {
        return sum_of(dtp_product_time(m, arithmetic, w)) + w->pack_bytes / m->mem_bw_Bps;
    } else {
        body = fmax(w->flops / flop_rate(m, arithmetic), w->bytes / m->mem_bw_Bps);
    }
    return dtp_machine_launch_s(m) + body + w->pack_bytes / m->mem_bw_Bps;
}

/* The op's own curve; a call without arithmetic (an einsum that only transposes) uses "<op>.copy"
 * when that was measured. NULL: neither. */
static const dtp_op_curve *own_curve(const dtp_machine *m, const char *op,
                                     dtp_arithmetic arithmetic, const dtp_work *w)
{
    char name[64];
    const dtp_op_curve *c = NULL;
    if (!(w->flops > 0.0) && snprintf(name, sizeof name, "%s.copy", op) < (int)sizeof name) {
        c = dtp_machine_op_curve(m, name, arithmetic);
    }
    return c != NULL ? c : dtp_machine_op_curve(m, op, arithmetic);
}

static const dtp_op_curve *memory_curve(const dtp_machine *m, const dtp_op_def *op,
                                        dtp_arithmetic arithmetic, const dtp_work *w)
{
    const dtp_op_curve *c = own_curve(m, op->name, arithmetic, w);
    if (c == NULL && op->rates != NULL) {
        c = own_curve(m, dtp_op_rates(op)->name, arithmetic, w);
    }
    return c != NULL ? c : dtp_machine_op_curve(m, "*", arithmetic);
}

static dtp_kernel_time attention_time(const dtp_machine *m, const dtp_op_def *op,
                                      dtp_arithmetic arithmetic, const dtp_work *w)
{
    const bool grad = (dtp_op_rates(op)->flags & DTP_OP_ATTENTION_GRAD) != 0;
    const double share = grad ? m->shares.attention_grad : m->shares.attention;
    return dtp_attention_time(m, m->shares.kernel, grad,
                              share * flop_rate(m, arithmetic) / m->peak_share, w);
}

static double price_memory(const dtp_machine *m, const dtp_op_def *op, dtp_arithmetic arithmetic,
                           const dtp_work *w)
{
    if (dtp_attention_has_model(m, w)) {
        return sum_of(attention_time(m, op, arithmetic, w));
    }
    const dtp_op_curve *c = memory_curve(m, op, arithmetic, w);
    if (c == NULL) {
        return dtp_machine_launch_s(m) +
               fmax(w->bytes / m->mem_bw_Bps, w->flops / flop_rate(m, arithmetic));
    }
    double time_s = dtp_curve_at(&c->time_s, w->bytes);
    return c->flops > 0.0 ? time_s + w->flops / c->flops : time_s;
}

double dtp_price_work(const dtp_machine *machine, const dtp_op_def *op, dtp_arithmetic arithmetic,
                      const dtp_work *work)
{
    switch (work->cls) {
    case DTP_WORK_GEMM:
        return price_gemm(machine, arithmetic, work);
    case DTP_WORK_MEMORY:
        return price_memory(machine, op, arithmetic, work);
    case DTP_WORK_NONE:
    default:
        return 0.0;
    }
}

/* Work of a kernel and what it computes in: a product of quantized operands in 8 bits where the
 * machine has such products, else in bf16. A target that fuses elementwise functions takes the amax
 * where its operand is made. */
static dtp_arithmetic work_of(const dtp_machine *m, const dtp_program *p, const dtp_instr *instr,
                              const dtp_op_call *call, dtp_work *work)
{
    const dtp_dtype dtype = dtp_call_dtype(call);
    dtp_target_work(p->target, call, work);
    const bool product = work->cls == DTP_WORK_GEMM;
    if (p->target->fp8 && m->flops[DTP_FP8] > 0.0 && (instr->op->flags & DTP_OP_SCALE) != 0 &&
        (p->target->fuse & DTP_FUSE_ELEMENTWISE) != 0) {
        work->bytes = 0.0;
        work->flops = 0.0;
    }
    if (dtype != DTP_F8) {
        return dtp_product_arithmetic(dtype, p->graph->tf32 && product);
    }
    work->quantized =
        product && call->n_in == 2 && call->in[1].dtype == DTP_F8 && m->flops[DTP_FP8] > 0.0;
    return work->quantized ? DTP_FP8 : (dtp_arithmetic)DTP_BF16;
}

double dtp_price_move(const dtp_machine *machine, dtp_copy_kind kind, double bytes)
{
    const char *name = dtp_copy_name(dtp_copy_is_of_range(kind) ? DTP_COPY_WHOLE : kind);
    const dtp_op_curve *c = dtp_machine_op_curve(machine, name, DTP_F32);
    return c != NULL ? dtp_curve_at(&c->time_s, bytes)
                     : dtp_machine_launch_s(machine) + bytes / machine->mem_bw_Bps;
}

double dtp_price_instr(const dtp_pricer *pricer, const dtp_program *p, const dtp_instr *instr)
{
    if (instr->kind == DTP_INSTR_START) {
        return dtp_price_coll(pricer, &instr->coll);
    }
    if (instr->kind == DTP_INSTR_WAIT) {
        return 0.0; /* what it waits for has its price at the START */
    }
    if (instr->kind == DTP_INSTR_COPY && pricer->of_bounds) {
        return 0.0;
    }
    if (instr->kind == DTP_INSTR_COPY) {
        double in = (double)p->values[instr->in[0]].bytes;
        double out = (double)p->values[instr->out[0]].bytes;
        const bool part =
            instr->move.kind == DTP_COPY_SLICE || dtp_copy_is_of_range(instr->move.kind);
        return dtp_price_move(pricer->machine, instr->move.kind, part ? 2.0 * out : in + out);
    }
    dtp_call_types types;
    dtp_work work;
    dtp_op_call call = dtp_instr_call(p, instr, DTP_ANY_RANK, &types);
    const dtp_arithmetic arithmetic = work_of(pricer->machine, p, instr, &call, &work);
    const double alone_s = dtp_price_work(pricer->machine, instr->op, arithmetic, &work);
    if (!instr->joined) {
        return alone_s;
    }
    const dtp_work nothing = {.cls = work.cls}; /* the launch, which is that of another */
    return fmax(alone_s - dtp_price_work(pricer->machine, instr->op, arithmetic, &nothing), 0.0);
}

/* Seconds of the arithmetic of an op whose curve has a rate, or of products that take longer than
 * their bytes; 0: bytes decide. */
static double arithmetic_s(const dtp_pricer *pricer, const dtp_op_call *call, dtp_arithmetic a,
                           const dtp_work *work, double body_s)
{
    const dtp_machine *m = pricer->machine;
    if (work->cls == DTP_WORK_GEMM && m->gemm_grid == NULL && dtp_product_model_of(m, a) >= 0) {
        return dtp_product_time(m, a, work).arithmetic_s;
    }
    if (dtp_attention_has_model(m, work)) {
        return attention_time(m, call->op, a, work).arithmetic_s;
    }
    if (work->cls == DTP_WORK_GEMM) {
        const double packing_s = work->pack_bytes / m->mem_bw_Bps;
        const bool by_bytes =
            m->gemm_grid == NULL && work->bytes / m->mem_bw_Bps > work->flops / flop_rate(m, a);
        return by_bytes ? 0.0 : body_s - packing_s;
    }
    const dtp_op_curve *c = memory_curve(m, call->op, a, work);
    return c != NULL && c->flops > 0.0 ? work->flops / c->flops : 0.0;
}

void dtp_price_parts(const dtp_pricer *pricer, const dtp_program *p, const dtp_instr *instr,
                     double times, double parts[DTP_N_COMPUTE_PARTS])
{
    const double launch_s = instr->joined ? 0.0 : dtp_machine_launch_s(pricer->machine);
    double rest_s = fmax(instr->time_s - launch_s, 0.0), arithmetic = 0.0;
    parts[DTP_COMPUTE_LAUNCH] += times * (instr->time_s - rest_s);
    if (instr->kind == DTP_INSTR_KERNEL) {
        dtp_call_types types;
        dtp_work work;
        const dtp_op_call call = dtp_instr_call(p, instr, DTP_ANY_RANK, &types);
        const dtp_arithmetic a = work_of(pricer->machine, p, instr, &call, &work);
        const bool product = work.cls == DTP_WORK_GEMM;
        arithmetic = fmin(arithmetic_s(pricer, &call, a, &work, rest_s), rest_s);
        parts[(instr->op->flags & DTP_OP_ATTENTION_GRAD) != 0 ? DTP_COMPUTE_ATTENTION_GRAD
              : product                                       ? DTP_COMPUTE_PRODUCTS
                        : DTP_COMPUTE_ATTENTION] += times * arithmetic;
    }
    parts[DTP_COMPUTE_MEMORY] += times * (rest_s - arithmetic);
}

int64_t dtp_picoseconds(double seconds)
{
    const double ps = seconds * 1e12;
    assert(ps > -9.2e18 && ps < 9.2e18);
    return (int64_t)llround(ps);
}
