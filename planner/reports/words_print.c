/* What a plan means, as text: mesh dims, layouts of blocks, dearest communication, peak. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"
#include "core/graph/uses.h"
#include "planner/reports/words.h"
#include "cost_models/comm_report.h"
#include "spmd/program/peak.h"

enum { DEAREST = 3, NAME_BYTES = 160 };

/* Of a step: as long. Of a difference: worth a word. */
static const double SAME = 0.0005, PART = 0.1;

static void print_mesh_dims(const dtp_graph *g, const dtp_sharding *s, const dtp_words_dim *dims,
                            dtp_strbuf *out)
{
    dtp_strbuf_add(out, "\nwhat it does\n");
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        dtp_strbuf_addf(out, "  %s (%d): ", s->mesh.names[m], (int)s->mesh.sizes[m]);
        dtp_words_dim_print(g, &dims[m], out);
    }
}

/* ---- rivals ---- */

/* The fastest that is within the memory limit, else the one of least memory, of the legal baselines
 * with these names; NULL: none. */
static const dtp_baseline *best_of(const dtp_plan *plan, const char *const *names)
{
    const dtp_baseline *best = NULL;
    for (int32_t i = 0; i < plan->n_baselines; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        bool named = false;
        for (int32_t k = 0; names[k] != NULL; k++) {
            named = named || strcmp(names[k], b->name) == 0;
        }
        if (!named || !b->legal) {
            continue;
        }
        const bool fits = dtp_plan_baseline_fits(plan, b);
        const bool best_fits = best != NULL && dtp_plan_baseline_fits(plan, best);
        const bool better =
            best == NULL || fits > best_fits ||
            (fits == best_fits && (fits ? b->predicted.step_time_s < best->predicted.step_time_s
                                        : b->predicted.peak_bytes < best->predicted.peak_bytes));
        best = better ? b : best;
    }
    return best;
}

/* What it takes more, and in what: communication that nothing hides, kernels, waiting. */
static void print_rival(const dtp_plan *plan, const dtp_baseline *b, dtp_strbuf *out)
{
    const dtp_prediction *p = &plan->predicted, *q = &b->predicted;
    const double more_s = q->step_time_s - p->step_time_s;
    const struct {
        const char *name;
        double more_s;
    } parts[] = {{"exposed communication", q->exposed_comm_s - p->exposed_comm_s},
                 {"compute", q->compute_s - p->compute_s}};
    if (!dtp_plan_baseline_fits(plan, b)) {
        dtp_strbuf_addf(out, "needs %s, more than the limit",
                        dtp_byte_count((double)q->peak_bytes).text);
        return;
    }
    if (fabs(more_s) < SAME * p->step_time_s) {
        dtp_strbuf_addf(out, "takes as long, with a peak of %s",
                        dtp_byte_count((double)q->peak_bytes).text);
        return;
    }
    dtp_strbuf_addf(out, "takes %s, %+.1f %%", dtp_seconds(q->step_time_s).text,
                    100.0 * more_s / p->step_time_s);
    const char *between = ": ";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (fabs(parts[i].more_s) >= PART * fabs(more_s)) {
            dtp_strbuf_addf(out, "%s%s %s", between, parts[i].name,
                            dtp_seconds_more(parts[i].more_s).text);
            between = ", ";
        }
    }
}

void dtp_words_rivals_print(const dtp_plan *plan, dtp_strbuf *out)
{
    static const char *const fsdp[] = {"zero3", NULL}, *const tensor[] = {"megatron", "megatron_sp",
                                                                          NULL};
    const struct {
        const char *name;
        const dtp_baseline *b;
    } rivals[] = {{"FSDP", best_of(plan, fsdp)}, {"tensor parallelism", best_of(plan, tensor)}};
    const char *between = "  ";
    if (plan->machine == NULL || (rivals[0].b == NULL && rivals[1].b == NULL)) {
        return;
    }
    dtp_strbuf_add(out, "\nbeside FSDP and tensor parallelism\n");
    for (size_t i = 0; i < sizeof rivals / sizeof rivals[0]; i++) {
        if (rivals[i].b != NULL) {
            dtp_strbuf_addf(out, "%s%s (%s) ", between, rivals[i].name, rivals[i].b->name);
            print_rival(plan, rivals[i].b, out);
            between = "; ";
        }
    }
    dtp_strbuf_add(out, "\n");
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

/* How much of the communication runs beside compute. */
static void print_hidden(const dtp_prediction *p, dtp_strbuf *out)
{
    if (p->comm_s > 0.0) {
        dtp_strbuf_addf(out, ", %.1f %% of it beside compute, %s exposed",
                        100.0 * fmax(1.0 - p->exposed_comm_s / p->comm_s, 0.0),
                        dtp_seconds(p->exposed_comm_s).text);
    }
}

static dtp_status print_communication(const dtp_program *p, const dtp_plan *plan, dtp_arena *arena,
                                      dtp_strbuf *out, dtp_err *err)
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
        dtp_strbuf_addf(out, "\ndearest communication, of %s", dtp_seconds(all_s).text);
        if (plan != NULL) {
            print_hidden(&plan->predicted, out);
        }
        dtp_strbuf_add(out, "\n");
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

static dtp_status print_peak(const dtp_program *p, dtp_arena *arena, dtp_strbuf *out, dtp_err *err)
{
    dtp_peak peak;
    double bytes[DTP_N_HELD] = {0.0};
    DTP_TRY(dtp_peak_find(p, arena, &peak, err));
    if (peak.at < 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < peak.n; i++) {
        bytes[dtp_held_kind(p, peak.buffers[i].value)] += (double)peak.buffers[i].bytes;
    }
    const dtp_instr *instr = &p->instrs[peak.at];
    dtp_strbuf_addf(out, "\nmemory peaks in the %s pass, %s of %s: %s\n",
                    dtp_phase_name(instr->phase), dtp_instr_name(instr),
                    instr->node >= 0 ? p->graph->nodes[instr->node].name : "-",
                    dtp_byte_count((double)peak.bytes).text);
    for (int32_t k = 0; k < DTP_N_HELD; k++) {
        if (bytes[k] > 0.0) {
            dtp_strbuf_addf(out, "  %-10s %4.0f %%  %s\n", dtp_byte_count(bytes[k]).text,
                            100.0 * bytes[k] / (double)peak.bytes, dtp_held_name(k));
        }
    }
    return DTP_OK;
}

dtp_status dtp_words_print(const dtp_graph *g, const dtp_sharding *s, const dtp_program *p,
                           const dtp_plan *plan, dtp_strbuf *out, dtp_err *err)
{
    dtp_words_dim dims[DTP_MAX_MESH_DIMS];
    dtp_arena *arena = dtp_arena_create();
    dtp_status status = DTP_MEMORY(err, arena);
    for (int32_t m = 0; m < s->mesh.n_dims && status == DTP_OK; m++) {
        status = dtp_words_dim_of(g, s, m, &dims[m], err);
    }
    if (status == DTP_OK) {
        print_mesh_dims(g, s, dims, out);
        if (plan != NULL) {
            dtp_words_rivals_print(plan, out);
        }
        for (int32_t b = g->n_blocks - 1; b >= -1; b--) {
            print_block(g, s, b, out);
        }
        status = print_communication(p, plan, arena, out, err);
    }
    status = status == DTP_OK ? print_peak(p, arena, out, err) : status;
    dtp_arena_destroy(arena);
    return status;
}
