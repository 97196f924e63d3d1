/* Reads the text of a case and builds its graph and operand values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/rule_verify/op_case.h"
#include "core/graph/ops/fused_ops.h"
#include "core/graph/ops/op_table.h"

enum { TEXT_BYTES = 128, MAX_ATTRS = 12, MAX_LIST = 8 };

uint64_t dtp_case_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double dtp_case_uniform(uint64_t *state)
{
    return (double)(dtp_case_random(state) >> 11) * 0x1p-53;
}

/* Splits text at a separator into trimmed pieces, in place; returns how many. */
static int32_t split(char *text, char separator, char **pieces, int32_t max)
{
    int32_t n = 0;
    for (char *at = text; *at != '\0' && n < max;) {
        char *end = strchr(at, separator);
        at += strspn(at, " ");
        pieces[n++] = at;
        if (end == NULL) {
            break;
        }
        *end = '\0';
        at = end + 1;
    }
    return n;
}

/* "a=3,b=7" into dims; "" and "-" give none. */
static dtp_status read_dims(dtp_graph *g, const char *text, int32_t *rank,
                            dtp_tdim out[DTP_MAX_RANK], dtp_err *err)
{
    char copy[TEXT_BYTES], *pieces[DTP_MAX_RANK];
    (void)snprintf(copy, sizeof copy, "%s", text);
    *rank = 0;
    if (strcmp(copy, "-") == 0) {
        return DTP_OK;
    }
    int32_t n = split(copy, ',', pieces, DTP_MAX_RANK);
    for (int32_t i = 0; i < n; i++) {
        char *size = strchr(pieces[i], '='), *end = NULL;
        out[i].size = size == NULL ? 0 : strtoll(size + 1, &end, 10);
        if (size == NULL || *end != '\0' || out[i].size < 1) {
            return DTP_FAIL(err, DTP_INVALID, "expected 'dim=size' at '%s'", pieces[i]);
        }
        *size = '\0';
        DTP_TRY(dtp_dims_intern(&g->dims, pieces[i], out[i].size, &out[i].id, err));
    }
    *rank = n;
    return DTP_OK;
}

/* ---- operand values ---- */

static void fill(const char *how, int32_t operand, int64_t last, int64_t n, uint64_t *state,
                 double *out)
{
    const char *colon = strchr(how, ':');
    int64_t below = colon == NULL ? 2 : strtoll(colon + 1, NULL, 10);
    if (strcmp(how, "distinct") == 0) {
        /* A permutation of multiples of 0.17, shifted by operand so that operands never tie. */
        for (int64_t i = 0; i < n; i++) {
            const int64_t from_middle = i - n / 2;
            out[i] = 0.17 * (double)from_middle + 0.06 * (double)operand;
        }
        for (int64_t i = n - 1; i > 0; i--) {
            int64_t k = (int64_t)(dtp_case_random(state) % (uint64_t)(i + 1));
            double swap = out[i];
            out[i] = out[k];
            out[k] = swap;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        double u = dtp_case_uniform(state);
        if (strcmp(how, "sym") == 0) {
            double magnitude = 0.1 + 1.9 * dtp_case_uniform(state);
            out[i] = dtp_case_random(state) % 2 == 0 ? magnitude : -magnitude;
        } else if (strcmp(how, "pos") == 0 || strcmp(how, "weight") == 0) {
            out[i] = 0.5 + 1.5 * u;
        } else if (strcmp(how, "mask") == 0) {
            out[i] = u < 0.3 ? -(double)INFINITY : 2.0 * dtp_case_uniform(state) - 1.0;
        } else if (strcmp(how, "stat") == 0) {
            out[i] = i % last == last - 1 ? 20.0 + 10.0 * u : 2.0 * u - 1.0;
        } else if (strcmp(how, "distinct") != 0) {
            out[i] = (double)(int64_t)(u * (double)below);
        }
        out[i] = (double)(float)out[i];
    }
}

static dtp_status add_operand(dtp_graph *g, int32_t index, const char *text, dtp_dtype float_dtype,
                              dtp_tensor_id *id, dtp_err *err)
{
    char copy[TEXT_BYTES], name[16], *pieces[2];
    (void)snprintf(copy, sizeof copy, "%s", text);
    (void)snprintf(name, sizeof name, "in%d", index);
    int32_t n = split(copy, ' ', pieces, 2);
    dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_INPUT};
    const char *how = n == 2 ? pieces[1] : "sym";
    spec.type.dtype = strncmp(how, "ids64", 5) == 0 ? DTP_I64
                      : strncmp(how, "ids", 3) == 0 ? DTP_I32
                      : strcmp(how, "bool") == 0    ? DTP_BOOL
                                                    : float_dtype;
    DTP_TRY(read_dims(g, n > 0 ? pieces[0] : "-", &spec.type.rank, spec.type.dims, err));
    return dtp_graph_add_tensor(g, &spec, id, err);
}

/* ---- attributes ---- */

static dtp_status dim_of(dtp_graph *g, const char *name, dtp_dim_id *out, dtp_err *err)
{
    return dtp_dims_intern(&g->dims, name, 1, out, err);
}

/* The attributes of a case as they are read. */
typedef struct attr_list {
    dtp_graph *g;
    const dtp_op_def *op;
    dtp_dtype float_dtype;
    uint32_t wide; /* set of operands whose floats are f32 */
    int32_t n;
    dtp_attr attrs[MAX_ATTRS];
    dtp_dim_id lists[MAX_ATTRS][MAX_LIST];
} attr_list;

static dtp_status read_attr(attr_list *l, const dtp_attr_spec *spec, char *text, dtp_err *err)
{
    dtp_attr *a = &l->attrs[l->n];
    char *pieces[MAX_LIST];
    dtp_dtype dtype = l->float_dtype;
    dtp_dim_id dim = -1;
    int32_t n;
    *a = (dtp_attr){.key = spec->key, .kind = spec->kind};
    switch (spec->kind) {
    case DTP_ATTR_INT:
    case DTP_ATTR_BOOL:
        a->i = strtoll(text, NULL, 10);
        if (strchr(text, ':') != NULL) {
            DTP_TRY(dtp_fused_step_parse(text, &a->i, err));
        }
        break;
    case DTP_ATTR_FLOAT:
        a->f = strtod(text, NULL);
        break;
    case DTP_ATTR_ENUM:
        a->i = dtp_attr_choice(spec, text);
        if (a->i < 0) {
            return DTP_FAIL(err, DTP_INVALID, "attribute '%s' has no choice '%s'", spec->key, text);
        }
        break;
    case DTP_ATTR_DIM:
        DTP_TRY(dim_of(l->g, text, &dim, err));
        a->i = dim;
        break;
    case DTP_ATTR_DTYPE:
        if (strcmp(text, "float") != 0) {
            DTP_TRY(dtp_dtype_parse(text, &dtype, err));
        }
        a->i = (int64_t)dtype;
        break;
    case DTP_ATTR_DIMS:
        n = split(text, ',', pieces, MAX_LIST);
        for (int32_t i = 0; i < n; i++) {
            DTP_TRY(dim_of(l->g, pieces[i], &l->lists[l->n][i], err));
        }
        a->n = n;
        a->ids = l->lists[l->n];
        break;
    case DTP_ATTR_INTS:
        a->n = split(text, ',', pieces, MAX_LIST);
        for (int32_t i = 0; i < a->n; i++) {
            l->lists[l->n][i] = (int32_t)strtol(pieces[i], NULL, 10);
        }
        a->ints = l->lists[l->n];
        break;
    }
    l->n++;
    return DTP_OK;
}

/* ---- the graph ---- */

static dtp_status build(const dtp_op_case *c, attr_list *l, dtp_err *err)
{
    dtp_tensor_id in[DTP_OP_CASE_MAX_IN];
    dtp_dim_id stat;
    dtp_node_spec spec = dtp_node_spec_init("y", c->op);
    /* Ops that keep sums name the dim of their outputs so. */
    DTP_TRY(dtp_dims_intern(&l->g->dims, "_stat", 0, &stat, err));
    for (; spec.n_in < DTP_OP_CASE_MAX_IN && c->in[spec.n_in] != NULL; spec.n_in++) {
        DTP_TRY(add_operand(l->g, spec.n_in, c->in[spec.n_in],
                            (l->wide >> spec.n_in & 1U) != 0 ? DTP_F32 : l->float_dtype,
                            &in[spec.n_in], err));
    }
    spec.def = l->op;
    dtp_ttype declared;
    if (c->out != NULL) {
        spec.out = &declared;
        DTP_TRY(read_dims(l->g, c->out, &declared.rank, declared.dims, err));
    }
    /* "key=value; key=value". */
    char copy[256], *pieces[MAX_ATTRS];
    (void)snprintf(copy, sizeof copy, "%s", c->attrs == NULL ? "" : c->attrs);
    int32_t n = split(copy, ';', pieces, MAX_ATTRS);
    for (int32_t i = 0; i < n; i++) {
        char *value = strchr(pieces[i], '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        const dtp_attr_spec *attr = dtp_op_attr(l->op, pieces[i]);
        if (value == NULL || attr == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "op '%s' has no attribute '%s'", l->op->name,
                            pieces[i]);
        }
        DTP_TRY(read_attr(l, attr, value, err));
    }
    spec.in = in;
    spec.n_attrs = l->n;
    spec.attrs = l->attrs;
    return dtp_graph_add_node(l->g, &spec, NULL, err);
}

dtp_status dtp_case_build_graph(const dtp_op_case *c, const dtp_op_def *op, dtp_dtype float_dtype,
                                dtp_graph **out, dtp_err *err)
{
    const uint32_t end = dtp_dtype_is_half(float_dtype) ? 1U << DTP_OP_CASE_MAX_IN : 1U;
    dtp_status first = DTP_OK;
    /* The first set of operands that inference accepts in f32 beside 16-bit ones. */
    for (uint32_t wide = 0; wide < end; wide++) {
        attr_list l = {
            .op = op != NULL ? op : dtp_op_find(c->op), .float_dtype = float_dtype, .wide = wide};
        dtp_err *to = wide == 0 ? err : NULL;
        dtp_status s = l.op == NULL ? DTP_FAIL(to, DTP_INVALID, "there is no such op")
                                    : dtp_graph_create("case", dtp_builtin_ops(), &l.g, to);
        s = s == DTP_OK ? build(c, &l, to) : s;
        if (s == DTP_OK) {
            *out = l.g;
            return DTP_OK;
        }
        dtp_graph_destroy(l.g);
        first = wide == 0 ? s : first;
    }
    dtp_err_prefix(err, "case of '%s'", c->op);
    return first;
}

dtp_status dtp_case_build(const dtp_op_case *c, const dtp_op_def *op, dtp_dtype float_dtype,
                          uint64_t seed, dtp_case_graph *out, dtp_err *err)
{
    memset(out, 0, sizeof *out);
    DTP_TRY(dtp_case_build_graph(c, op, float_dtype, &out->g, err));
    for (int32_t i = 0; i < DTP_OP_CASE_MAX_IN && c->in[i] != NULL; i++) {
        const dtp_ttype *type = &out->g->tensors[out->g->nodes[out->node].in[i]].type;
        const char *space = strchr(c->in[i], ' '), *how = space == NULL ? "sym" : space + 1;
        const int64_t n = dtp_ttype_elems(type);
        out->values[i] = calloc((size_t)n, sizeof(double));
        DTP_TRY(DTP_MEMORY(err, out->values[i]));
        out->n_in++;
        out->is_float[i] = dtp_dtype_is_float(type->dtype) && strcmp(how, "weight") != 0 &&
                           strcmp(how, "mask") != 0;
        fill(how, i, type->rank == 0 ? 1 : type->dims[type->rank - 1].size, n, &seed,
             out->values[i]);
    }
    return DTP_OK;
}

enum { FEEDS_PER_OPERAND = 2 * DTP_CASE_FEED_VALUES };

int32_t dtp_case_feeds(const dtp_case_graph *cg)
{
    int32_t n = 0;
    for (int32_t i = 0; i < cg->n_in; i++) {
        n += cg->is_float[i] ? FEEDS_PER_OPERAND : 0;
    }
    return n;
}

void dtp_case_feed(dtp_case_graph *cg, int32_t k)
{
    static const double values[DTP_CASE_FEED_VALUES] = {(double)NAN, (double)INFINITY,
                                                        -(double)INFINITY};
    const double value = values[k % DTP_CASE_FEED_VALUES];
    const bool all = k % FEEDS_PER_OPERAND >= DTP_CASE_FEED_VALUES;
    uint64_t state = (uint64_t)k;
    int32_t i = 0, left = k / FEEDS_PER_OPERAND;
    while (!cg->is_float[i] || left > 0) {
        left -= cg->is_float[i++] ? 1 : 0;
    }
    const int64_t n = dtp_ttype_elems(&cg->g->tensors[cg->g->nodes[cg->node].in[i]].type);
    const int64_t one = (int64_t)(dtp_case_random(&state) % (uint64_t)n);
    for (int64_t e = 0; e < n; e++) {
        cg->values[i][e] = all || e == one ? value : cg->values[i][e];
    }
    if (all) {
        (void)snprintf(cg->feed, sizeof cg->feed, "%g all over operand %d", value, i);
    } else {
        (void)snprintf(cg->feed, sizeof cg->feed, "%g in element %lld of operand %d", value,
                       (long long)one, i);
    }
}

void dtp_case_free(dtp_case_graph *cg)
{
    for (int32_t i = 0; i < cg->n_in; i++) {
        free(cg->values[i]);
    }
    dtp_graph_destroy(cg->g);
}
