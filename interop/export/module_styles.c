/* Which styles of modules a plan has over one mesh dim: what PyTorch's parallelize_module and
 * transformers' tp_plan call colwise, rowwise, sequence. */
#include "interop/export/module_styles.h"

#include <string.h>

#include "interop/styles/styles.h"

bool dtp_same_placement(const dtp_placement *a, const dtp_placement *b)
{
    return a->kind == b->kind && a->axis == b->axis;
}

bool dtp_splits_over(const dtp_layout *layout, int32_t m)
{
    return layout->placement[m].kind == DTP_SHARD;
}

dtp_status dtp_module_pattern(const char *name, dtp_arena *arena, const char **out, dtp_err *err)
{
    char *key = dtp_arena_strdup(arena, name);
    DTP_TRY(DTP_MEMORY(err, key));
    char *to = key;
    for (const char *at = key; *at != '\0';) {
        const size_t part = strcspn(at, "."), digits = strspn(at, "0123456789");
        const bool number = part > 0 && digits == part;
        memmove(to, number ? "*" : at, number ? 1 : part);
        to += number ? 1 : part;
        at += part;
        if (*at == '.') {
            *to++ = *at++;
        }
    }
    *to = '\0';
    *out = key;
    return DTP_OK;
}

/* ---- what a parameter wants ---- */

bool dtp_node_splits_values(const dtp_placements *p, const dtp_node *node, int32_t m)
{
    const dtp_layout *layouts = p->plan->sharding.layouts;
    bool any = dtp_splits_over(&layouts[node->out[0]], m) ||
               dtp_splits_over(&p->uses.made[node->out[0]], m);
    for (int32_t i = 0; i < node->n_in; i++) {
        any = any || (dtp_graph_param_of(p->graph, node->in[i]) < 0 &&
                      dtp_splits_over(&layouts[node->in[i]], m));
    }
    return any;
}

/* Whether a node makes its output split over the sequence, its second dim. */
static bool splits_sequence(const dtp_module_styles *h, const dtp_node *node)
{
    const dtp_graph_tensor *out = &h->p->graph->tensors[node->out[0]];
    const dtp_placement *p = &h->p->uses.made[node->out[0]].placement[h->m];
    return p->kind == DTP_SHARD && p->axis == (out->type.rank >= 3 ? 1 : 0);
}

static dtp_module_style style_of_weight(const dtp_module_styles *h, const dtp_placed *t,
                                        const dtp_node *node)
{
    const dtp_graph *g = h->p->graph;
    const dtp_placement *read = &h->p->uses.read[t->of[0]].placement[h->m];
    const bool lookup = (node->op->flags & DTP_OP_LOOKUP) != 0;
    if (read->kind != DTP_SHARD) {
        return dtp_node_splits_values(h->p, node, h->m) ? DTP_MODULE_NONE : DTP_MODULE_REPLICATE;
    }
    if (read->axis == dtp_style_axis(g, node, t->operand, true, NULL)) {
        return lookup ? DTP_MODULE_EMBEDDING_ROWWISE : DTP_MODULE_ROWWISE;
    }
    if (read->axis != dtp_style_axis(g, node, t->operand, false, NULL)) {
        return DTP_MODULE_NONE;
    }
    const dtp_layout *made = &h->p->plan->sharding.layouts[node->out[0]];
    return t->n_of > 1                   ? DTP_MODULE_PACKED_COLWISE
           : dtp_splits_over(made, h->m) ? DTP_MODULE_COLWISE
                                         : DTP_MODULE_COLWISE_GATHER;
}

/* Whether the parts of a parameter lie over the mesh dim as its first does. */
static bool parts_agree(const dtp_module_styles *h, const dtp_placed *t)
{
    const dtp_layout *layouts = h->p->plan->sharding.layouts;
    bool agree = true;
    for (int32_t k = 1; k < t->n_of; k++) {
        agree = agree && dtp_same_placement(&layouts[t->of[0]].placement[h->m],
                                            &layouts[t->of[k]].placement[h->m]);
    }
    return agree;
}

static dtp_module_style style_wanted(const dtp_module_styles *h, const dtp_placed *t)
{
    const dtp_node *node = t->reader >= 0 ? &h->p->graph->nodes[t->reader] : NULL;
    const bool moved = !dtp_same_placement(&t->kept.placement[h->m], &t->read.placement[h->m]);
    if (node == NULL || h->p->uses.several[t->of[0]] || !parts_agree(h, t) ||
        (moved && !h->reads)) {
        return DTP_MODULE_NONE;
    }
    if ((node->op->flags & (DTP_OP_CONTRACTION | DTP_OP_LOOKUP)) != 0) {
        return style_of_weight(h, t, node);
    }
    const bool elementwise = (node->op->flags & DTP_OP_ELEMENTWISE) != 0;
    if (dtp_splits_over(&t->read, h->m)) {
        /* Our colwise splits a bias as what it is added to, PyTorch's the one axis that it has. */
        return elementwise && (t->type.rank == 1 || !h->reads) ? DTP_MODULE_COLWISE
                                                               : DTP_MODULE_NONE;
    }
    if (!dtp_node_splits_values(h->p, node, h->m)) {
        return DTP_MODULE_WHOLE;
    }
    return elementwise                            ? DTP_MODULE_BIAS
           : (node->op->flags & DTP_OP_NORM) == 0 ? DTP_MODULE_NONE
           : splits_sequence(h, node)             ? DTP_MODULE_SEQUENCE
                                                  : DTP_MODULE_GRADIENT_SUM;
}

/* ---- modules ---- */

bool dtp_module_style_is_colwise(dtp_module_style s)
{
    return s == DTP_MODULE_COLWISE || s == DTP_MODULE_COLWISE_GATHER ||
           s == DTP_MODULE_PACKED_COLWISE;
}

bool dtp_module_style_fits(dtp_module_style a, dtp_module_style b)
{
    return a != DTP_MODULE_NONE &&
           (a == b || (b == DTP_MODULE_WHOLE && !dtp_module_style_is_colwise(a)) ||
            (b == DTP_MODULE_BIAS && a == DTP_MODULE_ROWWISE) ||
            (b == DTP_MODULE_COLWISE && dtp_module_style_is_colwise(a)));
}

dtp_status dtp_module_styles_index(dtp_module_styles *h, const dtp_placed *t, int32_t *out,
                                   dtp_err *err)
{
    const char *key = t->module != NULL ? t->module : t->name;
    if (h->patterns) {
        DTP_TRY(dtp_module_pattern(key, h->p->arena, &key, err));
    }
    int32_t i = 0;
    while (i < h->n && strcmp(h->modules[i].key, key) != 0) {
        i++;
    }
    *out = i;
    if (i == h->n) {
        h->modules[h->n++] = (dtp_styled_module){key, DTP_MODULE_NONE};
    }
    return DTP_OK;
}

dtp_status dtp_module_styles_find(dtp_module_styles *h, dtp_err *err)
{
    const dtp_placements *p = h->p;
    const int32_t n = p->n_params + (h->reads ? p->n_tied : 0);
    DTP_TRY(DTP_NEW(p->arena, h->modules, p->n_params + p->n_tied + p->n_activations + 1, err));
    DTP_TRY(DTP_NEW(p->arena, h->of, n + 1, err));
    DTP_TRY(DTP_NEW(p->arena, h->wanted, n + 1, err));
    h->n = 0;
    for (int32_t i = 0; i < n && h->m >= 0; i++) {
        const int32_t before = h->n;
        DTP_TRY(dtp_module_styles_index(h, &p->params[i], &h->of[i], err));
        dtp_module_style *style = &h->modules[h->of[i]].style;
        const dtp_module_style wanted = style_wanted(h, &p->params[i]);
        h->wanted[i] = wanted;
        *style = h->n > before || dtp_module_style_fits(wanted, *style) ? wanted
                 : dtp_module_style_fits(*style, wanted)                ? *style
                                                                        : DTP_MODULE_NONE;
    }
    return DTP_OK;
}
