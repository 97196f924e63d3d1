/* Kernels, collectives and messages of virtual ranks on queues: buffers, and what they come to. */
#include "tests/cuda/comm_rounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "executor/cpu/cpu.h"

float results[MAX_RANKS][2 * ROUNDS * ALL];

static dtp_view flat(void *data, int64_t n)
{
    dtp_view v = {.data = data};
    v.local = (dtp_ttype){.dtype = DTP_F32, .rank = 1, .dims = {{-1, n}}};
    v.global[0] = n;
    return v;
}

dtp_status rounds_scale(dtp_backend *b, float *from, double factor, float *to, int64_t n,
                        dtp_err *err)
{
    const dtp_view in = flat(from, n), out = flat(to, n);
    return b->ops->scale(b, &in, factor, &out, err);
}

dtp_status rounds_on(dtp_comm *c, dtp_backend *b, rounds run, dtp_err *err)
{
    static const float zeros[2 * ROUNDS * ALL];
    float start[ALL], *m[BUFFERS] = {0};
    dtp_status s = DTP_OK;
    for (int64_t i = 0; i < ALL; i++) {
        start[i] = (float)((c->rank * 7 + i * 3) % 11 - 5);
    }
    for (int32_t k = 0; k < BUFFERS && s == DTP_OK; k++) {
        void *p = NULL;
        const size_t bytes = k < 6 ? sizeof start : sizeof zeros;
        s = b->ops->alloc(b, bytes, &p, err);
        m[k] = p;
        s = s == DTP_OK ? b->ops->upload(b, p, k < 6 ? start : zeros, bytes, err) : s;
    }
    for (dtp_mesh_set set = 1; set <= dtp_comm_all(c) && s == DTP_OK; set++) {
        s = c->transport.ops->prepare(&c->transport, set, err);
    }
    s = s == DTP_OK ? run(c, b, m, err) : s;
    s = s == DTP_OK ? b->ops->download(b, results[c->rank], m[6], sizeof zeros, err) : s;
    for (int32_t k = 0; k < BUFFERS; k++) {
        b->ops->free(b, m[k], k < 6 ? sizeof start : sizeof zeros);
    }
    return s;
}

static dtp_status run_on_cpu(dtp_comm *c, void *user, dtp_err *err)
{
    dtp_backend *b = NULL;
    DTP_TRY(dtp_backend_cpu_create(1, &b, err));
    const dtp_status s = (*(const ranks_body *)user)(c, b, err);
    dtp_backend_destroy(b);
    return s;
}

void rounds_expect(const char *mesh_text, ranks_body body, void *expected)
{
    dtp_mesh mesh;
    dtp_err err = {0};
    memset(results, 0, sizeof results);
    ranks_must(dtp_mesh_parse(mesh_text, &mesh, &err), &err);
    ranks_must(dtp_comm_sim_run(&mesh, run_on_cpu, &body, &err), &err);
    memcpy(expected, results, sizeof results);
}
