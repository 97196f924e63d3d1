/* Calls that cannot be run: element types without a kernel, ids and labels out of range on one
 * rank, results that no memory holds, kernels of own ops that fail. Every rank gets the same code
 * and the reason, and the next call works. Runs on virtual ranks and under MPI. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"
#include "core/graph/ops/op_table.h"
#include "executor/rule_verify/op_case.h"
#include "dtp/op.h"
#include "dtensor/canonical_call.h"
#include "tests/dtensor/dtensor_suite.h"
#include "tests/support/misuse_main.h"

/* The call failed with this code, and its message has these words. */
static dtp_status expect(dtp_status got, dtp_status want, const char *words, const dtp_err *said,
                         const char *what, dtp_err *err)
{
    if (got != want || strstr(said->msg, words) == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: got '%s' ('%.500s'), expected '%s' with '%s'", what,
                        dtp_status_text(got), got == DTP_OK ? "" : said->msg, dtp_status_text(want),
                        words);
    }
    return DTP_OK;
}

static dtp_layout first_dim_split(const dtp_device_mesh *mesh, int32_t rank)
{
    dtp_layout layout = dtp_layout_replicated(rank, dtp_device_mesh_dims(mesh)->n_dims);
    if (rank > 0) {
        dtp_layout_split(&layout, 0, 0);
    }
    return layout;
}

/* The mesh still works: a redistribution and an op. */
static dtp_status still_works(dtp_device_mesh *mesh, const char *after, dtp_err *err)
{
    static const int64_t shape[] = {4, 4};
    const dtp_layout split = first_dim_split(mesh, 2);
    const dtp_layout whole = dtp_layout_replicated(2, split.n_mesh);
    const dtp_tensor_desc desc = dt_desc(DTP_F32, 2, shape, &split);
    dtp_tensor t, twice, moved;
    float got[16];
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 1, &t, err));
    dtp_status s = dtp_tensor_add(t, t, &twice, err);
    s = s == DTP_OK ? dtp_tensor_redistribute(twice, &whole, &moved, err) : s;
    if (s != DTP_OK) {
        dtp_err_prefix(err, "after %s", after);
        return s;
    }
    DTP_TRY(dtp_tensor_read(moved, got, err));
    dtp_tensor_destroy(t);
    dtp_tensor_destroy(twice);
    dtp_tensor_destroy(moved);
    for (int i = 0; i < 16; i++) {
        if (got[i] != 2.0F * (float)i) {
            return DTP_FAIL(err, DTP_INTERNAL, "after %s: wrong values", after);
        }
    }
    return DTP_OK;
}

/* ---- element types ---- */

static dtp_status case_operand(dtp_device_mesh *mesh, const dtp_case_graph *cg, int32_t i,
                               bool split, dtp_tensor *out, dtp_err *err)
{
    const dtp_node *node = &cg->g->nodes[cg->node];
    const dtp_ttype *type = &cg->g->tensors[node->in[i]].type;
    const dtp_layout whole = dtp_layout_replicated(type->rank, dtp_device_mesh_dims(mesh)->n_dims);
    const dtp_layout layout = split ? first_dim_split(mesh, type->rank) : whole;
    int64_t shape[DTP_MAX_RANK];
    for (int32_t d = 0; d < type->rank; d++) {
        shape[d] = type->dims[d].size;
    }
    const dtp_tensor_desc desc = dt_desc(type->dtype, type->rank, shape, &layout);
    char *data = calloc((size_t)dt_elems(&desc), 8);
    if (data == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for an operand");
    }
    for (int64_t e = 0; e < dt_elems(&desc); e++) {
        dtp_element_set(type->dtype, data, e, cg->values[i][e]);
    }
    const dtp_status s = dtp_tensor_from_array(mesh, &desc, data, out, err);
    free(data);
    return s;
}

/* Whether an operand or output has the dim of statistics, which no call names. */
static bool has_stat(const dtp_case_graph *cg)
{
    const dtp_node *node = &cg->g->nodes[cg->node];
    const dtp_dim_id stat = dtp_dims_find(&cg->g->dims, "_stat");
    bool found = false;
    for (int32_t i = 0; i < node->n_in; i++) {
        found = found || dtp_ttype_find(&cg->g->tensors[node->in[i]].type, stat) >= 0;
    }
    for (int32_t i = 0; i < node->op->n_out; i++) {
        found = found || dtp_ttype_find(&cg->g->tensors[node->out[i]].type, stat) >= 0;
    }
    return found;
}

/* Runs a case with floats of a type: it works, or is refused on every rank. */
static dtp_status try_case(dtp_device_mesh *mesh, const dtp_case_graph *cg, bool split,
                           const char *what, dtp_err *err)
{
    const dtp_node *node = &cg->g->nodes[cg->node];
    dtp_tensor in[DTP_MAX_OP_IN], outs[DTP_MAX_OP_OUT];
    dtp_canonical_call call;
    dtp_err said = {0};
    for (int32_t i = 0; i < node->n_in; i++) {
        DTP_TRY(case_operand(mesh, cg, i, split, &in[i], err));
    }
    DTP_TRY(dtp_canonical__of_node(cg->g, node, in, &call, err));
    dtp_status s = DTP_OK;
    if (node->n_in > 0) {
        s = dtp_canonical__run(&call, outs, &said);
        for (int32_t i = 0; i < node->op->n_out && s == DTP_OK; i++) {
            dtp_tensor_destroy(outs[i]);
        }
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        dtp_tensor_destroy(in[i]);
    }
    if (s != DTP_OK && s != DTP_UNSUPPORTED && s != DTP_INVALID) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: %s: %.600s", what, dtp_status_text(s), said.msg);
    }
    return s == DTP_OK ? DTP_OK : still_works(mesh, what, err);
}

static dtp_status all_types(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        misuse_progress();
        for (int32_t dtype = 0; dtype < DTP_N_DTYPES; dtype++) {
            dtp_case_graph cg;
            char what[96];
            (void)snprintf(what, sizeof what, "%s of %s (case %d)", DTP_OP_CASES[i].op,
                           dtp_dtype_name((dtp_dtype)dtype), i);
            dtp_status s = DTP_OK;
            if (dtp_case_build(&DTP_OP_CASES[i], NULL, (dtp_dtype)dtype, 7, &cg, NULL) == DTP_OK &&
                !has_stat(&cg)) {
                s = try_case(mesh, &cg, dtype % 2 == i % 2, what, err);
            }
            dtp_case_free(&cg);
            DTP_TRY(s);
        }
    }
    return DTP_OK;
}

/* ---- ids and labels ---- */

enum { ROWS = 8, CLASSES = 6 };

/* Calls that look something up, on a table [CLASSES, 4] and ids [ROWS], or logits [ROWS, CLASSES]
 * and labels. */
typedef dtp_status (*lookup)(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                             dtp_err *err);

static dtp_status embed(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                        dtp_err *err)
{
    (void)logits;
    return dtp_tensor_embedding(table, ids, out, err);
}

static dtp_status take(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                       dtp_err *err)
{
    (void)logits;
    return dtp_tensor_take(table, 0, ids, out, err);
}

static dtp_status add_at(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                         dtp_err *err)
{
    (void)table;
    return dtp_tensor_scatter_add(logits, 0, ids, CLASSES, out, err);
}

static dtp_status hot(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                      dtp_err *err)
{
    (void)table;
    (void)logits;
    return dtp_tensor_one_hot(ids, CLASSES, out, err);
}

static dtp_status entropy(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                          dtp_err *err)
{
    (void)table;
    return dtp_tensor_cross_entropy(logits, ids, "mean", out, err);
}

static dtp_status entropies(dtp_tensor table, dtp_tensor logits, dtp_tensor ids, dtp_tensor *out,
                            dtp_err *err)
{
    (void)table;
    return dtp_tensor_cross_entropy(logits, ids, "none", out, err);
}

static const struct {
    const char *name; /* the op's */
    lookup call;
} LOOKUPS[] = {{"embedding", embed}, {"gather", take},           {"scatter_add", add_at},
               {"one_hot", hot},     {"cross_entropy", entropy}, {"cross_entropy", entropies}};

static const char *const TABLES[] = {"replicated", "0@x", "1@x"};
static const char *const IDS[] = {"0@x", "replicated"};

/* Ids 0, 1, 2, .. with `bad` in the last place. */
static dtp_status make_ids(dtp_device_mesh *mesh, dtp_dtype dtype, const char *layout, int64_t bad,
                           dtp_tensor *out, dtp_err *err)
{
    static const int64_t shape[] = {ROWS};
    char data[ROWS * 8];
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, dtype, 1, shape, layout, &desc, err));
    for (int64_t i = 0; i < ROWS; i++) {
        dtp_element_set(dtype, data, i, (double)(i < ROWS - 1 ? i % CLASSES : bad));
    }
    return dtp_tensor_from_array(mesh, &desc, data, out, err);
}

typedef struct operands {
    dtp_tensor table, logits, ids;
} operands;

static dtp_status make_operands(dtp_device_mesh *mesh, int32_t variant, int64_t bad, operands *o,
                                dtp_err *err)
{
    static const int64_t table[] = {CLASSES, 4}, logits[] = {ROWS, CLASSES};
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, table, TABLES[variant % 3], &desc, err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 1, &o->table, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, logits, TABLES[variant % 3], &desc, err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 0.25, &o->logits, err));
    return make_ids(mesh, variant % 4 < 2 ? DTP_I32 : DTP_I64, IDS[variant / 3 % 2], bad, &o->ids,
                    err);
}

static void drop(const operands *o)
{
    dtp_tensor_destroy(o->table);
    dtp_tensor_destroy(o->logits);
    dtp_tensor_destroy(o->ids);
}

/* The last id is bad: on the last rank alone where ids are split. */
static dtp_status bad_ids(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t bad[] = {CLASSES, -1, 1 << 30};
    for (size_t k = 0; k < sizeof LOOKUPS / sizeof LOOKUPS[0]; k++) {
        for (int32_t variant = 0; variant < 12; variant++) {
            operands o;
            dtp_tensor out;
            dtp_err said = {0};
            char what[96], words[64];
            const int64_t id = bad[variant % 3];
            (void)snprintf(what, sizeof what, "%s, variant %d", LOOKUPS[k].name, variant);
            (void)snprintf(words, sizeof words, "%lld is not in", (long long)id);
            DTP_TRY(make_operands(mesh, variant, id, &o, err));
            const dtp_status s = LOOKUPS[k].call(o.table, o.logits, o.ids, &out, &said);
            drop(&o);
            DTP_TRY(expect(s, DTP_RANGE, words, &said, what, err));
            DTP_TRY(expect(s, DTP_RANGE, LOOKUPS[k].name, &said, what, err));
            DTP_TRY(still_works(mesh, what, err));
            DTP_TRY(make_operands(mesh, variant, 0, &o, err)); /* the same call with good ids */
            DTP_TRY(LOOKUPS[k].call(o.table, o.logits, o.ids, &out, err));
            dtp_tensor_destroy(out);
            drop(&o);
        }
    }
    return DTP_OK;
}

/* ---- memory ---- */

/* A result that no memory holds. */
static dtp_status too_large(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {INT64_C(1) << 50, 4};
    const dtp_layout split = first_dim_split(mesh, 1);
    const dtp_tensor_desc desc = dt_desc(DTP_F32, 1, &shape[1], &split);
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    for (int i = 0; i < 2; i++) {
        DTP_TRY(expect(dtp_tensor_expand(t, 2, shape, &out, &said), DTP_NOMEM, "out of memory",
                       &said, "expand", err));
    }
    return still_works(mesh, "expand", err);
}

/* ---- own ops ---- */

/* A kernel that does not take negative numbers. */
static dtp_status run_careful(const dtp_kernel_args *args, dtp_err *err)
{
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    for (int64_t i = 0; i < dtp_ttype_elems(&args->in[0].local); i++) {
        if (x[i] < 0.0F) {
            return DTP_FAIL(err, DTP_INVALID, "careful: %g is negative", (double)x[i]);
        }
        y[i] = x[i];
    }
    return DTP_OK;
}

static const dtp_kernel CAREFUL = {.op = "careful", .run = run_careful};

static dtp_status careful(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {8};
    const dtp_layout split = first_dim_split(mesh, 1);
    const dtp_layout whole = dtp_layout_replicated(1, split.n_mesh);
    const dtp_tensor_desc desc = dt_desc(DTP_F32, 1, shape, &split);
    dtp_tensor t, out;
    dtp_err said = {0};
    const dtp_call call = {
        .op = "careful", .dims = "a->a", .n_in = 1, .in = &t, .out_layout = &whole};
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 6, -1, &t, err));
    DTP_TRY(expect(dtp_tensor_call(&call, &out, &said), DTP_INVALID, "-1 is negative", &said,
                   "careful", err));
    DTP_TRY(still_works(mesh, "careful", err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 1, &t, err));
    return dtp_tensor_call(&call, &out, err);
}

/* ---- main ---- */

static const dt_case CASES[] = {
    {"all_types", all_types, DTP_AGREE_NEW},       {"bad_ids", bad_ids, DTP_AGREE_NEW},
    {"bad_ids_always", bad_ids, DTP_AGREE_ALWAYS}, {"too_large", too_large, DTP_AGREE_NEW},
    {"careful", careful, DTP_AGREE_NEW},
};

static const char *name(int32_t i, const dtp_mesh *mesh)
{
    (void)mesh;
    return CASES[i].name;
}

static dtp_status run(int32_t i, const char *mesh, dtp_err *err)
{
    dtp_world_options options = dtp_world_options_init();
    dtp_op_set *ops;
    static const dtp_letter_role parallel_a = {'a', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
    dtp_custom_op op = dtp_custom_op_init("careful", "a->a");
    op.n_roles = 1;
    op.roles = &parallel_a;
    op.summary = "the same numbers";
    op.no_grad = "the test does without";
    DTP_TRY(dtp_op_set_create(dtp_builtin_ops(), &ops, err));
    dtp_status s = dtp_custom_op_register(ops, &op, err);
    options.threads = 1;
    options.environment = environ;
    options.mesh.agree = CASES[i].agree;
    options.mesh.ops = ops;
    options.n_kernels = 1;
    options.kernels = &CAREFUL;
    s = s == DTP_OK ? dtp_world_run(mesh, &options, CASES[i].body, NULL, err) : s;
    dtp_op_set_destroy(ops);
    return s;
}

int main(int argc, char **argv)
{
    const misuse_suite suite = {
        .n = (int32_t)(sizeof CASES / sizeof CASES[0]), .name = name, .run = run};
    return misuse_main(&suite, argc, argv);
}
