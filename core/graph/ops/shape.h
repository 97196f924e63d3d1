/* What relabel, a row-major reshape to other dim names, does to the dims. */
#ifndef DTP_CORE_GRAPH_OPS_SHAPE_H
#define DTP_CORE_GRAPH_OPS_SHAPE_H

#include "core/graph/op.h"

/* Consecutive dims of operand and result with equal products: [in_first, in_first + n_in) becomes
 * [out_first, out_first + n_out). A smallest such group; dims of size 1 join the group before them.
 */
typedef struct dtp_relabel_group {
    int32_t in_first, n_in, out_first, n_out;
} dtp_relabel_group;

/* Factors a relabel into groups, left to right; returns how many, -1 when the products differ. */
int32_t dtp_relabel_groups(const dtp_ttype *in, const dtp_ttype *out,
                           dtp_relabel_group groups[DTP_MAX_RANK + 1]);

#endif
