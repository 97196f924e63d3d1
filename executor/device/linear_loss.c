/* linear_loss and linear_loss_grad on any backend: chunk after chunk by the backend's own
 * kernels (spmd/target/linear_loss.h). */
#include "executor/device/linear_loss.h"

#include "core/base/arena.h"
#include "executor/device/backend.h"
#include "spmd/target/linear_loss.h"

/* A part, bound for a number of rows. */
typedef struct bound {
    const dtp_linear_part *part;
    dtp_op_call call;
    dtp_ttype types[6];
    dtp_view views[6];
    dtp_bound_kernel kernel;
} bound;

/* The parts for chunks, for the last chunk when it is smaller, and for the end. */
enum { WHOLE, LAST, END, SETS };

typedef struct job {
    dtp_linear_plan plan;
    bound part[SETS][DTP_LINEAR_CHUNK_PARTS];
} job;

static void *address(const job *j, const dtp_kernel_args *args, dtp_linear_buffer b)
{
    const bool gradients = args->call->n_in == 4;
    switch (b) {
    case DTP_LINEAR_X:
    case DTP_LINEAR_W:
    case DTP_LINEAR_LABELS:
    case DTP_LINEAR_DLOSS:
        return args->in[b].data;
    case DTP_LINEAR_LOSS:
        return args->out[gradients ? 2 : 0].data;
    case DTP_LINEAR_DX:
        return args->out[0].data;
    case DTP_LINEAR_DW:
        return args->out[1].data;
    default:
        if (b == DTP_LINEAR_LSE && !gradients) {
            return args->out[1].data;
        }
        return (char *)args->workspace + j->plan.offset[b];
    }
}

/* Row dims of the call are one dim here, whose global size is the product of theirs. */
static int64_t global_rows(const dtp_kernel_args *args)
{
    int64_t n = 1;
    for (int32_t i = 0; i < args->call->in[2].rank; i++) {
        n *= args->in[2].global[i];
    }
    return n;
}

static dtp_status bind_part(job *j, const dtp_kernel_args *args, const dtp_linear_part *part,
                            int64_t n, bound *out, dtp_arena *arena, dtp_err *err)
{
    out->part = part;
    out->call = dtp_linear_call(&j->plan, part, args->call->dims, n, out->types);
    for (int32_t i = 0; i < part->n_in + part->n_out; i++) {
        const dtp_linear_buffer b = i < part->n_in ? part->in[i] : part->out[i - part->n_in];
        out->views[i] = dtp_view_whole(&out->types[i]);
        if (dtp_linear_has_rows(&j->plan, b)) {
            out->views[i].global[0] = global_rows(args);
        }
        out->views[i].data = address(j, args, b);
    }
    const dtp_kernel_args sub = {.call = &out->call,
                                 .in = out->views,
                                 .out = out->views + part->n_in,
                                 .workspace = (char *)args->workspace + j->plan.scratch,
                                 .workspace_bytes = args->workspace_bytes - j->plan.scratch,
                                 .record = args->record};
    return dtp_backend_bind(args->backend, &sub, arena, &out->kernel, err);
}

dtp_status dtp_linear_loss_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                dtp_err *err)
{
    job *j;
    DTP_TRY(DTP_NEW(arena, j, 1, err));
    *state = j;
    dtp_linear_plan_make(args->call, global_rows(args), &j->plan);
    const dtp_linear_plan *p = &j->plan;
    const int64_t left = p->chunk > 0 ? p->rows % p->chunk : 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        DTP_TRY(bind_part(j, args, &p->parts[i], p->chunk, &j->part[WHOLE][i], arena, err));
        if (left > 0) {
            DTP_TRY(bind_part(j, args, &p->parts[i], left, &j->part[LAST][i], arena, err));
        }
    }
    for (int32_t i = 0; i < p->n_end; i++) {
        DTP_TRY(bind_part(j, args, &p->end[i], p->rows, &j->part[END][i], arena, err));
    }
    return DTP_OK;
}

/* Runs a part on the rows from `row` on. */
static dtp_status run_part(const job *j, const dtp_kernel_args *args, bound *b, int64_t row,
                           dtp_err *err)
{
    for (int32_t i = 0; i < b->part->n_in + b->part->n_out; i++) {
        const dtp_linear_buffer buffer =
            i < b->part->n_in ? b->part->in[i] : b->part->out[i - b->part->n_in];
        const dtp_ttype one = dtp_linear_type(&j->plan, buffer, 1);
        const bool moves = dtp_linear_has_rows(&j->plan, buffer) && buffer != DTP_LINEAR_LOGITS;
        b->views[i].data =
            (char *)address(j, args, buffer) + (moves ? row * dtp_ttype_bytes(&one) : 0);
    }
    b->kernel.args.workspace = (char *)args->workspace + j->plan.scratch;
    b->kernel.args.error = args->error;
    return b->kernel.run(&b->kernel.args, err);
}

dtp_status dtp_linear_loss_run(const dtp_kernel_args *args, dtp_err *err)
{
    job *j = args->state;
    const dtp_linear_plan *p = &j->plan;
    for (int64_t row = 0; row < p->rows || row == 0; row += p->chunk > 0 ? p->chunk : 1) {
        const int32_t set = row + p->chunk <= p->rows ? WHOLE : LAST;
        for (int32_t i = 0; i < p->n_parts; i++) {
            const int32_t runs = p->parts[i].runs;
            if (runs == 0 || (runs == 1) == (row == 0)) {
                DTP_TRY(run_part(j, args, &j->part[set][i], row, err));
            }
        }
    }
    for (int32_t i = 0; i < p->n_end; i++) {
        DTP_TRY(run_part(j, args, &j->part[END][i], 0, err));
    }
    return DTP_OK;
}
