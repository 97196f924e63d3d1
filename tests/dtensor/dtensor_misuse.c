/* Misuse of distributed tensors. Every body runs on every rank of a mesh with two dims "x" (at
 * least 2 ranks) and "y"; it checks that the misuse is a clear error on this rank and that the mesh
 * works afterwards. */
#include "tests/dtensor/dtensor_suite.h"

#include <stdlib.h>
#include <string.h>

#include "dtensor/internal.h"

/* The call failed with this code, and its message has these words. */
static dtp_status expect(dtp_status got, dtp_status want, const char *words, const dtp_err *said,
                         dtp_err *err)
{
    if (got != want || strstr(said->msg, words) == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "got '%s' ('%.600s'), expected '%s' with '%s'",
                        dtp_status_text(got), got == DTP_OK ? "" : said->msg, dtp_status_text(want),
                        words);
    }
    return DTP_OK;
}

static const int64_t SHAPE[] = {6, 4};

static dtp_status iota(dtp_device_mesh *mesh, const char *layout, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, layout, &desc, err));
    return dtp_tensor_iota(mesh, &desc, 0, 1, out, err);
}

static dtp_status move_to(dtp_tensor t, const char *layout, dtp_tensor *out, dtp_err *err)
{
    dtp_layout to;
    DTP_TRY(dtp_tensor_layout(t.mesh, 2, layout, &to, err));
    return dtp_tensor_redistribute(t, &to, out, err);
}

/* The mesh still works. */
static dtp_status still_works(dtp_device_mesh *mesh, dtp_err *err)
{
    dtp_tensor t, moved;
    float want[24];
    for (int i = 0; i < 24; i++) {
        want[i] = (float)i;
    }
    DTP_TRY(iota(mesh, "1@x", &t, err));
    DTP_TRY(move_to(t, "0@x", &moved, err));
    DTP_TRY(dt_expect(moved, want, "after the misuse", err));
    dtp_tensor_destroy(t);
    dtp_tensor_destroy(moved);
    return DTP_OK;
}

static bool is_first(const dtp_device_mesh *mesh)
{
    return dtp_device_mesh_rank(mesh) == 0;
}

/* ---- meshes and handles ---- */

static dtp_status other_mesh(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_device_mesh *other;
    dtp_tensor variable, value;
    dtp_err said = {0};
    DTP_TRY(dtp_device_mesh_create(mesh->comm, mesh->backend, NULL, &other, err));
    DTP_TRY(iota(mesh, "0@x", &value, err));
    DTP_TRY(dtp_variable_create(value, &variable, err));
    DTP_TRY(iota(other, "0@x", &value, err));
    dtp_status status = dtp_variable_assign(variable, value, &said);
    dtp_device_mesh_destroy(other);
    DTP_TRY(expect(status, DTP_INVALID, "another mesh", &said, err));
    return still_works(mesh, err);
}

static dtp_status freed_handle(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_local local;
    dtp_tensor_desc desc;
    float data[24];
    dtp_layout to = dtp_layout_replicated(2, dtp_device_mesh_dims(mesh)->n_dims);
    DTP_TRY(iota(mesh, "0@x", &t, err));
    dtp_tensor_destroy(t);
    dtp_tensor_destroy(t);
    for (int i = 0; i < 7; i++) {
        dtp_err said = {0};
        dtp_status status = i == 0   ? dtp_tensor_redistribute(t, &to, &out, &said)
                            : i == 1 ? dtp_tensor_gather(t, -1, data, &said)
                            : i == 2 ? dtp_tensor_read(t, data, &said)
                            : i == 3 ? dtp_tensor_share(t, &out, &said)
                            : i == 4 ? dtp_tensor_local(t, &local, &said)
                            : i == 5 ? dtp_tensor_describe(t, &desc, &said)
                                     : dtp_tensor_unpack(t, data, NULL, &said);
        DTP_TRY(expect(status, DTP_INVALID, "was destroyed", &said, err));
    }
    return still_works(mesh, err);
}

static dtp_status zeroed_handle(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t = {0}, out;
    float data[24];
    dtp_layout to = dtp_layout_replicated(2, dtp_device_mesh_dims(mesh)->n_dims);
    dtp_err said = {0};
    dtp_tensor_destroy(t);
    dtp_status status = dtp_tensor_redistribute(t, &to, &out, &said);
    DTP_TRY(expect(status, DTP_INVALID, "never made", &said, err));
    status = dtp_tensor_gather(t, -1, data, &said);
    DTP_TRY(expect(status, DTP_INVALID, "never made", &said, err));
    char text[DTP_TENSOR_TEXT_BYTES];
    dtp_tensor_print(t, text);
    return still_works(mesh, err);
}

/* Only rank 0 has freed its handle; the others go on. */
static dtp_status freed_on_one_rank(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_layout to = dtp_layout_replicated(2, dtp_device_mesh_dims(mesh)->n_dims);
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(dtp_tensor_redistribute(t, &to, &out, err));
    if (is_first(mesh)) {
        dtp_tensor_destroy(t);
    }
    dtp_status status = dtp_tensor_redistribute(t, &to, &out, &said);
    DTP_TRY(expect(status, is_first(mesh) ? DTP_INVALID : DTP_COMM, "redistribute", &said, err));
    return still_works(mesh, err);
}

/* ---- descriptions ---- */

static dtp_status wrong_rank(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_layout to;
    dtp_tensor_desc desc;
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(dtp_tensor_layout(mesh, 3, "2@x", &to, err));
    DTP_TRY(expect(dtp_tensor_redistribute(t, &to, &out, &said), DTP_INVALID, "redistribute", &said,
                   err));
    DTP_TRY(expect(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "2@x", &desc, &said), DTP_INVALID,
                   "2", &said, err));
    DTP_TRY(expect(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@w", &desc, &said), DTP_INVALID,
                   "w", &said, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@x", &desc, err));
    desc.layout.n_mesh = 3;
    DTP_TRY(expect(dtp_tensor_zeros(mesh, &desc, &out, &said), DTP_INVALID, "", &said, err));
    desc.layout = to;
    DTP_TRY(expect(dtp_tensor_zeros(mesh, &desc, &out, &said), DTP_INVALID, "", &said, err));
    return still_works(mesh, err);
}

static dtp_status overflowing_sizes(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const struct {
        dtp_dtype dtype;
        int32_t rank;
        int64_t shape[3];
        dtp_status want;
    } cases[] = {
        {DTP_F32, 2, {INT64_C(1) << 40, INT64_C(1) << 40}, DTP_RANGE},
        {DTP_F64, 1, {INT64_C(1) << 61}, DTP_RANGE},
        {DTP_BOOL, 3, {INT64_MAX, 1, 2}, DTP_RANGE},
        {DTP_F32, 1, {0}, DTP_RANGE},
        {DTP_F32, 2, {3, -1}, DTP_RANGE},
        {DTP_F32, 9, {1}, DTP_INVALID},
        {DTP_F32, -1, {1}, DTP_INVALID},
        {(dtp_dtype)99, 1, {4}, DTP_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_tensor_desc desc;
        dtp_err said = {0};
        dtp_status status = dtp_tensor_desc_init(mesh, cases[i].dtype, cases[i].rank,
                                                 cases[i].shape, "replicated", &desc, &said);
        DTP_TRY(expect(status, cases[i].want, "", &said, err));
        dtp_tensor t;
        dtp_layout layout = dtp_layout_replicated(cases[i].rank < 3 ? cases[i].rank : 3,
                                                  dtp_device_mesh_dims(mesh)->n_dims);
        desc = dt_desc(cases[i].dtype, cases[i].rank < 0 ? 0 : 1, cases[i].shape, &layout);
        desc.rank = cases[i].rank;
        memcpy(desc.shape, cases[i].shape, sizeof cases[i].shape);
        status = dtp_tensor_scatter(mesh, &desc, 0, NULL, &t, &said);
        DTP_TRY(expect(status, cases[i].want, "", &said, err));
    }
    return still_works(mesh, err);
}

/* More memory than there is, on every rank. */
static dtp_status too_large(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {INT64_C(1) << 58};
    dtp_tensor_desc desc;
    dtp_tensor t;
    dtp_err said = {0};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, shape, "replicated", &desc, err));
    DTP_TRY(
        expect(dtp_tensor_zeros(mesh, &desc, &t, &said), DTP_NOMEM, "out of memory", &said, err));
    DTP_TRY(expect(dtp_tensor_scatter(mesh, &desc, 0, NULL, &t, &said), DTP_NOMEM, "out of memory",
                   &said, err));
    return still_works(mesh, err);
}

static dtp_status wrong_values(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t;
    dtp_err said = {0};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_I32, 2, SHAPE, "0@x", &desc, err));
    DTP_TRY(expect(dtp_tensor_full(mesh, &desc, 0.5, &t, &said), DTP_RANGE, "0.5", &said, err));
    DTP_TRY(expect(dtp_tensor_full(mesh, &desc, 3e9, &t, &said), DTP_RANGE, "3", &said, err));
    DTP_TRY(expect(dtp_tensor_iota(mesh, &desc, 0, 2e8, &t, &said), DTP_RANGE, "iota", &said, err));
    DTP_TRY(expect(dtp_tensor_normal(mesh, &desc, 0, 0, 1, &t, &said), DTP_INVALID, "float", &said,
                   err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_BF16, 2, SHAPE, "0@x", &desc, err));
    DTP_TRY(expect(dtp_tensor_uniform(mesh, &desc, 0, 2, 1, &t, &said), DTP_INVALID, "[2, 1)",
                   &said, err));
    DTP_TRY(expect(dtp_tensor_uniform(mesh, &desc, 0, 1.0001, 1.0002, &t, &said), DTP_INVALID,
                   "no value", &said, err));
    return still_works(mesh, err);
}

/* ---- to the host and back ---- */

static dtp_status read_sharded(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const char *const layouts[] = {"0@x", "+sum(x)", "1@x"};
    for (int i = 0; i < 3; i++) {
        dtp_tensor t;
        float data[24];
        dtp_err said = {0};
        DTP_TRY(iota(mesh, layouts[i], &t, err));
        DTP_TRY(expect(dtp_tensor_read(t, data, &said), DTP_INVALID, "not replicated on mesh dim",
                       &said, err));
    }
    return still_works(mesh, err);
}

static dtp_status gather_wrong(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t;
    float data[24];
    dtp_err said = {0};
    bool first = is_first(mesh);
    DTP_TRY(iota(mesh, "+sum(x)", &t, err));
    DTP_TRY(expect(dtp_tensor_gather(t, -1, data, &said), DTP_INVALID, "is partial", &said, err));
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(expect(dtp_tensor_gather(t, 64, data, &said), DTP_INVALID, "rank 64", &said, err));
    DTP_TRY(expect(dtp_tensor_gather(t, 0, first ? NULL : data, &said),
                   first ? DTP_INVALID : DTP_COMM, "rank 0", &said, err));
    return still_works(mesh, err);
}

static dtp_status scatter_wrong(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t;
    float data[24] = {0};
    dtp_err said = {0};
    bool first = is_first(mesh);
    int32_t ranks = dtp_device_mesh_size(mesh);
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@x", &desc, err));
    DTP_TRY(expect(dtp_tensor_scatter(mesh, &desc, ranks, data, &t, &said), DTP_INVALID,
                   "the source is rank", &said, err));
    DTP_TRY(expect(dtp_tensor_scatter(mesh, &desc, -1, data, &t, &said), DTP_INVALID,
                   "the source is rank", &said, err));
    DTP_TRY(expect(dtp_tensor_scatter(mesh, &desc, 0, first ? NULL : data, &t, &said),
                   first ? DTP_INVALID : DTP_COMM, "rank 0", &said, err));
    DTP_TRY(expect(dtp_tensor_from_array(mesh, &desc, NULL, &t, &said), DTP_INVALID, "no data",
                   &said, err));
    return still_works(mesh, err);
}

static dtp_status wrap_wrong(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t;
    float data[24] = {0};
    dtp_err said = {0};
    bool first = is_first(mesh);
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "replicated", &desc, err));
    const int64_t wrong[] = {first ? 5 : 6, 4};
    DTP_TRY(expect(dtp_tensor_wrap(mesh, &desc, wrong, data, false, &t, &said),
                   first ? DTP_INVALID : DTP_COMM, first ? "given are 5" : "rank 0", &said, err));
    data[3] = first ? 1 : 0;
    dtp_status status = dtp_tensor_wrap(mesh, &desc, SHAPE, data, true, &t, &said);
    DTP_TRY(expect(status, DTP_INVALID, "not all equal", &said, err));
    return still_works(mesh, err);
}

static dtp_status pack_wrong(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t;
    float a[24] = {0}, b[24] = {1};
    const void *parts[64];
    static const int64_t odd[] = {7, 3};
    dtp_err said = {0};
    for (int32_t r = 0; r < 64; r++) {
        parts[r] = r == 0 ? a : b;
    }
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "replicated", &desc, err));
    DTP_TRY(
        expect(dtp_tensor_pack(mesh, &desc, parts, &t, &said), DTP_INVALID, "differs", &said, err));
    parts[1] = NULL;
    DTP_TRY(expect(dtp_tensor_pack(mesh, &desc, parts, &t, &said), DTP_INVALID,
                   "component 1 is missing", &said, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, odd, "0@x", &desc, err));
    DTP_TRY(
        expect(dtp_tensor_pack(mesh, &desc, parts, &t, &said), DTP_INVALID, "evenly", &said, err));
    return still_works(mesh, err);
}

/* ---- layouts that cannot be reached ---- */

static dtp_status to_partial(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const char *const pairs[][2] = {
        {"replicated", "+sum(x)"}, {"0@x", "+sum(x)"}, {"+sum(x)", "+avg(x)"}};
    for (int i = 0; i < 3; i++) {
        dtp_tensor t, out;
        dtp_err said = {0};
        DTP_TRY(iota(mesh, pairs[i][0], &t, err));
        DTP_TRY(
            expect(move_to(t, pairs[i][1], &out, &said), DTP_UNSUPPORTED, "partial", &said, err));
    }
    return still_works(mesh, err);
}

/* A reduction that no communicator has. */
static dtp_status sum_of_truth(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_BOOL, 2, SHAPE, "+sum(x)", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    DTP_TRY(expect(move_to(t, "replicated", &out, &said), DTP_UNSUPPORTED, "bool", &said, err));
    return still_works(mesh, err);
}

static dtp_status assign_wrong(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor variable, t, other;
    dtp_err said = {0};
    float want[24];
    for (int i = 0; i < 24; i++) {
        want[i] = (float)i;
    }
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(dtp_variable_create(t, &variable, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "1@x", &desc, err));
    DTP_TRY(dtp_tensor_zeros(mesh, &desc, &other, err));
    DTP_TRY(expect(dtp_variable_assign(variable, other, &said), DTP_INVALID, "0@x", &said, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F64, 2, SHAPE, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_zeros(mesh, &desc, &other, err));
    DTP_TRY(expect(dtp_variable_assign(variable, other, &said), DTP_INVALID, "f64", &said, err));
    DTP_TRY(
        expect(dtp_variable_assign(t, variable, &said), DTP_INVALID, "not a variable", &said, err));
    DTP_TRY(dt_expect(variable, want, "the variable after refused assignments", err));
    return still_works(mesh, err);
}

/* ---- ranks that disagree ---- */

static dtp_status other_names(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_device_mesh *made = NULL;
    dtp_err said = {0};
    dtp_mesh keep = mesh->comm->mesh;
    if (!is_first(mesh)) {
        strcpy(mesh->comm->mesh.names[0], "w");
    }
    dtp_status status = dtp_device_mesh_create(mesh->comm, mesh->backend, NULL, &made, &said);
    mesh->comm->mesh = keep;
    DTP_TRY(expect(status, DTP_COMM, "the mesh", &said, err));
    return still_works(mesh, err);
}

static dtp_status other_options(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_device_mesh *made = NULL;
    dtp_err said = {0};
    dtp_device_mesh_options options = dtp_device_mesh_options_init();
    options.seed = is_first(mesh) ? 1 : 2;
    dtp_status status = dtp_device_mesh_create(mesh->comm, mesh->backend, &options, &made, &said);
    DTP_TRY(expect(status, DTP_COMM, "the seed", &said, err));
    options.seed = 1;
    options.torch = is_first(mesh);
    status = dtp_device_mesh_create(mesh->comm, mesh->backend, &options, &made, &said);
    DTP_TRY(expect(status, DTP_COMM, "the options", &said, err));
    return still_works(mesh, err);
}

static dtp_status other_shape(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor_desc desc;
    dtp_tensor t;
    float data[64] = {0};
    dtp_err said = {0};
    const int64_t shape[] = {is_first(mesh) ? 6 : 8, 4};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "0@x", &desc, err));
    DTP_TRY(expect(dtp_tensor_scatter(mesh, &desc, 0, data, &t, &said), DTP_COMM, "scatter", &said,
                   err));
    return still_works(mesh, err);
}

static dtp_status other_layout(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(expect(move_to(t, is_first(mesh) ? "1@x" : "replicated", &out, &said), DTP_COMM,
                   "redistribute f32[6,4] 0@x to", &said, err));
    return still_works(mesh, err);
}

static dtp_status other_order(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    float data[24];
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    for (int i = 0; i < 2; i++) {
        bool moves = is_first(mesh) == (i == 0);
        dtp_status status =
            moves ? move_to(t, "1@x", &out, &said) : dtp_tensor_gather(t, -1, data, &said);
        DTP_TRY(expect(status, DTP_COMM, moves ? "redistribute" : "gather", &said, err));
    }
    return still_works(mesh, err);
}

/* Calls that every rank has made before: only DTP_AGREE_ALWAYS compares them. */
static dtp_status other_order_known(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    float data[24];
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(move_to(t, "1@x", &out, err));
    DTP_TRY(dtp_tensor_gather(t, -1, data, err));
    return other_order(mesh, NULL, err);
}

/* Rank 0 takes two tensors of one type and layout the other way round. Their collectives are alike;
 * the next comparison notices. */
static dtp_status swap_two(dtp_device_mesh *mesh, bool always, dtp_err *err)
{
    dtp_tensor t[2], out;
    dtp_tensor_desc desc;
    dtp_err said = {0};
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, SHAPE, "0@x", &desc, err));
    for (int i = 0; i < 2; i++) {
        DTP_TRY(dtp_tensor_iota(mesh, &desc, i, 1, &t[i], err));
        DTP_TRY(move_to(t[i], "replicated", &out, err));
        DTP_TRY(move_to(out, "0@x", &t[i], err)); /* made by calls of one key */
    }
    for (int i = 0; i < 2; i++) {
        dtp_status status = move_to(t[is_first(mesh) ? 1 - i : i], "replicated", &out, &said);
        if (always) {
            DTP_TRY(expect(status, DTP_COMM, "different tensors", &said, err));
        } else if (status != DTP_OK) {
            return status;
        }
    }
    dtp_status status = move_to(t[0], "1@x", &out, always ? err : &said);
    DTP_TRY(always ? status : expect(status, DTP_COMM, "last compared", &said, err));
    DTP_TRY(move_to(t[1], "1@x", &out, err));
    return still_works(mesh, err);
}

static dtp_status swapped(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    return swap_two(mesh, false, err);
}

static dtp_status swapped_always(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    return swap_two(mesh, true, err);
}

/* ---- calls that every rank has made before, which DTP_AGREE_NEW does not compare ---- */

/* The ranks find out in the collectives; then the mesh is of no more use and says so. */

/* Whether rank 0 is in this rank's group over "x". */
static bool meets_first(const dtp_device_mesh *mesh)
{
    return dtp_mesh_set_member(dtp_device_mesh_dims(mesh), 1, dtp_device_mesh_rank(mesh), 0) == 0;
}

/* The error names what two ranks do, and the mesh stays broken. Ranks that do not meet rank 0 in
 * the call learn of it when they do. */
static dtp_status expect_broken(dtp_tensor t, dtp_status got, const dtp_err *said, const char *mine,
                                dtp_err *err)
{
    static const char *const openings[] = {"the ranks run different collectives",
                                           "the ranks wait for each other"};
    dtp_tensor out;
    dtp_err later = {0}, again = {0};
    if (got == DTP_OK && !meets_first(t.mesh)) {
        got = t.mesh->comm->ops->barrier(t.mesh->comm, &later);
        said = &later;
    }
    bool known = strstr(said->msg, openings[0]) != NULL || strstr(said->msg, openings[1]) != NULL;
    DTP_TRY(expect(got, DTP_COMM, mine, said, err));
    DTP_TRY(expect(got, DTP_COMM, known ? "rank 0: " : "the ranks ...", said, err));
    DTP_TRY(expect(got, DTP_COMM, "; rank ", said, err));
    return expect(move_to(t, "replicated", &out, &again), DTP_COMM, "rank 0: ", &again, err);
}

static dtp_status cached_order(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(move_to(t, "1@x", &out, err));
    DTP_TRY(move_to(t, "replicated", &out, err));
    DTP_TRY(mesh->comm->ops->barrier(mesh->comm, err));
    dtp_status status = move_to(t, is_first(mesh) ? "1@x" : "replicated", &out, &said);
    return expect_broken(t, status, &said, "all_gather", err);
}

static dtp_status cached_gather(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    float data[24];
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(move_to(t, "1@x", &out, err));
    DTP_TRY(move_to(t, "replicated", &out, err));
    DTP_TRY(dtp_tensor_gather(t, -1, data, err));
    DTP_TRY(mesh->comm->ops->barrier(mesh->comm, err));
    dtp_status status =
        is_first(mesh) ? move_to(t, "1@x", &out, &said) : dtp_tensor_gather(t, -1, data, &said);
    return expect_broken(t, status, &said, "all_to_all", err);
}

/* Rank 0 makes a call that it has made before, the others a new one. */
static dtp_status cached_and_new(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(move_to(t, "replicated", &out, err));
    DTP_TRY(mesh->comm->ops->barrier(mesh->comm, err));
    dtp_status status = move_to(t, is_first(mesh) ? "replicated" : "1@x", &out, &said);
    return expect_broken(t, status, &said, "all_gather", err);
}

static dtp_status cached_too_few(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(move_to(t, "replicated", &out, err));
    DTP_TRY(mesh->comm->ops->barrier(mesh->comm, err));
    if (is_first(mesh)) {
        return DTP_OK;
    }
    return expect_broken(t, move_to(t, "replicated", &out, &said), &said, "rank 0: has ended", err);
}

/* Rank 0 cannot make a call that the others make: it frees its handle first. */
static dtp_status cached_freed(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    dtp_tensor t, out;
    dtp_err said = {0};
    DTP_TRY(iota(mesh, "0@x", &t, err));
    DTP_TRY(move_to(t, "1@x", &out, err));
    DTP_TRY(mesh->comm->ops->barrier(mesh->comm, err));
    if (is_first(mesh)) {
        dtp_tensor_destroy(t);
    }
    dtp_status status = move_to(t, "1@x", &out, &said);
    return is_first(mesh) ? expect(status, DTP_INVALID, "was destroyed", &said, err)
                          : expect_broken(t, status, &said, "rank 0: has ended", err);
}

const dt_case dt_misuse[] = {
    {"other_mesh", other_mesh, DTP_AGREE_NEW},
    {"freed_handle", freed_handle, DTP_AGREE_NEW},
    {"freed_handle_always", freed_handle, DTP_AGREE_ALWAYS},
    {"zeroed_handle", zeroed_handle, DTP_AGREE_NEW},
    {"freed_on_one_rank", freed_on_one_rank, DTP_AGREE_ALWAYS},
    {"wrong_rank", wrong_rank, DTP_AGREE_NEW},
    {"overflowing_sizes", overflowing_sizes, DTP_AGREE_NEW},
    {"overflowing_sizes_always", overflowing_sizes, DTP_AGREE_ALWAYS},
    {"too_large", too_large, DTP_AGREE_NEW},
    {"wrong_values", wrong_values, DTP_AGREE_NEW},
    {"read_sharded", read_sharded, DTP_AGREE_NEW},
    {"gather_wrong", gather_wrong, DTP_AGREE_NEW},
    {"gather_wrong_always", gather_wrong, DTP_AGREE_ALWAYS},
    {"scatter_wrong", scatter_wrong, DTP_AGREE_NEW},
    {"wrap_wrong", wrap_wrong, DTP_AGREE_NEW},
    {"pack_wrong", pack_wrong, DTP_AGREE_NEW},
    {"to_partial", to_partial, DTP_AGREE_NEW},
    {"to_partial_always", to_partial, DTP_AGREE_ALWAYS},
    {"sum_of_truth", sum_of_truth, DTP_AGREE_NEW},
    {"assign_wrong", assign_wrong, DTP_AGREE_NEW},
    {"other_names", other_names, DTP_AGREE_NEW},
    {"other_options", other_options, DTP_AGREE_NEW},
    {"other_shape", other_shape, DTP_AGREE_NEW},
    {"other_layout", other_layout, DTP_AGREE_NEW},
    {"other_layout_always", other_layout, DTP_AGREE_ALWAYS},
    {"other_order", other_order, DTP_AGREE_NEW},
    {"other_order_known", other_order_known, DTP_AGREE_ALWAYS},
    {"swapped", swapped, DTP_AGREE_NEW},
    {"swapped_always", swapped_always, DTP_AGREE_ALWAYS},
    {"cached_order", cached_order, DTP_AGREE_NEW},
    {"cached_order_never", cached_order, DTP_AGREE_NEVER},
    {"cached_gather", cached_gather, DTP_AGREE_NEW},
    {"cached_and_new", cached_and_new, DTP_AGREE_NEW},
    {"cached_too_few", cached_too_few, DTP_AGREE_NEW},
    {"cached_freed", cached_freed, DTP_AGREE_NEW},
};
const int32_t dt_n_misuse = sizeof dt_misuse / sizeof dt_misuse[0];
