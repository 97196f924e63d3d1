/* A constant of a graph: its elements at the sizes of the export, and what it is found to be. */
#ifndef DTP_IMPORTERS_ATEN_CONST_KINDS_H
#define DTP_IMPORTERS_ATEN_CONST_KINDS_H

#include <math.h>

#include "importers/aten/aten_graph.h"

typedef enum dtp_const_kind {
    DTP_CONST_OTHER,
    DTP_CONST_UNIFORM, /* `low` everywhere */
    DTP_CONST_INDEX,   /* low + the index along axis[0], the same along all others */
    DTP_CONST_LINEAR,  /* low + high times that index */
    DTP_CONST_STEP /* along a diagonal of two axes: `low` where the index of axis[1] less that of
                          axis[0] is at most `at`, else `high` */
} dtp_const_kind;

typedef struct dtp_const {
    bool is; /* a constant */
    /* Its elements; NULL: not known (a tensor of the meta device, an op that is not evaluated, too
     * many elements). */
    const void *data;
    bool truth;                    /* uint8_t, else double */
    int64_t extent, first;         /* elements of `data`; the one at index 0 */
    int64_t strides[DTP_MAX_RANK]; /* in elements; 0: the same along this axis */
    dtp_const_kind kind;           /* what can be written down; OTHER when it is not known */
    int32_t axis[2];
    int64_t at;
    double low, high;
} dtp_const;

static inline bool dtp_const_known(const dtp_const *c)
{
    return c->data != NULL;
}

/* NaN where there is no element: sizes are what the file says, and may lead elsewhere. */
static inline double dtp_const_at(const dtp_const *c, int64_t offset)
{
    offset += c->first;
    if (offset < 0 || offset >= c->extent) {
        return (double)NAN;
    }
    return c->truth ? (double)((const uint8_t *)c->data)[offset]
                    : ((const double *)c->data)[offset];
}

/* Finds the kind of a constant. */
void dtp_const_judge(dtp_const *c, const dtp_aten_value *v);
/* Over the last two axes, aligned at their ends: true (or 0) where key <= query, else false (or
 * -1e9 and less). */
bool dtp_const_is_causal(const dtp_const *c, const dtp_aten_value *v);

#endif
