/* Fusion: kernels whose intermediate values nothing else reads become one kernel of a fused op
 * (core/graph/ops/fused.c), as far as the target lists the pattern.
 *
 * An expression is a tree of elementwise functions on floats of one shape with one root; it runs
 * where its root ran. A member's value is read by members alone, or it is the second result, which
 * others read behind the root. Members belong to one phase. A member that moves over others must
 * not keep more alive than its value: the bytes of operands that would have died before.
 *
 * The expression whose root a norm reads becomes one kernel with it, which also writes the root.
 *
 * Runs before updates find their buffers: values are still written once and parameters hold their
 * old contents in the whole program.
 */
#include "core/graph/ops/fused_ops.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

typedef struct fuser {
    dtp_program *p;
    dtp_usage *usage;
    int32_t *last_read; /* of the buffer of each root */
    bool *fixed;        /* by value: it replaces a parameter at the end */
    bool *taken, *gone; /* by instruction: a member; by value: inside an expression */
} fuser;

typedef struct expression {
    int32_t root, at; /* of its value; where it runs */
    int32_t n, member[DTP_FUSED_STEPS];
    int32_t n_in;
    dtp_value_id in[DTP_FUSED_IN], also;
} expression;

static bool has(const expression *e, int32_t instr)
{
    for (int32_t k = 0; k < e->n; k++) {
        if (e->member[k] == instr) {
            return true;
        }
    }
    return false;
}

/* The member that writes v, -1 = none. */
static int32_t writer_in(const fuser *f, const expression *e, dtp_value_id v)
{
    return f->usage[v].written >= 0 && has(e, f->usage[v].written) ? f->usage[v].written : -1;
}

static bool same_dims(const dtp_ttype *a, const dtp_ttype *b, bool order)
{
    bool same = a->rank == b->rank;
    for (int32_t i = 0; i < a->rank && same; i++) {
        const int32_t at = dtp_ttype_find(b, a->dims[i].id);
        same = at >= 0 && (!order || at == i);
    }
    return same;
}

/* The function that a kernel is, NULL = none. A contraction that sums over nothing is a product. */
static const dtp_op_def *function_of(const dtp_program *p, const dtp_instr *instr)
{
    if (instr->kind != DTP_INSTR_KERNEL || (instr->op->flags & DTP_OP_CONTRACTION) == 0) {
        const bool is = instr->kind == DTP_INSTR_KERNEL && dtp_fused_is_function(instr->op);
        return is ? instr->op : NULL;
    }
    for (int32_t k = 0; k < instr->n_in; k++) {
        const dtp_ttype *in = &p->values[instr->in[k]].type;
        for (int32_t i = 0; i < in->rank; i++) {
            if (dtp_ttype_find(&p->values[instr->out[0]].type, in->dims[i].id) < 0) {
                return NULL;
            }
        }
    }
    return instr->n_in == 2 && instr->workspace < 0 ? dtp_fused_op(DTP_FUSED_MUL) : NULL;
}

/* Whether the instruction is a function of floats for the root's expression. */
static bool is_function(const fuser *f, int32_t i, int32_t root)
{
    const dtp_program *p = f->p;
    const dtp_instr *instr = &p->instrs[i], *to = &p->instrs[root];
    if (function_of(p, instr) == NULL || f->taken[i] || instr->phase != to->phase ||
        !same_dims(&p->values[instr->out[0]].type, &p->values[to->out[0]].type, false)) {
        return false;
    }
    for (int32_t k = 0; k <= instr->n_in; k++) {
        const dtp_value *v = &p->values[k < instr->n_in ? instr->in[k] : instr->out[0]];
        if (!dtp_dtype_is_float(v->type.dtype) || dtp_layout_has_partial(&v->layout)) {
            return false;
        }
    }
    return true;
}

/* Operands of the expression: what its members read and do not write. False: too many. */
static bool find_operands(const fuser *f, expression *e)
{
    const int32_t most = DTP_FUSED_IN;
    e->n_in = 0;
    for (int32_t m = 0; m < e->n; m++) {
        const dtp_instr *instr = &f->p->instrs[e->member[m]];
        for (int32_t k = 0; k < instr->n_in; k++) {
            int32_t at = 0;
            while (at < e->n_in && e->in[at] != instr->in[k]) {
                at++;
            }
            if (writer_in(f, e, instr->in[k]) >= 0 || at < e->n_in) {
                continue;
            }
            if (e->n_in == most) {
                return false;
            }
            e->in[e->n_in++] = instr->in[k];
        }
    }
    return true;
}

/* Reads of v by members; *before: others read it before the expression runs. */
static int32_t reads_inside(const fuser *f, const expression *e, dtp_value_id v, bool *before)
{
    int32_t n = 0;
    *before = false;
    for (int32_t i = f->usage[v].written + 1; i <= e->at; i++) {
        const dtp_instr *instr = &f->p->instrs[i];
        for (int32_t k = 0; k < instr->n_in; k++) {
            if (instr->in[k] == v) {
                const bool inside = has(e, i);
                n += inside ? 1 : 0;
                *before = *before || (!inside && i < e->at);
            }
        }
    }
    return n;
}

/* Whether member i, moved to where the expression runs, keeps no more alive than its value. */
static bool moves_well(const fuser *f, const expression *e, int32_t i)
{
    const dtp_program *p = f->p;
    const dtp_instr *instr = &p->instrs[i];
    int64_t kept = 0;
    int32_t next = i + 1;
    while (next < e->at && has(e, next)) {
        next++;
    }
    for (int32_t k = 0; k < instr->n_in && next < e->at; k++) {
        const dtp_value_id root = dtp_value_root(p, instr->in[k]);
        const dtp_value *v = &p->values[root];
        const bool temp = v->kind == DTP_VALUE_TEMP || v->kind == DTP_VALUE_STAGING;
        kept += temp && f->last_read[root] < e->at ? v->bytes : 0;
    }
    return kept <= p->values[instr->out[0]].bytes;
}

/* Takes the writer of operand v into the expression, if it may. */
static bool absorb(const fuser *f, expression *e, dtp_value_id v, bool two)
{
    const dtp_program *p = f->p;
    const dtp_value *value = &p->values[v], *result = &p->values[p->instrs[e->root].out[0]];
    const dtp_usage *u = &f->usage[v];
    const expression old = *e;
    bool before;
    if (u->written < 0 || u->replicas > 0 || value->parent >= 0 || f->fixed[v] ||
        e->n == DTP_FUSED_STEPS || !is_function(f, u->written, e->root)) {
        return false;
    }
    const int32_t reads = reads_inside(f, e, v, &before);
    const bool inside = reads == u->reads && !value->keep;
    if (!inside && (!two || e->also >= 0 || before || value->type.dtype != result->type.dtype ||
                    !same_dims(&value->type, &result->type, true))) {
        return false;
    }
    e->member[e->n++] = u->written;
    e->also = inside ? e->also : v;
    if (find_operands(f, e) && moves_well(f, e, u->written)) {
        return true;
    }
    *e = old;
    return false;
}

/* The largest expression of a root that runs at instruction `at`, found by taking in writers of
 * operands, the latest first; members in order. */
static void grow(const fuser *f, int32_t root, int32_t at, bool two, expression *e)
{
    *e = (expression){.root = root, .at = at, .n = 1, .member = {root}, .also = -1};
    bool refused[DTP_FUSED_IN] = {false};
    bool grown = find_operands(f, e);
    while (grown) {
        int32_t best = -1;
        for (int32_t k = 0; k < e->n_in; k++) {
            const int32_t w = f->usage[e->in[k]].written;
            if (!refused[k] && w >= 0 && (best < 0 || w > f->usage[e->in[best]].written)) {
                best = k;
            }
        }
        grown = best >= 0;
        if (grown && absorb(f, e, e->in[best], two)) {
            for (int32_t k = 0; k < DTP_FUSED_IN; k++) {
                refused[k] = false;
            }
        } else if (grown) {
            refused[best] = true;
        }
    }
    for (int32_t a = 1; a < e->n; a++) {
        const int32_t m = e->member[a];
        int32_t b = a;
        for (; b > 0 && e->member[b - 1] > m; b--) {
            e->member[b] = e->member[b - 1];
        }
        e->member[b] = m;
    }
    /* The first operand is one whose buffer the root may take. */
    (void)find_operands(f, e);
    for (int32_t k = 0; k < e->n_in; k++) {
        const dtp_value *v = &f->p->values[e->in[k]],
                        *out = &f->p->values[f->p->instrs[root].out[0]];
        const dtp_value_id buffer = dtp_value_root(f->p, e->in[k]);
        const dtp_value_id first = e->in[0];
        if (f->p->values[buffer].kind == DTP_VALUE_TEMP && f->last_read[buffer] <= at &&
            v->bytes == out->bytes && same_dims(&v->type, &out->type, true)) {
            e->in[0] = e->in[k];
            e->in[k] = first;
            break;
        }
    }
}

/* The expression in numbers. */
static dtp_fused_expr steps_of(const fuser *f, const expression *e)
{
    dtp_fused_expr out = {.n = e->n, .also = -1};
    for (int32_t m = 0; m < e->n; m++) {
        const dtp_instr *instr = &f->p->instrs[e->member[m]];
        dtp_fused_step *s = &out.step[m];
        s->op = function_of(f->p, instr);
        const char *key = dtp_fused_key(s->op);
        const dtp_op_call call = {
            .op = instr->op, .attrs = instr->attrs, .n_attrs = instr->n_attrs};
        s->constant = key == NULL ? 0.0 : dtp_call_float(&call, key);
        out.also = instr->out[0] == e->also ? m : out.also;
        for (int32_t k = 0; k < instr->n_in; k++) {
            const int32_t writer = writer_in(f, e, instr->in[k]);
            while (writer < 0 && e->in[s->arg[k]] != instr->in[k]) {
                s->arg[k]++;
            }
            while (writer >= 0 && e->member[s->arg[k]] != writer) {
                s->arg[k]++;
            }
            s->arg[k] += writer >= 0 ? DTP_FUSED_IN : 0;
        }
    }
    return out;
}

/* The instruction at e->at becomes the fused one; members other than it go. A norm at e->at reads
 * the root. */
static dtp_status replace(fuser *f, const expression *e, bool *removed, dtp_err *err)
{
    dtp_program *p = f->p;
    dtp_instr *instr = &p->instrs[e->at];
    const bool norm = e->at != e->root;
    const dtp_value_id root = p->instrs[e->root].out[0];
    const dtp_fused_expr expr = steps_of(f, e);
    dtp_attr attrs[DTP_FUSED_NORM_ATTRS + DTP_FUSED_ATTRS], *own = attrs;
    dtp_value_id *ids;
    for (int32_t k = 0; k < DTP_FUSED_NORM_ATTRS && norm; k++) {
        *own++ = instr->attrs[k];
    }
    if (!dtp_fused_attrs(&expr, p->values[root].type.dtype, own)) {
        return DTP_OK;
    }
    instr->n_attrs = (int32_t)(own - attrs) + DTP_FUSED_ATTRS;
    DTP_TRY(dtp_program__copy_attrs(p, attrs, instr->n_attrs, &instr->attrs, err));
    DTP_TRY(dtp_program__alloc_ids(p, e->n_in + instr->n_in + instr->n_out + 2, &ids, err));
    const dtp_instr old = *instr;
    instr->in = ids;
    instr->n_in = e->n_in;
    instr->out = ids + e->n_in + old.n_in;
    instr->n_out = 0;
    dtp_value_id *out = ids + e->n_in + old.n_in;
    for (int32_t k = 0; k < e->n_in; k++) {
        ids[k] = e->in[k];
    }
    for (int32_t k = 1; k < old.n_in && norm; k++) {
        ids[instr->n_in++] = old.in[k];
    }
    for (int32_t k = 0; k < old.n_out && norm; k++) {
        out[instr->n_out++] = old.out[k];
    }
    out[instr->n_out++] = root;
    if (e->also >= 0) {
        out[instr->n_out++] = e->also;
    }
    instr->op = norm ? dtp_fused_norm(old.op) : dtp_fused_elementwise(instr->n_out);
    for (int32_t m = 0; m < e->n; m++) {
        const int32_t i = e->member[m];
        const dtp_value_id v = p->instrs[i].out[0];
        f->taken[i] = true;
        removed[i] = i != e->at;
        if (i != e->at && i != e->root) {
            f->gone[v] = v != e->also;
        }
    }
    return DTP_OK;
}

/* The expression of operand 0 of a norm: others read it behind the norm. */
static bool grow_norm(const fuser *f, int32_t i, expression *e)
{
    const dtp_program *p = f->p;
    const dtp_instr *norm = &p->instrs[i];
    if (norm->kind != DTP_INSTR_KERNEL || dtp_fused_norm(norm->op) == NULL) {
        return false;
    }
    const dtp_value_id x = norm->in[0];
    const int32_t root = f->usage[x].written;
    bool before;
    if (root < 0 || p->values[x].parent >= 0 || f->usage[x].replicas > 0 ||
        p->instrs[root].phase != norm->phase || !is_function(f, root, root)) {
        return false;
    }
    *e = (expression){.root = root, .at = i};
    (void)reads_inside(f, e, x, &before);
    for (int32_t k = 1; k < norm->n_in; k++) {
        before = before || norm->in[k] == x;
    }
    if (before) {
        return false;
    }
    grow(f, root, i, false, e);
    return moves_well(f, e, root);
}

dtp_status dtp_program__fuse(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    fuser f = {.p = p};
    int32_t kept = 0;
    bool *removed;
    DTP_TRY(dtp_program__count_uses(p, scratch, &f.usage, err));
    DTP_TRY(dtp_program__last_reads(p, scratch, &f.last_read, err));
    DTP_TRY(DTP_NEW(scratch, f.fixed, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, f.gone, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, f.taken, p->n_instrs, err));
    DTP_TRY(DTP_NEW(scratch, removed, p->n_instrs, err));
    for (int32_t u = 0; u < p->n_updates; u++) {
        f.fixed[p->updates[u].value] = true;
    }
    for (int32_t i = p->n_instrs - 1; i >= 0; i--) {
        expression e = {.n = 0};
        if ((p->target->fuse & DTP_FUSE_NORM) != 0 && grow_norm(&f, i, &e)) {
            DTP_TRY(replace(&f, &e, removed, err));
        } else if ((p->target->fuse & DTP_FUSE_ELEMENTWISE) != 0 && is_function(&f, i, i)) {
            grow(&f, i, i, true, &e);
            if (e.n > 1) {
                DTP_TRY(replace(&f, &e, removed, err));
            }
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (!removed[i]) {
            p->instrs[kept++] = p->instrs[i];
        }
    }
    const bool any = kept < p->n_instrs;
    p->n_instrs = kept;
    return any ? dtp_program__remove_values(p, f.gone, scratch, err) : DTP_OK;
}
