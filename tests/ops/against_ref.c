/* A case of an op on a backend against the reference backend in f64 on the same values. */
#include "tests/ops/against_ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "core/graph/ops/fused_ops.h"
#include "executor/device/convert.h"
#include "spmd/target/einsum_plan.h"
#include "tests/ops/eval.h"

enum { PERTURBED = 3 };

uint64_t against_ref_seed = 20240517;

/* ---- failures ---- */

static bool goes_on;
static int32_t n_cases, n_failures;
static char (*failures)[DTP_ERR_MSG_BYTES];

void against_ref_go_on(void)
{
    goes_on = true;
}

int32_t against_ref_failures(void)
{
    return n_failures;
}

int32_t against_ref_cases(void)
{
    return n_cases;
}

void against_ref_judge(int32_t before)
{
    if (n_failures > before) {
        fail_msg("%d failures", n_failures - before);
    }
}

void against_ref_list(void)
{
    printf("%d cases, %d failures\n", n_cases, n_failures);
    for (int32_t i = 0; i < n_failures; i++) {
        printf("  %s\n", failures[i]);
    }
    (void)fflush(stdout);
}

/* "einsum (a=2,b=3; b=3,c=4; out -; attributes) of f32 on cuda" */
static void name_case(const dtp_op_case *c, dtp_dtype dtype, const dtp_backend *b, char *out,
                      size_t bytes)
{
    size_t n = (size_t)snprintf(out, bytes, "%s (", c->op);
    for (int32_t i = 0; i < DTP_OP_CASE_MAX_IN && c->in[i] != NULL && n < bytes; i++) {
        n += (size_t)snprintf(out + n, bytes - n, "%s; ", c->in[i]);
    }
    if (n < bytes) {
        (void)snprintf(out + n, bytes - n, "out %s; %s) of %s on %s", c->out == NULL ? "-" : c->out,
                       c->attrs == NULL ? "-" : c->attrs, dtp_dtype_name(dtype), b->ops->name);
    }
}

/* Notes a failure, or ends the test. */
static void failed(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b, const char *text)
{
    char name[DTP_ERR_MSG_BYTES / 2];
    dtp_err err = {0};
    name_case(c, dtype, b, name, sizeof name);
    if (!goes_on) {
        fail_msg("%s: %s, seed %llu", name, text, (unsigned long long)against_ref_seed);
    }
    failures = realloc(failures, (size_t)(n_failures + 1) * sizeof *failures);
    assert_non_null(failures);
    (void)snprintf(failures[n_failures++], sizeof failures[0], "%s: %.480s", name, text);
    if (b->ops->sync != NULL && b->ops->sync(b, &err) != DTP_OK) {
        against_ref_list();
        printf("ended: %s\n", err.msg);
        exit(1);
    }
}

/* ---- cases ---- */

/* A case with its operands loaded on a backend. */
typedef struct loaded {
    dtp_case_graph cg;
    eval e;
} loaded;

/* With the float operands rounded to `values`, then fed unless `feed` is negative. */
static void load_feed(loaded *l, const dtp_op_case *c, dtp_dtype float_dtype, dtp_dtype values,
                      int32_t feed, dtp_backend *b)
{
    case_build(c, float_dtype, against_ref_seed, &l->cg);
    eval_init(&l->e, l->cg.g, b);
    for (int32_t i = 0; i < l->cg.n_in; i++) {
        const dtp_ttype *type = &l->cg.g->tensors[i].type;
        for (int64_t k = 0; k < dtp_ttype_elems(type) && dtp_dtype_is_float(type->dtype); k++) {
            double rounded;
            dtp_element_set(values, &rounded, 0, l->cg.values[i][k]);
            l->cg.values[i][k] = dtp_element(values, &rounded, 0);
        }
    }
    if (feed >= 0) {
        dtp_case_feed(&l->cg, feed);
    }
    for (int32_t i = 0; i < l->cg.n_in; i++) {
        eval_set(&l->e, i, l->cg.values[i]);
    }
}

static void load(loaded *l, const dtp_op_case *c, dtp_dtype float_dtype, dtp_dtype values,
                 dtp_backend *b)
{
    load_feed(l, c, float_dtype, values, -1, b);
}

static void unload(loaded *l)
{
    eval_free(&l->e);
    dtp_case_free(&l->cg);
}

/* The operands rounded once more: every float operand moved by up to one f32 rounding step. */
static void load_perturbed(loaded *l, const dtp_op_case *c, dtp_dtype values, dtp_backend *b,
                           uint64_t *state)
{
    load(l, c, DTP_F64, values, b);
    for (int32_t i = 0; i < l->cg.n_in; i++) {
        for (int64_t k = 0; k < dtp_ttype_elems(&l->cg.g->tensors[i].type); k++) {
            double u = 2.0 * dtp_case_uniform(state) - 1.0;
            l->cg.values[i][k] *= l->cg.is_float[i] ? 1.0 + u * 0x1p-23 : 1.0;
        }
        eval_set(&l->e, i, l->cg.values[i]);
    }
    eval_run(&l->e);
}

/* Largest element of output o of `a`, or of its difference from `b` when b is not NULL; infinite
 * when an element is not finite. */
static double largest(const loaded *a, const loaded *b, int32_t o)
{
    dtp_tensor_id t = a->cg.g->nodes[a->cg.node].out[o];
    double most = 0.0;
    for (int64_t i = 0; i < dtp_ttype_elems(&a->cg.g->tensors[t].type); i++) {
        double of_a = eval_get(&a->e, t, i), of_b = b == NULL ? 0.0 : eval_get(&b->e, t, i);
        if (isinf(of_a) && (b == NULL || of_a == of_b)) {
            continue; /* -inf: the log-sum of no keys */
        }
        double x = of_a - of_b;
        most = isfinite(x) ? fmax(most, fabs(x)) : (double)INFINITY;
    }
    return most;
}

/* What rounding to a dtype costs, relative to the element. */
static double rounding(dtp_dtype dtype)
{
    return dtype == DTP_BF16 ? 0x1p-8 : dtype == DTP_F16 ? 0x1p-11 : 0.0;
}

/* Roundings to 16 bits: one. Intermediate results of an einsum are rounded too; they may be larger
 * than the result. A fused norm, statistics included, is that of a rounded expression, a loss that
 * of rounded logits; an expression of a product may be that of a rounded product. On the tensor
 * cores of a CUDA device the weights of attention and their gradients are rounded, too. */
static double roundings(const loaded *l, int32_t o)
{
    static dtp_einsum_plan plan;
    const dtp_node *node = &l->cg.g->nodes[l->cg.node];
    int32_t n = 0;
    if ((node->op->flags & DTP_OP_CONTRACTION) != 0) {
        dtp_call_types types;
        const dtp_op_call call = dtp_node_call(l->cg.g, node, &types);
        dtp_einsum_plan_make(&call, &plan);
        for (int32_t i = 0; i < plan.n_steps; i++) {
            n += plan.steps[i].is_pack ? 0 : 1;
        }
    }
    if (strncmp(node->op->name, "linear_loss", 11) == 0) { /* e^logit */
        return 16.0 * rounding(l->cg.g->tensors[node->in[0]].type.dtype);
    }
    if (dtp_fused_norm_of(node->op) != NULL ||
        dtp_fused_product_kind_of(node->op) < DTP_N_FUSED_PRODUCTS) {
        return 4.0 * rounding(l->cg.g->tensors[node->in[0]].type.dtype);
    }
    const bool cores = strcmp(l->e.backend->ops->name, "cuda") == 0 &&
                       strncmp(node->op->name, "attention", strlen("attention")) == 0;
    const double least = !cores ? 1.0 : strstr(node->op->name, "_grad") == NULL ? 2.0 : 8.0;
    return (n > 1 ? 4.0 * n : least) * rounding(l->cg.g->tensors[node->out[o]].type.dtype);
}

/* Allowed are the op's own roundings, and a few times what rounding the operands once more does:
 * a sum that cancels cannot be better than that. Ops that only move data must be exact. */
static void check_output(const dtp_op_case *c, dtp_dtype dtype, const loaded *cpu,
                         const loaded *ref, const loaded *perturbed, int32_t o)
{
    const double bound = dtp_op_find(c->op)->f32_error;
    double size = largest(ref, NULL, o), error = largest(ref, cpu, o);
    double allowed = (bound > 0.0 ? bound : bound < 0.0 ? 0.0 : 1e-6) * size;
    for (int32_t k = 0; k < PERTURBED && allowed > 0.0; k++) {
        allowed = fmax(allowed, 8.0 * largest(ref, &perturbed[k], o));
    }
    allowed += roundings(cpu, o) * size;
    if (!(isfinite(size) && error <= allowed)) {
        char text[128];
        (void)snprintf(text, sizeof text, "output %d is off by %g, allowed %g", o, error, allowed);
        failed(c, dtype, cpu->e.backend, text);
    }
}

/* Floats of a dtype on a backend, against f64. */
void against_ref_case(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *backend, dtp_backend *ref)
{
    loaded a, b, p[PERTURBED];
    uint64_t state = against_ref_seed + 1;
    dtp_err err = {0};
    n_cases++;
    load(&a, c, dtype, dtype, backend);
    load(&b, c, DTP_F64, dtype, ref);
    eval_run(&b.e);
    const bool ran = eval_try(&a.e, &err) == DTP_OK;
    if (!ran) {
        failed(c, dtype, backend, err.msg);
    }
    for (int32_t k = 0; k < PERTURBED; k++) {
        load_perturbed(&p[k], c, dtype, ref, &state);
    }
    for (int32_t o = 0; ran && o < b.cg.g->nodes[b.cg.node].n_out; o++) {
        check_output(c, dtype, &a, &b, p, o);
    }
    for (int32_t k = 0; k < PERTURBED; k++) {
        unload(&p[k]);
    }
    unload(&a);
    unload(&b);
}

/* Is element i of output o what the reference has? Products are formed in any order, and sums are
 * padded with zeros, where an infinity may become NaN. */
static bool is_fed_right(const loaded *got, const loaded *want, int32_t o, int64_t i, double size)
{
    const dtp_op_def *op = want->cg.g->nodes[want->cg.node].op;
    const bool product = (op->flags & DTP_OP_CONTRACTION) != 0 ||
                         dtp_fused_product_kind_of(op) < DTP_N_FUSED_PRODUCTS;
    const dtp_tensor_id t = got->cg.g->nodes[got->cg.node].out[o];
    const double a = eval_get(&got->e, t, i), b = eval_get(&want->e, t, i);
    if (!isfinite(a) && !isfinite(b)) {
        return product || a == b || (isnan(a) && isnan(b));
    }
    const double allowed =
        1e-3 + 32.0 * rounding(got->cg.g->tensors[t].type.dtype) +
        32.0 * rounding(got->cg.g->tensors[got->cg.g->nodes[got->cg.node].in[0]].type.dtype);
    return fabs(a - b) <= allowed * size;
}

static void check_fed(const dtp_op_case *c, dtp_dtype dtype, const loaded *got, const loaded *want,
                      int32_t o)
{
    const dtp_tensor_id t = want->cg.g->nodes[want->cg.node].out[o];
    const int64_t n = dtp_ttype_elems(&want->cg.g->tensors[t].type);
    double size = 1.0;
    for (int64_t i = 0; i < n; i++) {
        const double x = eval_get(&want->e, t, i);
        size = isfinite(x) ? fmax(size, fabs(x)) : size;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!is_fed_right(got, want, o, i, size)) {
            char text[192];
            (void)snprintf(text, sizeof text, "%s: element %lld of output %d is %g, not %g",
                           want->cg.feed, (long long)i, o, eval_get(&got->e, t, i),
                           eval_get(&want->e, t, i));
            failed(c, dtype, got->e.backend, text);
            return;
        }
    }
}

void against_ref_feeds(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *backend,
                       dtp_backend *ref)
{
    dtp_case_graph cg;
    case_build(c, dtype, against_ref_seed, &cg);
    const int32_t n = dtp_case_feeds(&cg);
    dtp_case_free(&cg);
    for (int32_t k = 0; k < n; k++) {
        loaded got, want;
        dtp_err err = {0};
        n_cases++;
        load_feed(&got, c, dtype, dtype, k, backend);
        load_feed(&want, c, DTP_F64, dtype, k, ref);
        eval_run(&want.e);
        if (eval_try(&got.e, &err) != DTP_OK) {
            failed(c, dtype, backend, err.msg);
        } else {
            for (int32_t o = 0; o < want.cg.g->nodes[want.cg.node].n_out; o++) {
                check_fed(c, dtype, &got, &want, o);
            }
        }
        unload(&got);
        unload(&want);
    }
}

/* Views of a node's operands and results. */
static void views_of(const loaded *l, const dtp_call_types *types, dtp_view *in, dtp_view *out)
{
    const dtp_node *node = &l->cg.g->nodes[l->cg.node];
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = eval_view(&types->in[i], l->e.data[node->in[i]]);
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        out[i] = eval_view(&types->out[i], l->e.data[node->out[i]]);
    }
}

/* Runs the node of `shared` with output o in the place of operand j, that of `plain` not. */
static dtp_status compare_in_place(loaded *plain, loaded *shared, int32_t o, int32_t j,
                                   dtp_err *err)
{
    const dtp_node *node = &shared->cg.g->nodes[shared->cg.node];
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(shared->cg.g, node, &types);
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    views_of(shared, &types, in, out);
    out[o].data = in[j].data;
    DTP_TRY(eval_try(&plain->e, err));
    DTP_TRY(dtp_err_prefixed(eval_kernel(shared->e.backend, &call, in, out, err), err, "in place"));
    for (int32_t i = 0; i < node->n_out; i++) {
        const size_t bytes = (size_t)dtp_ttype_bytes(&types.out[i]);
        const dtp_tensor_id at = i == o ? node->in[j] : node->out[i];
        if (memcmp(eval_fetch(&shared->e, at), plain->e.host[node->out[i]], bytes) != 0) {
            return DTP_FAIL(err, DTP_INTERNAL, "output %d differs when output %d is in place", i,
                            o);
        }
    }
    return DTP_OK;
}

void against_ref_in_place(const dtp_op_case *c, dtp_dtype float_dtype, dtp_backend *b, int32_t o)
{
    loaded plain, shared;
    dtp_call_types types;
    dtp_err err = {0};
    n_cases++;
    load(&plain, c, float_dtype, float_dtype, b);
    load(&shared, c, float_dtype, float_dtype, b);
    const dtp_node *node = &shared.cg.g->nodes[shared.cg.node];
    const int32_t j = node->op->inplace_in[o] - 1;
    (void)dtp_node_call(shared.cg.g, node, &types);
    if (j >= 0 && j < node->n_in && dtp_ttype_equal(&types.in[j], &types.out[o]) &&
        compare_in_place(&plain, &shared, o, j, &err) != DTP_OK) {
        failed(c, float_dtype, b, err.msg);
    }
    unload(&plain);
    unload(&shared);
}

/* One value out of range. */
static void refuses(const dtp_op_case *c, int32_t operand, double bad, dtp_backend *b,
                    dtp_dtype dtype)
{
    loaded l;
    dtp_call_types types;
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_err err = {0};
    char value[32], text[128];
    n_cases++;
    load(&l, c, dtype, DTP_F64, b);
    l.cg.values[operand][1] = bad;
    eval_set(&l.e, operand, l.cg.values[operand]);
    const dtp_op_call call = dtp_node_call(l.cg.g, &l.cg.g->nodes[l.cg.node], &types);
    views_of(&l, &types, in, out);
    const dtp_status s = eval_kernel(b, &call, in, out, &err);
    (void)snprintf(value, sizeof value, "%g", bad);
    if (s != DTP_RANGE || strstr(err.msg, value) == NULL) {
        (void)snprintf(text, sizeof text, "takes %g: %.90s", bad, s == DTP_OK ? "ok" : err.msg);
        failed(c, dtype, b, text);
    }
    unload(&l);
}

void against_ref_refuses(dtp_backend *b, dtp_dtype dtype)
{
    static const struct {
        const char *op;
        int32_t operand;
        double bad;
    } refused[] = {{"embedding", 1, 5},     {"embedding_grad", 0, -1},
                   {"cross_entropy", 1, 7}, {"cross_entropy_grad", 1, -2},
                   {"pick", 1, 7},          {"one_hot", 0, 7},
                   {"gather", 1, 7},        {"scatter_add", 0, -1}};
    for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
        const dtp_op_case *c = DTP_OP_CASES;
        while (strcmp(c->op, refused[k].op) != 0) {
            c++;
        }
        refuses(c, refused[k].operand, refused[k].bad, b, dtype);
    }
}
