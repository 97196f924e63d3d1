/* Initial values of parameters and states. */
#include "core/base/philox.h"
#include "core/base/safe_int.h"
#include "executor/device/convert.h"
#include "executor/session/feed.h"

static double init_value(const dtp_graph_tensor *t, uint64_t seed, uint64_t index)
{
    const dtp_init *init = &t->init;
    switch (init->kind) {
    case DTP_INIT_ONES:
        return 1.0;
    case DTP_INIT_CONSTANT:
        return init->a;
    case DTP_INIT_UNIFORM:
        return init->a + (init->b - init->a) * dtp_uniform_at(seed, t->stream, 0, index);
    default:
        return 0.0;
    }
}

dtp_status dtp_init_fill(const dtp_graph_tensor *tensor, uint64_t seed, const dtp_shard *shard,
                         int32_t threads, void *out, dtp_err *err)
{
    enum { BLOCK = 4096 };
    dtp_dtype dtype = tensor->type.dtype;
    if (!dtp_dtype_is_float(dtype) &&
        (tensor->init.kind == DTP_INIT_NORMAL || tensor->init.kind == DTP_INIT_UNIFORM)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s': random initial values of type %s",
                        tensor->name, dtp_dtype_name(dtype));
    }
    dtp_shard_runs it = dtp_shard_runs_of(shard, shard);
    while (dtp_shard_next(&it)) {
        int64_t first = it.in_tensor, to = it.in_whole, n = it.run;
        int64_t blocks = dtp_ceil_div(n, BLOCK);
#pragma omp parallel for num_threads(threads > 0 ? threads : 1) if (blocks > 1)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t start = b * BLOCK, left = n - start, size = left < BLOCK ? left : BLOCK;
            double normal[4];
            bool random = tensor->init.kind == DTP_INIT_NORMAL;
            for (int64_t i = 0; i < size; i++) {
                uint64_t index = (uint64_t)(first + start + i);
                if (random && (i == 0 || index % 4 == 0)) {
                    dtp_normal_block(seed, tensor->stream, 0, index / 4, normal);
                }
                double v = random ? tensor->init.b + tensor->init.a * normal[index % 4]
                                  : init_value(tensor, seed, index);
                dtp_element_set(tensor->type.dtype, out, to + start + i, v);
            }
        }
    }
    return DTP_OK;
}
