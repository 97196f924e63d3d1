/* Readable forms of the stages: graph, strategies, plan, memory, communication. */
#include "tools/dtplan/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/graph/op_rules.h"
#include "cost_models/comm_report.h"
#include "cost_models/price.h"
#include "interop/counters.h"
#include "spmd/lower/lower.h"
#include "spmd/program/peak.h"
#include "spmd/redistribute/steps.h"
#include "tools/report.h"

static const char *const KINDS[] = {"input", "param", "state", "value"};
static const char *const PHASES[] = {"forward", "backward", "update"};

const char *tool_tensor_kind(dtp_tensor_kind kind)
{
    return KINDS[kind];
}

/* ---- graph ---- */

static void print_attr(const dtp_graph *g, const dtp_op_def *op, int32_t index, const dtp_attr *a,
                       dtp_strbuf *out)
{
    switch (a->kind) {
    case DTP_ATTR_FLOAT:
        dtp_strbuf_addf(out, " %s=%g", a->key, a->f);
        break;
    case DTP_ATTR_ENUM:
        dtp_strbuf_addf(out, " %s=%s", a->key, op->attrs[index].choices[a->i]);
        break;
    case DTP_ATTR_DTYPE:
        if (a->i != DTP_NO_DTYPE) {
            dtp_strbuf_addf(out, " %s=%s", a->key, dtp_dtype_name((dtp_dtype)a->i));
        }
        break;
    case DTP_ATTR_DIM:
        dtp_strbuf_addf(out, " %s=%s", a->key, dtp_dims_name(&g->dims, (dtp_dim_id)a->i));
        break;
    case DTP_ATTR_DIMS:
        for (int32_t i = 0; i < a->n; i++) {
            dtp_strbuf_addf(out, "%s%s%s%s", i == 0 ? " " : "+", i == 0 ? a->key : "",
                            i == 0 ? "=" : "", dtp_dims_name(&g->dims, a->ids[i]));
        }
        break;
    case DTP_ATTR_INTS:
        for (int32_t i = 0; i < a->n; i++) {
            dtp_strbuf_addf(out, "%s%s%s%" PRId32, i == 0 ? " " : ",", i == 0 ? a->key : "",
                            i == 0 ? "=" : "", a->ints[i]);
        }
        break;
    case DTP_ATTR_INT:
    case DTP_ATTR_BOOL:
        dtp_strbuf_addf(out, " %s=%" PRId64, a->key, a->i);
        break;
    }
}

void tool_print_graph(const dtp_graph *g, dtp_strbuf *out)
{
    int64_t elems = 0, frozen = 0, bytes = 0;
    dtp_strbuf_add(out, g->tf32 ? "products of f32 round their operands to tf32\n" : "");
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind == DTP_TENSOR_VALUE) {
            continue;
        }
        char type[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&tensor->type, &g->dims, type);
        dtp_strbuf_addf(out, "%-8s %s %s%s\n", KINDS[tensor->kind], tensor->name, type,
                        tensor->frozen ? " frozen" : "");
        bool param = tensor->kind == DTP_TENSOR_PARAM;
        elems += param ? dtp_ttype_elems(&tensor->type) : 0;
        frozen += tensor->frozen ? dtp_ttype_elems(&tensor->type) : 0;
        bytes += tensor->kind == DTP_TENSOR_INPUT ? 0 : dtp_ttype_bytes(&tensor->type);
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        dtp_strbuf_addf(out, "%-8s %s = %s(", PHASES[node->phase], node->name, node->op->name);
        for (int32_t i = 0; i < node->n_in; i++) {
            dtp_strbuf_addf(out, "%s%s", i > 0 ? ", " : "", g->tensors[node->in[i]].name);
        }
        dtp_strbuf_add(out, ")");
        for (int32_t i = 0; i < node->n_attrs; i++) {
            print_attr(g, node->op, i, &node->attrs[i], out);
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            char type[DTP_TTYPE_TEXT_BYTES];
            dtp_ttype_print(&g->tensors[node->out[i]].type, &g->dims, type);
            dtp_strbuf_addf(out, "%s %s", i == 0 ? " ->" : ",", type);
        }
        dtp_strbuf_add(out, "\n");
    }
    dtp_strbuf_addf(out,
                    "# %s: %d tensors, %d nodes, %s parameters%s%s%s, %s of parameters and "
                    "optimizer state\n",
                    g->name, g->n_tensors, g->n_nodes, dtp_amount((double)elems).text,
                    frozen > 0 ? " (" : "", frozen > 0 ? dtp_amount((double)frozen).text : "",
                    frozen > 0 ? " frozen)" : "", dtp_byte_count((double)bytes).text);
}

/* ---- strategies ---- */

static void print_place(const dtp_graph *g, const dtp_ttype *type, const dtp_placement *p,
                        dtp_strbuf *out)
{
    if (p->kind == DTP_SHARD) {
        dtp_strbuf_addf(out, "S(%s)", dtp_dims_name(&g->dims, type->dims[p->axis].id));
    } else if (p->kind == DTP_PARTIAL) {
        dtp_strbuf_addf(out, "P(%s)", dtp_reduce_op_name((dtp_reduce_op)p->op));
    } else {
        dtp_strbuf_add(out, "R");
    }
}

void tool_print_strategies(const dtp_graph *g, dtp_strbuf *out)
{
    for (int32_t n = 0; n < g->n_nodes; n++) {
        dtp_call_types types;
        dtp_sharding_rules set;
        dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        dtp_sharding_rules_of(&call, true, &set);
        dtp_strbuf_addf(out, "%s (%s): %d rows on one mesh dim\n", g->nodes[n].name, call.op->name,
                        set.n);
        for (int32_t r = 0; r < set.n; r++) {
            const dtp_sharding_rule *row = &set.rows[r];
            dtp_strbuf_addf(out, "  %2d ", r);
            for (int32_t i = 0; i < call.n_in; i++) {
                dtp_strbuf_add(out, i > 0 ? ", " : "");
                print_place(g, &call.in[i], &row->in[i], out);
            }
            dtp_strbuf_add(out, " -> ");
            for (int32_t i = 0; i < call.n_out; i++) {
                dtp_strbuf_add(out, i > 0 ? ", " : "");
                print_place(g, &call.out[i], &row->out[i], out);
            }
            dtp_strbuf_add(out, row->internal ? "  (as its decomposition)\n" : "\n");
        }
    }
}

/* ---- plan ---- */

void tool_print_layouts(const dtp_graph *g, const dtp_sharding *s, dtp_strbuf *out)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        char type[DTP_TTYPE_TEXT_BYTES], layout[DTP_LAYOUT_TEXT_BYTES];
        dtp_ttype_print(&tensor->type, &g->dims, type);
        dtp_layout_print(&s->layouts[t], &s->mesh, &tensor->type, &g->dims, layout);
        dtp_strbuf_addf(out, "%-8s %s %s: %s\n", KINDS[tensor->kind], tensor->name, type, layout);
    }
}

/* ---- memory ---- */

typedef struct buffer {
    int64_t offset;
    dtp_value_id value;
} buffer;

static int by_offset(const void *a, const void *b)
{
    const buffer *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->value > y->value) - (x->value < y->value);
}

void tool_print_memory(const dtp_program *p, dtp_strbuf *out)
{
    static const char *const kinds[] = {"resident", "input", "temp", "staging", "workspace"};
    buffer *list = calloc((size_t)p->n_values + 1, sizeof *list);
    int32_t n = 0;
    if (list == NULL) {
        out->failed = true;
        return;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].parent < 0) {
            list[n++] = (buffer){p->values[v].offset, v};
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_offset);
    dtp_strbuf_addf(out, "# peak %s per rank, %d buffers\n",
                    dtp_byte_count((double)p->peak_bytes).text, n);
    double kept = 0;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        kept += dtp_value_is_kept_copy(p, v) ? (double)p->values[v].bytes : 0;
    }
    if (kept > 0) {
        dtp_strbuf_addf(out, "# of gathered copies %s are kept for the backward pass\n",
                        dtp_byte_count(kept).text);
    }
    dtp_strbuf_addf(out, "%10s %10s %10s %7s..%-7s %s\n", "offset", "size", "kind", "first", "last",
                    "value");
    for (int32_t i = 0; i < n; i++) {
        const dtp_value *v = &p->values[list[i].value];
        dtp_strbuf_addf(
            out, "%10s %10s %10s %7d..%-7d %s\n", dtp_byte_count((double)v->offset).text,
            dtp_byte_count((double)v->bytes).text, kinds[v->kind], v->first, v->last, v->name);
    }
    free(list);
}

/* ---- collectives ---- */

/* A program and its report, for the rows of lists. */
typedef struct comm_lists {
    const dtp_program *p;
    const dtp_comm_report *r;
} comm_lists;

static void total_row(tool_rows *rows, const void *user, int32_t i)
{
    const comm_lists *c = user;
    const dtp_comm_total *t = &c->r->totals[i];
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("phase", dtp_phase_name(t->phase)),
                         FIELD_TEXT("kind", dtp_coll_name(t->kind)),
                         FIELD_DIMS("mesh_dims", &c->p->mesh, t->set),
                         FIELD_INT("count", t->sum.count), FIELD_BYTES("bytes", t->sum.bytes)));
}

/* What a module communicates, a line for each phase: "loss  forward   AR 6, AG 1 (2.000 KiB)". */
static void print_module(const dtp_comm_module *m, const char *name, dtp_strbuf *out)
{
    for (int32_t phase = 0; phase < DTP_N_PHASES; phase++) {
        const dtp_comm_amount *counts = m->counts[phase];
        const char *between = "";
        int64_t bytes = 0;
        for (int32_t k = 0; k < DTP_N_COLLS; k++) {
            if (counts[k].count > 0) {
                if (between[0] == '\0') {
                    dtp_strbuf_addf(out, "%-36s  %-9s ", name, dtp_phase_name((dtp_phase)phase));
                    name = "";
                }
                dtp_strbuf_addf(out, "%s %s %" PRId64, between,
                                dtp_comm_short_name((dtp_coll_kind)k), counts[k].count);
                between = ",";
                bytes += counts[k].bytes;
            }
        }
        if (between[0] != '\0') {
            dtp_strbuf_addf(out, " (%s)\n", dtp_byte_count((double)bytes).text);
        }
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

static void entry_row(tool_rows *rows, const void *user, int32_t i)
{
    const comm_lists *c = user;
    const dtp_graph *g = c->p->graph;
    const dtp_comm_entry *e = &c->r->entries[i];
    dtp_strbuf cause = {0};
    print_cause(c->p, e, &cause);
    tool_row(rows, TOOL_FIELDS(
                       FIELD_TEXT("phase", dtp_phase_name(e->phase)),
                       FIELD_TEXT("kind", dtp_coll_name(e->kind)),
                       FIELD_DIMS("mesh_dims", &c->p->mesh, e->set), FIELD_BYTES("bytes", e->bytes),
                       FIELD_NOTE(&cause), FIELD_TEXT("cause", dtp_comm_cause_name(e->cause)),
                       FIELD_TEXT("module", e->module),
                       FIELD_TEXT("node", e->node >= 0 ? g->nodes[e->node].name : NULL),
                       FIELD_TEXT("tensor", e->tensor >= 0 ? g->tensors[e->tensor].name : NULL),
                       FIELD_INT("members", e->members)));
}

/* The counts of a module by phase and kind. */
static void module_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_comm_module *m = &((const comm_lists *)user)->r->modules[i];
    tool_field amounts[DTP_N_PHASES][DTP_N_COLLS][3], kinds[DTP_N_PHASES][DTP_N_COLLS + 1];
    tool_field phases[DTP_N_PHASES + 2] = {FIELD_TEXT("path", m->path)};
    const tool_field end = {.kind = FIELD_IS_END};
    for (int32_t k = 0; k < DTP_N_PHASES; k++) {
        for (int32_t c = 0; c < DTP_N_COLLS; c++) {
            const dtp_comm_amount *a = &m->counts[k][c];
            amounts[k][c][0] = (tool_field)FIELD_INT("count", a->count);
            amounts[k][c][1] = (tool_field)FIELD_INT("bytes", a->bytes);
            amounts[k][c][2] = end;
            kinds[k][c] = (tool_field)FIELD_GROUP(dtp_coll_name((dtp_coll_kind)c), amounts[k][c]);
            kinds[k][c].kind = a->count > 0 ? FIELD_IS_OBJECT : FIELD_IS_ABSENT;
        }
        kinds[k][DTP_N_COLLS] = end;
        phases[k + 1] = (tool_field)FIELD_GROUP(dtp_phase_name((dtp_phase)k), kinds[k]);
    }
    phases[DTP_N_PHASES + 1] = end;
    tool_row(rows, phases);
}

static void put_report(const dtp_program *p, const dtp_comm_report *r, dtp_strbuf *out)
{
    static const tool_column totals[] = {{"phase", -9}, {"collective", -15}, {"mesh dims", -12},
                                         {"count", 7},  {"size", 10},        {NULL, 0}};
    static const tool_column entries[] = {{"phase", -9}, {"collective", -15}, {"mesh dims", -12},
                                          {"size", 10},  {"cause", 0},        {NULL, 0}};
    const comm_lists lists = {p, r};
    tool_print_table(out, totals, r->n_totals, total_row, &lists);
    dtp_strbuf_add(out, r->n_totals == 0 ? "none\n" : "");
    /* Depth first, in the order in which modules first communicate. */
    int32_t at = 0;
    dtp_strbuf_addf(out, "\n%-36s  %-9s  %s\n", "module", "phase", "collectives");
    while (at >= 0) {
        const dtp_comm_module *m = &r->modules[at];
        char name[160];
        (void)snprintf(name, sizeof name, "%*s%s", m->depth > 32 ? 64 : 2 * m->depth, "",
                       at == 0 ? "(model)" : m->label);
        print_module(m, name, out);
        if (r->modules[at].first_child >= 0) {
            at = r->modules[at].first_child;
            continue;
        }
        while (at >= 0 && r->modules[at].next < 0) {
            at = r->modules[at].parent;
        }
        at = at < 0 ? -1 : r->modules[at].next;
    }
    dtp_strbuf_add(out, "\n");
    tool_print_table(out, entries, r->n_entries, entry_row, &lists);
}

/* The report of chunk k: of a program in a plan without stages. */
typedef struct comm_chunks {
    const dtp_job *job;
    const dtp_comm_report *reports; /* by chunk */
} comm_chunks;

#define COMM_FIELDS(lists)                                                                         \
    FIELD_LIST("totals", (lists)->r->n_totals, total_row, lists),                                  \
        FIELD_LIST("modules", (lists)->r->n_modules, module_row, lists),                           \
        FIELD_LIST("collectives", (lists)->r->n_entries, entry_row, lists)

static void chunk_row(tool_rows *rows, const void *user, int32_t k)
{
    const comm_chunks *c = user;
    const dtp_pipeline *p = c->job->pipeline;
    const comm_lists lists = {p->programs[k], &c->reports[k]};
    tool_row(rows,
             TOOL_FIELDS(FIELD_INT("stage", k % p->table.n_stages),
                         FIELD_INT_IF(p->n > p->table.n_stages, "chunk", k / p->table.n_stages),
                         COMM_FIELDS(&lists)));
}

void tool_print_chunk(const dtp_pipeline *p, int32_t chunk, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%sstage %d", chunk > 0 ? "\n" : "", chunk % p->table.n_stages);
    if (p->n > p->table.n_stages) {
        dtp_strbuf_addf(out, ", chunk %d", chunk / p->table.n_stages);
    }
    dtp_strbuf_add(out, "\n");
}

dtp_status tool_print_comm(const dtp_job *job, bool json, dtp_strbuf *out, dtp_err *err)
{
    const dtp_pipeline *p = job->pipeline;
    const int32_t n = p != NULL ? p->n : 1;
    dtp_comm_report *reports;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? DTP_NEW(arena, reports, n, err) : s;
    for (int32_t k = 0; k < n && s == DTP_OK; k++) {
        const dtp_program *program = p != NULL ? p->programs[k] : job->program;
        s = dtp_comm_report_make(program, arena, &reports[k], err);
        if (s == DTP_OK && !json) {
            if (p != NULL) {
                tool_print_chunk(p, k, out);
            }
            put_report(program, &reports[k], out);
        }
    }
    if (s == DTP_OK && json) {
        const comm_chunks chunks = {job, reports};
        const comm_lists lists = {job->program, reports};
        dtp_json_writer w = {0};
        tool_report_begin(&w, "dtp.comm_report/1");
        tool_write(&w, TOOL_FIELDS(FIELD_TEXT("model", job->graph->name),
                                   FIELD_MESH(&job->program->mesh)));
        if (p == NULL) {
            tool_write(&w, TOOL_FIELDS(COMM_FIELDS(&lists)));
        } else {
            tool_write(&w, TOOL_FIELDS(FIELD_LIST("stages", p->n, chunk_row, &chunks),
                                       FIELD_LIST("sends", p->times.n_messages, tool_send_row, p)));
        }
        tool_report_end(&w);
        dtp_strbuf_join(out, &w.buf);
    } else if (s == DTP_OK && p != NULL) {
        dtp_strbuf_add(out, "\nsends per rank and step\n");
        for (int32_t i = 0; i < p->times.n_messages; i++) {
            const dtp_stage_message *x = &p->times.messages[i];
            const int32_t sends = dtp_message_sends(p, x);
            dtp_strbuf_addf(out, "%-36s %6d %10s\n", dtp_message_print(p, x).text, sends,
                            dtp_byte_count((double)(sends * x->bytes)).text);
        }
    }
    dtp_arena_destroy(arena);
    return s;
}

dtp_status tool_print_counters(const dtp_program *p, bool json, dtp_strbuf *out, dtp_err *err)
{
    dtp_counters counters;
    dtp_arena *arena = dtp_arena_create();
    const dtp_status s = dtp_counters_of(p, arena, &counters, err);
    if (s == DTP_OK && !json) {
        dtp_counters_print(&counters, out);
    } else if (s == DTP_OK) {
        dtp_json_writer w = {0};
        tool_report(&w, "dtp.counters/1",
                    TOOL_FIELDS(FIELD_TEXT("model", p->graph->name), FIELD_MESH(&p->mesh),
                                FIELD_MAP("counters", counters.n, tool_counter_row, &counters)));
        dtp_strbuf_join(out, &w.buf);
    }
    dtp_arena_destroy(arena);
    return s;
}

/* ---- trace ---- */

static int64_t collective_bytes(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_copy_info *m)
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
        dtp_strbuf_addf(out, "  %s  %s '%s' of '%s'\n",
                        dtp_byte_count((double)collective_bytes(&s->mesh, &t->type, m)).text,
                        m->operand < 0 ? "output" : "operand", t->name, node->name);
    }
    dtp_redistributions_free(&redistributions);
    if (status == DTP_OK) {
        /* What the passes leave of them, with the collectives inside ops: counts by phase. */
        int32_t counts[DTP_N_PHASES][DTP_N_COLLS] = {{0}};
        for (int32_t i = 0; i < p->n_instrs; i++) {
            if (p->instrs[i].kind == DTP_INSTR_START) {
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
    return status;
}
