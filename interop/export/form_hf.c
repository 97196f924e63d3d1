/* --as hf: a tp_plan of Hugging Face's transformers, module -> style, which `dtplan plan
 * --style-file` reads (interop/styles/styles_hf.c). It speaks of one mesh dim: of that over which
 * most parameters are split both where they are kept and where the forward pass reads them.
 *
 * Every parameter wants a style of its module, by the forward node that reads it. What a module's
 * parameters do not agree on, and what no style says, is lost, under the parameters' names. */
#include <string.h>

#include "interop/export/forms.h"
#include "interop/styles/styles.h"

typedef enum hf_style {
    HF_NONE,  /* no style says it: the module is left out */
    HF_BIAS,  /* whole, where values are split: under rowwise, whose output no style splits */
    HF_WHOLE, /* whole, under any style but colwise */
    HF_COLWISE,
    HF_COLWISE_GATHER,
    HF_PACKED_COLWISE,
    HF_ROWWISE,
    HF_EMBEDDING_ROWWISE,
    HF_SEQUENCE,
    HF_REPLICATE
} hf_style;

static const char *const STYLES[] = {
    /* NULL: the module is left out */
    [HF_NONE] = NULL,
    [HF_BIAS] = NULL,
    [HF_COLWISE] = "colwise",
    [HF_COLWISE_GATHER] = "colwise_gather_output",
    [HF_PACKED_COLWISE] = "packed_colwise",
    [HF_ROWWISE] = "rowwise",
    [HF_EMBEDDING_ROWWISE] = "embedding_rowwise",
    [HF_SEQUENCE] = "sequence_parallel",
    [HF_REPLICATE] = "replicate",
    [HF_WHOLE] = "replicate",
};

typedef struct hf_module {
    const char *key; /* its name, '*' for numbers */
    hf_style style;
} hf_module;

typedef struct hf_plan {
    const dtp_placements *p;
    dtp_lost lost;
    int32_t m; /* the mesh dim, -1: none splits a parameter */
    int32_t n;
    hf_module *modules;
} hf_plan;

static bool is_split(const dtp_layout *layout, int32_t m)
{
    return layout->placement[m].kind == DTP_SHARD;
}

static int32_t choose_mesh_dim(const dtp_placements *p)
{
    int32_t best = -1, most = 0;
    for (int32_t m = 0; m < p->plan->mesh.n_dims; m++) {
        int32_t n = 0;
        for (int32_t i = 0; i < p->n_params; i++) {
            n += is_split(&p->params[i].kept, m) && is_split(&p->params[i].read, m) ? 1 : 0;
        }
        if (n > 0 && n >= most) {
            best = m;
            most = n;
        }
    }
    return best;
}

/* "layers.3.attn.q" as "layers.*.attn.q". */
static dtp_status module_key(const dtp_placed *t, dtp_arena *arena, const char **out, dtp_err *err)
{
    char *key = dtp_arena_strdup(arena, t->module != NULL ? t->module : t->name);
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

/* Whether mesh dim m splits anything that a node reads, but parameters, or makes. */
static bool splits_values(const hf_plan *h, const dtp_node *node)
{
    const dtp_graph *g = h->p->graph;
    const dtp_layout *layouts = h->p->plan->sharding.layouts;
    bool any =
        is_split(&layouts[node->out[0]], h->m) || is_split(&h->p->uses.made[node->out[0]], h->m);
    for (int32_t i = 0; i < node->n_in; i++) {
        any = any ||
              (dtp_graph_param_of(g, node->in[i]) < 0 && is_split(&layouts[node->in[i]], h->m));
    }
    return any;
}

/* Whether a node makes its output split over the sequence, its second dim. */
static bool splits_sequence(const hf_plan *h, const dtp_node *node)
{
    const dtp_graph_tensor *out = &h->p->graph->tensors[node->out[0]];
    const dtp_placement *p = &h->p->uses.made[node->out[0]].placement[h->m];
    return p->kind == DTP_SHARD && p->axis == (out->type.rank >= 3 ? 1 : 0);
}

static hf_style style_of_weight(const hf_plan *h, const dtp_placed *t, const dtp_node *node,
                                int32_t operand)
{
    const dtp_graph *g = h->p->graph;
    const dtp_layout *layouts = h->p->plan->sharding.layouts;
    const dtp_placement *kept = &layouts[t->of[0]].placement[h->m];
    const dtp_placement *read = &h->p->uses.read[t->of[0]].placement[h->m];
    const bool lookup = (node->op->flags & DTP_OP_LOOKUP) != 0;
    if (kept->kind != read->kind || kept->axis != read->axis) {
        return HF_NONE;
    }
    if (kept->kind != DTP_SHARD) {
        return splits_values(h, node) ? HF_NONE : HF_REPLICATE;
    }
    if (kept->axis == dtp_style_axis(g, node, operand, true, NULL)) {
        return lookup ? HF_EMBEDDING_ROWWISE : HF_ROWWISE;
    }
    if (kept->axis != dtp_style_axis(g, node, operand, false, NULL)) {
        return HF_NONE;
    }
    return t->n_of > 1                              ? HF_PACKED_COLWISE
           : is_split(&layouts[node->out[0]], h->m) ? HF_COLWISE
                                                    : HF_COLWISE_GATHER;
}

/* Whether the parts of a parameter lie over the mesh dim as its first does. */
static bool parts_agree(const hf_plan *h, const dtp_placed *t)
{
    const dtp_layout *layouts = h->p->plan->sharding.layouts;
    bool agree = true;
    for (int32_t k = 1; k < t->n_of; k++) {
        const dtp_placement *a = &layouts[t->of[0]].placement[h->m];
        const dtp_placement *b = &layouts[t->of[k]].placement[h->m];
        agree = agree && a->kind == b->kind && a->axis == b->axis;
    }
    return agree;
}

static hf_style style_wanted(const hf_plan *h, const dtp_placed *t)
{
    const dtp_node_id reader = h->p->uses.reader[t->of[0]];
    const dtp_node *node = reader >= 0 ? &h->p->graph->nodes[reader] : NULL;
    if (node == NULL || h->p->uses.several[t->of[0]] || !parts_agree(h, t)) {
        return HF_NONE;
    }
    if ((node->op->flags & (DTP_OP_CONTRACTION | DTP_OP_LOOKUP)) != 0) {
        return style_of_weight(h, t, node, h->p->uses.operand[t->of[0]]);
    }
    if (is_split(&t->kept, h->m) || is_split(&t->read, h->m)) {
        const bool bias =
            (node->op->flags & DTP_OP_ELEMENTWISE) != 0 &&
            memcmp(&t->kept.placement[h->m], &t->read.placement[h->m], sizeof(dtp_placement)) == 0;
        return bias ? HF_COLWISE : HF_NONE;
    }
    if (!splits_values(h, node)) {
        return HF_WHOLE;
    }
    return (node->op->flags & DTP_OP_ELEMENTWISE) != 0                        ? HF_BIAS
           : (node->op->flags & DTP_OP_NORM) != 0 && splits_sequence(h, node) ? HF_SEQUENCE
                                                                              : HF_NONE;
}

/* ---- modules ---- */

static bool is_colwise(hf_style s)
{
    return s == HF_COLWISE || s == HF_COLWISE_GATHER || s == HF_PACKED_COLWISE;
}

/* The style of a module of which one parameter wants a, another b; HF_NONE: they do not agree. */
static hf_style join(hf_style a, hf_style b)
{
    const bool fits = a == b || (b == HF_WHOLE && !is_colwise(a)) ||
                      (b == HF_BIAS && a == HF_ROWWISE) || (b == HF_COLWISE && is_colwise(a));
    return fits ? a : HF_NONE;
}

/* Index of the module of a parameter or value. */
static dtp_status find_module(hf_plan *h, const dtp_placed *t, int32_t *out, dtp_err *err)
{
    const char *key;
    DTP_TRY(module_key(t, h->p->arena, &key, err));
    int32_t i = 0;
    while (i < h->n && strcmp(h->modules[i].key, key) != 0) {
        i++;
    }
    *out = i;
    if (i == h->n) {
        h->modules[h->n++] = (hf_module){key, HF_NONE};
    }
    return DTP_OK;
}

/* The styles of all modules; a parameter that disagrees with those before it takes the style from
 * its module. */
static dtp_status find_styles(hf_plan *h, int32_t *of, dtp_err *err)
{
    const dtp_placements *p = h->p;
    for (int32_t i = 0; i < p->n_params && h->m >= 0; i++) {
        const int32_t before = h->n;
        DTP_TRY(find_module(h, &p->params[i], &of[i], err));
        hf_style *style = &h->modules[of[i]].style;
        const hf_style wanted = style_wanted(h, &p->params[i]), joined = join(*style, wanted);
        *style = h->n > before ? wanted : joined != HF_NONE ? joined : join(wanted, *style);
    }
    return DTP_OK;
}

static dtp_status lose(hf_plan *h, dtp_lost_kind kind, const char *name, dtp_err *err)
{
    return dtp_lost_add(&h->lost, h->p->arena, kind, name, err);
}

/* What is split over other mesh dims. */
static dtp_status lose_other_dims(hf_plan *h, int32_t n, const dtp_placed *list, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        for (int32_t m = 0; m < h->p->plan->mesh.n_dims; m++) {
            if (m != h->m && is_split(&list[i].kept, m)) {
                DTP_TRY(lose(h, DTP_LOST_MESH_DIMS, list[i].name, err));
            }
        }
    }
    return DTP_OK;
}

/* What rowwise modules leave split. */
static dtp_status lose_outputs(hf_plan *h, dtp_err *err)
{
    const dtp_placements *p = h->p;
    for (int32_t i = 0; i < p->n_activations && h->m >= 0; i++) {
        const dtp_placed *t = &p->activations[i];
        int32_t module;
        if (t->module == NULL || !is_split(&t->kept, h->m)) {
            continue;
        }
        DTP_TRY(find_module(h, t, &module, err));
        const hf_style style = h->modules[module].style;
        if (style == HF_ROWWISE || style == HF_EMBEDDING_ROWWISE) {
            DTP_TRY(lose(h, DTP_LOST_OUTPUT, t->name, err));
        }
    }
    return DTP_OK;
}

static dtp_status lose_params(hf_plan *h, const int32_t *of, dtp_err *err)
{
    const dtp_placements *p = h->p;
    for (int32_t i = 0; i < p->n_params && h->m >= 0; i++) {
        if (STYLES[h->modules[of[i]].style] == NULL) {
            DTP_TRY(lose(h, DTP_LOST_STYLE, p->params[i].name, err));
        }
    }
    DTP_TRY(lose_other_dims(h, p->n_params, p->params, err));
    DTP_TRY(lose_other_dims(h, p->n_inputs, p->inputs, err));
    return lose_outputs(h, err);
}

dtp_status dtp_export__hf(const dtp_placements *p, dtp_json_writer *w, dtp_err *err)
{
    hf_plan h = {.p = p, .m = choose_mesh_dim(p)};
    int32_t *of;
    DTP_TRY(DTP_NEW(p->arena, h.modules, p->n_params + p->n_activations + 1, err));
    DTP_TRY(DTP_NEW(p->arena, of, p->n_params + 1, err));
    DTP_TRY(find_styles(&h, of, err));
    DTP_TRY(lose_params(&h, of, err));
    dtp_export__begin(p, "dtp.tp_plan/1", w);
    if (h.m >= 0) {
        dtp_json_write_string(w, "mesh_dim", p->plan->mesh.names[h.m]);
    } else {
        dtp_json_write_null(w, "mesh_dim");
    }
    dtp_json_begin_object(w, "tp_plan");
    for (int32_t i = 0; i < h.n; i++) {
        if (STYLES[h.modules[i].style] != NULL) {
            dtp_json_write_string(w, h.modules[i].key, STYLES[h.modules[i].style]);
        }
    }
    dtp_json_end_object(w);
    dtp_export__end(&h.lost, w);
    return DTP_OK;
}
