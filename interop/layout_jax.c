/* JAX's form of a layout: P('x', None, ('y', 'z')), or PartitionSpec(...). One entry per tensor
 * dim, trailing ones may be left out; a tuple lists mesh dims outermost first. */
#include <string.h>

#include "interop/layout_forms_internal.h"

/* A quoted mesh dim name. */
static dtp_status read_name(dtp_layout_reader *r, int32_t axis, dtp_err *err)
{
    const char quote = *r->at;
    if (quote != '\'' && quote != '"') {
        return dtp_layout_reader_fail(r, "None, a quoted mesh dim or a tuple of them", err);
    }
    const char *name = r->at;
    size_t n = 0;
    DTP_TRY(dtp_layout_reader_quoted(r, &name, &n, err));
    return dtp_layout_reader_split(r, name, n, axis, err);
}

static dtp_status read_entry(dtp_layout_reader *r, int32_t axis, dtp_err *err)
{
    if (dtp_layout_reader_accept(r, "None")) {
        return DTP_OK;
    }
    if (!dtp_layout_reader_accept(r, "(")) {
        return read_name(r, axis, err);
    }
    while (!dtp_layout_reader_accept(r, ")")) {
        DTP_TRY(read_name(r, axis, err));
        if (!dtp_layout_reader_accept(r, ",")) {
            if (!dtp_layout_reader_accept(r, ")")) {
                return dtp_layout_reader_fail(r, "',' or ')' in a tuple", err);
            }
            return DTP_OK;
        }
    }
    return DTP_OK;
}

static dtp_status read_entries(dtp_layout_reader *r, dtp_err *err)
{
    int32_t axis = 0;
    while (!dtp_layout_reader_accept(r, ")")) {
        if (axis == r->type->rank) {
            return DTP_FAIL(err, DTP_INVALID,
                            "layout: more than %d entries for a tensor of rank %d at character "
                            "%lld, before '%.40s'",
                            r->type->rank, r->type->rank, (long long)(r->at - r->text) + 1, r->at);
        }
        DTP_TRY(read_entry(r, axis, err));
        axis++;
        if (!dtp_layout_reader_accept(r, ",")) {
            if (!dtp_layout_reader_accept(r, ")")) {
                return dtp_layout_reader_fail(r, "',' or ')'", err);
            }
            return DTP_OK;
        }
    }
    return DTP_OK;
}

dtp_status dtp_form__read_jax(dtp_layout_reader *r, dtp_err *err)
{
    if (!dtp_layout_reader_accept(r, "PartitionSpec")) {
        (void)dtp_layout_reader_accept(r, "P");
    }
    if (!dtp_layout_reader_accept(r, "(")) {
        return dtp_layout_reader_fail(r, "'('", err);
    }
    DTP_TRY(read_entries(r, err));
    return dtp_layout_reader_at_end(r) ? DTP_OK : dtp_layout_reader_fail(r, "the end", err);
}

void dtp_form__write_jax(const dtp_form_writer *w)
{
    dtp_strbuf_add(w->out, "P(");
    for (int32_t axis = 0; axis < w->type->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(w->layout, axis, splits);
        dtp_strbuf_add(w->out, axis > 0 ? ", " : "");
        dtp_strbuf_add(w->out, n == 0 ? "None" : n > 1 ? "(" : "");
        for (int32_t i = 0; i < n; i++) {
            dtp_strbuf_addf(w->out, "%s'%s'", i > 0 ? ", " : "", w->mesh->names[splits[i]]);
        }
        dtp_strbuf_add(w->out, n > 1 ? ")" : "");
    }
    dtp_strbuf_add(w->out, ")");
}
