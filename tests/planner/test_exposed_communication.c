/* What timelines show of single tensors, and the prices that follow, against programs that are
 * priced here. */
#include "planner/tensors/exposed_communication.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/timeline.h"
#include "planner/baselines/baselines.h"
#include "tests/support/plan_fixture.h"

/* A model on a machine, what is known of it, and programs of its baselines. */
typedef struct fixture {
    dtp_machine *machine;
    dtp_graph *graph;
    dtp_pricer pricer;
    dtp_arena *arena;
    dtp_exposed x;
} fixture;

typedef struct program {
    dtp_program *p;
    dtp_prediction predicted;
} program;

static const dtp_machine MACHINE = {.slowdown = {1.25, 1.25}};

static fixture make(const char *model, const char *mesh)
{
    fixture f = {.machine = fixture_machine("a100_8.json"),
                 .graph = fixture_model(model),
                 .arena = dtp_arena_create()};
    const dtp_mesh parsed = fixture_mesh(mesh);
    f.machine->slowdown = MACHINE.slowdown;
    assert_non_null(f.arena);
    assert_int_equal(dtp_pricer_init(f.machine, &parsed, &dtp_target_cpu, &f.pricer, NULL), DTP_OK);
    assert_int_equal(dtp_exposed_create(f.graph, f.arena, &f.x, NULL), DTP_OK);
    return f;
}

static void destroy(fixture *f)
{
    dtp_arena_destroy(f->arena);
    dtp_graph_destroy(f->graph);
    dtp_machine_destroy(f->machine);
}

/* The program of a baseline; `options` NULL: with all passes. */
static program lower(const fixture *f, const char *baseline, dtp_lower_options *options)
{
    const dtp_baseline_options all = {.machine = dtp_redistributor_generic(),
                                      .generic = dtp_redistributor_generic()};
    dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    passes.overlap.depth = DTP_OVERLAP_CHOOSE;
    dtp_candidate *list = NULL;
    program out = {0};
    int32_t n = 0;
    assert_int_equal(dtp_baselines_create(f->graph, &f->pricer, &all, f->arena, &n, &list, NULL),
                     DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, baseline) == 0) {
            assert_true(list[i].legal);
            assert_int_equal(dtp_sharding_program(f->graph, &f->pricer, &list[i].sharding,
                                                  options != NULL ? options : &passes,
                                                  &out.predicted, &out.p, NULL),
                             DTP_OK);
        }
    }
    assert_non_null(out.p);
    return out;
}

static void note(fixture *f, const program *p, double step_s)
{
    assert_int_equal(dtp_exposed_note(&f->x, p->p, &MACHINE, step_s, NULL), DTP_OK);
}

static bool same(double a, double b)
{
    return (a >= b && a <= b) || fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static double sum_of(int32_t n, const double *parts)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += parts[i];
    }
    return sum;
}

/* On a target whose collectives are done where they start, the machine's overlap hides nothing. */
static void test_exposed__nothing_is_hidden_without_asynchronous_collectives(void **state)
{
    (void)state;
    fixture f = make("gpt_bytes.json", "x:4");
    dtp_target blocking = dtp_target_cpu;
    blocking.asynchronous = false;
    dtp_lower_options options[2];
    for (int32_t i = 0; i < 2; i++) { /* without buckets, whose size depends on what is hidden */
        options[i] = dtp_lower_options_init(dtp_redistributor_generic());
        options[i].overlap.bucket_bytes = 0;
        options[i].overlap.depth = DTP_OVERLAP_CHOOSE;
    }
    program hidden = lower(&f, "data_parallel", &options[0]);
    f.pricer.target = &blocking;
    program shown = lower(&f, "data_parallel", &options[1]);
    const dtp_prediction *a = &hidden.predicted, *b = &shown.predicted;
    assert_true(a->exposed_comm_s < 0.9 * a->comm_s);
    assert_true(same(b->exposed_comm_s, b->comm_s) && same(a->comm_s, b->comm_s));
    assert_true(same(b->step_time_s, b->compute_s + b->comm_s));
    assert_true(a->step_time_s < b->step_time_s);
    dtp_program_destroy(hidden.p);
    dtp_program_destroy(shown.p);
    destroy(&f);
}

/* ---- what a timeline shows ---- */

/* Places of which a program sends something, of the tensors that its collectives read. */
static bool *places_of(const fixture *f, const dtp_program *p)
{
    bool *sent = calloc((size_t)f->x.n_places + 1, sizeof *sent);
    assert_non_null(sent);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        for (int32_t k = 0; k < instr->n_in && instr->kind == DTP_INSTR_START; k++) {
            const dtp_tensor_id t = p->values[instr->in[k]].tensor;
            if (t >= 0) {
                sent[3 * t + (int32_t)instr->phase] = true;
            }
        }
    }
    return sent;
}

/* What holds whatever was noted. */
static void check_places(const fixture *f)
{
    const dtp_exposed *x = &f->x;
    assert_int_equal(x->n_places, 3 * f->graph->n_tensors);
    assert_true(x->share >= 0.0 && x->share <= 1.0 + 1e-12);
    for (int32_t i = 0; i < x->n_places; i++) {
        assert_true(x->alone_s[i] >= 0.0);
        assert_true(x->alone_s[i] <= x->sent_s[i] * (1.0 + 1e-9));
        assert_true(!x->of_fastest[i] || x->sent_s[i] > 0.0);
    }
}

typedef struct sums {
    double sent_s, alone_s;
} sums;

/* Collectives inside of ops that several ranks run together, of no tensor. */
static sums inside_ops(const dtp_program *p)
{
    sums out = {0};
    dtp_schedule_result r;
    double *alone_s = calloc((size_t)p->n_instrs + 1, sizeof *alone_s);
    assert_non_null(alone_s);
    assert_true(dtp_schedule_program(p, &MACHINE, &r, alone_s));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind == DTP_INSTR_START && p->values[instr->in[0]].tensor < 0) {
            out.sent_s += instr->time_s;
            out.alone_s += alone_s[i];
        }
    }
    free(alone_s);
    return out;
}

/* Collectives on one tensor each: their times add up to those of the program. */
static void test_exposure__adds_up_to_that_of_the_program(void **state)
{
    (void)state;
    static const char *const baselines[] = {"data_parallel", "zero3", "megatron", "data_megatron"};
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    options.overlap.bucket_bytes = 0;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    int32_t partly = 0, with_inside = 0;
    for (size_t k = 0; k < sizeof baselines / sizeof baselines[0]; k++) {
        fixture f = make("gpt_bytes.json", "x:2;y:2");
        program p = lower(&f, baselines[k], &options);
        bool *sent = places_of(&f, p.p);
        note(&f, &p, p.predicted.step_time_s);
        check_places(&f);
        print_message("%s: %g s, %g s sent, share %g\n", baselines[k], p.predicted.step_time_s,
                      p.predicted.comm_s, f.x.share);
        assert_true(p.predicted.comm_s > 0.0);
        assert_true(same(f.x.share, p.predicted.exposed_comm_s / p.predicted.comm_s));
        assert_true(same(f.x.step_s, p.predicted.step_time_s));
        const sums inside = inside_ops(p.p);
        assert_true(same(sum_of(f.x.n_places, f.x.sent_s) + inside.sent_s, p.predicted.comm_s));
        assert_true(
            same(sum_of(f.x.n_places, f.x.alone_s) + inside.alone_s, p.predicted.exposed_comm_s));
        with_inside += inside.sent_s > 0.0 ? 1 : 0;
        for (int32_t i = 0; i < f.x.n_places; i++) {
            assert_true(f.x.of_fastest[i] == sent[i] && sent[i] == (f.x.sent_s[i] > 0.0));
        }
        partly += f.x.share > 0.01 && f.x.share < 0.99 ? 1 : 0;
        free(sent);
        dtp_program_destroy(p.p);
        destroy(&f);
    }
    assert_true(partly > 1 && with_inside > 0 && with_inside < 4);
}

/* Every tensor of a bucket is sent as long as the bucket. */
static void test_exposure__buckets_count_for_all_they_hold(void **state)
{
    (void)state;
    fixture f = make("gpt_bytes.json", "x:2;y:2");
    program p = lower(&f, "data_parallel", NULL);
    int32_t buckets = 0;
    note(&f, &p, p.predicted.step_time_s);
    check_places(&f);
    assert_true(same(f.x.share, p.predicted.exposed_comm_s / p.predicted.comm_s));
    assert_true(sum_of(f.x.n_places, f.x.sent_s) > p.predicted.comm_s * (1.0 + 1e-9));
    for (int32_t i = 0; i < p.p->n_instrs; i++) {
        const dtp_instr *instr = &p.p->instrs[i];
        const bool bucket = instr->kind == DTP_INSTR_START && instr->n_in > 1;
        double alone_s = -1.0;
        for (int32_t k = 0; k < instr->n_in && bucket; k++) {
            const int32_t place = 3 * p.p->values[instr->in[k]].tensor + (int32_t)instr->phase;
            assert_true(same(f.x.sent_s[place], instr->time_s));
            assert_true(alone_s < 0.0 || same(alone_s, f.x.alone_s[place]));
            alone_s = f.x.alone_s[place];
        }
        buckets += bucket ? 1 : 0;
    }
    assert_true(buckets > 0);
    dtp_program_destroy(p.p);
    destroy(&f);
}

/* Nothing is sent: all of it counts as exposed. */
static void test_exposure__share_is_one_where_nothing_is_sent(void **state)
{
    (void)state;
    fixture f = make("mlp_digits.json", "x:4");
    program p = lower(&f, "replicated", NULL);
    assert_true(isinf(f.x.step_s) && same(f.x.share, 1.0));
    note(&f, &p, p.predicted.step_time_s);
    assert_true(same(f.x.share, 1.0) && same(f.x.step_s, p.predicted.step_time_s));
    assert_true(same(sum_of(f.x.n_places, f.x.sent_s), 0.0));
    dtp_program_destroy(p.p);
    destroy(&f);
}

/* ---- several programs ---- */

/* Values of places before and after. */
typedef struct kept {
    double *sent_s, *alone_s;
    bool *of_fastest;
    double share, step_s;
} kept;

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    assert_non_null(to);
    memcpy(to, from, bytes);
    return to;
}

static kept keep(const dtp_exposed *x)
{
    const size_t n = (size_t)x->n_places;
    return (kept){.sent_s = copy_of(x->sent_s, n * sizeof *x->sent_s),
                  .alone_s = copy_of(x->alone_s, n * sizeof *x->alone_s),
                  .of_fastest = copy_of(x->of_fastest, n * sizeof *x->of_fastest),
                  .share = x->share,
                  .step_s = x->step_s};
}

static void drop(kept *k)
{
    free(k->sent_s);
    free(k->alone_s);
    free(k->of_fastest);
}

static bool same_place(const dtp_exposed *x, const double *sent_s, const double *alone_s, int32_t i)
{
    return same(x->sent_s[i], sent_s[i]) && same(x->alone_s[i], alone_s[i]);
}

/* What noting a program that is not the fastest may change, and what it says of its own places. */
static void check_slower(const dtp_exposed *x, const kept *before, const dtp_exposed *alone,
                         const bool *sent)
{
    int32_t changed = 0;
    assert_true(same(x->share, before->share) && same(x->step_s, before->step_s));
    for (int32_t i = 0; i < x->n_places; i++) {
        const bool replaced = sent[i] && !before->of_fastest[i];
        assert_true(x->of_fastest[i] == before->of_fastest[i]);
        assert_true(replaced ? same_place(x, alone->sent_s, alone->alone_s, i)
                             : same_place(x, before->sent_s, before->alone_s, i));
        changed += replaced ? 1 : 0;
    }
    assert_true(changed > 0);
}

/* What noting the fastest one changes. */
static void check_faster(const dtp_exposed *x, const kept *before, const dtp_exposed *alone,
                         const bool *sent)
{
    int32_t left = 0;
    assert_true(same(x->share, alone->share) && same(x->step_s, alone->step_s));
    for (int32_t i = 0; i < x->n_places; i++) {
        assert_true(x->of_fastest[i] == sent[i]);
        assert_true(sent[i] ? same_place(x, alone->sent_s, alone->alone_s, i)
                            : same_place(x, before->sent_s, before->alone_s, i));
        left += !sent[i] && x->sent_s[i] > 0.0 ? 1 : 0;
    }
    assert_true(left > 0);
}

/* Notes a program by itself, and then in f. */
static void note_and_check(fixture *f, const program *p, double step_s)
{
    const kept before = keep(&f->x);
    kept to_drop = before;
    bool *sent = places_of(f, p->p);
    dtp_exposed alone;
    assert_int_equal(dtp_exposed_create(f->graph, f->arena, &alone, NULL), DTP_OK);
    assert_int_equal(dtp_exposed_note(&alone, p->p, &MACHINE, step_s, NULL), DTP_OK);
    note(f, p, step_s);
    check_places(f);
    if (step_s < before.step_s) {
        check_faster(&f->x, &before, &alone, sent);
    } else {
        check_slower(&f->x, &before, &alone, sent);
    }
    free(sent);
    drop(&to_drop);
}

static void test_exposure__places_of_the_fastest_stay(void **state)
{
    (void)state;
    fixture f = make("gpt_bytes.json", "x:2;y:2");
    program data = lower(&f, "data_parallel", NULL), zero = lower(&f, "zero3", NULL);
    program megatron = lower(&f, "megatron", NULL), mixed = lower(&f, "data_megatron", NULL);
    note_and_check(&f, &zero, (double)INFINITY); /* does not fit */
    assert_true(isinf(f.x.step_s) && same(f.x.share, 1.0));
    note_and_check(&f, &data, 3.0);
    note_and_check(&f, &megatron, 4.0);
    note_and_check(&f, &megatron, 2.0);
    note_and_check(&f, &zero, 2.0); /* not faster */
    note_and_check(&f, &mixed, (double)INFINITY);
    note_and_check(&f, &mixed, 1.0);
    dtp_program_destroy(data.p);
    dtp_program_destroy(zero.p);
    dtp_program_destroy(megatron.p);
    dtp_program_destroy(mixed.p);
    destroy(&f);
}

/* ---- prices ---- */

/* The place of what an edge sends; an end of the edge that is a replica is that of the place. */
static int32_t place_at(const dtp_tensor_problem *p, const dtp_sent_tensor *t)
{
    const int32_t ends[] = {p->select->edge_a[t->edge], p->select->edge_b[t->edge]};
    assert_true(t->tensor >= 0 && t->tensor < p->graph->n_tensors);
    for (int i = 0; i < 2; i++) {
        assert_true(p->variables[ends[i]].kind != DTP_DECIDE_REPLICA ||
                    p->variable_of_replica[t->phase][t->tensor] == ends[i]);
    }
    return 3 * t->tensor + (int32_t)t->phase;
}

/* By edge: what is known of its tensors, or else the share of everything. */
static double *parts_of(const dtp_exposed *x, const dtp_tensor_problem *p)
{
    double *part = calloc((size_t)p->select->n_edges + 1, sizeof *part);
    assert_non_null(part);
    for (int32_t e = 0; e < p->select->n_edges; e++) {
        double sent_s = 0.0, alone_s = 0.0;
        for (int32_t i = 0; i < p->n_sent; i++) {
            if (p->sent[i].edge == e) {
                sent_s += x->sent_s[place_at(p, &p->sent[i])];
                alone_s += x->alone_s[place_at(p, &p->sent[i])];
            }
        }
        part[e] = sent_s > 0.0 ? alone_s / sent_s : x->share;
    }
    return part;
}

/* Edges of a tied problem: 0.7 of the share of everything, 0.3 of that of their tensors. The
 * problem stays as it is. */
static void check_scaled(const dtp_tensor_problem *p, const dtp_overlay *overlay, const fixture *f,
                         const double *part, const int64_t *full)
{
    const dtp_problem *s = p->select;
    int64_t forbidden = 0, scaled = 0;
    for (int32_t e = 0; e < s->n_edges; e++) {
        const double own = 0.7 * f->x.share + 0.3 * part[e];
        const int64_t *scaled_cost = overlay->problem.edge_cost + overlay->problem.edge_first[e];
        for (int64_t k = s->edge_first[e]; k < dtp_problem_edge_end(s, e); k++) {
            const double expected = own * (double)full[k];
            const int64_t cost = scaled_cost[k - s->edge_first[e]];
            assert_true(s->edge_cost[k] == full[k]);
            if (full[k] >= DTP_FORBIDDEN) {
                assert_true(cost == full[k]);
                forbidden++;
                continue;
            }
            assert_true(cost >= 0 && cost <= full[k]);
            assert_true((double)cost <= expected * (1.0 + 1e-12) + 1e-6);
            assert_true((double)cost >= expected * (1.0 - 1e-12) - 1.0 - 1e-6);
            scaled += full[k] > 0 ? 1 : 0;
        }
    }
    assert_true(forbidden > 0 && scaled > 0);
}

static void test_exposure__edges_are_scaled_to_their_exposed_part(void **state)
{
    (void)state;
    fixture f = make("gpt_bytes.json", "x:2;y:2");
    program data = lower(&f, "data_parallel", NULL), mixed = lower(&f, "data_megatron", NULL);
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_tensor_problem *p = NULL;
    dtp_overlay overlay;
    options.runs = 1;
    assert_int_equal(dtp_tensor_problem_create(f.graph, &f.pricer, &options, &p, NULL), DTP_OK);
    const dtp_problem *s = p->select;
    int64_t *full = copy_of(s->edge_cost, (size_t)s->n_stored * sizeof *s->edge_cost);
    note(&f, &data, data.predicted.step_time_s);
    note(&f, &mixed, mixed.predicted.step_time_s);
    double *part = parts_of(&f.x, p);
    int32_t own = 0;
    for (int32_t e = 0; e < s->n_edges; e++) {
        own += same(part[e], f.x.share) ? 0 : 1;
    }
    print_message("%d edges, %d with parts of their own, share %g\n", s->n_edges, own, f.x.share);
    assert_true(p->n_sent > s->n_edges && s->n_stored < dtp_problem_n_entries(s) && own > 0 &&
                own < s->n_edges);
    dtp_overlay_init(s, &overlay);
    for (int round = 0; round < 2; round++) { /* the second one starts from the problem again */
        assert_int_equal(dtp_exposed_scale(&f.x, p, &overlay, NULL), DTP_OK);
        check_scaled(p, &overlay, &f, part, full);
    }
    dtp_overlay_free(&overlay);
    free(part);
    free(full);
    dtp_tensor_problem_destroy(p);
    dtp_program_destroy(data.p);
    dtp_program_destroy(mixed.p);
    destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposed__nothing_is_hidden_without_asynchronous_collectives),
        cmocka_unit_test(test_exposure__adds_up_to_that_of_the_program),
        cmocka_unit_test(test_exposure__buckets_count_for_all_they_hold),
        cmocka_unit_test(test_exposure__share_is_one_where_nothing_is_sent),
        cmocka_unit_test(test_exposure__places_of_the_fastest_stay),
        cmocka_unit_test(test_exposure__edges_are_scaled_to_their_exposed_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
