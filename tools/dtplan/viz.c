/* dtplan viz: draws a tensor on its mesh. */
#include <stdio.h>
#include <string.h>

#include "core/layout/layout_draw.h"
#include "interop/layout_forms.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"

typedef struct viz_command {
    tool_source source;
    dtp_ctx ctx;
    dtp_arena *arena;
    dtp_dims own_dims; /* of --shape */
    tool_job job;      /* of MODEL */
    dtp_mesh mesh;
    dtp_ttype type;
    dtp_layout layout;
    dtp_drawing drawing;
    /* With stages: its home, all that hold it, and its transfers. */
    int32_t home, n_on, n_sent, *sent;
    int64_t on[DTP_MAX_STAGES];
    dtp_strbuf note;
} viz_command;

/* ---- what to draw ---- */

static dtp_status refuse(const char *given, const char *option, const char *with, dtp_err *err)
{
    return given == NULL ? DTP_OK
                         : DTP_FAIL(err, DTP_INVALID, "%s cannot be used %s", option, with);
}

/* --mesh, --shape and --layout. */
static dtp_status read_tensor(viz_command *c, dtp_err *err)
{
    const struct {
        const char *name, *value;
    } needed[] = {
        {"--mesh", c->source.mesh}, {"--shape", c->source.shape}, {"--layout", c->source.layout}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].value == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "%s is missing (or a MODEL with --tensor)",
                            needed[i].name);
        }
    }
    DTP_TRY(refuse(c->source.plan, "--plan", "without a MODEL", err));
    DTP_TRY(refuse(c->source.rules, "--rules", "without a MODEL", err));
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &c->mesh, err));
    DTP_TRY(
        dtp_dtype_parse(c->source.dtype == NULL ? "f32" : c->source.dtype, &c->type.dtype, err));
    dtp_dims_init(&c->own_dims, c->arena);
    DTP_TRY(tool_shape_parse(c->source.shape, &c->own_dims, &c->type, err));
    DTP_TRY(
        dtp_layout_parse_any(c->source.layout, &c->mesh, &c->type, &c->own_dims, &c->layout, err));
    c->drawing = (dtp_drawing){.name = c->source.tensor,
                               .mesh = &c->mesh,
                               .type = &c->type,
                               .dims = &c->own_dims,
                               .layout = &c->layout};
    return DTP_OK;
}

/* Where a tensor lies in a plan with stages: drawn on its home, whose ranks are numbered among all;
 * copies and what is sent are named. */
static dtp_status place_tensor(viz_command *c, dtp_tensor_id t, dtp_err *err)
{
    const dtp_stages *stages = c->job.run->graph->stages;
    const char *between = "; also on";
    if (stages == NULL) {
        return DTP_OK;
    }
    const uint64_t holds = dtp_stages_of_chunks(stages, stages->holds[t]);
    DTP_TRY(DTP_NEW(c->arena, c->sent, (size_t)stages->n_transfers + 1, err));
    c->home = stages->home[t] % stages->n;
    c->drawing.first_rank = c->home * dtp_mesh_ranks(c->drawing.mesh);
    dtp_strbuf_addf(&c->note, "stage %d of %d", c->home, stages->n);
    if (stages->n_chunks > stages->n) {
        dtp_strbuf_addf(&c->note, ", chunk %d", stages->home[t] / stages->n);
    }
    for (int32_t s = 0; s < stages->n; s++) {
        if (s != c->home && dtp_in_chunk(holds, s)) {
            dtp_strbuf_addf(&c->note, "%s stage %d", between, s);
            between = ",";
        }
        if (dtp_in_chunk(holds, s)) {
            c->on[c->n_on++] = s;
        }
    }
    for (int32_t k = 0; k < stages->n_transfers; k++) {
        const dtp_transfer *x = &stages->transfers[k];
        if (x->tensor == t || x->into == t) { /* itself, or its new value */
            c->sent[c->n_sent++] = k;
            dtp_strbuf_addf(&c->note, "; sent %d -> %d behind %s", x->from % stages->n,
                            x->to % stages->n, dtp_section_name(x->section).text);
        }
    }
    c->drawing.note = dtp_strbuf_text(&c->note);
    return c->note.failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for a drawing") : DTP_OK;
}

/* A tensor of a model under a plan or rules. */
static dtp_status read_model(viz_command *c, dtp_err *err)
{
    DTP_TRY(refuse(c->source.shape, "--shape", "with a MODEL", err));
    DTP_TRY(refuse(c->source.layout, "--layout", "with a MODEL", err));
    DTP_TRY(refuse(c->source.dtype, "--dtype", "with a MODEL", err));
    if (c->source.tensor == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--tensor is missing: which tensor of the model?");
    }
    c->source.any_stages = true;
    DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &c->job, err));
    const dtp_tensor_id t = dtp_graph_find(c->job.run->graph, c->source.tensor);
    if (t < 0) {
        return DTP_FAIL(err, DTP_INVALID, "--tensor: the model '%s' has no tensor '%s'",
                        c->job.run->graph->name, c->source.tensor);
    }
    c->drawing = (dtp_drawing){.name = c->source.tensor,
                               .mesh = &c->job.run->sharding.mesh,
                               .type = &c->job.run->graph->tensors[t].type,
                               .dims = &c->job.run->graph->dims,
                               .layout = &c->job.run->sharding.layouts[t]};
    return place_tensor(c, t, err);
}

/* ---- JSON ---- */

/* What one rank holds. */
static void rank_row(tool_rows *rows, const void *user, int32_t rank)
{
    const dtp_drawing *d = user;
    int32_t at[DTP_MAX_MESH_DIMS];
    int64_t coords[DTP_MAX_MESH_DIMS], offsets[DTP_MAX_RANK], sizes[DTP_MAX_RANK];
    dtp_ttype local;
    dtp_mesh_coords(d->mesh, rank, at);
    dtp_layout_local(d->layout, d->mesh, d->type, rank, &local, offsets);
    for (int32_t m = 0; m < d->mesh->n_dims; m++) {
        coords[m] = at[m];
    }
    for (int32_t i = 0; i < local.rank; i++) {
        sizes[i] = local.dims[i].size;
    }
    tool_row(rows, TOOL_FIELDS(FIELD_INT("rank", d->first_rank + rank),
                               FIELD_INTS("coords", d->mesh->n_dims, coords),
                               FIELD_INTS("offset", d->type->rank, offsets),
                               FIELD_INTS("size", d->type->rank, sizes),
                               FIELD_INT("bytes", dtp_ttype_bytes(&local))));
}

/* Where the drawn tensor is sent; rows of none are left out. */
static void sent_row(tool_rows *rows, const void *user, int32_t k)
{
    const viz_command *c = user;
    const dtp_stages *stages = c->job.run->graph->stages;
    const dtp_transfer *x = &stages->transfers[c->sent[k]];
    tool_row(rows,
             TOOL_FIELDS(FIELD_INT("from", x->from % stages->n), FIELD_INT("to", x->to % stages->n),
                         FIELD_TEXT("section", dtp_section_name(x->section).text)));
}

static dtp_status write_json(const viz_command *c, dtp_strbuf *out, dtp_err *err)
{
    const dtp_drawing *d = &c->drawing;
    dtp_json_writer w = {0};
    char mesh[DTP_MESH_TEXT_BYTES];
    const char *dims[DTP_MAX_RANK];
    int64_t shape[DTP_MAX_RANK];
    dtp_strbuf texts[DTP_N_LAYOUT_FORMS] = {{0}};
    tool_field forms[DTP_N_LAYOUT_FORMS + 1] = {{.kind = FIELD_IS_END}};
    dtp_status s = DTP_OK;
    dtp_mesh_print(d->mesh, mesh);
    for (int32_t i = 0; i < d->type->rank; i++) {
        dims[i] = dtp_dims_name(d->dims, d->type->dims[i].id);
        shape[i] = d->type->dims[i].size;
    }
    /* The layout in every form, null where a form cannot say it. */
    for (int32_t i = 0; i < DTP_N_LAYOUT_FORMS && (s == DTP_OK || s == DTP_UNSUPPORTED); i++) {
        const dtp_layout_form form = (dtp_layout_form)i;
        s = dtp_layout_print_as(form, d->layout, d->mesh, d->type, d->dims, &texts[i], err);
        forms[i] = (tool_field)FIELD_BUFFER(dtp_layout_form_name(form), &texts[i]);
        forms[i].kind = s == DTP_OK ? FIELD_IS_BUFFER : FIELD_IS_NULL;
    }
    tool_report(&w, "dtp.viz/1",
                TOOL_FIELDS(FIELD_TEXT("mesh", mesh),
                            FIELD_TEXT_IF(d->name != NULL, "tensor", d->name),
                            FIELD_TEXT("dtype", dtp_dtype_name(d->type->dtype)),
                            FIELD_OBJECT_IF(d->note != NULL, "stages", FIELD_INT("home", c->home),
                                            FIELD_INTS("on", c->n_on, c->on),
                                            FIELD_LIST("sends", c->n_sent, sent_row, c)),
                            FIELD_TEXTS("dims", d->type->rank, dims),
                            FIELD_INTS("shape", d->type->rank, shape), FIELD_GROUP("forms", forms),
                            FIELD_LIST("ranks", dtp_mesh_ranks(d->mesh), rank_row, d)));
    for (int32_t i = 0; i < DTP_N_LAYOUT_FORMS; i++) {
        dtp_strbuf_free(&texts[i]);
    }
    dtp_strbuf_join(out, &w.buf);
    return s == DTP_UNSUPPORTED ? DTP_OK : s;
}

/* ---- the command ---- */

/* svg: empty unless it was asked for. */
static dtp_status draw(viz_command *c, dtp_strbuf *out, dtp_strbuf *svg, dtp_err *err)
{
    DTP_TRY(c->source.model == NULL ? read_tensor(c, err) : read_model(c, err));
    DTP_TRY(dtp_drawing_check(&c->drawing, err));
    DTP_TRY(c->source.json ? write_json(c, out, err) : dtp_layout_draw_text(&c->drawing, out, err));
    return c->source.svg != NULL ? dtp_layout_draw_svg(&c->drawing, svg, err) : DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    viz_command *c = command;
    dtp_strbuf out = {0}, svg = {0};
    c->source.model = operands[0];
    c->arena = dtp_arena_create();
    dtp_status s = draw(c, &out, &svg, err);
    s = s == DTP_OK ? tool_put_both(c->source.svg, &svg, &out, false, err) : s;
    dtp_strbuf_free(&out);
    dtp_strbuf_free(&svg);
    dtp_strbuf_free(&c->note);
    tool_job_free(&c->job);
    dtp_arena_destroy(c->arena);
    return s;
}

int dtplan_viz(int argc, char **argv)
{
    viz_command c = {.ctx = dtp_ctx_default()};
    const tool_call call = {TOOL_VIZ, execute, &c, &c.source, NULL};
    return tool_run(&call, argc, argv);
}
