/* Steps on the queues of the emulated CUDA device: as graphs and without, in any order that the
 * events allow, they give the same bits, wait for nothing inside, and keep to the predicted memory
 * and time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/job.h"
#include "cost_models/predict.h"
#include "cuda_emu.h"
#include "executor/device/step_state.h"
#include "executor/run/ranks.h"
#include "executor/session/session.h"
#include "spmd/target/target.h"
#include "tests/support/small_models.h"
#include "tests/support/spans.h"
#include "tests/support/quarter.h"

enum { STEPS = 6, RECORDED = 4, DEVICES = 4, SEEDS = 20, MAX_LOG = 1 << 14 };

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* ---- runs ---- */

typedef struct run {
    const char *model, *mesh, *rules, *microbatches, *precision;
    const char *transport; /* nccl: a device for every rank */
    int32_t depth;         /* of overlap */
    uint64_t order;        /* seed of the order of streams */
    bool no_graph;
    bool watched, profiled; /* without graphs */
    bool apart;             /* every update is a launch */
    uint64_t dropped;       /* event wait that does nothing; the run may then fail */
    /* results: */
    double losses[STEPS];
    uint64_t hash;                        /* of parameters and states on rank 0 */
    struct cuda_emu_counters first, last; /* once RECORDED steps are started, and after all */
    int32_t n_microbatches, ranks, n_instrs, n_joined;
    int64_t allocated, touched, peak_bytes;
    dtp_prediction predicted;
    double replayed_s;         /* the log with the predicted times */
    double total_s, profile_s; /* of all steps */
    dtp_status status;
    const dtp_program *program;
    int32_t n_log;
    int32_t log[MAX_LOG]; /* instructions of the last step of rank 0 */
} run;

/* Ranks of one process meet on the host: only one rank, and NCCL, can be recorded. */
static bool is_recorded(const run *r)
{
    return !r->no_graph && !r->watched && !r->profiled && (r->ranks == 1 || r->transport != NULL);
}

static void note(void *user, dtp_runner *r, int32_t instr, bool after)
{
    run *of = user;
    if (!after && of != NULL) {
        const dtp_program *p = dtp_runner_program(r);
        const dtp_instr *in = &p->instrs[instr];
        char range[200];
        (void)snprintf(range, sizeof range, "%d %s %s", instr, dtp_instr_name(in),
                       in->node >= 0 ? p->graph->nodes[in->node].name : "-");
        assert_string_equal(cuda_emu_range(0), range);
        assert_true(strncmp(cuda_emu_range(1), "step ", 5) == 0);
        assert_string_equal(cuda_emu_range(2), "");
        assert_true(of->n_log < MAX_LOG);
        of->log[of->n_log++] = instr;
    }
}

static dtp_status hash_state(run *of, dtp_session *s, dtp_backend *b, dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(dtp_session_runner(s));
    of->hash = 1469598103934665603u;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_view *view = dtp_runner_view(dtp_session_runner(s), v);
        const int64_t bytes = dtp_ttype_bytes(&view->local);
        unsigned char *host = malloc((size_t)bytes + 1);
        if (p->values[v].kind == DTP_VALUE_RESIDENT && view->data != NULL) {
            const dtp_status copied = b->ops->download(b, host, view->data, (size_t)bytes, err);
            for (int64_t i = 0; copied == DTP_OK && i < bytes; i++) {
                of->hash = (of->hash ^ host[i]) * 1099511628211u;
            }
        }
        free(host);
    }
    return DTP_OK;
}

/* What all ranks have done so far. */
static dtp_status count(dtp_comm *comm, struct cuda_emu_counters *out, dtp_err *err)
{
    DTP_TRY(comm->ops->barrier(comm, err));
    if (comm->rank == 0) {
        *out = cuda_emu_count();
    }
    return comm->ops->barrier(comm, err);
}

/* One step ahead of the one whose loss is read. */
static dtp_status train(run *of, dtp_comm *comm, dtp_session *s, dtp_err *err)
{
    int32_t started = 0;
    for (int32_t k = 0; k < STEPS; k++) {
        dtp_step_result result;
        while (started < STEPS && started < k + dtp_session_ahead(s)) {
            if (comm->rank == 0) {
                of->n_log = 0;
            }
            DTP_TRY(dtp_session_start_step(s, err));
            started++;
            DTP_TRY(started == RECORDED ? count(comm, &of->first, err) : DTP_OK);
        }
        DTP_TRY(dtp_session_finish_step(s, &result, err));
        if (comm->rank == 0) {
            assert_int_equal(result.step, k);
            assert_true(result.has_loss && result.times.total_s > 0);
            /* a graph does not tell how long compute waited for collectives */
            assert_true(isnan(result.times.comm_s) == (k > 0 && of->ranks > 1 && is_recorded(of)));
            assert_true(isnan(result.times.comm_s) || result.times.compute_s >= 0);
            of->total_s += result.times.total_s;
            of->losses[k] = result.loss;
            assert_true(spans_are_in_order(dtp_session_runner(s), result.times.total_s));
        }
    }
    return count(comm, &of->last, err);
}

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    run *of = user;
    dtp_session_options options = dtp_session_options_init();
    dtp_session *s = NULL;
    options.allow_nan = true;
    options.no_graph = of->no_graph;
    options.profile = of->profiled;
    DTP_TRY(dtp_session_create(of->program, backend, comm, &options, &s, err));
    if (of->watched) {
        run *noted = comm->rank == 0 ? of : NULL;
        dtp_runner_set_watch(dtp_session_runner(s), (dtp_runner_watch){note, noted});
    }
    dtp_status status = train(of, comm, s, err);
    if (status == DTP_OK && comm->rank == 0) {
        const double *profile = dtp_runner_profile(dtp_session_runner(s));
        for (int32_t i = 0; profile != NULL && i < of->program->n_instrs; i++) {
            of->profile_s += profile[i];
        }
        dtp_session_peak(s, &of->allocated, &of->touched);
        status = hash_state(of, s, backend, err);
    }
    dtp_session_destroy(s);
    return status;
}

/* What needs no kernels but those of numbers one by one. */
static const char SCALARS[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"scalars\", \"dims\": {\"n\": 1000},"
    " \"inputs\": {\"x\": {\"dims\": []}, \"y\": {\"dims\": []}, \"z\": {\"dims\": [\"n\"]}},"
    " \"params\": {\"w\": {\"dims\": [], \"init\": \"ones\"},"
    " \"b\": {\"dims\": [], \"init\": \"ones\"}},"
    " \"nodes\": [{\"id\": \"xw\", \"op\": \"add\", \"in\": [\"x\", \"w\"]},"
    " {\"id\": \"p\", \"op\": \"tanh\", \"in\": [\"xw\"]},"
    " {\"id\": \"q\", \"op\": \"add\", \"in\": [\"p\", \"b\"]},"
    " {\"id\": \"d\", \"op\": \"sub\", \"in\": [\"q\", \"y\"]},"
    " {\"id\": \"e\", \"op\": \"exp\", \"in\": [\"z\"]},"
    " {\"id\": \"loss\", \"op\": \"square\", \"in\": [\"d\"]}], \"outputs\": [\"e\"],"
    " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"adamw\": {\"lr\": 0.03}}}}";

static dtp_graph *read_model(const char *name)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    if (strcmp(name, "scalars") != 0) {
        return small_model_read(small_model_find(name), false);
    }
    const dtp_model_options options = dtp_model_options_init();
    must(dtp_model_parse(name, SCALARS, sizeof SCALARS - 1, &options, &g, &err), &err);
    return g;
}

/* Compute goes from one instruction to the next, the queue from one collective to the next. */
static double replay(const dtp_program *p, int32_t n, const int32_t *log)
{
    double compute_s = 0, queue_s = 0, *ended_s = calloc((size_t)p->n_instrs + 1, sizeof *ended_s);
    assert_non_null(ended_s);
    for (int32_t k = 0; k < n; k++) {
        const dtp_instr *instr = &p->instrs[log[k]];
        if (instr->kind == DTP_INSTR_START) {
            queue_s = fmax(queue_s, compute_s) + instr->time_s;
            ended_s[log[k]] = queue_s;
        } else if (instr->kind == DTP_INSTR_WAIT) {
            compute_s = fmax(compute_s, ended_s[instr->pair]);
        } else {
            compute_s += instr->time_s;
        }
    }
    free(ended_s);
    return fmax(compute_s, queue_s);
}

/* Nothing is left on the device or pinned, and the device found no fault. */
static void check_rest(void)
{
    const struct cuda_emu_counters c = cuda_emu_count();
    assert_int_equal(c.errors, 0);
    assert_int_equal(c.live_device + c.live_host + c.live_objects, 0);
}

static void execute(run *of)
{
    dtp_err err = {0};
    dtp_job *job = NULL;
    dtp_program *program = NULL;
    dtp_pricer pricer;
    dtp_mesh mesh;
    dtp_graph *g = read_model(of->model);
    const char *on = of->mesh != NULL ? of->mesh : "";
    small_pricer machine = small_pricer_read("a100_8", on);
    dtp_job_options options = dtp_job_options_init();
    const dtp_ranks_options ranks = {
        .comm = of->mesh != NULL ? "sim" : "self", .backend = "cuda", .transport = of->transport};
    must(dtp_mesh_parse(on, &mesh, &err), &err);
    options.mesh = &mesh;
    options.rules = of->rules;
    options.microbatches = of->microbatches;
    options.precision = of->precision;
    options.target = "cuda";
    must(dtp_job_create(g, &options, &job, &err), &err);
    dtp_lower_options lower = job->lowering.options;
    lower.overlap.depth = of->depth;
    dtp_target apart = *lower.target;
    apart.join = 0;
    lower.target = of->apart ? &apart : lower.target;
    must(dtp_pricer_init(machine.machine, &mesh, lower.target, &pricer, &err), &err);
    must(dtp_sharding_program(job->graph, &pricer, &job->sharding, &lower, &of->predicted, &program,
                              &err),
         &err);
    of->n_instrs = program->n_instrs;
    of->n_joined = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        of->n_joined += program->instrs[i].joined ? 1 : 0;
    }
    of->program = program;
    of->peak_bytes = program->peak_bytes;
    of->ranks = dtp_mesh_ranks(&mesh);
    of->n_microbatches = dtp_program_microbatches(program);
    cuda_emu_reset();
    cuda_emu_devices(of->transport != NULL ? DEVICES : 1);
    cuda_emu_seed(of->order + 1);
    cuda_emu_quiet(of->dropped > 0);
    cuda_emu_set_fault(CUDA_EMU_DROP_WAIT, of->dropped);
    of->status = dtp_ranks_run(&ranks, &mesh, run_rank, of, &err);
    if (of->dropped == 0) {
        must(of->status, &err);
        check_rest();
    }
    if (of->watched) {
        of->replayed_s = replay(program, of->n_log, of->log);
    }
    dtp_program_destroy(program);
    dtp_job_destroy(job);
    small_pricer_free(&machine);
    dtp_graph_destroy(g);
}

static bool same(const run *a, const run *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 && a->hash == b->hash;
}

static int reset(void **state)
{
    (void)state;
    cuda_emu_reset();
    return 0;
}

static int rest(void **state)
{
    (void)state;
    check_rest();
    return 0;
}

/* ---- jobs ---- */

static const run JOBS[] = {
    {.model = "scalars"},
    {.model = "mlp_digits"},
    {.model = "mlp_digits", .mesh = "x:2", .rules = "batch:x", .depth = 4},
    {.model = "mlp_digits", .mesh = "x:2;y:2", .rules = "batch:x;hidden:y", .transport = "nccl"},
    {.model = "mlp_digits", .microbatches = "batch=4"},
    {.model = "gpt_bytes", .precision = "bf16"},
    {.model = "mlp_digits", .precision = "tf32"},
};
enum { N_JOBS = sizeof JOBS / sizeof JOBS[0] };

/* Job i with its graph or without, run once for all tests. */
static const run *run_of(int32_t i, bool no_graph)
{
    static run runs[N_JOBS][2];
    run *r = &runs[i][no_graph];
    if (r->model == NULL) {
        *r = JOBS[i];
        r->no_graph = no_graph;
        execute(r);
    }
    return r;
}

static void test_runtime__graphs_change_no_bit(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_JOBS; i++) {
        const run *recorded = run_of(i, false), *plain = run_of(i, true);
        run watched = JOBS[i];
        watched.watched = true;
        assert_true(is_recorded(recorded) ==
                    (recorded->last.graph_launches > recorded->first.graph_launches));
        execute(&watched);
        assert_int_equal(plain->last.graph_launches + watched.last.graph_launches, 0);
        if (!same(recorded, plain) || !same(recorded, &watched)) {
            fail_msg("%s: losses %.9g with graphs, %.9g without, %.9g watched", JOBS[i].model,
                     recorded->losses[STEPS - 1], plain->losses[STEPS - 1],
                     watched.losses[STEPS - 1]);
        }
        assert_true(isfinite(plain->losses[STEPS - 1]) && plain->losses[0] != plain->losses[1]);
    }
}

/* Products in tf32: other losses than those of f32, near them; none of it in bf16. */
static void test_runtime__tf32_rounds_products_of_f32(void **state)
{
    enum { F32, TF32, BF16, F32_AGAIN, N_RUNS };
    static const char *const precisions[N_RUNS] = {"f32", "tf32", "bf16", "f32"};
    (void)state;
    run runs[N_RUNS];
    for (int32_t i = 0; i < N_RUNS; i++) {
        runs[i] = (run){.model = "gpt_bytes", .precision = precisions[i]};
        execute(&runs[i]);
    }
    assert_false(same(&runs[F32], &runs[TF32]));
    assert_true(same(&runs[F32], &runs[F32_AGAIN]));
    for (int32_t k = 0; k < STEPS; k++) {
        const double f32 = runs[F32].losses[k];
        assert_true(fabs(runs[TF32].losses[k] - f32) <= 0x1p-11 * fabs(f32));
    }
    assert_true(runs[TF32].losses[0] != runs[F32].losses[0]);
    const double bf16_off = fabs(runs[BF16].losses[0] - runs[F32].losses[0]);
    assert_true(bf16_off > fabs(runs[TF32].losses[0] - runs[F32].losses[0]));
    assert_true(runs[TF32].peak_bytes == runs[F32].peak_bytes);
    assert_true(runs[TF32].n_instrs == runs[F32].n_instrs);
}

static void test_runtime__a_step_waits_for_nothing(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * N_JOBS; i++) {
        const run *r = run_of(i / 2, i % 2 == 1);
        assert_int_equal(r->first.host_syncs, r->last.host_syncs);
        /* beside its graph, a microbatch launches the update of its record */
        const uint64_t launches = r->last.launches - r->first.launches;
        const uint64_t records = (uint64_t)((STEPS - RECORDED) * r->n_microbatches * r->ranks);
        assert_true(is_recorded(r) ? launches == records : launches > 4 * records);
    }
}

static void test_runtime__memory_is_what_is_predicted(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_JOBS; i++) {
        const run *r = run_of(i, false);
        assert_int_equal(r->allocated, r->peak_bytes);
        assert_int_equal(r->touched, r->peak_bytes);
        assert_int_equal(r->predicted.peak_bytes, r->peak_bytes);
    }
}

/* Every instruction that the host puts on the queue is a range inside of that of its step; in a
 * step that is a graph there is none. check_rest sees that they are closed. */
static void test_runtime__instructions_are_ranges(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_JOBS; i++) {
        for (int32_t k = 0; k < 2; k++) {
            run r = k == 1 ? *run_of(i, false) : JOBS[i];
            if (k == 0) {
                r.no_graph = r.profiled = true;
                execute(&r);
            }
            const uint64_t steps = (uint64_t)((STEPS - RECORDED) * r.n_microbatches * r.ranks);
            const uint64_t opened = r.last.ranges - r.first.ranges;
            const uint64_t ranges = is_recorded(&r) ? 1 : 1 + (uint64_t)r.n_instrs;
            assert_true(is_recorded(&r) || r.n_microbatches == 1 ? opened == steps * ranges
                                                                 : opened > 2 * steps);
        }
    }
}

/* Updates in launches of many give the same bits as alone, in the same memory; graphs too. */
static void test_runtime__joined_updates_are_one_launch(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * N_JOBS; i++) {
        const run *joined = run_of(i / 2, i % 2 == 1);
        run alone = JOBS[i / 2];
        alone.no_graph = joined->no_graph;
        alone.apart = true;
        execute(&alone);
        assert_true(joined->n_joined > 0 && alone.n_joined == 0);
        assert_true(same(joined, &alone) && joined->peak_bytes == alone.peak_bytes);
        assert_true(joined->predicted.step_time_s < alone.predicted.step_time_s);
        const uint64_t saved = (uint64_t)(joined->ranks * joined->n_joined);
        assert_true(joined->microbatches != NULL ||
                    alone.last.kernels - joined->last.kernels == STEPS * saved);
        assert_true(alone.last.kernels > joined->last.kernels);
    }
}

static void test_runtime__every_order_of_streams_gives_the_same_bits(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * N_JOBS; i++) {
        const run *first = run_of(i / 2, i % 2 == 1);
        for (uint64_t order = 1; order < SEEDS; order++) {
            run r = JOBS[i / 2];
            if (!quarter_has(SEEDS * i + (int64_t)order, INT32_MAX)) {
                continue;
            }
            r.no_graph = first->no_graph;
            r.order = order;
            execute(&r);
            if (!same(first, &r)) {
                fail_msg("%s: order %llu differs", r.model, (unsigned long long)order);
            }
        }
    }
}

/* Every event wait of a step without collectives orders a copy of inputs: without it some order
 * gives other bits. */
static void test_runtime__a_missing_wait_is_noticed(void **state)
{
    (void)state;
    run right = {.model = "scalars"};
    execute(&right);
    for (uint64_t n = 1; n <= 2 * STEPS; n++) {
        bool noticed = false;
        for (uint64_t order = 0; order < 10 * SEEDS && !noticed; order++) {
            run r = {.model = "scalars", .order = order, .dropped = n};
            execute(&r);
            noticed = r.status != DTP_OK || !same(&right, &r);
        }
        if (!noticed && n > 1) { /* nothing is computed yet that the first one could wait for */
            fail_msg("wait %llu is not missed", (unsigned long long)n);
        }
    }
}

/* ---- times ---- */

static void test_runtime__the_log_replays_to_the_predicted_time(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_JOBS; i++) {
        run r = JOBS[i];
        r.watched = true;
        execute(&r);
        assert_true(r.microbatches != NULL ||
                    fabs(r.replayed_s - r.predicted.step_time_s) < 1e-9 * r.replayed_s);
    }
}

static void test_runtime__instructions_take_the_time_of_the_step(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_JOBS; i++) {
        run r = JOBS[i];
        r.profiled = true;
        execute(&r);
        assert_true(r.profile_s > 0.5 * r.total_s && r.profile_s <= r.total_s);
    }
}

/* ---- runners ---- */

/* A program of one node, bound to the device. */
typedef struct lookup {
    dtp_graph *g;
    dtp_job *job;
    dtp_comm *comm;
    dtp_backend *b;
    dtp_err failure;
    dtp_value_id ids;
} lookup;

static lookup open_lookup(void)
{
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"m\", \"dims\": {\"v\": 4, \"d\": 2, \"t\": 3},"
        " \"inputs\": {\"ids\": {\"dims\": [\"t\"], \"dtype\": \"i32\"}},"
        " \"params\": {\"table\": {\"dims\": [\"v\", \"d\"], \"init\": \"ones\"}},"
        " \"nodes\": [{\"id\": \"rows\", \"op\": \"embedding\", \"in\": [\"table\", \"ids\"],"
        " \"over\": \"v\"}, {\"id\": \"y\", \"op\": \"neg\", \"in\": [\"rows\"]}],"
        " \"outputs\": [\"y\"]}";
    lookup l = {0};
    dtp_err err = {0};
    const dtp_model_options model = dtp_model_options_init();
    dtp_job_options options = dtp_job_options_init();
    options.target = "cuda";
    must(dtp_model_parse("m", text, sizeof text - 1, &model, &l.g, &err), &err);
    must(dtp_job_create(l.g, &options, &l.job, &err), &err);
    must(dtp_comm_self_create(&l.comm, &err), &err);
    must(dtp_backend_create("cuda", 1, &l.b, &err), &err);
    l.ids = dtp_job_program(l.job)->tensor_value[dtp_graph_find(l.g, "ids")];
    return l;
}

static void close_lookup(lookup *l)
{
    dtp_backend_destroy(l->b);
    dtp_comm_destroy(l->comm);
    dtp_job_destroy(l->job);
    dtp_graph_destroy(l->g);
}

static void put_ids(const lookup *l, dtp_runner *r, int32_t id)
{
    const int32_t ids[] = {1, id, 3};
    dtp_err err = {0};
    must(l->b->ops->upload(l->b, dtp_runner_view(r, l->ids)->data, ids, sizeof ids, &err), &err);
}

/* Step 5 reads row 9 of a table of 4, and step 6, which is started before 5 is finished, does not:
 * the failure is of step 5 alone. */
static void test_runtime__errors_in_data_are_those_of_their_step(void **state)
{
    (void)state;
    for (int32_t noted = 0; noted < 2; noted++) {
        lookup l = open_lookup();
        dtp_err err = {0};
        dtp_runner *r = NULL;
        dtp_runner_times times;
        const dtp_runner_options options = {.failure = noted == 1 ? &l.failure : NULL};
        must(dtp_runner_create(dtp_job_program(l.job), l.b, l.comm, &options, &r, &err), &err);
        put_ids(&l, r, 9);
        must(dtp_runner_microbatch(r, 0, 5, 0, &err), &err);
        must(dtp_runner_end(r, NULL, &err), &err);
        put_ids(&l, r, 2);
        must(dtp_runner_microbatch(r, 0, 6, 0, &err), &err);
        must(dtp_runner_end(r, NULL, &err), &err);
        assert_int_equal(dtp_runner_microbatch(r, 0, 7, 0, &err), DTP_INVALID);
        const dtp_status status = dtp_runner_finish(r, &times, NULL, &err);
        const dtp_err *said = noted == 1 ? &l.failure : &err;
        assert_int_equal(status, noted == 1 ? DTP_OK : DTP_RANGE);
        assert_non_null(strstr(said->msg, "step 5"));
        assert_non_null(strstr(said->msg, "node 'rows'"));
        assert_non_null(strstr(said->msg, "embedding: id 9 is not in [0, 4)"));
        dtp_err_clear(&l.failure);
        must(dtp_runner_finish(r, &times, NULL, &err), &err);
        must(dtp_runner_step(r, 0, 7, &times, &err), &err);
        assert_int_equal(l.failure.code, DTP_OK);
        dtp_runner_destroy(r);
        close_lookup(&l);
    }
}

/* Error words and record of new step states, as kernels on the compute queue find them. */
static void test_runtime__step_states_are_zero_in_the_order_of_their_queue(void **state)
{
    enum { WORDS = 4, ORDERS = 10 * SEEDS };
    int32_t wrong = 0;
    dtp_backend *b = NULL;
    dtp_err created = {0};
    (void)state;
    must(dtp_backend_create("cuda", 1, &b, &created), &created);
    for (uint64_t order = 0; order < ORDERS; order++) {
        static const dtp_error_word none[WORDS];
        dtp_error_word found[WORDS];
        dtp_step_state s;
        dtp_err err = {0};
        cuda_emu_seed(order);
        must(dtp_step_state_init(&s, b, WORDS, &err), &err);
        must(b->ops->download(b, found, s.words, sizeof found, &err), &err);
        wrong += memcmp(found, none, sizeof none) != 0;
        dtp_step_state_free(&s);
    }
    dtp_backend_destroy(b);
    if (wrong > 0) {
        fail_msg("words are not zero in %d of %d orders", wrong, ORDERS);
    }
}

static void test_runtime__runners_come_and_go(void **state)
{
    (void)state;
    lookup l = open_lookup();
    const struct cuda_emu_counters before = cuda_emu_count();
    for (int32_t i = 0; i < 200; i++) {
        dtp_err err = {0};
        dtp_runner *r = NULL;
        must(dtp_runner_create(dtp_job_program(l.job), l.b, l.comm, NULL, &r, &err), &err);
        dtp_runner_destroy(r);
    }
    const struct cuda_emu_counters after = cuda_emu_count();
    assert_int_equal(after.live_device, before.live_device);
    assert_int_equal(after.live_host, before.live_host);
    assert_int_equal(after.live_objects, before.live_objects);
    close_lookup(&l);
}

/* A graph holds addresses: when the arena moves it is made anew. */
static void test_runtime__moved_memory_is_recorded_anew(void **state)
{
    (void)state;
    lookup l = open_lookup();
    const dtp_program *p = dtp_job_program(l.job);
    const dtp_value_id y = p->tensor_value[l.g->outputs[0]];
    const dtp_runner_options options = {.borrowed_memory = true};
    dtp_err err = {0};
    dtp_runner *r = NULL;
    dtp_runner_times times;
    void *memory[2] = {NULL, NULL};
    must(dtp_runner_create(p, l.b, l.comm, &options, &r, &err), &err);
    for (int32_t i = 0; i < 2; i++) {
        must(l.b->ops->alloc(l.b, (size_t)p->peak_bytes, &memory[i], &err), &err);
    }
    for (int32_t i = 0; i < 12; i++) {
        float table[8], found[6];
        for (int32_t k = 0; k < 8; k++) {
            table[k] = (float)(100 * i + k);
        }
        dtp_runner_set_memory(r, memory[i / 4 % 2]);
        put_ids(&l, r, 2);
        const dtp_view *rows = dtp_runner_view(r, p->tensor_value[dtp_graph_find(l.g, "table")]);
        must(l.b->ops->upload(l.b, rows->data, table, sizeof table, &err), &err);
        must(dtp_runner_step(r, 0, i, &times, &err), &err);
        must(l.b->ops->download(l.b, found, dtp_runner_view(r, y)->data, sizeof found, &err), &err);
        assert_true(found[0] == -table[2] && found[2] == -table[4] && found[5] == -table[7]);
    }
    assert_int_equal(cuda_emu_count().graph_launches, 9);
    dtp_runner_destroy(r);
    for (int32_t i = 0; i < 2; i++) {
        l.b->ops->free(l.b, memory[i], (size_t)p->peak_bytes);
    }
    close_lookup(&l);
}

/* ---- no card ---- */

static void test_runtime__says_that_there_is_no_card(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_backend *b = NULL;
    cuda_emu_devices(0);
    assert_int_equal(dtp_backend_create("cuda", 1, &b, &err), DTP_UNSUPPORTED);
    assert_string_equal(err.msg, "backend cuda: there is no GPU on this machine, or "
                                 "CUDA_VISIBLE_DEVICES hides it");
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_runtime__##name, reset, rest)
    const struct CMUnitTest tests[] = {
        TEST(graphs_change_no_bit),
        TEST(tf32_rounds_products_of_f32),
        TEST(a_step_waits_for_nothing),
        TEST(joined_updates_are_one_launch),
        TEST(instructions_are_ranges),
        TEST(memory_is_what_is_predicted),
        TEST(every_order_of_streams_gives_the_same_bits),
        TEST(a_missing_wait_is_noticed),
        TEST(the_log_replays_to_the_predicted_time),
        TEST(instructions_take_the_time_of_the_step),
        TEST(errors_in_data_are_those_of_their_step),
        TEST(step_states_are_zero_in_the_order_of_their_queue),
        TEST(runners_come_and_go),
        TEST(moved_memory_is_recorded_anew),
        TEST(says_that_there_is_no_card),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
