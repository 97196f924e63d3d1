/* dtplan plan: chooses layouts and writes a plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "dtp/planner.h"
#include "core/base/units.h"
#include "core/files/file_out.h"
#include "dtp/session.h"
#include "cost_models/job.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/machine_set.h"
#include "cost_models/predict.h"
#include "planner/mtf/mtf_layout.h"
#include "planner/reports/words.h"
#include "tools/job.h"
#include "tools/dtplan/inputs.h"
#include "tools/dtplan/page/page.h"
#include "tools/dtplan/print.h"
#include "tools/interrupt.h"
#include "tools/look.h"
#include "tools/machines.h"
#include "tools/progress.h"
#include "tools/trace.h"

typedef struct plan_command {
    tool_source source;
    dtp_plan_options options;
    dtp_ctx ctx;
    int exit_code;
    dtp_graph *model; /* as it was read */
    dtp_machine *machine;
    const dtp_target *target;
} plan_command;

/* Without --mode: rules where these are pinned; tensor for --expressible; pins where there are any;
 * tensor on a machine of accelerators. */
static dtp_planning_mode mode_of(const plan_command *c)
{
    const tool_source *s = &c->source;
    const bool pins = tool_styles_given(s), form = c->options.expressible != NULL;
    if (s->stages != NULL && s->mode == NULL) {
        return pins || s->rules != NULL ? DTP_PLAN_PINS : DTP_PLAN_TENSOR;
    }
    if (s->mode != NULL) {
        return strcmp(s->mode, "tensor") == 0 ? DTP_PLAN_TENSOR : DTP_PLAN_RULES;
    }
    return pins && (s->rules != NULL || !form)                          ? DTP_PLAN_PINS
           : s->rules == NULL && (form || tool_accelerated(c->machine)) ? DTP_PLAN_TENSOR
                                                                        : DTP_PLAN_RULES;
}

/* The framework that the plan is for: that of the model, or of the form. */
static const char *framework_of(const plan_command *c)
{
    static const char *const forms[] = {"torch", "hf", "placements"};
    const char *of = c->model->framework, *form = c->options.expressible;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && form != NULL; i++) {
        of = of == NULL && strcmp(form, forms[i]) == 0 ? "torch" : of;
    }
    return of;
}

static bool is_by_pins(const plan_command *c)
{
    return mode_of(c) == DTP_PLAN_PINS;
}

/* Whether plans are to be such as PyTorch can be told, though nobody says so: those of an imported
 * program, with names of its modules, for target torch, when nothing says what to search. */
static bool is_for_modules(const plan_command *c, const dtp_target *target)
{
    return c->options.expressible == NULL && c->options.names_file != NULL &&
           c->model->framework != NULL && strcmp(c->model->framework, "torch") == 0 &&
           strncmp(target->name, "torch", 5) == 0 && c->source.mode == NULL &&
           mode_of(c) == DTP_PLAN_TENSOR && !c->source.uneven && !c->options.prices;
}

/* ---- what is printed and written ---- */

/* The plan as dtrun opens it: read back from its text, and lowered. */
typedef struct opened_plan {
    dtp_plan *plan;
    dtp_job *job; /* borrows the plan */
} opened_plan;

/* What dtrun would refuse is an error here, before anything is written. */
static dtp_status open_plan(const plan_command *c, const dtp_strbuf *text, opened_plan *out,
                            dtp_err *err)
{
    dtp_job_options options = dtp_job_options_init();
    dtp_err why = {0};
    dtp_status s = dtp_plan_read("the plan that was made", dtp_strbuf_text(text), text->len,
                                 c->model, &out->plan, &why);
    options.plan = out->plan;
    options.machine =
        c->source.json && c->source.trace == NULL && c->source.report == NULL ? NULL : c->machine;
    s = s == DTP_OK ? dtp_job_create(c->model, &options, &out->job, &why) : s;
    return s == DTP_OK              ? DTP_OK
           : dtp_status_is_input(s) ? DTP_FAIL(err, DTP_INTERNAL, "%s", why.msg)
                                    : DTP_FAIL(err, s, "%s", why.msg);
}

/* A text into a file that waits for its commit; frees the text. `made`: what came of making it. */
static dtp_status write_text(const char *file, dtp_status made, dtp_strbuf *text,
                             dtp_file_out **out, dtp_err *err)
{
    dtp_status s = made == DTP_OK ? dtp_file_out_open(file, out, err) : made;
    s = s == DTP_OK ? dtp_file_out_write(*out, dtp_strbuf_text(text), text->len, err) : s;
    dtp_strbuf_free(text);
    return s;
}

/* What the same plan takes under PyTorch, of one for PyTorch under dtrun, where the machine has
 * rates of both: of kind cuda. *is is false where the other target cannot run the plan. */
static dtp_status price_elsewhere(const plan_command *c, const dtp_plan *plan,
                                  dtp_plan_elsewhere *out, bool *is, dtp_err *err)
{
    const bool ours = strcmp(plan->target, dtp_target_cuda.name) == 0;
    const dtp_target *target = ours ? &dtp_target_torch : &dtp_target_cuda;
    dtp_machine *machine = NULL;
    dtp_job *job = NULL;
    dtp_plan same = *plan; /* borrows from it */
    dtp_job_options options = dtp_job_options_init();
    *is = false;
    if (c->source.machine == NULL || strcmp(c->machine->kind, "cuda") != 0 ||
        (!ours && strncmp(plan->target, "torch", 5) != 0)) {
        return DTP_OK;
    }
    DTP_TRY(tool_machine_of(&c->source, &machine, err));
    dtp_status s = tool_machine_borrow(machine, err);
    const bool rates = !ours || dtp_efficiency_find(machine, target->runtime) != NULL;
    s = s == DTP_OK && rates ? tool_machine_runtime(machine, NULL, target, err) : s;
    if (s == DTP_OK && (!ours || strcmp(machine->runtime, target->runtime) == 0)) {
        same.target = target->name;
        options.plan = &same;
        options.machine = machine;
        s = dtp_job_create(c->model, &options, &job, err);
        *is = s == DTP_OK;
        s = s == DTP_UNSUPPORTED ? DTP_OK : s;
    }
    if (*is) {
        *out = (dtp_plan_elsewhere){.target = target->name,
                                    .rates = dtp_arena_strdup(plan->arena, machine->provenance_how),
                                    .limit_bytes =
                                        plan->memory_limit_bytes > 0 && c->source.memory == NULL
                                            ? dtp_memory_limit(machine, target)
                                            : plan->memory_limit_bytes,
                                    .predicted = job->predicted};
        s = DTP_MEMORY(err, out->rates);
    }
    dtp_job_destroy(job);
    dtp_machine_destroy(machine);
    return s;
}

/* The plan for people, appended, with what it takes under another target. */
static dtp_status print_plan(const plan_command *c, const dtp_plan *plan, dtp_strbuf *out,
                             dtp_err *err)
{
    dtp_plan_elsewhere other;
    dtp_graph *graph = NULL;
    bool is;
    DTP_TRY(price_elsewhere(c, plan, &other, &is, err));
    DTP_TRY(dtp_plan_graph(plan, c->model, &graph, err));
    dtp_plan_print(plan, graph, is ? &other : NULL, out);
    dtp_graph_destroy(graph);
    return DTP_OK;
}

/* The plan in one of its forms, appended. */
static dtp_status describe(const plan_command *c, const dtp_plan *plan, dtp_plan_form form,
                           dtp_strbuf *out, dtp_err *err)
{
    char *text = NULL;
    DTP_TRY(dtp_plan_describe(plan, c->model, form, &text, err));
    dtp_strbuf_add(out, text);
    free(text);
    return DTP_OK;
}

/* A cost: picoseconds or, of the memory objective, bytes. */
static dtp_quantity cost_text(const plan_command *c, int64_t cost)
{
    return strcmp(c->source.objective, "memory") == 0 ? dtp_byte_count((double)cost)
                                                      : dtp_seconds(1e-12 * (double)cost);
}

/* Parameters of a model that is mostly trained in pipeline stages. */
static const int64_t LARGE_MODEL = INT64_C(30000000000);

/* The communication report takes the place of the plan on standard output. */
static dtp_status put_planned(const plan_command *c, const dtp_plan_result *result, dtp_err *err)
{
    dtp_strbuf text = {0}, report = {0};
    dtp_file_out *files[2] = {NULL, NULL}; /* of --trace and --report */
    opened_plan opened = {0};
    const dtp_plan_form file = c->source.timings ? DTP_PLAN_TIMINGS : DTP_PLAN_JSON;
    dtp_status s = describe(c, result->plan, file, &text, err);
    s = s == DTP_OK ? open_plan(c, &text, &opened, err) : s;
    if (s == DTP_OK && c->source.comm_report) {
        s = tool_print_comm(opened.job, c->source.json, &report, err);
    } else if (s == DTP_OK) {
        s = c->source.json ? describe(c, result->plan, file, &report, err)
                           : print_plan(c, result->plan, &report, err);
        s = s == DTP_OK && !c->source.json
                ? dtp_words_job_print(opened.job, opened.plan, c->machine, &report, err)
                : s;
    }
    int64_t n_params = 0;
    for (dtp_tensor_id t = 0; t < c->model->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &c->model->tensors[t];
        n_params += tensor->kind == DTP_TENSOR_PARAM ? dtp_ttype_elems(&tensor->type) : 0;
    }
    if (n_params > LARGE_MODEL && c->model->loss >= 0 && c->source.stages == NULL &&
        !c->source.json && !c->source.comm_report) {
        dtp_strbuf_add(&report, "\npipeline stages were not tried (--stages auto)\n");
    }
    const int32_t n_meshes = c->source.comm_report || c->source.json ? 0 : result->n_meshes;
    if (n_meshes > 0) {
        dtp_strbuf_addf(&report, "\nmeshes (the last dim lies innermost in the network):\n");
    }
    for (int32_t i = 0; i < n_meshes; i++) {
        const dtp_mesh_report *r = &result->meshes[i];
        char mesh[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&r->mesh, mesh);
        dtp_strbuf_addf(&report, "%-22s %-10s", mesh, dtp_mesh_outcome_name(r->outcome));
        if (r->outcome == DTP_MESH_PLANNED) {
            const bool unearned = r->mesh.n_dims > result->plan->mesh.n_dims &&
                                  r->step_time_s < result->plan->predicted.step_time_s;
            dtp_strbuf_addf(&report, " %10s, cost %s, bound %s%s", dtp_seconds(r->step_time_s).text,
                            cost_text(c, r->cost).text, cost_text(c, r->bound).text,
                            unearned ? "; more dims must save 1 % of the step" : "");
        } else if (r->outcome == DTP_MESH_PRUNED) {
            dtp_strbuf_addf(&report, " nothing costs less than %s there",
                            cost_text(c, r->bound).text);
        } else if (r->outcome == DTP_MESH_LEFT_OUT && r->bound > 0) {
            dtp_strbuf_addf(&report, " kernels alone take %s", cost_text(c, r->bound).text);
        } else if (r->outcome == DTP_MESH_LEFT_OUT) {
            dtp_strbuf_add(&report, " no mesh with two of its dims as one is among the best");
        }
        dtp_strbuf_add(&report, "\n");
    }
    if (s == DTP_OK && c->source.trace != NULL) { /* its step */
        dtp_strbuf events = {0};
        s = tool_trace_job(opened.job, c->machine, &events, err);
        s = write_text(c->source.trace, s, &events, &files[0], err);
    }
    if (s == DTP_OK && c->source.report != NULL) {
        dtp_strbuf html = {0};
        const page_input page = {
            .plan = opened.plan, .job = opened.job, .machine = c->machine, .current = true};
        s = write_text(c->source.report, page_write(&page, &html, err), &html, &files[1], err);
    }
    dtp_job_destroy(opened.job);
    dtp_plan_destroy(opened.plan);
    s = s == DTP_OK ? tool_put_both(c->source.output, &text, &report, !c->source.json, err) : s;
    dtp_strbuf_free(&text);
    dtp_strbuf_free(&report);
    for (int i = 0; i < 2; i++) {
        if (s == DTP_OK && files[i] != NULL) {
            s = dtp_file_out_commit(files[i], err);
        } else {
            dtp_file_out_discard(files[i]);
        }
    }
    return s;
}

/* ---- no plan ---- */

/* The smallest limit that works, as far as it is known. */
static void say_limit(const plan_command *c, const dtp_plan_result *result, dtp_strbuf *out)
{
    const int64_t smallest = result->smallest_peak_bytes, bound = result->smallest_bound;
    if (result->needs != NULL) {
        dtp_strbuf_addf(out, ": any needs at least %s (%s), %s", dtp_byte_count((double)bound).text,
                        tool_bytes_print(bound, false, c->source.json).text, result->needs);
    } else if (smallest > 0) {
        dtp_strbuf_addf(out, "; the smallest memory limit that works is %s%s (--memory %s",
                        bound == smallest ? "" : "about ", dtp_byte_count((double)smallest).text,
                        tool_bytes_print(smallest, true, c->source.json).text);
        if (bound > 0 && bound < smallest) {
            dtp_strbuf_addf(out, "; none below %s does",
                            tool_bytes_print(bound, false, c->source.json).text);
        }
        dtp_strbuf_add(out, ")");
        if (result->smallest_stages > 0) {
            dtp_strbuf_addf(out, ", of whose %d stages stage %d needs most",
                            result->smallest_stages, result->smallest_stage);
        }
    } else if (bound > 0 && c->options.expressible == NULL) {
        dtp_strbuf_addf(out, "; no limit below %s works, the search for the smallest was ended",
                        tool_bytes_print(bound, false, c->source.json).text);
    }
}

/* Prints what does not fit. */
static dtp_status say_verdict(const plan_command *c, const dtp_plan_result *result, dtp_err *err)
{
    dtp_strbuf text = {0};
    dtp_strbuf_addf(&text, "dtplan: infeasible: %s layout",
                    c->options.expressible != NULL ? "found no" : "no");
    dtp_strbuf_add(&text, mode_of(c) == DTP_PLAN_TENSOR   ? "s"
                          : tool_styles_given(&c->source) ? "s that follow from the pins"
                                                          : " rules");
    if (c->source.rules != NULL) {
        dtp_strbuf_addf(&text, " with '%s'", c->source.rules);
    }
    if (c->options.expressible != NULL) {
        dtp_strbuf_addf(&text, " of which --expressible %s loses nothing that",
                        c->options.expressible);
    }
    if (result->memory_limit_bytes > 0) {
        dtp_strbuf_addf(&text, " fit into %s per rank",
                        dtp_byte_count((double)result->memory_limit_bytes).text);
    }
    say_limit(c, result, &text);
    dtp_strbuf_add(&text, "\n");
    dtp_plan_print_tried(result->n_tried, result->tried, &text);
    for (int32_t i = 0; i < result->n_conflict && result->n_conflict > 1; i++) {
        dtp_strbuf_add(&text, i == 0 ? "these cannot hold together:\n  " : "  ");
        dtp_pin_print(result->conflict[i], &text);
        dtp_strbuf_add(&text, "\n");
    }
    return tool_show(stderr, &text, err);
}

/* The machine with twice as many devices: its outermost level has twice the members. */
static dtp_status grow(plan_command *c, dtp_strbuf *set, dtp_err *err)
{
    const dtp_level *last = &c->machine->levels[c->machine->n_levels - 1];
    char text[320];
    const char *const texts[] = {text};
    (void)snprintf(text, sizeof text, "%.256s.size=%" PRId32, last->name, 2 * last->size);
    dtp_strbuf_free(set);
    dtp_strbuf_addf(set, " --set %s", text);
    DTP_TRY(dtp_machine_set(&c->machine, 1, texts, err));
    return tool_machine_runtime(c->machine, c->source.runtime, c->target, err);
}

/* With how many more devices, each number twice the one before, a plan fits: tried, and said. The
 * first dim of the mesh grows, and the machine where it has no more devices. */
static dtp_status say_more_devices(plan_command *c, dtp_err *err)
{
    enum { MOST_DOUBLINGS = 8 };
    dtp_plan_options o = c->options;
    dtp_mesh mesh = {0};
    dtp_plan_result r = {0};
    dtp_strbuf text = {0}, set = {0};
    char shape[DTP_MESH_TEXT_BYTES] = "";
    int64_t devices = 0;
    bool fits = false;
    dtp_status s = DTP_OK;
    mesh = o.mesh != NULL ? *o.mesh : mesh;
    o.mesh = o.mesh != NULL ? &mesh : NULL;
    for (int i = 0; i < MOST_DOUBLINGS && s == DTP_OK && !fits && !tool_interrupted(NULL); i++) {
        o.devices *= 2;
        mesh.sizes[0] *= 2;
        devices = o.mesh != NULL ? dtp_mesh_ranks(&mesh) : o.devices;
        s = devices > dtp_machine_devices(c->machine) ? grow(c, &set, err) : DTP_OK;
        s = s == DTP_OK ? dtp_plan_fits(c->model, c->machine, &o, &r, err) : s;
        fits = s == DTP_OK && r.plan != NULL;
        if (s == DTP_OK && !fits) {
            dtp_strbuf_addf(&text, "%s%" PRId64, i == 0 ? "tried: " : ", ", devices);
            dtp_plan_result_free(&r);
        }
    }
    dtp_strbuf_add(&text, text.len > 0 ? " devices do not suffice\n" : "");
    if (fits) {
        dtp_mesh_print(&r.plan->mesh, shape);
        dtp_strbuf_addf(&text,
                        "the same model fits on %" PRId64 " such devices: --mesh '%s'%s, %s of %s "
                        "per rank\n",
                        devices, shape, set.len > 0 ? dtp_strbuf_text(&set) : "",
                        dtp_byte_count((double)r.plan->predicted.peak_bytes).text,
                        dtp_byte_count((double)r.memory_limit_bytes).text);
    }
    dtp_plan_result_free(&r);
    dtp_strbuf_free(&set);
    if (s != DTP_OK && dtp_status_is_input(s)) { /* such a mesh is none of the model */
        s = DTP_OK;
    }
    if (s != DTP_OK) {
        dtp_strbuf_free(&text);
        return s == DTP_STOPPED ? DTP_OK : s;
    }
    return tool_show(stderr, &text, err);
}

/* The verdict, which is quick, then which choice that was not asked for makes a plan fit; on
 * accelerators these were searched, and how many more devices do. */
static dtp_status say_infeasible(plan_command *c, const dtp_plan_result *result, dtp_err *err)
{
    dtp_strbuf text = {0};
    char *helps = NULL;
    DTP_TRY(say_verdict(c, result, err));
    if (c->options.make_fit) {
        return c->source.memory == NULL ? say_more_devices(c, err) : DTP_OK;
    }
    DTP_TRY(dtp_plan_what_helps(c->model, c->machine, &c->options, &helps, err));
    if (helps != NULL) {
        dtp_strbuf_addf(&text, "it fits with %s; 'auto' for both looks for the fastest\n", helps);
    }
    free(helps);
    return tool_show(stderr, &text, err);
}

/* ---- planning ---- */

/* What matters first: the line is cut at its end. */
static void show_progress(void *user, const dtp_plan_progress *now)
{
    const plan_command *c = user;
    const bool memory = c->options.objective == DTP_OBJECTIVE_MEMORY;
    dtp_strbuf text = {0};
    if (now->best_s > 0.0) {
        dtp_strbuf_addf(&text, "best %s",
                        memory ? dtp_byte_count((double)now->best_bytes).text
                               : dtp_seconds(now->best_s).text);
    }
    if (now->best_s > 0.0 && now->gap >= 0.0) {
        dtp_strbuf_addf(&text, ", gap %.2f %%", 100.0 * now->gap);
    }
    dtp_strbuf_addf(&text, "%smesh %s", now->best_s > 0.0 ? "; " : "", now->mesh);
    if (now->variant != NULL) {
        dtp_strbuf_addf(&text, ", %s", now->variant);
    }
    tool_progress_note(dtp_strbuf_text(&text));
    dtp_strbuf_free(&text);
}

static dtp_status run_planner(plan_command *c, dtp_err *err)
{
    dtp_plan_options *o = &c->options;
    dtp_plan_result result;
    dtp_mesh mesh;
    tool_target target;
    tool_path rules, names;
    DTP_TRY(tool_target_find(&c->source, framework_of(c), c->machine, &target, err));
    if (c->source.mesh != NULL) {
        DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
        o->mesh = &mesh;
    }
    DTP_TRY(tool_plan_request(&c->source, &target, o, err));
    o->objective =
        strcmp(c->source.objective, "time") == 0 ? DTP_OBJECTIVE_TIME : DTP_OBJECTIVE_MEMORY;
    c->target = target.target;
    o->mode = mode_of(c);
    o->make_fit = tool_accelerated(c->machine);
    o->devices = c->source.devices;
    o->rules_file = tool_beside(&c->source, o->rules_file, "rules", &rules);
    o->names_file = tool_beside(&c->source, c->source.names, "names", &names);
    o->expressible = is_for_modules(c, target.target) ? "torch" : o->expressible;
    if (!is_by_pins(c)) {
        tool_interrupt_catch();
        o->interrupted = tool_interrupted;
    }
    o->ctx = &c->ctx;
    o->progress = show_progress;
    o->user = c;
    tool_progress_begin("planning");
    DTP_TRY(dtp_plan_make(c->model, c->machine, o, &result, err));
    c->exit_code = result.infeasible ? TOOL_INFEASIBLE : TOOL_OK;
    const dtp_status s =
        result.infeasible ? say_infeasible(c, &result, err) : put_planned(c, &result, err);
    dtp_plan_result_free(&result);
    return s;
}

/* ---- --compat auto_mtf: rules as Mesh TensorFlow's layout optimizer chooses them ---- */

static dtp_status solve_mtf(const plan_command *c, const dtp_mtf_graph *graph, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_mtf_problem *problem = NULL;
    dtp_mtf_solution solution;
    char text[DTP_MESH_TEXT_BYTES];
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    DTP_TRY(dtp_mtf_problem_create(graph, &mesh, DTP_MTF_LIST, &problem, err));
    dtp_status s = dtp_mtf_solve(problem, &solution, err);
    dtp_json_writer w = {0};
    dtp_mesh_print(&mesh, text);
    if (s == DTP_OK && c->source.json) {
        tool_write_object(&w, NULL,
                          TOOL_FIELDS(FIELD_TEXT("compat", "auto_mtf"), FIELD_TEXT("mesh", text),
                                      FIELD_TEXT("rules", solution.layout),
                                      FIELD_INT("peak_bytes", solution.peak),
                                      FIELD_INT("objective", solution.objective),
                                      FIELD_INT("variables", problem->n_variables)));
        dtp_strbuf_add(&w.buf, "\n");
    } else if (s == DTP_OK) {
        dtp_strbuf_addf(&w.buf, "rules: %s\npeak in auto_mtf's model: %s, %d variables\n",
                        solution.layout, dtp_byte_count((double)solution.peak).text,
                        problem->n_variables);
    }
    s = s == DTP_OK ? (c->source.json ? tool_put : tool_put_text)(&w.buf, err) : s;
    dtp_mtf_problem_destroy(problem);
    return s;
}

static dtp_status run_mtf(plan_command *c, dtp_err *err)
{
    dtp_mtf_graph *graph = NULL;
    if (c->source.mesh == NULL || c->source.output != NULL || c->source.trace != NULL ||
        c->source.report != NULL || c->source.uneven || c->options.expressible != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--compat auto_mtf needs --mesh, splits evenly and prints rules, it writes "
                        "no plan file and no trace, and takes no --expressible");
    }
    DTP_TRY(tool_read_graph(&c->source, &c->model, err));
    DTP_TRY(dtp_mtf_from_graph(c->model, &graph, err));
    dtp_status s = solve_mtf(c, graph, err);
    dtp_mtf_graph_destroy(graph);
    return s;
}

/* ---- the command ---- */

static bool is_auto(const char *text)
{
    return text != NULL && strcmp(text, "auto") == 0;
}

/* The layouts of stages follow from rules or styles, or are searched in tensor mode; the reports
 * are of one program. */
static dtp_status check_stages(const plan_command *c, dtp_err *err)
{
    const tool_source *s = &c->source;
    const bool pins = is_by_pins(c);
    const char *with = s->stages == NULL                               ? NULL
                       : s->mode != NULL && (pins || s->rules != NULL) ? "--mode"
                       : s->devices > 0 && pins                        ? "--devices"
                       : s->compat != NULL                             ? "--compat"
                       : s->forward                                    ? "--forward"
                       : s->uneven                                     ? "--uneven"
                       : c->options.expressible != NULL                ? "--expressible"
                       : c->options.prices                             ? "--prices"
                                                                       : NULL;
    if (s->stages != NULL && s->mode != NULL && strcmp(s->mode, "tensor") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--stages is searched in --mode tensor, not %s", s->mode);
    }
    if (with == NULL) {
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "--stages is for plans that follow from --rules or --style on a --mesh, or are "
                    "searched in tensor mode: no %s",
                    with);
}

/* Which options go together. */
static dtp_status check_mode(plan_command *c, dtp_err *err)
{
    const bool by_pins = is_by_pins(c);
    const tool_call call = {TOOL_PLAN, NULL, c, &c->source, &c->options};
    const bool rules = c->source.stages != NULL && by_pins && !tool_styles_given(&c->source);
    DTP_TRY(check_stages(c, err));
    DTP_TRY(tool_check_mode(&call, rules ? DTP_PLAN_RULES : mode_of(c), err));
    if (c->options.expressible != NULL && (c->source.uneven || c->options.prices)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--expressible is for plans that are searched with even splits: no %s",
                        c->source.uneven ? "--uneven" : "--prices");
    }
    if (by_pins && c->source.mesh == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--style, --pin and --stages with --rules need --mesh");
    }
    if (by_pins && c->source.machine == NULL &&
        (c->source.trace != NULL || c->source.report != NULL)) {
        return DTP_FAIL(err, DTP_INVALID, "%s of a plan from --style and --pin needs --machine",
                        c->source.trace != NULL ? "--trace" : "--report");
    }
    if (by_pins && (is_auto(c->source.precision) || is_auto(c->source.remat) ||
                    is_auto(c->source.microbatches))) {
        return DTP_FAIL(err, DTP_INVALID,
                        "auto of --precision, --remat and --microbatches is for --mode rules and "
                        "tensor");
    }
    return DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    plan_command *c = command;
    c->source.model = operands[0];
    c->ctx.level = c->source.verbose ? DTP_LOG_INFO : DTP_LOG_WARN;
    c->options.torch = c->source.compat != NULL && strcmp(c->source.compat, "torch") == 0;
    if (c->source.compat != NULL && !c->options.torch) {
        return run_mtf(c, err);
    }
    if (c->source.machine != NULL) { /* the default mode is its own */
        DTP_TRY(tool_machine_of(&c->source, &c->machine, err));
    }
    DTP_TRY(check_mode(c, err));
    if ((c->source.mesh != NULL) == (c->source.devices > 0)) {
        return DTP_FAIL(err, DTP_INVALID, "give either --mesh MESH or --devices N");
    }
    DTP_TRY(tool_read_graph(&c->source, &c->model, err));
    if (c->source.machine == NULL && is_by_pins(c)) {
        DTP_TRY(tool_machine_of(&c->source, &c->machine, err)); /* refuses --set */
    } else if (c->source.machine == NULL) {
        dtp_mesh mesh;
        DTP_TRY(dtp_mesh_parse(c->source.mesh == NULL ? "" : c->source.mesh, &mesh, err));
        int32_t ranks = c->source.mesh != NULL ? dtp_mesh_ranks(&mesh) : c->source.devices;
        if (c->source.stages != NULL && c->source.mesh != NULL && !is_auto(c->source.stages)) {
            dtp_arena *arena = dtp_arena_create(); /* the mesh is that of each stage */
            dtp_stage_choice stages = {0};
            DTP_TRY(DTP_MEMORY(err, arena));
            const dtp_status s =
                dtp_stages_parse(c->source.stages, c->source.slots, c->model, arena, &stages, err);
            dtp_arena_destroy(arena);
            DTP_TRY(s);
            ranks = stages.n > 1 && ranks <= INT32_MAX / DTP_MAX_STAGES ? ranks * stages.n : ranks;
        }
        DTP_TRY(tool_machine_here(&c->source, ranks, &c->machine, err));
    }
    return run_planner(c, err);
}

/* One candidate after the other takes the memory that the one before it gave back; pages that go to
 * the system in between are a tenth of the time of planning. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 25);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

int dtplan_plan(int argc, char **argv)
{
    keep_memory();
    plan_command c = {.options = dtp_plan_options_init()};
    const tool_call call = {TOOL_PLAN, execute, &c, &c.source, &c.options};
    c.ctx = dtp_ctx_default();
    const int code = tool_run(&call, argc, argv);
    dtp_machine_destroy(c.machine);
    dtp_graph_destroy(c.model);
    return code == TOOL_OK ? c.exit_code : code;
}
