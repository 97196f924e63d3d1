/* Locks between jobs: one owner at a time, also when owners come, go and are killed. */
#include "core/files/file_lock.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_lock__has_one_owner(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_file_lock *a = NULL, *b = NULL;
    const char *path = data_path("one.lock");
    assert_int_equal(dtp_file_lock_take(path, &a, &err), DTP_OK);
    assert_int_equal(dtp_file_lock_take(path, &b, &err), DTP_IO);
    assert_null(b);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "held by another job (process "));
    dtp_file_lock_release(a);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(dtp_file_lock_take(path, &b, &err), DTP_OK);
    dtp_file_lock_release(b);
    dtp_file_lock_release(NULL);
}

static void test_lock__refuses_what_is_no_file(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_file_lock *a = NULL;
    assert_int_equal(dtp_file_lock_take(data_path("no/such/folder.lock"), &a, &err), DTP_IO);
    assert_int_equal(symlink("/dev/null", data_path("link.lock")), 0);
    assert_int_equal(dtp_file_lock_take(data_path("link.lock"), &a, &err), DTP_IO);
    assert_int_equal(dtp_file_lock_take(data_dir(), &a, &err), DTP_IO);
}

static void test_lock__a_killed_owner_refuses_nobody(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_file_lock *a = NULL;
    const char *path = data_path("killed.lock");
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (dtp_file_lock_take(path, &a, &err) == DTP_OK && write(ready[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(dtp_file_lock_take(path, &a, &err), DTP_IO);
    char words[64];
    snprintf(words, sizeof words, "process %ld on", (long)child);
    assert_non_null(strstr(err.msg, words));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(dtp_file_lock_take(path, &a, &err), DTP_OK);
    dtp_file_lock_release(a);
    close(ready[0]);
    close(ready[1]);
}

enum { CHILDREN = 4, ROUNDS = 300 };

/* Takes the lock ROUNDS times; a mark that only an owner makes must be free each time. */
static int contend(const char *path, const char *mark)
{
    for (int n = 0; n < ROUNDS;) {
        dtp_err err = {0};
        dtp_file_lock *lock = NULL;
        if (dtp_file_lock_take(path, &lock, &err) != DTP_OK) {
            if (strstr(err.msg, "held") == NULL && strstr(err.msg, "changes") == NULL) {
                return 2;
            }
            continue;
        }
        int fd = open(mark, O_CREAT | O_EXCL | O_WRONLY, 0666);
        if (fd < 0) {
            return 3;
        }
        close(fd);
        unlink(mark);
        dtp_file_lock_release(lock);
        n++;
    }
    return 0;
}

static void test_lock__owners_exclude_each_other(void **unused)
{
    (void)unused;
    char path[600], mark[600];
    pid_t children[CHILDREN];
    snprintf(path, sizeof path, "%s", data_path("contended.lock"));
    snprintf(mark, sizeof mark, "%s", data_path("mark"));
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            _exit(contend(path, mark));
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock__has_one_owner),
        cmocka_unit_test(test_lock__refuses_what_is_no_file),
        cmocka_unit_test(test_lock__a_killed_owner_refuses_nobody),
        cmocka_unit_test(test_lock__owners_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, data_cleanup);
}
