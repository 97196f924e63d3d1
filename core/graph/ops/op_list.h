/* The families of the op table, in table order: X(family) stands for the rows that
 * core/graph/ops/<family>.c exports as dtp_ops_<family>[] and dtp_ops_<family>_count. */
#define DTP_OP_FAMILIES(X)                                                                         \
    X(unary)                                                                                       \
    X(binary)                                                                                      \
    X(logical)                                                                                     \
    X(einsum)                                                                                      \
    X(reduce)                                                                                      \
    X(row_stats)                                                                                   \
    X(scan)                                                                                        \
    X(order)                                                                                       \
    X(relabel)                                                                                     \
    X(slice)                                                                                       \
    X(arrange)                                                                                     \
    X(gather)                                                                                      \
    X(fill)                                                                                        \
    X(random)                                                                                      \
    X(softmax)                                                                                     \
    X(layer_norm)                                                                                  \
    X(rms_norm)                                                                                    \
    X(embedding)                                                                                   \
    X(cross_entropy)                                                                               \
    X(attention)                                                                                   \
    X(attention_part)                                                                              \
    X(rotate)                                                                                      \
    X(rope)                                                                                        \
    X(optimizer)
