/* The dtp.model/1 reader: dims, inputs and params first, then the node list with its repeats, then
 * outputs and training. Sections are read in this order wherever they stand in the file. */
#include "core/graph/graph.h"
#include "core/files/file_in.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/autodiff.h"
#include "core/graph/model/model_internal.h"
#include "core/graph/ops/op_table.h"
#include "core/graph/param_globs.h"

/* Parameters that the options freeze. */
static dtp_status freeze(const dtp_model_reader *r, bool trains, dtp_err *err)
{
    const dtp_model_options *o = r->options;
    if (o->n_freeze > 0 && !trains) {
        return DTP_FAIL(err, DTP_INVALID, "%s: freeze: the model has no 'train'", r->file);
    }
    return dtp_err_prefixed(dtp_graph_freeze(r->g, o->n_freeze, o->freeze, err), err, "%s",
                            r->file);
}

static dtp_status read_graph(dtp_model_reader *r, dtp_err *err)
{
    dtp_model_scope scope = {.prefix = "", .site = -1};
    const dtp_json *params = dtp_json_get(r->root, "params");
    const dtp_json *nodes;
    DTP_TRY(dtp_model__dims(r, err));
    DTP_TRY(dtp_model__inputs(r, err));
    if (params != NULL) {
        DTP_TRY(dtp_model__params(r, &scope, params, err));
    }
    DTP_TRY(dtp_model__blocks(r, err));
    DTP_TRY(dtp_json_require(r->root, "nodes", &nodes, err));
    DTP_TRY(dtp_model__node_list(r, &scope, nodes, err));
    DTP_TRY(dtp_model__updates(r, &scope, params, err));
    DTP_TRY(dtp_model__blocks_used(r, err));
    const dtp_json *outputs = dtp_json_get(r->root, "outputs");
    if (outputs != NULL) {
        DTP_TRY(dtp_json_expect(outputs, DTP_JSON_ARRAY, err));
    }
    bool *seen;
    DTP_TRY(DTP_NEW(r->scratch, seen, r->g->n_tensors, err));
    for (int32_t i = 0; outputs != NULL && i < dtp_json_size(outputs); i++) {
        dtp_tensor_id id;
        const dtp_json *v = dtp_json_at(outputs, i);
        DTP_TRY(dtp_model__tensor(r, &scope, v, &id, err));
        if (seen[id]) {
            return dtp_json_fail(v, err, "'%s' is listed twice", r->g->tensors[id].name);
        }
        seen[id] = true;
        DTP_TRY(dtp_graph_add_output(r->g, id, err));
    }
    const dtp_json *train = dtp_json_get(r->root, "train");
    DTP_TRY(freeze(r, train != NULL, err));
    /* Loss, optimizer, gradients and updates. */
    if (train == NULL && r->g->n_outputs == 0) {
        return dtp_json_fail(r->root, err, "the model has neither outputs nor train");
    }
    dtp_tensor_id loss = -1;
    DTP_TRY(train != NULL ? dtp_model__train(r, &scope, train, &loss, err) : DTP_OK);
    if (r->options->forward_only) {
        r->g->forward_only = true;
        r->g->n_updates = 0;
        return dtp_graph_set_evaluation(r->g, err);
    }
    if (train == NULL) {
        r->g->n_updates = 0;
        return DTP_OK;
    }
    r->g->loss = loss;
    return dtp_json_prefixed(train, dtp_training_graph(r->g, err), err);
}

static dtp_status read_document(const char *file, const dtp_json *root,
                                const dtp_model_options *options, dtp_arena *scratch,
                                dtp_graph **out, dtp_err *err)
{
    static const char *const keys[] = {"format", "name",   "about", "framework", "dims",  "inputs",
                                       "params", "blocks", "nodes", "outputs",   "train", NULL};
    const dtp_json *about = dtp_json_get(root, "about");
    const dtp_json *framework = dtp_json_get(root, "framework");
    const char *name, *from = NULL;
    DTP_TRY(dtp_json_format(root, "dtp.model/1", keys, err));
    DTP_TRY(dtp_json_get_string(root, "name", &name, err));
    if (name[0] == '\0' || strlen(name) > DTP_MODEL_MAX_NAME) {
        return dtp_json_fail(dtp_json_get(root, "name"), err, "the name has 1 to %d bytes",
                             DTP_MODEL_MAX_NAME);
    }
    if (about != NULL) {
        DTP_TRY(dtp_json_expect(about, DTP_JSON_STRING, err));
    }
    if (framework != NULL) {
        DTP_TRY(dtp_json_string(framework, &from, err));
        if (strcmp(from, "torch") != 0 && strcmp(from, "transformers") != 0) {
            return dtp_json_fail(framework, err, "'%s' is neither torch nor transformers", from);
        }
    }
    dtp_model_reader r = {.file = file, .options = options, .root = root, .scratch = scratch};
    dtp_dims_init(&r.declared, scratch);
    DTP_TRY(DTP_NEW(scratch, r.sites, DTP_MODEL_MAX_REPEATS, err));
    const dtp_op_set *ops = options->ops != NULL ? options->ops : dtp_builtin_ops();
    DTP_TRY(dtp_graph_create(name, ops, &r.g, err));
    r.g->framework = from != NULL ? dtp_arena_strdup(r.g->arena, from) : NULL;
    dtp_status s = from != NULL ? DTP_MEMORY(err, r.g->framework) : DTP_OK;
    s = s == DTP_OK ? read_graph(&r, err) : s;
    return dtp_graph_deliver(r.g, s, out);
}

dtp_status dtp_model_parse(const char *file, const char *text, size_t len,
                           const dtp_model_options *options, dtp_graph **out, dtp_err *err)
{
    dtp_model_options known;
    DTP_TRY(DTP_NOT_NULL(err, file, text, out));
    DTP_TRY(dtp_options_read(__func__, options, sizeof known, &known, err));
    dtp_json_doc *doc = NULL;
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    dtp_arena *scratch = dtp_arena_create();
    dtp_status s = scratch == NULL
                       ? DTP_FAIL(err, DTP_NOMEM, "%s: out of memory", file)
                       : read_document(file, dtp_json_root(doc), &known, scratch, out, err);
    dtp_arena_destroy(scratch);
    dtp_json_destroy(doc);
    return s;
}

dtp_status dtp_model_read(const char *path, const dtp_model_options *options, dtp_graph **out,
                          dtp_err *err)
{
    char *text;
    size_t len;
    DTP_TRY(DTP_NOT_NULL(err, path, out));
    DTP_TRY(dtp_file_read(path, DTP_MODEL_MAX_BYTES, &text, &len, err));
    dtp_status s = dtp_model_parse(path, text, len, options, out, err);
    free(text);
    return s;
}
