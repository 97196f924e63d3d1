/* Pins as texts, which do not depend on a mesh: "style GLOB: STYLE" (docs/styles.md) and "pin
 * TENSOR: LAYOUT". A plan lists its pins in this form. */
#ifndef DTP_PLANNER_STYLES_PIN_TEXTS_H
#define DTP_PLANNER_STYLES_PIN_TEXTS_H

#include "planner/styles/styles.h"

/* Everything from an arena. */
typedef struct dtp_pin_set {
    int32_t n_pins; /* those of the styles, then those by hand */
    dtp_pin *pins;
    int32_t n_implementations; /* how nodes run */
    const dtp_implementation *implementations;
    int32_t n_texts;
    const char **texts;
} dtp_pin_set;

/* Texts of styles and of pins by hand ("TENSOR: LAYOUT"), in the arena of the list. */
dtp_status dtp_pin_texts(const dtp_styles *styles, int32_t n_by_hand, const char *const *by_hand,
                         int32_t *n, const char ***out, dtp_err *err) DTP_MUST_CHECK;

/* What texts mean for a graph on a mesh; those that begin with neither word are left out.
 * DTP_INVALID naming the text. */
dtp_status dtp_pin_set_read(int32_t n, const char *const *texts, const dtp_graph *g,
                            const dtp_mesh *mesh, dtp_arena *arena, dtp_pin_set *out,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
