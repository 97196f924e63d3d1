/* A linear layer whose result only its cross-entropy reads becomes one kernel with it, and the
 * gradient of the loss one with the two products that read it: logits exist a chunk of rows at a
 * time, and the backward pass computes them again. Only where logits of a rank are large
 * (dtp_target.loss_chunk), and only rows are split.
 *
 *   L = x w; loss, lse = cross_entropy(L, labels)           linear_loss(x, w, labels)
 *   D = cross_entropy_grad(L, labels, lse, dloss)
 *   dx = D w; dw = x D                      linear_loss_grad(x, w, labels, lse, dloss)
 */
#include "core/graph/ops/cross_entropy.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

enum { TERMS = 4 }; /* attributes of cross_entropy */

typedef struct linear {
    dtp_value_id logits, x, w, labels;
    int32_t product, loss;
    /* Backward; grad -1: there is none. */
    int32_t grad, to_x, to_w;
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
    return good && same_dims(&p->values[grad->in[2]].type, &p->values[grad->in[1]].type) &&
           reader(p, p->instrs[early].out[0], early) > late;
}

/* Whether instruction i is a loss of a linear layer with large logits; *chunk: in rows. */
static bool match(const dtp_program *p, const dtp_usage *u, int32_t i, linear *l, int64_t *chunk)
{
    const dtp_instr *loss = &p->instrs[i];
    if (loss->kind != DTP_INSTR_KERNEL || (loss->op->flags & DTP_OP_SOFTMAX_LOSS) == 0 ||
        loss->n_in != 2) {
        return false;
    }
    dtp_call_types types;
    const dtp_op_call call = dtp_instr_call(p, loss, 0, &types);
    const dtp_dim_id over = dtp_call_dim(&call, "over");
    *l = (linear){.logits = loss->in[0], .labels = loss->in[1], .loss = i, .grad = -1};
    l->product = u[l->logits].written;
    const int32_t at = dtp_ttype_find(&types.in[0], over);
    if (at < 0 || l->product < 0 || !is_product(&p->instrs[l->product]) ||
        dtp_loss_terms_of(&call).has_ignore ||
        dtp_ttype_bytes(&types.in[0]) <= p->target->loss_chunk) {
        return false;
    }
    const dtp_value_id *in = p->instrs[l->product].in;
    const bool swapped = dtp_ttype_find(&p->values[in[0]].type, over) >= 0;
    l->x = in[swapped ? 1 : 0];
    l->w = in[swapped ? 0 : 1];
    const int64_t row = types.in[0].dims[at].size * dtp_dtype_bytes(types.in[0].dtype);
    *chunk = row < p->target->loss_chunk ? p->target->loss_chunk / row : 1;
    const bool inner = fits(p, over, l->x, l->w, l->labels) &&
                       types.in[0].dtype == p->values[l->x].type.dtype &&
                       same_dims(&p->values[loss->out[1]].type, &p->values[l->labels].type) &&
                       p->instrs[l->product].phase == loss->phase;
    return inner && (is_inner(p, u, l->logits, 1) ||
                     (is_inner(p, u, l->logits, 2) && match_grad(p, u, over, l)));
}

/* Instruction `at` becomes linear_loss or its gradient on these operands and results. */
static dtp_status replace(dtp_program *p, int32_t at, const dtp_instr *of, bool grad,
                          const dtp_value_id ids[7], bool *gone, dtp_err *err)
{
    dtp_instr *instr = &p->instrs[at];
    dtp_value_id *own;
    DTP_TRY(dtp_program__alloc_ids(p, 7, &own, err));
    for (int32_t k = 0; k < 7; k++) {
        own[k] = ids[k];
    }
    if (instr->workspace >= 0) {
        gone[instr->workspace] = true;
        instr->workspace = -1;
    }
    instr->op = dtp_linear_loss(grad);
    instr->attrs = of->attrs;
    instr->n_attrs = of->n_attrs;
    instr->n_in = grad ? 5 : 3;
    instr->n_out = 2;
    instr->in = own;
    instr->out = own + instr->n_in;
    return dtp_program__add_workspace(p, instr, err);
}

dtp_status dtp_program__fuse_loss(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    dtp_usage *u;
    bool *gone, *removed;
    int32_t kept = 0;
    DTP_TRY(dtp_program__count_uses(p, scratch, &u, err));
    DTP_TRY(DTP_NEW(scratch, gone, p->n_values + p->n_instrs, err)); /* workspaces are added */
    DTP_TRY(DTP_NEW(scratch, removed, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        linear l;
        int64_t chunk;
        if (!match(p, u, i, &l, &chunk)) {
            continue;
        }
        dtp_instr of = p->instrs[i];
        dtp_attr attrs[TERMS + 1];
        for (int32_t k = 0; k < TERMS; k++) {
            attrs[k] = of.attrs[k];
        }
        attrs[TERMS] = dtp_attr_int("chunk", chunk);
        of.n_attrs = TERMS + 1;
        DTP_TRY(dtp_program__copy_attrs(p, attrs, of.n_attrs, &of.attrs, err));
        removed[l.product] = gone[l.logits] = true;
        if (l.grad >= 0) {
            const dtp_instr grad = p->instrs[l.grad], to_x = p->instrs[l.to_x],
                            to_w = p->instrs[l.to_w];
            const dtp_value_id d = grad.out[0];
            const dtp_value_id ids[7] = {to_w.in[to_w.in[0] == d ? 1 : 0],
                                         to_x.in[to_x.in[0] == d ? 1 : 0],
                                         grad.in[1],
                                         grad.in[2],
                                         grad.in[3],
                                         to_x.out[0],
                                         to_w.out[0]};
            removed[l.grad] = removed[l.to_x] = removed[l.to_w] = gone[d] = true;
            const int32_t at = l.to_x > l.to_w ? l.to_x : l.to_w;
            removed[at] = false;
            DTP_TRY(replace(p, at, &of, true, ids, gone, err));
        }
        const dtp_value_id ids[7] = {l.x, l.w, l.labels, of.out[0], of.out[1], -1, -1};
        DTP_TRY(replace(p, i, &of, false, ids, gone, err));
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (removed[i] && p->instrs[i].workspace >= 0) {
            gone[p->instrs[i].workspace] = true;
        }
        if (!removed[i]) {
            p->instrs[kept++] = p->instrs[i];
        }
    }
    const bool any = kept < p->n_instrs;
    p->n_instrs = kept;
    return any ? dtp_program__remove_values(p, gone, scratch, err) : DTP_OK;
}
