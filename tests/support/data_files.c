/* Temporary files for tests of readers; random parts of tensors. */
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[256];

const char *data_dir(void)
{
    if (dir[0] == '\0') {
        const char *base = getenv("TMPDIR");
        snprintf(dir, sizeof dir, "%s/dtp-test-XXXXXX", base != NULL ? base : "/tmp");
        assert_non_null(mkdtemp(dir));
    }
    return dir;
}

const char *data_path(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", data_dir(), name);
    return path;
}

const char *data_write(const char *name, const void *bytes, size_t n)
{
    const char *path = data_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void remove_tree(const char *path)
{
    struct stat st;
    DIR *d = lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (d == NULL) {
        unlink(path);
        return;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char inner[1024];
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
            remove_tree(inner);
        }
    }
    closedir(d);
    rmdir(path);
}

void data_remove(void)
{
    if (dir[0] != '\0') {
        remove_tree(dir);
        dir[0] = '\0';
    }
}

int data_cleanup(void **state)
{
    (void)state;
    data_remove();
    return 0;
}

void data_unseal(char *index)
{
    char *before = strstr(index, "\"index_crc32\""), *after;
    assert_non_null(before);
    after = strchr(strchr(before, ':'), '"') + 1; /* behind the quote of the value */
    after = strchr(after, '"') + 1;
    while (*before != ',') {
        before--;
    }
    memmove(before, after, strlen(after) + 1);
}

uint32_t data_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

dtp_shard data_random_piece(uint32_t *state, const dtp_shard *whole)
{
    dtp_shard p = *whole;
    for (int32_t d = 0; d < p.rank; d++) {
        p.offset[d] = (int64_t)(data_random(state) % (uint32_t)p.global[d]);
        p.size[d] = 1 + (int64_t)(data_random(state) % (uint32_t)(p.global[d] - p.offset[d]));
    }
    return p;
}
