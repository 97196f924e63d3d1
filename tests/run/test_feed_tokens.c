/* Files of tokens as inputs: element types, windows, rows in the order of the file. */
#include "executor/session/feed.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_feed__tokens_of_every_element_type),
        cmocka_unit_test(test_feed__element_types_are_said),
        cmocka_unit_test(test_feed__tokens_out_of_range_are_named),
        cmocka_unit_test(test_feed__files_that_are_cut),
        cmocka_unit_test(test_feed__one_type_for_one_file),
        cmocka_unit_test(test_feed__windows_of_an_epoch_lie_side_by_side),
        cmocka_unit_test(test_feed__rows_in_order),
        cmocka_unit_test(test_feed__rows_in_order_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, data_cleanup);
}
