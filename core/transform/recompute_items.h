/* An item of a list of recomputation as it is read; for recompute*.c alone. */
#ifndef DTP_CORE_TRANSFORM_RECOMPUTE_ITEMS_H
#define DTP_CORE_TRANSFORM_RECOMPUTE_ITEMS_H

#include "core/transform/recompute.h"

/* A block's name of so many bytes, the instances first..last, and what is kept. Borrowed from the
 * text. */
typedef struct dtp_remat_item {
    const char *name;
    size_t name_bytes;
    int64_t first, last; /* last -1: all from the first on */
    const char *keep;    /* globs with commas between them; NULL: none */
} dtp_remat_item;

/* DTP_INVALID on other texts; whether block and globs are in a graph is not looked at. */
dtp_status dtp_remat__read_item(const char *text, dtp_remat_item *out, dtp_err *err) DTP_MUST_CHECK;
/* Whether a node is of the block and the instances. */
bool dtp_remat__is_of_item(const dtp_graph *g, const dtp_node *node, const dtp_remat_item *it);
/* Whether it is a forward node of them whose results are kept. */
bool dtp_remat__keeps(const dtp_graph *g, const dtp_remat_item *it, const dtp_node *node);

#endif
