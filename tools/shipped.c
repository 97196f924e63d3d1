/* The models and machines that come with the tools. */
#include "tools/shipped.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/strbuf.h"
#include "tools/child.h"

static const char suffix[] = ".json";

dtp_status tool_beside_program(const char *path, tool_path *out, dtp_err *err)
{
    char program[sizeof out->text / 2];
    DTP_TRY(tool_program_path(program, sizeof program, err));
    *strrchr(program, '/') = '\0'; /* the path is absolute */
    (void)snprintf(out->text, sizeof out->text, "%s/%.1000s", program, path);
    return DTP_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tool_shipped_free(char **names)
{
    for (int32_t i = 0; names != NULL && names[i] != NULL; i++) {
        free(names[i]);
    }
    free(names);
}

/* Bytes of the name in front of ".json"; 0: it has no such end, or it is "gpt.rules.json". */
static size_t name_length(const char *file)
{
    const size_t n = strlen(file), cut = sizeof suffix - 1;
    const bool named = n > cut && strcmp(file + n - cut, suffix) == 0;
    return named && strcspn(file, ".") == n - cut ? n - cut : 0;
}

dtp_status tool_shipped_names(const char *folder, char ***out, dtp_err *err)
{
    tool_path path;
    size_t n = 0, room = 0;
    char **names = calloc(1, sizeof *names);
    DTP_TRY(DTP_MEMORY(err, names));
    dtp_status s = tool_beside_program(folder, &path, err);
    DIR *dir = s == DTP_OK ? opendir(path.text) : NULL;
    const struct dirent *entry;
    while (s == DTP_OK && dir != NULL && (entry = readdir(dir)) != NULL) {
        const size_t length = name_length(entry->d_name);
        if (length == 0) {
            continue;
        }
        char **more = names;
        if (n + 2 > room) {
            room = 2 * room + 8;
            more = realloc(names, room * sizeof *names);
            names = more != NULL ? more : names;
        }
        names[n] = more != NULL ? strndup(entry->d_name, length) : NULL;
        s = DTP_MEMORY(err, names[n]);
        n += s == DTP_OK ? 1 : 0;
        names[n] = NULL;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    if (s != DTP_OK) {
        tool_shipped_free(names);
        return s;
    }
    qsort(names, n, sizeof *names, by_name);
    *out = names;
    return DTP_OK;
}

/* What is said of a name that nothing has. */
static dtp_status fail(const char *folder, const char *what, const char *name, dtp_err *err)
{
    char **names = NULL, plain[128];
    dtp_strbuf list = {0};
    const char *last = strrchr(name, '/');
    (void)snprintf(plain, sizeof plain, "%s", last != NULL ? last + 1 : name);
    const size_t length = name_length(plain);
    plain[length > 0 ? length : strlen(plain)] = '\0';
    tool_hint hint = tool_hint_begin(plain);
    DTP_TRY(tool_shipped_names(folder, &names, err));
    for (int32_t i = 0; names[i] != NULL; i++) {
        tool_hint_note(&hint, names[i]);
        dtp_strbuf_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const bool is_path = length > 0 || last != NULL;
    const dtp_status s =
        is_path
            ? DTP_FAIL(err, DTP_IO, "%.200s: cannot open: %s%s", name, strerror(ENOENT), hint.text)
            : DTP_FAIL(err, DTP_INVALID, "%.100s: there is no such file and no %s of this name%s%s",
                       name, what,
                       hint.text[0] != '\0' ? hint.text
                       : list.len > 0       ? "; there are "
                                            : "",
                       hint.text[0] != '\0' ? "" : dtp_strbuf_text(&list));
    dtp_strbuf_free(&list);
    tool_shipped_free(names);
    return s;
}

dtp_status tool_shipped_find(const char *folder, const char *what, const char *name, tool_path *out,
                             dtp_err *err)
{
    const size_t n = strlen(name), cut = sizeof suffix - 1;
    if (n >= sizeof out->text) {
        return DTP_FAIL(err, DTP_IO, "%.200s..: cannot open: %s", name, strerror(ENAMETOOLONG));
    }
    if (strchr(name, '/') == NULL && !(n > cut && strcmp(name + n - cut, suffix) == 0)) {
        char relative[sizeof out->text / 2];
        (void)snprintf(relative, sizeof relative, "%s/%.200s%s", folder, name, suffix);
        DTP_TRY(tool_beside_program(relative, out, err));
        if (access(out->text, F_OK) == 0) {
            return DTP_OK;
        }
    }
    memcpy(out->text, name, n + 1);
    return access(name, F_OK) == 0 || errno != ENOENT ? DTP_OK : fail(folder, what, name, err);
}
