/* Which key causes a price: the one without which, at the best value of its range, it is lowest. */
#include "cost_models/price_limit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/safe_int.h"

static const double LIMIT_S = 1e-12 * (double)DTP_COST_LIMIT_PS;

typedef struct blame {
    const dtp_pricer *pricer;
    const dtp_program *p;
    const dtp_instr *instr;
    dtp_dearest *out;
    double least_s; /* price without what is blamed */
} blame;

static double price_on(const blame *b, const dtp_machine *machine)
{
    dtp_pricer other = *b->pricer;
    other.machine = machine;
    return dtp_price_instr(&other, b->p, b->instr);
}

static double best_of(dtp_machine_number number)
{
    const dtp_machine_range *r = dtp_machine_range_of(number);
    return number == DTP_NUMBER_DELAY ? r->least : r->most;
}

/* `field`: of `machine`, a copy that is left as it is. */
static void try_key(blame *b, dtp_machine *machine, double *field, dtp_machine_number number,
                    const char *key)
{
    const double value = *field;
    *field = best_of(number);
    const double time_s = price_on(b, machine);
    *field = value;
    if (time_s < b->least_s) {
        b->least_s = time_s;
        b->out->value = value;
        (void)snprintf(b->out->key, sizeof b->out->key, "%s", key);
    }
}

dtp_status dtp_price_instr_ps(const dtp_pricer *pricer, const dtp_program *p, dtp_instr *instr,
                              dtp_dearest *dearest, int64_t *ps, dtp_err *err)
{
    const double time_s = instr->time_s = dtp_price_instr(pricer, p, instr);
    instr->far = instr->kind == DTP_INSTR_START && dtp_pricer_is_far(pricer, instr->coll.set);
    if (!(time_s <= dearest->time_s)) {
        blame b = {.pricer = pricer, .p = p, .instr = instr, .out = dearest};
        *dearest = (dtp_dearest){.time_s = time_s, .what = dtp_instr_name(instr)};
        dearest->node = instr->node >= 0 ? p->graph->nodes[instr->node].name : NULL;
        dtp_machine m = *b.pricer->machine;
        char key[64];
        b.least_s = INFINITY;
        try_key(&b, &m, &m.launch_s, DTP_NUMBER_DELAY, "device.launch_s");
        if (!(m.launch_graph_s < 0.0)) {
            try_key(&b, &m, &m.launch_graph_s, DTP_NUMBER_DELAY, "device.launch_graph_s");
        }
        try_key(&b, &m, &m.mem_bw_Bps, DTP_NUMBER_BW, "device.mem_bw_Bps");
        for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
            if (m.flops[d] > 0.0) {
                (void)snprintf(key, sizeof key, "device.flops.%s", dtp_arithmetic_name(d));
                try_key(&b, &m, &m.flops[d], DTP_NUMBER_FLOPS, key);
            }
        }
        for (int32_t l = 0; l < m.n_levels; l++) {
            (void)snprintf(key, sizeof key, "levels[%d].latency_s", l);
            try_key(&b, &m, &m.levels[l].latency_s, DTP_NUMBER_DELAY, key);
            (void)snprintf(key, sizeof key, "levels[%d].hop_s", l);
            try_key(&b, &m, &m.levels[l].hop_s, DTP_NUMBER_DELAY, key);
            (void)snprintf(key, sizeof key, "levels[%d].bw_Bps", l);
            try_key(&b, &m, &m.levels[l].bw_Bps, DTP_NUMBER_BW, key);
        }
        /* Measurements are blamed when they are most of what is left at the best rates. */
        m.launch_s = m.launch_graph_s = best_of(DTP_NUMBER_DELAY);
        m.mem_bw_Bps = best_of(DTP_NUMBER_BW);
        for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
            m.flops[d] = best_of(DTP_NUMBER_FLOPS);
        }
        for (int32_t l = 0; l < m.n_levels; l++) {
            m.levels[l].latency_s = m.levels[l].hop_s = best_of(DTP_NUMBER_DELAY);
            m.levels[l].bw_Bps = best_of(DTP_NUMBER_BW);
        }
        if (2.0 * price_on(&b, &m) >= b.out->time_s) {
            const char *list = "device.curves.ops";
            if (b.instr->kind == DTP_INSTR_KERNEL) {
                m.gemm_grid = NULL;
                list = 2.0 * price_on(&b, &m) < b.out->time_s ? "device.curves.gemm" : list;
                m.multiprocessors = 0; /* no models */
                m.shares.kernel = -1;
                if (2.0 * price_on(&b, &m) < b.out->time_s &&
                    b.pricer->machine->gemm_grid == NULL) {
                    list = (instr->op->flags & DTP_OP_ARITHMETIC) != 0 ? "device.attention"
                                                                       : "device.products";
                }
            }
            b.out->value = 0.0;
            (void)snprintf(b.out->key, sizeof b.out->key, "%s", list);
            if (b.instr->kind == DTP_INSTR_START) {
                (void)snprintf(b.out->key, sizeof b.out->key, "levels[%d].collectives",
                               pricer->groups[b.instr->coll.set].outer);
            }
        }
    }
    if (!(time_s < LIMIT_S)) {
        return dtp_cost_fail(pricer, dearest, err);
    }
    *ps = dtp_picoseconds(time_s);
    return DTP_OK;
}

bool dtp_cost_add(int64_t *sum, int64_t ps, int64_t times)
{
    int64_t all, with;
    if (!dtp_mul_i64(ps, times, &all) || !dtp_add_i64(*sum, all, &with) ||
        with >= DTP_COST_LIMIT_PS) {
        return false;
    }
    *sum = with;
    return true;
}

dtp_status dtp_program_price(const dtp_pricer *pricer, dtp_program *p, dtp_dearest *dearest,
                             int64_t *ps, dtp_err *err)
{
    *ps = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *instr = &p->instrs[i];
        int64_t one = 0;
        DTP_TRY(dtp_price_instr_ps(pricer, p, instr, dearest, &one, err));
        if (!dtp_cost_add(ps, one, dtp_instr_runs(p, instr))) {
            return dtp_cost_fail(pricer, dearest, err);
        }
    }
    return DTP_OK;
}

dtp_status dtp_cost_fail(const dtp_pricer *pricer, const dtp_dearest *dearest, dtp_err *err)
{
    char value[32] = "";
    if (dearest->value > 0.0) {
        (void)snprintf(value, sizeof value, " is %g", dearest->value);
    }
    return DTP_FAIL(
        err, DTP_RANGE, "%s: %s%s: %s%s%s%s takes %g s%s; a step of %g s cannot be planned",
        pricer->machine->place, dearest->key, value, dearest->what,
        dearest->node != NULL ? " of node '" : "", dearest->node != NULL ? dearest->node : "",
        dearest->node != NULL ? "'" : "", dearest->time_s,
        dearest->time_s < LIMIT_S ? ", and there are more such costs" : "", LIMIT_S);
}
