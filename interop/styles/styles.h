/* Styles: named sets of pins (docs/styles.md). "layers.*.mlp.up: colwise(tp)" says that the
 * parameters of these nodes are split over their output features on mesh dim tp and that the nodes
 * read and leave their activations accordingly.
 */
#ifndef DTP_INTEROP_STYLES_H
#define DTP_INTEROP_STYLES_H

#include "core/graph/implementation.h"
#include "interop/names.h"
#include "spmd/propagate/propagate.h"

struct dtp_style_def;

/* One "GLOB: STYLE"; strings belong to the list's arena. */
typedef struct dtp_style {
    const char *glob;
    const struct dtp_style_def *def;
    const char *mesh_dim; /* NULL: not given */
    const char *dim;      /* dim=NAME: the dim that is split; NULL: the style's own choice */
    const char *output;   /* output=NAME: the dim over which outputs leave split, "replicated",
                             or NULL: the style's own choice */
    const char *
        implementation; /* a choice of the attribute that the style sets; NULL: as the model says */
    const char *layout; /* prepare_input=, prepare_output= */
    const char *text;   /* "GLOB: STYLE" as it was given */
    const char *place;  /* of a style from a file, FILE:LINE:COL: path; else NULL */
} dtp_style;

typedef struct dtp_styles {
    dtp_arena *arena; /* borrowed */
    bool even;        /* ZeRO leaves a parameter whole of which it divides no dim */
    int32_t n, capacity;
    dtp_style *items;
    int32_t n_implementations; /* how nodes run, in the order of the nodes; written by
                              dtp_styles_pins */
    dtp_implementation *implementations;
} dtp_styles;

/* An empty list. */
void dtp_styles_init(dtp_styles *list, dtp_arena *arena);

/* Appends "GLOB: STYLE". DTP_INVALID names what is wrong and lists the styles there are. */
dtp_status dtp_styles_parse(const char *text, dtp_styles *list, dtp_err *err) DTP_MUST_CHECK;

/* A name in a style plan and the one the model has instead: "up_proj" -> "w_up". */
typedef struct dtp_style_rename {
    const char *from, *to;
} dtp_style_rename;

/* What names of a style plan mean. */
typedef struct dtp_style_naming {
    int32_t n_renames;
    const dtp_style_rename *renames;
    const dtp_names *names; /* modules of the framework; NULL: none. They come first */
} dtp_style_naming;

/* Appends a style plan of Hugging Face's transformers, {"layers.*.mlp.up_proj": "colwise", ...},
 * or what `dtplan export --as hf` wrote. A name that is a module of naming->names stands for its
 * parameters; in others a dotted part that equals `from` becomes `to`, which may have dots itself.
 * Errors name FILE:LINE:COL; styles that the plan's system knows and this one does not are
 * DTP_UNSUPPORTED. */
dtp_status dtp_styles_import_hf(const char *file, const char *text, size_t len,
                                const dtp_style_naming *naming, dtp_styles *list,
                                dtp_err *err) DTP_MUST_CHECK;

/* The pins that the styles mean for a graph on a mesh, in the arena of the list. A glob that
 * matches nothing (the nearest names are listed), a style that does not apply to what it matches,
 * and two styles that contradict each other are DTP_INVALID. */
dtp_status dtp_styles_pins(const dtp_graph *g, const dtp_mesh *mesh, dtp_styles *list, int32_t *n,
                           dtp_pin **out, dtp_err *err) DTP_MUST_CHECK;

/* The axis of an operand of an einsum, or of the table of an embedding, that colwise, or rowwise
 * (`rows`), splits at the node: the one called `dim`, or the style's choice (NULL). -1: none. */
int32_t dtp_style_axis(const dtp_graph *g, const dtp_node *node, int32_t operand, bool rows,
                       const char *dim);

/* One pin by hand: "TENSOR: LAYOUT", or "TENSOR at NODE: LAYOUT" for the layout in which the node
 * reads it. The mesh dims that the layout does not name are replicated. */
dtp_status dtp_pin_parse(const char *text, const dtp_graph *g, const dtp_mesh *mesh, dtp_pin *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
