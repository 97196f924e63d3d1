/* Splitting a training graph into microbatches. First what one microbatch has of every tensor
 * (core/transform/row_parts.h): the whole, a part along one axis, or a partial sum. Then the new
 * graph:
 * nodes of the forward and backward pass on parts, an `accumulate` node after every partial sum
 * that is read once per step, the update on the accumulated values. */
#include "core/transform/microbatch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/graph/graph_copy.h"
#include "core/transform/mean_loss.h"
#include "core/transform/row_parts.h"

/* ---- small pieces ---- */

dtp_dim_id dtp_microbatch_dim(const dtp_graph *g)
{
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_INPUT && g->tensors[t].type.rank > 0) {
            return g->tensors[t].type.dims[0].id;
        }
    }
    return -1;
}

dtp_status dtp_microbatches_parse(const char *text, const dtp_graph *g, dtp_dim_id *dim,
                                  int32_t *count, dtp_err *err)
{
    const char *equal = strchr(text, '=');
    const char *number = equal != NULL ? equal + 1 : text;
    char name[64];
    *dim = -1;
    if (equal != NULL) {
        const size_t n = (size_t)(equal - text);
        if (n < sizeof name) {
            memcpy(name, text, n);
            name[n] = '\0';
            *dim = dtp_dims_find(&g->dims, name);
        }
        if (*dim < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "microbatches '%.80s': the model '%s' has no such dim", text, g->name);
        }
    }
    int64_t value;
    if (!dtp_int_parse(number, &value) || value < 1 || value > INT32_MAX) {
        return DTP_FAIL(err, DTP_INVALID, "microbatches '%.80s': expected N or DIM=N with N >= 1",
                        text);
    }
    *count = (int32_t)value;
    return DTP_OK;
}

bool dtp_is_micro_dim(const dtp_graph *g, dtp_dim_id d)
{
    bool is = false;
    for (int32_t i = 0; i < g->n_micro_dims; i++) {
        is = is || g->micro_dims[i] == d;
    }
    return is;
}

dtp_ttype dtp_microbatch_whole(const dtp_graph *g, const dtp_ttype *type)
{
    dtp_ttype whole = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        whole.dims[i].size *= dtp_is_micro_dim(g, type->dims[i].id) ? g->microbatches : 1;
    }
    return whole;
}

/* ---- names ---- */

static const char PART[] = "micro.";

dtp_tensor_id dtp_microbatch_part(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].kind == DTP_TENSOR_VALUE ? g->tensors[t].producer : -1;
    const dtp_node *node = n >= 0 ? &g->nodes[n] : NULL;
    const bool sum = node != NULL && node->n_in == 2 && node->phase != DTP_UPDATE &&
                     g->tensors[node->in[0]].per_step;
    return sum ? node->in[1] : t;
}

bool dtp_microbatch_changes(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    return n >= 0 && g->nodes[n].phase != DTP_UPDATE &&
           (g->nodes[n].op->flags & DTP_OP_UPDATE) != 0;
}

bool dtp_microbatch_has_statistics(const dtp_graph *g)
{
    bool any = false;
    for (int32_t i = 0; i < g->n_updates; i++) {
        any = any || (g->tensors[g->updates[i].target].kind == DTP_TENSOR_PARAM &&
                      dtp_microbatch_changes(g, g->updates[i].value));
    }
    return any;
}

/* Whether node m adds up an output of node n. */
static bool adds_up(const dtp_graph *g, dtp_node_id m, dtp_node_id n)
{
    const dtp_tensor_id sum = g->nodes[m].out[0], part = dtp_microbatch_part(g, sum);
    return part != sum && g->tensors[part].producer == n;
}

const char *dtp_microbatch_name(const dtp_graph *g, dtp_node_id n)
{
    const char *name = g->nodes[n].name;
    bool part = false;
    if (g->microbatches > 1 && strncmp(name, PART, sizeof PART - 1) == 0) {
        for (dtp_node_id m = n + 1; m < g->n_nodes && !part; m++) { /* mostly the next one */
            part = adds_up(g, m, n);
        }
    }
    return part ? name + sizeof PART - 1 : name;
}

dtp_node_id dtp_microbatch_node(const dtp_graph *g, const char *name)
{
    dtp_node_id found = -1;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const bool same = strcmp(g->nodes[n].name, name) == 0;
        if (!same && strcmp(dtp_microbatch_name(g, n), name) == 0) {
            return n;
        }
        found = same ? n : found;
    }
    return found;
}

/* ---- variants ---- */

dtp_status dtp_microbatch_variants(const dtp_graph *g, int32_t max, dtp_arena *arena, int32_t *n,
                                   int32_t **out, dtp_err *err)
{
    const dtp_dim_id d = dtp_microbatch_dim(g);
    int64_t size = d >= 0 && g->loss >= 0 ? g->dims.sizes[d] : 1;
    int32_t capacity = 0;
    *n = 0;
    *out = NULL;
    for (int32_t k = 1; k <= max && k <= size; k++) {
        if (size % k == 0) {
            DTP_TRY(dtp_arena_grow(arena, out, *n, *n + 1, &capacity, sizeof **out, err));
            (*out)[(*n)++] = k;
        }
    }
    return DTP_OK;
}

/* ---- what one microbatch has ---- */

typedef struct micro_work {
    const dtp_graph *g;
    dtp_row_parts parts;
    bool *needed;          /* by tensor: read once per step */
    dtp_tensor_id *scaled; /* by tensor: the gradient of a statistic times the parts, -1 = none */
    dtp_tensor_id *sum;    /* by tensor: its accumulated value in the new graph, -1 = none */
    dtp_graph_copy copy;
} micro_work;

static void mark_needed(micro_work *w)
{
    const dtp_graph *g = w->g;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in && g->nodes[n].phase == DTP_UPDATE; i++) {
            w->needed[g->nodes[n].in[i]] = true;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        w->needed[g->outputs[i]] = w->parts.part[g->outputs[i]] != DTP_ROWS_CUT;
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        w->needed[g->grads[i].grad] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        w->needed[g->updates[i].value] = true;
    }
    w->needed[g->loss] = true;
}

/* The parameter that a value updates as a buffer does; -1 = none. */
static dtp_tensor_id updated_by(const dtp_graph *g, dtp_tensor_id value)
{
    for (int32_t i = 0; i < g->n_updates; i++) {
        const dtp_tensor_id target = g->updates[i].target;
        if (g->updates[i].value == value && g->tensors[target].kind == DTP_TENSOR_PARAM) {
            return target;
        }
    }
    return -1;
}

static dtp_status find_parts(micro_work *w, dtp_arena *scratch, dtp_err *err)
{
    const size_t tensors = (size_t)w->g->n_tensors;
    DTP_TRY(DTP_NEW(scratch, w->needed, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->sum, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->scaled, tensors, err));
    for (size_t t = 0; t < tensors; t++) {
        w->sum[t] = w->scaled[t] = -1;
    }
    DTP_TRY(dtp_row_parts_find(&w->parts, scratch, err));
    mark_needed(w);
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        if (w->needed[t] && w->parts.part[t] == DTP_ROWS_CUT) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "microbatches: '%s' has one row per row of the batch but is used once "
                            "per step",
                            w->g->tensors[t].name);
        }
        if (w->needed[t] && w->parts.part[t] == DTP_ROWS_WHOLE && w->parts.own[t] &&
            updated_by(w->g, t) < 0) {
            return DTP_FAIL(
                err, DTP_UNSUPPORTED,
                "microbatches: '%s' is made of statistics of a part of the batch but is "
                "used once per step",
                w->g->tensors[t].name);
        }
    }
    return DTP_OK;
}

/* ---- the new graph ---- */

static dtp_ttype cut_type(const micro_work *w, const dtp_ttype *type)
{
    dtp_ttype part = *type;
    for (int32_t i = 0; i < part.rank; i++) {
        part.dims[i].size /= dtp_row_parts_cut(&w->parts, part.dims[i].id) ? w->parts.count : 1;
    }
    return part;
}

static bool is_summed(const micro_work *w, dtp_tensor_id t)
{
    return w->needed[t] && w->parts.part[t] == DTP_ROWS_SUM;
}

/* The buffer that follows statistics of parts to tensor t; -1 = none. */
static dtp_tensor_id follows(const micro_work *w, dtp_tensor_id t)
{
    return w->parts.own[t] && w->parts.part[t] == DTP_ROWS_WHOLE ? updated_by(w->g, t) : -1;
}

/* Adds up the copy of tensor t, which node n has just made. */
static dtp_status accumulate(micro_work *w, dtp_node_id n, dtp_tensor_id t, dtp_err *err)
{
    dtp_graph *to = w->copy.to;
    const dtp_node *node = &w->g->nodes[n];
    dtp_tensor_id in[2] = {-1, w->copy.tensor[t]};
    const char *of = w->g->tensors[t].name; /* of a gradient: that of the parameter, "w1" */
    for (int32_t i = w->g->n_grads - 1; i >= 0; i--) {
        of = w->g->grads[i].grad == t ? w->g->tensors[w->g->grads[i].param].name : of;
    }
    const char *name = dtp_arena_printf(to->arena, "accum.%s", of);
    DTP_TRY(DTP_MEMORY(err, name));
    const dtp_graph_tensor state = {
        .name = name, .kind = DTP_TENSOR_STATE, .type = w->g->tensors[t].type, .per_step = true};
    DTP_TRY(dtp_graph_add_tensor(to, &state, &in[0], err));
    dtp_node_spec spec = dtp_node_spec_init(w->g->tensors[t].name, "accumulate");
    spec.n_in = 2;
    spec.in = in;
    spec.phase = node->phase;
    spec.origin = node->phase == DTP_BACKWARD ? w->copy.node[n] : -1;
    spec.block = node->block;
    spec.instance = node->instance;
    DTP_TRY(dtp_graph_add_node(to, &spec, &w->sum[t], err));
    return dtp_graph_add_update(to, (dtp_update){.target = in[0], .value = w->sum[t]}, err);
}

/* A tensor of the new graph times the number of parts, beside a node. */
static dtp_status times_parts(micro_work *w, const dtp_node_spec *beside, const char *name,
                              dtp_tensor_id x, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr factor = dtp_attr_float("factor", (double)w->parts.count);
    dtp_node_spec spec = *beside;
    spec.name = name;
    spec.op = "scale";
    spec.def = NULL;
    spec.n_in = spec.n_attrs = 1;
    spec.in = &x;
    spec.attrs = &factor;
    spec.out = NULL;
    return dtp_graph_add_node(w->copy.to, &spec, out, err);
}

/* A statistic is the sum over the rows of the part: kernels divide by those of the whole batch, of
 * which a part has one in parts.count. */
static dtp_status take_statistic(micro_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_tensor_id in[DTP_MAX_OP_IN];
    const dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    w->copy.node[n] = w->copy.to->n_nodes;
    return times_parts(w, &spec, node->name, in[0], &w->copy.tensor[node->out[0]], err);
}

/* The buffer follows in every part. */
static dtp_status follow(micro_work *w, dtp_node_id n, dtp_tensor_id t, dtp_tensor_id buffer,
                         dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    const dtp_tensor_id in[2] = {w->copy.tensor[buffer], w->copy.tensor[t]};
    dtp_node_spec spec = dtp_node_spec_init(w->g->tensors[t].name, "follow");
    spec.n_in = 2;
    spec.in = in;
    spec.phase = node->phase;
    spec.block = node->block;
    spec.instance = node->instance;
    return dtp_graph_add_node(w->copy.to, &spec, &w->sum[t], err);
}

static dtp_status add_node(micro_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_node_spec spec = dtp_graph_copy_spec(&w->copy, n, in);
    if ((node->op->flags & DTP_OP_IN_TRAINING) != 0 && w->parts.part[node->in[0]] == DTP_ROWS_SUM &&
        w->parts.statistic[node->in[0]]) {
        return take_statistic(w, n, err);
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        if (dtp_row_parts_whole_gradient(&w->parts, node, i)) {
            const char *name =
                dtp_arena_printf(w->copy.to->arena, "parts.%s", w->g->tensors[t].name);
            DTP_TRY(DTP_MEMORY(err, name));
            DTP_TRY(w->scaled[t] < 0 ? times_parts(w, &spec, name, in[i], &w->scaled[t], err)
                                     : DTP_OK);
            in[i] = w->scaled[t];
        }
    }
    for (int32_t i = 0; i < node->n_in && node->phase == DTP_UPDATE; i++) {
        in[i] = w->sum[node->in[i]] >= 0 ? w->sum[node->in[i]] : in[i];
    }
    bool summed = false;
    for (int32_t i = 0; i < node->n_out; i++) {
        summed = summed || is_summed(w, node->out[i]) || follows(w, node->out[i]) >= 0;
    }
    if (summed) { /* the accumulated tensors take the names */
        spec.name = dtp_arena_printf(w->copy.to->arena, "%s%s", PART, node->name);
    }
    DTP_TRY(DTP_MEMORY(err, spec.name));
    const dtp_ttype out = cut_type(w, spec.out);
    spec.out = &out;
    DTP_TRY(dtp_graph_copy_node(&w->copy, n, &spec, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_tensor_id t = node->out[i], buffer = follows(w, t);
        DTP_TRY(is_summed(w, t) ? accumulate(w, n, t, err) : DTP_OK);
        DTP_TRY(buffer >= 0 ? follow(w, n, t, buffer, err) : DTP_OK);
    }
    return DTP_OK;
}

static dtp_status add_all(micro_work *w, dtp_err *err)
{
    dtp_graph *to = w->copy.to;
    to->microbatches = w->parts.count;
    to->n_micro_dims = w->parts.n_dims;
    memcpy(to->micro_dims, w->parts.dims, sizeof to->micro_dims);
    for (int32_t i = 0; i < w->parts.n_dims; i++) {
        to->dims.sizes[w->parts.dims[i]] /= w->parts.count;
    }
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            const dtp_ttype type = cut_type(w, &tensor->type);
            DTP_TRY(dtp_graph_copy_source(&w->copy, t, &type, err));
        } else if (tensor->out_index == 0) {
            DTP_TRY(add_node(w, tensor->producer, err));
        }
    }
    /* from here on a summed tensor is its sum, and a cut output is none */
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        w->copy.tensor[t] = w->sum[t] >= 0 ? w->sum[t] : w->copy.tensor[t];
    }
    for (int32_t i = 0; i < w->g->n_outputs; i++) {
        if (w->parts.part[w->g->outputs[i]] == DTP_ROWS_CUT) {
            w->copy.tensor[w->g->outputs[i]] = -1;
        }
    }
    return dtp_graph_copy_results(&w->copy, err);
}

static dtp_status build(micro_work *w, dtp_arena *scratch, dtp_graph **out, dtp_err *err)
{
    DTP_TRY(find_parts(w, scratch, err));
    DTP_TRY(dtp_graph_copy_begin(w->g, &w->copy, err));
    return dtp_graph_deliver(w->copy.to, add_all(w, err), out);
}

dtp_status dtp_graph_microbatched(const dtp_graph *g, dtp_dim_id dim, int32_t count,
                                  dtp_graph **out, dtp_err *err)
{
    micro_work w = {.g = g,
                    .parts = {.g = g,
                              .what = "microbatches",
                              .dim = dim >= 0 ? dim : dtp_microbatch_dim(g),
                              .count = count}};
    if (g->loss < 0 || g->microbatches > 1 || count < 2 || w.parts.dim < 0) {
        return DTP_FAIL(err, DTP_INVALID, "microbatches: %d of '%s', which %s", count, g->name,
                        g->loss < 0 ? "is not trained" : "cannot be cut so");
    }
    if (count > DTP_MAX_MICROBATCHES) {
        return DTP_FAIL(err, DTP_INVALID, "microbatches: %d, the limit is %d", count,
                        DTP_MAX_MICROBATCHES);
    }
    dtp_graph *summed = NULL;
    if (dtp_has_mean_loss(g)) {
        DTP_TRY(dtp_graph_with_summed_loss(g, &summed, NULL, err));
        w.g = w.parts.g = summed;
    }
    dtp_arena *scratch = dtp_arena_create();
    const dtp_status s = build(&w, scratch, out, err);
    dtp_arena_destroy(scratch);
    dtp_graph_destroy(summed);
    return s;
}
