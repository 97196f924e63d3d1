/* Checkpoints that are damaged, planted or removed: flipped bits of what says where tensors lie,
 * links and pipes under our names, folders that go while the job runs. */
#include "tests/support/job_suite.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/files/file_in.h"
#include "core/files/file_lock.h"
#include "core/files/file_out.h"
#include "executor/files/checkpoint_internal.h"

enum { PATH_BYTES = 600 };

static dtp_graph *graph;

static int setup(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    return job_graph(false, &graph, &err) == DTP_OK ? 0 : -1;
}

static int cleanup(void **unused)
{
    (void)unused;
    dtp_graph_destroy(graph);
    data_remove();
    return 0;
}

/* One step from `load` (NULL: the start) on ranks that split the pixels of w1, saved. */
static dtp_status step_job(const char *load, const char *save, int32_t keep,
                           void (*before_save)(const struct job *), double *loss, dtp_err *err)
{
    dtp_mesh mesh;
    job j = {.g = graph,
             .mesh = "x:2",
             .rules = "pixels:x",
             .backend = "ref",
             .steps = 1,
             .load = load,
             .save = save,
             .keep = keep,
             .before_save = before_save,
             .losses = loss};
    *err = (dtp_err){0};
    DTP_TRY(dtp_mesh_parse("x:2", &mesh, err));
    return dtp_comm_sim_run(&mesh, job_run, &j, err);
}

static double must_step(const char *load, const char *save, int32_t keep)
{
    dtp_err err;
    double loss = 0;
    if (step_job(load, save, keep, NULL, &loss, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return loss;
}

static void place(char out[PATH_BYTES], const char *dir, const char *name)
{
    assert_true((size_t)snprintf(out, PATH_BYTES, "%s%s%s", dir, name[0] != '\0' ? "/" : "", name) <
                PATH_BYTES);
}

static char *contents(const char *path, size_t *len)
{
    char *text = NULL;
    dtp_err err = {0};
    if (dtp_file_read(path, 1 << 24, &text, len, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return text;
}

/* Files of a test are small: written in place, without the care of dtp_file_write. */
static void put(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void says(const dtp_err *err, const char *words)
{
    if (strstr(err->msg, words) == NULL) {
        fail_msg("'%s' is not in '%s'", words, err->msg);
    }
}

/* ---- flipped bits ---- */

static void put_byte(int fd, char byte, size_t at)
{
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

/* How many single flips of bytes `from` to `to` still open. */
static int flips_that_open(const char *path, const char *text, size_t from, size_t to)
{
    int open_ones = 0;
    const int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t at = from; at < to; at++) {
        for (int bit = 0; bit < 8; bit++) {
            dtp_catalog c;
            put_byte(fd, (char)(text[at] ^ (1 << bit)), at);
            if (dtp_catalog_open(path, &c, NULL) == DTP_OK) {
                open_ones++;
                dtp_catalog_close(&c);
            }
        }
        put_byte(fd, text[at], at);
    }
    assert_int_equal(close(fd), 0);
    return open_ones;
}

static void test_index__every_flip_is_found(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], index[PATH_BYTES];
    size_t len;
    place(dir, data_path("flips"), "");
    const double want = (must_step(NULL, dir, 1), must_step(dir, NULL, 1));
    place(index, dir, DTP_CHECKPOINT_INDEX);
    char *text = contents(index, &len);
    assert_int_equal(flips_that_open(index, text, 0, len), 0);
    assert_true(must_step(dir, NULL, 1) == want);
    free(text);
}

/* A file's own checksum is a member of its header: when its key is hit, nothing else is. */
static void test_single__every_flip_of_the_header_is_found(void **unused)
{
    (void)unused;
    char path[PATH_BYTES];
    size_t len;
    place(path, data_path("flips.safetensors"), "");
    must_step(NULL, path, 1);
    char *text = contents(path, &len);
    const size_t head = 8 + (size_t)(unsigned char)text[0] + 256U * (unsigned char)text[1];
    const char *key = strstr(text + 8, "\"" DTP_ST_HEADER_CRC "\"");
    assert_non_null(key);
    const size_t at = (size_t)(key - text);
    const size_t end = at + strlen("\"" DTP_ST_HEADER_CRC "\"");
    assert_int_equal(flips_that_open(path, text, 0, at), 0);
    assert_int_equal(flips_that_open(path, text, end, head), 0);
    free(text);
}

/* ---- one slice for every entry, also where an index has no checksum ---- */

/* Takes the member with the checksum out, and puts `to` for the last `from`. */
static char *edited(const char *text, const char *from, const char *to)
{
    char *out = calloc(1, strlen(text) + strlen(to) + 1), *last = NULL;
    assert_non_null(out);
    strcpy(out, text);
    data_unseal(out);
    for (char *at = out; from != NULL && (at = strstr(at, from)) != NULL; at++) {
        last = at;
    }
    if (from != NULL) {
        assert_non_null(last);
        memmove(last + strlen(to), last + strlen(from), strlen(last + strlen(from)) + 1);
        memcpy(last, to, strlen(to));
    }
    return out;
}

static void test_index__every_entry_is_named_once(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], index[PATH_BYTES];
    size_t len;
    dtp_err err;
    double loss;
    place(dir, data_path("once"), "");
    must_step(NULL, dir, 1);
    place(index, dir, DTP_CHECKPOINT_INDEX);
    char *text = contents(index, &len), *changed = edited(text, NULL, "");
    put(index, changed, strlen(changed));
    must_step(dir, NULL, 1); /* an older index, without a checksum */
    free(changed);
    changed = edited(text, "\"file\": 1", "\"file\": 0");
    put(index, changed, strlen(changed));
    assert_int_equal(step_job(dir, NULL, 1, NULL, &loss, &err), DTP_INVALID);
    says(&err, "a second slice of this tensor in ");
    says(&err, "rank-0-of-2.1.safetensors");
    free(changed);
    changed = edited(text, "rank-1-of-2", "rank-0-of-2");
    put(index, changed, strlen(changed));
    assert_int_equal(step_job(dir, NULL, 1, NULL, &loss, &err), DTP_INVALID);
    free(changed);
    free(text);
}

static void test_index__no_entry_is_left_out(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], index[PATH_BYTES];
    size_t len;
    dtp_err err;
    double loss;
    place(dir, data_path("left-out"), "");
    must_step(NULL, dir, 1);
    place(index, dir, DTP_CHECKPOINT_INDEX);
    char *text = contents(index, &len), *changed = edited(text, NULL, "");
    char *from = strstr(changed, "\"w1\"");
    assert_non_null(from);
    char *to = strstr(from + 4, "\"w2\"");
    assert_non_null(to);
    memmove(from, to, strlen(to) + 1);
    put(index, changed, strlen(changed));
    assert_int_equal(step_job(dir, NULL, 1, NULL, &loss, &err), DTP_INVALID);
    says(&err, "no slice names tensor 'b1' of ");
    free(changed);
    free(text);
}

/* ---- older sets ---- */

static void flip(const char *path, size_t at)
{
    size_t len;
    char *text = contents(path, &len);
    assert_true(at < len);
    text[at] = (char)(text[at] ^ 1);
    put(path, text, len);
    free(text);
}

static void test_damage__names_the_other_sets(void **unused)
{
    (void)unused;
    static const char *const damaged[] = {"rank-1-of-2.3.safetensors", DTP_CHECKPOINT_INDEX};
    char dir[PATH_BYTES], path[PATH_BYTES], second[PATH_BYTES], first[PATH_BYTES], words[1400];
    double want[3], loss;
    dtp_err err;
    size_t len;
    place(dir, data_path("others"), "");
    for (int i = 0; i < 3; i++) {
        want[i] = must_step(i == 0 ? NULL : dir, dir, 3);
    }
    place(second, dir, "dtp.checkpoint.2.json");
    place(first, dir, "dtp.checkpoint.1.json");
    snprintf(words, sizeof words, "; --load takes also %s (step 2), %s (step 1)", second, first);
    for (size_t i = 0; i < 2; i++) {
        place(path, dir, damaged[i]);
        char *text = contents(path, &len);
        flip(path, len - 9);
        assert_int_equal(step_job(dir, NULL, 1, NULL, &loss, &err), DTP_INVALID);
        says(&err, words);
        assert_int_equal(unlink(path), 0);
        assert_int_not_equal(step_job(dir, NULL, 1, NULL, &loss, &err), DTP_OK);
        says(&err, words);
        put(path, text, len);
        free(text);
    }
    assert_true(must_step(first, NULL, 1) == want[1] && must_step(second, NULL, 1) == want[2]);
    /* one that is damaged itself is not named; an older one names the newest */
    flip(second, 40);
    assert_int_equal(step_job(second, NULL, 1, NULL, &loss, &err), DTP_INVALID);
    snprintf(words, sizeof words, "; --load takes also %s/%s (step 3), %s (step 1)", dir,
             DTP_CHECKPOINT_INDEX, first);
    says(&err, words);
    /* what is not the checkpoint's fault names none */
    flip(second, 40);
    assert_int_not_equal(step_job(data_path("absent"), NULL, 1, NULL, &loss, &err), DTP_OK);
    assert_null(strstr(err.msg, "takes also"));
}

/* ---- names that others put there ---- */

static void test_planted__links_and_pipes_are_replaced(void **unused)
{
    (void)unused;
    static const char *const names[] = {DTP_CHECKPOINT_INDEX, "dtp.checkpoint.1.json"};
    static const char secret[] = "{\"weight_map\": {}}";
    char dir[PATH_BYTES], name[PATH_BYTES], victim[PATH_BYTES];
    struct stat st;
    size_t len;
    for (int i = 0; i < 2; i++) {
        for (int pipe = 0; pipe < 2; pipe++) {
            char folder[32];
            snprintf(folder, sizeof folder, "planted-%d-%d", i, pipe);
            place(dir, data_path(folder), "");
            place(victim, data_path("victim"), "");
            put(victim, secret, strlen(secret));
            must_step(NULL, dir, 1);
            place(name, dir, names[i]);
            unlink(name);
            assert_int_equal(pipe ? mkfifo(name, 0600) : symlink(victim, name), 0);
            (void)alarm(60); /* a pipe without a reader is not waited for */
            must_step(NULL, dir, 2);
            must_step(NULL, dir, 2);
            (void)alarm(0);
            char *text = contents(victim, &len);
            assert_string_equal(text, secret);
            free(text);
            place(name, dir, DTP_CHECKPOINT_INDEX);
            assert_true(lstat(name, &st) == 0 && S_ISREG(st.st_mode));
            must_step(dir, NULL, 1);
        }
    }
}

/* ---- folders that go while the job runs ---- */

static void remove_folder(const struct job *j)
{
    char lock[PATH_BYTES + 20], *slash;
    const bool single = strstr(j->save, ".safetensors") != NULL;
    snprintf(lock, sizeof lock, "%s%s", j->save, single ? ".lock" : "/checkpoint.lock");
    assert_int_equal(unlink(lock), 0);
    while ((slash = strrchr(lock, '/')) != NULL && strstr(lock, "/gone") != NULL) {
        *slash = '\0';
        assert_int_equal(rmdir(lock), 0);
        if (strcmp(strrchr(lock, '/'), "/gone") == 0) {
            return;
        }
    }
}

static dtp_file_lock *others;

static void take_over(const struct job *j)
{
    char lock[PATH_BYTES];
    dtp_err err = {0};
    place(lock, j->save, "checkpoint.lock");
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(dtp_file_lock_take(lock, &others, &err), DTP_OK);
}

static void test_folder__that_was_removed_is_made_again(void **unused)
{
    (void)unused;
    static const char *const saves[] = {"inner", "one.safetensors"};
    char above[PATH_BYTES], save[PATH_BYTES], lock[PATH_BYTES + 20];
    dtp_err err;
    double loss;
    for (int i = 0; i < 2; i++) {
        place(above, data_path("gone"), "");
        assert_int_equal(mkdir(above, 0777), 0);
        place(save, above, saves[i]);
        if (step_job(NULL, save, 1, remove_folder, &loss, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        must_step(save, NULL, 1);
        snprintf(lock, sizeof lock, "%s%s", save, i == 1 ? ".lock" : "/checkpoint.lock");
        assert_int_not_equal(access(lock, F_OK), 0);
        char elsewhere[PATH_BYTES + 20];
        snprintf(elsewhere, sizeof elsewhere, "%s-%d", above, i);
        assert_int_equal(rename(above, elsewhere), 0);
    }
    /* when another job has its place, that job's lock stays */
    place(save, data_path("taken"), "");
    assert_int_equal(step_job(NULL, save, 1, take_over, &loss, &err), DTP_IO);
    says(&err, "checkpoint.lock: held by another job");
    assert_true(dtp_file_lock_holds(others));
    dtp_file_lock_release(others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index__every_flip_is_found),
        cmocka_unit_test(test_single__every_flip_of_the_header_is_found),
        cmocka_unit_test(test_index__every_entry_is_named_once),
        cmocka_unit_test(test_index__no_entry_is_left_out),
        cmocka_unit_test(test_damage__names_the_other_sets),
        cmocka_unit_test(test_planted__links_and_pipes_are_replaced),
        cmocka_unit_test(test_folder__that_was_removed_is_made_again),
    };
    return cmocka_run_group_tests(tests, setup, cleanup);
}
