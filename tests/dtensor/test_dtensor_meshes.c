/* Device meshes: coordinates, sub-meshes, joined dims, counts, and the easy start. */
#include "tests/dtensor/dtensor_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t SHAPE[] = {12, 5};

static dtp_status try_run(const char *mesh, dtp_world_body body, void *user, dtp_err *err)
{
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    options.environment = environ;
    return dtp_world_run(mesh, &options, body, user, err);
}

static void run(const char *mesh, dtp_world_body body, void *user)
{
    dtp_err err = {0};
    if (dt_fits(mesh) && try_run(mesh, body, user, &err) != DTP_OK) {
        fail_msg("mesh '%s': %s", mesh, err.msg);
    }
}

static dtp_status says(bool ok, const char *what, dtp_err *err)
{
    return ok ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "%s", what);
}

/* ---- coordinates ---- */

static dtp_status coordinates(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    int32_t coords[DTP_MAX_MESH_DIMS], rank = dtp_device_mesh_rank(mesh);
    dtp_device_mesh_coords(mesh, coords);
    DTP_TRY(says(dtp_device_mesh_size(mesh) == 6, "size", err));
    DTP_TRY(says(coords[0] == rank / 3 && coords[1] == rank % 3, "coords", err));
    DTP_TRY(says(dtp_device_mesh_coord(mesh, "y") == rank % 3, "coord", err));
    return says(dtp_device_mesh_coord(mesh, "z") == -1, "unknown dim", err);
}

static void test_dtensor_meshes__coordinates(void **state)
{
    (void)state;
    run("x:2;y:3", coordinates, NULL);
}

/* ---- parts of a mesh ---- */

/* Moves numbers that differ between the groups over a sub-mesh; nothing of other groups arrives. */
static dtp_status use(dtp_device_mesh *mesh, const char *layout, const char *to, double start,
                      dtp_err *err)
{
    float want[60];
    dtp_tensor_desc desc;
    dtp_tensor t, moved;
    dtp_layout target;
    for (int i = 0; i < 60; i++) {
        want[i] = (float)(start + i);
    }
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, layout, &desc, err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, start, 1, &t, err));
    DTP_TRY(dtp_tensor_layout(mesh, 2, to, &target, err));
    DTP_TRY(dtp_tensor_redistribute(t, &target, &moved, err));
    DTP_TRY(dt_expect_local(moved, want, layout, err));
    return dt_expect(moved, want, layout, err);
}

static dtp_status sub_meshes(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    int32_t a = dtp_device_mesh_coord(mesh, "a"), b = dtp_device_mesh_coord(mesh, "b");
    int32_t c = dtp_device_mesh_coord(mesh, "c");
    dtp_device_mesh *line, *plane;
    DTP_TRY(dtp_device_mesh_sub(mesh, "b", &line, err));
    DTP_TRY(says(dtp_device_mesh_size(line) == (int32_t)dtp_device_mesh_dims(mesh)->sizes[1] &&
                     dtp_device_mesh_rank(line) == b,
                 "b", err));
    DTP_TRY(use(line, "0@b", "1@b", 100 * a + 1000 * c, err));
    DTP_TRY(dtp_device_mesh_sub(mesh, "a,c", &plane, err));
    DTP_TRY(says(dtp_device_mesh_rank(plane) == 2 * a + c, "a,c", err));
    DTP_TRY(use(plane, "0@a, +sum(c)", "1@c, 0@a", 100 * b, err));
    DTP_TRY(use(mesh, "0@a+c", "1@b, 0@c", 7, err));
    dtp_device_mesh_destroy(line);
    dtp_device_mesh_destroy(plane);
    return use(mesh, "0@a+c", "1@b, 0@c", 7, err);
}

/* Half of the ranks work on their part while the others do something else. */
static dtp_status one_part_alone(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_device_mesh *part;
    if (dtp_device_mesh_coord(mesh, "a") == 0) {
        DTP_TRY(dtp_device_mesh_sub(mesh, "b,c", &part, err));
        DTP_TRY(use(part, "0@b, 1@c", "0@c, 1@b", 3, err));
        dtp_device_mesh_destroy(part);
    }
    return use(mesh, "0@a+c", "1@b, 0@c", 7, err);
}

static void test_dtensor_meshes__sub_meshes_work_side_by_side(void **state)
{
    (void)state;
    run("a:2;b:3;c:2", sub_meshes, NULL);
    run("a:2;b:3;c:2", one_part_alone, NULL);
    run("a:1;b:2;c:2", sub_meshes, NULL);
    run("a:2;b:1;c:2", sub_meshes, NULL);
    run("a:2;b:1;c:2", one_part_alone, NULL);
}

static dtp_status joined(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_device_mesh *flat;
    dtp_tensor_desc desc, nested;
    dtp_tensor t, other;
    dtp_local x, y;
    DTP_TRY(dtp_device_mesh_flatten(mesh, "a,b", "ab", &flat, err));
    DTP_TRY(says(dtp_device_mesh_dims(flat)->n_dims == 2 &&
                     dtp_device_mesh_dims(flat)->sizes[0] == 6 &&
                     dtp_device_mesh_rank(flat) == dtp_device_mesh_rank(mesh),
                 "ab:6;c:2", err));
    DTP_TRY(dtp_tensor_desc_init(flat, DTP_F32, 2, SHAPE, "0@ab", &desc, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@a+b", &nested, err));
    DTP_TRY(dtp_tensor_iota(flat, &desc, 0, 1, &t, err));
    DTP_TRY(dtp_tensor_iota(mesh, &nested, 0, 1, &other, err));
    DTP_TRY(dtp_tensor_local(t, &x, err));
    DTP_TRY(dtp_tensor_local(other, &y, err));
    DTP_TRY(says(memcmp(x.data, y.data, 10 * sizeof(float)) == 0, "the pieces differ", err));
    DTP_TRY(use(flat, "0@ab, +sum(c)", "1@ab, 0@c", 1, err));
    dtp_device_mesh_destroy(flat);
    return DTP_OK;
}

static dtp_status wrong_parts(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const char *const subs[] = {"w", "c,a", "a,a",
                                       "",  ",",   "abcdefghijklmnopqrstuvwxyzabcdefg"};
    dtp_device_mesh *out;
    dtp_err said = {0};
    for (size_t i = 0; i < sizeof subs / sizeof subs[0]; i++) {
        DTP_TRY(says(dtp_device_mesh_sub(mesh, subs[i], &out, &said) == DTP_INVALID, subs[i], err));
    }
    DTP_TRY(says(dtp_device_mesh_flatten(mesh, "a,c", "ac", &out, &said) == DTP_INVALID,
                 "not neighbours", err));
    DTP_TRY(says(dtp_device_mesh_flatten(mesh, "a,b", "c", &out, &said) == DTP_INVALID,
                 "a name twice", err));
    DTP_TRY(says(dtp_device_mesh_flatten(mesh, "a,b", "a:2;b", &out, &said) == DTP_INVALID,
                 "a name with separators", err));
    return use(mesh, "0@a+c", "1@b, 0@c", 7, err);
}

static void test_dtensor_meshes__dims_can_be_joined(void **state)
{
    (void)state;
    run("a:2;b:3;c:2", joined, NULL);
    run("a:2;b:3;c:2", wrong_parts, NULL);
}

/* ---- counts and trace ---- */

static dtp_status counts(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    const dtp_comm_count *list;
    dtp_tensor_desc desc;
    dtp_tensor t, out;
    dtp_layout to;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@x, +sum(y)", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    DTP_TRY(dtp_tensor_layout(mesh, 2, "0@x", &to, err));
    for (int i = 0; i < 3; i++) {
        DTP_TRY(dtp_tensor_redistribute(t, &to, &out, err));
        dtp_tensor_destroy(out);
    }
    DTP_TRY(says(dtp_device_mesh_counts(mesh, &list) == 1 && list[0].kind == DTP_ALL_REDUCE &&
                     list[0].set == 2 && list[0].count == 3 && list[0].bytes == 3LL * 6 * 5 * 4,
                 "three all-reduces over y", err));
    dtp_device_mesh_reset_counts(mesh);
    return says(dtp_device_mesh_counts(mesh, &list) == 0, "reset", err);
}

static void keep_line(void *user, dtp_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 500, "%s", line);
}

static dtp_status one_move(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    return use(mesh, "0@x", "1@x", 0, err);
}

static void test_dtensor_meshes__counts_and_trace(void **state)
{
    (void)state;
    run("x:2;y:2", counts, NULL);
    char line[500] = "";
    dtp_err err = {0};
    dtp_ctx ctx = dtp_ctx_default();
    dtp_world_options options = dtp_world_options_init();
    ctx.level = DTP_LOG_INFO;
    ctx.log_sink = keep_line;
    ctx.log_user = line;
    options.mesh.ctx = &ctx;
    assert_int_equal(dtp_world_run("x:1", &options, one_move, NULL, &err), DTP_OK);
    assert_non_null(strstr(line, "from=\"f32[12,5] 0@x\" to=\"1@x\" collectives=0"));
}

/* ---- the easy start ---- */

static dtp_status third_fails(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    if (dtp_device_mesh_rank(mesh) == 2) {
        return DTP_FAIL(err, DTP_RANGE, "rank 2 has no data");
    }
    return use(mesh, "0@x", "1@x", 0, err);
}

static void test_dtensor_meshes__a_failing_rank_ends_the_others(void **state)
{
    (void)state;
    if (dtp_comm_in_mpi_job(environ)) {
        return; /* the job would be aborted */
    }
    dtp_err err = {0};
    assert_int_equal(try_run("x:4", third_fails, NULL, &err), DTP_RANGE);
    assert_string_equal(err.msg, "rank 2 has no data");
}

/* Calls in another order on one rank, all made before and so not compared: virtual ranks notice. */
static dtp_status other_order(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    float data[60];
    dtp_tensor_desc desc;
    dtp_tensor t, moved;
    dtp_layout to;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_layout(mesh, 2, "0@x+y", &to, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    for (int round = 0; round < 2; round++) {
        bool first = round == 0 || dtp_device_mesh_rank(mesh) == 0;
        for (int i = 0; i < 2; i++) {
            if ((i == 0) == first) {
                DTP_TRY(dtp_tensor_redistribute(t, &to, &moved, err));
                DTP_TRY(dtp_tensor_gather(moved, -1, data, err));
            } else {
                DTP_TRY(dtp_tensor_gather(t, -1, data, err));
            }
        }
    }
    return DTP_OK;
}

static void test_dtensor_meshes__virtual_ranks_never_wait_for_ever(void **state)
{
    (void)state;
    if (dtp_comm_in_mpi_job(environ)) {
        return;
    }
    dtp_err err = {0};
    assert_int_equal(try_run("x:2;y:2", other_order, NULL, &err), DTP_COMM);
    assert_int_equal(try_run("x:4;y:1", other_order, NULL, &err), DTP_COMM);
}

static void test_dtensor_meshes__wrong_starts_are_refused(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    assert_int_equal(dtp_world_run("x:two", NULL, one_move, NULL, &err), DTP_INVALID);
    options.comm = "pigeon";
    assert_int_equal(dtp_world_run("x:2", &options, one_move, NULL, &err), DTP_INVALID);
    options.comm = "self";
    assert_int_equal(dtp_world_run("x:2", &options, one_move, NULL, &err), DTP_INVALID);
    options.comm = NULL;
    options.backend = "abacus";
    assert_true(dtp_world_run("x:2", &options, one_move, NULL, &err) != DTP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtensor_meshes__coordinates),
        cmocka_unit_test(test_dtensor_meshes__sub_meshes_work_side_by_side),
        cmocka_unit_test(test_dtensor_meshes__dims_can_be_joined),
        cmocka_unit_test(test_dtensor_meshes__counts_and_trace),
        cmocka_unit_test(test_dtensor_meshes__a_failing_rank_ends_the_others),
        cmocka_unit_test(test_dtensor_meshes__virtual_ranks_never_wait_for_ever),
        cmocka_unit_test(test_dtensor_meshes__wrong_starts_are_refused),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
