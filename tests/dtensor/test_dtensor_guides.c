/* What the guides of TensorFlow DTensor and PyTorch DTensor say and test about placing and
 * redistributing: contents of every rank, and counts of collectives, which must be the same with
 * options.torch and the same or lower without. Inside an MPI job only the rows for so many ranks
 * run, on its ranks. */
#include "tests/dtensor/dtensor_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static dtp_status run(const char *mesh, bool torch, dtp_world_body body, void *user, dtp_err *err)
{
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    options.mesh.torch = torch;
    options.environment = environ;
    return dt_fits(mesh) ? dtp_world_run(mesh, &options, body, user, err) : DTP_OK;
}

static void must_run(const char *mesh, dtp_world_body body, void *user)
{
    dtp_err err = {0};
    if (run(mesh, false, body, user, &err) != DTP_OK) {
        fail_msg("mesh '%s': %s", mesh, err.msg);
    }
}

/* ---- TensorFlow ---- */

/* The local piece is these numbers. */
static dtp_status holds(dtp_tensor t, int32_t n, const float *want, dtp_err *err)
{
    dtp_local local;
    int64_t elems = 1;
    DTP_TRY(dtp_tensor_local(t, &local, err));
    for (int32_t i = 0; i < local.rank; i++) {
        elems *= local.shape[i];
    }
    if (elems != n || memcmp(local.data, want, (size_t)n * sizeof *want) != 0) {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d holds something else",
                        dtp_device_mesh_rank(t.mesh));
    }
    return DTP_OK;
}

static dtp_status place_range(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {3, 2};
    const float range[] = {0, 1, 2, 3, 4, 5};
    int32_t rank = dtp_device_mesh_rank(mesh);
    dtp_tensor_desc desc;
    dtp_tensor t;
    float out[6];
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "0@x, 1@y", &desc, err));
    DTP_TRY(dtp_tensor_from_array(mesh, &desc, range, &t, err));
    DTP_TRY(holds(t, 1, range + rank, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "replicated", &desc, err));
    DTP_TRY(dtp_tensor_from_array(mesh, &desc, range, &t, err));
    DTP_TRY(holds(t, 6, range, err));
    DTP_TRY(dtp_tensor_read(t, out, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_from_array(mesh, &desc, range, &t, err));
    DTP_TRY(holds(t, 2, range + rank / 2 * 2, err));
    dtp_err said = {0};
    if (dtp_tensor_read(t, out, &said) != DTP_INVALID) {
        return DTP_FAIL(err, DTP_INTERNAL, "a sharded tensor was read");
    }
    return DTP_OK;
}

static dtp_status pack_six(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {2};
    const float one[] = {0, 1};
    const void *parts[6] = {one, one, one, one, one, one};
    float all[12];
    int64_t sizes[6];
    dtp_tensor_desc desc;
    dtp_tensor t;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, shape, "replicated", &desc, err));
    DTP_TRY(dtp_tensor_pack(mesh, &desc, parts, &t, err));
    DTP_TRY(dt_expect(t, one, "pack", err));
    DTP_TRY(dtp_tensor_unpack(t, all, sizes, err));
    for (int i = 0; i < 6; i++) {
        if (sizes[i] != 2 || all[2 * i] != 0 || all[2 * i + 1] != 1) {
            return DTP_FAIL(err, DTP_INTERNAL, "component %d is wrong", i);
        }
    }
    return DTP_OK;
}

static dtp_status blocks_of_ones(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {6, 4};
    const float ones[] = {1, 1, 1, 1};
    dtp_tensor_desc desc;
    dtp_tensor t;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "0@x, 1@y", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    DTP_TRY(holds(t, 4, ones, err));
    const dtp_comm_count *counts;
    return dtp_device_mesh_counts(mesh, &counts) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "a factory communicates");
}

static void test_dtensor_guides__tensorflow_placements(void **state)
{
    (void)state;
    must_run("x:3;y:2", place_range, NULL);
    must_run("x:6", pack_six, NULL);
    must_run("x:3;y:2", blocks_of_ones, NULL);
}

/* ---- counts ---- */

/* One redistribution; the source holds ones on every rank where it is partial, so that its value is
 * the number of summands, else the numbers from 0. */
typedef struct move {
    const char *id, *mesh;
    int32_t rank;
    int64_t shape[3];
    const char *from, *to;
    int64_t count; /* collectives with options.torch; without at most so many */
    int32_t kind;  /* with options.torch all are of this kind; -1 */
    bool torch;    /* what this run is */
} move;

static dtp_status make_source(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, float *want,
                              dtp_tensor *out, dtp_err *err)
{
    int64_t summands = 1, n = dt_elems(desc);
    for (int32_t m = 0; m < desc->layout.n_mesh; m++) {
        bool partial = desc->layout.placement[m].kind == DTP_PARTIAL;
        summands *= partial ? dtp_device_mesh_dims(mesh)->sizes[m] : 1;
    }
    for (int64_t i = 0; i < n; i++) {
        want[i] = (float)(i * summands);
    }
    dtp_tensor_desc whole = *desc;
    for (int32_t m = 0; m < desc->layout.n_mesh; m++) {
        if (whole.layout.placement[m].kind == DTP_PARTIAL) {
            whole.layout.placement[m] = (dtp_placement){0};
        }
    }
    dtp_tensor t;
    dtp_local local;
    DTP_TRY(dtp_tensor_iota(mesh, &whole, 0, 1, &t, err));
    DTP_TRY(dtp_tensor_local(t, &local, err));
    return dtp_tensor_wrap(mesh, desc, local.shape, local.data, false, out, err);
}

static int64_t all_counts(const dtp_device_mesh *mesh)
{
    int64_t n = 0;
    for (int32_t kind = 0; kind < DTP_N_COLLS; kind++) {
        n += dtp_device_mesh_count(mesh, (dtp_coll_kind)kind);
    }
    return n;
}

static dtp_status run_move(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    const move *c = user;
    float want[1024];
    dtp_tensor_desc desc;
    dtp_tensor t, moved;
    dtp_layout to;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, c->rank, c->shape, c->from, &desc, err));
    DTP_TRY(dtp_tensor_layout(mesh, c->rank, c->to, &to, err));
    DTP_TRY(make_source(mesh, &desc, want, &t, err));
    dtp_device_mesh_reset_counts(mesh);
    DTP_TRY(dtp_tensor_redistribute(t, &to, &moved, err));
    int64_t n = all_counts(mesh);
    if (!dtp_layout_has_partial(&to)) {
        DTP_TRY(dt_expect_local(moved, want, c->id, err));
        DTP_TRY(dt_expect(moved, want, c->id, err));
    }
    if (n > c->count || (c->torch && n < c->count)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%lld collectives, not %lld", (long long)n,
                        (long long)c->count);
    }
    if (c->torch && c->kind >= 0 && dtp_device_mesh_count(mesh, (dtp_coll_kind)c->kind) != n) {
        return DTP_FAIL(err, DTP_INTERNAL, "a collective that is no %s",
                        dtp_coll_name((dtp_coll_kind)c->kind));
    }
    return DTP_OK;
}

static const move MOVES[] = {
    {"R1", "x:4", 2, {12, 3}, "0@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R1", "x:4", 2, {13, 3}, "0@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R1", "x:4", 2, {14, 3}, "0@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R1", "x:4", 2, {3, 12}, "1@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R1", "x:4", 2, {3, 13}, "1@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R1", "x:4", 2, {3, 14}, "1@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R2", "x:4", 2, {12, 3}, "replicated", "replicated", 0, -1, false},
    {"R3", "x:4", 2, {12, 3}, "replicated", "0@x", 0, -1, false},
    {"R3", "x:4", 2, {13, 3}, "replicated", "0@x", 0, -1, false},
    {"R3", "x:4", 2, {14, 3}, "replicated", "0@x", 0, -1, false},
    {"R3", "x:4", 2, {3, 12}, "replicated", "1@x", 0, -1, false},
    {"R3", "x:4", 2, {3, 13}, "replicated", "1@x", 0, -1, false},
    {"R3", "x:4", 2, {3, 14}, "replicated", "1@x", 0, -1, false},
    {"R4", "x:4", 2, {12, 3}, "+sum(x)", "replicated", 1, DTP_ALL_REDUCE, false},
    {"R5", "x:4", 2, {12, 3}, "+sum(x)", "0@x", 1, DTP_REDUCE_SCATTER, false},
    {"R5", "x:4", 2, {13, 3}, "+sum(x)", "0@x", 1, DTP_REDUCE_SCATTER, false},
    {"R5", "x:4", 2, {14, 3}, "+sum(x)", "0@x", 1, DTP_REDUCE_SCATTER, false},
    {"R5", "x:4", 2, {3, 12}, "+sum(x)", "1@x", 1, DTP_REDUCE_SCATTER, false},
    {"R5", "x:4", 2, {3, 13}, "+sum(x)", "1@x", 1, DTP_REDUCE_SCATTER, false},
    {"R5", "x:4", 2, {3, 14}, "+sum(x)", "1@x", 1, DTP_REDUCE_SCATTER, false},
    {"R6", "x:4", 2, {12, 3}, "+sum(x)", "+sum(x)", 0, -1, false},
    {"R9", "x:4", 2, {8, 8}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 2, {8, 8}, "1@x", "0@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 3, {8, 8, 8}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 3, {8, 8, 8}, "1@x", "2@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 2, {8, 5}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 2, {5, 8}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 2, {5, 8}, "1@x", "0@x", 1, DTP_ALL_TO_ALL, false},
    {"R9", "x:4", 2, {5, 5}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"R10", "x:2;y:2", 2, {8, 8}, "0@x, 1@y", "0@x+y", 1, -1, false},
    {"R10", "x:2;y:2", 2, {8, 8}, "0@x, 1@y", "1@x, 0@y", 2, -1, false},
    {"R10", "x:2;y:2", 2, {8, 8}, "0@x+y", "1@x+y", 2, -1, false},
    {"R10", "x:2;y:2", 3, {8, 8, 8}, "0@x, 1@y", "0@x+y", 1, -1, false},
    {"R10", "x:2;y:2", 3, {8, 8, 8}, "0@x, 2@y", "1@x, 0@y", 2, -1, false},
    {"R10", "x:2;y:2", 3, {8, 8, 8}, "1@x+y", "1@x, 2@y", 1, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x, 1@y", "0@x+y", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x, 1@y", "0@x, 1@y", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x, 1@y", "0@x", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x", "0@x+y", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x", "0@x, 1@y", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x", "0@x", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x, +sum(y)", "0@x+y", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x, +sum(y)", "0@x, 1@y", 0, -1, false},
    {"R12", "x:4;y:1", 2, {16, 8}, "0@x, +sum(y)", "0@x", 0, -1, false},
    {"R13", "x:4", 2, {2, 8}, "0@x", "replicated", 1, DTP_ALL_GATHER, false},
    {"R13", "x:4", 2, {2, 8}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"TF relayout", "x:4", 2, {8, 8}, "0@x", "1@x", 1, DTP_ALL_TO_ALL, false},
    {"TF relayout", "x:2;y:2", 3, {8, 4, 8}, "1@y, 2@x", "0@x, 1@y", 1, DTP_ALL_TO_ALL, false},
};

static void test_dtensor_guides__counts_of_redistributions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MOVES / sizeof MOVES[0]; i++) {
        for (int torch = 0; torch < 2; torch++) {
            dtp_err err = {0};
            move c = MOVES[i];
            c.torch = torch == 1;
            if (run(c.mesh, c.torch, run_move, &c, &err) != DTP_OK) {
                fail_msg("%s on '%s' (%lld,%lld) %s -> %s, torch %d: %s", c.id, c.mesh,
                         (long long)c.shape[0], (long long)c.shape[1], c.from, c.to, torch,
                         err.msg);
            }
        }
    }
}

/* ---- R15: every source to every target on two mesh dims ---- */

static const dtp_placement PLACES[] = {{.kind = DTP_REPLICATE},
                                       {.kind = DTP_SHARD, .axis = 0},
                                       {.kind = DTP_SHARD, .axis = 1},
                                       {.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM}};

static dtp_layout pair_of(int outer, int inner)
{
    dtp_layout layout = dtp_layout_replicated(2, 2);
    const int pick[2] = {outer, inner};
    for (int32_t m = 0; m < 2; m++) {
        if (PLACES[pick[m]].kind == DTP_SHARD) {
            dtp_layout_split(&layout, m, PLACES[pick[m]].axis);
        } else {
            layout.placement[m] = PLACES[pick[m]];
        }
    }
    return layout;
}

static dtp_status all_pairs(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {16, 24};
    for (int from = 0; from < 16; from++) {
        for (int to = 0; to < 9; to++) {
            float want[16 * 24];
            char what[40];
            dtp_tensor t, moved;
            dtp_layout source = pair_of(from / 4, from % 4), target = pair_of(to / 3, to % 3);
            dtp_tensor_desc desc = dt_desc(DTP_F32, 2, shape, &source);
            snprintf(what, sizeof what, "R15 case %d to %d", from, to);
            DTP_TRY(make_source(mesh, &desc, want, &t, err));
            DTP_TRY(dtp_tensor_redistribute(t, &target, &moved, err));
            DTP_TRY(dt_expect_local(moved, want, what, err));
            dtp_tensor_destroy(t);
            dtp_tensor_destroy(moved);
        }
    }
    return DTP_OK;
}

static void test_dtensor_guides__144_pairs_on_two_mesh_dims(void **state)
{
    (void)state;
    for (int torch = 0; torch < 2; torch++) {
        dtp_err err = {0};
        if (run("x:4;y:2", torch == 1, all_pairs, NULL, &err) != DTP_OK) {
            fail_msg("torch %d: %s", torch, err.msg);
        }
    }
}

/* R13: pieces of a dim shorter than the mesh. */
static dtp_status short_dim(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {2, 8}, rows[] = {1, 1, 0, 0};
    dtp_tensor_desc desc;
    dtp_tensor t, moved;
    dtp_layout to;
    dtp_local local;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 1, &t, err));
    DTP_TRY(dtp_tensor_local(t, &local, err));
    if (local.shape[0] != rows[dtp_device_mesh_rank(mesh)] || local.shape[1] != 8) {
        return DTP_FAIL(err, DTP_INTERNAL, "%lld rows", (long long)local.shape[0]);
    }
    DTP_TRY(dtp_tensor_layout(mesh, 2, "1@x", &to, err));
    DTP_TRY(dtp_tensor_redistribute(t, &to, &moved, err));
    DTP_TRY(dtp_tensor_local(moved, &local, err));
    return local.shape[0] == 2 && local.shape[1] == 2
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "%lld rows", (long long)local.shape[0]);
}

static void test_dtensor_guides__ranks_without_rows(void **state)
{
    (void)state;
    must_run("x:4", short_dim, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtensor_guides__tensorflow_placements),
        cmocka_unit_test(test_dtensor_guides__counts_of_redistributions),
        cmocka_unit_test(test_dtensor_guides__144_pairs_on_two_mesh_dims),
        cmocka_unit_test(test_dtensor_guides__ranks_without_rows),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
