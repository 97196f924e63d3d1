/* Workspace of the CPU kernels of attention, its gradient and their parts: one tile set per
 * thread, never the scores of a whole head. */
#include "spmd/target/cpu_attention.h"

#include "core/graph/ops/attention_split.h"

int64_t dtp_attention_tile_elems(int64_t feature, int64_t value)
{
    const int64_t q = DTP_ATTENTION_QUERIES, k = DTP_ATTENTION_KEYS;
    return 2 * q * k + 2 * (q + k) * (feature + value) + 4 * q;
}

int64_t dtp_attention_workspace(const dtp_op_call *call)
{
    dtp_attention_dims a = dtp_attention_dims_of(call);
    int64_t f = dtp_attention_features(call, &a), v = dtp_attention_values(call, &a);
    int64_t queries = dtp_ttype_size(&call->in[0], a.query);
    int64_t heads = dtp_ttype_elems(&call->in[0]) / (f * queries > 0 ? f * queries : 1);
    int64_t blocks = (queries + DTP_ATTENTION_QUERIES - 1) / DTP_ATTENTION_QUERIES;
    int64_t threads = heads * blocks;
    threads = threads < 1 ? 1 : threads;
    threads = threads > DTP_ATTENTION_MAX_THREADS ? DTP_ATTENTION_MAX_THREADS : threads;
    int64_t bytes = call->in[0].dtype == DTP_F64 ? 8 : 4;
    return threads * dtp_attention_tile_elems(f, v) * bytes;
}
