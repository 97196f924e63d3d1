/* Code on distributed tensors, run on ranks under random layouts and on one device; what both
 * note is compared. */
#include "tests/dtensor/eager_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "executor/device/convert.h"
#include "spmd/redistribute/steps.h"
#include "tests/dtensor/dtensor_suite.h"
#include "interop/layout_forms.h"

uint64_t eager_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Any split of any dim, orders too; now and then a partial sum. */
static dtp_layout random_layout(const eager *e, const eager_spec *spec, uint64_t *state)
{
    const dtp_mesh *mesh = dtp_device_mesh_dims(e->mesh);
    dtp_layout out = dtp_layout_replicated(spec->rank, mesh->n_dims);
    const bool reverse = eager_random(state) % 4 == 0;
    for (int32_t k = 0; k < mesh->n_dims; k++) {
        const int32_t m = reverse ? mesh->n_dims - 1 - k : k;
        const int32_t axis = (int32_t)(eager_random(state) % (uint64_t)(spec->rank + 2));
        const bool number = spec->fill == EAGER_ANY || spec->fill == EAGER_POSITIVE;
        if (axis < spec->rank) {
            dtp_layout_split(&out, m, axis);
        } else if (axis == spec->rank && number && eager_random(state) % 2 == 0) {
            out.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        }
    }
    return out;
}

dtp_status eager_layout(const eager *e, int32_t rank, const char *text, dtp_layout *out,
                        dtp_err *err)
{
    dtp_ttype type = {.dtype = DTP_F64, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i] = (dtp_tdim){.id = i, .size = 1};
    }
    if (strcmp(text, "replicated") == 0) {
        *out = dtp_layout_replicated(rank, dtp_device_mesh_dims(e->mesh)->n_dims);
        return DTP_OK;
    }
    return dtp_layout_parse_any(text, dtp_device_mesh_dims(e->mesh), &type, NULL, out, err);
}

static double draw(const eager_spec *spec, uint64_t *state)
{
    const double u = (double)(eager_random(state) >> 11) * 0x1p-53;
    switch (spec->fill) {
    case EAGER_POSITIVE:
        return 0.5 + 1.5 * u;
    case EAGER_IDS:
        return floor(u * (double)spec->below);
    case EAGER_BOOL:
        return u < 0.5 ? 0.0 : 1.0;
    default:
        return 2.0 * u - 1.0;
    }
}

static dtp_dtype dtype_of(eager_fill fill)
{
    return fill == EAGER_IDS ? DTP_I32 : fill == EAGER_BOOL ? DTP_BOOL : DTP_F64;
}

dtp_status eager_input(eager *e, const eager_spec *spec, dtp_tensor *out, dtp_err *err)
{
    uint64_t state = e->seed * 1000003 + (uint64_t)e->n_inputs++ * 7919, places = state ^ 0x5bd1;
    dtp_tensor_desc desc = {.dtype = dtype_of(spec->fill), .rank = spec->rank};
    int64_t n = 1;
    for (int32_t i = 0; i < spec->rank; i++) {
        desc.shape[i] = spec->shape[i];
        n *= spec->shape[i];
    }
    desc.layout = dtp_layout_replicated(spec->rank, dtp_device_mesh_dims(e->mesh)->n_dims);
    if (!e->single && spec->layout != NULL) {
        DTP_TRY(eager_layout(e, spec->rank, spec->layout, &desc.layout, err));
    } else if (!e->single) {
        desc.layout = random_layout(e, spec, &places);
    }
    void *data = calloc((size_t)n, 8);
    if (data == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for an input");
    }
    for (int64_t i = 0; i < n; i++) {
        const bool moved = e->options->moved_input == e->n_inputs && e->options->moved_at == i;
        dtp_element_set(desc.dtype, data, i,
                        draw(spec, &state) + (moved ? e->options->moved_by : 0.0));
    }
    dtp_status s = dtp_tensor_from_array(e->mesh, &desc, data, out, err);
    free(data);
    return s;
}

static dtp_status read_whole(eager *e, dtp_tensor whole, dtp_err *err)
{
    dtp_tensor_desc d;
    int64_t n = 1;
    DTP_TRY(dtp_tensor_describe(whole, &d, err));
    for (int32_t i = 0; i < d.rank; i++) {
        n *= d.shape[i];
    }
    void *data = calloc((size_t)n, 8);
    double *values = calloc((size_t)n, sizeof *values);
    dtp_status s = data != NULL && values != NULL && e->n_notes < EAGER_MAX_NOTES
                       ? dtp_tensor_read(whole, data, err)
                       : DTP_FAIL(err, DTP_NOMEM, "no room for a note");
    for (int64_t i = 0; i < n && s == DTP_OK; i++) {
        values[i] = dtp_element(d.dtype, data, i);
    }
    free(data);
    if (s != DTP_OK) {
        free(values);
        return s;
    }
    e->n_values[e->n_notes] = n;
    e->notes[e->n_notes++] = values;
    return DTP_OK;
}

dtp_status eager_note(eager *e, dtp_tensor t, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_tensor whole;
    DTP_TRY(dtp_tensor_describe(t, &d, err));
    const dtp_layout layout = dtp_layout_replicated(d.rank, d.layout.n_mesh);
    DTP_TRY(dtp_tensor_redistribute(t, &layout, &whole, err));
    dtp_status s = read_whole(e, whole, err);
    dtp_tensor_destroy(whole);
    return s;
}

void eager_count(eager *e, int phase)
{
    const dtp_comm_count *counts;
    const int32_t n = dtp_device_mesh_counts(e->mesh, &counts);
    for (int32_t i = 0; i < n; i++) {
        e->counts[phase][counts[i].kind] += counts[i].count;
        e->bytes[phase] += counts[i].bytes;
    }
}

/* ---- runs ---- */

typedef struct job {
    eager_body body;
    const eager_options *o;
    const eager *want; /* of one device; NULL: this is the one */
    eager results[EAGER_MAX_RANKS];
} job;

static dtp_status compare_notes(const job *j, int32_t rank, const eager *got, dtp_err *err)
{
    const eager *want = j->want;
    if (got->n_notes != want->n_notes) {
        return DTP_FAIL(err, DTP_INTERNAL, "%d notes, one device has %d", got->n_notes,
                        want->n_notes);
    }
    for (int32_t k = 0; k < want->n_notes; k++) {
        double largest = 1.0;
        if (got->n_values[k] != want->n_values[k]) {
            return DTP_FAIL(err, DTP_INTERNAL, "note %d has another size", k);
        }
        for (int64_t i = 0; i < want->n_values[k]; i++) {
            largest = fmax(largest, fabs(want->notes[k][i]));
        }
        for (int64_t i = 0; i < want->n_values[k]; i++) {
            if (!(fabs(got->notes[k][i] - want->notes[k][i]) <= 1e-9 * largest)) {
                return DTP_FAIL(err, DTP_INTERNAL,
                                "rank %d, note %d, element %lld: %.12g, one device has %.12g", rank,
                                k, (long long)i, got->notes[k][i], want->notes[k][i]);
            }
        }
    }
    return DTP_OK;
}

static dtp_status run_rank(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    job *j = user;
    const int32_t rank = dtp_device_mesh_rank(mesh);
    eager *e = &j->results[rank];
    *e = (eager){.mesh = mesh,
                 .user = j->o->user,
                 .options = j->o,
                 .seed = j->o->seed,
                 .single = j->want == NULL};
    dtp_status s = j->body(e, err);
    return s == DTP_OK && j->want != NULL ? compare_notes(j, rank, e, err) : s;
}

static dtp_status run(const char *mesh, const char *comm, job *j, dtp_err *err)
{
    dtp_world_options world = dtp_world_options_init();
    world.comm = comm;
    world.backend = "ref";
    world.threads = 1;
    world.environment = environ;
    world.mesh.seed = 5;
    world.mesh.torch = j->o->torch;
    world.mesh.strict = j->o->strict && j->want != NULL;
    return dtp_world_run(mesh, &world, run_rank, j, err);
}

void eager_free(eager *e)
{
    for (int32_t k = 0; k < e->n_notes; k++) {
        free(e->notes[k]);
    }
}

void eager_alone(eager_body body, const eager_options *o, eager *out)
{
    static job one;
    dtp_err err = {0};
    one = (job){.body = body, .o = o};
    if (run("", "self", &one, &err) != DTP_OK) {
        fail_msg("%s, one device: %s", o->what, err.msg);
    }
    *out = one.results[0];
}

bool eager_compare(const char *mesh, eager_body body, const eager_options *o, eager *out)
{
    static job many;
    eager one;
    dtp_mesh m;
    dtp_err err = {0};
    assert_int_equal(dtp_mesh_parse(mesh, &m, NULL), DTP_OK);
    assert_in_range(dtp_mesh_ranks(&m), 1, EAGER_MAX_RANKS);
    if (!dt_fits(mesh)) {
        return false;
    }
    eager_alone(body, o, &one);
    many = (job){.body = body, .o = o, .want = &one};
    if (run(mesh, NULL, &many, &err) != DTP_OK) {
        fail_msg("%s on %s, seed %llu%s: %s", o->what, mesh, (unsigned long long)o->seed,
                 o->torch ? ", torch" : "", err.msg);
    }
    int32_t mine = 0;
    while (many.results[mine].mesh == NULL) {
        mine++;
    }
    if (out != NULL) {
        *out = many.results[mine];
        out->n_notes = 0;
    }
    for (int32_t r = 0; r < dtp_mesh_ranks(&m); r++) {
        eager_free(&many.results[r]);
    }
    eager_free(&one);
    return true;
}
