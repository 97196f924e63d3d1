/* Which outputs of its model a run keeps to the end of a step. */
#include "core/transform/outputs.h"

#include <string.h>

#include "core/base/strbuf.h"
#include "core/graph/graph_copy.h"

/* ---- names ---- */

static bool is_named(const dtp_outputs *outputs, const char *name)
{
    int32_t i = 0;
    while (i < outputs->n && strcmp(outputs->names[i], name) != 0) {
        i++;
    }
    return i < outputs->n;
}

dtp_status dtp_outputs_check(const dtp_outputs *outputs, const dtp_graph *g, dtp_err *err)
{
    for (int32_t i = 0; i < outputs->n; i++) {
        const char *name = outputs->names[i];
        const dtp_outputs before = {.n = i, .names = outputs->names};
        if (is_named(&before, name)) {
            return DTP_FAIL(err, DTP_INVALID, "outputs: '%.80s' is given twice", name);
        }
        if (dtp_graph_output(g, name) >= 0) {
            continue;
        }
        dtp_strbuf list = {0};
        for (int32_t k = 0; k < g->n_outputs; k++) {
            dtp_strbuf_addf(&list, "%s'%s'", k > 0 ? ", " : "", g->tensors[g->outputs[k]].name);
        }
        const dtp_status s = DTP_FAIL(
            err, DTP_INVALID, "outputs: '%.80s' is no output of the model '%s', which has %s", name,
            g->name, g->n_outputs > 0 ? dtp_strbuf_text(&list) : "none");
        dtp_strbuf_free(&list);
        return s;
    }
    return DTP_OK;
}

dtp_status dtp_outputs_parse(const char *text, const dtp_graph *g, dtp_arena *arena,
                             dtp_outputs *out, dtp_err *err)
{
    *out = (dtp_outputs){.chosen = strcmp(text, "all") != 0};
    if (!out->chosen || strcmp(text, "none") == 0) {
        return DTP_OK;
    }
    char *copy = dtp_arena_strdup(arena, text);
    const char **names = dtp_arena_alloc(arena, strlen(text) + 1, sizeof *names);
    const char **sorted = dtp_arena_alloc(arena, strlen(text) + 1, sizeof *sorted);
    DTP_TRY(DTP_MEMORY(err, copy, names, sorted));
    dtp_outputs given = {.names = names};
    for (char *next = copy; next != NULL;) {
        names[given.n++] = next;
        next = strchr(next, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
    }
    DTP_TRY(dtp_outputs_check(&given, g, err));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const char *name = g->tensors[g->outputs[i]].name;
        if (is_named(&given, name)) {
            sorted[out->n] = dtp_arena_strdup(arena, name);
            DTP_TRY(DTP_MEMORY(err, sorted[out->n]));
            out->n++;
        }
    }
    out->names = sorted;
    return DTP_OK;
}

/* ---- the graph ---- */

/* needed: by tensor. */
static void mark_needed(const dtp_graph *g, const dtp_outputs *outputs, bool *needed)
{
    for (int32_t i = 0; i < g->n_outputs; i++) {
        needed[g->outputs[i]] = is_named(outputs, g->tensors[g->outputs[i]].name);
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        needed[g->updates[i].value] = true;
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        needed[g->grads[i].grad] = true;
    }
    if (g->loss >= 0) {
        needed[g->loss] = true;
    }
    dtp_graph_mark_needed(g, false, needed);
}

static dtp_status copy_needed(dtp_graph_copy *copy, const dtp_outputs *outputs, const bool *needed,
                              dtp_err *err)
{
    DTP_TRY(dtp_graph_copy_nodes(copy, needed, err));
    DTP_TRY(dtp_graph_copy_results(copy, err));
    dtp_graph *to = copy->to;
    const int32_t n = to->n_outputs;
    to->n_outputs = 0;
    for (int32_t i = 0; i < n; i++) {
        if (is_named(outputs, to->tensors[to->outputs[i]].name)) {
            to->outputs[to->n_outputs++] = to->outputs[i];
        }
    }
    return DTP_OK;
}

dtp_status dtp_graph_with_outputs(const dtp_graph *g, const dtp_outputs *outputs, dtp_graph **out,
                                  dtp_err *err)
{
    dtp_graph_copy copy;
    bool *needed = NULL;
    if (outputs->n == 0 && g->loss < 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "outputs: none leaves nothing to compute, '%s' is not trained here",
                        g->name);
    }
    DTP_TRY(dtp_outputs_check(outputs, g, err));
    DTP_TRY(dtp_graph_copy_begin(g, &copy, err));
    dtp_status s = DTP_NEW(copy.to->arena, needed, g->n_tensors, err);
    if (s == DTP_OK) {
        mark_needed(g, outputs, needed);
        s = copy_needed(&copy, outputs, needed, err);
    }
    return dtp_graph_deliver(copy.to, s, out);
}
