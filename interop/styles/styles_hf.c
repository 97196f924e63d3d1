/* Style plans of Hugging Face's transformers (src/transformers/integrations/tensor_parallel.py):
 * one JSON object, name of a module or parameter with '*' for numbers -> name of a style. The names
 * that say only how tensors are held (local_...) mean the same layouts here. What `dtplan export
 * --as hf` writes has the object under "tp_plan", and the mesh dim that it is for. */
#include <ctype.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/strbuf.h"
#include "interop/styles/styles.h"

static const char PACKED[] =
    "packed weights are separate parameters here, which a names file (MODEL.names.json) lists";

static const struct {
    const char *name;
    const char *style; /* NULL: known but not supported */
    const char *why;
    const char *fused; /* the style of the parts of a fused weight; needs a names file */
} NAMES[] = {
    {"colwise", "colwise", NULL, NULL},
    {"rowwise", "rowwise", NULL, NULL},
    {"colwise_rep", "colwise(output=replicated)", NULL, NULL},
    {"colwise_gather_output", "colwise(output=replicated)", NULL, NULL},
    {"rowwise_rep", "rowwise", NULL, NULL},
    {"rowwise_split_input", "rowwise", NULL, NULL},
    {"embedding_rowwise", "rowwise", NULL, NULL},
    {"embedding_colwise", "colwise(output=replicated)", NULL, NULL},
    {"local_colwise", "colwise", NULL, NULL},
    {"local_rowwise", "rowwise", NULL, NULL},
    {"sequence_parallel", "sequence", NULL, NULL},
    {"replicate", "replicate", NULL, NULL},
    {"replicated_with_grad_allreduce", "", NULL, NULL},
    {"local", "", NULL, NULL},
    {"gather", "prepare_output=replicated", NULL, NULL},
    {"packed_colwise", NULL, PACKED, "colwise"},
    {"packed_rowwise", NULL, PACKED, "rowwise"},
    {"local_packed_rowwise", NULL, PACKED, "rowwise"},
    {"ep_router", NULL, "expert parallel is not supported", NULL},
    {"grouped_gemm", NULL, "expert parallel is not supported", NULL},
    {"moe_tp_experts", NULL, "expert parallel is not supported", NULL},
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

static dtp_status fail_unsupported(const dtp_json *v, dtp_err *err, const char *name,
                                   const char *why)
{
    (void)dtp_json_fail(v, err, "style '%s': %s", name, why);
    if (err != NULL) {
        err->code = DTP_UNSUPPORTED;
    }
    return DTP_UNSUPPORTED;
}

/* The glob of all parameters of the module that a key of the file names, "" when the names file
 * knows no such module; *fused: one of them is a part of a fused weight; *tied: the module has a
 * parameter under a tied name. `base`: keys are those of the base model, as base_model_tp_plan has
 * them. */
static dtp_status find_params(const dtp_names *names, bool base, const char *key, dtp_arena *arena,
                              dtp_strbuf *glob, bool *fused, bool *tied, dtp_err *err)
{
    int32_t n = 0;
    for (int32_t i = 0; names != NULL && i < names->n; i++) {
        const char *ours;
        DTP_TRY(dtp_names_match(&names->entries[i], base, key, arena, &ours, err));
        *tied = *tied || dtp_names_ties(&names->entries[i], base, key);
        if (ours != NULL) {
            dtp_strbuf_addf(glob, "%s%s", n++ > 0 ? "," : "{", ours);
            *fused = *fused || names->entries[i].n_parts > 0;
        }
    }
    dtp_strbuf_add(glob, n > 0 ? "}" : "");
    return DTP_OK;
}

/* ": STYLE" with the mesh dim, if one is given. */
static void add_style(const char *style, const char *mesh_dim, dtp_strbuf *out)
{
    const size_t n = mesh_dim == NULL ? strlen(style) : strcspn(style, "(=");
    dtp_strbuf_addf(out, ": %.*s", (int)n, style);
    if (mesh_dim != NULL) {
        const bool more = style[n] == '(';
        dtp_strbuf_addf(out, "(%s%s%s", mesh_dim, more ? ", " : ")", style + n + (more ? 1 : 0));
    }
}

static dtp_status import_one(const dtp_json *v, const dtp_style_naming *naming,
                             const char *mesh_dim, dtp_styles *list, dtp_err *err)
{
    const size_t n_names = sizeof NAMES / sizeof NAMES[0];
    const char *name;
    size_t i = 0;
    bool fused = false, tied = false;
    dtp_strbuf text = {0};
    DTP_TRY(dtp_json_string(v, &name, err));
    while (i < n_names && strcmp(NAMES[i].name, name) != 0) {
        i++;
    }
    if (i == n_names) {
        return dtp_json_fail(v, err, "'%.60s' is not a style of a Hugging Face style plan", name);
    }
    dtp_status s = DTP_OK;
    for (int32_t base = 0; base < 2 && s == DTP_OK && text.len == 0; base++) {
        s = find_params(naming->names, base == 1, dtp_json_key(v), list->arena, &text, &fused,
                        &tied, err);
    }
    const char *style = fused && NAMES[i].fused != NULL ? NAMES[i].fused : NAMES[i].style;
    if (s == DTP_OK && style == NULL) {
        s = fail_unsupported(v, err, name, NAMES[i].why);
    } else if (s == DTP_OK && fused && strncmp(style, "colwise", 7) == 0 &&
               NAMES[i].fused == NULL) {
        s = fail_unsupported(v, err, name,
                             "the weight is fused, and is cut without regard to its parts: "
                             "packed_colwise cuts each of them");
    }
    /* A tied weight lies as the module that the model reads it from first. */
    if (s != DTP_OK || style[0] == '\0' || (text.len == 0 && tied)) {
        dtp_strbuf_free(&text);
        return s;
    }
    if (text.len == 0) {
        rename_parts(dtp_json_key(v), naming->n_renames, naming->renames, &text);
    }
    add_style(style, mesh_dim, &text);
    s = text.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a style")
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

static dtp_status import_all(const dtp_json *root, const dtp_style_naming *naming, dtp_styles *list,
                             dtp_err *err)
{
    const dtp_json *plan = dtp_json_get(root, "tp_plan"), *dim = dtp_json_get(root, "mesh_dim");
    const char *mesh_dim = NULL;
    DTP_TRY(dtp_json_expect(root, DTP_JSON_OBJECT, err));
    if (plan == NULL || dtp_json_kind_of(plan) == DTP_JSON_STRING) {
        plan = root;
    } else {
        DTP_TRY(dtp_json_expect(plan, DTP_JSON_OBJECT, err));
        if (dim != NULL && dtp_json_kind_of(dim) != DTP_JSON_NULL) {
            DTP_TRY(dtp_json_string(dim, &mesh_dim, err));
        }
    }
    for (int32_t i = 0; i < dtp_json_size(plan); i++) {
        DTP_TRY(import_one(dtp_json_at(plan, i), naming, mesh_dim, list, err));
    }
    return DTP_OK;
}

dtp_status dtp_styles_import_hf(const char *file, const char *text, size_t len,
                                const dtp_style_naming *naming, dtp_styles *list, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    const dtp_status s = import_all(dtp_json_root(doc), naming, list, err);
    dtp_json_destroy(doc);
    return s;
}
