/* Misuse of eager code and of the tape, and strict mode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_run.h"

/* The call must fail with a message that holds the text. */
static dtp_status expect(dtp_status got, dtp_status want, const dtp_err *err, const char *text)
{
    if (got != want || strstr(err->msg, text) == NULL) {
        fprintf(stderr, "expected %s with '%s', got %s: %s\n", dtp_status_text(want), text,
                dtp_status_text(got), err->msg);
        return DTP_INTERNAL;
    }
    return DTP_OK;
}

static dtp_status input(eager *e, const char *layout, int64_t a, int64_t b, dtp_tensor *out,
                        dtp_err *err)
{
    const eager_spec s = {.rank = 2, .shape = {a, b}, .layout = layout};
    return eager_input(e, &s, out, err);
}

static dtp_status misuse(eager *e, dtp_err *err)
{
    dtp_tensor a, b, out, pieces[8];
    dtp_err bad = {0};
    DTP_TRY(input(e, "S0", 8, 6, &a, err));
    DTP_TRY(input(e, "S1", 4, 8, &b, err));
    DTP_TRY(expect(dtp_tensor_matmul(a, b, &out, &bad), DTP_INVALID, &bad, "f64[8,6]"));
    DTP_TRY(expect(dtp_tensor_matmul(a, b, &out, &bad), DTP_INVALID, &bad,
                   "dim '1 of operand 0' is 6"));
    DTP_TRY(expect(dtp_tensor_add(a, b, &out, &bad), DTP_INVALID, &bad, "dim -2 is 4"));
    DTP_TRY(expect(dtp_tensor_einsum("ab,bc", 1, &a, &out, &bad), DTP_INVALID, &bad, "follows"));
    DTP_TRY(expect(dtp_tensor_einsum("abc->a", 1, &a, &out, &bad), DTP_INVALID, &bad, "3 letters"));
    DTP_TRY(expect(dtp_tensor_einsum("aa->a", 1, &a, &out, &bad), DTP_INVALID, &bad, "twice"));
    DTP_TRY(expect(dtp_tensor_add(a, b, &out, &bad), DTP_INVALID, &bad, "add(f64[8,6]"));
    DTP_TRY(expect(dtp_tensor_sum(a, 1, (const int32_t[]){5}, false, &out, &bad), DTP_INVALID, &bad,
                   "no axis 5"));
    DTP_TRY(expect(dtp_tensor_compare("above", a, a, &out, &bad), DTP_INVALID, &bad, "'above'"));
    DTP_TRY(expect(dtp_tensor_reshape(a, 1, (const int64_t[]){7}, &out, &bad), DTP_INVALID, &bad,
                   "48 elements"));
    DTP_TRY(expect(dtp_tensor_slice(a, 1, 4, 9, &out, &bad), DTP_INVALID, &bad, "[4, 9)"));
    dtp_tensor gone = a;
    dtp_tensor_destroy(a);
    DTP_TRY(expect(dtp_tensor_exp(gone, &out, &bad), DTP_INVALID, &bad, "exp"));
    if (!e->single) {
        DTP_TRY(expect(dtp_tensor_unbind(b, 1, pieces, &bad), DTP_INVALID, &bad, "is split"));
    }
    DTP_TRY(dtp_tensor_unbind(b, 0, pieces, err));
    return eager_note(e, pieces[2], err);
}

static void test_calls__misuse_is_refused_on_every_rank(void **unused)
{
    (void)unused;
    const eager_options o = {.seed = 1, .what = "misuse"};
    eager_compare("x:2", misuse, &o, NULL);
}

static dtp_status strict(eager *e, dtp_err *err)
{
    dtp_tensor a, b, out;
    dtp_err bad = {0};
    DTP_TRY(input(e, "S0", 8, 6, &a, err));
    DTP_TRY(input(e, "R", 6, 4, &b, err));
    DTP_TRY(dtp_tensor_matmul(a, b, &out, err));
    DTP_TRY(eager_note(e, out, err));
    DTP_TRY(input(e, "S1", 6, 4, &b, err));
    if (!e->single) {
        DTP_TRY(expect(dtp_tensor_matmul(a, b, &out, &bad), DTP_INVALID, &bad, "strict mode"));
        dtp_device_mesh_set_strict(e->mesh, false);
    }
    DTP_TRY(dtp_tensor_matmul(a, b, &out, err));
    return eager_note(e, out, err);
}

static void test_calls__strict(void **unused)
{
    (void)unused;
    const eager_options o = {.seed = 1, .strict = true, .what = "strict"};
    eager_compare("x:2", strict, &o, NULL);
}

/* ---- the tape ---- */

static dtp_status tape_rules(eager *e, dtp_tape *tape, dtp_err *err)
{
    dtp_tensor x, w, other, unused, y, loss, grads[2];
    dtp_tape *second;
    dtp_err bad = {0};
    DTP_TRY(input(e, "S0", 8, 6, &x, err));
    DTP_TRY(input(e, "R", 6, 4, &w, err));
    DTP_TRY(input(e, "R", 6, 4, &other, err));
    DTP_TRY(expect(dtp_tape_create(e->mesh, &second, &bad), DTP_INVALID, &bad, "already"));
    DTP_TRY(dtp_tape_watch(tape, w, err));
    DTP_TRY(dtp_tape_watch(tape, other, err));
    DTP_TRY(dtp_tensor_matmul(x, w, &y, err));
    DTP_TRY(
        expect(dtp_tape_gradient(tape, y, 1, &w, grads, &bad), DTP_INVALID, &bad, "one number"));
    DTP_TRY(dtp_tensor_sum(y, 0, NULL, false, &loss, err));
    DTP_TRY(expect(dtp_tape_gradient(tape, loss, 1, &x, grads, &bad), DTP_INVALID, &bad,
                   "not watched"));
    DTP_TRY(dtp_tensor_sum(x, 0, NULL, false, &unused, err));
    DTP_TRY(expect(dtp_tape_gradient(tape, unused, 1, &w, grads, &bad), DTP_INVALID, &bad,
                   "does not depend"));
    const dtp_tensor sources[] = {w, other};
    dtp_tensor_destroy(y);
    for (int twice = 0; twice < 2; twice++) {
        DTP_TRY(dtp_tape_gradient(tape, loss, 2, sources, grads, err));
        DTP_TRY(eager_note(e, grads[0], err));
        DTP_TRY(eager_note(e, grads[1], err));
    }
    return DTP_OK;
}

static dtp_status run_tape(eager *e, dtp_err *err)
{
    dtp_tape *tape;
    DTP_TRY(dtp_tape_create(e->mesh, &tape, err));
    dtp_status s = tape_rules(e, tape, err);
    dtp_tape_destroy(tape);
    return s;
}

static void test_tape__rules(void **unused)
{
    (void)unused;
    const eager_options o = {.seed = 1, .what = "tape"};
    eager_compare("x:2", run_tape, &o, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls__misuse_is_refused_on_every_rank),
        cmocka_unit_test(test_calls__strict),
        cmocka_unit_test(test_tape__rules),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
