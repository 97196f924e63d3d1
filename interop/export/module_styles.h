/* Which styles of modules a plan has over one mesh dim: what PyTorch's parallelize_module and
 * transformers' tp_plan call colwise, rowwise, sequence. Every parameter wants a style of its
 * module, by the forward node that reads it; those of one module have to agree. */
#ifndef DTP_INTEROP_EXPORT_MODULE_STYLES_H
#define DTP_INTEROP_EXPORT_MODULE_STYLES_H

#include "interop/export/placements.h"

typedef enum dtp_module_style {
    DTP_MODULE_NONE,  /* no style says it */
    DTP_MODULE_BIAS,  /* whole, where values are split: under rowwise */
    DTP_MODULE_WHOLE, /* whole, under any style but colwise */
    DTP_MODULE_COLWISE,
    DTP_MODULE_COLWISE_GATHER,
    DTP_MODULE_PACKED_COLWISE,
    DTP_MODULE_ROWWISE,
    DTP_MODULE_EMBEDDING_ROWWISE,
    DTP_MODULE_SEQUENCE,
    DTP_MODULE_REPLICATE,
    DTP_MODULE_GRADIENT_SUM, /* of a norm: whole, where values are split by heads */
    DTP_N_MODULE_STYLES
} dtp_module_style;

typedef struct dtp_styled_module {
    const char *key; /* its name, with patterns '*' for numbers */
    dtp_module_style style;
} dtp_styled_module;

typedef struct dtp_module_styles {
    const dtp_placements *p;
    int32_t m;     /* the mesh dim, -1: none, and no styles */
    bool patterns; /* keys have '*' for numbers */
    bool reads;    /* styles by what is read, and of tied parameters in both modules; else
                      parameters that are kept otherwise have none */
    int32_t n;
    dtp_styled_module *modules;
    int32_t *of;              /* by parameter of p, with reads the tied ones as well: its module */
    dtp_module_style *wanted; /* as of */
} dtp_module_styles;

/* Fills the lists for p, m, patterns and reads. A parameter that disagrees with those before it
 * takes the style from its module. */
dtp_status dtp_module_styles_find(dtp_module_styles *h, dtp_err *err) DTP_MUST_CHECK;

/* The module of a parameter or value; one that was not there has no style. */
dtp_status dtp_module_styles_index(dtp_module_styles *h, const dtp_placed *t, int32_t *out,
                                   dtp_err *err) DTP_MUST_CHECK;

/* Whether a module of style a may have a parameter that wants b. */
bool dtp_module_style_fits(dtp_module_style a, dtp_module_style b);
bool dtp_module_style_is_colwise(dtp_module_style s);

/* A name of theirs: "layers.3.attn.q" as "layers.*.attn.q". From `arena`. */
dtp_status dtp_module_pattern(const char *name, dtp_arena *arena, const char **out,
                              dtp_err *err) DTP_MUST_CHECK;

bool dtp_same_placement(const dtp_placement *a, const dtp_placement *b);
bool dtp_splits_over(const dtp_layout *layout, int32_t m);
/* Whether mesh dim m splits anything that a node reads, but parameters, or makes. */
bool dtp_node_splits_values(const dtp_placements *p, const dtp_node *node, int32_t m);

#endif
