/* Public calls as canonical calls: letters and positions become labels, arguments attributes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/graph/ops/op_table.h"
#include "dtensor/canonical_call.h"

/* ---- letters ---- */

/* Label of a letter; -1 when it has none. */
static int32_t find_label(const dtp_canonical_call *c, char letter)
{
    const char *at = c->n_labels > 0 ? memchr(c->names, letter, (size_t)c->n_labels) : NULL;
    return at == NULL ? -1 : (int32_t)(at - c->names);
}

static dtp_status label_of(dtp_canonical_call *c, char letter, int32_t *out, dtp_err *err)
{
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!is_letter) {
        return DTP_FAIL(err, DTP_INVALID, "'%c' is not a letter", letter);
    }
    *out = find_label(c, letter);
    if (*out < 0) {
        if (c->n_labels == DTP_CALL_MAX_LABELS) {
            return DTP_FAIL(err, DTP_INVALID, "more than %d dims", DTP_CALL_MAX_LABELS);
        }
        c->names[c->n_labels] = letter;
        *out = c->n_labels++;
    }
    return DTP_OK;
}

/* Labels of one operand's letters; *text moves behind them. */
static dtp_status read_operand(dtp_canonical_call *c, int32_t i, const char **text, dtp_err *err)
{
    dtp_ttype *type = &c->types[i];
    int32_t rank = 0;
    for (; **text != '\0' && **text != ',' && **text != '-'; (*text)++, rank++) {
        int32_t label;
        DTP_TRY(label_of(c, **text, &label, err));
        for (int32_t k = 0; k < rank && k < type->rank; k++) {
            if (type->dims[k].id == label) {
                return DTP_FAIL(err, DTP_INVALID, "operand %d has '%c' twice", i, **text);
            }
        }
        if (rank < type->rank) {
            type->dims[rank].id = label;
        }
    }
    if (rank == type->rank) {
        return DTP_OK;
    }
    return c->function != NULL
               ? DTP_FAIL(err, DTP_INVALID, "operand %d has %d dims, expected are %d", i,
                          type->rank, rank)
               : DTP_FAIL(err, DTP_INVALID, "%d letters for operand %d, which has %d dims", rank, i,
                          type->rank);
}

static dtp_status read_dims(const dtp_call *call, dtp_canonical_call *c, dtp_err *err)
{
    const char *text = call->dims;
    for (int32_t i = 0; i < c->n_in; i++) {
        DTP_TRY(read_operand(c, i, &text, err));
        const bool more = i + 1 < c->n_in;
        if (more && *text != ',') {
            return DTP_FAIL(err, DTP_INVALID, "%d operands, but dims of %d", c->n_in, i + 1);
        }
        text += more ? 1 : 0;
    }
    if (*text == '\0') {
        return DTP_OK;
    }
    if (text[0] != '-' || text[1] != '>') {
        return DTP_FAIL(err, DTP_INVALID, "'%s' follows the dims of %d operands", text, c->n_in);
    }
    text += 2;
    int32_t n_new = 0;
    c->has_out = true;
    for (; *text != '\0'; text++) {
        int32_t label;
        if (c->out_rank == DTP_MAX_RANK) {
            return DTP_FAIL(err, DTP_INVALID, "the output has more than %d dims", DTP_MAX_RANK);
        }
        DTP_TRY(label_of(c, *text, &label, err));
        int64_t size = dtp_canonical__label_size(c, label);
        if (size == 0) {
            if (call->new_sizes == NULL) {
                return DTP_FAIL(err, DTP_INVALID,
                                "no operand has '%c' of the output, and no new size is given",
                                *text);
            }
            size = call->new_sizes[n_new++];
            if (size < 1) {
                return DTP_FAIL(err, DTP_RANGE, "dim '%c' has size %lld", *text, (long long)size);
            }
        }
        for (int32_t k = 0; k < c->out_rank; k++) {
            if (c->out[k].id == label) {
                return DTP_FAIL(err, DTP_INVALID, "the output has '%c' twice", *text);
            }
        }
        c->out[c->out_rank++] = (dtp_tdim){.id = label, .size = size};
    }
    return DTP_OK;
}

/* ---- positions ---- */

/* Operands aligned at the last dim; label k is the k-th dim of the output. A dim of size 1 that
 * stands against a longer one is dropped. */
static dtp_status align(dtp_canonical_call *c, dtp_err *err)
{
    int64_t size[DTP_MAX_RANK] = {0};
    int32_t rank = 0;
    for (int32_t i = 0; i < c->n_in; i++) {
        rank = c->types[i].rank > rank ? c->types[i].rank : rank;
    }
    for (int32_t i = 0; i < c->n_in; i++) {
        for (int32_t k = 0; k < c->types[i].rank; k++) {
            const int32_t at = rank - c->types[i].rank + k;
            const int64_t n = c->types[i].dims[k].size;
            if (size[at] > 1 && n > 1 && n != size[at]) {
                return DTP_FAIL(err, DTP_INVALID,
                                "dim %d is %lld in operand %d but %lld in an operand before it",
                                at - rank, (long long)n, i, (long long)size[at]);
            }
            size[at] = size[at] > 1 || size[at] == n ? size[at] : n;
        }
    }
    for (int32_t i = 0; i < c->n_in; i++) {
        for (int32_t k = 0; k < c->types[i].rank; k++) {
            const int32_t at = rank - c->types[i].rank + k;
            c->types[i].dims[k].id = c->types[i].dims[k].size == size[at] ? at : -1;
        }
    }
    c->n_labels = c->out_rank = rank;
    c->has_out = true;
    for (int32_t k = 0; k < rank; k++) {
        c->names[k] = (char)('0' + k);
        c->out[k] = (dtp_tdim){.id = k, .size = size[k]};
    }
    return DTP_OK;
}

/* ---- arguments ---- */

static dtp_status read_choice(const dtp_attr_spec *spec, const char *text, dtp_attr *out,
                              dtp_err *err)
{
    const int32_t index = dtp_attr_choice(spec, text);
    if (index >= 0) {
        out->i = index;
        return DTP_OK;
    }
    char known[256];
    dtp_names_join(spec->choices, known, sizeof known);
    return DTP_FAIL(err, DTP_INVALID, "argument '%s': '%.80s' is none of: %s", spec->key,
                    text == NULL ? "" : text, known);
}

static dtp_status read_dim(dtp_canonical_call *c, const dtp_attr_spec *spec, const char *text,
                           int64_t *out, dtp_err *err)
{
    const int32_t label = text != NULL && text[0] != '\0' ? find_label(c, text[0]) : -1;
    if (label < 0 || text[1] != '\0') {
        return DTP_FAIL(err, DTP_INVALID, "argument '%s': '%s' is not one letter of the dims",
                        spec->key, text == NULL ? "" : text);
    }
    *out = label;
    return DTP_OK;
}

static dtp_status read_dim_list(dtp_canonical_call *c, const dtp_attr_spec *spec, const char *text,
                                dtp_attr *out, dtp_err *err)
{
    for (; text != NULL && *text != '\0'; text++) {
        const int32_t label = find_label(c, *text);
        if (label < 0) {
            return DTP_FAIL(err, DTP_INVALID, "argument '%s': '%c' is not a letter of the dims",
                            spec->key, *text);
        }
        DTP_TRY(dtp_canonical__add_id(c, label, err));
        out->n++;
    }
    return DTP_OK;
}

static dtp_status read_ints(dtp_canonical_call *c, const dtp_attr_spec *spec, const char *text,
                            dtp_attr *out, dtp_err *err)
{
    for (const char *p = text; p != NULL && (out->n == 0 || *p != '\0'); out->n++) {
        char *end;
        errno = 0;
        const long value = strtol(p, &end, 10);
        if (end == p || (*end != ',' && *end != '\0') || (*end == ',' && end[1] == '\0') ||
            errno != 0 || value < INT32_MIN || value > INT32_MAX) {
            return DTP_FAIL(err, DTP_INVALID, "argument '%s': '%.80s' is no list of integers",
                            spec->key, text);
        }
        DTP_TRY(dtp_canonical__add_id(c, (int32_t)value, err));
        p = end + (*end == ',' ? 1 : 0);
    }
    return DTP_OK;
}

static dtp_status read_arg(dtp_canonical_call *c, const dtp_arg *arg, dtp_err *err)
{
    const dtp_attr_spec *spec = dtp_op_attr(c->op, arg->key);
    if (spec == NULL) {
        const dtp_op_def *op = c->op;
        const char *key = arg->key;
        char known[256] = "none";
        size_t n = 0;
        for (const dtp_attr_spec *s = op->attrs; s != NULL && s->key != NULL && n < sizeof known;
             s++) {
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n > 0 ? ", " : "", s->key);
        }
        return DTP_FAIL(err, DTP_INVALID, "there is no argument '%.80s' (the op has: %s)", key,
                        known);
    }
    if (c->n_attrs == DTP_CALL_MAX_ATTRS) {
        return DTP_FAIL(err, DTP_INVALID, "more than %d arguments", DTP_CALL_MAX_ATTRS);
    }
    static const dtp_arg_kind EXPECTED[] = {
        [DTP_ATTR_INT] = DTP_ARG_INT,   [DTP_ATTR_FLOAT] = DTP_ARG_FLOAT,
        [DTP_ATTR_BOOL] = DTP_ARG_INT,  [DTP_ATTR_ENUM] = DTP_ARG_ENUM,
        [DTP_ATTR_DTYPE] = DTP_ARG_INT, [DTP_ATTR_DIM] = DTP_ARG_DIMS,
        [DTP_ATTR_DIMS] = DTP_ARG_DIMS, [DTP_ATTR_INTS] = DTP_ARG_INTS};
    if (EXPECTED[spec->kind] != arg->kind) {
        static const char *const kinds[] = {[DTP_ARG_INT] = "an integer (DTP_ARG_INT)",
                                            [DTP_ARG_FLOAT] = "a number (DTP_ARG_FLOAT)",
                                            [DTP_ARG_ENUM] = "one of its choices (DTP_ARG_ENUM)",
                                            [DTP_ARG_DIMS] = "letters of the dims (DTP_ARG_DIMS)",
                                            [DTP_ARG_INTS] = "integers (DTP_ARG_INTS)"};
        return DTP_FAIL(err, DTP_INVALID, "argument '%s' is %s, given is another kind", arg->key,
                        kinds[EXPECTED[spec->kind]]);
    }
    dtp_attr *out = &c->attrs[c->n_attrs];
    c->first_id[c->n_attrs++] = c->n_ids;
    *out = (dtp_attr){.key = spec->key, .kind = spec->kind, .i = arg->i, .f = arg->f};
    if (spec->min < spec->max && spec->kind != DTP_ATTR_INTS) {
        const double value = spec->kind == DTP_ATTR_FLOAT ? arg->f : (double)arg->i;
        if (!(value >= spec->min && value <= spec->max)) {
            return DTP_FAIL(err, DTP_RANGE, "argument '%s' is %g, allowed is %g to %g", arg->key,
                            value, spec->min, spec->max);
        }
    }
    switch (spec->kind) {
    case DTP_ATTR_ENUM:
        return read_choice(spec, arg->text, out, err);
    case DTP_ATTR_DTYPE:
        return dtp_dtype_check(arg->i, err);
    case DTP_ATTR_DIM:
        return read_dim(c, spec, arg->text, &out->i, err);
    case DTP_ATTR_DIMS:
        return read_dim_list(c, spec, arg->text, out, err);
    case DTP_ATTR_INTS:
        return read_ints(c, spec, arg->text, out, err);
    default:
        return DTP_OK;
    }
}

/* ---- a public call ---- */

static dtp_status read_call(const dtp_call *call, dtp_canonical_call *c, dtp_err *err)
{
    if (call->n_in < 1 || call->n_in > DTP_MAX_OP_IN) {
        return DTP_FAIL(err, DTP_INVALID, "%d operands, 1 to %d are possible", call->n_in,
                        DTP_MAX_OP_IN);
    }
    c->n_in = call->n_in;
    for (int32_t i = 0; i < call->n_in; i++) {
        dtp_tensor_slot *slot;
        DTP_TRY(dtp_tensor__slot(call->in[i], c->op->name, &slot, err));
        if (call->in[i].mesh != call->in[0].mesh) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d is on another mesh than operand 0", i);
        }
        c->in[i] = call->in[i];
        c->types[i] = slot->type;
    }
    DTP_TRY(call->dims == NULL ? align(c, err) : read_dims(call, c, err));
    for (int32_t i = 0; i < call->n_args; i++) {
        DTP_TRY(read_arg(c, &call->args[i], err));
    }
    dtp_canonical__fix_ids(c);
    c->wanted = call->out_layout;
    return DTP_OK;
}

dtp_status dtp_canonical__read(const dtp_call *call, const char *function, dtp_canonical_call *out,
                               dtp_err *err)
{
    memset(out, 0, sizeof *out);
    out->lr_scale = 1.0;
    out->function = function;
    const dtp_device_mesh *mesh = call->n_in > 0 ? call->in[0].mesh : NULL;
    const dtp_op_set *ops = mesh != NULL ? mesh->options.ops : dtp_builtin_ops();
    out->op = dtp_op_set_find(ops, call->op);
    if (out->op == NULL) {
        char hint[DTP_OP_HINT_BYTES];
        dtp_op_hint(ops, call->op, hint);
        return DTP_FAIL(err, DTP_INVALID, "there is no op '%.80s'%s", call->op, hint);
    }
    dtp_status s = read_call(call, out, err);
    if (s != DTP_OK && call->dims != NULL && function == NULL) {
        dtp_err_prefix(err, "dims '%s'", call->dims);
    }
    return s;
}
