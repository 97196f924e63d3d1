/* Removal of temporaries whose writer is gone, and its races. A writer creates its temporary, then
 * locks it; between the two a sweeper may lock and remove it. The writer therefore looks after
 * locking whether the name still means its file, and takes the next name if not. A sweeper removes
 * only what it has locked, after the same look: the name cannot change hands while it holds the
 * lock. flock locks belong to the open file, not to the process: other threads' temporaries are
 * seen as locked, and closing another descriptor of the file does not release them.
 */
#include "core/files/file_out.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    MAX_LINKS = 40,
    MAX_ATTEMPTS = 1000,
    MAX_STEM = 200 /* bytes of the target's name in the temporary's: room for ".tmp.PID.N" */
};

/* Where the bytes go in the end. */
typedef struct target {
    char path[PATH_BYTES]; /* links followed */
    int descriptor;        /* of this process, -1: none; then path does not matter */
    bool exists, in_place;
    struct stat st; /* of what exists */
} target;

struct dtp_file_out {
    char *name; /* as the caller wrote it */
    target to;
    char temporary[PATH_BYTES + 32]; /* "" when written in place */
    int fd;
};

static dtp_status refuse(const char *path, int code, dtp_err *err)
{
    return DTP_FAIL(err, DTP_IO, "%s: cannot write: %s", path, strerror(code));
}

/* ---- the target ---- */

/* Length of the folder part with its '/', 0 when there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* The folder of a path, without its last '/' ("." for a plain name, "/" for the root). */
static void folder_of(const char *path, char out[PATH_BYTES])
{
    size_t n = folder_length(path);
    (void)snprintf(out, PATH_BYTES, "%.*s", n > 1 ? (int)n - 1 : 1, n == 0 ? "." : path);
}

/* "/dev/fd/3" and "/proc/self/fd/3" are descriptor 3; -1 for other paths. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/proc/self/fd/", "/dev/fd/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        const size_t n = strlen(folders[i]);
        char *end = NULL;
        if (strncmp(path, folders[i], n) == 0 && isdigit((unsigned char)path[n])) {
            const long fd = strtol(path + n, &end, 10);
            return *end == '\0' && fd <= INT_MAX ? (int)fd : -1;
        }
    }
    return -1;
}

/* Replaces a path that is a symbolic link by what the link says. */
static bool follow_link(char path[PATH_BYTES])
{
    char text[PATH_BYTES], joined[2 * PATH_BYTES];
    const ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0) {
        return false;
    }
    text[n] = '\0';
    (void)snprintf(joined, sizeof joined, "%.*s%s", text[0] == '/' ? 0 : (int)folder_length(path),
                   path, text);
    if (strlen(joined) >= PATH_BYTES) {
        return false; /* later calls on the link itself give the reason */
    }
    memcpy(path, joined, strlen(joined) + 1);
    return true;
}

/* The name itself, whatever it is: only a regular file hands on its mode. */
static dtp_status find_name(const char *name, target *t, dtp_err *err)
{
    *t = (target){.descriptor = -1};
    if (strlen(name) >= sizeof t->path) {
        return refuse(name, ENAMETOOLONG, err);
    }
    memcpy(t->path, name, strlen(name) + 1);
    t->exists = lstat(t->path, &t->st) == 0 && (S_ISREG(t->st.st_mode) || S_ISDIR(t->st.st_mode));
    return DTP_OK;
}

static dtp_status find_target(const char *name, target *t, dtp_err *err)
{
    *t = (target){.descriptor = -1};
    if (strlen(name) >= sizeof t->path) {
        return refuse(name, ENAMETOOLONG, err);
    }
    memcpy(t->path, name, strlen(name) + 1);
    t->descriptor = descriptor_of(t->path);
    for (int links = 0; t->descriptor < 0 && follow_link(t->path); links++) {
        if (links == MAX_LINKS) {
            return refuse(name, ELOOP, err);
        }
        t->descriptor = descriptor_of(t->path);
    }
    if (t->descriptor >= 0) {
        const int flags = fcntl(t->descriptor, F_GETFL);
        t->in_place = true;
        return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY ? DTP_OK : refuse(name, EBADF, err);
    }
    t->exists = stat(t->path, &t->st) == 0;
    if (!t->exists && errno != ENOENT) {
        return refuse(name, errno, err);
    }
    t->in_place = t->exists && !S_ISREG(t->st.st_mode);
    return DTP_OK;
}

/* Whether files can be made and renamed in the folder; `name` is for the message. */
static dtp_status check_folder(const char *name, const char *folder, dtp_err *err)
{
    struct stat st;
    int code = stat(folder, &st) != 0                                      ? errno
               : !S_ISDIR(st.st_mode)                                      ? ENOTDIR
               : faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0 ? errno
                                                                           : 0;
    return code == 0 ? DTP_OK
                     : DTP_FAIL(err, DTP_IO, "%s: cannot write into the folder '%s': %s", name,
                                folder, strerror(code));
}

static dtp_status check_target(const char *name, const target *t, dtp_err *err)
{
    char folder[PATH_BYTES];
    if (t->descriptor >= 0) {
        return DTP_OK;
    }
    if ((t->exists && S_ISDIR(t->st.st_mode)) || t->path[folder_length(t->path)] == '\0') {
        return refuse(name, t->path[0] == '\0' ? ENOENT : EISDIR, err);
    }
    if (t->exists && faccessat(AT_FDCWD, t->path, W_OK, AT_EACCESS) != 0) {
        return refuse(name, errno, err);
    }
    folder_of(t->path, folder);
    return t->in_place ? DTP_OK : check_folder(name, folder, err);
}

dtp_status dtp_file_check_writable(const char *path, dtp_err *err)
{
    target t;
    DTP_TRY(find_target(path, &t, err));
    return check_target(path, &t, err);
}

dtp_status dtp_folder_check_writable(const char *path, dtp_err *err)
{
    struct stat st;
    char plain[PATH_BYTES], folder[PATH_BYTES];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    if (n == 0 || n >= sizeof plain) {
        return refuse(path, n == 0 ? ENOENT : ENAMETOOLONG, err);
    }
    if (stat(path, &st) == 0 || errno != ENOENT) {
        return check_folder(path, path, err);
    }
    (void)snprintf(plain, sizeof plain, "%.*s", (int)n, path);
    folder_of(plain, folder);
    return check_folder(path, folder, err);
}

/* ---- temporaries ---- */

bool dtp_file__is_named(int fd, const char *name)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && S_ISREG(open_file.st_mode) && lstat(name, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

/* Removes a temporary that no process holds. */
static void remove_if_left(const char *path)
{
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && dtp_file__is_named(fd, path)) {
        (void)unlink(path);
    }
    (void)close(fd);
}

/* "PID.N" */
static bool is_two_numbers(const char *text)
{
    const size_t a = strspn(text, "0123456789");
    const size_t b = text[a] == '.' ? strspn(text + a + 1, "0123456789") : 0;
    return a > 0 && b > 0 && text[a + 1 + b] == '\0';
}

/* "FOLDER/NAME.tmp." of a target; false when that is too long. */
static bool temporary_prefix(const char *path, char out[PATH_BYTES])
{
    const size_t folder = folder_length(path);
    const int n =
        snprintf(out, PATH_BYTES, "%.*s%.*s.tmp.", (int)folder, path, MAX_STEM, path + folder);
    return n > 0 && n < PATH_BYTES;
}

/* A folder that cannot be listed keeps its leftovers. */
static void sweep(const char *path, const char *prefix)
{
    char folder[PATH_BYTES], left[2 * PATH_BYTES];
    const char *stem = prefix + folder_length(prefix);
    folder_of(path, folder);
    DIR *dir = opendir(folder);
    for (struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, stem, strlen(stem)) == 0 &&
            is_two_numbers(e->d_name + strlen(stem))) {
            (void)snprintf(left, sizeof left, "%s/%s", folder, e->d_name);
            remove_if_left(left);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

void dtp_file_out_sweep(const char *path)
{
    char prefix[PATH_BYTES];
    if (temporary_prefix(path, prefix)) {
        sweep(path, prefix);
    }
}

/* The mode of the file that is replaced; also its owner, where we may give files away. */
static bool take_over(int fd, const struct stat *old)
{
    struct stat now;
    if (fstat(fd, &now) == 0 && (now.st_uid != old->st_uid || now.st_gid != old->st_gid) &&
        fchown(fd, old->st_uid, old->st_gid) != 0) {
        errno = 0;
    }
    return fchmod(fd, old->st_mode & 0777) == 0;
}

/* Makes and locks the temporary. On a file system without locks it is unlocked, and no other
 * process removes it. */
static dtp_status make_temporary(dtp_file_out *out, dtp_err *err)
{
    char prefix[PATH_BYTES];
    if (!temporary_prefix(out->to.path, prefix)) {
        return refuse(out->name, ENAMETOOLONG, err);
    }
    sweep(out->to.path, prefix);
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        (void)snprintf(out->temporary, sizeof out->temporary, "%s%ld.%d", prefix, (long)getpid(),
                       i);
        out->fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (out->fd < 0 && errno != EEXIST) {
            return DTP_FAIL(err, DTP_OUTPUT, "%s: cannot make a temporary file beside it: %s",
                            out->name, strerror(errno));
        }
        if (out->fd < 0) {
            continue;
        }
        const bool taken = flock(out->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (!taken && dtp_file__is_named(out->fd, out->temporary)) {
            return DTP_OK;
        }
        (void)close(out->fd);
        out->fd = -1;
    }
    return DTP_FAIL(err, DTP_OUTPUT, "%s: all names for a temporary file beside it are taken",
                    out->name);
}

/* ---- open, write, end ---- */

static dtp_status start(dtp_file_out *out, bool follow, dtp_err *err)
{
    DTP_TRY(follow ? find_target(out->name, &out->to, err) : find_name(out->name, &out->to, err));
    DTP_TRY(check_target(out->name, &out->to, err));
    if (out->to.in_place) {
        out->fd = out->to.descriptor >= 0 ? dup(out->to.descriptor)
                                          : open(out->to.path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
        return out->fd >= 0 ? DTP_OK : refuse(out->name, errno, err);
    }
    DTP_TRY(make_temporary(out, err));
    if (out->to.exists && !take_over(out->fd, &out->to.st)) {
        return DTP_FAIL(err, DTP_OUTPUT, "%s: cannot keep its mode: %s", out->name,
                        strerror(errno));
    }
    return DTP_OK;
}

static dtp_status open_out(const char *path, bool follow, dtp_file_out **out, dtp_err *err)
{
    dtp_file_out *o = calloc(1, sizeof *o);
    if (o != NULL) {
        o->fd = -1;
        o->name = strdup(path);
    }
    if (o == NULL || o->name == NULL) {
        free(o);
        return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory", path);
    }
    dtp_status s = start(o, follow, err);
    if (s != DTP_OK) {
        dtp_file_out_discard(o);
        return s;
    }
    *out = o;
    return DTP_OK;
}

dtp_status dtp_file_out_open(const char *path, dtp_file_out **out, dtp_err *err)
{
    return open_out(path, true, out, err);
}

dtp_status dtp_file_out_open_name(const char *path, dtp_file_out **out, dtp_err *err)
{
    return open_out(path, false, out, err);
}

int dtp_file_out_fd(const dtp_file_out *out)
{
    return out->fd;
}

dtp_status dtp_file_out_write(dtp_file_out *out, const void *data, size_t n, dtp_err *err)
{
    const char *at = data;
    while (n > 0) {
        const ssize_t put = write(out->fd, at, n < 1U << 30 ? n : 1U << 30);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return DTP_FAIL(err, DTP_OUTPUT, "%s: cannot write: %s", out->name, strerror(errno));
        }
        at += put;
        n -= (size_t)put;
    }
    return DTP_OK;
}

/* Renames reach the disk with their folder. A folder that cannot be opened for reading is left to
 * the system. */
static bool sync_folder(const char *path)
{
    char folder[PATH_BYTES];
    folder_of(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return true;
    }
    const bool done = fsync(fd) == 0 || errno == EINVAL;
    const int code = errno;
    (void)close(fd);
    errno = code;
    return done;
}

/* NULL, or what failed, with its errno. The lock holds until the file has its name. */
static const char *put_in_place(dtp_file_out *out)
{
    const bool in_place = out->temporary[0] == '\0';
    if (!in_place) {
        if (fsync(out->fd) != 0 && errno != EINVAL) {
            return "cannot bring it to the disk";
        }
        if (rename(out->temporary, out->to.path) != 0) {
            return "cannot rename a temporary file to it";
        }
        out->temporary[0] = '\0';
    }
    const int fd = out->fd;
    out->fd = -1;
    if (close(fd) != 0) {
        return "cannot close it";
    }
    return in_place || sync_folder(out->to.path) ? NULL : "cannot bring its folder to the disk";
}

dtp_status dtp_file_out_commit(dtp_file_out *out, dtp_err *err)
{
    dtp_status s = DTP_OK;
    const char *failed = put_in_place(out);
    if (failed != NULL) {
        s = DTP_FAIL(err, DTP_OUTPUT, "%s: %s: %s", out->name, failed, strerror(errno));
    }
    dtp_file_out_discard(out);
    return s;
}

void dtp_file_out_discard(dtp_file_out *out)
{
    if (out == NULL) {
        return;
    }
    if (out->fd >= 0) {
        if (out->temporary[0] != '\0') {
            (void)unlink(out->temporary);
        }
        (void)close(out->fd);
    }
    free(out->name);
    free(out);
}

static dtp_status write_whole(const char *path, bool follow, const char *text, size_t len,
                              dtp_err *err)
{
    dtp_file_out *out = NULL;
    DTP_TRY(open_out(path, follow, &out, err));
    dtp_status s = dtp_file_out_write(out, text, len, err);
    if (s != DTP_OK) {
        dtp_file_out_discard(out);
        return s;
    }
    return dtp_file_out_commit(out, err);
}

dtp_status dtp_file_write(const char *path, const char *text, size_t len, dtp_err *err)
{
    return write_whole(path, true, text, len, err);
}

dtp_status dtp_file_replace(const char *path, const char *text, size_t len, dtp_err *err)
{
    return write_whole(path, false, text, len, err);
}
