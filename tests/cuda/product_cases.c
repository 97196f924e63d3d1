/* Products with expressions, and a way to run one of them at addresses of any alignment. */
#include "tests/cuda/product_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "executor/device/convert.h"
#include "spmd/target/target.h"
#include "tests/ops/against_ref.h"
#include "tests/ops/eval.h"

#define BIAS "step0=add:0,1"
#define GELU "step0=gelu:0"
#define BIAS_GELU "step0=add:0,1; step1=gelu:s0"
#define KEPT BIAS_GELU "; also=0"
#define GELU_GRAD "step0=gelu_grad:1,0"

enum { ROOM = 64 };

const dtp_dtype PRODUCT_FLOATS[PRODUCT_DTYPES] = {DTP_F32, DTP_BF16, DTP_F16};

const product_case PRODUCT_CASES[] = {
    {1,
     1,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=24", "c=24"},
      .out = "a=6,c=24",
      .attrs = BIAS}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=7", "c=7"},
      .out = "a=6,c=7",
      .attrs = BIAS_GELU}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"b=5,a=6", "c=4,d=8,b=5", "c=4,d=8"},
      .out = "a=6,c=4,d=8",
      .attrs = BIAS}},
    {1,
     1,
     {.op = "fused_product", .in = {"a=6,b=5", "b=5,c=24"}, .out = "a=6,c=24", .attrs = GELU}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=24", "a=6"},
      .out = "c=24,a=6",
      .attrs = BIAS_GELU}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"e=3,a=6,b=5", "e=3,b=5,c=16", "c=16"},
      .out = "e=3,a=6,c=16",
      .attrs = BIAS}},
    {2,
     2,
     {.op = "fused_product",
      .in = {"b=3,s=9,h=2,m=24", "h=2,m=24,b=3,t=16", "t=16"},
      .out = "b=3,h=2,s=9,t=16",
      .attrs = BIAS_GELU}},
    {1,
     0,
     {.op = "fused_product2",
      .in = {"a=6,b=5", "b=5,c=24", "c=24"},
      .out = "a=6,c=24",
      .attrs = KEPT}},
    {1,
     0,
     {.op = "fused_product2",
      .in = {"e=3,a=6,b=5", "e=3,b=5,c=16", "c=16"},
      .out = "e=3,a=6,c=16",
      .attrs = KEPT}},
    {2,
     0,
     {.op = "fused_product2",
      .in = {"b=3,s=9,h=2,m=24", "h=2,m=24,b=3,t=16", "t=16"},
      .out = "b=3,h=2,s=9,t=16",
      .attrs = KEPT}},
    {1,
     0,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=24", "a=6,c=24"},
      .out = "a=6,c=24",
      .attrs = GELU_GRAD}},
    {1,
     0,
     {.op = "fused_product_sum",
      .in = {"a=6,b=5", "b=5,c=24", "a=6,c=24"},
      .out = "a=6,c=24",
      .attrs = GELU_GRAD}},
    {1, 1, {.op = "fused_operand_sum", .in = {"a=3,e=2,b=5", "a=3,e=2,c=24"}, .out = "b=5,c=24"}},
    {1, 1, {.op = "fused_operand_sum", .in = {"a=6,b=5", "a=6,c=4,d=3"}, .out = "c=4,d=3,b=5"}},
    /* rows of the kept matrix, a bias of columns, of batches, other functions, a result that is
     * copied into place */
    {0,
     0,
     {.op = "fused_product2",
      .in = {"a=6,b=5", "b=5,c=12", "c=12"},
      .out = "a=6,c=12",
      .attrs = KEPT}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=12", "a=6,c=12"},
      .out = "a=6,c=12",
      .attrs = GELU_GRAD}},
    {0,
     0,
     {.op = "fused_product", .in = {"a=6,b=5", "b=5,c=8", "a=6"}, .out = "a=6,c=8", .attrs = BIAS}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"e=3,a=6,b=5", "e=3,b=5,c=16", "e=3,c=16"},
      .out = "e=3,a=6,c=16",
      .attrs = BIAS}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=8", "a=6,c=8"},
      .out = "a=6,c=8",
      .attrs = "step0=mul:0,1"}},
    {0,
     0,
     {.op = "fused_product2",
      .in = {"a=6,b=5", "b=5,c=8", "c=8"},
      .out = "a=6,c=8",
      .attrs = BIAS "; step1=silu:s0; also=0"}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"a=3,d=4,b=5", "b=5,c=6", "d=4"},
      .out = "a=3,c=6,d=4",
      .attrs = BIAS}},
    /* sums in a batch, of a result whose rows are not kept, of an operand that is copied */
    {0,
     0,
     {.op = "fused_product_sum",
      .in = {"g=2,a=6,b=5", "g=2,b=5,c=24", "g=2,a=6,c=24"},
      .out = "g=2,a=6,c=24",
      .attrs = GELU_GRAD}},
    {0,
     0,
     {.op = "fused_product_sum",
      .in = {"b=5,c=8", "a=6,b=5", "a=6,c=8"},
      .out = "a=6,c=8",
      .attrs = GELU_GRAD}},
    {0,
     0,
     {.op = "fused_product_sum",
      .in = {"a=6,b=5", "b=5,c=8", "c=8"},
      .out = "a=6,c=8",
      .attrs = BIAS}},
    {0, 0, {.op = "fused_operand_sum", .in = {"g=2,a=6,b=5", "g=2,a=6,c=8"}, .out = "g=2,b=5,c=8"}},
    {0, 0, {.op = "fused_operand_sum", .in = {"a=6,b=5", "c=4,a=6,d=3"}, .out = "b=5,c=4,d=3"}},
};
const int32_t product_case_count = sizeof PRODUCT_CASES / sizeof PRODUCT_CASES[0];

int32_t product_launches(const product_case *c, dtp_dtype dtype, int64_t shift)
{
    const char *attrs = c->c.attrs != NULL ? c->c.attrs : "";
    const bool gelu = strstr(attrs, "=gelu") != NULL;
    return gelu && dtype == DTP_F32 ? 0 : shift != 0 ? c->shifted : c->products;
}

static size_t room_of(const product_placed *p, int32_t i)
{
    return (size_t)dtp_ttype_bytes(&p->views[i].local) + ROOM;
}

dtp_status product_place(product_placed *p, const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b,
                         dtp_err *err)
{
    memset(p, 0, sizeof *p);
    p->b = b;
    p->dtype = dtype;
    case_build(c, dtype, against_ref_seed, &p->cg);
    p->call = dtp_node_call(p->cg.g, &p->cg.g->nodes[p->cg.node], &p->types);
    for (int32_t i = 0; i < p->call.n_in + p->call.n_out; i++) {
        p->views[i] =
            eval_view(i < p->call.n_in ? &p->types.in[i] : &p->types.out[i - p->call.n_in], NULL);
        assert_int_equal(b->ops->alloc(b, room_of(p, i), &p->memory[i], NULL), DTP_OK);
        p->views[i].data = p->memory[i];
    }
    p->workspace_bytes = dtp_target_workspace(dtp_target_of_backend(b->ops->name), &p->call);
    assert_int_equal(b->ops->alloc(b, (size_t)p->workspace_bytes, &p->workspace, NULL), DTP_OK);
    p->arena = dtp_arena_create();
    const dtp_kernel_args args = {.call = &p->call,
                                  .in = p->views,
                                  .out = p->views + p->call.n_in,
                                  .workspace = p->workspace,
                                  .workspace_bytes = p->workspace_bytes};
    return dtp_backend_bind(b, &args, p->arena, &p->kernel, err);
}

void product_drop(product_placed *p)
{
    for (int32_t i = 0; i < p->call.n_in + p->call.n_out; i++) {
        p->b->ops->free(p->b, p->memory[i], room_of(p, i));
    }
    p->b->ops->free(p->b, p->workspace, (size_t)p->workspace_bytes);
    dtp_arena_destroy(p->arena);
    dtp_case_free(&p->cg);
}

dtp_status product_run(product_placed *p, int64_t shift, double *out, dtp_err *err)
{
    dtp_backend *b = p->b;
    for (int32_t i = 0; i < p->call.n_in + p->call.n_out; i++) {
        void *host = calloc(1, room_of(p, i));
        assert_non_null(host);
        for (int64_t k = 0; k < dtp_ttype_elems(&p->views[i].local) && i < p->call.n_in; k++) {
            dtp_element_set(p->dtype, host, shift + k, p->cg.values[i][k]);
        }
        assert_int_equal(b->ops->upload(b, p->memory[i], host, room_of(p, i), NULL), DTP_OK);
        p->views[i].data = (char *)p->memory[i] + shift * dtp_dtype_bytes(p->dtype);
        free(host);
    }
    DTP_TRY(dtp_bound_kernel_run(&p->kernel, err));
    DTP_TRY(dtp_bound_kernel_check(&p->kernel, err));
    for (int32_t i = p->call.n_in; i < p->call.n_in + p->call.n_out; i++) {
        const size_t bytes = (size_t)dtp_ttype_bytes(&p->views[i].local);
        void *host = malloc(bytes);
        assert_non_null(host);
        assert_int_equal(b->ops->download(b, host, p->views[i].data, bytes, NULL), DTP_OK);
        for (int64_t k = 0; k < dtp_ttype_elems(&p->views[i].local); k++) {
            *out++ = dtp_element(p->dtype, host, k);
        }
        free(host);
    }
    *out = (double)NAN;
    return DTP_OK;
}

void product_run_once(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b, int64_t shift,
                      double *out)
{
    product_placed p;
    dtp_err err;
    if (product_place(&p, c, dtype, b, &err) != DTP_OK ||
        product_run(&p, shift, out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    product_drop(&p);
}

void product_check(const dtp_op_case *c, dtp_dtype dtype, const double *want, const double *got)
{
    const double tolerance = dtype == DTP_F32 ? 1e-5 : dtype == DTP_BF16 ? 0x1p-6 : 0x1p-9;
    double most = 0.0;
    int32_t n = 0;
    for (; !isnan(want[n]); n++) {
        most = fmax(most, fabs(want[n]));
    }
    for (int32_t k = 0; k < n; k++) {
        if (!(fabs(got[k] - want[k]) <= tolerance * most)) {
            fail_msg("%s (%s) of %s: %g at %d, not %g", c->op, c->attrs != NULL ? c->attrs : "",
                     dtp_dtype_name(dtype), got[k], k, want[k]);
        }
    }
    assert_true(n > 0 && isnan(got[n]));
}
