/* dtplan import: a model of another system as a model file and its names. */
#include <string.h>

#include "core/files/file_out.h"
#include "interop/import/folder.h"
#include "tools/dtplan/options.h"

typedef struct import_command {
    const char *output;
    bool json;
    dtp_import_options options;
    dtp_arena *arena;
    dtp_import result;
} import_command;

static void add_lines(dtp_strbuf *out, const char *what, const dtp_import_lines *lines)
{
    for (int32_t i = 0; i < lines->n; i++) {
        dtp_strbuf_addf(out, "%s%s", i == 0 ? what : ", ", lines->lines[i]);
    }
    dtp_strbuf_add(out, lines->n > 0 ? "\n" : "");
}

static void write_report(const import_command *c, const char *names, dtp_json_writer *w)
{
    const dtp_import *r = &c->result;
    if (c->json) {
        tool_report(
            w, "dtp.import/1",
            TOOL_FIELDS(FIELD_TEXT("model", c->output), FIELD_TEXT("names", names),
                        FIELD_TEXT("family", r->family), FIELD_INT("parameters", r->parameters),
                        FIELD_TEXTS("ignored", r->ignored.n, r->ignored.lines),
                        FIELD_TEXTS("left_out", r->left_out.n, r->left_out.lines),
                        FIELD_TEXTS("unsupported", r->unsupported.n, r->unsupported.lines)));
        return;
    }
    dtp_strbuf_addf(&w->buf, "%s: family %s, %s parameters\n", c->output, r->family,
                    dtp_amount((double)r->parameters).text);
    add_lines(&w->buf, "left out: ", &r->left_out);
    add_lines(&w->buf, "not supported, the model differs: ", &r->unsupported);
}

/* DIR/m.json -> DIR/m.names.json. */
static const char *names_path(const import_command *c)
{
    const size_t n = strlen(c->output);
    const bool json = n > 5 && strcmp(c->output + n - 5, ".json") == 0;
    return dtp_arena_printf(c->arena, "%.*s.names.json", (int)(json ? n - 5 : n), c->output);
}

/* Both files and the report, or nothing. */
static dtp_status put(const import_command *c, const char *names, dtp_err *err)
{
    const size_t n = strlen(c->result.names);
    dtp_file_out *file;
    dtp_json_writer report = {0};
    dtp_strbuf model = {0};
    DTP_TRY(dtp_file_out_open(names, &file, err));
    dtp_status s = dtp_file_out_write(file, c->result.names, n, err);
    if (s == DTP_OK) {
        dtp_strbuf_add(&model, c->result.model);
        report.buf.failed = model.failed;
        write_report(c, names, &report);
        s = tool_put_both(c->output, &model, &report.buf, !c->json, err);
    }
    if (s == DTP_OK) {
        return dtp_file_out_commit(file, err);
    }
    dtp_file_out_discard(file);
    return s;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    import_command *c = command;
    if (c->output == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--output FILE is missing");
    }
    c->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, c->arena));
    DTP_TRY(dtp_import_folder(operands[0], &c->options, c->arena, &c->result, err));
    const char *names = names_path(c);
    DTP_TRY(DTP_MEMORY(err, names));
    return put(c, names, err);
}

int dtplan_import(int argc, char **argv)
{
    import_command c = {0};
    const tool_option options[] = {
        {"--output", TOOL_OUT, "FILE", &c.output, 0, 0,
         "the model file (-o); its names file is written beside it, FILE.names.json"},
        {"--no-train", TOOL_FLAG, NULL, &c.options.forward, 0, 0,
         "the forward pass alone, from tokens to logits (default: with next-token loss and AdamW)"},
        {"--allow-approximate", TOOL_FLAG, NULL, &c.options.approximate, 0, 0,
         "go on without what the import does not support; the report lists it"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "print the report as JSON"},
        TOOL_END_OPTIONS,
    };
    const tool_parse parse = {"dtplan import FOLDER -o FILE [options]", options, 1, 1};
    const int code = tool_run("dtplan", &parse, argc, argv, execute, &c);
    dtp_arena_destroy(c.arena);
    return code;
}
