/* Programs with overlap keep what they promise.
 *
 * Time: a log of what a rank runs, replayed with the predicted time of every instruction, takes the
 * predicted step, and so does the order of every model at its full size, in which casts of
 * parameters and gradients move with their collectives. Memory: with every byte
 * poisoned that no value needs, and collectives that move data at the START or not before the WAIT,
 * a step gives the same bits, within the predicted peak. A WAIT that comes too late for a reader
 * and memory that is used again too early are noticed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/safe_int.h"
#include "core/transform/graph_variant.h"
#include "cost_models/redistribution_price.h"
#include "executor/comm/communicator_internal.h"
#include "executor/cpu/cpu.h"
#include "executor/session/session.h"
#include "planner/baselines/baselines.h"
#include "spmd/lower/overlap.h"
#include "spmd/program/peak.h"
#include "tests/support/plan_fixture.h"
#include "tests/support/small_models.h"
#include "tests/support/quarter.h"

enum { STEPS = 2, MAX_LOG = 1 << 16, POISON = 0xa5, MAX_RANKS = 8 };

static const char *const MESHES[] = {"x:2", "x:4", "x:2;y:2", "x:2;y:4"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0] };

/* ---- programs ---- */

typedef struct subject {
    dtp_graph *model, *graph; /* as it is, and changed */
    small_pricer pricer;
    dtp_arena *arena;
    int32_t n;
    dtp_candidate *list;
} subject;

/* How a model is changed; NULL: not at all. Model m on mesh k is changed by number m + 2k: each
 * quarter of them has microbatches. */
typedef struct change {
    const char *precision, *microbatches;
} change;

static change change_of(size_t i)
{
    static const change changes[] = {{NULL, NULL}, {"bf16", NULL}, {"bf16", "2"}};
    return changes[i % 3];
}

static dtp_status with_change(const dtp_graph *model, const change *c, dtp_graph **out,
                              dtp_err *err)
{
    const dtp_variant_texts texts = {.precision = c->precision, .microbatches = c->microbatches};
    dtp_graph_variant variant;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = dtp_graph_variant_parse(&texts, model, arena, &variant, err);
    s = s == DTP_OK ? dtp_graph_with_variant(model, &variant, 0, NULL, out, err) : s;
    dtp_arena_destroy(arena);
    return s;
}

/* Without microbatches where the model cannot have any. */
static subject setup(dtp_graph *model, change c, const char *machine, const char *mesh,
                     const dtp_target *target)
{
    const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic()};
    subject s = {
        .model = model, .pricer = small_pricer_read(machine, mesh), .arena = dtp_arena_create()};
    dtp_err err = {0};
    s.pricer.pricer.target = target;
    dtp_status status = with_change(model, &c, &s.graph, &err);
    if (status == DTP_UNSUPPORTED) {
        c.microbatches = NULL;
        status = with_change(model, &c, &s.graph, &err);
    }
    status = status == DTP_OK ? dtp_baselines_create(s.graph, &s.pricer.pricer, &options, s.arena,
                                                     &s.n, &s.list, &err)
                              : status;
    if (status != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return s;
}

static void teardown(subject *s)
{
    small_pricer_free(&s->pricer);
    dtp_arena_destroy(s->arena);
    dtp_graph_destroy(s->graph);
    dtp_graph_destroy(s->model);
}

/* The program of a baseline in the order of an overlap; NULL when the baseline does not apply. */
static dtp_program *lower(const subject *s, int32_t i, dtp_overlap overlap,
                          dtp_prediction *predicted)
{
    dtp_program *p = NULL;
    dtp_err err = {0};
    dtp_lower_options options = dtp_lower_options_init(s->list[i].redistributor);
    if (!s->list[i].legal) {
        return NULL;
    }
    options.overlap = overlap;
    options.target = s->pricer.pricer.target;
    if (dtp_sharding_program(s->graph, &s->pricer.pricer, &s->list[i].sharding, &options, predicted,
                             &p, &err) != DTP_OK) {
        fail_msg("%s: %s", s->list[i].name, err.msg);
    }
    return p;
}

/* ---- time ---- */

/* What a step takes: compute goes from one instruction to the next, the queue from one collective
 * to the next. */
typedef struct clocks {
    double compute_s, queue_s;
    double *ended_s; /* by START */
} clocks;

static void pass(clocks *c, const dtp_program *p, int32_t i)
{
    const dtp_instr *instr = &p->instrs[i];
    if (instr->kind == DTP_INSTR_START) {
        c->queue_s = fmax(c->queue_s, c->compute_s) + instr->time_s;
        c->ended_s[i] = c->queue_s;
    } else if (instr->kind == DTP_INSTR_WAIT) {
        c->compute_s = fmax(c->compute_s, c->ended_s[instr->pair]);
    } else {
        c->compute_s += instr->time_s;
    }
}

static double replay(const dtp_program *p, int64_t n, const int32_t *log)
{
    clocks c = {.ended_s = calloc((size_t)p->n_instrs + 1, sizeof(double))};
    assert_non_null(c.ended_s);
    for (int64_t k = 0; k < n; k++) {
        pass(&c, p, log[k]);
    }
    free(c.ended_s);
    return fmax(c.compute_s, c.queue_s);
}

static void check_time(const dtp_program *p, const dtp_prediction *predicted, int64_t n,
                       const int32_t *log)
{
    const double step_s = replay(p, n, log);
    if (fabs(step_s - predicted->step_time_s) > 1e-9 * step_s) {
        fail_msg("%s: %.12g s, but %.12g s are predicted", p->graph->name, step_s,
                 predicted->step_time_s);
    }
}

/* The bytes that are needed at a time. */
static int64_t needed_bytes(const dtp_program *p)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_peak peak;
    assert_int_equal(dtp_peak_find(p, arena, &peak, NULL), DTP_OK);
    dtp_arena_destroy(arena);
    return peak.bytes;
}

/* What runs in a step of one or two microbatches. */
static int32_t log_of(const dtp_program *p, int32_t *log)
{
    const int32_t runs = dtp_program_microbatches(p);
    int32_t n = 0;
    for (int32_t j = 0; j < runs; j++) {
        for (int32_t i = 0; i < (j + 1 < runs ? dtp_program_body(p) : p->n_instrs); i++) {
            log[n] = i;
            n += j > 0 && p->instrs[i].once ? 0 : 1;
        }
    }
    return n;
}

static void test_overlap__orders_of_all_models_replay_to_their_prediction(void **state)
{
    (void)state;
    static const struct {
        const char *model, *machine, *meshes[N_MESHES];
    } cases[] = {
        {"mlp_digits", "a100_8", {"x:2", "x:8", "x:2;y:2", "x:2;y:4"}},
        {"gpt_bytes", "a100_8", {"x:2", "x:8", "x:2;y:2", "x:2;y:4"}},
        {"gpt_bytes_dropout", "a100_8", {"x:2", "x:8", "x:2;y:2", "x:2;y:4"}},
        {"gpt2_small", "a100_8", {"x:2", "x:4", "x:2;y:2", "x:4;y:2"}},
        {"mtf_lm", "v100_16", {"x:4", "x:16", "x:2;y:8", "x:4;y:4"}},
        {"bert_large", "v100_16", {"x:4", "x:16", "x:2;y:8", "x:4;y:4"}},
        {"vit_b16", "v100_16", {"x:4", "x:16", "x:2;y:8", "x:4;y:4"}},
        {"llama3_8b", "h100_64", {"x:8", "x:64", "x:8;y:8", "x:4;y:4;z:4"}},
        {"mixtral_8x7b", "h100_64", {"x:8", "x:64", "x:8;y:8", "x:16;y:4"}},
        {"llama3_70b", "h100_64", {"x:8", "x:64", "x:8;y:8", "x:16;y:4"}},
        {"gpt3_175b", "h100_64", {"x:8", "x:32", "x:8;y:8", "x:16;y:4"}},
    };
    int32_t programs = 0, deep = 0, asked = 0; /* models on meshes: all their programs */
    for (size_t m = 0; m < sizeof cases / sizeof cases[0]; m++) {
        for (int32_t k = 0; k < N_MESHES; k++) {
            char file[64];
            if (!quarter_has(asked++, INT32_MAX)) {
                continue;
            }
            (void)snprintf(file, sizeof file, "%s.json", cases[m].model);
            subject s = setup(fixture_model(file), change_of(m + 2 * (size_t)k), cases[m].machine,
                              cases[m].meshes[k], &dtp_target_cpu);
            for (int32_t i = 0; i < s.n; i++) {
                dtp_prediction predicted;
                dtp_program *p = lower(&s, i,
                                       (dtp_overlap){.depth = DTP_OVERLAP_CHOOSE,
                                                     .bucket_bytes = DTP_BUCKET_BYTES,
                                                     .once_bytes = INT64_MAX},
                                       &predicted);
                if (p == NULL) {
                    continue;
                }
                int32_t *log = calloc(2 * (size_t)p->n_instrs + 1, sizeof *log);
                assert_non_null(log);
                check_time(p, &predicted, log_of(p, log), log);
                assert_int_equal(predicted.peak_bytes, p->peak_bytes);
                deep += p->overlap.depth > 0 ? 1 : 0;
                programs++;
                free(log);
                const int64_t needed = needed_bytes(p); /* no less than without overlap */
                assert_int_equal(dtp_program_overlap(p, &(dtp_overlap){0}, true, NULL), DTP_OK);
                assert_true(needed >= needed_bytes(p));
                dtp_program_destroy(p);
            }
            teardown(&s);
        }
    }
    print_message("%d programs, %d with overlap\n", programs, deep);
    assert_true(deep > quarter_of(50));
}

/* FSDP of a large model: the cast of a parameter before its gather, and of a gradient behind its
 * reduction, hold up no collective, for no byte more. Gradients in 16 bits are half as many bytes
 * as in 32, and take no longer in as much memory as they like. */
static void test_overlap__casts_move_with_their_collectives(void **state)
{
    (void)state;
    static const char *const precisions[] = {"bf16", "bf16", "bf16,gradients=f32"};
    dtp_prediction predicted[3], serial;
    for (size_t i = 0; i < 3; i++) {
        subject s = setup(fixture_model("llama3_8b.json"), (change){precisions[i], NULL}, "h100_64",
                          "x:16", &dtp_target_cuda);
        int32_t k = 0;
        while (strcmp(s.list[k].name, "zero3") != 0) {
            k++;
        }
        const dtp_overlap none = {.bucket_bytes = DTP_BUCKET_BYTES};
        dtp_program_destroy(lower(&s, k, none, &serial));
        const dtp_overlap chosen = {.depth = DTP_OVERLAP_CHOOSE,
                                    .memory_bytes = i == 0 ? serial.peak_bytes : 0,
                                    .bucket_bytes = DTP_BUCKET_BYTES};
        dtp_program *p = lower(&s, k, chosen, &predicted[i]);
        assert_int_equal(p->peak_bytes, predicted[i].peak_bytes);
        assert_true(i > 0 || predicted[i].peak_bytes <= serial.peak_bytes);
        print_message("%s: %.1f ms, %.1f of communication exposed, %.1f without overlap\n",
                      precisions[i], 1e3 * predicted[i].step_time_s,
                      1e3 * predicted[i].exposed_comm_s, 1e3 * serial.exposed_comm_s);
        assert_true(predicted[i].exposed_comm_s <= 0.02);
        dtp_program_destroy(p);
        teardown(&s);
    }
    assert_true(predicted[1].step_time_s <= predicted[2].step_time_s);
}

/* ---- runs ---- */

/* One run on virtual ranks. `poison`: bytes that no value needs are overwritten before every
 * instruction. `late`: collectives move data when they are waited for. */
typedef struct run {
    const dtp_program *p;
    const dtp_prediction *predicted;
    bool poison, late;
    double losses[STEPS];
    uint64_t hash; /* of parameters and states on rank 0 */
} run;

typedef struct monitor {
    const run *run;
    bool *needed; /* by 64-byte line of the arena */
    int64_t n;
    int32_t log[MAX_LOG];
} monitor;

/* Lines of the arena whose contents instruction i or a later one reads. */
static void find_needed(monitor *m, int32_t i)
{
    const dtp_program *p = m->run->p;
    memset(m->needed, 0, (size_t)(p->peak_bytes / 64 + 1) * sizeof *m->needed);
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        const bool lasts = value->once && value->first == 0; /* perhaps of an earlier microbatch */
        const bool before = value->first < i || lasts || value->kind == DTP_VALUE_RESIDENT ||
                            value->kind == DTP_VALUE_INPUT;
        if (value->offset < 0 || !before || value->last < i) {
            continue;
        }
        const int64_t first = value->offset / 64;
        memset(m->needed + first, true, (size_t)((value->offset + value->bytes + 63) / 64 - first));
    }
}

static void watch(void *user, dtp_runner *r, int32_t instr, bool after)
{
    monitor *m = user;
    const dtp_program *p = m->run->p;
    if (after) {
        assert_true(m->n < MAX_LOG);
        m->log[m->n++] = instr;
        return;
    }
    char *memory = NULL;
    for (int32_t v = 0; v < p->n_values && memory == NULL; v++) {
        const dtp_view *view = dtp_runner_view(r, v);
        memory = p->values[v].offset == 0 ? view->data : NULL;
    }
    if (!m->run->poison || memory == NULL) {
        return;
    }
    find_needed(m, instr);
    const int64_t lines = (p->peak_bytes + 63) / 64;
    for (int64_t b = 0, end; b < lines; b = end) {
        for (end = b + 1; end < lines && m->needed[end] == m->needed[b]; end++) {
        }
        if (!m->needed[b]) {
            const int64_t bytes = (end * 64 < p->peak_bytes ? end * 64 : p->peak_bytes) - b * 64;
            memset(memory + b * 64, POISON, (size_t)bytes);
        }
    }
}

static dtp_status steps(run *of, monitor *m, dtp_comm *comm, dtp_backend *backend, dtp_err *err)
{
    dtp_session_options options = dtp_session_options_init();
    dtp_session *s = NULL;
    options.allow_nan = true;
    dtp_comm__sim_late(comm, of->late);
    DTP_TRY(dtp_session_create(of->p, backend, comm, &options, &s, err));
    dtp_runner_set_watch(dtp_session_runner(s), (dtp_runner_watch){watch, m});
    dtp_status status = DTP_OK;
    for (int32_t k = 0; k < STEPS && status == DTP_OK; k++) {
        dtp_step_result result;
        m->n = 0;
        status = dtp_session_step(s, &result, err);
        if (comm->rank == 0 && result.has_loss) {
            of->losses[k] = result.loss;
        }
    }
    int64_t allocated, touched;
    dtp_session_peak(s, &allocated, &touched);
    if (status == DTP_OK && (allocated != of->p->peak_bytes || touched != of->p->peak_bytes)) {
        status = DTP_FAIL(err, DTP_INTERNAL, "%lld and %lld of %lld bytes", (long long)allocated,
                          (long long)touched, (long long)of->p->peak_bytes);
    }
    if (comm->rank == 0) {
        of->hash = 1469598103934665603u;
    }
    for (int32_t v = 0; v < of->p->n_values && comm->rank == 0; v++) {
        const dtp_view *view = dtp_runner_view(dtp_session_runner(s), v);
        const unsigned char *bytes = view->data;
        for (int64_t b = 0;
             of->p->values[v].kind == DTP_VALUE_RESIDENT && b < dtp_ttype_bytes(&view->local);
             b++) {
            of->hash = (of->hash ^ bytes[b]) * 1099511628211u;
        }
    }
    dtp_session_destroy(s);
    return status;
}

static dtp_status rank_body(dtp_comm *comm, void *user, dtp_err *err)
{
    run *r = user;
    dtp_backend *backend = NULL;
    DTP_TRY(dtp_backend_cpu_create(1, &backend, err));
    monitor *m = calloc(1, sizeof *m);
    m->run = r;
    m->needed = calloc((size_t)(r->p->peak_bytes / 64 + 1), sizeof *m->needed);
    const dtp_status s = steps(r, m, comm, backend, err);
    if (s == DTP_OK && comm->rank == 0 && r->predicted != NULL) {
        check_time(r->p, r->predicted, m->n, m->log);
    }
    free(m->needed);
    free(m);
    dtp_backend_destroy(backend);
    return s;
}

static void execute(run *r)
{
    dtp_err err = {0};
    if (dtp_comm_sim_run(&r->p->mesh, rank_body, r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static bool same(const run *a, const run *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 && a->hash == b->hash;
}

static void test_overlap__poisoned_memory_and_late_collectives_change_nothing(void **state)
{
    (void)state;
    int32_t programs = 0, deep = 0, asked = 0, once = 0;
    for (const small_model *model = small_models(); model->name != NULL; model++) {
        for (int32_t k = 0; k < N_MESHES; k++) {
            const size_t m = (size_t)(model - small_models());
            if (!quarter_has(asked++, INT32_MAX)) {
                continue;
            }
            subject s = setup(small_model_read(model, false), change_of(m + 2 * (size_t)k),
                              "a100_8", MESHES[k], &dtp_target_cpu);
            for (int32_t i = 0; i < s.n; i++) {
                dtp_prediction predicted[2];
                const dtp_overlap overlap = {.depth = 1 << (i + k) % 6, .once_bytes = INT64_MAX};
                dtp_program *serial =
                    lower(&s, i, (dtp_overlap){.bucket_bytes = DTP_BUCKET_BYTES}, &predicted[0]);
                dtp_program *p = lower(&s, i, overlap, &predicted[1]);
                if (p == NULL) {
                    continue;
                }
                run plain = {.p = serial, .predicted = &predicted[0]};
                run early = {.p = p, .predicted = &predicted[1], .poison = true};
                run late = early;
                late.late = true;
                execute(&plain);
                execute(&early);
                execute(&late);
                if (!same(&plain, &early) || !same(&plain, &late)) {
                    fail_msg("%s, %s on '%s', depth %d: losses %.9g, %.9g early, %.9g late",
                             model->name, s.list[i].name, MESHES[k], overlap.depth, plain.losses[1],
                             early.losses[1], late.losses[1]);
                }
                assert_true(isfinite(plain.losses[STEPS - 1]));
                deep += p->peak_bytes > serial->peak_bytes ? 1 : 0;
                for (int32_t j = 0; j < p->n_instrs; j++) {
                    once += p->instrs[j].once ? 1 : 0;
                }
                programs++;
                dtp_program_destroy(serial);
                dtp_program_destroy(p);
            }
            teardown(&s);
        }
    }
    print_message("%d programs, %d with more memory than without overlap, %d instructions that run "
                  "once for all microbatches\n",
                  programs, deep, once);
    assert_true(deep > quarter_of(20) && once > quarter_of(100));
}

/* ---- faults ---- */

/* Exchanges a WAIT with the instruction behind it that reads its result; false: there is none. */
static bool delay_wait(dtp_program *p, int32_t i)
{
    const dtp_instr *start = &p->instrs[p->instrs[i].pair];
    const dtp_instr *reader = i + 1 < p->n_instrs ? &p->instrs[i + 1] : NULL;
    bool reads = false;
    for (int32_t k = 0; reader != NULL && k < reader->n_in && reader->pair < 0; k++) {
        reads = reads || reader->in[k] == start->out[0];
    }
    if (reads) {
        const dtp_instr wait = p->instrs[i];
        p->instrs[i] = p->instrs[i + 1];
        p->instrs[i + 1] = wait;
        p->instrs[wait.pair].pair = i + 1;
    }
    return reads;
}

/* Lets the result of a kernel between START and WAIT lie on an operand of the collective. */
static bool reuse_early(dtp_program *p, int32_t start)
{
    const dtp_value *operand = &p->values[p->instrs[start].in[0]];
    for (int32_t i = start + 1; i < p->instrs[start].pair; i++) {
        dtp_value *v = p->instrs[i].n_out > 0 ? &p->values[p->instrs[i].out[0]] : NULL;
        if (p->instrs[i].kind == DTP_INSTR_KERNEL && v->parent < 0 && !v->keep &&
            v->bytes <= operand->bytes && operand->kind == DTP_VALUE_TEMP) {
            v->offset = operand->offset;
            return true;
        }
    }
    return false;
}

/* Both kinds of damage, at every place, are refused by the checker or change what a step gives. */
static void test_overlap__a_late_wait_and_early_reuse_are_noticed(void **state)
{
    (void)state;
    int32_t tried[2] = {0, 0}, refused[2] = {0, 0}, differ[2] = {0, 0};
    subject s = setup(small_model_read(small_model_find("gpt_bytes"), false), change_of(0),
                      "a100_8", "x:2", &dtp_target_cpu);
    for (int32_t i = 0; i < s.n; i++) {
        dtp_prediction predicted;
        const dtp_overlap overlap = {.depth = 8};
        dtp_program *whole = lower(&s, i, overlap, &predicted);
        if (whole == NULL) {
            continue;
        }
        run right = {.p = whole};
        execute(&right);
        for (int32_t k = 0; k < whole->n_instrs; k += 3) {
            const dtp_instr_kind kind = whole->instrs[k].kind;
            dtp_program *p = lower(&s, i, overlap, &predicted);
            const int32_t what = kind == DTP_INSTR_WAIT ? 0 : 1;
            if ((kind == DTP_INSTR_WAIT && delay_wait(p, k)) ||
                (kind == DTP_INSTR_START && reuse_early(p, k))) {
                run wrong = {.p = p, .late = true, .poison = what == 0};
                tried[what]++;
                refused[what] += dtp_program_check(p, NULL) != DTP_OK ? 1 : 0;
                execute(&wrong);
                differ[what] += same(&right, &wrong) ? 0 : 1;
            }
            dtp_program_destroy(p);
        }
        dtp_program_destroy(whole);
    }
    teardown(&s);
    print_message("late WAIT: %d tried, %d refused, %d noticed when run; early reuse: %d, %d, %d\n",
                  tried[0], refused[0], differ[0], tried[1], refused[1], differ[1]);
    for (int32_t what = 0; what < 2; what++) {
        assert_true(tried[what] > 5 && refused[what] == tried[what]);
        assert_true(differ[what] > tried[what] / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap__orders_of_all_models_replay_to_their_prediction),
        cmocka_unit_test(test_overlap__casts_move_with_their_collectives),
        cmocka_unit_test(test_overlap__poisoned_memory_and_late_collectives_change_nothing),
        cmocka_unit_test(test_overlap__a_late_wait_and_early_reuse_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
