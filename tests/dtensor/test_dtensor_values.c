/* Factories of distributed tensors: values by global index, the same under every layout and number
 * of ranks. */
#include "tests/dtensor/dtensor_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/philox.h"
#include "executor/device/convert.h"

enum { SEED = 42, STREAM = 7 };

static const char *const MESHES[] = {"",        "x:2",     "x:3",     "x:5",        "x:8",
                                     "x:2;y:2", "x:2;y:3", "x:1;y:4", "x:2;y:2;z:2"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0] };

static void run(const char *mesh, dtp_world_body body, void *user)
{
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    options.mesh.seed = SEED;
    if (dtp_world_run(mesh, &options, body, user, &err) != DTP_OK) {
        fail_msg("mesh '%s': %s", mesh, err.msg);
    }
}

/* ---- what the elements should be ---- */

typedef enum maker { ZEROS, ONES, FULL, IOTA, UNIFORM, NORMAL, N_MAKERS } maker;

static double element(maker m, uint64_t i)
{
    switch (m) {
    case ZEROS:
        return 0;
    case ONES:
        return 1;
    case FULL:
        return 3;
    case IOTA:
        return 5 + 2 * (double)i;
    case UNIFORM:
        return -1 + 3 * dtp_uniform_at(SEED, STREAM, 0, i);
    default:
        return 0.5 + 2 * dtp_normal_at(SEED, STREAM, 0, i);
    }
}

static void *expected(maker m, const dtp_tensor_desc *desc)
{
    int64_t n = dt_elems(desc);
    char *data = calloc((size_t)n + 1, 8);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) {
        dtp_element_set(desc->dtype, data, i, element(m, (uint64_t)i));
        bool at_end = m == UNIFORM && dtp_element(desc->dtype, data, i) >= 2;
        if (at_end) { /* the interval is open: the last value below 2 of 16-bit types */
            dtp_element_set(desc->dtype, data, i,
                            desc->dtype == DTP_BF16 ? 1.9921875 : 1.9990234375);
        }
    }
    return data;
}

static dtp_status make(dtp_device_mesh *mesh, maker m, const dtp_tensor_desc *desc, dtp_tensor *out,
                       dtp_err *err)
{
    switch (m) {
    case ZEROS:
        return dtp_tensor_zeros(mesh, desc, out, err);
    case ONES:
        return dtp_tensor_ones(mesh, desc, out, err);
    case FULL:
        return dtp_tensor_full(mesh, desc, 3, out, err);
    case IOTA:
        return dtp_tensor_iota(mesh, desc, 5, 2, out, err);
    case UNIFORM:
        return dtp_tensor_uniform(mesh, desc, STREAM, -1, 2, out, err);
    default:
        return dtp_tensor_normal(mesh, desc, STREAM, 0.5, 2, out, err);
    }
}

static bool makes(maker m, dtp_dtype dtype)
{
    return m <= ONES || (dtype != DTP_BOOL && m <= IOTA) || dtp_dtype_is_float(dtype);
}

static dtp_status one_value(dtp_device_mesh *mesh, maker m, const dtp_tensor_desc *desc,
                            dtp_err *err)
{
    dtp_tensor t;
    char text[DTP_TENSOR_TEXT_BYTES];
    DTP_TRY(make(mesh, m, desc, &t, err));
    dtp_tensor_print(t, text);
    void *want = expected(m, desc);
    dtp_status status = dt_expect(t, want, text, err);
    status = status == DTP_OK ? dt_expect_local(t, want, text, err) : status;
    free(want);
    dtp_tensor_destroy(t);
    return status;
}

/* Every factory that makes the type, each in a random layout. */
static dtp_status all_makers(dtp_device_mesh *mesh, dtp_dtype dtype, int32_t rank, uint64_t *seed,
                             dtp_err *err)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {7, 1, 1}, {5, 3, 1}, {2, 9, 4}};
    for (maker m = ZEROS; m < N_MAKERS; m++) {
        dtp_layout layout = dt_random_layout(dtp_device_mesh_dims(mesh), rank, false, seed);
        dtp_tensor_desc desc = dt_desc(dtype, rank, shapes[rank], &layout);
        if (makes(m, dtype)) {
            DTP_TRY(one_value(mesh, m, &desc, err));
        }
    }
    return DTP_OK;
}

static dtp_status all_values(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    uint64_t seed = *(const uint64_t *)user;
    for (int32_t dtype = 0; dtype < DTP_N_DTYPES; dtype++) {
        for (int32_t rank = 0; rank <= 3; rank++) {
            DTP_TRY(all_makers(mesh, (dtp_dtype)dtype, rank, &seed, err));
        }
    }
    return DTP_OK;
}

static void test_dtensor_values__factories_do_not_depend_on_the_layout(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_MESHES; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            uint64_t s = seed * 1000 + (uint64_t)i;
            print_message("mesh '%s' seed %llu\n", MESHES[i], (unsigned long long)s);
            run(MESHES[i], all_values, &s);
        }
    }
}

/* ---- acceptance: one tensor under 20 layouts on 1 to 8 ranks ---- */

typedef struct place {
    const char *mesh, *layout;
} place;

static const place PLACES[] = {
    {"", "replicated"},
    {"x:2", "0@x"},
    {"x:2", "1@x"},
    {"x:2", "replicated"},
    {"x:3", "0@x"},
    {"x:3", "1@x"},
    {"x:4", "0@x"},
    {"x:4", "1@x"},
    {"x:5", "1@x"},
    {"x:6", "0@x"},
    {"x:7", "0@x"},
    {"x:7", "1@x"},
    {"x:8", "0@x"},
    {"x:8", "1@x"},
    {"x:2;y:2", "0@x+y"},
    {"x:2;y:2", "0@y+x"},
    {"x:2;y:2", "0@x, 1@y"},
    {"x:2;y:2", "0@y"},
    {"x:2;y:3", "1@y+x"},
    {"x:3;y:2", "0@y, 1@x"},
    {"x:2;y:2;z:2", "0@z+x+y"},
    {"x:2;y:2;z:2", "1@z+x, 0@y"},
    {"x:2;y:2;z:2", "0@x, 1@z"},
};

static dtp_status same_bits(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    static const int64_t shape[] = {1000, 37};
    static const dtp_dtype types[] = {DTP_F32, DTP_F64, DTP_BF16, DTP_F16};
    const place *p = user;
    for (int32_t i = 0; i < 4; i++) {
        dtp_tensor_desc desc;
        DTP_TRY(dtp_tensor_desc_init(mesh, types[i], 2, shape, p->layout, &desc, err));
        DTP_TRY(one_value(mesh, NORMAL, &desc, err));
        DTP_TRY(one_value(mesh, UNIFORM, &desc, err));
    }
    return DTP_OK;
}

static void test_dtensor_values__random_values_have_the_same_bits_under_23_layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        place p = PLACES[i];
        run(p.mesh, same_bits, &p);
    }
}

/* ---- partial layouts ---- */

/* The tensor reduced to replicated has these values; frees it. */
static dtp_status reduces_to(dtp_tensor t, const void *want, const char *what, dtp_err *err)
{
    dtp_layout whole = dtp_layout_replicated(2, 2);
    dtp_tensor reduced;
    DTP_TRY(dtp_tensor_redistribute(t, &whole, &reduced, err));
    DTP_TRY(dt_expect(reduced, want, what, err));
    dtp_tensor_destroy(t);
    dtp_tensor_destroy(reduced);
    return DTP_OK;
}

static dtp_status partial_value(dtp_device_mesh *mesh, const char *layout, const void *want,
                                const dtp_tensor_desc *desc, dtp_err *err)
{
    dtp_tensor t;
    DTP_TRY(dtp_tensor_iota(mesh, desc, 5, 2, &t, err));
    DTP_TRY(reduces_to(t, want, layout, err));
    DTP_TRY(dtp_tensor_from_array(mesh, desc, want, &t, err));
    DTP_TRY(reduces_to(t, want, layout, err));
    DTP_TRY(dtp_tensor_scatter(mesh, desc, 1, want, &t, err));
    return reduces_to(t, want, layout, err);
}

static dtp_status partial_values(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {5, 3};
    static const char *const layouts[] = {"+sum(x)",          "+avg(x)",      "+prod(x)",
                                          "+min(x)",          "+max(x)",      "+sum(y)",
                                          "+sum(x), +sum(y)", "0@y, +sum(x)", "1@x, +prod(y)"};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        dtp_tensor_desc desc;
        DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F64, 2, shape, layouts[i], &desc, err));
        void *want = expected(IOTA, &desc);
        dtp_status status = partial_value(mesh, layouts[i], want, &desc, err);
        free(want);
        DTP_TRY(status);
    }
    return DTP_OK;
}

static void test_dtensor_values__partial_tensors_reduce_to_the_values(void **state)
{
    (void)state;
    run("x:2;y:2", partial_values, NULL);
    run("x:4;y:2", partial_values, NULL);
}

/* ---- bounds ---- */

/* The value that rounds furthest must stay inside the interval in every type. */
static dtp_status inside(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {200000};
    static const dtp_dtype types[] = {DTP_F32, DTP_F64, DTP_BF16, DTP_F16};
    static const double bounds[][2] = {{0, 1}, {-1, 0}, {1, 1.25}, {-3.3, 7.7}};
    for (int32_t i = 0; i < 16; i++) {
        const double low = bounds[i / 4][0], high = bounds[i / 4][1];
        dtp_tensor_desc desc;
        dtp_tensor t;
        dtp_local local;
        DTP_TRY(dtp_tensor_desc_init(mesh, types[i % 4], 1, shape, "0@x", &desc, err));
        DTP_TRY(dtp_tensor_uniform(mesh, &desc, 1, low, high, &t, err));
        DTP_TRY(dtp_tensor_local(t, &local, err));
        for (int64_t e = 0; e < local.shape[0]; e++) {
            double v = dtp_element(desc.dtype, local.data, e);
            if (!(v >= low && v < high)) {
                return DTP_FAIL(err, DTP_INTERNAL, "%.17g is outside [%g, %g)", v, low, high);
            }
        }
        dtp_tensor_destroy(t);
    }
    return DTP_OK;
}

static void test_dtensor_values__uniform_values_stay_in_their_interval(void **state)
{
    (void)state;
    run("x:2", inside, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtensor_values__factories_do_not_depend_on_the_layout),
        cmocka_unit_test(test_dtensor_values__random_values_have_the_same_bits_under_23_layouts),
        cmocka_unit_test(test_dtensor_values__partial_tensors_reduce_to_the_values),
        cmocka_unit_test(test_dtensor_values__uniform_values_stay_in_their_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
