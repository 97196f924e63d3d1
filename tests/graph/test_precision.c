/* Graphs in mixed precision: what has which type, casts, gradients, and the other variants behind
 * it. */
#include "core/transform/precision.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op_rules.h"
#include "core/transform/graph_variant.h"
#include "tests/support/graph_check.h"

static const char *const MODELS[] = {"mlp_digits",   "gpt_bytes_dropout", "llama3_8b",
                                     "mixtral_8x7b", "bert_large",        "vit_b16",
                                     "mtf_lm",       "gpt2_small",        "gpt_bytes_experts"};
static const char *const NAMES[] = {"bf16", "f16", "bf16,gradients=f32", "f16,gradients=f32"};

enum { N_MODELS = sizeof MODELS / sizeof *MODELS, N_NAMES = sizeof NAMES / sizeof *NAMES };

static dtp_graph *model(const char *name)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.json", name);
    if (dtp_model_read(path, NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_precision named(const char *text)
{
    dtp_err err = {0};
    dtp_precision p;
    if (dtp_precision_parse(text, &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return p;
}

static dtp_graph *changed(const dtp_graph *g, const char *text)
{
    dtp_err err = {0};
    dtp_graph *out = NULL;
    const dtp_precision p = named(text);
    if (dtp_graph_with_precision(g, &p, &out, &err) != DTP_OK || graph_check(out, &err) != DTP_OK) {
        fail_msg("%s: %s", text, err.msg);
    }
    return out;
}

static bool is_cast(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id n = g->tensors[t].producer;
    return n >= 0 && (g->nodes[n].op->flags & DTP_OP_CAST) != 0;
}

/* Casts of the tensor to 16 bits, and other readers of it in the forward pass. */
static void count_readers(const dtp_graph *g, dtp_tensor_id t, int32_t *casts, int32_t *others)
{
    *casts = *others = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_FORWARD; i++) {
            const bool reads = node->in[i] == t;
            *casts += reads && is_cast(g, node->out[0]) ? 1 : 0;
            *others += reads && !is_cast(g, node->out[0]) ? 1 : 0;
        }
    }
}

static void check_sources(const dtp_graph *g)
{
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        int32_t casts, others;
        assert_true(tensor->kind != DTP_TENSOR_STATE || tensor->type.dtype == DTP_F32);
        if (tensor->kind != DTP_TENSOR_PARAM) {
            continue;
        }
        count_readers(g, t, &casts, &others);
        if (tensor->type.dtype != DTP_F32 || casts != 1 || others != 0) {
            fail_msg("%s: %d casts, %d other readers", tensor->name, casts, others);
        }
    }
}

/* What nodes read and give: one float type for products and sums of activations, f32 behind them.
 */
static void check_nodes(const dtp_graph *g, const dtp_precision *p)
{
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const dtp_dtype in = node->n_in > 0 ? g->tensors[node->in[0]].type.dtype : DTP_F32;
        const dtp_dtype out = g->tensors[node->out[0]].type.dtype;
        const uint32_t flags = node->op->flags;
        if ((flags & DTP_OP_CAST) != 0) {
            assert_true(in != out);
            assert_false(is_cast(g, node->in[0])); /* no cast of a cast */
        } else if (node->phase == DTP_FORWARD && dtp_dtype_is_float(in) &&
                   (flags & (DTP_OP_CONTRACTION | DTP_OP_ATTENTION)) != 0) {
            assert_int_equal(in, p->compute);
            assert_int_equal(out, p->compute);
        } else if ((flags & DTP_OP_NORM) != 0) {
            assert_int_equal(out, p->compute);
            assert_int_equal(g->tensors[node->out[1]].type.dtype, DTP_F32);
        } else if ((flags & DTP_OP_SOFTMAX_LOSS) != 0) {
            assert_int_equal(in, p->compute);
            assert_int_equal(out, DTP_F32);
            assert_int_equal(g->tensors[node->out[1]].type.dtype, DTP_F32);
        } else if ((flags & DTP_OP_STATISTIC) != 0 && dtp_dtype_is_float(in)) {
            assert_int_equal(in, DTP_F32);
        }
    }
}

/* Random numbers, names and counts are those of the graph in f32. */
static void check_like(const dtp_graph *g, const dtp_graph *f32)
{
    for (dtp_node_id n = 0; n < f32->n_nodes; n++) {
        const dtp_node *node = &f32->nodes[n];
        if (node->phase == DTP_BACKWARD) {
            continue;
        }
        const dtp_tensor_id t = dtp_graph_find(g, node->name);
        assert_true(t >= 0);
        const dtp_node *same = &g->nodes[g->tensors[t].producer];
        assert_ptr_equal(same->op, node->op);
        assert_int_equal(same->block, node->block);
        assert_int_equal(same->instance, node->instance);
        for (int32_t i = 0; i < node->n_attrs; i++) {
            assert_true(node->attrs[i].kind == DTP_ATTR_DTYPE ||
                        same->attrs[i].i == node->attrs[i].i);
        }
    }
    assert_int_equal(g->n_grads, f32->n_grads);
    const bool scaled = dtp_graph_find(g, DTP_LOSS_SCALE) >= 0; /* f16: three states more */
    assert_int_equal(g->n_updates, f32->n_updates + (scaled ? 3 : 0));
    assert_int_equal(g->n_outputs, f32->n_outputs);
    assert_string_equal(g->tensors[g->loss].name, f32->tensors[f32->loss].name);
    assert_int_equal(g->tensors[g->loss].type.dtype, DTP_F32);
}

/* In f32: no cast of a gradient is left, and what makes one gives f32. In 16 bits: there is one. */
static void check_gradients(const dtp_graph *g, const dtp_precision *p)
{
    for (int32_t i = 0; i < g->n_grads; i++) {
        const dtp_tensor_id t = g->grads[i].grad;
        assert_int_equal(g->tensors[t].type.dtype, DTP_F32);
        if (is_cast(g, t) == (p->gradients == DTP_F32)) {
            fail_msg("the gradient of '%s' comes from %s", g->tensors[g->grads[i].param].name,
                     g->nodes[g->tensors[t].producer].op->name);
        }
    }
}

static void test_precision__types(void **state)
{
    (void)state;
    for (int32_t m = 0; m < N_MODELS; m++) {
        dtp_graph *f32 = model(MODELS[m]);
        for (int32_t k = 0; k < N_NAMES; k++) {
            const dtp_precision p = named(NAMES[k]);
            dtp_graph *g = changed(f32, NAMES[k]);
            print_message("%s %s: %d nodes\n", MODELS[m], NAMES[k], g->n_nodes);
            check_sources(g);
            check_nodes(g, &p);
            check_like(g, f32);
            check_gradients(g, &p);
            dtp_graph_destroy(g);
        }
        dtp_graph_destroy(f32);
    }
}

/* A cast of a block's parameter belongs to the block, one of a shared parameter to none. */
static void test_precision__blocks_of_casts(void **state)
{
    (void)state;
    dtp_graph *f32 = model("gpt2_small"), *g = changed(f32, "bf16");
    const dtp_tensor_id own = dtp_graph_find(g, "bf16.layers.3.mlp.w1");
    const dtp_tensor_id tied = dtp_graph_find(g, "bf16.token_table");
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        if (node->out[0] == own) {
            assert_true(node->block >= 0);
            assert_int_equal(node->instance, 3);
        }
        assert_true(node->out[0] != tied || node->block == -1);
    }
    dtp_graph_destroy(g);
    dtp_graph_destroy(f32);
}

#define MODEL(params, nodes)                                                                       \
    "{\"format\": \"dtp.model/1\", \"name\": \"t\", \"dims\": {\"b\": 6, \"f\": 4, \"g\": 4},"     \
    "\"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"], \"dtype\": \"f32\"}},"                         \
    "\"params\": {" params "}, \"nodes\": [" nodes "],"                                            \
    "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}"
#define W "\"w\": {\"dims\": [\"f\"], \"init\": \"ones\"}"

static dtp_graph *parse(const char *text)
{
    dtp_err err = {0};
    dtp_graph *g = NULL;
    if (dtp_model_parse("t", text, strlen(text), NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_dtype dtype_of(const dtp_graph *g, const char *name)
{
    const dtp_tensor_id t = dtp_graph_find(g, name);
    if (t < 0) {
        fail_msg("no tensor '%s'", name);
    }
    return g->tensors[t].type.dtype;
}

/* A loss by sums, masks from random numbers, statistics, a scalar parameter. */
static void test_precision__what_stays_wide(void **state)
{
    (void)state;
    dtp_graph *f32 = parse(
        MODEL(W ", \"s\": {\"dims\": [], \"init\": \"ones\"}",
              "{\"id\": \"y\", \"op\": \"mul\", \"in\": [\"x\", \"w\"]},"
              "{\"id\": \"u\", \"op\": \"uniform\", \"out\": [\"b\", \"f\"]},"
              "{\"id\": \"rate\", \"op\": \"constant\", \"value\": 0.3, \"out\": []},"
              "{\"id\": \"keep\", \"op\": \"compare\", \"cmp\": \"lt\", \"in\": [\"u\", \"rate\"]},"
              "{\"id\": \"mask\", \"op\": \"cast\", \"dtype\": \"f32\", \"in\": [\"keep\"]},"
              "{\"id\": \"z\", \"op\": \"mul\", \"in\": [\"y\", \"mask\"]},"
              "{\"id\": \"count\", \"op\": \"cumsum\", \"dim\": \"f\", \"in\": [\"z\"]},"
              "{\"id\": \"spread\", \"op\": \"std\", \"over\": [\"f\"], \"in\": [\"z\"]},"
              "{\"id\": \"q\", \"op\": \"mul\", \"in\": [\"count\", \"spread\"]},"
              "{\"id\": \"sq\", \"op\": \"square\", \"in\": [\"q\"]},"
              "{\"id\": \"mse\", \"op\": \"reduce\", \"kind\": \"mean\", \"over\": [\"b\", \"f\"], "
              "\"in\": [\"sq\"]},"
              "{\"id\": \"t\", \"op\": \"exp\", \"in\": [\"s\"]},"
              "{\"id\": \"loss\", \"op\": \"mul\", \"in\": [\"mse\", \"t\"]}"));
    dtp_graph *g = changed(f32, "bf16");
    static const char *const wide[] = {"u", "rate", "count", "spread", "mse", "t", "loss"};
    static const char *const narrow[] = {"y", "mask", "z", "q", "sq"};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        assert_int_equal(dtype_of(g, wide[i]), DTP_F32);
    }
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        assert_int_equal(dtype_of(g, narrow[i]), DTP_BF16);
    }
    assert_true(dtp_graph_find(g, "bf16.s") < 0); /* read by what stays in f32 */
    assert_true(dtp_graph_find(g, "bf16.x") >= 0);
    dtp_graph_destroy(g);
    dtp_graph_destroy(f32);
}

/* A parameter that is used twice and moved: the gradients in f32 are added and moved in f32. */
static void test_precision__gradients_in_f32_through_linear_nodes(void **state)
{
    (void)state;
    dtp_graph *f32 = parse(MODEL(
        "\"w\": {\"dims\": [\"f\", \"g\"], \"init\": \"ones\"}",
        "{\"id\": \"p\", \"op\": \"permute\", \"in\": [\"w\"], \"out\": [\"g\", \"f\"]},"
        "{\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"x\", \"p\"], \"out\": [\"b\", \"g\"]},"
        "{\"id\": \"y2\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"b\", \"g\"]},"
        "{\"id\": \"z\", \"op\": \"mul\", \"in\": [\"y\", \"y2\"]},"
        "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"sum\", \"over\": [\"b\", \"g\"], "
        "\"in\": [\"z\"]}"));
    const dtp_precision p = named("bf16,gradients=f32");
    dtp_graph *g = changed(f32, "bf16,gradients=f32");
    check_gradients(g, &p);
    int32_t sums = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool backward = node->phase == DTP_BACKWARD;
        sums += backward && (node->op->flags & DTP_OP_SUM) != 0 &&
                        g->tensors[node->out[0]].type.dtype == DTP_F32
                    ? 1
                    : 0;
        assert_true(!backward || (node->op->flags & DTP_OP_CAST) == 0 ||
                    g->tensors[node->out[0]].type.rank == 0); /* of the loss's gradient alone */
    }
    assert_int_equal(sums, 1);
    dtp_graph_destroy(g);
    dtp_graph_destroy(f32);
}

static void test_precision__texts_and_refusals(void **state)
{
    static const char *const bad[] = {"",          "auto",
                                      "fp16",      "f64",
                                      "bf16,",     "bf16,gradients=bf16",
                                      "i32",       "f32,gradients=f32",
                                      "bf16 ",     "tf32,gradients=f32",
                                      "bf16,tf32", "TF32",
                                      "fp8_block", "fp8,gradients=bf16"};
    (void)state;
    dtp_err err = {0};
    dtp_precision p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(dtp_precision_parse(bad[i], &p, &err), DTP_INVALID);
        assert_non_null(strstr(err.msg, "expected f32, tf32, bf16, f16, fp8 or fp8_row"));
    }
    for (int32_t k = 0; k < N_NAMES; k++) {
        char text[DTP_PRECISION_TEXT_BYTES];
        p = named(NAMES[k]);
        dtp_precision_print(&p, text);
        assert_string_equal(text, NAMES[k]);
    }
    assert_int_equal(named("f32").compute, DTP_F32);
    p = named("f32");
    assert_true(dtp_precision_is_f32(&p));
    p = named("bf16");
    assert_false(dtp_precision_is_f32(&p) || p.tf32);
    /* a model in f64, and names that the casts need */
    dtp_graph *out = NULL, *g = NULL;
    const dtp_model_options f64 = {.size = sizeof f64, .f64 = true};
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", &f64, &g, &err),
                     DTP_OK);
    p = named("bf16");
    assert_int_equal(dtp_graph_with_precision(g, &p, &out, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "no f32 parameter"));
    dtp_graph_destroy(g);
    g = parse(MODEL(W, "{\"id\": \"bf16.w\", \"op\": \"neg\", \"in\": [\"w\"]},"
                       "{\"id\": \"y\", \"op\": \"mul\", \"in\": [\"x\", \"bf16.w\"]},"
                       "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"sum\", \"over\": "
                       "[\"b\", \"f\"], \"in\": [\"y\"]}"));
    assert_int_equal(dtp_graph_with_precision(g, &p, &out, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'bf16.w' is used twice"));
    dtp_graph_destroy(g);
}

/* Precision, recomputation and microbatches together. */
static void test_precision__with_other_variants(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *model_f32 = model("gpt_bytes"), *g = NULL;
    dtp_graph_variant v;
    const dtp_variant_texts texts = {.precision = "bf16", .remat = "layer", .microbatches = "4"};
    if (dtp_graph_variant_parse(&texts, model_f32, arena, &v, &err) != DTP_OK ||
        dtp_graph_with_variant(model_f32, &v, 0, NULL, &g, &err) != DTP_OK ||
        graph_check(g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_non_null(g);
    int32_t accumulators = 0, casts_again = 0;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        accumulators += tensor->per_step ? 1 : 0;
        assert_true(!tensor->per_step || tensor->type.dtype == DTP_F32);
        casts_again += strncmp(tensor->name, "remat.bf16.layers.", 18) == 0 ? 1 : 0;
    }
    assert_int_equal(accumulators, g->n_grads + 1);
    assert_true(casts_again > 0);
    dtp_graph_destroy(g);
    dtp_graph_destroy(model_f32);
    dtp_arena_destroy(arena);
}

/* A model whose loss reads parameter w of this type, or with `unread` none. */
static dtp_status small_model(const char *dtype, bool unread, dtp_graph **out, dtp_err *err)
{
    char text[1024];
    const int n = snprintf(
        text, sizeof text,
        "{\"format\": \"dtp.model/1\", \"name\": \"small\", \"dims\": {\"d\": 8},"
        " \"inputs\": {\"x\": {\"dims\": [\"d\"]}},"
        " \"params\": {\"w\": {\"dims\": [\"d\"], \"dtype\": \"%s\", \"init\": \"ones\"}},"
        " \"nodes\": [{\"id\": \"y\", \"op\": \"cast\", \"in\": [\"%s\"], \"dtype\": \"f32\"},"
        "  {\"id\": \"l\", \"op\": \"reduce\", \"in\": [\"y\"], \"kind\": \"mean\", \"over\": "
        "[\"d\"]}],"
        " \"train\": {\"loss\": \"l\", \"optimizer\": {\"adamw\": {\"lr\": 0.1}}}}",
        dtype, unread ? "x" : "w");
    return dtp_model_parse("small", text, (size_t)n, NULL, out, err);
}

/* A parameter in 16 bits would stay where it is: f32 ones and this pass train. */
static void test_precision__parameters_are_not_16_bits(void **state)
{
    static const char *const halves[] = {"bf16", "f16"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        dtp_graph *g = NULL;
        dtp_err err = {0};
        char words[64];
        assert_int_equal(small_model(halves[i], false, &g, &err), DTP_INVALID);
        (void)snprintf(words, sizeof words, "parameter 'w': it is %s", halves[i]);
        assert_non_null(strstr(err.msg, words));
        (void)snprintf(words, sizeof words, "--precision %s", halves[i]);
        assert_non_null(strstr(err.msg, words));
        dtp_graph_destroy(g);
    }
}

/* Such a model would run for ever with the parameters that it has. */
static void test_precision__a_loss_depends_on_a_parameter(void **state)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)state;
    assert_int_equal(small_model("f32", true, &g, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the loss 'l' depends on no parameter"));
}

/* The graph is as it was but for the flag, which the other variants and the hash keep. */
static void test_precision__tf32_is_a_flag(void **state)
{
    (void)state;
    dtp_err err = {0};
    char text[DTP_PRECISION_TEXT_BYTES];
    dtp_precision p = named("tf32");
    assert_true(p.tf32 && p.compute == DTP_F32 && p.gradients == DTP_F32);
    assert_false(dtp_precision_is_f32(&p));
    dtp_precision_print(&p, text);
    assert_string_equal(text, "tf32");
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *f32 = model("gpt_bytes"), *tf32 = changed(f32, "tf32"), *all = NULL;
    assert_true(tf32->tf32 && !f32->tf32 && tf32->n_tensors == f32->n_tensors);
    for (dtp_tensor_id t = 0; t < f32->n_tensors; t++) {
        assert_string_equal(tf32->tensors[t].name, f32->tensors[t].name);
        assert_true(dtp_ttype_equal(&tf32->tensors[t].type, &f32->tensors[t].type));
    }
    assert_true(dtp_graph_hash(tf32) != dtp_graph_hash(f32));
    tf32->tf32 = false;
    assert_true(dtp_graph_hash(tf32) == dtp_graph_hash(f32));
    const dtp_variant_texts texts = {"none", "tf32", "layer", "4", NULL, NULL, NULL};
    const dtp_variant_texts alone = {.precision = "tf32"};
    dtp_graph_variant v;
    assert_int_equal(dtp_graph_variant_parse(&alone, f32, arena, &v, &err), DTP_OK);
    assert_true(dtp_graph_variant_any(&v));
    if (dtp_graph_variant_parse(&texts, f32, arena, &v, &err) != DTP_OK ||
        dtp_graph_with_variant(f32, &v, 0, NULL, &all, &err) != DTP_OK ||
        graph_check(all, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_true(all->tf32 && all->microbatches == 4);
    dtp_graph_destroy(all);
    dtp_graph_destroy(tf32);
    dtp_graph_destroy(f32);
    dtp_arena_destroy(arena);
}

/* ---- fp8 ---- */

/* The format that a tensor is quantized to; "": it is not. */
static const char *format_of(const dtp_graph *g, dtp_tensor_id t)
{
    return dtp_graph_is_quantized(g, t) ? g->nodes[g->tensors[t].producer].op->name : "";
}

/* Which products read 8-bit floats: of blocks, with a weight, and of these all. Returns how many in
 * the forward pass. */
static int32_t check_products(const dtp_graph *g)
{
    int32_t forward = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const char *a = format_of(g, node->in[0]),
                   *b = node->n_in > 1 ? format_of(g, node->in[1]) : "";
        const bool product = (node->op->flags & DTP_OP_CONTRACTION) != 0 && node->n_in == 2;
        if (!product) {
            assert_string_equal(a, "");
            continue;
        }
        const bool weight =
            dtp_graph_param_of(g, node->in[0]) >= 0 || dtp_graph_param_of(g, node->in[1]) >= 0;
        if (node->phase == DTP_FORWARD) {
            const bool fp8 = node->block >= 0 && weight;
            assert_string_equal(a, fp8 ? "quantize_e4m3" : "");
            assert_string_equal(b, fp8 ? "quantize_e4m3" : "");
            forward += fp8 ? 1 : 0;
        } else if (*a != '\0' || *b != '\0') { /* the gradient of one: of it and what it reads */
            assert_string_not_equal(a, b);
            assert_true(*a != '\0' && *b != '\0');
        }
    }
    return forward;
}

/* One amax and one quantization of a tensor, whoever reads it; by rows one for those that sum over
 * the same dims. */
static void check_once(const dtp_graph *g)
{
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (dtp_node_id m = 0; m < n && (g->nodes[n].op->flags & DTP_OP_SCALE) != 0; m++) {
            const bool same = (g->nodes[m].op->flags & DTP_OP_SCALE) != 0 &&
                              g->nodes[m].in[0] == g->nodes[n].in[0];
            const dtp_ttype *a = &g->tensors[g->nodes[m].out[0]].type,
                            *b = &g->tensors[g->nodes[n].out[0]].type;
            assert_true(!same || !dtp_ttype_equal(a, b));
        }
    }
}

/* The scale of an operand of a product has the dims of the operand that the result has, too; that
 * of a tensor has none. */
static void check_scales(const dtp_graph *g, bool rows)
{
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool product = (node->op->flags & DTP_OP_CONTRACTION) != 0 && node->n_in == 2;
        for (int32_t i = 0; product && i < 2; i++) {
            const dtp_tensor_id t = node->in[i];
            if (!dtp_graph_is_quantized(g, t)) {
                continue;
            }
            const dtp_ttype *type = &g->tensors[t].type, *out = &g->tensors[node->out[0]].type;
            const dtp_ttype *scale = &g->tensors[g->nodes[g->tensors[t].producer].in[1]].type;
            int32_t kept = 0;
            for (int32_t d = 0; d < type->rank; d++) {
                const bool stays = rows && dtp_ttype_find(out, type->dims[d].id) >= 0;
                assert_int_equal(dtp_ttype_find(scale, type->dims[d].id) >= 0, stays);
                kept += stays ? 1 : 0;
            }
            assert_int_equal(scale->rank, kept);
        }
    }
}

static void test_precision__fp8_products_of_blocks(void **state)
{
    (void)state;
    static const char *const names[] = {"fp8", "fp8,gradients=f32", "fp8_row",
                                        "fp8_row,gradients=f32"};
    dtp_graph *f32 = model("gpt_bytes"), *bf16 = changed(f32, "bf16");
    for (size_t i = 0; i < 4; i++) {
        char text[DTP_PRECISION_TEXT_BYTES];
        const dtp_precision p = named(names[i]);
        dtp_precision_print(&p, text);
        assert_string_equal(text, names[i]);
        assert_true(p.fp8 && p.compute == DTP_BF16 && !dtp_precision_is_f32(&p));
        dtp_graph *g = changed(f32, names[i]);
        const int32_t layers =
            g->dims.n > 0 ? dtp_graph_find(g, "e4m3.bf16.layers.1.attn.wq") >= 0 : 0;
        assert_int_equal(layers, 1);
        assert_int_equal(check_products(g) % 6, 0); /* q, k, v, o, up, down */
        assert_true(check_products(g) > 0);
        check_once(g);
        check_scales(g, i >= 2);
        check_sources(g);
        check_gradients(g, &p);
        assert_true(dtp_graph_hash(g) != dtp_graph_hash(bf16));
        dtp_graph_destroy(g);
    }
    dtp_graph_destroy(bf16);
    dtp_graph_destroy(f32);
}

/* Recomputation quantizes again; a microbatch has a scale of its own. */
static void test_precision__fp8_with_other_variants(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *f32 = model("gpt_bytes"), *all = NULL;
    const dtp_variant_texts texts = {NULL, "fp8", "all", "4", NULL, NULL, NULL};
    dtp_graph_variant v;
    if (dtp_graph_variant_parse(&texts, f32, arena, &v, &err) != DTP_OK ||
        dtp_graph_with_variant(f32, &v, 0, NULL, &all, &err) != DTP_OK ||
        graph_check(all, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    int32_t repeated = 0, kept = 0; /* what the backward pass quantizes */
    for (dtp_node_id n = 0; n < all->n_nodes; n++) {
        const dtp_node *node = &all->nodes[n];
        if (node->phase == DTP_BACKWARD && *format_of(all, node->out[0]) != '\0') {
            const bool again = dtp_graph_repeated(all, node->in[0]) != node->in[0];
            repeated += again ? 1 : 0;
            kept += again ? 0 : 1;
        }
    }
    assert_true(repeated > 0 && kept > 0);
    dtp_graph_destroy(all);
    dtp_graph_destroy(f32);
    dtp_arena_destroy(arena);
}

static void test_precision__fp8_needs_a_product(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *f32 = model("mlp_digits"), *out = NULL;
    const dtp_precision p = named("fp8");
    assert_int_equal(dtp_graph_with_precision(f32, &p, &out, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'mlp_digits' has no product of an activation and a weight"));
    dtp_graph_destroy(f32);
}

/* The rows of a cast between two types that pass partial sums. */
static int32_t linear_rows(dtp_dtype from, dtp_dtype to)
{
    const dtp_attr attr = dtp_attr_int("dtype", (int64_t)to);
    dtp_dims dims;
    dtp_arena *arena = dtp_arena_create();
    dtp_dim_id d;
    dtp_sharding_rules set;
    dtp_dims_init(&dims, arena);
    assert_int_equal(dtp_dims_intern(&dims, "d", 8, &d, NULL), DTP_OK);
    const dtp_ttype in = {.dtype = from, .rank = 1, .dims = {{d, 8}}},
                    out = {.dtype = to, .rank = 1, .dims = {{d, 8}}};
    const dtp_op_call call = {.op = dtp_op_set_find(dtp_builtin_ops(), "cast"),
                              .dims = &dims,
                              .attrs = &attr,
                              .n_attrs = 1,
                              .n_in = 1,
                              .n_out = 1,
                              .in = &in,
                              .out = &out};
    int32_t linear = 0;
    dtp_sharding_rules_of(&call, true, &set);
    for (int32_t r = 0; r < set.n; r++) {
        linear += set.rows[r].linear ? 1 : 0;
    }
    dtp_arena_destroy(arena);
    return linear;
}

static void test_precision__widening_casts_pass_sums(void **state)
{
    (void)state;
    assert_int_equal(linear_rows(DTP_BF16, DTP_F32), 1);
    assert_int_equal(linear_rows(DTP_F16, DTP_F32), 1);
    assert_int_equal(linear_rows(DTP_F32, DTP_F64), 1);
    assert_int_equal(linear_rows(DTP_F32, DTP_BF16), 0);
    assert_int_equal(linear_rows(DTP_BF16, DTP_F16), 0);
    assert_int_equal(linear_rows(DTP_F32, DTP_F32), 0);
    assert_int_equal(linear_rows(DTP_I32, DTP_F32), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precision__types),
        cmocka_unit_test(test_precision__blocks_of_casts),
        cmocka_unit_test(test_precision__what_stays_wide),
        cmocka_unit_test(test_precision__gradients_in_f32_through_linear_nodes),
        cmocka_unit_test(test_precision__texts_and_refusals),
        cmocka_unit_test(test_precision__with_other_variants),
        cmocka_unit_test(test_precision__parameters_are_not_16_bits),
        cmocka_unit_test(test_precision__a_loss_depends_on_a_parameter),
        cmocka_unit_test(test_precision__tf32_is_a_flag),
        cmocka_unit_test(test_precision__fp8_products_of_blocks),
        cmocka_unit_test(test_precision__fp8_with_other_variants),
        cmocka_unit_test(test_precision__fp8_needs_a_product),
        cmocka_unit_test(test_precision__widening_casts_pass_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
