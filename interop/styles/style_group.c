/* The nodes that a style speaks of, as a group: which parameters they read, what leaves them, and
 * the backward nodes that belong to them. */
#include <string.h>

#include "interop/styles/style_internal.h"

/* ---- index --------------------------------------------------------------------------------------
 */

static dtp_status allocate(dtp_arena *arena, int32_t n_keys, int64_t n_nodes, dtp_node_lists *out,
                           dtp_err *err)
{
    out->first = dtp_arena_alloc(arena, (size_t)n_keys + 2, sizeof *out->first);
    out->nodes = dtp_arena_alloc(arena, (size_t)n_nodes, sizeof *out->nodes);
    if (out->first == NULL || out->nodes == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the index of a graph");
    }
    return DTP_OK;
}

/* Calls of `visit` for every (key, node): counted first, then filled in. first[k + 1] is where the
 * next node of key k goes, and after filling where the list ends. */
static void count(dtp_node_lists *lists, int32_t key)
{
    lists->first[key + 2]++;
}

static void sum_up(dtp_node_lists *lists, int32_t n_keys)
{
    for (int32_t k = 0; k < n_keys; k++) {
        lists->first[k + 2] += lists->first[k + 1];
    }
}

static void put(dtp_node_lists *lists, int32_t key, dtp_node_id node)
{
    lists->nodes[lists->first[key + 1]++] = node;
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
            count(&job->readers, g->nodes[n].in[i]);
        }
        if (differentiates(&g->nodes[n])) {
            count(&job->gradients, g->nodes[n].origin);
        }
    }
    sum_up(&job->readers, g->n_tensors);
    sum_up(&job->gradients, g->n_nodes);
    for (int32_t n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            put(&job->readers, g->nodes[n].in[i], n);
        }
        if (differentiates(&g->nodes[n])) {
            put(&job->gradients, g->nodes[n].origin, n);
        }
    }
    return DTP_OK;
}

/* ---- implementations
 * -----------------------------------------------------------------------------------
 */

static dtp_status set_one(dtp_style_job *job, dtp_node_id n, dtp_err *err)
{
    const char *key = job->style->def->attr;
    const dtp_attr_spec *spec = dtp_implementation_spec(job->g->nodes[n].op, key);
    int32_t at = job->n_implementations;
    if (spec == NULL) {
        return DTP_OK;
    }
    const dtp_implementation s = {n, spec->key,
                                  dtp_implementation_choice(spec, job->style->implementation)};
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

/* ---- the group ----------------------------------------------------------------------------------
 */

bool dtp_style__is_target(const dtp_style_job *job, dtp_node_id n, int32_t operand)
{
    const dtp_node *node = &job->g->nodes[n];
    const dtp_tensor_id t = node->in[operand];
    return node->phase == DTP_FORWARD && job->g->tensors[t].kind == DTP_TENSOR_PARAM &&
           (job->node[n] || job->param[t]);
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

/* ---- backward -----------------------------------------------------------------------------------
 */

/* A tensor that comes from the backward nodes of another node: the gradient that reaches n. */
static bool arrives(const dtp_graph *g, dtp_node_id n, dtp_tensor_id t)
{
    const dtp_node_id p = g->tensors[t].producer;
    return p >= 0 && g->nodes[p].phase == DTP_BACKWARD && g->nodes[p].origin != n;
}

static dtp_status pin_arriving(dtp_style_job *job, dtp_node_id n, dtp_node_id backward,
                               int32_t axis, dtp_err *err)
{
    const dtp_node *b = &job->g->nodes[backward];
    const dtp_ttype *type = &job->g->tensors[job->g->nodes[n].out[0]].type;
    for (int32_t k = 0; k < b->n_in; k++) {
        const dtp_tensor_id t = b->in[k];
        if (!arrives(job->g, n, t) || dtp_style__place(job, t, backward, job->m) != NULL) {
            continue;
        }
        const int32_t a =
            axis < 0 ? -1 : dtp_ttype_find(&job->g->tensors[t].type, type->dims[axis].id);
        DTP_TRY(a >= 0 ? dtp_style__split(job, t, backward, a, err)
                       : dtp_style__whole(job, t, backward, err));
    }
    return DTP_OK;
}

dtp_status dtp_style__gradient(dtp_style_job *job, dtp_node_id n, int32_t axis, dtp_err *err)
{
    for (int32_t i = job->gradients.first[n]; i < job->gradients.first[n + 1]; i++) {
        const dtp_node_id backward = job->gradients.nodes[i];
        const dtp_node *b = &job->g->nodes[backward];
        /* an add sums gradients of an operand of n; a recomputation follows n by itself */
        if ((b->op->flags & DTP_OP_SUM) == 0 && !b->repeats) {
            DTP_TRY(pin_arriving(job, n, backward, axis, err));
        }
    }
    return DTP_OK;
}
