/* A matcher with backtracking: a pattern is compared with a text that must be used up together with
 * it. What follows a pair of braces is tried behind each of its parts; the rest of the pattern is
 * kept as a list of ranges, so that nothing is copied. */
#include "interop/styles/glob.h"

#include <string.h>

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
