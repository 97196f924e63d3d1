/* Verification finds faults and names the part that is wrong. Each fault is put into a backend or a
 * communicator of the ranks; the one device has the right one. The sizes of the faults show how
 * small an error is still found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/run_report.h"
#include "tests/support/job_suite.h"
#include "tests/support/small_models.h"
#include "dtp/device_mesh.h"

#define DATA "batch:x"
#define TENSOR "heads:x;d_ff:x;vocab:x"

typedef enum place {
    NOWHERE,
    ALL_OF_IT, /* every element of the results of a kernel */
    ONE_OF_IT, /* the last element of its first result, on rank 1 */
    ATTRIBUTE, /* an attribute of an update */
    STEP,      /* the step count of an update */
    REDUCTION, /* the last element that rank 1 receives of every all-reduce */
    INITIAL    /* the last element of the first parameter of rank 1 */
} place;

typedef struct fault {
    place place;
    const char *what; /* kernel, or attribute of adamw */
    double relative;
    const char *rules;
    const char *failed; /* the parts that verification must name */
} fault;

static const fault faults[] = {
    {NOWHERE, "", 0, DATA, ""},
    {NOWHERE, "", 0, TENSOR, ""},
    {ALL_OF_IT, "gelu_grad", 1e-4, DATA, "gradients"},
    {ALL_OF_IT, "gelu_grad", 1e-4, TENSOR, "gradients"},
    {ALL_OF_IT, "layer_norm_grad", 1e-4, DATA, "gradients"},
    {ALL_OF_IT, "cross_entropy_grad", 1e-4, DATA, "gradients"},
    {ALL_OF_IT, "embedding_grad", 1e-4, DATA, "gradients"},
    {ALL_OF_IT, "attention_grad", 1e-4, TENSOR, "gradients"},
    {ONE_OF_IT, "gelu_grad", 1e-1, TENSOR, "gradients"},
    {ONE_OF_IT, "cross_entropy_grad", 1e-1, DATA, "gradients"},
    {ALL_OF_IT, "gelu", 1e-3, DATA, "outputs, gradients"},
    {ATTRIBUTE, "lr", 1e-4, DATA, "updates"},
    {ATTRIBUTE, "lr", 1e-4, TENSOR, "updates"},
    {ATTRIBUTE, "beta1", 1e-4, DATA, "updates"},
    {ATTRIBUTE, "beta2", 1e-4, TENSOR, "updates"},
    {ATTRIBUTE, "eps", 1e-1, DATA, "updates"},
    {ATTRIBUTE, "weight_decay", -1, DATA, "updates"},
    {STEP, "", 1, DATA, "updates"},
    {ONE_OF_IT, "adamw", 1e-5, TENSOR, "updates"},
    {REDUCTION, "", 1e-2, DATA, "gradients, updates"},
    {INITIAL, "", 1e-3, DATA, "initial"},
    {INITIAL, "", 1e-3, TENSOR, "initial"},
};

/* The fault under test; set while no rank runs. */
static const fault *now;
static const dtp_backend_ops *cpu_ops;
static const dtp_transport_ops *sim_ops;
static int uploads; /* of rank 1 */
static _Thread_local dtp_kernel faulty;

/* ---- kernels ---- */

static dtp_status wrong_results(const dtp_kernel_args *args, dtp_err *err)
{
    DTP_TRY(cpu_ops->kernel(NULL, args->call->op->name, 0)->run(args, err));
    for (int32_t o = 0; o < (now->place == ONE_OF_IT ? 1 : args->call->n_out); o++) {
        float *y = args->out[o].data;
        const int64_t n = dtp_ttype_elems(&args->out[o].local);
        for (int64_t i = now->place == ONE_OF_IT ? n - 1 : 0; i < n; i++) {
            y[i] += (float)now->relative * y[i];
        }
    }
    return DTP_OK;
}

/* Attributes of updates are read when a kernel is bound. */
static dtp_status wrong_attribute(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                  dtp_err *err)
{
    dtp_attr attrs[8];
    dtp_op_call call = *args->call;
    dtp_kernel_args mine = *args;
    assert_true(call.n_attrs <= 8);
    for (int32_t i = 0; i < call.n_attrs; i++) {
        attrs[i] = call.attrs[i];
        if (strcmp(attrs[i].key, now->what) == 0) {
            attrs[i] = dtp_attr_float(attrs[i].key,
                                      dtp_call_float(args->call, now->what) * (1 + now->relative));
        }
    }
    call.attrs = attrs;
    mine.call = &call;
    return cpu_ops->kernel(NULL, call.op->name, 0)->bind(&mine, arena, state, err);
}

static dtp_status wrong_step(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_kernel_args mine = *args;
    dtp_step_record record = *args->record;
    mine.record = &record;
    record.step++;
    return cpu_ops->kernel(NULL, args->call->op->name, 0)->run(&mine, err);
}

static const dtp_kernel *faulty_kernel(const dtp_backend *b, const char *op, int32_t i)
{
    const dtp_kernel *real = cpu_ops->kernel(b, op, i);
    const bool update = now->place == ATTRIBUTE || now->place == STEP;
    const bool results = now->place == ALL_OF_IT || now->place == ONE_OF_IT;
    const bool wrong = real != NULL && ((update && strcmp(op, "adamw") == 0) ||
                                        (results && strcmp(op, now->what) == 0));
    if (wrong) {
        faulty = *real;
        faulty.bind = now->place == ATTRIBUTE ? wrong_attribute : real->bind;
        faulty.run = now->place == STEP ? wrong_step : results ? wrong_results : real->run;
    }
    return wrong ? &faulty : real;
}

static dtp_status faulty_upload(dtp_backend *b, void *device, const void *host, size_t bytes,
                                dtp_err *err)
{
    DTP_TRY(cpu_ops->upload(b, device, host, bytes, err));
    if (now->place == INITIAL && uploads++ == 0) {
        float *x = device;
        x[bytes / sizeof *x - 1] *= (float)(1 + now->relative);
    }
    return DTP_OK;
}

/* ---- collectives ---- */

static dtp_status faulty_start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                               dtp_request *request, dtp_err *err)
{
    DTP_TRY(sim_ops->start(t, coll, ends, request, err));
    if (now->place == REDUCTION && coll->kind == DTP_ALL_REDUCE && coll->dtype == DTP_F32 &&
        coll->count > 1) {
        float *x = ends->out;
        x[dtp_coll_at(coll, 0)->count - 1] *= (float)(1 + now->relative);
    }
    return DTP_OK;
}

/* ---- jobs ---- */

typedef struct faulty_job {
    const dtp_graph *g;
    dtp_verify_reference *kept; /* NULL: the one device is made for the job */
    char failed[64];            /* the last line of the report between FAIL and the error */
    bool pass;
} faulty_job;

static void note(faulty_job *j, const dtp_verify_result *r)
{
    dtp_strbuf text = {0};
    dtp_verify_text(r, &(dtp_verified){0}, &text);
    const char *line = strstr(dtp_strbuf_text(&text), "\nFAIL: ");
    const char *end = line != NULL ? strstr(line, ": max") : NULL;
    j->pass = r->pass;
    j->failed[0] = '\0';
    if (end != NULL) {
        (void)snprintf(j->failed, sizeof j->failed, "%.*s", (int)(end - line - 7), line + 7);
    }
    dtp_strbuf_free(&text);
}

static dtp_status verify_faulty(dtp_comm *comm, void *user, dtp_err *err)
{
    faulty_job *j = user;
    job_program p = {0};
    dtp_backend *b = NULL, *reference = NULL;
    dtp_verify_options o = dtp_verify_options_init();
    dtp_verify_result r = {0};
    DTP_TRY(job_lower(j->g, "x:2", now->rules, &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &b, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &reference, err));
    const bool everywhere = now->place != ONE_OF_IT;
    dtp_backend_ops backend_ops = *cpu_ops;
    dtp_transport_ops transport_ops = *sim_ops;
    if (comm->rank == 1 || everywhere) {
        backend_ops.kernel = faulty_kernel;
    }
    if (comm->rank == 1) {
        backend_ops.upload = faulty_upload;
        transport_ops.start = faulty_start;
    }
    b->ops = &backend_ops;
    comm->transport.ops = &transport_ops;
    o.reference = reference;
    o.kept = j->kept;
    dtp_status status = dtp_verify(j->g, p.program, b, comm, &o, &r, err);
    if (comm->rank == 1) {
        note(j, &r);
    }
    comm->transport.ops = sim_ops;
    b->ops = cpu_ops;
    dtp_verify_result_free(&r);
    dtp_backend_destroy(b);
    dtp_backend_destroy(reference);
    job_program_free(&p);
    return status;
}

static dtp_status learn_ops(dtp_comm *comm, void *user, dtp_err *err)
{
    dtp_backend *b = NULL;
    (void)user;
    DTP_TRY(dtp_backend_create("cpu", 1, &b, err));
    cpu_ops = b->ops;
    sim_ops = comm->transport.ops;
    dtp_backend_destroy(b);
    return DTP_OK;
}

static int set_up(void **unused)
{
    (void)unused;
    const dtp_mesh one = {.n_dims = 1, .names = {"x"}, .sizes = {1}};
    dtp_err err = {0};
    return dtp_comm_sim_run(&one, learn_ops, NULL, &err) == DTP_OK ? 0 : -1;
}

static faulty_job run_fault(const dtp_graph *g, dtp_verify_reference *kept, const fault *f)
{
    faulty_job j = {.g = g, .kept = kept};
    dtp_err err = {0};
    dtp_mesh mesh;
    now = f;
    uploads = 0;
    dtp_status s = dtp_mesh_parse("x:2", &mesh, &err);
    s = s == DTP_OK ? dtp_comm_sim_run(&mesh, verify_faulty, &j, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s of %s: %s", f->what, g->name, err.msg);
    }
    return j;
}

static void check_faults(const dtp_graph *g, dtp_verify_reference *kept)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const faulty_job j = run_fault(g, kept, &faults[i]);
        if (strcmp(j.failed, faults[i].failed) != 0 || j.pass != (faults[i].failed[0] == '\0')) {
            print_error("fault %zu ('%s', %g, %s): failed '%s', expected '%s'\n", i, faults[i].what,
                        faults[i].relative, faults[i].rules, j.failed, faults[i].failed);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static void test_verify__names_the_part_that_is_wrong(void **unused)
{
    (void)unused;
    dtp_graph *g = small_model_read(small_model_find("gpt_bytes"), false);
    check_faults(g, NULL);
    dtp_graph_destroy(g);
}

/* Whatever the ranks did before: one device is the same for the next ones. */
static void test_verify__keeps_one_device_for_right_and_wrong_ranks(void **unused)
{
    (void)unused;
    dtp_graph *g = small_model_read(small_model_find("gpt_bytes"), false);
    dtp_verify_options o = dtp_verify_options_init();
    dtp_verify_reference *kept = NULL;
    assert_int_equal(dtp_backend_create("cpu", 1, &o.reference, NULL), DTP_OK);
    assert_int_equal(dtp_verify_reference_create(g, &o, &kept, NULL), DTP_OK);
    check_faults(g, kept);
    check_faults(g, kept);
    dtp_verify_reference_destroy(kept);
    dtp_backend_destroy(o.reference);
    dtp_graph_destroy(g);
}

static dtp_status verify_with_another_seed(dtp_comm *comm, void *user, dtp_err *err)
{
    faulty_job *j = user;
    job_program p = {0};
    dtp_backend *b = NULL;
    dtp_verify_options o = dtp_verify_options_init();
    dtp_verify_result r = {0};
    o.kept = j->kept;
    o.seed = 1;
    DTP_TRY(job_lower(j->g, "x:2", DATA, &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &b, err));
    const dtp_status status = dtp_verify(j->g, p.program, b, comm, &o, &r, err);
    dtp_verify_result_free(&r);
    dtp_backend_destroy(b);
    job_program_free(&p);
    return status;
}

static void test_verify__refuses_one_device_of_another_seed(void **unused)
{
    (void)unused;
    dtp_graph *g = small_model_read(small_model_find("mlp_digits"), false);
    faulty_job j = {.g = g};
    dtp_verify_options o = dtp_verify_options_init();
    dtp_err err = {0};
    dtp_mesh mesh;
    assert_int_equal(dtp_backend_create("cpu", 1, &o.reference, NULL), DTP_OK);
    assert_int_equal(dtp_verify_reference_create(g, &o, &j.kept, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_comm_sim_run(&mesh, verify_with_another_seed, &j, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "another seed"));
    dtp_verify_reference_destroy(j.kept);
    dtp_backend_destroy(o.reference);
    dtp_graph_destroy(g);
}

#define TEXT                                                                                       \
    {"batch", 4}, {"length", 8},                                                                   \
    {                                                                                              \
        "layers", 2                                                                                \
    }
#define LLAMA                                                                                      \
    {"kv_heads", 4}, {"group", 2}, {"d_head", 4}, {"d_ff", 24},                                    \
    {                                                                                              \
        "vocab", 32                                                                                \
    }

/* Those of models/ that small_models() leaves out. */
static const small_model other_models[] = {
    {"gpt_bytes_dropout", {TEXT, {"vocab", 32}, {"heads", 4}, {"d_head", 4}}, true},
    {"gpt2_small", {TEXT, {"vocab", 64}, {"heads", 4}, {"d_head", 4}, {"positions", 16}}, true},
    {"gpt3_175b", {TEXT, {"vocab", 64}, {"heads", 4}, {"d_head", 4}}, true},
    {"mtf_lm",
     {TEXT,
      {"max_length", 8},
      {"vocab", 64},
      {"heads", 4},
      {"d_kv", 4},
      {"d_model", 16},
      {"d_ff", 32}},
     true},
    {"llama3_70b", {TEXT, LLAMA}, true},
    {NULL, {{NULL, 0}}, false},
};

/* Right without a fault, found with one in one gradient kernel of all ranks. Returns how many. */
static int check_models(const small_model *models)
{
    static const fault none = {NOWHERE, "", 0, DATA, ""};
    static const fault one = {ALL_OF_IT, "cross_entropy_grad", 1e-3, DATA, "gradients"};
    int n = 0;
    for (const small_model *m = models; m->name != NULL; m++, n++) {
        dtp_graph *g = small_model_read(m, false);
        const faulty_job right = run_fault(g, NULL, &none), wrong = run_fault(g, NULL, &one);
        if (!right.pass || strcmp(wrong.failed, one.failed) != 0) {
            fail_msg("%s: pass %d; with a fault '%s' failed", m->name, right.pass, wrong.failed);
        }
        dtp_graph_destroy(g);
    }
    return n;
}

static void test_verify__finds_a_wrong_gradient_kernel_of_every_model(void **unused)
{
    (void)unused;
    print_message("%d models\n", check_models(small_models()) + check_models(other_models));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__names_the_part_that_is_wrong),
        cmocka_unit_test(test_verify__keeps_one_device_for_right_and_wrong_ranks),
        cmocka_unit_test(test_verify__refuses_one_device_of_another_seed),
        cmocka_unit_test(test_verify__finds_a_wrong_gradient_kernel_of_every_model),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
