/* A target without strided collectives: what is strided on another target is packed, gives the same
 * values, and is in the price and in the memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/price.h"
#include "executor/run/runner.h"
#include "executor/verify/redistribute_check.h"
#include "spmd/lower/overlap.h"
#include "spmd/lower/redistribute_program.h"
#include "tests/support/job_suite.h"
#include "tests/support/layout_list.h"
#include "tests/support/small_models.h"

enum { RANK = 3 };

static bool is_strided(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_START &&
           (instr->coll.in_outer > 1 || instr->coll.out_outer > 1);
}

static int32_t count_strided(const dtp_program *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += is_strided(&p->instrs[i]) ? 1 : 0;
    }
    return n;
}

static void must(dtp_status s, const dtp_err *err)
{
    if (s != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* ---- one redistribution after the other ---- */

typedef struct redistributions {
    const char *machine, *mesh;
    int64_t sizes[RANK];
    small_pricer prices;
    dtp_graph *g;
    dtp_ttype type;
    int32_t strided[DTP_N_COLLS]; /* collectives of each kind that are packed on the other target */
} redistributions;

/* Seconds of the instructions, and of the copies that packing the strided ones takes. */
static double price(const redistributions *r, const dtp_program *p, double *packing)
{
    double sum = 0.0;
    *packing = 0.0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        sum += dtp_price_instr(&r->prices.pricer, p, instr);
        const dtp_machine *machine = r->prices.pricer.machine;
        if (is_strided(instr) && instr->coll.in_outer > 1) {
            const double bytes = 2.0 * (double)p->values[instr->in[0]].bytes;
            *packing += dtp_price_move(machine, DTP_COPY_PACK, bytes);
        }
        if (is_strided(instr) && instr->coll.out_outer > 1) {
            const double bytes = 2.0 * (double)p->values[instr->out[0]].bytes;
            *packing += dtp_price_move(machine, DTP_COPY_UNPACK, bytes);
        }
    }
    return sum;
}

static void check_pair(redistributions *r, const dtp_layout *from, const dtp_layout *to)
{
    static const dtp_target *const targets[2] = {&dtp_target_cpu, &dtp_target_cpu_packed};
    const dtp_mesh *mesh = &r->prices.pricer.mesh;
    dtp_steps steps;
    dtp_redistribute_job jobs[2];
    double prices[2], packing[2];
    dtp_err err = {0};
    if (dtp_redistribute_by(dtp_redistributor_generic(), mesh, &r->type, from, to, &steps, NULL) !=
        DTP_OK) {
        return; /* a shard does not become partial */
    }
    for (int32_t k = 0; k < 2; k++) {
        dtp_redistribute_verdict v = {0};
        must(dtp_redistribute_program(r->g, mesh, targets[k], &r->type, from, &steps, &jobs[k],
                                      &err),
             &err);
        must(dtp_program_check(jobs[k].program, &err), &err);
        must(dtp_redistribute_check(&jobs[k], "cpu", 7, &v, &err), &err);
        assert_int_equal(v.wrong, 0);
        prices[k] = price(r, jobs[k].program, &packing[k]);
    }
    assert_int_equal(count_strided(jobs[1].program), 0);
    assert_true(jobs[1].program->peak_bytes >= jobs[0].program->peak_bytes);
    const double want = prices[0] + packing[0], off = prices[1] - want;
    if (off > 1e-12 * want || off < -1e-12 * want) {
        fail_msg("packed %g s, strided %g s and %g s of copies", prices[1], prices[0], packing[0]);
    }
    dtp_program *p = jobs[0].program;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        r->strided[p->instrs[i].coll.kind] += is_strided(&p->instrs[i]) ? 1 : 0;
    }
    /* The checker knows the target. */
    if (count_strided(p) > 0) {
        p->target = &dtp_target_cpu_packed;
        assert_int_equal(dtp_program_check(p, &err), DTP_INTERNAL);
        assert_non_null(strstr(err.msg, "its parts are strided, and target 'cpu_packed' takes "
                                        "none"));
    }
    dtp_redistribute_job_free(&jobs[0]);
    dtp_redistribute_job_free(&jobs[1]);
}

static void check_all_pairs(redistributions *r)
{
    static const char *const names[RANK] = {"a", "b", "c"};
    r->prices = small_pricer_read(r->machine, r->mesh);
    r->type = (dtp_ttype){.dtype = DTP_F32, .rank = RANK};
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &r->g, NULL), DTP_OK);
    for (int32_t i = 0; i < RANK; i++) {
        r->type.dims[i].size = r->sizes[i];
        assert_int_equal(
            dtp_dims_intern(&r->g->dims, names[i], r->sizes[i], &r->type.dims[i].id, NULL), DTP_OK);
    }
    layout_list all = layout_list_all(RANK, r->prices.pricer.mesh.n_dims, true, DTP_REDUCE_SUM);
    for (int32_t i = 0; i < all.n * all.n; i++) {
        check_pair(r, &all.items[i / all.n], &all.items[i % all.n]);
    }
    layout_list_free(&all);
    dtp_graph_destroy(r->g);
    small_pricer_free(&r->prices);
}

static void test_packed__redistributions_are_strided_ones_and_their_copies(void **state)
{
    (void)state;
    redistributions cases[] = {{.machine = "a100_8", .mesh = "x:2", .sizes = {4, 6, 8}},
                               {.machine = "cpu_2", .mesh = "x:2", .sizes = {4, 6, 8}},
                               {.machine = "a100_8", .mesh = "x:3", .sizes = {5, 6, 7}},
                               {.machine = "a100_8", .mesh = "x:2;y:2", .sizes = {4, 8, 4}},
                               {.machine = "v100_16", .mesh = "x:2;y:3", .sizes = {6, 5, 12}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_all_pairs(&cases[i]);
        const int32_t *strided = cases[i].strided;
        print_message("%s: %d gathers, %d scatters, %d all-to-alls\n", cases[i].mesh,
                      strided[DTP_ALL_GATHER], strided[DTP_REDUCE_SCATTER],
                      strided[DTP_ALL_TO_ALL]);
        const bool even = cases[i].sizes[0] % 2 == 0 && cases[i].sizes[1] % 2 == 0;
        assert_true(strided[DTP_ALL_GATHER] > 0 && strided[DTP_REDUCE_SCATTER] > 0);
        assert_true(strided[DTP_ALL_TO_ALL] > 0 || !even); /* else it has two uneven ends */
    }
}

/* ---- whole jobs ---- */

enum { STEPS = 3 };

/* Same losses and parameters to the bit; job_run also checks that memory is as planned. */
static void test_packed__jobs_train_alike(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *rules;
    } rows[] = {{"x:2", "length:x"},
                {"x:2;y:2", "batch:x length:y"},
                {"x:2;y:2", "heads:x length:y"},
                {"x:3", "length:x"}};
    dtp_graph *g = small_model_read(small_model_find("gpt_bytes"), false);
    dtp_err err = {0};
    int32_t strided = 0;
    int64_t n_params = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        n_params +=
            g->tensors[t].kind == DTP_TENSOR_PARAM ? dtp_ttype_elems(&g->tensors[t].type) : 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double losses[2][STEPS];
        float *params[2];
        for (int32_t k = 0; k < 2; k++) {
            const dtp_target *target = k == 0 ? &dtp_target_cpu : &dtp_target_cpu_packed;
            params[k] = calloc((size_t)n_params, sizeof *params[k]);
            job j = {.g = g,
                     .mesh = rows[i].mesh,
                     .rules = rows[i].rules,
                     .target = target,
                     .backend = "cpu",
                     .steps = STEPS,
                     .losses = losses[k],
                     .params = params[k]};
            dtp_mesh mesh;
            job_program p;
            must(job_lower(g, rows[i].mesh, rows[i].rules, target, &p, &err), &err);
            strided += k == 0 ? count_strided(p.program) : 0;
            assert_true(k == 0 || count_strided(p.program) == 0);
            /* Staging buffers live until the WAIT of a collective that overlaps. */
            must(dtp_program_overlap(p.program, &(dtp_overlap){.depth = 4}, false, &err), &err);
            must(dtp_program_check(p.program, &err), &err);
            job_program_free(&p);
            assert_int_equal(dtp_mesh_parse(rows[i].mesh, &mesh, NULL), DTP_OK);
            must(dtp_comm_sim_run(&mesh, job_run, &j, &err), &err);
        }
        assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
        assert_memory_equal(params[0], params[1], (size_t)n_params * sizeof *params[0]);
        free(params[0]);
        free(params[1]);
    }
    print_message("%d strided collectives\n", strided);
    assert_true(strided > 10);
    dtp_graph_destroy(g);
}

/* ---- binding ---- */

typedef struct binding {
    const dtp_graph *g;
    const dtp_target *target;
    const char *backend;
    bool packed, any_order; /* of the transport: no strided parts, reductions in any order */
} binding;

static dtp_status bind(dtp_comm *comm, void *user, dtp_err *err)
{
    const binding *b = user;
    job_program p = {0};
    dtp_backend *backend = NULL;
    dtp_runner *r = NULL;
    comm->transport.caps.strided = !b->packed;
    comm->transport.caps.deterministic = !b->any_order;
    DTP_TRY(dtp_backend_create(b->backend, 1, &backend, err));
    dtp_status s = job_lower(b->g, "x:2", "batch:x", b->target, &p, err);
    s = s == DTP_OK ? dtp_runner_create(p.program, backend, comm, NULL, &r, err) : s;
    dtp_runner_destroy(r);
    job_program_free(&p);
    dtp_backend_destroy(backend);
    return s;
}

static void test_targets__are_asserted_when_a_program_is_bound(void **state)
{
    (void)state;
    static const struct {
        const dtp_target *target;
        const char *backend;
        bool packed, any_order;
        const char *refused;
    } rows[] = {{&dtp_target_cpu, "cpu", false, false, NULL},
                {&dtp_target_cpu, "ref", false, false, NULL},
                {&dtp_target_cpu, "cpu", true, false,
                 "target 'cpu', which has parts that are strided; the transport 'sim' has not"},
                {&dtp_target_cpu, "cpu", false, true,
                 "target 'cpu', which has deterministic reductions; the transport 'sim' has not"},
                {&dtp_target_cpu_packed, "cpu", false, false, NULL},
                {&dtp_target_cpu_packed, "cpu", true, false, NULL},
                {&dtp_target_ref, "ref", false, false, NULL},
                {&dtp_target_ref, "cpu", false, false,
                 "target 'ref', which runs on backend ref, not on 'cpu'"}};
    dtp_graph *g;
    dtp_mesh mesh;
    dtp_err err = {0};
    must(job_graph(false, &g, &err), &err);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        binding b = {.g = g,
                     .target = rows[i].target,
                     .backend = rows[i].backend,
                     .packed = rows[i].packed,
                     .any_order = rows[i].any_order};
        const dtp_status s = dtp_comm_sim_run(&mesh, bind, &b, &err);
        assert_int_equal(s, rows[i].refused != NULL ? DTP_INVALID : DTP_OK);
        assert_true(rows[i].refused == NULL || strstr(err.msg, rows[i].refused) != NULL);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed__redistributions_are_strided_ones_and_their_copies),
        cmocka_unit_test(test_packed__jobs_train_alike),
        cmocka_unit_test(test_targets__are_asserted_when_a_program_is_bound),
    };
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
