/* Layout rules (Mesh TensorFlow): one map dim name -> mesh dims for the whole graph, from which
 * every tensor's layout follows. */
#include "core/layout/layout_rules.h"

#include <string.h>

#include "core/base/strbuf.h"

dtp_status dtp_layout_rules_create(dtp_arena *arena, int32_t n_dims, dtp_layout_rules *out,
                                   dtp_err *err)
{
    out->n = n_dims;
    DTP_TRY(DTP_NEW(arena, out->splits, n_dims, err));
    return DTP_OK;
}

dtp_status dtp_layout_rules_parse(const char *text, const dtp_mesh *mesh, const dtp_dims *dims,
                                  dtp_arena *arena, dtp_layout_rules *out, dtp_err *err)
{
    static const char separators[] = " ,;";
    DTP_TRY(dtp_layout_rules_create(arena, dims->n, out, err));
    const char *at = text + strspn(text, separators);
    while (*at != '\0') {
        size_t n = strcspn(at, separators);
        size_t name = strcspn(at, ":=");
        char pair[192];
        if (n >= sizeof pair || name == 0 || name + 1 >= n) {
            return DTP_FAIL(err, DTP_INVALID, "rules: expected 'DIM:MESH DIM' at '%.60s'", at);
        }
        memcpy(pair, at, n);
        pair[n] = '\0';
        pair[name] = '\0';
        const char *mesh_dim = pair + name + 1;
        dtp_dim_id d = dtp_dims_find(dims, pair);
        int32_t m = dtp_mesh_find(mesh, mesh_dim);
        if (d < 0 || d >= out->n) {
            return DTP_FAIL(err, DTP_INVALID, "rules: the model has no dim '%s'", pair);
        }
        if (m < 0) {
            char printed[DTP_MESH_TEXT_BYTES];
            dtp_mesh_print(mesh, printed);
            return DTP_FAIL(err, DTP_INVALID, "rules: '%s:%s': the mesh '%s' has no dim '%s'", pair,
                            mesh_dim, printed, mesh_dim);
        }
        dtp_rule_splits *s = &out->splits[d];
        for (int8_t i = 0; i < s->n; i++) {
            if (s->mesh_dims[i] == m) {
                return DTP_FAIL(err, DTP_INVALID, "rules: '%s:%s' is given twice", pair, mesh_dim);
            }
        }
        s->mesh_dims[s->n++] = (int8_t)m;
        at += n;
        at += strspn(at, separators);
    }
    return DTP_OK;
}

char *dtp_layout_rules_print(const dtp_layout_rules *rules, const dtp_mesh *mesh,
                             const dtp_dims *dims, dtp_arena *arena)
{
    dtp_strbuf b = {0};
    for (int32_t d = 0; d < rules->n; d++) {
        for (int8_t i = 0; i < rules->splits[d].n; i++) {
            dtp_strbuf_addf(&b, "%s%s:%s", b.len > 0 ? ";" : "", dtp_dims_name(dims, d),
                            mesh->names[rules->splits[d].mesh_dims[i]]);
        }
    }
    char *text = b.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&b));
    dtp_strbuf_free(&b);
    return text;
}

dtp_status dtp_layout_rules_layout(const dtp_layout_rules *rules, const dtp_mesh *mesh,
                                   const dtp_dims *dims, const dtp_ttype *type, bool uneven,
                                   dtp_layout *out, dtp_err *err)
{
    dtp_layout layout = dtp_layout_replicated(type->rank, mesh->n_dims);
    for (int32_t i = 0; i < type->rank; i++) {
        dtp_dim_id d = type->dims[i].id;
        if (d >= rules->n) {
            continue;
        }
        const dtp_rule_splits *s = &rules->splits[d];
        int64_t parts = 1;
        for (int8_t k = 0; k < s->n; k++) {
            int32_t m = s->mesh_dims[k];
            if (layout.placement[m].kind == DTP_SHARD) {
                dtp_dim_id other = type->dims[layout.placement[m].axis].id;
                return DTP_FAIL(err, DTP_INVALID,
                                "rules: dims '%s' and '%s' meet in one tensor but both are split "
                                "over mesh dim '%s'",
                                dtp_dims_name(dims, other), dtp_dims_name(dims, d), mesh->names[m]);
            }
            parts *= mesh->sizes[m];
            dtp_layout_split(&layout, m, i);
        }
        if (!uneven && type->dims[i].size % parts != 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "rules: dim '%s' of size %lld cannot be split into %lld equal parts",
                            dtp_dims_name(dims, d), (long long)type->dims[i].size,
                            (long long)parts);
        }
    }
    *out = layout;
    return DTP_OK;
}
