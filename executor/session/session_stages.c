/* Steps of a rank of a pipeline stage: its table of sections, and the messages behind them.
 *
 * Receives are posted as early as their memory is free: those of a microbatch with its slot, those
 * of the update after the last backward section. So what is sent back finds its receive posted, and
 * a stage waits in three places alone: before a section for what it reads; behind a backward
 * section, before the slot is given to the next microbatch, for what was sent from it; and at the
 * end of the step. Channels are transfers of the graph, so nothing is out of order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "executor/comm/sub_communicator.h"
#include "executor/session/session_internal.h"

static dtp_message *message(const dtp_session__pipeline *l, int32_t transfer, int32_t microbatch)
{
    return &l->messages[transfer * l->table.n_microbatches + microbatch];
}

/* Whether a transfer goes once per step. */
static bool is_single(const dtp_transfer *x)
{
    return x->once || x->section >= DTP_SECTION_UPDATE;
}

/* What a rank of the stage does with a transfer, where that fails. */
static dtp_status worded(const dtp_session *s, const dtp_transfer *x, int32_t microbatch,
                         dtp_status status, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const char *name = s->program->graph->tensors[x->tensor].name;
    const bool sends = x->from == l->stage;
    return dtp_err_prefixed(status, err,
                            "rank %d: step %" PRId64 ": stage %d %s '%s' %s stage %d, behind "
                            "section %s of microbatch %d",
                            s->comm->rank, s->step, l->stage, sends ? "sends" : "receives", name,
                            sends ? "to" : "from", sends ? x->to : x->from,
                            dtp_section_name(x->section).text, microbatch);
}

static dtp_status post(dtp_session *s, int32_t k, int32_t microbatch, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_transfer *x = &l->stages->transfers[k];
    const bool sends = x->from == l->stage;
    const dtp_tensor_id t = x->into >= 0 ? x->into : x->tensor;
    const dtp_view *view = dtp_runner_view(s->runner, s->program->tensor_value[t]);
    const int32_t ranks = dtp_mesh_ranks(&s->program->mesh);
    dtp_transport *over = &s->comm->transport;
    dtp_message *m = message(l, k, is_single(x) ? 0 : microbatch);
    *m = (dtp_message){.peer = (sends ? x->to : x->from) * ranks + l->comm->rank,
                       .channel = k,
                       .sends = sends,
                       .data = view->data,
                       .bytes = dtp_ttype_bytes(&view->local)};
    return worded(s, x, microbatch, over->ops->post(over, m, err), err);
}

static dtp_status finish(dtp_session *s, int32_t k, int32_t microbatch, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_transfer *x = &l->stages->transfers[k];
    dtp_transport *over = &s->comm->transport;
    dtp_message *m = message(l, k, is_single(x) ? 0 : microbatch);
    return worded(s, x, microbatch, over->ops->finish(over, m, err), err);
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
        dtp_runner_set_slot(s->runner, slot);
        for (int32_t k = 0; k < l->stages->n_transfers && next < n; k++) {
            const dtp_transfer *x = &l->stages->transfers[k];
            const bool comes = x->to == l->stage && !is_single(x);
            DTP_TRY(comes ? post(s, k, actions[next].microbatch, err) : DTP_OK);
        }
    }
    return DTP_OK;
}

/* Waits for what the section of an action reads. */
static dtp_status await_operands(dtp_session *s, const dtp_stage_action *a, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        const int32_t reader = x->once ? DTP_SECTION_UPDATE + 1 : x->section + 1;
        const bool read = x->into < 0 && a->section == (is_single(x) ? reader : x->section);
        DTP_TRY(x->to == l->stage && read ? finish(s, k, a->microbatch, err) : DTP_OK);
    }
    return DTP_OK;
}

/* Behind a section: its results go, and what its microbatch no longer needs is given away. */
static dtp_status send_results(dtp_session *s, int32_t i, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    const dtp_stage_action *a = &l->table.actions[l->stage][i];
    const int32_t m = a->microbatch, last = l->table.n_microbatches - 1;
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        const bool sends = x->from == l->stage && x->section == a->section;
        DTP_TRY(sends && (!x->once || m == last) ? post(s, k, m, err) : DTP_OK);
    }
    if (a->section != DTP_SECTION_BACKWARD) {
        return DTP_OK;
    }
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        DTP_TRY(x->from == l->stage && !is_single(x) ? finish(s, k, m, err) : DTP_OK);
    }
    DTP_TRY(give_next(s, i, err));
    const bool ends = i + 1 == l->table.n_actions[l->stage] - l->table.n_parts;
    for (int32_t k = 0; k < l->stages->n_transfers && ends; k++) { /* nothing reads copies now */
        const dtp_transfer *x = &l->stages->transfers[k];
        DTP_TRY(x->to == l->stage && is_single(x) ? post(s, k, m, err) : DTP_OK);
    }
    return DTP_OK;
}

dtp_status dtp_session__stage_step(dtp_session *s, double *feed_s, dtp_err *err)
{
    const dtp_session__pipeline *l = &s->pipeline;
    DTP_TRY(give_next(s, -1, err));
    for (int32_t i = 0; i < l->table.n_actions[l->stage]; i++) {
        const dtp_stage_action *a = &l->table.actions[l->stage][i];
        DTP_TRY(await_operands(s, a, err));
        if (a->slot >= 0) {
            dtp_runner_set_slot(s->runner, a->slot);
        }
        if (a->section == DTP_SECTION_FORWARD) {
            const double before = dtp_now_s();
            DTP_TRY(dtp_session__feed(s, a->microbatch, err));
            *feed_s += dtp_now_s() - before;
        }
        DTP_TRY(dtp_err_prefixed(
            dtp_runner_section(s->runner, s->seed, s->step, a->microbatch, a->section, i == 0, err),
            err, "stage %d, section %s of microbatch %d", l->stage,
            dtp_section_name(a->section).text, a->microbatch));
        DTP_TRY(send_results(s, i, err));
    }
    for (int32_t k = 0; k < l->stages->n_transfers; k++) {
        const dtp_transfer *x = &l->stages->transfers[k];
        const bool waits =
            is_single(x) && (x->from == l->stage || (x->to == l->stage && x->into >= 0));
        DTP_TRY(waits ? finish(s, k, 0, err) : DTP_OK);
    }
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
    int32_t slots[DTP_MAX_STAGES];
    dtp_value_id *of;
    const dtp_stages *stages = p->graph->stages;
    DTP_TRY(dtp_stages_mesh(&p->mesh, stages->n, &l->mesh, err));
    if (s->comm->size != dtp_mesh_ranks(&l->mesh)) {
        return DTP_FAIL(err, DTP_INVALID, "%d ranks for %d stages of a mesh of %d", s->comm->size,
                        stages->n, dtp_mesh_ranks(&p->mesh));
    }
    if (s->comm->transport.ops->post == NULL || s->backend->ops->queue != NULL) {
        return DTP_FAIL(
            err, DTP_UNSUPPORTED,
            "stages run on backends without a queue, over transports with messages, not on '%s' "
            "over '%s'",
            s->backend->ops->name, s->comm->transport.ops->name);
    }
    for (int32_t d = 0; d < p->mesh.n_dims; d++) {
        sets[d] = (dtp_mesh_set)2 << d;
    }
    DTP_TRY(dtp_sub_communicator_create(s->comm, &p->mesh, sets, &l->comm, err));
    l->stages = stages;
    l->stage = s->comm->rank / dtp_mesh_ranks(&p->mesh);
    l->arena = dtp_arena_create();
    for (int32_t k = 0; k < stages->n; k++) {
        slots[k] = dtp_stage_slots(p->graph, k);
    }
    DTP_TRY(dtp_stage_table_make(stages->n, p->graph->microbatches, stages->n_parts, slots,
                                 l->arena, &l->table, err));
    DTP_TRY(dtp_stage_table_check(&l->table, err));
    DTP_TRY(DTP_NEW(l->arena, l->messages,
                    (size_t)stages->n_transfers * (size_t)p->graph->microbatches, err));
    s->program = p->stages[l->stage];
    DTP_TRY(DTP_NEW(l->arena, l->home_value, (size_t)p->graph->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(l->arena, of, (size_t)p->graph->n_tensors + 1, err));
    for (int32_t k = 0; k < stages->n; k++) {
        dtp_session__readable(p->stages[k], of);
        for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
            l->home_value[t] = stages->home[t] == k ? of[t] : l->home_value[t];
        }
    }
    return DTP_OK;
}

dtp_status dtp_session__stages_open(dtp_session *s, const dtp_program *p, dtp_err *err)
{
    s->pipeline.comm = s->comm;
    return p->graph->stages != NULL ? dtp_comm_agree_status(s->comm, open_stage(s, p, err), err)
                                    : DTP_OK;
}

void dtp_session__stages_close(dtp_session *s)
{
    if (s->pipeline.stages != NULL) {
        dtp_comm_destroy(s->pipeline.comm);
    }
    dtp_arena_destroy(s->pipeline.arena);
}

/* ---- what all ranks know ---- */

const dtp_value *dtp_session__kept(const dtp_session *s, dtp_tensor_id t)
{
    const dtp_stages *stages = s->pipeline.stages;
    const dtp_program *p = stages != NULL ? s->program->stages[stages->home[t]] : s->program;
    const dtp_value_id v = stages != NULL ? s->pipeline.home_value[t] : s->tensor_value[t];
    return v >= 0 ? &p->values[v] : NULL;
}

dtp_status dtp_session__share(dtp_session *s, dtp_tensor_id t, double *x, dtp_err *err)
{
    const dtp_stages *stages = s->pipeline.stages;
    if (stages == NULL) {
        return DTP_OK;
    }
    *x = stages->home[t] == s->pipeline.stage ? *x : 0.0;
    const dtp_coll sum = {
        .kind = DTP_ALL_REDUCE, .set = 1, .op = DTP_REDUCE_SUM, .dtype = DTP_F64, .count = 1};
    return s->comm->ops->run(s->comm, &sum, x, x, err);
}

bool dtp_session_can_fetch(const dtp_session *s, dtp_tensor_id t)
{
    return dtp_session__kept(s, t) != NULL;
}
