/* Pins as texts, which do not depend on a mesh: "style GLOB: STYLE" (docs/styles.md) and "pin
 * TENSOR: LAYOUT". A plan lists its pins in this form. */
#ifndef DTP_INTEROP_STYLES_PIN_TEXTS_H
#define DTP_INTEROP_STYLES_PIN_TEXTS_H

#include "interop/styles/styles.h"

/* Everything from an arena. */
typedef struct dtp_pin_set {
    int32_t n_pins; /* those of the styles, then those by hand */
    dtp_pin *pins;
    int32_t n_implementations; /* how nodes run */
    const dtp_implementation *implementations;
    int32_t n_texts;
    const char **texts;
} dtp_pin_set;

/* What a user gives: styles, files with styles and names in them, pins by hand. */
typedef struct dtp_pin_source {
    int32_t n_styles, n_files, n_names, n_pins;
    const char *const *styles; /* "GLOB: STYLE" */
    const char *const *files;  /* style plans of Hugging Face's transformers */
    const char *const *names;  /* THEIRS=OURS, for the files */
    const char *names_file;    /* dtp.names/1, for the files; NULL: none */
    const char *const *pins;   /* "TENSOR: LAYOUT" */
} dtp_pin_source;

/* Their texts, from `arena`. `read` (of the same arena) keeps the places of styles in files. */
dtp_status dtp_pin_texts(const dtp_pin_source *source, dtp_arena *arena, dtp_styles *read,
                         int32_t *n, const char ***out, dtp_err *err) DTP_MUST_CHECK;

/* Puts the place in its file before an error about a style from a file; s: of the planning. The
 * planner knows only the texts of styles, which stand in plans too. Returns s. */
dtp_status dtp_pin_place(const dtp_styles *read, dtp_status s, dtp_err *err);

/* What texts mean for a graph on a mesh; those that begin with neither word are left out.
 * DTP_INVALID naming the text. */
dtp_status dtp_pin_set_read(int32_t n, const char *const *texts, const dtp_graph *g,
                            const dtp_mesh *mesh, dtp_arena *arena, dtp_pin_set *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* A decision with pins: DTP_INVALID naming node, operand and both layouts when an operand has to be
 * sent somewhere that no pin asked for. An update may reduce its gradient, and so may a sum over
 * microbatches. */
dtp_status dtp_pins_strict(const dtp_graph *g, const dtp_sharding *sharding,
                           const dtp_redistributor *redistributor, const dtp_pin_set *pins,
                           dtp_err *err) DTP_MUST_CHECK;

#endif
