#include "tools/styles.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file_in.h"
#include "core/transform/microbatch.h"
#include "spmd/propagate/redistributions.h"
#include "core/plan/sharding_microbatch.h"

enum { MAX_FILE_BYTES = 1 << 24, NAME_BYTES = 256 };

bool tool_styles_given(const tool_style_source *source)
{
    return source->styles.n + source->files.n + source->pins.n > 0;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static dtp_status read_names(const tool_list *list, dtp_arena *arena, dtp_style_rename *out,
                             dtp_err *err)
{
    for (int32_t i = 0; i < list->n; i++) {
        char from[NAME_BYTES];
        dtp_status s = tool_split_pair(list->items[i], from, sizeof from, &out[i].to, err);
        if (s != DTP_OK) {
            dtp_err_prefix(err, "--style-names");
            return s;
        }
        out[i].from = dtp_arena_strdup(arena, from);
        if (out[i].from == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for names");
        }
    }
    return DTP_OK;
}

dtp_status tool_styles_texts(tool_style_source *source, dtp_arena *arena, int32_t *n,
                             const char ***out, dtp_err *err)
{
    dtp_style_rename names[TOOL_LIST_MAX];
    dtp_styles *styles = &source->read;
    dtp_styles_init(styles, arena);
    DTP_TRY(read_names(&source->names, arena, names, err));
    for (int32_t i = 0; i < source->files.n; i++) {
        const char *path = source->files.items[i];
        const int32_t n_names = source->names.n;
        char *text = NULL;
        size_t len = 0;
        DTP_TRY(dtp_file_read(path, MAX_FILE_BYTES, &text, &len, err));
        dtp_status s = dtp_styles_import_hf(path, text, len, n_names, names, styles, err);
        free(text);
        DTP_TRY(s);
    }
    for (int32_t i = 0; i < source->styles.n; i++) {
        DTP_TRY(dtp_styles_parse(source->styles.items[i], styles, err));
    }
    return dtp_pin_texts(styles, source->pins.n, source->pins.items, n, out, err);
}

dtp_status tool_styles_say_place(const tool_style_source *source, dtp_status s, dtp_err *err)
{
    for (int32_t i = 0; s != DTP_OK && err != NULL && i < source->read.n; i++) {
        const dtp_style *style = &source->read.items[i];
        dtp_err named = {0};
        dtp_err_prefix(&named, "style '%.200s'", style->text);
        if (style->place != NULL && strstr(err->msg, named.msg) != NULL) {
            dtp_err_prefix(err, "%s", style->place);
            return s;
        }
    }
    return s;
}

dtp_status tool_styles_of_plan(const dtp_plan *plan, const dtp_graph *g, dtp_arena *arena,
                               dtp_pin_set *out, dtp_err *err)
{
    return dtp_pin_set_read(plan->n_pins, plan->pins, g, &plan->mesh, arena, out, err);
}

/* ---- strict -------------------------------------------------------------------------------------
 */

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

dtp_status tool_strict_check(const dtp_graph *g, const dtp_sharding *sharding,
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
