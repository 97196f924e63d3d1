/* What nccl-tests print (github.com/NVIDIA/nccl-tests, src/common.cu): ranks and their hosts, a
 * header, one line for every size, and at the end the average bandwidth. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file_in.h"
#include "tools/dtplan/measured.h"

enum { MAX_BYTES = 16 << 20, MAX_RANKS = 1 << 16, MAX_HOSTS = 1 << 12, MAX_WORDS = 32 };

static const double MAX_US = 1e10;
/* How far bandwidths that are printed with two digits may be from each other's factor. */
static const double ROUNDING = 0.012;

static const struct {
    const char *program;
    dtp_coll_kind kind; /* DTP_N_COLLS: no price is fitted to it */
} PROGRAMS[] = {{"all_reduce_perf", DTP_ALL_REDUCE},
                {"all_gather_perf", DTP_ALL_GATHER},
                {"reduce_scatter_perf", DTP_REDUCE_SCATTER},
                {"alltoall_perf", DTP_ALL_TO_ALL},
                {"sendrecv_perf", DTP_PERMUTE},
                {"broadcast_perf", DTP_N_COLLS},
                {"reduce_perf", DTP_N_COLLS},
                {"gather_perf", DTP_N_COLLS},
                {"scatter_perf", DTP_N_COLLS},
                {"hypercube_perf", DTP_N_COLLS}};

/* One table of the text, as far as it was read. */
typedef struct section {
    const char *program; /* NULL: not said */
    int32_t ranks, n_hosts;
    const char *hosts[MAX_HOSTS];
    int32_t before; /* columns before the first time; 0: no header yet */
    bool adds;      /* a reduction is named in the rows */
    double ratio;   /* busbw / algbw of the row where it can be told best, */
    double algbw;   /* whose algbw this is */
    int32_t first;  /* of its samples */
} section;

typedef struct reader {
    const char *file;
    int32_t line;
    const char *given; /* --collective */
    dtp_machine *machine;
    int32_t level, n, capacity;
    dtp_coll_sample *samples;
    section now;
} reader;

static int32_t words_of(char *line, char *words[MAX_WORDS])
{
    int32_t n = 0;
    for (char *rest = NULL, *w = strtok_r(line, " \t\r", &rest); w != NULL && n < MAX_WORDS;
         w = strtok_r(NULL, " \t\r", &rest)) {
        words[n++] = w;
    }
    return n;
}

static bool read_real(const char *text, double *out)
{
    char *end = NULL;
    *out = isdigit((unsigned char)text[0]) != 0 ? strtod(text, &end) : 0.0;
    return end != NULL && *end == '\0' && isfinite(*out);
}

static dtp_status add_rank(reader *r, const char *line, dtp_err *err)
{
    section *s = &r->now;
    char host[256];
    const char *on = strstr(line, " on ");
    if (on == NULL || sscanf(on, " on %255s", host) != 1 || s->ranks == MAX_RANKS) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: a rank without a host", r->file, r->line);
    }
    s->ranks++;
    for (int32_t h = s->n_hosts - 1; h >= 0; h--) {
        if (strcmp(s->hosts[h], host) == 0) {
            return DTP_OK;
        }
    }
    if (s->n_hosts == MAX_HOSTS) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: more than %d hosts", r->file, r->line, MAX_HOSTS);
    }
    s->hosts[s->n_hosts++] = dtp_arena_strdup(r->machine->arena, host);
    return DTP_MEMORY(err, s->hosts[s->n_hosts - 1]);
}

/* The numbers of one size; words are those of the line. */
static dtp_status read_row(reader *r, int32_t n, char *words[MAX_WORDS], dtp_err *err)
{
    enum { TIME, ALGBW, BUSBW, WRONG, N_TIMED };
    section *s = &r->now;
    double bytes = 0.0, us = 0.0, algbw = 0.0, busbw = 0.0, wrong = 0.0;
    if (n != s->before + N_TIMED && n != s->before + 2 * N_TIMED) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: %d columns instead of %d or %d: is it cut off?",
                        r->file, r->line, n, s->before + N_TIMED, s->before + 2 * N_TIMED);
    }
    char **timed = words + s->before;
    if (!read_real(words[0], &bytes) || !read_real(timed[TIME], &us) ||
        !read_real(timed[ALGBW], &algbw) || !read_real(timed[BUSBW], &busbw) || us > MAX_US ||
        bytes > dtp_machine_range_of(DTP_NUMBER_SIZE)->most || (bytes > 0.0 && !(us > 0.0))) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s:%d: size %.40s, time %.40s, algbw %.40s, busbw %.40s: not all are "
                        "numbers of a measurement",
                        r->file, r->line, words[0], timed[TIME], timed[ALGBW], timed[BUSBW]);
    }
    for (int32_t side = 0; side < n - s->before; side += N_TIMED) {
        const char *count = timed[side + WRONG];
        if (strcmp(count, "N/A") != 0 && (!read_real(count, &wrong) || wrong > 0.0)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s:%d: %.40s wrong values: these times are of no use", r->file,
                            r->line, count);
        }
    }
    s->adds = s->adds || (s->before > 3 && strcmp(words[3], "sum") == 0);
    s->ratio = algbw > s->algbw ? busbw / algbw : s->ratio;
    s->algbw = fmax(s->algbw, algbw);
    if (!(bytes > 0.0)) {
        return DTP_OK;
    }
    DTP_TRY(DTP_ONE_MORE(r->machine->arena, r->samples, r->n, r->capacity, err));
    r->samples[r->n++] =
        (dtp_coll_sample){.call = {.bytes = bytes, .shift = 1}, .time_s = 1e-6 * us};
    return DTP_OK;
}

/* What a table measures: as the text or the command line says, else as its bandwidths tell. */
static dtp_status kind_of(const reader *r, dtp_coll_kind *out, dtp_err *err)
{
    const section *s = &r->now;
    const double ring = (s->ranks - 1.0) / s->ranks;
    const bool twice = s->algbw >= 1.0 && fabs(s->ratio / (2.0 * ring) - 1.0) < ROUNDING;
    int32_t k = DTP_N_COLLS;
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof PROGRAMS[0] && s->program != NULL; i++) {
        k = strcmp(PROGRAMS[i].program, s->program) == 0 ? (int32_t)PROGRAMS[i].kind : k;
    }
    if (s->program != NULL && k == DTP_N_COLLS) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: %s: there are no prices of this", r->file,
                        r->line, s->program);
    }
    for (int32_t i = 0; i < DTP_N_COLLS && s->program == NULL && r->given != NULL; i++) {
        k = strcmp(r->given, dtp_coll_name((dtp_coll_kind)i)) == 0 ? i : k;
    }
    if (k == DTP_N_COLLS && (twice || s->adds)) {
        k = twice ? DTP_ALL_REDUCE : DTP_REDUCE_SCATTER;
    }
    if (k == DTP_N_COLLS) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s:%d: this table does not say what it measures: --collective all_gather "
                        "or all_to_all",
                        r->file, r->line);
    }
    const double bus = k == DTP_PERMUTE ? 1.0 : (k == DTP_ALL_REDUCE ? 2.0 : 1.0) * ring;
    if (s->algbw >= 1.0 && fabs(s->ratio / bus - 1.0) >= ROUNDING) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s:%d: busbw is %.4g times algbw, which is no %s of the %d ranks listed",
                        r->file, r->line, s->ratio, dtp_coll_name((dtp_coll_kind)k), s->ranks);
    }
    *out = (dtp_coll_kind)k;
    return DTP_OK;
}

static dtp_status end_section(reader *r, dtp_err *err)
{
    section *s = &r->now;
    dtp_group_shape group;
    dtp_coll_kind kind = DTP_ALL_REDUCE;
    if (s->ranks < 2 || r->n == s->first) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: a table of %d sizes and %d ranks%s", r->file,
                        r->line, r->n - s->first, s->ranks,
                        s->ranks == 0 ? ": the lines '# Rank' are missing" : "");
    }
    DTP_TRY(
        dtp_err_prefixed(dtp_group_filling(r->machine, r->level, s->ranks, s->n_hosts, &group, err),
                         err, "%s:%d", r->file, r->line));
    DTP_TRY(kind_of(r, &kind, err));
    for (int32_t i = s->first; i < r->n; i++) {
        r->samples[i].group = group;
        r->samples[i].call.kind = kind;
    }
    r->now = (section){.first = r->n};
    return DTP_OK;
}

static dtp_status read_line(reader *r, char *line, dtp_err *err)
{
    char *words[MAX_WORDS];
    const char *tag = line[0] == '[' ? strstr(line, ">:") : NULL; /* of mpirun --tag-output */
    line += tag != NULL ? tag + 2 - line : 0;
    line += strspn(line, " \t");
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof PROGRAMS[0] && r->now.before == 0; i++) {
        const char *at = strstr(line, PROGRAMS[i].program);
        if (at != NULL && (at == line || (isalpha((unsigned char)at[-1]) == 0 && at[-1] != '_'))) {
            r->now.program = PROGRAMS[i].program;
        }
    }
    if (strstr(line, " failure ") != NULL || strstr(line, "FAILED") != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s:%d: the run failed: %.120s", r->file, r->line, line);
    }
    if (line[0] == '#') {
        const char *text = line + 1 + strspn(line + 1, " \t");
        int32_t first = 0; /* column 'time' of a header; word 0 is '#' */
        if (strncmp(text, "size ", 5) == 0) {
            const int32_t n = words_of(line, words);
            while (first < n && strcmp(words[first], "time") != 0) {
                first++;
            }
            r->now.before = first < n ? first - 1 : 0;
        }
        return strncmp(text, "Rank ", 5) == 0                ? add_rank(r, text, err)
               : strncmp(text, "Avg bus bandwidth", 17) == 0 ? end_section(r, err)
                                                             : DTP_OK;
    }
    if (r->now.before == 0 || isdigit((unsigned char)line[0]) == 0) {
        return DTP_OK; /* what other programs print */
    }
    return read_row(r, words_of(line, words), words, err);
}

dtp_status tool_nccl_tests_read(const char *file, const char *kind, dtp_machine *machine,
                                int32_t level, int32_t *n, dtp_coll_sample **out, dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    reader *r = calloc(1, sizeof *r);
    DTP_TRY(DTP_MEMORY(err, r));
    *r = (reader){.file = file, .given = kind, .machine = machine, .level = level};
    dtp_status s = dtp_file_read(file, MAX_BYTES, &text, &len, err);
    if (s == DTP_OK && memchr(text, '\0', len) != NULL) {
        s = DTP_FAIL(err, DTP_INVALID, "%s: not a text", file);
    }
    for (char *line = text; s == DTP_OK && line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        r->line++;
        s = read_line(r, line, err);
        line = end != NULL ? end + 1 : NULL;
    }
    if (s == DTP_OK && (r->now.ranks > 0 || r->now.before > 0)) {
        s = DTP_FAIL(err, DTP_INVALID,
                     "%s:%d: the text ends without '# Avg bus bandwidth': it is cut off", file,
                     r->line);
    } else if (s == DTP_OK && r->n == 0) {
        s = DTP_FAIL(err, DTP_INVALID, "%s: no table of nccl-tests in it", file);
    }
    *n = r->n;
    *out = r->samples;
    free(text);
    free(r);
    return s;
}
