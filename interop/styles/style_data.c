/* The styles of the data mesh dim: data, and ZeRO in its three stages.
 *
 * zero1 splits the states of the optimizer: the update reads the gradient and the parameter split,
 * both free of communication, and the new parameter is gathered. zero2 splits the gradient too, so
 * that it is reduce-scattered. zero3 (fsdp) splits the parameter itself: every node that reads it,
 * forward or backward, reads it whole, and the update stays local.
 *
 * Over several mesh dims ("x+y") one dim of each tensor is split over all of them. */
#include <string.h>

#include "interop/styles/style_internal.h"

/* Pins all mesh dims of the style: split over `axis`, or replicated when axis < 0. */
static dtp_status pin_all(dtp_style_job *job, dtp_tensor_id t, dtp_node_id node, int32_t axis,
                          dtp_err *err)
{
    const int32_t first = job->m;
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < job->n_ms && s == DTP_OK; i++) {
        job->m = job->ms[i];
        s = dtp_style__pin(job, t, node, axis, err);
    }
    job->m = first;
    return s;
}

static bool is_own(const dtp_style_job *job, int32_t m)
{
    int32_t i = 0;
    while (i < job->n_ms && job->ms[i] != m) {
        i++;
    }
    return i < job->n_ms;
}

dtp_status dtp_style__data(dtp_style_job *job, dtp_err *err)
{
    int32_t found = 0;
    for (int32_t t = 0; t < job->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &job->g->tensors[t];
        int32_t axis = tensor->type.rank > 0 ? 0 : -1;
        if (!job->param[t] || tensor->kind != DTP_TENSOR_INPUT) {
            continue;
        }
        if (job->style->dim != NULL) {
            axis = dtp_style__axis(job->g, t, job->style->dim);
        }
        if (axis >= 0) {
            DTP_TRY(pin_all(job, t, -1, axis, err));
            found++;
        }
    }
    return found > 0 ? DTP_OK
                     : DTP_FAIL(err, DTP_INVALID, "no input of the model with that dim is matched");
}

/* The dim of a parameter that ZeRO splits: dim=NAME; else the first that divides evenly and that no
 * other style splits, then the first that divides evenly, then the first. -1: a scalar, or where
 * splits are even none that divides. */
static int32_t zero_axis(const dtp_style_job *job, dtp_tensor_id t)
{
    const dtp_ttype *type = &job->g->tensors[t].type;
    int64_t parts = 1;
    int32_t even = -1;
    if (job->style->dim != NULL) {
        return dtp_style__axis(job->g, t, job->style->dim);
    }
    for (int32_t i = 0; i < job->n_ms; i++) {
        parts *= job->mesh->sizes[job->ms[i]];
    }
    for (int32_t a = 0; a < type->rank; a++) {
        bool split = false;
        int64_t all = parts;
        for (int32_t m = 0; m < job->mesh->n_dims; m++) {
            const dtp_placement *p = dtp_style__place(job, t, -1, m);
            if (p != NULL && p->kind == DTP_SHARD && p->axis == a && !is_own(job, m)) {
                split = true;
                all *= job->mesh->sizes[m];
            }
        }
        if (type->dims[a].size % all != 0) {
            continue;
        }
        if (!split) {
            return a;
        }
        even = even < 0 ? a : even;
    }
    return even < 0 && type->rank > 0 && !job->even ? 0 : even;
}

static bool is_cast(const dtp_style_job *job, dtp_tensor_id param)
{
    bool cast = false;
    for (int32_t i = job->readers.first[param]; i < job->readers.first[param + 1] && !cast; i++) {
        cast = (job->g->nodes[job->readers.nodes[i]].op->flags & DTP_OP_CAST) != 0;
    }
    return cast;
}

/* A parameter is cast split: the master copy of mixed precision belongs to the optimizer. Up to
 * stage 2 what it is cast to is kept whole, in stage 3 gathered where it is read. */
static dtp_status gather_copy(dtp_style_job *job, dtp_tensor_id copy, int32_t axis, dtp_err *err)
{
    if (job->style->def->stage < 3) {
        return pin_all(job, copy, -1, -1, err);
    }
    DTP_TRY(pin_all(job, copy, -1, axis, err));
    for (int32_t i = job->readers.first[copy]; i < job->readers.first[copy + 1]; i++) {
        DTP_TRY(pin_all(job, copy, job->readers.nodes[i], -1, err));
    }
    return DTP_OK;
}

/* The gradient of a parameter: on the style's mesh dims split inside all other splits, or
 * replicated; on the others as the parameter. A sum over microbatches stays partial up to stage 2,
 * where that is what it is: the update reduces it, once. */
static dtp_status zero_gradient(dtp_style_job *job, dtp_tensor_id param, int32_t axis, dtp_err *err)
{
    const dtp_graph *g = job->g;
    const dtp_tensor_id grad = job->grad[param];
    const int32_t own = job->m, n_mesh = job->mesh->n_dims, stage = job->style->def->stage;
    const bool waits = g->microbatches > 1 && stage < 3;
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < n_mesh * n_mesh && s == DTP_OK; i++) {
        const int32_t depth = i / n_mesh, m = i % n_mesh;
        const dtp_placement *p = dtp_style__place(job, param, -1, m);
        const bool split = p != NULL && p->kind == DTP_SHARD;
        if (is_own(job, m) || (p != NULL ? p->order : 0) != depth || (waits && !split) ||
            dtp_style__place(job, grad, -1, m) != NULL) {
            continue;
        }
        job->m = m;
        s = dtp_style__pin(job, grad, -1, split ? p->axis : -1, err);
    }
    job->m = own;
    if (s != DTP_OK || waits) {
        return s;
    }
    DTP_TRY(pin_all(job, grad, -1, stage >= 2 ? axis : -1, err));
    /* a gradient in 16 bits is reduced as such */
    const dtp_node_id cast = g->tensors[grad].producer;
    return cast >= 0 && (g->nodes[cast].op->flags & DTP_OP_CAST) != 0
               ? pin_all(job, g->nodes[cast].in[0], -1, stage >= 2 ? axis : -1, err)
               : DTP_OK;
}

/* Stage 3: every node but the update reads the parameter whole. The update reads its states, and
 * from stage 2 the gradient, split; it makes new states in the layout of the old ones. */
static dtp_status zero_param(dtp_style_job *job, dtp_tensor_id param, dtp_err *err)
{
    const dtp_graph *g = job->g;
    const int32_t axis = zero_axis(job, param), stage = job->style->def->stage;
    if (axis < 0 || (stage < 3 && g->tensors[param].frozen)) { /* no optimizer has anything of it */
        return DTP_OK;
    }
    const bool split = stage == 3 || is_cast(job, param);
    if (split) {
        DTP_TRY(pin_all(job, param, -1, axis, err));
    }
    if (job->grad[param] >= 0) {
        DTP_TRY(zero_gradient(job, param, axis, err));
    }
    for (int32_t i = job->readers.first[param]; i < job->readers.first[param + 1]; i++) {
        const dtp_node_id n = job->readers.nodes[i];
        const dtp_node *node = &g->nodes[n];
        const bool update = node->phase == DTP_UPDATE;
        if ((node->op->flags & DTP_OP_CAST) != 0) {
            DTP_TRY(pin_all(job, param, n, axis, err));
            DTP_TRY(gather_copy(job, node->out[0], axis, err));
        } else if (split) {
            DTP_TRY(pin_all(job, param, n, update ? axis : -1, err));
        }
        for (int32_t k = 0; k < node->n_in && update; k++) {
            const dtp_tensor_id t = node->in[k];
            const bool state = g->tensors[t].kind == DTP_TENSOR_STATE;
            if (state) {
                DTP_TRY(pin_all(job, t, -1, axis, err));
            }
            if (state || (stage >= 2 && t == job->grad[param])) {
                DTP_TRY(pin_all(job, t, n, axis, err));
            }
        }
    }
    return DTP_OK;
}

/* Whether a matched node reads the parameter where it is cast. */
static bool reads_copy(const dtp_style_job *job, dtp_tensor_id param)
{
    for (int32_t i = job->readers.first[param]; i < job->readers.first[param + 1]; i++) {
        const dtp_tensor_id copy = job->g->nodes[job->readers.nodes[i]].out[0];
        for (int32_t k = job->readers.first[copy];
             k < job->readers.first[copy + 1] && dtp_graph_param_of(job->g, copy) == param; k++) {
            if (job->node[job->readers.nodes[k]]) {
                return true;
            }
        }
    }
    return false;
}

/* The parameters that are matched or that a matched node reads. */
dtp_status dtp_style__zero(dtp_style_job *job, dtp_err *err)
{
    int32_t found = 0;
    for (int32_t t = 0; t < job->g->n_tensors; t++) {
        bool matched = job->param[t];
        for (int32_t i = job->readers.first[t]; i < job->readers.first[t + 1] && !matched; i++) {
            matched = job->node[job->readers.nodes[i]];
        }
        const bool param = job->g->tensors[t].kind == DTP_TENSOR_PARAM;
        matched = matched || (param && reads_copy(job, t));
        if (matched && param) {
            DTP_TRY(zero_param(job, t, err));
            found++;
        }
    }
    return found > 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "no parameter is matched");
}
