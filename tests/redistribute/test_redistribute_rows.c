/* The rows of PyTorch's own redistribution tests: how many collectives of each kind, as PyTorch
 * plans and as we do, and the right data from both on virtual ranks. Where the counts differ, the
 * row says why; ours are never more. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/torch_cost.h"
#include "core/graph/ops/op_table.h"
#include "executor/verify/redistribute_check.h"
#include "spmd/redistribute/steps.h"
#include "interop/layout_forms.h"
#include "tests/support/torch_price.h"

/* All-reduce, all-gather, reduce-scatter, all-to-all. */
typedef struct counts {
    int32_t of[DTP_N_COLLS];
} counts;

#define AR(n)                                                                                      \
    {                                                                                              \
        {                                                                                          \
            [DTP_ALL_REDUCE] = (n)                                                                 \
        }                                                                                          \
    }
#define AG(n)                                                                                      \
    {                                                                                              \
        {                                                                                          \
            [DTP_ALL_GATHER] = (n)                                                                 \
        }                                                                                          \
    }
#define RS(n)                                                                                      \
    {                                                                                              \
        {                                                                                          \
            [DTP_REDUCE_SCATTER] = (n)                                                             \
        }                                                                                          \
    }
#define A2A(n)                                                                                     \
    {                                                                                              \
        {                                                                                          \
            [DTP_ALL_TO_ALL] = (n)                                                                 \
        }                                                                                          \
    }
#define NONE                                                                                       \
    {                                                                                              \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

typedef struct row {
    const char *id, *mesh;
    int32_t rank;
    int64_t sizes[3];
    const char *from, *to;
    const char *flat; /* declared flattened mesh dims, "ab,ac" */
    counts torch, ours;
    const char *why; /* the counts differ */
    int32_t warnings;
    bool no_merge, no_all_to_all;
} row;

static const char ON_DEMAND[] = "groups over several mesh dims need no declaration";
static const char SEARCHED[] = "the cheapest way is searched, not the first";

static const row ROWS[] = {
    {"R1", "a:4", 2, {12, 3}, "S0", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R1", "a:4", 2, {13, 3}, "S0", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R1", "a:4", 2, {14, 3}, "S0", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R1", "a:4", 2, {3, 12}, "S1", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R1", "a:4", 2, {3, 13}, "S1", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R1", "a:4", 2, {3, 14}, "S1", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R2", "a:4", 2, {12, 3}, "R", "R", "", .torch = NONE, .ours = NONE},
    {"R3", "a:4", 2, {12, 3}, "R", "S0", "", .torch = NONE, .ours = NONE},
    {"R3", "a:4", 2, {13, 3}, "R", "S0", "", .torch = NONE, .ours = NONE},
    {"R3", "a:4", 2, {14, 3}, "R", "S0", "", .torch = NONE, .ours = NONE},
    {"R3", "a:4", 2, {3, 12}, "R", "S1", "", .torch = NONE, .ours = NONE},
    {"R3", "a:4", 2, {3, 13}, "R", "S1", "", .torch = NONE, .ours = NONE},
    {"R3", "a:4", 2, {3, 14}, "R", "S1", "", .torch = NONE, .ours = NONE},
    {"R4", "a:4", 2, {12, 3}, "P", "R", "", .torch = AR(1), .ours = AR(1)},
    {"R5", "a:4", 2, {12, 3}, "P", "S0", "", .torch = RS(1), .ours = RS(1)},
    {"R5", "a:4", 2, {13, 3}, "P", "S0", "", .torch = RS(1), .ours = RS(1)},
    {"R5", "a:4", 2, {14, 3}, "P", "S0", "", .torch = RS(1), .ours = RS(1)},
    {"R5", "a:4", 2, {3, 12}, "P", "S1", "", .torch = RS(1), .ours = RS(1)},
    {"R5", "a:4", 2, {3, 13}, "P", "S1", "", .torch = RS(1), .ours = RS(1)},
    {"R5", "a:4", 2, {3, 14}, "P", "S1", "", .torch = RS(1), .ours = RS(1)},
    {"R6", "a:4", 2, {12, 3}, "P", "P", "", .torch = NONE, .ours = NONE},
    {"R7", "a:4", 2, {12, 3}, "R", "P", "", .torch = NONE, .ours = NONE},
    {"R7", "a:2;b:2", 2, {12, 3}, "R,R", "P,P", "", .torch = NONE, .ours = NONE},
    {"R8", "a:4", 2, {12, 3}, "R", "P(avg)", "", .torch = NONE, .ours = NONE},
    {"R8", "a:4", 2, {12, 3}, "R", "P(min)", "", .torch = NONE, .ours = NONE},
    {"R8", "a:4", 2, {12, 3}, "R", "P(max)", "", .torch = NONE, .ours = NONE},
    {"R9", "a:4", 2, {8, 8}, "S0", "S1", "", .torch = A2A(1), .ours = A2A(1)},
    {"R9", "a:4", 3, {8, 8, 8}, "S0", "S1", "", .torch = A2A(1), .ours = A2A(1)},
    {"R9", "a:4", 2, {8, 5}, "S0", "S1", "", .torch = A2A(1), .ours = A2A(1)},
    {"R9", "a:4", 2, {5, 8}, "S1", "S0", "", .torch = A2A(1), .ours = A2A(1)},
    {"R9", "a:4", 2, {5, 5}, "S1", "S0", "", .torch = A2A(1), .ours = A2A(1)},
    {"R9",
     "a:4",
     2,
     {8, 8},
     "S0",
     "S1",
     "",
     .torch = AG(1),
     .ours = A2A(1),
     .why = "all-to-all is always there",
     .no_all_to_all = true},
    {"R9",
     "a:4",
     2,
     {5, 5},
     "S1",
     "S0",
     "",
     .torch = AG(1),
     .ours = A2A(1),
     .why = "all-to-all is always there",
     .no_all_to_all = true},
    {"R10", "a:2;b:2", 2, {8, 8}, "S0,S1", "S0,S0", "", .torch = A2A(1), .ours = A2A(1)},
    {"R10",
     "a:2;b:2",
     2,
     {8, 8},
     "S0,S1",
     "S1,S0",
     "",
     .torch = {{0, 1, 0, 1}},
     .ours = {{0, 1, 0, 1}}},
    {"R10",
     "a:2;b:2",
     2,
     {8, 8},
     "S0,S0",
     "S1,S1",
     "",
     .torch = {{0, 1, 0, 1}},
     .ours = A2A(1),
     .why = ON_DEMAND},
    {"R10",
     "a:2;b:2",
     3,
     {8, 8, 8},
     "S0,S2",
     "S1,S0",
     "",
     .torch = {{0, 1, 0, 1}},
     .ours = A2A(2),
     .why = SEARCHED},
    {"R10", "a:2;b:2", 3, {8, 8, 8}, "S1,S1", "S1,S2", "", .torch = A2A(1), .ours = A2A(1)},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,S1", "S0,S0", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,S1", "S0,S1", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,S1", "S0,R", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,R", "S0,S0", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,R", "S0,S1", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,R", "S0,R", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,P", "S0,S0", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,P", "S0,S1", "", .torch = NONE, .ours = NONE},
    {"R12", "a:4;b:1", 2, {16, 8}, "S0,P", "S0,R", "", .torch = NONE, .ours = NONE},
    {"R13", "a:4", 2, {2, 8}, "S0", "R", "", .torch = AG(1), .ours = AG(1)},
    {"R13", "a:4", 2, {2, 8}, "S0", "S1", "", .torch = A2A(1), .ours = A2A(1)},
    {"F1", "a:4;b:2", 2, {16, 8}, "P,P", "R,R", "ab", .torch = AR(1), .ours = AR(1)},
    {"F1", "a:4;b:2", 2, {16, 8}, "P,P", "S0,S0", "ab", .torch = RS(1), .ours = RS(1)},
    {"F1", "a:4;b:2", 2, {16, 8}, "P,P", "S0,S1", "ab", .torch = RS(2), .ours = RS(2)},
    {"F1", "a:4;b:2", 2, {16, 8}, "S0,S0", "R,R", "ab", .torch = AG(1), .ours = AG(1)},
    {"F1", "a:4;b:2", 2, {16, 8}, "S0,S1", "R,R", "ab", .torch = AG(2), .ours = AG(2)},
    {"F2", "a:2;b:2;c:2", 2, {16, 8}, "P,P,P", "R,R,R", "ab,ac,abc", .torch = AR(1), .ours = AR(1)},
    {"F3",
     "a:2;b:2;c:2",
     2,
     {16, 8},
     "P,P,S0",
     "S0,S0,S0",
     "ab,ac,abc",
     .torch = {{1, 1, 1, 0}},
     .ours = {{0, 1, 1, 0}},
     .why = SEARCHED},
    {"F4",
     "a:2;b:2;c:2",
     2,
     {16, 8},
     "P,S0,P",
     "R,R,R",
     "ab,ac,abc",
     .torch = {{2, 1, 0, 0}},
     .ours = {{1, 1, 0, 0}},
     .why = SEARCHED},
    {"F5", "a:2;b:2;c:2", 2, {16, 8}, "P,R,P", "R,R,R", "ab,ac,abc", .torch = AR(1), .ours = AR(1)},
    {"F7",
     "a:2;b:2;c:2",
     2,
     {16, 8},
     "P,R,P",
     "R,R,R",
     "",
     .torch = AR(2),
     .ours = AR(1),
     .why = ON_DEMAND,
     .warnings = 1},
    {"F8",
     "a:2;b:2;c:2",
     1,
     {16},
     "P(avg),P(avg),P",
     "R,R,R",
     "abc",
     .torch = AR(1),
     .ours = AR(1)},
    {"F8",
     "a:2;b:2;c:2",
     1,
     {16},
     "P(avg),P(avg),P",
     "S0,S0,S0",
     "abc",
     .torch = RS(1),
     .ours = RS(1)},
    {"F9", "a:2;b:3", 1, {10}, "P,P", "S0,S0", "ab", .torch = RS(2), .ours = RS(2), .warnings = 1},
    {"F15",
     "a:4;b:2",
     2,
     {16, 8},
     "P,P",
     "R,R",
     "ab",
     .torch = AR(2),
     .ours = AR(1),
     .why = ON_DEMAND,
     .no_merge = true},
    /* JAX issue 21562: the tensor must not become whole on the way. */
    {"X9",
     "a:4;b:2",
     3,
     {16, 16, 16},
     "S2,S0",
     "S1,S1",
     "",
     .torch = {{0, 1, 0, 1}},
     .ours = A2A(2),
     .why = SEARCHED},
};

typedef struct fixture {
    dtp_graph *graph;
    dtp_mesh mesh;
    dtp_ttype type;
} fixture;

static fixture setup(const char *mesh, int32_t rank, const int64_t *sizes)
{
    static const char *const names[] = {"i", "j", "k"};
    fixture f = {.type = {.dtype = DTP_F32, .rank = rank}};
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &f.graph, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse(mesh, &f.mesh, NULL), DTP_OK);
    for (int32_t i = 0; i < rank; i++) {
        f.type.dims[i].size = sizes[i];
        assert_int_equal(
            dtp_dims_intern(&f.graph->dims, names[i], sizes[i], &f.type.dims[i].id, NULL), DTP_OK);
    }
    return f;
}

static dtp_layout layout_of(const fixture *f, const char *text)
{
    dtp_layout layout;
    dtp_err err = {0};
    if (dtp_layout_parse_any(text, &f->mesh, &f->type, &f->graph->dims, &layout, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return layout;
}

static counts count(const fixture *f, const dtp_steps *steps)
{
    counts c = NONE;
    for (int32_t i = 0; i < steps->n; i++) {
        const dtp_step *s = &steps->steps[i];
        dtp_coll_kind kind;
        if (dtp_step_collective(s->kind, &kind) && dtp_mesh_set_size(&f->mesh, s->set) > 1) {
            c.of[kind]++;
        }
    }
    return c;
}

static int32_t total(const counts *c)
{
    return c->of[0] + c->of[1] + c->of[2] + c->of[3];
}

static void add_flat(const char *text, dtp_torch_options *o)
{
    for (; *text != '\0'; text += *text == ',') {
        dtp_mesh_set set = 0;
        for (; *text != '\0' && *text != ','; text++) {
            set |= 1U << (*text - 'a');
        }
        o->flat[o->n_flat++] = set;
    }
}

static void count_warning(void *user, const dtp_mesh *mesh, dtp_mesh_set set, const char *why)
{
    assert_true(set != 0 && set < 1U << mesh->n_dims && why[0] != '\0');
    ++*(int32_t *)user;
}

/* Plans and runs one way; returns the counts. */
static counts run(const fixture *f, const dtp_redistributor *r, const char *from_text,
                  const char *to_text)
{
    dtp_steps steps = {0};
    dtp_err err = {0};
    dtp_redistribute_job job = {0};
    dtp_redistribute_verdict verdict = {0};
    dtp_layout from = layout_of(f, from_text), to = layout_of(f, to_text);
    if (dtp_redistribute_by(r, &f->mesh, &f->type, &from, &to, &steps, &err) != DTP_OK ||
        dtp_redistribute_program(f->graph, &f->mesh, &dtp_target_cpu, &f->type, &from, &steps, &job,
                                 &err) != DTP_OK ||
        dtp_redistribute_check(&job, "cpu", 3, &verdict, &err) != DTP_OK) {
        fail_msg("(%s) to (%s): %s", from_text, to_text, err.msg);
    }
    assert_int_equal(verdict.wrong, 0);
    assert_true(verdict.checked >= dtp_ttype_elems(&f->type));
    dtp_redistribute_job_free(&job);
    return count(f, &steps);
}

static void expect(const row *r, const char *who, const counts *got, const counts *want)
{
    if (memcmp(got, want, sizeof *got) != 0) {
        fail_msg("%s (%s) to (%s), %s: %d all-reduce, %d all-gather, %d reduce-scatter, %d "
                 "all-to-all; expected %d, %d, %d, %d",
                 r->id, r->from, r->to, who, got->of[0], got->of[1], got->of[2], got->of[3],
                 want->of[0], want->of[1], want->of[2], want->of[3]);
    }
}

static void check_row(const row *r)
{
    int32_t warnings = 0;
    fixture f = setup(r->mesh, r->rank, r->sizes);
    dtp_torch_planner torch = {.options = {.no_merge = r->no_merge,
                                           .no_all_to_all = r->no_all_to_all,
                                           .price = dtp_torch_step_price,
                                           .warn = count_warning,
                                           .warn_user = &warnings}};
    add_flat(r->flat, &torch.options);
    dtp_redistributor planner = dtp_torch_redistributor(&torch);
    counts theirs = run(&f, &planner, r->from, r->to);
    assert_int_equal(warnings, r->warnings);
    (void)run(&f, &planner, r->from, r->to);
    assert_int_equal(warnings, r->warnings); /* each set of mesh dims once */
    counts ours = run(&f, dtp_redistributor_generic(), r->from, r->to);
    expect(r, "torch", &theirs, &r->torch);
    expect(r, "ours", &ours, &r->ours);
    assert_true(total(&ours) <= total(&theirs));
    assert_int_equal(r->why != NULL, memcmp(&ours, &theirs, sizeof ours) != 0);
    dtp_graph_destroy(f.graph);
}

static void test_redistribute_rows__counts_and_data(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        check_row(&ROWS[i]);
    }
}

/* R15: every source in {R, S0, S1, P}^2 to every target in {R, S0, S1}^2 on a 4x2 mesh. */
static void test_redistribute_rows__all_two_dim_pairs(void **state)
{
    (void)state;
    static const char *const places[] = {"R", "S0", "S1", "P"};
    static const int64_t sizes[] = {16, 24};
    fixture f = setup("a:4;b:2", 2, sizes);
    dtp_torch_planner torch = {.options = {.price = dtp_torch_step_price}};
    dtp_redistributor planner = dtp_torch_redistributor(&torch);
    for (int32_t i = 0; i < 144; i++) {
        char from[8], to[8];
        (void)snprintf(from, sizeof from, "%s,%s", places[i / 9 / 4], places[i / 9 % 4]);
        (void)snprintf(to, sizeof to, "%s,%s", places[i % 9 / 3], places[i % 9 % 3]);
        counts theirs = run(&f, &planner, from, to),
               ours = run(&f, dtp_redistributor_generic(), from, to);
        if (total(&ours) > total(&theirs)) {
            fail_msg("(%s) to (%s): %d collectives, torch %d", from, to, total(&ours),
                     total(&theirs));
        }
    }
    dtp_graph_destroy(f.graph);
}

static void test_redistribute_rows__refusals_and_forms(void **state)
{
    (void)state;
    static const int64_t sizes[] = {12, 3};
    fixture f = setup("a:4", 2, sizes);
    dtp_torch_planner torch = {.options = {0}};
    dtp_redistributor planner = dtp_torch_redistributor(&torch);
    dtp_layout sum = layout_of(&f, "P(sum)"), avg = layout_of(&f, "P(avg)");
    dtp_steps steps = {0};
    dtp_err err = {0};
    assert_int_equal(dtp_redistribute_by(&planner, &f.mesh, &f.type, &sum, &avg, &steps, &err),
                     DTP_UNSUPPORTED); /* R17 */
    assert_int_equal(dtp_redistribute_by(dtp_redistributor_generic(), &f.mesh, &f.type, &sum, &avg,
                                         &steps, &err),
                     DTP_UNSUPPORTED);
    dtp_layout last = layout_of(&f, "S(-1)"), second = layout_of(&f, "S1"); /* R18 */
    assert_true(dtp_layout_equal(&last, &second));
    dtp_graph_destroy(f.graph);
}

/* ---- merging alone ---- */

static counts merged(const fixture *f, const char *flat, const char *from_text, int32_t n,
                     const int32_t *mesh_dims)
{
    const dtp_placement partial = {.kind = DTP_PARTIAL}, shard = {.kind = DTP_SHARD};
    dtp_torch_planner torch = {.options = {0}};
    dtp_torch_transform transforms[3];
    dtp_layout from = layout_of(f, from_text);
    dtp_steps steps = {0};
    add_flat(flat, &torch.options);
    for (int32_t i = 0; i < n; i++) {
        transforms[i] = (dtp_torch_transform){mesh_dims[i], partial, shard};
    }
    assert_int_equal(
        dtp_torch_steps(&torch, &f->mesh, &f->type, &from, n, transforms, &steps, NULL), DTP_OK);
    return count(f, &steps);
}

static void test_redistribute_rows__merged_reduce_scatters(void **state)
{
    (void)state;
    static const int64_t eight[] = {8}, many[] = {24}, sixteen[] = {16};
    static const int32_t outer_inner[] = {0, 2}, two[] = {1, 2}, reversed[] = {1, 0};
    fixture f = setup("a:2;b:4;c:1", 1, eight); /* F10 */
    counts c = merged(&f, "ac", "P,S0,P", 2, outer_inner);
    assert_int_equal(c.of[DTP_REDUCE_SCATTER], 1);
    dtp_graph_destroy(f.graph);
    f = setup("a:2;b:2;c:2", 1, many);
    c = merged(&f, "bc", "S0,P,P", 2, two);
    assert_int_equal(c.of[DTP_REDUCE_SCATTER], 1);
    c = merged(&f, "ab", "S0,P,P", 2, two);
    assert_int_equal(c.of[DTP_REDUCE_SCATTER], 2);
    dtp_graph_destroy(f.graph);
    f = setup("a:2;b:4", 1, sixteen); /* F11 */
    c = merged(&f, "ab", "P,P", 2, reversed);
    assert_int_equal(c.of[DTP_REDUCE_SCATTER], 2);
    dtp_graph_destroy(f.graph);
}

/* F10 as a whole: the search of least cost scatters twice in a row, the greedy way does not. */
static void test_redistribute_rows__least_cost_merges_more(void **state)
{
    (void)state;
    static const int64_t sizes[] = {24};
    fixture f = setup("a:2;b:2;c:2", 1, sizes);
    dtp_torch_planner torch = {
        .options = {.min_cost = true, .price = dtp_torch_step_price, .n_flat = 1, .flat = {6}}};
    dtp_redistributor planner = dtp_torch_redistributor(&torch);
    counts c = run(&f, &planner, "S0,P,P", "S0,S0,S0");
    assert_int_equal(c.of[DTP_REDUCE_SCATTER], 1);
    assert_int_equal(total(&c), 1);
    dtp_graph_destroy(f.graph);
}

/* ---- prices ---- */

typedef struct price_row {
    const char *mesh;
    int64_t sizes[2];
    const char *from, *to;
    double us, tolerance;
} price_row;

static const price_row PRICES[] = {
    {"a:2", {8, 4}, "S0", "R", 7.2006796424717825, 1e-12},
    {"a:4", {10, 10}, "S0", "R", 8.403185824086483, 1e-12},
    {"a:4", {10, 10}, "P", "S0", 8.403185824086483, 1e-12},
    {"a:4", {10, 10}, "P", "R", 10.206371648172967, 1e-12},
    {"a:4", {10, 10}, "S0", "S1", 9.40079645602162, 1e-12},
    {"a:2;b:2", {8, 8}, "S0,S0", "R,R", 14.402038927415347, 1e-12},
    {"a:2;b:2", {8, 8}, "P,P", "S0,S0", 14.402038927415347, 1e-12},
    {"a:2;b:2", {8, 8}, "P,P", "R,R", 15.605437139774265, 1e-12},
    {"a:2;b:2", {8, 8}, "S0,S0", "R,S0", 14.402038927415347, 1e-12},
    {"a:2;b:2", {8, 8}, "S0,S0", "S0,R", 7.2006796424717825, 1e-12},
    {"a:8", {4096, 4096}, "S0", "R", 634.3747, 1e-7},
    {"a:8", {4096, 4096}, "P", "S0", 634.3747, 1e-7},
    {"a:8", {4096, 4096}, "P", "R", 1262.1494, 1e-7},
    {"a:8", {4096, 4096}, "S0", "S1", 89.7468, 1e-6},
    {"a:8", {4096, 4096}, "R", "S0", 0, 0},
    {"a:8", {4096, 4096}, "R", "P", 0, 0},
    /* across hosts: n = 16, a = 2.7, b = 19.294; 64 MiB = 1/16 GiB */
    {"a:16", {4096, 4096}, "S0", "R", 6.6 + 15 * 2.7 + 1e6 / 16 * 15 / 16 / 19.294, 1e-12},
};

static void test_torch_price__known_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof PRICES / sizeof PRICES[0]; i++) {
        const price_row *p = &PRICES[i];
        fixture f = setup(p->mesh, 2, p->sizes);
        dtp_layout from = layout_of(&f, p->from), to = layout_of(&f, p->to);
        double us = 1e6 * torch_price(NULL, false, &f.mesh, &f.type, &from, &to);
        if (!(fabs(us - p->us) <= p->tolerance * p->us)) {
            fail_msg("%s (%s) to (%s): %.17g us, expected %.17g", p->mesh, p->from, p->to, us,
                     p->us);
        }
        dtp_graph_destroy(f.graph);
    }
}

static void test_torch_price__shards_never_become_partial(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 8};
    fixture f = setup("a:4", 2, sizes);
    dtp_layout from = layout_of(&f, "S0"), to = layout_of(&f, "P");
    assert_true(isinf(torch_price(NULL, false, &f.mesh, &f.type, &from, &to)));
    dtp_graph_destroy(f.graph);
}

/* M4: (8,8) S0 times (8,32) S0 on two ranks ends in one all-gather. Gathering the second operand is
 * cheaper than an all-to-all of the first, although it moves more, and the search of least cost
 * replaces that all-to-all by a gather. */
static void test_torch_price__gathering_beats_moving_small_shards(void **state)
{
    (void)state;
    static const int64_t small[] = {8, 8}, large[] = {8, 32};
    fixture a = setup("a:2", 2, small), b = setup("a:2", 2, large);
    dtp_layout rows = layout_of(&a, "S0"), columns = layout_of(&a, "S1"), all = layout_of(&a, "R");
    double moves = torch_price(NULL, false, &a.mesh, &a.type, &rows, &columns);
    double gathers = torch_price(NULL, false, &b.mesh, &b.type, &rows, &all);
    assert_true(gathers < moves);
    dtp_torch_planner torch = {.options = {.min_cost = true, .price = dtp_torch_step_price}};
    dtp_redistributor planner = dtp_torch_redistributor(&torch);
    counts c = run(&a, &planner, "S0", "S1");
    assert_int_equal(c.of[DTP_ALL_GATHER], 1);
    assert_int_equal(total(&c), 1);
    dtp_graph_destroy(a.graph);
    dtp_graph_destroy(b.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute_rows__counts_and_data),
        cmocka_unit_test(test_redistribute_rows__all_two_dim_pairs),
        cmocka_unit_test(test_redistribute_rows__refusals_and_forms),
        cmocka_unit_test(test_redistribute_rows__merged_reduce_scatters),
        cmocka_unit_test(test_redistribute_rows__least_cost_merges_more),
        cmocka_unit_test(test_torch_price__known_values),
        cmocka_unit_test(test_torch_price__shards_never_become_partial),
        cmocka_unit_test(test_torch_price__gathering_beats_moving_small_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
