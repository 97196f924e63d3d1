/* What a program communicates, and why: every collective with its cause and the module it
 * belongs to, and totals by kind, mesh dims and phase and along the tree of module names. */
#include "cost_models/comm_report.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/uses.h"
#include "cost_models/price.h"

const char *dtp_comm_cause_name(dtp_comm_cause cause)
{
    static const char *const names[] = {"operand", "inside", "output", "gradient", "update"};
    return names[cause];
}

const char *dtp_comm_short_name(dtp_coll_kind kind)
{
    static const char *const names[DTP_N_COLLS] = {"AR", "AG", "RS", "A2A", "CP"};
    return names[kind];
}

const char *dtp_phase_name(dtp_phase phase)
{
    static const char *const names[] = {"forward", "backward", "update"};
    return names[phase];
}

typedef struct making {
    const dtp_program *p;
    dtp_arena *arena;
    dtp_tensor_id *tensor; /* by value (dtp_comm_tensors) */
    bool *gradient;        /* by tensor (dtp_graph_mark_gradients) */
    dtp_comm_report *out;
} making;

/* ---- causes ---- */

static dtp_comm_cause cause_of(const making *k, const dtp_instr *instr, dtp_tensor_id t)
{
    if (instr->phase == DTP_UPDATE) {
        return DTP_COMM_UPDATE;
    }
    if (t < 0) {
        return DTP_COMM_INSIDE;
    }
    if (k->p->graph->tensors[t].producer != instr->node) {
        return DTP_COMM_OPERAND;
    }
    return k->gradient[t] ? DTP_COMM_GRADIENT : DTP_COMM_OUTPUT;
}

/* The name that a node goes by in the tree of modules: that of the forward node it belongs to, or
 * of the parameter that it updates. */
static const char *module_of(const dtp_graph *g, dtp_node_id n)
{
    if (n < 0) {
        return "";
    }
    const dtp_node *node = &g->nodes[n];
    if (node->phase == DTP_UPDATE && node->n_in > 0) {
        return g->tensors[node->in[0]].name;
    }
    return node->origin >= 0 ? g->nodes[node->origin].name : node->name;
}

/* The dotted prefix that two names share. */
static size_t common_prefix(const char *a, size_t n, const char *b)
{
    size_t same = 0, i = 0;
    for (; i < n && a[i] == b[i]; i++) {
        same = a[i] == '.' ? i : same;
    }
    const bool whole = i == n && (b[i] == '\0' || b[i] == '.');
    return whole ? n : same;
}

dtp_status dtp_comm_tensors(const dtp_program *p, dtp_arena *arena, dtp_tensor_id **out,
                            dtp_err *err)
{
    dtp_tensor_id *tensor;
    DTP_TRY(DTP_NEW(arena, tensor, p->n_values, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        tensor[v] = p->values[v].tensor;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const bool moves = instr->kind == DTP_INSTR_COPY || instr->kind == DTP_INSTR_START;
        for (int32_t k = 0; k < instr->n_out && moves; k++) { /* result k is made of operand k */
            const bool staging = p->values[instr->out[k]].kind == DTP_VALUE_STAGING;
            tensor[instr->out[k]] = tensor[staging ? instr->in[k] : instr->out[k]];
        }
    }
    *out = tensor;
    return DTP_OK;
}

/* A bucket goes by what the names of its members have in common; each is named by the node that
 * made the tensor, a parameter by itself. Reductions are of gradients when all of them are. */
static dtp_status describe_bucket(const making *k, const dtp_instr *instr, dtp_comm_entry *e,
                                  dtp_err *err)
{
    const dtp_graph *g = k->p->graph;
    const char *name = NULL;
    size_t n = 0;
    e->members = instr->n_in;
    e->cause = cause_of(k, instr, k->tensor[instr->in[0]]);
    if (dtp_coll_reduces(e->kind) && instr->phase != DTP_UPDATE) {
        e->cause = DTP_COMM_GRADIENT;
    }
    for (int32_t i = 0; i < instr->n_in; i++) {
        const dtp_tensor_id t = k->tensor[instr->in[i]];
        const dtp_node_id producer = t < 0 ? -1 : g->tensors[t].producer;
        const char *module = t >= 0 && producer < 0 ? g->tensors[t].name : module_of(g, producer);
        if (e->cause == DTP_COMM_GRADIENT && (t < 0 || !k->gradient[t])) {
            e->cause = DTP_COMM_OUTPUT;
        }
        n = name == NULL ? strlen(module) : common_prefix(name, n, module);
        name = name == NULL ? module : name;
    }
    char *copy;
    DTP_TRY(DTP_NEW(k->arena, copy, n + 1, err));
    memcpy(copy, name == NULL ? "" : name, n);
    e->node = e->tensor = -1;
    e->module = copy;
    return DTP_OK;
}

static dtp_status describe(const making *k, int32_t i, dtp_comm_entry *e, dtp_err *err)
{
    const dtp_instr *instr = &k->p->instrs[i];
    *e = (dtp_comm_entry){.instr = i,
                          .phase = instr->phase,
                          .runs = dtp_instr_runs(k->p, instr),
                          .kind = instr->coll.kind,
                          .set = instr->coll.set,
                          .bytes = (int64_t)dtp_coll_full_bytes(
                              instr->coll.kind, instr->coll.count, instr->coll.dtype,
                              dtp_mesh_set_size(&k->p->mesh, instr->coll.set)),
                          .members = 1};
    if (instr->n_in > 1) {
        return describe_bucket(k, instr, e, err);
    }
    e->node = instr->node;
    e->tensor = k->tensor[instr->in[0]];
    e->cause = cause_of(k, instr, e->tensor);
    e->module = module_of(k->p->graph, instr->node);
    return DTP_OK;
}

/* ---- modules ---- */

static dtp_status add_module(making *k, int32_t parent, const char *path, size_t n, int32_t *out,
                             dtp_err *err)
{
    dtp_comm_report *r = k->out;
    DTP_TRY(dtp_arena_grow(k->arena, &r->modules, r->n_modules, r->n_modules + 1, &r->cap_modules,
                           sizeof *r->modules, err));
    char *copy;
    DTP_TRY(DTP_NEW(k->arena, copy, n + 1, err));
    memcpy(copy, path, n);
    *out = r->n_modules++;
    dtp_comm_module *m = &r->modules[*out];
    const char *dot = strrchr(copy, '.');
    memset(m, 0, sizeof *m);
    m->path = copy;
    m->label = dot == NULL ? copy : dot + 1;
    m->parent = parent;
    m->first_child = m->last_child = m->next = -1;
    if (parent >= 0) {
        dtp_comm_module *up = &r->modules[parent];
        m->depth = up->depth + 1;
        if (up->last_child < 0) {
            up->first_child = *out;
        } else {
            r->modules[up->last_child].next = *out;
        }
        up->last_child = *out;
    }
    return DTP_OK;
}

static dtp_status find_module(making *k, int32_t parent, const char *path, size_t n, int32_t *out,
                              dtp_err *err)
{
    const dtp_comm_report *r = k->out;
    for (int32_t c = r->modules[parent].first_child; c >= 0; c = r->modules[c].next) {
        if (strlen(r->modules[c].path) == n && memcmp(r->modules[c].path, path, n) == 0) {
            *out = c;
            return DTP_OK;
        }
    }
    return add_module(k, parent, path, n, out, err);
}

static void count(making *k, int32_t module, const dtp_comm_entry *e)
{
    dtp_comm_amount *c = &k->out->modules[module].counts[e->phase][e->kind];
    c->count += e->runs;
    c->bytes += e->runs * e->bytes;
}

static dtp_status count_along(making *k, const dtp_comm_entry *e, dtp_err *err)
{
    int32_t at = 0;
    const size_t n = strlen(e->module);
    count(k, 0, e);
    for (size_t i = 1; i <= n; i++) {
        if (i == n || e->module[i] == '.') {
            DTP_TRY(find_module(k, at, e->module, i, &at, err));
            count(k, at, e);
        }
    }
    return DTP_OK;
}

/* ---- totals ---- */

static int by_key(const void *a, const void *b)
{
    const dtp_comm_total *x = a, *y = b;
    if (x->phase != y->phase) {
        return x->phase < y->phase ? -1 : 1;
    }
    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    return (x->set > y->set) - (x->set < y->set);
}

/* ---- the report ---- */

static dtp_status prepare(making *k, dtp_err *err)
{
    const dtp_program *p = k->p;
    const dtp_graph *g = p->graph;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += p->instrs[i].kind == DTP_INSTR_START ? 1 : 0;
    }
    DTP_TRY(dtp_comm_tensors(p, k->arena, &k->tensor, err));
    DTP_TRY(DTP_NEW(k->arena, k->gradient, g->n_tensors, err));
    DTP_TRY(DTP_NEW(k->arena, k->out->entries, n, err));
    DTP_TRY(DTP_NEW(k->arena, k->out->totals, n, err));
    dtp_graph_mark_gradients(g, k->gradient);
    return DTP_OK;
}

dtp_status dtp_comm_report_make(const dtp_program *p, dtp_arena *arena, dtp_comm_report *out,
                                dtp_err *err)
{
    making k = {.p = p, .arena = arena, .out = out};
    int32_t root;
    *out = (dtp_comm_report){0};
    DTP_TRY(prepare(&k, err));
    DTP_TRY(add_module(&k, -1, "", 0, &root, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_START) {
            dtp_comm_entry *e = &out->entries[out->n_entries++];
            DTP_TRY(describe(&k, i, e, err));
            DTP_TRY(count_along(&k, e, err));
        }
    }
    int32_t n = 0;
    for (int32_t i = 0; i < out->n_entries; i++) {
        const dtp_comm_entry *e = &out->entries[i];
        out->totals[i] = (dtp_comm_total){e->phase, e->kind, e->set, {e->runs, e->runs * e->bytes}};
    }
    if (out->n_entries > 0) {
        qsort(out->totals, (size_t)out->n_entries, sizeof *out->totals, by_key);
    }
    for (int32_t i = 0; i < out->n_entries; i++) {
        if (n > 0 && by_key(&out->totals[n - 1], &out->totals[i]) == 0) {
            out->totals[n - 1].sum.count += out->totals[i].sum.count;
            out->totals[n - 1].sum.bytes += out->totals[i].sum.bytes;
        } else {
            out->totals[n++] = out->totals[i];
        }
    }
    out->n_totals = n;
    return DTP_OK;
}
