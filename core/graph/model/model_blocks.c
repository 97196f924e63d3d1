/* Blocks and repeats: a repeat statement in a node list makes `count` instances of a block, each
 * reading the carried tensors of the one before it.
 *
 * Instance i of {"repeat": B, "as": "layers"} reads B's params and nodes in a scope of its own with
 * the prefix "layers.i."; afterwards "layers.<carry>" names the last instance's carried value. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/graph/model/model_internal.h"

typedef struct repeat {
    const dtp_json *statement, *block;
    const char *block_name, *as;
    int64_t count, first;         /* instances, and the number of the first one */
    const dtp_json *carry, *with; /* objects, NULL when absent */
    int32_t site;
} repeat;

/* ---- the "blocks" object ---- */

dtp_status dtp_model__blocks(dtp_model_reader *r, dtp_err *err)
{
    const dtp_json *blocks = dtp_json_get(r->root, "blocks");
    if (blocks == NULL) {
        return DTP_OK;
    }
    static const char *const keys[] = {"params", "nodes", "out", NULL};
    DTP_TRY(dtp_json_expect(blocks, DTP_JSON_OBJECT, err));
    int32_t n = dtp_json_size(blocks);
    DTP_TRY(DTP_NEW(r->scratch, r->block_used, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *nodes, *block = dtp_json_at(blocks, i);
        const dtp_json *out = dtp_json_get(block, "out");
        DTP_TRY(dtp_json_keys(block, keys, err));
        DTP_TRY(dtp_json_get_kind(block, "nodes", DTP_JSON_ARRAY, &nodes, err));
        if (out != NULL) {
            DTP_TRY(dtp_json_expect(out, DTP_JSON_OBJECT, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_model__blocks_used(const dtp_model_reader *r, dtp_err *err)
{
    const dtp_json *blocks = dtp_json_get(r->root, "blocks");
    for (int32_t i = 0; blocks != NULL && i < dtp_json_size(blocks); i++) {
        if (!r->block_used[i]) {
            return dtp_json_fail(dtp_json_at(blocks, i), err, "the block is never repeated");
        }
    }
    return DTP_OK;
}

/* ---- one repeat statement ---- */

/* Every carry has an entry in the block's "out" and the other way round. */
static dtp_status check_carry(const repeat *p, dtp_err *err)
{
    const dtp_json *out = dtp_json_get(p->block, "out");
    for (int32_t i = 0; p->carry != NULL && i < dtp_json_size(p->carry); i++) {
        const dtp_json *member = dtp_json_at(p->carry, i);
        if (out == NULL || dtp_json_get(out, dtp_json_key(member)) == NULL) {
            return dtp_json_fail(member, err, "block '%s' has no '%s' in its out", p->block_name,
                                 dtp_json_key(member));
        }
    }
    for (int32_t i = 0; out != NULL && i < dtp_json_size(out); i++) {
        const char *name = dtp_json_key(dtp_json_at(out, i));
        if (p->carry == NULL || dtp_json_get(p->carry, name) == NULL) {
            return dtp_json_fail(p->statement, err,
                                 "block '%s' puts out '%s' but the repeat does not carry it",
                                 p->block_name, name);
        }
    }
    return DTP_OK;
}

static dtp_status read_repeat(dtp_model_reader *r, const dtp_model_scope *scope, const dtp_json *v,
                              repeat *out, dtp_err *err)
{
    static const char *const keys[] = {"repeat", "count", "as", "first", "carry", "with", NULL};
    const dtp_json *name, *count, *as, *first = dtp_json_get(v, "first");
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_require(v, "repeat", &name, err));
    DTP_TRY(dtp_json_require(v, "count", &count, err));
    DTP_TRY(dtp_json_require(v, "as", &as, err));
    *out = (repeat){
        .statement = v, .carry = dtp_json_get(v, "carry"), .with = dtp_json_get(v, "with")};
    if (out->carry != NULL) {
        DTP_TRY(dtp_json_expect(out->carry, DTP_JSON_OBJECT, err));
    }
    if (out->with != NULL) {
        DTP_TRY(dtp_json_expect(out->with, DTP_JSON_OBJECT, err));
    }
    const dtp_json *blocks = dtp_json_get(r->root, "blocks");
    DTP_TRY(dtp_json_string(name, &out->block_name, err));
    for (int32_t i = 0; blocks != NULL && i < dtp_json_size(blocks) && out->block == NULL; i++) {
        if (strcmp(dtp_json_key(dtp_json_at(blocks, i)), out->block_name) == 0) {
            r->block_used[i] = true;
            out->block = dtp_json_at(blocks, i);
        }
    }
    if (out->block == NULL) {
        return dtp_json_fail(name, err, "there is no block '%.80s'", out->block_name);
    }
    DTP_TRY(dtp_model__int(r, count, 1, DTP_MODEL_MAX_PIECES, &out->count, err));
    DTP_TRY(first == NULL ? DTP_OK
                          : dtp_model__int(r, first, 0, DTP_MODEL_MAX_PIECES, &out->first, err));
    DTP_TRY(dtp_json_string(as, &out->as, err));
    int32_t depth = 0;
    for (const dtp_model_scope *s = scope; s->outer != NULL; s = s->outer) {
        if (strcmp(s->block, out->block_name) == 0) {
            return dtp_json_fail(v, err, "block '%s' repeats itself", out->block_name);
        }
        depth++;
    }
    if (depth == DTP_MODEL_MAX_NEST) {
        return dtp_json_fail(v, err, "repeats nested deeper than %d", DTP_MODEL_MAX_NEST);
    }
    DTP_TRY(check_carry(out, err));
    dtp_graph *g = r->g;
    for (out->site = 0; out->site < r->n_sites; out->site++) {
        if (r->sites[out->site].statement == v) {
            return DTP_OK;
        }
    }
    if (r->n_sites == DTP_MODEL_MAX_REPEATS) {
        return dtp_json_fail(v, err, "more than %d repeats", DTP_MODEL_MAX_REPEATS);
    }
    DTP_TRY(DTP_ONE_MORE(g->arena, g->blocks, g->n_blocks, g->cap_blocks, err));
    g->blocks[g->n_blocks] = dtp_arena_strdup(g->arena, out->block_name);
    DTP_TRY(DTP_MEMORY(err, g->blocks[g->n_blocks]));
    g->n_blocks++;
    r->sites[r->n_sites++] = (dtp_model_site){.statement = v};
    return DTP_OK;
}

/* ---- instances ---- */

/* Binds every member of an object {name: tensor of the outer scope}. */
static dtp_status bind_members(const dtp_model_reader *r, const dtp_model_scope *outer,
                               const dtp_json *members, dtp_model_scope *inner, dtp_err *err)
{
    for (int32_t i = 0; members != NULL && i < dtp_json_size(members); i++) {
        const dtp_json *member = dtp_json_at(members, i);
        dtp_tensor_id id;
        DTP_TRY(dtp_model__tensor(r, outer, member, &id, err));
        DTP_TRY(dtp_model__bind(inner, member, dtp_json_key(member), id, err));
    }
    return DTP_OK;
}

/* Replaces the carried bindings (the first ones of the scope) by the block's outputs. */
static dtp_status carry_over(const dtp_model_reader *r, const repeat *p, dtp_model_scope *inner,
                             dtp_err *err)
{
    const dtp_json *out = dtp_json_get(p->block, "out");
    dtp_tensor_id next[DTP_MODEL_MAX_BINDINGS];
    int32_t n = p->carry == NULL ? 0 : dtp_json_size(p->carry);
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *value = dtp_json_get(out, inner->bindings[i].name);
        DTP_TRY(dtp_model__tensor(r, inner, value, &next[i], err));
        const dtp_graph_tensor *was = &r->g->tensors[inner->bindings[i].id];
        const dtp_graph_tensor *is = &r->g->tensors[next[i]];
        if (!dtp_ttype_equal(&was->type, &is->type)) {
            char a[DTP_TTYPE_TEXT_BYTES], b[DTP_TTYPE_TEXT_BYTES];
            dtp_ttype_print(&was->type, &r->g->dims, a);
            dtp_ttype_print(&is->type, &r->g->dims, b);
            return dtp_json_fail(value, err, "'%s' goes in as %.160s and comes out as %.160s",
                                 inner->bindings[i].name, a, b);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        inner->bindings[i].id = next[i];
    }
    return DTP_OK;
}

static dtp_status expand(dtp_model_reader *r, dtp_model_scope *scope, const dtp_json *v,
                         dtp_err *err)
{
    repeat p;
    dtp_model_scope inner = {.outer = scope};
    char prefix[DTP_MODEL_MAX_FULL_NAME];
    DTP_TRY(read_repeat(r, scope, v, &p, err));
    inner.block = p.block_name;
    inner.site = p.site;
    inner.prefix = prefix;
    DTP_TRY(bind_members(r, scope, p.carry, &inner, err));
    DTP_TRY(bind_members(r, scope, p.with, &inner, err));
    for (int64_t i = 0; i < p.count; i++) {
        int n =
            snprintf(prefix, sizeof prefix, "%s%s.%" PRId64 ".", scope->prefix, p.as, p.first + i);
        if (n < 0 || n >= (int)sizeof prefix) {
            return dtp_json_fail(v, err, "names below '%.60s...' have more than %d bytes",
                                 scope->prefix, DTP_MODEL_MAX_FULL_NAME - 1);
        }
        inner.instance = r->sites[p.site].instances++;
        const dtp_json *params = dtp_json_get(p.block, "params");
        DTP_TRY(dtp_model__count(r, v, err));
        if (params != NULL) {
            DTP_TRY(dtp_model__params(r, &inner, params, err));
        }
        const int32_t n_bindings = inner.n_bindings;
        DTP_TRY(dtp_model__node_list(r, &inner, dtp_json_get(p.block, "nodes"), err));
        DTP_TRY(dtp_model__updates(r, &inner, params, err));
        DTP_TRY(carry_over(r, &p, &inner, err));
        inner.n_bindings = n_bindings; /* forget the results of inner repeats */
    }
    /* "layers.x" for every carried x. */
    for (int32_t i = 0; p.carry != NULL && i < dtp_json_size(p.carry); i++) {
        const char *name = dtp_arena_printf(r->scratch, "%s.%s", p.as, inner.bindings[i].name);
        DTP_TRY(DTP_MEMORY(err, name));
        bool goes_on = false; /* with the instances of another repeat */
        for (int32_t k = 0; p.first > 0 && k < scope->n_bindings && !goes_on; k++) {
            goes_on = strcmp(scope->bindings[k].name, name) == 0;
            scope->bindings[k].id = goes_on ? inner.bindings[i].id : scope->bindings[k].id;
        }
        if (goes_on) {
            continue;
        }
        if (dtp_model__find(r, scope, name) >= 0) {
            return dtp_json_fail(v, err, "the name '%s' is already used", name);
        }
        DTP_TRY(dtp_model__bind(scope, v, name, inner.bindings[i].id, err));
    }
    return DTP_OK;
}

dtp_status dtp_model__node_list(dtp_model_reader *r, dtp_model_scope *scope, const dtp_json *nodes,
                                dtp_err *err)
{
    DTP_TRY(dtp_json_expect(nodes, DTP_JSON_ARRAY, err));
    scope->nodes = nodes;
    for (int32_t i = 0; i < dtp_json_size(nodes); i++) {
        const dtp_json *v = dtp_json_at(nodes, i);
        DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
        bool repeats = dtp_json_get(v, "repeat") != NULL;
        DTP_TRY(repeats ? expand(r, scope, v, err) : dtp_model__node(r, scope, v, err));
    }
    return DTP_OK;
}
