/* Styles of the byte-level GPT for rows of dtp_plan_options. */
#ifndef DTP_TESTS_SUPPORT_PLAN_STYLES_H
#define DTP_TESTS_SUPPORT_PLAN_STYLES_H

#include "tests/support/plan_case.h"

#define PINS_MODE .mode = DTP_PLAN_PINS
#define SEQUENCE_PARALLEL                                                                          \
    PLAN_STYLES("layers.*.{attn.{q,k,v}*,mlp.up*}:colwise",                                        \
                "layers.*.{attn.mm,mlp.down.mm}:rowwise(output=length)",                           \
                "{layers.*.ln_*,ln_f}:sequence")
#define RING_PARALLEL PLAN_STYLES("layers.*.attn:context(ring)"), PLAN_PINS("x0:length@cp")

#endif
