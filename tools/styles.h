/* Styles and pins on the command line: --style, --style-file, --style-names, --pin, --strict. */
#ifndef DTP_TOOLS_STYLES_H
#define DTP_TOOLS_STYLES_H

#include "core/plan/plan.h"
#include "planner/styles/pin_texts.h"
#include "tools/options.h"

typedef struct tool_style_source {
    tool_list styles; /* "GLOB: STYLE" */
    tool_list files;  /* Hugging Face style plans */
    tool_list names;  /* THEIRS=OURS, for the files */
    tool_list pins;   /* "TENSOR: LAYOUT" */
    bool strict;
    dtp_styles read; /* of tool_styles_texts */
} tool_style_source;

/* clang-format off */
#define TOOL_STYLE_OPTIONS(source)                                                                 \
    {"--style", TOOL_LIST, "GLOB:STYLE", &(source).styles, 0, 0,                                   \
     "a style for nodes or parameters, such as 'layers.*.mlp.up: colwise'"},                       \
    {"--style-file", TOOL_LIST, "FILE", &(source).files, 0, 0,                                     \
     "style plan of Hugging Face's transformers, JSON"},                                           \
    {"--style-names", TOOL_LIST, "THEIRS=OURS", &(source).names, 0, 0,                             \
     "name in a style file and the model's name for it"},                                          \
    {"--pin", TOOL_LIST, "TENSOR:LAYOUT", &(source).pins, 0, 0,                                    \
     "a layout that must hold, such as 'h: batch@x' or 'w1 at h: replicated'"}
/* clang-format on */

/* Whether any style or pin was given. */
bool tool_styles_given(const tool_style_source *source);

/* The texts of the styles and pins (planner/styles/pin_texts.h), from `arena`. */
dtp_status tool_styles_texts(tool_style_source *source, dtp_arena *arena, int32_t *n,
                             const char ***out, dtp_err *err) DTP_MUST_CHECK;

/* Puts the place in its file before an error about a style from a file; s: of the planning. The
 * planner knows only the texts of styles, which stand in plans too. Returns s. */
dtp_status tool_styles_say_place(const tool_style_source *source, dtp_status s, dtp_err *err);

/* The pins that a plan's list says it was made from; none for other plans. */
dtp_status tool_styles_of_plan(const dtp_plan *plan, const dtp_graph *g, dtp_arena *arena,
                               dtp_pin_set *out, dtp_err *err) DTP_MUST_CHECK;

/* --strict on a finished decision: DTP_INVALID naming node, operand and both layouts when an
 * operand has to be sent somewhere that no pin asked for. An update may reduce its gradient, and so
 * may a sum over microbatches. */
dtp_status tool_strict_check(const dtp_graph *g, const dtp_sharding *sharding,
                             const dtp_redistributor *redistributor, const dtp_pin_set *pins,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
