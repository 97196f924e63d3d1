/* Programs whose updates are joined against the same programs without: order, memory, prices; and
 * what the check refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/node_price.h"
#include "cost_models/price.h"
#include "spmd/lower/overlap.h"
#include "spmd/program/program.h"
#include "tests/support/job_suite.h"
#include "tests/support/small_models.h"

enum { MOST = 7 }; /* updates of a launch */

static void must(dtp_status s, const dtp_err *err)
{
    if (s != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

static dtp_target joining(void)
{
    dtp_target t = dtp_target_cpu;
    t.join = MOST;
    return t;
}

static bool is_update(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_UPDATE) != 0;
}

/* Launches that the updates need: of every run of them, as few as MOST allows. */
static int32_t launches_of(const dtp_program *p)
{
    int32_t n = 0, run = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        run = is_update(&p->instrs[i]) ? run + 1 : 0;
        n += run % MOST == 1 ? 1 : 0;
    }
    return n;
}

static int32_t count(const dtp_program *p, bool joined)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += is_update(&p->instrs[i]) && p->instrs[i].joined == joined ? 1 : 0;
    }
    return n;
}

static double sum_of(const dtp_pricer *pricer, const dtp_program *p)
{
    double sum = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        sum += dtp_price_instr(pricer, p, &p->instrs[i]);
    }
    return sum;
}

static const struct {
    const char *model, *mesh, *rules;
} ROWS[] = {{"mlp_digits", "x:1", ""},
            {"gpt_bytes", "x:2", "batch:x"},
            {"gpt_bytes", "x:2;y:2", "batch:x heads:y"},
            {"llama3_8b", "x:2", "batch:x"}};

/* Every order has its launches. Each of them is paid once; memory is what it was. */
static void test_join__a_launch_is_paid_once(void **state)
{
    (void)state;
    const dtp_target join = joining();
    dtp_err err = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        small_pricer prices = small_pricer_read("a100_8", ROWS[i].mesh);
        dtp_graph *g = small_model_read(small_model_find(ROWS[i].model), false);
        job_program p[2];
        for (int32_t k = 0; k < 2; k++) {
            must(job_lower(g, ROWS[i].mesh, ROWS[i].rules, k == 0 ? &dtp_target_cpu : &join, &p[k],
                           &err),
                 &err);
        }
        for (int32_t depth = 0; depth <= 4; depth += 2) {
            const dtp_overlap overlap = {.depth = depth};
            dtp_program *alone = p[0].program, *with = p[1].program;
            must(dtp_program_overlap(alone, &overlap, false, &err), &err);
            must(dtp_program_overlap(with, &overlap, false, &err), &err);
            must(dtp_program_check(with, &err), &err);
            const int32_t joined = count(with, true);
            assert_int_equal(count(alone, true), 0);
            assert_int_equal(count(alone, false), joined + count(with, false));
            assert_int_equal(count(with, false), launches_of(with));
            assert_true(joined > 0 && alone->peak_bytes == with->peak_bytes);
            const double saved_s = sum_of(&prices.pricer, alone) - sum_of(&prices.pricer, with);
            assert_true(fabs(saved_s - joined * prices.machine->launch_s) < 1e-6 * saved_s);
            assert_true(dtp_program_hash(alone) != dtp_program_hash(with));
        }
        job_program_free(&p[0]);
        job_program_free(&p[1]);
        dtp_graph_destroy(g);
        small_pricer_free(&prices);
    }
}

/* The planner's price of an update is that without a launch. */
/* Node by node updates have launches of their own, as in the plain program; for bounds of joined
 * programs they share them. */
static void test_join__nodes_are_priced_as_joined_for_bounds(void **state)
{
    (void)state;
    const dtp_target join = joining(), *const targets[3] = {&join, &join, &dtp_target_cpu};
    small_pricer prices = small_pricer_read("a100_8", "x:1");
    dtp_graph *g = small_model_read(small_model_find("mlp_digits"), false);
    int32_t updates = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const dtp_strategy strategy = {0};
        dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
        dtp_node_price price[3];
        dtp_err err = {0};
        for (int32_t i = 0; i < node->n_in; i++) {
            in[i] = dtp_layout_replicated(g->tensors[node->in[i]].type.rank, 1);
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            out[i] = dtp_layout_replicated(g->tensors[node->out[i]].type.rank, 1);
        }
        for (int32_t k = 0; k < 3; k++) {
            dtp_node_pricer *np;
            dtp_pricer pricer = prices.pricer;
            pricer.target = targets[k];
            must(dtp_node_pricer_create(g, &pricer, dtp_redistributor_generic(), &np, &err), &err);
            if (k == 1) {
                dtp_node_pricer_join(np);
            }
            must(dtp_node_pricer_price(np, n, &strategy, in, out, &price[k], &err), &err);
            dtp_node_pricer_destroy(np);
        }
        const bool update = (node->op->flags & DTP_OP_UPDATE) != 0;
        const int64_t launch = update ? dtp_picoseconds(prices.machine->launch_s) : 0;
        assert_true(llabs(price[0].cost_ps - price[1].cost_ps - launch) <= 1);
        assert_int_equal(price[2].cost_ps, price[0].cost_ps);
        updates += update ? 1 : 0;
    }
    assert_true(updates > 0);
    dtp_graph_destroy(g);
    small_pricer_free(&prices);
}

/* ---- what cannot be joined ---- */

/* A joined update of a parameter of the same type as the one before it. */
static dtp_instr *find_twins(const dtp_program *p)
{
    for (int32_t i = 1; i < p->n_instrs; i++) {
        const dtp_instr *a = &p->instrs[i - 1], *b = &p->instrs[i];
        if (b->joined && dtp_ttype_equal(&p->values[a->in[0]].type, &p->values[b->in[0]].type)) {
            return &p->instrs[i];
        }
    }
    fail_msg("no updates of one type");
    return NULL;
}

/* The update takes for its gradient what the one before it writes. */
static void depend(dtp_program *p)
{
    dtp_instr *instr = find_twins(p);
    dtp_value_id *ids = dtp_arena_alloc(p->arena, (size_t)instr->n_in, sizeof *ids);
    memcpy(ids, instr->in, (size_t)instr->n_in * sizeof *ids);
    ids[1] = instr[-1].out[0];
    instr->in = ids;
}

/* The update before it does. */
static void overtake(dtp_program *p)
{
    dtp_instr *instr = &find_twins(p)[-1];
    dtp_value_id *ids = dtp_arena_alloc(p->arena, (size_t)instr->n_in, sizeof *ids);
    memcpy(ids, instr->in, (size_t)instr->n_in * sizeof *ids);
    ids[1] = instr[1].in[0];
    instr->in = ids;
}

static void join_first_update(dtp_program *p)
{
    int32_t i = 0;
    while (!is_update(&p->instrs[i])) {
        i++;
    }
    p->instrs[i].joined = true;
}

static void join_first_kernel(dtp_program *p)
{
    p->instrs[0].joined = true;
}

static void join_all(dtp_program *p)
{
    for (int32_t i = 1; i < p->n_instrs; i++) {
        p->instrs[i].joined = is_update(&p->instrs[i]) && is_update(&p->instrs[i - 1]);
    }
}

static void test_join__the_check_refuses_what_cannot_be(void **state)
{
    (void)state;
    static const struct {
        void (*damage)(dtp_program *);
        const char *says;
    } cases[] = {{depend, "of the same launch"},
                 {overtake, "of the same launch"},
                 {join_first_update, "cannot run in the launch before it"},
                 {join_first_kernel, "cannot run in the launch before it"},
                 {join_all, "cannot run in the launch before it"}};
    const dtp_target join = joining();
    dtp_graph *g = small_model_read(small_model_find("gpt_bytes"), false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        job_program p;
        dtp_err err = {0};
        must(job_lower(g, "x:1", "", &join, &p, &err), &err);
        cases[i].damage(p.program);
        assert_int_equal(dtp_program_check(p.program, &err), DTP_INTERNAL);
        if (strstr(err.msg, cases[i].says) == NULL) {
            fail_msg("case %zu: %s", i, err.msg);
        }
        /* The pass does not do so. */
        must(dtp_program_overlap(p.program, &p.program->overlap, false, &err), &err);
        assert_true(dtp_program_check(p.program, &err) == DTP_OK ||
                    strstr(err.msg, cases[i].says) == NULL);
        job_program_free(&p);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join__a_launch_is_paid_once),
        cmocka_unit_test(test_join__nodes_are_priced_as_joined_for_bounds),
        cmocka_unit_test(test_join__the_check_refuses_what_cannot_be),
    };
    return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
