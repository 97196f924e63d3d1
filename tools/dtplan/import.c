/* dtplan import: a model of another system as a model file and its names. */
#include <stdio.h>
#include <string.h>

#include "core/files/file_map.h"
#include "core/files/file_out.h"
#include "importers/hf/folder.h"
#include "importers/graph_file.h"
#include "tools/job.h"

typedef struct import_command {
    tool_source source;
    dtp_import_options options;       /* of folders */
    dtp_graph_import_options program; /* of .pt2 files */
    dtp_arena *arena;
    bool is_program;
    dtp_import folder;
    dtp_graph_import_result pt2;
} import_command;

/* ---- reports ---- */

static void add_lines(dtp_strbuf *out, const char *what, const dtp_import_lines *lines)
{
    for (int32_t i = 0; i < lines->n; i++) {
        dtp_strbuf_addf(out, "%s%s", i == 0 ? what : ", ", lines->lines[i]);
    }
    dtp_strbuf_add(out, lines->n > 0 ? "\n" : "");
}

static void report_folder(const import_command *c, const char *names, dtp_json_writer *w)
{
    const dtp_import *r = &c->folder;
    if (c->source.json) {
        tool_report(
            w, "dtp.import/1",
            TOOL_FIELDS(FIELD_TEXT("model", c->source.output), FIELD_TEXT("names", names),
                        FIELD_TEXT("family", r->family), FIELD_INT("parameters", r->parameters),
                        FIELD_TEXTS("ignored", r->ignored.n, r->ignored.lines),
                        FIELD_TEXTS("left_out", r->left_out.n, r->left_out.lines),
                        FIELD_TEXTS("unsupported", r->unsupported.n, r->unsupported.lines)));
        return;
    }
    dtp_strbuf_addf(&w->buf, "%s: family %s, %s parameters\n", c->source.output, r->family,
                    dtp_amount((double)r->parameters).text);
    add_lines(&w->buf, "left out: ", &r->left_out);
    add_lines(&w->buf, "not supported, the model differs: ", &r->unsupported);
}

static void report_program(const import_command *c, const char *names, dtp_json_writer *w)
{
    const dtp_graph_import_report *r = &c->pt2.report;
    if (c->source.json) {
        tool_report(w, "dtp.import/1",
                    TOOL_FIELDS(FIELD_TEXT("model", c->source.output), FIELD_TEXT("names", names),
                                FIELD_INT("parameters", r->parameters),
                                FIELD_INT("nodes", r->nodes), FIELD_INT("attention", r->attention),
                                FIELD_INT("causal", r->causal), FIELD_INT("norms", r->norms),
                                FIELD_INT("rope", r->rope), FIELD_INT("gelu", r->gelu),
                                FIELD_INT("blocks", r->blocks), FIELD_INT("repeats", r->repeats),
                                FIELD_TEXT("notes", dtp_strbuf_text(&r->notes))));
        return;
    }
    dtp_strbuf_addf(&w->buf, "%s: %s parameters, %d nodes, %d block%s of %d instances\n",
                    c->source.output, dtp_amount((double)r->parameters).text, r->nodes, r->blocks,
                    r->blocks == 1 ? "" : "s", r->repeats);
    dtp_strbuf_addf(&w->buf, "recognised: %d attention (%d causal), %d norms, %d rope, %d gelu\n",
                    r->attention, r->causal, r->norms, r->rope, r->gelu);
    dtp_strbuf_add(&w->buf, dtp_strbuf_text(&r->notes));
}

/* ---- files ---- */

/* DIR/m.json -> DIR/m.names.json. */
static const char *names_path(const import_command *c)
{
    const size_t n = strlen(c->source.output);
    const bool json = n > 5 && strcmp(c->source.output + n - 5, ".json") == 0;
    return dtp_arena_printf(c->arena, "%.*s.names.json", (int)(json ? n - 5 : n), c->source.output);
}

/* The file's name without folder and ending, of characters that a model's name may have. */
static const char *model_name(const import_command *c, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = dtp_arena_strdup(c->arena, slash == NULL ? path : slash + 1);
    for (char *p = name; p != NULL && *p != '\0'; p++) {
        *p = *p == '"' || *p == '\\' || (unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e ? '_'
                                                                                             : *p;
    }
    if (name != NULL && strlen(name) > 100) {
        name[100] = '\0';
    }
    char *end = name == NULL ? NULL : strrchr(name, '.');
    if (end != NULL && end != name) {
        *end = '\0';
    }
    return name;
}

/* Both files and the report, or nothing. */
static dtp_status put(const import_command *c, const char *names, dtp_err *err)
{
    const char *names_text = c->is_program ? dtp_strbuf_text(&c->pt2.names) : c->folder.names;
    const char *model_text = c->is_program ? dtp_strbuf_text(&c->pt2.model) : c->folder.model;
    dtp_file_out *file;
    dtp_json_writer report = {0};
    dtp_strbuf model = {0};
    DTP_TRY(dtp_file_out_open(names, &file, err));
    dtp_status s = dtp_file_out_write(file, names_text, strlen(names_text), err);
    if (s == DTP_OK) {
        dtp_strbuf_add(&model, model_text);
        report.buf.failed = model.failed;
        (c->is_program ? report_program : report_folder)(c, names, &report);
        s = tool_put_both(c->source.output, &model, &report.buf, !c->source.json, err);
    }
    if (s == DTP_OK) {
        return dtp_file_out_commit(file, err);
    }
    dtp_file_out_discard(file);
    return s;
}

static dtp_status import_program(import_command *c, const char *path, dtp_err *err)
{
    if (c->options.forward || c->options.approximate) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--no-train and --allow-approximate are of folders: %s is a program", path);
    }
    c->program.loss = c->source.loss;
    c->program.weights = c->source.weights;
    c->program.name = model_name(c, path);
    DTP_TRY(DTP_MEMORY(err, c->program.name));
    const dtp_status s = dtp_graph_file_import(path, &c->program, &c->pt2, err);
    if (s != DTP_OK) {
        fputs(dtp_strbuf_text(&c->pt2.report.unsupported), stderr);
    }
    return s;
}

static dtp_status import_folder(import_command *c, const char *path, dtp_err *err)
{
    if (c->source.loss != NULL || c->source.weights != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--loss and --weights are of .pt2 and .onnx files, not of %s", path);
    }
    return dtp_import_folder(path, &c->options, c->arena, &c->folder, err);
}

/* Programs are known by their first bytes, which are none of a folder or of JSON. */
static bool is_program(const char *path)
{
    dtp_file_map map;
    if (dtp_file_map_open(path, &map, NULL) != DTP_OK) {
        return false;
    }
    const bool is = dtp_graph_file_is(map.data, map.bytes);
    dtp_file_map_close(&map);
    return is;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    import_command *c = command;
    const char *path = operands[0];
    if (c->source.output == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--output FILE is missing");
    }
    c->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, c->arena));
    c->is_program = is_program(path);
    DTP_TRY((c->is_program ? import_program : import_folder)(c, path, err));
    const char *names = names_path(c);
    DTP_TRY(DTP_MEMORY(err, names));
    return put(c, names, err);
}

int dtplan_import(int argc, char **argv)
{
    import_command c = {0};
    const tool_call call = {TOOL_IMPORT, execute, &c, &c.source, &c.options};
    const int code = tool_run(&call, argc, argv);
    dtp_graph_file_free(&c.pt2);
    dtp_arena_destroy(c.arena);
    return code;
}
