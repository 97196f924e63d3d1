/* Reference: Mesh TensorFlow's Lowering.add_counter. All values count elements, summed over the
 * ranks
 * ("laid-out size"); a key "a/b" also adds to "a". */
#include "interop/counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 160 };

static dtp_counter *find(const dtp_counters *c, const char *name)
{
    for (int32_t i = 0; i < c->n; i++) {
        if (strcmp(c->list[i].name, name) == 0) {
            return &c->list[i];
        }
    }
    return NULL;
}

static dtp_status add_exact(dtp_counters *c, const char *name, double value, dtp_err *err)
{
    dtp_counter *have = find(c, name);
    if (have == NULL) {
        DTP_TRY(
            dtp_arena_grow(c->arena, &c->list, c->n, c->n + 1, &c->capacity, sizeof *c->list, err));
        have = &c->list[c->n];
        have->name = dtp_arena_strdup(c->arena, name);
        have->value = 0;
        DTP_TRY(DTP_MEMORY(err, have->name));
        c->n++;
    }
    have->value += c->runs * value;
    return DTP_OK;
}

/* Adds to the key and to each of its '/'-prefixes. */
static dtp_status add(dtp_counters *c, const char *key, double value, dtp_err *err)
{
    char prefix[KEY_BYTES];
    size_t n = strlen(key);
    for (size_t i = 1; i < n && n < KEY_BYTES; i++) {
        if (key[i] != '/') {
            continue;
        }
        memcpy(prefix, key, i);
        prefix[i] = '\0';
        DTP_TRY(add_exact(c, prefix, value, err));
    }
    return add_exact(c, key, value, err);
}

/* Product over the distinct dims of the inputs of a call. */
static double union_size(const dtp_op_call *call)
{
    double size = 1;
    for (int32_t i = 0; i < call->n_in; i++) {
        for (int32_t d = 0; d < call->in[i].rank; d++) {
            bool seen = false;
            for (int32_t j = 0; j < i && !seen; j++) {
                seen = dtp_ttype_find(&call->in[j], call->in[i].dims[d].id) >= 0;
            }
            size *= seen ? 1.0 : (double)call->in[i].dims[d].size;
        }
    }
    return size;
}

static double out_size(const dtp_op_call *call, bool all)
{
    double size = 0;
    for (int32_t i = 0; i < call->n_out && (all || i == 0); i++) {
        size += (double)dtp_ttype_elems(&call->out[i]);
    }
    return size;
}

/* The class name that Mesh TensorFlow gives the operation; ops it does not have keep their own
 * name. */
static const char *class_name(const dtp_op_def *op)
{
    const uint32_t kinds =
        op->flags & (DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE | DTP_OP_UPDATE | DTP_OP_RANDOM);
    if (op->mtf_class == NULL && kinds == DTP_OP_ELEMENTWISE && op->max_in == 1) {
        return "SlicewiseOperation";
    }
    if (op->mtf_class == NULL && kinds == (DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE)) {
        return "GenericGradOperation";
    }
    return op->mtf_class != NULL ? op->mtf_class : op->name;
}

static dtp_status count_kernel(dtp_counters *c, const dtp_program *p, const dtp_instr *instr,
                               dtp_err *err)
{
    double laid_out = 0, multiplies = 0;
    dtp_call_types types;
    for (int32_t r = 0; r < dtp_mesh_ranks(&p->mesh); r++) {
        dtp_op_call call = dtp_instr_call(p, instr, r, &types);
        laid_out += out_size(&call, true);
        multiplies += union_size(&call);
    }
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "output/%.100s", class_name(instr->op));
    DTP_TRY(add(c, key, laid_out, err));
    if ((instr->op->flags & DTP_OP_CONTRACTION) != 0) {
        DTP_TRY(add(c, "einsum", multiplies, err));
    }
    return DTP_OK;
}

/* The op on whose behalf a collective runs, in Mesh TensorFlow's words. */
static const char *cause(const dtp_program *p, dtp_node_id node, dtp_coll_kind kind)
{
    const dtp_op_def *op = node >= 0 ? p->graph->nodes[node].op : NULL;
    if (op != NULL && (op->flags & DTP_OP_CONTRACTION) != 0) {
        return "einsum_op";
    }
    if (kind == DTP_ALL_GATHER || kind == DTP_ALL_TO_ALL) {
        return "reshape_op";
    }
    return op == NULL ? "none" : (op->flags & DTP_OP_REDUCTION) != 0 ? "reduce_op" : op->name;
}

/* `elems`: per rank. */
static dtp_status add_moved(dtp_counters *c, const dtp_program *p, const dtp_coll *coll,
                            dtp_node_id node, double elems, dtp_err *err)
{
    static const char *const kinds[DTP_N_COLLS] = {"allreduce", "allconcat", "reducescatter",
                                                   "alltoall", "shift"};
    bool bare = coll->kind == DTP_ALL_GATHER || coll->kind == DTP_ALL_TO_ALL;
    char axes[64], key[KEY_BYTES];
    /* "[0, 1]": mesh dims as a Python list; one dim alone as a number when `bare`. */
    const dtp_mesh_set set = coll->set;
    const size_t room = sizeof axes;
    size_t used = (size_t)snprintf(axes, room, "%s", bare ? "" : "[");
    bool first = true;
    for (int m = 0; m < DTP_MAX_MESH_DIMS; m++) {
        if ((set >> m & 1U) != 0) {
            used += (size_t)snprintf(axes + used, room - used, "%s%d", first ? "" : ", ", m);
            first = false;
        }
    }
    snprintf(axes + used, room - used, "%s", bare ? "" : "]");
    snprintf(key, sizeof key, "%s/%s/%.60s", kinds[coll->kind], axes, cause(p, node, coll->kind));
    return add(c, key, elems * (double)dtp_mesh_ranks(&p->mesh), err);
}

static dtp_status count_collective(dtp_counters *c, const dtp_program *p, const dtp_instr *instr,
                                   dtp_err *err)
{
    const dtp_coll *coll = &instr->coll;
    const double n = (double)dtp_mesh_set_size(&p->mesh, coll->set);
    const double parts = coll->kind == DTP_ALL_REDUCE ? 1.0 : n;
    if (instr->n_in > 1) {
        /* The members of a bucket count one by one, each for the node that made it. */
        for (int32_t i = 0; i < instr->n_in; i++) {
            const dtp_value *v = &p->values[instr->in[i]];
            const dtp_node_id node = v->tensor >= 0 ? p->graph->tensors[v->tensor].producer : -1;
            const dtp_coll *one = dtp_coll_at(coll, i);
            DTP_TRY(add_moved(c, p, one, node, (double)one->count * parts, err));
        }
        return DTP_OK;
    }
    if (coll->kind == DTP_PERMUTE) {
        char key[32];
        snprintf(key, sizeof key, "shift[%d]", abs(coll->shift));
        return add(c, key, (double)coll->count * (double)dtp_mesh_ranks(&p->mesh), err);
    }
    return add_moved(c, p, coll, instr->node, (double)coll->count * parts, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dtp_counter *)a)->name, ((const dtp_counter *)b)->name);
}

static dtp_status count_instr(dtp_counters *c, const dtp_program *p, const dtp_instr *instr,
                              dtp_err *err)
{
    switch (instr->kind) {
    case DTP_INSTR_KERNEL:
        return count_kernel(c, p, instr, err);
    case DTP_INSTR_START:
        return count_collective(c, p, instr, err);
    default:
        return DTP_OK;
    }
}

dtp_status dtp_counters_of(const dtp_program *p, dtp_arena *arena, dtp_counters *out, dtp_err *err)
{
    *out = (dtp_counters){.arena = arena};
    const dtp_graph *g = p->graph;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        out->runs = dtp_graph_runs(g, g->nodes[n].phase);
        /* What an op of the graph asks for, whatever the layout. */
        dtp_call_types types;
        dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "output_unique/%.100s", class_name(call.op));
        DTP_TRY(add(out, key, out_size(&call, true), err));
        const bool einsum = (call.op->flags & DTP_OP_CONTRACTION) != 0;
        DTP_TRY(einsum ? add(out, "einsum_unique", union_size(&call), err) : DTP_OK);
    }
    out->runs = 1;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const bool trains = dtp_tensor_trains(&g->tensors[t]);
        if (g->tensors[t].kind != DTP_TENSOR_PARAM && g->tensors[t].kind != DTP_TENSOR_STATE) {
            continue;
        }
        const double elems = (double)dtp_ttype_elems(&g->tensors[t].type);
        DTP_TRY(add(out, trains ? "variables/trainable" : "variables/untrainable", elems, err));
        DTP_TRY(add(out, "output_unique/Variable", elems, err));
    }
    /* What parameters and states take on all ranks together. */
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        double elems = 0;
        for (int32_t r = 0; r < dtp_mesh_ranks(&p->mesh) && p->values[v].kind == DTP_VALUE_RESIDENT;
             r++) {
            dtp_ttype local;
            dtp_value_local(p, v, r, &local, NULL);
            elems += (double)dtp_ttype_elems(&local);
        }
        if (p->values[v].kind == DTP_VALUE_RESIDENT) {
            DTP_TRY(add(out, "output/Variable", elems, err));
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        out->runs = dtp_instr_runs(p, &p->instrs[i]);
        DTP_TRY(count_instr(out, p, &p->instrs[i], err));
    }
    if (out->n > 0) {
        qsort(out->list, (size_t)out->n, sizeof *out->list, by_name);
    }
    return DTP_OK;
}

double dtp_counters_get(const dtp_counters *c, const char *name)
{
    const dtp_counter *have = find(c, name);
    return have != NULL ? have->value : 0.0;
}

void dtp_counters_print(const dtp_counters *c, dtp_strbuf *out)
{
    for (int32_t i = 0; i < c->n; i++) {
        for (const char *p = c->list[i].name; *p != '\0'; p++) {
            dtp_strbuf_add(out, *p == '/' ? " " : "");
        }
        dtp_strbuf_addf(out, "%s: %.3g\n", c->list[i].name, c->list[i].value);
    }
}
