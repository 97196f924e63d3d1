/* The tables of the page: alternatives of tensors, differences of two plans, a measured step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/units.h"
#include "core/files/file_in.h"
#include "planner/reports/explain.h"
#include "tools/dtplan/page/page.h"

enum { MOST_TENSORS = 48, MOST_ALTERNATIVES = 12, MOST_DIFFERENCES = 20, RUN_BYTES = 64 << 20 };

void page_row(dtp_strbuf *out, const char *tag, int32_t n, const char *const *cells)
{
    dtp_strbuf_add(out, "<tr>");
    for (int32_t i = 0; i < n; i++) {
        const char *of = i == 0 ? "th" : tag;
        dtp_strbuf_addf(out, "<%s>", of);
        svg_escaped(out, cells[i]);
        dtp_strbuf_addf(out, "</%s>", of);
    }
    dtp_strbuf_add(out, "</tr>\n");
}

static void begin_table(dtp_strbuf *out, const char *caption)
{
    dtp_strbuf_add(out, "<table><caption>");
    svg_escaped(out, caption);
    dtp_strbuf_add(out, "</caption>\n");
}

/* ---- explain ---- */

static dtp_quantity more(int64_t ps)
{
    return dtp_seconds_more(1e-12 * (double)ps);
}

/* A tensor that opens to its alternatives. */
static dtp_status put_explained(const page_input *in, dtp_tensor_id t, dtp_strbuf *out,
                                dtp_err *err)
{
    const dtp_graph *g = in->job->graph;
    const dtp_layout *layout = &in->job->sharding.layouts[t];
    char text[DTP_LAYOUT_TEXT_BYTES];
    dtp_explanation x;
    const dtp_explain_request request = {.graph = g,
                                         .machine = in->machine,
                                         .plan = in->plan,
                                         .plan_is_current = in->current,
                                         .name = g->tensors[t].name};
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? dtp_explain(&request, arena, &x, err) : s;
    if (s == DTP_OK) {
        dtp_layout_print(layout, &in->plan->mesh, &g->tensors[t].type, &g->dims, text);
        dtp_strbuf_add(out,
                       "<details class=\"tensor\"><summary><svg class=\"drawing\" width=\"48\" "
                       "height=\"32\" viewBox=\"0 0 48 32\" aria-hidden=\"true\">");
        page_layout(layout, &in->plan->mesh, (const double[]){1.0, 1.0, 46.0, 30.0}, out);
        dtp_strbuf_add(out, "</svg><b>");
        svg_escaped(out, g->tensors[t].name);
        dtp_strbuf_add(out, "</b> <span>");
        svg_escaped(out, text);
        dtp_strbuf_add(out, "</span></summary>\n");
        if (x.instances > 1) {
            dtp_strbuf_addf(out,
                            "<p>%d instances decide together; differences are those of all of "
                            "them.</p>\n",
                            x.instances);
        }
        begin_table(out, "Difference of the additive cost if it were");
        PAGE_ROW(out, "th", "layout", "alone", "compute", "inside ops", "moving", "memory",
                 "at least", "");
        for (int32_t i = 0; i < x.n && i < MOST_ALTERNATIVES; i++) {
            const dtp_alternative *a = &x.alternatives[i];
            const bool alone = a->priced && !a->apart;
            const char *note = a->chosen             ? "chosen"
                               : a->excluded != NULL ? a->excluded
                               : a->apart            ? "something else changes with it"
                               : !a->alone_fits      ? "alone it exceeds the memory limit"
                               : a->at_least_is_best && !a->none ? "exact"
                                                                 : "";
            PAGE_ROW(out, "td", a->text, alone ? more(dtp_cost_split_sum(&a->alone)).text : "",
                     alone ? more(a->alone.compute).text : "",
                     alone ? more(a->alone.communication).text : "",
                     alone ? more(a->alone.redistribution).text : "",
                     alone ? dtp_bytes_more((double)a->alone_memory).text : "",
                     a->priced && !a->none ? more(a->at_least).text : "", note);
        }
        dtp_strbuf_add(out, "</table></details>\n");
    }
    dtp_arena_destroy(arena);
    return s;
}

dtp_status page_explain(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const dtp_graph *g = in->job->graph;
    const uint32_t traits = DTP_OP_CONTRACTION | DTP_OP_ATTENTION | DTP_OP_LOOKUP;
    bool *seen;
    int32_t shown = 0;
    dtp_err why = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? DTP_NEW(arena, seen, g->n_tensors + 1, err) : s;
    for (dtp_node_id n = 0; s == DTP_OK && n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t k = 0; s == DTP_OK && k <= node->n_in; k++) {
            const dtp_tensor_id t =
                k < node->n_in ? dtp_graph_param_of(g, node->in[k]) : node->out[0];
            if (page_lists(g, n) && (node->op->flags & traits) != 0 && t >= 0 && !seen[t] &&
                shown < MOST_TENSORS) {
                seen[t] = true;
                shown++;
                s = put_explained(in, t, out, &why);
            }
        }
    }
    if (dtp_status_is_input(s) || s == DTP_UNSUPPORTED) { /* a plan that has no explanation */
        dtp_strbuf_add(out, "<p>Alternatives are not known: ");
        svg_escaped(out, why.msg);
        dtp_strbuf_add(out, "</p>\n");
        s = DTP_OK;
    }
    dtp_arena_destroy(arena);
    return s == DTP_OK || why.msg[0] == '\0' ? s : DTP_FAIL(err, s, "%s", why.msg);
}

/* ---- diff ---- */

static void put_pair(dtp_strbuf *out, const char *name, double a_s, double b_s)
{
    PAGE_ROW(out, "td", name, dtp_seconds(a_s).text, dtp_seconds(b_s).text,
             dtp_seconds_more(b_s - a_s).text);
}

/* What differs most, of tensors or of nodes. */
static dtp_status put_differences(const dtp_plan_diff *d, bool nodes, dtp_arena *arena,
                                  dtp_strbuf *out, dtp_err *err)
{
    const int32_t n = nodes ? d->n_nodes : d->n_tensors;
    int32_t *order;
    dtp_strbuf caption = {0};
    DTP_TRY(dtp_plan_diff_order(d, nodes, arena, &order, err));
    dtp_strbuf_addf(&caption, "%d %s differ%s", n, nodes ? "nodes" : "tensors",
                    n > MOST_DIFFERENCES ? ", those that differ most" : "");
    begin_table(out, dtp_strbuf_text(&caption));
    dtp_strbuf_free(&caption);
    PAGE_ROW(out, "th", nodes ? "node" : "tensor", "this plan", "the other",
             nodes ? "cost" : "at the peak");
    for (int32_t i = 0; i < n && i < MOST_DIFFERENCES; i++) {
        const dtp_diff_tensor *t = nodes ? NULL : &d->tensors[order[i]];
        const dtp_diff_node *k = nodes ? &d->nodes[order[i]] : NULL;
        const char *const *says = nodes ? k->strategy : t->layout;
        PAGE_ROW(out, "td", nodes ? k->name : t->name, says[0] != NULL ? says[0] : "(not there)",
                 says[1] != NULL ? says[1] : "(not there)",
                 nodes
                     ? more(dtp_cost_split_sum(&k->cost[1]) - dtp_cost_split_sum(&k->cost[0])).text
                     : dtp_bytes_more((double)(t->peak_bytes[1] - t->peak_bytes[0])).text);
    }
    dtp_strbuf_add(out, "</table>\n");
    return DTP_OK;
}

dtp_status page_diff(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const dtp_plan_diff *d = in->diff;
    const dtp_diff_side *a = &d->side[0], *b = &d->side[1];
    char meshes[2][DTP_MESH_TEXT_BYTES];
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    dtp_mesh_print(&in->plan->mesh, meshes[0]);
    dtp_mesh_print(&in->against->mesh, meshes[1]);
    begin_table(out, "Predicted on the same machine");
    PAGE_ROW(out, "th", "", "this plan", in->against_file, "difference");
    PAGE_ROW(out, "td", "mesh", meshes[0], meshes[1], "");
    put_pair(out, "step", a->predicted.step_time_s, b->predicted.step_time_s);
    put_pair(out, "exposed communication", a->predicted.exposed_comm_s,
             b->predicted.exposed_comm_s);
    put_pair(out, "compute", 1e-12 * (double)a->cost.compute, 1e-12 * (double)b->cost.compute);
    put_pair(out, "communication in ops", 1e-12 * (double)a->cost.communication,
             1e-12 * (double)b->cost.communication);
    put_pair(out, "redistribution", 1e-12 * (double)a->cost.redistribution,
             1e-12 * (double)b->cost.redistribution);
    PAGE_ROW(out, "td", "peak", dtp_byte_count((double)a->predicted.peak_bytes).text,
             dtp_byte_count((double)b->predicted.peak_bytes).text,
             dtp_bytes_more((double)(b->predicted.peak_bytes - a->predicted.peak_bytes)).text);
    dtp_strbuf_add(out, "</table>\n");
    s = s == DTP_OK ? put_differences(d, false, arena, out, err) : s;
    s = s == DTP_OK ? put_differences(d, true, arena, out, err) : s;
    dtp_arena_destroy(arena);
    return s;
}

/* ---- measured ---- */

/* A number of an object; NaN where it is null or not there. */
static dtp_status read_figure(const dtp_json *object, const char *key, double *out, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(object, key);
    *out = NAN;
    return v == NULL || dtp_json_kind_of(v) == DTP_JSON_NULL ? DTP_OK
                                                             : dtp_json_double(v, out, err);
}

/* Checks that the report is that of a run of the plan, on its mesh: a list of [name, size]. */
static dtp_status read_run(const dtp_json *root, const dtp_plan *plan, dtp_arena *arena,
                           page_run *out, dtp_err *err)
{
    const char *format, *model, *texts[2];
    const dtp_json *mesh, *measured;
    DTP_TRY(dtp_json_get_string(root, "format", &format, err));
    if (strcmp(format, "dtp.report/1") != 0) {
        return dtp_json_fail(root, err, "'%.80s' is no report of dtrun run (dtp.report/1)", format);
    }
    DTP_TRY(dtp_json_get_string(root, "model", &model, err));
    if (strcmp(model, plan->model) != 0) {
        return dtp_json_fail(root, err, "a run of model '%.80s', the plan is for '%.80s'", model,
                             plan->model);
    }
    DTP_TRY(dtp_json_get_kind(root, "mesh", DTP_JSON_ARRAY, &mesh, err));
    dtp_mesh all; /* of all stages */
    DTP_TRY(dtp_stages_mesh(&plan->mesh, plan->variant.stages.n > 1 ? plan->variant.stages.n : 1,
                            &all, err));
    bool same = dtp_json_size(mesh) == all.n_dims;
    for (int32_t m = 0; same && m < all.n_dims; m++) {
        const char *name;
        int64_t size;
        const dtp_json *pair = dtp_json_at(mesh, m);
        if (dtp_json_kind_of(pair) != DTP_JSON_ARRAY || dtp_json_size(pair) != 2) {
            return dtp_json_fail(pair, err, "expected a pair of name and size");
        }
        DTP_TRY(dtp_json_string(dtp_json_at(pair, 0), &name, err));
        DTP_TRY(dtp_json_int(dtp_json_at(pair, 1), 1, INT32_MAX, &size, err));
        same = strcmp(name, all.names[m]) == 0 && size == all.sizes[m];
    }
    if (!same) {
        char text[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&all, text);
        return dtp_json_fail(mesh, err, "the run was not on mesh '%s' of the plan", text);
    }
    DTP_TRY(dtp_json_get_string(root, "backend", &texts[0], err));
    DTP_TRY(dtp_json_get_string(root, "comm", &texts[1], err));
    DTP_TRY(dtp_json_get_int(root, "steps", 0, INT64_MAX, &out->steps, err));
    DTP_TRY(dtp_json_get_kind(root, "measured", DTP_JSON_OBJECT, &measured, err));
    DTP_TRY(read_figure(measured, "step_time_s", &out->step_time_s, err));
    DTP_TRY(read_figure(measured, "compute_s", &out->compute_s, err));
    DTP_TRY(read_figure(measured, "exposed_comm_s", &out->exposed_comm_s, err));
    DTP_TRY(read_figure(measured, "peak_bytes", &out->peak_bytes, err));
    out->backend = dtp_arena_strdup(arena, texts[0]);
    out->comm = dtp_arena_strdup(arena, texts[1]);
    return DTP_MEMORY(err, out->backend, out->comm);
}

dtp_status page_run_read(const char *file, const dtp_plan *plan, dtp_arena *arena, page_run *out,
                         dtp_err *err)
{
    char *text = NULL;
    size_t n;
    dtp_json_doc *doc = NULL;
    *out = (page_run){.file = file};
    DTP_TRY(dtp_file_read(file, RUN_BYTES, &text, &n, err));
    dtp_status s = dtp_json_parse(file, text, n, &doc, err);
    s = s == DTP_OK ? read_run(dtp_json_root(doc), plan, arena, out, err) : s;
    dtp_json_destroy(doc);
    free(text);
    return s;
}

dtp_status page_measured(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const page_run *r = in->run;
    const dtp_prediction *p = &in->job->predicted;
    const struct {
        const char *name;
        double predicted, measured;
    } rows[] = {{"step", p->step_time_s, r->step_time_s},
                {"compute", p->compute_s, r->compute_s},
                {"exposed communication", p->exposed_comm_s, r->exposed_comm_s},
                {"peak", (double)p->peak_bytes, r->peak_bytes}};
    dtp_strbuf caption = {0};
    (void)err;
    dtp_strbuf_addf(&caption, "Medians of %lld steps, backend %s, ranks %s (%s)",
                    (long long)r->steps, r->backend, r->comm, r->file);
    begin_table(out, dtp_strbuf_text(&caption));
    dtp_strbuf_free(&caption);
    PAGE_ROW(out, "th", "", "predicted", "measured", "measured / predicted");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bool known = isfinite(rows[i].measured), bytes = i == 3;
        dtp_strbuf ratio = {0};
        if (known && rows[i].predicted > 0.0) {
            dtp_strbuf_addf(&ratio, "%.3f", rows[i].measured / rows[i].predicted);
        }
        PAGE_ROW(
            out, "td", rows[i].name, (bytes ? dtp_byte_count : dtp_seconds)(rows[i].predicted).text,
            known ? (bytes ? dtp_byte_count : dtp_seconds)(rows[i].measured).text : "not measured",
            dtp_strbuf_text(&ratio));
        dtp_strbuf_free(&ratio);
    }
    dtp_strbuf_add(out, "</table>\n");
    return DTP_OK;
}
