/* Items of a list of recomputation as texts: blocks, instances, and globs of what is kept. */
#include "core/transform/recompute_items.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/glob.h"

/* ---- items ---- */

static const char KEEP[] = " keep=";

/* A number at *text, which moves behind it. */
static bool read_number(const char **text, int64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    *out = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0 && *out <= INT32_MAX;
}

dtp_status dtp_remat__read_item(const char *text, dtp_remat_item *out, dtp_err *err)
{
    const char *keep = strstr(text, KEEP);
    const char *end = keep != NULL ? keep : text + strlen(text);
    const char *colon = memchr(text, ':', (size_t)(end - text));
    const char *at = colon != NULL ? colon + 1 : end;
    *out = (dtp_remat_item){.name = text,
                            .name_bytes = (size_t)((colon != NULL ? colon : end) - text),
                            .last = -1,
                            .keep = keep != NULL ? keep + sizeof KEEP - 1 : NULL};
    bool ok = out->name_bytes > 0;
    if (colon != NULL) {
        ok = ok && read_number(&at, &out->first);
        out->last = out->first;
        if (ok && *at == '-') {
            at++;
            ok = read_number(&at, &out->last);
        }
    }
    if (!ok || at != end || (colon != NULL && out->last < out->first)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "remat '%.80s': expected BLOCK, BLOCK:INSTANCE or BLOCK:FIRST-LAST, and "
                        "' keep=GLOB,...' behind it",
                        text);
    }
    return DTP_OK;
}

static bool names_block(const dtp_remat_item *it, const char *block)
{
    return strlen(block) == it->name_bytes && strncmp(block, it->name, it->name_bytes) == 0;
}

bool dtp_remat__is_of_item(const dtp_graph *g, const dtp_node *node, const dtp_remat_item *it)
{
    return node->block >= 0 && names_block(it, g->blocks[node->block]) &&
           node->instance >= it->first && (it->last < 0 || node->instance <= it->last);
}

/* ---- what is kept ---- */

static bool keeps(const dtp_graph *g, const dtp_remat_item *it, const dtp_node *node,
                  const char *glob)
{
    return node->phase == DTP_FORWARD && dtp_remat__is_of_item(g, node, it) &&
           dtp_glob_match_prefix(glob, node->name);
}

bool dtp_remat__keeps(const dtp_graph *g, const dtp_remat_item *it, const dtp_node *node)
{
    const char *keep = it->keep;
    char glob[DTP_GLOB_BYTES];
    bool kept = false;
    while (keep != NULL && !kept && dtp_glob_next(&keep, glob)) {
        kept = keeps(g, it, node, glob);
    }
    return kept;
}

static bool keeps_any(const dtp_graph *g, const dtp_remat_item *it, const char *glob)
{
    bool any = false;
    for (dtp_node_id n = 0; n < g->n_nodes && !any; n++) {
        any = keeps(g, it, &g->nodes[n], glob);
    }
    return any;
}

/* The names of the block that a glob may have meant. */
static dtp_status fail_keep(const dtp_graph *g, const dtp_remat_item *it, const char *text,
                            const char *glob, dtp_err *err)
{
    dtp_near_names near = {{NULL}, {0}};
    dtp_strbuf names = {0};
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].phase == DTP_FORWARD &&
            (it == NULL || dtp_remat__is_of_item(g, &g->nodes[n], it))) {
            dtp_near_names_offer(&near, glob, g->nodes[n].name);
        }
    }
    dtp_near_names_print(&near, &names);
    const dtp_status s =
        names.failed
            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a list of names")
            : DTP_FAIL(err, DTP_INVALID, "remat '%.80s': keep: '%.100s' matches no node of %s%s",
                       text, glob, it != NULL ? "the block" : "any block", dtp_strbuf_text(&names));
    dtp_strbuf_free(&names);
    return s;
}

/* A list ends with a glob. */
static dtp_status check_ends(const char *keep, const char *text, dtp_err *err)
{
    const size_t n = strlen(keep);
    return n > 0 && keep[n - 1] != ','
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "remat '%.80s': keep: a glob is missing", text);
}

static dtp_status check_keep(const dtp_graph *g, const dtp_remat_item *it, const char *text,
                             dtp_err *err)
{
    const char *keep = it->keep;
    char glob[DTP_GLOB_BYTES];
    DTP_TRY(keep != NULL ? check_ends(keep, text, err) : DTP_OK);
    while (keep != NULL && dtp_glob_next(&keep, glob)) {
        DTP_TRY(dtp_err_prefixed(dtp_glob_check(glob, err), err, "remat '%.80s': keep", text));
        if (!keeps_any(g, it, glob)) {
            return fail_keep(g, it, text, glob, err);
        }
    }
    return DTP_OK;
}

/* ---- checks ---- */

static dtp_status check_item(const dtp_graph *g, const char *text, dtp_err *err)
{
    dtp_remat_item it;
    bool known = false;
    int64_t instances = 0;
    DTP_TRY(dtp_remat__read_item(text, &it, err));
    for (int32_t b = 0; b < g->n_blocks; b++) {
        known = known || names_block(&it, g->blocks[b]);
    }
    if (!known) {
        return DTP_FAIL(err, DTP_INVALID, "remat '%.80s': the model '%s' has no such block", text,
                        g->name);
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool same = node->block >= 0 && names_block(&it, g->blocks[node->block]);
        instances = same && node->instance >= instances ? (int64_t)node->instance + 1 : instances;
    }
    if (it.last >= instances) {
        return DTP_FAIL(err, DTP_INVALID, "remat '%.80s': the block has the instances 0-%lld", text,
                        (long long)instances - 1);
    }
    return check_keep(g, &it, text, err);
}

dtp_status dtp_remat_check(const dtp_remat *remat, const dtp_graph *g, dtp_err *err)
{
    enum { MAX_ITEMS = 256 };
    if (remat->n > MAX_ITEMS) {
        return DTP_FAIL(err, DTP_RANGE, "remat: %d items, the limit is %d", remat->n, MAX_ITEMS);
    }
    for (int32_t i = 0; i < remat->n; i++) {
        DTP_TRY(check_item(g, remat->items[i], err));
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(remat->items[k], remat->items[i]) == 0) {
                return DTP_FAIL(err, DTP_INVALID, "remat '%.80s' is given twice", remat->items[i]);
            }
        }
    }
    return DTP_OK;
}

const char *dtp_remat_separator(const char *item)
{
    return strstr(item, KEEP) != NULL ? ";" : ",";
}

/* ---- lists ---- */

/* Names of all blocks, each once. */
static dtp_status list_blocks(const dtp_graph *g, dtp_arena *arena, dtp_remat *out, dtp_err *err)
{
    const char **names = dtp_arena_alloc(arena, (size_t)g->n_blocks, sizeof *names);
    int32_t n = 0;
    DTP_TRY(DTP_MEMORY(err, names));
    for (int32_t b = 0; b < g->n_blocks; b++) {
        int32_t k = 0;
        while (k < n && strcmp(names[k], g->blocks[b]) != 0) {
            k++;
        }
        if (k == n) {
            names[n] = dtp_arena_strdup(arena, g->blocks[b]);
            DTP_TRY(DTP_MEMORY(err, names[n]));
            n++;
        }
    }
    *out = (dtp_remat){.n = n, .items = names};
    return DTP_OK;
}

/* "all keep=...": every block with those globs that match in it; each has to match somewhere. */
static dtp_status keep_in_all(const dtp_graph *g, const char *text, dtp_arena *arena,
                              dtp_remat *all, dtp_err *err)
{
    char glob[DTP_GLOB_BYTES];
    const char *keep = strstr(text, KEEP) + sizeof KEEP - 1;
    const char **items;
    DTP_TRY(DTP_NEW(arena, items, (size_t)all->n, err));
    for (int32_t b = 0; b < all->n; b++) {
        items[b] = all->items[b];
    }
    DTP_TRY(check_ends(keep, text, err));
    while (dtp_glob_next(&keep, glob)) {
        bool any = false;
        DTP_TRY(dtp_err_prefixed(dtp_glob_check(glob, err), err, "remat '%.80s': keep", text));
        for (int32_t b = 0; b < all->n; b++) {
            const dtp_remat_item it = {
                .name = all->items[b], .name_bytes = strlen(all->items[b]), .last = -1};
            if (keeps_any(g, &it, glob)) {
                items[b] = dtp_arena_printf(arena, "%s%s%s", items[b],
                                            items[b] == all->items[b] ? KEEP : ",", glob);
                DTP_TRY(DTP_MEMORY(err, items[b]));
                any = true;
            }
        }
        if (!any) {
            return fail_keep(g, NULL, text, glob, err);
        }
    }
    all->items = items;
    return DTP_OK;
}

/* Cuts the item at `at` off, without blanks around it, which *item is; returns what is behind it,
 * NULL at the end. */
static char *cut_item(char *at, const char **item)
{
    size_t n = strcspn(at, ",;");
    const char *keep = strstr(at, KEEP);
    n = keep != NULL && keep < at + n ? strcspn(at, ";") : n;
    char *behind = at[n] != '\0' ? at + n + 1 : NULL;
    while (n > 0 && at[n - 1] == ' ') {
        n--;
    }
    at[n] = '\0';
    *item = at + strspn(at, " ");
    return behind;
}

dtp_status dtp_remat_parse(const char *text, const dtp_graph *g, dtp_arena *arena, dtp_remat *out,
                           dtp_err *err)
{
    static const char ALL[] = "all";
    *out = (dtp_remat){0};
    if (strcmp(text, "none") == 0) {
        return DTP_OK;
    }
    if (strcmp(text, ALL) == 0 ||
        (strncmp(text, ALL, sizeof ALL - 1) == 0 && strstr(text, KEEP) == text + sizeof ALL - 1)) {
        DTP_TRY(list_blocks(g, arena, out, err));
        if (out->n == 0) {
            return DTP_FAIL(err, DTP_INVALID, "remat 'all': the model '%s' has no blocks", g->name);
        }
        DTP_TRY(text[sizeof ALL - 1] != '\0' ? keep_in_all(g, text, arena, out, err) : DTP_OK);
        return dtp_remat_check(out, g, err);
    }
    char *copy = dtp_arena_strdup(arena, text);
    const char **items = dtp_arena_alloc(arena, strlen(text) + 1, sizeof *items);
    DTP_TRY(DTP_MEMORY(err, copy, items));
    char *rest = copy;
    do {
        rest = cut_item(rest, &items[out->n++]);
    } while (rest != NULL);
    out->items = items;
    return dtp_remat_check(out, g, err);
}

dtp_status dtp_remat_variants(const dtp_graph *g, dtp_arena *arena, int32_t *n, dtp_remat **out,
                              dtp_err *err)
{
    dtp_remat all;
    DTP_TRY(list_blocks(g, arena, &all, err));
    const int32_t blocks = g->loss >= 0 ? all.n : 0;
    dtp_remat *list;
    DTP_TRY(DTP_NEW(arena, list, (size_t)blocks + 2, err));
    *n = 1;
    for (int32_t b = 0; b < blocks; b++) {
        list[(*n)++] = (dtp_remat){.n = 1, .items = &all.items[b]};
    }
    if (blocks > 1) {
        list[(*n)++] = all;
    }
    *out = list;
    return DTP_OK;
}
