/* dtplan plan --compat auto_mtf: rules as Mesh TensorFlow's layout optimizer chooses them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/mtf/mtf_layout.h"
#include "tools/dtplan/plan.h"

static void write_compat(const dtp_mtf_problem *p, const dtp_mtf_solution *s, dtp_json_writer *w)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&p->mesh, mesh);
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "compat", "auto_mtf");
    dtp_json_write_string(w, "mesh", mesh);
    dtp_json_write_string(w, "rules", s->layout);
    dtp_json_write_int(w, "peak_bytes", s->peak);
    dtp_json_write_int(w, "objective", s->objective);
    dtp_json_write_int(w, "variables", p->n_variables);
    tool_report_end(w);
}

static dtp_status solve_compat(const plan_command *c, const dtp_mtf_graph *graph, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_mtf_problem *problem = NULL;
    dtp_mtf_solution solution;
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    DTP_TRY(dtp_mtf_problem_create(graph, &mesh, DTP_MTF_LIST, &problem, err));
    dtp_status s = dtp_mtf_solve(problem, &solution, err);
    dtp_json_writer w = {0};
    if (s == DTP_OK && c->json) {
        write_compat(problem, &solution, &w);
    } else if (s == DTP_OK) {
        dtp_strbuf_addf(&w.buf,
                        "rules: %s\npeak bytes in auto_mtf's model: %" PRId64
                        "\nobjective: %" PRId64 ", variables: %d\n",
                        solution.layout, solution.peak, solution.objective, problem->n_variables);
    }
    s = s == DTP_OK ? tool_put(&w.buf, err) : s;
    dtp_mtf_problem_destroy(problem);
    return s;
}

dtp_status plan_run_compat(const plan_command *c, dtp_err *err)
{
    dtp_graph *g = NULL;
    dtp_mtf_graph *graph = NULL;
    if (strcmp(c->compat, "auto_mtf") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--compat: '%s' is not auto_mtf or torch", c->compat);
    }
    if (c->source.mesh == NULL || c->output != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--compat auto_mtf needs --mesh and prints rules, it writes no plan file");
    }
    DTP_TRY(tool_read_graph(&c->source, &g, err));
    dtp_status s = dtp_mtf_from_graph(g, &graph, err);
    if (s == DTP_OK) {
        s = solve_compat(c, graph, err);
    }
    dtp_mtf_graph_destroy(graph);
    dtp_graph_destroy(g);
    return s;
}
