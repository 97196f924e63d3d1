/* What the messages of distributed tensors say: the reason of the rank that failed on every rank,
 * dims in words of the caller, choices with what is allowed. Also run under MPI. */
#include <string.h>

#include "dtp/ops.h"
#include "tests/dtensor/dtensor_suite.h"
#include "tests/support/misuse_main.h"

static const int64_t SHAPE[] = {6, 4};

/* The call failed with this code, and its message has these words. */
static dtp_status expect(dtp_status got, dtp_status want, const char *words, const dtp_err *said,
                         dtp_err *err)
{
    if (got != want || strstr(said->msg, words) == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "got '%s' ('%.500s'), expected '%s' with '%s'",
                        dtp_status_text(got), said->msg, dtp_status_text(want), words);
    }
    return DTP_OK;
}

static bool is_first(const dtp_device_mesh *mesh)
{
    return dtp_device_mesh_rank(mesh) == 0;
}

static dtp_status make(dtp_device_mesh *mesh, const char *layout, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, layout, &desc, err));
    return dtp_tensor_iota(mesh, &desc, 0, 1, out, err);
}

/* ---- the reason of another rank ---- */

static dtp_status wrap_on_one_rank(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t;
    float data[24] = {0};
    dtp_err said = {0};
    const int64_t shape[] = {is_first(mesh) ? 5 : 6, 4};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "replicated", &desc, err));
    const dtp_status s = dtp_tensor_wrap(mesh, &desc, shape, data, false, &t, &said);
    return expect(s, is_first(mesh) ? DTP_INVALID : DTP_COMM, "given are 5", &said, err);
}

static dtp_status gather_on_one_rank(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t;
    float data[24];
    dtp_err said = {0};
    DTP_TRY(make(mesh, "0@x", &t, err));
    const dtp_status s = dtp_tensor_gather(t, 0, is_first(mesh) ? NULL : data, &said);
    return expect(s, is_first(mesh) ? DTP_INVALID : DTP_COMM, "rank 0 has no room", &said, err);
}

/* One rank alone refuses a call, and the others are told why. */
static dtp_status freed_on_one_rank(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(make(mesh, "0@x", &t, err));
    if (is_first(mesh)) {
        dtp_tensor_destroy(t);
    }
    const dtp_status s = dtp_tensor_relu(t, &out, &said);
    DTP_TRY(
        expect(s, is_first(mesh) ? DTP_INVALID : DTP_COMM, "the tensor was destroyed", &said, err));
    DTP_TRY(make(mesh, "0@x", &t, err));
    return dtp_tensor_relu(t, &out, err); /* the mesh still works */
}

/* ---- words of the caller ---- */

static dtp_status make_of(dtp_device_mesh *mesh, dtp_dtype dtype, int64_t a, int64_t b,
                          dtp_tensor *out, dtp_err *err)
{
    const int64_t shape[] = {a, b};
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, dtype, 2, shape, "replicated", &desc, err));
    return dtp_tensor_zeros(mesh, &desc, out, err);
}

/* Functions by name use letters inside; messages speak of operands and their dims. */
static dtp_status no_letters(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor a, b, out, two[2];
    dtp_err said = {0};
    const int32_t axis = 1;
    DTP_TRY(make_of(mesh, DTP_F32, 8, 6, &a, err));
    DTP_TRY(make_of(mesh, DTP_F32, 4, 8, &b, err));
    two[0] = a;
    two[1] = b;
    DTP_TRY(expect(dtp_tensor_matmul(a, b, &out, &said), DTP_INVALID,
                   "dim '1 of operand 0' is 6 in operand 0 but 4 in operand 1", &said, err));
    DTP_TRY(expect(DTP_INVALID, DTP_INVALID, "matmul(f32[8,6]", &said, err));
    DTP_TRY(expect(dtp_tensor_slice(a, 1, 4, 9, &out, &said), DTP_INVALID, "dim '1' of size 6",
                   &said, err));
    DTP_TRY(expect(dtp_tensor_topk(a, 1, 9, &out, &out, &said), DTP_INVALID, "dim '1' has 6", &said,
                   err));
    DTP_TRY(expect(dtp_tensor_concat(2, two, 0, &out, &said), DTP_INVALID,
                   "'1 of operand 0' of size 8 in operand 1", &said, err));
    DTP_TRY(expect(dtp_tensor_rms_norm(a, b, 1e-5, &out, &said), DTP_INVALID,
                   "f32[0 of operand 0=4, 1 of operand 0=8]", &said, err));
    DTP_TRY(expect(dtp_tensor_var(a, 100, 1, &axis, &out, &said), DTP_INVALID, "for 6 elements",
                   &said, err));
    /* letters that the caller wrote stay */
    return expect(dtp_tensor_einsum("mk,kn->mn", 2, two, &out, &said), DTP_INVALID, "dim 'k' is 6",
                  &said, err);
}

/* ---- what is allowed ---- */

static dtp_status choices(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor a, ids, out;
    dtp_tensor_desc desc;
    dtp_err said = {0};
    dtp_arg arg = {.key = "ovr", .kind = DTP_ARG_DIMS, .text = "a"};
    dtp_call call = {.op = "sofmax", .dims = "ab", .n_in = 1, .n_args = 1, .args = &arg};
    DTP_TRY(make_of(mesh, DTP_F32, 8, 6, &a, err));
    const int64_t rows[] = {8};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_I32, 1, rows, "replicated", &desc, err));
    DTP_TRY(dtp_tensor_zeros(mesh, &desc, &ids, err));
    call.in = &a;
    DTP_TRY(expect(dtp_tensor_cross_entropy(a, ids, "avg", &out, &said), DTP_INVALID,
                   "'avg' is none of: mean, sum, none", &said, err));
    DTP_TRY(expect(dtp_tensor_norm(a, "3", 0, NULL, &out, &said), DTP_INVALID, "none of: 1, 2, inf",
                   &said, err));
    DTP_TRY(expect(dtp_tensor_cast(a, (dtp_dtype)42, &out, &said), DTP_INVALID,
                   "no element type 42 (0 to 6 are f32 f64", &said, err));
    DTP_TRY(expect(dtp_tensor_call(&call, &out, &said), DTP_INVALID, "did you mean 'softmax'?",
                   &said, err));
    call.op = "softmax";
    DTP_TRY(
        expect(dtp_tensor_call(&call, &out, &said), DTP_INVALID, "(the op has: over)", &said, err));
    arg = (dtp_arg){.key = "over", .kind = DTP_ARG_INT};
    DTP_TRY(expect(dtp_tensor_call(&call, &out, &said), DTP_INVALID, "letters of the dims", &said,
                   err));
    DTP_TRY(expect(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "nonsense", &desc, &said),
                   DTP_INVALID, "another form ('batch@x, +sum(y)'", &said, err));
    DTP_TRY(expect(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "batch@x", &desc, &said),
                   DTP_INVALID, "a dim of the tensor (0, 1)", &said, err));
    DTP_TRY(expect(dtp_tensor_desc_init(mesh, (dtp_dtype)9, 2, SHAPE, "0@x", &desc, &said),
                   DTP_INVALID, "(0 to 6 are f32", &said, err));
    return dtp_tensor_relu(a, &out, err); /* the mesh still works */
}

/* ---- the suite ---- */

static const dt_case CASES[] = {
    {"wrap_on_one_rank", wrap_on_one_rank, DTP_AGREE_NEW},
    {"gather_on_one_rank", gather_on_one_rank, DTP_AGREE_NEW},
    {"freed_on_one_rank", freed_on_one_rank, DTP_AGREE_ALWAYS},
    {"no_letters", no_letters, DTP_AGREE_NEW},
    {"choices", choices, DTP_AGREE_NEW},
};

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
