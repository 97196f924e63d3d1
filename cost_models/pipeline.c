/* Programs, prediction and choice of a plan with stages (pipeline.h). */
#include "cost_models/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "cost_models/price_limit.h"
#include "cost_models/timeline.h"
#include "spmd/lower/overlap.h"

/* ---- programs ---- */

/* Right after all were placed: one arena a stage, and what all are now. */
static dtp_status check_programs(dtp_pipeline *p, int32_t n_stages, dtp_err *err)
{
    DTP_TRY(dtp_programs_share(p->programs, p->n, n_stages, err));
    for (int32_t k = 0; k < p->n; k++) {
        DTP_TRY(dtp_err_prefixed(dtp_program_check(p->programs[k], err), err, "stage %d",
                                 k % n_stages));
    }
    return dtp_programs_check_shared((const dtp_program *const *)p->programs, p->n, n_stages, err);
}

static dtp_status lower_stages(const dtp_graph *g, const dtp_sharding *s,
                               const dtp_lower_options *options, dtp_pipeline *p, dtp_err *err)
{
    dtp_lower_options one = *options;
    p->arena = dtp_arena_create();
    p->programs = dtp_arena_alloc(p->arena, (size_t)g->stages->n_chunks, sizeof(dtp_program *));
    DTP_TRY(DTP_MEMORY(err, p->programs));
    p->n = g->stages->n_chunks;
    for (int32_t k = 0; k < p->n; k++) {
        one.chunk = k;
        DTP_TRY(dtp_err_prefixed(dtp_lower(g, s, &one, &p->programs[k], err), err, "stage %d",
                                 dtp_chunk_stage(g, k)));
        p->programs[k]->chunks = (const dtp_program *const *)p->programs;
    }
    DTP_TRY(options->unplaced ? DTP_OK : check_programs(p, g->stages->n, err));
    DTP_TRY(dtp_stage_table_of(g, p->arena, &p->table, err));
    return dtp_stage_table_check(&p->table, err);
}

dtp_status dtp_pipeline_create(const dtp_graph *g, const dtp_sharding *s,
                               const dtp_lower_options *options, dtp_pipeline **out, dtp_err *err)
{
    dtp_pipeline *p = calloc(1, sizeof *p);
    DTP_TRY(DTP_MEMORY(err, p));
    const dtp_status status = lower_stages(g, s, options, p, err);
    if (status != DTP_OK) {
        dtp_pipeline_destroy(p);
        return status;
    }
    *out = p;
    return DTP_OK;
}

void dtp_pipeline_destroy(dtp_pipeline *p)
{
    for (int32_t k = 0; p != NULL && k < p->n; k++) {
        dtp_program_destroy(p->programs[k]);
    }
    if (p != NULL) {
        dtp_arena_destroy(p->arena);
        free(p);
    }
}

/* ---- prices ---- */

dtp_status dtp_pipeline_between(const dtp_pricer *pricer, int32_t n_stages, dtp_pricer *out,
                                dtp_err *err)
{
    dtp_mesh mesh;
    DTP_TRY(dtp_stages_mesh(&pricer->mesh, n_stages, &mesh, err));
    return dtp_err_prefixed(dtp_pricer_init(pricer->machine, &mesh, pricer->target, out, err), err,
                            "stages: %d stages of a mesh of %d ranks", n_stages,
                            dtp_mesh_ranks(&pricer->mesh));
}

double dtp_pipeline_send_s(const dtp_pricer *between, int64_t bytes, int32_t hops)
{
    if (hops == 0) {
        return dtp_price_move(between->machine, DTP_COPY_WHOLE, (double)bytes);
    }
    const dtp_coll send = {.kind = DTP_PERMUTE,
                           .set = 1,
                           .dtype = DTP_BOOL, /* one byte */
                           .count = bytes,
                           .shift = hops};
    return dtp_price_coll(between, &send);
}

int32_t dtp_pipeline_sends(const dtp_graph *g, const dtp_transfer *transfer)
{
    return transfer->section < DTP_SECTION_UPDATE && !transfer->once ? g->microbatches : 1;
}

int64_t dtp_transfer_bytes(const dtp_program *const *chunks, const dtp_transfer *x)
{
    const dtp_program *from = chunks[x->from];
    return from->values[from->tensor_value[x->into >= 0 ? x->into : x->tensor]].bytes;
}

static dtp_status too_dear(dtp_err *err)
{
    return DTP_FAIL(err, DTP_RANGE, "all stages together cost more than a step may");
}

/* Adds what is sent to an additive cost. */
static dtp_status add_sends(const dtp_pipeline *p, const dtp_pricer *pricer, int64_t *cost_ps,
                            dtp_err *err)
{
    const dtp_graph *g = p->programs[0]->graph;
    dtp_pricer between;
    DTP_TRY(dtp_pipeline_between(pricer, g->stages->n, &between, err));
    for (int32_t k = 0; k < g->stages->n_transfers; k++) {
        const dtp_transfer *x = &g->stages->transfers[k];
        const double s =
            dtp_pipeline_send_s(&between, dtp_transfer_bytes(p->programs[0]->chunks, x),
                                dtp_transfer_hops(g->stages, x->from, x->to));
        if (!dtp_cost_add(cost_ps, dtp_picoseconds(s), dtp_pipeline_sends(g, x))) {
            return too_dear(err);
        }
    }
    return DTP_OK;
}

/* What goes between two stages behind a section goes as one. */
static dtp_status find_messages(dtp_pipeline *p, const dtp_pricer *pricer, dtp_err *err)
{
    const dtp_stages *stages = p->programs[0]->graph->stages;
    dtp_pipeline_times *t = &p->times;
    dtp_pricer between;
    DTP_TRY(pricer != NULL ? dtp_pipeline_between(pricer, stages->n, &between, err) : DTP_OK);
    t->n_messages = 0;
    DTP_TRY(DTP_NEW(p->arena, t->messages, stages->n_transfers, err));
    for (int32_t k = 0; k < stages->n_transfers; k++) {
        const dtp_transfer *x = &stages->transfers[k];
        int32_t i = 0;
        while (i < t->n_messages &&
               (t->messages[i].from != x->from || t->messages[i].to != x->to ||
                t->messages[i].section != x->section || t->messages[i].once != x->once)) {
            i++;
        }
        if (i == t->n_messages) {
            t->messages[t->n_messages++] = (dtp_stage_message){
                .from = x->from, .to = x->to, .section = x->section, .once = x->once};
        }
        t->messages[i].bytes += dtp_transfer_bytes(p->programs[0]->chunks, x);
    }
    for (int32_t i = 0; i < t->n_messages && pricer != NULL; i++) {
        dtp_stage_message *x = &t->messages[i];
        x->time_s =
            dtp_pipeline_send_s(&between, x->bytes, dtp_transfer_hops(stages, x->from, x->to));
    }
    return DTP_OK;
}

static dtp_status find_sections(dtp_pipeline *p, const dtp_pricer *pricer, dtp_err *err)
{
    const int32_t n_sections = DTP_SECTION_UPDATE + p->table.n_parts;
    DTP_TRY(DTP_NEW(p->arena, p->times.section_s, 2 * n_sections * p->n, err));
    for (int32_t k = 0; k < 2 * n_sections * p->n; k++) {
        const dtp_program *program = p->programs[k / 2 / n_sections];
        dtp_schedule_result r;
        dtp_schedule_task *tasks =
            dtp_schedule_section(program, pricer->machine, dtp_pricer_overlaps(pricer),
                                 k / 2 % n_sections, k % 2 == 0, &r);
        if (tasks == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                            program->n_instrs);
        }
        free(tasks);
        p->times.section_s[k] = r.end_s;
    }
    return DTP_OK;
}

double dtp_pipeline_work_s(const dtp_pipeline *p, int32_t s)
{
    const int32_t n_sections = DTP_SECTION_UPDATE + p->table.n_parts;
    double all = 0.0;
    for (int32_t c = s; c < p->n; c += p->table.n_stages) {
        const double *of = p->times.section_s + 2 * c * n_sections;
        for (int32_t k = 0; k < n_sections; k++) {
            all += k < DTP_SECTION_UPDATE
                       ? of[2 * k] + (p->table.n_microbatches - 1) * of[2 * k + 1]
                       : of[2 * k + 1];
        }
    }
    return all;
}

/* Adds the times and collectives of another chunk of a stage. */
static void add_prediction(dtp_prediction *to, const dtp_prediction *x)
{
    to->compute_s += x->compute_s;
    to->comm_s += x->comm_s;
    to->exposed_comm_s += x->exposed_comm_s;
    to->host_s += x->host_s;
    to->skew_s += x->skew_s;
    for (int32_t k = 0; k < DTP_N_COMPUTE_PARTS; k++) {
        to->compute_parts_s[k] += x->compute_parts_s[k];
    }
    for (int32_t k = 0; k < DTP_N_COLL_TOTALS; k++) {
        to->collectives[k].count += x->collectives[k].count;
        to->collectives[k].bytes += x->collectives[k].bytes;
    }
}

static dtp_status replay(dtp_pipeline *p, dtp_prediction *out, dtp_err *err)
{
    dtp_pipeline_times without = p->times;
    dtp_pipeline_step sent, unsent;
    double most = 0.0, mean = 0.0;
    dtp_arena *arena = dtp_arena_create();
    without.n_messages = p->times.n_messages;
    dtp_status s = DTP_NEW(arena, without.messages, without.n_messages, err);
    for (int32_t k = 0; k < without.n_messages && s == DTP_OK; k++) {
        without.messages[k] = p->times.messages[k];
        without.messages[k].time_s = 0.0;
    }
    s = s == DTP_OK ? dtp_pipeline_replay(&p->table, &p->times, arena, &sent, err) : s;
    s = s == DTP_OK ? dtp_pipeline_replay(&p->table, &without, arena, &unsent, err) : s;
    dtp_arena_destroy(arena);
    DTP_TRY(s);
    for (int32_t k = 0; k < p->table.n_stages; k++) {
        const double work_s = dtp_pipeline_work_s(p, k);
        most = work_s > most ? work_s : most;
        mean += work_s / p->table.n_stages;
    }
    out->step_time_s = sent.end_s;
    out->exposed_sends_s = sent.end_s - unsent.end_s;
    out->bubble_s = unsent.end_s - most;
    out->imbalance_s = most - mean;
    return DTP_OK;
}

dtp_status dtp_pipeline_predict(dtp_pipeline *p, const dtp_pricer *pricer, dtp_prediction *out,
                                dtp_err *err)
{
    int32_t most = 0;
    dtp_prediction *each;
    DTP_TRY(DTP_NEW(p->arena, each, p->n, err));
    for (int32_t k = 0; k < p->n; k++) {
        DTP_TRY(pricer != NULL ? dtp_predict(pricer, p->programs[k], &each[k], err)
                               : dtp_predict_counts(p->programs[k], &each[k], err));
    }
    DTP_TRY(find_messages(p, pricer, err));
    if (pricer != NULL) {
        DTP_TRY(find_sections(p, pricer, err));
        DTP_TRY(replay(p, &each[0], err));
        for (int32_t s = 1; s < p->table.n_stages; s++) {
            most = dtp_pipeline_work_s(p, s) > dtp_pipeline_work_s(p, most) ? s : most;
        }
    }
    for (int32_t c = p->table.n_stages; c < p->n; c++) {
        add_prediction(&each[c % p->table.n_stages], &each[c]);
    }
    p->stages = each;
    *out = each[most];
    out->bubble_s = each[0].bubble_s;
    out->imbalance_s = each[0].imbalance_s;
    out->exposed_sends_s = each[0].exposed_sends_s;
    for (int32_t k = p->table.n_stages - 1; k >= 0; k--) {
        out->step_time_s = each[k].step_time_s = each[0].step_time_s;
    }
    for (int32_t k = 0; k < p->table.n_stages; k++) {
        const bool larger = k == 0 || each[k].peak_bytes > out->peak_bytes;
        out->peak_stage = larger ? k : out->peak_stage;
        out->peak_bytes = larger ? each[k].peak_bytes : out->peak_bytes;
        out->reserved_bytes = larger ? each[k].reserved_bytes : out->reserved_bytes;
    }
    return DTP_OK;
}

/* ---- what is chosen ---- */

/* The depth with the shortest step within the limit. */
static dtp_status choose_depth(dtp_pipeline *p, const dtp_pricer *pricer, int64_t limit,
                               dtp_prediction *best, dtp_overlap *chosen, dtp_err *err)
{
    static const double GAIN = 0.001; /* what a deeper one must save */
    dtp_overlap overlap = *chosen;
    for (overlap.depth = 1; overlap.depth <= DTP_OVERLAP_MAX_DEPTH; overlap.depth *= 2) {
        dtp_prediction with;
        int64_t peak = 0;
        for (int32_t k = 0; k < p->n; k++) {
            dtp_overlap own = overlap;
            own.once_bytes = p->programs[k]->overlap.once_bytes;
            DTP_TRY(dtp_program_overlap(p->programs[k], &own, false, err));
        }
        DTP_TRY(dtp_programs_share(p->programs, p->n, p->table.n_stages, err));
        for (int32_t k = 0; k < p->n; k++) {
            peak = p->programs[k]->peak_bytes > peak ? p->programs[k]->peak_bytes : peak;
        }
        DTP_TRY(peak <= limit ? dtp_pipeline_predict(p, pricer, &with, err) : DTP_OK);
        if (peak <= limit && with.step_time_s < best->step_time_s * (1.0 - GAIN)) {
            *best = with;
            *chosen = overlap;
        }
    }
    return DTP_OK;
}

dtp_status dtp_pipeline_choose(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                               dtp_lower_options *options, dtp_prediction *predicted,
                               int64_t *cost_ps, dtp_err *err)
{
    dtp_pipeline *p = NULL;
    dtp_lower_options asked = *options;
    const int64_t limit = options->overlap.memory_bytes > 0 ? options->overlap.memory_bytes
                                                            : pricer->machine->memory_bytes;
    int64_t once = 0;
    asked.kept = cost_ps != NULL;
    asked.overlap.depth = 0;
    DTP_TRY(dtp_pipeline_create(g, s, &asked, &p, err));
    dtp_status status = dtp_pipeline_predict(p, pricer, predicted, err);
    if (status == DTP_OK && predicted->peak_bytes > limit && asked.overlap.once_bytes > 0) {
        dtp_pipeline_destroy(p);
        p = NULL;
        asked.overlap.once_bytes = 0;
        status = dtp_pipeline_create(g, s, &asked, &p, err);
        status = status == DTP_OK ? dtp_pipeline_predict(p, pricer, predicted, err) : status;
    }
    options->overlap = asked.overlap;
    options->overlap.memory_bytes = limit;
    for (int32_t k = 0; status == DTP_OK && k < p->n; k++) {
        const int64_t own = p->programs[k]->overlap.once_bytes;
        int64_t cost = 0;
        once = own > once ? own : once;
        status = cost_ps != NULL ? dtp_program_additive_cost(pricer, p->programs[k], &cost, err)
                                 : DTP_OK;
        if (status == DTP_OK && cost_ps != NULL) {
            *cost_ps = k > 0 ? *cost_ps : 0;
            status = dtp_cost_add(cost_ps, cost, 1) ? DTP_OK : too_dear(err);
        }
    }
    status = status == DTP_OK && cost_ps != NULL ? add_sends(p, pricer, cost_ps, err) : status;
    options->overlap.once_bytes = once;
    if (status == DTP_OK && dtp_pricer_overlaps(pricer) && predicted->peak_bytes <= limit) {
        status = choose_depth(p, pricer, limit, predicted, &options->overlap, err);
    }
    dtp_pipeline_destroy(p);
    return status;
}

/* ---- for people ---- */

/* "1", or "1.0" of a chunk, where stages have several. */
static const char *chunk_name(const dtp_pipeline *p, int32_t chunk, char *out, size_t bytes)
{
    const int32_t n = p->table.n_stages;
    (void)snprintf(out, bytes, p->n > n ? "%d.%d" : "%d", chunk % n, chunk / n);
    return out;
}

void dtp_pipeline_print(const dtp_pipeline *p, const dtp_prediction *predicted, dtp_strbuf *out)
{
    const int32_t n_sections = DTP_SECTION_UPDATE + p->table.n_parts, n = p->table.n_stages;
    const bool times = p->times.section_s != NULL;
    dtp_strbuf_addf(out, "%d stages, ", n);
    if (p->n > n) {
        dtp_strbuf_addf(out, "%d chunks on each, ", p->n / n);
    }
    dtp_strbuf_addf(out, "%d microbatches", p->table.n_microbatches);
    if (times && predicted != NULL) {
        dtp_strbuf_addf(
            out, "; step %s: bubble %s, imbalance %s, exposed sends %s",
            dtp_seconds(predicted->step_time_s).text, dtp_seconds(predicted->bubble_s).text,
            dtp_seconds(predicted->imbalance_s).text, dtp_seconds(predicted->exposed_sends_s).text);
    }
    dtp_strbuf_addf(out, "\n%-6s %5s %10s %10s", "stage", "slots", "peak", "a slot");
    for (int32_t k = 0; k < n_sections && times; k++) {
        dtp_strbuf_addf(out, " %10s", dtp_section_name(k).text);
    }
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < p->n; i++) { /* the chunks of a stage one below the other */
        const int32_t c = i % (p->n / n) * n + i / (p->n / n);
        const dtp_program *program = p->programs[c];
        char name[32];
        dtp_strbuf_addf(out, "%-6s %5d %10s %10s", chunk_name(p, c, name, sizeof name),
                        p->table.slots[c % n], dtp_byte_count((double)program->peak_bytes).text,
                        dtp_byte_count((double)program->slot_bytes).text);
        for (int32_t k = 0; k < n_sections && times; k++) {
            dtp_strbuf_addf(out, " %10s",
                            dtp_seconds(p->times.section_s[2 * (c * n_sections + k) + 1]).text);
        }
        dtp_strbuf_add(out, "\n");
    }
}

void dtp_pipeline_print_collectives(const dtp_pipeline *p, int32_t stage, dtp_strbuf *out)
{
    for (int32_t c = 0; c < DTP_N_COLL_TOTALS; c++) {
        const dtp_coll_total *t = &p->stages[stage].collectives[c];
        if (t->kind != NULL && t->count > 0) {
            dtp_strbuf_addf(out, " %s %lld (%s),", t->kind, (long long)t->count,
                            dtp_byte_count((double)t->bytes).text);
        }
    }
}

dtp_message_text dtp_message_print(const dtp_pipeline *p, const dtp_stage_message *x)
{
    dtp_message_text out;
    char from[24], to[24];
    (void)snprintf(out.text, sizeof out.text, "%s -> %s behind %s%s",
                   chunk_name(p, x->from, from, sizeof from), chunk_name(p, x->to, to, sizeof to),
                   x->once ? "the last " : "", dtp_section_name(x->section).text);
    return out;
}

int32_t dtp_message_sends(const dtp_pipeline *p, const dtp_stage_message *x)
{
    return x->once || x->section >= DTP_SECTION_UPDATE ? 1 : p->table.n_microbatches;
}

static void print_action(const dtp_pipeline *p, const dtp_stage_action *a, dtp_strbuf *out)
{
    const bool update = a->section >= DTP_SECTION_UPDATE;
    dtp_strbuf_addf(out, update ? "  %s" : "  %-8s", dtp_section_name(a->section).text);
    if (p->n > p->table.n_stages) {
        dtp_strbuf_addf(out, " chunk %d%s", a->chunk / p->table.n_stages, update ? "" : ",");
    }
    if (!update) {
        dtp_strbuf_addf(out, " microbatch %d, slot %d", a->microbatch, a->slot);
    }
}

dtp_status dtp_pipeline_print_table(const dtp_pipeline *p, dtp_strbuf *out, dtp_err *err)
{
    const bool times = p->times.section_s != NULL;
    dtp_pipeline_step step = {0};
    for (int32_t k = 0; k < p->times.n_messages; k++) {
        const dtp_stage_message *x = &p->times.messages[k];
        dtp_strbuf_addf(out, "send %s: %s%s%s\n", dtp_message_print(p, x).text,
                        dtp_byte_count((double)x->bytes).text, times ? ", " : "",
                        times ? dtp_seconds(x->time_s).text : "");
    }
    DTP_TRY(times ? dtp_pipeline_replay(&p->table, &p->times, p->arena, &step, err) : DTP_OK);
    for (int32_t s = 0; s < p->table.n_stages; s++) {
        dtp_strbuf_addf(out, "stage %d\n", s);
        for (int32_t i = 0; i < p->table.n_actions[s]; i++) {
            print_action(p, &p->table.actions[s][i], out);
            if (times) {
                dtp_strbuf_addf(out, ", begins at %s", dtp_seconds(step.begin_s[s][i]).text);
            }
            dtp_strbuf_add(out, "\n");
        }
    }
    return DTP_OK;
}
