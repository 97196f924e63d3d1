/* The part of the program check that looks at one instruction: do the layouts of its operands
 * follow from what it does, and do its counts fit its buffers.
 */
#include <string.h>

#include "core/base/safe_int.h"
#include "spmd/program/program_check.h"
#include "core/graph/op_rules.h"
#include "spmd/program/program_check_ranges.h"

/* ---- layouts of kernels ---- */

/* `averages`: what the row passes on as sums are averages here. */
static bool same_place(const dtp_placement *row, const dtp_placement *at, bool averages)
{
    const bool swap = averages && row->kind == DTP_PARTIAL && row->op == DTP_REDUCE_SUM;
    return row->kind == at->kind && row->axis == at->axis &&
           (swap ? DTP_REDUCE_AVG : row->op) == at->op;
}

static bool row_matches(const dtp_program *p, const dtp_instr *instr, const dtp_sharding_rule *row,
                        int32_t m, bool averages)
{
    for (int32_t i = 0; i < instr->n_in; i++) {
        if (!same_place(&row->in[i], &p->values[instr->in[i]].layout.placement[m], averages)) {
            return false;
        }
    }
    for (int32_t i = 0; i < instr->n_out; i++) {
        if (!same_place(&row->out[i], &p->values[instr->out[i]].layout.placement[m], averages)) {
            return false;
        }
    }
    return !row->internal;
}

/* How one dim is cut: its size and the depth of each mesh dim among its splits, -1 = none. */
typedef struct cut {
    dtp_tdim dim;
    bool split;
    int8_t order[DTP_MAX_MESH_DIMS];
} cut;

/* On every rank, a dim must be cut at the same places in all operands that have it, but those that
 * a rule of the op may leave whole, or reads by a window. */
static dtp_status check_pieces(const dtp_program *p, const dtp_instr *instr,
                               const dtp_op_call *call, bool windows, dtp_err *err)
{
    cut seen[2 * DTP_MAX_OP_DIMS];
    int32_t n = 0;
    for (int32_t k = 0; k < instr->n_in + instr->n_out; k++) {
        const dtp_value *v =
            &p->values[k < instr->n_in ? instr->in[k] : instr->out[k - instr->n_in]];
        for (int32_t a = 0; a < v->type.rank; a++) {
            cut c = {.dim = v->type.dims[a]};
            const dtp_dim_role role = windows ? dtp_role_of(call, c.dim.id) : (dtp_dim_role){0};
            const bool window = k < instr->n_in && dtp_role_window(&role, k) != NULL;
            for (int32_t m = 0; m < DTP_MAX_MESH_DIMS; m++) {
                const dtp_placement *at = &v->layout.placement[m];
                bool here = m < v->layout.n_mesh && at->kind == DTP_SHARD && at->axis == a;
                c.order[m] = here ? at->order : -1;
                c.split = c.split || here;
            }
            int32_t at = 0;
            if (!c.split && (instr->op->flags & DTP_OP_WHOLE_OPERAND) != 0) {
                continue;
            }
            while (at < n && seen[at].dim.id != c.dim.id) {
                at++;
            }
            if (at == n && n < 2 * DTP_MAX_OP_DIMS) {
                seen[n++] = c;
                seen[at].dim.size = window ? -1 : c.dim.size;
            } else if (at < n && seen[at].dim.size < 0 &&
                       memcmp(seen[at].order, c.order, sizeof c.order) == 0) {
                seen[at].dim.size = window ? -1 : c.dim.size;
            } else if (at < n && (memcmp(seen[at].order, c.order, sizeof c.order) != 0 ||
                                  (c.split && !window && seen[at].dim.size != c.dim.size))) {
                return DTP_FAIL(err, DTP_INTERNAL, "dim '%s' of '%s' is cut differently",
                                dtp_dims_name(&p->dims, c.dim.id), v->name);
            }
        }
    }
    return DTP_OK;
}

/* Whether t is a tensor, or `of` in another type. */
static bool is_result(const dtp_graph *g, dtp_tensor_id t, dtp_tensor_id of)
{
    const dtp_node_id node = t >= 0 && t != of ? g->tensors[t].producer : -1;
    return t == of || (node >= 0 && (g->nodes[node].op->flags & DTP_OP_CAST) != 0 &&
                       g->nodes[node].in[0] == of);
}

/* A kernel of a node of the graph works on that node's tensors, and may give results that the node
 * of a cast would; kernels of its decomposition have another op. */
static bool works_on_its_node(const dtp_program *p, const dtp_instr *instr)
{
    if (instr->node < 0 || instr->node >= p->graph->n_nodes) {
        return false;
    }
    const dtp_node *node = &p->graph->nodes[instr->node];
    bool same = node->op != instr->op || (node->n_in == instr->n_in && node->n_out == instr->n_out);
    for (int32_t i = 0; i < instr->n_in && same && node->op == instr->op; i++) {
        same = p->values[instr->in[i]].tensor == node->in[i];
    }
    for (int32_t i = 0; i < instr->n_out && same && node->op == instr->op; i++) {
        same = is_result(p->graph, p->values[instr->out[i]].tensor, node->out[i]);
    }
    return same;
}

/* The operands' global types and layouts are those of one rule row per mesh dim. */
static dtp_status check_kernel(const dtp_program *p, const dtp_instr *instr, dtp_err *err)
{
    dtp_call_types types;
    dtp_sharding_rules set;
    if (instr->op == NULL || instr->n_out != instr->op->n_out || instr->n_in < instr->op->min_in ||
        instr->n_in > instr->op->max_in) {
        return DTP_FAIL(err, DTP_INTERNAL, "%d operands and %d results do not fit the op",
                        instr->n_in, instr->n_out);
    }
    if (!works_on_its_node(p, instr)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s does not work on the tensors of its node",
                        instr->op->name);
    }
    dtp_op_call call = dtp_instr_call(p, instr, 0, &types);
    for (int32_t i = 0; i < instr->n_in; i++) {
        types.in[i] = p->values[instr->in[i]].type;
    }
    for (int32_t i = 0; i < instr->n_out; i++) {
        types.out[i] = p->values[instr->out[i]].type;
    }
    dtp_sharding_rules_of(&call, true, &set);
    for (int32_t m = 0; m < p->mesh.n_dims; m++) {
        int32_t r = 0;
        while (r < set.n && !row_matches(p, instr, &set.rows[r], m, false) &&
               !(set.rows[r].linear && row_matches(p, instr, &set.rows[r], m, true))) {
            r++;
        }
        if (r == set.n) {
            return DTP_FAIL(err, DTP_INTERNAL, "its layouts on mesh dim '%s' are no rule of the op",
                            p->mesh.names[m]);
        }
    }
    bool windows = false;
    for (int32_t r = 0; r < set.n; r++) {
        windows = windows || set.rows[r].windows;
    }
    const uint32_t free_pieces = DTP_OP_RENAMES | DTP_OP_OPAQUE;
    if ((instr->op->flags & free_pieces) == 0) {
        DTP_TRY(check_pieces(p, instr, &call, windows, err));
    }
    return dtp_check__kernel_ranges(p, instr, &call, windows, err);
}

/* ---- layouts of copies and collectives ---- */

/* Checks that the splits of axis i differ by `set`, which `more` has innermost in ascending order
 * and `fewer` lacks, and that flattening several mesh dims is exact. Everything else is equal. */
static bool differs_by(const dtp_program *p, const dtp_value *more, const dtp_value *fewer,
                       int32_t axis, dtp_mesh_set set)
{
    int32_t a[DTP_MAX_MESH_DIMS], b[DTP_MAX_MESH_DIMS];
    int32_t na = dtp_layout_axis_splits(&more->layout, axis, a);
    int32_t nb = dtp_layout_axis_splits(&fewer->layout, axis, b);
    int64_t parts = 1;
    if (na < nb || memcmp(a, b, (size_t)nb * sizeof *a) != 0) {
        return false;
    }
    for (int32_t i = 0; i < na; i++) {
        parts *= p->mesh.sizes[a[i]];
        if (i >= nb && ((set >> a[i] & 1U) == 0 || (i > nb && a[i] < a[i - 1]))) {
            return false;
        }
        set &= i >= nb ? ~(1U << a[i]) : ~0U;
    }
    return set == 0 && (na - nb < 2 || more->type.dims[axis].size % parts == 0);
}

/* All mesh dims outside `set` have equal placements. */
static bool equal_outside(const dtp_value *a, const dtp_value *b, dtp_mesh_set set)
{
    for (int32_t m = 0; m < a->layout.n_mesh; m++) {
        if ((set >> m & 1U) == 0 &&
            memcmp(&a->layout.placement[m], &b->layout.placement[m], sizeof(dtp_placement)) != 0) {
            return false;
        }
    }
    return dtp_ttype_equal(&a->type, &b->type);
}

/* On every mesh dim of `set` the placement is of this kind (and reduction). */
static bool placed(const dtp_value *v, dtp_mesh_set set, dtp_placement_kind kind, dtp_reduce_op op)
{
    for (int32_t m = 0; m < v->layout.n_mesh; m++) {
        const dtp_placement *at = &v->layout.placement[m];
        if ((set >> m & 1U) != 0 &&
            (at->kind != (int8_t)kind || (kind == DTP_PARTIAL && at->op != (int8_t)op))) {
            return false;
        }
    }
    return true;
}

static bool is_split_step(const dtp_program *p, const dtp_value *whole, const dtp_value *split,
                          int32_t axis, dtp_mesh_set set)
{
    return axis >= 0 && axis < whole->type.rank && equal_outside(whole, split, set) &&
           placed(split, set, DTP_SHARD, DTP_REDUCE_SUM) && differs_by(p, split, whole, axis, set);
}

/* Elements of one part when `tensor` is cut into n parts along `axis`; -1 when it cannot be. */
static int64_t part_elems(const dtp_program *p, const dtp_value *tensor, int32_t axis, int64_t n)
{
    dtp_ttype local;
    if (axis < 0 || axis >= tensor->type.rank) {
        return -1;
    }
    dtp_layout_local_max(&tensor->layout, &p->mesh, &tensor->type, &local);
    local.dims[axis].size = dtp_ceil_div(local.dims[axis].size, n);
    return dtp_ttype_elems(&local);
}

static dtp_status check_move(const dtp_program *p, const dtp_instr *instr, dtp_err *err)
{
    const dtp_copy *move = &instr->move;
    if (move->kind == DTP_COPY_RANGE_OUT || move->kind == DTP_COPY_RANGE_IN) {
        return dtp_check__range_copy(p, instr, err);
    }
    if (instr->n_in != 1 || instr->n_out != 1) {
        return DTP_FAIL(err, DTP_INTERNAL, "a move of %d values to %d", instr->n_in, instr->n_out);
    }
    const dtp_value *in = &p->values[instr->in[0]], *out = &p->values[instr->out[0]];
    int64_t n = dtp_mesh_set_size(&p->mesh, move->set);
    bool ok = false;
    switch (move->kind) {
    case DTP_COPY_PACK:
        ok = dtp_check__is_flat(out) && !dtp_check__is_flat(in) &&
             in->type.dtype == out->type.dtype &&
             part_elems(p, in, move->axis, n) * n == out->type.dims[0].size;
        break;
    case DTP_COPY_UNPACK:
        ok = dtp_check__is_flat(in) && !dtp_check__is_flat(out) &&
             in->type.dtype == out->type.dtype &&
             part_elems(p, out, move->axis, n) * n == in->type.dims[0].size;
        break;
    case DTP_COPY_SLICE:
        ok = placed(in, move->set, DTP_REPLICATE, DTP_REDUCE_SUM) &&
             is_split_step(p, in, out, move->axis, move->set);
        break;
    case DTP_COPY_SCALE:
        ok = equal_outside(in, out, move->set) &&
             placed(in, move->set, DTP_PARTIAL, DTP_REDUCE_AVG) &&
             placed(out, move->set, DTP_PARTIAL, DTP_REDUCE_SUM) &&
             move->factor * (double)n > 0.999999 && move->factor * (double)n < 1.000001;
        break;
    case DTP_COPY_KEEP_FIRST:
        ok = equal_outside(in, out, move->set) &&
             placed(in, move->set, DTP_REPLICATE, DTP_REDUCE_SUM) &&
             placed(out, move->set, DTP_PARTIAL, DTP_REDUCE_SUM);
        break;
    case DTP_COPY_WHOLE:
        ok = equal_outside(in, out, 0);
        break;
    default:
        break;
    }
    return ok ? DTP_OK
              : DTP_FAIL(err, DTP_INTERNAL, "'%s' to '%s' is no such move", in->name, out->name);
}

/* The copy between staging buffer `id` and its tensor: among those that pack just before the START
 * or those that unpack just after the WAIT. In a bucket casts stand between them, of what another
 * member packs or has unpacked. NULL = none. */
static const dtp_instr *copy_of(const dtp_program *p, int32_t start, bool input, dtp_value_id id)
{
    const dtp_copy_kind kind = input ? DTP_COPY_PACK : DTP_COPY_UNPACK;
    const int32_t step = input ? -1 : 1;
    for (int32_t i = (input ? start : p->instrs[start].pair) + step; i >= 0 && i < p->n_instrs;
         i += step) {
        const dtp_instr *copy = &p->instrs[i];
        if (copy->kind == DTP_INSTR_KERNEL && copy->op != NULL &&
            (copy->op->flags & DTP_OP_CAST) != 0) {
            continue;
        }
        if (copy->kind != DTP_INSTR_COPY || copy->move.kind != kind || copy->n_in != 1 ||
            copy->n_out != 1) {
            return NULL;
        }
        if ((input ? copy->out : copy->in)[0] == id) {
            return copy;
        }
    }
    return NULL;
}

/* The tensor at one end of collective k of a START, looking through its staging buffer. */
static const dtp_value *tensor_end(const dtp_program *p, int32_t index, int32_t k, bool input)
{
    const dtp_value_id id = (input ? p->instrs[index].in : p->instrs[index].out)[k];
    if (!dtp_check__is_flat(&p->values[id])) {
        return &p->values[id];
    }
    const dtp_instr *copy = copy_of(p, index, input, id);
    return copy != NULL ? &p->values[(input ? copy->in : copy->out)[0]] : NULL;
}

/* The axis that `set` splits in v; -1 when it is not one axis. */
static int32_t split_axis(const dtp_value *v, dtp_mesh_set set)
{
    int32_t axis = -1;
    for (int32_t m = 0; m < v->layout.n_mesh; m++) {
        if ((set >> m & 1U) == 0) {
            continue;
        }
        if (v->layout.placement[m].kind != DTP_SHARD ||
            (axis >= 0 && axis != v->layout.placement[m].axis)) {
            return -1;
        }
        axis = v->layout.placement[m].axis;
    }
    return axis;
}

/* Without packing, the parts of the axis are [:, p, :] of the local array [outer, n, rest]. */
static bool parts_in_place(const dtp_program *p, const dtp_value *v, int32_t axis, int64_t outer)
{
    dtp_ttype local;
    int64_t before = 1;
    dtp_layout_local_max(&v->layout, &p->mesh, &v->type, &local);
    for (int32_t i = 0; i < axis; i++) {
        before *= local.dims[i].size;
    }
    return before == outer;
}

static int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

/* One end of a collective lies in memory as it should: either packed by a copy over the same axis
 * and mesh dims, or directly. A set of 0 stands for one part, which has no order. */
static bool end_fits(const dtp_program *p, int32_t index, int32_t k, bool input, int32_t axis,
                     dtp_mesh_set set, bool even)
{
    const dtp_instr *instr = &p->instrs[index];
    const dtp_coll *c = dtp_coll_at(&instr->coll, k);
    const dtp_value_id id = (input ? instr->in : instr->out)[k];
    int64_t outer = at_least_one(input ? c->in_outer : c->out_outer);
    if (!dtp_check__is_flat(&p->values[id])) {
        return even && (set == 0 || parts_in_place(p, &p->values[id], axis, outer));
    }
    const dtp_copy *move = &copy_of(p, index, input, id)->move;
    return outer == 1 && move->set == set && (set == 0 || move->axis == axis);
}

static bool coll_fits(const dtp_program *p, int32_t index, int32_t k, const dtp_value *in,
                      const dtp_value *out)
{
    const dtp_instr *instr = &p->instrs[index];
    const dtp_coll *c = dtp_coll_at(&instr->coll, k);
    int64_t n = dtp_mesh_set_size(&p->mesh, c->set);
    bool even = dtp_layout_is_even(&in->layout, &p->mesh, &in->type) &&
                dtp_layout_is_even(&out->layout, &p->mesh, &out->type);
    int32_t from = split_axis(in, c->set), to = split_axis(out, c->set);
    switch (c->kind) {
    case DTP_ALL_REDUCE:
        return !dtp_check__is_flat(&p->values[instr->in[k]]) &&
               !dtp_check__is_flat(&p->values[instr->out[k]]) && equal_outside(in, out, c->set) &&
               placed(in, c->set, DTP_PARTIAL, c->op) &&
               placed(out, c->set, DTP_REPLICATE, DTP_REDUCE_SUM);
    case DTP_ALL_GATHER:
        return from >= 0 && placed(out, c->set, DTP_REPLICATE, DTP_REDUCE_SUM) &&
               is_split_step(p, out, in, from, c->set) && c->count == part_elems(p, out, from, n) &&
               end_fits(p, index, k, true, from, 0, even) &&
               end_fits(p, index, k, false, from, c->set, even);
    case DTP_REDUCE_SCATTER:
        return to >= 0 && placed(in, c->set, DTP_PARTIAL, c->op) &&
               is_split_step(p, in, out, to, c->set) && c->count == part_elems(p, in, to, n) &&
               end_fits(p, index, k, true, to, c->set, even) &&
               end_fits(p, index, k, false, to, 0, even);
    case DTP_ALL_TO_ALL: /* from one split axis to another */
        return from >= 0 && to >= 0 && from != to && equal_outside(in, out, c->set) &&
               differs_by(p, in, out, from, c->set) && differs_by(p, out, in, to, c->set) &&
               c->count == part_elems(p, in, to, n) &&
               end_fits(p, index, k, true, to, c->set, even) &&
               end_fits(p, index, k, false, from, c->set, even);
    default:
        return false;
    }
}

/* The shards of a group of a collective_permute have one shape and both ends are cut alike. */
static bool permute_fits(const dtp_program *p, const dtp_instr *instr)
{
    const dtp_value *in = &p->values[instr->in[0]], *out = &p->values[instr->out[0]];
    bool fits = instr->n_in == 1 && instr->n_out == 1 && in->type.rank == out->type.rank &&
                dtp_layout_is_even_over(&in->layout, &p->mesh, &in->type, instr->coll.set);
    for (int32_t i = 0; fits && i < in->type.rank; i++) {
        fits = in->type.dims[i].size == out->type.dims[i].size;
    }
    return fits && dtp_layout_equal(&in->layout, &out->layout);
}

/* Only a buffer of several parts has an order of parts, and it is cut into whole runs. */
static bool outers_fit(const dtp_coll *c)
{
    bool in = c->kind == DTP_REDUCE_SCATTER || c->kind == DTP_ALL_TO_ALL;
    bool out = c->kind == DTP_ALL_GATHER || c->kind == DTP_ALL_TO_ALL;
    return c->in_outer >= 0 && c->out_outer >= 0 && (in || c->in_outer <= 1) &&
           (out || c->out_outer <= 1) && c->count % at_least_one(c->in_outer) == 0 &&
           c->count % at_least_one(c->out_outer) == 0;
}

/* Collective k of a START. */
static dtp_status check_coll(const dtp_program *p, int32_t index, int32_t k, dtp_err *err)
{
    const dtp_instr *instr = &p->instrs[index];
    const dtp_coll *c = dtp_coll_at(&instr->coll, k);
    if (c->kind < 0 || c->kind >= DTP_N_COLLS || c->set == 0 || c->set >> p->mesh.n_dims != 0 ||
        c->count < 1 || c->op == DTP_REDUCE_AVG || (c->kind != DTP_PERMUTE && c->shift != 0)) {
        return DTP_FAIL(err, DTP_INTERNAL, "a malformed collective");
    }
    int64_t n = dtp_mesh_set_size(&p->mesh, c->set);
    const dtp_value *in = &p->values[instr->in[k]], *out = &p->values[instr->out[k]];
    int64_t elem = dtp_dtype_bytes(c->dtype);
    if (in->type.dtype != c->dtype || out->type.dtype != c->dtype ||
        in->bytes != dtp_coll_parts_in(c, n) * c->count * elem ||
        out->bytes != dtp_coll_parts_out(c, n) * c->count * elem) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "%lld elements of %s over %lld ranks do not fit '%s' (%lld bytes) and '%s' "
                        "(%lld bytes)",
                        (long long)c->count, dtp_dtype_name(c->dtype), (long long)n, in->name,
                        (long long)in->bytes, out->name, (long long)out->bytes);
    }
    if (!outers_fit(c)) {
        return DTP_FAIL(err, DTP_INTERNAL, "parts of %lld elements cannot be cut %lld to %lld",
                        (long long)c->count, (long long)c->in_outer, (long long)c->out_outer);
    }
    if (!p->target->strided && (c->in_outer > 1 || c->out_outer > 1)) {
        return DTP_FAIL(err, DTP_INTERNAL, "its parts are strided, and target '%s' takes none",
                        p->target->name);
    }
    if (c->kind == DTP_PERMUTE && dtp_check__is_flat(in)) {
        return dtp_check__range_permute(p, index, err);
    }
    if (c->kind == DTP_PERMUTE) {
        return permute_fits(p, instr)
                   ? dtp_check__passed_on(p, instr, err)
                   : DTP_FAIL(err, DTP_INTERNAL, "'%s' does not become '%s' by passing shards on",
                              in->name, out->name);
    }
    in = tensor_end(p, index, k, true);
    out = tensor_end(p, index, k, false);
    if (in == NULL || out == NULL || !coll_fits(p, index, k, in, out)) {
        return DTP_FAIL(err, DTP_INTERNAL, "it does not lead from '%s' to '%s'",
                        in != NULL ? in->name : "a staging buffer without pack",
                        out != NULL ? out->name : "a staging buffer without unpack");
    }
    return DTP_OK;
}

/* One operand and result for each collective; those of a bucket are of a kind, and count together
 * what the bucket counts. */
static dtp_status check_bucket(const dtp_program *p, int32_t index, dtp_err *err)
{
    const dtp_instr *instr = &p->instrs[index];
    const dtp_coll *c = &instr->coll;
    const bool may =
        c->kind == DTP_ALL_REDUCE || c->kind == DTP_REDUCE_SCATTER || c->kind == DTP_ALL_GATHER;
    bool fits = c->n_bucket >= 0 && c->n_bucket <= DTP_MAX_BUCKET &&
                (c->n_bucket == 0 || (c->n_bucket > 1 && may && c->bucket != NULL &&
                                      c->in_outer == 0 && c->out_outer == 0 && c->shift == 0)) &&
                instr->n_in == dtp_coll_buffers(c) && instr->n_out == instr->n_in;
    int64_t count = 0;
    for (int32_t k = 0; k < c->n_bucket && fits; k++) {
        const dtp_coll *one = &c->bucket[k];
        fits = one->kind == c->kind && one->set == c->set && one->op == c->op &&
               one->dtype == c->dtype && one->n_bucket == 0 &&
               dtp_add_i64(count, one->count, &count);
    }
    return fits && (c->n_bucket == 0 || count == c->count)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "a malformed bucket");
}

/* Whether a result lies in the buffer of an operand. */
static bool is_replaced(const dtp_program *p, const dtp_instr *start, dtp_value_id operand)
{
    bool found = false;
    for (int32_t k = 0; k < start->n_out; k++) {
        found = found || dtp_value_root(p, start->out[k]) == dtp_value_root(p, operand);
    }
    return found;
}

/* A WAIT behind its START, in the same part of a step, on the same operands. */
static dtp_status check_pair(const dtp_program *p, int32_t index, dtp_err *err)
{
    const dtp_instr *instr = &p->instrs[index];
    const bool start = instr->kind == DTP_INSTR_START;
    const bool inside = instr->pair >= 0 && instr->pair < p->n_instrs;
    const dtp_instr *other = &p->instrs[inside ? instr->pair : index];
    bool fits =
        inside && other->pair == index && (start ? instr->pair > index : instr->pair < index) &&
        other->kind == (start ? DTP_INSTR_WAIT : DTP_INSTR_START) && other->phase == instr->phase;
    const dtp_instr *s = start ? instr : other, *w = start ? other : instr;
    fits = fits && w->n_out == 0 && w->workspace < 0;
    int32_t n = 0;
    for (int32_t k = 0; fits && k < s->n_in + s->n_out; k++) {
        const dtp_value_id v = k < s->n_in ? s->in[k] : s->out[k - s->n_in];
        if (k >= s->n_in || !is_replaced(p, s, v)) {
            fits = n < w->n_in && w->in[n] == v;
            n++;
        }
    }
    fits = fits && n == w->n_in;
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "%s %d is not its %s", dtp_instr_name(other),
                           instr->pair, start ? "WAIT" : "START");
}

static dtp_status check_start(const dtp_program *p, int32_t index, dtp_err *err)
{
    DTP_TRY(check_pair(p, index, err));
    DTP_TRY(check_bucket(p, index, err));
    for (int32_t k = 0; k < p->instrs[index].n_in; k++) {
        DTP_TRY(check_coll(p, index, k, err));
    }
    return DTP_OK;
}

dtp_status dtp_check__instr(const dtp_program *p, int32_t index, dtp_err *err)
{
    const dtp_instr *instr = &p->instrs[index];
    DTP_TRY(dtp_check__no_ranges(p, instr, err));
    switch (instr->kind) {
    case DTP_INSTR_KERNEL:
        return check_kernel(p, instr, err);
    case DTP_INSTR_COPY:
        return check_move(p, instr, err);
    case DTP_INSTR_START:
        return check_start(p, index, err);
    case DTP_INSTR_WAIT:
        return check_pair(p, index, err);
    default:
        return DTP_FAIL(err, DTP_INTERNAL, "no such kind of instruction");
    }
}
