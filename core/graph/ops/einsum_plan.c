#include "core/graph/ops/einsum_plan.h"

#include <string.h>

#include "core/graph/ops/einsum_ways.h"
#include "core/base/safe_int.h"

enum { WORKSPACE_ALIGN = 64 };

/* ---- tensors ------------------------------------------------------------------------------------
 */

static dtp_einsum_tensor operand_tensor(const dtp_ttype *type, int32_t operand)
{
    dtp_einsum_tensor t = {.buf = {.operand = operand}};
    int64_t n;
    for (int32_t i = 0; i < type->rank; i++) {
        dtp_einsum__add_dim(&t, type->dims[i].id, type->dims[i].size);
    }
    if (!dtp_einsum__set_strides(&t, &n)) {
        t.rank = 0;
    }
    return t;
}

/* Gives a tensor with dims a place in the workspace; false when it is too large. */
static bool place_in_workspace(const dtp_op_call *call, dtp_einsum_plan *plan, dtp_einsum_tensor *t)
{
    int64_t n, bytes, top;
    if (!dtp_einsum__set_strides(t, &n) ||
        !dtp_mul_i64(n, dtp_dtype_bytes(call->in[0].dtype), &bytes) ||
        !dtp_add_i64(bytes, WORKSPACE_ALIGN - 1, &bytes) ||
        !dtp_add_i64(plan->workspace_bytes, bytes / WORKSPACE_ALIGN * WORKSPACE_ALIGN, &top)) {
        plan->too_large = true;
        return false;
    }
    t->buf = (dtp_einsum_buf){DTP_EINSUM_WORKSPACE, plan->workspace_bytes};
    plan->workspace_bytes = top;
    return true;
}

/* ---- loop steps ---------------------------------------------------------------------------------
 */

static bool loop_dims_merge(const dtp_einsum_loop *l, int32_t outer, int32_t inner)
{
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        if (l->stride[p][outer] != l->stride[p][inner] * l->size[inner]) {
            return false;
        }
    }
    return true;
}

/* Joins neighbours among the result dims and among the summed dims that all parts walk as one. */
static void merge_loop(dtp_einsum_loop *l)
{
    int32_t n = 0, n_out = 0;
    for (int32_t i = 0; i < l->n; i++) {
        const bool same_side = n > 0 && (i < l->n_out || n > n_out);
        if (same_side && loop_dims_merge(l, n - 1, i)) {
            l->size[n - 1] *= l->size[i];
        } else {
            l->size[n] = l->size[i];
            for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
                l->stride[p][n] = l->stride[p][i];
            }
            n++;
            n_out += i < l->n_out ? 1 : 0;
            continue;
        }
        for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
            l->stride[p][n - 1] = l->stride[p][i];
        }
    }
    l->n = n;
    l->n_out = n_out;
}

static void add_loop_dim(dtp_einsum_loop *l, dtp_dim_id id, int64_t size,
                         const dtp_einsum_tensor *const parts[DTP_EINSUM_PARTS])
{
    l->size[l->n] = size;
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        l->stride[p][l->n] = parts[p] == NULL ? 0 : dtp_einsum__stride_of(parts[p], id);
    }
    l->n++;
}

/* c = sum of a (times b, may be NULL) over the dims that c lacks. */
static void add_loop(const dtp_op_call *call, dtp_einsum_plan *plan, const dtp_einsum_tensor *a,
                     const dtp_einsum_tensor *b, const dtp_einsum_tensor *c)
{
    const dtp_einsum_tensor *const parts[DTP_EINSUM_PARTS] = {a, b, c};
    dtp_einsum_step *s = &plan->steps[plan->n_steps++];
    dtp_einsum_loop *l = &s->loop;
    double total = 1.0, touched = 0.0;
    s->is_gemm = s->is_pack = false;
    l->n = 0;
    l->two = b != NULL;
    for (int32_t i = 0; i < c->rank; i++) {
        add_loop_dim(l, c->id[i], c->size[i], parts);
    }
    l->n_out = l->n;
    for (int32_t p = DTP_EINSUM_A; p <= DTP_EINSUM_B; p++) {
        for (int32_t i = 0; parts[p] != NULL && i < parts[p]->rank; i++) {
            const dtp_dim_id id = parts[p]->id[i];
            if (!dtp_einsum__has(c, id) && (p == DTP_EINSUM_A || !dtp_einsum__has(a, id))) {
                add_loop_dim(l, id, parts[p]->size[i], parts);
            }
        }
    }
    for (int32_t i = 0; i < l->n; i++) {
        total *= (double)l->size[i];
    }
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        s->part[p] = (dtp_einsum_buf){0};
        if (parts[p] != NULL) {
            s->part[p] = parts[p]->buf;
            touched += dtp_einsum__elems(parts[p]);
        }
    }
    plan->flops += total * ((l->two ? 1.0 : 0.0) + (l->n > l->n_out ? 1.0 : 0.0));
    plan->inner_bytes += touched * (double)dtp_dtype_bytes(call->in[0].dtype);
    plan->elementwise = plan->n_steps == 1 && l->n == l->n_out;
    merge_loop(l);
}

/* A copy from or to matrix form. */
static void add_pack(const dtp_op_call *call, dtp_einsum_plan *plan, const dtp_einsum_tensor *from,
                     const dtp_einsum_tensor *to)
{
    const double before = plan->inner_bytes;
    add_loop(call, plan, from, NULL, to);
    plan->steps[plan->n_steps - 1].is_pack = true;
    plan->pack_bytes += plan->inner_bytes - before;
    plan->inner_bytes = before;
}

/* ---- GEMM steps ---------------------------------------------------------------------------------
 */

static void append_group(dtp_einsum_tensor *t, const dtp_einsum_group *g,
                         const dtp_einsum_tensor *from)
{
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t at = dtp_einsum__find(from, g->id[i]);
        if (at >= 0) {
            dtp_einsum__add_dim(t, g->id[i], from->size[at]);
        }
    }
}

static int64_t group_size(const dtp_einsum_group *g, const dtp_einsum_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < g->n; i++) {
        n *= t->size[dtp_einsum__find(t, g->id[i])];
    }
    return n;
}

static void set_batch(dtp_einsum_gemm *g, const dtp_einsum_group *batch,
                      const dtp_einsum_tensor *const parts[DTP_EINSUM_PARTS])
{
    const dtp_einsum_tensor *c = parts[DTP_EINSUM_C];
    g->n_batch = 0;
    for (int32_t i = 0; i < batch->n; i++) {
        const int64_t size = c->size[dtp_einsum__find(c, batch->id[i])];
        bool merge = g->n_batch > 0;
        for (int32_t p = 0; p < DTP_EINSUM_PARTS && merge; p++) {
            merge = g->stride[p][g->n_batch - 1] ==
                    dtp_einsum__stride_of(parts[p], batch->id[i]) * size;
        }
        const int32_t at = merge ? g->n_batch - 1 : g->n_batch++;
        g->batch[at] = merge ? g->batch[at] * size : size;
        for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
            g->stride[p][at] = dtp_einsum__stride_of(parts[p], batch->id[i]);
        }
    }
}

/* The GEMM on parts in matrix form. A result stored n x m is computed as B^T A^T. */
static void emit_gemm(const dtp_op_call *call, dtp_einsum_plan *plan, const dtp_einsum_way *w,
                      const dtp_einsum_tensor *const t[DTP_EINSUM_PARTS])
{
    dtp_einsum_step *s = &plan->steps[plan->n_steps++];
    dtp_einsum_gemm *g = &s->gemm;
    const bool swap = !w->part[DTP_EINSUM_C].row_major;
    const int32_t first = swap ? DTP_EINSUM_B : DTP_EINSUM_A;
    const int32_t second = swap ? DTP_EINSUM_A : DTP_EINSUM_B;
    const dtp_einsum_tensor *const parts[DTP_EINSUM_PARTS] = {t[first], t[second], t[DTP_EINSUM_C]};
    double batch = 1.0, touched = 0.0;
    s->is_gemm = true;
    s->is_pack = false;
    g->m = group_size(swap ? &w->n : &w->m, t[DTP_EINSUM_C]);
    g->n = group_size(swap ? &w->m : &w->n, t[DTP_EINSUM_C]);
    g->k = group_size(&w->k, t[DTP_EINSUM_A]);
    g->trans_a = w->part[first].row_major == swap;
    g->trans_b = w->part[second].row_major == swap;
    g->ld[DTP_EINSUM_A] = w->part[first].ld;
    g->ld[DTP_EINSUM_B] = w->part[second].ld;
    g->ld[DTP_EINSUM_C] = w->part[DTP_EINSUM_C].ld;
    set_batch(g, &w->batch, parts);
    for (int32_t i = 0; i < g->n_batch; i++) {
        batch *= (double)g->batch[i];
    }
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        s->part[p] = parts[p]->buf;
        touched += dtp_einsum__elems(parts[p]);
    }
    plan->flops += 2.0 * batch * (double)g->m * (double)g->n * (double)g->k;
    plan->inner_bytes += touched * (double)dtp_dtype_bytes(call->in[0].dtype);
    plan->elementwise = false;
}

static bool add_gemm(const dtp_op_call *call, dtp_einsum_plan *plan, const dtp_einsum_tensor *a,
                     const dtp_einsum_tensor *b, const dtp_einsum_tensor *c)
{
    dtp_einsum_way w;
    dtp_einsum__best_way(a, b, c, &w);
    const dtp_einsum_group *const rows[DTP_EINSUM_PARTS] = {&w.m, &w.k, &w.m};
    const dtp_einsum_group *const cols[DTP_EINSUM_PARTS] = {&w.k, &w.n, &w.n};
    const dtp_einsum_tensor *t[DTP_EINSUM_PARTS] = {a, b, c};
    dtp_einsum_tensor packed[DTP_EINSUM_PARTS];
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        if (!w.part[p].packed) {
            continue;
        }
        packed[p].rank = 0;
        append_group(&packed[p], &w.batch, t[p]);
        append_group(&packed[p], rows[p], t[p]);
        append_group(&packed[p], cols[p], t[p]);
        if (!place_in_workspace(call, plan, &packed[p])) {
            return false;
        }
        if (p != DTP_EINSUM_C) {
            add_pack(call, plan, t[p], &packed[p]);
        }
        w.part[p] = dtp_einsum__matrix_of(&packed[p], rows[p], cols[p]);
        t[p] = &packed[p];
    }
    emit_gemm(call, plan, &w, t);
    if (t[DTP_EINSUM_C] != c) {
        add_pack(call, plan, t[DTP_EINSUM_C], c);
    }
    return true;
}

/* ---- pairs --------------------------------------------------------------------------------------
 */

/* Sums dims of t that neither `other` nor `result` has. */
static bool reduce_alone(const dtp_op_call *call, dtp_einsum_plan *plan, dtp_einsum_tensor *t,
                         const dtp_einsum_tensor *other, const dtp_einsum_tensor *result)
{
    dtp_einsum_tensor kept = {.rank = 0};
    for (int32_t i = 0; i < t->rank; i++) {
        if (dtp_einsum__has(other, t->id[i]) || dtp_einsum__has(result, t->id[i])) {
            dtp_einsum__add_dim(&kept, t->id[i], t->size[i]);
        }
    }
    if (kept.rank == t->rank) {
        return true;
    }
    if (!place_in_workspace(call, plan, &kept)) {
        return false;
    }
    add_loop(call, plan, t, NULL, &kept);
    *t = kept;
    return true;
}

static bool add_pair(const dtp_op_call *call, dtp_einsum_plan *plan, dtp_einsum_tensor *a,
                     dtp_einsum_tensor *b, const dtp_einsum_tensor *c)
{
    if (!reduce_alone(call, plan, a, b, c) || !reduce_alone(call, plan, b, a, c)) {
        return false;
    }
    const dtp_einsum_group k = dtp_einsum__select_dims(a, b, c);
    const dtp_einsum_group m = dtp_einsum__select_dims(c, a, b);
    const dtp_einsum_group n = dtp_einsum__select_dims(c, b, a);
    if (k.n > 0 && m.n + n.n > 0 && dtp_einsum__elems(a) > 0.0 && dtp_einsum__elems(b) > 0.0 &&
        dtp_einsum__elems(c) > 0.0) {
        return add_gemm(call, plan, a, b, c);
    }
    add_loop(call, plan, a, b, c);
    return true;
}

/* Does the output or an operand after `operand` have the dim? */
static bool needed_later(const dtp_op_call *call, int32_t operand, dtp_dim_id id)
{
    bool needed = dtp_ttype_find(&call->out[0], id) >= 0;
    for (int32_t i = operand + 1; i < call->n_in && !needed; i++) {
        needed = dtp_ttype_find(&call->in[i], id) >= 0;
    }
    return needed;
}

/* The product of a and operand number `operand`, b, with the dims that are needed later. */
static bool make_product(const dtp_op_call *call, dtp_einsum_plan *plan, int32_t operand,
                         const dtp_einsum_tensor *a, const dtp_einsum_tensor *b,
                         dtp_einsum_tensor *out)
{
    int32_t n_union = a->rank;
    out->rank = 0;
    for (int32_t i = 0; i < a->rank; i++) {
        if (needed_later(call, operand, a->id[i])) {
            dtp_einsum__add_dim(out, a->id[i], a->size[i]);
        }
    }
    for (int32_t i = 0; i < b->rank; i++) {
        n_union += dtp_einsum__has(a, b->id[i]) ? 0 : 1;
        if (n_union > DTP_MAX_OP_DIMS) {
            plan->too_large = true;
            return false;
        }
        if (!dtp_einsum__has(a, b->id[i]) && needed_later(call, operand, b->id[i])) {
            dtp_einsum__add_dim(out, b->id[i], b->size[i]);
        }
    }
    return place_in_workspace(call, plan, out);
}

static bool add_steps(const dtp_op_call *call, dtp_einsum_plan *plan)
{
    const dtp_einsum_tensor out = operand_tensor(&call->out[0], DTP_EINSUM_OUT);
    dtp_einsum_tensor a = operand_tensor(&call->in[0], 0);
    if (call->n_in == 1) {
        add_loop(call, plan, &a, NULL, &out);
        return true;
    }
    for (int32_t i = 1; i < call->n_in; i++) {
        dtp_einsum_tensor b = operand_tensor(&call->in[i], i);
        dtp_einsum_tensor product = out;
        if (i < call->n_in - 1 && !make_product(call, plan, i, &a, &b, &product)) {
            return false;
        }
        if (!add_pair(call, plan, &a, &b, &product)) {
            return false;
        }
        a = product;
    }
    return true;
}

void dtp_einsum_plan_make(const dtp_op_call *call, dtp_einsum_plan *plan)
{
    plan->n_steps = 0;
    plan->elementwise = plan->too_large = false;
    plan->workspace_bytes = 0;
    plan->pack_bytes = plan->inner_bytes = plan->flops = 0.0;
    if (dtp_ttype_elems(&call->out[0]) > 0 && !add_steps(call, plan)) {
        plan->n_steps = 0;
        plan->workspace_bytes = 0;
    }
}
