/* Ops of neural networks by name (include/dtp/ops.h). */
#include "core/graph/op.h"
#include "dtensor/ops_common.h"

/* `in`: x, gamma and, for layer_norm, beta. */
static dtp_status norm(const char *op, int32_t n_in, const dtp_tensor *in, double eps,
                       dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc x, gamma;
    dtp_letters l = {0}, over = {0};
    DTP_TRY(dtp_ops__describe(op, in[0], &x, err));
    DTP_TRY(dtp_ops__describe(op, in[1], &gamma, err));
    if (gamma.rank < 1 || gamma.rank > x.rank) {
        return DTP_FAIL(err, DTP_INVALID, "%s: gamma has %d dims, the operand %d", op, gamma.rank,
                        x.rank);
    }
    dtp_letters_run(&l, 0, x.rank);
    dtp_letters_run(&over, x.rank - gamma.rank, gamma.rank);
    for (int32_t i = 1; i < n_in; i++) {
        dtp_letters_add(&l, ",");
        dtp_letters_add(&l, over.text);
    }
    const dtp_arg args[] = {{.key = "over", .kind = DTP_ARG_DIMS, .text = over.text},
                            {.key = "eps", .kind = DTP_ARG_FLOAT, .f = eps},
                            {0}};
    return dtp_ops__call(op, l.text, n_in, in, args, out, err);
}

dtp_status dtp_tensor_layer_norm(dtp_tensor x, dtp_tensor gamma, dtp_tensor beta, double eps,
                                 dtp_tensor *out, dtp_err *err)
{
    const dtp_tensor in[] = {x, gamma, beta};
    return norm("layer_norm", 3, in, eps, out, err);
}

dtp_status dtp_tensor_rms_norm(dtp_tensor x, dtp_tensor gamma, double eps, dtp_tensor *out,
                               dtp_err *err)
{
    const dtp_tensor in[] = {x, gamma};
    return norm("rms_norm", 2, in, eps, out, err);
}

dtp_status dtp_tensor_embedding(dtp_tensor table, dtp_tensor ids, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc t, i;
    dtp_letters l = {0};
    const dtp_tensor in[] = {table, ids};
    DTP_TRY(dtp_ops__describe("embedding", table, &t, err));
    DTP_TRY(dtp_ops__describe("embedding", ids, &i, err));
    if (t.rank < 1 || t.rank - 1 + i.rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "embedding: a table of %d dims and ids of %d", t.rank,
                        i.rank);
    }
    dtp_letters_run(&l, 0, t.rank);
    dtp_letters_add(&l, ",");
    dtp_letters_run(&l, t.rank, i.rank);
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, t.rank, i.rank);
    dtp_letters_run(&l, 1, t.rank - 1);
    const dtp_arg args[] = {{.key = "over", .kind = DTP_ARG_DIMS, .text = "a"}, {0}};
    return dtp_ops__call("embedding", l.text, 2, in, args, out, err);
}

/* ---- loss ---- */

dtp_cross_entropy_options dtp_cross_entropy_options_init(void)
{
    return (dtp_cross_entropy_options){.reduce = "mean"};
}

/* Letters: the dims of the labels, then the classes. */
dtp_status dtp_tensor_cross_entropy_with(dtp_tensor logits, dtp_tensor labels,
                                         const dtp_cross_entropy_options *o, dtp_tensor *out,
                                         dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, o));
    dtp_tensor_desc d;
    dtp_letters l = {0}, over = {0};
    const bool weighted = o->weights != NULL;
    const dtp_tensor in[] = {logits, labels, weighted ? *o->weights : logits};
    DTP_TRY(dtp_ops__describe("cross_entropy", logits, &d, err));
    if (d.rank < 1) {
        return DTP_FAIL(err, DTP_INVALID, "cross_entropy: the logits are a single number");
    }
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_letter(&over, d.rank - 1);
    dtp_letters_add(&l, ",");
    dtp_letters_run(&l, 0, d.rank - 1);
    dtp_letters_add(&l, weighted ? "," : "");
    dtp_letters_add(&l, weighted ? over.text : "");
    const dtp_arg args[] = {
        {.key = "over", .kind = DTP_ARG_DIMS, .text = over.text},
        {.key = "reduce", .kind = DTP_ARG_ENUM, .text = o->reduce},
        {.key = "smoothing", .kind = DTP_ARG_FLOAT, .f = o->smoothing},
        {.key = o->ignore ? "ignore" : NULL, .kind = DTP_ARG_INT, .i = o->ignored},
        {0}};
    return dtp_ops__call("cross_entropy", l.text, weighted ? 3 : 2, in, args, out, err);
}

dtp_status dtp_tensor_cross_entropy(dtp_tensor logits, dtp_tensor labels, const char *reduce,
                                    dtp_tensor *out, dtp_err *err)
{
    const dtp_cross_entropy_options o = {.reduce = reduce};
    return dtp_tensor_cross_entropy_with(logits, labels, &o, out, err);
}

/* ---- attention ---- */

dtp_attention_options dtp_attention_options_init(void)
{
    return (dtp_attention_options){.causal = true, .order = "contiguous", .chunks = 1};
}

/* The letters of a mask: the last dims of a head's, queries w and keys x. */
static dtp_status add_mask_letters(dtp_tensor mask, int32_t rank, dtp_letters *l, dtp_err *err)
{
    dtp_tensor_desc m;
    DTP_TRY(dtp_ops__describe("attention", mask, &m, err));
    if (m.rank > rank) {
        return DTP_FAIL(err, DTP_INVALID, "attention: the mask has %d dims, q has %d", m.rank,
                        rank);
    }
    dtp_letters_add(l, ",");
    dtp_letters_run(l, rank - m.rank, m.rank > 2 ? m.rank - 2 : 0);
    dtp_letters_add(l, m.rank > 1 ? "wx" : m.rank > 0 ? "x" : "");
    return DTP_OK;
}

/* Letters: the dims before the last two, then w queries, x keys, y feature, z value; in
 * self-attention w is the keys' too. */
dtp_status dtp_tensor_attention_with(dtp_tensor q, dtp_tensor k, dtp_tensor v,
                                     const dtp_attention_options *o, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, o));
    const bool self = o->context != NULL;
    const char *key = self ? "w" : "x";
    const char *const last[3][2] = {{"w", "y"}, {key, "y"}, {key, "z"}};
    dtp_tensor_desc d;
    dtp_letters l = {0};
    const bool masked = o->mask != NULL;
    dtp_tensor in[4] = {q, k, v};
    if (masked && self) {
        return DTP_FAIL(err, DTP_INVALID, "attention: a mask beside context '%s'", o->context);
    }
    if (masked) {
        in[3] = *o->mask;
    }
    DTP_TRY(dtp_ops__describe("attention", q, &d, err));
    if (d.rank < 2) {
        return DTP_FAIL(err, DTP_INVALID, "attention: q has %d dims, 2 or more are needed", d.rank);
    }
    for (int i = 0; i < 3; i++) {
        dtp_letters_add(&l, i > 0 ? "," : "");
        dtp_letters_run(&l, 0, d.rank - 2);
        dtp_letters_add(&l, last[i][0]);
        dtp_letters_add(&l, last[i][1]);
    }
    DTP_TRY(masked ? add_mask_letters(in[3], d.rank, &l, err) : DTP_OK);
    const dtp_arg args[] = {
        {.key = "query", .kind = DTP_ARG_DIMS, .text = "w"},
        {.key = "key", .kind = DTP_ARG_DIMS, .text = key},
        {.key = "feature", .kind = DTP_ARG_DIMS, .text = "y"},
        {.key = "value", .kind = DTP_ARG_DIMS, .text = "z"},
        {.key = "causal", .kind = DTP_ARG_INT, .i = o->causal ? 1 : 0},
        {.key = "scale", .kind = DTP_ARG_FLOAT, .f = o->scale},
        {.key = "order", .kind = DTP_ARG_ENUM, .text = o->order},
        {.key = "chunks", .kind = DTP_ARG_INT, .i = o->chunks},
        {.key = self ? "context" : NULL, .kind = DTP_ARG_ENUM, .text = o->context},
        {0}};
    return dtp_ops__call("attention", l.text, masked ? 4 : 3, in, args, out, err);
}

dtp_status dtp_tensor_attention(dtp_tensor q, dtp_tensor k, dtp_tensor v, bool causal, double scale,
                                dtp_tensor *out, dtp_err *err)
{
    dtp_attention_options o = dtp_attention_options_init();
    o.causal = causal;
    o.scale = scale;
    return dtp_tensor_attention_with(q, k, v, &o, out, err);
}

/* ---- positions ---- */

dtp_status dtp_tensor_rope(dtp_tensor x, int32_t position_axis, double base, int64_t offset,
                           dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_letters l = {0}, position = {0}, feature = {0};
    int32_t at;
    DTP_TRY(dtp_ops__describe("rope", x, &d, err));
    DTP_TRY(dtp_ops__axis("rope", position_axis, d.rank, &at, err));
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_letter(&position, at);
    dtp_letters_letter(&feature, d.rank - 1);
    const dtp_arg args[] = {{.key = "position", .kind = DTP_ARG_DIMS, .text = position.text},
                            {.key = "feature", .kind = DTP_ARG_DIMS, .text = feature.text},
                            {.key = "base", .kind = DTP_ARG_FLOAT, .f = base},
                            {.key = "offset", .kind = DTP_ARG_INT, .i = offset},
                            {0}};
    return dtp_ops__call("rope", l.text, 1, &x, args, out, err);
}
