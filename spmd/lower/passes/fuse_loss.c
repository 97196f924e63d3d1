/* A linear layer whose result only its cross-entropy reads becomes one kernel with it, and with the
 * gradient of the loss and the two products that read it where there are such: logits exist a chunk
 * of rows at a time, once. Only where logits of a rank are large (dtp_target.loss_chunk), and only
 * rows are split.
 *
 *   L = x w; loss = cross_entropy(L, labels)                loss = linear_loss(x, w, labels)
 *
 *   L = x w; loss, lse = cross_entropy(L, labels)
 *   D = cross_entropy_grad(L, labels, lse, dloss)
 *   dx = D w; dw = x D                  dx, dw, loss = linear_loss_grad(x, w, labels, dloss)
 *
 * The loss then comes into being in the backward pass. Instructions between that read it, or what
 * is made of it, move behind; where dloss depends on the loss itself, nothing is fused.
 */
#include <string.h>

#include "core/graph/ops/cross_entropy.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

enum { TERMS = 4 }; /* attributes of cross_entropy */

typedef struct linear {
    dtp_value_id logits, x, w, labels;
    int32_t product, loss;
    /* Backward; grad -1: there is none. */
    int32_t grad, to_x, to_w;
    /* The kernel: which instruction it becomes, operands, results. */
    int32_t at, n_in, n_out;
    dtp_value_id in[4], out[3], loss_value;
    int64_t chunk; /* in rows */
} linear;

static bool is_product(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_CONTRACTION) != 0 &&
           instr->n_in == 2;
}

/* The same dims in the same order from a's `from` on. */
static bool same_dims(const dtp_ttype *a, const dtp_ttype *b)
{
    bool same = a->rank == b->rank;
    for (int32_t i = 0; i < a->rank && same; i++) {
        same = a->dims[i].id == b->dims[i].id;
    }
    return same;
}

/* Whether x is [rows .., inner ..] and w has inner and the class dim, with only rows split. */
static bool fits(const dtp_program *p, dtp_dim_id over, dtp_value_id x, dtp_value_id w,
                 dtp_value_id labels)
{
    const dtp_value *vx = &p->values[x], *vw = &p->values[w], *vl = &p->values[labels];
    const int32_t rows = vl->type.rank;
    bool good = rows > 0 && vx->type.rank > rows && vw->type.rank == vx->type.rank - rows + 1 &&
                dtp_ttype_find(&vw->type, over) >= 0 && vx->type.dtype == vw->type.dtype &&
                dtp_dtype_is_float(vx->type.dtype);
    for (int32_t i = 0; i < vx->type.rank && good; i++) {
        const bool shared = dtp_ttype_find(&vw->type, vx->type.dims[i].id) >= 0;
        good = i < rows ? !shared && vx->type.dims[i].id == vl->type.dims[i].id : shared;
    }
    for (int32_t m = 0; m < p->mesh.n_dims && good; m++) {
        const dtp_placement *at = &vx->layout.placement[m];
        good = vw->layout.placement[m].kind == DTP_REPLICATE && at->kind != DTP_PARTIAL &&
               (at->kind != DTP_SHARD || at->axis < rows);
    }
    return good;
}

/* A value that nothing but n instructions reads. */
static bool is_inner(const dtp_program *p, const dtp_usage *u, dtp_value_id v, int32_t n)
{
    return u[v].reads == n && u[v].replicas == 0 && u[v].written >= 0 && !p->values[v].keep &&
           p->values[v].parent < 0;
}

/* The next instruction behind `from` that reads v, n_instrs = none. */
static int32_t reader(const dtp_program *p, dtp_value_id v, int32_t from)
{
    for (int32_t i = from + 1; i < p->n_instrs; i++) {
        for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
            if (p->instrs[i].in[k] == v) {
                return i;
            }
        }
    }
    return p->n_instrs;
}

/* The products that read the gradient of the logits. */
static bool match_grad(const dtp_program *p, const dtp_usage *u, dtp_dim_id over, linear *l)
{
    const dtp_instr *loss = &p->instrs[l->loss], *grad;
    l->grad = reader(p, l->logits, l->loss);
    if (l->grad == p->n_instrs) {
        return false;
    }
    grad = &p->instrs[l->grad];
    if (grad->kind != DTP_INSTR_KERNEL || grad->op->attrs != loss->op->attrs || grad->n_in != 4 ||
        grad->in[0] != l->logits || !is_inner(p, u, grad->out[0], 2)) {
        return false;
    }
    const dtp_value_id d = grad->out[0];
    l->to_x = reader(p, d, l->grad);
    l->to_w = reader(p, d, l->to_x);
    if (l->to_w < p->n_instrs &&
        dtp_ttype_find(&p->values[p->instrs[l->to_x].out[0]].type, over) >= 0) {
        const int32_t first = l->to_x;
        l->to_x = l->to_w;
        l->to_w = first;
    }
    if (l->to_x == p->n_instrs || l->to_w == p->n_instrs || !is_product(&p->instrs[l->to_x]) ||
        !is_product(&p->instrs[l->to_w])) {
        return false;
    }
    const dtp_instr *to_x = &p->instrs[l->to_x], *to_w = &p->instrs[l->to_w];
    const dtp_value_id w = to_x->in[to_x->in[0] == d ? 1 : 0];
    const dtp_value_id x = to_w->in[to_w->in[0] == d ? 1 : 0];
    const dtp_value *dx = &p->values[to_x->out[0]], *dw = &p->values[to_w->out[0]];
    const int32_t early = l->to_x < l->to_w ? l->to_x : l->to_w;
    const int32_t late = l->to_x + l->to_w - early;
    bool good =
        fits(p, over, x, w, grad->in[1]) && to_x->phase == to_w->phase &&
        p->values[d].type.dtype == dx->type.dtype && same_dims(&p->values[x].type, &dx->type) &&
        dx->type.dtype == p->values[x].type.dtype && dw->type.rank == p->values[w].type.rank;
    for (int32_t i = 0; i < dw->type.rank && good; i++) {
        good = dtp_ttype_find(&p->values[w].type, dw->type.dims[i].id) >= 0;
    }
    l->at = late;
    l->n_in = 4;
    l->n_out = 3;
    memcpy(l->in, (dtp_value_id[]){x, w, grad->in[1], grad->in[3]}, sizeof l->in);
    memcpy(l->out, (dtp_value_id[]){to_x->out[0], to_w->out[0], l->loss_value}, sizeof l->out);
    return good && grad->in[2] == loss->out[1] && is_inner(p, u, loss->out[1], 1) &&
           reader(p, p->instrs[early].out[0], early) > late;
}

/* Whether instruction i is a loss of a linear layer with large logits. */
static bool match(const dtp_program *p, const dtp_usage *u, int32_t i, linear *l)
{
    const dtp_instr *loss = &p->instrs[i];
    if (loss->kind != DTP_INSTR_KERNEL || (loss->op->flags & DTP_OP_SOFTMAX_LOSS) == 0 ||
        loss->n_in != 2) {
        return false;
    }
    dtp_call_types types;
    const dtp_op_call call = dtp_instr_call(p, loss, 0, &types);
    const dtp_dim_id over = dtp_call_dim(&call, "over");
    *l = (linear){.logits = loss->in[0],
                  .labels = loss->in[1],
                  .loss = i,
                  .grad = -1,
                  .at = i,
                  .loss_value = loss->out[0]};
    l->product = u[l->logits].written;
    const int32_t at = dtp_ttype_find(&types.in[0], over);
    if (at < 0 || l->product < 0 || !is_product(&p->instrs[l->product]) ||
        dtp_loss_terms_of(&call).has_ignore ||
        dtp_ttype_bytes(&types.in[0]) / DTP_LOSS_LEAST_CHUNKS < p->target->loss_chunk) {
        return false;
    }
    const dtp_value_id *in = p->instrs[l->product].in;
    const bool swapped = dtp_ttype_find(&p->values[in[0]].type, over) >= 0;
    l->x = in[swapped ? 1 : 0];
    l->w = in[swapped ? 0 : 1];
    const int64_t row = types.in[0].dims[at].size * dtp_dtype_bytes(types.in[0].dtype);
    l->chunk = row < p->target->loss_chunk ? p->target->loss_chunk / row : 1;
    l->chunk -= l->chunk > 16 ? l->chunk % 16 : 0; /* rows that begin where vectors may */
    const bool inner = fits(p, over, l->x, l->w, l->labels) &&
                       types.in[0].dtype == p->values[l->x].type.dtype &&
                       same_dims(&p->values[loss->out[1]].type, &p->values[l->labels].type) &&
                       p->instrs[l->product].phase == loss->phase;
    if (inner && is_inner(p, u, l->logits, 1)) {
        l->n_in = 3;
        l->n_out = 2;
        memcpy(l->in, (dtp_value_id[]){l->x, l->w, l->labels}, 3 * sizeof *l->in);
        memcpy(l->out, loss->out, 2 * sizeof *l->out);
        return true;
    }
    return inner && is_inner(p, u, l->logits, 2) && match_grad(p, u, over, l);
}

/* ---- the change ---- */

typedef struct fusing {
    dtp_program *p;
    dtp_usage *u;
    bool *gone, *lost; /* by value: goes; has one reader less */
    bool *removed;     /* by instruction */
    int32_t *ready;    /* by value: the kernel behind which it is there, -1 = where it was */
    int32_t *place;    /* by instruction: the kernel behind which it comes, -1 = where it is */
    int32_t n;
    linear *kernels;
} fusing;

/* Moves what reads the losses of the kernels behind them. False: one would have to come behind
 * itself or another one. */
static bool find_places(const fusing *f)
{
    const dtp_program *p = f->p;
    for (int32_t v = 0; v < p->n_values; v++) {
        f->ready[v] = -1;
    }
    for (int32_t n = 0; n < f->n; n++) {
        f->ready[f->kernels[n].loss_value] = f->kernels[n].at;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        f->place[i] = -1;
        for (int32_t k = 0; k < instr->n_in; k++) {
            const int32_t after = f->ready[instr->in[k]];
            f->place[i] = after > i && after > f->place[i] ? after : f->place[i];
        }
        for (int32_t k = 0; k < instr->n_out && f->place[i] >= 0; k++) {
            f->ready[instr->out[k]] = f->place[i];
        }
    }
    bool good = true;
    for (int32_t n = 0; n < f->n; n++) {
        for (int32_t k = 0; k < f->kernels[n].n_in; k++) {
            good = good && f->ready[f->kernels[n].in[k]] < f->kernels[n].at;
        }
    }
    return good;
}

/* The instructions whose place the kernel takes go, and with them what only they needed. */
static void remove_parts(const fusing *f, const linear *l)
{
    const dtp_program *p = f->p;
    const int32_t parts[] = {l->product, l->loss, l->grad, l->to_x, l->to_w};
    for (int32_t k = 0; k < (l->grad >= 0 ? 5 : 2); k++) {
        f->removed[parts[k]] = true;
        for (int32_t i = 0; i < p->instrs[parts[k]].n_in; i++) {
            f->u[p->instrs[parts[k]].in[i]].reads--;
            f->lost[p->instrs[parts[k]].in[i]] = true;
        }
    }
    for (int32_t k = 0; k < l->n_in; k++) {
        f->u[l->in[k]].reads++;
    }
    f->gone[l->logits] = true;
    if (l->grad >= 0) {
        f->gone[p->instrs[l->loss].out[1]] = f->gone[p->instrs[l->grad].out[0]] = true;
    }
    for (int32_t i = l->product - 1; i >= 0; i--) { /* such as a gather for the forward pass */
        const dtp_instr *instr = &p->instrs[i];
        const dtp_value_id v = instr->out[0];
        if (instr->n_out > 1 || !f->lost[v] || f->gone[v] || !is_inner(p, f->u, v, 0)) {
            continue;
        }
        f->removed[i] = f->gone[v] = true;
        for (int32_t k = 0; k < instr->n_in; k++) {
            f->u[instr->in[k]].reads--;
            f->lost[instr->in[k]] = true;
        }
    }
}

static dtp_status put_kernel(const fusing *f, const linear *l, dtp_err *err)
{
    dtp_program *p = f->p;
    const dtp_instr loss = p->instrs[l->loss];
    dtp_instr *instr = &p->instrs[l->at];
    dtp_attr attrs[TERMS + 1];
    dtp_value_id *own;
    for (int32_t k = 0; k < TERMS; k++) {
        attrs[k] = loss.attrs[k];
    }
    attrs[TERMS] = dtp_attr_int("chunk", l->chunk);
    DTP_TRY(dtp_program__copy_attrs(p, attrs, TERMS + 1, &instr->attrs, err));
    DTP_TRY(dtp_program__alloc_ids(p, l->n_in + l->n_out, &own, err));
    for (int32_t k = 0; k < l->n_in + l->n_out; k++) {
        own[k] = k < l->n_in ? l->in[k] : l->out[k - l->n_in];
    }
    instr->op = dtp_linear_loss(l->grad >= 0);
    instr->n_attrs = TERMS + 1;
    instr->n_in = l->n_in;
    instr->n_out = l->n_out;
    instr->in = own;
    instr->out = own + l->n_in;
    instr->workspace = -1;
    f->removed[l->at] = false;
    return dtp_program__add_workspace(p, instr, err);
}

/* The instructions that stay, in their new order. */
static dtp_status order(const fusing *f, dtp_arena *scratch, dtp_err *err)
{
    dtp_program *p = f->p;
    dtp_instr *all;
    int32_t n = 0;
    DTP_TRY(DTP_NEW(scratch, all, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        all[i] = p->instrs[i];
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (!f->removed[i] && f->place[i] < 0) {
            p->instrs[n++] = all[i];
        }
        for (int32_t k = 0; k < f->n; k++) {
            for (int32_t m = f->kernels[k].loss; m < i && f->kernels[k].at == i; m++) {
                if (!f->removed[m] && f->place[m] == i) {
                    p->instrs[n] = all[m];
                    /* With stages it runs in the section of the kernel. */
                    p->instrs[n].phase = p->graph->stages != NULL ? all[i].phase : all[m].phase;
                    n++;
                }
            }
        }
    }
    p->n_instrs = n;
    return DTP_OK;
}

dtp_status dtp_program__fuse_loss(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    fusing f = {.p = p};
    DTP_TRY(dtp_program__count_uses(p, scratch, &f.u, err));
    DTP_TRY(DTP_NEW(scratch, f.gone, p->n_values + p->n_instrs, err)); /* workspaces are added */
    DTP_TRY(DTP_NEW(scratch, f.lost, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, f.ready, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, f.removed, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.place, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.kernels, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_updates; i++) {
        f.u[p->updates[i].value].reads++;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (match(p, f.u, i, &f.kernels[f.n])) {
            f.n++;
            f.n -= find_places(&f) ? 0 : 1;
        }
    }
    if (f.n == 0 || !find_places(&f)) {
        return DTP_OK;
    }
    for (int32_t k = 0; k < f.n; k++) {
        remove_parts(&f, &f.kernels[k]);
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (f.removed[i] && p->instrs[i].workspace >= 0) {
            f.gone[p->instrs[i].workspace] = true;
        }
    }
    for (int32_t k = 0; k < f.n; k++) {
        DTP_TRY(put_kernel(&f, &f.kernels[k], err));
    }
    DTP_TRY(order(&f, scratch, err));
    return dtp_program__remove_values(p, f.gone, scratch, err);
}
