/* Whole tensors and single elements from every layout: dtp_tensor_full_tensor and dtp_tensor_item,
 * and the messages that name them. Runs on virtual ranks and under MPI. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"
#include "tests/dtensor/dtensor_suite.h"
#include "tests/support/misuse_main.h"

static dtp_status expect(dtp_status got, dtp_status want, const char *words, const dtp_err *said,
                         dtp_err *err)
{
    return got == want && strstr(said->msg, words) != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "got '%s' ('%.500s'), expected '%s' with '%s'",
                          dtp_status_text(got), got == DTP_OK ? "" : said->msg,
                          dtp_status_text(want), words);
}

/* Random layouts, partial ones too: the values that the factory was asked for come back. */
static dtp_status full(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {5, 3};
    const int32_t ranks = dtp_device_mesh_size(mesh), rank = dtp_device_mesh_rank(mesh);
    uint64_t seed = 17;
    for (int32_t i = 0; i < 200; i++) {
        const dtp_layout layout = dt_random_layout(dtp_device_mesh_dims(mesh), 2, true, &seed);
        const dtp_dtype dtype = i % 3 == 0 ? DTP_F32 : i % 3 == 1 ? DTP_I64 : DTP_BF16;
        const dtp_tensor_desc desc = dt_desc(dtype, 2, shape, &layout);
        const int32_t root = i % (ranks + 1) - 1;
        char got[15 * 8];
        dtp_tensor t;
        DTP_TRY(dtp_tensor_iota(mesh, &desc, 1, 2, &t, err));
        DTP_TRY(dtp_tensor_full_tensor(t, root, root < 0 || root == rank ? got : NULL, err));
        for (int64_t e = 0; e < 15 && (root < 0 || root == rank); e++) {
            if (dtp_element(dtype, got, e) != (double)(1 + 2 * e)) {
                return DTP_FAIL(err, DTP_INTERNAL, "case %d of seed 17: element %" PRId64 " is %g",
                                i, e, dtp_element(dtype, got, e));
            }
        }
        dtp_tensor_destroy(t);
    }
    return DTP_OK;
}

static dtp_status items(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const char *const layouts[] = {"replicated", "+sum(x)", "+max(x)", "0@x"};
    static const int64_t shape[] = {1, 1}, two[] = {2}, large = (INT64_C(1) << 60) + 1;
    dtp_err said = {0};
    dtp_tensor_desc desc;
    dtp_tensor t;
    double value;
    int64_t whole;
    for (int32_t i = 0; i < 4; i++) {
        for (int32_t dtype = 0; dtype < DTP_N_DTYPES; dtype++) {
            const bool sum_of_truth = dtype == DTP_BOOL && i == 1;
            const bool is_float = dtp_dtype_is_float((dtp_dtype)dtype);
            DTP_TRY(dtp_tensor_desc_init(mesh, (dtp_dtype)dtype, i < 3 ? 0 : 2, shape, layouts[i],
                                         &desc, err));
            DTP_TRY(dtp_tensor_full(mesh, &desc, is_float ? -1.5 : 1, &t, err));
            const dtp_status s = dtp_tensor_item(t, &value, sum_of_truth ? NULL : err);
            if (s != (sum_of_truth ? DTP_UNSUPPORTED : DTP_OK) ||
                (s == DTP_OK && value != (is_float ? -1.5 : 1.0))) {
                return DTP_FAIL(err, DTP_INTERNAL, "%s %s: %s, %g",
                                dtp_dtype_name((dtp_dtype)dtype), layouts[i], dtp_status_text(s),
                                value);
            }
            if (is_float) {
                DTP_TRY(expect(dtp_tensor_item_int(t, &whole, &said), DTP_INVALID,
                               "use dtp_tensor_item", &said, err));
            }
        }
    }
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_I64, 0, NULL, "replicated", &desc, err));
    DTP_TRY(dtp_tensor_from_array(mesh, &desc, &large, &t, err));
    DTP_TRY(dtp_tensor_item_int(t, &whole, err));
    if (whole != large) {
        return DTP_FAIL(err, DTP_INTERNAL, "%" PRId64 " of %" PRId64, whole, large);
    }
    DTP_TRY(
        expect(dtp_tensor_item(t, &value, &said), DTP_RANGE, "1152921504606846977", &said, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, two, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    return expect(dtp_tensor_item(t, &value, &said), DTP_INVALID, "is not one element", &said, err);
}

/* What refuses a layout names the function that takes it. */
static dtp_status messages(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const struct {
        int64_t size;
        const char *layout, *read, *gather; /* NULL: it is gathered */
    } rows[] = {{6, "0@x", "use dtp_tensor_gather", NULL},
                {6, "+sum(x)", "use dtp_tensor_full_tensor", "use dtp_tensor_full_tensor"},
                {1, "+sum(x)", "use dtp_tensor_item", "use dtp_tensor_full_tensor"}};
    for (int32_t i = 0; i < 3; i++) {
        dtp_tensor_desc desc;
        dtp_tensor t;
        dtp_err said = {0};
        float data[6];
        DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, &rows[i].size, rows[i].layout, &desc, err));
        DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
        DTP_TRY(expect(dtp_tensor_read(t, data, &said), DTP_INVALID, rows[i].read, &said, err));
        if (rows[i].gather != NULL) {
            DTP_TRY(expect(dtp_tensor_gather(t, -1, data, &said), DTP_INVALID, rows[i].gather,
                           &said, err));
        }
    }
    return DTP_OK;
}

static const dt_case CASES[] = {{"full", full, DTP_AGREE_NEW},
                                {"full_always", full, DTP_AGREE_ALWAYS},
                                {"items", items, DTP_AGREE_NEW},
                                {"messages", messages, DTP_AGREE_NEW}};

static const char *name(int32_t i, const dtp_mesh *mesh)
{
    (void)mesh;
    return CASES[i].name;
}

static dtp_status run(int32_t i, const char *mesh, dtp_err *err)
{
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    options.environment = environ;
    options.mesh.agree = CASES[i].agree;
    return dtp_world_run(mesh, &options, CASES[i].body, NULL, err);
}

int main(int argc, char **argv)
{
    const misuse_suite suite = {
        .n = (int32_t)(sizeof CASES / sizeof CASES[0]), .name = name, .run = run};
    return misuse_main(&suite, argc, argv);
}
