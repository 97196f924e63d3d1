/* PyTorch's forms of a layout: one placement per mesh dim,
 *   (Shard(dim=0), Replicate(), Partial(sum))     S0,R,P(sum)     S(0)RP
 * Placements act from left to right, so plain shards of one tensor dim split it in mesh order. A
 * strided shard _StridedShard(dim=0, sf=f), SS0/f, on mesh dim m says that mesh dims behind m
 * with f ranks in all split the tensor dim before m does; S(0)[k] or S0.k says that the split has
 * depth k, where the one without a number is the outermost.
 *
 * From split factors to an order: going through the mesh dims of one tensor dim from the last to
 * the first, insert each where the sizes before it multiply to its split factor (1 for a plain
 * shard). What is before it then are exactly the later mesh dims that split first.
 */
#include "core/layout/placement_text.h"

#include <string.h>

#include "core/layout/layout_reader.h"

typedef enum keyword {
    KEY_SHARD,
    KEY_STRIDED,
    KEY_STRIDED_SHORT,
    KEY_REPLICATE,
    KEY_PARTIAL
} keyword;

typedef struct keyword_row {
    const char *text;
    keyword key;
} keyword_row;

/* Longer words before their beginnings. */
static const keyword_row KEYWORDS[] = {
    {"_StridedShard", KEY_STRIDED},
    {"StridedShard", KEY_STRIDED},
    {"_S", KEY_STRIDED},
    {"Shard", KEY_SHARD},
    {"SS", KEY_STRIDED_SHORT},
    {"S", KEY_SHARD},
    {"Replicate", KEY_REPLICATE},
    {"R", KEY_REPLICATE},
    {"Partial", KEY_PARTIAL},
    {"P", KEY_PARTIAL},
};

enum { N_KEYWORDS = sizeof KEYWORDS / sizeof KEYWORDS[0], NO_DEPTH = -1 };

/* What the text says about the splits beyond the tensor dim. */
typedef struct split_notes {
    int64_t factor[DTP_MAX_MESH_DIMS]; /* 1: plain */
    int64_t depth[DTP_MAX_MESH_DIMS];  /* NO_DEPTH: not said */
} split_notes;

/* ---- reading one placement ---- */

/* A tensor dim; negative ones count from the end. */
static dtp_status read_axis(dtp_layout_reader *r, int32_t m, dtp_err *err)
{
    const char *at = r->at;
    int64_t axis;
    const int32_t rank = r->type->rank;
    if (dtp_layout_reader_accept(r, "dim") && !dtp_layout_reader_accept(r, "=")) {
        return dtp_layout_reader_fail(r, "'='", err);
    }
    if (!dtp_layout_reader_int(r, &axis)) {
        return dtp_layout_reader_fail(r, "the number of a tensor dim", err);
    }
    if (axis < -rank || axis >= rank) {
        return DTP_FAIL(err, DTP_INVALID,
                        "layout: tensor dim %lld of a tensor of rank %d at character %lld, on mesh "
                        "dim '%s'",
                        (long long)axis, rank, (long long)(at - r->text) + 1, r->mesh->names[m]);
    }
    axis = axis < 0 ? axis + rank : axis;
    r->layout.placement[m] = (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)axis};
    return DTP_OK;
}

/* "(0)", "0", with "[k]" or ".k" behind. */
static dtp_status read_shard(dtp_layout_reader *r, int32_t m, split_notes *notes, dtp_err *err)
{
    const bool brackets = dtp_layout_reader_accept(r, "(");
    DTP_TRY(read_axis(r, m, err));
    if (brackets && !dtp_layout_reader_accept(r, ")")) {
        return dtp_layout_reader_fail(r, "')'", err);
    }
    const bool square = dtp_layout_reader_accept(r, "[");
    if (square || dtp_layout_reader_accept(r, ".")) {
        if (!dtp_layout_reader_int(r, &notes->depth[m]) || notes->depth[m] < 0 ||
            (square && !dtp_layout_reader_accept(r, "]"))) {
            return dtp_layout_reader_fail(r, "the depth of a split such as '.1' or '[1]'", err);
        }
    }
    return DTP_OK;
}

/* "(dim=0, sf=2)" of a strided shard, or "0/2" of its short form. */
static dtp_status read_strided(dtp_layout_reader *r, int32_t m, bool brackets, split_notes *notes,
                               dtp_err *err)
{
    if (brackets && !dtp_layout_reader_accept(r, "(")) {
        return dtp_layout_reader_fail(r, "'('", err);
    }
    DTP_TRY(read_axis(r, m, err));
    if (!dtp_layout_reader_accept(r, brackets ? "," : "/")) {
        return dtp_layout_reader_fail(
            r, brackets ? "',' and a split factor" : "'/' and a split factor", err);
    }
    if ((dtp_layout_reader_accept(r, "split_factor") || dtp_layout_reader_accept(r, "sf")) &&
        !dtp_layout_reader_accept(r, "=")) {
        return dtp_layout_reader_fail(r, "'='", err);
    }
    if (!dtp_layout_reader_int(r, &notes->factor[m]) || notes->factor[m] < 1) {
        return dtp_layout_reader_fail(r, "a split factor of 1 or more", err);
    }
    return !brackets || dtp_layout_reader_accept(r, ")") ? DTP_OK
                                                         : dtp_layout_reader_fail(r, "')'", err);
}

/* "", "()", "(sum)", "(reduce_op='sum')". */
static dtp_status read_partial(dtp_layout_reader *r, int32_t m, dtp_err *err)
{
    int32_t op = DTP_REDUCE_SUM;
    r->layout.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    if (!dtp_layout_reader_accept(r, "(") || dtp_layout_reader_accept(r, ")")) {
        return DTP_OK;
    }
    if (dtp_layout_reader_accept(r, "reduce_op") && !dtp_layout_reader_accept(r, "=")) {
        return dtp_layout_reader_fail(r, "'='", err);
    }
    const bool quoted = dtp_layout_reader_accept(r, "'");
    if (dtp_layout_reader_accept(r, "product")) {
        op = DTP_REDUCE_PROD;
    } else {
        while (op < DTP_N_REDUCE_OPS &&
               !dtp_layout_reader_accept(r, dtp_reduce_op_name((dtp_reduce_op)op))) {
            op++;
        }
    }
    if (op == DTP_N_REDUCE_OPS) {
        return dtp_layout_reader_fail(r, "sum, avg, product, min or max", err);
    }
    if ((quoted && !dtp_layout_reader_accept(r, "'")) || !dtp_layout_reader_accept(r, ")")) {
        return dtp_layout_reader_fail(r, "')'", err);
    }
    r->layout.placement[m].op = (int8_t)op;
    return DTP_OK;
}

static dtp_status read_placement(dtp_layout_reader *r, int32_t m, split_notes *notes, dtp_err *err)
{
    int32_t k = 0;
    while (k < N_KEYWORDS && !dtp_layout_reader_accept(r, KEYWORDS[k].text)) {
        k++;
    }
    if (k == N_KEYWORDS) {
        return dtp_layout_reader_fail(r, "Shard, Replicate or Partial (or S, R, P)", err);
    }
    switch (KEYWORDS[k].key) {
    case KEY_SHARD:
        return read_shard(r, m, notes, err);
    case KEY_STRIDED:
        return read_strided(r, m, true, notes, err);
    case KEY_STRIDED_SHORT:
        return read_strided(r, m, false, notes, err);
    case KEY_PARTIAL:
        return read_partial(r, m, err);
    case KEY_REPLICATE:
        break;
    }
    if (dtp_layout_reader_accept(r, "(") && !dtp_layout_reader_accept(r, ")")) {
        return dtp_layout_reader_fail(r, "')'", err);
    }
    return DTP_OK;
}

/* ---- the order of the splits ---- */

static dtp_status order_by_depth(dtp_layout_reader *r, int32_t n, const int32_t *splits,
                                 const split_notes *notes, dtp_err *err)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t m = splits[i];
        const int64_t depth = notes->depth[m] == NO_DEPTH ? 0 : notes->depth[m];
        if (depth >= n || notes->factor[m] != 1 || (seen >> depth & 1U) != 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "layout: the %d splits of tensor dim %d must have the depths 0 to %d, "
                            "each once; mesh dim '%s' has %lld in '%.60s'",
                            n, r->layout.placement[m].axis, n - 1, r->mesh->names[m],
                            (long long)depth, r->text);
        }
        seen |= 1U << depth;
        r->layout.placement[m].order = (int8_t)depth;
    }
    return DTP_OK;
}

static dtp_status order_by_factor(dtp_layout_reader *r, int32_t n, const int32_t *splits,
                                  const split_notes *notes, dtp_err *err)
{
    int32_t order[DTP_MAX_MESH_DIMS] = {0};
    for (int32_t i = n - 1; i >= 0; i--) {
        const int32_t have = n - 1 - i, m = splits[i];
        int64_t before = 1;
        int32_t at = 0;
        while (at < have && before != notes->factor[m]) {
            before *= r->mesh->sizes[order[at++]];
        }
        if (before != notes->factor[m]) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "layout: split factor %lld on mesh dim '%s' is not the size of the "
                            "mesh dims behind it that split tensor dim %d first",
                            (long long)notes->factor[m], r->mesh->names[m],
                            r->layout.placement[m].axis);
        }
        memmove(order + at + 1, order + at, (size_t)(have - at) * sizeof order[0]);
        order[at] = m;
    }
    for (int32_t i = 0; i < n; i++) {
        r->layout.placement[order[i]].order = (int8_t)i;
    }
    return DTP_OK;
}

/* ---- the list ---- */

static dtp_status count_failure(const dtp_layout_reader *r, const char *relation, dtp_err *err)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(r->mesh, mesh);
    return DTP_FAIL(err, DTP_INVALID,
                    "layout: %s than %d placements, one for every dim of the mesh '%s', in '%.60s'",
                    relation, r->mesh->n_dims, mesh, r->text);
}

static dtp_status read_list(dtp_layout_reader *r, const char *close, split_notes *notes,
                            dtp_err *err)
{
    int32_t m = 0;
    for (;;) {
        if (close != NULL ? dtp_layout_reader_accept(r, close) : dtp_layout_reader_at_end(r)) {
            break;
        }
        if (dtp_layout_reader_at_end(r)) {
            return dtp_layout_reader_fail(r, "the closing bracket", err);
        }
        if (m == r->mesh->n_dims) {
            return count_failure(r, "more", err);
        }
        DTP_TRY(read_placement(r, m, notes, err));
        m++;
        if (dtp_layout_reader_accept(r, ",") && close == NULL && dtp_layout_reader_at_end(r)) {
            return dtp_layout_reader_fail(r, "a placement behind the comma", err);
        }
    }
    return m == r->mesh->n_dims ? DTP_OK : count_failure(r, "fewer", err);
}

dtp_status dtp_placements_parse(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                                dtp_layout *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, text, mesh, type, out));
    dtp_layout_reader r = {.text = text,
                           .at = text,
                           .mesh = mesh,
                           .type = type,
                           .layout = dtp_layout_replicated(type->rank, mesh->n_dims)};
    split_notes notes;
    for (int32_t m = 0; m < DTP_MAX_MESH_DIMS; m++) {
        notes.factor[m] = 1;
        notes.depth[m] = NO_DEPTH;
    }
    const char *close = dtp_layout_reader_accept(&r, "(")   ? ")"
                        : dtp_layout_reader_accept(&r, "[") ? "]"
                                                            : NULL;
    DTP_TRY(read_list(&r, close, &notes, err));
    if (!dtp_layout_reader_at_end(&r)) {
        return dtp_layout_reader_fail(&r, "the end", err);
    }
    for (int32_t axis = 0; axis < r.type->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS], n = 0; /* its mesh dims, in mesh order */
        bool numbered = false;
        for (int32_t m = 0; m < r.layout.n_mesh; m++) {
            const dtp_placement *p = &r.layout.placement[m];
            if (p->kind == DTP_SHARD && p->axis == axis) {
                splits[n++] = m;
                numbered = numbered || notes.depth[m] != NO_DEPTH;
            }
        }
        DTP_TRY(numbered ? order_by_depth(&r, n, splits, &notes, err)
                         : order_by_factor(&r, n, splits, &notes, err));
    }
    *out = r.layout;
    return DTP_OK;
}

/* ---- writing ---- */

void dtp_placements_print_long(const dtp_layout *layout, const dtp_mesh *mesh, dtp_strbuf *out)
{
    if (layout == NULL || mesh == NULL || out == NULL) {
        return;
    }
    dtp_strbuf_add(out, "(");
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        dtp_strbuf_add(out, m > 0 ? ", " : "");
        if (p->kind == DTP_PARTIAL) {
            dtp_strbuf_addf(out, "Partial(%s)",
                            p->op == DTP_REDUCE_PROD ? "product"
                                                     : dtp_reduce_op_name((dtp_reduce_op)p->op));
        } else if (p->kind == DTP_REPLICATE) {
            dtp_strbuf_add(out, "Replicate()");
        } else {
            int64_t factor = 1; /* of later mesh dims that split the tensor dim before m does */
            for (int32_t k = m + 1; k < layout->n_mesh; k++) {
                const dtp_placement *later = &layout->placement[k];
                if (later->kind == DTP_SHARD && later->axis == p->axis && later->order < p->order) {
                    factor *= mesh->sizes[k];
                }
            }
            dtp_strbuf_addf(out, factor > 1 ? "_StridedShard(dim=%d" : "Shard(dim=%d", p->axis);
            if (factor > 1) {
                dtp_strbuf_addf(out, ", sf=%lld", (long long)factor);
            }
            dtp_strbuf_add(out, ")");
        }
    }
    dtp_strbuf_add(out, layout->n_mesh == 1 ? ",)" : ")");
}

void dtp_placements_print(const dtp_layout *layout, dtp_strbuf *out)
{
    if (layout == NULL || out == NULL) {
        return;
    }
    dtp_strbuf_add(out, layout->n_mesh == 0 ? "()" : "");
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        dtp_strbuf_add(out, m > 0 ? ", " : "");
        if (p->kind == DTP_PARTIAL) {
            dtp_strbuf_addf(out, "P(%s)", dtp_reduce_op_name((dtp_reduce_op)p->op));
        } else if (p->kind == DTP_REPLICATE) {
            dtp_strbuf_add(out, "R");
        } else if (p->order > 0) {
            dtp_strbuf_addf(out, "S%d.%d", p->axis, p->order);
        } else {
            dtp_strbuf_addf(out, "S%d", p->axis);
        }
    }
}
