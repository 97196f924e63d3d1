/* Every sharding rule of every op case, run by the kernels on the pieces that 2 and 3 ranks hold
 * (uneven and empty ones included), against the unsharded op on the reference backend.
 * Summands of partial operands are random, internal rows run as their decomposition with an
 * all-reduce after every partial result. Usage: test_rules [seed]
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/sharding.h"
#include "tests/ops/eval.h"
#include "executor/device/convert.h"
#include "tests/ops/cases.h"
#include "core/graph/op_rules.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"

enum { MAX_RANKS = 3, MAX_TENSORS = 24 };

static uint64_t seed = 20240517;

/* The pieces of one tensor on all ranks. */
typedef struct pieces {
    dtp_layout layout;
    dtp_view view[MAX_RANKS];
} pieces;

typedef struct ranks {
    int32_t n;
    dtp_mesh mesh;
    const dtp_graph *g;
    dtp_backend *backend;
    pieces tensor[MAX_TENSORS];
    const char *what; /* for messages */
} ranks;

static size_t piece_bytes(const ranks *r, dtp_tensor_id t, int32_t rank)
{
    return (size_t)dtp_ttype_bytes(&r->tensor[t].view[rank].local);
}

/* Lays tensor t out and allocates its pieces. */
static void place(ranks *r, dtp_tensor_id t, dtp_placement where)
{
    const dtp_ttype *type = &r->g->tensors[t].type;
    pieces *p = &r->tensor[t];
    p->layout = dtp_layout_replicated(type->rank, 1);
    p->layout.placement[0] = where;
    for (int32_t k = 0; k < r->n; k++) {
        dtp_view *v = &p->view[k];
        void *data = NULL;
        *v = eval_view(type, NULL);
        dtp_layout_local(&p->layout, &r->mesh, type, k, &v->local, v->offset);
        size_t bytes = (size_t)dtp_ttype_bytes(&v->local);
        assert_int_equal(r->backend->ops->alloc(r->backend, bytes, &data, NULL), DTP_OK);
        memset(data, 0xcb, bytes);
        v->data = data;
    }
}

/* Local element that holds a global one, -1 when it is on another rank. */
static int64_t local_index(const dtp_view *v, int64_t global)
{
    int64_t index = 0, scale = 1;
    for (int32_t i = v->local.rank - 1; i >= 0; i--) {
        int64_t at = global % v->global[i] - v->offset[i];
        global /= v->global[i];
        if (at < 0 || at >= v->local.dims[i].size) {
            return -1;
        }
        index += at * scale;
        scale *= v->local.dims[i].size;
    }
    return index;
}

/* Gives every rank its piece, or a random summand of it (whole numbers for integers). */
static void load(ranks *r, dtp_tensor_id t, const double *values, uint64_t *state)
{
    pieces *p = &r->tensor[t];
    for (int64_t i = 0; i < dtp_ttype_elems(&r->g->tensors[t].type); i++) {
        double rest = values[i];
        for (int32_t k = 0; k < r->n; k++) {
            dtp_view *v = &p->view[k];
            int64_t at = local_index(v, i);
            double mine = values[i];
            if (p->layout.placement[0].kind == DTP_PARTIAL) {
                double part = 4.0 * dtp_case_uniform(state) - 2.0;
                part = dtp_dtype_is_float(v->local.dtype) ? part : floor(part);
                mine = k == r->n - 1 ? rest : part;
                rest -= mine;
            }
            if (at >= 0) {
                dtp_element_set(v->local.dtype, v->data, at, mine);
            }
        }
    }
}

static double combine(dtp_reduce_op op, double a, double b)
{
    switch (op) {
    case DTP_REDUCE_MAX:
        return fmax(a, b);
    case DTP_REDUCE_MIN:
        return fmin(a, b);
    case DTP_REDUCE_PROD:
        return a * b;
    default:
        return a + b;
    }
}

/* Global element of a tensor. Replicas must agree bit for bit. */
static double element(const ranks *r, dtp_tensor_id t, int64_t i)
{
    const pieces *p = &r->tensor[t];
    double value = 0.0;
    int32_t seen = 0;
    for (int32_t k = 0; k < r->n; k++) {
        const dtp_view *v = &p->view[k];
        int64_t at = local_index(v, i);
        if (at < 0) {
            continue;
        }
        double mine = dtp_element(v->local.dtype, v->data, at);
        if (seen++ == 0) {
            value = mine;
        } else if (p->layout.placement[0].kind == DTP_PARTIAL) {
            value = combine((dtp_reduce_op)p->layout.placement[0].op, value, mine);
        } else if (value != mine) {
            fail_msg("%s: replicas of '%s' differ: %.9g and %.9g", r->what, r->g->tensors[t].name,
                     value, mine);
        }
    }
    assert_int_equal(seen, p->layout.placement[0].kind == DTP_SHARD ? 1 : r->n);
    return value;
}

/* Partial -> replicated. */
static void all_reduce(ranks *r, dtp_tensor_id t)
{
    pieces *p = &r->tensor[t];
    for (int64_t i = 0; i < dtp_ttype_elems(&r->g->tensors[t].type); i++) {
        double sum = element(r, t, i);
        for (int32_t k = 0; k < r->n; k++) {
            dtp_element_set(p->view[k].local.dtype, p->view[k].data, i, sum);
        }
    }
    memset(&p->layout.placement[0], 0, sizeof p->layout.placement[0]);
}

/* Runs a node on every rank by one rule row; its operands must lie as the row says. */
static void run_node(ranks *r, dtp_node_id id, const dtp_sharding_rule *row)
{
    const dtp_node *node = &r->g->nodes[id];
    dtp_call_types types;
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_err err;
    dtp_op_call call = dtp_node_call(r->g, node, &types);
    for (int32_t i = 0; i < node->n_in; i++) {
        dtp_placement have = r->tensor[node->in[i]].layout.placement[0];
        assert_int_equal(have.kind, row->in[i].kind);
        assert_int_equal(have.axis, row->in[i].axis);
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        place(r, node->out[i], row->out[i]);
    }
    for (int32_t k = 0; k < r->n; k++) {
        for (int32_t i = 0; i < node->n_in; i++) {
            in[i] = r->tensor[node->in[i]].view[k];
            types.in[i] = in[i].local;
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            out[i] = r->tensor[node->out[i]].view[k];
            types.out[i] = out[i].local;
        }
        if (eval_kernel(r->backend, &call, in, out, &err) != DTP_OK) {
            fail_msg("%s: '%s': %s", r->what, node->op->name, err.msg);
        }
    }
}

/* Runs the decomposition nodes after `node` when dim d is split. */
static void run_parts(ranks *r, dtp_node_id node, dtp_dim_id d)
{
    for (dtp_node_id id = node + 1; id < r->g->n_nodes; id++) {
        dtp_call_types types;
        dtp_sharding_rules rules;
        dtp_op_call call = dtp_node_call(r->g, &r->g->nodes[id], &types);
        int32_t pick = 0;
        dtp_sharding_rules_of(&call, false, &rules);
        for (int32_t i = 1; i < rules.n; i++) {
            pick = rules.rows[i].dim == d ? i : pick;
        }
        run_node(r, id, &rules.rows[pick]);
        for (int32_t o = 0; o < call.n_out; o++) {
            dtp_tensor_id t = r->g->nodes[id].out[o];
            if (r->tensor[t].layout.placement[0].kind == DTP_PARTIAL) {
                all_reduce(r, t);
            }
        }
    }
}

static void free_pieces(ranks *r)
{
    for (dtp_tensor_id t = 0; t < r->g->n_tensors; t++) {
        for (int32_t k = 0; k < r->n && r->tensor[t].layout.n_mesh > 0; k++) {
            r->backend->ops->free(r->backend, r->tensor[t].view[k].data, piece_bytes(r, t, k));
        }
    }
}

/* ---- one case ---- */

/* What a test runs on. Outputs smaller than `floor` count as that large: summands of magnitude 1
 * may cancel, and a wrong layout shows as an error of that magnitude. */
typedef struct target {
    dtp_backend *backend, *ref;
    dtp_dtype float_dtype;
    double bound, floor;
    int32_t rows_run;
} target;

static void compare(const ranks *r, const dtp_node *node, const dtp_tensor_id *outs,
                    const eval *whole, const target *to)
{
    for (int32_t o = 0; o < node->n_out; o++) {
        double largest = to->floor, worst = 0.0;
        for (int64_t i = 0; i < dtp_ttype_elems(&r->g->tensors[outs[o]].type); i++) {
            double want = eval_get(whole, node->out[o], i), got = element(r, outs[o], i);
            double miss = isinf(want) && got == want ? 0.0 : fabs(want - got);
            largest = isinf(want) ? largest : fmax(largest, fabs(want));
            worst = miss >= worst || isnan(miss) ? miss : worst;
        }
        if (!(worst <= to->bound * largest)) {
            fail_msg("%s: output %d is off by %g relative, allowed %g, seed %llu", r->what, o,
                     worst / largest, to->bound, (unsigned long long)seed);
        }
    }
}

/* A renamed split needs a size that its parts divide evenly (docs/ops.md, relabel). */
static bool can_split(const dtp_op_call *call, const dtp_sharding_rule *row, int32_t n)
{
    if ((call->op->flags & DTP_OP_RENAMES) == 0) {
        return true;
    }
    return row->linear || dtp_renaming_fits(call, row, n);
}

/* Parts that rename the split dim or read by windows need the lowering: the rule
 * verifier (executor/rule_verify) runs them. */
static bool runs_node_by_node(const dtp_case_graph *cg)
{
    for (dtp_node_id id = cg->node + 1; id < cg->g->n_nodes; id++) {
        dtp_call_types types;
        dtp_sharding_rules rules;
        const dtp_op_call call = dtp_node_call(cg->g, &cg->g->nodes[id], &types);
        dtp_sharding_rules_of(&call, false, &rules);
        for (int32_t r = 1; r < rules.n; r++) {
            if ((call.op->flags & DTP_OP_RENAMES) != 0 || rules.rows[r].windows) {
                return false;
            }
        }
    }
    return true;
}

static void check_row(const dtp_op_case *c, target *t, const eval *whole, int32_t index, int32_t n)
{
    dtp_case_graph cg;
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_tensor_id outs[DTP_MAX_OP_OUT];
    char what[256], mesh[16];
    uint64_t state = seed + 1;
    case_build(c, t->float_dtype, seed, &cg);
    const dtp_node node = cg.g->nodes[cg.node];
    dtp_op_call call = dtp_node_call(cg.g, &node, &types);
    dtp_sharding_rules_of(&call, true, &rules);
    const dtp_sharding_rule *row = &rules.rows[index];
    memcpy(outs, node.out, sizeof *outs * (size_t)node.n_out);
    call.parts = n;
    if (row->internal && call.op->decompose != NULL) {
        assert_int_equal(call.op->decompose(cg.g, &call, node.in, outs, NULL), DTP_OK);
    }
    if (!can_split(&call, row, n) || row->windows || !runs_node_by_node(&cg)) {
        dtp_case_free(&cg);
        return;
    }
    (void)snprintf(mesh, sizeof mesh, "x:%d", n);
    (void)snprintf(what, sizeof what, "'%s' (%s), %s '%s' on %d ranks of '%s'", c->op,
                   c->attrs == NULL ? "" : c->attrs, row->linear ? "partial" : "split",
                   dtp_dims_name(&cg.g->dims, row->dim), n, t->backend->ops->name);
    ranks r = {.n = n, .g = cg.g, .backend = t->backend, .what = what};
    assert_int_equal(dtp_mesh_parse(mesh, &r.mesh, NULL), DTP_OK);
    assert_in_range(cg.g->n_tensors, 1, MAX_TENSORS);
    for (int32_t i = 0; i < cg.n_in; i++) {
        place(&r, i, row->in[i]);
        load(&r, i, cg.values[i], &state);
    }
    if (row->internal) {
        run_parts(&r, cg.node, row->dim);
    } else {
        run_node(&r, cg.node, row);
    }
    compare(&r, &node, outs, whole, t);
    t->rows_run++;
    free_pieces(&r);
    dtp_case_free(&cg);
}

static void check_case(const dtp_op_case *c, target *t)
{
    dtp_case_graph cg;
    eval whole;
    dtp_call_types types;
    dtp_sharding_rules rules;
    case_build(c, DTP_F64, seed, &cg);
    eval_init(&whole, cg.g, t->ref);
    for (int32_t i = 0; i < cg.n_in; i++) {
        eval_set(&whole, i, cg.values[i]);
    }
    eval_run(&whole);
    dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
    dtp_sharding_rules_of(&call, true, &rules);
    for (int32_t index = 1; index < rules.n; index++) {
        for (int32_t n = 2; n <= MAX_RANKS; n++) {
            check_row(c, t, &whole, index, n);
        }
    }
    eval_free(&whole);
    dtp_case_free(&cg);
}

static void check_all(target *t)
{
    assert_int_equal(dtp_backend_ref_create(&t->ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        check_case(&DTP_OP_CASES[i], t);
    }
    printf("%d (rule, rank count) pairs on '%s'\n", t->rows_run, t->backend->ops->name);
    assert_true(t->rows_run > 2 * DTP_OP_CASE_COUNT);
    dtp_backend_destroy(t->ref);
    dtp_backend_destroy(t->backend);
}

static void test_ops_rules__hold_on_ref(void **state)
{
    (void)state;
    target t = {.float_dtype = DTP_F64, .bound = 1e-10, .floor = 1e-2};
    assert_int_equal(dtp_backend_ref_create(&t.backend, NULL), DTP_OK);
    check_all(&t);
}

static void test_ops_rules__hold_on_cpu(void **state)
{
    (void)state;
    target t = {.float_dtype = DTP_F32, .bound = 1e-5, .floor = 1.0};
    assert_int_equal(dtp_backend_cpu_create(1, &t.backend, NULL), DTP_OK);
    check_all(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_rules__hold_on_ref),
        cmocka_unit_test(test_ops_rules__hold_on_cpu),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
