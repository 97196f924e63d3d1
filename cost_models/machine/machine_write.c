/* Writing a machine file: what machine_read.c reads. */
#include "cost_models/machine/machine.h"

#include <math.h>

#include "core/base/json_writer.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/kernel_model.h"

static void write_curve(dtp_json_writer *w, const dtp_curve *curve)
{
    const double *measured = curve->measured != NULL ? curve->measured : curve->y;
    dtp_json_write_double(w, "fit_error", curve->fit_error);
    dtp_json_begin_array(w, "points", false);
    for (int32_t i = 0; i < curve->n; i++) {
        dtp_json_begin_array(w, NULL, true);
        dtp_json_write_double(w, NULL, curve->x[i]);
        dtp_json_write_double(w, NULL, curve->y[i]);
        dtp_json_write_double(w, NULL, measured[i]);
        dtp_json_end_array(w);
    }
    dtp_json_end_array(w);
}

static void write_curves(dtp_json_writer *w, const dtp_machine *m)
{
    if (m->n_op_curves + m->n_gemm == 0) {
        return;
    }
    dtp_json_begin_object(w, "curves");
    if (m->n_op_curves > 0) {
        dtp_json_begin_array(w, "ops", false);
        for (int32_t i = 0; i < m->n_op_curves; i++) {
            const dtp_op_curve *c = &m->op_curves[i];
            dtp_json_begin_object(w, NULL);
            dtp_json_write_string(w, "op", c->op);
            if (c->dtype != DTP_F32) {
                dtp_json_write_string(w, "dtype", dtp_dtype_name(c->dtype));
            }
            if (c->flops < 0.0 || c->flops > 0.0 || isnan(c->flops)) {
                dtp_json_write_double(w, "flops", c->flops);
            }
            write_curve(w, &c->time_s);
            dtp_json_end_object(w);
        }
        dtp_json_end_array(w);
    }
    if (m->n_gemm > 0) {
        dtp_json_begin_object(w, "gemm");
        dtp_json_write_double(w, "fit_error", m->gemm_fit_error);
        dtp_json_begin_array(w, "points", false);
        for (int32_t i = 0; i < m->n_gemm; i++) {
            const dtp_gemm_point *p = &m->gemm[i];
            dtp_json_begin_array(w, NULL, true);
            dtp_json_write_int(w, NULL, p->m);
            dtp_json_write_int(w, NULL, p->n);
            dtp_json_write_int(w, NULL, p->k);
            dtp_json_write_int(w, NULL, p->trans_a ? 1 : 0);
            dtp_json_write_int(w, NULL, p->trans_b ? 1 : 0);
            dtp_json_write_double(w, NULL, p->flops);
            if (p->arithmetic != DTP_F32 || p->batch != 1) {
                dtp_json_write_string(w, NULL, dtp_arithmetic_name(p->arithmetic));
            }
            if (p->batch != 1) {
                dtp_json_write_int(w, NULL, p->batch);
            }
            dtp_json_end_array(w);
        }
        dtp_json_end_array(w);
        dtp_json_end_object(w);
    }
    dtp_json_end_object(w);
}

static void write_device(dtp_json_writer *w, const dtp_machine *m)
{
    dtp_json_begin_object(w, "device");
    dtp_json_write_string(w, "kind", m->kind);
    dtp_json_write_int(w, "memory_bytes", m->memory_bytes);
    dtp_json_write_double(w, "mem_bw_Bps", m->mem_bw_Bps);
    dtp_json_write_double(w, "launch_s", m->launch_s);
    if (!(m->launch_graph_s < 0.0)) {
        dtp_json_write_double(w, "launch_graph_s", m->launch_graph_s);
    }
    if (m->host_s < 0.0 || m->host_s > 0.0 || isnan(m->host_s)) {
        dtp_json_write_double(w, "host_s", m->host_s);
    }
    dtp_json_begin_object(w, "flops");
    for (int32_t d = 0; d < DTP_N_ARITHMETICS; d++) {
        if (m->flops[d] < 0.0 || m->flops[d] > 0.0 || isnan(m->flops[d])) {
            dtp_json_write_double(w, dtp_arithmetic_name(d), m->flops[d]);
        }
    }
    dtp_json_end_object(w);
    dtp_json_write_bool(w, "overlap", m->overlap);
    dtp_json_begin_object(w, "overlap_slowdown");
    dtp_json_write_double(w, "compute", m->slowdown.compute);
    dtp_json_write_double(w, "comm", m->slowdown.comm);
    dtp_json_end_object(w);
    dtp_kernel_models_write(w, m);
    write_curves(w, m);
    dtp_json_end_object(w);
}

static void write_rates(dtp_json_writer *w, const dtp_level *level)
{
    bool any = false;
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        const dtp_coll_rate *r = &level->rates[k];
        if (!(r->share > 0.0)) {
            continue;
        }
        if (!any) {
            dtp_json_begin_object(w, "collectives");
        }
        any = true;
        dtp_json_begin_object(w, dtp_coll_name((dtp_coll_kind)k));
        dtp_json_write_double(w, "start_s", r->start_s);
        dtp_json_write_double(w, "rank_s", r->rank_s);
        dtp_json_write_double(w, "ramp_bytes", r->ramp_bytes);
        dtp_json_write_double(w, "share", r->share);
        if (r->in_switch < DTP_NO_SWITCH) {
            dtp_json_write_double(w, "in_switch", r->in_switch);
        }
        dtp_json_end_object(w);
    }
    if (any) {
        dtp_json_end_object(w);
    }
}

static void write_text(dtp_json_writer *w, const char *key, const char *value)
{
    if (value[0] != '\0') {
        dtp_json_write_string(w, key, value);
    }
}

dtp_status dtp_machine_write(const dtp_machine *m, char **text, dtp_err *err)
{
    dtp_json_writer w = {0};
    dtp_json_begin_object(&w, NULL);
    dtp_json_write_string(&w, "format", "dtp.machine/1");
    dtp_json_write_string(&w, "name", m->name);
    write_device(&w, m);
    dtp_json_begin_array(&w, "levels", false);
    for (int32_t l = 0; l < m->n_levels; l++) {
        dtp_json_begin_object(&w, NULL);
        dtp_json_write_string(&w, "name", m->levels[l].name);
        dtp_json_write_int(&w, "size", m->levels[l].size);
        dtp_json_write_double(&w, "latency_s", m->levels[l].latency_s);
        dtp_json_write_double(&w, "bw_Bps", m->levels[l].bw_Bps);
        if (m->levels[l].hop_s > 0.0) {
            dtp_json_write_double(&w, "hop_s", m->levels[l].hop_s);
        }
        if (m->levels[l].skew > 0.0) {
            dtp_json_write_double(&w, "skew", m->levels[l].skew);
        }
        write_rates(&w, &m->levels[l]);
        dtp_json_end_object(&w);
    }
    dtp_json_end_array(&w);
    dtp_efficiency_write(&w, m);
    write_text(&w, "runtime", m->runtime);
    dtp_json_begin_object(&w, "provenance");
    dtp_json_write_string(&w, "how",
                          m->provenance_how[0] != '\0' ? m->provenance_how : "datasheet");
    write_text(&w, "date", m->provenance_date);
    write_text(&w, "host", m->provenance_host);
    write_text(&w, "tool", m->provenance_tool);
    write_text(&w, "device", m->provenance_device);
    write_text(&w, "blas", m->blas);
    if (m->provenance_threads > 0) {
        dtp_json_write_int(&w, "threads", m->provenance_threads);
    }
    if (m->provenance_ranks > 0) {
        dtp_json_write_int(&w, "ranks", m->provenance_ranks);
    }
    dtp_json_end_object(&w);
    if (m->yes_units) {
        dtp_json_write_bool(&w, "yes_units", true);
    }
    dtp_json_end_object(&w);
    dtp_strbuf_add(&w.buf, "\n");
    if (w.buf.failed) {
        dtp_strbuf_free(&w.buf);
        return DTP_FAIL(err, DTP_NOMEM, "machine '%s': out of memory", m->name);
    }
    *text = w.buf.text;
    return DTP_OK;
}
