/* Variables on a tape: assigned ones stay watched. What was computed before an assignment keeps the
 * old contents, what is computed after it is a use of the variable too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dtp/tape.h"
#include "tests/dtensor/dtensor_suite.h"

enum { ROWS = 6, COLS = 4, ELEMS = ROWS * COLS, MAX_VERSIONS = 6, ROUNDS = 40 };

static void run(const char *mesh, dtp_world_body body, void *user)
{
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    if (dtp_world_run(mesh, &options, body, user, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static dtp_status full(dtp_device_mesh *mesh, const char *layout, double value, dtp_tensor *out,
                       dtp_err *err)
{
    const int64_t shape[] = {ROWS, COLS};
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, layout, &desc, err));
    return dtp_tensor_full(mesh, &desc, value, out, err);
}

static dtp_status expect_all(dtp_tensor t, float value, const char *what, dtp_err *err)
{
    float want[ELEMS];
    for (int i = 0; i < ELEMS; i++) {
        want[i] = value;
    }
    return dt_expect(t, want, what, err);
}

/* sum(t * t) */
static dtp_status squares(dtp_tensor t, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor s;
    DTP_TRY(dtp_tensor_mul(t, t, &s, err));
    return dtp_tensor_sum(s, 0, NULL, false, out, err);
}

static dtp_status gradient_is(dtp_tape *tape, dtp_tensor loss, dtp_tensor of, float want,
                              const char *what, dtp_err *err)
{
    dtp_tensor grad;
    dtp_status s = dtp_tape_gradient(tape, loss, 1, &of, &grad, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "%s", what);
        return s;
    }
    return expect_all(grad, want, what, err);
}

/* As TensorFlow: v = 3, y = v * v, v.assign(5), z = v * v. */
static dtp_status before_and_after(dtp_device_mesh *mesh, dtp_tape *tape, dtp_err *err)
{
    dtp_tensor v, y, z, both, five, shared;
    DTP_TRY(full(mesh, "0@x", 3, &v, err));
    DTP_TRY(full(mesh, "0@x", 5, &five, err));
    DTP_TRY(dtp_variable_create(v, &v, err));
    DTP_TRY(dtp_tape_watch(tape, v, err));
    DTP_TRY(squares(v, &y, err));
    DTP_TRY(dtp_variable_assign(v, five, err));
    DTP_TRY(gradient_is(tape, y, v, 6, "used before the assignment", err));
    DTP_TRY(squares(v, &z, err));
    DTP_TRY(gradient_is(tape, z, v, 10, "used after the assignment", err));
    DTP_TRY(dtp_tensor_add(y, z, &both, err));
    DTP_TRY(gradient_is(tape, both, v, 16, "used before and after", err));
    DTP_TRY(dtp_tensor_share(v, &shared, err));
    DTP_TRY(squares(shared, &z, err));
    DTP_TRY(gradient_is(tape, z, v, 10, "read by a second handle", err));
    return expect_all(v, 5, "the variable", err);
}

/* The gradient ends at an assignment, whatever the value was computed from. */
static dtp_status no_way_through(dtp_device_mesh *mesh, dtp_tape *tape, dtp_err *err)
{
    dtp_tensor v, twice, z, plain, other;
    dtp_err said = {0};
    DTP_TRY(full(mesh, "1@y", 3, &v, err));
    DTP_TRY(dtp_variable_create(v, &v, err));
    DTP_TRY(dtp_tape_watch(tape, v, err));
    DTP_TRY(dtp_tensor_scale(v, 2, &twice, err));
    DTP_TRY(dtp_variable_assign(v, twice, err));
    DTP_TRY(squares(v, &z, err));
    DTP_TRY(gradient_is(tape, z, v, 12, "assigned from itself", err));
    /* a variable that only was made from a watched tensor is none once it is assigned */
    DTP_TRY(full(mesh, "1@y", 1, &plain, err));
    DTP_TRY(dtp_tape_watch(tape, plain, err));
    DTP_TRY(dtp_variable_create(plain, &other, err));
    DTP_TRY(full(mesh, "1@y", 7, &plain, err));
    DTP_TRY(dtp_variable_assign(other, plain, err));
    DTP_TRY(squares(other, &z, err));
    if (dtp_tape_gradient(tape, z, 1, &v, &z, &said) != DTP_INVALID ||
        strstr(said.msg, "does not depend on a watched tensor") == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "an unwatched variable: '%s'", said.msg);
    }
    /* nor is a second variable with the contents of a watched one */
    DTP_TRY(dtp_variable_create(v, &other, err));
    DTP_TRY(dtp_variable_assign(other, plain, err));
    DTP_TRY(squares(other, &z, err));
    DTP_TRY(dtp_tape_gradient(tape, z, 1, &v, &z, &said) == DTP_INVALID
                ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "a second variable is watched"));
    return expect_all(v, 6, "the watched one", err);
}

static dtp_status fixed_cases(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    dtp_tape *tape;
    (void)user;
    for (int i = 0; i < 2; i++) {
        DTP_TRY(dtp_tape_create(mesh, &tape, err));
        const dtp_status s =
            i == 0 ? before_and_after(mesh, tape, err) : no_way_through(mesh, tape, err);
        dtp_tape_destroy(tape);
        DTP_TRY(s);
    }
    return DTP_OK;
}

static void test_tape__assigned_variables_stay_watched(void **state)
{
    (void)state;
    run("x:2;y:2", fixed_cases, NULL);
    run("x:1;y:1", fixed_cases, NULL);
}

/* ---- random programs ---- */

/* The same program on a variable, and on one watched tensor for each of its contents: the gradient
 * of the variable is the sum of theirs. */

typedef struct program {
    uint64_t seed;
    int32_t n;
    bool on_variable;
    dtp_tensor variable, versions[MAX_VERSIONS];
} program;

/* loss += sum of (current * a version before it, or itself) */
static dtp_status use(const program *p, int32_t now, uint64_t *seed, dtp_tensor *held,
                      dtp_tensor *loss, dtp_err *err)
{
    const dtp_tensor current = p->on_variable ? p->variable : p->versions[now];
    dtp_tensor product, sum;
    if (dt_random(seed) % 3 == 0) { /* kept over assignments */
        DTP_TRY(dtp_tensor_share(current, held, err));
    }
    const bool old = held->mesh != NULL && dt_random(seed) % 2 == 0;
    DTP_TRY(dtp_tensor_mul(current, old ? *held : current, &product, err));
    DTP_TRY(dtp_tensor_sum(product, 0, NULL, false, &sum, err));
    return loss->mesh == NULL ? dtp_tensor_share(sum, loss, err)
                              : dtp_tensor_add(*loss, sum, loss, err);
}

static dtp_status play(program *p, dtp_device_mesh *mesh, dtp_tensor *out, dtp_err *err)
{
    uint64_t seed = p->seed;
    dtp_tensor held = {0}, loss = {0}, grads[MAX_VERSIONS];
    dtp_tape *tape;
    DTP_TRY(dtp_tape_create(mesh, &tape, err));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < p->n && s == DTP_OK && !p->on_variable; i++) {
        s = dtp_tape_watch(tape, p->versions[i], err);
    }
    if (p->on_variable) {
        s = dtp_variable_create(p->versions[0], &p->variable, err);
        s = s == DTP_OK ? dtp_tape_watch(tape, p->variable, err) : s;
    }
    for (int32_t now = 0; now < p->n && s == DTP_OK; now++) {
        if (now > 0 && p->on_variable) {
            s = dtp_variable_assign(p->variable, p->versions[now], err);
        }
        for (uint64_t k = dt_random(&seed) % 3; k < 3 && s == DTP_OK; k++) {
            s = use(p, now, &seed, &held, &loss, err);
        }
    }
    const dtp_tensor *of = p->on_variable ? &p->variable : p->versions;
    s = s == DTP_OK ? dtp_tape_gradient(tape, loss, p->on_variable ? 1 : p->n, of, grads, err) : s;
    dtp_tape_destroy(tape);
    DTP_TRY(s);
    *out = grads[0];
    for (int32_t i = 1; i < p->n && !p->on_variable; i++) {
        DTP_TRY(dtp_tensor_add(*out, grads[i], out, err));
    }
    return DTP_OK;
}

static dtp_status one_program(dtp_device_mesh *mesh, uint64_t seed, dtp_err *err)
{
    static const char *const layouts[] = {"0@x", "1@x", "replicated", "0@x, 1@y"};
    program p = {.seed = seed};
    dtp_tensor grad, want;
    float whole[ELEMS];
    p.n = 1 + (int32_t)(dt_random(&p.seed) % MAX_VERSIONS);
    const char *layout = layouts[dt_random(&p.seed) % 4];
    for (int32_t i = 0; i < p.n; i++) {
        DTP_TRY(full(mesh, layout, (double)(dt_random(&p.seed) % 9) - 4, &p.versions[i], err));
    }
    DTP_TRY(play(&p, mesh, &want, err));
    p.on_variable = true;
    DTP_TRY(play(&p, mesh, &grad, err));
    DTP_TRY(dtp_tensor_gather(want, -1, whole, err));
    dtp_status s = dt_expect(grad, whole, "the gradient of the variable", err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "seed %llu, %d contents", (unsigned long long)seed, p.n);
    }
    return s;
}

static dtp_status random_programs(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        DTP_TRY(one_program(mesh, seed, err));
    }
    return DTP_OK;
}

static void test_tape__a_variable_has_the_gradients_of_all_its_contents(void **state)
{
    (void)state;
    run("x:2;y:2", random_programs, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tape__assigned_variables_stay_watched),
        cmocka_unit_test(test_tape__a_variable_has_the_gradients_of_all_its_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
