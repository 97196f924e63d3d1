/* Which copies the backward pass gathers again, so that a program fits into memory. */
#include "cost_models/regather_choice.h"

#include <stdlib.h>

#include "core/transform/regather.h"
#include "spmd/program/peak.h"

enum { MAX_TRIES = 5 }; /* of how many copies are made again */

/* A tensor with a copy that the forward pass makes and the backward pass reads. */
typedef struct kept_copy {
    dtp_tensor_id tensor;
    int64_t bytes;
} kept_copy;

static int larger_first(const void *a, const void *b)
{
    const kept_copy *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1)
                                : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static dtp_status find_kept(const dtp_program *p, dtp_arena *arena, int32_t *n, kept_copy **out,
                            dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, *out, (size_t)p->n_values + 1, err));
    *n = 0;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        if (dtp_value_is_kept_copy(p, v)) {
            (*out)[(*n)++] = (kept_copy){p->values[v].tensor, p->values[v].bytes};
        }
    }
    qsort(*out, (size_t)*n, sizeof **out, larger_first);
    return DTP_OK;
}

/* The peak when copies of the first tensors of the list are made again. */
static dtp_status peak_with(const dtp_graph *g, const dtp_lower_options *serial,
                            const kept_copy *copies, int32_t n, bool *again, dtp_sharding *s,
                            int64_t *peak, dtp_err *err)
{
    dtp_program *p = NULL;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        again[t] = dtp_graph_param_of(g, t) >= 0 || g->tensors[t].recomputed;
    }
    for (int32_t i = 0; i < n; i++) {
        again[copies[i].tensor] = true;
    }
    s->regather = again;
    DTP_TRY(dtp_lower(g, s, serial, &p, err));
    *peak = p->peak_bytes;
    dtp_program_destroy(p);
    return DTP_OK;
}

static dtp_status choose(const dtp_program *p, const dtp_lower_options *serial, int64_t limit,
                         dtp_arena *arena, dtp_sharding *s, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const int64_t kept_peak = p->peak_bytes;
    kept_copy *copies = NULL;
    bool *again;
    int32_t n = 0;
    DTP_TRY(find_kept(p, arena, &n, &copies, err));
    if (n == 0) {
        return DTP_OK;
    }
    int64_t peak = 0;
    DTP_TRY(DTP_NEW(arena, again, (size_t)g->n_tensors + 1, err));
    DTP_TRY(peak_with(g, serial, copies, n, again, s, &peak, err));
    if (peak >= kept_peak) {
        s->regather = NULL;
        return DTP_OK;
    }
    int32_t few = 0, enough = n; /* too few are made again, and enough */
    for (int32_t i = 0; i < MAX_TRIES && peak <= limit && few + 1 < enough; i++) {
        const int32_t middle = (few + enough) / 2;
        int64_t with = 0;
        DTP_TRY(peak_with(g, serial, copies, middle, again, s, &with, err));
        few = with > limit ? middle : few;
        enough = with > limit ? enough : middle;
    }
    return peak_with(g, serial, copies, enough, again, s, &peak, err);
}

dtp_status dtp_regather_choose(const dtp_program *p, const dtp_lower_options *options,
                               int64_t limit, dtp_arena *arena, dtp_sharding *s, bool *decided,
                               dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const dtp_target *target = options->target;
    dtp_lower_options serial = *options;
    *decided =
        target->fsdp || target->regathers || s->regather != NULL || dtp_sharding_has_replicas(s);
    for (dtp_tensor_id t = 0; t < g->n_tensors && !*decided; t++) {
        *decided = g->tensors[t].copies != DTP_COPIES_USUAL;
    }
    if (*decided) {
        *decided = false;
        return DTP_OK;
    }
    serial.overlap = (dtp_overlap){.bucket_bytes = options->overlap.bucket_bytes};
    serial.kept = serial.unplaced = false;
    DTP_TRY(choose(p, &serial, limit, arena, s, err));
    *decided = s->regather != NULL;
    return DTP_OK;
}
