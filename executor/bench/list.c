/* What the bench measures as a list, for a runtime that is not ours: dtp_torch_bench.py of
 * interop/python runs the calls and gives their seconds back. Shapes and work are those of
 * dtp_bench_run, so that a machine is fitted from either in one way.
 */
#include "core/base/json.h"
#include "core/graph/ops/op_table.h"
#include "executor/bench/measure.h"

static const char *const KINDS[DTP_N_SAMPLE_KINDS] = {
    [DTP_SAMPLE_GEMM] = "product", [DTP_SAMPLE_OP] = "op",           [DTP_SAMPLE_RATE] = "op",
    [DTP_SAMPLE_MOVE] = "move",    [DTP_SAMPLE_COLL] = "collective", [DTP_SAMPLE_LAUNCH] = "launch",
    [DTP_SAMPLE_BESIDE] = "beside"};

/* ---- the list ---- */

static void begin(dtp_bench *b, const dtp_sample *sample)
{
    dtp_json_begin_line(b->list, NULL);
    dtp_json_write_string(b->list, "kind", KINDS[sample->kind]);
    dtp_json_write_string(b->list, "name", sample->name);
}

static void write_types(dtp_json_writer *w, const char *key, const dtp_graph *g,
                        const dtp_tensor_id *ids, int32_t n)
{
    dtp_json_begin_array(w, key, true);
    for (int32_t i = 0; i < n; i++) {
        const dtp_ttype *type = &g->tensors[ids[i]].type;
        dtp_json_begin_array(w, NULL, true);
        dtp_json_write_string(w, NULL, dtp_dtype_name(type->dtype));
        for (int32_t d = 0; d < type->rank; d++) {
            dtp_json_write_string(w, NULL, dtp_dims_name(&g->dims, type->dims[d].id));
            dtp_json_write_int(w, NULL, type->dims[d].size);
        }
        dtp_json_end_array(w);
    }
    dtp_json_end_array(w);
}

void dtp_bench_list_call(dtp_bench *b, const dtp_graph *g, const dtp_sample *sample)
{
    const dtp_node *n = &g->nodes[0];
    begin(b, sample);
    dtp_json_write_string(b->list, "arithmetic", dtp_arithmetic_name(sample->arithmetic));
    write_types(b->list, "in", g, n->in, n->n_in);
    write_types(b->list, "out", g, n->out, n->n_out);
    if (sample->kind == DTP_SAMPLE_BESIDE) {
        dtp_json_write_int(b->list, "bytes", b->scale->beside_bytes);
    }
    dtp_json_end_object(b->list);
}

void dtp_bench_list_move(dtp_bench *b, const dtp_sample *sample, int64_t rows, int64_t cols)
{
    const int64_t sizes[] = {rows, cols};
    begin(b, sample);
    dtp_json_write_ints(b->list, "sizes", 2, sizes);
    dtp_json_end_object(b->list);
}

void dtp_bench_list_collective(dtp_bench *b, const dtp_sample *sample)
{
    begin(b, sample);
    dtp_json_write_int(b->list, "ranks", sample->ranks);
    dtp_json_write_int(b->list, "bytes", (int64_t)sample->work.bytes);
    dtp_json_end_object(b->list);
}

/* ---- their times ---- */

dtp_status dtp_bench_take(dtp_samples *samples, const dtp_json *times, dtp_err *err)
{
    int32_t kept = 0;
    DTP_TRY(dtp_json_expect(times, DTP_JSON_ARRAY, err));
    if (dtp_json_size(times) != samples->n) {
        return dtp_json_fail(times, err, "%d times of %d samples", dtp_json_size(times),
                             samples->n);
    }
    for (int32_t i = 0; i < samples->n; i++) {
        const dtp_json *v = dtp_json_at(times, i);
        dtp_sample *s = &samples->items[i];
        double *const into[] = {&s->time_s, &s->slower[0], &s->slower[1]};
        const bool beside = s->kind == DTP_SAMPLE_BESIDE;
        if (dtp_json_kind_of(v) == DTP_JSON_NULL) {
            continue;
        }
        if (beside && (dtp_json_kind_of(v) != DTP_JSON_ARRAY || dtp_json_size(v) != 3)) {
            return dtp_json_fail(v, err, "expected an array of 3 numbers");
        }
        for (int32_t k = 0; k < (beside ? 3 : 1); k++) {
            DTP_TRY(dtp_json_double(beside ? dtp_json_at(v, k) : v, into[k], err));
        }
        if (!(s->time_s > 0.0 && s->time_s < 1e4)) {
            return dtp_json_fail(v, err, "a sample cannot take %g s", s->time_s);
        }
        samples->items[kept++] = *s;
    }
    samples->n = kept;
    return DTP_OK;
}
