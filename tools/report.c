/* Field tables: what a report says is one list of fields, from which JSON and tables of text
 * come. */
#include "tools/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/units.h"
#include "core/files/file_out.h"
#include "dtp/plan.h"
#include "cost_models/pipeline.h"
#include "interop/counters.h"
#include "tools/look.h"
#include "tools/progress.h"

const char *tool_rates_note(const char *rates)
{
    const bool datasheet = rates != NULL && strcmp(rates, "datasheet") == 0;
    return datasheet ? ", at rates of the datasheet" : "";
}

void tool_report_begin(dtp_json_writer *w, const char *format)
{
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "format", format);
}

void tool_report_end(dtp_json_writer *w)
{
    dtp_json_end_object(w);
    dtp_strbuf_add(&w->buf, "\n");
}

void tool_report(dtp_json_writer *w, const char *format, const tool_field *fields)
{
    tool_report_begin(w, format);
    tool_write(w, fields);
    tool_report_end(w);
}

struct tool_rows {
    dtp_json_writer *w; /* NULL: a table */
    bool members;       /* of an object: rows have no objects of their own */
    dtp_strbuf *out;
    const tool_column *columns;
};

/* The objects of a list, the members of a map. */
static void write_rows(dtp_json_writer *w, const tool_field *f)
{
    tool_rows rows = {.w = w, .members = f->kind == FIELD_IS_MAP};
    if (rows.members) {
        dtp_json_begin_object(w, f->key);
    } else {
        dtp_json_begin_array(w, f->key, false);
    }
    for (int32_t i = 0; i < f->n; i++) {
        f->row(&rows, f->user, i);
    }
    if (rows.members) {
        dtp_json_end_object(w);
    } else {
        dtp_json_end_array(w);
    }
}

static void write_field(dtp_json_writer *w, const tool_field *f)
{
    switch (f->kind) {
    case FIELD_IS_INT:
    case FIELD_IS_BYTES:
        dtp_json_write_int(w, f->key, f->i);
        break;
    case FIELD_IS_REAL:
        dtp_json_write_double(w, f->key, f->x);
        break;
    case FIELD_IS_BOOL:
        dtp_json_write_bool(w, f->key, f->b);
        break;
    case FIELD_IS_TEXT:
        if (f->text == NULL) {
            dtp_json_write_null(w, f->key);
        } else {
            dtp_json_write_string(w, f->key, f->text);
        }
        break;
    case FIELD_IS_NULL:
        dtp_json_write_null(w, f->key);
        break;
    case FIELD_IS_DIMS:
        dtp_json_begin_array(w, f->key, true);
        for (int32_t m = 0; m < f->mesh->n_dims; m++) {
            if ((f->set >> m & 1U) != 0) {
                dtp_json_write_string(w, NULL, f->mesh->names[m]);
            }
        }
        dtp_json_end_array(w);
        break;
    case FIELD_IS_MESH:
        dtp_mesh_write(w, f->mesh);
        break;
    case FIELD_IS_OBJECT:
        tool_write_object(w, f->key, f->fields);
        break;
    case FIELD_IS_INTS:
        dtp_json_write_ints(w, f->key, f->n, f->ints);
        break;
    case FIELD_IS_REALS:
        dtp_json_begin_array(w, f->key, true);
        for (int32_t i = 0; i < f->n; i++) {
            dtp_json_write_double(w, NULL, f->reals[i]);
        }
        dtp_json_end_array(w);
        break;
    case FIELD_IS_TEXTS:
    case FIELD_IS_LINES:
        dtp_json_begin_array(w, f->key, f->kind == FIELD_IS_TEXTS);
        for (int32_t i = 0; i < f->n; i++) {
            tool_write(w, TOOL_FIELDS(FIELD_TEXT(NULL, f->texts[i])));
        }
        dtp_json_end_array(w);
        break;
    case FIELD_IS_LIST:
    case FIELD_IS_MAP:
        write_rows(w, f);
        break;
    case FIELD_IS_END:
    case FIELD_IS_ABSENT:
        break;
    case FIELD_IS_BUFFER:
        dtp_json_write_text(w, f->key, f->note);
        dtp_strbuf_free(f->note);
        break;
    case FIELD_IS_NOTE:
        dtp_strbuf_free(f->note);
        break;
    }
}

void tool_write(dtp_json_writer *w, const tool_field *fields)
{
    for (const tool_field *f = fields; f->kind != FIELD_IS_END; f++) {
        write_field(w, f);
    }
}

void tool_write_object(dtp_json_writer *w, const char *key, const tool_field *fields)
{
    dtp_json_begin_object(w, key);
    tool_write(w, fields);
    dtp_json_end_object(w);
}

/* ---- lists ---- */

void tool_row(tool_rows *rows, const tool_field *fields)
{
    if (rows->members) {
        tool_write(rows->w, fields);
        return;
    }
    if (rows->w != NULL) {
        tool_write_object(rows->w, NULL, fields);
        return;
    }
    for (int32_t i = 0; fields[i].kind != FIELD_IS_END && rows->columns[i].head != NULL; i++) {
        const tool_field *f = &fields[i];
        const int width = rows->columns[i].width;
        char dims[DTP_MESH_TEXT_BYTES];
        dtp_strbuf_add(rows->out, i == 0 ? "" : width == 0 ? "  " : " ");
        if (f->kind == FIELD_IS_INT) {
            dtp_strbuf_addf(rows->out, "%*" PRId64, width, f->i);
        } else if (f->kind == FIELD_IS_BYTES) {
            dtp_strbuf_addf(rows->out, "%*s", width, dtp_byte_count((double)f->i).text);
        } else if (f->kind == FIELD_IS_REAL) {
            const double places = f->x > 0.0 ? 3.0 - floor(log10(f->x)) : 0.0; /* four digits */
            dtp_strbuf_addf(rows->out, "%*.*f", width, (int)fmin(fmax(places, 0.0), 9.0), f->x);
        } else if (f->kind == FIELD_IS_DIMS) {
            dtp_mesh_set_print(f->mesh, f->set, "+", dims);
            dtp_strbuf_addf(rows->out, "%*s", width, dims);
        } else if (f->kind == FIELD_IS_NOTE) {
            dtp_strbuf_join(rows->out, f->note);
        } else {
            dtp_strbuf_addf(rows->out, "%*s", width, f->text);
        }
    }
    dtp_strbuf_add(rows->out, "\n");
}

void tool_send_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_pipeline *p = user;
    const dtp_stage_message *x = &p->times.messages[i];
    const int32_t n = p->table.n_stages, count = dtp_message_sends(p, x);
    const bool chunks = p->n > n, priced = p->times.section_s != NULL;
    tool_row(rows, TOOL_FIELDS(FIELD_INT("from", x->from % n), FIELD_INT("to", x->to % n),
                               FIELD_INT_IF(chunks, "from_chunk", x->from / n),
                               FIELD_INT_IF(chunks, "to_chunk", x->to / n),
                               FIELD_TEXT("section", dtp_section_name(x->section).text),
                               FIELD_INT("count", count), FIELD_INT("bytes", count * x->bytes),
                               FIELD_REAL_IF(priced, "predicted_s", count * x->time_s)));
}

void tool_total_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_coll_total *t = &((const dtp_prediction *)user)->collectives[i];
    tool_row(rows,
             TOOL_FIELDS(FIELD_OBJECT_IF(t->kind != NULL, t->kind, FIELD_INT("count", t->count),
                                         FIELD_INT("bytes", t->bytes))));
}

void tool_counter_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_counter *c = &((const dtp_counters *)user)->list[i];
    tool_row(rows, TOOL_FIELDS(FIELD_REAL(c->name, c->value)));
}

void tool_print_table(dtp_strbuf *out, const tool_column *columns, int32_t n, tool_row_of row,
                      const void *user)
{
    tool_rows rows = {.out = out, .columns = columns};
    for (const tool_column *c = columns; c->head != NULL; c++) {
        dtp_strbuf_addf(out, "%s%*s",
                        c == columns    ? ""
                        : c->width == 0 ? "  "
                                        : " ",
                        c->width, c->head);
    }
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < n; i++) {
        row(&rows, user, i);
    }
}

/* ---- text ---- */

dtp_status tool_put_in(const char *file, dtp_strbuf *report, dtp_err *err)
{
    dtp_status s = report->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    if (s == DTP_OK && file != NULL) {
        s = dtp_file_write(file, dtp_strbuf_text(report), report->len, err);
    } else if (s == DTP_OK) {
        tool_progress_end();
        (void)fputs(dtp_strbuf_text(report), stdout);
    }
    dtp_strbuf_free(report);
    return s;
}

dtp_status tool_put(dtp_strbuf *report, dtp_err *err)
{
    return tool_put_in(NULL, report, err);
}

dtp_status tool_put_text(dtp_strbuf *report, dtp_err *err)
{
    return tool_show(stdout, report, err);
}

dtp_status tool_put_both(const char *file, dtp_strbuf *product, dtp_strbuf *report, bool text,
                         dtp_err *err)
{
    if (text) {
        tool_look(stdout, report);
    }
    dtp_status s = report->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    s = s == DTP_OK && file != NULL ? tool_put_in(file, product, err) : s;
    s = s == DTP_OK ? tool_put(report, err) : s;
    dtp_strbuf_free(product);
    dtp_strbuf_free(report);
    return s;
}
