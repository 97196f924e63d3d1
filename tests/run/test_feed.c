/* Feeds, initial values, the permutation of samples, the mpirun command line. */
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

/* Nodes between input y and the loss over "n" rows, and whether y may hold -100. */
typedef struct label_case {
    const char *nodes; /* that make tensor z */
    const char *rows;  /* dims of z, in quotes */
    bool ignored;
} label_case;

#define NODE(op, in, more) "{\"id\": \"" op "_\", \"op\": \"" op "\", \"in\": [" in "], " more "}"
#define LAST(op, in, more) "{\"id\": \"z\", \"op\": \"" op "\", \"in\": [" in "], " more "}"
#define Y "\"y\""
#define BL "\"b\", \"l\""
static const label_case label_cases[] = {
    {LAST("slice", Y, "\"dim\": \"l\", \"start\": 1, \"stop\": 4"), "\"b\", \"l=3\"", true},
    {LAST("pad", Y, "\"dim\": \"l\", \"before\": 1, \"after\": 1"), "\"b\", \"l=6\"", true},
    {LAST("cast", Y, "\"dtype\": \"i32\""), BL, true},
    {LAST("reorder", Y, "\"dim\": \"l\", \"chunks\": 2"), BL, true},
    {LAST("relabel", Y, "\"out\": [\"n=b*l\"]"), "\"n\"", true},
    {LAST("permute", Y, "\"out\": [\"l\", \"b\"]"), "\"l\", \"b\"", true},
    {LAST("roll", Y, "\"dim\": \"l\", \"shift\": 1"), BL, true},
    {LAST("concat", Y ", " Y, "\"dim\": \"b\""), "\"b=4\", \"l\"", true},
    {LAST("concat", "\"other\", " Y, "\"dim\": \"b\""), "\"b=4\", \"l\"", true},
    {LAST("stack", Y ", " Y, "\"dim\": \"k\""), "\"k\", " BL, true},
    {LAST("broadcast", Y, "\"out\": [\"k\", \"b\", \"l\"]"), "\"k\", " BL, true},
    {LAST("gather", Y ", \"at\"", "\"over\": \"l\""), "\"b\", \"k\"", true},
    {NODE("roll", Y, "\"dim\": \"l\", \"shift\": 1") ", " NODE(
         "cast", "\"roll_\"", "\"dtype\": \"i32\"") ", " LAST("relabel", "\"cast_\"",
                                                              "\"out\": [\"n=b*l\"]"),
     "\"n\"", true},
    /* other elements */
    {LAST("add", Y ", " Y, "\"out\": [\"b\", \"l\"]"), BL, false},
    {LAST("sub", Y ", \"other\"", "\"out\": [\"b\", \"l\"]"), BL, false},
    {NODE("cast", Y, "\"dtype\": \"bool\"") ", " LAST("cast", "\"cast_\"", "\"dtype\": \"i64\""),
     BL, false},
    {LAST("gather", "\"other\", " Y, "\"over\": \"b\""), BL, false},
    /* what else reads them */
    {NODE("one_hot", Y, "\"dim\": \"c\"") ", " LAST("roll", Y, "\"dim\": \"l\", \"shift\": 1"), BL,
     false},
    {NODE("permute", Y, "\"out\": [\"l\", \"b\"]") ", " NODE(
         "one_hot", "\"permute_\"", "\"dim\": \"c\"") ", " LAST("roll", Y,
                                                                "\"dim\": \"l\", \"shift\": 1"),
     BL, false},
    {NODE("cross_entropy", "\"x\", " Y,
          "\"over\": \"c\", \"ignore\": -1") ", " LAST("roll", Y, "\"dim\": \"l\", \"shift\": 1"),
     BL, false},
};

/* Ops that move elements carry the label that a loss ignores to where the elements come from. */
static void test_feed__ignored_labels_follow_moved_elements(void **unused)
{
    (void)unused;
    int64_t labels[8] = {0, 1, -100, 3, 4, 9, 6, 7};
    char path[300];
    write_npy("moved.npy", &(dtp_ttype){DTP_I64, 2, {{0, 2}, {1, 4}}}, labels);
    snprintf(path, sizeof path, "%s", data_path("moved.npy"));
    const dtp_feed_spec spec = {.input = "y", .file = path};
    for (size_t k = 0; k < sizeof label_cases / sizeof *label_cases; k++) {
        const label_case *c = &label_cases[k];
        char model[2048];
        dtp_graph *g = NULL;
        dtp_feed *feed = NULL;
        dtp_err err = {0};
        snprintf(
            model, sizeof model,
            "{\"format\": \"dtp.model/1\", \"name\": \"t\", \"dims\": {\"b\": 2, \"l\": 4, \"c\": "
            "10, \"s\": 3, \"p\": 6, \"n\": 8, \"b2\": 4, \"k\": 2}, \"inputs\": {\"x\": "
            "{\"dims\": "
            "[%s, \"c\"]}, \"at\": {\"dims\": [\"b\", \"k\"], \"dtype\": \"i32\", \"below\": "
            "\"l\"}, "
            "\"y\": {\"dims\": [\"b\", \"l\"], \"dtype\": \"i64\", \"below\": \"c\"}, \"other\": "
            "{\"dims\": [\"b\", \"l\"], \"dtype\": \"i64\", \"below\": \"c\"}}, \"params\": {}, "
            "\"nodes\": [%s, {\"id\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"x\", \"z\"], "
            "\"over\": \"c\", \"ignore\": -100}], \"outputs\": [\"loss\"]}",
            c->rows, c->nodes);
        const dtp_status read = dtp_model_parse("t", model, strlen(model), NULL, &g, &err);
        if (read != DTP_OK) {
            fail_msg("%s: %s", c->nodes, err.msg);
        }
        const dtp_tensor_id y = dtp_graph_find(g, "y");
        const dtp_shard piece = dtp_shard_whole(&g->tensors[y].type);
        int64_t out[8];
        must(dtp_feed_create(g, 1, &spec, 0, DTP_FEED_SHUFFLED, &feed, &err), &err);
        const dtp_status fed = dtp_feed_fill(feed, y, 0, &piece, out, &err);
        if (fed != (c->ignored ? DTP_OK : DTP_RANGE)) {
            fail_msg("%s: %s", c->nodes, fed == DTP_OK ? "fed" : err.msg);
        }
        dtp_feed_destroy(feed);
        dtp_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permute__is_a_permutation),
        cmocka_unit_test(test_permute__depends_on_seed_and_epoch),
        cmocka_unit_test(test_feed__values_do_not_depend_on_the_layout),
        cmocka_unit_test(test_feed__samples_stay_aligned_and_do_not_repeat),
        cmocka_unit_test(test_feed__targets_are_tokens_shifted),
        cmocka_unit_test(test_feed__synthetic_integers_stay_below),
        cmocka_unit_test(test_feed__labels_that_are_ignored),
        cmocka_unit_test(test_feed__ignored_labels_follow_moved_elements),
        cmocka_unit_test(test_feed__bad_feeds_are_named),
        cmocka_unit_test(test_feed__labels_out_of_range_are_named),
        cmocka_unit_test(test_feed__spec_texts),
        cmocka_unit_test(test_init__pieces_and_threads_agree),
        cmocka_unit_test(test_init__normal_values_are_those_of_the_generator),
    };
    return cmocka_run_group_tests(tests, NULL, data_cleanup);
}
