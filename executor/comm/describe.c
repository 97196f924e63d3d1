/* What ranks do that disagree, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "executor/comm/communicator_internal.h"

void dtp_comm__describe(int32_t rank, const dtp_coll *coll, char *out, size_t room)
{
    if (coll == NULL) {
        snprintf(out, room, "rank %d: barrier", rank);
        return;
    }
    bool reduces = dtp_coll_reduces(coll->kind);
    snprintf(out, room,
             "rank %d: %s%s%s over mesh dims 0x%x of %" PRId64 " x %s, cut %" PRId64 " to %" PRId64
             ", shift %d",
             rank, dtp_coll_name(coll->kind), reduces ? " " : "",
             reduces ? dtp_reduce_op_name(coll->op) : "", (unsigned)coll->set, coll->count,
             dtp_dtype_name(coll->dtype), coll->in_outer, coll->out_outer, coll->shift);
}

static bool alike(const dtp_comm__visit *a, const dtp_comm__visit *b)
{
    if (a->state != b->state || a->state != DTP_COMM_VISIT_WAITS) {
        return a->state == b->state;
    }
    return a->coll == b->coll ||
           (a->coll != NULL && b->coll != NULL && dtp_comm__same(a->coll, b->coll));
}

/* Ranks after r that are like it; -1 when one before it is. */
static int32_t count_alike(int32_t n, const dtp_comm__visit *visits, int32_t r)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i != r && alike(&visits[i], &visits[r])) {
            if (i < r) {
                return -1;
            }
            count++;
        }
    }
    return count;
}

void dtp_comm__describe_waits(int32_t n, const dtp_comm__visit *visits, char out[DTP_ERR_MSG_BYTES])
{
    size_t used = (size_t)snprintf(out, DTP_ERR_MSG_BYTES, "the ranks wait for each other");
    const char *between = ": ";
    for (int32_t r = 0; r < n && used < DTP_ERR_MSG_BYTES - 240; r++) {
        int32_t more = count_alike(n, visits, r);
        if (visits[r].state == DTP_COMM_VISIT_NONE || more < 0) {
            continue;
        }
        char what[192], others[32] = "";
        if (visits[r].state == DTP_COMM_VISIT_WAITS) {
            dtp_comm__describe(r, visits[r].coll, what, sizeof what);
        } else {
            snprintf(what, sizeof what, "rank %d: has ended", r);
        }
        if (more > 0) {
            snprintf(others, sizeof others, " (and %d alike)", more);
        }
        used +=
            (size_t)snprintf(out + used, DTP_ERR_MSG_BYTES - used, "%s%s%s", between, what, others);
        between = "; ";
    }
}
