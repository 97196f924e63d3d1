/* The text forms of layouts: which one a text is in; the forms of Mesh TensorFlow and JAX. */
#include "interop/layout_forms.h"

#include <string.h>

#include "core/layout/layout_rules.h"
#include "core/layout/placement_text.h"
#include "interop/layout_tf.h"

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

/* ---- reading ---- */

/* Layout rules are read by their own parser and followed for this tensor. */
static dtp_status read_mtf(dtp_layout_reader *r, const dtp_dims *dims, dtp_err *err)
{
    dtp_layout_rules rules;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = dtp_layout_rules_parse(r->text, r->mesh, dims, arena, &rules, err);
    if (s == DTP_OK) {
        s = dtp_layout_rules_layout(&rules, r->mesh, dims, r->type, true, &r->layout, err);
    }
    dtp_arena_destroy(arena);
    return s;
}

/* A quoted mesh dim, which splits tensor dim `axis`. */
static dtp_status read_jax_name(dtp_layout_reader *r, int32_t axis, dtp_err *err)
{
    const char *name;
    size_t n = 0;
    if (*r->at != '\'' && *r->at != '"') {
        return dtp_layout_reader_fail(r, "None, a quoted mesh dim or a tuple of them", err);
    }
    DTP_TRY(dtp_layout_reader_quoted(r, &name, &n, err));
    return dtp_layout_reader_split(r, name, n, axis, err);
}

/* What follows an element of a list: a comma, or the bracket that closes it (*more = false). */
static dtp_status read_jax_comma(dtp_layout_reader *r, const char *what, bool *more, dtp_err *err)
{
    const bool comma = dtp_layout_reader_accept(r, ",");
    *more = !dtp_layout_reader_accept(r, ")");
    return comma || !*more ? DTP_OK : dtp_layout_reader_fail(r, what, err);
}

/* P('x', None, ('y', 'z')), or PartitionSpec(...). One entry per tensor dim, trailing ones may be
 * left out; a tuple lists mesh dims outermost first. */
static dtp_status read_jax(dtp_layout_reader *r, dtp_err *err)
{
    if (!dtp_layout_reader_accept(r, "PartitionSpec")) {
        (void)dtp_layout_reader_accept(r, "P");
    }
    if (!dtp_layout_reader_accept(r, "(")) {
        return dtp_layout_reader_fail(r, "'('", err);
    }
    bool more = !dtp_layout_reader_accept(r, ")");
    for (int32_t axis = 0; more; axis++) {
        if (axis == r->type->rank) {
            return DTP_FAIL(err, DTP_INVALID,
                            "layout: more than %d entries for a tensor of rank %d at character "
                            "%lld, before '%.40s'",
                            r->type->rank, r->type->rank, (long long)(r->at - r->text) + 1, r->at);
        }
        if (dtp_layout_reader_accept(r, "(")) {
            bool inside = !dtp_layout_reader_accept(r, ")");
            while (inside) {
                DTP_TRY(read_jax_name(r, axis, err));
                DTP_TRY(read_jax_comma(r, "',' or ')' in a tuple", &inside, err));
            }
        } else if (!dtp_layout_reader_accept(r, "None")) {
            DTP_TRY(read_jax_name(r, axis, err));
        }
        DTP_TRY(read_jax_comma(r, "',' or ')'", &more, err));
    }
    return dtp_layout_reader_at_end(r) ? DTP_OK : dtp_layout_reader_fail(r, "the end", err);
}

dtp_status dtp_layout_parse_any(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                                const dtp_dims *dims, dtp_layout *out, dtp_err *err)
{
    static const dtp_dims nameless;
    DTP_TRY(DTP_NOT_NULL(err, text, mesh, type, out));
    dims = dims != NULL ? dims : &nameless;
    dtp_layout_reader r = {.text = text,
                           .at = dtp_layout_skip_blanks(text),
                           .mesh = mesh,
                           .type = type,
                           .layout = dtp_layout_replicated(type->rank, mesh->n_dims)};
    if (*r.at == '\0') {
        return DTP_FAIL(err, DTP_INVALID,
                        "layout: the text is empty; 'replicated' says that nothing is split");
    }
    switch (dtp_layout_form_of(text)) {
    case DTP_FORM_OURS:
        return dtp_layout_parse(r.at, mesh, type, dims, out, err);
    case DTP_FORM_MTF:
        DTP_TRY(read_mtf(&r, dims, err));
        break;
    case DTP_FORM_TF:
        DTP_TRY(dtp_form__read_tf(&r, err));
        break;
    case DTP_FORM_JAX:
        DTP_TRY(read_jax(&r, err));
        break;
    case DTP_FORM_TORCH:
    case DTP_FORM_TORCH_SHORT:
    case DTP_N_LAYOUT_FORMS:
        if (strchr("SRP_([", *r.at) == NULL) {
            return dtp_layout_reader_fail(
                &r,
                "Shard, Replicate or Partial (or S, R, P), or another form "
                "('batch@x, +sum(y)', 'batch:x', P('x', None), Layout(['x', "
                "UNSHARDED], mesh), replicated)",
                err);
        }
        return dtp_placements_parse(text, mesh, type, out, err);
    }
    *out = r.layout;
    return DTP_OK;
}

/* ---- writing ---- */

static void write_mtf(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      const dtp_dims *dims, dtp_strbuf *out)
{
    const char *between = "";
    for (int32_t axis = 0; axis < type->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(layout, axis, splits);
        for (int32_t i = 0; i < n; i++) {
            dtp_strbuf_addf(out, "%s%s:%s", between, dtp_dims_name(dims, type->dims[axis].id),
                            mesh->names[splits[i]]);
            between = ";";
        }
    }
}

static void write_jax(const dtp_layout *layout, const dtp_mesh *mesh, dtp_strbuf *out)
{
    dtp_strbuf_add(out, "P(");
    for (int32_t axis = 0; axis < layout->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(layout, axis, splits);
        dtp_strbuf_add(out, axis > 0 ? ", " : "");
        dtp_strbuf_add(out, n == 0 ? "None" : n > 1 ? "(" : "");
        for (int32_t i = 0; i < n; i++) {
            dtp_strbuf_addf(out, "%s'%s'", i > 0 ? ", " : "", mesh->names[splits[i]]);
        }
        dtp_strbuf_add(out, n > 1 ? ")" : "");
    }
    dtp_strbuf_add(out, ")");
}

dtp_status dtp_layout_print_as(dtp_layout_form form, const dtp_layout *layout, const dtp_mesh *mesh,
                               const dtp_ttype *type, const dtp_dims *dims, dtp_strbuf *out,
                               dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, layout, mesh, type, out));
    if (form == DTP_FORM_OURS || form == DTP_FORM_MTF) {
        DTP_TRY(DTP_NOT_NULL(err, dims));
    }
    DTP_TRY(dtp_layout_check(layout, mesh, type, err));
    const bool has_partial = form != DTP_FORM_MTF && form != DTP_FORM_TF && form != DTP_FORM_JAX;
    for (int32_t m = 0; m < layout->n_mesh && !has_partial; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "layout: the form '%s' has no partial values (mesh dim '%s')",
                            dtp_layout_form_name(form), mesh->names[m]);
        }
    }
    char ours[DTP_LAYOUT_TEXT_BYTES];
    switch (form) {
    case DTP_FORM_OURS:
        dtp_layout_print(layout, mesh, type, dims, ours);
        dtp_strbuf_add(out, ours);
        break;
    case DTP_FORM_MTF:
        write_mtf(layout, mesh, type, dims, out);
        break;
    case DTP_FORM_TF:
        DTP_TRY(dtp_form__write_tf(layout, mesh, type, dims, out, err));
        break;
    case DTP_FORM_TORCH:
        dtp_placements_print_long(layout, mesh, out);
        break;
    case DTP_FORM_TORCH_SHORT:
        dtp_placements_print(layout, out);
        break;
    case DTP_FORM_JAX:
        write_jax(layout, mesh, out);
        break;
    case DTP_N_LAYOUT_FORMS:
    default:
        return DTP_FAIL(err, DTP_INVALID, "layout: there is no text form %d", (int)form);
    }
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a layout's text") : DTP_OK;
}
