#include "executor/comm/communicator_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    dtp_mesh mesh;
    dtp_comm__world *world;
} member;

struct dtp_sim_pool {
    int32_t n, capacity;
    member *members;
};

dtp_status dtp_sim_pool_create(dtp_sim_pool **out, dtp_err *err)
{
    *out = calloc(1, sizeof **out);
    return DTP_MEMORY(err, *out);
}

void dtp_sim_pool_destroy(dtp_sim_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (int32_t i = 0; i < pool->n; i++) {
        dtp_comm__world_destroy(pool->members[i].world);
    }
    free(pool->members);
    free(pool);
}

static bool same_mesh(const dtp_mesh *a, const dtp_mesh *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int32_t m = 0; same && m < a->n_dims; m++) {
        same = a->sizes[m] == b->sizes[m] && strcmp(a->names[m], b->names[m]) == 0;
    }
    return same;
}

dtp_status dtp_sim_pool_run(dtp_sim_pool *pool, const dtp_mesh *mesh, dtp_rank_body body,
                            void *user, dtp_err *err)
{
    if (pool == NULL) {
        return dtp_comm_sim_run(mesh, body, user, err);
    }
    int32_t i = 0;
    while (i < pool->n && !same_mesh(&pool->members[i].mesh, mesh)) {
        i++;
    }
    if (i == pool->n) {
        if (pool->n == pool->capacity) {
            const int32_t capacity = 2 * pool->capacity + 4;
            member *members = realloc(pool->members, (size_t)capacity * sizeof *members);
            DTP_TRY(DTP_MEMORY(err, members));
            pool->members = members;
            pool->capacity = capacity;
        }
        member *last = &pool->members[pool->n];
        last->mesh = *mesh;
        DTP_TRY(dtp_comm__world_create(mesh, &last->world, err));
        pool->n++;
    }
    return dtp_comm__world_run(pool->members[i].world, body, user, err);
}
