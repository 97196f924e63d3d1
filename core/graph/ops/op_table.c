/* The table of the built-in ops: a constant op set of the families of this folder. */
#include "core/graph/ops/op_table.h"

/* The families in table order: X(family) stands for the rows dtp_ops_<family>[] of
 * core/graph/ops/<family>.c, ended by a row without a name. */
#define FAMILIES(X)                                                                                \
    X(elementwise)                                                                                 \
    X(einsum)                                                                                      \
    X(reduce)                                                                                      \
    X(order)                                                                                       \
    X(shape)                                                                                       \
    X(lookup)                                                                                      \
    X(fill)                                                                                        \
    X(softmax)                                                                                     \
    X(norm)                                                                                        \
    X(cross_entropy)                                                                               \
    X(attention)                                                                                   \
    X(sequence)                                                                                    \
    X(optimizer)                                                                                   \
    X(conv)                                                                                        \
    X(pool)                                                                                        \
    X(fused)                                                                                       \
    X(fused_product)

#define DECLARE(family) extern const dtp_op_def dtp_ops_##family[];
FAMILIES(DECLARE)

#define LIST(family) dtp_ops_##family,
static const dtp_op_def *const LISTS[] = {FAMILIES(LIST)};

static const dtp_op_set BUILTIN = {.n_lists = sizeof LISTS / sizeof LISTS[0], .lists = LISTS};

const dtp_op_set *dtp_builtin_ops(void)
{
    return &BUILTIN;
}

const dtp_op_def *dtp_op_find(const char *name)
{
    return dtp_op_set_find(&BUILTIN, name);
}

int32_t dtp_op_count(void)
{
    return dtp_op_set_count(&BUILTIN);
}

const dtp_op_def *dtp_op_at(int32_t index)
{
    return dtp_op_set_at(&BUILTIN, index);
}

const dtp_op_def *dtp_op_rates(const dtp_op_def *op)
{
    return op->rates == NULL ? op : dtp_op_find(op->rates);
}
