/* Operands that do not fit are refused with a message that names the dims and sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/cases.h"

typedef struct bad_case {
    dtp_op_case c;
    const char *says[3]; /* parts of the message */
} bad_case;

static const bad_case BAD[] = {
    {.c = {.op = "softmax", .in = {"a=3,b=7"}, .attrs = "over=c"}, .says = {"'c'", "b=7"}},
    {.c = {.op = "softmax", .in = {"a=3,b=7"}, .attrs = "over=b,b"}, .says = {"'b'", "twice"}},
    {.c = {.op = "softmax", .in = {"a=3 ids:2"}, .attrs = "over=a"}, .says = {"i32[a=3]"}},
    {.c = {.op = "softmax", .in = {"a=3,b=7"}, .attrs = "over="}, .says = {"'over'"}},
    {.c = {.op = "softmax", .in = {"a=3,b=7"}, .out = "b=7,a=3", .attrs = "over=b"},
     .says = {"f32[b=7, a=3]", "f32[a=3, b=7]"}},
    {.c = {.op = "layer_norm", .in = {"a=3,b=7", "b=5", "b=5"}, .attrs = "over=b"},
     .says = {"gamma", "b=5", "b=7"}},
    {.c = {.op = "layer_norm", .in = {"a=3,b=7", "b=7", "a=3"}, .attrs = "over=b"},
     .says = {"beta", "a=3", "b=7"}},
    {.c = {.op = "layer_norm", .in = {"a=3,b=7", "b=7", "b=7"}, .attrs = "over=b; eps=-1"},
     .says = {"'eps'", "-1"}},
    {.c = {.op = "rms_norm", .in = {"a=3,b=7", "b=7,a=3"}, .attrs = "over=b"},
     .says = {"gamma", "f32[b=7, a=3]", "f32[b=7]"}},
    {.c = {.op = "embedding", .in = {"v=5,d=7", "a=3"}, .attrs = "over=v"}, .says = {"f32[a=3]"}},
    {.c = {.op = "embedding", .in = {"v=5,d=7", "d=7 ids:5"}, .attrs = "over=v"},
     .says = {"'d'", "ids"}},
    {.c = {.op = "embedding", .in = {"v=5,d=7", "a=3 ids:5"}, .attrs = "over=w"}, .says = {"'w'"}},
    {.c = {.op = "cross_entropy", .in = {"a=3,v=7", "a=4 ids:7"}, .attrs = "over=v"},
     .says = {"labels", "a=4", "a=3"}},
    {.c = {.op = "cross_entropy", .in = {"a=3,v=7", "a=3"}, .attrs = "over=v"},
     .says = {"labels", "f32[a=3]"}},
    {.c = {.op = "cross_entropy", .in = {"a=3,v=7", "a=3,v=7 ids:7"}, .attrs = "over=v"},
     .says = {"labels", "v=7"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "s=3,f=5", "s=3,f=4"},
           .attrs = "query=s; feature=f"},
     .says = {"'f'", "5", "4"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "s=3,f=4,g=2", "s=3,f=4"},
           .attrs = "query=s; feature=f"},
     .says = {"'g'"}},
    {.c = {.op = "attention",
           .in = {"s=5,f=4", "t=3,f=4", "t=3,f=4"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"5", "3", "causal"}},
    {.c = {.op = "attention",
           .in = {"s=5,f=4", "t=5,f=4", "t=7,f=4"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"'t'", "5", "7"}},
    {.c = {.op = "attention",
           .in = {"s=5,f=4", "s=5,f=4", "s=5,f=4"},
           .attrs = "query=f; feature=f"},
     .says = {"'f'", "must differ"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "s=3,f=4", "s=3,f=4 ids:3"},
           .attrs = "query=s; feature=f"},
     .says = {"operand 2", "i32"}},
    {.c = {.op = "attention",
           .in = {"s=6,f=4", "s=6,f=4", "s=6,f=4"},
           .attrs = "query=s; feature=f; order=zigzag; chunks=2"},
     .says = {"'s'", "6", "4"}},
    {.c = {.op = "attention",
           .in = {"s=4,f=4", "t=8,f=4", "t=8,f=4"},
           .attrs = "query=s; key=t; feature=f; order=zigzag; chunks=2"},
     .says = {"zigzag", "4", "8"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "s=3,f=4", "s=3,f=4", "s=3 bool"},
           .attrs = "query=s; feature=f"},
     .says = {"mask", "'key'", "'s'"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "t=5,f=4", "t=5,f=4", "s=3,t=5 ids:2"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"mask (operand 3)", "i32", "f32"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "t=5,f=4", "t=5,f=4", "s=3,t=4 bool"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"'t'", "5", "4"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "t=5,f=4", "t=5,f=4", "s=2,t=5"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"'s'", "2", "3"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "t=5,f=4", "t=5,f=4", "b=2,t=5 bool"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"'b'", "operand 3"}},
    {.c = {.op = "attention",
           .in = {"s=3,f=4", "t=5,f=4", "t=5,f=4", "t=5,f=4"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"'f'", "operand 3"}},
    {.c = {.op = "attention_grad",
           .in = {"s=3,f=4", "t=5,f=4", "t=5,f=4", "s=3,f=4", "s=3", "s=3,f=4", "t=6"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"'t'", "operand 6"}},
    {.c = {.op = "attention_part",
           .in = {"s=5,f=4", "t=5,f=4"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"4", "no values"}},
    {.c = {.op = "attention_part",
           .in = {"c=2,s=5,f=4", "c=2,s=5,f=8"},
           .attrs = "query=s; feature=f; chunk=c; shift=2"},
     .says = {"'c'", "shift 2"}},
    {.c = {.op = "attention_part",
           .in = {"c=2,s=5,f=4", "c=3,s=5,f=8"},
           .attrs = "query=s; feature=f; chunk=c"},
     .says = {"'c'", "2", "3"}},
    {.c = {.op = "attention_part_grad",
           .in = {"s=5,f=4", "t=5,f=8", "s=5,f=4", "s=4", "s=5,f=4"},
           .attrs = "query=s; key=t; feature=f"},
     .says = {"lse", "s=4", "s=5"}},
    {.c = {.op = "attention_merge", .in = {"s=5,f=4", "s=5", "s=5,f=4", "s=4"}},
     .says = {"lse of b", "s=4", "s=5"}},
    {.c = {.op = "roll", .in = {"a=5"}, .attrs = "dim=b; shift=1"}, .says = {"'b'"}},
    {.c = {.op = "reorder", .in = {"a=6"}, .attrs = "dim=a; chunks=2"}, .says = {"'a'", "6", "4"}},
    {.c = {.op = "cross_entropy", .in = {"a=3,v=7", "a=3 ids:7", "v=6"}, .attrs = "over=v"},
     .says = {"weights", "v=6", "v=7"}},
    {.c = {.op = "cross_entropy", .in = {"a=3,v=7", "a=3 ids:7"}, .attrs = "over=v; smoothing=1.5"},
     .says = {"'smoothing'", "1.5"}},
    {.c = {.op = "cross_entropy_grad",
           .in = {"a=3,v=7", "a=3 ids:7", "a=3", "-"},
           .attrs = "over=v; ignore=2"},
     .says = {"4 operands", "5"}},
    {.c = {.op = "label_weight", .in = {"a=3 ids:7", "v=7,w=2"}, .attrs = "over=v"},
     .says = {"weights", "one dim"}},
    {.c = {.op = "rope",
           .in = {"a=6,f=4"},
           .attrs = "position=a; feature=f; order=zigzag; chunks=2"},
     .says = {"'a'", "6", "4"}},
    {.c = {.op = "rope", .in = {"a=3,f=5"}, .attrs = "position=a; feature=f"},
     .says = {"'f'", "odd", "5"}},
    {.c = {.op = "rope", .in = {"a=3,f=4"}, .attrs = "position=b; feature=f"},
     .says = {"'b'", "position"}},
    {.c = {.op = "rope", .in = {"a=4,f=4"}, .attrs = "position=f; feature=f"}, .says = {"'f'"}},
    {.c = {.op = "rope",
           .in = {"a=3,f=4"},
           .attrs = "position=a; feature=f; scaling=llama3; high=4"},
     .says = {"'llama3'", "'original'", "0"}},
    {.c = {.op = "rope",
           .in = {"a=3,f=4"},
           .attrs = "position=a; feature=f; scaling=yarn; high=32; original=8; base=0.5"},
     .says = {"'yarn'", "base", "0.5"}},
    {.c = {.op = "add", .in = {"a=3,b=7", "b=5"}}, .says = {"'b'", "7", "5"}},
    {.c = {.op = "einsum", .in = {"m=3,k=7", "k=5,n=2"}, .out = "m=3,n=2"},
     .says = {"'k'", "7", "5"}},
    {.c = {.op = "concat", .in = {"a=3,b=2", "a=4,b=2"}, .attrs = "dim=b"},
     .says = {"'a'", "3", "4"}},
    {.c = {.op = "slice", .in = {"a=3"}, .attrs = "dim=a; start=1; stop=9"},
     .says = {"'a'", "9", "3"}},
    {.c = {.op = "clamp", .in = {"a=3"}, .attrs = "low=2; high=1"}, .says = {"'low'", "2", "1"}},
    {.c = {.op = "logical_and", .in = {"a=3 bool", "a=3"}}, .says = {"operand 1", "f32"}},
    {.c = {.op = "any", .in = {"a=3 bool"}, .attrs = "over=b"}, .says = {"'b'", "a=3"}},
    {.c = {.op = "reduce", .in = {"a=3 ids:3"}, .attrs = "kind=mean; over=a"}, .says = {"i32"}},
    {.c = {.op = "var", .in = {"a=1,b=2"}, .attrs = "over=a"}, .says = {"'correction'", "1"}},
    {.c = {.op = "argmax", .in = {"a=3"}, .attrs = "over=a; dtype=f32"}, .says = {"f32", "i64"}},
    {.c = {.op = "topk", .in = {"a=3"}, .attrs = "over=a; k=4"}, .says = {"'k'", "'a'", "3"}},
    {.c = {.op = "cumsum", .in = {"a=3 bool"}, .attrs = "dim=a"}, .says = {"bool"}},
    {.c = {.op = "permute", .in = {"a=3,b=2"}}, .says = {"'out'"}},
    {.c = {.op = "permute", .in = {"a=3,b=2"}, .out = "a=3"}, .says = {"1", "2"}},
    {.c = {.op = "stack", .in = {"a=3", "a=4"}, .attrs = "dim=s"}, .says = {"a=4", "a=3"}},
    {.c = {.op = "stack", .in = {"a=3", "a=3"}, .attrs = "dim=a"}, .says = {"'a'"}},
    {.c = {.op = "gather", .in = {"a=3,v=7", "a=4 ids:7"}, .attrs = "over=v"},
     .says = {"'a'", "3", "4"}},
    {.c = {.op = "gather", .in = {"a=3,v=7", "a=3"}, .attrs = "over=v"}, .says = {"ids", "f32"}},
    {.c = {.op = "scatter_add", .in = {"k=3 ids:7", "k=4"}, .attrs = "over=v; along=k; size=7"},
     .says = {"'k'", "3", "4"}},
    {.c = {.op = "scatter_add", .in = {"k=3 ids:7", "k=3"}, .attrs = "over=v; along=b; size=7"},
     .says = {"'along'", "'b'"}},
    {.c = {.op = "scatter_add", .in = {"k=3 ids:7", "k=3,v=2"}, .attrs = "over=v; along=k; size=7"},
     .says = {"'v'", "already"}},
    {.c = {.op = "relabel", .in = {"a=6"}, .out = "c=4,d=2"}, .says = {"6"}},
};

static void test_infer__names_dims_and_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        dtp_case_graph cg;
        dtp_err err;
        dtp_status s = dtp_case_build(&BAD[i].c, NULL, DTP_F32, 1, &cg, &err);
        if (!dtp_status_is_input(s)) {
            fail_msg("bad case %zu of '%s' gives '%s'", i, BAD[i].c.op, dtp_status_text(s));
        }
        assert_non_null(strstr(err.msg, BAD[i].c.op));
        for (int32_t k = 0; k < 3 && BAD[i].says[k] != NULL; k++) {
            if (strstr(err.msg, BAD[i].says[k]) == NULL) {
                fail_msg("'%s' does not say '%s'", err.msg, BAD[i].says[k]);
            }
        }
        dtp_case_free(&cg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_infer__names_dims_and_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
