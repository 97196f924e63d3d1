/* One graph as its program on virtual ranks against the graph on one device. */
#include "tests/support/verify_case.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spmd/program/program_check.h"
#include "dtp/device_mesh.h"

verify_case verify_case_init(const char *what)
{
    return (verify_case){.what = what, .backend = "cpu", .options = dtp_verify_options_init()};
}

typedef struct job {
    const verify_case *c;
    const dtp_graph *graph;
    const dtp_program *program;
    dtp_verify_result result; /* of rank 0 */
} job;

static dtp_status judge_values(const dtp_verify_result *r, dtp_err *err)
{
    for (int32_t i = 0; i < r->n; i++) {
        const dtp_verify_item *item = &r->items[i];
        if (!(item->rel_err <= dtp_verify_bound(r, item->kind))) {
            return DTP_FAIL(err, DTP_INTERNAL, "%s of '%s' at step %d: relative error %g of %g",
                            dtp_verify_kind_name(item->kind), item->name, item->step, item->rel_err,
                            item->ref_max);
        }
    }
    return r->n > 0 && r->pass
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "pass %d of %d items, largest relative error %g",
                          r->pass, r->n, r->max_rel_err);
}

static dtp_status judge_peaks(const dtp_program *p, const dtp_verify_result *r, dtp_err *err)
{
    if (r->predicted_peak_bytes != p->peak_bytes || r->ranks != dtp_mesh_ranks(&p->mesh)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%d ranks, a predicted peak of %" PRId64, r->ranks,
                        r->predicted_peak_bytes);
    }
    for (int32_t k = 0; k < r->ranks; k++) {
        if (r->peak_bytes[k] != p->peak_bytes) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "rank %d: a peak of %" PRId64 " bytes, predicted are %" PRId64, k,
                            r->peak_bytes[k], p->peak_bytes);
        }
    }
    return DTP_OK;
}

static dtp_status open_backend(const verify_case *c, dtp_backend **out, dtp_err *err)
{
    DTP_TRY(dtp_backend_create(c->backend, 1, out, err));
    return dtp_backend_add_kernels(*out, c->kernels, c->n_kernels, err);
}

static dtp_status verify_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    job *j = user;
    dtp_backend *backend = NULL, *reference = NULL;
    dtp_verify_result result = {0};
    dtp_verify_options options = j->c->options;
    dtp_status s = open_backend(j->c, &backend, err);
    if (s == DTP_OK && options.kept == NULL) {
        s = open_backend(j->c, &reference, err);
        options.reference = reference;
    }
    if (s == DTP_OK) {
        s = dtp_verify(j->graph, j->program, backend, comm, &options, &result, err);
    }
    s = s == DTP_OK ? judge_values(&result, err) : s;
    s = s == DTP_OK ? judge_peaks(j->program, &result, err) : s;
    if (comm->rank == 0) {
        j->result = result;
    } else {
        dtp_verify_result_free(&result);
    }
    dtp_backend_destroy(reference);
    dtp_backend_destroy(backend);
    return s;
}

dtp_verify_result verify_program(const dtp_graph *g, const dtp_program *p, const verify_case *c)
{
    job j = {.c = c, .graph = g, .program = p};
    dtp_err err = {0};
    dtp_status s = dtp_program_check(p, &err);
    s = s == DTP_OK ? dtp_comm_sim_run(&p->mesh, verify_rank, &j, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s: %s", c->what, err.msg);
    }
    return j.result;
}

dtp_verify_result verify_sharding_result(const dtp_graph *g, const dtp_sharding *s,
                                         const dtp_lower_options *lowering, const verify_case *c)
{
    dtp_lower_options options =
        lowering != NULL ? *lowering : dtp_lower_options_init(dtp_redistributor_generic());
    dtp_arena *arena = dtp_arena_create();
    dtp_program *program = NULL;
    dtp_err err = {0};
    assert_non_null(arena);
    dtp_status st = dtp_sharding_check(g, s, &err);
    st = st == DTP_OK ? dtp_graph_results(g, arena, &options.n_fetch, &options.fetch, &err) : st;
    st = st == DTP_OK ? dtp_lower(g, s, &options, &program, &err) : st;
    if (st != DTP_OK) {
        fail_msg("%s: %s", c->what, err.msg);
    }
    const dtp_verify_result result = verify_program(g, program, c);
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
    return result;
}

void verify_sharding(const dtp_graph *g, const dtp_sharding *s, const dtp_lower_options *lowering,
                     const verify_case *c)
{
    dtp_verify_result result = verify_sharding_result(g, s, lowering, c);
    dtp_verify_result_free(&result);
}
