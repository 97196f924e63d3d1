/* Data in, out and between layouts: every way of making a tensor from host arrays, redistribution,
 * gathering, and variables, against the global array. */
#include "tests/dtensor/dtensor_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const MESHES[] = {"",        "x:2",     "x:3",     "x:5",         "x:8",
                                     "x:2;y:2", "x:2;y:3", "x:1;y:3", "x:2;y:2;z:2", "x:3;y:1;z:2"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0], ROUNDS = 12 };

static void run(const char *mesh, dtp_world_body body, void *user)
{
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    if (dtp_world_run(mesh, &options, body, user, &err) != DTP_OK) {
        fail_msg("mesh '%s': %s", mesh, err.msg);
    }
}

/* Runs a body with several seeds on every mesh. */
static void run_all(dtp_world_body body)
{
    for (uint64_t i = 0; i < N_MESHES; i++) {
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t seed = 1000 * i + round;
            print_message("mesh '%s' seed %llu\n", MESHES[i], (unsigned long long)seed);
            run(MESHES[i], body, &seed);
        }
    }
}

/* A random tensor: type, shape with sizes below and above the number of ranks, layout, contents. */
typedef struct subject {
    dtp_tensor_desc desc;
    void *global;
} subject;

static subject random_subject(const dtp_device_mesh *mesh, bool partial, uint64_t *seed)
{
    subject s;
    int64_t shape[4];
    int32_t rank = (int32_t)(dt_random(seed) % 4);
    for (int32_t i = 0; i < rank; i++) {
        shape[i] = 1 + (int64_t)(dt_random(seed) % (rank == 1 ? 40 : 11));
    }
    dtp_layout layout = dt_random_layout(dtp_device_mesh_dims(mesh), rank, partial, seed);
    dtp_dtype dtype = (dtp_dtype)(dt_random(seed) % DTP_N_DTYPES);
    s.desc = dt_desc(dtype, rank, shape, &layout);
    s.global = dt_array(&s.desc, dt_random(seed));
    return s;
}

/* ---- in and out ---- */

static dtp_status check_both(dtp_tensor t, const void *global, const char *what, dtp_err *err)
{
    DTP_TRY(dt_expect_local(t, global, what, err));
    return dt_expect(t, global, what, err);
}

/* Every way to make the tensor. */
static dtp_status make_all(dtp_device_mesh *mesh, const subject *s, uint64_t *seed, dtp_err *err)
{
    dtp_tensor t, again;
    dtp_local local;
    int32_t source = (int32_t)(dt_random(seed) % (uint64_t)dtp_device_mesh_size(mesh));
    bool has = dtp_device_mesh_rank(mesh) == source;
    DTP_TRY(dtp_tensor_from_array(mesh, &s->desc, s->global, &t, err));
    DTP_TRY(check_both(t, s->global, "from_array", err));
    DTP_TRY(dtp_tensor_local(t, &local, err));
    DTP_TRY(dtp_tensor_wrap(mesh, &s->desc, local.shape, local.data, true, &again, err));
    DTP_TRY(check_both(again, s->global, "wrap", err));
    dtp_tensor_destroy(t);
    DTP_TRY(dtp_tensor_scatter(mesh, &s->desc, source, has ? s->global : NULL, &t, err));
    DTP_TRY(check_both(t, s->global, "scatter", err));
    dtp_tensor_destroy(t);
    dtp_tensor_destroy(again);
    return DTP_OK;
}

/* To one root: the others' memory is not touched. */
static dtp_status gather_to(dtp_tensor t, const subject *s, int32_t root, dtp_err *err)
{
    size_t bytes = (size_t)(dt_elems(&s->desc) * dtp_dtype_bytes(s->desc.dtype));
    char *got = malloc(bytes + 1);
    memset(got, 0x5a, bytes + 1);
    dtp_status status = dtp_tensor_gather(t, root, got, err);
    if (status == DTP_OK && dtp_device_mesh_rank(t.mesh) == root) {
        status = memcmp(got, s->global, bytes) == 0
                     ? DTP_OK
                     : DTP_FAIL(err, DTP_INTERNAL, "gather to rank %d is wrong", root);
    } else if (status == DTP_OK && got[0] != 0x5a) {
        status = DTP_FAIL(err, DTP_INTERNAL, "gather to rank %d wrote elsewhere", root);
    }
    free(got);
    return status;
}

/* unpack gives the pieces; pack of the pieces (when even) gives the tensor back. */
static dtp_status unpack_and_pack(dtp_tensor t, const subject *s, dtp_err *err)
{
    dtp_device_mesh *mesh = t.mesh;
    const int32_t ranks = dtp_device_mesh_size(mesh);
    const int64_t bytes = dtp_dtype_bytes(s->desc.dtype);
    int64_t sizes[64], at = 0;
    const void *parts[64];
    char *all = calloc((size_t)(ranks * dt_elems(&s->desc)) + 1, 8);
    dtp_local local;
    dtp_ttype type = {.dtype = s->desc.dtype, .rank = s->desc.rank};
    for (int32_t i = 0; i < type.rank; i++) {
        type.dims[i] = (dtp_tdim){.id = i, .size = s->desc.shape[i]};
    }
    dtp_status status = dtp_tensor_unpack(t, all, sizes, err);
    for (int32_t r = 0; r < ranks && status == DTP_OK; r++) {
        parts[r] = all + at;
        at += sizes[r] * bytes;
    }
    if (status == DTP_OK) {
        status = dtp_tensor_local(t, &local, err);
    }
    int32_t me = dtp_device_mesh_rank(mesh);
    if (status == DTP_OK && memcmp(parts[me], local.data, (size_t)(sizes[me] * bytes)) != 0) {
        status = DTP_FAIL(err, DTP_INTERNAL, "unpack: the own piece is wrong");
    }
    if (status == DTP_OK &&
        dtp_layout_is_even(&s->desc.layout, dtp_device_mesh_dims(mesh), &type)) {
        dtp_tensor packed;
        status = dtp_tensor_pack(mesh, &s->desc, parts, &packed, err);
        status = status == DTP_OK ? check_both(packed, s->global, "pack", err) : status;
    }
    free(all);
    return status;
}

static dtp_status in_and_out(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    uint64_t seed = *(const uint64_t *)user;
    subject s = random_subject(mesh, false, &seed);
    dtp_tensor t;
    int32_t root = (int32_t)(dt_random(&seed) % (uint64_t)dtp_device_mesh_size(mesh));
    dtp_status status = make_all(mesh, &s, &seed, err);
    if (status == DTP_OK) {
        status = dtp_tensor_from_array(mesh, &s.desc, s.global, &t, err);
    }
    status = status == DTP_OK ? gather_to(t, &s, root, err) : status;
    status = status == DTP_OK ? unpack_and_pack(t, &s, err) : status;
    free(s.global);
    return status;
}

static void test_dtensor_redistributions__arrays_survive_every_way_in_and_out(void **state)
{
    (void)state;
    run_all(in_and_out);
}

/* Larger than one chunk of scatter and gather, and not a multiple of it. */
static dtp_status many_chunks(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {1003, 307};
    dtp_tensor_desc desc;
    dtp_tensor t;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_I32, 2, shape, "1@x", &desc, err));
    subject s = {.desc = desc, .global = dt_array(&desc, 3)};
    DTP_TRY(dtp_tensor_scatter(mesh, &desc, 1, s.global, &t, err));
    dtp_status status = check_both(t, s.global, "scatter", err);
    free(s.global);
    return status;
}

static void test_dtensor_redistributions__large_arrays_travel_in_chunks(void **state)
{
    (void)state;
    run("x:2", many_chunks, NULL);
    run("x:3", many_chunks, NULL);
}

/* ---- redistribution ---- */

/* Same shape and type in another layout; results of one call feed the next. */
static dtp_status redistribute_random(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    uint64_t seed = *(const uint64_t *)user;
    subject s = random_subject(mesh, true, &seed);
    dtp_tensor t, next;
    if (dtp_layout_has_partial(&s.desc.layout) && s.desc.dtype == DTP_BOOL) {
        free(s.global);
        return DTP_OK;
    }
    dtp_status status = dtp_tensor_from_array(mesh, &s.desc, s.global, &t, err);
    for (int32_t i = 0; i < 6 && status == DTP_OK; i++) {
        dtp_layout to = dt_random_layout(dtp_device_mesh_dims(mesh), s.desc.rank, false, &seed);
        status = dtp_tensor_redistribute(t, &to, &next, err);
        if (status == DTP_OK) {
            dtp_tensor_destroy(t);
            t = next;
            status = check_both(t, s.global, "redistribute", err);
        }
    }
    free(s.global);
    return status;
}

static void test_dtensor_redistributions__redistribution_keeps_every_element(void **state)
{
    (void)state;
    run_all(redistribute_random);
}

/* The operand is not written, repeated calls count alike, and nothing moves for a renaming. */
static dtp_status operands_stay(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {6, 4};
    dtp_tensor_desc desc;
    dtp_tensor t, other, same;
    dtp_layout to;
    dtp_local a, b;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "0@x, +sum(y)", &desc, err));
    DTP_TRY(dtp_tensor_layout(mesh, 2, "1@x", &to, err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 1, &t, err));
    DTP_TRY(dtp_tensor_local(t, &a, err));
    char before[12 * sizeof(float)];
    memcpy(before, a.data, sizeof before);
    for (int32_t i = 1; i <= 3; i++) {
        DTP_TRY(dtp_tensor_redistribute(t, &to, &other, err));
        dtp_tensor_destroy(other);
        if (memcmp(before, a.data, sizeof before) != 0 ||
            dtp_device_mesh_count(mesh, DTP_ALL_TO_ALL) != i) {
            return DTP_FAIL(err, DTP_INTERNAL, "call %d changed its operand or its count", i);
        }
    }
    DTP_TRY(dtp_tensor_redistribute(t, &desc.layout, &same, err));
    DTP_TRY(dtp_tensor_local(t, &a, err));
    DTP_TRY(dtp_tensor_local(same, &b, err));
    dtp_tensor_destroy(t);
    if (a.data != b.data || memcmp(before, b.data, sizeof before) != 0) {
        return DTP_FAIL(err, DTP_INTERNAL, "the same layout is not the same storage");
    }
    return DTP_OK;
}

static void test_dtensor_redistributions__operands_are_not_written(void **state)
{
    (void)state;
    run("x:2;y:2", operands_stay, NULL);
}

/* ---- variables ---- */

static dtp_status variables(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {5};
    dtp_tensor_desc desc;
    dtp_tensor zeros, ones, v, before;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_I32, 1, shape, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_zeros(mesh, &desc, &zeros, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &ones, err));
    DTP_TRY(dtp_variable_create(zeros, &v, err));
    dtp_tensor_destroy(zeros);
    DTP_TRY(dtp_tensor_share(v, &before, err));
    DTP_TRY(dtp_variable_assign(v, ones, err));
    dtp_tensor_destroy(ones);
    const int32_t was[5] = {0}, is[5] = {1, 1, 1, 1, 1};
    DTP_TRY(dt_expect(before, was, "a tensor made before the assignment", err));
    DTP_TRY(dt_expect(v, is, "the variable", err));
    DTP_TRY(dtp_variable_assign(v, v, err));
    return dt_expect(v, is, "the variable assigned to itself", err);
}

static void test_dtensor_redistributions__variables_change_and_earlier_tensors_do_not(void **state)
{
    (void)state;
    run("x:1;y:1", variables, NULL);
    run("x:3", variables, NULL);
}

/* ---- memory ---- */

/* Storage goes when the last handle goes; slots are used again with another generation. */
static dtp_status storage_ends(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {1000};
    dtp_tensor_desc desc;
    dtp_tensor t, shared, next;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F64, 1, shape, "replicated", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    DTP_TRY(dtp_tensor_share(t, &shared, err));
    dtp_tensor_destroy(t);
    dtp_tensor_destroy(t);
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &next, err));
    if (dtp_tensor_is_valid(t) || !dtp_tensor_is_valid(shared) || next.slot != t.slot ||
        next.generation == t.generation) {
        return DTP_FAIL(err, DTP_INTERNAL, "a handle outlives its tensor");
    }
    double v[1000];
    DTP_TRY(dtp_tensor_read(shared, v, err));
    return v[999] == 1 ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "shared contents are lost");
}

static void test_dtensor_redistributions__handles_end_and_slots_return(void **state)
{
    (void)state;
    run("x:2", storage_ends, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtensor_redistributions__arrays_survive_every_way_in_and_out),
        cmocka_unit_test(test_dtensor_redistributions__large_arrays_travel_in_chunks),
        cmocka_unit_test(test_dtensor_redistributions__redistribution_keeps_every_element),
        cmocka_unit_test(test_dtensor_redistributions__operands_are_not_written),
        cmocka_unit_test(test_dtensor_redistributions__variables_change_and_earlier_tensors_do_not),
        cmocka_unit_test(test_dtensor_redistributions__handles_end_and_slots_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
