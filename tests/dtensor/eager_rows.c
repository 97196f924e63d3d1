/* Rows of the replay cases (docs/compat-torch.md) as eager calls: one function of some inputs,
 * how many collectives it and its gradient take, and the layout of its output. */
#include "tests/dtensor/eager_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op.h"

dtp_status eager_to(eager *e, dtp_tensor t, const char *text, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_layout layout;
    if (e->single) {
        return dtp_tensor_share(t, out, err);
    }
    DTP_TRY(dtp_tensor_describe(t, &d, err));
    DTP_TRY(eager_layout(e, d.rank, text, &layout, err));
    return dtp_tensor_redistribute(t, &layout, out, err);
}

/* The words of an input. */
static eager_spec read_input(const char *text, char layout[64], char *gradient)
{
    eager_spec s = {0};
    char *end;
    while (*text != ' ') {
        s.shape[s.rank++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    text++;
    if (strncmp(text, "ids:", 4) == 0) {
        s.fill = EAGER_IDS;
        s.below = strtoll(text + 4, &end, 10);
        text = end + 1;
    }
    (void)snprintf(layout, 64, "%s", text);
    const size_t n = strlen(layout);
    *gradient = n > 0 && strchr("!+", layout[n - 1]) != NULL ? layout[n - 1] : '\0';
    if (*gradient != '\0') {
        layout[n - 1] = '\0';
    }
    s.layout = layout;
    return s;
}

/* Sum of y times weights that lie as y does (whole where it is partial). */
static dtp_status weigh(eager *e, dtp_tensor y, dtp_tensor *loss, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_tensor w, placed, product;
    DTP_TRY(dtp_tensor_describe(y, &d, err));
    eager_spec s = {.rank = d.rank, .layout = "replicated"};
    memcpy(s.shape, d.shape, sizeof s.shape);
    DTP_TRY(eager_input(e, &s, &w, err));
    for (int32_t m = 0; m < d.layout.n_mesh; m++) {
        if (d.layout.placement[m].kind == DTP_PARTIAL) {
            d.layout.placement[m] = (dtp_placement){0};
        }
    }
    DTP_TRY(dtp_tensor_redistribute(w, &d.layout, &placed, err));
    DTP_TRY(dtp_tensor_mul(y, placed, &product, err));
    return dtp_tensor_sum(product, 0, NULL, false, loss, err);
}

/* A row and how it is counted. */
typedef struct job {
    const eager_row *row;
    eager_counted counted;
} job;

/* The run with or without `torch` has just the counts of the row. */
static bool exact(eager_counted counted, bool torch)
{
    return torch ? counted == EAGER_BOTH || counted == EAGER_TORCH : counted == EAGER_OWN;
}

static dtp_status check_layout(eager *e, const job *j, dtp_tensor y, dtp_err *err)
{
    const eager_row *r = j->row;
    dtp_tensor_desc d;
    dtp_layout want;
    char text[DTP_TENSOR_TEXT_BYTES];
    if (r->out == NULL || e->single || !exact(j->counted, e->options->torch)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tensor_describe(y, &d, err));
    DTP_TRY(eager_layout(e, d.rank, r->out, &want, err));
    dtp_tensor_print(y, text);
    return dtp_layout_equal(&want, &d.layout)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "the output is %.200s, not %s", text, r->out);
}

/* The inputs that get gradients. */
typedef struct sources {
    int32_t n;
    dtp_tensor of[EAGER_MAX_IN];
    char how[EAGER_MAX_IN]; /* '!' or '+' */
} sources;

static dtp_status make_inputs(eager *e, dtp_tape *tape, const eager_row *r, dtp_tensor *in,
                              sources *s, dtp_err *err)
{
    bool keep = false;
    for (int32_t i = 0; i < EAGER_MAX_IN && r->in[i] != NULL; i++) {
        char layout[64], gradient;
        const eager_spec spec = read_input(r->in[i], layout, &gradient);
        DTP_TRY(eager_input(e, &spec, &in[i], err));
        if (gradient != '\0') {
            DTP_TRY(dtp_tape_watch(tape, in[i], err));
            keep = keep || gradient == '+';
            s->how[s->n] = gradient;
            s->of[s->n++] = in[i];
        }
    }
    dtp_tape_keep_partial(tape, keep);
    return DTP_OK;
}

static dtp_status note_gradients(eager *e, const job *j, const sources *s, const dtp_tensor *grads,
                                 dtp_err *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        dtp_tensor_desc d;
        DTP_TRY(dtp_tensor_describe(grads[i], &d, err));
        const bool partial = dtp_layout_has_partial(&d.layout);
        if (partial != (s->how[i] == '+') && !e->single && exact(j->counted, e->options->torch)) {
            return DTP_FAIL(err, DTP_INTERNAL, "gradient %d is %spartial", i,
                            partial ? "" : "not ");
        }
        DTP_TRY(eager_note(e, grads[i], err));
    }
    return DTP_OK;
}

static dtp_status run_with(eager *e, dtp_tape *tape, const job *j, dtp_err *err)
{
    dtp_tensor in[EAGER_MAX_IN], grads[EAGER_MAX_IN], y, loss;
    sources s = {0};
    DTP_TRY(make_inputs(e, tape, j->row, in, &s, err));
    dtp_device_mesh_reset_counts(e->mesh);
    DTP_TRY(j->row->fn(e, in, &y, err));
    eager_count(e, 0);
    DTP_TRY(check_layout(e, j, y, err));
    if (s.n > 0) {
        DTP_TRY(weigh(e, y, &loss, err));
        dtp_device_mesh_reset_counts(e->mesh);
        DTP_TRY(dtp_tape_gradient(tape, loss, s.n, s.of, grads, err));
        eager_count(e, 1);
    }
    DTP_TRY(eager_note(e, y, err));
    return note_gradients(e, j, &s, grads, err);
}

static dtp_status run_row(eager *e, dtp_err *err)
{
    dtp_tape *tape;
    DTP_TRY(dtp_tape_create(e->mesh, &tape, err));
    dtp_status s = run_with(e, tape, e->user, err);
    dtp_tape_destroy(tape);
    return s;
}

static void check_exact(const eager_row *r, int phase, const eager *got)
{
    const int *want = phase == 0 ? r->forward : r->backward;
    for (int k = 0; k < DTP_N_COLLS; k++) {
        if (got->counts[phase][k] != want[k]) {
            fail_msg("%s %s: %lld %s, want %d", r->id, phase == 0 ? "forward" : "backward",
                     (long long)got->counts[phase][k], dtp_coll_name((dtp_coll_kind)k), want[k]);
        }
    }
}

static int64_t collectives(const eager *got, int phase)
{
    int64_t n = 0;
    for (int k = 0; k < DTP_N_COLLS; k++) {
        n += got->counts[phase][k];
    }
    return n;
}

/* Ours may not have more collectives than this. */
static void check_limit(const eager_row *r, int phase, int64_t limit, const eager *ours)
{
    const int64_t n = collectives(ours, phase);
    if (n > limit) {
        fail_msg("%s %s: %lld collectives, PyTorch has %lld", r->id,
                 phase == 0 ? "forward" : "backward", (long long)n, (long long)limit);
    }
}

static int64_t stated(const int counts[DTP_N_COLLS])
{
    int64_t n = 0;
    for (int k = 0; k < DTP_N_COLLS; k++) {
        n += counts[k];
    }
    return n;
}

static void check_row(const eager_row *r, eager_counted counted)
{
    const job j = {r, counted};
    eager_options o = {.seed = 2, .torch = true, .user = &j, .what = r->id};
    eager torch, ours;
    if (counted != EAGER_OWN && !eager_compare(r->mesh, run_row, &o, &torch)) {
        return;
    }
    o.torch = false;
    if (!eager_compare(r->mesh, run_row, &o, &ours)) {
        return;
    }
    for (int phase = 0; phase < 2; phase++) {
        if (exact(counted, true) || exact(counted, false)) {
            check_exact(r, phase, exact(counted, true) ? &torch : &ours);
        }
        if (counted == EAGER_BOTH || counted == EAGER_COMPARED) {
            check_limit(r, phase, collectives(&torch, phase), &ours);
        } else if (counted != EAGER_TORCH) {
            check_limit(r, phase, stated(phase == 0 ? r->forward : r->backward), &ours);
        }
    }
}

void eager_check_rows(const eager_row *rows, size_t n, eager_counted counted)
{
    for (size_t i = 0; i < n; i++) {
        check_row(&rows[i], counted);
    }
}
