/* Gathering again: where forward and backward pass read a tensor in another layout than its own,
 * the copy of the forward pass is kept, or the backward pass makes it again from the tensor. */
#include "core/transform/regather.h"

#include <ctype.h>
#include <string.h>

#include "core/base/glob.h"

static const char MICRO[] = "micro."; /* of what a microbatch computes */

/* ---- which tensors ---- */

bool dtp_regather_applies(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    return dtp_graph_param_of(g, t) >= 0 ||
           (n >= 0 ? g->nodes[n].phase == DTP_FORWARD : g->tensors[t].kind == DTP_TENSOR_INPUT);
}

/* What its copies are unless a text says otherwise. */
static bool is_of(const dtp_graph *g, dtp_tensor_id t, const char *item)
{
    const dtp_tensor_id param = dtp_graph_param_of(g, t);
    const char *name = g->tensors[param >= 0 ? param : t].name;
    if (strcmp(item, "all") == 0 || strcmp(item, "none") == 0) {
        return item[0] == 'a';
    }
    if (strcmp(item, "params") == 0) {
        return param >= 0;
    }
    if (strcmp(item, "recomputed") == 0) {
        return param < 0 && g->tensors[t].recomputed;
    }
    name += strncmp(name, MICRO, sizeof MICRO - 1) == 0 ? sizeof MICRO - 1 : 0;
    return dtp_glob_match_prefix(item, name);
}

static bool is_word(const char *item)
{
    return strcmp(item, "all") == 0 || strcmp(item, "none") == 0 || strcmp(item, "params") == 0 ||
           strcmp(item, "recomputed") == 0;
}

static dtp_status fail_item(const dtp_graph *g, const char *item, dtp_err *err)
{
    dtp_near_names near = {{NULL}, {0}};
    dtp_strbuf names = {0};
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (dtp_regather_applies(g, t)) {
            dtp_near_names_offer(&near, item, g->tensors[t].name);
        }
    }
    dtp_near_names_print(&near, &names);
    const dtp_status s = names.failed
                             ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of names")
                             : DTP_FAIL(err, DTP_INVALID,
                                        "regather: '%.100s' matches no parameter, input or result "
                                        "of the forward pass%s",
                                        item, dtp_strbuf_text(&names));
    dtp_strbuf_free(&names);
    return s;
}

dtp_status dtp_regather_mark(dtp_graph *g, const char *text, dtp_err *err)
{
    const char *at = text;
    char item[DTP_GLOB_BYTES];
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        g->tensors[t].copies = dtp_regather_applies(g, t) ? DTP_COPIES_KEPT : g->tensors[t].copies;
    }
    if (*text == '\0' || text[strlen(text) - 1] == ',') {
        return DTP_FAIL(err, DTP_INVALID, "regather '%.80s': expected none, all or a list of globs",
                        text);
    }
    while (dtp_glob_next(&at, item)) {
        bool any = is_word(item);
        DTP_TRY(dtp_err_prefixed(dtp_glob_check(item, err), err, "regather '%.80s'", text));
        if ((strcmp(item, "all") == 0 || strcmp(item, "none") == 0) && strcmp(item, text) != 0) {
            return DTP_FAIL(err, DTP_INVALID, "regather '%.80s': '%s' stands alone", text, item);
        }
        for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
            if (dtp_regather_applies(g, t) && is_of(g, t, item)) {
                g->tensors[t].copies = DTP_COPIES_AGAIN;
                any = true;
            }
        }
        if (!any) {
            return fail_item(g, item, err);
        }
    }
    return DTP_OK;
}

/* ---- as a text ---- */

/* The name with '*' for every part that is a number, for whole names only. */
static dtp_status pattern_of(const char *name, char out[DTP_GLOB_BYTES], dtp_err *err)
{
    size_t n = 0;
    name += strncmp(name, MICRO, sizeof MICRO - 1) == 0 ? sizeof MICRO - 1 : 0;
    for (const char *at = name; *at != '\0' && n + 3 < DTP_GLOB_BYTES;) {
        const size_t part = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (part > 0 && digits == part) {
            out[n++] = '*';
        } else {
            for (size_t i = 0; i < part && n + 3 < DTP_GLOB_BYTES; i++) {
                out[n++] = at[i];
            }
        }
        at += part;
        if (*at == '.') {
            out[n++] = *at++;
        }
    }
    out[n++] = '$';
    out[n] = '\0';
    return n + 3 < DTP_GLOB_BYTES
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "regather: the name '%.80s...' is too long", name);
}

/* Whether `again` is true of all that an item stands for (of none: false). */
static bool covers(const dtp_graph *g, const bool *again, const char *item)
{
    bool any = false;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (dtp_regather_applies(g, t) && is_of(g, t, item)) {
            any = true;
            if (!again[t]) {
                return false;
            }
        }
    }
    return any;
}

static bool said_before(const char *text, const dtp_graph *g, dtp_tensor_id t)
{
    char item[DTP_GLOB_BYTES];
    while (dtp_glob_next(&text, item)) {
        if (is_of(g, t, item)) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_regather_text(const dtp_graph *g, const bool *again, dtp_arena *arena,
                             const char **out, dtp_err *err)
{
    static const char *const words[] = {"params", "recomputed"};
    dtp_strbuf text = {0};
    dtp_status s = DTP_OK;
    const bool all = covers(g, again, "all");
    dtp_strbuf_add(&text, all ? "all" : "");
    for (size_t i = 0; i < sizeof words / sizeof words[0] && !all; i++) {
        if (covers(g, again, words[i])) {
            dtp_strbuf_addf(&text, "%s%s", text.len > 0 ? "," : "", words[i]);
        }
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors && !all && s == DTP_OK; t++) {
        char item[DTP_GLOB_BYTES];
        if (!again[t] || !dtp_regather_applies(g, t) || said_before(dtp_strbuf_text(&text), g, t)) {
            continue;
        }
        const dtp_tensor_id param = dtp_graph_param_of(g, t);
        const char *name = g->tensors[param >= 0 ? param : t].name;
        s = pattern_of(name, item, err);
        if (s == DTP_OK && covers(g, again, item)) {
            dtp_strbuf_addf(&text, "%s%s", text.len > 0 ? "," : "", item);
        } else {
            name += strncmp(name, MICRO, sizeof MICRO - 1) == 0 ? sizeof MICRO - 1 : 0;
            dtp_strbuf_addf(&text, "%s%s$", text.len > 0 ? "," : "", name);
        }
    }
    dtp_strbuf_add(&text, text.len > 0 ? "" : "none");
    *out = dtp_arena_strdup(arena, dtp_strbuf_text(&text));
    s = s == DTP_OK && (text.failed || *out == NULL)
            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of names")
            : s;
    dtp_strbuf_free(&text);
    return s;
}
