/* What a plan means, as text: mesh dims, layouts of blocks, dearest communication, peak. */
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"
#include "planner/reports/words.h"
#include "cost_models/comm_report.h"
#include "spmd/program/peak.h"

enum { DEAREST = 3, NAME_BYTES = 160 };

static void print_mesh_dims(const dtp_graph *g, const dtp_sharding *s, const dtp_words_dim *dims,
                            dtp_strbuf *out)
{
    dtp_strbuf_add(out, "\nwhat it does\n");
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        dtp_strbuf_addf(out, "  %s (%d): ", s->mesh.names[m], (int)s->mesh.sizes[m]);
        dtp_words_dim_print(g, &dims[m], out);
    }
}

/* ---- layouts ---- */

/* The block of a forward node that has a parameter or makes an activation; instance 0 alone. */
static bool is_shown(const dtp_node *n, int32_t block)
{
    return n->phase == DTP_FORWARD && n->block == block && (block < 0 || n->instance == 0);
}

static void print_layout(const dtp_graph *g, const dtp_sharding *s, dtp_tensor_id t,
                         const char *kind, dtp_strbuf *out)
{
    char layout[DTP_LAYOUT_TEXT_BYTES];
    dtp_layout_print(&s->layouts[t], &s->mesh, &g->tensors[t].type, &g->dims, layout);
    dtp_strbuf_addf(out, "  %-10s %-30s %s\n", kind, g->tensors[t].name, layout);
}

/* Parameters of the products of a block, and what the products and attention leave. */
static void print_block(const dtp_graph *g, const dtp_sharding *s, int32_t block, dtp_strbuf *out)
{
    bool any = false;
    for (dtp_node_id i = 0; i < g->n_nodes; i++) {
        const dtp_node *n = &g->nodes[i];
        const uint32_t traits = DTP_OP_CONTRACTION | DTP_OP_ATTENTION | DTP_OP_LOOKUP;
        if (!is_shown(n, block) || (n->op->flags & traits) == 0) {
            continue;
        }
        if (!any) {
            dtp_strbuf_addf(out, "\nlayouts of %s%s\n",
                            block >= 0 ? "block " : "what is in no block",
                            block >= 0 ? g->blocks[block] : "");
        }
        any = true;
        for (int32_t k = 0; k < n->n_in; k++) {
            const dtp_tensor_id t = dtp_graph_param_of(g, n->in[k]);
            if (t >= 0) {
                print_layout(g, s, t, "parameter", out);
            }
        }
        print_layout(g, s, n->out[0], "activation", out);
    }
}

/* ---- communication ---- */

/* Collectives of one kind on what is one tensor but for the number of its block. */
typedef struct traffic {
    const char *kind;
    char name[NAME_BYTES];
    double time_s;
    int64_t times;
    int32_t first; /* instruction, for a stable order */
} traffic;

static int by_time(const void *a, const void *b)
{
    const traffic *x = a, *y = b;
    if (x->time_s != y->time_s) {
        return x->time_s > y->time_s ? -1 : 1;
    }
    return (x->first > y->first) - (x->first < y->first);
}

static dtp_status print_communication(const dtp_program *p, dtp_arena *arena, dtp_strbuf *out,
                                      dtp_err *err)
{
    traffic *list;
    int32_t n = 0;
    double all_s = 0.0;
    DTP_TRY(DTP_NEW(arena, list, p->n_instrs + 1, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind != DTP_INSTR_START || !(instr->time_s > 0.0)) {
            continue;
        }
        const char *kind = dtp_coll_name(instr->coll.kind);
        const dtp_value *value = &p->values[instr->in[0]];
        const char *of = value->tensor >= 0 ? p->graph->tensors[value->tensor].name
                         : instr->node >= 0 ? p->graph->nodes[instr->node].name
                                            : "-";
        char name[NAME_BYTES];
        int32_t k = 0;
        dtp_general_name(of, name, sizeof name);
        while (k < n && (strcmp(list[k].name, name) != 0 || strcmp(list[k].kind, kind) != 0)) {
            k++;
        }
        if (k == n) {
            list[n++] = (traffic){.kind = kind, .first = i};
            memcpy(list[k].name, name, sizeof name);
        }
        list[k].time_s += (double)dtp_instr_runs(p, instr) * instr->time_s;
        list[k].times += dtp_instr_runs(p, instr);
        all_s += (double)dtp_instr_runs(p, instr) * instr->time_s;
    }
    qsort(list, (size_t)n, sizeof *list, by_time);
    if (n > 0) {
        dtp_strbuf_addf(out, "\ndearest communication, of %s\n", dtp_seconds(all_s).text);
    }
    for (int32_t k = 0; k < n && k < DEAREST; k++) {
        dtp_strbuf_addf(out, "  %-10s %4.0f %%  %s of %s, %lld time%s\n",
                        dtp_seconds(list[k].time_s).text, 100.0 * list[k].time_s / all_s,
                        list[k].kind, list[k].name, (long long)list[k].times,
                        list[k].times == 1 ? "" : "s");
    }
    return DTP_OK;
}

/* ---- memory ---- */

typedef enum alive {
    PARAMETERS,
    STATES,
    INPUTS,
    ACTIVATIONS,
    GRADIENTS,
    BUFFERS, /* staging, workspace */
    N_ALIVE
} alive;

static alive kind_of(const dtp_program *p, const dtp_value *value)
{
    const dtp_graph *g = p->graph;
    if (value->tensor < 0) {
        return BUFFERS;
    }
    const dtp_graph_tensor *t = &g->tensors[value->tensor];
    switch (t->kind) {
    case DTP_TENSOR_PARAM:
        return PARAMETERS;
    case DTP_TENSOR_STATE:
        return STATES;
    case DTP_TENSOR_INPUT:
        return INPUTS;
    default:
        return t->producer >= 0 && g->nodes[t->producer].phase != DTP_FORWARD &&
                       !g->nodes[t->producer].repeats
                   ? GRADIENTS
                   : ACTIVATIONS;
    }
}

static dtp_status print_peak(const dtp_program *p, dtp_arena *arena, dtp_strbuf *out, dtp_err *err)
{
    static const char *const names[N_ALIVE] = {"parameters",  "optimizer states", "inputs",
                                               "activations", "gradients",        "buffers"};
    dtp_peak peak;
    double bytes[N_ALIVE] = {0.0};
    DTP_TRY(dtp_peak_find(p, arena, &peak, err));
    if (peak.at < 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < peak.n; i++) {
        bytes[kind_of(p, &p->values[peak.buffers[i].value])] += (double)peak.buffers[i].bytes;
    }
    const dtp_instr *instr = &p->instrs[peak.at];
    dtp_strbuf_addf(out, "\nmemory peaks in the %s pass, %s of %s: %s\n",
                    dtp_phase_name(instr->phase), dtp_instr_name(instr),
                    instr->node >= 0 ? p->graph->nodes[instr->node].name : "-",
                    dtp_byte_count((double)peak.bytes).text);
    for (int32_t k = 0; k < N_ALIVE; k++) {
        if (bytes[k] > 0.0) {
            dtp_strbuf_addf(out, "  %-10s %4.0f %%  %s\n", dtp_byte_count(bytes[k]).text,
                            100.0 * bytes[k] / (double)peak.bytes, names[k]);
        }
    }
    return DTP_OK;
}

dtp_status dtp_words_print(const dtp_graph *g, const dtp_sharding *s, const dtp_program *p,
                           dtp_strbuf *out, dtp_err *err)
{
    dtp_words_dim dims[DTP_MAX_MESH_DIMS];
    dtp_arena *arena = dtp_arena_create();
    dtp_status status = DTP_MEMORY(err, arena);
    for (int32_t m = 0; m < s->mesh.n_dims && status == DTP_OK; m++) {
        status = dtp_words_dim_of(g, s, m, &dims[m], err);
    }
    if (status == DTP_OK) {
        print_mesh_dims(g, s, dims, out);
        for (int32_t b = g->n_blocks - 1; b >= -1; b--) {
            print_block(g, s, b, out);
        }
        status = print_communication(p, arena, out, err);
    }
    status = status == DTP_OK ? print_peak(p, arena, out, err) : status;
    dtp_arena_destroy(arena);
    return status;
}
