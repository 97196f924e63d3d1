/* Shards in bounded memory: an iterator over the elements of one, and the collection of those
 * that the ranks of a group hold. */
#include "executor/run/collect.h"

#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"

enum { CHUNK_ELEMS = 1 << 16 };

dtp_shard_iterator dtp_shard_iterator_of(const dtp_shard *shard)
{
    dtp_shard_iterator iterator = {.runs = dtp_shard_runs_of(shard, shard)};
    iterator.used = iterator.runs.run; /* nothing of a run yet */
    return iterator;
}

bool dtp_shard_iterator_next(dtp_shard_iterator *iterator, int64_t most, int64_t *in_tensor,
                             int64_t *n)
{
    if (iterator->used == iterator->runs.run) {
        if (!dtp_shard_next(&iterator->runs)) {
            return false;
        }
        iterator->used = 0;
    }
    int64_t left = iterator->runs.run - iterator->used;
    *in_tensor = iterator->runs.in_tensor + iterator->used;
    *n = left < most ? left : most;
    iterator->used += *n;
    return true;
}

dtp_status dtp_collect_reduce(const dtp_collection *c, dtp_dtype dtype, int64_t n, void *data,
                              dtp_err *err)
{
    for (int32_t m = 0; m < c->layout.n_mesh; m++) {
        const dtp_placement *place = &c->layout.placement[m];
        if (place->kind != DTP_PARTIAL) {
            continue;
        }
        bool avg = place->op == DTP_REDUCE_AVG;
        dtp_coll coll = {.kind = DTP_ALL_REDUCE,
                         .set = (dtp_mesh_set)1 << m,
                         .op = avg ? DTP_REDUCE_SUM : (dtp_reduce_op)place->op,
                         .dtype = dtype,
                         .count = n};
        DTP_TRY(c->comm->ops->run(c->comm, &coll, data, data, err));
        for (int64_t i = 0; avg && i < n; i++) {
            const double sum = dtp_element(dtype, data, i);
            dtp_element_set(dtype, data, i, sum / (double)c->mesh->sizes[m]);
        }
    }
    return DTP_OK;
}

/* Whether a rank has the tensor. */
static bool has(const dtp_collection *c, int32_t rank)
{
    return c->stages == 0 || (c->stages >> dtp_mesh_set_index(c->mesh, 1, rank) & 1) != 0;
}

dtp_status dtp_collect_prepare(dtp_collection *c, dtp_err *err)
{
    dtp_ttype largest;
    dtp_layout_local_max(&c->layout, c->mesh, c->type, &largest);
    c->width = dtp_dtype_bytes(c->type->dtype);
    c->elems = dtp_ttype_elems(&largest);
    c->chunk = c->elems < CHUNK_ELEMS ? c->elems : CHUNK_ELEMS;
    c->members = dtp_mesh_set_size(c->mesh, c->set);
    c->mine = calloc(1, (size_t)(c->chunk * c->width) + 1);
    c->all = calloc((size_t)c->members, (size_t)(c->chunk * c->width) + 1);
    c->iterators = calloc((size_t)c->members, sizeof *c->iterators);
    DTP_TRY(DTP_MEMORY(err, c->mine, c->all, c->iterators));
    for (int32_t j = 0; j < c->members; j++) {
        const int32_t rank = dtp_mesh_set_member(c->mesh, c->set, c->comm->rank, j);
        const dtp_shard shard = dtp_shard_of(c->type, &c->layout, c->mesh, rank);
        c->iterators[j] = dtp_shard_iterator_of(&shard);
        c->iterators[j].absent = !has(c, rank);
    }
    return DTP_OK;
}

/* Hands out what member j has shown. */
static void hand_out(const dtp_collection *c, int32_t j, int64_t n)
{
    const char *shown = c->all + j * n * c->width;
    int64_t at, run;
    for (int64_t done = 0; done < n && !c->iterators[j].absent &&
                           dtp_shard_iterator_next(&c->iterators[j], n - done, &at, &run);
         done += run) {
        const char *data = shown + done * c->width;
        if (c->out != NULL) {
            memcpy((char *)c->out + at * c->width, data, (size_t)(run * c->width));
        } else {
            c->visit(c->user, at, data, run);
        }
    }
}

dtp_status dtp_collect_run(dtp_collection *c, dtp_err *err)
{
    const dtp_shard shard = dtp_shard_of(c->type, &c->layout, c->mesh, c->comm->rank);
    const int64_t own = has(c, c->comm->rank) ? dtp_shard_elems(&shard) : 0;
    for (int64_t first = 0; first < c->elems; first += c->chunk) {
        const int64_t n = c->elems - first < c->chunk ? c->elems - first : c->chunk;
        const int64_t left = own < first ? 0 : own - first, have = left < n ? left : n;
        const dtp_coll coll = {
            .kind = DTP_ALL_GATHER, .set = c->set, .dtype = c->type->dtype, .count = n};
        if (have > 0) {
            const char *from = (const char *)c->data + first * c->width;
            DTP_TRY(c->backend->ops->download(c->backend, c->mine, from, (size_t)(have * c->width),
                                              err));
        }
        memset(c->mine + have * c->width, 0, (size_t)((n - have) * c->width));
        DTP_TRY(dtp_collect_reduce(c, c->type->dtype, n, c->mine, err));
        DTP_TRY(c->comm->ops->run(c->comm, &coll, c->mine, c->all, err));
        for (int32_t j = 0; j < c->members && (c->out != NULL || c->visit != NULL); j++) {
            hand_out(c, j, n);
        }
    }
    return DTP_OK;
}

void dtp_collect_free(dtp_collection *c)
{
    free(c->mine);
    free(c->all);
    free(c->iterators);
}
