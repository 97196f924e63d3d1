/* Times of matrix products and attention on a device by shape, with a few constants for each
 * arithmetic and each family of attention kernels (docs/cost-model.md). */
#include "cost_models/machine/kernel_model.h"

#include <math.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/graph/op.h"

enum { MAX_MULTIPROCESSORS = 1 << 16, QUERIES = 128, MOST_PARTS = 8 };

/* A tile of a result, and its time a FLOP beside the largest. */
static const struct tile {
    double m, n, cost;
} TILES[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 1.15}, {128, 64, 1.45}, {64, 128, 1.45}};

static const double SPLIT_S = 0.25e-6; /* adding up, for each part of k */
static const double BURST_S = 1e-3;    /* before the clock falls */

/* ---- reading and writing ---- */

typedef struct field {
    const char *key;
    size_t offset;
    double missing; /* what it is then, where it is not required */
    dtp_machine_number number;
    bool required;
} field;

#define OF_PRODUCT(name) offsetof(dtp_product_model, name)
#define OF_ATTENTION(name) offsetof(dtp_attention_model, name)

static const field PRODUCT[] = {{"rate", OF_PRODUCT(rate), 0.0, DTP_NUMBER_SHARE, true},
                                {"burst", OF_PRODUCT(burst), 1.0, DTP_NUMBER_SLOWDOWN, false},
                                {"ramp", OF_PRODUCT(ramp), 0.0, DTP_NUMBER_EXTRA, true},
                                {"start_s", OF_PRODUCT(start_s), 0.0, DTP_NUMBER_DELAY, true},
                                {"memory", OF_PRODUCT(memory), 0.0, DTP_NUMBER_SHARE, true},
                                {"quantize", OF_PRODUCT(quantize), 0.0, DTP_NUMBER_EXTRA, false},
                                {.key = NULL}};
static const field ATTENTION[] = {{"rate", OF_ATTENTION(rate), 0.0, DTP_NUMBER_SHARE, true},
                                  {"grad", OF_ATTENTION(grad), 0.0, DTP_NUMBER_SHARE, true},
                                  {"score", OF_ATTENTION(score), 0.0, DTP_NUMBER_EXTRA, true},
                                  {"start_s", OF_ATTENTION(start_s), 0.0, DTP_NUMBER_DELAY, true},
                                  {"memory", OF_ATTENTION(memory), 0.0, DTP_NUMBER_SHARE, true},
                                  {.key = NULL}};

static double *number_of(const void *model, const field *f)
{
    return (double *)(void *)((char *)(uintptr_t)model + f->offset);
}

static dtp_status read_model(const dtp_json *v, const field *fields, void *model, dtp_err *err)
{
    const char *keys[8] = {NULL};
    for (int32_t i = 0; fields[i].key != NULL; i++) {
        keys[i] = fields[i].key;
    }
    DTP_TRY(dtp_json_keys(v, keys, err));
    for (const field *f = fields; f->key != NULL; f++) {
        const dtp_json *at = dtp_json_get(v, f->key);
        *number_of(model, f) = f->missing;
        if (at == NULL && f->required) {
            return dtp_json_require(v, f->key, &at, err);
        }
        if (at != NULL) {
            DTP_TRY(dtp_machine__read_number(at, f->number, number_of(model, f), err));
        }
    }
    return DTP_OK;
}

static dtp_status read_products(dtp_machine *m, const dtp_json *list, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(list, DTP_JSON_OBJECT, err));
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        const dtp_json *v = dtp_json_at(list, i);
        dtp_arithmetic of = DTP_F32;
        DTP_TRY(dtp_json_prefixed(v, dtp_arithmetic_parse(dtp_json_key(v), &of, err), err));
        if (!(m->flops[of] > 0.0)) {
            return dtp_json_fail(v, err, "device.flops states no rate of %s", dtp_json_key(v));
        }
        DTP_TRY(read_model(v, PRODUCT, &m->products[of], err));
    }
    return DTP_OK;
}

static dtp_status read_attention(dtp_machine *m, const dtp_json *list, dtp_err *err)
{
    static const char *const KERNELS[] = {"fa2", "fa3", "cudnn", NULL};
    DTP_TRY(dtp_json_expect(list, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(list, KERNELS, err));
    for (int32_t i = 0; i < dtp_json_size(list); i++) {
        dtp_attention_model *model = &m->attention[i];
        model->kernel = dtp_arena_strdup(m->arena, dtp_json_key(dtp_json_at(list, i)));
        DTP_TRY(DTP_MEMORY(err, model->kernel));
        DTP_TRY(read_model(dtp_json_at(list, i), ATTENTION, model, err));
    }
    m->n_attention = dtp_json_size(list);
    return DTP_OK;
}

dtp_status dtp_kernel_models_read(dtp_machine *m, const dtp_json *device, dtp_err *err)
{
    const dtp_json *products = dtp_json_get(device, "products");
    const dtp_json *attention = dtp_json_get(device, "attention");
    int64_t n = 0;
    if (products == NULL && attention == NULL && dtp_json_get(device, "multiprocessors") == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_get_int(device, "multiprocessors", 1, MAX_MULTIPROCESSORS, &n, err));
    m->multiprocessors = (int32_t)n;
    DTP_TRY(products != NULL ? read_products(m, products, err) : DTP_OK);
    return attention != NULL ? read_attention(m, attention, err) : DTP_OK;
}

static void write_model(dtp_json_writer *w, const char *key, const field *fields, const void *model)
{
    dtp_json_begin_object(w, key);
    for (const field *f = fields; f->key != NULL; f++) {
        dtp_json_write_double(w, f->key, *number_of(model, f));
    }
    dtp_json_end_object(w);
}

void dtp_kernel_models_write(dtp_json_writer *w, const dtp_machine *m)
{
    if (m->multiprocessors == 0) {
        return;
    }
    dtp_json_write_int(w, "multiprocessors", m->multiprocessors);
    dtp_json_begin_object(w, "products");
    for (dtp_arithmetic a = 0; a < DTP_N_ARITHMETICS; a++) {
        if (m->products[a].rate > 0.0) {
            write_model(w, dtp_arithmetic_name(a), PRODUCT, &m->products[a]);
        }
    }
    dtp_json_end_object(w);
    dtp_json_begin_object(w, "attention");
    for (int32_t i = 0; i < m->n_attention; i++) {
        write_model(w, m->attention[i].kernel, ATTENTION, &m->attention[i]);
    }
    dtp_json_end_object(w);
}

static uint64_t hash_model(uint64_t h, const field *fields, const void *model)
{
    for (const field *f = fields; f->key != NULL; f++) {
        h = dtp_hash_double(h, *number_of(model, f));
    }
    return h;
}

uint64_t dtp_kernel_models__hash(uint64_t h, const dtp_machine *m)
{
    if (m->multiprocessors == 0) {
        return h;
    }
    h = dtp_hash_i64(h, m->multiprocessors);
    for (dtp_arithmetic a = 0; a < DTP_N_ARITHMETICS; a++) {
        h = hash_model(h, PRODUCT, &m->products[a]);
    }
    const int32_t used = m->shares.kernel;
    h = used >= 0 ? hash_model(h, ATTENTION, &m->attention[used]) : h;
    return used >= 0
               ? dtp_hash_double(dtp_hash_double(h, m->shares.attention), m->shares.attention_grad)
               : h;
}

/* ---- products ---- */

dtp_arithmetic dtp_product_model_of(const dtp_machine *m, dtp_arithmetic arithmetic)
{
    const bool like_bf16 = arithmetic == DTP_F16 || arithmetic == DTP_TF32;
    const dtp_arithmetic of =
        like_bf16 && !(m->products[arithmetic].rate > 0.0) ? (dtp_arithmetic)DTP_BF16 : arithmetic;
    const bool has =
        m->multiprocessors > 0 && m->products[of].rate > 0.0 && m->flops[arithmetic] > 0.0;
    return has ? of : -1;
}

/* ceil(x) of what is at least 0, without a call: products are priced very often. */
static inline double up(double x)
{
    const double whole = x < 1e15 ? (double)(int64_t)x : x;
    return whole < x ? whole + 1.0 : whole;
}

/* Seconds of the FLOPs of a call, of multiprocessors that make `flops` FLOP/s each. */
static double tiles_s(const dtp_product_model *model, double flops, double multiprocessors,
                      const dtp_work *w)
{
    const double m = (double)w->m, n = (double)w->n, k = (double)w->k;
    double best_s = INFINITY;
    for (size_t i = 0; i < sizeof TILES / sizeof TILES[0]; i++) {
        const struct tile *t = &TILES[i];
        const double tiles = (double)w->batch * up(m / t->m) * up(n / t->n);
        const double step_s = 2.0 * t->m * t->n * t->cost / flops;   /* of 1 of k */
        const double least_s = tiles / multiprocessors * k * step_s; /* of any number of parts */
        for (int32_t parts = 1; parts <= MOST_PARTS && least_s < best_s; parts *= 2) {
            const double waves = up(tiles * parts / multiprocessors);
            const double sum_s = parts > 1 ? parts * SPLIT_S : 0.0;
            const double time_s = waves * (k / parts + model->ramp) * step_s + sum_s;
            best_s = time_s < best_s ? time_s : best_s;
        }
    }
    return w->flops > 0.0 ? best_s : 0.0;
}

dtp_kernel_time dtp_product_time(const dtp_machine *m, dtp_arithmetic arithmetic,
                                 const dtp_work *work)
{
    const dtp_product_model *model = &m->products[dtp_product_model_of(m, arithmetic)];
    const double multiprocessors = (double)m->multiprocessors;
    const double flops = model->rate * m->flops[arithmetic] / multiprocessors;
    const double bw = model->memory * m->mem_bw_Bps / m->shares.memory;
    const double first = (double)work->batch * (double)work->m * (double)work->k;
    dtp_kernel_time t = {.start_s = model->start_s,
                         .arithmetic_s = tiles_s(model, flops, multiprocessors, work),
                         .bytes_s = work->bytes / bw};
    if (t.arithmetic_s >= t.bytes_s) {
        t.bytes_s = 0.0;
    } else {
        t.arithmetic_s = 0.0;
    }
    t.bytes_s += work->quantized ? 0.0 : model->quantize * first / bw;
    return t;
}

double dtp_product_alone_s(const dtp_machine *m, dtp_arithmetic arithmetic, int64_t rows,
                           int64_t columns, int64_t inner)
{
    /* Bytes of an operand and of 16 blocks' scales beside it. */
    static const double BYTES[] = {4.0, 1.0, 1.0, 0.5625};
    const dtp_product_model *model = &m->products[dtp_product_model_of(m, arithmetic)];
    const double x = (double)rows * (double)inner, w = (double)inner * (double)columns;
    const double y = (double)rows * (double)columns;
    const double bytes = arithmetic >= DTP_TF32 ? BYTES[arithmetic - DTP_TF32]
                                                : (double)dtp_dtype_bytes((dtp_dtype)arithmetic);
    const dtp_work work = {.cls = DTP_WORK_GEMM,
                           .flops = 2.0 * y * (double)inner,
                           .bytes = bytes * (x + w) + fmax(bytes, 2.0) * y,
                           .batch = 1,
                           .m = rows,
                           .n = columns,
                           .k = inner};
    dtp_machine fast = *m;
    fast.flops[arithmetic] *= model->burst;
    const dtp_kernel_time t = dtp_product_time(&fast, arithmetic, &work);
    const double slow_s = fmax(t.arithmetic_s - BURST_S, 0.0);
    return t.start_s + t.bytes_s + t.arithmetic_s + slow_s * (model->burst - 1.0);
}

/* ---- attention ---- */

int32_t dtp_attention_model_find(const dtp_machine *m, const char *kernel)
{
    int32_t i = m->n_attention - 1;
    while (i >= 0 && strcmp(m->attention[i].kernel, kernel) != 0) {
        i--;
    }
    return i;
}

bool dtp_attention_has_model(const dtp_machine *m, const dtp_work *work)
{
    return m->shares.kernel >= 0 && work->batch > 0 && work->m > 0 && work->n > 0 && work->k > 0;
}

dtp_kernel_time dtp_attention_time(const dtp_machine *m, int32_t model, bool grad, double flops,
                                   const dtp_work *work)
{
    const dtp_attention_model *a = &m->attention[model];
    const double products = (double)work->k, heads = (double)work->batch;
    const double queries = (double)work->m, keys = (double)work->n;
    const double multiprocessors = (double)m->multiprocessors;
    const double pairs = work->flops / (2.0 * (products + DTP_SCORE_MULTIPLY_ADDS));
    const double seen = fmin(pairs / (heads * queries) + 0.5 * QUERIES, keys);
    const double tiles = heads * ceil(queries / QUERIES);
    const double rate = (grad ? a->grad : a->rate) * flops;
    const double work_flops = 2.0 * tiles * QUERIES * seen * (products + a->score);
    return (dtp_kernel_time){.start_s = a->start_s,
                             .arithmetic_s = work_flops / rate * fmax(multiprocessors / tiles, 1.0),
                             .bytes_s =
                                 work->bytes / (a->memory * m->mem_bw_Bps / m->shares.memory)};
}
