/* Inputs and files of the tests of feeds. */
#include "core/base/philox.h"
#include "core/graph/ops/op_table.h"
#include "executor/files/npy.h"
#include "executor/device/convert.h"
#include "tests/run/feed_inputs.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* images f32 [batch=8, pixels=6], labels i32 [batch=8] below 10, tokens and targets i32 [batch=8,
 * seq=5] below 256, words and next i32 of that shape below 70000, free i64 without a bound. */
dtp_graph *inputs_graph(void)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    dtp_dim_id batch, pixels, seq;
    must(dtp_graph_create("inputs", dtp_builtin_ops(), &g, &err), &err);
    must(dtp_dims_intern(&g->dims, "batch", 8, &batch, &err), &err);
    must(dtp_dims_intern(&g->dims, "pixels", 6, &pixels, &err), &err);
    must(dtp_dims_intern(&g->dims, "seq", 5, &seq, &err), &err);
    const dtp_graph_tensor specs[] = {
        {.name = "images", .type = {DTP_F32, 2, {{batch, 8}, {pixels, 6}}}},
        {.name = "labels", .type = {DTP_I32, 1, {{batch, 8}}}, .below = 10},
        {.name = "tokens", .type = {DTP_I32, 2, {{batch, 8}, {seq, 5}}}, .below = 256},
        {.name = "targets", .type = {DTP_I32, 2, {{batch, 8}, {seq, 5}}}, .below = 256},
        {.name = "mask", .type = {DTP_BOOL, 1, {{batch, 8}}}},
        {.name = "words", .type = {DTP_I32, 2, {{batch, 8}, {seq, 5}}}, .below = 70000},
        {.name = "next", .type = {DTP_I32, 2, {{batch, 8}, {seq, 5}}}, .below = 70000},
        {.name = "free", .type = {DTP_I64, 2, {{batch, 8}, {seq, 5}}}},
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        dtp_tensor_id id;
        must(dtp_graph_add_tensor(g, &specs[i], &id, &err), &err);
    }
    return g;
}

void write_npy(const char *name, const dtp_ttype *type, const void *data)
{
    dtp_err err = {0};
    must(dtp_npy_write(data_path(name), type, data, &err), &err);
}

/* 20 images whose pixels are all the number of the image, and labels number % 10. */
void write_samples(void)
{
    float images[20 * 6];
    int64_t labels[20];
    for (int i = 0; i < 20 * 6; i++) {
        images[i] = (float)(i / 6);
        labels[i / 6] = i / 6 % 10;
    }
    write_npy("images.npy", &(dtp_ttype){DTP_F32, 2, {{0, 20}, {1, 6}}}, images);
    write_npy("labels.npy", &(dtp_ttype){DTP_I64, 1, {{0, 20}}}, labels);
}

/* The pieces of every rank of every layout hold the same values as the whole. */
void check_pieces(dtp_feed *feed, const dtp_graph *g, dtp_tensor_id t, int64_t step)
{
    static const char *const meshes[] = {"x:2", "x:3", "x:2;y:2", "x:8"};
    const dtp_ttype *type = &g->tensors[t].type;
    int64_t width = dtp_dtype_bytes(type->dtype);
    dtp_shard whole = dtp_shard_whole(type);
    char all[512], part[512], want[512];
    dtp_err err = {0};
    must(dtp_feed_fill(feed, t, step, &whole, all, &err), &err);
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        dtp_mesh mesh;
        must(dtp_mesh_parse(meshes[k], &mesh, &err), &err);
        dtp_layout layout = dtp_layout_replicated(type->rank, mesh.n_dims);
        for (int32_t m = 0; m < mesh.n_dims; m++) {
            dtp_layout_split(&layout, m, m % type->rank);
        }
        for (int32_t r = 0; r < dtp_mesh_ranks(&mesh); r++) {
            dtp_shard piece = dtp_shard_of(type, &layout, &mesh, r);
            must(dtp_feed_fill(feed, t, step, &piece, part, &err), &err);
            if (dtp_shard_elems(&piece) > 0) {
                dtp_shard_copy(&piece, &whole, all, &piece, want, width);
                assert_memory_equal(part, want, (size_t)(dtp_shard_elems(&piece) * width));
            }
        }
    }
}
