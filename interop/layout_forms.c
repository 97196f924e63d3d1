/* The text forms of layouts: which one a text is in. */
#include "interop/layout_forms_internal.h"

#include <string.h>

#include "core/layout/layout_rules.h"
#include "core/layout/placement_text.h"

const char *dtp_layout_form_name(dtp_layout_form form)
{
    static const char *const names[DTP_N_LAYOUT_FORMS] = {"dtp",   "mtf",         "tf",
                                                          "torch", "torch-short", "jax"};
    return names[form];
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* P(sum) is torch, P('x'), P(None), P(('x', 'y')) and P() are JAX. */
static bool looks_like_jax(const char *text)
{
    if (starts_with(text, "PartitionSpec")) {
        return true;
    }
    if (!starts_with(text, "P(")) {
        return false;
    }
    const char *inside = dtp_layout_skip_blanks(text + 2);
    return *inside != '\0' && (strchr("'\"()", *inside) != NULL || starts_with(inside, "None"));
}

dtp_layout_form dtp_layout_form_of(const char *text)
{
    text = text != NULL ? dtp_layout_skip_blanks(text) : "";
    if (dtp_form__looks_like_tf(text)) {
        return DTP_FORM_TF;
    }
    if (looks_like_jax(text)) {
        return DTP_FORM_JAX;
    }
    if (*text == '+' || strchr(text, '@') != NULL || strcmp(text, "replicated") == 0) {
        return DTP_FORM_OURS;
    }
    if (strchr(text, ':') != NULL) {
        return DTP_FORM_MTF;
    }
    return DTP_FORM_TORCH;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

/* Layout rules are read by their own parser and followed for this tensor. */
static dtp_status read_mtf(dtp_layout_reader *r, const dtp_dims *dims, dtp_err *err)
{
    dtp_layout_rules rules;
    dtp_arena *arena = dtp_arena_create();
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a layout");
    }
    dtp_status s = dtp_layout_rules_parse(r->text, r->mesh, dims, arena, &rules, err);
    if (s == DTP_OK) {
        s = dtp_layout_rules_layout(&rules, r->mesh, dims, r->type, true, &r->layout, err);
    }
    dtp_arena_destroy(arena);
    return s;
}

static dtp_status read_form(dtp_layout_reader *r, const dtp_dims *dims, dtp_err *err)
{
    switch (dtp_layout_form_of(r->text)) {
    case DTP_FORM_OURS:
        return dtp_layout_parse(r->at, r->mesh, r->type, dims, &r->layout, err);
    case DTP_FORM_MTF:
        return read_mtf(r, dims, err);
    case DTP_FORM_TF:
        return dtp_form__read_tf(r, err);
    case DTP_FORM_JAX:
        return dtp_form__read_jax(r, err);
    case DTP_FORM_TORCH:
    case DTP_FORM_TORCH_SHORT:
    case DTP_N_LAYOUT_FORMS:
        break;
    }
    if (strchr("SRP_([", *r->at) == NULL) {
        return dtp_layout_reader_fail(r,
                                      "Shard, Replicate or Partial (or S, R, P), or another form "
                                      "('batch@x, +sum(y)', 'batch:x', P('x', None), Layout(['x', "
                                      "UNSHARDED], mesh), replicated)",
                                      err);
    }
    return dtp_placements_parse(r->text, r->mesh, r->type, &r->layout, err);
}

dtp_status dtp_layout_parse_any(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                                const dtp_dims *dims, dtp_layout *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, text, mesh, type, out));
    dtp_layout_reader r = {.text = text,
                           .at = dtp_layout_skip_blanks(text),
                           .mesh = mesh,
                           .type = type,
                           .layout = dtp_layout_replicated(type->rank, mesh->n_dims)};
    static const dtp_dims nameless;
    if (*r.at == '\0') {
        return DTP_FAIL(err, DTP_INVALID,
                        "layout: the text is empty; 'replicated' says that nothing is split");
    }
    DTP_TRY(read_form(&r, dims != NULL ? dims : &nameless, err));
    *out = r.layout;
    return DTP_OK;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

/* The forms without words for partial values. */
static dtp_status refuse_partial(dtp_layout_form form, const dtp_form_writer *w, dtp_err *err)
{
    for (int32_t m = 0; m < w->layout->n_mesh; m++) {
        if (w->layout->placement[m].kind == DTP_PARTIAL) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "layout: the form '%s' has no partial values (mesh dim '%s')",
                            dtp_layout_form_name(form), w->mesh->names[m]);
        }
    }
    return DTP_OK;
}

static void write_ours(const dtp_form_writer *w)
{
    char text[DTP_LAYOUT_TEXT_BYTES];
    dtp_layout_print(w->layout, w->mesh, w->type, w->dims, text);
    dtp_strbuf_add(w->out, text);
}

static void write_mtf(const dtp_form_writer *w)
{
    const char *between = "";
    for (int32_t axis = 0; axis < w->type->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(w->layout, axis, splits);
        for (int32_t i = 0; i < n; i++) {
            dtp_strbuf_addf(w->out, "%s%s:%s", between,
                            dtp_dims_name(w->dims, w->type->dims[axis].id),
                            w->mesh->names[splits[i]]);
            between = ";";
        }
    }
}

static dtp_status write_form(dtp_layout_form form, const dtp_form_writer *w, dtp_err *err)
{
    switch (form) {
    case DTP_FORM_OURS:
        write_ours(w);
        return DTP_OK;
    case DTP_FORM_MTF:
        DTP_TRY(refuse_partial(form, w, err));
        write_mtf(w);
        return DTP_OK;
    case DTP_FORM_TF:
        DTP_TRY(refuse_partial(form, w, err));
        return dtp_form__write_tf(w, err);
    case DTP_FORM_TORCH:
        dtp_placements_print_long(w->layout, w->mesh, w->out);
        return DTP_OK;
    case DTP_FORM_TORCH_SHORT:
        dtp_placements_print(w->layout, w->out);
        return DTP_OK;
    case DTP_FORM_JAX:
        DTP_TRY(refuse_partial(form, w, err));
        dtp_form__write_jax(w);
        return DTP_OK;
    case DTP_N_LAYOUT_FORMS:
        break;
    }
    return DTP_FAIL(err, DTP_INVALID, "layout: there is no text form %d", (int)form);
}

dtp_status dtp_layout_print_as(dtp_layout_form form, const dtp_layout *layout, const dtp_mesh *mesh,
                               const dtp_ttype *type, const dtp_dims *dims, dtp_strbuf *out,
                               dtp_err *err)
{
    const dtp_form_writer w = {layout, mesh, type, dims, out};
    DTP_TRY(DTP_NOT_NULL(err, layout, mesh, type, out));
    if (form == DTP_FORM_OURS || form == DTP_FORM_MTF) {
        DTP_TRY(DTP_NOT_NULL(err, dims));
    }
    DTP_TRY(dtp_layout_check(layout, mesh, type, err));
    DTP_TRY(write_form(form, &w, err));
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a layout's text") : DTP_OK;
}
