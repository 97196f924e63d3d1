#include "planner/candidate.h"

#include <string.h>

#include "core/rules_file.h"
#include "core/strbuf.h"

dtp_status dtp_additive_cost(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                             const dtp_redistributor *redistributor, int64_t *cost_ps, dtp_err *err)
{
    const dtp_lower_options plain = {.redistributor = redistributor};
    dtp_program *program = NULL;
    DTP_TRY(dtp_lower(g, s, &plain, &program, err));
    *cost_ps = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const dtp_instr *instr = &program->instrs[i];
        *cost_ps += dtp_instr_runs(program, instr) *
                    dtp_picoseconds(dtp_price_instr(pricer, program, instr));
    }
    dtp_program_destroy(program);
    return DTP_OK;
}

dtp_status dtp_sharding_predict(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_sharding *sharding, const dtp_lower_options *options,
                                dtp_prediction *predicted, int64_t *cost_ps, dtp_err *err)
{
    const dtp_redistributor *redistributor = options != NULL ? options->redistributor : NULL;
    dtp_program *program = NULL;
    DTP_TRY(dtp_lower(g, sharding, options, &program, err));
    dtp_status s = dtp_program_check(program, err);
    if (s == DTP_OK) {
        dtp_predict(pricer, program, predicted);
    }
    dtp_program_destroy(program);
    return s == DTP_OK && cost_ps != NULL
               ? dtp_additive_cost(g, pricer, sharding, redistributor, cost_ps, err)
               : s;
}

static dtp_status predict(const dtp_graph *g, const dtp_pricer *pricer, dtp_arena *scratch,
                          dtp_candidate *c, dtp_err *err)
{
    dtp_sharding sharding;
    DTP_TRY(dtp_sharding_from_rules(g, &pricer->mesh, &c->rules, false, scratch, &sharding, err));
    return dtp_sharding_predict(g, pricer, &sharding, NULL, &c->predicted,
                                c->cost_ps == 0 ? &c->cost_ps : NULL, err);
}

dtp_status dtp_candidate_predict(const dtp_graph *g, const dtp_pricer *pricer, dtp_arena *arena,
                                 dtp_candidate *candidate, dtp_err *err)
{
    dtp_err why;
    dtp_arena *scratch = dtp_arena_create();
    if (scratch == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a candidate");
    }
    dtp_status s = predict(g, pricer, scratch, candidate, &why);
    dtp_arena_destroy(scratch);
    candidate->legal = s == DTP_OK;
    candidate->why = s == DTP_OK ? NULL : dtp_arena_strdup(arena, why.msg);
    if (s != DTP_OK && !dtp_status_is_input(s)) {
        return DTP_FAIL(err, s, "%s", why.msg);
    }
    return DTP_OK;
}

/* ---- baselines ----------------------------------------------------------------------------------
 */

/* "batch:x;batch:y" for the first dim of the inputs; "" when there is none. */
static char *data_parallel(const dtp_graph *g, const dtp_mesh *mesh, dtp_arena *arena)
{
    dtp_strbuf b = {0};
    dtp_dim_id d = -1;
    for (int32_t t = 0; t < g->n_tensors && d < 0; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_INPUT && g->tensors[t].type.rank > 0) {
            d = g->tensors[t].type.dims[0].id;
        }
    }
    for (int32_t m = 0; m < mesh->n_dims && d >= 0; m++) {
        dtp_strbuf_addf(&b, "%s%s:%s", m > 0 ? ";" : "", dtp_dims_name(&g->dims, d),
                        mesh->names[m]);
    }
    char *text = b.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&b));
    dtp_strbuf_free(&b);
    return text;
}

static dtp_status add_baseline(const dtp_graph *g, const dtp_mesh *mesh, dtp_arena *arena,
                               const char *name, const char *text, int32_t *n, dtp_candidate *list,
                               dtp_err *err)
{
    int32_t at = 0;
    dtp_err why;
    while (at < *n && strcmp(list[at].name, name) != 0) {
        at++;
    }
    dtp_candidate c = {.name = name, .rules_text = text};
    dtp_status s = dtp_rules_parse(text, mesh, &g->dims, arena, &c.rules, &why);
    if (s != DTP_OK && !dtp_status_is_input(s)) {
        return DTP_FAIL(err, s, "%s", why.msg);
    }
    c.legal = s == DTP_OK;
    c.why = s == DTP_OK ? NULL : dtp_arena_strdup(arena, why.msg);
    list[at] = c;
    *n += at == *n ? 1 : 0;
    return DTP_OK;
}

dtp_status dtp_baselines_list(const dtp_graph *g, const dtp_mesh *mesh, const char *rules_file,
                              dtp_arena *arena, int32_t *n, dtp_candidate **out, dtp_err *err)
{
    const char **names = NULL, **rules = NULL;
    int32_t n_file = 0;
    if (rules_file != NULL) {
        DTP_TRY(dtp_rules_file_read(rules_file, mesh, arena, &n_file, &names, &rules, err));
    }
    const char *data = data_parallel(g, mesh, arena);
    dtp_candidate *list = dtp_arena_alloc(arena, (size_t)n_file + 2, sizeof *list);
    if (data == NULL || list == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for baselines");
    }
    *n = 0;
    DTP_TRY(add_baseline(g, mesh, arena, "replicated", "", n, list, err));
    DTP_TRY(add_baseline(g, mesh, arena, "data_parallel", data, n, list, err));
    for (int32_t i = 0; i < n_file; i++) {
        DTP_TRY(add_baseline(g, mesh, arena, names[i], rules[i], n, list, err));
    }
    *out = list;
    return DTP_OK;
}

dtp_status dtp_plan_add_baselines(dtp_plan *plan, int32_t n, const dtp_candidate *baselines,
                                  dtp_err *err)
{
    plan->baselines = dtp_arena_alloc(plan->arena, (size_t)n, sizeof *plan->baselines);
    if (plan->baselines == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for baselines");
    }
    for (int32_t i = 0; i < n; i++) {
        const dtp_candidate *b = &baselines[i];
        plan->baselines[plan->n_baselines++] = (dtp_baseline){.name = b->name,
                                                              .rules = b->rules_text,
                                                              .legal = b->legal,
                                                              .why = b->why,
                                                              .predicted = b->predicted};
    }
    return DTP_OK;
}
