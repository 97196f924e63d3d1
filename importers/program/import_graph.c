/* A graph of ATen ops, from whichever file, as a model of ours: its stages in their order
 * (docs/programs-of-pytorch.md). */
#include "importers/program/import_graph.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/text.h"
#include "importers/aten/aten_const.h"
#include "importers/aten/arg_rules.h"
#include "importers/program/axes/size_check.h"
#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"
#include "importers/program/lowering/tables.h"
#include "importers/program/rewrites/aten_expand.h"
#include "importers/program/rewrites/aten_patterns.h"

/* ---- ops and arguments that are not supported ---- */

typedef struct missing_op {
    const char *op;
    const dtp_aten_node *first;
    const char *why; /* of the first; "" */
    int32_t count;
} missing_op;

/* The part of a node that is not supported: "" the op, or an argument of it; NULL: none. */
static const char *refused(const dtp_importer *m, const dtp_aten_node *node)
{
    const dtp_aten_op *op = dtp_aten_op_find(node);
    const char *why = op == NULL ? "" : dtp_arg_refused(m->g, node, op->args);
    return node->refused != NULL && (why != NULL || node->effect) ? node->refused : why;
}

static dtp_status check_ops(dtp_importer *m, dtp_err *err)
{
    missing_op *list;
    dtp_name_table names = {0};
    int32_t n = 0;
    DTP_TRY(DTP_NEW(m->arena, list, m->g->n_nodes + 1, err));
    for (int32_t i = 0; i < m->g->n_nodes; i++) {
        const dtp_aten_node *node = &m->g->nodes[i];
        const char *why = node->live ? refused(m, node) : NULL;
        if (why == NULL) {
            continue;
        }
        const char *key = dtp_arena_printf(m->arena, "%s %s", node->op, why);
        DTP_TRY(DTP_MEMORY(err, key));
        int32_t k = dtp_name_find(&names, key);
        if (k < 0) {
            k = n++;
            list[k] = (missing_op){node->op, node, why, 0};
            DTP_TRY(dtp_name_add(&names, m->arena, key, k, err));
        }
        list[k].count++;
    }
    for (int32_t k = 0; k < n; k++) {
        dtp_strbuf_addf(&m->report->unsupported, "%s: %d, first in '%s', %s%s%s\n", list[k].op,
                        list[k].count, list[k].first->path, list[k].first->where,
                        list[k].why[0] != '\0' ? ": " : "", list[k].why);
    }
    return n == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED,
                          "%s: %d %s not supported, the first is %s in '%s' (%s)%s%s", m->g->file,
                          n, n == 1 ? "op is" : "ops are", list[0].op, list[0].first->path,
                          list[0].first->where, list[0].why[0] != '\0' ? ": " : "", list[0].why);
}

/* Patterns take nodes together, so the arguments of rows of the table are looked at before them: of
 * nodes that are no constants. A node that is refused stays, and is reported. */
static void refuse_arguments(const dtp_importer *m)
{
    for (int32_t i = 0; i < m->g->n_nodes; i++) {
        dtp_aten_node *node = &m->g->nodes[i];
        const bool constant = node->n_outs > 0 && m->consts[node->outs[0]].is;
        if (node->live && !constant && dtp_aten_op_find(node) != NULL) {
            node->refused = refused(m, node);
            node->effect = node->effect || node->refused != NULL;
        }
    }
}

/* ---- constants ---- */

/* f64 that is neither fed nor given back, where no weight is f64, is computed as f32: positions
 * and their cosines, mostly. Constants are evaluated in f64 nevertheless. */
static void narrow_doubles(const dtp_importer *m)
{
    int32_t n = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < m->g->n_values; i++) {
            dtp_aten_value *v = &m->g->values[i];
            const bool inner =
                v->role == ATEN_NODE || (v->role == ATEN_BUFFER && dtp_const_known(&m->consts[i]));
            if (v->dtype == ATEN_F64 && pass == 0 && !inner) {
                return;
            }
            if (v->dtype == ATEN_F64 && pass == 1) {
                v->dtype = ATEN_F32;
                n++;
            }
        }
        for (int32_t i = 0; i < m->g->n_outputs && pass == 0; i++) {
            if (m->g->values[m->g->outputs[i]].dtype == ATEN_F64) {
                return;
            }
        }
    }
    if (n > 0) {
        dtp_strbuf_add(&m->report->notes, "values of f64 inside of the program are f32\n");
    }
}

/* Values that a constant of ours can be made for need their nodes no more. */
static void cut_constants(dtp_importer *m)
{
    for (int32_t i = 0; i < m->g->n_values; i++) {
        dtp_aten_value *v = &m->g->values[i];
        const dtp_const *c = &m->consts[i];
        if ((v->role == ATEN_NODE || v->role == ATEN_BUFFER) && c->kind != DTP_CONST_OTHER) {
            v->role = ATEN_CONST;
            v->node = -1;
        }
    }
    dtp_aten_mark(m->g);
}

/* ---- axes ---- */

static dtp_status start_axes(dtp_importer *m, dtp_err *err)
{
    dtp_aten *g = m->g;
    char general[512];
    m->axes = (dtp_axes){.arena = m->arena, .g = g, .consts = m->consts};
    DTP_TRY(DTP_NEW(m->arena, m->axes.of, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_values; i++) {
        const dtp_aten_value *v = &g->values[i];
        dtp_general_name(v->role == ATEN_PARAM ? v->source : "", general, sizeof general);
        for (int32_t a = 0; a < v->rank && v->role != ATEN_NODE; a++) {
            const char *origin =
                dtp_arena_printf(m->arena, "%s.%d", v->role == ATEN_PARAM ? general : v->name, a);
            DTP_TRY(DTP_MEMORY(err, origin));
            DTP_TRY(dtp_axis_new(&m->axes, v->sizes[a], origin, &m->axes.of[i][a], err));
        }
    }
    return DTP_OK;
}

static dtp_status at_node(const dtp_importer *m, const dtp_aten_node *node, dtp_status s,
                          dtp_err *err)
{
    return dtp_err_prefixed(s, err, "%s: %s in '%s' (%s)", m->g->file, node->op, node->path,
                            node->where);
}

/* What every row of the table relies on: the first argument is a tensor, or a list of them of the
 * ops that put tensors together. An einsum has its equation first. */
static dtp_status check_operands(const dtp_aten_node *node, const dtp_aten_op *op, dtp_err *err)
{
    const bool einsum = dtp_aten_is(node, "einsum"), list = einsum || op->axes == dtp_axes_cat;
    const dtp_aten_arg *a = node->n_args > (einsum ? 1 : 0) ? &node->args[einsum ? 1 : 0] : NULL;
    bool all = a != NULL && a->kind == (list ? ATEN_VALUES : ATEN_VALUE) && a->n > 0;
    for (int32_t i = 0; all && i < a->n; i++) {
        all = a->values[i] >= 0;
    }
    return all && node->n_outs > 0 ? DTP_OK
                                   : DTP_FAIL(err, DTP_INVALID, "no tensor to read or to make");
}

/* The sizes that the file gives an output against those of its classes. */
static dtp_status check_sizes(const dtp_importer *m, const dtp_aten_node *node, dtp_err *err)
{
    int32_t cls[DTP_FLAT_PARTS];
    for (int32_t i = 0; i < node->n_outs; i++) {
        const dtp_aten_value *v = &m->g->values[node->outs[i]];
        const dtp_axis *axes = m->axes.of[node->outs[i]];
        if (dtp_axis_leaves(&m->axes, v->rank, axes, cls, DTP_FLAT_PARTS) < 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s' has more than %d dims", v->name,
                            DTP_FLAT_PARTS);
        }
        for (int32_t a = 0; a < DTP_MAX_RANK; a++) {
            const int32_t n = dtp_axis_leaves(&m->axes, 1, &axes[a], cls, DTP_FLAT_PARTS);
            int64_t size = 1;
            for (int32_t k = 0; k < n; k++) {
                size *= m->axes.cls[cls[k]].size;
            }
            if (a < v->rank ? size != v->sizes[a] : axes[a].n > 0) {
                return DTP_FAIL(err, DTP_INVALID,
                                "axis %d of '%s' has %" PRId64
                                " elements, but is given as %" PRId64,
                                a, v->name, size, a < v->rank ? v->sizes[a] : 0);
            }
        }
    }
    return DTP_OK;
}

static dtp_status axes_of_node(dtp_importer *m, const dtp_aten_node *node, dtp_err *err)
{
    const dtp_aten_op *op = dtp_aten_op_find(node);
    DTP_TRY(check_operands(node, op, err));
    DTP_TRY(op->axes(&m->axes, node, err));
    return check_sizes(m, node, err);
}

/* Parameters whose names differ in numbers only have the same dims, as have tensors that were made
 * at the same place of two layers. */
static dtp_status join_layers(dtp_importer *m, dtp_err *err)
{
    dtp_axes *x = &m->axes;
    dtp_name_table origins = {0};
    for (int32_t i = 0; i < x->n; i++) {
        const char *origin =
            dtp_arena_printf(m->arena, "%s:%" PRId64, x->cls[i].origin, x->cls[i].size);
        DTP_TRY(DTP_MEMORY(err, origin));
        const int32_t k = dtp_name_find(&origins, origin);
        if (k < 0) {
            DTP_TRY(dtp_name_add(&origins, m->arena, origin, i, err));
        } else {
            const dtp_status s = dtp_class_unify(x, k, i, NULL);
            DTP_TRY(s == DTP_NOMEM ? DTP_FAIL(err, s, "out of memory") : DTP_OK);
        }
    }
    return DTP_OK;
}

static dtp_status find_axes(dtp_importer *m, dtp_err *err)
{
    DTP_TRY(start_axes(m, err));
    for (int32_t i = 0; i < m->g->n_nodes; i++) {
        const dtp_aten_node *node = &m->g->nodes[i];
        if (node->live) {
            DTP_TRY(at_node(m, node, axes_of_node(m, node, err), err));
        }
    }
    DTP_TRY(join_layers(m, err));
    DTP_TRY(dtp_axes_name(&m->axes, err));
    return dtp_axes_check_sizes(&m->axes, err);
}

/* ---- lowering ---- */

static dtp_status lower_all(dtp_importer *m, dtp_err *err)
{
    DTP_TRY(DTP_NEW(m->arena, m->low, m->g->n_values + 1, err));
    DTP_TRY(DTP_NEW(m->arena, m->below, m->g->n_values + 1, err));
    DTP_TRY(DTP_NEW(m->arena, m->read_by, m->g->n_values + 1, err));
    memset(m->below, -1, (size_t)m->g->n_values * sizeof m->below[0]);
    memset(m->read_by, -1, (size_t)m->g->n_values * sizeof m->read_by[0]);
    for (int32_t i = 0; i < m->g->n_nodes; i++) {
        const dtp_aten_node *node = &m->g->nodes[i];
        if (node->live) {
            dtp_lowering l = dtp_lowering_of(m, node, dtp_aten_op_find(node), node->outs[0]);
            DTP_TRY(at_node(m, node, l.op->lower(&l, err), err));
        }
    }
    dtp_carry_bounds(m);
    return DTP_OK;
}

/* ---- the loss ---- */

/* Values that depend on a parameter, of floats. */
static dtp_status find_trained(const dtp_importer *m, bool **out, dtp_err *err)
{
    bool *is;
    DTP_TRY(DTP_NEW(m->arena, is, m->g->n_values + 1, err));
    for (int32_t i = 0; i < m->g->n_values; i++) {
        is[i] = m->g->values[i].role == ATEN_PARAM;
    }
    for (int32_t i = 0; i < m->g->n_nodes; i++) {
        const dtp_aten_node *node = &m->g->nodes[i];
        bool any = false;
        for (int32_t k = 0; k < node->n_args; k++) {
            for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
                any = any || (node->args[k].values[j] >= 0 && is[node->args[k].values[j]]);
            }
        }
        for (int32_t k = 0; k < node->n_outs; k++) {
            is[node->outs[k]] = any && dtp_aten_real_type(m->g->values[node->outs[k]].dtype);
        }
    }
    *out = is;
    return DTP_OK;
}

static dtp_status find_loss(dtp_importer *m, const dtp_graph_import_options *options, dtp_err *err)
{
    int32_t n = 0;
    bool *trained;
    m->loss = -1;
    DTP_TRY(find_trained(m, &trained, err));
    for (int32_t i = 0; i < m->g->n_outputs; i++) {
        const dtp_aten_value *v = &m->g->values[m->g->outputs[i]];
        const bool real = dtp_aten_real_type(v->dtype);
        const int32_t at = m->g->outputs[i];
        if (options->loss != NULL ? strcmp(options->loss, v->name) == 0
                                  : v->rank == 0 && real && trained[at]) {
            n += at == m->loss ? 0 : 1;
            m->loss = at;
            if (v->rank > 0 || !real) {
                return DTP_FAIL(err, DTP_INVALID, "%s: the loss '%s' is no scalar of floats",
                                m->g->file, v->name);
            }
        }
    }
    if (n > 1 || (n == 0 && options->loss != NULL)) {
        return DTP_FAIL(err, DTP_INVALID, "%s: %d outputs may be the loss%s%s: --loss OUTPUT",
                        m->g->file, n, n == 0 ? ", none is called " : "",
                        n == 0 ? options->loss : "");
    }
    return DTP_OK;
}

static dtp_status run_stages(dtp_importer *m, const dtp_graph_import_options *options,
                             dtp_graph_import_result *out, dtp_err *err)
{
    DTP_TRY(dtp_aten_expand(m->g, err));
    DTP_TRY(dtp_const_fold(m->g, &m->consts, err));
    refuse_arguments(m);
    DTP_TRY(dtp_aten_patterns(m->g, m->consts, &m->report->notes, err));
    narrow_doubles(m);
    cut_constants(m);
    DTP_TRY(dtp_tables_store(m, err));
    DTP_TRY(check_ops(m, err));
    DTP_TRY(find_loss(m, options, err));
    DTP_TRY(find_axes(m, err));
    DTP_TRY(dtp_import_share_nodes(m, err));
    DTP_TRY(lower_all(m, err));
    return dtp_import_write(m, options, out, err);
}

dtp_status dtp_import_graph(dtp_aten *g, const dtp_graph_import_options *options,
                            dtp_graph_import_result *out, dtp_err *err)
{
    dtp_importer m = {.arena = g->arena, .g = g, .report = &out->report};
    return run_stages(&m, options, out, err);
}
