/* The signature of an op, "mk,kn->mn": letters for the dims of operands and outputs, by place. */
#include "core/graph/op_signature.h"

#include <ctype.h>
#include <string.h>

int32_t dtp_signature_find(const dtp_signature *s, char letter)
{
    for (int32_t i = 0; i < s->n_letters; i++) {
        if (s->letters[i] == letter) {
            return i;
        }
    }
    return -1;
}

bool dtp_signature_has(const dtp_signature_term *term, int32_t letter)
{
    if (letter < 0) {
        return term->dots;
    }
    for (int8_t i = 0; i < term->n; i++) {
        if (term->letter[i] == letter) {
            return true;
        }
    }
    return false;
}

/* ---- parsing ---- */

typedef struct parser {
    const char *text, *at;
    bool output; /* behind the arrow: letters must be known */
    dtp_signature s;
} parser;

static dtp_status bad(const parser *p, const char *what, dtp_err *err)
{
    return DTP_FAIL(err, DTP_INVALID, "signature '%.80s': %s at character %lld", p->text, what,
                    (long long)(p->at - p->text) + 1);
}

static dtp_status parse_term(parser *p, dtp_signature_term *term, dtp_err *err)
{
    dtp_signature *s = &p->s;
    if (strncmp(p->at, "...", 3) == 0) {
        bool any = !p->output;
        for (int32_t i = 0; i < s->n_in; i++) {
            any = any || s->in[i].dots;
        }
        if (!any) {
            return bad(p, "dots in an output that no operand has", err);
        }
        term->dots = true;
        p->at += 3;
    }
    for (; *p->at != '\0' && *p->at != ',' && strncmp(p->at, "->", 2) != 0; p->at++) {
        if (!isalpha((unsigned char)*p->at)) {
            return bad(p, "expected a letter, ',' or '->'", err);
        }
        int32_t letter = dtp_signature_find(s, *p->at);
        if (letter < 0 && p->output) {
            return bad(p, "a letter of an output that no operand has", err);
        }
        if (letter < 0 && s->n_letters == DTP_SIGNATURE_MAX_LETTERS) {
            return bad(p, "too many letters", err);
        }
        if (letter < 0) {
            letter = s->n_letters++;
            s->letters[letter] = *p->at;
        }
        if (dtp_signature_has(term, letter)) {
            return bad(p, "a letter twice in one term", err);
        }
        if (term->n == DTP_MAX_RANK) {
            return bad(p, "too many dims", err);
        }
        term->letter[term->n++] = (int8_t)letter;
    }
    return DTP_OK;
}

/* Comma-separated terms. */
static dtp_status parse_terms(parser *p, dtp_signature_term *terms, int32_t max, int32_t *n,
                              dtp_err *err)
{
    for (;;) {
        if (*n == max) {
            return bad(p, p->output ? "too many outputs" : "too many operands", err);
        }
        DTP_TRY(parse_term(p, &terms[(*n)++], err));
        if (*p->at != ',') {
            return DTP_OK;
        }
        p->at++;
    }
}

dtp_status dtp_signature_parse(const char *text, dtp_signature *out, dtp_err *err)
{
    parser p = {.text = text, .at = text};
    if (strncmp(text, "->", 2) != 0) {
        DTP_TRY(parse_terms(&p, p.s.in, DTP_MAX_OP_IN, &p.s.n_in, err));
    }
    if (strncmp(p.at, "->", 2) != 0) {
        return bad(&p, "expected '->'", err);
    }
    p.at += 2;
    p.output = true;
    DTP_TRY(parse_terms(&p, p.s.out, DTP_MAX_OP_OUT, &p.s.n_out, err));
    if (*p.at != '\0') {
        return bad(&p, "expected the end", err);
    }
    *out = p.s;
    return DTP_OK;
}

/* ---- calls ---- */

static dtp_status bind_operand(const dtp_signature *s, const dtp_op_call *call, int32_t i,
                               dtp_signature_dims *out, dtp_err *err)
{
    const dtp_signature_term *term = &s->in[i];
    const dtp_ttype *type = &call->in[i];
    const int32_t n_dots = type->rank - term->n;
    if (n_dots < 0 || (n_dots > 0 && !term->dots)) {
        return DTP_FAIL(err, DTP_INVALID, "operand %d has %d dims, its signature %s%d", i,
                        type->rank, term->dots ? "at least " : "", term->n);
    }
    bool same = !term->dots || out->n_dots < 0 || out->n_dots == n_dots;
    for (int32_t k = 0; k < n_dots && same; k++) {
        same = out->n_dots < 0 ||
               (out->dots[k].id == type->dims[k].id && out->dots[k].size == type->dims[k].size);
        out->dots[k] = type->dims[k];
    }
    if (!same) {
        return DTP_FAIL(err, DTP_INVALID,
                        "the dims of '...' in operand %d are not those of an operand before", i);
    }
    out->n_dots = term->dots ? n_dots : out->n_dots;
    for (int8_t k = 0; k < term->n; k++) {
        const int32_t letter = term->letter[k];
        const dtp_tdim d = type->dims[n_dots + k], old = out->letter[letter];
        const char *name = dtp_dims_name(call->dims, d.id);
        if (old.id >= 0 && (old.id != d.id || old.size != d.size)) {
            return DTP_FAIL(err, DTP_INVALID, "'%c' is dim '%s' (%lld) and dim '%s' (%lld)",
                            s->letters[letter], dtp_dims_name(call->dims, old.id),
                            (long long)old.size, name, (long long)d.size);
        }
        for (int32_t m = 0; m < s->n_letters; m++) {
            if (m != letter && out->letter[m].id == d.id) {
                return DTP_FAIL(err, DTP_INVALID, "'%c' and '%c' are both dim '%s'", s->letters[m],
                                s->letters[letter], name);
            }
        }
        out->letter[letter] = d;
    }
    return DTP_OK;
}

dtp_status dtp_signature_bind(const dtp_signature *s, const dtp_op_call *call,
                              dtp_signature_dims *out, dtp_err *err)
{
    out->n_dots = -1;
    for (int32_t k = 0; k < s->n_letters; k++) {
        out->letter[k] = (dtp_tdim){.id = -1};
    }
    for (int32_t i = 0; i < s->n_in; i++) {
        DTP_TRY(bind_operand(s, call, i, out, err));
    }
    for (int32_t i = 0; i < out->n_dots; i++) {
        for (int32_t k = 0; k < s->n_letters; k++) {
            if (out->letter[k].id == out->dots[i].id) {
                return DTP_FAIL(err, DTP_INVALID, "'%c' and one of '...' are both dim '%s'",
                                s->letters[k], dtp_dims_name(call->dims, out->dots[i].id));
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_signature_out(const dtp_signature *s, int32_t i, const dtp_signature_dims *dims,
                             dtp_ttype *out, dtp_err *err)
{
    const dtp_signature_term *term = &s->out[i];
    const int32_t n_dots = term->dots ? dims->n_dots : 0;
    if (n_dots + term->n > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "output %d has %d dims, the limit is %d", i,
                        n_dots + term->n, DTP_MAX_RANK);
    }
    out->rank = n_dots + term->n;
    for (int32_t k = 0; k < n_dots; k++) {
        out->dims[k] = dims->dots[k];
    }
    for (int8_t k = 0; k < term->n; k++) {
        out->dims[n_dots + k] = dims->letter[term->letter[k]];
    }
    return DTP_OK;
}

int32_t dtp_signature_letter_of(const dtp_signature *s, const dtp_op_call *call, dtp_dim_id d)
{
    for (int32_t i = 0; i < s->n_in; i++) {
        const int32_t axis = dtp_ttype_find(&call->in[i], d);
        const int32_t at = axis - (call->in[i].rank - s->in[i].n);
        if (axis >= 0 && at >= 0) {
            return s->in[i].letter[at];
        }
    }
    return -1;
}
