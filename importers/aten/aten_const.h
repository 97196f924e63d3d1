/* Constants of a graph: what depends on no parameter and no input (positions, masks, tables of
 * rotary positions), evaluated at the sizes of the export. */
#ifndef DTP_IMPORTERS_ATEN_ATEN_CONST_H
#define DTP_IMPORTERS_ATEN_ATEN_CONST_H

#include "importers/aten/const_kinds.h"

/* Evaluates nodes as they come, where sizes of later values depend on elements of earlier ones. */
typedef struct dtp_const_folder {
    const dtp_aten *g;
    int32_t capacity;
    dtp_const *c;                /* by value, from g's arena */
    int64_t elements, looked_at; /* in all */
} dtp_const_folder;

/* An input, which is known when it is a buffer; a node whose operands were evaluated. DTP_NOMEM. */
dtp_status dtp_const_buffer(dtp_const_folder *f, int32_t value, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_const_node(dtp_const_folder *f, const dtp_aten_node *node,
                          dtp_err *err) DTP_MUST_CHECK;
/* All values of a graph: one for each, from g's arena. DTP_NOMEM. */
dtp_status dtp_const_fold(const dtp_aten *g, dtp_const **out, dtp_err *err) DTP_MUST_CHECK;

#endif
