/* Pins as texts, which do not depend on a mesh: "style GLOB: STYLE" (docs/styles.md) and "pin
 * TENSOR: LAYOUT". A plan lists its pins in this form. */
#include "interop/styles/pin_texts.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file_in.h"
#include "core/plan/sharding_microbatch.h"
#include "spmd/lower/lower.h"

enum { MAX_FILE_BYTES = 1 << 24 };

static const char STYLE[] = "style ", PIN[] = "pin ";

dtp_status dtp_pin_texts(const dtp_pin_source *source, dtp_arena *arena, dtp_styles *read,
                         int32_t *n, const char ***out, dtp_err *err)
{
    dtp_styles_init(read, arena);
    dtp_style_rename *names =
        dtp_arena_alloc(read->arena, (size_t)source->n_names + 1, sizeof *names);
    DTP_TRY(DTP_MEMORY(err, names));
    /* "THEIRS=OURS". */
    for (int32_t i = 0; i < source->n_names; i++) {
        const char *text = source->names[i];
        const size_t bytes = strcspn(text, "=");
        if (bytes == 0 || text[bytes] != '=' || text[bytes + 1] == '\0') {
            return DTP_FAIL(err, DTP_INVALID, "--style-names: '%s' is not of the form NAME=VALUE",
                            text);
        }
        names[i] = (dtp_style_rename){dtp_arena_printf(read->arena, "%.*s", (int)bytes, text),
                                      text + bytes + 1};
        DTP_TRY(DTP_MEMORY(err, names[i].from));
    }
    dtp_names framework;
    const dtp_style_naming naming = {source->n_names, names,
                                     source->names_file != NULL ? &framework : NULL};
    if (source->n_files > 0 && source->names_file != NULL) {
        DTP_TRY(dtp_names_read(source->names_file, arena, &framework, err));
    }
    for (int32_t i = 0; i < source->n_files; i++) {
        char *text = NULL;
        size_t len = 0;
        DTP_TRY(dtp_file_read(source->files[i], MAX_FILE_BYTES, &text, &len, err));
        dtp_status s = dtp_styles_import_hf(source->files[i], text, len, &naming, read, err);
        free(text);
        DTP_TRY(s);
    }
    for (int32_t i = 0; i < source->n_styles; i++) {
        DTP_TRY(dtp_styles_parse(source->styles[i], read, err));
    }
    const int32_t count = read->n + source->n_pins;
    const char **texts = dtp_arena_alloc(arena, (size_t)count, sizeof *texts);
    DTP_TRY(DTP_MEMORY(err, texts));
    for (int32_t i = 0; i < count; i++) {
        texts[i] = i < read->n ? dtp_arena_printf(arena, "%s%s", STYLE, read->items[i].text)
                               : dtp_arena_printf(arena, "%s%s", PIN, source->pins[i - read->n]);
        DTP_TRY(DTP_MEMORY(err, texts[i]));
    }
    *n = count;
    *out = texts;
    return DTP_OK;
}

dtp_status dtp_pin_place(const dtp_styles *read, dtp_status s, dtp_err *err)
{
    for (int32_t i = 0; s != DTP_OK && err != NULL && i < read->n; i++) {
        const dtp_style *style = &read->items[i];
        dtp_err named = {0};
        dtp_err_prefix(&named, "style '%.200s'", style->text);
        if (style->place != NULL && strstr(err->msg, named.msg) != NULL) {
            dtp_err_prefix(err, "%s", style->place);
            return s;
        }
    }
    return s;
}

/* The part of a text behind a word, NULL when it begins otherwise. */
static const char *behind(const char *text, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(text, word, n) == 0 ? text + n : NULL;
}

dtp_status dtp_pin_set_read(int32_t n, const char *const *texts, const dtp_graph *g,
                            const dtp_mesh *mesh, dtp_arena *arena, dtp_pin_set *out, dtp_err *err)
{
    dtp_styles styles;
    memset(out, 0, sizeof *out);
    dtp_styles_init(&styles, arena);
    DTP_TRY(DTP_NEW(arena, out->texts, n, err));
    for (int32_t i = 0; i < n; i++) {
        const char *style = behind(texts[i], STYLE);
        if (style != NULL) {
            DTP_TRY(dtp_styles_parse(style, &styles, err));
        }
        if (style != NULL || behind(texts[i], PIN) != NULL) {
            out->texts[out->n_texts++] = texts[i];
        }
    }
    /* The pins of the styles, then the others. */
    dtp_pin *pins = NULL;
    int32_t count = 0;
    DTP_TRY(dtp_styles_pins(g, mesh, &styles, &count, &pins, err));
    out->pins = dtp_arena_alloc(styles.arena, (size_t)count + (size_t)out->n_texts, sizeof *pins);
    DTP_TRY(DTP_MEMORY(err, out->pins));
    if (count > 0) {
        memcpy(out->pins, pins, (size_t)count * sizeof *pins);
    }
    out->n_pins = count;
    out->n_implementations = styles.n_implementations;
    out->implementations = styles.implementations;
    for (int32_t i = 0; i < out->n_texts; i++) {
        const char *pin = behind(out->texts[i], PIN);
        if (pin != NULL) {
            DTP_TRY(dtp_pin_parse(pin, g, mesh, &out->pins[out->n_pins++], err));
        }
    }
    return DTP_OK;
}

/* ---- strict ---- */

/* Whether pins of the tensor as the node reads it speak of every mesh dim that changes; a
 * recomputation reads as the node does that it repeats. */
static bool is_asked(const dtp_graph *g, const dtp_pin_set *pins, const dtp_copy_info *move)
{
    const dtp_node *node = &g->nodes[move->node];
    const dtp_node_id reader = node->repeats ? node->origin : move->node;
    const dtp_tensor_id tensor = g->nodes[reader].in[move->operand];
    dtp_mesh_set asked = 0, changed = 0;
    for (int32_t i = 0; i < pins->n_pins; i++) {
        const dtp_pin *pin = &pins->pins[i];
        if (pin->node == reader && pin->tensor == tensor) {
            asked |= pin->dims != 0 ? pin->dims : UINT32_MAX;
        }
    }
    for (int32_t m = 0; m < move->from.n_mesh; m++) {
        const dtp_placement a = move->from.placement[m], b = move->to.placement[m];
        changed |= a.kind != b.kind || a.axis != b.axis ? 1U << m : 0U;
    }
    return asked != 0 && (changed & ~asked) == 0;
}

dtp_status dtp_pins_strict(const dtp_graph *g, const dtp_sharding *sharding,
                           const dtp_redistributor *redistributor, const dtp_pin_set *pins,
                           dtp_err *err)
{
    dtp_redistributions moves;
    dtp_status s = dtp_redistributions_find(g, sharding, redistributor, &moves, err);
    for (int32_t i = 0; i < moves.n && s == DTP_OK; i++) {
        const dtp_copy_info *m = &moves.items[i];
        const dtp_node *node = &g->nodes[m->node];
        const dtp_graph_tensor *t = &g->tensors[m->tensor];
        char from[DTP_LAYOUT_TEXT_BYTES], to[DTP_LAYOUT_TEXT_BYTES];
        if (m->operand < 0 || m->steps.n == 0 || !m->sends || node->phase == DTP_UPDATE ||
            dtp_is_accumulate(g, node) || is_asked(g, pins, m)) {
            continue;
        }
        dtp_layout_print(&m->from, &sharding->mesh, &t->type, &g->dims, from);
        dtp_layout_print(&m->to, &sharding->mesh, &t->type, &g->dims, to);
        s = DTP_FAIL(err, DTP_INVALID,
                     "--strict: node '%s' (%s): operand %d, '%s', has to move from '%s' to '%s', "
                     "which no pin asked for",
                     node->name, node->op->name, m->operand, t->name, from, to);
    }
    dtp_redistributions_free(&moves);
    return s;
}
