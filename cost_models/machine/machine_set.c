/* A machine with numbers of its file set by text. */
#include "cost_models/machine/machine_set.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/base/units.h"
#include "cost_models/machine/machine_scale.h"

/* The number at the beginning of a text, positive and finite. */
static bool read_real(const char *text, char **end, double *out)
{
    errno = 0;
    *out = strtod(text, end);
    return *end != text && errno == 0 && isfinite(*out) && *out > 0.0 &&
           strspn(text, "0123456789.eE+-") >= (size_t)(*end - text);
}

/* Bytes, or bytes per second: "141GiB", "400GB/s". */
static bool read_bytes(const char *text, const char *per, double *out)
{
    char number[64];
    const size_t n = strlen(text), k = strlen(per);
    const size_t cut = n > k && strcmp(text + n - k, per) == 0 ? n - k : n;
    int64_t bytes;
    if (cut >= sizeof number) {
        return false;
    }
    memcpy(number, text, cut);
    number[cut] = '\0';
    if (!dtp_bytes_parse(number, &bytes)) {
        return false;
    }
    *out = (double)bytes;
    return true;
}

/* The factor that a value means. */
static dtp_status read_factor(const dtp_machine_param *p, const char *value, double *out,
                              dtp_err *err)
{
    char *end;
    double number = 0.0;
    if (read_real(value, &end, out) && strcmp(end, "x") == 0) {
        return DTP_OK;
    }
    enum { N_UNITS = 5 };
    static const struct {
        const char *name;
        double s;
    } units[N_UNITS] = {{"", 1.0}, {"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    const char *such = "0.5x or 141GiB";
    int32_t unit = 0;
    bool good = false;
    switch (p->quantity) {
    case DTP_MACHINE_FLOPS:
        return DTP_FAIL(err, DTP_INVALID,
                        "'%s' stands for many numbers: it takes a factor such as 0.5x, not '%s'",
                        p->name, value);
    case DTP_MACHINE_MEMORY:
        good = read_bytes(value, "", &number);
        break;
    case DTP_MACHINE_MEM_BW:
    case DTP_MACHINE_LEVEL_BW:
        such = "0.5x or 400GB/s";
        good = read_bytes(value, "/s", &number);
        break;
    case DTP_MACHINE_LAUNCH:
    case DTP_MACHINE_LEVEL_LATENCY:
        such = "2x or 2.7us";
        good = read_real(value, &end, &number);
        while (unit < N_UNITS && strcmp(good ? end : "", units[unit].name) != 0) {
            unit++;
        }
        good = good && unit < N_UNITS;
        number *= good ? units[unit].s : 1.0;
        break;
    case DTP_MACHINE_LEVEL_SIZE:
        such = "2x or 16";
        good = read_real(value, &end, &number) && *end == '\0';
        break;
    }
    *out = number / p->value;
    return good ? DTP_OK
                : DTP_FAIL(err, DTP_INVALID, "'%s' is not a value of '%s' such as %s", value,
                           p->name, such);
}

static dtp_status set_one(dtp_machine **m, const char *text, dtp_arena *arena, dtp_err *err)
{
    int32_t n = 0, i = 0;
    dtp_machine_param *rates, *list; /* what can be set */
    dtp_machine *scaled = NULL;
    double factor;
    const size_t length = strcspn(text, "=");
    DTP_TRY(dtp_machine_params(*m, arena, &n, &rates, err));
    DTP_TRY(DTP_NEW(arena, list, n + 1 + (*m)->n_levels, err));
    memcpy(list, rates, (size_t)n * sizeof *list);
    list[n++] = (dtp_machine_param){DTP_MACHINE_MEMORY, -1, "memory", (double)(*m)->memory_bytes};
    for (int32_t l = 0; l < (*m)->n_levels; l++) {
        const char *name = dtp_arena_printf(arena, "%s.size", (*m)->levels[l].name);
        DTP_TRY(DTP_MEMORY(err, name));
        list[n++] = (dtp_machine_param){DTP_MACHINE_LEVEL_SIZE, l, name, (*m)->levels[l].size};
    }
    while (i < n && (strlen(list[i].name) != length || strncmp(list[i].name, text, length) != 0)) {
        i++;
    }
    if (i == n || text[length] == '\0') {
        dtp_strbuf names = {0};
        for (int32_t k = 0; k < n; k++) {
            dtp_strbuf_addf(&names, "%s%s", k > 0 ? ", " : "", list[k].name);
        }
        const dtp_status s = text[length] == '\0'
                                 ? DTP_FAIL(err, DTP_INVALID, "it is not of the form NAME=VALUE")
                                 : DTP_FAIL(err, DTP_INVALID, "%s has no such quantity; it has %s",
                                            (*m)->place, dtp_strbuf_text(&names));
        dtp_strbuf_free(&names);
        return s;
    }
    DTP_TRY(read_factor(&list[i], text + length + 1, &factor, err));
    DTP_TRY(dtp_machine_scaled(*m, &list[i], factor, &scaled, err));
    dtp_machine_destroy(*m);
    *m = scaled;
    return DTP_OK;
}

dtp_status dtp_machine_set(dtp_machine **m, int32_t n, const char *const *texts, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < n && s == DTP_OK; i++) {
        s = dtp_err_prefixed(set_one(m, texts[i], arena, err), err, "--set %.100s", texts[i]);
        const char *name = s == DTP_OK
                               ? dtp_arena_printf((*m)->arena, "%s %s", (*m)->name, texts[i])
                               : NULL,
                   *place = s == DTP_OK
                                ? dtp_arena_printf((*m)->arena, "%s with %s", (*m)->place, texts[i])
                                : NULL;
        s = s == DTP_OK ? DTP_MEMORY(err, name, place) : s;
        if (s == DTP_OK) {
            (*m)->name = name;
            (*m)->place = place;
        }
    }
    dtp_arena_destroy(arena);
    return s;
}
