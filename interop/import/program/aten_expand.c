/* Ops that are several others are written as nodes of those that the table has, before constants
 * are evaluated; ops that change a tensor in place become those that make another one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interop/import/program/aten_expand.h"

enum { MOST_STACK = 12, MOST_TOKEN = 32 };

/* ---- making nodes ---- */

int32_t dtp_expand_node(dtp_expansion *e, const char *op, int32_t n_args, const dtp_aten_arg *args,
                        int32_t n_outs, const dtp_aten_value *like)
{
    dtp_aten *g = e->g;
    const dtp_aten_value v = *like;
    const int32_t first = g->n_values;
    dtp_aten_node node = {.op = op, .path = e->of->path, .where = e->of->where};
    dtp_status s = e->status;
    s = s != DTP_OK ? s : DTP_ONE_MORE(g->arena, e->nodes, e->n, e->capacity, e->err);
    s = s != DTP_OK ? s
                    : dtp_arena_grow(g->arena, &g->values, g->n_values, g->n_values + n_outs,
                                     &g->values_capacity, sizeof *g->values, e->err);
    s = s != DTP_OK ? s : DTP_NEW(g->arena, node.args, n_args + 1, e->err);
    s = s != DTP_OK ? s : DTP_NEW(g->arena, node.outs, n_outs + 1, e->err);
    e->status = s;
    if (s != DTP_OK) {
        return -1;
    }
    for (; node.n_args < n_args; node.n_args++) {
        node.args[node.n_args] = args[node.n_args];
    }
    for (; node.n_outs < n_outs; node.n_outs++) {
        node.outs[node.n_outs] = g->n_values;
        g->values[g->n_values] = v;
        g->values[g->n_values].role = ATEN_NODE;
        g->values[g->n_values++].node = e->n;
    }
    e->nodes[e->n++] = node;
    return first;
}

static dtp_aten_arg argument(dtp_expansion *e, const char *name, dtp_aten_kind kind, int32_t n)
{
    dtp_aten_arg a = {.name = name, .kind = kind, .n = n};
    dtp_status s = e->status;
    s = s != DTP_OK ? s : DTP_NEW(e->g->arena, a.values, n + 1, e->err);
    e->status = s != DTP_OK ? s : DTP_NEW(e->g->arena, a.ints, n + 1, e->err);
    a.kind = e->status == DTP_OK ? kind : ATEN_NONE;
    return a;
}

dtp_aten_arg dtp_expand_tensor(dtp_expansion *e, const char *name, int32_t value)
{
    dtp_aten_arg a = argument(e, name, ATEN_VALUE, 1);
    if (a.kind == ATEN_VALUE) {
        a.values[0] = value;
    }
    return a;
}

dtp_aten_arg dtp_expand_number(dtp_expansion *e, const char *name, double x)
{
    dtp_aten_arg a = argument(e, name, x == floor(x) && fabs(x) < 1e15 ? ATEN_INT : ATEN_FLOAT, 1);
    a.real = x;
    if (a.kind == ATEN_INT) {
        a.ints[0] = (int64_t)x;
    }
    return a;
}

dtp_aten_arg dtp_expand_ints(dtp_expansion *e, const char *name, int32_t n, const int64_t *ints)
{
    dtp_aten_arg a = argument(e, name, ATEN_INTS, n);
    for (int32_t i = 0; a.kind == ATEN_INTS && i < n; i++) {
        a.ints[i] = ints[i];
    }
    return a;
}

int32_t dtp_expand_one(dtp_expansion *e, const char *op, int32_t x, const dtp_aten_value *like)
{
    const dtp_aten_arg self = dtp_expand_tensor(e, "self", x);
    return x < 0 ? -1 : dtp_expand_node(e, op, 1, &self, 1, like);
}

const dtp_aten_node *dtp_expand_maker(const dtp_expansion *e, int32_t value)
{
    return value < 0 || e->g->values[value].node < 0 ? NULL : &e->nodes[e->g->values[value].node];
}

void dtp_expand_out(dtp_expansion *e, int32_t k, int32_t value)
{
    const int32_t out = e->of->outs[k];
    if (e->status != DTP_OK || out < 0) {
        return;
    }
    if (value < e->first) { /* no node of its own */
        const dtp_aten_value like = e->g->values[out];
        value = dtp_expand_one(e, "aten.alias", value, &like);
    }
    if (value >= 0) {
        const int32_t node = e->g->values[value].node;
        for (int32_t i = 0; i < e->nodes[node].n_outs; i++) {
            e->nodes[node].outs[i] = e->nodes[node].outs[i] == value ? out : e->nodes[node].outs[i];
        }
        e->g->values[value].node = -1;
        e->g->values[out].node = node;
    }
}

static dtp_aten_value value_of(const dtp_expansion *e, int32_t v)
{
    return e->g->values[v];
}

static bool is_real(int32_t dtype)
{
    return dtype == ATEN_F16 || dtype == ATEN_F32 || dtype == ATEN_F64 || dtype == ATEN_BF16;
}

/* ---- formulas ---- */

/* Operands, then the op: numbers, arguments (with what stands for an absent one), "=c" keeps the
 * last one, "c" is it again; "@": along the argument "dim"; "reduced": after "reduction". A formula
 * with `when` is used where that argument is there and is not 1. */
static const struct {
    const char *op, *when, *formula;
} formulas[] = {
    {"add", "alpha", "self other alpha mul add"},
    {"sub", "alpha", "self other alpha mul sub"},
    {"rsub", "alpha", "other self alpha mul sub"},
    {"addmm", "alpha", "mat1 mat2 mm alpha mul self beta:1 mul add"},
    {"addmm", "beta", "mat1 mat2 mm self beta mul add"},
    {"baddbmm", "alpha", "batch1 batch2 bmm alpha mul self beta:1 mul add"},
    {"baddbmm", "beta", "batch1 batch2 bmm self beta mul add"},
    {"addcmul", NULL, "self tensor1 tensor2 mul value:1 mul add"},
    {"addcdiv", NULL, "self tensor1 tensor2 div value:1 mul add"},
    {"lerp", NULL, "self end self sub weight mul add"},
    {"div", "rounding_mode", "self other div floor"},
    {"floor_divide", NULL, "self other div floor"},
    {"pow", "self", "exponent self log mul exp"},
    {"isnan", NULL, "self self ne"},
    {"nan_to_num", NULL,
     "self self ne nan:0 self where neginf:-3.4028234e38 posinf:3.4028234e38 clamp"},
    {"softplus", "beta", "self beta mul softplus beta div"},
    {"log_sigmoid", NULL, "self neg softplus neg"},
    {"hardsigmoid", NULL, "self 3 add 0 6 clamp 6 div"},
    {"hardswish", NULL, "self 3 add 0 6 clamp self mul 6 div"},
    {"mish", NULL, "self softplus tanh self mul"},
    {"selu", NULL,
     "self 0 minimum expm1 1.6732632423543772 mul self 0 maximum add 1.0507009873554805 mul"},
    {"celu", NULL, "self 0 minimum alpha:1 div expm1 alpha:1 mul self 0 maximum add"},
    {"elu", "scale",
     "self 0 minimum input_scale:1 mul expm1 alpha:1 mul self 0 maximum add scale mul"},
    {"elu", "input_scale", "self 0 minimum input_scale mul expm1 alpha:1 mul self 0 maximum add"},
    {"log2", NULL, "self log 0.6931471805599453 div"},
    {"log10", NULL, "self log 2.302585092994046 div"},
    {"exp2", NULL, "self 0.6931471805599453 mul exp"},
    {"ceil", NULL, "self neg floor neg"},
    {"erfc", NULL, "self erf 1 rsub"},
    {"tan", NULL, "self sin self cos div"},
    {"hypot", NULL, "self square other square add sqrt"},
    {"logaddexp", NULL, "self other maximum self other sub abs neg softplus add"},
    {"mse_loss", NULL, "self target sub square reduced"},
    {"l1_loss", NULL, "self target sub abs reduced"},
    {"huber_loss", NULL,
     "self target sub abs =d delta:1 minimum =c 0.5 mul d sub neg c mul reduced"},
    {"smooth_l1_loss", NULL,
     "self target sub abs =d beta:1 minimum =c 0.5 mul d sub neg c mul beta:1 div reduced"},
    {"binary_cross_entropy", NULL,
     "self log -100 maximum target mul self 1 rsub log -100 maximum target 1 rsub mul add neg "
     "reduced"},
    {"binary_cross_entropy_with_logits", "pos_weight",
     "target 1 rsub self mul pos_weight 1 sub target mul 1 add self neg softplus mul add reduced"},
    {"binary_cross_entropy_with_logits", NULL, "self softplus self target mul sub reduced"},
    {"kl_div", "log_target", "target exp target self sub mul reduced"},
    {"kl_div", NULL, "target 0 gt target log self sub target mul 0 where reduced"},
    {"cosine_similarity", NULL,
     "x1 x2 mul @sum x1 @linalg_vector_norm eps:1e-8 maximum x2 @linalg_vector_norm eps:1e-8 "
     "maximum mul div"},
};

/* Ops of several operands, and the names of these; the others have one. */
static const struct {
    const char *op;
    int32_t n;
    const char *names[3];
} several[] = {{"add", 2, {"self", "other"}},        {"sub", 2, {"self", "other"}},
               {"rsub", 2, {"self", "other"}},       {"mul", 2, {"self", "other"}},
               {"div", 2, {"self", "other"}},        {"maximum", 2, {"self", "other"}},
               {"minimum", 2, {"self", "other"}},    {"ne", 2, {"self", "other"}},
               {"gt", 2, {"self", "other"}},         {"mm", 2, {"self", "mat2"}},
               {"bmm", 2, {"self", "mat2"}},         {"where", 3, {"condition", "self", "other"}},
               {"clamp", 3, {"self", "min", "max"}}, {"", 1, {"self"}}};

typedef struct stack {
    int32_t n;
    dtp_aten_arg of[MOST_STACK], kept['z' + 1];
} stack;

/* A number, a kept one, or an argument; false: it is none, or an op. */
static bool push(dtp_expansion *e, const char *token, stack *s)
{
    char name[MOST_TOKEN];
    const char *otherwise = strchr(token, ':');
    if (strchr("-0123456789", token[0]) != NULL) {
        s->of[s->n++] = dtp_expand_number(e, "", atof(token));
        return true;
    }
    if (token[1] == '\0') {
        s->of[s->n++] = s->kept[(unsigned char)token[0] & 0x7f];
        return true;
    }
    const size_t n = otherwise != NULL ? (size_t)(otherwise - token) : strlen(token);
    memcpy(name, token, n);
    name[n] = '\0';
    const dtp_aten_arg *a = dtp_aten_arg_of(e->of, name);
    if (a == NULL && otherwise != NULL) {
        s->of[s->n++] = dtp_expand_number(e, "", atof(otherwise + 1));
    } else if (a != NULL) {
        s->of[s->n++] = *a;
    }
    return a != NULL || otherwise != NULL;
}

/* Sizes of operands that are broadcast against each other. */
static dtp_aten_value broadcast(const dtp_expansion *e, int32_t n, const dtp_aten_arg *args)
{
    dtp_aten_value like = value_of(e, e->of->outs[0]);
    like.rank = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t rank = args[i].kind == ATEN_VALUE ? e->g->values[args[i].values[0]].rank : 0;
        like.rank = rank > like.rank ? rank : like.rank;
    }
    for (int32_t a = 0; a < like.rank; a++) {
        like.sizes[a] = 1;
        for (int32_t i = 0; i < n; i++) {
            const dtp_aten_value *v =
                args[i].kind == ATEN_VALUE ? &e->g->values[args[i].values[0]] : NULL;
            const int32_t k = v == NULL ? -1 : a - (like.rank - v->rank);
            like.sizes[a] = k >= 0 && v->sizes[k] != 1 ? v->sizes[k] : like.sizes[a];
        }
    }
    return like;
}

int32_t dtp_expand_two(dtp_expansion *e, const char *op, int32_t a, int32_t b)
{
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", a), dtp_expand_tensor(e, "other", b)};
    if (a < 0 || b < 0 || e->status != DTP_OK) {
        return -1;
    }
    const dtp_aten_value like = broadcast(e, 2, args);
    return dtp_expand_node(e, op, 2, args, 1, &like);
}

static bool is_number(const dtp_aten_arg *a)
{
    return a->kind == ATEN_INT || a->kind == ATEN_FLOAT || a->kind == ATEN_BOOLEAN;
}

/* Replaces the operands on the stack by the result. */
static bool apply(dtp_expansion *e, const char *op, stack *s)
{
    const bool along = op[0] == '@';
    const char *text = dtp_arena_printf(e->g->arena, "aten.%s", op + (along ? 1 : 0));
    dtp_aten_value like = value_of(e, e->of->outs[0]);
    size_t row = 0;
    while (several[row].op[0] != '\0' && strcmp(several[row].op, op) != 0) {
        row++;
    }
    int32_t n = several[row].n;
    if (s->n < n || text == NULL) {
        e->status = text == NULL ? DTP_FAIL(e->err, DTP_NOMEM, "out of memory") : e->status;
        return false;
    }
    dtp_aten_arg *args = &s->of[s->n -= n];
    if ((op[0] == 'm' || op[0] == 'd') && n == 2 && is_number(&args[1]) && args[1].real == 1 &&
        (strcmp(op, "mul") == 0 || strcmp(op, "div") == 0)) {
        s->n++;
        return true;
    }
    if (is_number(&args[0])) { /* the only op of a number */
        const double x = log(args[0].real);
        args[0] = dtp_expand_number(e, "", x);
        s->n++;
        return strcmp(op, "log") == 0 && isfinite(x);
    }
    for (int32_t i = 0; i < n; i++) {
        if (args[i].kind != ATEN_VALUE && !is_number(&args[i])) {
            return false;
        }
        args[i].name = several[row].names[i];
    }
    like = along || strcmp(op + (op[0] == 'b' ? 1 : 0), "mm") == 0 ? like : broadcast(e, n, args);
    like.dtype = strcmp(op, "ne") == 0 || strcmp(op, "gt") == 0 ? ATEN_BOOL : like.dtype;
    if (along) {
        const dtp_aten_arg *dim = dtp_aten_arg_of(e->of, "dim");
        args[n++] = dim != NULL ? *dim : dtp_expand_number(e, "dim", 1);
    }
    const int32_t out = dtp_expand_node(e, text, n, args, 1, &like);
    s->of[s->n++] = dtp_expand_tensor(e, "", out);
    return out >= 0;
}

/* mean, sum, or as it is. */
static bool reduced(dtp_expansion *e, stack *s)
{
    static const char *const ops[] = {NULL, "aten.mean", "aten.sum"};
    const int64_t kind = dtp_aten_int(e->of, "reduction", 1);
    if (kind < 1 || kind > 2 || s->n < 1 || s->of[s->n - 1].kind != ATEN_VALUE) {
        return kind == 0;
    }
    dtp_aten_value like = value_of(e, e->of->outs[0]);
    like.rank = 0;
    const int32_t out = dtp_expand_one(e, ops[kind], s->of[s->n - 1].values[0], &like);
    s->of[s->n - 1] = dtp_expand_tensor(e, "", out);
    return out >= 0;
}

static bool run(dtp_expansion *e, const char *text)
{
    stack s = {0};
    char token[MOST_TOKEN];
    bool fits = true;
    for (; fits && *text != '\0'; text += strspn(text, " ")) {
        const size_t n = strcspn(text, " ");
        memcpy(token, text, n);
        token[n] = '\0';
        text += n;
        if (token[0] == '=') {
            s.kept[(unsigned char)token[1] & 0x7f] = s.of[s.n - 1];
        } else if (strcmp(token, "reduced") == 0) {
            fits = reduced(e, &s);
        } else if (s.n == MOST_STACK || !push(e, token, &s)) {
            fits = apply(e, token, &s);
        }
    }
    if (fits && s.n == 1 && s.of[0].kind == ATEN_VALUE) {
        dtp_expand_out(e, 0, s.of[0].values[0]);
        return true;
    }
    return false;
}

/* Whether the argument of a row is there, and not 1. */
static bool is_used(const dtp_aten_node *node, const char *name)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, name);
    if (a == NULL || a->kind == ATEN_VALUE) { /* "self" is looked at for a number */
        return a != NULL && strcmp(name, "self") != 0;
    }
    return a->kind == ATEN_TEXT ? strcmp(a->text, "floor") == 0 : a->real != 1;
}

bool dtp_expand_formula(dtp_expansion *e)
{
    const dtp_aten_node *node = e->of;
    const int32_t dtype =
        node->n_outs == 1 && node->outs[0] >= 0 ? e->g->values[node->outs[0]].dtype : ATEN_I64;
    const bool weighted =
        dtp_aten_operand(node, "target") >= 0 && dtp_aten_operand(node, "weight") >= 0;
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        if (dtp_aten_is(node, formulas[i].op) && (is_real(dtype) || dtype == ATEN_BOOL) &&
            !weighted && (formulas[i].when == NULL || is_used(node, formulas[i].when))) {
            return run(e, formulas[i].formula);
        }
    }
    return false;
}

/* ---- in place ---- */

/* Ops whose result may share the elements of their operand. */
static bool is_view(const dtp_aten_node *node)
{
    static const char *const names[] = {
        "view",    "slice",   "select", "transpose", "expand", "permute", "unsqueeze", "squeeze",
        "reshape", "flatten", "t",      "split",     "chunk",  "alias",   "detach",    NULL};
    bool is = false;
    for (int32_t i = 0; names[i] != NULL && !is; i++) {
        is = dtp_aten_is(node, names[i]);
    }
    return is;
}

/* add_, mul_, ..: the result in the operand's place; later readers of the operand mean the result.
 * A view of the operand, or what it is a view of, would change as well, which a graph of values
 * cannot say: such a node stays, and is reported, whether its result is read or not. */
static dtp_status in_place(dtp_expansion *e, dtp_aten_node *node)
{
    const size_t n = strcspn(node->op, ".") + 1, len = strcspn(node->op + n, ".");
    const int32_t x = dtp_aten_input(node, 0);
    if (len < 2 || node->op[n + len - 1] != '_' || node->op[n] == '_' || x < 0 ||
        node->n_outs != 1 || strncmp(node->op, "aten.", 5) != 0) {
        return DTP_OK;
    }
    const bool detach = dtp_aten_is(node, "detach_");
    const dtp_aten_value *v = &e->g->values[x], *out = &e->g->values[node->outs[0]];
    if (!detach && (v->role != ATEN_NODE || e->viewed[x] || is_view(dtp_expand_maker(e, x)) ||
                    v->dtype != out->dtype || v->rank != out->rank ||
                    memcmp(v->sizes, out->sizes, (size_t)v->rank * sizeof v->sizes[0]) != 0)) {
        node->effect = true;
        return DTP_OK;
    }
    char *op = dtp_arena_strdup(e->g->arena, node->op);
    DTP_TRY(DTP_MEMORY(e->err, op));
    memmove(op + n + len - 1, op + n + len, strlen(op + n + len) + 1);
    node->op = op;
    e->is[x] = detach ? e->is[x] : node->outs[0];
    return DTP_OK;
}

/* ---- all ---- */

int32_t dtp_expand_source(const dtp_expansion *e, int32_t value)
{
    for (const dtp_aten_node *node; (node = dtp_expand_maker(e, value)) != NULL;) {
        const int32_t x = dtp_aten_input(node, 0);
        const bool cast = dtp_aten_is(node, "to") || dtp_aten_is(node, "_to_copy");
        const bool off = dtp_aten_is(node, "dropout") && dtp_aten_int(node, "train", 1) == 0;
        const bool copy = dtp_aten_is(node, "contiguous") || dtp_aten_is(node, "clone") ||
                          dtp_aten_is(node, "alias");
        if (x < 0 ||
            !(off || copy ||
              (cast && is_real(e->g->values[x].dtype) && is_real(e->g->values[value].dtype)))) {
            return value;
        }
        value = x;
    }
    return value;
}

/* A tensor that no gradient flows through: without a loss, of integers, or a constant. */
static bool is_detached(const dtp_expansion *e, const dtp_aten_node *node)
{
    const int32_t x = dtp_aten_input(node, 0);
    return dtp_aten_is(node, "detach") && x >= 0 && node->n_outs == 1 &&
           (!e->trains || !is_real(e->g->values[x].dtype) ||
            dtp_aten_is(dtp_expand_maker(e, x), "lift_fresh_copy") ||
            e->g->values[x].role == ATEN_BUFFER);
}

static dtp_status expand_node(dtp_expansion *e, dtp_aten_node *node)
{
    for (int32_t k = 0; k < node->n_args; k++) {
        dtp_aten_arg *a = &node->args[k];
        for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
            a->values[j] = a->values[j] < 0 ? -1 : e->is[a->values[j]];
        }
    }
    DTP_TRY(in_place(e, node));
    if (is_view(node) && dtp_aten_input(node, 0) >= 0) {
        e->viewed[dtp_aten_input(node, 0)] = true;
    }
    if (is_detached(e, node)) {
        node->op = "aten.alias";
    }
    const int32_t n = e->n;
    e->of = node;
    e->first = e->g->n_values;
    if (!(dtp_expand_views(e) || dtp_expand_formula(e) || dtp_expand_attention(e))) {
        e->n = n; /* what was begun */
        e->g->n_values = e->first;
        DTP_TRY(e->status);
        DTP_TRY(DTP_ONE_MORE(e->g->arena, e->nodes, e->n, e->capacity, e->err));
        for (int32_t i = 0; i < node->n_outs; i++) {
            if (node->outs[i] >= 0) {
                e->g->values[node->outs[i]].node = e->n;
            }
        }
        e->nodes[e->n++] = *node;
    }
    return e->status;
}

static dtp_status count_uses(dtp_expansion *e)
{
    dtp_aten *g = e->g;
    DTP_TRY(DTP_NEW(g->arena, e->uses, g->n_values + 1, e->err));
    dtp_aten_mark(g);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_args && g->nodes[i].live; k++) {
            const dtp_aten_arg *a = &g->nodes[i].args[k];
            for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
                e->uses[a->values[j] < 0 ? g->n_values : a->values[j]]++;
            }
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        e->uses[g->outputs[i]]++;
    }
    return DTP_OK;
}

dtp_status dtp_aten_expand(dtp_aten *g, dtp_err *err)
{
    dtp_expansion e = {.g = g, .err = err};
    DTP_TRY(DTP_NEW(g->arena, e.is, g->n_values + 1, err));
    DTP_TRY(DTP_NEW(g->arena, e.viewed, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_values; i++) {
        e.is[i] = i;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const dtp_aten_value *v = &g->values[g->outputs[i]];
        e.trains = e.trains || (v->rank == 0 && is_real(v->dtype));
    }
    DTP_TRY(count_uses(&e));
    const int32_t n = g->n_nodes;
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(expand_node(&e, &g->nodes[i]));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i] = e.is[g->outputs[i]];
    }
    g->nodes = e.nodes;
    g->n_nodes = e.n;
    dtp_aten_mark(g);
    return DTP_OK;
}
