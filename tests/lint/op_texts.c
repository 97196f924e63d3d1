/* What the op table says, as text: op_texts functions | ops. The functions are those of
 * include/dtp/ops.h, the table is that of docs/ops.md (tests/lint/op_texts.sh compares both). */
#include <stdio.h>
#include <string.h>

#include "core/layout/tensor_type.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/op_table.h"

#define UNARY(op, ...) {#op, "dtp_tensor x"},
#define BINARY(op, ...) {#op, "dtp_tensor a, dtp_tensor b"},

static void print_functions(void)
{
    static const struct {
        const char *op, *operands;
    } functions[] = {DTP_UNARY_OPS(UNARY) DTP_BINARY_OPS(BINARY)};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        printf("dtp_status dtp_tensor_%s(%s, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;\n",
               functions[i].op, functions[i].operands);
    }
}

/* "`key` = 0.5"; without a default when the attribute must be given or is absent by default. */
static void print_attr(const dtp_attr_spec *s, bool first)
{
    printf("%s`%s`%s", first ? "" : ", ", s->key, s->hidden ? " (hidden)" : "");
    if (s->kind == DTP_ATTR_ENUM) {
        for (int32_t i = 0; s->choices[i] != NULL; i++) {
            printf("%s%s", i == 0 ? " " : "/", s->choices[i]);
        }
    }
    if (s->required || s->kind == DTP_ATTR_DIM || s->kind == DTP_ATTR_DIMS) {
        return;
    }
    if (s->kind == DTP_ATTR_ENUM) {
        printf(" = %s", s->choices[(int)s->def]);
    } else if (s->kind == DTP_ATTR_DTYPE) {
        printf(" = %s", dtp_dtype_name((dtp_dtype)(int)s->def));
    } else if (s->def > -1e15 && s->def < 1e15) {
        printf(" = %g", s->def);
    }
}

static void print_op(const dtp_op_def *op)
{
    printf("| `%s` | %d", op->name, op->min_in);
    printf(op->max_in > op->min_in ? "–%d | " : " | ", op->max_in);
    for (const dtp_attr_spec *s = op->attrs; s != NULL && s->key != NULL; s++) {
        print_attr(s, s == op->attrs);
    }
    printf(" | ");
    for (const char *c = op->summary; *c != '\0'; c++) {
        printf(*c == '|' ? "\\|" : "%c", *c);
    }
    printf(op->vjp != NULL ? " | yes |\n" : " | %s |\n", op->no_grad);
}

static void print_ops(bool internal)
{
    puts("| op | operands | attributes | computes | gradient |\n|---|---|---|---|---|");
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        if (((op->flags & DTP_OP_INTERNAL_USE) != 0) == internal) {
            print_op(op);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "functions") == 0) {
        print_functions();
    } else if (argc == 2 && strcmp(argv[1], "ops") == 0) {
        print_ops(false);
    } else {
        fprintf(stderr, "usage: op_texts functions|ops\n");
        return 2;
    }
    return 0;
}
