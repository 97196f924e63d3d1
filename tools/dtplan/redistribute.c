/* dtplan redistribute: the steps from one layout of a tensor to another, what they move and cost,
 * and whether they give the right data on virtual ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/units.h"
#include "interop/layout_forms.h"
#include "cost_models/price.h"
#include "interop/torch_cost.h"
#include "executor/verify/redistribute_check.h"
#include "spmd/redistribute/steps.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "core/layout/placement_text.h"

enum { WARNING_BYTES = 192 };

typedef struct redistribute_command {
    tool_source source;
    dtp_graph *graph;
    dtp_machine *machine;
    dtp_pricer *pricer;
    dtp_mesh mesh;
    dtp_ttype type;
    dtp_layout from, to;
    dtp_torch_planner torch;
    dtp_err no_price; /* the first failure of machine_step_price; code DTP_OK: none */
    dtp_step_price price;
    void *price_user;
    const char *price_name;
    dtp_steps steps;
    int32_t n_warnings;
    char warnings[1 << DTP_MAX_MESH_DIMS][WARNING_BYTES];
    dtp_redistribute_verdict verdict;
} redistribute_command;

/* ---- the problem ---- */

static void keep_warning(void *user, const dtp_mesh *mesh, dtp_mesh_set set, const char *why)
{
    redistribute_command *c = user;
    char names[DTP_MESH_TEXT_BYTES];
    dtp_mesh_set_print(mesh, set, "+", names);
    (void)snprintf(c->warnings[c->n_warnings++], WARNING_BYTES,
                   "collectives over %.80s stay apart: %s", names, why);
}

/* A dtp_step_price in seconds on the machine: that of the instructions which a step becomes.
 * Infinite when it cannot be lowered (memory ran out): `no_price` then says why. */
static double machine_step_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                                 const dtp_layout *before, const dtp_step *step)
{
    redistribute_command *c = user;
    dtp_err *err = c->no_price.code == DTP_OK ? &c->no_price : NULL;
    const dtp_steps steps = {.n = 1, .steps[0] = *step};
    dtp_redistribute_job job;
    double sum = 0;
    if (dtp_redistribute_program(c->graph, mesh, c->pricer->target, type, before, &steps, &job,
                                 err) != DTP_OK) {
        return (double)INFINITY;
    }
    for (int32_t i = 0; i < job.program->n_instrs; i++) {
        sum += dtp_price_instr(c->pricer, job.program, &job.program->instrs[i]);
    }
    dtp_redistribute_job_free(&job);
    return sum;
}

/* ---- the report ---- */

/* What is printed of one step. */
typedef struct step_facts {
    bool collective; /* over more than one rank */
    dtp_coll_kind coll;
    int64_t bytes, moved; /* the larger buffer of the step; what a rank sends */
    double price_s;
} step_facts;

static step_facts facts_of(const redistribute_command *c, int32_t i)
{
    const dtp_step *step = &c->steps.steps[i];
    const dtp_layout *before = i > 0 ? &c->steps.steps[i - 1].after : &c->from;
    int64_t ranks = dtp_mesh_set_size(&c->mesh, step->set);
    int64_t count = dtp_step_count(&c->mesh, &c->type, before, step);
    step_facts f = {.bytes = count * dtp_dtype_bytes(c->type.dtype)};
    f.price_s = c->price(c->price_user, &c->mesh, &c->type, before, step);
    f.collective = dtp_step_collective(step->kind, &f.coll) && ranks > 1;
    if (f.collective) {
        bool reduce = step->kind == DTP_STEP_ALL_REDUCE;
        f.moved = reduce ? 2 * f.bytes / ranks * (ranks - 1) : f.bytes * (ranks - 1);
        f.bytes = reduce ? f.bytes : f.bytes * ranks;
    }
    return f;
}

static double count_collectives(const redistribute_command *c, int64_t counts[DTP_N_COLLS])
{
    double price_s = 0;
    for (int32_t i = 0; i < c->steps.n; i++) {
        step_facts f = facts_of(c, i);
        price_s += f.price_s;
        counts[f.coll] += f.collective ? 1 : 0;
    }
    return price_s;
}

static void step_row(tool_rows *rows, const void *user, int32_t i)
{
    const redistribute_command *c = user;
    const dtp_step *step = &c->steps.steps[i];
    const bool exchanges = step->kind == DTP_STEP_ALL_TO_ALL;
    const bool scatters = step->kind == DTP_STEP_REDUCE_SCATTER;
    const bool has_axis =
        exchanges || scatters || step->kind == DTP_STEP_ALL_GATHER || step->kind == DTP_STEP_SLICE;
    const bool reduces = scatters || step->kind == DTP_STEP_ALL_REDUCE;
    const step_facts f = facts_of(c, i);
    dtp_strbuf after = {0};
    dtp_placements_print(&step->after, &after);
    tool_row(rows, TOOL_FIELDS(
                       FIELD_TEXT("kind", dtp_step_name(step->kind)),
                       FIELD_DIMS("mesh_dims", &c->mesh, step->set),
                       FIELD_INT_IF(has_axis, "axis", step->axis),
                       FIELD_INT_IF(exchanges, "to_axis", step->to_axis),
                       FIELD_TEXT_IF(reduces, "op", reduces ? dtp_reduce_op_name(step->op) : NULL),
                       FIELD_INT("bytes", f.bytes), FIELD_INT("moved_bytes", f.moved),
                       FIELD_REAL("price_s", f.price_s), FIELD_BUFFER("after", &after)));
}

static void print_json(const redistribute_command *c, dtp_strbuf *trace, dtp_strbuf *out)
{
    dtp_json_writer w = {0};
    dtp_strbuf from = {0}, to = {0};
    const dtp_redistribute_verdict *v = &c->verdict;
    const char *warnings[1 << DTP_MAX_MESH_DIMS];
    tool_field kinds[DTP_N_COLLS + 1] = {{.kind = FIELD_IS_END}};
    int64_t counts[DTP_N_COLLS] = {0}, shape[DTP_MAX_RANK];
    const double price_s = count_collectives(c, counts);
    for (int32_t i = 0; i < c->type.rank; i++) {
        shape[i] = c->type.dims[i].size;
    }
    for (int32_t i = 0; i < c->n_warnings; i++) {
        warnings[i] = c->warnings[i];
    }
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        kinds[k] =
            (tool_field)FIELD_INT_IF(counts[k] > 0, dtp_coll_name((dtp_coll_kind)k), counts[k]);
    }
    dtp_placements_print(&c->from, &from);
    dtp_placements_print(&c->to, &to);
    tool_report(
        &w, "dtp.redistribute/1",
        TOOL_FIELDS(
            FIELD_MESH(&c->mesh), FIELD_INTS("shape", c->type.rank, shape),
            FIELD_TEXT("dtype", dtp_dtype_name(c->type.dtype)), FIELD_BUFFER("from", &from),
            FIELD_BUFFER("to", &to),
            FIELD_TEXT("planner", c->source.compat != NULL ? c->source.compat : "search"),
            FIELD_TEXT("prices", c->price_name), FIELD_BUFFER("trace", trace),
            FIELD_LIST("steps", c->steps.n, step_row, c), FIELD_GROUP("collectives", kinds),
            FIELD_REAL("price_s", price_s),
            FIELD_LINES_IF(true, "warnings", c->n_warnings, warnings),
            FIELD_OBJECT_IF(c->source.run, "run", FIELD_INT("ranks", dtp_mesh_ranks(&c->mesh)),
                            FIELD_INT("seed", c->source.seed), FIELD_INT("checked", v->checked),
                            FIELD_INT("wrong", v->wrong), FIELD_BOOL("pass", v->wrong == 0))));
    dtp_strbuf_join(out, &w.buf);
}

static void print_text(const redistribute_command *c, dtp_strbuf *trace, dtp_strbuf *out)
{
    const dtp_redistribute_verdict *v = &c->verdict;
    int64_t counts[DTP_N_COLLS] = {0};
    double price_s = count_collectives(c, counts);
    dtp_strbuf_join(out, trace);
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < c->steps.n; i++) {
        const dtp_step *step = &c->steps.steps[i];
        step_facts f = facts_of(c, i);
        char names[DTP_MESH_TEXT_BYTES];
        dtp_mesh_set_print(&c->mesh, step->set, "+", names);
        dtp_strbuf_addf(out, "%3d  %-14s %-10s %10s  %10s moved  %10s  ", i + 1,
                        dtp_step_name(step->kind), names, dtp_byte_count((double)f.bytes).text,
                        dtp_byte_count((double)f.moved).text, dtp_seconds(f.price_s).text);
        dtp_placements_print(&step->after, out);
        dtp_strbuf_add(out, "\n");
    }
    dtp_strbuf_addf(out, "total");
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        if (counts[k] > 0) {
            dtp_strbuf_addf(out, " %s %lld,", dtp_coll_name((dtp_coll_kind)k),
                            (long long)counts[k]);
        }
    }
    dtp_strbuf_addf(out, " %s (%s prices)\n", dtp_seconds(price_s).text, c->price_name);
    for (int32_t i = 0; i < c->n_warnings; i++) {
        dtp_strbuf_addf(out, "warning: %s\n", c->warnings[i]);
    }
    if (c->source.run && v->wrong == 0) {
        dtp_strbuf_addf(out, "run on %d virtual ranks: all %lld elements right\n",
                        dtp_mesh_ranks(&c->mesh), (long long)v->checked);
    } else if (c->source.run) {
        dtp_strbuf_addf(out,
                        "run on %d virtual ranks: %lld of %lld elements WRONG; rank %d has %g at "
                        "element %lld instead of %g\n",
                        dtp_mesh_ranks(&c->mesh), (long long)v->wrong, (long long)v->checked,
                        v->rank, v->got, (long long)v->index, v->want);
    }
}

/* --flatten "a+b": mesh dims in ascending order that are one. */
static dtp_status read_flatten(redistribute_command *c, dtp_err *err)
{
    for (int32_t i = 0; i < c->source.flatten.n; i++) {
        const char *text = c->source.flatten.items[i];
        dtp_torch_options *o = &c->torch.options;
        dtp_mesh_set set = 0;
        for (const char *at = text; at != NULL;) {
            char name[DTP_MESH_NAME_BYTES] = "";
            const char *end = strchr(at, '+');
            size_t n = end != NULL ? (size_t)(end - at) : strlen(at);
            if (n < sizeof name) {
                (void)snprintf(name, sizeof name, "%.*s", (int)n, at);
            }
            int32_t m = dtp_mesh_find(&c->mesh, name);
            if (m < 0 || set >= 1U << m) {
                return DTP_FAIL(err, DTP_INVALID,
                                "--flatten: '%s' is not mesh dims in mesh order, such as a+b",
                                text);
            }
            set |= 1U << m;
            at = end != NULL ? end + 1 : NULL;
        }
        if (o->n_flat == DTP_TORCH_MAX_FLAT) {
            return DTP_FAIL(err, DTP_INVALID, "--flatten: more than %d", DTP_TORCH_MAX_FLAT);
        }
        o->flat[o->n_flat++] = set;
    }
    return DTP_OK;
}

/* Prices of --machine for --target. */
static dtp_status read_machine(redistribute_command *c, dtp_err *err)
{
    tool_target target;
    c->pricer = malloc(sizeof *c->pricer);
    DTP_TRY(DTP_MEMORY(err, c->pricer));
    DTP_TRY(tool_machine_of(&c->source, &c->machine, err));
    DTP_TRY(tool_target_find(&c->source, NULL, c->machine, &target, err));
    DTP_TRY(dtp_pricer_init(c->machine, &c->mesh, target.target, c->pricer, err));
    c->price = machine_step_price;
    c->price_user = c;
    c->price_name = c->machine->name;
    return DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    redistribute_command *c = command;
    dtp_torch_options *torch_options = &c->torch.options;
    dtp_strbuf trace = {0}, out = {0};
    (void)operands;
    const struct {
        const char *name, *value;
    } needed[] = {{"--mesh", c->source.mesh},
                  {"--shape", c->source.shape},
                  {"--from", c->source.from},
                  {"--to", c->source.to}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].value == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "%s is missing", needed[i].name);
        }
    }
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &c->mesh, err));
    DTP_TRY(dtp_dtype_parse(c->source.dtype, &c->type.dtype, err));
    DTP_TRY(dtp_graph_create("redistribute", NULL, &c->graph, err));
    DTP_TRY(tool_shape_parse(c->source.shape, &c->graph->dims, &c->type, err));
    const dtp_dims *dims = &c->graph->dims;
    DTP_TRY(dtp_layout_parse_any(c->source.from, &c->mesh, &c->type, dims, &c->from, err));
    DTP_TRY(dtp_layout_parse_any(c->source.to, &c->mesh, &c->type, dims, &c->to, err));
    if (c->source.compat == NULL &&
        (c->source.flatten.n > 0 || torch_options->min_cost || torch_options->no_merge)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--flatten, --min-cost and --no-merge need --compat torch");
    }
    if (c->source.target != NULL && c->source.machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--target needs --machine, whose prices it has");
    }
    torch_options->price = dtp_torch_step_price;
    torch_options->warn = keep_warning;
    torch_options->warn_user = c;
    DTP_TRY(read_flatten(c, err));
    c->price = c->source.compat != NULL ? dtp_torch_step_price : dtp_step_generic_price;
    c->price_name = c->source.compat != NULL ? "torch" : "default";
    DTP_TRY(c->source.machine != NULL || c->source.set.n > 0 ? read_machine(c, err) : DTP_OK);
    const dtp_redistributor torch = dtp_torch_redistributor(&c->torch);
    DTP_TRY(c->source.compat != NULL
                ? dtp_redistribute_by(&torch, &c->mesh, &c->type, &c->from, &c->to, &c->steps, err)
                : dtp_redistribute_plan(&c->mesh, &c->type, &c->from, &c->to, c->price,
                                        c->price_user, &c->steps, err));
    if (c->source.run) {
        dtp_redistribute_job job;
        DTP_TRY(dtp_redistribute_program(c->graph, &c->mesh, &dtp_target_cpu, &c->type, &c->from,
                                         &c->steps, &job, err));
        dtp_status s =
            dtp_redistribute_check(&job, "cpu", (uint64_t)c->source.seed, &c->verdict, err);
        dtp_redistribute_job_free(&job);
        DTP_TRY(s);
    }
    dtp_steps_trace(&c->from, &c->steps, &trace);
    (c->source.json ? print_json : print_text)(c, &trace, &out);
    const dtp_status s = c->no_price.code == DTP_OK
                             ? (c->source.json ? tool_put : tool_put_text)(&out, err)
                             : DTP_FAIL(err, c->no_price.code, "%s", c->no_price.msg);
    dtp_strbuf_free(&trace);
    dtp_strbuf_free(&out);
    return s;
}

int dtplan_redistribute(int argc, char **argv)
{
    redistribute_command c = {.source = {.dtype = "f32", .seed = 1}};
    const tool_call call = {TOOL_REDISTRIBUTE, execute, &c, &c.source, &c.torch.options};
    const int code = tool_run(&call, argc, argv);
    dtp_machine_destroy(c.machine);
    free(c.pricer);
    dtp_graph_destroy(c.graph);
    return code == TOOL_OK && c.verdict.wrong > 0 ? TOOL_MISMATCH : code;
}
