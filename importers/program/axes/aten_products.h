/* Products of tensors as torch.einsum says them: "...i,oi->...o". */
#ifndef DTP_IMPORTERS_PROGRAM_AXES_ATEN_PRODUCTS_H
#define DTP_IMPORTERS_PROGRAM_AXES_ATEN_PRODUCTS_H

#include "importers/aten/aten_graph.h"

enum { DTP_MOST_FACTORS = 8, DTP_MOST_LABELS = 32 };

/* Axes of one label are walked together; labels that the result lacks are summed over. */
typedef struct dtp_product {
    int32_t n, labels; /* factors; labels are 0 .. labels-1 */
    int32_t values[DTP_MOST_FACTORS];
    int8_t of[DTP_MOST_FACTORS][DTP_MAX_RANK], out[DTP_MAX_RANK]; /* the label of each axis */
    int32_t factor[DTP_MOST_LABELS]; /* one whose axis has the label, not of size 1 if there is */
    int32_t axis[DTP_MOST_LABELS];   /* that axis of it */
    int32_t added;                   /* what is added to the product, over its last axes; -1 */
} dtp_product;

/* The product that a node is. DTP_UNSUPPORTED: it is none, or one of other forms. */
dtp_status dtp_product_of(const dtp_aten *g, const dtp_aten_node *node, dtp_product *out,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
