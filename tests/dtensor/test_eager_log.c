/* The log of communication: every collective that a call makes is a line, so that the lines add up
 * to the counts of the mesh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dtp/tape.h"
#include "dtensor/internal.h"
#include "tests/dtensor/dtensor_suite.h"

enum { TEXT_BYTES = 1 << 16, RANK = 2, ROUNDS = 60 };

/* The lines of one rank. */
typedef struct record {
    dtp_ctx ctx;
    size_t used;
    char text[TEXT_BYTES];
} record;

static void keep_line(void *user, dtp_log_level level, const char *line)
{
    record *r = user;
    (void)level;
    const size_t n = strlen(line);
    if (strstr(line, "info tensor collective ") == line && r->used + n + 2 < TEXT_BYTES) {
        memcpy(r->text + r->used, line, n);
        r->used += n;
        r->text[r->used++] = '\n';
        r->text[r->used] = '\0';
    }
}

/* From here on this rank's lines go to the record, which the caller frees. */
static dtp_status listen(dtp_device_mesh *mesh, record **out, dtp_err *err)
{
    record *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory");
    }
    r->ctx = dtp_ctx_default();
    r->ctx.level = DTP_LOG_INFO;
    r->ctx.log_sink = keep_line;
    r->ctx.log_user = r;
    mesh->options.ctx = &r->ctx;
    *out = r;
    return DTP_OK;
}

static void stop(dtp_device_mesh *mesh, record *r)
{
    mesh->options.ctx = NULL;
    free(r);
}

static void restart(dtp_device_mesh *mesh, record *r)
{
    dtp_device_mesh_reset_counts(mesh);
    r->used = 0;
    r->text[0] = '\0';
}

static dtp_status has(const record *r, const char *line, dtp_err *err)
{
    return strstr(r->text, line) != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "no line '%s' in\n%.700s", line, r->text);
}

/* Lines and bytes of a kind are those that the mesh has counted. */
static dtp_status adds_up(dtp_device_mesh *mesh, const record *r, const char *what, dtp_err *err)
{
    int64_t lines[DTP_N_COLLS] = {0}, bytes = 0, counted = 0;
    const dtp_comm_count *counts;
    for (const char *at = strstr(r->text, " kind="); at != NULL; at = strstr(at + 1, " kind=")) {
        for (int32_t k = 0; k < DTP_N_COLLS; k++) {
            const size_t n = strlen(dtp_coll_name((dtp_coll_kind)k));
            lines[k] += strncmp(at + 6, dtp_coll_name((dtp_coll_kind)k), n) == 0 ? 1 : 0;
        }
        const char *size = strstr(at, " bytes=");
        bytes += size != NULL ? strtoll(size + 7, NULL, 10) : 0;
    }
    const int32_t n = dtp_device_mesh_counts(mesh, &counts);
    for (int32_t i = 0; i < n; i++) {
        counted += counts[i].bytes;
    }
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        if (lines[k] != dtp_device_mesh_count(mesh, (dtp_coll_kind)k) || bytes != counted) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "%s: %lld lines of %s, %lld counted; %lld bytes, %lld counted:\n%.400s",
                            what, (long long)lines[k], dtp_coll_name((dtp_coll_kind)k),
                            (long long)dtp_device_mesh_count(mesh, (dtp_coll_kind)k),
                            (long long)bytes, (long long)counted, r->text);
        }
    }
    return DTP_OK;
}

static dtp_status input(dtp_device_mesh *mesh, int64_t a, int64_t b, const char *layout,
                        dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, RANK, (const int64_t[]){a, b}, layout, &desc, err));
    return dtp_tensor_iota(mesh, &desc, 0.5, 0.25, out, err);
}

static void run(const char *mesh, dtp_world_body body, void *user)
{
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    options.threads = 1;
    if (dtp_world_run(mesh, &options, body, user, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

/* ---- lines ---- */

static dtp_status known_lines(dtp_device_mesh *mesh, record *r, dtp_err *err)
{
    dtp_tensor x, w, y;
    dtp_layout to;
    DTP_TRY(input(mesh, 6, 4, "+sum(x)", &x, err));
    DTP_TRY(dtp_tensor_relu(x, &y, err));
    DTP_TRY(has(r,
                "info tensor collective op=relu operand=0 from=\"f32[6,4] +sum(x)\" "
                "to=\"replicated\" kind=all_reduce over=x bytes=96\n",
                err));
    restart(mesh, r); /* the second call is a lookup, and is logged too */
    DTP_TRY(dtp_tensor_relu(x, &y, err));
    DTP_TRY(has(r, "op=relu operand=0", err));
    restart(mesh, r);
    DTP_TRY(input(mesh, 6, 4, "replicated", &x, err));
    DTP_TRY(input(mesh, 6, 4, "+sum(y)", &w, err));
    DTP_TRY(dtp_tensor_mul(x, w, &y, err));
    DTP_TRY(dtp_tensor_max(x, w, &y, err));
    DTP_TRY(has(r, "op=max operand=1 from=\"f32[6,4] +sum(y)\" to=\"replicated\"", err));
    restart(mesh, r);
    DTP_TRY(input(mesh, 8, 8, "0@x", &x, err));
    DTP_TRY(dtp_tensor_layout(mesh, RANK, "1@y", &to, err));
    DTP_TRY(dtp_tensor_redistribute(x, &to, &y, err));
    DTP_TRY(has(
        r, "op=redistribute operand=0 from=\"f32[8,8] 0@x, 1@y\" to=\"1@y\" kind=all_gather", err));
    restart(mesh, r);
    const int32_t all[] = {0, 1};
    DTP_TRY(input(mesh, 512, 512, "0@x", &x, err));
    const dtp_arg args[] = {{.key = "kind", .kind = DTP_ARG_ENUM, .text = "sum"},
                            {.key = "over", .kind = DTP_ARG_DIMS, .text = "ab"}};
    const dtp_layout whole = dtp_layout_replicated(0, 2);
    const dtp_call call = {.op = "reduce",
                           .dims = "ab->",
                           .n_in = 1,
                           .in = &x,
                           .n_args = 2,
                           .args = args,
                           .out_layout = &whole};
    DTP_TRY(dtp_tensor_call(&call, &y, err));
    DTP_TRY(has(r,
                "op=reduce operand=result from=\"f32[] +sum(x)\" to=\"replicated\" "
                "kind=all_reduce over=x bytes=4\n",
                err));
    restart(mesh, r);
    DTP_TRY(input(mesh, 4096, 512, "1@x", &x, err));
    DTP_TRY(dtp_tensor_logsumexp(x, 2, all, &y, err));
    return has(r, "op=logsumexp operand=inside from=", err);
}

static dtp_status lines_of_calls(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    record *r;
    DTP_TRY(listen(mesh, &r, err));
    const dtp_status s = known_lines(mesh, r, err);
    stop(mesh, r);
    return s;
}

static void test_log__names_op_operand_and_layouts(void **state)
{
    (void)state;
    run("x:2;y:2", lines_of_calls, NULL);
}

/* ---- all calls ---- */

static dtp_status call_some(int which, dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    const int32_t last[] = {1};
    switch (which) {
    case 0:
        return dtp_tensor_relu(a, out, err);
    case 1:
        return dtp_tensor_add(a, b, out, err);
    case 2:
        return dtp_tensor_mul(a, b, out, err);
    case 3:
        return dtp_tensor_einsum("ab,cb->ac", 2, (const dtp_tensor[]){a, b}, out, err);
    case 4:
        return dtp_tensor_softmax(a, 1, out, err);
    case 5:
        return dtp_tensor_amax(a, 1, last, false, out, err);
    case 6:
        return dtp_tensor_logsumexp(a, 1, last, out, err);
    case 7:
        return dtp_tensor_transpose(a, 0, 1, out, err);
    default:
        return dtp_tensor_reshape(a, 1, (const int64_t[]){-1}, out, err);
    }
}

/* A call and its gradient. */
static dtp_status one_round(dtp_device_mesh *mesh, record *r, uint64_t *seed, dtp_err *err)
{
    dtp_tensor in[2], out, moved, loss, grads[2];
    dtp_tape *tape;
    char what[64];
    const int64_t sizes[] = {4, 6, 5};
    const int64_t shape[] = {sizes[dt_random(seed) % 3], sizes[dt_random(seed) % 3]};
    const int which = (int)(dt_random(seed) % 9);
    dtp_layout to;
    for (int i = 0; i < 2; i++) {
        to = dt_random_layout(dtp_device_mesh_dims(mesh), RANK, true, seed);
        const dtp_tensor_desc desc = dt_desc(DTP_F32, RANK, shape, &to);
        DTP_TRY(dtp_tensor_iota(mesh, &desc, 0.5, 0.25, &in[i], err));
    }
    to = dt_random_layout(dtp_device_mesh_dims(mesh), RANK, false, seed);
    restart(mesh, r);
    DTP_TRY(dtp_tape_create(mesh, &tape, err));
    dtp_status s = dtp_tape_watch(tape, in[0], err);
    s = s == DTP_OK ? dtp_tensor_redistribute(in[0], &to, &moved, err) : s;
    s = s == DTP_OK ? call_some(which, moved, in[1], &out, err) : s;
    s = s == DTP_OK ? dtp_tensor_sum(out, 0, NULL, false, &loss, err) : s;
    s = s == DTP_OK ? dtp_tape_gradient(tape, loss, 1, in, grads, err) : s;
    dtp_tape_destroy(tape);
    DTP_TRY(s);
    (void)snprintf(what, sizeof what, "call %d of %lld x %lld", which, (long long)shape[0],
                   (long long)shape[1]);
    return adds_up(mesh, r, what, err);
}

static dtp_status lines_add_up(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    uint64_t seed = *(const uint64_t *)user;
    record *r;
    DTP_TRY(listen(mesh, &r, err));
    dtp_status s = DTP_OK;
    for (int i = 0; i < ROUNDS && s == DTP_OK; i++) {
        s = one_round(mesh, r, &seed, err);
    }
    if (s != DTP_OK) {
        dtp_err_prefix(err, "seed %llu", (unsigned long long)*(const uint64_t *)user);
    }
    stop(mesh, r);
    return s;
}

static void test_log__lines_add_up_to_the_counts(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2", "x:2;y:2", "x:3;y:2"};
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run(meshes[seed - 1], lines_add_up, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log__names_op_operand_and_layouts),
        cmocka_unit_test(test_log__lines_add_up_to_the_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
