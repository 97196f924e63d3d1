/* Expressions over sizes, as torch.export writes them: "Mul(Integer(2), Symbol('s0', ..))".. */
#include "importers/aten/sym_expr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 24, MOST_OPERANDS = 8, MOST_WORD = 64 };

typedef struct number {
    double value;
    const char *text; /* NULL without memory */
} number;

typedef struct parser {
    const char *at;
    dtp_arena *arena;
    dtp_symbol_of symbol;
    void *user;
    int32_t depth;
} parser;

static bool parse(parser *p, number *out);

static bool take(parser *p, char c)
{
    p->at += strspn(p->at, " ");
    if (*p->at != c) {
        return false;
    }
    p->at++;
    return true;
}

/* 'text' */
static bool quoted(parser *p, char *out)
{
    const size_t n = take(p, '\'') ? strcspn(p->at, "'") : MOST_WORD;
    if (n >= MOST_WORD || p->at[n] != '\'') {
        return false;
    }
    memcpy(out, p->at, n);
    out[n] = '\0';
    p->at += n + 1;
    return true;
}

/* What is said beside the name of a symbol or a number. */
static bool skip_rest(parser *p)
{
    p->at += strcspn(p->at, "()");
    return take(p, ')');
}

/* "(a+b)", "floor(a/b)": how is "(", "+", ")" */
static number binary(const parser *p, const char *const how[3], number a, number b, double value)
{
    const bool both = a.text != NULL && b.text != NULL;
    return (number){value, !both ? NULL
                                 : dtp_arena_printf(p->arena, "%s%s%s%s%s", how[0], a.text, how[1],
                                                    b.text, how[2])};
}

static number together(const parser *p, const char *op, number a, number b)
{
    static const char *const how[][3] = {
        {"(", "+", ")"},      {"(", "*", ")"},    {"(", "/", ")"},   {"(", "^(", "))"},
        {"floor(", "/", ")"}, {"min(", ",", ")"}, {"max(", ",", ")"}};
    switch (op[0]) {
    case '+':
        return binary(p, how[0], a, b, a.value + b.value);
    case '*':
        return binary(p, how[1], a, b, a.value * b.value);
    case '/':
        return binary(p, how[2], a, b, a.value / b.value);
    case '^':
        return binary(p, how[3], a, b, pow(a.value, b.value));
    case 'f':
        return binary(p, how[4], a, b, floor(a.value / b.value));
    case '<':
        return binary(p, how[5], a, b, fmin(a.value, b.value));
    default:
        return binary(p, how[6], a, b, fmax(a.value, b.value));
    }
}

/* Names of sympy and torch, our op, and how many operands: 0: two and more. */
static const struct {
    const char *name, *op;
    int32_t n;
} ops[] = {{"Add", "+", 0},          {"Mul", "*", 0},
           {"Pow", "^", 2},          {"FloatPow", "^", 2},
           {"PowByNatural", "^", 2}, {"FloorDiv", "f", 2},
           {"CleanDiv", "f", 2},     {"FloatTrueDiv", "/", 2},
           {"IntTrueDiv", "/", 2},   {"Max", ">", 0},
           {"Min", "<", 0},          {"ToFloat", "=", 1},
           {"FloorToInt", "F", 1},   {"Mod", "%", 2},
           {"PythonMod", "%", 2},    {"OpaqueUnaryFn_sqrt", "r", 1}};

static number alone(const parser *p, const char *op, number a)
{
    const number one = {1, "1"}, half = {0.5, "0.5"};
    return op[0] == '=' ? a : together(p, op[0] == 'F' ? "f" : "^", a, op[0] == 'F' ? one : half);
}

static bool parse_op(parser *p, const char *name, number *out)
{
    number x[MOST_OPERANDS] = {{0, NULL}};
    size_t k = 0;
    int32_t n = 0;
    while (k < sizeof ops / sizeof ops[0] && strcmp(ops[k].name, name) != 0) {
        k++;
    }
    do {
        if (k == sizeof ops / sizeof ops[0] || n == MOST_OPERANDS || !parse(p, &x[n++])) {
            return false;
        }
    } while (take(p, ','));
    if (!take(p, ')') || (ops[k].n == 0 ? n < 2 : n != ops[k].n)) {
        return false;
    }
    if (ops[k].op[0] == '%') { /* of what is divided as floor does */
        static const char *const minus[3] = {"(", "-", ")"};
        const number whole = together(p, "*", x[1], together(p, "f", x[0], x[1]));
        *out = binary(p, minus, x[0], whole, x[0].value - whole.value);
        return true;
    }
    *out = n == 1 ? alone(p, ops[k].op, x[0]) : x[0];
    for (int32_t i = 1; i < n; i++) {
        *out = together(p, ops[k].op, *out, x[i]);
    }
    return true;
}

/* Integer(-1), Rational(1, 2), Float('0.5', precision=53) */
static bool parse_number(parser *p, const char *name, number *out)
{
    char word[MOST_WORD], *end;
    double by = 1;
    if (strcmp(name, "Float") == 0) {
        out->value = quoted(p, word) ? strtod(word, &end) : (double)NAN;
    } else {
        out->value = strtod(p->at, &end);
        p->at = end;
        by = strcmp(name, "Rational") == 0 && take(p, ',') ? strtod(p->at, &end) : 1;
    }
    out->value /= by;
    const char *sign = out->value < 0 ? "(-" : "(";
    out->text = dtp_arena_printf(p->arena, "%s%.17g)", sign, fabs(out->value));
    return skip_rest(p) && isfinite(out->value);
}

static bool parse(parser *p, number *out)
{
    char name[MOST_WORD];
    p->at += strspn(p->at, " ");
    const size_t n = strspn(p->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    if (n == 0 || n >= MOST_WORD || p->depth == MOST_DEPTH) {
        return false;
    }
    memcpy(name, p->at, n);
    name[n] = '\0';
    p->at += n;
    if (!take(p, '(')) {
        return false;
    }
    if (strcmp(name, "Symbol") == 0) {
        return quoted(p, name) && p->symbol(p->user, name, &out->value, &out->text) && skip_rest(p);
    }
    if (strcmp(name, "Integer") == 0 || strcmp(name, "Float") == 0 ||
        strcmp(name, "Rational") == 0) {
        return parse_number(p, name, out);
    }
    p->depth++;
    const bool good = parse_op(p, name, out);
    p->depth--;
    return good;
}

bool dtp_sym_expr(const char *sympy, dtp_arena *arena, dtp_symbol_of symbol, void *user,
                  double *value, const char **text)
{
    parser p = {.at = sympy, .arena = arena, .symbol = symbol, .user = user};
    number x = {0, NULL};
    const bool good = parse(&p, &x) && *p.at == '\0';
    *value = x.value;
    *text = x.text;
    return good;
}
