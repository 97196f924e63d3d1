/* What PyTorch runs: what is fused, what memory holds beside the values of a program, and what the
 * time of its kernels consists of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/job.h"
#include "cost_models/predict.h"
#include "dtp/planner.h"
#include "spmd/lower/fsdp_memory.h"
#include "tests/support/plan_fixture.h"

typedef struct subject {
    dtp_graph *model;
    dtp_machine *machine;
    dtp_plan_result planned;
    dtp_job *job;
} subject;

static const char *const DATA[] = {"**: data(dp)"}, *const FSDP[] = {"**: data(dp)",
                                                                     "**: fsdp(dp)"};

static subject plan(const char *model, const dtp_dim_override *dims, int32_t n_dims,
                    const char *target, const char *precision, int32_t n_styles,
                    const char *const *styles)
{
    subject s = {.machine = fixture_machine("h100_64.json")};
    const dtp_mesh mesh = fixture_mesh("dp:8");
    dtp_model_options read = dtp_model_options_init();
    dtp_plan_options o = dtp_plan_options_init();
    dtp_job_options job = dtp_job_options_init();
    dtp_err err = {0};
    read.n_overrides = n_dims;
    read.overrides = dims;
    s.model = fixture_model_with(model, &read);
    o.mode = DTP_PLAN_PINS;
    o.mesh = &mesh;
    o.target = target;
    o.precision = precision;
    o.outputs = "none";
    o.n_styles = n_styles;
    o.styles = styles;
    o.memory_limit_bytes = -1;
    o.alone = true;
    if (dtp_plan_make(s.model, s.machine, &o, &s.planned, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    job.plan = s.planned.plan;
    job.machine = s.machine;
    assert_int_equal(dtp_job_create(s.model, &job, &s.job, NULL), DTP_OK);
    return s;
}

static void drop(subject *s)
{
    dtp_job_destroy(s->job);
    dtp_plan_result_free(&s->planned);
    dtp_machine_destroy(s->machine);
    dtp_graph_destroy(s->model);
}

static const dtp_dim_override SMALL_LLAMA[] = {
    {.name = "layers", .size = 3}, {.name = "length", .size = 8192}, {.name = "batch", .size = 8}};
static const dtp_dim_override SMALL_GPT[] = {{.name = "layers", .size = 2},
                                             {.name = "batch", .size = 8}};

static int64_t held(const subject *s)
{
    dtp_arena *arena = dtp_arena_create();
    int64_t bytes = -1;
    assert_int_equal(dtp_fsdp_bytes(s->job->program, arena, &bytes, NULL), DTP_OK);
    dtp_arena_destroy(arena);
    return bytes;
}

/* Numbers of the parameters whose name has a prefix and another part. */
static int64_t numbers(const dtp_graph *g, const char *prefix, const char *part)
{
    int64_t sum = 0;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind == DTP_TENSOR_PARAM &&
            strncmp(tensor->name, prefix, strlen(prefix)) == 0 &&
            strstr(tensor->name, part) != NULL) {
            sum += dtp_ttype_elems(&tensor->type);
        }
    }
    return sum;
}

/* A block's parameters in bf16 and its gradients as they are reduced, and the table of embeddings,
 * whose gradient does not read it; what the backward pass reads is there anyway. */
static void test_torch__holds_what_fsdp_holds(void **state)
{
    (void)state;
    static const struct {
        const char *precision;
        int64_t grad_bytes;
    } cases[] = {{"bf16", 2}, {"bf16,gradients=f32", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        subject s = plan("llama3_8b.json", SMALL_LLAMA, 3, "torch", cases[i].precision, 2, FSDP);
        const int64_t block = numbers(s.model, "layers.1.", "");
        const int64_t expected =
            2 * numbers(s.model, "wte", "") + (2 + cases[i].grad_bytes) * block;
        const int64_t got = held(&s), norms = numbers(s.model, "layers.1.", "norm");
        /* Norms are small, and may be reduced in another type or not at all. */
        if (llabs(got - expected) > 16 * norms + 4096) {
            fail_msg("%s: %lld bytes, expected %lld", cases[i].precision, (long long)got,
                     (long long)expected);
        }
        const dtp_prediction *p = dtp_plan_predicted(s.planned.plan);
        assert_true(fabs((double)p->reserved_bytes - 1.08 * (double)p->peak_bytes) <= 1.0);
        assert_int_equal(p->peak_bytes, s.job->program->peak_bytes);
        drop(&s);
    }
    subject data = plan("llama3_8b.json", SMALL_LLAMA, 3, "torch", "bf16", 1, DATA);
    assert_int_equal(held(&data), 0);
    drop(&data);
}

/* FSDP gathers at most three blocks ahead of the one that runs, and reduces gradients where they
 * are: with a device whose memory has room for more, too. */
static void test_torch__gathers_few_blocks_ahead(void **state)
{
    (void)state;
    static const dtp_dim_override dims[] = {{.name = "layers", .size = 8},
                                            {.name = "length", .size = 512},
                                            {.name = "batch", .size = 8}};
    subject s = plan("llama3_8b.json", dims, 3, "torch", "bf16,gradients=f32", 2, FSDP);
    const dtp_program *p = s.job->program;
    int32_t ahead = 0, late = 0, runs[2] = {0, INT32_MAX}; /* the block that computes, by phase */
    assert_true(p->overlap.depth > 0);
    assert_true(dtp_fsdp_depth(p) >= 1 && dtp_fsdp_depth(p) <= 2);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->node < 0 || s.job->graph->nodes[instr->node].block < 0 ||
            instr->phase == DTP_UPDATE) {
            continue;
        }
        const int32_t instance = s.job->graph->nodes[instr->node].instance;
        const bool back = instr->phase == DTP_BACKWARD;
        if (instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_CAST) == 0) {
            runs[back] = instance;
        } else if (instr->kind == DTP_INSTR_START && instr->coll.kind == DTP_ALL_GATHER && !back) {
            ahead = instance - runs[0] > ahead ? instance - runs[0] : ahead;
        } else if (instr->kind == DTP_INSTR_START && instr->coll.kind != DTP_ALL_GATHER && back) {
            late = runs[1] < instance && instance - runs[1] > late ? instance - runs[1] : late;
        }
    }
    assert_true(ahead >= 1 && ahead <= 3);
    assert_true(late <= 1);
    drop(&s);
}

/* The arena is larger by what is held, and by nothing else: kernels of torch and ref take the same
 * values. */
static void test_torch__its_peak_has_room_for_them(void **state)
{
    (void)state;
    subject s = plan("llama3_8b.json", SMALL_LLAMA, 3, "torch", "bf16", 2, FSDP);
    dtp_program *p = s.job->program;
    const int64_t bytes = held(&s);
    int64_t resident = 0, first = INT64_MAX;
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (value->offset >= 0 && value->parent < 0 && value->kind == DTP_VALUE_RESIDENT) {
            resident =
                value->offset + value->bytes > resident ? value->offset + value->bytes : resident;
        } else if (value->offset >= 0 && value->parent < 0) {
            first = value->offset < first ? value->offset : first;
        }
    }
    assert_true(bytes > 0);
    assert_true(first - resident >= bytes && first - resident < bytes + 64);
    drop(&s);
}

/* Counts and bytes of collectives that CommDebugMode of PyTorch 2.15 has for Llama 3 8B with 4
 * layers (tests/interop/interop_next.py): all-reduce, all-gather, reduce-scatter. */
static void test_torch__sends_what_pytorch_sends(void **state)
{
    (void)state;
    static const dtp_dim_override dims[] = {{.name = "layers", .size = 4},
                                            {.name = "length", .size = 2048},
                                            {.name = "batch", .size = 8}};
    static const char *const styles[] = {"embed: rowwise(y, dim=vocab, output=length)",
                                         "layers.*.attn.{q.mm,k.mm,v}: colwise(y, dim=kv_heads)",
                                         "layers.*.attn.out: rowwise(y, dim=kv_heads, "
                                         "output=length)",
                                         "layers.*.mlp.{gate,up}.mm: colwise(y, dim=d_ff)",
                                         "layers.*.mlp.out: rowwise(y, dim=d_ff, output=length)",
                                         "logits: colwise(y, dim=vocab)",
                                         "loss: loss_parallel(y)",
                                         "{layers.*.norm_*,norm_f}$: sequence(y)",
                                         "**: data(x)",
                                         "**: fsdp(x)"};
    static const struct {
        const char *mesh, *regather;
        int32_t first, n_styles;
        int64_t count[3], bytes[3];
    } cases[] = {
        {"y:4", NULL, 0, 8, {12, 18, 18}, {344064, 4831838208, 4831838208}},
        {"x:2;y:4", NULL, 0, 10, {13, 27, 23}, {245764, 5211701248, 4339154944}},
        {"x:8", NULL, 8, 2, {1, 9, 5}, {4, 11182292992, 7692500992}},
        {"x:8", "none", 8, 2, {1, 5, 5}, {4, 7692500992, 7692500992}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        subject s = {.machine = fixture_machine("h100_64.json")};
        const dtp_mesh mesh = fixture_mesh(cases[i].mesh);
        dtp_model_options read = dtp_model_options_init();
        dtp_plan_options o = dtp_plan_options_init();
        read.n_overrides = 3;
        read.overrides = dims;
        s.model = fixture_model_with("llama3_8b.json", &read);
        o.mode = DTP_PLAN_PINS;
        o.mesh = &mesh;
        o.target = "torch";
        o.precision = "f32";
        o.regather = cases[i].regather;
        o.n_styles = (size_t)cases[i].n_styles;
        o.styles = styles + cases[i].first;
        o.memory_limit_bytes = -1;
        o.alone = true;
        assert_int_equal(dtp_plan_make(s.model, s.machine, &o, &s.planned, NULL), DTP_OK);
        const dtp_prediction *p = dtp_plan_predicted(s.planned.plan);
        for (int32_t k = 0; k < DTP_N_COLL_TOTALS && p->collectives[k].kind != NULL; k++) {
            assert_int_equal(p->collectives[k].count, k < 3 ? cases[i].count[k] : 0);
            assert_int_equal(p->collectives[k].bytes, k < 3 ? cases[i].bytes[k] : 0);
        }
        drop(&s);
    }
}

static int32_t count(const dtp_program *p, const char *prefix)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const bool kernel = p->instrs[i].kind == DTP_INSTR_KERNEL;
        n += kernel && strncmp(p->instrs[i].op->name, prefix, strlen(prefix)) == 0 ? 1 : 0;
    }
    return n;
}

static void test_torch__fuses_biases_and_compiled_elementwise_kernels(void **state)
{
    (void)state;
    subject eager = plan("gpt2_small.json", SMALL_GPT, 2, "torch", "bf16", 1, DATA);
    subject compiled = plan("gpt2_small.json", SMALL_GPT, 2, "torch_compile", "bf16", 1, DATA);
    subject cuda = plan("gpt2_small.json", SMALL_GPT, 2, "cuda", "bf16", 1, DATA);
    const dtp_program *e = eager.job->program, *c = compiled.job->program, *k = cuda.job->program;
    assert_true(count(e, "fused_product") > 0);
    assert_int_equal(count(e, "fused"), count(e, "fused_product"));
    assert_int_equal(count(e, "fused_product2"), 0);
    assert_true(count(e, "gelu") > 0 && count(k, "gelu") == 0);
    assert_true(count(c, "fused") > count(c, "fused_product"));
    assert_true(c->n_instrs < e->n_instrs && k->n_instrs < c->n_instrs);
    drop(&eager);
    drop(&compiled);
    drop(&cuda);
}

/* On every machine and target the parts of the compute time are the whole. */
static void test_compute__parts_are_the_whole(void **state)
{
    (void)state;
    static const char *const targets[] = {"cpu", "cuda", "torch", "torch_compile"};
    static const char *const machines[] = {"cpu_2.json", "h100_64.json"};
    for (size_t i = 0; i < 8; i++) {
        subject s = plan("gpt2_small.json", SMALL_GPT, 2, targets[i / 2], "bf16", 1, DATA);
        dtp_machine *m = fixture_machine(machines[i % 2]);
        const dtp_mesh one = fixture_mesh("");
        dtp_pricer pricer;
        dtp_prediction p;
        double sum = 0.0;
        if (i % 2 == 1 && i >= 4) {
            assert_int_equal(dtp_machine_set_runtime(m, "torch", NULL), DTP_OK);
        }
        dtp_job *job = NULL;
        dtp_job_options o = dtp_job_options_init();
        o.mesh = &one;
        o.precision = "bf16";
        o.target = targets[i / 2];
        assert_int_equal(dtp_job_create(s.model, &o, &job, NULL), DTP_OK);
        assert_int_equal(dtp_pricer_init(m, &one, job->program->target, &pricer, NULL), DTP_OK);
        assert_int_equal(dtp_predict(&pricer, job->program, &p, NULL), DTP_OK);
        for (int32_t k = 0; k < DTP_N_COMPUTE_PARTS; k++) {
            assert_true(!(p.compute_parts_s[k] < 0.0));
            sum += p.compute_parts_s[k];
        }
        assert_true(fabs(sum - p.compute_s) <= 1e-9 * p.compute_s);
        assert_true(p.compute_parts_s[DTP_COMPUTE_PRODUCTS] > 0.0);
        dtp_job_destroy(job);
        dtp_machine_destroy(m);
        drop(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch__holds_what_fsdp_holds),
        cmocka_unit_test(test_torch__gathers_few_blocks_ahead),
        cmocka_unit_test(test_torch__its_peak_has_room_for_them),
        cmocka_unit_test(test_torch__sends_what_pytorch_sends),
        cmocka_unit_test(test_torch__fuses_biases_and_compiled_elementwise_kernels),
        cmocka_unit_test(test_compute__parts_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
