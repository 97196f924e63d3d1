#include "tools/styles.h"

#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/microbatch.h"
#include "planner/plan_pins.h"
#include "spmd/moves.h"

enum { MAX_FILE_BYTES = 1 << 24, NAME_BYTES = 256 };

static const char STYLE[] = "style ", PIN[] = "pin ";

bool tool_styles_given(const tool_style_source *source)
{
    return source->styles.n + source->files.n + source->pins.n > 0;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static dtp_status read_file(const char *path, int32_t n_names, const dtp_style_rename *names,
                            dtp_styles *styles, dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    DTP_TRY(dtp_file_read(path, MAX_FILE_BYTES, &text, &len, err));
    dtp_status s = dtp_styles_import_hf(path, text, len, n_names, names, styles, err);
    free(text);
    return s;
}

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

/* The pins of the styles, then those written by hand; n_by_hand texts. */
static dtp_status make_pins(dtp_styles *styles, int32_t n_by_hand, const char *const *by_hand,
                            const dtp_graph *g, const dtp_mesh *mesh, tool_pins *out, dtp_err *err)
{
    dtp_pin *pins = NULL;
    int32_t n = 0;
    DTP_TRY(dtp_styles_pins(g, mesh, styles, &n, &pins, err));
    out->pins = dtp_arena_alloc(styles->arena, (size_t)n + (size_t)n_by_hand, sizeof *pins);
    out->texts =
        dtp_arena_alloc(styles->arena, (size_t)styles->n + (size_t)n_by_hand, sizeof *out->texts);
    if (out->pins == NULL || out->texts == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d pins", n);
    }
    if (n > 0) {
        memcpy(out->pins, pins, (size_t)n * sizeof *pins);
    }
    out->n_pins = n;
    out->n_settings = styles->n_settings;
    out->settings = styles->settings;
    for (int32_t i = 0; i < styles->n; i++) {
        out->texts[out->n_texts++] =
            dtp_arena_printf(styles->arena, "%s%s", STYLE, styles->items[i].text);
    }
    for (int32_t i = 0; i < n_by_hand; i++) {
        DTP_TRY(dtp_pin_parse(by_hand[i], g, mesh, &out->pins[out->n_pins++], err));
        out->texts[out->n_texts++] = dtp_arena_printf(styles->arena, "%s%s", PIN, by_hand[i]);
    }
    for (int32_t i = 0; i < out->n_texts; i++) {
        if (out->texts[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for pins");
        }
    }
    return DTP_OK;
}

dtp_status tool_styles_read(const tool_style_source *source, const dtp_graph *g,
                            const dtp_mesh *mesh, dtp_arena *arena, tool_pins *out, dtp_err *err)
{
    dtp_styles styles;
    dtp_style_rename names[TOOL_LIST_MAX];
    memset(out, 0, sizeof *out);
    dtp_styles_init(&styles, arena);
    DTP_TRY(read_names(&source->names, arena, names, err));
    for (int32_t i = 0; i < source->files.n; i++) {
        DTP_TRY(read_file(source->files.items[i], source->names.n, names, &styles, err));
    }
    for (int32_t i = 0; i < source->styles.n; i++) {
        DTP_TRY(dtp_styles_parse(source->styles.items[i], &styles, err));
    }
    return make_pins(&styles, source->pins.n, source->pins.items, g, mesh, out, err);
}

dtp_status tool_styles_of_plan(const dtp_plan *plan, const dtp_graph *g, dtp_arena *arena,
                               tool_pins *out, dtp_err *err)
{
    dtp_styles styles;
    const char **by_hand = dtp_arena_alloc(arena, (size_t)plan->n_pins, sizeof *by_hand);
    int32_t n_by_hand = 0;
    memset(out, 0, sizeof *out);
    dtp_styles_init(&styles, arena);
    if (by_hand == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for pins");
    }
    for (int32_t i = 0; i < plan->n_pins; i++) {
        const char *text = plan->pins[i];
        if (strncmp(text, STYLE, sizeof STYLE - 1) == 0) {
            DTP_TRY(dtp_styles_parse(text + sizeof STYLE - 1, &styles, err));
        } else if (strncmp(text, PIN, sizeof PIN - 1) == 0) {
            by_hand[n_by_hand++] = text + sizeof PIN - 1;
        }
    }
    return make_pins(&styles, n_by_hand, by_hand, g, &plan->mesh, out, err);
}

/* ---- strict -------------------------------------------------------------------------------------
 */

/* Whether pins of the tensor as the node reads it speak of every mesh dim that changes; a
 * recomputation reads as the node does that it repeats. */
static bool is_asked(const dtp_graph *g, const tool_pins *pins, const dtp_move_info *move)
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
        const dtp_place a = move->from.place[m], b = move->to.place[m];
        changed |= a.kind != b.kind || a.axis != b.axis ? 1U << m : 0U;
    }
    return asked != 0 && (changed & ~asked) == 0;
}

dtp_status tool_strict_check(const dtp_graph *g, const dtp_sharding *sharding,
                             const dtp_redistributor *redistributor, const tool_pins *pins,
                             dtp_err *err)
{
    dtp_moves moves;
    dtp_status s = dtp_moves_find(g, sharding, redistributor, &moves, err);
    for (int32_t i = 0; i < moves.n && s == DTP_OK; i++) {
        const dtp_move_info *m = &moves.items[i];
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
    dtp_moves_free(&moves);
    return s;
}
