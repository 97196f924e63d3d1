/* What is in a checkpoint folder after saves that end well, fail or were killed. */
#include "tests/support/job_suite.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/files/file_in.h"
#include "core/files/file_lock.h"
#include "core/files/file_out.h"

enum { NAMES_BYTES = 4096, PATH_BYTES = 600 };

static dtp_graph *graph;

static int setup(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    (void)signal(SIGXFSZ, SIG_IGN);
    return job_graph(false, &graph, &err) == DTP_OK ? 0 : -1;
}

static int cleanup(void **unused)
{
    (void)unused;
    dtp_graph_destroy(graph);
    data_remove();
    return 0;
}

/* One step from `load` (NULL: the start), saved; on two ranks. The loss of the step is NAN when it
 * was not reached. */
static dtp_status step_job(const char *load, const char *save, int32_t keep, double *loss,
                           dtp_err *err)
{
    dtp_mesh mesh;
    double unused;
    job j = {.g = graph,
             .mesh = "x:2",
             .rules = "pixels:x",
             .backend = "ref",
             .steps = 1,
             .load = load,
             .save = save,
             .keep = keep,
             .losses = loss != NULL ? loss : &unused};
    *err = (dtp_err){0};
    DTP_TRY(dtp_mesh_parse("x:2", &mesh, err));
    return dtp_comm_sim_run(&mesh, job_run, &j, err);
}

static void must_step(const char *load, const char *save, int32_t keep, double *loss)
{
    dtp_err err;
    if (step_job(load, save, keep, loss, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in a folder, sorted, with a space after each. */
static const char *names_in(const char *dir)
{
    static char text[NAMES_BYTES];
    char names[32][128];
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] != '.') {
            assert_true(n < 32);
            snprintf(names[n++], sizeof names[0], "%.127s", e->d_name);
        }
    }
    closedir(d);
    qsort(names, n, sizeof names[0], by_text);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        strcat(strcat(text, names[i]), " ");
    }
    return text;
}

static void join(char out[PATH_BYTES], const char *dir, const char *name)
{
    assert_true((size_t)snprintf(out, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[PATH_BYTES];
    join(path, dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void make_dir(const char *name, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s", data_path(name));
    assert_int_equal(mkdir(out, 0777), 0);
}

#define SET(s) "rank-0-of-2." s ".safetensors rank-1-of-2." s ".safetensors "

static void test_sets__only_the_newest_stays(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", data_path("newest"));
    must_step(NULL, dir, 0, NULL);
    assert_string_equal(names_in(dir), "dtp.checkpoint.json " SET("1"));
    must_step(dir, dir, 0, NULL);
    assert_string_equal(names_in(dir), "dtp.checkpoint.json " SET("2"));
}

/* Every kept checkpoint loads, and is the one of its step. */
static void test_sets__keep_leaves_the_last_n(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], index[PATH_BYTES];
    double whole[6], loss;
    snprintf(dir, sizeof dir, "%s", data_path("kept"));
    for (int i = 0; i < 5; i++) {
        must_step(i == 0 ? NULL : dir, dir, 3, &whole[i]);
    }
    assert_string_equal(names_in(dir), "dtp.checkpoint.3.json "
                                       "dtp.checkpoint.4.json "
                                       "dtp.checkpoint.json "
                                       "rank-0-of-2.3.safetensors rank-0-of-2.4.safetensors "
                                       "rank-0-of-2.5.safetensors rank-1-of-2.3.safetensors "
                                       "rank-1-of-2.4.safetensors rank-1-of-2.5.safetensors ");
    for (int set = 3; set <= 4; set++) {
        char name[64];
        snprintf(name, sizeof name, "dtp.checkpoint.%d.json", set);
        join(index, dir, name);
        must_step(index, NULL, 0, &loss);
        assert_true(loss == whole[set]);
    }
    /* an older one that training goes on from is not dropped before the new one is complete */
    must_step(index, dir, 1, &loss);
    assert_string_equal(names_in(dir), "dtp.checkpoint.json " SET("6"));
}

/* Files that no save of ours wrote are not touched, whatever they are called. */
static void test_sets__foreign_files_stay(void **unused)
{
    (void)unused;
    static const char *const foreign[] = {"README.md",
                                          "model-00001-of-00002.safetensors",
                                          "model.safetensors",
                                          "dtp.checkpoint.json.bak",
                                          "dtp.checkpoint.old.json",
                                          "model.safetensors.index.old.json",
                                          "rank-0-of-2.safetensors",
                                          "rank-0-of-2.1.safetensors.bak",
                                          "rank-0-of-2.01.safetensors",
                                          "rank-2-of-2.1.safetensors",
                                          "rank-0-of-2.tmp.1.0",
                                          "x.safetensors.tmp.99999999.0"};
    char dir[PATH_BYTES], path[PATH_BYTES];
    make_dir("foreign", dir);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        put(dir, foreign[i], "not ours");
    }
    put(dir, "model.safetensors.index.json",
        "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    for (int i = 0; i < 3; i++) {
        must_step(i == 0 ? NULL : dir, dir, i == 1 ? 2 : 1, NULL);
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        join(path, dir, foreign[i]);
        assert_int_equal(access(path, F_OK), 0);
    }
    join(path, dir, "model.safetensors.index.json"); /* nor is the index of another system */
    assert_int_equal(access(path, F_OK), 0);
    join(path, dir, "dtp.checkpoint.0.json");
    assert_int_equal(access(path, F_OK), -1);
}

/* A folder written with the older names of the index, and files without a number: loads, and goes
 * when the next one is complete. */
static void test_sets__older_names_are_replaced(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES], index[PATH_BYTES], *text = NULL;
    size_t len = 0;
    dtp_err err = {0};
    snprintf(dir, sizeof dir, "%s", data_path("older"));
    must_step(NULL, dir, 1, NULL);
    join(index, dir, "dtp.checkpoint.json");
    assert_int_equal(dtp_file_read(index, 1 << 20, &text, &len, &err), DTP_OK);
    data_unseal(text);
    for (int rank = 0; rank < 2; rank++) {
        char name[64];
        snprintf(name, sizeof name, "rank-%d-of-2.1.safetensors", rank);
        join(from, dir, name);
        char *at = strstr(text, name);
        assert_non_null(at);
        memmove(at + strlen("rank-0-of-2"), at + strlen("rank-0-of-2.1"),
                strlen(at + strlen("rank-0-of-2.1")) + 1);
        snprintf(name, sizeof name, "rank-%d-of-2.safetensors", rank);
        join(to, dir, name);
        assert_int_equal(rename(from, to), 0);
    }
    join(to, dir, "model.safetensors.index.json");
    assert_int_equal(dtp_file_write(to, text, strlen(text), &err), DTP_OK);
    assert_int_equal(remove(index), 0);
    free(text);
    put(dir, "rank-0-of-1.safetensors", "not ours");
    must_step(dir, dir, 2, NULL);
    assert_string_equal(names_in(dir), "dtp.checkpoint.0.json "
                                       "dtp.checkpoint.json rank-0-of-1.safetensors "
                                       "rank-0-of-2.1.safetensors rank-0-of-2.safetensors "
                                       "rank-1-of-2.1.safetensors rank-1-of-2.safetensors ");
    join(index, dir, "dtp.checkpoint.0.json");
    join(to, dir, "model.safetensors.index.0.json");
    assert_int_equal(rename(index, to), 0);
    must_step(to, NULL, 1, NULL);
    must_step(dir, dir, 1, NULL);
    assert_string_equal(names_in(dir), "dtp.checkpoint.json rank-0-of-1.safetensors " SET("2"));
}

/* What killed saves can leave goes with the next save. Numbers are not used twice. */
static void test_sets__leftovers_go(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", data_path("leftovers"));
    must_step(NULL, dir, 1, NULL);
    put(dir, "rank-0-of-2.9.safetensors", "");
    put(dir, "rank-3-of-4.7.safetensors.tmp.99999999.0", "");
    put(dir, "dtp.checkpoint.json.tmp.99999999.3", "");
    put(dir, "dtp.checkpoint.1.json", "{}");
    put(dir, "checkpoint.lock", "process 99999999 on nowhere");
    must_step(dir, dir, 1, NULL);
    assert_string_equal(names_in(dir), "dtp.checkpoint.json " SET("10"));
}

/* An index that cannot be read may name any file: none is removed, until there is a new one. */
static void test_sets__a_broken_index_protects_all_files(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", data_path("broken"));
    must_step(NULL, dir, 1, NULL);
    put(dir, "dtp.checkpoint.json", "{\"files\": [");
    must_step(NULL, dir, 2, NULL);
    must_step(dir, dir, 1, NULL);
    assert_string_equal(names_in(dir), "dtp.checkpoint.json " SET("3"));
}

/* ---- full disks ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit l;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &l), 0);
    l.rlim_cur = bytes < l.rlim_max ? bytes : l.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

/* Files may have n bytes, for all n until the save succeeds: whichever write fails, the older
 * checkpoint is there and nothing else. */
static void fill_disk(const char *place, const char *save)
{
    double want, loss;
    dtp_err err;
    must_step(NULL, save, 2, NULL);
    must_step(save, save, 2, NULL);
    must_step(save, NULL, 1, &want);
    char before[NAMES_BYTES];
    snprintf(before, sizeof before, "%s", names_in(place));
    int failures = 0;
    for (rlim_t bytes = 0;; bytes += 61) {
        limit_files(bytes);
        dtp_status status = step_job(save, save, 2, NULL, &err);
        limit_files(RLIM_INFINITY);
        if (status == DTP_OK) {
            break;
        }
        failures++;
        assert_int_equal(status, DTP_OUTPUT);
        assert_non_null(strstr(err.msg, "File too large"));
        assert_string_equal(names_in(place), before);
        must_step(save, NULL, 1, &loss);
        assert_true(loss == want);
    }
    assert_true(failures > 10);
    must_step(save, NULL, 1, &loss);
    assert_true(loss != want);
}

static void test_sets__full_disk_leaves_the_older_set(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", data_path("full"));
    fill_disk(dir, dir);
}

static void test_single__full_disk_leaves_the_older_file(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], path[PATH_BYTES];
    make_dir("full-single", dir);
    join(path, dir, "one.safetensors");
    fill_disk(dir, path);
}

/* ---- two jobs ---- */

static void refused(const char *lock, const char *save)
{
    dtp_file_lock *other = NULL;
    dtp_err err = {0};
    double loss = -1;
    char before[NAMES_BYTES], mine[64];
    assert_int_equal(dtp_file_lock_take(lock, &other, &err), DTP_OK);
    snprintf(before, sizeof before, "%s", names_in(data_path(".")));
    assert_int_equal(step_job(NULL, save, 1, &loss, &err), DTP_IO);
    snprintf(mine, sizeof mine, "held by another job (process %ld on ", (long)getpid());
    if (strstr(err.msg, lock) == NULL || strstr(err.msg, mine) == NULL) {
        fail_msg("%s", err.msg);
    }
    assert_true(loss == -1); /* before the training */
    assert_string_equal(names_in(data_path(".")), before);
    dtp_file_lock_release(other);
    must_step(NULL, save, 1, NULL);
    assert_int_not_equal(access(lock, F_OK), 0);
}

static void test_lock__the_second_job_is_refused(void **unused)
{
    (void)unused;
    char dir[PATH_BYTES], lock[PATH_BYTES];
    make_dir("locked", dir);
    join(lock, dir, "checkpoint.lock");
    refused(lock, dir);
    snprintf(dir, sizeof dir, "%s", data_path("locked.safetensors"));
    snprintf(lock, sizeof lock, "%s", data_path("locked.safetensors.lock"));
    refused(lock, dir);
}

/* A job that fails before it saves leaves no folder. */
static void test_lock__a_failed_job_leaves_nothing(void **unused)
{
    (void)unused;
    dtp_err err;
    char dir[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", data_path("never"));
    assert_int_not_equal(step_job(data_path("absent"), dir, 1, NULL, &err), DTP_OK);
    assert_int_not_equal(access(dir, F_OK), 0);
}

/* ---- checksums of single files ---- */

static void test_single__damage_is_found(void **unused)
{
    (void)unused;
    char path[PATH_BYTES], *text = NULL;
    size_t len = 0;
    dtp_err err = {0};
    double want, loss;
    snprintf(path, sizeof path, "%s", data_path("checked.safetensors"));
    must_step(NULL, path, 1, NULL);
    must_step(path, NULL, 1, &want);
    assert_int_equal(dtp_file_read(path, 1 << 20, &text, &len, &err), DTP_OK);
    const size_t first = 8 + (size_t)(unsigned char)text[0] + 256U * (unsigned char)text[1];
    for (size_t at = first; at < len; at += 97) {
        text[at] = (char)(text[at] ^ 1);
        assert_int_equal(dtp_file_write(path, text, len, &err), DTP_OK);
        assert_int_equal(step_job(path, NULL, 1, &loss, &err), DTP_INVALID);
        assert_non_null(strstr(err.msg, "checked.safetensors: checksum"));
        text[at] = (char)(text[at] ^ 1);
    }
    /* a file without checksums loads, one with another text for it does not */
    char *key = strstr(text + 8, "\"header_crc32\"");
    assert_non_null(key);
    key[1] = 'H';
    key = strstr(text + 8, "\"crc32\"");
    assert_non_null(key);
    key[1] = 'C';
    assert_int_equal(dtp_file_write(path, text, len, &err), DTP_OK);
    must_step(path, NULL, 1, &loss);
    assert_true(loss == want);
    key[1] = 'c';
    *strchr(key + strlen("\"crc32\": \""), '"') = ' ';
    key[strlen("\"crc32\": \"")] = '"';
    assert_int_equal(dtp_file_write(path, text, len, &err), DTP_OK);
    assert_int_equal(step_job(path, NULL, 1, &loss, &err), DTP_INVALID);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets__only_the_newest_stays),
        cmocka_unit_test(test_sets__keep_leaves_the_last_n),
        cmocka_unit_test(test_sets__foreign_files_stay),
        cmocka_unit_test(test_sets__older_names_are_replaced),
        cmocka_unit_test(test_sets__leftovers_go),
        cmocka_unit_test(test_sets__a_broken_index_protects_all_files),
        cmocka_unit_test(test_sets__full_disk_leaves_the_older_set),
        cmocka_unit_test(test_single__full_disk_leaves_the_older_file),
        cmocka_unit_test(test_lock__the_second_job_is_refused),
        cmocka_unit_test(test_lock__a_failed_job_leaves_nothing),
        cmocka_unit_test(test_single__damage_is_found),
    };
    return cmocka_run_group_tests(tests, setup, cleanup);
}
