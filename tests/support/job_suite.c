/* Whole jobs on a small MLP: the same checks under sim and mpi. */
#include "tests/support/job_suite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "executor/comm/communicator_internal.h"
#include "executor/device/convert.h"
#include "tools/run_report.h"
#include "executor/verify/verify.h"
#include "spmd/lower/lower.h"
#include "spmd/lower/overlap.h"
#include "dtp/device_mesh.h"
#include "tests/support/spans.h"

static const char head[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"tiny_mlp\","
    " \"dims\": {\"batch\": 8, \"pixels\": 12, \"hidden\": 6, \"classes\": 4},"
    " \"inputs\": {\"images\": {\"dims\": [\"batch\", \"pixels\"], \"dtype\": \"f32\"},"
    "  \"labels\": {\"dims\": [\"batch\"], \"dtype\": \"i32\", \"below\": \"classes\"}},"
    " \"params\": {\"w1\": {\"dims\": [\"pixels\", \"hidden\"], \"init\": {\"normal\": 0.3}},"
    "  \"b1\": {\"dims\": [\"hidden\"], \"init\": \"zeros\"},"
    "  \"w2\": {\"dims\": [\"hidden\", \"classes\"], \"init\": {\"normal\": 0.3}}},"
    " \"nodes\": [{\"id\": \"h\", \"op\": \"einsum\", \"in\": [\"images\", \"w1\"], \"out\": "
    "[\"batch\", "
    "\"hidden\"]},"
    "  {\"id\": \"hb\", \"op\": \"add\", \"in\": [\"h\", \"b1\"]},"
    "  {\"id\": \"a\", \"op\": \"gelu\", \"in\": [\"hb\"]},";
static const char with_dropout[] =
    "  {\"id\": \"d\", \"op\": \"dropout\", \"in\": [\"a\"], \"rate\": 0.25},"
    "  {\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"d\", \"w2\"], \"out\": [\"batch\", "
    "\"classes\"]},";
static const char without_dropout[] = "  {\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"a\", "
                                      "\"w2\"], \"out\": [\"batch\", \"classes\"]},";
static const char tail[] = "  {\"id\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"logits\", "
                           "\"labels\"], \"over\": \"classes\", "
                           "\"reduce\": \"mean\"}],"
                           " \"outputs\": [\"logits\"],"
                           " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"adamw\": {\"lr\": "
                           "0.05, \"weight_decay\": 0.01}}}}";

dtp_status job_graph(bool dropout, dtp_graph **out, dtp_err *err)
{
    dtp_strbuf text = {0};
    dtp_strbuf_add(&text, head);
    dtp_strbuf_add(&text, dropout ? with_dropout : without_dropout);
    dtp_strbuf_add(&text, tail);
    dtp_status status =
        dtp_model_parse("tiny_mlp", dtp_strbuf_text(&text), text.len, NULL, out, err);
    dtp_strbuf_free(&text);
    return status;
}

dtp_status job_lower(const dtp_graph *g, const char *mesh, const char *rules,
                     const dtp_target *target, job_program *out, dtp_err *err)
{
    dtp_mesh m;
    dtp_layout_rules r;
    dtp_sharding s;
    dtp_lower_options o = dtp_lower_options_init(dtp_redistributor_generic());
    o.target = target;
    *out = (job_program){.arena = dtp_arena_create()};
    DTP_TRY(dtp_mesh_parse(mesh, &m, err));
    DTP_TRY(dtp_layout_rules_parse(rules, &m, &g->dims, out->arena, &r, err));
    DTP_TRY(dtp_sharding_from_rules(g, &m, &r, true, out->arena, &s, err));
    DTP_TRY(dtp_graph_results(g, out->arena, &o.n_fetch, &o.fetch, err));
    DTP_TRY(dtp_lower(g, &s, &o, &out->program, err));
    return dtp_program_check(out->program, err);
}

void job_program_free(job_program *p)
{
    dtp_program_destroy(p->program);
    dtp_arena_destroy(p->arena);
}

static dtp_status check_memory(const dtp_session *s, const dtp_program *p, dtp_err *err)
{
    int64_t allocated, touched;
    dtp_session_peak(s, &allocated, &touched);
    if (allocated != p->peak_bytes || touched != p->peak_bytes) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "planned %" PRId64 " bytes, allocated %" PRId64 ", touched %" PRId64,
                        p->peak_bytes, allocated, touched);
    }
    return DTP_OK;
}

static dtp_status read_params(dtp_session *s, const job *j, dtp_comm *comm, dtp_err *err)
{
    float *at = j->params;
    for (dtp_tensor_id t = 0; t < j->g->n_tensors; t++) {
        if (j->g->tensors[t].kind == DTP_TENSOR_PARAM) {
            DTP_TRY(dtp_session_gather(s, t, comm->rank == 0 ? at : NULL, err));
            at += dtp_ttype_elems(&j->g->tensors[t].type);
        }
    }
    return DTP_OK;
}

/* The report's figures are there and agree with the session. */
static dtp_status check_report(const dtp_report *r, dtp_err *err)
{
    dtp_strbuf json = {0}, text = {0};
    char line[200];
    dtp_report_progress(r, r->n_steps + 1, line, sizeof line);
    dtp_report_text(r, &text);
    DTP_TRY(dtp_report_json(r, true, &json, err));
    bool ok = strstr(dtp_strbuf_text(&json), "\"format\": \"dtp.report/1\"") != NULL &&
              strstr(dtp_strbuf_text(&json), "\"einsum_unique\"") != NULL &&
              strstr(dtp_strbuf_text(&text), "(equal)") != NULL &&
              (strstr(line, "samples/s") != NULL || strstr(line, "tokens/s") != NULL);
    dtp_strbuf_free(&json);
    dtp_strbuf_free(&text);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "the report lacks fields: %s", line);
}

static dtp_status train(dtp_session *s, const job *j, dtp_comm *comm, dtp_report *report,
                        dtp_err *err)
{
    for (int32_t i = 0; i < j->steps; i++) {
        dtp_step_result result;
        DTP_TRY(dtp_session_step(s, &result, err));
        DTP_TRY(dtp_report_add(report, &result, err));
        if (!spans_are_in_order(dtp_session_runner(s), result.times.total_s)) {
            return DTP_FAIL(err, DTP_INTERNAL, "step %d: instructions are not in order", i);
        }
        if (comm->rank == 0) {
            j->losses[i] = result.loss;
        }
    }
    DTP_TRY(check_memory(s, dtp_runner_program(dtp_session_runner(s)), err));
    DTP_TRY(dtp_report_finish(report, s, err));
    DTP_TRY(check_report(report, err));
    if (j->before_save != NULL) {
        DTP_TRY(comm->ops->barrier(comm, err));
        if (comm->rank == 0) {
            j->before_save(j);
        }
        DTP_TRY(comm->ops->barrier(comm, err));
    }
    if (j->save != NULL) {
        DTP_TRY(dtp_session_save(s, j->save, err));
    }
    return j->params != NULL ? read_params(s, j, comm, err) : DTP_OK;
}

static dtp_status with_session(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                               const job *j, dtp_err *err)
{
    dtp_session_options o = dtp_session_options_init();
    dtp_session *s = NULL;
    dtp_report report = {0};
    o.seed = 11;
    o.load = j->load;
    o.save = j->save;
    o.keep = j->keep;
    o.allow_nan = j->allow_nan;
    o.n_feeds = j->n_feeds;
    o.feeds = j->feeds;
    o.profile = true;
    DTP_TRY(dtp_session_create(p, backend, comm, &o, &s, err));
    dtp_status status = dtp_report_start(&report, s, j->backend, comm->ops->name, NULL, err);
    if (status == DTP_OK) {
        status = train(s, j, comm, &report, err);
    }
    dtp_report_free(&report);
    dtp_session_destroy(s);
    return status;
}

dtp_status job_run(dtp_comm *comm, void *user, dtp_err *err)
{
    const job *j = user;
    job_program p = {0};
    dtp_backend *backend = NULL;
    dtp_status status = job_lower(j->g, j->mesh, j->rules,
                                  j->target != NULL ? j->target : &dtp_target_cpu, &p, err);
    if (status == DTP_OK && j->depth > 0) {
        const dtp_overlap overlap = {.depth = j->depth};
        status = dtp_program_overlap(p.program, &overlap, false, err);
    }
    if (status == DTP_OK) {
        status = dtp_backend_create(j->backend, 1, &backend, err);
    }
    if (status == DTP_OK && j->late) {
        dtp_comm__sim_late(comm, true);
    }
    if (status == DTP_OK) {
        status = with_session(p.program, backend, comm, j, err);
    }
    dtp_backend_destroy(backend);
    job_program_free(&p);
    return status;
}

static dtp_status verify_with(const job *j, const dtp_program *p, dtp_backend *backend,
                              dtp_backend *reference, dtp_comm *comm, dtp_err *err)
{
    dtp_verify_options o = dtp_verify_options_init();
    dtp_verify_result r;
    o.reference = reference;
    o.seed = 11;
    dtp_status status = dtp_verify(j->g, p, backend, comm, &o, &r, err);
    for (int32_t i = 0; status == DTP_OK && i < r.n; i++) {
        if (!(r.items[i].rel_err <= dtp_verify_bound(&r, r.items[i].kind))) {
            status = DTP_FAIL(err, DTP_INTERNAL, "%s '%s' differs by %g",
                              dtp_verify_kind_name(r.items[i].kind), r.items[i].name,
                              r.items[i].rel_err);
        }
    }
    if (status == DTP_OK &&
        (!r.pass || r.n != 9 + 1 + 1 + 3 + 9 || r.peak_bytes[comm->size - 1] != p->peak_bytes)) {
        status = DTP_FAIL(err, DTP_INTERNAL, "pass %d with %d items, peak %" PRId64 " of %" PRId64,
                          r.pass, r.n, r.peak_bytes[comm->size - 1], p->peak_bytes);
    }
    dtp_strbuf json = {0};
    if (status == DTP_OK) {
        const dtp_verified what = {.model = j->g, .mesh = &p->mesh, .target = p->target->name};
        status = dtp_verify_json(&r, &what, &json, err);
    }
    dtp_strbuf_free(&json);
    dtp_verify_result_free(&r);
    return status;
}

dtp_status job_verify(dtp_comm *comm, void *user, dtp_err *err)
{
    const job *j = user;
    job_program p = {0};
    dtp_backend *backend = NULL, *reference = NULL;
    dtp_status status = job_lower(j->g, j->mesh, j->rules,
                                  j->target != NULL ? j->target : &dtp_target_cpu, &p, err);
    if (status == DTP_OK) {
        status = dtp_backend_create(j->backend, 1, &backend, err);
    }
    if (status == DTP_OK) {
        status = dtp_backend_create(j->backend, 1, &reference, err);
    }
    if (status == DTP_OK) {
        status = verify_with(j, p.program, backend, reference, comm, err);
    }
    dtp_backend_destroy(backend);
    dtp_backend_destroy(reference);
    job_program_free(&p);
    return status;
}
