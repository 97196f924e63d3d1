/* Steps of a rank of a pipeline stage: its table of sections, and the messages behind them.
 *
 * Receives are posted as early as their memory is free: those of a microbatch with its slot, those
 * of the update after the last backward section. So what is sent back finds its receive posted, and
 * a stage waits in three places alone: before a section for what it reads; before a forward section
 * for the gradients that were sent from its slot; and at the end of the step. A channel is a pair
 * of chunks: both ends post in the order of the sender's sections. On a queue the stage does not
 * wait, but what comes later on the queue does (transport.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "executor/comm/sub_communicator.h"
#include "executor/device/convert.h"
#include "executor/session/session_internal.h"

/* Whether a chunk lies on the stage of this rank. */
static bool is_here(const dtp_session__pipeline *l, int32_t chunk)
{
    return chunk % l->stages->n == l->stage;
}

/* Whether a transfer goes once per step. */
static bool is_single(const dtp_transfer *x)
{
    return x->once || x->section >= DTP_SECTION_UPDATE;
}

/* One end of a transfer of a microbatch. Both are here where two chunks of the stage have them. */
static dtp_message *end_of(const dtp_session__pipeline *l, int32_t k, int32_t microbatch,
                           bool sends)
{
    const int32_t m = is_single(&l->stages->transfers[k]) ? 0 : microbatch;
    return &l->messages[2 * (k * l->table.n_microbatches + m) + (sends ? 1 : 0)];
}

/* What a rank of the stage does with a transfer, where that fails. */
static dtp_status worded(const dtp_session *s, const dtp_transfer *x, int32_t microbatch,
                         bool sends, dtp_status status, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const char *name = s->program->graph->tensors[x->tensor].name;
    char of[40] = "";
    if (status != DTP_OK && l->stages->n_chunks > l->stages->n) {
        (void)snprintf(of, sizeof of, "chunk %d, ", x->from / l->stages->n);
    }
    return dtp_err_prefixed(status, err,
                            "rank %d: step %" PRId64 ": stage %d %s '%s' %s stage %d, behind "
                            "section %s of %smicrobatch %d",
                            s->comm->rank, s->step, l->stage, sends ? "sends" : "receives", name,
                            sends ? "to" : "from", (sends ? x->to : x->from) % l->stages->n,
                            dtp_section_name(x->section).text, of, microbatch);
}

/* An end of a transfer, without its memory. */
static dtp_message end_at(const dtp_session *s, int32_t k, bool sends)
{
    const dtp_stages *stages = s->pipeline.stages;
    const dtp_transfer *x = &stages->transfers[k];
    const int32_t ranks = dtp_mesh_ranks(&s->pipeline.comm->mesh);
    return (dtp_message){.peer =
                             (sends ? x->to : x->from) % stages->n * ranks + s->pipeline.comm->rank,
                         .channel = x->from * stages->n_chunks + x->to,
                         .sends = sends};
}

static dtp_status post(dtp_session *s, int32_t k, int32_t microbatch, bool sends, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_transfer *x = &l->stages->transfers[k];
    const dtp_tensor_id t = x->into >= 0 ? x->into : x->tensor;
    const dtp_runner *r = s->runners[(sends ? x->from : x->to) / l->stages->n];
    const dtp_view *view = dtp_runner_view(r, dtp_runner_program(r)->tensor_value[t]);
    dtp_transport *over = &s->comm->transport;
    dtp_message *m = end_of(l, k, microbatch, sends);
    *m = end_at(s, k, sends);
    m->data = view->data;
    m->bytes = dtp_ttype_bytes(&view->local);
    return worded(s, x, microbatch, sends, over->ops->post(over, m, err), err);
}

static dtp_status finish(dtp_session *s, int32_t k, int32_t microbatch, bool sends, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_transfer *x = &l->stages->transfers[k];
    dtp_transport *over = &s->comm->transport;
    return worded(s, x, microbatch, sends,
                  over->ops->finish(over, end_of(l, k, microbatch, sends), err), err);
}

/* Gives the slot of action i, or, with i = -1, every slot, to the next microbatch that has it: what
 * other stages send of it may come. Sets a slot. */
static dtp_status give_next(dtp_session *s, int32_t i, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_stage_action *actions = l->table.actions[l->stage];
    const int32_t n = l->table.n_actions[l->stage], from = i < 0 ? 0 : actions[i].slot;
    for (int32_t slot = from; slot < (i < 0 ? l->table.slots[l->stage] : from + 1); slot++) {
        int32_t next = i + 1;
        while (next < n &&
               (actions[next].section != DTP_SECTION_FORWARD || actions[next].slot != slot)) {
            next++;
        }
        const dtp_stage_action *a = &actions[next < n ? next : 0];
        dtp_runner_set_slot(s->runners[a->chunk / l->stages->n], slot);
        for (int32_t k = 0; k < l->stages->n_transfers && next < n; k++) {
            const dtp_transfer *x = &l->stages->transfers[k];
            const bool comes = x->to == a->chunk && !is_single(x);
            DTP_TRY(comes ? post(s, k, a->microbatch, false, err) : DTP_OK);
        }
    }
    return DTP_OK;
}

/* Waits for what was sent of a microbatch behind a section of it. */
static dtp_status finish_sent(dtp_session *s, const dtp_stage_action *a, int32_t section,
                              dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        const bool sent = x->from == a->chunk && x->section == section && !is_single(x);
        DTP_TRY(sent ? finish(s, k, a->microbatch, true, err) : DTP_OK);
    }
    return DTP_OK;
}

/* Waits until a slot is free: what was sent from it has gone. Forward messages have long since,
 * but where no gradient comes back. */
static dtp_status empty(dtp_session *s, int32_t slot, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const int32_t i = l->emptied[slot];
    l->emptied[slot] = -1;
    return i >= 0 ? finish_sent(s, &l->table.actions[l->stage][i], DTP_SECTION_BACKWARD, err)
                  : DTP_OK;
}

/* Waits for what the section of an action reads. */
static dtp_status await_operands(dtp_session *s, const dtp_stage_action *a, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        const int32_t reader = x->once ? DTP_SECTION_UPDATE + 1 : x->section + 1;
        const bool read = x->into < 0 && a->section == (is_single(x) ? reader : x->section);
        DTP_TRY(x->to == a->chunk && read ? finish(s, k, a->microbatch, false, err) : DTP_OK);
    }
    return DTP_OK;
}

/* Posts the receives of the update, in the order of the sections behind which they are sent. */
static dtp_status receive_singles(dtp_session *s, dtp_err *err)
{
    const dtp_stages *stages = s->pipeline.stages;
    for (int32_t section = 0; section < DTP_SECTION_UPDATE + stages->n_parts; section++) {
        for (int32_t k = 0; k < stages->n_transfers; k++) {
            const dtp_transfer *x = &stages->transfers[k];
            const bool comes = is_here(&s->pipeline, x->to) && is_single(x);
            DTP_TRY(comes && x->section == section ? post(s, k, 0, false, err) : DTP_OK);
        }
    }
    return DTP_OK;
}

/* Behind a section: its results go, and what its microbatch no longer needs is given away. */
static dtp_status send_results(dtp_session *s, int32_t i, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_stage_action *a = &l->table.actions[l->stage][i];
    const int32_t n = l->stages->n_transfers, m = a->microbatch;
    const bool last = m == l->table.n_microbatches - 1;
    for (int32_t k = 0; k < 2 * n; k++) { /* what goes once goes last */
        const dtp_transfer *x = &l->stages->transfers[k % n];
        const bool sends = x->from == a->chunk && x->section == a->section && x->once == (k >= n);
        DTP_TRY(sends && (!x->once || last) ? post(s, k % n, m, true, err) : DTP_OK);
    }
    if (a->section != DTP_SECTION_BACKWARD) {
        return DTP_OK;
    }
    DTP_TRY(finish_sent(s, a, DTP_SECTION_FORWARD, err));
    l->emptied[a->slot] = i;
    DTP_TRY(give_next(s, i, err));
    const bool ends = i + 1 == l->table.n_actions[l->stage] - l->table.n_parts * s->n_chunks;
    return ends ? receive_singles(s, err) : DTP_OK; /* nothing reads copies now */
}

dtp_status dtp_session__stage_step(dtp_session *s, double *feed_s, dtp_err *err)
{
    dtp_session__pipeline *l = &s->pipeline;
    const double zero = dtp_now_s(), fed_s = *feed_s;
    DTP_TRY(give_next(s, -1, err));
    for (int32_t i = 0; i < l->table.n_actions[l->stage]; i++) {
        const dtp_stage_action *a = &l->table.actions[l->stage][i];
        const bool first = a->section == DTP_SECTION_FORWARD && a->microbatch == 0;
        dtp_action_times *ran = &l->ran[i];
        dtp_session__enter(s, a->chunk / l->stages->n);
        ran->waits_s = dtp_now_s() - zero;
        DTP_TRY(await_operands(s, a, err));
        DTP_TRY(a->section == DTP_SECTION_FORWARD ? empty(s, a->slot, err) : DTP_OK);
        ran->ready_s = dtp_now_s() - zero;
        if (a->slot >= 0) {
            dtp_runner_set_slot(s->runner, a->slot);
        }
        if (a->section == DTP_SECTION_FORWARD) {
            const double before = dtp_now_s();
            DTP_TRY(dtp_session__feed(s, a->microbatch, err));
            *feed_s += dtp_now_s() - before;
        }
        ran->begin_s = dtp_now_s() - zero;
        DTP_TRY(dtp_err_prefixed(
            dtp_runner_section(s->runner, s->seed, s->step, a->microbatch, a->section, first, err),
            err, "stage %d, section %s of microbatch %d", l->stage,
            dtp_section_name(a->section).text, a->microbatch));
        ran->end_s = dtp_now_s() - zero;
        DTP_TRY(send_results(s, i, err));
        ran->sent_s = dtp_now_s() - zero;
    }
    for (int32_t slot = 0; slot < l->table.slots[l->stage]; slot++) {
        DTP_TRY(empty(s, slot, err));
    }
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        const bool sends = is_single(x) && is_here(l, x->from);
        const bool comes = is_single(x) && is_here(l, x->to) && x->into >= 0;
        DTP_TRY(sends ? finish(s, k, 0, true, err) : DTP_OK);
        DTP_TRY(comes ? finish(s, k, 0, false, err) : DTP_OK);
    }
    l->step_s = dtp_now_s() - zero - (*feed_s - fed_s);
    return DTP_OK;
}

/* ---- creation ---- */

void dtp_session__readable(const dtp_program *p, dtp_value_id *out)
{
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        const dtp_value_id v = p->tensor_value[t];
        const bool kept = v >= 0 && p->values[v].keep && p->values[v].sent == 0;
        out[t] = kept ? v : -1;
    }
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (value->kind == DTP_VALUE_RESIDENT && value->tensor >= 0) {
            out[value->tensor] = v;
        }
    }
}

static dtp_status open_stage(dtp_session *s, const dtp_program *p, dtp_err *err)
{
    dtp_session__pipeline *l = &s->pipeline;
    dtp_mesh_set sets[DTP_MAX_MESH_DIMS];
    dtp_value_id *of;
    const dtp_stages *stages = p->graph->stages;
    DTP_TRY(dtp_stages_mesh(&p->mesh, stages->n, &l->mesh, err));
    if (s->comm->size != dtp_mesh_ranks(&l->mesh)) {
        return DTP_FAIL(err, DTP_INVALID, "%d ranks for %d stages of a mesh of %d", s->comm->size,
                        stages->n, dtp_mesh_ranks(&p->mesh));
    }
    if (s->comm->transport.ops->post == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "stages need messages, which transport '%s' has not",
                        s->comm->transport.ops->name);
    }
    for (int32_t d = 0; d < p->mesh.n_dims; d++) {
        sets[d] = (dtp_mesh_set)2 << d;
    }
    DTP_TRY(dtp_sub_communicator_create(s->comm, &p->mesh, sets, &l->comm, err));
    l->stages = stages;
    l->stage = s->comm->rank / dtp_mesh_ranks(&p->mesh);
    l->arena = dtp_arena_create();
    s->n_chunks = stages->n_chunks / stages->n;
    DTP_TRY(dtp_stage_table_of(p->graph, l->arena, &l->table, err));
    DTP_TRY(dtp_stage_table_check(&l->table, err));
    for (int32_t k = 0; k < stages->n_transfers; k++) { /* else a channel has two orders */
        const dtp_transfer *x = &stages->transfers[k];
        if (!is_single(x) && (x->section == DTP_SECTION_FORWARD) != (x->from < x->to)) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' goes from chunk %d to %d, behind section %s",
                            p->graph->tensors[x->tensor].name, x->from, x->to,
                            dtp_section_name(x->section).text);
        }
    }
    DTP_TRY(DTP_NEW(l->arena, l->messages,
                    2 * (size_t)stages->n_transfers * (size_t)p->graph->microbatches, err));
    DTP_TRY(DTP_NEW(l->arena, l->ran, (size_t)l->table.n_actions[l->stage], err));
    DTP_TRY(DTP_NEW(l->arena, l->emptied, l->table.slots[l->stage], err));
    memset(l->emptied, -1, (size_t)l->table.slots[l->stage] * sizeof l->emptied[0]);
    s->program = p->chunks[l->stage];
    DTP_TRY(DTP_NEW(l->arena, l->home_value, (size_t)p->graph->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(l->arena, of, (size_t)p->graph->n_tensors + 1, err));
    for (int32_t k = 0; k < stages->n_chunks; k++) {
        dtp_session__readable(p->chunks[k], of);
        for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
            l->home_value[t] = stages->home[t] == k ? of[t] : l->home_value[t];
        }
    }
    return DTP_OK;
}

/* The channels of this rank, in the order of the transfers. */
static dtp_status connect_all(dtp_session *s, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    dtp_transport *over = &s->comm->transport;
    dtp_message *ends;
    int32_t n = 0;
    DTP_TRY(DTP_NEW(l->arena, ends, l->stages->n_transfers, err));
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const bool sends = is_here(l, l->stages->transfers[k].from);
        if (sends != is_here(l, l->stages->transfers[k].to)) {
            const dtp_message end = end_at(s, k, sends);
            int32_t i = 0;
            while (i < n && ends[i].channel != end.channel) {
                i++;
            }
            ends[i] = end;
            n += i == n ? 1 : 0;
        }
    }
    return over->ops->connect(over, n, ends, err);
}

dtp_status dtp_session__stages_open(dtp_session *s, const dtp_program *p, dtp_err *err)
{
    s->pipeline.comm = s->comm;
    if (p->graph->stages == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_comm_agree_status(s->comm, open_stage(s, p, err), err));
    return s->comm->transport.ops->connect != NULL
               ? dtp_comm_agree_status(s->comm, connect_all(s, err), err)
               : DTP_OK;
}

void dtp_session__stages_close(dtp_session *s)
{
    if (s->pipeline.stages != NULL) {
        dtp_comm_destroy(s->pipeline.comm);
    }
    dtp_arena_destroy(s->pipeline.arena);
}

/* ---- chunks of this rank ---- */

void dtp_session__enter(dtp_session *s, int32_t k)
{
    s->chunk = k;
    s->runner = s->runners[k];
    s->program = dtp_runner_program(s->runner);
    s->tensor_value = s->tensor_values[k];
}

int32_t dtp_session__chunk_of(const dtp_session *s, dtp_tensor_id t)
{
    int32_t best = 0;
    for (int32_t k = 1; k < s->n_chunks; k++) {
        const int32_t home = s->pipeline.stages->home[t];
        const bool has = s->tensor_values[k][t] >= 0;
        best = has && (s->tensor_values[best][t] < 0 ||
                       home == k * s->pipeline.stages->n + s->pipeline.stage)
                   ? k
                   : best;
    }
    return best;
}

dtp_status dtp_session__finish_chunks(dtp_session *s, dtp_runner_times *times, double *loss,
                                      double *norm, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    const bool queue = s->backend->ops->queue != NULL;
    *loss = *norm = 0.0;
    for (int32_t k = 0; k < s->n_chunks; k++) {
        double raw[DTP_RUNNER_READS] = {0};
        dtp_runner_times own;
        dtp_session__enter(s, k);
        const dtp_value_id v = g->loss >= 0 ? s->tensor_value[g->loss] : -1;
        const dtp_value_id n = g->norm >= 0 ? s->tensor_value[g->norm] : -1;
        DTP_TRY(dtp_runner_finish(s->runner, &own, raw, err));
        /* on a queue chunks have times from the same begin to the same end */
        times->total_s = queue ? fmax(times->total_s, own.total_s) : times->total_s + own.total_s;
        times->compute_s += own.compute_s;
        times->comm_s += own.comm_s;
        *loss = v >= 0 ? dtp_element(s->program->values[v].type.dtype, &raw[0], 0) : *loss;
        *norm = n >= 0 ? dtp_element(s->program->values[n].type.dtype, &raw[1], 0) : *norm;
    }
    if (s->pipeline.stages != NULL && queue) {
        times->compute_s = (double)NAN; /* a queue does not tell what of it is waiting */
    } else if (s->pipeline.stages != NULL) {
        times->total_s = s->pipeline.step_s; /* with what the stage waits for others */
    }
    return DTP_OK;
}

dtp_runner *dtp_session_chunk_runner(const dtp_session *s, int32_t k)
{
    return s->runners[k];
}

const dtp_action_times *dtp_session_actions(const dtp_session *s, const dtp_stage_table **table)
{
    *table = &s->pipeline.table;
    return s->pipeline.ran;
}

void dtp_session__abandon(dtp_session *s, const char *why)
{
    dtp_runner_give_up(s->runners[0], why);
}

/* ---- what all ranks know ---- */

const dtp_value *dtp_session__kept(const dtp_session *s, dtp_tensor_id t)
{
    const dtp_stages *stages = s->pipeline.stages;
    const dtp_program *p = stages != NULL ? s->program->chunks[stages->home[t]] : s->program;
    const dtp_value_id v = stages != NULL ? s->pipeline.home_value[t] : s->tensor_value[t];
    return v >= 0 ? &p->values[v] : NULL;
}

dtp_status dtp_session__share(dtp_session *s, dtp_tensor_id t, double *x, dtp_err *err)
{
    const dtp_stages *stages = s->pipeline.stages;
    if (stages == NULL) {
        return DTP_OK;
    }
    *x = is_here(&s->pipeline, stages->home[t]) ? *x : 0.0;
    const dtp_coll sum = {
        .kind = DTP_ALL_REDUCE, .set = 1, .op = DTP_REDUCE_SUM, .dtype = DTP_F64, .count = 1};
    return s->comm->ops->run(s->comm, &sum, x, x, err);
}

bool dtp_session_can_fetch(const dtp_session *s, dtp_tensor_id t)
{
    return dtp_session__kept(s, t) != NULL;
}
