/* NULL for every pointer of every public function in turn (null_rows.def). Each row runs in a
 * process of its own, so that one that crashes is named. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "interop/layout_forms.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/op_table.h"
#include "core/layout/placement_text.h"
#include "core/graph/op_set.h"
#include "dtp/ops.h"
#include "dtp/optimizer.h"
#include "dtp/planner.h"
#include "dtp/session.h"
#include "dtp/tape.h"
#include "dtp/tensor.h"
#include "dtp/world.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"
#include "executor/comm/communicator.h"

/* Something valid for every parameter. */
typedef struct valid {
    dtp_comm *comm;
    dtp_backend *backend, *made_backend;
    dtp_device_mesh *mesh, *other, *made;
    const dtp_comm_count *counts;
    dtp_tensor t, truth, id, ids, table, one, loss, variable, in[2], out, outs[4];
    dtp_tensor_desc desc;
    dtp_layout layout;
    dtp_mesh grid;
    dtp_ttype type;
    dtp_dims dims;
    dtp_arena *arena;
    dtp_strbuf text;
    dtp_tape *tape, *made_tape;
    dtp_optimizer *optimizer, *made_optimizer;
    dtp_hyper lr;
    dtp_call call;
    dtp_op_call op_call;
    dtp_op_set *ops;
    dtp_custom_op custom;
    dtp_kernel kernel;
    const dtp_kernel *found_kernel;
    dtp_kernel_args args;
    dtp_bound_kernel bound;
    dtp_graph *graph;
    dtp_plan_options plan;
    dtp_cross_entropy_options entropy;
    dtp_attention_options attention;
    int64_t shape[2], sizes[2];
    int32_t axes[2], coords[DTP_MAX_MESH_DIMS];
    double data[16];
    const void *components[1];
} valid;

static const char MODEL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"m\", \"dims\": {\"a\": 2},"
    "\"inputs\": {\"x\": {\"dims\": [\"a\"]}},"
    "\"nodes\": [{\"id\": \"y\", \"op\": \"relu\", \"in\": [\"x\"]}], \"outputs\": [\"y\"]}";

/* A pointer to something of a type that is not looked at. */
#define ANY(type) ((type *)(void *)v)

static dtp_status rank_body_of_nothing(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)comm;
    (void)user;
    (void)err;
    return DTP_OK;
}

static dtp_status body_of_nothing(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)mesh;
    (void)user;
    (void)err;
    return DTP_OK;
}

static dtp_status fill(dtp_device_mesh *mesh, dtp_dtype dtype, int32_t rank, int64_t size,
                       dtp_tensor *out, dtp_err *err)
{
    const int64_t shape[] = {size, 2};
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, dtype, rank, shape, "replicated", &desc, err));
    return dtp_tensor_ones(mesh, &desc, out, err);
}

static dtp_status make_tensors(valid *v, dtp_err *err)
{
    DTP_TRY(fill(v->mesh, DTP_F32, 1, 2, &v->t, err));
    DTP_TRY(fill(v->mesh, DTP_F32, 1, 1, &v->one, err));
    DTP_TRY(fill(v->mesh, DTP_F32, 2, 2, &v->table, err));
    DTP_TRY(fill(v->mesh, DTP_BOOL, 1, 2, &v->truth, err));
    DTP_TRY(fill(v->mesh, DTP_I32, 0, 1, &v->id, err));
    DTP_TRY(fill(v->mesh, DTP_I32, 1, 2, &v->ids, err));
    DTP_TRY(dtp_variable_create(v->t, &v->variable, err));
    DTP_TRY(dtp_tensor_describe(v->t, &v->desc, err));
    v->in[0] = v->variable;
    v->outs[0] = v->t;
    DTP_TRY(dtp_tape_create(v->mesh, &v->tape, err));
    DTP_TRY(dtp_tape_watch(v->tape, v->variable, err));
    return dtp_tensor_sum(v->variable, 0, NULL, false, &v->loss, err);
}

static dtp_status make_valid(valid *v, dtp_err *err)
{
    memset(v, 0, sizeof *v);
    DTP_TRY(dtp_mesh_parse("x:1", &v->grid, err));
    DTP_TRY(dtp_comm_self_create(&v->comm, err));
    v->comm->mesh = v->grid;
    DTP_TRY(dtp_backend_cpu_create(1, &v->backend, err));
    DTP_TRY(dtp_device_mesh_create(v->comm, v->backend, NULL, &v->mesh, err));
    DTP_TRY(dtp_device_mesh_create(v->comm, v->backend, NULL, &v->other, err));
    DTP_TRY(make_tensors(v, err));
    v->lr = (dtp_hyper){"lr", 0.1};
    DTP_TRY(dtp_optimizer_create(v->mesh, "momentum", 1, &v->lr, &v->optimizer, err));
    v->layout = v->desc.layout;
    v->arena = dtp_arena_create();
    dtp_dims_init(&v->dims, v->arena);
    v->type = (dtp_ttype){.dtype = DTP_F32, .rank = 1, .dims = {{0, 2}}};
    dtp_dim_id id;
    DTP_TRY(dtp_dims_intern(&v->dims, "a", 2, &id, err));
    v->call = (dtp_call){.op = "exp", .n_in = 1, .in = v->in};
    v->op_call = (dtp_op_call){
        .op = dtp_op_find("exp"), .n_in = 1, .n_out = 1, .in = &v->type, .out = &v->type};
    v->custom = dtp_custom_op_init("mine", "a->a");
    v->kernel = (dtp_kernel){.op = "mine"};
    v->entropy = dtp_cross_entropy_options_init();
    v->attention = dtp_attention_options_init();
    v->plan = dtp_plan_options_init();
    v->plan.mesh = &v->grid;
    v->shape[0] = 2;
    v->components[0] = v->data;
    return dtp_op_set_create(dtp_builtin_ops(), &v->ops, err);
}

static void free_valid(valid *v)
{
    dtp_strbuf_free(&v->text);
    dtp_graph_destroy(v->graph);
    dtp_optimizer_destroy(v->optimizer);
    dtp_tape_destroy(v->tape);
    dtp_tape_destroy(v->made_tape);
    dtp_device_mesh_destroy(v->made);
    dtp_device_mesh_destroy(v->other);
    dtp_device_mesh_destroy(v->mesh);
    dtp_backend_destroy(v->backend);
    dtp_comm_destroy(v->comm);
    dtp_op_set_destroy(v->ops);
    dtp_arena_destroy(v->arena);
}

/* ---- rows ---- */

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define WITH_STATUS(fn, ...)                                                                       \
    static dtp_status JOIN(row_, __LINE__)(valid * v, dtp_err * err)                               \
    {                                                                                              \
        (void)v;                                                                                   \
        return fn(__VA_ARGS__);                                                                    \
    }
#define INVALID(fn, param, ...) WITH_STATUS(fn, __VA_ARGS__)
#define REFUSED(fn, param, ...) WITH_STATUS(fn, __VA_ARGS__)
#define ALLOWED(fn, param, ...) WITH_STATUS(fn, __VA_ARGS__)
#define SAFE(fn, param, ...)                                                                       \
    static dtp_status JOIN(row_, __LINE__)(valid * v, dtp_err * err)                               \
    {                                                                                              \
        (void)v;                                                                                   \
        (void)err;                                                                                 \
        (void)fn(__VA_ARGS__);                                                                     \
        return DTP_OK;                                                                             \
    }
#include "tests/dtensor/null_rows.def"
#define VALID_REAL v->t
#define VALID_POSITIVE v->t
#define VALID_TRUTH v->truth
#define UNARY_RUN(op, text, domain, ...)                                                           \
    static dtp_status run_##op(valid *v, dtp_err *err)                                             \
    {                                                                                              \
        return dtp_tensor_##op(VALID_##domain, NULL, err);                                         \
    }
#define BINARY_RUN(op, text, domain, ...)                                                          \
    static dtp_status run_##op(valid *v, dtp_err *err)                                             \
    {                                                                                              \
        return dtp_tensor_##op(VALID_##domain, VALID_##domain, NULL, err);                         \
    }
DTP_UNARY_OPS(UNARY_RUN)
DTP_BINARY_OPS(BINARY_RUN)
#undef INVALID
#undef REFUSED
#undef ALLOWED
#undef SAFE

static const struct {
    const char *fn, *param;
    dtp_status want;
    const char *words;
    dtp_status (*run)(valid *v, dtp_err *err);
} ROWS[] = {
#define ROW(fn, param, want, words) {#fn, #param, want, words, JOIN(row_, __LINE__)},
#define INVALID(fn, param, ...) ROW(fn, param, DTP_INVALID, "NULL")
#define REFUSED(fn, param, ...) ROW(fn, param, DTP_INVALID, "")
#define ALLOWED(fn, param, ...) ROW(fn, param, DTP_OK, "")
#define SAFE(fn, param, ...) ROW(fn, param, DTP_OK, "")
#include "tests/dtensor/null_rows.def"
#define ELEMENTWISE_ROW(op, ...) {"dtp_tensor_" #op, "out", DTP_INVALID, "NULL", run_##op},
    DTP_UNARY_OPS(ELEMENTWISE_ROW) DTP_BINARY_OPS(ELEMENTWISE_ROW)};

/* 0 when the row does what it should, with a place for messages and without. */
static int run_row(size_t i)
{
    static valid v;
    dtp_err err = {0};
    if (make_valid(&v, &err) != DTP_OK) {
        fprintf(stderr, "setup: %s\n", err.msg);
        return 2;
    }
    dtp_status s = ROWS[i].run(&v, &err);
    const dtp_status want = ROWS[i].want;
    if (s != want || strstr(err.msg, ROWS[i].words) == NULL) {
        fprintf(stderr, "%s, %s NULL: '%s'\n", ROWS[i].fn, ROWS[i].param, err.msg);
        return 1;
    }
    s = want == DTP_INVALID ? ROWS[i].run(&v, NULL) : want;
    free_valid(&v);
    return s == want ? 0 : 1;
}

static void test_null__is_refused_or_allowed(void **unused)
{
    (void)unused;
    int failed = 0;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        int status = 0;
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)signal(SIGSEGV, SIG_DFL); /* cmocka takes it */
            (void)signal(SIGABRT, SIG_DFL);
            _exit(run_row(i));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0) {
            print_error("%s, %s NULL: %s %d\n", ROWS[i].fn, ROWS[i].param,
                        WIFSIGNALED(status) ? "signal" : "exit",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            failed++;
        }
    }
    print_message("%zu rows, %d failed\n", sizeof ROWS / sizeof ROWS[0], failed);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_null__is_refused_or_allowed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
