/* The nodes that a style speaks of, as a group: which parameters they read, what leaves them, and
 * the backward nodes that belong to them. */
#include <string.h>

#include "interop/styles/style_internal.h"

/* ---- index ---- */

static dtp_status allocate(dtp_arena *arena, int32_t n_keys, int64_t n_nodes, dtp_node_lists *out,
                           dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, out->first, n_keys + 2, err));
    DTP_TRY(DTP_NEW(arena, out->nodes, n_nodes, err));
    return DTP_OK;
}

static bool differentiates(const dtp_node *node)
{
    return node->phase == DTP_BACKWARD && node->origin >= 0;
}

dtp_status dtp_style__index(dtp_style_job *job, dtp_err *err)
{
    const dtp_graph *g = job->g;
    int64_t n_reads = 0;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        n_reads += g->nodes[n].n_in;
    }
    DTP_TRY(allocate(job->arena, g->n_tensors, n_reads, &job->readers, err));
    DTP_TRY(allocate(job->arena, g->n_nodes, g->n_nodes, &job->gradients, err));
    for (int32_t n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            job->readers.first[g->nodes[n].in[i] + 2]++;
        }
        if (differentiates(&g->nodes[n])) {
            job->gradients.first[g->nodes[n].origin + 2]++;
        }
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        job->readers.first[t + 2] += job->readers.first[t + 1];
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        job->gradients.first[n + 2] += job->gradients.first[n + 1];
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            job->readers.nodes[job->readers.first[g->nodes[n].in[i] + 1]++] = n;
        }
        if (differentiates(&g->nodes[n])) {
            job->gradients.nodes[job->gradients.first[g->nodes[n].origin + 1]++] = n;
        }
    }
    return DTP_OK;
}

/* ---- implementations ---- */

static dtp_status set_one(dtp_style_job *job, dtp_node_id n, dtp_err *err)
{
    const char *key = job->style->def->attr;
    const dtp_attr_spec *spec = dtp_implementation_spec(job->g->nodes[n].op, key);
    int32_t at = job->n_implementations;
    if (spec == NULL) {
        return DTP_OK;
    }
    const dtp_implementation s = {n, spec->key, dtp_attr_choice(spec, job->style->implementation)};
    while (at > 0 && job->implementations[at - 1].node >= n) {
        at--;
    }
    if (at < job->n_implementations && job->implementations[at].node == n) {
        return job->implementations[at].value == s.value
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_INVALID, "another style set '%s' of node '%.100s' to '%s'",
                              key, job->g->nodes[n].name,
                              spec->choices[job->implementations[at].value]);
    }
    memmove(&job->implementations[at + 1], &job->implementations[at],
            (size_t)(job->n_implementations - at) * sizeof *job->implementations);
    job->implementations[at] = s;
    job->n_implementations++;
    return DTP_OK;
}

dtp_status dtp_style__set(dtp_style_job *job, dtp_node_id n, dtp_err *err)
{
    if (job->style->implementation == NULL) {
        return DTP_OK;
    }
    DTP_TRY(set_one(job, n, err));
    for (int32_t i = job->gradients.first[n]; i < job->gradients.first[n + 1]; i++) {
        DTP_TRY(set_one(job, job->gradients.nodes[i], err));
    }
    return DTP_OK;
}

/* ---- the group ---- */

bool dtp_style__is_target(const dtp_style_job *job, dtp_node_id n, int32_t operand)
{
    const dtp_node *node = &job->g->nodes[n];
    const dtp_tensor_id param = dtp_graph_param_of(job->g, node->in[operand]);
    return node->phase == DTP_FORWARD && (node->op->flags & (DTP_OP_CAST | DTP_OP_SCALE)) == 0 &&
           !dtp_graph_is_quantized(job->g, node->out[0]) && param >= 0 &&
           (job->node[n] || job->param[param]);
}

bool dtp_style__in_group(const dtp_style_job *job, dtp_node_id n)
{
    bool inside = job->node[n];
    for (int32_t i = 0; i < job->g->nodes[n].n_in && !inside; i++) {
        inside = dtp_style__is_target(job, n, i);
    }
    return inside;
}

bool dtp_style__leaves(const dtp_style_job *job, dtp_tensor_id t)
{
    const dtp_graph *g = job->g;
    int32_t readers = 0;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (g->outputs[i] == t) {
            return true;
        }
    }
    for (int32_t i = job->readers.first[t]; i < job->readers.first[t + 1]; i++) {
        dtp_node_id n = job->readers.nodes[i];
        if (g->nodes[n].phase != DTP_FORWARD) {
            continue;
        }
        if (!dtp_style__in_group(job, n)) {
            return true;
        }
        readers++;
    }
    return readers == 0;
}

/* ---- backward ---- */

/* A tensor that comes from the backward nodes of another node, or such a one quantized: the
 * gradient that reaches n. */
static bool arrives(const dtp_graph *g, dtp_node_id n, dtp_tensor_id t)
{
    t = dtp_graph_is_quantized(g, t) ? g->nodes[g->tensors[t].producer].in[0] : t;
    const dtp_node *p = g->tensors[t].producer >= 0 ? &g->nodes[g->tensors[t].producer] : NULL;
    return p != NULL && p->phase == DTP_BACKWARD && !p->repeats && p->origin != n;
}

dtp_status dtp_style__gradient(dtp_style_job *job, dtp_node_id n, int32_t axis, dtp_err *err)
{
    for (int32_t i = job->gradients.first[n]; i < job->gradients.first[n + 1]; i++) {
        const dtp_node_id backward = job->gradients.nodes[i];
        const dtp_node *b = &job->g->nodes[backward];
        const bool quantizes = (b->op->flags & DTP_OP_SCALE) != 0 ||
                               (b->n_out > 0 && dtp_graph_is_quantized(job->g, b->out[0]));
        /* an add sums gradients of an operand of n; a recomputation follows n by itself; a gradient
         * is quantized where it arrives */
        if ((b->op->flags & DTP_OP_SUM) == 0 && !b->repeats && !quantizes) {
            const dtp_ttype *type = &job->g->tensors[job->g->nodes[n].out[0]].type;
            for (int32_t k = 0; k < b->n_in; k++) {
                const dtp_tensor_id t = b->in[k];
                if (!arrives(job->g, n, t) || dtp_style__place(job, t, backward, job->m) != NULL) {
                    continue;
                }
                const int32_t a =
                    axis < 0 ? -1 : dtp_ttype_find(&job->g->tensors[t].type, type->dims[axis].id);
                DTP_TRY(dtp_style__pin(job, t, backward, a, err));
            }
        }
    }
    return DTP_OK;
}
