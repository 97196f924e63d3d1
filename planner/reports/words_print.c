/* What a plan means, as text: mesh dims, layouts of blocks, communication, peak. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"
#include "core/graph/uses.h"
#include "planner/reports/words.h"
#include "cost_models/comm_report.h"
#include "cost_models/timeline.h"
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
    if (more_s < 0.0) { /* within the slack of the plan */
        dtp_strbuf_addf(out, ", with a peak of %s", dtp_byte_count((double)q->peak_bytes).text);
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

/* Collectives of one kind, of what goes by one name. */
typedef struct traffic {
    const char *kind;
    char name[NAME_BYTES];
    double time_s, exposed_s;
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

/* Adds to what has the same kind and name. */
static void add_traffic(traffic *list, int32_t *n, const traffic *one)
{
    int32_t k = 0;
    while (k < *n &&
           (strcmp(list[k].name, one->name) != 0 || strcmp(list[k].kind, one->kind) != 0)) {
        k++;
    }
    if (k == *n) {
        list[(*n)++] = *one;
        return;
    }
    list[k].time_s += one->time_s;
    list[k].exposed_s += one->exposed_s;
    list[k].times += one->times;
}

/* The first of them, by time. `told`: what is exposed is known. */
static void print_traffic(traffic *list, int32_t n, int32_t most, double all_s, bool told,
                          dtp_strbuf *out)
{
    qsort(list, (size_t)n, sizeof *list, by_time);
    for (int32_t k = 0; k < n && k < most; k++) {
        dtp_strbuf_addf(out, "  %-10s %4.0f %%  %s of %s, %lld time%s",
                        dtp_seconds(list[k].time_s).text, 100.0 * list[k].time_s / all_s,
                        list[k].kind, list[k].name, (long long)list[k].times,
                        list[k].times == 1 ? "" : "s");
        if (told) {
            dtp_strbuf_addf(out, ", %s exposed", dtp_seconds(list[k].exposed_s).text);
        }
        dtp_strbuf_add(out, "\n");
    }
}

/* Parameters, and gradients on their way to updates, can be sent long before or after they are
 * needed; what makes or reads an activation waits. */
static const char *class_of(const dtp_graph *g, const dtp_comm_entry *e, dtp_tensor_id t)
{
    const bool param =
        t >= 0 && (g->tensors[t].kind == DTP_TENSOR_PARAM || dtp_graph_param_of(g, t) >= 0);
    return param                                                          ? "parameters"
           : e->cause == DTP_COMM_GRADIENT || e->cause == DTP_COMM_UPDATE ? "gradients"
                                                                          : "activations";
}

/* In all and by kind, then the dearest. */
static dtp_status print_communication(const dtp_program *p, const dtp_machine *machine,
                                      dtp_arena *arena, dtp_strbuf *out, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const bool overlaps = machine != NULL && machine->overlap && p->target->asynchronous;
    traffic *list, *classes;
    double *exposed_s = NULL, all_s = 0.0, all_exposed_s = 0.0;
    int32_t n = 0, n_classes = 0;
    dtp_schedule_result schedule;
    dtp_comm_report report;
    dtp_tensor_id *tensor;
    DTP_TRY(dtp_comm_report_make(p, arena, &report, err));
    DTP_TRY(dtp_comm_tensors(p, arena, &tensor, err));
    DTP_TRY(DTP_NEW(arena, list, report.n_entries, err));
    DTP_TRY(DTP_NEW(arena, classes, report.n_entries, err));
    DTP_TRY(DTP_NEW(arena, exposed_s, p->n_instrs, err));
    if (overlaps && !dtp_schedule_program(p, machine, &schedule, exposed_s)) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                        p->n_instrs);
    }
    for (int32_t i = 0; i < report.n_entries; i++) {
        const dtp_comm_entry *e = &report.entries[i];
        const dtp_tensor_id t = tensor[p->instrs[e->instr].in[0]];
        const dtp_node_id node = p->instrs[e->instr].node;
        const double time_s = (double)e->runs * p->instrs[e->instr].time_s;
        if (!(time_s > 0.0)) {
            continue;
        }
        traffic one = {.kind = dtp_coll_name(e->kind),
                       .time_s = time_s,
                       .exposed_s = overlaps ? exposed_s[e->instr] : time_s,
                       .times = e->runs,
                       .first = e->instr};
        all_s += one.time_s;
        all_exposed_s += one.exposed_s;
        (void)snprintf(one.name, sizeof one.name, "%s", class_of(g, e, t));
        add_traffic(classes, &n_classes, &one);
        dtp_general_name(t >= 0      ? g->tensors[t].name
                         : node >= 0 ? g->nodes[node].name
                                     : "-",
                         one.name, sizeof one.name);
        add_traffic(list, &n, &one);
    }
    if (n > 0) {
        dtp_strbuf_addf(out, "\ncommunication of %s", dtp_seconds(all_s).text);
        if (machine != NULL) {
            dtp_strbuf_addf(out, ", %.1f %% of it beside compute, %s exposed",
                            100.0 * fmax(1.0 - all_exposed_s / all_s, 0.0),
                            dtp_seconds(all_exposed_s).text);
        }
        dtp_strbuf_add(out, "\n");
        print_traffic(classes, n_classes, n_classes, all_s, overlaps, out);
        dtp_strbuf_add(out, "\ndearest communication\n");
        print_traffic(list, n, DEAREST, all_s, overlaps, out);
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
                           const dtp_plan *plan, const dtp_machine *machine, dtp_strbuf *out,
                           dtp_err *err)
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
        status = p != NULL ? print_communication(p, machine, arena, out, err) : DTP_OK;
    }
    status = status == DTP_OK && p != NULL ? print_peak(p, arena, out, err) : status;
    dtp_arena_destroy(arena);
    return status;
}

dtp_status dtp_words_job_print(const dtp_job *job, const dtp_plan *plan, const dtp_machine *machine,
                               dtp_strbuf *out, dtp_err *err)
{
    const dtp_pipeline *p = job->pipeline;
    if (p == NULL) {
        return dtp_words_print(job->graph, &job->sharding, job->program, plan, machine, out, err);
    }
    dtp_strbuf_add(out, "\n");
    dtp_pipeline_print(p, NULL, out); /* the step is the plan's */
    dtp_strbuf_add(out, "\ncollectives and sends of a rank of each stage\n");
    for (int32_t k = 0; k < p->table.n_stages; k++) {
        dtp_strbuf_addf(out, "  stage %d:", k);
        dtp_pipeline_print_collectives(p, k, out);
        int64_t sends = 0, bytes = 0;
        for (int32_t i = 0; i < p->times.n_messages; i++) {
            const dtp_stage_message *x = &p->times.messages[i];
            const int64_t n = x->from % p->table.n_stages == k ? dtp_message_sends(p, x) : 0;
            sends += n;
            bytes += n * x->bytes;
        }
        dtp_strbuf_addf(out, " %lld sends (%s)\n", (long long)sends,
                        dtp_byte_count((double)bytes).text);
    }
    return dtp_words_print(job->graph, &job->sharding, NULL, plan, machine, out, err);
}
