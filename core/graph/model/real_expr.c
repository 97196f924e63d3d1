/* Recursive descent: sum = product {(+|-) product}, product = factor {(*|/) factor},
 * factor = - factor | primary [^ factor], primary = number | name | f(sum, ..) | ( sum ). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/model/expr.h"

enum { MOST_OPERANDS = 2 };

typedef struct parser {
    const char *text, *at;
    dtp_expr_lookup lookup;
    void *user;
    dtp_err *err;
    int32_t depth;
} parser;

static dtp_status parse_sum(parser *p, double *out);

static dtp_status expected(parser *p, const char *what)
{
    return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': expected %s at '%s'", p->text, what,
                    p->at);
}

static bool take(parser *p, char c)
{
    p->at += strspn(p->at, " ");
    if (*p->at != c) {
        return false;
    }
    p->at++;
    p->at += strspn(p->at, " ");
    return true;
}

/* floor(x), max(x, y), min(x, y) */
static dtp_status parse_call(parser *p, const char *name, double *out)
{
    static const char *const names[] = {"floor", "max", "min"};
    double x[MOST_OPERANDS] = {0};
    int32_t k = 0, n = 0;
    while (k < 3 && strcmp(names[k], name) != 0) {
        k++;
    }
    do {
        if (k == 3 || n == (k == 0 ? 1 : 2)) {
            return expected(p, "floor(x), max(x, y) or min(x, y)");
        }
        DTP_TRY(parse_sum(p, &x[n++]));
    } while (take(p, ','));
    if (!take(p, ')') || n != (k == 0 ? 1 : 2)) {
        return expected(p, "an operand or ')'");
    }
    *out = k == 0 ? floor(x[0]) : k == 1 ? fmax(x[0], x[1]) : fmin(x[0], x[1]);
    return DTP_OK;
}

static dtp_status parse_name(parser *p, double *out)
{
    char name[DTP_EXPR_MAX_NAME];
    int64_t value = 0;
    const size_t n = strspn(p->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                                   "0123456789");
    if (n == 0 || n >= sizeof name) {
        return expected(p, "a number or a name");
    }
    memcpy(name, p->at, n);
    name[n] = '\0';
    p->at += n;
    if (take(p, '(')) {
        return parse_call(p, name, out);
    }
    DTP_TRY(p->lookup(p->user, name, &value, p->err));
    *out = (double)value;
    return DTP_OK;
}

static dtp_status parse_primary(parser *p, double *out)
{
    if (take(p, '(')) {
        DTP_TRY(parse_sum(p, out));
        return take(p, ')') ? DTP_OK : expected(p, "')'");
    }
    if (strspn(p->at, "0123456789") == 0) {
        return parse_name(p, out);
    }
    char *end;
    *out = strtod(p->at, &end);
    p->at = end;
    return DTP_OK;
}

static dtp_status parse_factor(parser *p, double *out)
{
    double by;
    if (++p->depth > DTP_EXPR_MAX_DEPTH) {
        return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': nested deeper than %d", p->text,
                        DTP_EXPR_MAX_DEPTH);
    }
    if (take(p, '-')) {
        DTP_TRY(parse_factor(p, out));
        *out = -*out;
    } else {
        DTP_TRY(parse_primary(p, out));
        if (take(p, '^')) {
            DTP_TRY(parse_factor(p, &by));
            *out = pow(*out, by);
        }
    }
    p->depth--;
    return DTP_OK;
}

static dtp_status parse_product(parser *p, double *out)
{
    DTP_TRY(parse_factor(p, out));
    for (;;) {
        const bool times = take(p, '*');
        double by;
        if (!times && !take(p, '/')) {
            return DTP_OK;
        }
        DTP_TRY(parse_factor(p, &by));
        *out = times ? *out * by : *out / by;
    }
}

static dtp_status parse_sum(parser *p, double *out)
{
    DTP_TRY(parse_product(p, out));
    for (;;) {
        const bool plus = take(p, '+');
        double by;
        if (!plus && !take(p, '-')) {
            return DTP_OK;
        }
        DTP_TRY(parse_product(p, &by));
        *out += plus ? by : -by;
    }
}

dtp_status dtp_expr_real(const char *text, dtp_expr_lookup lookup, void *user, double *out,
                         dtp_err *err)
{
    parser p = {.text = text, .at = text, .lookup = lookup, .user = user, .err = err};
    if (strlen(text) > DTP_EXPR_MAX_BYTES) {
        return DTP_FAIL(err, DTP_INVALID, "an expression of more than %d characters",
                        DTP_EXPR_MAX_BYTES);
    }
    DTP_TRY(parse_sum(&p, out));
    if (*p.at != '\0') {
        return expected(&p, "an operator");
    }
    return isfinite(*out) ? DTP_OK
                          : DTP_FAIL(err, DTP_INVALID, "expression '%s' is not finite", text);
}
