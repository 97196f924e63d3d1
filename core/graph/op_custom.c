/* Rows of the op table from descriptions: the hooks of every such op read its signature, roles and
 * strategies from `user` of the row. */
#include "core/graph/op_set.h"

#include <string.h>

#include "core/layout/placement_text.h"
#include "core/graph/op_signature.h"

enum { MAX_STRATEGIES = DTP_MAX_RULES - 1, DOTS = DTP_SIGNATURE_MAX_LETTERS };

/* The placements of one strategy of an opaque op. */
typedef struct custom_strategy {
    dtp_placement in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
} custom_strategy;

/* What the hooks of one op know; `user` of its row. */
typedef struct custom {
    dtp_signature signature;
    char in_kinds[DTP_MAX_OP_IN], out_kinds[DTP_MAX_OP_OUT];
    dtp_dim_role roles[DTP_SIGNATURE_MAX_LETTERS + 1]; /* the last: of the dims of "..." */
    bool stated[DTP_SIGNATURE_MAX_LETTERS + 1];
    double flops_per_point;
    int32_t n_strategies;
    custom_strategy *strategies;
    const void *user;
} custom;

static const custom *custom_of(const dtp_op_def *op)
{
    return op->user;
}

const void *dtp_custom_op_user(const dtp_op_def *op)
{
    return custom_of(op)->user;
}

/* ---- hooks ---- */

/* Checks the operands' types; *dtype is that of the floating-point ones (f32 without any). */
static dtp_status check_dtypes(const custom *c, const dtp_op_call *call, dtp_dtype *dtype,
                               dtp_err *err)
{
    int32_t first = -1;
    *dtype = DTP_F32;
    for (int32_t i = 0; i < call->n_in; i++) {
        const char kind = c->in_kinds[i];
        const dtp_dtype own = call->in[i].dtype;
        const bool is_float = dtp_dtype_is_float(own), is_bool = own == DTP_BOOL;
        const bool fits = kind == '*' || (kind == 'f' && is_float) || (kind == 'b' && is_bool) ||
                          (kind == 'i' && !is_float && !is_bool);
        if (!fits) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, %s is needed", i,
                            dtp_dtype_name(own),
                            kind == 'f'   ? "a floating-point type"
                            : kind == 'i' ? "an integer type"
                                          : "bool");
        }
        if (kind == 'f' && first >= 0 && own != *dtype) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d is %s but operand %d is %s (use cast)",
                            first, dtp_dtype_name(*dtype), i, dtp_dtype_name(own));
        }
        if (kind == 'f' && first < 0) {
            first = i;
            *dtype = own;
        }
    }
    return DTP_OK;
}

static dtp_status infer_custom(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const custom *c = custom_of(call->op);
    const dtp_ttype declared = out[0];
    dtp_signature_dims dims;
    dtp_dtype dtype;
    DTP_TRY(check_dtypes(c, call, &dtype, err));
    DTP_TRY(dtp_signature_bind(&c->signature, call, &dims, err));
    for (int32_t i = 0; i < c->signature.n_out; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].dtype = c->out_kinds[i] == 'f' ? dtype : c->out_kinds[i] == 'b' ? DTP_BOOL : DTP_I32;
        DTP_TRY(dtp_signature_out(&c->signature, i, &dims, &out[i], err));
    }
    bool same = !has_out || declared.rank == out[0].rank;
    for (int32_t k = 0; k < out[0].rank && has_out && same; k++) {
        same = declared.dims[k].id == out[0].dims[k].id &&
               declared.dims[k].size == out[0].dims[k].size;
    }
    if (!same) {
        char text[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&out[0], call->dims, text);
        return DTP_FAIL(err, DTP_INVALID, "'out' does not have the dims of the result, %s", text);
    }
    return DTP_OK;
}

static bool in_every_output(const dtp_signature *s, int32_t letter)
{
    bool all = true;
    for (int32_t i = 0; i < s->n_out; i++) {
        all = all && dtp_signature_has(&s->out[i], letter);
    }
    return all;
}

static dtp_dim_role role_custom(const dtp_op_call *call, dtp_dim_id d)
{
    const custom *c = custom_of(call->op);
    const int32_t letter = dtp_signature_letter_of(&c->signature, call, d);
    return c->roles[letter >= 0 ? letter : DOTS];
}

static void work_custom(const dtp_op_call *call, dtp_work *out)
{
    dtp_dim_id seen[DTP_MAX_OP_DIMS];
    const int32_t n = dtp_call_dims(call, seen);
    double points = 1.0;
    for (int32_t k = 0; k < n; k++) {
        int64_t size = 0;
        for (int32_t i = 0; i < call->n_in; i++) {
            const int32_t axis = dtp_ttype_find(&call->in[i], seen[k]);
            size = axis >= 0 && call->in[i].dims[axis].size > size ? call->in[i].dims[axis].size
                                                                   : size;
        }
        points *= (double)size;
    }
    out->flops = points * custom_of(call->op)->flops_per_point;
    out->bytes = dtp_call_bytes(call);
}

/* ---- strategies of opaque ops ---- */

/* The dim that a strategy splits wherever it occurs, -1 = none. */
static dtp_dim_id dim_of(const dtp_op_call *call, const custom_strategy *s)
{
    const int32_t n = call->n_in + call->n_out;
    const dtp_ttype *types[DTP_MAX_OP_IN + DTP_MAX_OP_OUT];
    bool split[DTP_MAX_OP_IN + DTP_MAX_OP_OUT];
    dtp_dim_id d = -1;
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = i - call->n_in;
        const dtp_placement *p = k < 0 ? &s->in[i] : &s->out[k];
        types[i] = k < 0 ? &call->in[i] : &call->out[k];
        split[i] = p->kind == DTP_SHARD;
        if (split[i] && d >= 0 && types[i]->dims[p->axis].id != d) {
            return -1;
        }
        d = split[i] ? types[i]->dims[p->axis].id : d;
    }
    for (int32_t i = 0; i < n; i++) {
        if ((dtp_ttype_find(types[i], d) >= 0) != split[i]) {
            return -1;
        }
    }
    return d;
}

static void rules_opaque(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    const custom *c = custom_of(call->op);
    (void)linear;
    for (int32_t i = 0; i < c->n_strategies; i++) {
        dtp_sharding_rule *row = &out->rows[out->n++];
        memset(row, 0, sizeof *row);
        row->dim = row->out_dim = dim_of(call, &c->strategies[i]);
        memcpy(row->in, c->strategies[i].in, sizeof row->in);
        memcpy(row->out, c->strategies[i].out, sizeof row->out);
    }
}

/* One placement: a PyTorch layout of a tensor of the term's rank on a mesh of one dim. */
static dtp_status parse_place(const char *text, size_t n, const dtp_signature_term *term,
                              dtp_placement *out, dtp_err *err)
{
    static const dtp_mesh mesh = {.n_dims = 1, .names = {"m"}, .sizes = {1}};
    const dtp_ttype type = {.dtype = DTP_F32, .rank = term->n};
    char copy[64];
    dtp_layout layout;
    if (n >= sizeof copy || n == 0) {
        return DTP_FAIL(err, DTP_INVALID, "expected a placement such as S0, R or P(sum)");
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    DTP_TRY(dtp_placements_parse(copy, &mesh, &type, &layout, err));
    *out = layout.placement[0];
    return DTP_OK;
}

/* Comma-separated placements up to `end`. */
static dtp_status parse_places(const char *at, const char *end, int32_t n,
                               const dtp_signature_term *terms, dtp_placement *out, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        if ((stop == NULL) != (i == n - 1)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "expected %d placements on each side of '->' as the "
                            "signature says",
                            n);
        }
        stop = stop == NULL ? end : stop;
        DTP_TRY(parse_place(at, (size_t)(stop - at), &terms[i], &out[i], err));
        at = stop + 1;
    }
    return n > 0 || at == end ? DTP_OK
                              : DTP_FAIL(err, DTP_INVALID,
                                         "placements of operands that the "
                                         "signature does not have");
}

static dtp_status parse_strategy(const char *text, const dtp_signature *s, custom_strategy *out,
                                 dtp_err *err)
{
    const char *arrow = strstr(text, "->");
    if (arrow == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "'->' is missing");
    }
    DTP_TRY(parse_places(text, arrow, s->n_in, s->in, out->in, err));
    arrow += 2;
    return parse_places(arrow, arrow + strlen(arrow), s->n_out, s->out, out->out, err);
}

static dtp_status read_strategies(const dtp_custom_op *op, dtp_arena *arena, custom *c,
                                  dtp_err *err)
{
    static const custom_strategy replicated;
    if (op->n_strategies > MAX_STRATEGIES || op->n_roles > 0 || op->linear != DTP_LINEAR_NONE) {
        return DTP_FAIL(err, DTP_INVALID,
                        "an opaque op has at most %d strategies, and neither roles nor linearity",
                        MAX_STRATEGIES);
    }
    for (int32_t i = 0; i < c->signature.n_in + c->signature.n_out; i++) {
        const int32_t n_in = c->signature.n_in;
        const dtp_signature_term *t = i < n_in ? &c->signature.in[i] : &c->signature.out[i - n_in];
        if (t->dots) {
            return DTP_FAIL(err, DTP_INVALID, "an opaque op has no '...' in its signature");
        }
    }
    DTP_TRY(DTP_NEW(arena, c->strategies, op->n_strategies, err));
    for (int32_t i = 0; i < op->n_strategies; i++) {
        custom_strategy *next = &c->strategies[c->n_strategies];
        DTP_TRY(dtp_err_prefixed(parse_strategy(op->strategies[i], &c->signature, next, err), err,
                                 "strategy '%.60s'", op->strategies[i]));
        c->n_strategies += memcmp(next, &replicated, sizeof replicated) == 0 ? 0 : 1;
    }
    return DTP_OK;
}

/* ---- reading a description ---- */

static dtp_status read_kinds(const char *text, custom *c, dtp_err *err)
{
    const int32_t n_in = c->signature.n_in, n_out = c->signature.n_out;
    memset(c->in_kinds, 'f', sizeof c->in_kinds);
    memset(c->out_kinds, 'f', sizeof c->out_kinds);
    if (text == NULL) {
        return DTP_OK;
    }
    const size_t n = strlen(text), a = (size_t)n_in, b = (size_t)n_out;
    if (n != a + b + 2 || strspn(text, "fib*") != a || memcmp(text + a, "->", 2) != 0 ||
        strspn(text + a + 2, "fib") != b) {
        return DTP_FAIL(err, DTP_INVALID,
                        "dtypes '%.60s': expected %d of f, i, b and *, then '->', then %d of f, i "
                        "and b",
                        text, n_in, n_out);
    }
    memcpy(c->in_kinds, text, a);
    memcpy(c->out_kinds, text + a + 2, b);
    return DTP_OK;
}

/* Place among the roles of a letter or, for '.', of the dims of "..."; -1: no operand has it. */
static int32_t place_of(const dtp_signature *s, char letter)
{
    bool dots = false;
    for (int32_t i = 0; i < s->n_in; i++) {
        dots = dots || s->in[i].dots;
    }
    return letter != '.' ? dtp_signature_find(s, letter) : dots ? DOTS : -1;
}

static dtp_status read_roles(const dtp_custom_op *op, custom *c, dtp_err *err)
{
    for (int32_t k = 0; k <= DOTS; k++) {
        c->roles[k].role = DTP_ROLE_WHOLE;
    }
    for (int32_t i = 0; i < op->n_roles; i++) {
        const dtp_letter_role *r = &op->roles[i];
        const int32_t at = place_of(&c->signature, r->letter);
        const bool everywhere = at >= 0 && in_every_output(&c->signature, at == DOTS ? -1 : at);
        if (at < 0) {
            return DTP_FAIL(err, DTP_INVALID, "a role for the letter '%c', which no operand has",
                            r->letter);
        }
        if (r->role != DTP_ROLE_PARALLEL && r->role != DTP_ROLE_REDUCED &&
            r->role != DTP_ROLE_WHOLE) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'%c' has a role that is not parallel, reduced or whole", r->letter);
        }
        if (r->role == DTP_ROLE_PARALLEL && !everywhere) {
            return DTP_FAIL(err, DTP_INVALID, "'%c' is parallel but not every output has it",
                            r->letter);
        }
        if (r->role == DTP_ROLE_REDUCED &&
            (everywhere || r->op == DTP_REDUCE_AVG || r->op < 0 || r->op >= DTP_N_REDUCE_OPS)) {
            return DTP_FAIL(err, DTP_INVALID, "'%c' is reduced: %s", r->letter,
                            everywhere ? "but every output has it"
                                       : "by sum, prod, min or max only");
        }
        c->roles[at] = (dtp_dim_role){.role = r->role, .op = r->op};
        c->stated[at] = true;
    }
    return DTP_OK;
}

dtp_status dtp_custom_op_try_parallel(const dtp_op_def *op, char letter, dtp_arena *arena,
                                      dtp_op_def **out, dtp_err *err)
{
    *out = NULL;
    if (op->role != role_custom) {
        return DTP_OK;
    }
    const custom *c = custom_of(op);
    const int32_t at = place_of(&c->signature, letter);
    if (at < 0 || c->stated[at] || !in_every_output(&c->signature, at == DOTS ? -1 : at)) {
        return DTP_OK;
    }
    custom *tried;
    DTP_TRY(DTP_NEW(arena, *out, 1, err));
    DTP_TRY(DTP_NEW(arena, tried, 1, err));
    *tried = *c;
    tried->roles[at].role = DTP_ROLE_PARALLEL;
    **out = *op;
    (*out)->user = tried;
    return DTP_OK;
}

static dtp_status read_description(const dtp_custom_op *op, dtp_arena *arena, custom *c,
                                   dtp_err *err)
{
    if (op->signature == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "the signature is missing");
    }
    if (!(op->flops_per_point >= 0.0) || op->flops_per_point > 1e30) {
        return DTP_FAIL(err, DTP_INVALID, "%g FLOPs per point", op->flops_per_point);
    }
    c->flops_per_point = op->flops_per_point;
    c->user = op->user;
    DTP_TRY(dtp_signature_parse(op->signature, &c->signature, err));
    DTP_TRY(read_kinds(op->dtypes, c, err));
    DTP_TRY(read_roles(op, c, err));
    return op->n_strategies > 0 ? read_strategies(op, arena, c, err) : DTP_OK;
}

dtp_status dtp_custom_op_register(dtp_op_set *set, const dtp_custom_op *op, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, set, op));
    dtp_custom_op known;
    DTP_TRY(dtp_options_read(__func__, op, sizeof known, &known, err));
    op = &known;
    custom *c;
    DTP_TRY(DTP_NEW(set->arena, c, 1, err));
    DTP_TRY(dtp_err_prefixed(read_description(op, set->arena, c, err), err, "op '%.80s'",
                             op->name == NULL ? "" : op->name));
    const bool opaque = op->n_strategies > 0;
    dtp_op_def def = {
        .name = op->name,
        .summary = op->summary,
        .min_in = c->signature.n_in,
        .max_in = c->signature.n_in,
        .n_out = c->signature.n_out,
        .flags = opaque ? DTP_OP_OPAQUE : 0,
        .attrs = op->attrs,
        .out_names = op->out_names,
        .infer = infer_custom,
        .role = opaque ? NULL : role_custom,
        .linear = op->linear,
        .rules = opaque ? rules_opaque : NULL,
        .work = op->work != NULL ? op->work : work_custom,
        .workspace = op->workspace,
        .vjp = op->vjp,
        .no_grad = op->vjp != NULL || op->no_grad != NULL ? op->no_grad
                                                          : "it was registered without a gradient",
        .user = c,
    };
    memcpy(def.inplace_in, op->inplace_in, sizeof def.inplace_in);
    return dtp_op_register(set, &def, err);
}
