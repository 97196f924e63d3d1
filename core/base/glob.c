/* A matcher with backtracking: a pattern is compared with a text that must be used up together with
 * it. What follows a pair of braces is tried behind each of its parts; the rest of the pattern is
 * kept as a list of ranges, so that nothing is copied. */
#include "core/base/glob.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

/* Pattern text that is still to be matched: [at, end), then `next`. */
typedef struct range {
    const char *at, *end;
    const struct range *next;
} range;

typedef struct matching {
    const char *end; /* of the name */
    int32_t steps;   /* left */
} matching;

enum { MAX_NESTING = 16 };

dtp_status dtp_glob_check(const char *glob, dtp_err *err)
{
    int32_t depth = 0;
    const size_t n = strlen(glob);
    if (n == 0 || n >= DTP_GLOB_BYTES) {
        return DTP_FAIL(err, DTP_INVALID, "a name pattern of %zu characters (1 to %d are allowed)",
                        n, DTP_GLOB_BYTES - 1);
    }
    for (size_t i = 0; i < n && depth >= 0; i++) {
        depth += glob[i] == '{' ? 1 : 0;
        depth -= glob[i] == '}' ? 1 : 0;
        if (depth > MAX_NESTING) {
            return DTP_FAIL(err, DTP_INVALID, "braces nested deeper than %d in '%.100s'",
                            MAX_NESTING, glob);
        }
    }
    return depth == 0 ? DTP_OK
                      : DTP_FAIL(err, DTP_INVALID, "the braces in '%.100s' do not pair up", glob);
}

static bool match(matching *m, range r, const char *name);

/* The end of the part of a brace group that starts at p: its ',' or its '}'. */
static const char *part_end(const char *p)
{
    int32_t depth = 0;
    for (;; p++) {
        if (depth == 0 && (*p == ',' || *p == '}')) {
            return p;
        }
        depth += *p == '{' ? 1 : 0;
        depth -= *p == '}' ? 1 : 0;
    }
}

/* r.at is behind a '{'. */
static bool match_braces(matching *m, range r, const char *name)
{
    const char *close = r.at;
    while (*(close = part_end(close)) == ',') {
        close++;
    }
    const range rest = {close + 1, r.end, r.next};
    for (const char *p = r.at; p <= close; p++) {
        const char *end = part_end(p);
        if (match(m, (range){p, end, &rest}, name)) {
            return true;
        }
        p = end;
    }
    return false;
}

static bool match(matching *m, range r, const char *name)
{
    while (m->steps-- > 0) {
        if (r.at == r.end) {
            if (r.next == NULL) {
                return name == m->end;
            }
            r = *r.next;
            continue;
        }
        const char c = *r.at++;
        if (c == '{') {
            return match_braces(m, r, name);
        }
        if (c == '*') {
            const bool dots = r.at < r.end && *r.at == '*';
            r.at += dots ? 1 : 0;
            for (;; name++) {
                if (match(m, r, name)) {
                    return true;
                }
                if (name == m->end || (!dots && *name == '.')) {
                    return false;
                }
            }
        }
        if (name == m->end || (c == '?' ? *name == '.' : *name != c)) {
            return false;
        }
        name++;
    }
    return false;
}

/* Without a '$' at its end. */
static size_t pattern_length(const char *glob)
{
    const size_t n = strlen(glob);
    return n > 0 && glob[n - 1] == '$' ? n - 1 : n;
}

static bool match_part(const char *glob, const char *name, size_t n)
{
    matching m = {name + n, DTP_GLOB_STEPS};
    return match(&m, (range){glob, glob + pattern_length(glob), NULL}, name);
}

bool dtp_glob_match_prefix(const char *glob, const char *name)
{
    const size_t n = strlen(name);
    const bool whole = glob[pattern_length(glob)] == '$';
    for (size_t i = whole ? n : 1; i <= n; i++) {
        if ((i == n || name[i] == '.') && match_part(glob, name, i)) {
            return true;
        }
    }
    return false;
}

/* ---- near names ---- */

enum { MAX_DISTANCE = 8 };

/* Edits between the glob, without its '$', and the name; "**.x" against what follows any dot. */
static int32_t distance_of(const char *glob, const char *name)
{
    char pattern[DTP_GLOB_BYTES], general[DTP_GLOB_BYTES];
    const size_t n = pattern_length(glob);
    (void)snprintf(pattern, sizeof pattern, "%.*s", (int)n, glob);
    dtp_general_name(name, general, sizeof general);
    int32_t least = dtp_name_distance(pattern, name, MAX_DISTANCE);
    int32_t d = dtp_name_distance(pattern, general, MAX_DISTANCE);
    least = d < least ? d : least;
    for (const char *end = name; end != NULL && strncmp(pattern, "**.", 3) == 0;) {
        d = dtp_name_distance(pattern + 3, end, MAX_DISTANCE);
        least = d < least ? d : least;
        end = strchr(end, '.');
        end += end != NULL ? 1 : 0;
    }
    return least;
}

static bool are_alike(const char *a, const char *b)
{
    char x[DTP_GLOB_BYTES], y[DTP_GLOB_BYTES];
    dtp_general_name(a, x, sizeof x);
    dtp_general_name(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

void dtp_near_names_offer(dtp_near_names *near, const char *glob, const char *name)
{
    const int32_t d = distance_of(glob, name);
    int32_t at = DTP_NEAR_NAMES;
    bool known = d > MAX_DISTANCE;
    for (int32_t i = 0; i < DTP_NEAR_NAMES && near->names[i] != NULL && !known; i++) {
        known = d >= near->distance[i] && are_alike(near->names[i], name);
    }
    if (known) {
        return;
    }
    while (at > 0 && (near->names[at - 1] == NULL || d < near->distance[at - 1])) {
        at--;
    }
    for (int32_t i = DTP_NEAR_NAMES - 1; i > at; i--) {
        near->names[i] = near->names[i - 1];
        near->distance[i] = near->distance[i - 1];
    }
    if (at < DTP_NEAR_NAMES) {
        near->names[at] = name;
        near->distance[at] = d;
    }
}

void dtp_near_names_print(const dtp_near_names *near, dtp_strbuf *out)
{
    for (int32_t i = 0; i < DTP_NEAR_NAMES && near->names[i] != NULL; i++) {
        dtp_strbuf_addf(out, "%s'%.100s'", i > 0 ? ", " : "; the nearest names are ",
                        near->names[i]);
    }
}

bool dtp_glob_next(const char **list, char out[DTP_GLOB_BYTES])
{
    const char *at = *list;
    int32_t depth = 0;
    size_t n = 0;
    for (; *at != '\0' && (*at != ',' || depth > 0); at++) {
        depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
        out[n] = *at;
        n += n + 1 < DTP_GLOB_BYTES ? 1 : 0;
    }
    out[n] = '\0';
    const bool any = at != *list || *at == ',';
    *list = at + (*at == ',' ? 1 : 0);
    return any;
}
