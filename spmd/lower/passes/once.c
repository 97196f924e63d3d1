/* Casts of parameters, and their gathers, run once for all microbatches: parameters are the same in
 * each. What the rest of a microbatch computes with then lasts from the first to the last, as far
 * as the bytes that are needed at a time stay within a limit.
 *
 * A candidate is what one node made that casts a parameter: the cast and what brings it to its
 * planned layout (ZeRO keeps a whole copy). What a reader has gathered for itself (FSDP) belongs to
 * the reader's node and stays, and so does a cast that only feeds gathers of that kind. A cast that
 * a recomputed block repeats becomes a view of the one that runs once, where the layouts agree.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/needed.h"
#include "spmd/program/program_internal.h"

/* How a value is read by instructions of other nodes than the one that made it. */
typedef enum reading { UNREAD, READ, COMPUTED } reading; /* COMPUTED: by a kernel, too */

typedef struct hoist {
    dtp_program *p;
    int32_t body;
    int32_t *first;       /* by node: its first instruction in a microbatch, -1 = none */
    int32_t *next;        /* by instruction: the next of the node, -1 = none */
    dtp_node_id *maker;   /* by value: node of the instruction that writes it; -1 = none */
    uint8_t *reading;     /* by value */
    int32_t *writers;     /* by root: instructions of a microbatch that write into it */
    bool *hoisted;        /* by node */
    bool *removed, *gone; /* by instruction, by value */
    dtp_needed needed;
} hoist;

static bool casts_parameter(const dtp_graph *g, dtp_node_id n)
{
    return n >= 0 && (g->nodes[n].op->flags & DTP_OP_CAST) != 0 &&
           g->tensors[g->nodes[n].in[0]].kind == DTP_TENSOR_PARAM;
}

/* The value whose contents v has: v, or what it is a view of. */
static dtp_value_id made(const hoist *h, dtp_value_id v)
{
    while (h->maker[v] < 0 && h->p->values[v].parent >= 0) {
        v = h->p->values[v].parent;
    }
    return v;
}

static dtp_status survey(hoist *h, dtp_arena *scratch, dtp_err *err)
{
    const dtp_program *p = h->p;
    DTP_TRY(DTP_NEW(scratch, h->first, p->graph->n_nodes, err));
    DTP_TRY(DTP_NEW(scratch, h->next, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, h->maker, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, h->reading, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, h->writers, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, h->hoisted, p->graph->n_nodes, err));
    DTP_TRY(DTP_NEW(scratch, h->removed, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, h->gone, p->n_values, err));
    for (dtp_node_id n = 0; n < p->graph->n_nodes; n++) {
        h->first[n] = -1;
    }
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        h->maker[v] = -1;
    }
    for (int32_t i = h->body - 1; i >= 0; i--) {
        const dtp_instr *instr = &p->instrs[i];
        h->next[i] = instr->node >= 0 ? h->first[instr->node] : -1;
        if (instr->node >= 0) {
            h->first[instr->node] = i;
        }
        for (int32_t k = 0; k < instr->n_out; k++) {
            h->maker[instr->out[k]] = instr->node;
            h->writers[dtp_value_root(p, instr->out[k])]++;
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        for (int32_t k = 0; k < instr->n_in; k++) {
            const dtp_value_id v = made(h, instr->in[k]);
            const reading now = instr->kind == DTP_INSTR_KERNEL && i < h->body ? COMPUTED : READ;
            if (instr->node != h->maker[v] && h->reading[v] < now) {
                h->reading[v] = (uint8_t)now;
            }
        }
    }
    return DTP_OK;
}

/* Whether the instructions of a node depend on its parameter alone, and kernels of other nodes
 * compute with what they make. */
static bool is_candidate(const hoist *h, dtp_node_id n)
{
    const dtp_program *p = h->p;
    bool fits = true, computed = false;
    for (int32_t i = h->first[n]; i >= 0 && fits; i = h->next[i]) {
        const dtp_instr *instr = &p->instrs[i];
        fits = instr->kind != DTP_INSTR_KERNEL || dtp_instr_is_cast(instr);
        for (int32_t k = 0; k < instr->n_in && fits; k++) {
            const dtp_value_id v = made(h, instr->in[k]);
            fits = h->maker[v] == n || (p->values[v].kind == DTP_VALUE_RESIDENT &&
                                        h->writers[dtp_value_root(p, v)] == 0);
        }
        for (int32_t k = 0; k < instr->n_out && fits; k++) {
            fits = h->writers[dtp_value_root(p, instr->out[k])] == 1 &&
                   dtp_value_root(p, instr->out[k]) == instr->out[k];
            computed = computed || h->reading[instr->out[k]] == COMPUTED;
        }
    }
    return fits && computed;
}

/* What other nodes read of a node's results lasts, if that is within the limit. */
static bool holds(hoist *h, dtp_node_id n)
{
    dtp_value_id roots[DTP_MAX_MESH_DIMS + 2]; /* a step of a redistribution for each mesh dim */
    int32_t count = 0;
    for (int32_t i = h->first[n]; i >= 0; i = h->next[i]) {
        const dtp_instr *instr = &h->p->instrs[i];
        for (int32_t k = 0; k < instr->n_out; k++) {
            if (h->reading[instr->out[k]] == UNREAD) {
                continue;
            }
            if (count == (int32_t)(sizeof roots / sizeof roots[0])) {
                return false;
            }
            roots[count++] = instr->out[k];
        }
    }
    return dtp_needed_hold(&h->needed, count, roots, 0, h->body - 1);
}

static void run_once(hoist *h, dtp_node_id n)
{
    for (int32_t i = h->first[n]; i >= 0; i = h->next[i]) {
        dtp_instr *instr = &h->p->instrs[i];
        instr->once = true;
        for (int32_t k = 0; k < instr->n_out; k++) {
            h->p->values[instr->out[k]].once = true;
        }
    }
    h->hoisted[n] = true;
}

/* What the node that runs once makes like v; -1 = nothing. */
static dtp_value_id twin(const hoist *h, dtp_node_id once, dtp_value_id v)
{
    const dtp_value *value = &h->p->values[v];
    for (int32_t i = h->first[once]; i >= 0; i = h->next[i]) {
        const dtp_instr *instr = &h->p->instrs[i];
        for (int32_t k = 0; k < instr->n_out; k++) {
            const dtp_value *other = &h->p->values[instr->out[k]];
            if (h->reading[instr->out[k]] != UNREAD && other->kind == value->kind &&
                dtp_layout_equal(&other->layout, &value->layout)) {
                return instr->out[k];
            }
        }
    }
    return -1;
}

/* A repetition of what runs once makes nothing: its results are views, unless something that a
 * microbatch makes takes the place of one. */
static void view_again(hoist *h, dtp_node_id n)
{
    const dtp_node_id once = h->p->graph->nodes[n].origin;
    for (int pass = 0; pass < 2; pass++) { /* looks, then changes */
        for (int32_t i = h->first[n]; i >= 0; i = h->next[i]) {
            const dtp_instr *instr = &h->p->instrs[i];
            for (int32_t k = 0; k < instr->n_out; k++) {
                const dtp_value_id v = instr->out[k];
                const dtp_value_id like = h->reading[v] != UNREAD ? twin(h, once, v) : -1;
                const bool taken = h->writers[dtp_value_root(h->p, v)] > 1;
                if (h->reading[v] != UNREAD && (like < 0 || h->p->values[v].keep || taken)) {
                    return;
                }
                if (pass == 1) {
                    h->p->values[v].parent = like;
                    h->gone[v] = like < 0;
                }
            }
            h->removed[i] = pass == 1;
        }
    }
}

static dtp_status remove_instrs(hoist *h, dtp_arena *scratch, dtp_err *err)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < h->p->n_instrs; i++) {
        if (!h->removed[i]) {
            h->p->instrs[kept++] = h->p->instrs[i];
        }
    }
    if (kept == h->p->n_instrs) {
        return DTP_OK;
    }
    h->p->n_instrs = kept;
    return dtp_program__remove_values(h->p, h->gone, scratch, err);
}

dtp_status dtp_program__run_once(dtp_program *p, int64_t *bytes, dtp_arena *scratch, dtp_err *err)
{
    hoist h = {.p = p, .body = dtp_program_body(p)};
    bool any = false;
    const dtp_graph *g = p->graph;
    if (dtp_program_microbatches(p) <= 1 || *bytes <= 0) {
        *bytes = 0;
        return DTP_OK;
    }
    DTP_TRY(survey(&h, scratch, err));
    DTP_TRY(dtp_needed_find(p, p->instrs, p->n_instrs, scratch, &h.needed, err));
    h.needed.limit = *bytes > h.needed.peak ? *bytes : h.needed.peak;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        if (!casts_parameter(g, n) || h.first[n] < 0) {
            continue;
        }
        if (g->nodes[n].repeats && h.hoisted[g->nodes[n].origin]) {
            view_again(&h, n);
        } else if (is_candidate(&h, n) && holds(&h, n)) {
            run_once(&h, n);
            any = true;
        }
    }
    *bytes = 0;
    for (int32_t i = 0; i < p->n_instrs && any; i++) {
        *bytes = h.needed.bytes[i] > *bytes ? h.needed.bytes[i] : *bytes;
    }
    return remove_instrs(&h, scratch, err);
}
