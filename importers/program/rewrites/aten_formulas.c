/* Ops that are elementwise in others, as formulas. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

enum { MOST_STACK = 12, MOST_TOKEN = 32 };

/* Operands, then the op: numbers, arguments (with what stands for an absent one), "=c" keeps the
 * last one, "c" is it again; "most" and "-most" are the largest and lowest number of the result's
 * type; "@": along the argument "dim"; "reduced": after "reduction". A formula with `when` is used
 * where that argument is there and is not 1. */
/* A row has all four, or it does not compile: the argument rule (arg_rules.h) is a text. */
#define FORMULA(op, when, args, formula)                                                           \
    {                                                                                              \
        op, when, "" args, formula                                                                 \
    }
#define LOSS "self:t target:t reduction=0|1|2"

static const struct {
    const char *op, *when, *args, *formula;
} formulas[] = {
    FORMULA("add", "alpha", "self:t other:tn alpha:n", "self other alpha mul add"),
    FORMULA("sub", "alpha", "self:t other:tn alpha:n", "self other alpha mul sub"),
    FORMULA("rsub", "alpha", "self:t other:tn alpha:n", "other self alpha mul sub"),
    FORMULA("addmm", "alpha", "self:t mat1:t mat2:t beta:n alpha:n",
            "mat1 mat2 mm alpha mul self beta:1 mul add"),
    FORMULA("addmm", "beta", "self:t mat1:t mat2:t beta:n alpha:n",
            "mat1 mat2 mm self beta mul add"),
    FORMULA("baddbmm", "alpha", "self:t batch1:t batch2:t beta:n alpha:n",
            "batch1 batch2 bmm alpha mul self beta:1 mul add"),
    FORMULA("baddbmm", "beta", "self:t batch1:t batch2:t beta:n alpha:n",
            "batch1 batch2 bmm self beta mul add"),
    FORMULA("addcmul", NULL, "self:t tensor1:t tensor2:t value:n",
            "self tensor1 tensor2 mul value:1 mul add"),
    FORMULA("addcdiv", NULL, "self:t tensor1:t tensor2:t value:n",
            "self tensor1 tensor2 div value:1 mul add"),
    FORMULA("lerp", NULL, "self:t end:t weight:tn", "self end self sub weight mul add"),
    FORMULA("div", "rounding_mode", "self:t other:tn rounding_mode=floor",
            "self self other remainder sub other true_divide 0.5 add floor"),
    FORMULA("div", "rounding_mode", "self:t other:tn rounding_mode=trunc",
            "self other true_divide =q sign q abs floor mul"),
    FORMULA("floor_divide", NULL, "self:t other:tn",
            "self self other remainder sub other true_divide 0.5 add floor"),
    FORMULA("pow", "self", "self:n exponent:t", "exponent self log mul exp"),
    FORMULA("isnan", NULL, "self:t", "self self ne"),
    FORMULA("nan_to_num", NULL, "self:t nan:n posinf:n neginf:n",
            "self self ne nan:0 self where =y most gt posinf:most y where =y -most lt "
            "neginf:-most y where"),
    FORMULA("softplus", "beta", "self:t beta:n threshold=20", "self beta mul softplus beta div"),
    FORMULA("softplus", "threshold", "self:t beta:n threshold:n",
            "self beta:1 mul threshold gt self self beta:1 mul softplus beta:1 div where"),
    FORMULA("log_sigmoid", NULL, "self:t", "self neg softplus neg"),
    FORMULA("hardsigmoid", NULL, "self:t", "self 3 add 0 6 clamp 6 div"),
    FORMULA("hardswish", NULL, "self:t", "self 3 add 0 6 clamp self mul 6 div"),
    FORMULA("mish", NULL, "self:t", "self softplus tanh self mul"),
    FORMULA("selu", NULL, "self:t",
            "self 0 minimum expm1 1.6732632423543772 mul self 0 maximum add 1.0507009873554805 "
            "mul"),
    FORMULA("celu", NULL, "self:t alpha:n",
            "self 0 minimum alpha:1 div expm1 alpha:1 mul self 0 maximum add"),
    FORMULA("elu", "scale", "self:t alpha:n scale:n input_scale:n",
            "self 0 minimum input_scale:1 mul expm1 alpha:1 mul self 0 maximum add scale mul"),
    FORMULA("elu", "input_scale", "self:t alpha:n scale=1 input_scale:n",
            "self 0 minimum input_scale mul expm1 alpha:1 mul self 0 maximum add"),
    FORMULA("log2", NULL, "self:t", "self log 0.6931471805599453 div"),
    FORMULA("log10", NULL, "self:t", "self log 2.302585092994046 div"),
    FORMULA("exp2", NULL, "self:t", "self 0.6931471805599453 mul exp"),
    FORMULA("ceil", NULL, "self:t", "self neg floor neg"),
    FORMULA("erfc", NULL, "self:t", "self erf 1 rsub"),
    FORMULA("tan", NULL, "self:t", "self sin self cos div"),
    FORMULA("hypot", NULL, "self:t other:t", "self square other square add sqrt"),
    FORMULA("logaddexp", NULL, "self:t other:t",
            "self other maximum self other sub abs neg softplus add"),
    FORMULA("mse_loss", NULL, LOSS, "self target sub square reduced"),
    FORMULA("l1_loss", NULL, LOSS, "self target sub abs reduced"),
    FORMULA("huber_loss", NULL, LOSS " delta:n",
            "self target sub abs =d delta:1 minimum =c 0.5 mul d sub neg c mul reduced"),
    FORMULA("smooth_l1_loss", NULL, LOSS " beta:n",
            "self target sub abs =d beta:1 minimum =c 0.5 mul d sub neg c mul beta:1 div reduced"),
    FORMULA("binary_cross_entropy", NULL, LOSS,
            "self log -100 maximum target mul self 1 rsub log -100 maximum target 1 rsub mul add "
            "neg reduced"),
    FORMULA("binary_cross_entropy_with_logits", "pos_weight", LOSS " pos_weight:t",
            "target 1 rsub self mul pos_weight 1 sub target mul 1 add self neg softplus mul add "
            "reduced"),
    FORMULA("binary_cross_entropy_with_logits", NULL, LOSS,
            "self softplus self target mul sub reduced"),
    FORMULA("kl_div", "log_target", LOSS " log_target=1", "target exp target self sub mul reduced"),
    FORMULA("kl_div", NULL, LOSS " log_target=0",
            "target 0 ne target log self sub target mul 0 where reduced"),
    FORMULA("cosine_similarity", NULL, "x1:t x2:t dim:i eps=0|1e-12|1e-9|1e-8|1e-7|1e-6|1e-5",
            "x1 x2 mul @sum x1 @linalg_vector_norm eps:1e-8 maximum x2 @linalg_vector_norm "
            "eps:1e-8 maximum mul div"),
};

/* Ops of several operands, and the names of these; the others have one. */
static const struct {
    const char *op;
    int32_t n;
    const char *names[3];
} several[] = {{"remainder", 2, {"self", "other"}},
               {"true_divide", 2, {"self", "other"}},
               {"add", 2, {"self", "other"}},
               {"sub", 2, {"self", "other"}},
               {"rsub", 2, {"self", "other"}},
               {"mul", 2, {"self", "other"}},
               {"div", 2, {"self", "other"}},
               {"maximum", 2, {"self", "other"}},
               {"minimum", 2, {"self", "other"}},
               {"ne", 2, {"self", "other"}},
               {"gt", 2, {"self", "other"}},
               {"lt", 2, {"self", "other"}},
               {"mm", 2, {"self", "mat2"}},
               {"bmm", 2, {"self", "mat2"}},
               {"where", 3, {"condition", "self", "other"}},
               {"clamp", 3, {"self", "min", "max"}},
               {"", 1, {"self"}}};

typedef struct stack {
    int32_t n;
    dtp_aten_arg of[MOST_STACK], kept['z' + 1];
} stack;

/* "most" and "-most": the largest number of the type of the result, and the lowest. */
static double number_of(const dtp_expansion *e, const char *text)
{
    const int32_t dtype = e->g->values[e->of->outs[0]].dtype;
    const double most = dtype == ATEN_BF16  ? 3.3895313892515355e38
                        : dtype == ATEN_F16 ? 65504
                        : dtype == ATEN_F64 ? DBL_MAX
                                            : (double)FLT_MAX;
    return strcmp(text, "most") == 0 ? most : strcmp(text, "-most") == 0 ? -most : atof(text);
}

/* A number, a kept one, or an argument; false: it is none, or an op. */
static bool push(dtp_expansion *e, const char *token, stack *s)
{
    char name[MOST_TOKEN];
    const char *otherwise = strchr(token, ':');
    if (strchr("-0123456789", token[0]) != NULL || strcmp(token, "most") == 0) {
        s->of[s->n++] = dtp_expand_number(e, "", number_of(e, token));
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
        s->of[s->n++] = dtp_expand_number(e, "", number_of(e, otherwise + 1));
    } else if (a != NULL) {
        s->of[s->n++] = *a;
    }
    return a != NULL || otherwise != NULL;
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
    dtp_aten_value like = e->g->values[e->of->outs[0]];
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
    like = along || strcmp(op + (op[0] == 'b' ? 1 : 0), "mm") == 0
               ? like
               : dtp_expand_broadcast(e, n, args);
    const bool truth = strcmp(op, "ne") == 0 || strcmp(op, "gt") == 0 || strcmp(op, "lt") == 0;
    like.dtype = truth ? ATEN_BOOL : like.dtype;
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
    dtp_aten_value like = e->g->values[e->of->outs[0]];
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
    return a->kind == ATEN_TEXT || a->real != 1;
}

bool dtp_expand_formula(dtp_expansion *e)
{
    const dtp_aten_node *node = e->of;
    const int32_t dtype =
        node->n_outs == 1 && node->outs[0] >= 0 ? e->g->values[node->outs[0]].dtype : ATEN_I64;
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        if (dtp_aten_is(node, formulas[i].op) &&
            (dtp_aten_real_type(dtype) || dtype == ATEN_BOOL) &&
            (formulas[i].when == NULL || is_used(node, formulas[i].when)) &&
            dtp_expand_allows(e, formulas[i].args)) {
            return run(e, formulas[i].formula);
        }
    }
    return false;
}
