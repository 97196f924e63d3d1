/* Feeds, initial values, the permutation of samples, the mpirun command line. */
#include "executor/session/feed.h"
#include "core/base/philox.h"
#include "core/graph/ops/op_table.h"
#include "executor/files/npy.h"
#include "executor/device/convert.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

static void test_permute__is_a_permutation(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000, 1024, 1025};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        bool *seen = calloc((size_t)sizes[k], 1);
        assert_non_null(seen);
        for (int64_t i = 0; i < sizes[k]; i++) {
            int64_t p = dtp_permute(7, 3, sizes[k], i);
            assert_true(p >= 0 && p < sizes[k] && !seen[p]);
            seen[p] = true;
        }
        free(seen);
    }
}

/* Different seeds and epochs give orders that share few places. */
static void test_permute__depends_on_seed_and_epoch(void **unused)
{
    (void)unused;
    int same_seed = 0, same_epoch = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t p = dtp_permute(1, 0, 1000, i);
        same_seed += p == dtp_permute(2, 0, 1000, i);
        same_epoch += p == dtp_permute(1, 1, 1000, i);
        fixed += p == i;
    }
    assert_true(same_seed < 20 && same_epoch < 20 && fixed < 20);
}

/* images f32 [batch=8, pixels=6], labels i32 [batch=8] below 10, tokens and targets i32 [batch=8,
 * seq=5] below 256, words and next i32 of that shape below 70000, free i64 without a bound. */
static dtp_graph *inputs_graph(void)
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

enum { MASK = 4, WORDS, NEXT, FREE };

static void write_npy(const char *name, const dtp_ttype *type, const void *data)
{
    dtp_err err = {0};
    must(dtp_npy_write(data_path(name), type, data, &err), &err);
}

/* 20 images whose pixels are all the number of the image, and labels number % 10. */
static void write_samples(void)
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
static void check_pieces(dtp_feed *feed, const dtp_graph *g, dtp_tensor_id t, int64_t step)
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

static void test_feed__values_do_not_depend_on_the_layout(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = inputs_graph();
    char text[300];
    for (int i = 0; i < 300; i++) {
        text[i] = (char)(i * 7 % 251);
    }
    write_samples();
    char images[300], labels[300], book[300], words[300];
    snprintf(images, sizeof images, "%s", data_path("images.npy"));
    snprintf(labels, sizeof labels, "%s", data_path("labels.npy"));
    snprintf(book, sizeof book, "%s", data_write("book.txt", text, sizeof text));
    snprintf(words, sizeof words, "%s", data_write("words.bin", text, sizeof text));
    const dtp_feed_spec specs[] = {{.input = "images", .file = images},
                                   {.input = "labels", .file = labels},
                                   {.input = "tokens", .file = book},
                                   {.input = "targets", .file = book, .shift = 1},
                                   {.input = "words", .file = words, .dtype = "u2"}};
    for (int fed = 0; fed < 2; fed++) {
        dtp_feed *feed = NULL;
        must(dtp_feed_create(g, fed ? 5 : 0, specs, 42, DTP_FEED_SHUFFLED, &feed, &err), &err);
        for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
            check_pieces(feed, g, t, 0);
            check_pieces(feed, g, t, 5);
        }
        dtp_feed_destroy(feed);
    }
    dtp_graph_destroy(g);
}

/* Images and labels keep together, and every sample comes once in an epoch. */
static void test_feed__samples_stay_aligned_and_do_not_repeat(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = inputs_graph();
    write_samples();
    char images[300], labels[300];
    snprintf(images, sizeof images, "%s", data_path("images.npy"));
    snprintf(labels, sizeof labels, "%s", data_path("labels.npy"));
    const dtp_feed_spec specs[] = {{.input = "images", .file = images},
                                   {.input = "labels", .file = labels}};
    dtp_feed *feed = NULL;
    must(dtp_feed_create(g, 2, specs, 9, DTP_FEED_SHUFFLED, &feed, &err), &err);
    int counts[20] = {0};
    dtp_shard image_piece = dtp_shard_whole(&g->tensors[0].type);
    dtp_shard label_piece = dtp_shard_whole(&g->tensors[1].type);
    for (int64_t step = 0; step < 5; step++) { /* 40 rows: two epochs */
        float x[48];
        int32_t y[8];
        must(dtp_feed_fill(feed, 0, step, &image_piece, x, &err), &err);
        must(dtp_feed_fill(feed, 1, step, &label_piece, y, &err), &err);
        for (int r = 0; r < 8; r++) {
            int sample = (int)x[(ptrdiff_t)6 * r];
            assert_int_equal(y[r], sample % 10);
            counts[sample]++;
        }
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(counts[i], 2);
    }
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
}

static void test_feed__targets_are_tokens_shifted(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = inputs_graph();
    char text[11];
    for (int i = 0; i < 11; i++) {
        text[i] = (char)(200 + i);
    }
    char book[300];
    snprintf(book, sizeof book, "%s", data_write("book.txt", text, sizeof text));
    const dtp_feed_spec specs[] = {{.input = "tokens", .file = book},
                                   {.input = "targets", .file = book, .shift = 1}};
    dtp_feed *feed = NULL;
    must(dtp_feed_create(g, 2, specs, 1, DTP_FEED_SHUFFLED, &feed, &err), &err);
    dtp_shard piece = dtp_shard_whole(&g->tensors[2].type);
    int first[6] = {0};
    for (int64_t step = 0; step < 20; step++) {
        int32_t x[40], y[40];
        must(dtp_feed_fill(feed, 2, step, &piece, x, &err), &err);
        must(dtp_feed_fill(feed, 3, step, &piece, y, &err), &err);
        for (int i = 0; i < 40; i++) {
            assert_int_equal(y[i], x[i] + 1);
            assert_int_equal(x[i], x[i / 5 * 5] + i % 5);
        }
        for (int r = 0; r < 8; r++) {
            first[x[(ptrdiff_t)5 * r] - 200]++;
        }
    }
    for (int i = 0; i < 6; i++) {
        assert_true(first[i] > 0); /* every place that leaves room is drawn */
    }
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
}

/* Twelve tokens that ascend by one, `width` bytes each, with or without the header of a .npy file
 * of this type. */
static const char *write_tokens(const char *name, const char *npy_type, int width, bool big_endian,
                                int64_t first)
{
    unsigned char bytes[256] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    size_t n = 0;
    if (npy_type != NULL) {
        n = 10 + (size_t)snprintf((char *)bytes + 10, sizeof bytes - 10,
                                  "{'descr': '%s', 'fortran_order': False, 'shape': (12,), }",
                                  npy_type);
        bytes[8] = (unsigned char)(n - 10);
    }
    for (int i = 0; i < 12; i++) {
        for (int b = 0; b < width; b++) {
            const int place = big_endian ? width - 1 - b : b;
            bytes[n++] = (unsigned char)((uint64_t)(first + i) >> (8 * place));
        }
    }
    return data_write(name, bytes, n);
}

typedef struct token_file {
    const char *name, *npy_type, *dtype; /* of the .npy file, of the feed */
    int width;
    bool big_endian;
    int64_t first;
} token_file;

static const token_file token_files[] = {
    {"u1", NULL, "u1", 1, false, 230},        {"u2", NULL, "u2", 2, false, 65500},
    {"u4", NULL, "u4", 4, false, 69000},      {"i4", NULL, "i4", 4, false, 69000},
    {"i8", NULL, "i8", 8, false, 69000},      {"u1.npy", "|u1", NULL, 1, false, 230},
    {"u2.npy", "<u2", NULL, 2, false, 65500}, {"u4.npy", "<u4", "u4", 4, false, 69000},
    {"i4.npy", "<i4", NULL, 4, false, 69000}, {"i8.npy", "<i8", NULL, 8, false, 69000},
    {"b2.npy", ">u2", NULL, 2, true, 65500},  {"b8.npy", ">i8", NULL, 8, true, 69000},
};

/* Every window has tokens that follow each other in the file, the shifted ones begin one later, and
 * every place that leaves room is drawn. */
static void check_windows(const token_file *c, dtp_feed *feed, const dtp_graph *g)
{
    dtp_err err = {0};
    dtp_shard piece = dtp_shard_whole(&g->tensors[WORDS].type);
    int drawn[7] = {0};
    for (int64_t step = 0; step < 20; step++) {
        int32_t x[40], y[40];
        must(dtp_feed_fill(feed, WORDS, step, &piece, x, &err), &err);
        must(dtp_feed_fill(feed, NEXT, step, &piece, y, &err), &err);
        for (int i = 0; i < 40; i++) {
            const int64_t place = x[i / 5 * 5] - c->first;
            if (place < 0 || place > 6 || x[i] != c->first + place + i % 5 || y[i] != x[i] + 1) {
                fail_msg("%s: element %d: %d and %d", c->name, i, x[i], y[i]);
            }
            drawn[place]++;
        }
    }
    for (int i = 0; i < 7; i++) {
        assert_true(drawn[i] > 0);
    }
    check_pieces(feed, g, WORDS, 3);
}

static void test_feed__tokens_of_every_element_type(void **unused)
{
    (void)unused;
    dtp_graph *g = inputs_graph();
    for (size_t k = 0; k < sizeof token_files / sizeof *token_files; k++) {
        const token_file *c = &token_files[k];
        char path[300];
        snprintf(path, sizeof path, "%s",
                 write_tokens(c->name, c->npy_type, c->width, c->big_endian, c->first));
        const dtp_feed_spec specs[] = {
            {.input = "words", .file = path, .dtype = c->dtype},
            {.input = "next", .file = path, .shift = 1, .dtype = c->dtype}};
        dtp_feed *feed = NULL;
        dtp_err err = {0};
        must(dtp_feed_create(g, 2, specs, 5, DTP_FEED_SHUFFLED, &feed, &err), &err);
        check_windows(c, feed, g);
        dtp_feed_destroy(feed);
    }
    dtp_graph_destroy(g);
}

/* Bytes are what a file holds only where nothing else can be meant. */
static void test_feed__element_types_are_said(void **unused)
{
    (void)unused;
    dtp_graph *g = inputs_graph();
    char path[300];
    snprintf(path, sizeof path, "%s", write_tokens("words.bin", NULL, 2, false, 300));
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *input = &g->tensors[t];
        const bool integer = input->type.dtype == DTP_I32 || input->type.dtype == DTP_I64;
        const dtp_feed_spec plain = {.input = input->name, .file = path};
        dtp_feed *feed = NULL;
        dtp_err err = {0};
        const dtp_status status = dtp_feed_create(g, 1, &plain, 0, DTP_FEED_SHUFFLED, &feed, &err);
        assert_int_equal(status, input->below == 256 ? DTP_OK : DTP_INVALID);
        assert_true(status == DTP_OK || !integer || strstr(err.msg, ",dtype=u1") != NULL);
        if (status == DTP_OK) {
            dtp_feed_destroy(feed);
        }
    }
    dtp_graph_destroy(g);
}

static void test_feed__tokens_out_of_range_are_named(void **unused)
{
    (void)unused;
    dtp_graph *g = inputs_graph();
    char path[300];
    snprintf(path, sizeof path, "%s", write_tokens("words.bin", NULL, 4, false, 69990));
    const dtp_feed_spec spec = {.input = "words", .file = path, .dtype = "u4"};
    dtp_feed *feed = NULL;
    dtp_err err = {0};
    dtp_status status = DTP_OK;
    must(dtp_feed_create(g, 1, &spec, 0, DTP_FEED_SHUFFLED, &feed, &err), &err);
    dtp_shard piece = dtp_shard_whole(&g->tensors[WORDS].type);
    int32_t out[40];
    for (int64_t step = 0; step < 20 && status == DTP_OK; step++) {
        status = dtp_feed_fill(feed, WORDS, step, &piece, out, &err);
    }
    assert_int_equal(status, DTP_RANGE);
    assert_non_null(strstr(err.msg, "outside 0..69999"));
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
}

/* A file that is cut while it is read is an error, not the end of the process. */
static void test_feed__files_that_are_cut(void **unused)
{
    (void)unused;
    static const token_file cases[] = {{"cut.bin", NULL, "u2", 2, false, 300},
                                       {"cut.npy", "<u2", NULL, 2, false, 300}};
    dtp_graph *g = inputs_graph();
    for (size_t k = 0; k < 2; k++) {
        char path[300];
        snprintf(path, sizeof path, "%s",
                 write_tokens(cases[k].name, cases[k].npy_type, 2, false, 300));
        const dtp_feed_spec spec = {.input = "words", .file = path, .dtype = cases[k].dtype};
        dtp_feed *feed = NULL;
        dtp_err err = {0};
        must(dtp_feed_create(g, 1, &spec, 0, DTP_FEED_SHUFFLED, &feed, &err), &err);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
        dtp_shard piece = dtp_shard_whole(&g->tensors[WORDS].type);
        int32_t out[40];
        assert_int_equal(dtp_feed_fill(feed, WORDS, 0, &piece, out, &err), DTP_IO);
        assert_non_null(strstr(err.msg, "has 0 bytes now"));
        dtp_feed_destroy(feed);
    }
    dtp_graph_destroy(g);
}

/* One file has elements of one type. */
static void test_feed__one_type_for_one_file(void **unused)
{
    (void)unused;
    dtp_graph *g = inputs_graph();
    char path[300];
    snprintf(path, sizeof path, "%s", write_tokens("words.bin", NULL, 4, false, 300));
    const dtp_feed_spec specs[] = {{.input = "words", .file = path, .dtype = "u4"},
                                   {.input = "next", .file = path, .dtype = "u2"}};
    dtp_feed *feed = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_feed_create(g, 2, specs, 0, DTP_FEED_SHUFFLED, &feed, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "different element types"));
    dtp_graph_destroy(g);
}

/* Where the windows of a step of input `tokens` begin in a file whose tokens say their place. */
static void windows_at(dtp_feed *feed, const dtp_graph *g, int64_t step, int64_t out[8])
{
    dtp_err err = {0};
    int32_t x[40];
    const dtp_shard piece = dtp_shard_whole(&g->tensors[WORDS].type);
    must(dtp_feed_fill(feed, WORDS, step, &piece, x, &err), &err);
    for (int r = 0; r < 8; r++) {
        out[r] = x[(ptrdiff_t)5 * r];
        for (int i = 0; i < 5; i++) {
            assert_int_equal(x[5 * r + i], out[r] + i);
        }
    }
}

static const char *write_places(int n)
{
    static char path[300];
    uint16_t places[400];
    for (int i = 0; i < n; i++) {
        places[i] = (uint16_t)i;
    }
    snprintf(path, sizeof path, "%s", data_write("places.bin", places, (size_t)n * 2));
    return path;
}

/* An epoch has every window of the file once, side by side; the next one has others. */
static void test_feed__windows_of_an_epoch_lie_side_by_side(void **unused)
{
    (void)unused;
    dtp_graph *g = inputs_graph();
    dtp_err err = {0};
    const int n = 244; /* 240 places for windows of 5: 48 of them, six steps */
    const dtp_feed_spec spec = {.input = "words", .file = write_places(n), .dtype = "u2"};
    int64_t moved[3];
    for (uint64_t seed = 1; seed < 4; seed++) {
        dtp_feed *feed = NULL;
        must(dtp_feed_create(g, 1, &spec, seed, DTP_FEED_SHUFFLED, &feed, &err), &err);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            bool seen[244] = {0};
            int64_t at[8], least = n, most = 0;
            bool sorted = true;
            for (int64_t step = 0; step < 6; step++) {
                windows_at(feed, g, 6 * epoch + step, at);
                for (int r = 0; r < 8; r++) {
                    sorted = sorted && at[r] >= most;
                    least = at[r] < least ? at[r] : least;
                    most = at[r] > most ? at[r] : most;
                    assert_true(at[r] >= 0 && at[r] + 5 <= n && !seen[at[r]]);
                    seen[at[r]] = true;
                }
            }
            assert_true(!sorted && most - least == (int64_t)47 * 5);
            moved[epoch] = least;
        }
        assert_true(moved[0] != moved[1] || moved[1] != moved[2]);
        dtp_feed_destroy(feed);
    }
    dtp_graph_destroy(g);
}

/* In the order of the file, and its last rows. */
static void test_feed__rows_in_order(void **unused)
{
    (void)unused;
    dtp_graph *all = inputs_graph(), *g = NULL;
    dtp_err err = {0};
    must(dtp_graph_create("tokens", dtp_builtin_ops(), &g, &err), &err);
    g->dims = all->dims;
    dtp_tensor_id id;
    must(dtp_graph_add_tensor(g, &all->tensors[WORDS], &id, &err), &err);
    const dtp_feed_spec spec = {.input = "words", .file = write_places(103), .dtype = "u2"};
    const dtp_shard piece = dtp_shard_whole(&g->tensors[0].type);
    for (int last = 0; last < 2; last++) {
        dtp_feed *feed = NULL;
        int64_t rows;
        int32_t x[40];
        must(dtp_feed_create(g, 1, &spec, 1, last ? DTP_FEED_LAST_ROWS : DTP_FEED_IN_ORDER, &feed,
                             &err),
             &err);
        must(dtp_feed_rows(feed, &rows, &err), &err);
        assert_int_equal(rows, 20);
        for (int64_t step = 0; step < (last ? 1 : 2); step++) {
            must(dtp_feed_fill(feed, 0, step, &piece, x, &err), &err);
            for (int i = 0; i < 40; i++) {
                assert_int_equal(x[i], (last ? 60 : 40 * step) + i);
            }
        }
        assert_int_equal(dtp_feed_fill(feed, 0, last ? 1 : 2, &piece, x, &err), DTP_RANGE);
        dtp_feed_destroy(feed);
    }
    dtp_graph_destroy(g);
    dtp_graph_destroy(all);
}

/* What is not fed, and files of different lengths. */
static void test_feed__rows_in_order_are_refused(void **unused)
{
    (void)unused;
    dtp_graph *all = inputs_graph(), *g = NULL;
    dtp_err err = {0};
    must(dtp_graph_create("samples", dtp_builtin_ops(), &g, &err), &err);
    g->dims = all->dims;
    dtp_tensor_id id;
    must(dtp_graph_add_tensor(g, &all->tensors[0], &id, &err), &err);
    must(dtp_graph_add_tensor(g, &all->tensors[1], &id, &err), &err);
    write_samples();
    int64_t fewer[7] = {0};
    write_npy("fewer.npy", &(dtp_ttype){DTP_I64, 1, {{0, 7}}}, fewer);
    char images[300], labels[300], others[300];
    snprintf(images, sizeof images, "%s", data_path("images.npy"));
    snprintf(labels, sizeof labels, "%s", data_path("labels.npy"));
    snprintf(others, sizeof others, "%s", data_path("fewer.npy"));
    const dtp_feed_spec specs[] = {{.input = "images", .file = images},
                                   {.input = "labels", .file = labels}};
    const dtp_feed_spec wrong[] = {specs[0], {.input = "labels", .file = others}};
    dtp_feed *feed = NULL;
    assert_int_equal(dtp_feed_create(g, 1, specs, 0, DTP_FEED_IN_ORDER, &feed, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "input 'labels' has no --feed"));
    assert_int_equal(dtp_feed_create(g, 2, wrong, 0, DTP_FEED_IN_ORDER, &feed, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'images' has 20 rows, that of 'labels' 7"));
    must(dtp_feed_create(g, 2, specs, 0, DTP_FEED_IN_ORDER, &feed, &err), &err);
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
    dtp_graph_destroy(all);
}

static void test_feed__synthetic_integers_stay_below(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = inputs_graph();
    dtp_feed *feed = NULL;
    must(dtp_feed_create(g, 0, NULL, 3, DTP_FEED_SHUFFLED, &feed, &err), &err);
    dtp_shard piece = dtp_shard_whole(&g->tensors[1].type);
    int seen[10] = {0};
    for (int64_t step = 0; step < 50; step++) {
        int32_t y[8];
        must(dtp_feed_fill(feed, 1, step, &piece, y, &err), &err);
        for (int i = 0; i < 8; i++) {
            assert_true(y[i] >= 0 && y[i] < 10);
            seen[y[i]]++;
        }
    }
    for (int i = 0; i < 10; i++) {
        assert_true(seen[i] > 0);
    }
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
}

/* A label that a loss ignores is one beside those below the bound: in files and in labels that are
 * made up, where it is found among the others. */
static void test_feed__labels_that_are_ignored(void **unused)
{
    static const char model[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"t\", \"dims\": {\"b\": 8, \"c\": 10},"
        "\"inputs\": {\"x\": {\"dims\": [\"b\", \"c\"]}, \"y\": {\"dims\": [\"b\"], \"dtype\": "
        "\"i32\", \"below\": \"c\"}, \"z\": {\"dims\": [\"b\"], \"dtype\": \"i32\", \"below\": "
        "\"c\"}}, \"params\": {}, \"nodes\": [{\"id\": \"loss\", \"op\": \"cross_entropy\", "
        "\"in\": "
        "[\"x\", \"y\"], \"over\": \"c\", \"ignore\": -100}, {\"id\": \"hot\", \"op\": "
        "\"one_hot\", "
        "\"in\": [\"z\"], \"dim\": \"c\"}], \"outputs\": [\"loss\", \"hot\"]}";
    const int32_t labels[8] = {0, 1, -100, 3, 4, 9, 6, 7};
    char path[300];
    dtp_graph *g = NULL;
    dtp_feed *feed = NULL;
    dtp_err err = {0};
    (void)unused;
    must(dtp_model_parse("t", model, strlen(model), NULL, &g, &err), &err);
    const dtp_tensor_id y = dtp_graph_find(g, "y"), z = dtp_graph_find(g, "z");
    const dtp_shard piece = dtp_shard_whole(&g->tensors[y].type);
    write_npy("ignored.npy", &(dtp_ttype){DTP_I32, 1, {{0, 8}}}, labels);
    snprintf(path, sizeof path, "%s", data_path("ignored.npy"));
    const dtp_feed_spec specs[] = {{.input = "y", .file = path}, {.input = "z", .file = path}};
    int32_t out[8];
    must(dtp_feed_create(g, 2, specs, 0, DTP_FEED_SHUFFLED, &feed, &err), &err);
    must(dtp_feed_fill(feed, y, 0, &piece, out, &err), &err);
    assert_memory_equal(out, labels, sizeof labels);
    assert_int_equal(dtp_feed_fill(feed, z, 0, &piece, out, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "element 2 is -100, outside 0..9"));
    dtp_feed_destroy(feed);
    int seen[10] = {0}, ignored = 0;
    must(dtp_feed_create(g, 0, NULL, 3, DTP_FEED_SHUFFLED, &feed, &err), &err);
    for (int64_t step = 0; step < 50; step++) {
        must(dtp_feed_fill(feed, y, step, &piece, out, &err), &err);
        for (int i = 0; i < 8; i++) {
            ignored += out[i] == -100;
            assert_true(out[i] == -100 || (out[i] >= 0 && out[i] < 10));
            seen[out[i] < 0 ? 0 : out[i]]++;
        }
        must(dtp_feed_fill(feed, z, step, &piece, out, &err), &err);
        for (int i = 0; i < 8; i++) {
            assert_true(out[i] >= 0 && out[i] < 10);
        }
    }
    assert_true(ignored > 20 && ignored < 100); /* one of 8 of 400 */
    for (int i = 0; i < 10; i++) {
        assert_true(seen[i] > 0);
    }
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
}

typedef struct bad_feed {
    const char *input, *file;
    int64_t shift;
    dtp_status want;
    const char *words; /* in the message */
    const char *dtype;
} bad_feed;

static void test_feed__bad_feeds_are_named(void **unused)
{
    (void)unused;
    static const bad_feed cases[] = {
        {"image", "images.npy", 0, DTP_INVALID, "no such input", NULL},
        {"images", "absent.npy", 0, DTP_IO, "absent.npy", NULL},
        {"images", "labels.npy", 0, DTP_INVALID, "shape [20]", NULL},
        {"labels", "images.npy", 0, DTP_INVALID, "shape [20,6]", NULL},
        {"images", "images.npy", 1, DTP_INVALID, "shift", NULL},
        {"images", "book.txt", 0, DTP_INVALID, "integer", NULL},
        {"labels", "book.txt", 0, DTP_INVALID, "below 10", NULL},
        {"mask", "book.txt", 0, DTP_INVALID, "integer", NULL},
        {"tokens", "book.txt", 0, DTP_INVALID, "4 elements", NULL},
        {"tokens", "absent", 0, DTP_IO, "absent", NULL},
        {"tokens", "empty.npy", 0, DTP_INVALID, "empty.npy", NULL},
        {"labels", "none.npy", 0, DTP_INVALID, "shape [0]", NULL},
        {"words", "book.txt", 0, DTP_INVALID, "'u3' is none of", "u3"},
        {"words", "odd.bin", 0, DTP_INVALID, "3 bytes", "u2"},
        {"words", "book.txt", 0, DTP_INVALID, "2 elements", "u2"},
        {"labels", "labels.npy", 0, DTP_INVALID, "differs", "u2"},
        {"labels", "labels.npy", 0, DTP_INVALID, "none of", "f4"},
        {"images", "book.txt", 0, DTP_INVALID, "integer", "u1"},
        {"words", "flat.npy", 0, DTP_INVALID, "shape [3]", NULL},
    };
    dtp_graph *g = inputs_graph();
    write_samples();
    data_write("book.txt", "abcd", 4);
    data_write("odd.bin", "abc", 3);
    write_npy("flat.npy", &(dtp_ttype){DTP_F32, 1, {{0, 3}}}, "abcdefghijkl");
    data_write("empty.npy", "", 0);
    write_npy("none.npy", &(dtp_ttype){DTP_I32, 1, {{0, 0}}}, "");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char path[300];
        snprintf(path, sizeof path, "%s", data_path(cases[k].file));
        const dtp_feed_spec spec = {cases[k].input, path, cases[k].shift, cases[k].dtype};
        dtp_feed *feed = NULL;
        dtp_err err = {0};
        assert_int_equal(dtp_feed_create(g, 1, &spec, 0, DTP_FEED_SHUFFLED, &feed, &err),
                         cases[k].want);
        assert_non_null(strstr(err.msg, cases[k].words));
    }
    dtp_graph_destroy(g);
}

static void test_feed__labels_out_of_range_are_named(void **unused)
{
    (void)unused;
    dtp_graph *g = inputs_graph();
    const int32_t labels[8] = {0, 1, 2, 3, 4, 10, 6, 7};
    write_npy("bad.npy", &(dtp_ttype){DTP_I32, 1, {{0, 8}}}, labels);
    char path[300];
    snprintf(path, sizeof path, "%s", data_path("bad.npy"));
    const dtp_feed_spec spec = {.input = "labels", .file = path};
    dtp_feed *feed = NULL;
    dtp_err err = {0};
    must(dtp_feed_create(g, 1, &spec, 0, DTP_FEED_SHUFFLED, &feed, &err), &err);
    dtp_shard piece = dtp_shard_whole(&g->tensors[1].type);
    int32_t out[8];
    assert_int_equal(dtp_feed_fill(feed, 1, 0, &piece, out, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "element 5 is 10"));
    assert_non_null(strstr(err.msg, "labels"));
    dtp_feed_destroy(feed);
    dtp_graph_destroy(g);
}

static void test_feed__spec_texts(void **unused)
{
    (void)unused;
    char storage[DTP_FEED_TEXT_BYTES];
    dtp_feed_spec spec;
    dtp_err err = {0};
    must(dtp_feed_spec_parse("x=a=b.npy", storage, &spec, &err), &err);
    assert_string_equal(spec.input, "x");
    assert_string_equal(spec.file, "a=b.npy");
    assert_int_equal(spec.shift, 0);
    must(dtp_feed_spec_parse("x=dir/a,b.txt,shift=12", storage, &spec, &err), &err);
    assert_string_equal(spec.file, "dir/a,b.txt");
    assert_int_equal(spec.shift, 12);
    assert_null(spec.dtype);
    static const char *const typed[] = {"x=a,b=1.bin,dtype=u2,shift=12",
                                        "x=a,b=1.bin,shift=12,dtype=u2"};
    for (size_t i = 0; i < 2; i++) {
        must(dtp_feed_spec_parse(typed[i], storage, &spec, &err), &err);
        assert_string_equal(spec.file, "a,b=1.bin");
        assert_int_equal(spec.shift, 12);
        assert_string_equal(spec.dtype, "u2");
    }
    static const char *const bad[] = {"",
                                      "x",
                                      "=f",
                                      "x=",
                                      "x=f,shift=",
                                      "x=f,shift=-1",
                                      "x=f,shift=1x",
                                      "x=f,dtype=",
                                      "x=f,dtype=f4",
                                      "x=f,shift=1,shift=1",
                                      "x=f,dtype=u2,shift=1,dtype=u2",
                                      "x=,dtype=u2",
                                      "x=f,shift=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(dtp_feed_spec_parse(bad[i], storage, &spec, &err), DTP_INVALID);
    }
}

static void test_init__pieces_and_threads_agree(void **unused)
{
    (void)unused;
    static const dtp_init inits[] = {{DTP_INIT_ZEROS, 0, 0},
                                     {DTP_INIT_ONES, 0, 0},
                                     {DTP_INIT_CONSTANT, 2.5, 0},
                                     {DTP_INIT_NORMAL, 0.02, 1},
                                     {DTP_INIT_UNIFORM, -3, 4}};
    dtp_err err = {0};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:2;y:3", &mesh, &err), &err);
    for (size_t k = 0; k < sizeof inits / sizeof *inits; k++) {
        dtp_graph_tensor t = {
            .name = "w", .init = inits[k], .stream = 77, .type = {DTP_F32, 2, {{0, 50}, {1, 200}}}};
        float *all = malloc(40000), *part = malloc(40000), *want = malloc(40000);
        assert_true(all != NULL && part != NULL && want != NULL);
        dtp_shard whole = dtp_shard_whole(&t.type);
        must(dtp_init_fill(&t, 5, &whole, 2, all, &err), &err);
        dtp_layout layout = dtp_layout_replicated(2, 2);
        dtp_layout_split(&layout, 0, 0);
        dtp_layout_split(&layout, 1, 1);
        for (int32_t r = 0; r < 6; r++) {
            dtp_shard piece = dtp_shard_of(&t.type, &layout, &mesh, r);
            must(dtp_init_fill(&t, 5, &piece, 1, part, &err), &err);
            dtp_shard_copy(&piece, &whole, all, &piece, want, 4);
            assert_memory_equal(part, want, (size_t)dtp_shard_elems(&piece) * 4);
        }
        double sum = 0, squares = 0;
        for (int i = 0; i < 10000; i++) {
            sum += (double)all[i];
            squares += (double)all[i] * (double)all[i];
        }
        static const double means[] = {0, 1, 2.5, 1, 0.5};
        static const double deviations[] = {0, 0, 0, 0.02, 2.0207};
        double mean = sum / 10000, deviation = sqrt(fabs(squares / 10000 - mean * mean));
        assert_true(fabs(mean - means[k]) < 0.08);
        assert_true(fabs(deviation - deviations[k]) <= 0.05 * deviations[k] + 1e-6);
        free(all);
        free(part);
        free(want);
    }
}

/* Elements are those of dtp_normal_at, wherever a piece begins within a block of four. */
static void test_init__normal_values_are_those_of_the_generator(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph_tensor t = {.name = "w",
                          .init = {DTP_INIT_NORMAL, 2.0, 0.5},
                          .stream = 3,
                          .type = {DTP_F64, 2, {{0, 300}, {1, 37}}}};
    static double got[300 * 37];
    dtp_shard piece = dtp_shard_whole(&t.type);
    must(dtp_init_fill(&t, 8, &piece, 2, got, &err), &err);
    for (uint64_t i = 0; i < 300 * 37; i++) {
        double want = 0.5 + 2.0 * dtp_normal_at(8, 3, 0, i);
        assert_memory_equal(&got[i], &want, sizeof want);
    }
}

/* ---- launch ---- */

static int cleanup(void **unused)
{
    (void)unused;
    data_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permute__is_a_permutation),
        cmocka_unit_test(test_permute__depends_on_seed_and_epoch),
        cmocka_unit_test(test_feed__values_do_not_depend_on_the_layout),
        cmocka_unit_test(test_feed__samples_stay_aligned_and_do_not_repeat),
        cmocka_unit_test(test_feed__targets_are_tokens_shifted),
        cmocka_unit_test(test_feed__tokens_of_every_element_type),
        cmocka_unit_test(test_feed__element_types_are_said),
        cmocka_unit_test(test_feed__tokens_out_of_range_are_named),
        cmocka_unit_test(test_feed__files_that_are_cut),
        cmocka_unit_test(test_feed__one_type_for_one_file),
        cmocka_unit_test(test_feed__windows_of_an_epoch_lie_side_by_side),
        cmocka_unit_test(test_feed__rows_in_order),
        cmocka_unit_test(test_feed__rows_in_order_are_refused),
        cmocka_unit_test(test_feed__synthetic_integers_stay_below),
        cmocka_unit_test(test_feed__labels_that_are_ignored),
        cmocka_unit_test(test_feed__bad_feeds_are_named),
        cmocka_unit_test(test_feed__labels_out_of_range_are_named),
        cmocka_unit_test(test_feed__spec_texts),
        cmocka_unit_test(test_init__pieces_and_threads_agree),
        cmocka_unit_test(test_init__normal_values_are_those_of_the_generator),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
