/* Runs a reader over files that it must refuse, as their expect.txt says. */
#include "tests/support/bad_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/files/file_in.h"

static void check_file(const char *folder, const char *name, const char *fragment,
                       bad_file_reader read, const void *user)
{
    char path[512];
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/tests/bad/%s/%s", folder, name);
    dtp_status s = read(path, user, &err);
    if (s == DTP_OK) {
        fail_msg("%s was accepted", name);
    }
    if (!dtp_status_is_input(s) || strncmp(err.msg, path, strlen(path)) != 0 ||
        strstr(err.msg, fragment) == NULL || strchr(err.msg, '\n') != NULL) {
        fail_msg("%s: status '%s', message '%s', expected '%s'", name, dtp_status_text(s), err.msg,
                 fragment);
    }
}

int check_bad_files(const char *folder, bad_file_reader read, const void *user)
{
    char path[512], *text = NULL;
    size_t len;
    int n = 0;
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/tests/bad/%s/expect.txt", folder);
    assert_int_equal(dtp_file_read(path, 1 << 20, &text, &len, NULL), DTP_OK);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        *tab = '\0';
        check_file(folder, line, tab + 1, read, user);
        n++;
    }
    free(text);
    return n;
}
