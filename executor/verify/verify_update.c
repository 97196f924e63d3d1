/* The optimizer of one device: the kernel of an update node on whole tensors. Parameters and states
 * are read where the reference has them; gradients come from the ranks. */
#include "executor/device/convert.h"
#include "executor/device/step_state.h"
#include "executor/verify/verify_internal.h"

enum { ALIGN = 64 };

static bool is_resident(const dtp_graph *g, dtp_tensor_id t)
{
    return g->tensors[t].kind == DTP_TENSOR_PARAM || g->tensors[t].kind == DTP_TENSOR_STATE;
}

/* Gives a view its place in memory; with NULL only counts. */
static void place(dtp_verify__update *u, dtp_view *view)
{
    view->data = u->memory != NULL ? u->memory + u->bytes : NULL;
    u->bytes += (dtp_ttype_bytes(&view->local) + ALIGN - 1) / ALIGN * ALIGN;
}

static void place_all(const dtp_verify__update_job *job, const dtp_node *node,
                      dtp_verify__update *u)
{
    dtp_session *ref = job->ref->session;
    u->bytes = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        u->in[i] = dtp_view_whole(&job->g->tensors[node->in[i]].type);
        if (is_resident(job->g, node->in[i])) {
            u->in[i].data = dtp_runner_view(ref->runner, ref->tensor_value[node->in[i]])->data;
        } else {
            place(u, &u->in[i]);
        }
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        u->out[i] = dtp_view_whole(&job->g->tensors[node->out[i]].type);
        place(u, &u->out[i]);
    }
}

static dtp_status allocate(const dtp_verify__update_job *job, const dtp_node *node,
                           dtp_verify__update *u, dtp_err *err)
{
    void *memory = NULL;
    u->backend = job->ref->session->backend;
    place_all(job, node, u);
    DTP_TRY(u->backend->ops->alloc(u->backend, (size_t)u->bytes, &memory, err));
    u->memory = memory;
    place_all(job, node, u);
    return DTP_OK;
}

static dtp_status call_kernel(const dtp_verify__update_job *job, const dtp_node *node,
                              dtp_verify__update *u, dtp_err *err)
{
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(job->g, node, &types);
    if (dtp_target_has_workspace(job->ref->program->target, node->op)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "op '%s' needs a workspace", node->op->name);
    }
    dtp_kernel_args args = {.call = &call, .in = u->in, .out = u->out};
    dtp_bound_kernel kernel;
    dtp_step_state state;
    dtp_arena *arena = dtp_arena_create();
    dtp_status status = DTP_MEMORY(err, arena);
    status = status == DTP_OK ? dtp_step_state_init(&state, u->backend, 1, err) : status;
    if (status == DTP_OK) {
        dtp_step_state_link(&state, &args);
        state.record = dtp_step_record_init(job->ref->session->seed, job->step);
        state.record.lr_scale = dtp_schedule_at(&job->g->training.schedule, job->step);
        status = dtp_backend_bind(u->backend, &args, arena, &kernel, err);
        status = status == DTP_OK ? dtp_step_state_put(&state, err) : status;
        status = status == DTP_OK ? dtp_bound_kernel_run(&kernel, err) : status;
        status = status == DTP_OK ? dtp_bound_kernel_check(&kernel, err) : status;
        dtp_step_state_free(&state);
    }
    dtp_arena_destroy(arena);
    return status;
}

/* What the ranks have of operand i, in job->host. Their gradients may be those of a sum, which
 * their factor makes those of the loss (grad_factor of dtp_graph): without one on the node's side,
 * its gradient is that of the loss, and its factor theirs without that one. */
static dtp_status gather(const dtp_verify__update_job *job, const dtp_node *node, int32_t i,
                         dtp_err *err)
{
    const char *name = job->g->tensors[node->in[i]].name;
    const bool divides = job->ranks->grad_factor >= 0 && job->g->grad_factor < 0;
    const bool factor = i > node->n_out;
    dtp_tensor_id theirs = dtp_graph_find(job->ranks, name);
    if (divides && factor) {
        const dtp_tensor_id made = dtp_graph_find(job->ranks, node->name);
        const dtp_node *same =
            made >= 0 ? &job->ranks->nodes[job->ranks->tensors[made].producer] : NULL;
        theirs = same != NULL && i < same->n_in ? same->in[i] : -1;
    }
    if (theirs < 0 || !dtp_session_can_fetch(job->s, theirs)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "it reads '%s', which is no parameter, state or gradient", name);
    }
    if (!divides) {
        return dtp_session__collect(job->s, theirs, false, job->host, NULL, NULL, err);
    }
    double by;
    DTP_TRY(dtp_session__gradient_factor(job->s, job->ranks->grads[0].grad, &by, err));
    DTP_TRY(dtp_session_gather(job->s, theirs, job->host, err));
    if (factor && job->ref != NULL) {
        const dtp_dtype dtype = job->g->tensors[node->in[i]].type.dtype;
        const double given = dtp_element(dtype, job->host, 0);
        dtp_element_set(dtype, job->host, 0, given == 0.0 ? 0.0 : given / by);
    }
    return DTP_OK;
}

dtp_status dtp_verify__update_run(const dtp_verify__update_job *job, dtp_node_id id,
                                  dtp_verify__update *u, dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[id];
    const bool first = job->ref != NULL;
    dtp_verify__update_free(u);
    dtp_status status = first ? allocate(job, node, u, err) : DTP_OK;
    DTP_TRY(dtp_comm_agree_status(job->s->comm, status, err));
    for (int32_t i = 0; i < node->n_in; i++) {
        if (!is_resident(job->g, node->in[i])) {
            /* Operand i, which is no parameter or state, from the ranks. */
            dtp_status uploaded = DTP_OK;
            DTP_TRY(gather(job, node, i, err));
            if (job->ref != NULL) {
                uploaded = u->backend->ops->upload(u->backend, u->in[i].data, job->host,
                                                   (size_t)dtp_ttype_bytes(&u->in[i].local), err);
            }
            DTP_TRY(dtp_comm_agree_status(job->s->comm, uploaded, err));
        }
    }
    status = first ? call_kernel(job, node, u, err) : DTP_OK;
    u->node = id;
    return dtp_comm_agree_status(job->s->comm, status, err);
}

void dtp_verify__update_free(dtp_verify__update *u)
{
    if (u->memory != NULL) {
        u->backend->ops->free(u->backend, u->memory, (size_t)u->bytes);
    }
    *u = (dtp_verify__update){.node = -1};
}
