/* The page: headline, sections with drawings and tables, styles and script in one HTML file. */
#include "tools/dtplan/page/page.h"

#include <string.h>

#include "core/base/units.h"
#include "planner/reports/words.h"
#include "tools/job.h"

/* Made from the files of the same names in this folder (cmake/Texts.cmake). */
extern const char page_drawing_css[], page_page_css[], page_page_js[];

typedef dtp_status (*page_part)(const page_input *in, dtp_strbuf *out, dtp_err *err);

/* ---- words ---- */

/* Paragraphs of plain text: the first line of each is its heading. */
static dtp_status put_words(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    dtp_strbuf text = {0}, line = {0};
    bool inside = false, heading = true;
    dtp_status s = dtp_words_job_print(in->job, in->plan, in->machine, &text, err);
    for (const char *at = dtp_strbuf_text(&text); s == DTP_OK && *at != '\0';) {
        const size_t n = strcspn(at, "\n");
        line.len = 0;
        dtp_strbuf_addf(&line, "%.*s", (int)n, at);
        at += n + (at[n] == '\n' ? 1 : 0);
        if (n == 0) {
            dtp_strbuf_add(out, inside ? "</pre>\n" : "");
            inside = false;
            heading = true;
            continue;
        }
        dtp_strbuf_add(out, heading ? "<h3>" : inside ? "\n" : "<pre>");
        inside = !heading;
        svg_escaped(out, dtp_strbuf_text(&line));
        dtp_strbuf_add(out, heading ? "</h3>\n" : "");
        heading = false;
    }
    dtp_strbuf_add(out, inside ? "</pre>\n" : "");
    out->failed = out->failed || text.failed || line.failed;
    dtp_strbuf_free(&line);
    dtp_strbuf_free(&text);
    return s;
}

/* ---- sections ---- */

/* In the order of the page. */
static const struct page_section {
    const char *name, *title, *about; /* about: HTML */
    page_part put;
    bool drawing; /* that --svg gives */
} sections[] = {
    {"words", "What the plan does", "", put_words, false},
    {"stages", "The stages, by time",
     "<p>A row for each stage; where it is empty the stage waits for others. Under the "
     "pointer a section says its time; thin bars below are what is sent.</p>\n",
     page_stages, true},
    {"timeline", "The step, by time",
     "<p>Above: the whole step; the height is the share of the time in which a rank computes or "
     "communicates. Below: one instance of each block, instruction by instruction. Tab goes to one "
     "of these; + and − zoom, arrows move, 0 shows all of it. Under the pointer an instruction "
     "says "
     "its time, size and layouts.</p>\n",
     page_timeline, true},
    {"memory", "Memory over the step",
     "<p>What a rank holds at every time, and the most of it.</p>\n", page_memory, true},
    {"baselines", "Beside usual layouts",
     "<p>The same model on the same machine, with layouts that people write by hand.</p>\n",
     page_baselines, true},
    {"pareto", "Memory against time", "", page_pareto, true},
    {"blocks", "Layouts, block by block", "", page_blocks, true},
    {"explain", "Why a tensor lies as it does",
     "<p>Parameters, and what products and attention make. Each opens to its alternatives: what "
     "they cost when only this layout changes (alone), and at least when all else is chosen "
     "anew.</p>\n<p><label>Names with <input id=\"filter\" type=\"search\" autocomplete=\"off\">"
     "</label></p>\n",
     page_explain, false},
    {"diff", "Beside another plan", "", page_diff, false},
    {"measured", "Predicted beside measured", "", page_measured, false},
};

enum { N_SECTIONS = sizeof sections / sizeof sections[0] };

static bool is_there(const page_input *in, const struct page_section *s)
{
    return (s->put != page_diff || in->diff != NULL) &&
           (s->put != page_measured || in->run != NULL) &&
           (s->put != (in->job->pipeline != NULL ? page_explain : page_stages));
}

/* ---- headline ---- */

static void put_card(dtp_strbuf *out, const char *name, const char *value, const char *note)
{
    dtp_strbuf_addf(out, "<div class=\"card\"><dt>%s</dt><dd><b>", name);
    svg_escaped(out, value);
    dtp_strbuf_add(out, "</b>");
    if (note[0] != '\0') {
        dtp_strbuf_add(out, "<span>");
        svg_escaped(out, note);
        dtp_strbuf_add(out, "</span>");
    }
    dtp_strbuf_add(out, "</dd></div>\n");
}

static void put_headline(const page_input *in, dtp_strbuf *out)
{
    const dtp_prediction *p = &in->job->predicted;
    const dtp_plan *plan = in->plan;
    const char *rates = tool_rates(in->machine, plan);
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_strbuf text = {0}, note = {0};
    dtp_mesh_print(&plan->mesh, mesh);
    dtp_strbuf_addf(&text, "%s on %s, ", plan->model, in->machine->name);
    const int32_t n_stages = dtp_graph_stages(in->job->graph);
    const int32_t ranks = n_stages * dtp_mesh_ranks(&plan->mesh);
    if (n_stages > 1) {
        dtp_strbuf_addf(&text, "%s stages of ", dtp_stages_print(&plan->variant.stages).text);
    }
    if (mesh[0] == '\0') {
        dtp_strbuf_add(&text, "one device");
    } else {
        dtp_strbuf_addf(&text, "mesh %s, %d ranks", mesh, ranks);
    }
    dtp_strbuf_add(out, "<header>\n<h1>");
    svg_escaped(out, dtp_strbuf_text(&text));
    dtp_strbuf_add(out, "</h1>\n<p>A plan of dtplan, ");
    dtp_strbuf_addf(out, "%s mode, for target ", plan->rules_mode ? "rules" : "tensor");
    svg_escaped(out, plan->target);
    dtp_strbuf_addf(out, ". Times are predicted%s%s.%s</p>\n<dl class=\"cards\">\n",
                    rates != NULL ? ", rates: " : "", rates != NULL ? rates : "",
                    n_stages > 1
                        ? " Of a plan with stages the page does not say what other layouts "
                          "of a tensor cost, nor what fits other memory limits."
                        : "");
    put_card(out, "step", dtp_seconds(p->step_time_s).text, "");
    if (p->tokens_per_s > 0.0) {
        text.len = 0;
        dtp_strbuf_addf(&text, "%.0f tokens/s", p->tokens_per_s);
        dtp_strbuf_addf(&note, "%.0f per device", p->tokens_per_s / ranks);
        put_card(out, "throughput", dtp_strbuf_text(&text), dtp_strbuf_text(&note));
    }
    if (p->mfu > 0.0) {
        text.len = 0;
        dtp_strbuf_addf(&text, "%.1f %%", 100.0 * p->mfu);
        put_card(out, "MFU", dtp_strbuf_text(&text), "");
    }
    note.len = 0;
    if (plan->memory_limit_bytes > 0) {
        dtp_strbuf_addf(&note, "limit %s", dtp_byte_count((double)plan->memory_limit_bytes).text);
    }
    if (n_stages > 1) {
        dtp_strbuf_addf(&note, "%sof stage %d", note.len > 0 ? ", " : "", p->peak_stage);
    }
    put_card(out, "peak memory of a rank", dtp_byte_count((double)p->peak_bytes).text,
             note.len > 0 ? dtp_strbuf_text(&note) : "");
    note.len = 0;
    dtp_strbuf_addf(&note, "of %s", dtp_seconds(p->comm_s).text);
    if (n_stages > 1) {
        dtp_strbuf bubble = {0};
        dtp_strbuf_addf(&bubble, "imbalance %s, exposed sends %s", dtp_seconds(p->imbalance_s).text,
                        dtp_seconds(p->exposed_sends_s).text);
        put_card(out, "bubble", dtp_seconds(p->bubble_s).text, dtp_strbuf_text(&bubble));
        dtp_strbuf_free(&bubble);
    }
    put_card(out, "exposed communication", dtp_seconds(p->exposed_comm_s).text,
             dtp_strbuf_text(&note));
    if (plan->certificate.bound > 0) {
        text.len = note.len = 0;
        dtp_strbuf_addf(&text, "%.2f %%", 100.0 * plan->certificate.gap);
        put_card(out, "gap of the certificate", dtp_strbuf_text(&text),
                 dtp_cert_status_name(plan->certificate.status));
    }
    dtp_strbuf_add(out, "</dl>\n</header>\n");
    out->failed = out->failed || text.failed || note.failed;
    dtp_strbuf_free(&text);
    dtp_strbuf_free(&note);
}

/* ---- all of it ---- */

dtp_status page_write(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    dtp_strbuf_add(out,
                   "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                   "<link rel=\"icon\" href=\"data:,\">\n<title>");
    svg_escaped(out, in->plan->model);
    dtp_strbuf_addf(out, ": plan</title>\n<style>\n%s%s</style>\n</head>\n<body>\n",
                    page_drawing_css, page_page_css);
    put_headline(in, out);
    dtp_strbuf_add(out, "<nav aria-label=\"sections\">\n");
    for (int32_t i = 0; i < N_SECTIONS; i++) {
        if (is_there(in, &sections[i])) {
            dtp_strbuf_addf(out, "<a href=\"#%s\">%s</a>\n", sections[i].name, sections[i].title);
        }
    }
    dtp_strbuf_add(out, "</nav>\n<main>\n");
    for (int32_t i = 0; i < N_SECTIONS; i++) {
        const struct page_section *part = &sections[i];
        if (!is_there(in, part)) {
            continue;
        }
        dtp_strbuf_addf(out,
                        "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h2 "
                        "id=\"%s-title\">%s</h2>\n%s",
                        part->name, part->name, part->name, part->title, part->about);
        if (part->put == page_pareto && in->pareto == NULL && in->job->pipeline == NULL) {
            dtp_strbuf_add(out, "<p>The plans of the Pareto front are here with <code>dtplan "
                                "report --points 6</code>, which plans for as many memory "
                                "limits.</p>\n");
        }
        if (part->put == page_baselines && in->plan->n_baselines == 0) {
            dtp_strbuf_add(out, "<p>The plan was made without baselines.</p>\n");
        }
        dtp_strbuf_add(out, part->drawing ? "<div class=\"scroll\" tabindex=\"-1\">\n" : "");
        DTP_TRY(part->put(in, out, err));
        dtp_strbuf_add(out, part->drawing ? "</div>\n</section>\n" : "</section>\n");
    }
    dtp_strbuf_addf(out, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", page_page_js);
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for a report") : DTP_OK;
}

dtp_status page_drawing(const page_input *in, const char *name, dtp_strbuf *out, dtp_err *err)
{
    dtp_strbuf text = {0};
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < N_SECTIONS && s == DTP_OK; i++) {
        if (sections[i].drawing && is_there(in, &sections[i]) &&
            strcmp(sections[i].name, name) == 0) {
            s = sections[i].put(in, &text, err);
        }
    }
    /* The styles stand behind the first line, the tag of the drawing. */
    const char *all = dtp_strbuf_text(&text);
    const size_t n = strcspn(all, "\n");
    if (s == DTP_OK && all[n] != '\0') {
        dtp_strbuf_addf(out, "%.*s\n<style>\n%s</style>\n%s", (int)n, all, page_drawing_css,
                        all + n + 1);
    }
    out->failed = out->failed || text.failed;
    dtp_strbuf_free(&text);
    return s != DTP_OK    ? s
           : out->failed  ? DTP_FAIL(err, DTP_NOMEM, "no memory for a drawing")
           : out->len > 0 ? DTP_OK
                          : DTP_FAIL(err, DTP_INVALID,
                                     "--svg %s: a step without time, or a plan without it", name);
}
