/* Parameters by globs over their names (core/base/glob.h). */
#include "core/graph/param_globs.h"

#include "core/base/glob.h"

static dtp_status fail_unmatched(const dtp_graph *g, const char *glob, dtp_err *err)
{
    dtp_near_names near = {.names = {NULL}};
    dtp_strbuf names = {0};
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM) {
            dtp_near_names_offer(&near, glob, g->tensors[t].name);
        }
    }
    dtp_near_names_print(&near, &names);
    const dtp_status s = DTP_FAIL(err, DTP_INVALID, "'%.200s' matches no parameter%.300s", glob,
                                  dtp_strbuf_text(&names));
    dtp_strbuf_free(&names);
    return s;
}

dtp_status dtp_params_match(const dtp_graph *g, const char *glob, bool *matched, dtp_err *err)
{
    bool any = false;
    DTP_TRY(dtp_glob_check(glob, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM &&
            dtp_glob_match_prefix(glob, g->tensors[t].name)) {
            matched[t] = true;
            any = true;
        }
    }
    return any ? DTP_OK : fail_unmatched(g, glob, err);
}

dtp_status dtp_graph_freeze(dtp_graph *g, int32_t n, const char *const *globs, dtp_err *err)
{
    const char **noted;
    bool *matched;
    DTP_TRY(DTP_NEW(g->arena, noted, n, err));
    DTP_TRY(DTP_NEW(g->arena, matched, g->n_tensors, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(dtp_err_prefixed(dtp_params_match(g, globs[i], matched, err), err, "freeze"));
        noted[i] = dtp_arena_strdup(g->arena, globs[i]);
        DTP_TRY(DTP_MEMORY(err, noted[i]));
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        g->tensors[t].frozen = g->tensors[t].frozen || matched[t];
    }
    g->n_freeze = n;
    g->freeze = noted;
    return DTP_OK;
}
