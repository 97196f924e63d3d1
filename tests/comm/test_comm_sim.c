/* self and sim communicators. */
#include "executor/comm/communicator_internal.h"
#include "tests/comm/comm_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

static void test_comm__self_conforms(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_comm *c = NULL;
    must(dtp_comm_self_create(&c, &err), &err);
    must(comm_suite(c, NULL, &err), &err);
    must(comm_suite_agree(c, NULL, &err), &err);
    must(comm_suite_flight(c, NULL, &err), &err);
    must(comm_suite_views(c, NULL, &err), &err);
    dtp_comm_destroy(c);
}

static const char *const meshes[] = {"x:1", "x:2",         "x:3",         "x:2;y:2",     "x:3;y:2",
                                     "x:8", "x:2;y:1;z:3", "a:2;b:2;c:2", "x:1;y:5;z:1", ""};

static void test_comm__sim_conforms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        dtp_err err = {0};
        dtp_mesh mesh;
        must(dtp_mesh_parse(meshes[i], &mesh, &err), &err);
        must(dtp_comm_sim_run(&mesh, comm_suite, NULL, &err), &err);
        must(dtp_comm_sim_run(&mesh, comm_suite_agree, NULL, &err), &err);
        must(dtp_comm_sim_run(&mesh, comm_suite_flight, NULL, &err), &err);
        must(dtp_comm_sim_run(&mesh, comm_suite_order, NULL, &err), &err);
    }
}

/* A late transport reads operands when they are waited for: one that changed too early is seen. */
static dtp_status conforms_late(dtp_comm *c, void *user, dtp_err *err)
{
    dtp_transport *t = &c->transport;
    dtp_coll coll = {.kind = DTP_ALL_REDUCE, .set = dtp_comm_all(c), .dtype = DTP_F32, .count = 1};
    dtp_request request;
    float in = 1, out = -1;
    const dtp_coll_ends ends = {&in, &out};
    dtp_comm__sim_late(c, true);
    DTP_TRY(comm_suite(c, user, err));
    DTP_TRY(comm_suite_flight(c, user, err));
    DTP_TRY(t->ops->start(t, &coll, &ends, &request, err));
    if (out != -1) {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d: it was done early", c->rank);
    }
    in = 2; /* against the rules */
    DTP_TRY(t->ops->wait(t, &request, err));
    return out == (float)(2 * c->size)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "rank %d: a change was not seen", c->rank);
}

static void test_comm__sim_late_conforms(void **state)
{
    (void)state;
    static const char *const late[] = {"x:1", "x:3", "x:2;y:2"};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        dtp_err err = {0};
        dtp_mesh mesh;
        must(dtp_mesh_parse(late[i], &mesh, &err), &err);
        must(dtp_comm_sim_run(&mesh, conforms_late, NULL, &err), &err);
    }
}

static void test_comm__sim_deadline(void **state)
{
    (void)state;
    static const char *const late[] = {"x:2", "x:2;y:2"};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        dtp_err err = {0};
        dtp_mesh mesh;
        must(dtp_mesh_parse(late[i], &mesh, &err), &err);
        must(dtp_comm_sim_run(&mesh, comm_suite_deadline, NULL, &err), &err);
    }
}

static void test_comm__sim_views_conform(void **state)
{
    (void)state;
    static const char *const views[] = {"x:4", "x:3;y:2", "x:2;y:1;z:3", "a:2;b:2;c:2"};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        dtp_err err = {0};
        dtp_mesh mesh;
        must(dtp_mesh_parse(views[i], &mesh, &err), &err);
        must(dtp_comm_sim_run(&mesh, comm_suite_views, NULL, &err), &err);
    }
}

/* Sums whose value depends on the order: every rank must see the same bits. */
static dtp_status same_bits(dtp_comm *c, void *user, dtp_err *err)
{
    float *seen = user; /* by rank */
    dtp_coll coll = {.kind = DTP_ALL_REDUCE, .set = 3, .dtype = DTP_F32, .count = 3};
    float v[3] = {1e8F / (float)(c->rank + 1), -1e8F + (float)c->rank, 0.1F * (float)c->rank};
    DTP_TRY(c->ops->run(c, &coll, v, v, err));
    memcpy(seen + (ptrdiff_t)3 * c->rank, v, sizeof v);
    return DTP_OK;
}

static void test_comm__sim_ranks_see_equal_bits(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:3;y:2", &mesh, &err), &err);
    float first[18], again[18];
    must(dtp_comm_sim_run(&mesh, same_bits, first, &err), &err);
    must(dtp_comm_sim_run(&mesh, same_bits, again, &err), &err);
    assert_memory_equal(first, again, sizeof first);
    for (int r = 1; r < 6; r++) {
        assert_memory_equal(first, first + (ptrdiff_t)3 * r, 3 * sizeof(float));
    }
}

/* Rank 2 fails while the others wait in a collective that cannot complete. */
static dtp_status one_fails(dtp_comm *c, void *user, dtp_err *err)
{
    int *comm_errors = user;
    if (c->rank == 2) {
        return DTP_FAIL(err, DTP_RANGE, "label 17 is out of range");
    }
    dtp_coll coll = {.kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 1};
    float v = 1;
    dtp_status status = c->ops->run(c, &coll, &v, &v, err);
    comm_errors[c->rank] = status == DTP_COMM;
    return status;
}

static void test_comm__sim_failing_rank_wakes_the_others(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:4", &mesh, &err), &err);
    int comm_errors[4] = {0};
    assert_int_equal(dtp_comm_sim_run(&mesh, one_fails, comm_errors, &err), DTP_RANGE);
    assert_string_equal(err.msg, "label 17 is out of range");
    assert_true(comm_errors[0] && comm_errors[1] && comm_errors[3]);
}

static dtp_status leaves(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    return c->rank == 1 ? DTP_OK : c->ops->barrier(c, err);
}

/* What a pool's ranks see: the rank and the sum over all ranks of `add`. */
typedef struct pool_run {
    float add, sums[6];
} pool_run;

static dtp_status sum_ranks(dtp_comm *c, void *user, dtp_err *err)
{
    pool_run *r = user;
    dtp_coll coll = {
        .kind = DTP_ALL_REDUCE, .set = (1U << c->mesh.n_dims) - 1U, .dtype = DTP_F32, .count = 1};
    float v = r->add + (float)c->rank;
    DTP_TRY(c->ops->run(c, &coll, &v, &v, err));
    r->sums[c->rank] = v;
    return c->ops->barrier(c, err);
}

static void check_pool_run(dtp_sim_pool *pool, const char *mesh_text, float add, float want)
{
    dtp_err err = {0};
    dtp_mesh mesh;
    pool_run r = {.add = add};
    must(dtp_mesh_parse(mesh_text, &mesh, &err), &err);
    must(dtp_sim_pool_run(pool, &mesh, sum_ranks, &r, &err), &err);
    for (int32_t k = 0; k < dtp_mesh_ranks(&mesh); k++) {
        assert_float_equal(r.sums[k], want, 0);
    }
}

static void test_comm__sim_pool_runs_as_new_ranks_do(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_sim_pool *pool = NULL;
    dtp_mesh four, three;
    must(dtp_sim_pool_create(&pool, &err), &err);
    must(dtp_mesh_parse("x:4", &four, &err), &err);
    must(dtp_mesh_parse("x:3", &three, &err), &err);
    for (int i = 0; i < 50; i++) {
        int comm_errors[4] = {0};
        check_pool_run(pool, "x:4", (float)i, (float)(6 + 4 * i));
        check_pool_run(pool, "x:2;y:3", (float)i, (float)(15 + 6 * i));
        check_pool_run(pool, "x:3", (float)i, (float)(3 + 3 * i));
        check_pool_run(pool, "", (float)i, (float)i);
        assert_int_equal(dtp_sim_pool_run(pool, &four, one_fails, comm_errors, &err), DTP_RANGE);
        assert_true(comm_errors[0] && comm_errors[1] && comm_errors[3]);
        assert_int_equal(dtp_sim_pool_run(pool, &three, leaves, NULL, &err), DTP_COMM);
        assert_non_null(strstr(err.msg, "rank 1: has ended"));
    }
    check_pool_run(NULL, "x:4", 1, 10);
    dtp_sim_pool_destroy(pool);
    dtp_sim_pool_destroy(NULL);
}

/* A rank that gives up and still returns success is a failure of the others. */
static dtp_status gives_up(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    if (c->rank == 0) {
        dtp_comm_abort(c, "no more");
        return DTP_OK;
    }
    return c->ops->barrier(c, err);
}

static void test_comm__sim_giving_up_is_seen(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:3", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, gives_up, NULL, &err), DTP_COMM);
    assert_non_null(strstr(err.msg, "rank 0 failed: no more"));
}

/* Ranks that run two different collectives; every rank must see an error that names both. */
typedef struct dispute {
    dtp_coll first, other; /* rank 0 runs `first` */
    const char *words[2];
    dtp_status status[4];
    dtp_err err[4];
} dispute;

static dtp_status disagree(dtp_comm *c, void *user, dtp_err *err)
{
    dispute *d = user;
    float in[32] = {0}, out[32];
    dtp_err mine = {0};
    d->status[c->rank] = c->ops->run(c, c->rank == 0 ? &d->first : &d->other, in, out, &mine);
    d->err[c->rank] = mine;
    if (err != NULL) {
        *err = mine;
    }
    return d->status[c->rank];
}

static void check_dispute(const char *mesh_text, dispute d)
{
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse(mesh_text, &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, disagree, &d, &err), DTP_COMM);
    for (int32_t r = 0; r < dtp_mesh_ranks(&mesh); r++) {
        if (d.status[r] != DTP_COMM || strstr(d.err[r].msg, d.words[0]) == NULL ||
            strstr(d.err[r].msg, d.words[1]) == NULL) {
            fail_msg("rank %d: %d '%s' does not name '%s' and '%s'", r, d.status[r], d.err[r].msg,
                     d.words[0], d.words[1]);
        }
    }
}

static void test_comm__sim_every_difference_is_an_error_everywhere(void **state)
{
    (void)state;
    for (int32_t i = 0; i < comm_n_disputes; i++) {
        const comm_dispute *d = &comm_disputes[i];
        check_dispute("x:4", (dispute){d->first, d->other, {d->words[0], d->words[1]}, {0}, {{0}}});
    }
}

static void test_comm__a_bucket_is_not_its_sum(void **state)
{
    (void)state;
    const dtp_coll one = {.kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 4};
    const dtp_coll half = {.kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 2};
    const dtp_coll halves[] = {half, half};
    dtp_coll bucket = one;
    bucket.n_bucket = 2;
    bucket.bucket = halves;
    dtp_mesh mesh;
    char why[DTP_ERR_MSG_BYTES];
    must(dtp_mesh_parse("x:2", &mesh, NULL), NULL);
    assert_false(dtp_comm__differs(&mesh, 0, 0, &bucket, 1, &bucket, why));
    assert_true(dtp_comm__differs(&mesh, 0, 0, &one, 1, &bucket, why));
    assert_non_null(strstr(why, "4 x f32;"));
    assert_non_null(strstr(why, "4 x f32 in 2 tensors"));
}

static void test_comm__sim_ranks_that_wait_for_each_other_are_told(void **state)
{
    (void)state;
    dispute d = {.first = {.kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 1},
                 .other = {.kind = DTP_ALL_REDUCE, .set = 2, .dtype = DTP_F32, .count = 1},
                 .words = {"over mesh dim 'x'", "over mesh dim 'y'"}};
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:2;y:2", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, disagree, &d, &err), DTP_COMM);
    /* ranks 2 and 3 form a group over y and are done; 0 and 1 wait for ever */
    assert_non_null(strstr(err.msg, "wait for each other"));
    assert_non_null(strstr(err.msg, d.words[0]));
    assert_non_null(strstr(err.msg, d.words[1]));
    assert_int_equal(d.status[0], DTP_COMM);
    assert_int_equal(d.status[1], DTP_COMM);
}

static void test_comm__sim_a_rank_that_leaves_wakes_the_others(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:3", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, leaves, NULL, &err), DTP_COMM);
    assert_non_null(strstr(err.msg, "rank 1: has ended"));
    assert_non_null(strstr(err.msg, "rank 0: barrier"));
}

static dtp_status different(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    float in[4] = {0}, out[4];
    dtp_coll coll = {.kind = c->rank == 0 ? DTP_ALL_GATHER : DTP_ALL_REDUCE,
                     .set = 1,
                     .dtype = DTP_F32,
                     .count = 2};
    return c->ops->run(c, &coll, in, out, err);
}

static void test_comm__sim_different_collectives_are_an_error(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:2", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, different, NULL, &err), DTP_COMM);
    assert_non_null(strstr(err.msg, "different collectives"));
}

static void test_comm__unknown_mesh_dims_are_refused(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, different, NULL, &err), DTP_INVALID);
}

static void test_comm__mpi_job_is_known_from_the_environment(void **state)
{
    (void)state;
    char ompi[] = "OMPI_COMM_WORLD_SIZE=2", similar[] = "OMPI_COMM_WORLD_SIZES=2",
         rank[] = "PMI_RANK=0";
    char slurm[] = "SLURM_PROCID=0", one[] = "SLURM_STEP_NUM_TASKS=1",
         two[] = "SLURM_STEP_NUM_TASKS=2";
    char *none_list[] = {similar, NULL};
    char *ompi_list[] = {similar, ompi, NULL};
    char *pmi_list[] = {rank, NULL};
    char *shell_list[] = {slurm, one, NULL};
    char *srun_list[] = {slurm, two, NULL};
    assert_false(dtp_comm_in_mpi_job(NULL));
    assert_false(dtp_comm_in_mpi_job(none_list));
    assert_true(dtp_comm_in_mpi_job(ompi_list));
    assert_true(dtp_comm_in_mpi_job(pmi_list));
    assert_false(dtp_comm_in_mpi_job(shell_list));
    assert_true(dtp_comm_in_mpi_job(srun_list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm__self_conforms),
        cmocka_unit_test(test_comm__sim_conforms),
        cmocka_unit_test(test_comm__sim_late_conforms),
        cmocka_unit_test(test_comm__sim_deadline),
        cmocka_unit_test(test_comm__sim_views_conform),
        cmocka_unit_test(test_comm__sim_ranks_see_equal_bits),
        cmocka_unit_test(test_comm__sim_failing_rank_wakes_the_others),
        cmocka_unit_test(test_comm__sim_pool_runs_as_new_ranks_do),
        cmocka_unit_test(test_comm__sim_giving_up_is_seen),
        cmocka_unit_test(test_comm__sim_different_collectives_are_an_error),
        cmocka_unit_test(test_comm__sim_every_difference_is_an_error_everywhere),
        cmocka_unit_test(test_comm__a_bucket_is_not_its_sum),
        cmocka_unit_test(test_comm__sim_ranks_that_wait_for_each_other_are_told),
        cmocka_unit_test(test_comm__sim_a_rank_that_leaves_wakes_the_others),
        cmocka_unit_test(test_comm__unknown_mesh_dims_are_refused),
        cmocka_unit_test(test_comm__mpi_job_is_known_from_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
