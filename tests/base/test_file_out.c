/* Files that appear whole or not at all: what stays, what goes, what a killed writer leaves. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/files/file_in.h"
#include "core/files/file_out.h"

enum { NAME_BYTES = 256, MAX_FILES = 16 };

typedef struct place {
    char folder[NAME_BYTES];
    char path[NAME_BYTES]; /* FOLDER/plan.json */
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return -1;
    }
    (void)snprintf(p->folder, sizeof p->folder, "/tmp/dtp_test_file_out.XXXXXX");
    if (mkdtemp(p->folder) == NULL || chmod(p->folder, 0777) != 0) {
        return -1;
    }
    (void)snprintf(p->path, sizeof p->path, "%.200s/plan.json", p->folder);
    (void)umask(022);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    char command[NAME_BYTES + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", p->folder);
    int code = system(command); /* NOLINT: a fixed command on our own folder */
    free(p);
    return code;
}

static const char *beside(const place *p, const char *name)
{
    static char paths[4][2 * NAME_BYTES];
    static int next;
    char *out = paths[next++ % 4];
    (void)snprintf(out, sizeof paths[0], "%s/%s", p->folder, name);
    return out;
}

/* The names in the folder, sorted, joined by blanks. */
static const char *listing(const place *p)
{
    static char text[4096];
    char command[NAME_BYTES + 32];
    (void)snprintf(command, sizeof command, "ls -A '%s' | tr '\\n' ' '", p->folder);
    FILE *f = popen(command, "r"); /* NOLINT */
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)pclose(f);
    text[n] = '\0';
    return text;
}

static void put(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
}

static void assert_text(const char *path, const char *expected)
{
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(dtp_file_read(path, 1 << 20, &text, &n, NULL), DTP_OK);
    assert_string_equal(text, expected);
    free(text);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static dtp_status write_text(const char *path, const char *text, dtp_err *err)
{
    return dtp_file_write(path, text, strlen(text), err);
}

static void test_file_out__keeps_the_mode(void **state)
{
    const place *p = *state;
    assert_int_equal(write_text(p->path, "new", NULL), DTP_OK);
    assert_int_equal(mode_of(p->path) & 07777, 0644);
    put(p->path, "old", 0600);
    assert_int_equal(write_text(p->path, "newer", NULL), DTP_OK);
    assert_int_equal(mode_of(p->path) & 07777, 0600);
    assert_text(p->path, "newer");
    put(p->path, "old", 0666);
    assert_int_equal(write_text(p->path, "newest", NULL), DTP_OK);
    assert_int_equal(mode_of(p->path) & 07777, 0666);
    assert_string_equal(listing(p), "plan.json ");
}

static void test_file_out__writes_through_links(void **state)
{
    const place *p = *state;
    assert_int_equal(mkdir(beside(p, "deep"), 0777), 0);
    put(beside(p, "deep/real.json"), "old", 0640);
    assert_int_equal(symlink("deep/step", p->path), 0);
    assert_int_equal(symlink("real.json", beside(p, "deep/step")), 0);
    assert_int_equal(write_text(p->path, "through", NULL), DTP_OK);
    assert_true(S_ISLNK(mode_of(p->path)));
    assert_true(S_ISLNK(mode_of(beside(p, "deep/step"))));
    assert_text(beside(p, "deep/real.json"), "through");
    assert_int_equal(mode_of(beside(p, "deep/real.json")) & 07777, 0640);
    /* A link to nothing yet: its target is made. */
    assert_int_equal(symlink(beside(p, "absent"), beside(p, "link")), 0);
    assert_int_equal(write_text(beside(p, "link"), "made", NULL), DTP_OK);
    assert_text(beside(p, "absent"), "made");
    assert_true(S_ISLNK(mode_of(beside(p, "link"))));
    /* A circle. */
    dtp_err err = {0};
    assert_int_equal(symlink("b", beside(p, "a")), 0);
    assert_int_equal(symlink("a", beside(p, "b")), 0);
    assert_int_equal(write_text(beside(p, "a"), "x", &err), DTP_IO);
    assert_non_null(strstr(err.msg, beside(p, "a")));
}

/* Links planted under the names that a temporary could have. */
static void test_file_out__follows_no_planted_link(void **state)
{
    const place *p = *state;
    put(beside(p, "victim"), "precious", 0644);
    for (int i = 0; i < 8; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "plan.json.tmp.%ld.%d", (long)getpid(), i);
        assert_int_equal(symlink("victim", beside(p, name)), 0);
    }
    char old_name[64];
    (void)snprintf(old_name, sizeof old_name, "plan.json.tmp.%ld", (long)getpid());
    assert_int_equal(symlink("victim", beside(p, old_name)), 0);
    assert_int_equal(write_text(p->path, "new", NULL), DTP_OK);
    assert_text(beside(p, "victim"), "precious");
    assert_text(p->path, "new");
    assert_true(S_ISREG(mode_of(p->path)));
}

static void test_file_out__removes_what_dead_writers_left(void **state)
{
    const place *p = *state;
    put(beside(p, "plan.json.tmp.1.0"), "half", 0644);
    put(beside(p, "plan.json.tmp.4194303.17"), "half", 0644);
    /* Not ours: other targets, other patterns. */
    put(beside(p, "plan.json.tmp.1"), "a", 0644);
    put(beside(p, "plan.json.tmp.1.2.3"), "b", 0644);
    put(beside(p, "plan.json.tmp.1.x"), "c", 0644);
    put(beside(p, "plan2.json.tmp.1.0"), "d", 0644);
    assert_int_equal(mkdir(beside(p, "plan.json.tmp.5.5"), 0777), 0);
    assert_int_equal(write_text(p->path, "new", NULL), DTP_OK);
    assert_string_equal(listing(p), "plan.json plan.json.tmp.1 plan.json.tmp.1.2.3 "
                                    "plan.json.tmp.1.x plan.json.tmp.5.5 plan2.json.tmp.1.0 ");
}

static void test_file_out__keeps_what_live_writers_hold(void **state)
{
    const place *p = *state;
    dtp_file_out *a = NULL, *b = NULL;
    assert_int_equal(dtp_file_out_open(p->path, &a, NULL), DTP_OK);
    assert_int_equal(dtp_file_out_write(a, "first", 5, NULL), DTP_OK);
    /* In the same process and in another one. */
    assert_int_equal(dtp_file_out_open(p->path, &b, NULL), DTP_OK);
    assert_int_equal(dtp_file_out_write(b, "second", 6, NULL), DTP_OK);
    pid_t child = fork();
    if (child == 0) {
        _exit(write_text(p->path, "third", NULL) == DTP_OK ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_text(p->path, "third");
    assert_int_equal(dtp_file_out_commit(b, NULL), DTP_OK);
    assert_text(p->path, "second");
    assert_int_equal(dtp_file_out_commit(a, NULL), DTP_OK);
    assert_text(p->path, "first");
    assert_string_equal(listing(p), "plan.json ");
}

static void test_file_out__a_killed_writer_is_cleaned_up_after(void **state)
{
    const place *p = *state;
    int ready[2];
    char byte;
    put(p->path, "old", 0644);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        dtp_file_out *out = NULL;
        if (dtp_file_out_open(p->path, &out, NULL) == DTP_OK &&
            dtp_file_out_write(out, "half", 4, NULL) == DTP_OK) {
            (void)!write(ready[1], "", 1);
            (void)pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_string_not_equal(listing(p), "plan.json ");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_text(p->path, "old");
    assert_string_not_equal(listing(p), "plan.json ");
    assert_int_equal(write_text(p->path, "new", NULL), DTP_OK);
    assert_string_equal(listing(p), "plan.json ");
    (void)close(ready[0]);
    (void)close(ready[1]);
}

/* Many writers of one target at once: all succeed, one is whole, nothing is left. */
static void test_file_out__writers_race(void **state)
{
    const place *p = *state;
    enum { WRITERS = 8, ROUNDS = 25 };
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] == 0) {
            char text[4097];
            memset(text, 'a' + w, sizeof text - 1);
            text[sizeof text - 1] = '\0';
            int failed = 0;
            for (int r = 0; r < ROUNDS; r++) {
                failed += write_text(p->path, text, NULL) != DTP_OK;
            }
            _exit(failed);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int code = -1;
        assert_int_equal(waitpid(children[w], &code, 0), children[w]);
        assert_int_equal(code, 0);
    }
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(dtp_file_read(p->path, 1 << 20, &text, &n, NULL), DTP_OK);
    assert_int_equal(n, 4096);
    assert_int_equal(strspn(text, (char[]){text[0], '\0'}), 4096);
    free(text);
    assert_string_equal(listing(p), "plan.json ");
}

static void test_file_out__discard_leaves_nothing(void **state)
{
    const place *p = *state;
    dtp_file_out *out = NULL;
    assert_int_equal(dtp_file_out_open(p->path, &out, NULL), DTP_OK);
    assert_true(dtp_file_out_fd(out) > 2);
    assert_int_equal(dtp_file_out_write(out, "x", 1, NULL), DTP_OK);
    dtp_file_out_discard(out);
    dtp_file_out_discard(NULL);
    assert_string_equal(listing(p), "");
}

static void test_file_out__long_names(void **state)
{
    const place *p = *state;
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    assert_int_equal(write_text(beside(p, name), "x", NULL), DTP_OK);
    assert_text(beside(p, name), "x");
    assert_int_equal(strlen(listing(p)), 256);
}

static void test_file_out__writes_devices_in_place(void **state)
{
    const place *p = *state;
    dtp_err err = {0};
    assert_int_equal(write_text("/dev/null", "x", NULL), DTP_OK);
    assert_int_equal(write_text("/dev/full", "x", &err), DTP_OUTPUT);
    assert_non_null(strstr(err.msg, "/dev/full"));
    /* A descriptor that is a file: at its position, not over its start. */
    char name[64];
    put(p->path, "", 0644);
    int fd = open(p->path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "before ", 7), 7);
    (void)snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(write_text(name, "and after", NULL), DTP_OK);
    (void)close(fd);
    assert_text(p->path, "before and after");
    assert_int_equal(write_text(name, "x", &err), DTP_IO); /* closed by now */
    assert_string_equal(listing(p), "plan.json ");
    /* A named pipe with a reader. */
    assert_int_equal(mkfifo(beside(p, "pipe"), 0666), 0);
    fd = open(beside(p, "pipe"), O_RDWR);
    assert_int_equal(write_text(beside(p, "pipe"), "piped", NULL), DTP_OK);
    char text[8] = "";
    assert_int_equal(read(fd, text, 5), 5);
    assert_string_equal(text, "piped");
    (void)close(fd);
}

typedef struct bad_path {
    const char *name, *says;
} bad_path;

static void test_file_out__refuses_bad_paths_before(void **state)
{
    const place *p = *state;
    const bad_path cases[] = {{"no/plan.json", "cannot write into the folder"},
                              {"deep", "Is a directory"},
                              {"deep/", "Is a directory"},
                              {"new/", "Is a directory"},
                              {"file/plan.json", "Not a directory"}};
    dtp_err err = {0};
    dtp_file_out *out = NULL;
    assert_int_equal(mkdir(beside(p, "deep"), 0777), 0);
    put(beside(p, "file"), "x", 0644);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = beside(p, cases[i].name);
        assert_int_equal(dtp_file_check_writable(path, &err), DTP_IO);
        assert_ptr_equal(strstr(err.msg, path), err.msg);
        assert_non_null(strstr(err.msg, cases[i].says));
        assert_int_equal(dtp_file_out_open(path, &out, &err), DTP_IO);
    }
    assert_int_equal(dtp_file_check_writable("", &err), DTP_IO);
    assert_int_equal(dtp_file_check_writable(p->path, &err), DTP_OK);
    assert_int_equal(dtp_file_check_writable(beside(p, "file"), &err), DTP_OK);
    assert_int_equal(dtp_file_check_writable("/dev/null", &err), DTP_OK);
    assert_string_equal(listing(p), "deep file ");
}

static void test_file_out__checks_folders(void **state)
{
    const place *p = *state;
    dtp_err err = {0};
    put(beside(p, "file"), "x", 0644);
    assert_int_equal(dtp_folder_check_writable(p->folder, &err), DTP_OK);
    assert_int_equal(dtp_folder_check_writable(beside(p, "new"), &err), DTP_OK);
    assert_int_equal(dtp_folder_check_writable(beside(p, "new//"), &err), DTP_OK);
    assert_int_equal(dtp_folder_check_writable("new-in-here", &err), DTP_OK);
    assert_int_equal(dtp_folder_check_writable(beside(p, "no/new"), &err), DTP_IO);
    assert_non_null(strstr(err.msg, "No such file or directory"));
    assert_int_equal(dtp_folder_check_writable(beside(p, "file"), &err), DTP_IO);
    assert_int_equal(dtp_folder_check_writable(beside(p, "file/new"), &err), DTP_IO);
    assert_int_equal(dtp_folder_check_writable("", &err), DTP_IO);
    assert_string_equal(listing(p), "file ");
}

/* As a user without the right to write. */
static int refused_count(const place *p)
{
    dtp_err err = {0};
    int n = 0;
    if (geteuid() == 0 && seteuid(65534) != 0) {
        return -1;
    }
    n += dtp_file_check_writable(beside(p, "closed/plan.json"), &err) == DTP_IO &&
         strstr(err.msg, "Permission denied") != NULL;
    n += dtp_file_check_writable(beside(p, "kept"), &err) == DTP_IO &&
         strstr(err.msg, "Permission denied") != NULL;
    n += write_text(beside(p, "kept"), "x", &err) == DTP_IO;
    n += dtp_folder_check_writable(beside(p, "closed"), &err) == DTP_IO;
    n += dtp_folder_check_writable(beside(p, "closed/new"), &err) == DTP_IO;
    n += dtp_file_check_writable(beside(p, "free"), &err) == DTP_OK;
    return n;
}

static void test_file_out__refuses_without_permission(void **state)
{
    const place *p = *state;
    assert_int_equal(mkdir(beside(p, "closed"), 0555), 0);
    put(beside(p, "kept"), "kept", 0444);
    pid_t child = fork();
    if (child == 0) {
        _exit(refused_count(p));
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(WEXITSTATUS(code), 6);
    assert_text(beside(p, "kept"), "kept");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(test_file_out__##name, setup, teardown)
        CASE(keeps_the_mode),
        CASE(writes_through_links),
        CASE(follows_no_planted_link),
        CASE(removes_what_dead_writers_left),
        CASE(keeps_what_live_writers_hold),
        CASE(a_killed_writer_is_cleaned_up_after),
        CASE(writers_race),
        CASE(discard_leaves_nothing),
        CASE(long_names),
        CASE(writes_devices_in_place),
        CASE(refuses_bad_paths_before),
        CASE(checks_folders),
        CASE(refuses_without_permission),
#undef CASE
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
