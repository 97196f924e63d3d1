/* What the op table says, as text: op_texts functions | ops. The functions are those of
 * include/dtp/ops.h, the table is that of docs/ops.md (tests/lint/op_texts.sh compares both). */
#include <stdio.h>
#include <string.h>

#include "core/base/strbuf.h"
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

/* Columns of a line of a document. */
enum { WIDTH = 120 };

/* "`key` = 0.5"; without a default when the attribute must be given or is absent by default. */
static void add_attr(dtp_strbuf *b, const dtp_attr_spec *s)
{
    dtp_strbuf_addf(b, "`%s`%s", s->key, s->hidden ? " (hidden)" : "");
    if (s->kind == DTP_ATTR_ENUM) {
        for (int32_t i = 0; s->choices[i] != NULL; i++) {
            dtp_strbuf_addf(b, "%s%s", i == 0 ? " " : "/", s->choices[i]);
        }
    }
    if (s->required || s->kind == DTP_ATTR_DIM || s->kind == DTP_ATTR_DIMS) {
        return;
    }
    if (s->kind == DTP_ATTR_ENUM) {
        dtp_strbuf_addf(b, " = %s", s->choices[(int)s->def]);
    } else if (s->kind == DTP_ATTR_DTYPE) {
        dtp_strbuf_addf(b, " = %s", dtp_dtype_name((dtp_dtype)(int)s->def));
    } else if (s->def > -1e15 && s->def < 1e15) {
        dtp_strbuf_addf(b, " = %g", s->def);
    }
}

/* Attributes that decompositions and passes alone set stand last and are not told. */
static bool is_told(const dtp_attr_spec *s)
{
    return s->key != NULL && !(s->kind == DTP_ATTR_DTYPE && (int)s->def == DTP_NO_DTYPE);
}

/* The row of the table; with `below` in place of the attributes. */
static void add_row(dtp_strbuf *b, const dtp_op_def *op, bool below)
{
    dtp_strbuf_addf(b, "| `%s` | %d", op->name, op->min_in);
    if (op->max_in > op->min_in) {
        dtp_strbuf_addf(b, "–%d", op->max_in);
    }
    dtp_strbuf_add(b, " | ");
    for (const dtp_attr_spec *s = op->attrs; !below && s != NULL && is_told(s); s++) {
        dtp_strbuf_add(b, s == op->attrs ? "" : ", ");
        add_attr(b, s);
    }
    dtp_strbuf_add(b, below ? "below | " : " | ");
    for (const char *c = op->summary; *c != '\0'; c++) {
        dtp_strbuf_addf(b, *c == '|' ? "\\|" : "%c", *c);
    }
    dtp_strbuf_addf(b, " | %s |\n", op->vjp != NULL ? "yes" : op->no_grad);
}

static bool is_public(const dtp_op_def *op)
{
    return (op->flags & DTP_OP_INTERNAL_USE) == 0;
}

/* Whether the row with its attributes is too wide for a document. */
static bool is_wide(const dtp_op_def *op)
{
    dtp_strbuf row = {0};
    add_row(&row, op, false);
    const bool wide = row.len > WIDTH + 1;
    dtp_strbuf_free(&row);
    return wide;
}

/* The attributes as an item of a list, in lines of at most WIDTH columns. */
static void print_attrs(const dtp_op_def *op)
{
    size_t column = (size_t)printf("- `%s`:", op->name);
    for (const dtp_attr_spec *s = op->attrs; is_told(s); s++) {
        dtp_strbuf text = {0};
        add_attr(&text, s);
        const char *comma = s == op->attrs ? "" : ",";
        const bool fits = column + text.len + 3 <= WIDTH;
        printf("%s%s%s", comma, fits ? " " : "\n  ", dtp_strbuf_text(&text));
        column = (fits ? column : 0) + text.len + 2;
        dtp_strbuf_free(&text);
    }
    puts("");
}

static void print_ops(void)
{
    puts("| op | operands | attributes | computes | gradient |\n|---|---|---|---|---|");
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        dtp_strbuf row = {0};
        if (is_public(op)) {
            add_row(&row, op, is_wide(op));
        }
        fputs(dtp_strbuf_text(&row), stdout);
        dtp_strbuf_free(&row);
    }
    puts("\nAttributes of the ops with many:\n");
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        if (is_public(dtp_op_at(i)) && is_wide(dtp_op_at(i))) {
            print_attrs(dtp_op_at(i));
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "functions") == 0) {
        print_functions();
    } else if (argc == 2 && strcmp(argv[1], "ops") == 0) {
        print_ops();
    } else {
        fprintf(stderr, "usage: op_texts functions|ops\n");
        return 2;
    }
    return 0;
}
