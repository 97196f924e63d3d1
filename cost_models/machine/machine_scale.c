/* A machine with one of its rates or delays scaled: what sensitivity asks about. */
#include "cost_models/machine/machine_scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

static void add(dtp_machine_param *list, int32_t *n, dtp_machine_param param)
{
    if (param.value > 0.0) {
        list[(*n)++] = param;
    }
}

dtp_status dtp_machine_params(const dtp_machine *m, dtp_arena *arena, int32_t *n,
                              dtp_machine_param **out, dtp_err *err)
{
    dtp_machine_param *list = dtp_arena_alloc(arena, 3 + 2 * DTP_MAX_LEVELS, sizeof *list);
    *n = 0;
    DTP_TRY(DTP_MEMORY(err, list));
    add(list, n, (dtp_machine_param){DTP_MACHINE_FLOPS, -1, "flops", 1.0});
    add(list, n, (dtp_machine_param){DTP_MACHINE_MEM_BW, -1, "memory.bandwidth", m->mem_bw_Bps});
    add(list, n, (dtp_machine_param){DTP_MACHINE_LAUNCH, -1, "launch", dtp_machine_launch_s(m)});
    for (int32_t l = 0; l < m->n_levels; l++) {
        if (m->levels[l].size > 1) {
            const dtp_level *at = &m->levels[l];
            const char *bandwidth = dtp_arena_printf(arena, "%s.bandwidth", at->name);
            const char *latency = dtp_arena_printf(arena, "%s.latency", at->name);
            DTP_TRY(DTP_MEMORY(err, bandwidth, latency));
            add(list, n, (dtp_machine_param){DTP_MACHINE_LEVEL_BW, l, bandwidth, at->bw_Bps});
            add(list, n, (dtp_machine_param){DTP_MACHINE_LEVEL_LATENCY, l, latency, at->latency_s});
        }
    }
    *out = list;
    return DTP_OK;
}

/* ---- scaling ---- */

/* Times of a curve, multiplied. */
static dtp_status scale_curve(dtp_machine *m, dtp_curve *curve, double factor, dtp_err *err)
{
    double *y;
    DTP_TRY(DTP_NEW(m->arena, y, curve->n, err));
    for (int32_t i = 0; i < curve->n; i++) {
        y[i] = factor * curve->y[i];
    }
    curve->y = y;
    return DTP_OK;
}

static void scale_flops(dtp_machine *m, double factor)
{
    for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
        m->flops[d] *= factor;
    }
    for (int32_t i = 0; i < m->n_gemm; i++) {
        m->gemm[i].flops *= factor;
    }
    for (int32_t i = 0; i < m->n_op_curves; i++) {
        m->op_curves[i].flops *= factor;
    }
}

static dtp_status scale(dtp_machine *m, const dtp_machine_param *param, double factor, dtp_err *err)
{
    dtp_level *level = &m->levels[param->level > 0 ? param->level : 0];
    double size;
    switch (param->quantity) {
    case DTP_MACHINE_FLOPS:
        scale_flops(m, factor);
        return DTP_OK;
    case DTP_MACHINE_MEM_BW:
        m->mem_bw_Bps *= factor;
        for (int32_t i = 0; i < m->n_op_curves; i++) {
            DTP_TRY(scale_curve(m, &m->op_curves[i].time_s, 1.0 / factor, err));
        }
        return DTP_OK;
    case DTP_MACHINE_LAUNCH:
        m->launch_s *= factor;
        m->launch_graph_s *= factor;
        for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
            m->products[d].start_s *= factor;
        }
        for (int32_t i = 0; i < m->n_attention; i++) {
            m->attention[i].start_s *= factor;
        }
        return DTP_OK;
    case DTP_MACHINE_LEVEL_BW:
        level->bw_Bps *= factor;
        return DTP_OK;
    case DTP_MACHINE_LEVEL_LATENCY:
        level->latency_s *= factor;
        level->hop_s *= factor;
        for (int32_t k = 0; k < DTP_N_COLLS; k++) {
            level->rates[k].start_s *= factor;
            level->rates[k].rank_s *= factor;
        }
        return DTP_OK;
    case DTP_MACHINE_MEMORY:
        m->memory_bytes = (int64_t)fmin(round((double)m->memory_bytes * factor), 9e18);
        return DTP_OK;
    case DTP_MACHINE_LEVEL_SIZE:
        size = level->size * factor;
        level->size = (int32_t)fmin(round(size), INT32_MAX);
        return fabs(size - level->size) < 1e-6
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_INVALID, "%g is no number of members", size);
    }
    return DTP_FAIL(err, DTP_INTERNAL, "no such quantity of a machine");
}

dtp_status dtp_machine_scaled(const dtp_machine *m, const dtp_machine_param *param, double factor,
                              dtp_machine **out, dtp_err *err)
{
    char *text = NULL;
    dtp_machine *copy = NULL;
    DTP_TRY(dtp_machine_write(m, &text, err));
    dtp_status s = dtp_machine_parse(m->place, text, strlen(text), &copy, err);
    free(text);
    if (s == DTP_OK) {
        copy->peak_share = m->peak_share;
        copy->shares = m->shares;
        s = scale(copy, param, factor, err);
    }
    if (s == DTP_OK) {
        s = dtp_machine_index(copy, err);
    }
    if (s != DTP_OK) {
        dtp_err_prefix(err, "%s times %g", param->name, factor);
        dtp_machine_destroy(copy);
        return s;
    }
    *out = copy;
    return DTP_OK;
}

dtp_status dtp_machine_unrecorded(dtp_machine *m, dtp_err *err)
{
    for (int32_t i = 0; i < m->n_op_curves && !(m->launch_graph_s < 0.0); i++) {
        dtp_curve *curve = &m->op_curves[i].time_s;
        double *y;
        DTP_TRY(DTP_NEW(m->arena, y, curve->n, err));
        for (int32_t k = 0; k < curve->n; k++) {
            y[k] = fmax(curve->y[k], m->launch_s);
        }
        curve->y = y;
    }
    m->launch_graph_s = -1.0;
    return DTP_OK;
}
