/* Every function of include/dtp/ops.h under random layouts (uneven and partial ones too) on several
 * meshes: values and gradients equal those of one device, and the gradients of one device agree
 * with differences. */
#include <math.h>
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
#include "tests/dtensor/eager_functions.h"
#include "tests/dtensor/eager_run.h"

/* ---- runs ---- */

static eager_spec spec_of(const char *text)
{
    eager_spec s = {0};
    char *end;
    while (*text != '\0' && *text != ' ') {
        s.shape[s.rank++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    s.fill = strncmp(text, " pos", 4) == 0    ? EAGER_POSITIVE
             : strncmp(text, " bool", 5) == 0 ? EAGER_BOOL
             : strncmp(text, " ids:", 5) == 0 ? EAGER_IDS
                                              : EAGER_ANY;
    s.below = s.fill == EAGER_IDS ? strtoll(text + 5, NULL, 10) : 0;
    return s;
}

static int32_t operands(const eager_function *row)
{
    int32_t n = 0;
    while (n < EAGER_FUNCTION_MAX_IN && row->in[n] != NULL) {
        n++;
    }
    return n;
}

/* Sum of the output times fixed weights. */
static dtp_status weigh(eager *e, dtp_tensor y, dtp_tensor *loss, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_tensor w, product;
    DTP_TRY(dtp_tensor_describe(y, &d, err));
    eager_spec s = {.rank = d.rank, .layout = "replicated"};
    memcpy(s.shape, d.shape, sizeof s.shape);
    DTP_TRY(eager_input(e, &s, &w, err));
    DTP_TRY(dtp_tensor_mul(y, w, &product, err));
    return dtp_tensor_sum(product, 0, NULL, false, loss, err);
}

static dtp_status note_gradients(eager *e, dtp_tape *tape, const eager_function *row,
                                 const dtp_tensor *in, dtp_err *err)
{
    dtp_tensor sources[EAGER_FUNCTION_MAX_IN], grads[EAGER_FUNCTION_MAX_IN], y, loss;
    int32_t n = 0;
    for (int32_t i = 0; i < operands(row); i++) {
        const eager_fill fill = spec_of(row->in[i]).fill;
        if (fill == EAGER_ANY || fill == EAGER_POSITIVE) {
            sources[n++] = in[i];
            DTP_TRY(dtp_tape_watch(tape, in[i], err));
        }
    }
    DTP_TRY(eager_function_call(row, in, &y, err));
    DTP_TRY(eager_note(e, y, err));
    DTP_TRY(weigh(e, y, &loss, err));
    DTP_TRY(eager_note(e, loss, err));
    DTP_TRY(dtp_tape_gradient(tape, loss, n, sources, grads, err));
    for (int32_t i = 0; i < n; i++) {
        dtp_tensor_desc a, b;
        DTP_TRY(dtp_tensor_describe(sources[i], &a, err));
        DTP_TRY(dtp_tensor_describe(grads[i], &b, err));
        for (int32_t m = 0; m < a.layout.n_mesh; m++) {
            if (a.layout.placement[m].kind == DTP_PARTIAL) {
                a.layout.placement[m] = (dtp_placement){0};
            }
        }
        if (!dtp_layout_equal(&a.layout, &b.layout)) {
            return DTP_FAIL(err, DTP_INTERNAL, "gradient %d is in another layout", i);
        }
        DTP_TRY(eager_note(e, grads[i], err));
    }
    return DTP_OK;
}

static dtp_status run_row(eager *e, dtp_err *err)
{
    const eager_function *row = e->user;
    dtp_tensor in[EAGER_FUNCTION_MAX_IN], y;
    dtp_tape *tape = NULL;
    for (int32_t i = 0; i < operands(row); i++) {
        const eager_spec s = spec_of(row->in[i]);
        DTP_TRY(eager_input(e, &s, &in[i], err));
    }
    if (row->no_grad) {
        DTP_TRY(eager_function_call(row, in, &y, err));
        return eager_note(e, y, err);
    }
    DTP_TRY(dtp_tape_create(e->mesh, &tape, err));
    dtp_status s = note_gradients(e, tape, row, in, err);
    dtp_tape_destroy(tape);
    return s;
}

static void check_rows(bool torch, int seeds)
{
    static const char *const meshes[] = {"x:2", "x:3", "x:2;y:2", "x:4", "x:2;y:3"};
    for (int32_t r = 0; r < EAGER_FUNCTION_COUNT; r++) {
        for (int seed = 1; seed <= seeds; seed++) {
            const eager_options o = {.seed = (uint64_t)seed,
                                     .torch = torch,
                                     .user = &EAGER_FUNCTIONS[r],
                                     .what = EAGER_FUNCTIONS[r].name};
            eager_compare(meshes[(r + seed) % 5], run_row, &o, NULL);
        }
    }
}

static void test_ops__equal_one_device(void **unused)
{
    (void)unused;
    check_rows(false, 10);
}

static void test_ops__equal_one_device_as_torch(void **unused)
{
    (void)unused;
    check_rows(true, 4);
}

/* ---- differences ---- */

/* The loss, which is note 1 of a row with gradients, with one element moved. */
static double loss_at(const eager_function *row, int32_t input, int64_t at, double by)
{
    const eager_options o = {.seed = 3,
                             .user = row,
                             .what = row->name,
                             .moved_input = input,
                             .moved_at = at,
                             .moved_by = by};
    eager e;
    eager_alone(run_row, &o, &e);
    const double loss = e.notes[1][0];
    eager_free(&e);
    return loss;
}

static void check_differences(const eager_function *row)
{
    const eager_options o = {.seed = 3, .user = row, .what = row->name};
    const double h = 1e-5;
    uint64_t state = 11;
    int32_t grad = 2;
    eager e;
    eager_alone(run_row, &o, &e);
    for (int32_t i = 0; i < operands(row); i++) {
        const eager_fill fill = spec_of(row->in[i]).fill;
        if (fill != EAGER_ANY && fill != EAGER_POSITIVE) {
            continue;
        }
        for (int k = 0; k < 3; k++) {
            const int64_t at = (int64_t)(eager_random(&state) % (uint64_t)e.n_values[grad]);
            const double slope =
                (loss_at(row, i + 1, at, h) - loss_at(row, i + 1, at, -h)) / (2 * h);
            if (!(fabs(slope - e.notes[grad][at]) <= 1e-6 * fmax(1.0, fabs(slope)))) {
                fail_msg("%s: operand %d, element %lld: gradient %.9g, difference %.9g", row->name,
                         i, (long long)at, e.notes[grad][at], slope);
            }
        }
        grad++;
    }
    eager_free(&e);
}

static void test_ops__gradients_agree_with_differences(void **unused)
{
    (void)unused;
    for (int32_t r = 0; r < EAGER_FUNCTION_COUNT; r++) {
        if (!EAGER_FUNCTIONS[r].no_grad) {
            check_differences(&EAGER_FUNCTIONS[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops__equal_one_device),
        cmocka_unit_test(test_ops__equal_one_device_as_torch),
        cmocka_unit_test(test_ops__gradients_agree_with_differences),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
