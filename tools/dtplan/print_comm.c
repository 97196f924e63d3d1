#include "tools/dtplan/print_comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "cost_models/comm_report.h"
#include "cost_models/price.h"
#include "interop/counters.h"
#include "spmd/propagate/redistributions.h"
#include "spmd/redistribute/steps.h"
#include "tools/report.h"

static const char *const SHORT[DTP_N_COLLS] = {"AR", "AG", "RS", "A2A", "CP"};

/* ---- text ---------------------------------------------------------------------------------------
 */

static void print_set(const dtp_mesh *mesh, dtp_mesh_set set, char out[DTP_MESH_TEXT_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            used += (size_t)snprintf(out + used, DTP_MESH_TEXT_BYTES - used, "%s%s",
                                     used > 0 ? "+" : "", mesh->names[m]);
        }
    }
}

static void print_totals(const dtp_program *p, const dtp_comm_report *r, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-9s %-15s %-12s %7s %14s\n", "phase", "collective", "mesh dims", "count",
                    "bytes");
    for (int32_t i = 0; i < r->n_totals; i++) {
        const dtp_comm_total *t = &r->totals[i];
        char set[DTP_MESH_TEXT_BYTES];
        print_set(&p->mesh, t->set, set);
        dtp_strbuf_addf(out, "%-9s %-15s %-12s %7" PRId64 " %14" PRId64 "\n",
                        dtp_phase_name(t->phase), dtp_coll_name(t->kind), set, t->sum.count,
                        t->sum.bytes);
    }
    if (r->n_totals == 0) {
        dtp_strbuf_add(out, "none\n");
    }
}

/* "AR 6 AG 1 (2048 B)", "-" when there is nothing. */
static void print_counts(const dtp_comm_amount counts[DTP_N_COLLS], char *out, size_t room)
{
    size_t used = 0;
    int64_t bytes = 0;
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        if (counts[k].count > 0 && used < room) {
            used += (size_t)snprintf(out + used, room - used, "%s%s %" PRId64, used > 0 ? " " : "",
                                     SHORT[k], counts[k].count);
            bytes += counts[k].bytes;
        }
    }
    (void)snprintf(out + (used < room ? used : room - 1), used < room ? room - used : 1,
                   used > 0 ? " (%" PRId64 " B)" : "-", bytes);
}

static void print_module(const dtp_comm_report *r, int32_t module, dtp_strbuf *out)
{
    const dtp_comm_module *m = &r->modules[module];
    char name[160], counts[DTP_N_PHASES][96];
    (void)snprintf(name, sizeof name, "%*s%s", m->depth > 32 ? 64 : 2 * m->depth, "",
                   module == 0 ? "(model)" : m->label);
    for (int32_t k = 0; k < DTP_N_PHASES; k++) {
        print_counts(m->counts[k], counts[k], sizeof counts[k]);
    }
    dtp_strbuf_addf(out, "%-28s %-26s %-26s %s\n", name, counts[DTP_FORWARD], counts[DTP_BACKWARD],
                    counts[DTP_UPDATE]);
}

/* Depth first, in the order in which modules first communicate. */
static void print_tree(const dtp_comm_report *r, dtp_strbuf *out)
{
    int32_t at = 0;
    dtp_strbuf_addf(out, "\n%-28s %-26s %-26s %s\n", "module", "forward", "backward", "update");
    while (at >= 0) {
        print_module(r, at, out);
        if (r->modules[at].first_child >= 0) {
            at = r->modules[at].first_child;
            continue;
        }
        while (at >= 0 && r->modules[at].next < 0) {
            at = r->modules[at].parent;
        }
        at = at < 0 ? -1 : r->modules[at].next;
    }
}

static void print_cause(const dtp_program *p, const dtp_comm_entry *e, dtp_strbuf *out)
{
    const dtp_graph *g = p->graph;
    if (e->members > 1) {
        dtp_strbuf_addf(out, "%d %ss", e->members, dtp_comm_cause_name(e->cause));
        return;
    }
    const char *node = e->node >= 0 ? g->nodes[e->node].name : "?";
    const char *tensor = e->tensor >= 0 ? g->tensors[e->tensor].name : "?";
    switch (e->cause) {
    case DTP_COMM_OPERAND:
        dtp_strbuf_addf(out, "operand '%s' of '%s'", tensor, node);
        break;
    case DTP_COMM_INSIDE:
        dtp_strbuf_addf(out, "inside '%s' (%s)", node,
                        e->node >= 0 ? g->nodes[e->node].op->name : "?");
        break;
    case DTP_COMM_OUTPUT:
        dtp_strbuf_addf(out, "output '%s'", tensor);
        break;
    default:
        dtp_strbuf_addf(out, "%s '%s'", dtp_comm_cause_name(e->cause), tensor);
        break;
    }
}

static void print_entries(const dtp_program *p, const dtp_comm_report *r, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "\n%-9s %-15s %-12s %14s  %s\n", "phase", "collective", "mesh dims",
                    "bytes", "cause");
    for (int32_t i = 0; i < r->n_entries; i++) {
        const dtp_comm_entry *e = &r->entries[i];
        char set[DTP_MESH_TEXT_BYTES];
        print_set(&p->mesh, e->set, set);
        dtp_strbuf_addf(out, "%-9s %-15s %-12s %14" PRId64 "  ", dtp_phase_name(e->phase),
                        dtp_coll_name(e->kind), set, e->bytes);
        print_cause(p, e, out);
        dtp_strbuf_add(out, "\n");
    }
}

/* ---- JSON ---------------------------------------------------------------------------------------
 */

static void write_set(dtp_json_writer *w, const dtp_mesh *mesh, dtp_mesh_set set)
{
    dtp_json_begin_array(w, "mesh_dims", true);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            dtp_json_write_string(w, NULL, mesh->names[m]);
        }
    }
    dtp_json_end_array(w);
}

static void write_totals(dtp_json_writer *w, const dtp_program *p, const dtp_comm_report *r)
{
    dtp_json_begin_array(w, "totals", false);
    for (int32_t i = 0; i < r->n_totals; i++) {
        const dtp_comm_total *t = &r->totals[i];
        dtp_json_begin_object(w, NULL);
        dtp_json_write_string(w, "phase", dtp_phase_name(t->phase));
        dtp_json_write_string(w, "kind", dtp_coll_name(t->kind));
        write_set(w, &p->mesh, t->set);
        dtp_json_write_int(w, "count", t->sum.count);
        dtp_json_write_int(w, "bytes", t->sum.bytes);
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
}

static void write_name(dtp_json_writer *w, const char *key, const char *name)
{
    if (name == NULL) {
        dtp_json_write_null(w, key);
    } else {
        dtp_json_write_string(w, key, name);
    }
}

static void write_entries(dtp_json_writer *w, const dtp_program *p, const dtp_comm_report *r)
{
    const dtp_graph *g = p->graph;
    dtp_json_begin_array(w, "collectives", false);
    for (int32_t i = 0; i < r->n_entries; i++) {
        const dtp_comm_entry *e = &r->entries[i];
        dtp_json_begin_object(w, NULL);
        dtp_json_write_string(w, "phase", dtp_phase_name(e->phase));
        dtp_json_write_string(w, "kind", dtp_coll_name(e->kind));
        write_set(w, &p->mesh, e->set);
        dtp_json_write_int(w, "bytes", e->bytes);
        dtp_json_write_string(w, "cause", dtp_comm_cause_name(e->cause));
        dtp_json_write_string(w, "module", e->module);
        write_name(w, "node", e->node >= 0 ? g->nodes[e->node].name : NULL);
        write_name(w, "tensor", e->tensor >= 0 ? g->tensors[e->tensor].name : NULL);
        dtp_json_write_int(w, "members", e->members);
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
}

static void write_modules(dtp_json_writer *w, const dtp_comm_report *r)
{
    dtp_json_begin_array(w, "modules", false);
    for (int32_t i = 0; i < r->n_modules; i++) {
        const dtp_comm_module *m = &r->modules[i];
        dtp_json_begin_object(w, NULL);
        dtp_json_write_string(w, "path", m->path);
        for (int32_t k = 0; k < DTP_N_PHASES; k++) {
            dtp_json_begin_object(w, dtp_phase_name((dtp_phase)k));
            for (int32_t c = 0; c < DTP_N_COLLS; c++) {
                if (m->counts[k][c].count > 0) {
                    dtp_json_begin_object(w, dtp_coll_name((dtp_coll_kind)c));
                    dtp_json_write_int(w, "count", m->counts[k][c].count);
                    dtp_json_write_int(w, "bytes", m->counts[k][c].bytes);
                    dtp_json_end_object(w);
                }
            }
            dtp_json_end_object(w);
        }
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
}

static void begin(dtp_json_writer *w, const dtp_program *p, const char *format)
{
    tool_report_begin(w, format);
    dtp_json_write_string(w, "model", p->graph->name);
    dtp_mesh_write(w, &p->mesh);
}

/* Hands the writer's text over, ended by a newline. */
static void end(dtp_json_writer *w, dtp_strbuf *out)
{
    tool_report_end(w);
    dtp_strbuf_add(out, dtp_strbuf_text(&w->buf));
    out->failed = out->failed || w->buf.failed;
    dtp_strbuf_free(&w->buf);
}

/* ---- both ---------------------------------------------------------------------------------------
 */

static void put_report(const dtp_program *p, const dtp_comm_report *r, bool json, dtp_strbuf *out)
{
    if (!json) {
        print_totals(p, r, out);
        print_tree(r, out);
        print_entries(p, r, out);
        return;
    }
    dtp_json_writer w = {0};
    begin(&w, p, "dtp.comm_report/1");
    write_totals(&w, p, r);
    write_modules(&w, r);
    write_entries(&w, p, r);
    end(&w, out);
}

dtp_status tool_print_comm(const dtp_program *p, bool json, dtp_strbuf *out, dtp_err *err)
{
    dtp_comm_report report;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report")
                                 : dtp_comm_report_make(p, arena, &report, err);
    if (s == DTP_OK) {
        put_report(p, &report, json, out);
    }
    dtp_arena_destroy(arena);
    return s;
}

static void put_counters(const dtp_program *p, const dtp_counters *c, bool json, dtp_strbuf *out)
{
    if (!json) {
        dtp_counters_print(c, out);
        return;
    }
    dtp_json_writer w = {0};
    begin(&w, p, "dtp.counters/1");
    dtp_json_begin_object(&w, "counters");
    for (int32_t i = 0; i < c->n; i++) {
        dtp_json_write_double(&w, c->list[i].name, c->list[i].value);
    }
    dtp_json_end_object(&w);
    end(&w, out);
}

dtp_status tool_print_counters(const dtp_program *p, bool json, dtp_strbuf *out, dtp_err *err)
{
    dtp_counters counters;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory for counters")
                                 : dtp_counters_of(p, arena, &counters, err);
    if (s == DTP_OK) {
        put_counters(p, &counters, json, out);
    }
    dtp_arena_destroy(arena);
    return s;
}

/* ---- trace --------------------------------------------------------------------------------------
 */

static int64_t bytes_moved(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_copy_info *m)
{
    const dtp_layout *before = &m->from;
    double bytes = 0;
    for (int32_t i = 0; i < m->steps.n; i++) {
        const dtp_step *step = &m->steps.steps[i];
        dtp_coll_kind kind;
        if (dtp_step_collective(step->kind, &kind)) {
            bytes += dtp_coll_full_bytes(kind, dtp_step_count(mesh, type, before, step),
                                         type->dtype, dtp_mesh_set_size(mesh, step->set));
        }
        before = &step->after;
    }
    return (int64_t)bytes;
}

/* What the passes leave of them, with the collectives inside ops: counts by phase. */
static void put_after_passes(const dtp_program *p, dtp_strbuf *out)
{
    int32_t counts[DTP_N_PHASES][DTP_N_COLLS] = {{0}};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_COLLECTIVE) {
            counts[p->instrs[i].phase][p->instrs[i].coll.kind]++;
        }
    }
    for (int32_t f = 0; f < DTP_N_PHASES; f++) {
        int32_t kinds = 0;
        for (int32_t k = 0; k < DTP_N_COLLS; k++) {
            if (counts[f][k] > 0 && kinds++ == 0) {
                dtp_strbuf_addf(out, "%s after the passes:", dtp_phase_name((dtp_phase)f));
            }
            if (counts[f][k] > 0) {
                dtp_strbuf_addf(out, "%s %d %s", kinds > 1 ? "," : "", counts[f][k],
                                dtp_coll_name((dtp_coll_kind)k));
            }
        }
        dtp_strbuf_add(out, kinds > 0 ? "\n" : "");
    }
}

dtp_status tool_print_trace(const dtp_graph *g, const dtp_sharding *s, const dtp_program *p,
                            dtp_strbuf *out, dtp_err *err)
{
    dtp_redistributions redistributions;
    dtp_status status = dtp_redistributions_find(g, s, p->redistributor, &redistributions, err);
    for (int32_t i = 0; i < redistributions.n && status == DTP_OK; i++) {
        const dtp_copy_info *m = &redistributions.items[i];
        const dtp_node *node = &g->nodes[m->node];
        const dtp_graph_tensor *t = &g->tensors[m->tensor];
        dtp_strbuf_addf(out, "%-9s ", dtp_phase_name(node->phase));
        dtp_steps_trace(&m->from, &m->steps, out);
        dtp_strbuf_addf(out, "  %" PRId64 " B  %s '%s' of '%s'\n",
                        bytes_moved(&s->mesh, &t->type, m), m->operand < 0 ? "output" : "operand",
                        t->name, node->name);
    }
    dtp_redistributions_free(&redistributions);
    if (status == DTP_OK) {
        put_after_passes(p, out);
    }
    return status;
}
