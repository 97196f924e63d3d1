/* What a runtime makes of a device: shares of its peaks, and the time of its host. */
#include "cost_models/machine/efficiency.h"

#include <string.h>

#include "cost_models/machine/kernel_model.h"

enum { MAX_SETS = 64, MAX_ROWS = 1 << 20 };

static const char *const SET_KEYS[] = {"products", "memory",     "attention", "attention_grad",
                                       "host_s",   "provenance", "kernel",    NULL};
static const char *const PROVENANCE_KEYS[] = {"how", "date", "rows", "from", "on", NULL};
static const char *const HOWS[] = {"fitted", "measured", "borrowed", NULL};

/* ---- reading and writing ---- */

static dtp_status read_text(dtp_arena *arena, const dtp_json *obj, const char *key,
                            const char **out, dtp_err *err)
{
    const char *text = "";
    if (dtp_json_get(obj, key) != NULL) {
        DTP_TRY(dtp_json_get_string(obj, key, &text, err));
    }
    *out = dtp_arena_line(arena, text);
    return DTP_MEMORY(err, *out);
}

static dtp_status read_provenance(dtp_machine *m, const dtp_json *set, dtp_efficiency *e,
                                  dtp_err *err)
{
    const dtp_json *p = NULL;
    int32_t how = 0;
    int64_t rows = 0;
    DTP_TRY(dtp_json_get_kind(set, "provenance", DTP_JSON_OBJECT, &p, err));
    DTP_TRY(dtp_json_keys(p, PROVENANCE_KEYS, err));
    DTP_TRY(dtp_json_get_choice(p, "how", HOWS, &how, err));
    e->how = HOWS[how];
    if (dtp_json_get(p, "rows") != NULL) {
        DTP_TRY(dtp_json_get_int(p, "rows", 1, MAX_ROWS, &rows, err));
    }
    e->rows = (int32_t)rows;
    DTP_TRY(read_text(m->arena, p, "date", &e->date, err));
    DTP_TRY(read_text(m->arena, p, "on", &e->on, err));
    return read_text(m->arena, p, "from", &e->from, err);
}

static dtp_status read_set(dtp_machine *m, const dtp_json *v, dtp_efficiency *e, dtp_err *err)
{
    const struct {
        const char *key;
        dtp_machine_number number;
        double *out;
    } numbers[] = {{"products", DTP_NUMBER_SHARE, &e->products},
                   {"memory", DTP_NUMBER_SHARE, &e->memory},
                   {"attention", DTP_NUMBER_SHARE, &e->attention},
                   {"attention_grad", DTP_NUMBER_SHARE, &e->attention_grad},
                   {"host_s", DTP_NUMBER_DELAY, &e->host_s}};
    DTP_TRY(dtp_json_keys(v, SET_KEYS, err));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const dtp_json *member = NULL;
        DTP_TRY(dtp_json_require(v, numbers[i].key, &member, err));
        DTP_TRY(dtp_machine__read_number(member, numbers[i].number, numbers[i].out, err));
    }
    DTP_TRY(read_text(m->arena, v, "kernel", &e->kernel, err));
    if (e->kernel[0] != '\0' && dtp_attention_model_find(m, e->kernel) < 0) {
        return dtp_json_fail(dtp_json_get(v, "kernel"), err,
                             "device.attention has no kernel '%.40s'", e->kernel);
    }
    return read_provenance(m, v, e, err);
}

dtp_status dtp_efficiency_read(dtp_machine *m, const dtp_json *sets, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(sets, DTP_JSON_OBJECT, err));
    const int32_t n = dtp_json_size(sets);
    if (n > MAX_SETS) {
        return dtp_json_fail(sets, err, "%d sets, at most %d are allowed", n, MAX_SETS);
    }
    DTP_TRY(DTP_NEW(m->arena, m->efficiencies, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *v = dtp_json_at(sets, i);
        dtp_efficiency *e = &m->efficiencies[i];
        e->runtime = dtp_arena_line(m->arena, dtp_json_key(v));
        DTP_TRY(DTP_MEMORY(err, e->runtime));
        DTP_TRY(read_set(m, v, e, err));
    }
    m->n_efficiencies = n;
    return DTP_OK;
}

void dtp_efficiency_write(dtp_json_writer *w, const dtp_machine *m)
{
    if (m->n_efficiencies > 0) {
        dtp_json_begin_object(w, "efficiency");
    }
    for (int32_t i = 0; i < m->n_efficiencies; i++) {
        const dtp_efficiency *e = &m->efficiencies[i];
        dtp_json_begin_object(w, e->runtime);
        dtp_json_write_double(w, "products", e->products);
        dtp_json_write_double(w, "memory", e->memory);
        dtp_json_write_double(w, "attention", e->attention);
        dtp_json_write_double(w, "attention_grad", e->attention_grad);
        if (e->kernel[0] != '\0') {
            dtp_json_write_string(w, "kernel", e->kernel);
        }
        dtp_json_write_double(w, "host_s", e->host_s);
        dtp_json_begin_object(w, "provenance");
        dtp_json_write_string(w, "how", e->how);
        if (e->date[0] != '\0') {
            dtp_json_write_string(w, "date", e->date);
        }
        if (e->rows > 0) {
            dtp_json_write_int(w, "rows", e->rows);
        }
        if (e->on[0] != '\0') {
            dtp_json_write_string(w, "on", e->on);
        }
        if (e->from[0] != '\0') {
            dtp_json_write_string(w, "from", e->from);
        }
        dtp_json_end_object(w);
        dtp_json_end_object(w);
    }
    if (m->n_efficiencies > 0) {
        dtp_json_end_object(w);
    }
}

/* ---- sets ---- */

const dtp_efficiency *dtp_efficiency_find(const dtp_machine *m, const char *runtime)
{
    const dtp_efficiency *found = NULL;
    for (int32_t i = 0; i < m->n_efficiencies && found == NULL; i++) {
        found = strcmp(m->efficiencies[i].runtime, runtime) == 0 ? &m->efficiencies[i] : NULL;
    }
    return found;
}

dtp_status dtp_efficiency_borrow(dtp_machine *m, const dtp_machine *from, dtp_err *err)
{
    if (m->n_efficiencies > 0 || from->n_efficiencies == 0) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(m->arena, m->efficiencies, from->n_efficiencies, err));
    for (int32_t i = 0; i < from->n_efficiencies; i++) {
        dtp_efficiency *e = &m->efficiencies[i];
        *e = from->efficiencies[i];
        e->how = "borrowed";
        e->runtime = dtp_arena_strdup(m->arena, e->runtime);
        e->date = dtp_arena_strdup(m->arena, e->date);
        e->kernel = dtp_arena_strdup(m->arena, e->kernel);
        e->from = dtp_arena_strdup(m->arena, e->from[0] != '\0' ? e->from : from->name);
        e->on = dtp_arena_strdup(m->arena, e->on);
        DTP_TRY(DTP_MEMORY(err, e->runtime, e->date, e->from, e->kernel, e->on));
    }
    /* The shares are of what the models of that machine reach. */
    m->multiprocessors = from->multiprocessors;
    for (dtp_arithmetic a = 0; a < DTP_N_ARITHMETICS; a++) {
        m->products[a] = m->flops[a] > 0.0 ? from->products[a] : m->products[a];
    }
    m->n_attention = from->n_attention;
    for (int32_t i = 0; i < from->n_attention; i++) {
        m->attention[i] = from->attention[i];
        m->attention[i].kernel = dtp_arena_strdup(m->arena, from->attention[i].kernel);
        DTP_TRY(DTP_MEMORY(err, m->attention[i].kernel));
    }
    m->n_efficiencies = from->n_efficiencies;
    return DTP_OK;
}
