/* Style plans of Hugging Face's transformers (src/transformers/integrations/tensor_parallel.py):
 * one JSON object, name of a module or parameter with '*' for numbers -> name of a style. The names
 * that say only how tensors are held (local_...) mean the same layouts here. */
#include <ctype.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/strbuf.h"
#include "interop/styles/styles.h"

static const struct {
    const char *name;
    const char *style; /* NULL: known but not supported */
    const char *why;
} NAMES[] = {
    {"colwise", "colwise", NULL},
    {"rowwise", "rowwise", NULL},
    {"colwise_rep", "colwise(output=replicated)", NULL},
    {"colwise_gather_output", "colwise(output=replicated)", NULL},
    {"rowwise_rep", "rowwise", NULL},
    {"rowwise_split_input", "rowwise", NULL},
    {"embedding_rowwise", "rowwise", NULL},
    {"local_colwise", "colwise", NULL},
    {"local_rowwise", "rowwise", NULL},
    {"sequence_parallel", "sequence", NULL},
    {"replicate", "replicate", NULL},
    {"replicated_with_grad_allreduce", "replicate", NULL},
    {"local", "", NULL},
    {"gather", "prepare_output=replicated", NULL},
    {"packed_colwise", NULL, "packed weights are separate parameters here"},
    {"packed_rowwise", NULL, "packed weights are separate parameters here"},
    {"local_packed_rowwise", NULL, "packed weights are separate parameters here"},
    {"ep_router", NULL, "expert parallel is not supported"},
    {"grouped_gemm", NULL, "expert parallel is not supported"},
    {"moe_tp_experts", NULL, "expert parallel is not supported"},
};

/* Every dotted part that has another name here is replaced. */
static void rename_parts(const char *name, int32_t n_renames, const dtp_style_rename *renames,
                         dtp_strbuf *out)
{
    for (const char *at = name;; at++) {
        const size_t n = strcspn(at, ".");
        int32_t i = 0;
        while (i < n_renames &&
               (strlen(renames[i].from) != n || memcmp(renames[i].from, at, n) != 0)) {
            i++;
        }
        if (i < n_renames) {
            dtp_strbuf_add(out, renames[i].to);
        } else {
            dtp_strbuf_addf(out, "%.*s", (int)n, at);
        }
        at += n;
        if (*at == '\0') {
            return;
        }
        dtp_strbuf_add(out, ".");
    }
}

static dtp_status import_one(const dtp_json *v, int32_t n_renames, const dtp_style_rename *renames,
                             dtp_styles *list, dtp_err *err)
{
    const size_t n_names = sizeof NAMES / sizeof NAMES[0];
    const char *name;
    size_t i = 0;
    dtp_strbuf text = {0};
    DTP_TRY(dtp_json_string(v, &name, err));
    while (i < n_names && strcmp(NAMES[i].name, name) != 0) {
        i++;
    }
    if (i == n_names) {
        return dtp_json_fail(v, err, "'%.60s' is not a style of a Hugging Face style plan", name);
    }
    const char *style = NAMES[i].style;
    if (style == NULL) {
        (void)dtp_json_fail(v, err, "style '%s': %s", name, NAMES[i].why);
        if (err != NULL) {
            err->code = DTP_UNSUPPORTED;
        }
        return DTP_UNSUPPORTED;
    }
    if (style[0] == '\0') {
        return DTP_OK;
    }
    rename_parts(dtp_json_key(v), n_renames, renames, &text);
    dtp_strbuf_addf(&text, ": %s", style);
    dtp_status s = text.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a style")
                               : dtp_styles_parse(dtp_strbuf_text(&text), list, err);
    dtp_strbuf_free(&text);
    if (s != DTP_OK) {
        dtp_json_prefix(v, err);
        return s;
    }
    char place[DTP_JSON_PLACE_BYTES];
    dtp_json_place(v, place, sizeof place);
    list->items[list->n - 1].place = dtp_arena_strdup(list->arena, place);
    return DTP_MEMORY(err, list->items[list->n - 1].place);
}

dtp_status dtp_styles_import_hf(const char *file, const char *text, size_t len, int32_t n_renames,
                                const dtp_style_rename *renames, dtp_styles *list, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    const dtp_json *root = dtp_json_root(doc);
    dtp_status s = dtp_json_expect(root, DTP_JSON_OBJECT, err);
    for (int32_t i = 0; i < dtp_json_size(root) && s == DTP_OK; i++) {
        s = import_one(dtp_json_at(root, i), n_renames, renames, list, err);
    }
    dtp_json_destroy(doc);
    return s;
}
