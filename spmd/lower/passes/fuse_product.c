/* A product and what the epilogues of matrix products compute besides become one kernel
 * (core/graph/ops/fused_product.c), where the product was:
 *
 *   p = a b, u = p + bias               u = fused_product(a, b, bias)
 *   p = a b, u = p + bias, y = gelu(u)  y [, u] = fused_product(a, b, bias): u where others read it
 *   p = a b, y = gelu(p)                y = fused_product(a, b)
 *   p = a b, dx = gelu_grad(x, p)       dx = fused_product(a, b, x)
 *     .. s = sum of dx over rows        dx, s = fused_product_sum(a, b, x)
 *   p = a d, s = sum of d over rows     p, s = fused_operand_sum(a, d)
 *
 * A bias, and a sum, has the last dims of the result, those that are a row of the product's matrix;
 * the sum of an operand may have the first ones. What writes the bias behind the product, such as
 * the cast of a parameter, moves in front; what reads the sum in front of the product, such as the
 * cast of a gradient, moves behind. Partial sums have no functions. Memory grows by the bias and
 * the sum at most: u is written beside y only if a and b are read later, so that their memory is
 * taken anyway.
 *
 * Runs before other elementwise functions are fused.
 */
#include <string.h>

#include "core/graph/ops/fused_ops.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"
#include "spmd/target/einsum_plan.h"

/* Instructions that vanish, that move, between a value and its next reader. */
enum { MEMBERS = 3, MOVES = 6, DISTANCE = 64 };

typedef struct fuser {
    dtp_program *p;
    dtp_usage *usage;
    int32_t *last_read; /* of the buffer of each root */
    int32_t *moved_to;  /* by instruction: the product that it moves to, in front of it when it was
                           behind, else behind it; -1 = none */
    int32_t *from, *to; /* by product: the range of what moves to it */
    bool *removed, *gone; /* by instruction; by value */
} fuser;

typedef struct match {
    int32_t product;
    dtp_einsum_gemm gemm; /* on rank 0 */
    int32_t part[2];      /* operands of the call that are A and B where they lie, -1 = copied */
    dtp_fused_product_kind kind;
    dtp_value_id in[3], out[2]; /* -1 = none */
    dtp_fused_expr expr;
    int32_t n_members, member[MEMBERS], n_moves, move[MOVES];
} match;

/* ---- values and instructions ---- */

static bool is_kernel(const fuser *f, int32_t i, const match *m)
{
    const dtp_instr *instr = &f->p->instrs[i];
    return instr->kind == DTP_INSTR_KERNEL && instr->phase == f->p->instrs[m->product].phase;
}

static bool is_function(const fuser *f, int32_t i, dtp_fused_function function, const match *m)
{
    return is_kernel(f, i, m) && f->p->instrs[i].op == dtp_fused_op(function);
}

/* Whether instruction i ends in a product of matrices that writes its result, on rank 0. */
static bool find_product(const dtp_program *p, int32_t i, match *m)
{
    const dtp_instr *instr = &p->instrs[i];
    dtp_call_types types;
    dtp_einsum_plan plan;
    *m = (match){.product = i, .in = {-1, -1, -1}, .out = {-1, -1}, .expr = {.also = -1}};
    if (instr->kind != DTP_INSTR_KERNEL || (instr->op->flags & DTP_OP_CONTRACTION) == 0 ||
        instr->n_in != 2) {
        return false;
    }
    const dtp_op_call call = dtp_instr_call(p, instr, 0, &types);
    dtp_einsum_plan_make(&call, &plan);
    const dtp_einsum_step *last = &plan.steps[plan.n_steps > 0 ? plan.n_steps - 1 : 0];
    if (plan.n_steps == 0 || !last->is_gemm || last->part[DTP_EINSUM_C].operand != DTP_EINSUM_OUT) {
        return false;
    }
    m->gemm = last->gemm;
    m->part[0] = last->part[DTP_EINSUM_A].operand;
    m->part[1] = last->part[DTP_EINSUM_B].operand;
    m->in[0] = instr->in[0];
    m->in[1] = instr->in[1];
    m->out[0] = instr->out[0];
    return true;
}

static bool same_type(const fuser *f, dtp_value_id a, dtp_value_id b)
{
    const dtp_value *va = &f->p->values[a], *vb = &f->p->values[b];
    return dtp_ttype_equal(&va->type, &vb->type) && dtp_layout_equal(&va->layout, &vb->layout);
}

/* Whether a value may be written elsewhere: it has a buffer of its own. */
static bool is_free(const fuser *f, dtp_value_id v)
{
    return f->p->values[v].parent < 0 && f->usage[v].replicas == 0;
}

/* Whether nothing but one instruction needs the value. */
static bool is_inner(const fuser *f, dtp_value_id v)
{
    bool inner = is_free(f, v) && f->usage[v].reads == 1 && !f->p->values[v].keep;
    for (int32_t i = 0; i < f->p->n_updates && inner; i++) {
        inner = f->p->updates[i].value != v;
    }
    return inner;
}

/* The first instruction within DISTANCE behind `from` that reads v as operand *k, -1 = none. */
static int32_t reader(const fuser *f, dtp_value_id v, int32_t from, int32_t *k)
{
    for (int32_t i = from < 0 ? 0 : from + 1; i < f->p->n_instrs && i <= from + DISTANCE; i++) {
        for (*k = 0; *k < f->p->instrs[i].n_in; ++*k) {
            if (f->p->instrs[i].in[*k] == v && !f->removed[i]) {
                return i;
            }
        }
    }
    return -1;
}

/* The instruction that writes a value or what it lies in, -1 = none. */
static int32_t writer(const fuser *f, dtp_value_id v)
{
    while (f->usage[v].written < 0 && f->p->values[v].parent >= 0) {
        v = f->p->values[v].parent;
    }
    return f->usage[v].written;
}

/* ---- moves ---- */

static bool moves_already(const match *m, int32_t i)
{
    bool moves = false;
    for (int32_t k = 0; k < m->n_moves; k++) {
        moves = moves || m->move[k] == i;
    }
    return moves;
}

/* Whether instruction i may move to the product. */
static bool add_move(const fuser *f, match *m, int32_t i)
{
    const dtp_instr *instr = &f->p->instrs[i];
    bool moves = m->n_moves < MOVES && f->moved_to[i] < 0 && !f->removed[i] && f->from[i] == i &&
                 f->to[i] == i && instr->phase == f->p->instrs[m->product].phase;
    if (moves) {
        m->move[m->n_moves++] = i;
    }
    return moves;
}

static bool is_before(const fuser *f, const match *m, dtp_value_id v)
{
    const int32_t w = writer(f, v), to = w < 0 ? -1 : f->moved_to[w];
    return to < 0 ? w < m->product || moves_already(m, w) : to < m->product + (to < w ? 1 : 0);
}

/* Whether a value is there before the product, when up to MOVES writers move in front. */
static bool is_there(const fuser *f, match *m, dtp_value_id v)
{
    int32_t chain[MOVES], n = 0;
    while (!is_before(f, m, v)) {
        const int32_t w = writer(f, v);
        const dtp_instr *instr = &f->p->instrs[w];
        if (n == MOVES || instr->n_in != 1 || instr->n_out != 1 || !is_free(f, instr->out[0])) {
            return false;
        }
        chain[n++] = w;
        v = instr->in[0];
    }
    bool moves = true;
    while (n > 0 && moves) {
        moves = add_move(f, m, chain[--n]);
    }
    return moves;
}

/* Whether an instruction reads one of n values. */
static bool reads_one(const fuser *f, int32_t i, const dtp_value_id *values, int32_t n)
{
    const dtp_instr *instr = &f->p->instrs[i];
    bool reads = false;
    for (int32_t k = 0; k < instr->n_in * n && !f->removed[i]; k++) {
        reads =
            reads || dtp_value_root(f->p, instr->in[k / n]) == dtp_value_root(f->p, values[k % n]);
    }
    return reads;
}

/* Whether the readers of v between its writer `from` and the product can move behind it. */
static bool can_wait(const fuser *f, match *m, dtp_value_id v, int32_t from)
{
    dtp_value_id late[MOVES * DTP_MAX_OP_OUT + 1] = {v};
    int32_t n = 1;
    bool can = true;
    for (int32_t i = from + 1; i < m->product && can; i++) {
        const dtp_instr *instr = &f->p->instrs[i];
        const bool reads = reads_one(f, i, late, n);
        can = !reads || add_move(f, m, i);
        for (int32_t k = 0; k < instr->n_out && reads && can; k++) {
            late[n++] = instr->out[k];
        }
        for (int32_t j = i + 1; j <= f->to[i] && can; j++) { /* what has moved in front of i */
            can = f->moved_to[j] != i || !reads_one(f, j, late, n);
        }
    }
    return can;
}

/* ---- patterns ---- */

/* Whether v has the last dims of the result, which make a row of the product's matrix. */
static bool is_row(const fuser *f, const match *m, dtp_value_id v)
{
    dtp_call_types types;
    const dtp_instr pair = {.kind = DTP_INSTR_KERNEL,
                            .op = f->p->instrs[m->product].op,
                            .n_in = 1,
                            .in = &v,
                            .n_out = 1,
                            .out = f->p->instrs[m->product].out};
    (void)dtp_instr_call(f->p, &pair, 0, &types);
    const dtp_ttype *row = &types.in[0], *of = &types.out[0];
    const int32_t first = of->rank - row->rank;
    bool same = first >= 0 && row->dtype == of->dtype && dtp_ttype_elems(row) == m->gemm.n;
    for (int32_t i = 0; i < row->rank && same; i++) {
        same = row->dims[i].id == of->dims[first + i].id;
    }
    return same;
}

/* Whether sum has the dims of `of` that `kept` has, in order, and the product's dtype. */
static bool is_sum(const fuser *f, const match *m, dtp_value_id sum, dtp_value_id of,
                   dtp_value_id kept)
{
    const dtp_value *values = f->p->values;
    const dtp_ttype *s = &values[sum].type, *t = &values[of].type;
    int32_t n = 0;
    bool same = s->dtype == values[m->out[0]].type.dtype;
    for (int32_t i = 0; i < t->rank && same; i++) {
        if (dtp_ttype_find(&values[kept].type, t->dims[i].id) >= 0) {
            same = n < s->rank && s->dims[n++].id == t->dims[i].id;
        }
    }
    return same && n == s->rank && n > 0 && n < t->rank && is_free(f, sum);
}

static void add_step(match *m, int32_t instr, dtp_fused_function function, int32_t a, int32_t b,
                     dtp_value_id result)
{
    m->member[m->n_members++] = instr;
    m->expr.step[m->expr.n++] = (dtp_fused_step){.op = dtp_fused_op(function), .arg = {a, b}};
    m->out[0] = result;
}

/* Whether both operands of the product are needed behind it. */
static bool operands_stay(const fuser *f, const match *m)
{
    bool stay = true;
    for (int32_t k = 0; k < 2 && stay; k++) {
        const dtp_value_id root = dtp_value_root(f->p, m->in[k]);
        const dtp_value_kind kind = f->p->values[root].kind;
        stay = (kind != DTP_VALUE_TEMP && kind != DTP_VALUE_STAGING) ||
               f->last_read[root] > m->product;
    }
    return stay;
}

/* The sum of the result over the rows. */
static void take_sum(const fuser *f, match *m)
{
    int32_t k;
    for (int32_t r = reader(f, m->out[0], m->product, &k); r >= 0 && m->gemm.n_batch == 0;
         r = reader(f, m->out[0], r, &k)) {
        const dtp_instr *instr = &f->p->instrs[r];
        const bool sums =
            is_kernel(f, r, m) && (instr->op->flags & DTP_OP_CONTRACTION) != 0 && instr->n_in == 1;
        for (int32_t w = 0; w < 2 && sums; w++) {
            const dtp_value_id weight = m->in[w];
            if (is_sum(f, m, instr->out[0], m->out[0], weight) && is_row(f, m, instr->out[0])) {
                m->in[w] = m->in[1];
                m->in[1] = weight;
                m->out[1] = instr->out[0];
                m->member[m->n_members++] = r;
                m->kind = DTP_FUSED_PRODUCT_SUM;
                return;
            }
        }
    }
}

/* Functions of the product's result. */
static bool match_functions(const fuser *f, match *m)
{
    const dtp_program *p = f->p;
    dtp_value_id v = m->out[0];
    int32_t k, r = is_inner(f, v) ? reader(f, v, m->product, &k) : -1;
    if (r < 0 || dtp_layout_has_partial(&p->values[v].layout) || !is_free(f, p->instrs[r].out[0]) ||
        !same_type(f, v, p->instrs[r].out[0])) {
        return false;
    }
    const dtp_instr *instr = &p->instrs[r];
    const bool functions = (p->target->fuse & DTP_FUSE_PRODUCT) != 0;
    m->kind = DTP_FUSED_PRODUCT;
    if (functions && is_function(f, r, DTP_FUSED_GELU_GRAD, m) && k == 1 &&
        same_type(f, v, instr->in[0]) && is_before(f, m, instr->in[0])) {
        m->in[2] = instr->in[0];
        add_step(m, r, DTP_FUSED_GELU_GRAD, 1, 0, instr->out[0]);
        take_sum(f, m);
        return true;
    }
    if (functions && is_function(f, r, DTP_FUSED_GELU, m)) {
        add_step(m, r, DTP_FUSED_GELU, 0, 0, instr->out[0]);
        return true;
    }
    if (!is_function(f, r, DTP_FUSED_ADD, m) || !is_row(f, m, instr->in[1 - k]) ||
        dtp_layout_has_partial(&p->values[instr->in[1 - k]].layout) ||
        !is_there(f, m, instr->in[1 - k])) {
        return false;
    }
    m->in[2] = instr->in[1 - k];
    v = instr->out[0];
    add_step(m, r, DTP_FUSED_ADD, 0, 1, v);
    r = reader(f, v, r, &k);
    const bool inner = is_inner(f, v);
    if (r >= 0 && functions && is_function(f, r, DTP_FUSED_GELU, m) &&
        is_free(f, p->instrs[r].out[0]) && same_type(f, v, p->instrs[r].out[0]) &&
        (inner || operands_stay(f, m))) {
        add_step(m, r, DTP_FUSED_GELU, DTP_FUSED_IN, 0, p->instrs[r].out[0]);
        m->out[1] = inner ? -1 : v;
        m->expr.also = inner ? -1 : 0;
        m->kind = inner ? DTP_FUSED_PRODUCT : DTP_FUSED_PRODUCT_ALSO;
    }
    return true;
}

/* The sum of an operand over what the product sums. */
static bool match_operand(const fuser *f, match *m)
{
    match none = *m;
    none.n_moves = 0;
    const bool sums = (f->p->target->fuse & DTP_FUSE_PRODUCT) != 0 && m->gemm.n_batch == 0;
    for (int32_t part = 0; part < 2 && sums; part++) {
        if (m->part[part] < 0) {
            continue;
        }
        const dtp_value_id d = m->in[m->part[part]], a = m->in[1 - m->part[part]];
        if (dtp_layout_has_partial(&f->p->values[a].layout) ||
            dtp_layout_has_partial(&f->p->values[d].layout)) {
            continue; /* the op has no rule for it */
        }
        int32_t k, w = writer(f, d);
        w = w > m->product - DISTANCE ? w : m->product - DISTANCE; /* the product reads d, too */
        for (int32_t r = reader(f, d, w, &k); r >= 0 && r <= m->product + DISTANCE;
             r = reader(f, d, r, &k)) {
            const dtp_instr *instr = &f->p->instrs[r];
            *m = none;
            if (is_kernel(f, r, m) && (instr->op->flags & DTP_OP_CONTRACTION) != 0 &&
                instr->n_in == 1 && f->moved_to[r] < 0 &&
                is_sum(f, m, instr->out[0], d, m->out[0]) && can_wait(f, m, instr->out[0], r)) {
                m->kind = DTP_FUSED_OPERAND_SUM;
                m->in[0] = a;
                m->in[1] = d;
                m->out[1] = instr->out[0];
                m->member[m->n_members++] = r;
                return true;
            }
        }
    }
    return false;
}

/* ---- the pass ---- */

/* The product becomes the fused kernel. */
static dtp_status replace(fuser *f, const match *m, dtp_err *err)
{
    dtp_program *p = f->p;
    dtp_instr *instr = &p->instrs[m->product];
    dtp_value_id *ids;
    DTP_TRY(dtp_program__alloc_ids(p, 5, &ids, err));
    f->gone[instr->out[0]] = instr->out[0] != m->out[0];
    for (int32_t k = 0; k < m->n_members; k++) {
        const dtp_value_id v = p->instrs[m->member[k]].out[0];
        f->removed[m->member[k]] = true;
        f->gone[v] = v != m->out[0] && v != m->out[1];
        f->usage[v].written = m->product;
    }
    for (int32_t k = 0; k < m->n_moves; k++) {
        const int32_t i = m->move[k];
        f->moved_to[i] = m->product;
        f->from[m->product] = i < f->from[m->product] ? i : f->from[m->product];
        f->to[m->product] = i > f->to[m->product] ? i : f->to[m->product];
    }
    if (m->kind != DTP_FUSED_OPERAND_SUM) { /* which has the attributes of a product */
        dtp_attr attrs[DTP_FUSED_ATTRS];
        (void)dtp_fused_attrs(&m->expr, p->values[m->out[0]].type.dtype, attrs);
        DTP_TRY(dtp_program__copy_attrs(p, attrs, DTP_FUSED_ATTRS, &instr->attrs, err));
        instr->n_attrs = DTP_FUSED_ATTRS;
    }
    memcpy(ids, m->in, sizeof m->in);
    memcpy(ids + 3, m->out, sizeof m->out);
    instr->op = dtp_fused_product(m->kind);
    instr->in = ids;
    instr->n_in = m->in[2] >= 0 ? 3 : 2;
    instr->out = ids + 3;
    instr->n_out = m->out[1] >= 0 ? 2 : 1;
    return DTP_OK;
}

/* The instructions in their new order; how many there are. */
static int32_t reorder(const fuser *f, dtp_instr *order)
{
    int32_t n = 0;
    for (int32_t i = 0; i < f->p->n_instrs; i++) {
        for (int32_t j = i + 1; j <= f->to[i]; j++) {
            if (f->moved_to[j] == i) {
                order[n++] = f->p->instrs[j];
            }
        }
        if (!f->removed[i] && f->moved_to[i] < 0) {
            order[n++] = f->p->instrs[i];
        }
        for (int32_t j = f->from[i]; j < i; j++) {
            if (f->moved_to[j] == i) {
                order[n++] = f->p->instrs[j];
            }
        }
    }
    return n;
}

dtp_status dtp_program__fuse_product(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    fuser f = {.p = p};
    dtp_instr *order;
    bool any = false;
    DTP_TRY(dtp_program__count_uses(p, scratch, &f.usage, err));
    DTP_TRY(dtp_program__last_reads(p, scratch, &f.last_read, err));
    DTP_TRY(DTP_NEW(scratch, f.moved_to, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.from, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.to, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.removed, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.gone, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, order, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        f.moved_to[i] = -1;
        f.from[i] = f.to[i] = i;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        match m;
        if (!f.removed[i] && f.moved_to[i] < 0 && find_product(p, i, &m) &&
            (match_functions(&f, &m) || match_operand(&f, &m))) {
            DTP_TRY(replace(&f, &m, err));
            any = true;
        }
    }
    const int32_t n = reorder(&f, order);
    for (int32_t i = 0; i < n; i++) {
        p->instrs[i] = order[i];
    }
    p->n_instrs = n;
    return any ? dtp_program__remove_values(p, f.gone, scratch, err) : DTP_OK;
}
