/* Styles and pins on the command line: --style, --style-file, --style-names, --pin, --strict. */
#ifndef DTP_TOOLS_STYLES_H
#define DTP_TOOLS_STYLES_H

#include "tools/options.h"

typedef struct tool_style_source {
    tool_list styles; /* "GLOB: STYLE" */
    tool_list files;  /* Hugging Face style plans */
    tool_list names;  /* THEIRS=OURS, for the files */
    tool_list pins;   /* "TENSOR: LAYOUT" */
    bool strict;
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
static inline bool tool_styles_given(const tool_style_source *source)
{
    return source->styles.n + source->files.n + source->pins.n > 0;
}

#endif
