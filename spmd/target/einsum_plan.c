/* How the kernels of a backend run an einsum on one rank: a list of steps, each a loop nest or a
 * batched matrix product. */
#include "spmd/target/einsum_plan.h"

#include "core/base/safe_int.h"
#include "core/graph/ops/fused_ops.h"

enum { WORKSPACE_ALIGN = 64, MIN_MATRIX_SIDE = 16 };

/* ---- tensors ---- */

/* An operand of a pair: its dims of size other than 1, with element strides. */
typedef struct tensor {
    dtp_einsum_buf buf;
    int32_t rank;
    dtp_dim_id id[DTP_MAX_OP_DIMS];
    int64_t size[DTP_MAX_OP_DIMS], stride[DTP_MAX_OP_DIMS];
} tensor;

/* An ordered set of dims, outermost first. */
typedef struct group {
    int32_t n;
    dtp_dim_id id[DTP_MAX_OP_DIMS];
} group;

/* A tensor seen as a matrix rows x cols. */
typedef struct matrix {
    bool packed;    /* it must be copied first */
    bool row_major; /* rows x cols as stored; else cols x rows */
    int64_t ld;
} matrix;

/* One way to run a pair as a batched GEMM. */
typedef struct way {
    group batch, m, n, k;
    matrix part[DTP_EINSUM_PARTS]; /* first operand m x k, second k x n, result m x n */
    double moved;                  /* elements of the packed parts */
} way;

static int32_t find(const tensor *t, dtp_dim_id id)
{
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->id[i] == id) {
            return i;
        }
    }
    return -1;
}

static bool has(const tensor *t, dtp_dim_id id)
{
    return find(t, id) >= 0;
}

static int64_t stride_of(const tensor *t, dtp_dim_id id)
{
    int32_t i = find(t, id);
    return i < 0 ? 0 : t->stride[i];
}

/* Elements as a double: safe for shapes whose product is not. */
static double elems(const tensor *t)
{
    double n = 1.0;
    for (int32_t i = 0; i < t->rank; i++) {
        n *= (double)t->size[i];
    }
    return n;
}

static void add_dim(tensor *t, dtp_dim_id id, int64_t size)
{
    if (size != 1) {
        t->id[t->rank] = id;
        t->size[t->rank++] = size;
    }
}

/* Row-major strides; false when the number of elements does not fit. An empty tensor counts as one
 * of size 1 along its empty dims. */
static bool set_strides(tensor *t, int64_t *n_elems)
{
    int64_t n = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = n;
        if (!dtp_mul_i64(n, t->size[i] > 0 ? t->size[i] : 1, &n)) {
            return false;
        }
    }
    *n_elems = n;
    return true;
}

static tensor operand_tensor(const dtp_ttype *type, int32_t operand)
{
    tensor t = {.buf = {.operand = operand, .dtype = type->dtype}};
    int64_t n;
    for (int32_t i = 0; i < type->rank; i++) {
        add_dim(&t, type->dims[i].id, type->dims[i].size);
    }
    if (!set_strides(&t, &n)) {
        t.rank = 0;
    }
    return t;
}

/* Gives a tensor with dims a place in the workspace; false when it is too large. */
static bool place_in_workspace(dtp_einsum_plan *plan, tensor *t, dtp_dtype dtype)
{
    int64_t n, bytes, top;
    if (!set_strides(t, &n) || !dtp_mul_i64(n, dtp_dtype_bytes(dtype), &bytes) ||
        !dtp_add_i64(bytes, WORKSPACE_ALIGN - 1, &bytes) ||
        !dtp_add_i64(plan->workspace_bytes, bytes / WORKSPACE_ALIGN * WORKSPACE_ALIGN, &top)) {
        plan->too_large = true;
        return false;
    }
    t->buf = (dtp_einsum_buf){DTP_EINSUM_WORKSPACE, dtype, plan->workspace_bytes};
    plan->workspace_bytes = top;
    return true;
}

/* ---- ways ---- */

/* The dims of `order` that are in `with` and not in `without` (NULL: none are). */
static group select_dims(const tensor *order, const tensor *with, const tensor *without)
{
    group g = {.n = 0};
    for (int32_t i = 0; i < order->rank; i++) {
        if (has(with, order->id[i]) && (without == NULL || !has(without, order->id[i]))) {
            g.id[g.n++] = order->id[i];
        }
    }
    return g;
}

/* Size of a group, and its stride when the tensor holds it as one run. */
static bool run_of(const tensor *t, const group *g, int64_t *size, int64_t *stride)
{
    *size = 1;
    *stride = 1;
    for (int32_t i = g->n - 1; i >= 0; i--) {
        const int32_t at = find(t, g->id[i]);
        if (i == g->n - 1) {
            *stride = t->stride[at];
        } else if (t->stride[at] != *stride * *size) {
            return false;
        }
        *size *= t->size[at];
    }
    return true;
}

static matrix matrix_of(const tensor *t, const group *rows, const group *cols)
{
    int64_t nr, nc, sr, sc;
    if (!run_of(t, rows, &nr, &sr) || !run_of(t, cols, &nc, &sc)) {
        return (matrix){.packed = true};
    }
    if (nc == 1 || sc == 1) {
        return (matrix){.row_major = true, .ld = nr > 1 ? sr : nc};
    }
    if (nr == 1 || sr == 1) {
        return (matrix){.ld = nc > 1 ? sc : nr};
    }
    return (matrix){.packed = true};
}

/* Moves all dims of the group but the last to the end of `batch`; false when that is pointless. */
static bool demote(group *g, group *batch, const tensor *t)
{
    if (g->n < 2 || batch->n + g->n - 1 > DTP_MAX_RANK ||
        t->size[find(t, g->id[g->n - 1])] < MIN_MATRIX_SIDE) {
        return false;
    }
    for (int32_t i = 0; i < g->n - 1; i++) {
        batch->id[batch->n++] = g->id[i];
    }
    g->id[0] = g->id[g->n - 1];
    g->n = 1;
    return true;
}

/* Batch dims in the memory order of the result. */
static void sort_batch(group *batch, const tensor *c)
{
    group sorted = {.n = 0};
    for (int32_t i = 0; i < c->rank; i++) {
        for (int32_t k = 0; k < batch->n; k++) {
            if (batch->id[k] == c->id[i]) {
                sorted.id[sorted.n++] = c->id[i];
            }
        }
    }
    *batch = sorted;
}

/* Bits of a way: which tensor the order of a group comes from, and which groups are demoted. */
enum {
    M_FROM_RESULT = 1,
    N_FROM_RESULT = 2,
    K_FROM_SECOND = 4,
    M_DEMOTED = 8,
    N_DEMOTED = 16,
    N_WAYS = 32
};

static bool make_way(const tensor *a, const tensor *b, const tensor *c, int32_t bits, way *w)
{
    const tensor *const parts[DTP_EINSUM_PARTS] = {a, b, c};
    const bool demote_m = (bits & M_DEMOTED) != 0, demote_n = (bits & N_DEMOTED) != 0;
    const group both = select_dims(c, a, NULL);
    w->batch.n = 0;
    for (int32_t i = 0; i < both.n; i++) {
        if (has(b, both.id[i])) {
            w->batch.id[w->batch.n++] = both.id[i];
        }
    }
    w->m = (bits & M_FROM_RESULT) != 0 || demote_m ? select_dims(c, a, b) : select_dims(a, c, b);
    w->n = (bits & N_FROM_RESULT) != 0 || demote_n ? select_dims(c, b, a) : select_dims(b, c, a);
    w->k = (bits & K_FROM_SECOND) != 0 ? select_dims(b, a, c) : select_dims(a, b, c);
    if ((demote_m && !demote(&w->m, &w->batch, a)) || (demote_n && !demote(&w->n, &w->batch, b))) {
        return false;
    }
    sort_batch(&w->batch, c);
    w->part[DTP_EINSUM_A] = matrix_of(a, &w->m, &w->k);
    w->part[DTP_EINSUM_B] = matrix_of(b, &w->k, &w->n);
    w->part[DTP_EINSUM_C] = matrix_of(c, &w->m, &w->n);
    w->moved = 0.0;
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        w->moved += w->part[p].packed ? elems(parts[p]) : 0.0;
    }
    return true;
}

/* The way that packs the fewest elements. */
static void best_way(const tensor *a, const tensor *b, const tensor *c, way *best)
{
    way w;
    (void)make_way(a, b, c, 0, best);
    for (int32_t bits = 1; bits < N_WAYS && best->moved > 0.0; bits++) {
        if (make_way(a, b, c, bits, &w) && w.moved < best->moved) {
            *best = w;
        }
    }
}

/* ---- loop steps ---- */

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
        const bool joins = same_side && loop_dims_merge(l, n - 1, i);
        const int32_t at = joins ? n - 1 : n++;
        l->size[at] = joins ? l->size[at] * l->size[i] : l->size[i];
        n_out += !joins && i < l->n_out ? 1 : 0;
        for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
            l->stride[p][at] = l->stride[p][i];
        }
    }
    l->n = n;
    l->n_out = n_out;
}

static void add_loop_dim(dtp_einsum_loop *l, dtp_dim_id id, int64_t size,
                         const tensor *const parts[DTP_EINSUM_PARTS])
{
    l->size[l->n] = size;
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        l->stride[p][l->n] = parts[p] == NULL ? 0 : stride_of(parts[p], id);
    }
    l->n++;
}

/* c = sum of a (times b, may be NULL) over the dims that c lacks. */
static void add_loop(dtp_einsum_plan *plan, const tensor *a, const tensor *b, const tensor *c)
{
    const tensor *const parts[DTP_EINSUM_PARTS] = {a, b, c};
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
            if (!has(c, id) && (p == DTP_EINSUM_A || !has(a, id))) {
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
            touched += elems(parts[p]) * (double)dtp_dtype_bytes(parts[p]->buf.dtype);
        }
    }
    plan->flops += total * ((l->two ? 1.0 : 0.0) + (l->n > l->n_out ? 1.0 : 0.0));
    plan->inner_bytes += touched;
    plan->elementwise = plan->n_steps == 1 && l->n == l->n_out;
    merge_loop(l);
}

/* A copy from or to matrix form. */
static void add_pack(dtp_einsum_plan *plan, const tensor *from, const tensor *to)
{
    const double before = plan->inner_bytes;
    add_loop(plan, from, NULL, to);
    plan->steps[plan->n_steps - 1].is_pack = true;
    plan->pack_bytes += plan->inner_bytes - before;
    plan->inner_bytes = before;
}

/* ---- GEMM steps ---- */

static void append_group(tensor *t, const group *g, const tensor *from)
{
    for (int32_t i = 0; i < g->n; i++) {
        const int32_t at = find(from, g->id[i]);
        if (at >= 0) {
            add_dim(t, g->id[i], from->size[at]);
        }
    }
}

static int64_t group_size(const group *g, const tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < g->n; i++) {
        n *= t->size[find(t, g->id[i])];
    }
    return n;
}

static void set_batch(dtp_einsum_gemm *g, const group *batch,
                      const tensor *const parts[DTP_EINSUM_PARTS])
{
    const tensor *c = parts[DTP_EINSUM_C];
    g->n_batch = 0;
    for (int32_t i = 0; i < batch->n; i++) {
        const int64_t size = c->size[find(c, batch->id[i])];
        bool merge = g->n_batch > 0;
        for (int32_t p = 0; p < DTP_EINSUM_PARTS && merge; p++) {
            merge = g->stride[p][g->n_batch - 1] == stride_of(parts[p], batch->id[i]) * size;
        }
        const int32_t at = merge ? g->n_batch - 1 : g->n_batch++;
        g->batch[at] = merge ? g->batch[at] * size : size;
        for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
            g->stride[p][at] = stride_of(parts[p], batch->id[i]);
        }
    }
}

/* The GEMM on parts in matrix form. A result stored n x m is computed as B^T A^T. */
static void emit_gemm(dtp_einsum_plan *plan, const way *w, const tensor *const t[DTP_EINSUM_PARTS])
{
    dtp_einsum_step *s = &plan->steps[plan->n_steps++];
    dtp_einsum_gemm *g = &s->gemm;
    const bool swap = !w->part[DTP_EINSUM_C].row_major;
    const int32_t first = swap ? DTP_EINSUM_B : DTP_EINSUM_A;
    const int32_t second = swap ? DTP_EINSUM_A : DTP_EINSUM_B;
    const tensor *const parts[DTP_EINSUM_PARTS] = {t[first], t[second], t[DTP_EINSUM_C]};
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
        touched += elems(parts[p]) * (double)dtp_dtype_bytes(parts[p]->buf.dtype);
    }
    plan->flops += 2.0 * batch * (double)g->m * (double)g->n * (double)g->k;
    plan->inner_bytes += touched;
    plan->elementwise = false;
}

static bool add_gemm(dtp_einsum_plan *plan, const tensor *a, const tensor *b, const tensor *c)
{
    way w;
    best_way(a, b, c, &w);
    const group *const rows[DTP_EINSUM_PARTS] = {&w.m, &w.k, &w.m};
    const group *const cols[DTP_EINSUM_PARTS] = {&w.k, &w.n, &w.n};
    const tensor *t[DTP_EINSUM_PARTS] = {a, b, c};
    tensor packed[DTP_EINSUM_PARTS];
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        if (!w.part[p].packed) {
            continue;
        }
        packed[p].rank = 0;
        append_group(&packed[p], &w.batch, t[p]);
        append_group(&packed[p], rows[p], t[p]);
        append_group(&packed[p], cols[p], t[p]);
        if (!place_in_workspace(plan, &packed[p], t[p]->buf.dtype)) {
            return false;
        }
        if (p != DTP_EINSUM_C) {
            add_pack(plan, t[p], &packed[p]);
        }
        w.part[p] = matrix_of(&packed[p], rows[p], cols[p]);
        t[p] = &packed[p];
    }
    emit_gemm(plan, &w, t);
    if (t[DTP_EINSUM_C] != c) {
        add_pack(plan, t[DTP_EINSUM_C], c);
    }
    return true;
}

/* ---- pairs ---- */

/* Sums dims of t that neither `other` nor `result` has. */
static bool reduce_alone(dtp_einsum_plan *plan, tensor *t, const tensor *other,
                         const tensor *result)
{
    tensor kept = {.rank = 0};
    for (int32_t i = 0; i < t->rank; i++) {
        if (has(other, t->id[i]) || has(result, t->id[i])) {
            add_dim(&kept, t->id[i], t->size[i]);
        }
    }
    if (kept.rank == t->rank) {
        return true;
    }
    if (!place_in_workspace(plan, &kept, t->buf.dtype)) {
        return false;
    }
    add_loop(plan, t, NULL, &kept);
    *t = kept;
    return true;
}

static bool add_pair(dtp_einsum_plan *plan, tensor *a, tensor *b, const tensor *c)
{
    if (!reduce_alone(plan, a, b, c) || !reduce_alone(plan, b, a, c)) {
        return false;
    }
    const group k = select_dims(a, b, c);
    const group m = select_dims(c, a, b);
    const group n = select_dims(c, b, a);
    if (k.n > 0 && m.n + n.n > 0 && elems(a) > 0.0 && elems(b) > 0.0 && elems(c) > 0.0) {
        return add_gemm(plan, a, b, c);
    }
    add_loop(plan, a, b, c);
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
                         const tensor *a, const tensor *b, tensor *out)
{
    int32_t n_union = a->rank;
    out->rank = 0;
    for (int32_t i = 0; i < a->rank; i++) {
        if (needed_later(call, operand, a->id[i])) {
            add_dim(out, a->id[i], a->size[i]);
        }
    }
    for (int32_t i = 0; i < b->rank; i++) {
        n_union += has(a, b->id[i]) ? 0 : 1;
        if (n_union > DTP_MAX_OP_DIMS) {
            plan->too_large = true;
            return false;
        }
        if (!has(a, b->id[i]) && needed_later(call, operand, b->id[i])) {
            add_dim(out, b->id[i], b->size[i]);
        }
    }
    return place_in_workspace(plan, out, a->buf.dtype);
}

static bool add_steps(const dtp_op_call *call, dtp_einsum_plan *plan)
{
    const tensor out = operand_tensor(&call->out[0], DTP_EINSUM_OUT);
    tensor a = operand_tensor(&call->in[0], 0);
    if (call->n_in == 1) {
        add_loop(plan, &a, NULL, &out);
        return true;
    }
    for (int32_t i = 1; i < call->n_in; i++) {
        tensor b = operand_tensor(&call->in[i], i);
        tensor product = out;
        if (i < call->n_in - 1 && !make_product(call, plan, i, &a, &b, &product)) {
            return false;
        }
        if (!add_pair(plan, &a, &b, &product)) {
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

void dtp_einsum_work(const dtp_op_call *call, dtp_work *out)
{
    dtp_einsum_plan plan;
    double most = 0.0;
    dtp_einsum_plan_make(call, &plan);
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .flops = plan.flops,
                      .bytes = plan.inner_bytes,
                      .pack_bytes = plan.pack_bytes};
    for (int32_t i = 0; i < plan.n_steps; i++) {
        const dtp_einsum_gemm *g = &plan.steps[i].gemm;
        if (!plan.steps[i].is_gemm) {
            continue;
        }
        int64_t batch = 1;
        for (int32_t b = 0; b < g->n_batch; b++) {
            batch *= g->batch[b];
        }
        const double size = (double)batch * (double)g->m * (double)g->n * (double)g->k;
        if (size > most) {
            most = size;
            out->cls = DTP_WORK_GEMM;
            out->batch = batch;
            out->m = g->m;
            out->n = g->n;
            out->k = g->k;
            out->trans_a = g->trans_a;
            out->trans_b = g->trans_b;
        }
    }
}

int64_t dtp_einsum_workspace(const dtp_op_call *call)
{
    dtp_einsum_plan plan;
    dtp_einsum_plan_make(call, &plan);
    return plan.workspace_bytes;
}

int64_t dtp_einsum_fused_workspace(const dtp_op_call *call)
{
    const dtp_op_call product = dtp_fused_product_of(call);
    return dtp_einsum_workspace(&product);
}

void dtp_einsum_fused_work(const dtp_op_call *call, dtp_work *out)
{
    dtp_fused_product_work(call, dtp_einsum_work, out);
}
