/* Recursive descent: sum = product {(+|-) product}, product = factor {(*|/) factor},
 * factor = integer | name | ( sum ) | - factor. */
#include "core/graph/model/expr.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/safe_int.h"

typedef struct parser {
    const char *text, *at;
    dtp_expr_lookup lookup;
    void *user;
    dtp_err *err;
    int32_t depth;
} parser;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

bool dtp_expr_is_name(const char *text)
{
    size_t n = 0;
    while (n < DTP_EXPR_MAX_NAME && is_name_char(text[n])) {
        n++;
    }
    return n > 0 && n < DTP_EXPR_MAX_NAME && text[n] == '\0' && !is_digit(text[0]);
}

static void skip_space(parser *p)
{
    while (*p->at == ' ') {
        p->at++;
    }
}

static dtp_status overflow(parser *p)
{
    return DTP_FAIL(p->err, DTP_RANGE, "expression '%s' does not fit into 64 bits", p->text);
}

static dtp_status parse_sum(parser *p, int64_t *out);

static dtp_status parse_name(parser *p, int64_t *out)
{
    char name[DTP_EXPR_MAX_NAME];
    size_t n = 0;
    while (is_name_char(p->at[n])) {
        n++;
    }
    if (n >= sizeof name) {
        return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': a name of more than %d characters",
                        p->text, DTP_EXPR_MAX_NAME - 1);
    }
    memcpy(name, p->at, n);
    name[n] = '\0';
    p->at += n;
    return p->lookup(p->user, name, out, p->err);
}

static dtp_status parse_primary(parser *p, int64_t *out)
{
    if (*p->at == '(') {
        p->at++;
        DTP_TRY(parse_sum(p, out));
        if (*p->at != ')') {
            return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': ')' is missing at '%s'", p->text,
                            p->at);
        }
        p->at++;
        return DTP_OK;
    }
    if (*p->at == '-') {
        int64_t value = 0;
        p->at++;
        skip_space(p);
        if (*p->at == '-') {
            return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': two minus signs", p->text);
        }
        DTP_TRY(parse_primary(p, &value));
        return dtp_mul_i64(value, -1, out) ? DTP_OK : overflow(p);
    }
    if (is_digit(*p->at)) {
        for (*out = 0; is_digit(*p->at); p->at++) {
            if (!dtp_mul_i64(*out, 10, out) || !dtp_add_i64(*out, *p->at - '0', out)) {
                return overflow(p);
            }
        }
        return DTP_OK;
    }
    if (is_name_char(*p->at)) {
        return parse_name(p, out);
    }
    return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': expected a number or a name at '%s'",
                    p->text, p->at);
}

static dtp_status parse_factor(parser *p, int64_t *out)
{
    skip_space(p);
    DTP_TRY(parse_primary(p, out));
    skip_space(p);
    return DTP_OK;
}

static dtp_status parse_product(parser *p, int64_t *out)
{
    DTP_TRY(parse_factor(p, out));
    while (*p->at == '*' || *p->at == '/') {
        char op = *p->at++;
        int64_t right = 0;
        DTP_TRY(parse_factor(p, &right));
        if (op == '*') {
            if (!dtp_mul_i64(*out, right, out)) {
                return overflow(p);
            }
            continue;
        }
        if (right == 0) {
            return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': division by zero", p->text);
        }
        if (right == -1) {
            if (!dtp_mul_i64(*out, -1, out)) {
                return overflow(p);
            }
            continue;
        }
        if (*out % right != 0) {
            return DTP_FAIL(p->err, DTP_INVALID,
                            "expression '%s': %" PRId64 " / %" PRId64 " is not exact", p->text,
                            *out, right);
        }
        *out /= right;
    }
    return DTP_OK;
}

static dtp_status parse_sum(parser *p, int64_t *out)
{
    if (++p->depth > DTP_EXPR_MAX_DEPTH) {
        return DTP_FAIL(p->err, DTP_INVALID, "expression '%s': nested deeper than %d", p->text,
                        DTP_EXPR_MAX_DEPTH);
    }
    DTP_TRY(parse_product(p, out));
    while (*p->at == '+' || *p->at == '-') {
        bool minus = *p->at++ == '-';
        int64_t right = 0;
        DTP_TRY(parse_product(p, &right));
        bool fits =
            minus ? !__builtin_sub_overflow(*out, right, out) : dtp_add_i64(*out, right, out);
        if (!fits) {
            return overflow(p);
        }
    }
    p->depth--;
    return DTP_OK;
}

dtp_status dtp_expr_eval(const char *text, dtp_expr_lookup lookup, void *user, int64_t *out,
                         dtp_err *err)
{
    parser p = {.text = text, .at = text, .lookup = lookup, .user = user, .err = err};
    int64_t value = 0;
    if (strlen(text) > DTP_EXPR_MAX_BYTES) {
        return DTP_FAIL(err, DTP_INVALID, "an expression of more than %d characters",
                        DTP_EXPR_MAX_BYTES);
    }
    DTP_TRY(parse_sum(&p, &value));
    if (*p.at != '\0') {
        return DTP_FAIL(err, DTP_INVALID, "expression '%s': expected an operator at '%s'", text,
                        p.at);
    }
    *out = value;
    return DTP_OK;
}
