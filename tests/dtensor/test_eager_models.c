/* Collectives of whole modules written as eager code, forward and backward, against those of
 * PyTorch's tests of the same modules under tensor-parallel styles (rows N6 and T of
 * docs/compat-torch.md). A module starts by bringing its input to the layout that its style asks
 * for and ends by bringing its output to another one, as PyTorch's styles do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_rows.h"

#define ROWS(rows) rows, sizeof(rows) / sizeof(rows)[0]

/* ---- modules ---- */

/* The next tensors of a list of parameters. */
typedef struct params {
    const dtp_tensor *next;
} params;

/* x weight' (+ bias); in and out: layouts, NULL: as it is. */
typedef struct linear_style {
    const char *in, *out;
    bool bias;
} linear_style;

static dtp_status end_in(eager *e, dtp_tensor y, const char *layout, dtp_tensor *out, dtp_err *err)
{
    return layout == NULL ? dtp_tensor_share(y, out, err) : eager_to(e, y, layout, out, err);
}

static dtp_status linear(eager *e, const linear_style *style, dtp_tensor x, params *p,
                         dtp_tensor *out, dtp_err *err)
{
    dtp_tensor input, y;
    const dtp_tensor weight = *p->next++, *bias = style->bias ? p->next++ : NULL;
    DTP_TRY(end_in(e, x, style->in, &input, err));
    DTP_TRY(dtp_tensor_linear(input, weight, bias, &y, err));
    return end_in(e, y, style->out, out, err);
}

static dtp_status embedding(eager *e, dtp_tensor ids, const char *layout, params *p,
                            dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(dtp_tensor_embedding(*p->next++, ids, &y, err));
    return end_in(e, y, layout, out, err);
}

static dtp_status layer_norm(dtp_tensor x, params *p, dtp_tensor *out, dtp_err *err)
{
    const dtp_tensor gamma = *p->next++, beta = *p->next++;
    return dtp_tensor_layer_norm(x, gamma, beta, 1e-5, out, err);
}

/* relu between a colwise and a rowwise layer. */
static dtp_status mlp(eager *e, dtp_tensor x, params *p, bool bias, dtp_tensor *out, dtp_err *err)
{
    const linear_style colwise = {"R", NULL, bias}, rowwise = {NULL, "R", bias};
    dtp_tensor h, a;
    DTP_TRY(linear(e, &colwise, x, p, &h, err));
    DTP_TRY(dtp_tensor_relu(h, &a, err));
    return linear(e, &rowwise, a, p, out, err);
}

/* ---- T8, T9 ---- */

static dtp_status one_mlp(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    params p = {in + 1};
    return mlp(e, in[0], &p, false, out, err);
}

static dtp_status two_mlps(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    params p = {in + 1};
    dtp_tensor h;
    DTP_TRY(mlp(e, in[0], &p, true, &h, err));
    return mlp(e, h, &p, true, out, err);
}

/* (x - mean) / sqrt(var + eps) over the batch, gain and shift. */
static dtp_status batch_norm(dtp_tensor x, params *p, dtp_tensor *out, dtp_err *err)
{
    const int32_t batch[] = {0};
    dtp_tensor mean, centred, square, var, rstd, unit, scaled;
    DTP_TRY(dtp_tensor_mean(x, 1, batch, true, &mean, err));
    DTP_TRY(dtp_tensor_sub(x, mean, &centred, err));
    DTP_TRY(dtp_tensor_square(centred, &square, err));
    DTP_TRY(dtp_tensor_mean(square, 1, batch, true, &var, err));
    DTP_TRY(dtp_tensor_rsqrt(var, &rstd, err));
    DTP_TRY(dtp_tensor_mul(centred, rstd, &unit, err));
    DTP_TRY(dtp_tensor_mul(unit, *p->next++, &scaled, err));
    return dtp_tensor_add(scaled, *p->next++, out, err);
}

/* PyTorch's transformation of an exported graph replicates what no style covers. */
static dtp_status uncovered(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    const linear_style colwise = {"R", "R", true};
    params p = {in + 1};
    dtp_tensor h;
    DTP_TRY(linear(e, &colwise, in[0], &p, &h, err));
    return batch_norm(h, &p, out, err);
}

static dtp_status covered(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    const linear_style colwise = {"R", NULL, true};
    params p = {in + 1};
    dtp_tensor h;
    DTP_TRY(linear(e, &colwise, in[0], &p, &h, err));
    return batch_norm(h, &p, out, err);
}

static void test_models__perceptrons(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"T8",
         "x:2",
         two_mlps,
         {"4,6 R", "18,6 S0", "18 S0", "6,18 S1", "6 R", "18,6 S0", "18 S0", "6,18 S1", "6 R"},
         "R",
         {2},
         {0},
         NULL},
        {"T8, one without bias",
         "x:2",
         one_mlp,
         {"4,6 R", "18,6 S0", "6,18 S1"},
         "R",
         {1},
         {0},
         NULL},
        {"T9", "x:2", uncovered, {"4,3 R", "5,3 S0", "5 S0", "5 R", "5 R"}, "R", {0, 1}, {0}, NULL},
        {"T9, features split",
         "x:2",
         covered,
         {"4,3 R", "5,3 S0", "5 S0", "5 R", "5 R"},
         "S1",
         {0},
         {0},
         NULL},
    };
    eager_check_rows(ROWS(rows), EAGER_BOTH);
}

/* ---- N6: embedding, norm, linear ---- */

static dtp_status norm_block(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    const linear_style colwise = {"R", "R", true};
    params p = {in + 1};
    dtp_tensor h, normed;
    DTP_TRY(embedding(e, in[0], "S1", &p, &h, err));
    DTP_TRY(layer_norm(h, &p, &normed, err));
    return linear(e, &colwise, normed, &p, out, err);
}

static void test_models__norm_between_styles(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"N6 output",
         "x:4",
         norm_block,
         {"8,8 ids:32 R", "32,10 S0", "10 R", "10 R", "10,10 S0!", "10 S0!"},
         "R",
         {0, 2, 1},
         {0},
         NULL},
        {"N6 norm",
         "x:4",
         norm_block,
         {"8,8 ids:32 R", "32,10 S0", "10 R+", "10 R+", "10,10 S0!", "10 S0!"},
         "R",
         {0, 2, 1},
         {0, 0, 1},
         NULL},
        {"N6 embedding",
         "x:4",
         norm_block,
         {"8,8 ids:32 R", "32,10 S0!", "10 R+", "10 R+", "10,10 S0!", "10 S0!"},
         "R",
         {0, 2, 1},
         {0, 1, 1},
         NULL},
    };
    eager_check_rows(ROWS(rows), EAGER_BOTH);
}

/* The norm is over the split dim too. */
static void test_models__norm_over_the_split_dim(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"N6 multi-dim output",
         "x:4",
         norm_block,
         {"8,8 ids:32 R", "32,10 S0", "8,10 R", "8,10 R", "10,10 S0!", "10 S0!"},
         "R",
         {0, 2, 1},
         {0},
         NULL},
        {"N6 multi-dim norm",
         "x:4",
         norm_block,
         {"8,8 ids:32 R", "32,10 S0", "8,10 R!", "8,10 R!", "10,10 S0!", "10 S0!"},
         "R",
         {0, 2, 1},
         {1, 1},
         NULL},
        {"N6 multi-dim embedding",
         "x:4",
         norm_block,
         {"8,8 ids:32 R", "32,10 S0!", "8,10 R!", "8,10 R!", "10,10 S0!", "10 S0!"},
         "R",
         {0, 2, 1},
         {1, 1},
         "PyTorch has 2 all-gathers; the gradient of the gathered operand is whole already"},
    };
    eager_check_rows(ROWS(rows), EAGER_BOTH);
}

/* ---- T10, T11: a Transformer ---- */

/* [batch, seq, heads * feature] to [batch, heads, seq, feature]. */
static dtp_status split_heads(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    const int64_t shape[] = {8, 8, 4, 4};
    dtp_tensor y;
    DTP_TRY(dtp_tensor_reshape(x, 4, shape, &y, err));
    return dtp_tensor_transpose(y, 1, 2, out, err);
}

static dtp_status attention(eager *e, dtp_tensor x, params *p, dtp_tensor *out, dtp_err *err)
{
    const linear_style colwise = {"R", NULL, false}, rowwise = {NULL, "R", false};
    const int64_t shape[] = {8, 8, 16};
    dtp_tensor h[3], y, back, merged;
    for (int i = 0; i < 3; i++) {
        dtp_tensor z;
        DTP_TRY(linear(e, &colwise, x, p, &z, err));
        DTP_TRY(split_heads(z, &h[i], err));
    }
    DTP_TRY(dtp_tensor_attention(h[0], h[1], h[2], true, 0.0, &y, err));
    DTP_TRY(dtp_tensor_transpose(y, 1, 2, &back, err));
    DTP_TRY(dtp_tensor_reshape(back, 3, shape, &merged, err));
    return linear(e, &rowwise, merged, p, out, err);
}

static dtp_status feed_forward(eager *e, dtp_tensor x, params *p, dtp_tensor *out, dtp_err *err)
{
    const linear_style colwise = {"R", NULL, true}, rowwise = {NULL, "R", true};
    dtp_tensor h, a;
    DTP_TRY(linear(e, &colwise, x, p, &h, err));
    DTP_TRY(dtp_tensor_gelu(h, &a, err));
    return linear(e, &rowwise, a, p, out, err);
}

/* x + attention(norm x), then the same with the feed-forward part. */
static dtp_status layer(eager *e, dtp_tensor x, params *p, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor n, y, h;
    DTP_TRY(layer_norm(x, p, &n, err));
    DTP_TRY(attention(e, n, p, &y, err));
    DTP_TRY(dtp_tensor_add(x, y, &h, err));
    DTP_TRY(layer_norm(h, p, &n, err));
    DTP_TRY(feed_forward(e, n, p, &y, err));
    return dtp_tensor_add(h, y, out, err);
}

/* The collectives since the last look must be these. */
static dtp_status since(eager *e, int64_t seen[DTP_N_COLLS], const char *module, int64_t all_reduce,
                        int64_t all_gather, dtp_err *err)
{
    const int64_t want[DTP_N_COLLS] = {
        [DTP_ALL_REDUCE] = all_reduce, [DTP_ALL_GATHER] = all_gather};
    for (int k = 0; k < DTP_N_COLLS; k++) {
        const int64_t now = dtp_device_mesh_count(e->mesh, (dtp_coll_kind)k), n = now - seen[k];
        seen[k] = now;
        if (n != want[k] && !e->single) {
            return DTP_FAIL(err, DTP_INTERNAL, "%s: %lld %s, want %lld", module, (long long)n,
                            dtp_coll_name((dtp_coll_kind)k), (long long)want[k]);
        }
    }
    return DTP_OK;
}

static dtp_status transformer(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    const linear_style output = {"R", "R", false};
    params p = {in + 2};
    int64_t seen[DTP_N_COLLS] = {0};
    dtp_tensor tokens, places, h[3], normed;
    DTP_TRY(embedding(e, in[0], "R", &p, &tokens, err));
    DTP_TRY(since(e, seen, "tok_embeddings", 1, 0, err));
    DTP_TRY(embedding(e, in[1], "R", &p, &places, err));
    DTP_TRY(since(e, seen, "pos_embeddings", 1, 0, err));
    DTP_TRY(dtp_tensor_add(tokens, places, &h[0], err));
    for (int i = 0; i < 2; i++) {
        DTP_TRY(layer(e, h[i], &p, &h[i + 1], err));
        DTP_TRY(since(e, seen, "a layer", 2, 0, err));
    }
    DTP_TRY(layer_norm(h[2], &p, &normed, err));
    DTP_TRY(linear(e, &output, normed, &p, out, err));
    return since(e, seen, "output", 0, 1, err);
}

#define NORM "16 R!", "16 R!"
#define LAYER                                                                                      \
    NORM, "16,16 S0!", "16,16 S0!", "16,16 S0!", "16,16 S1!", NORM, "64,16 S0!", "64 S0!",         \
        "16,64 S1!", "16 R!"

static void test_models__transformer(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"T10, T11",
         "x:4",
         transformer,
         {"8,8 ids:8 R", "8 ids:16 R", "8,16 S0!", "16,16 S0!", LAYER, LAYER, NORM, "8,16 S0!"},
         "R",
         {6, 1},
         {9},
         NULL},
    };
    eager_check_rows(ROWS(rows), EAGER_BOTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models__perceptrons),
        cmocka_unit_test(test_models__norm_between_styles),
        cmocka_unit_test(test_models__norm_over_the_split_dim),
        cmocka_unit_test(test_models__transformer),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
