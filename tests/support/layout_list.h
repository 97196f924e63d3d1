/* Every layout of a tensor on a mesh, shard orders included: for tests and benchmarks that go
 * through all pairs. */
#ifndef DTP_TESTS_SUPPORT_LAYOUT_LIST_H
#define DTP_TESTS_SUPPORT_LAYOUT_LIST_H

#include "core/layout/layout.h"

typedef struct layout_list {
    int32_t n, capacity;
    dtp_layout *items;
} layout_list;

/* Every mesh dim replicated or on one of the tensor dims in every order; with `partial` also
 * partial of `op`. Aborts when memory runs out. */
layout_list layout_list_all(int32_t rank, int32_t n_mesh, bool partial, dtp_reduce_op op);
void layout_list_free(layout_list *list);

#endif
