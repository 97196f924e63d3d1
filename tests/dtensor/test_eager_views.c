/* Views keep splits (N25 of the replay cases): on 2 ranks, for every dim that may stay split,
 * nothing is sent forward or backward and values equal one device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op.h"
#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_run.h"

enum { MAX_WORDS = 8 };

/* ---- views by their text: "reshape 2,-1,4" ---- */

typedef struct words {
    int32_t n;
    int64_t v[MAX_WORDS];
    int32_t axes[MAX_WORDS]; /* the same numbers */
} words;

static dtp_status do_flatten(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_flatten(x, w->axes[0], w->axes[1], out, err);
}

static dtp_status do_reshape(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_reshape(x, w->n, w->v, out, err);
}

static dtp_status do_permute(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_permute(x, w->axes, out, err);
}

static dtp_status do_transpose(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_transpose(x, w->axes[0], w->axes[1], out, err);
}

/* Dim a goes to place b, the others keep their order. */
static dtp_status do_movedim(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    int32_t axes[DTP_MAX_RANK], next = 0;
    dtp_tensor_desc d;
    DTP_TRY(dtp_tensor_describe(x, &d, err));
    for (int32_t i = 0; i < d.rank; i++) {
        next += next == w->axes[0] ? 1 : 0;
        axes[i] = i == w->axes[1] ? w->axes[0] : next++;
    }
    return dtp_tensor_permute(x, axes, out, err);
}

static dtp_status do_unsqueeze(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_unsqueeze(x, w->axes[0], out, err);
}

static dtp_status do_squeeze(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_squeeze(x, w->axes[0], out, err);
}

static dtp_status do_expand(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_expand(x, w->n, w->v, out, err);
}

static dtp_status do_slice(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_slice(x, w->axes[0], w->v[1], w->v[2], out, err);
}

static dtp_status do_pad(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_pad(x, w->axes[0], w->v[1], w->v[2], out, err);
}

/* Dim a so many times, one after the other: a new dim before it is repeated and merged. */
static dtp_status do_repeat(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err)
{
    const int32_t axis = w->axes[0];
    dtp_tensor_desc d;
    dtp_tensor thin, wide;
    DTP_TRY(dtp_tensor_unsqueeze(x, axis, &thin, err));
    DTP_TRY(dtp_tensor_describe(thin, &d, err));
    d.shape[axis] = w->v[1];
    DTP_TRY(dtp_tensor_expand(thin, d.rank, d.shape, &wide, err));
    return dtp_tensor_flatten(wide, axis, axis + 1, out, err);
}

typedef struct view_fn {
    const char *name;
    dtp_status (*fn)(dtp_tensor x, const words *w, dtp_tensor *out, dtp_err *err);
} view_fn;

static const view_fn FNS[] = {
    {"flatten", do_flatten}, {"reshape", do_reshape},
    {"permute", do_permute}, {"transpose", do_transpose},
    {"movedim", do_movedim}, {"unsqueeze", do_unsqueeze},
    {"squeeze", do_squeeze}, {"expand", do_expand},
    {"slice", do_slice},     {"pad", do_pad},
    {"repeat", do_repeat},
};

static dtp_status apply(const char *text, dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    const size_t length = strcspn(text, " ");
    words w = {0};
    for (const char *at = text + length; *at != '\0' && w.n < MAX_WORDS; w.n++) {
        char *end;
        w.v[w.n] = strtoll(at + 1, &end, 10);
        w.axes[w.n] = (int32_t)w.v[w.n];
        at = end;
    }
    for (size_t i = 0; i < sizeof FNS / sizeof FNS[0]; i++) {
        if (strlen(FNS[i].name) == length && memcmp(FNS[i].name, text, length) == 0) {
            return FNS[i].fn(x, &w, out, err);
        }
    }
    return DTP_FAIL(err, DTP_INTERNAL, "no view '%s'", text);
}

/* ---- cases ---- */

typedef struct view_row {
    const char *view;
    int32_t rank;
    int32_t split; /* set by the test */
    int64_t shape[4];
    const char *splits; /* dims that stay split, one digit each */
} view_row;

static const view_row VIEWS[] = {
    /* atleast_2d, atleast_3d */
    {"unsqueeze 0", 1, 0, {24}, "0"},
    {"reshape 1,24,1", 1, 0, {24}, "0"},
    {"unsqueeze 2", 2, 0, {24, 36}, "01"},
    {"unsqueeze 0", 2, 0, {12, 4}, "01"},
    {"unsqueeze 1", 2, 0, {12, 4}, "01"},
    {"unsqueeze -1", 2, 0, {12, 4}, "01"},
    {"unsqueeze 3", 4, 0, {4, 2, 6, 2}, "0123"},
    /* broadcast_to, expand */
    {"expand 1,24,36", 2, 0, {24, 36}, "01"},
    {"expand 42,24,36", 2, 0, {24, 36}, "01"},
    {"expand 12,24,24,36", 3, 0, {24, 1, 36}, "02"},
    {"expand 3,12,4", 2, 0, {12, 4}, "01"},
    {"expand 12,5,4", 3, 0, {12, 1, 4}, "02"},
    {"expand 6,4,3,8,2", 4, 0, {4, 1, 8, 1}, "02"},
    {"expand 24,36", 2, 0, {24, 36}, "01"},
    /* flatten, ravel */
    {"flatten 0,1", 2, 0, {24, 36}, "0"},
    {"flatten 0,2", 3, 0, {42, 24, 36}, "0"},
    {"flatten 1,2", 3, 0, {42, 24, 36}, "01"},
    {"flatten 0,1", 3, 0, {42, 24, 36}, "02"},
    {"flatten 1,2", 4, 0, {4, 6, 2, 8}, "013"},
    {"flatten 1,1", 2, 0, {12, 4}, "01"},
    {"flatten 0,-1", 3, 0, {1, 4, 6}, "1"},
    {"flatten 0,-1", 1, 0, {24}, "0"},
    {"flatten 1,2", 3, 0, {5, 4, 6}, "0"},
    /* movedim, permute, transpose */
    {"movedim 1,2", 4, 0, {4, 6, 8, 10}, "0123"},
    {"movedim 3,0", 4, 0, {4, 6, 8, 10}, "0123"},
    {"movedim 0,3", 4, 0, {4, 6, 8, 10}, "0123"},
    {"movedim 1,0", 4, 0, {4, 6, 8, 10}, "0123"},
    {"permute 2,0,1", 3, 0, {4, 6, 8}, "012"},
    {"permute 0,2,1", 3, 0, {4, 6, 8}, "012"},
    {"permute 1,2,0", 3, 0, {5, 3, 7}, "012"},
    {"permute 3,2,1,0", 4, 0, {4, 6, 8, 10}, "0123"},
    {"transpose 0,1", 3, 0, {4, 6, 8}, "012"},
    {"transpose 0,-1", 3, 0, {4, 6, 8}, "012"},
    {"transpose 1,3", 4, 0, {24, 6, 4, 6}, "0123"},
    {"transpose -2,-1", 2, 0, {12, 5}, "01"},
    /* repeat, tile: dims that are not repeated */
    {"repeat 0,2", 2, 0, {24, 36}, "1"},
    {"repeat 1,3", 2, 0, {24, 36}, "0"},
    {"repeat 1,2", 3, 0, {4, 6, 8}, "02"},
    /* reshape, view */
    {"reshape 2,6,4", 2, 0, {12, 4}, "01"},
    {"reshape 12,2,2", 2, 0, {12, 4}, "01"},
    {"reshape 4,3,2,2", 2, 0, {12, 4}, "01"},
    {"reshape 12,4", 2, 0, {12, 4}, "01"},
    {"reshape -1,1,4", 2, 0, {12, 4}, "01"},
    {"reshape 4,12", 2, 0, {12, 4}, "0"},
    {"reshape 24,36", 2, 0, {24, 36}, "01"},
    {"reshape -1", 2, 0, {24, 36}, "0"},
    {"reshape -1,8", 3, 0, {4, 6, 8}, "02"},
    {"reshape 4,-1", 3, 0, {4, 6, 8}, "01"},
    {"reshape 12", 3, 0, {1, 1, 12}, "2"},
    {"reshape 1,1,12", 1, 0, {12}, "0"},
    {"reshape 2,3,4,6", 3, 0, {6, 4, 6}, "012"},
    {"reshape 6,24", 3, 0, {6, 4, 6}, "01"},
    {"reshape 12,1,24", 2, 0, {12, 24}, "01"},
    {"reshape 8,12", 4, 0, {4, 2, 6, 2}, "02"},
    /* squeeze */
    {"squeeze 1", 3, 0, {42, 1, 24}, "02"},
    {"squeeze -1", 3, 0, {12, 4, 1}, "01"},
    {"squeeze 0", 3, 0, {1, 14, 6}, "12"},
    /* split, chunk, pad: of another dim */
    {"slice 1,1,3", 2, 0, {12, 4}, "0"},
    {"slice 0,6,12", 3, 0, {12, 4, 6}, "12"},
    {"pad 1,1,0", 2, 0, {12, 4}, "0"},
};

static dtp_status view_with(eager *e, dtp_tape *tape, const view_row *v, dtp_err *err)
{
    char layout[8];
    dtp_tensor x, y, w, placed, product, loss, grad;
    dtp_tensor_desc d;
    (void)snprintf(layout, sizeof layout, "S%d", v->split);
    eager_spec s = {.rank = v->rank, .layout = layout};
    memcpy(s.shape, v->shape, sizeof v->shape);
    DTP_TRY(eager_input(e, &s, &x, err));
    DTP_TRY(dtp_tape_watch(tape, x, err));
    DTP_TRY(apply(v->view, x, &y, err));
    eager_count(e, 0);
    DTP_TRY(dtp_tensor_describe(y, &d, err));
    eager_spec weights = {.rank = d.rank, .layout = "replicated"};
    memcpy(weights.shape, d.shape, sizeof d.shape);
    DTP_TRY(eager_input(e, &weights, &w, err));
    DTP_TRY(dtp_tensor_redistribute(w, &d.layout, &placed, err));
    DTP_TRY(dtp_tensor_mul(y, placed, &product, err));
    DTP_TRY(dtp_tensor_sum(product, 0, NULL, false, &loss, err));
    dtp_device_mesh_reset_counts(e->mesh);
    DTP_TRY(dtp_tape_gradient(tape, loss, 1, &x, &grad, err));
    eager_count(e, 1);
    DTP_TRY(eager_note(e, y, err));
    return eager_note(e, grad, err);
}

static dtp_status run_view(eager *e, dtp_err *err)
{
    dtp_tape *tape;
    DTP_TRY(dtp_tape_create(e->mesh, &tape, err));
    dtp_status s = view_with(e, tape, e->user, err);
    dtp_tape_destroy(tape);
    return s;
}

static void check_view(const view_row *row, int32_t split, bool torch)
{
    view_row v = *row;
    v.split = split;
    const eager_options o = {.seed = (uint64_t)split, .torch = torch, .user = &v, .what = v.view};
    eager e;
    if (!eager_compare("x:2", run_view, &o, &e)) {
        return;
    }
    for (int k = 0; k < 2 * DTP_N_COLLS; k++) {
        if (e.counts[k / DTP_N_COLLS][k % DTP_N_COLLS] != 0) {
            fail_msg("%s, dim %d split: %s", v.view, v.split,
                     dtp_coll_name((dtp_coll_kind)(k % DTP_N_COLLS)));
        }
    }
}

static void test_views__send_nothing(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof VIEWS / sizeof VIEWS[0]; i++) {
        for (const char *at = VIEWS[i].splits; *at != '\0'; at++) {
            check_view(&VIEWS[i], *at - '0', false);
            check_view(&VIEWS[i], *at - '0', true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_views__send_nothing)};
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
