/* Where the kernels of a graph's nodes may run, whatever the layouts are. */
#include "spmd/lower/passes/kernel_places.h"

#include "core/graph/ops/fused_ops.h"
#include "core/graph/uses.h"
#include "spmd/lower/passes/passes.h"

/* Writers of a bias that move in front of a product (fuse_product.c). */
enum { MOVES = 6 };

typedef struct places {
    const dtp_graph *g;
    const dtp_target *target;
    dtp_readers readers;
    dtp_uses uses;
    dtp_kernel_places *out;
    bool *late; /* by node: what reads it moves behind it */
} places;

/* ---- nodes ---- */

static dtp_node_id earlier(dtp_node_id a, dtp_node_id b)
{
    return a < b ? a : b;
}

static dtp_node_id later(dtp_node_id a, dtp_node_id b)
{
    return a > b ? a : b;
}

static bool fuses(const places *p, uint32_t patterns)
{
    return (p->target->fuse & patterns) != 0;
}

static bool is_contraction(const dtp_node *node, int32_t n_in)
{
    return (node->op->flags & DTP_OP_CONTRACTION) != 0 && node->n_in == n_in;
}

/* A contraction that sums over nothing is a function, too. */
static bool is_function(const dtp_graph *g, const dtp_node *node)
{
    bool sums = false;
    if (!is_contraction(node, 2)) {
        return dtp_fused_is_function(node->op);
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_ttype *in = &g->tensors[node->in[i]].type;
        for (int32_t d = 0; d < in->rank; d++) {
            sums = sums || dtp_ttype_find(&g->tensors[node->out[0]].type, in->dims[d].id) < 0;
        }
    }
    return !sums;
}

static bool same_dims(const dtp_ttype *a, const dtp_ttype *b)
{
    bool same = a->rank == b->rank;
    for (int32_t i = 0; i < a->rank && same; i++) {
        same = dtp_ttype_find(b, a->dims[i].id) >= 0;
    }
    return same;
}

/* The node that makes operand i of another one in its phase; -1 = none. */
static dtp_node_id maker(const dtp_graph *g, dtp_node_id node, int32_t i)
{
    const dtp_node_id made = g->tensors[g->nodes[node].in[i]].producer;
    return made >= 0 && g->nodes[made].phase == g->nodes[node].phase ? made : -1;
}

/* ---- expressions ---- */

/* A function runs where the root of its expression does: a function that reads it, as far as
 * nothing else has read it by then, or a norm that reads it first. */
static void place_function(const places *p, dtp_node_id n)
{
    const dtp_graph *g = p->g;
    const dtp_tensor_id t = g->nodes[n].out[0];
    dtp_node_id *latest = p->out->latest, root = n, outside = g->n_nodes;
    for (int32_t k = p->readers.first[t]; k < p->readers.first[t + 1]; k++) {
        const dtp_node_id r = p->readers.node[k];
        const dtp_node *reader = &g->nodes[r];
        const bool here = reader->phase == g->nodes[n].phase;
        if (here && is_function(g, reader) &&
            same_dims(&g->tensors[t].type, &g->tensors[reader->out[0]].type)) {
            root = later(root, latest[r]);
        } else {
            outside = earlier(outside, latest[r]);
        }
        if (here && k == p->readers.first[t] && dtp_fused_norm(reader->op) != NULL) {
            latest[n] = later(latest[n], latest[r]);
        }
    }
    latest[n] = later(latest[n], root < outside ? root : outside - 1);
}

/* Whether a function may be the root of an expression of several. */
static bool is_root(const places *p, dtp_node_id n)
{
    bool root = false;
    for (int32_t i = 0; i < p->g->nodes[n].n_in; i++) {
        const dtp_node_id made = maker(p->g, n, i);
        root = root || (made >= 0 && p->out->latest[made] >= n);
    }
    return root;
}

/* ---- products ---- */

/* A sum of what a product reads, or gives, runs with it; what reads the sum moves behind. */
static void place_sum(const places *p, dtp_node_id n)
{
    const dtp_graph *g = p->g;
    const dtp_tensor_id t = g->nodes[n].in[0];
    const dtp_node_id made = maker(g, n, 0);
    for (int32_t k = p->readers.first[t]; k < p->readers.first[t + 1]; k++) {
        const dtp_node_id r = p->readers.node[k];
        if (is_contraction(&g->nodes[r], 2) && g->nodes[r].phase == g->nodes[n].phase) {
            p->out->earliest[n] = earlier(p->out->earliest[n], r);
            p->out->latest[n] = later(p->out->latest[n], r);
            p->late[n] = p->late[n] || r > n;
        }
    }
    if (made >= 0) {
        p->out->earliest[n] = earlier(p->out->earliest[n], p->out->earliest[made]);
    }
}

/* Biases, gelu and its gradient run with the product; what makes a bias moves in front. */
static void place_epilogue(const places *p, dtp_node_id n)
{
    const dtp_graph *g = p->g;
    const dtp_node *node = &g->nodes[n];
    const bool adds = node->op == dtp_fused_op(DTP_FUSED_ADD);
    dtp_node_id *earliest = p->out->earliest;
    if (!adds && node->op != dtp_fused_op(DTP_FUSED_GELU) &&
        node->op != dtp_fused_op(DTP_FUSED_GELU_GRAD)) {
        return;
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_node_id made = maker(g, n, i);
        if (made >= 0 && (is_contraction(&g->nodes[made], 2) ||
                          g->nodes[made].op == dtp_fused_op(DTP_FUSED_ADD))) {
            earliest[n] = earlier(earliest[n], earliest[made]);
        }
    }
    for (int32_t i = 0; i < node->n_in && adds; i++) {
        dtp_node_id at = maker(g, n, i);
        for (int32_t k = 0; k < MOVES && at > earliest[n] && g->nodes[at].n_in == 1; k++) {
            earliest[at] = earliest[n];
            at = maker(g, at, 0);
        }
    }
}

/* ---- losses ---- */

/* The gradient of a loss; -1 = none. */
static dtp_node_id grad_of(const places *p, dtp_node_id loss)
{
    const dtp_tensor_id logits = p->g->nodes[loss].in[0];
    dtp_node_id grad = -1;
    for (int32_t k = p->readers.first[logits]; k < p->readers.first[logits + 1]; k++) {
        const dtp_node *reader = &p->g->nodes[p->readers.node[k]];
        const bool is = reader->op->attrs == p->g->nodes[loss].op->attrs && reader->n_in == 4;
        grad = is ? p->readers.node[k] : grad;
    }
    return grad;
}

static void run_at(const places *p, dtp_node_id n, dtp_node_id at)
{
    p->out->latest[n] = later(p->out->latest[n], at);
    p->out->merged[n] = true;
}

/* A product, the loss of its result, the gradient of that and the products that read it run where
 * the last of them does; then the first one's operands may not be read. */
static void place_loss(const places *p, dtp_node_id loss)
{
    const dtp_graph *g = p->g;
    const dtp_node_id product = maker(g, loss, 0), grad = grad_of(p, loss);
    dtp_node_id at = loss;
    if (product < 0 || !is_contraction(&g->nodes[product], 2) ||
        dtp_ttype_bytes(&g->tensors[g->nodes[loss].in[0]].type) / DTP_LOSS_LEAST_CHUNKS <
            p->target->loss_chunk) {
        return;
    }
    const dtp_tensor_id d = grad >= 0 ? g->nodes[grad].out[0] : -1;
    for (int32_t k = d >= 0 ? p->readers.first[d] : 0; d >= 0 && k < p->readers.first[d + 1]; k++) {
        at = later(at, p->readers.node[k]);
    }
    for (int32_t k = d >= 0 ? p->readers.first[d] : 0; d >= 0 && k < p->readers.first[d + 1]; k++) {
        run_at(p, p->readers.node[k], at);
    }
    if (grad >= 0) {
        run_at(p, grad, at);
        p->out->skipped[product] = true;
    }
    run_at(p, product, at);
    run_at(p, loss, at);
    p->late[loss] = at > loss;
}

/* ---- all ---- */

/* What reads a result that comes late comes behind it. */
static void wait_for_operands(const places *p, dtp_node_id n)
{
    for (int32_t i = 0; i < p->g->nodes[n].n_in; i++) {
        const dtp_node_id made = p->g->tensors[p->g->nodes[n].in[i]].producer;
        if (made >= 0 && p->late[made] && p->out->latest[made] > n) {
            p->out->latest[n] = later(p->out->latest[n], p->out->latest[made]);
            p->late[n] = true;
        }
    }
}

static void place(const places *p, dtp_node_id n)
{
    const dtp_node *node = &p->g->nodes[n];
    const dtp_node_id made = node->n_in > 0 ? maker(p->g, n, 0) : -1;
    wait_for_operands(p, n);
    if (fuses(p, DTP_FUSE_ELEMENTWISE | DTP_FUSE_NORM) && is_function(p->g, node)) {
        place_function(p, n);
    }
    if (fuses(p, DTP_FUSE_PRODUCT)) {
        place_epilogue(p, n);
    }
    if (fuses(p, DTP_FUSE_PRODUCT) && is_contraction(node, 1)) {
        place_sum(p, n);
    }
    if (fuses(p, DTP_FUSE_CAST) && (node->op->flags & DTP_OP_CAST) != 0 && made >= 0) {
        p->out->earliest[n] = earlier(p->out->earliest[n], p->out->earliest[made]);
    }
}

/* What only skipped nodes read is not needed either. */
static void skip_makers(const places *p)
{
    for (dtp_node_id n = p->g->n_nodes - 1; n >= 0; n--) {
        const dtp_tensor_id t = p->g->nodes[n].out[0];
        bool needed = p->g->nodes[n].n_out > 1 || p->uses.survives[t] || p->uses.replaces[t] ||
                      p->readers.first[t] == p->readers.first[t + 1];
        for (int32_t k = p->readers.first[t]; k < p->readers.first[t + 1] && !needed; k++) {
            needed = !p->out->skipped[p->readers.node[k]];
        }
        p->out->skipped[n] = p->out->skipped[n] || !needed;
    }
}

/* Until nothing moves any more: nodes go to earlier and later places alone. */
static void place_all(const places *p)
{
    const dtp_graph *g = p->g;
    const dtp_kernel_places *out = p->out;
    int64_t sum = -1, before;
    for (dtp_node_id n = 0; n < g->n_nodes && p->target->loss_chunk > 0; n++) {
        if ((g->nodes[n].op->flags & DTP_OP_SOFTMAX_LOSS) != 0 && g->nodes[n].n_in == 2) {
            place_loss(p, n);
        }
    }
    do {
        before = sum;
        sum = 0;
        for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
            place(p, n);
        }
        for (dtp_node_id n = 0; n < g->n_nodes; n++) {
            place(p, n);
            sum += out->latest[n] - out->earliest[n];
        }
    } while (sum > before);
    skip_makers(p);
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        out->merged[n] = out->merged[n] || out->skipped[n] || out->earliest[n] < n ||
                         out->latest[n] > n || (is_function(g, &g->nodes[n]) && is_root(p, n));
    }
}

dtp_status dtp_kernel_places_find(const dtp_graph *g, const dtp_target *target, dtp_arena *arena,
                                  dtp_kernel_places *out, dtp_err *err)
{
    const size_t n = (size_t)g->n_nodes;
    places p = {.g = g, .target = target, .out = out};
    DTP_TRY(dtp_readers_find(g, arena, &p.readers, err));
    DTP_TRY(DTP_NEW(arena, out->earliest, n, err));
    DTP_TRY(DTP_NEW(arena, out->latest, n, err));
    DTP_TRY(DTP_NEW(arena, out->merged, n, err));
    DTP_TRY(DTP_NEW(arena, out->skipped, n, err));
    DTP_TRY(DTP_NEW(arena, p.late, n, err));
    DTP_TRY(dtp_uses_find(g, arena, &p.uses, err));
    for (dtp_node_id i = 0; i < g->n_nodes; i++) {
        out->earliest[i] = out->latest[i] = i;
    }
    if (target->fuse != 0 || target->loss_chunk > 0) {
        place_all(&p);
    }
    return DTP_OK;
}
