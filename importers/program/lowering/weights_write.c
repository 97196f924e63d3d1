/* The weights of a program as one safetensors file: names and dims are those of the model, whose
 * dims factor the axes of the program in their order, so that the bytes are the same. */
#include <inttypes.h>
#include <string.h>

#include "core/files/file_out.h"
#include "importers/program/lowering/lower.h"

/* The header's entry of one parameter; *at moves behind its data. */
static dtp_status add_entry(dtp_importer *m, int32_t value, int64_t *at, dtp_strbuf *header,
                            dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    const char *type = dtp_aten_type(v->table ? v->stored : v->dtype), *by = "";
    int32_t part = 0;
    if (v->data == NULL || type == NULL || strchr(type, 'f') == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: the weight '%s' has no floating-point elements in the file",
                        m->g->file, v->source);
    }
    dtp_strbuf_addf(header, ",\"%s\":{\"dtype\":\"%s%s\",\"shape\":[", v->id,
                    type[0] == 'b' ? "BF" : "F", type + strcspn(type, "0123456789"));
    for (int32_t i = 0; i < v->rank; i++) {
        const int32_t n = dtp_axis_parts(m, value, i), last = part + n;
        if ((v->same >> i & 1) != 0) {
            part = last;
            continue;
        }
        do { /* an axis of size 1 has no part */
            const int64_t size = n > 0 ? m->axes.cls[m->low[value].cls[part++]].size : 1;
            dtp_strbuf_addf(header, "%s%" PRId64, by, size);
            by = ",";
        } while (part < last);
    }
    dtp_strbuf_addf(header, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", *at, *at + v->bytes);
    *at += v->bytes;
    return DTP_OK;
}

static dtp_status write_file(dtp_importer *m, dtp_file_out *file, const bool *needed,
                             dtp_strbuf *header, dtp_err *err)
{
    int64_t at = 0;
    /* a file of ours, also beside a names file: shapes are those of the model */
    dtp_strbuf_add(header, "{\"__metadata__\":{\"format\":\"dtp\"}");
    for (int32_t i = 0; i < m->g->n_inputs; i++) {
        const int32_t v = m->g->inputs[i];
        if (needed[v] && m->g->values[v].role == ATEN_PARAM) {
            DTP_TRY(add_entry(m, v, &at, header, err));
        }
    }
    dtp_strbuf_add(header, "}");
    while (header->len % 8 != 0) {
        dtp_strbuf_add(header, " ");
    }
    if (header->failed) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory while writing weights");
    }
    unsigned char length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)(header->len >> (8 * i));
    }
    DTP_TRY(dtp_file_out_write(file, length, sizeof length, err));
    DTP_TRY(dtp_file_out_write(file, header->text, header->len, err));
    for (int32_t i = 0; i < m->g->n_inputs; i++) {
        const dtp_aten_value *v = &m->g->values[m->g->inputs[i]];
        if (needed[m->g->inputs[i]] && v->role == ATEN_PARAM) {
            DTP_TRY(dtp_file_out_write(file, v->data, (size_t)v->bytes, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_weights_write(dtp_importer *m, const char *path, const bool *needed, dtp_err *err)
{
    dtp_file_out *file;
    dtp_strbuf header = {0};
    DTP_TRY(dtp_file_out_open(path, &file, err));
    const dtp_status s = write_file(m, file, needed, &header, err);
    dtp_strbuf_free(&header);
    if (s != DTP_OK) {
        dtp_file_out_discard(file);
        return s;
    }
    return dtp_file_out_commit(file, err);
}
