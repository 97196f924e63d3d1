/* Whether a model that was written can be read, and computes with the types and sizes that the
 * program has. */
#include "importers/program/lowering/read_back.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "spmd/lower/lower.h"

typedef struct reading {
    const dtp_importer *m;
    int32_t n_blocks;
    const dtp_block *blocks;
} reading;

/* Node number k of the list of nodes, in which a block is one. */
static int32_t listed(const reading *r, int64_t k)
{
    int32_t next = 0, i = 0;
    for (; i < r->m->n && k > 0; k--) {
        const dtp_block *b =
            next < r->n_blocks && r->blocks[next].begin == i ? &r->blocks[next] : NULL;
        i += b == NULL ? 1 : b->length * b->count;
        next += b == NULL ? 0 : 1;
    }
    return i;
}

/* The node that an error is about, "blocks.block.1.nodes[3]: ..", "nodes[3]: ..", or "node 'x'";
 * NULL. */
static const dtp_out_node *named_in(const reading *r, const char *error)
{
    const dtp_importer *m = r->m;
    const char *at = strstr(error, "nodes["), *block = strstr(error, "block.");
    const char *quoted = strstr(error, "node '");
    int64_t k = at == NULL ? -1 : strtol(at + 6, NULL, 10);
    if (k >= 0 && block != NULL && block < at) {
        const int64_t b = strtol(block + 6, NULL, 10);
        k = b >= 0 && b < r->n_blocks ? r->blocks[b].begin + k : -1;
    } else if (k >= 0) {
        k = listed(r, k);
    } else if (quoted != NULL) {
        const char *name =
            dtp_arena_printf(m->arena, "%.*s", (int)strcspn(quoted + 6, "'"), quoted + 6);
        k = name == NULL ? -1 : dtp_name_find(&m->ids, name);
    }
    return k < 0 || k >= m->n ? NULL : &m->nodes[k];
}

static dtp_status refuse(const dtp_importer *m, const dtp_aten_node *from, const dtp_err *why,
                         dtp_err *err)
{
    return from == NULL ? DTP_FAIL(err, DTP_UNSUPPORTED, "%s: no model can be made of it: %s",
                                   m->g->file, why->msg)
                        : DTP_FAIL(err, DTP_UNSUPPORTED, "%s: %s in '%s' (%s): %s", m->g->file,
                                   from->op, from->path, from->where, why->msg);
}

static dtp_status checked(const reading *r, dtp_status s, const dtp_err *why, dtp_err *err)
{
    const dtp_importer *m = r->m;
    const dtp_out_node *node = s == DTP_OK ? NULL : named_in(r, why->msg);
    return s == DTP_OK || s == DTP_NOMEM ? (s == DTP_OK ? s : DTP_FAIL(err, s, "%s", why->msg))
                                         : refuse(m, node == NULL ? NULL : node->from, why, err);
}

/* ---- types and sizes ---- */

static int64_t elements(const dtp_importer *m, const dtp_low *low)
{
    int64_t n = 1;
    for (int32_t i = 0; i < low->n_dims; i++) {
        n *= m->axes.cls[dtp_class_root(&m->axes, low->cls[low->order[i]])].size;
    }
    return n;
}

/* The tensor that a value became has its type, and as many elements as its dims in the program. */
static dtp_status check_value(const dtp_importer *m, const dtp_graph *g, int32_t value,
                              dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    const dtp_low *low = &m->low[value];
    const dtp_tensor_id id =
        v->role != ATEN_NODE || low->id == NULL ? -1 : dtp_graph_find(g, low->id);
    if (id < 0) {
        return DTP_OK;
    }
    const dtp_ttype *type = &g->tensors[id].type;
    const char *is = dtp_dtype_name(type->dtype), *wanted = dtp_aten_type(v->dtype);
    int64_t n = 1;
    for (int32_t i = 0; i < type->rank; i++) {
        n *= type->dims[i].size;
    }
    dtp_err why = {0};
    if (wanted == NULL || strcmp(is, wanted) != 0) {
        (void)DTP_FAIL(&why, DTP_UNSUPPORTED, "'%s' would be %s, and is %s in the program", low->id,
                       is, wanted == NULL ? "of another type" : wanted);
    } else if (n != elements(m, low)) {
        (void)DTP_FAIL(&why, DTP_UNSUPPORTED,
                       "'%s' would have %" PRId64 " elements, and has %" PRId64 " in the program",
                       low->id, n, elements(m, low));
    }
    return why.msg[0] == '\0' ? DTP_OK
                              : refuse(m, v->node < 0 ? NULL : &m->g->nodes[v->node], &why, err);
}

/* ---- the program ---- */

static dtp_status lower_on_one(const dtp_graph *g, dtp_arena *arena, dtp_err *err)
{
    dtp_sharding s = {.n_tensors = g->n_tensors, .n_nodes = g->n_nodes};
    dtp_program *p = NULL;
    DTP_TRY(dtp_mesh_parse("x:1", &s.mesh, err));
    DTP_TRY(DTP_NEW(arena, s.layouts, g->n_tensors + 1, err));
    DTP_TRY(DTP_NEW(arena, s.strategies, g->n_nodes + 1, err));
    for (int32_t i = 0; i < g->n_tensors; i++) {
        s.layouts[i] = dtp_layout_replicated(g->tensors[i].type.rank, 1);
    }
    dtp_lower_options o = dtp_lower_options_init(dtp_redistributor_generic());
    const dtp_status status = dtp_lower(g, &s, &o, &p, err);
    dtp_program_destroy(p);
    return status;
}

dtp_status dtp_import_read_back(const dtp_importer *m, int32_t n_blocks, const dtp_block *blocks,
                                const char *text, size_t len, dtp_err *err)
{
    const reading r = {m, n_blocks, blocks};
    dtp_model_options options = dtp_model_options_init();
    dtp_graph *g = NULL;
    dtp_err why = {0};
    dtp_status s = checked(&r, dtp_model_parse("model", text, len, &options, &g, &why), &why, err);
    for (int32_t i = 0; i < m->g->n_values && s == DTP_OK; i++) {
        s = check_value(m, g, i, err);
    }
    dtp_graph_destroy(g);
    g = NULL;
    options.forward_only = true;
    if (s == DTP_OK) {
        s = checked(&r, dtp_model_parse("model", text, len, &options, &g, &why), &why, err);
    }
    if (s == DTP_OK) {
        s = checked(&r, lower_on_one(g, m->arena, &why), &why, err);
    }
    dtp_graph_destroy(g);
    return s;
}
