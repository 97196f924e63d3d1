/* Files that a model names, in its folder or below. */
#include "importers/files/beside.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINKS = 16, MOST_PATH = 4096 };

/* Drops the last part of a path below the folder; false: there is none. */
static bool up(char *done)
{
    char *slash = strrchr(done, '/');
    if (done[0] == '\0') {
        return false;
    }
    *(slash == NULL ? done : slash) = '\0';
    return true;
}

/* Appends the part of n bytes; false: too long. */
static bool down(char *done, const char *part, size_t n)
{
    const size_t len = strlen(done), more = len > 0 ? 1 : 0;
    if (len + more + n >= MOST_PATH) {
        return false;
    }
    memcpy(done + len, "/", more);
    memcpy(done + len + more, part, n);
    done[len + more + n] = '\0';
    return true;
}

/* The target of a link, and what stands behind it, in the place of both: -1 too long, 0 no link. */
static int follow(const char *folder, const char *done, char *rest)
{
    char path[2 * MOST_PATH], target[MOST_PATH], both[2 * MOST_PATH];
    const int n = snprintf(path, sizeof path, "%s%s", folder, done);
    const ssize_t len = n < 0 || n >= (int)sizeof path ? -1 : readlink(path, target, MOST_PATH - 1);
    if (len < 0) {
        return 0;
    }
    target[len] = '\0';
    const int all = snprintf(both, sizeof both, "%s/%s", target, rest);
    if (target[0] == '/' || all < 0 || all >= MOST_PATH) {
        return -1;
    }
    memcpy(rest, both, (size_t)all + 1);
    return 1;
}

bool dtp_path_stays(const char *folder, const char *path)
{
    char done[MOST_PATH] = "", rest[MOST_PATH];
    int links = 0;
    if (path[0] == '/' || strlen(path) >= sizeof rest) {
        return false;
    }
    memcpy(rest, path, strlen(path) + 1);
    while (rest[0] != '\0') {
        const size_t n = strcspn(rest, "/"), skip = n + strspn(rest + n, "/");
        const bool above = n == 2 && memcmp(rest, "..", 2) == 0;
        const bool here = n == 0 || (n == 1 && rest[0] == '.');
        if (above ? !up(done) : !here && !down(done, rest, n)) {
            return false;
        }
        memmove(rest, rest + skip, strlen(rest + skip) + 1);
        const int link = above || here ? 0 : follow(folder, done, rest);
        if (link < 0 || (link > 0 && (!up(done) || ++links > MOST_LINKS))) {
            return false;
        }
    }
    return true;
}
