/* A product and the functions of its result that the epilogues of matrix products have become one
 * kernel (core/graph/ops/fused.c), where the product was:
 *
 *   p = a b, u = p + bias               u = fused_product(a, b, bias)
 *   p = a b, u = p + bias, y = gelu(u)  y [, u] = fused_product(a, b, bias): u where others read it
 *   p = a b, y = gelu(p)                y = fused_product(a, b)
 *   p = a b, dx = gelu_grad(x, p)       dx = fused_product(a, b, x)
 *
 * A bias has the last dims of the result, those that are a row of the product's matrix. What writes
 * it behind the product, such as the cast of a parameter, moves in front. Partial sums have no
 * functions. Memory grows by the bias at most: u is written beside y only if a and b are read
 * later, so that their memory is taken anyway.
 *
 * Runs before other elementwise functions are fused.
 */
#include "core/graph/ops/fused_ops.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"
#include "spmd/target/einsum_plan.h"

enum { MEMBERS = 2 }; /* functions */

typedef struct fuser {
    dtp_program *p;
    dtp_usage *usage;
    int32_t *last_read;        /* of the buffer of each root */
    int32_t *mover, *moved_to; /* by instruction: the one that moves in front of it, the one that it
                                  moves in front of; -1 = none */
    bool *removed, *gone;      /* by instruction; by value */
} fuser;

typedef struct match {
    int32_t product;
    int64_t columns;                    /* of the product's matrix */
    dtp_value_id result, operand, also; /* -1 = none: besides a and b; second result */
    int32_t mover, n, member[MEMBERS];
    dtp_fused_expr expr;
} match;

/* ---- values and instructions --------------------------------------------------------------------
 */

static bool is_function(const fuser *f, int32_t i, dtp_fused_function function, int32_t product)
{
    const dtp_instr *instr = &f->p->instrs[i];
    return instr->kind == DTP_INSTR_KERNEL && instr->op == dtp_fused_op((int32_t)function) &&
           instr->phase == f->p->instrs[product].phase;
}

/* Whether instruction i is a product of whole sums that ends in one of matrices, on rank 0. */
static bool is_product(const dtp_program *p, int32_t i, int64_t *columns)
{
    const dtp_instr *instr = &p->instrs[i];
    dtp_call_types types;
    dtp_einsum_plan plan;
    if (instr->kind != DTP_INSTR_KERNEL || (instr->op->flags & DTP_OP_CONTRACTION) == 0 ||
        instr->n_in != 2 || dtp_layout_has_partial(&p->values[instr->out[0]].layout)) {
        return false;
    }
    const dtp_op_call call = dtp_instr_call(p, instr, 0, &types);
    dtp_einsum_plan_make(&call, &plan);
    const dtp_einsum_step *last = &plan.steps[plan.n_steps > 0 ? plan.n_steps - 1 : 0];
    *columns = plan.n_steps > 0 && last->is_gemm ? last->gemm.n : 0;
    return *columns > 0 && last->part[DTP_EINSUM_C].operand == DTP_EINSUM_OUT;
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

/* The first instruction behind `from` that reads v as operand *k, -1 = none. */
static int32_t reader(const fuser *f, dtp_value_id v, int32_t from, int32_t *k)
{
    for (int32_t i = from + 1; i < f->p->n_instrs; i++) {
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

static bool is_before(const fuser *f, dtp_value_id v, int32_t at)
{
    const int32_t w = writer(f, v);
    return w < at || (f->moved_to[w] >= 0 && f->moved_to[w] <= at);
}

/* Whether operand v is there before instruction `at`, or its writer can move in front (*mover). */
static bool is_there(const fuser *f, dtp_value_id v, int32_t at, int32_t *mover)
{
    *mover = -1;
    if (is_before(f, v, at)) {
        return true;
    }
    const int32_t w = writer(f, v);
    const dtp_instr *instr = &f->p->instrs[w];
    bool moves = instr->kind == DTP_INSTR_KERNEL && instr->phase == f->p->instrs[at].phase &&
                 instr->n_out == 1 && is_free(f, instr->out[0]) && f->mover[w] < 0;
    for (int32_t k = 0; k < instr->n_in && moves; k++) {
        moves = is_before(f, instr->in[k], at);
    }
    *mover = w;
    return moves;
}

/* ---- patterns -----------------------------------------------------------------------------------
 */

/* Whether v has the last dims of the result, which make a row of the product's matrix. */
static bool is_bias(const fuser *f, const match *m, dtp_value_id v)
{
    const dtp_program *p = f->p;
    const dtp_instr pair = {.kind = DTP_INSTR_KERNEL,
                            .op = p->instrs[m->product].op,
                            .n_in = 1,
                            .in = &v,
                            .n_out = 1,
                            .out = p->instrs[m->product].out};
    dtp_call_types types;
    (void)dtp_instr_call(p, &pair, 0, &types);
    const dtp_ttype *bias = &types.in[0], *of = &types.out[0];
    const int32_t first = of->rank - bias->rank;
    bool same = first >= 0 && bias->dtype == of->dtype && dtp_ttype_elems(bias) == m->columns &&
                !dtp_layout_has_partial(&p->values[v].layout);
    for (int32_t i = 0; i < bias->rank && same; i++) {
        same = bias->dims[i].id == of->dims[first + i].id;
    }
    return same;
}

static void add_step(match *m, int32_t instr, dtp_fused_function function, int32_t a, int32_t b,
                     dtp_value_id result)
{
    m->member[m->n++] = instr;
    m->expr.step[m->expr.n++] = (dtp_fused_step){.function = (int32_t)function, .arg = {a, b}};
    m->result = result;
}

/* Whether both operands of the product are needed behind it. */
static bool operands_stay(const fuser *f, int32_t product)
{
    bool stay = true;
    for (int32_t k = 0; k < 2 && stay; k++) {
        const dtp_value_id root = dtp_value_root(f->p, f->p->instrs[product].in[k]);
        const dtp_value_kind kind = f->p->values[root].kind;
        stay =
            (kind != DTP_VALUE_TEMP && kind != DTP_VALUE_STAGING) || f->last_read[root] > product;
    }
    return stay;
}

/* The functions of the result of product i. */
static bool find_match(const fuser *f, int32_t i, match *m)
{
    const dtp_program *p = f->p;
    *m = (match){.product = i, .operand = -1, .also = -1, .mover = -1, .expr = {.also = -1}};
    if (!is_product(p, i, &m->columns)) {
        return false;
    }
    dtp_value_id v = m->result = p->instrs[i].out[0];
    int32_t k, r = is_inner(f, v) ? reader(f, v, i, &k) : -1;
    if (r < 0 || !is_free(f, p->instrs[r].out[0]) || !same_type(f, v, p->instrs[r].out[0])) {
        return false;
    }
    const dtp_instr *instr = &p->instrs[r];
    if (is_function(f, r, DTP_FUSED_gelu_grad, i) && k == 1 && same_type(f, v, instr->in[0]) &&
        is_before(f, instr->in[0], i)) {
        m->operand = instr->in[0];
        add_step(m, r, DTP_FUSED_gelu_grad, 1, 0, instr->out[0]);
        return true;
    }
    if (is_function(f, r, DTP_FUSED_gelu, i)) {
        add_step(m, r, DTP_FUSED_gelu, 0, 0, instr->out[0]);
        return true;
    }
    if (!is_function(f, r, DTP_FUSED_add, i) || !is_bias(f, m, instr->in[1 - k]) ||
        !is_there(f, instr->in[1 - k], i, &m->mover)) {
        return false;
    }
    m->operand = instr->in[1 - k];
    v = instr->out[0];
    add_step(m, r, DTP_FUSED_add, 0, 1, v);
    r = reader(f, v, r, &k);
    const bool inner = is_inner(f, v);
    if (r >= 0 && is_function(f, r, DTP_FUSED_gelu, i) && is_free(f, p->instrs[r].out[0]) &&
        same_type(f, v, p->instrs[r].out[0]) && (inner || operands_stay(f, i))) {
        add_step(m, r, DTP_FUSED_gelu, DTP_FUSED_IN, 0, p->instrs[r].out[0]);
        m->also = inner ? -1 : v;
        m->expr.also = inner ? -1 : 0;
    }
    return true;
}

/* The product becomes the fused kernel. */
static dtp_status replace(fuser *f, const match *m, dtp_err *err)
{
    dtp_program *p = f->p;
    dtp_instr *instr = &p->instrs[m->product];
    dtp_attr attrs[DTP_FUSED_ATTRS];
    dtp_value_id *ids;
    (void)dtp_fused_attrs(&m->expr, p->values[m->result].type.dtype, attrs); /* no constants */
    DTP_TRY(dtp_program__copy_attrs(p, attrs, DTP_FUSED_ATTRS, &instr->attrs, err));
    DTP_TRY(dtp_program__alloc_ids(p, 5, &ids, err));
    ids[0] = instr->in[0];
    ids[1] = instr->in[1];
    ids[2] = m->operand;
    ids[3] = m->result;
    ids[4] = m->also;
    f->gone[instr->out[0]] = true;
    for (int32_t k = 0; k < m->n; k++) {
        const dtp_value_id v = p->instrs[m->member[k]].out[0];
        f->removed[m->member[k]] = true;
        f->gone[v] = v != m->result && v != m->also;
        f->usage[v].written = m->product;
    }
    instr->n_attrs = DTP_FUSED_ATTRS;
    instr->in = ids;
    instr->n_in = m->operand >= 0 ? 3 : 2;
    instr->out = ids + 3;
    instr->n_out = m->also >= 0 ? 2 : 1;
    instr->op = dtp_fused_product(instr->n_out);
    if (m->mover >= 0) {
        f->mover[m->product] = m->mover;
        f->moved_to[m->mover] = m->product;
    }
    return DTP_OK;
}

dtp_status dtp_program__fuse_product(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    fuser f = {.p = p};
    dtp_instr *order;
    int32_t n = 0;
    bool any = false;
    DTP_TRY(dtp_program__count_uses(p, scratch, &f.usage, err));
    DTP_TRY(dtp_program__last_reads(p, scratch, &f.last_read, err));
    DTP_TRY(DTP_NEW(scratch, f.mover, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.moved_to, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.removed, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, f.gone, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, order, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        f.mover[i] = f.moved_to[i] = -1;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        match m;
        if (find_match(&f, i, &m)) {
            DTP_TRY(replace(&f, &m, err));
            any = true;
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (f.mover[i] >= 0) {
            order[n++] = p->instrs[f.mover[i]];
        }
        if (!f.removed[i] && f.moved_to[i] < 0) {
            order[n++] = p->instrs[i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        p->instrs[i] = order[i];
    }
    p->n_instrs = n;
    return any ? dtp_program__remove_values(p, f.gone, scratch, err) : DTP_OK;
}
