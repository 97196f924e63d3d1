/* Products of tensors as torch.einsum says them: "...i,oi->...o".. */
#include "importers/program/axes/aten_products.h"

#include <string.h>

/* Labels while an equation is read: letters, and axes of "..." from the last one on. */
typedef struct labels {
    dtp_product *p;
    char letters[DTP_MOST_LABELS];
    int32_t uses[DTP_MOST_LABELS];
    int32_t dots; /* the most axes that "..." stands for */
    bool result;  /* what is read stands behind "->" */
} labels;

enum { DOTS = 1 }; /* the letter of axis i of "..." is DOTS + i */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int32_t label_of(labels *e, char letter)
{
    int32_t k = 0;
    while (k < e->p->labels && e->letters[k] != letter) {
        k++;
    }
    if (k == DTP_MOST_LABELS) {
        return -1;
    }
    if (k == e->p->labels) {
        e->letters[e->p->labels++] = letter;
    }
    e->uses[k]++;
    return k;
}

/* Labels of `rank` axes from one term, "...ij"; *text stands behind it then. False: it is none. */
static bool term(labels *e, const char **text, int32_t rank, int8_t *to)
{
    int32_t letters = 0, axis = 0;
    uint32_t seen = 0;
    bool dotted = false;
    for (const char *c = *text; *c != ',' && *c != '-' && *c != '\0'; c++) {
        letters += is_letter(*c) ? 1 : 0;
    }
    for (; **text != ',' && **text != '-' && **text != '\0'; (*text)++) {
        const bool dots = strncmp(*text, "...", 3) == 0;
        int32_t n = dots ? rank - letters : is_letter(**text) ? 1 : 0;
        if (dots) {
            *text += 2;
            if (dotted || (e->result && n != e->dots)) {
                return false;
            }
            dotted = true;
            e->dots = n > e->dots ? n : e->dots;
        } else if (**text != ' ' && n == 0) {
            return false;
        }
        for (; n > 0; n--) {
            const int32_t k = axis == rank ? -1 : label_of(e, dots ? (char)(DOTS + n - 1) : **text);
            if (k < 0 || (seen >> k & 1) != 0) {
                return false; /* more letters than axes, or a diagonal */
            }
            seen |= UINT32_C(1) << k;
            to[axis++] = (int8_t)k;
        }
    }
    return axis == rank;
}

/* "ij,jk" without "->": what occurs once, in the order of the alphabet, behind "...". */
static void usual_result(const labels *e, char *text)
{
    memcpy(text, "...", 4);
    char *end = text + 3;
    for (int c = 'A'; c <= 'z'; c++) {
        for (int32_t k = 0; k < e->p->labels; k++) {
            if (e->letters[k] == (char)c && e->uses[k] == 1) {
                *end++ = (char)c;
            }
        }
    }
    *end = '\0';
}

/* For every label an axis that has it; labels of the result have one. */
static bool find_axes(const dtp_aten *g, dtp_product *p, int32_t known)
{
    memset(p->axis, -1, sizeof p->axis);
    for (int32_t i = 0; i < p->n; i++) {
        const dtp_aten_value *v = &g->values[p->values[i]];
        for (int32_t a = 0; a < v->rank; a++) {
            const int32_t k = p->of[i][a];
            if (p->axis[k] < 0 || g->values[p->values[p->factor[k]]].sizes[p->axis[k]] == 1) {
                p->factor[k] = i;
                p->axis[k] = a;
            }
        }
    }
    return p->labels == known;
}

static dtp_status read_equation(const dtp_aten *g, const char *text, int32_t out, dtp_product *p,
                                dtp_err *err)
{
    labels e = {.p = p};
    char usual[DTP_MOST_LABELS + 4];
    const char *all = text;
    bool fits = true;
    for (int32_t i = 0; i < p->n && fits; i++) {
        fits = term(&e, &text, g->values[p->values[i]].rank, p->of[i]) &&
               (*text == ',') == (i + 1 < p->n);
        text += *text == ',' ? 1 : 0;
    }
    const int32_t known = p->labels;
    if (fits && *text == '\0') {
        usual_result(&e, usual);
        text = usual;
    } else {
        fits = fits && strncmp(text, "->", 2) == 0;
        text += fits ? 2 : 0;
    }
    e.result = true;
    fits = fits && term(&e, &text, g->values[out].rank, p->out) && *text == '\0';
    return fits && find_axes(g, p, known)
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "the product '%s' of such operands", all);
}

/* By the ranks of the operands. */
static const char *matmul(int32_t a, int32_t b)
{
    if (a == 1) {
        return b == 1 ? "i,i->" : "i,...ij->...j";
    }
    return b == 1 ? "...ij,j->...i" : "...ij,...jk->...ik";
}

/* The equation of an op; "+": argument 0 is what is added. NULL: it is no product. */
static const char *equation_of(const dtp_aten_node *node)
{
    static const char *const forms[][2] = {{"linear", "...i,oi->...o"},
                                           {"matmul", ""},
                                           {"einsum", ""},
                                           {"mm", "ij,jk->ik"},
                                           {"bmm", "bij,bjk->bik"},
                                           {"mv", "ij,j->i"},
                                           {"dot", "i,i->"},
                                           {"outer", "i,j->ij"},
                                           {"inner", "...i,ji->...j"},
                                           {"addmm", "+ij,jk->ik"},
                                           {"addmv", "+ij,j->i"},
                                           {"baddbmm", "+bij,bjk->bik"}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (dtp_aten_is(node, forms[i][0])) {
            return forms[i][1];
        }
    }
    return NULL;
}

dtp_status dtp_product_of(const dtp_aten *g, const dtp_aten_node *node, dtp_product *out,
                          dtp_err *err)
{
    const char *equation = equation_of(node);
    const bool lists = dtp_aten_is(node, "einsum");
    const dtp_aten_arg *text = dtp_aten_arg_of(node, "equation");
    const dtp_aten_arg *list = lists ? dtp_aten_arg_of(node, "tensors") : NULL;
    if (equation == NULL || node->n_outs != 1 ||
        (lists && (text == NULL || text->text == NULL || list == NULL))) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no product");
    }
    equation = lists ? text->text : equation;
    const int32_t first = !lists && equation[0] == '+' ? 1 : 0;
    *out = (dtp_product){.n = lists ? dtp_aten_tensors(list) : 2};
    out->added = first > 0 ? dtp_aten_input(node, 0) : dtp_aten_operand(node, "bias");
    bool all = out->n > 0 && out->n <= DTP_MOST_FACTORS && (first == 0 || out->added >= 0);
    for (int32_t i = 0; all && i < out->n; i++) {
        out->values[i] = lists ? list->values[i] : dtp_aten_input(node, first + i);
        all = out->values[i] >= 0;
    }
    if (!all || dtp_aten_real(node, "alpha", 1) != 1 || dtp_aten_real(node, "beta", 1) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a product with factors, or of more than %d tensors",
                        DTP_MOST_FACTORS);
    }
    if (!lists && equation[0] == '\0') {
        equation = matmul(g->values[out->values[0]].rank, g->values[out->values[1]].rank);
    }
    return read_equation(g, equation + first, node->outs[0], out, err);
}
