/* What the bench measures: the grids of each part. */
#include "executor/bench/measure.h"
#include "core/graph/ops/op_table.h"

#include <string.h>

/* ---- matrix products ---- */

/* One product; as many as b is. */
static const dtp_bench_recipe GEMMS[] = {
    {"einsum", "mk kn | out=mn"}, {"einsum", "mk nk | out=mn"}, {"einsum", "km kn | out=mn"}};
static const dtp_bench_recipe BATCHED[] = {{"einsum", "bmk bkn | out=bmn"},
                                           {"einsum", "bmk bnk | out=bmn"},
                                           {"einsum", "bkm bkn | out=bmn"}};
enum { N_GEMMS = sizeof GEMMS / sizeof GEMMS[0] };

static dtp_status gemms_of(dtp_bench *b, const dtp_bench_recipe recipes[N_GEMMS], int64_t batch,
                           dtp_dtype dtype, const dtp_bench_grid *sizes, dtp_err *err)
{
    const int32_t n = sizes->n;
    for (int32_t i = 0; i < n * n * n; i++) {
        dtp_bench_sizes s = {{0}};
        int64_t m = s.of['m' - 'a'] = sizes->sizes[i / n / n];
        int64_t k = s.of['k' - 'a'] = sizes->sizes[i / n % n];
        int64_t cols = s.of['n' - 'a'] = sizes->sizes[i % n];
        s.of['b' - 'a'] = batch;
        for (int32_t v = 0; v < N_GEMMS && batch * m * k * cols <= b->scale->gemm_volume; v++) {
            bool done = false;
            DTP_TRY(
                dtp_bench_measure_recipe(b, &recipes[v], &s, dtype, DTP_SAMPLE_GEMM, &done, err));
        }
    }
    return DTP_OK;
}

/* Products of a dtype, one in a call and many. */
static dtp_status products_of(dtp_bench *b, dtp_dtype dtype, const dtp_bench_grid *sizes,
                              dtp_err *err)
{
    const dtp_bench_scale *scale = b->scale;
    DTP_TRY(gemms_of(b, GEMMS, 1, dtype, sizes, err));
    for (int32_t i = 0; i < scale->batches.n; i++) {
        DTP_TRY(gemms_of(b, BATCHED, scale->batches.sizes[i], dtype, &scale->gemm_batched, err));
    }
    return DTP_OK;
}

/* What a backend does not have is not measured. */
static dtp_status if_supported(dtp_status s, dtp_err *err)
{
    if (s == DTP_UNSUPPORTED) {
        dtp_err_clear(err);
        return DTP_OK;
    }
    return s;
}

static const dtp_dtype HALVES[] = {DTP_BF16, DTP_F16};
enum { N_HALVES = sizeof HALVES / sizeof HALVES[0] };

dtp_status dtp_bench_gemms(dtp_bench *b, dtp_err *err)
{
    DTP_TRY(products_of(b, DTP_F32, &b->scale->gemm, err));
    for (int32_t i = 0; i < N_HALVES; i++) {
        DTP_TRY(if_supported(products_of(b, HALVES[i], &b->scale->gemm_halves, err), err));
    }
    b->tf32 = b->target->tf32 && (b->device || b->list == NULL);
    const dtp_status s = b->tf32 ? products_of(b, DTP_F32, &b->scale->gemm_halves, err) : DTP_OK;
    b->tf32 = false;
    return s;
}

/* ---- memory-bound ops ---- */

/* Elements and sequence length of the shapes in which attention is bound by arithmetic. */
static const int64_t RATE_SHAPES[][2] = {
    {1 << 16, 128}, {1 << 18, 256}, {1 << 18, 512}, {1 << 18, 1024}};
enum { N_RATE_SHAPES = sizeof RATE_SHAPES / sizeof RATE_SHAPES[0] };

static dtp_status op_of_dtype(dtp_bench *b, const dtp_op_def *op, const dtp_bench_recipe *recipe,
                              dtp_dtype dtype, dtp_err *err)
{
    const dtp_bench_grid *elems = &b->scale->op_elems;
    const int64_t largest = elems->sizes[elems->n - 1];
    bool done = false;
    for (int32_t i = 0; i < elems->n; i++) {
        const dtp_bench_sizes s = dtp_bench_sizes_for(elems->sizes[i], 0);
        DTP_TRY(dtp_bench_measure_recipe(b, recipe, &s, dtype, DTP_SAMPLE_OP, &done, err));
    }
    for (int32_t i = 0; i < N_RATE_SHAPES && (op->flags & DTP_OP_ARITHMETIC) != 0; i++) {
        const dtp_bench_sizes s = dtp_bench_sizes_for(RATE_SHAPES[i][0], RATE_SHAPES[i][1]);
        if (RATE_SHAPES[i][0] <= largest) {
            DTP_TRY(dtp_bench_measure_recipe(b, recipe, &s, dtype, DTP_SAMPLE_RATE, &done, err));
        }
    }
    return DTP_OK;
}

static dtp_status launches(dtp_bench *b, dtp_err *err)
{
    static const dtp_bench_recipe LAUNCH = {"neg", "v"};
    bool done = false;
    dtp_bench_sizes one = dtp_bench_sizes_for(16, 0);
    DTP_TRY(dtp_bench_measure_recipe(b, &LAUNCH, &one, DTP_F32, DTP_SAMPLE_LAUNCH, &done, err));
    if (b->device && b->list == NULL) {
        DTP_TRY(dtp_bench_measure_recipe(b, &LAUNCH, &one, DTP_F32, DTP_SAMPLE_LAUNCH_GRAPH, &done,
                                         err));
    }
    return DTP_OK;
}

/* Of m = n = k with about so many elements in an operand. */
static int64_t side_of_cube(const dtp_bench *b, int64_t elems)
{
    int64_t side = 1;
    while (4 * side * side <= elems && 8 * side * side * side <= b->scale->gemm_volume) {
        side *= 2;
    }
    return side;
}

static dtp_status cube_of(dtp_bench *b, int64_t side, dtp_err *err)
{
    dtp_bench_sizes s = {{0}};
    bool done = false;
    s.of['m' - 'a'] = s.of['n' - 'a'] = s.of['k' - 'a'] = side;
    DTP_TRY(dtp_bench_measure_recipe(b, &GEMMS[0], &s, DTP_F32, DTP_SAMPLE_GEMM, &done, err));
    for (int32_t i = 0; i < N_HALVES; i++) {
        DTP_TRY(if_supported(
            dtp_bench_measure_recipe(b, &GEMMS[0], &s, HALVES[i], DTP_SAMPLE_GEMM, &done, err),
            err));
    }
    return DTP_OK;
}

dtp_status dtp_bench_ops(dtp_bench *b, dtp_err *err)
{
    const char *alone = b->options.op;
    DTP_TRY(alone == NULL ? launches(b, err) : DTP_OK);
    for (int32_t o = 0; o < dtp_op_count(); o++) {
        dtp_bench_recipe recipes[DTP_MAX_OP_BENCH];
        const dtp_op_def *op = dtp_op_at(o);
        int32_t n_recipes = 0;
        if (alone != NULL && strcmp(alone, op->name) != 0) {
            continue;
        }
        const bool products = alone != NULL && (op->flags & DTP_OP_CONTRACTION) != 0;
        for (int32_t i = 0, before = 0; products && i < b->scale->op_elems.n; i++) {
            const int32_t side = (int32_t)side_of_cube(b, b->scale->op_elems.sizes[i]);
            DTP_TRY(side > before ? cube_of(b, side, err) : DTP_OK);
            before = side;
        }
        DTP_TRY(dtp_bench_recipes_of(op, recipes, &n_recipes, err));
        for (int32_t r = 0; r < n_recipes; r++) {
            DTP_TRY(op_of_dtype(b, op, &recipes[r], DTP_F32, err));
            for (int32_t i = 0; i < N_HALVES; i++) {
                DTP_TRY(if_supported(op_of_dtype(b, op, &recipes[r], HALVES[i], err), err));
            }
        }
    }
    return DTP_OK;
}

/* ---- staging copies ---- */

typedef struct move_case {
    dtp_bench *b;
    dtp_copy_kind kind;
    int64_t rows, cols;
} move_case;

static dtp_view matrix(void *data, int64_t rows, int64_t cols)
{
    return (dtp_view){.local = {.dtype = DTP_F32, .rank = 2, .dims = {{0, rows}, {1, cols}}},
                      .global = {rows, cols},
                      .data = data};
}

static dtp_status run_copy(void *user, int32_t repeat, dtp_err *err)
{
    enum { PARTS = 2 };
    move_case *c = user;
    dtp_bench *b = c->b;
    const dtp_backend_ops *ops = b->backend->ops;
    size_t bytes = (size_t)(c->rows * c->cols) * sizeof(float);
    char *from = dtp_bench_at(b, DTP_BENCH_FLOATS, bytes, repeat);
    char *to = dtp_bench_at(b, DTP_BENCH_RESULTS, bytes, repeat);
    dtp_view src = matrix(from, c->rows, c->cols);
    dtp_view dst = matrix(to, c->rows, c->cols);
    dtp_ttype part = src.local;
    switch (c->kind) {
    case DTP_COPY_PACK:
        part.dims[1].size /= PARTS;
        return ops->pack(b->backend, &src, 1, PARTS, &part, to, err);
    case DTP_COPY_UNPACK:
        part.dims[1].size /= PARTS;
        return ops->unpack(b->backend, from, 1, PARTS, &part, &dst, err);
    case DTP_COPY_SLICE:
        dst = matrix(to, c->rows, c->cols / 2);
        return ops->slice(b->backend, &src, 1, 0, &dst, err);
    case DTP_COPY_SCALE:
        return ops->scale(b->backend, &src, 0.5, &dst, err);
    case DTP_COPY_KEEP_FIRST:
    case DTP_COPY_WHOLE:
    default:
        return ops->pack(b->backend, &src, 0, 1, &part, to, err);
    }
}

static dtp_status move_of(dtp_bench *b, dtp_copy_kind kind, int64_t elems, dtp_err *err)
{
    const int64_t cols = elems < 256 ? elems : 256;
    move_case c = {b, kind, elems / cols, cols};
    const double share = kind == DTP_COPY_SLICE ? 4.0 : 8.0; /* bytes moved per element */
    const dtp_sample sample = {
        .kind = DTP_SAMPLE_MOVE,
        .name = dtp_copy_name(kind),
        .work = {.cls = DTP_WORK_MEMORY, .bytes = share * (double)(c.rows * c.cols)}};
    if (b->list != NULL) {
        dtp_bench_list_move(b, &sample, c.rows, c.cols);
        return dtp_bench_add(b, &sample, err);
    }
    return dtp_bench_measure(b, run_copy, &c, sample, err);
}

dtp_status dtp_bench_moves(dtp_bench *b, dtp_err *err)
{
    const dtp_bench_grid *elems = &b->scale->op_elems;
    for (int k = 0; k < DTP_N_COPY_KINDS && !dtp_copy_is_of_range((dtp_copy_kind)k); k++) {
        for (int32_t i = 0; i < elems->n; i++) {
            DTP_TRY(move_of(b, (dtp_copy_kind)k, elems->sizes[i], err));
        }
    }
    return DTP_OK;
}

/* ---- what an op is held against ---- */

dtp_status dtp_bench_peaks(dtp_bench *b, dtp_err *err)
{
    const dtp_bench_grid *elems = &b->scale->op_elems;
    DTP_TRY(move_of(b, DTP_COPY_WHOLE, elems->sizes[elems->n - 1], err));
    /* two operands in the pool of either float type */
    return cube_of(b, side_of_cube(b, (int64_t)b->pools[DTP_BENCH_FLOATS].bytes / 8), err);
}

/* ---- collectives ---- */

typedef struct coll_case {
    dtp_bench *b;
    dtp_coll coll;
} coll_case;

static dtp_status run_coll(void *user, int32_t repeat, dtp_err *err)
{
    coll_case *c = user;
    (void)repeat;
    dtp_bench *b = c->b;
    return dtp_transport_run(&b->comm->transport, &c->coll, b->pools[DTP_BENCH_FLOATS].data,
                             b->pools[DTP_BENCH_RESULTS].data, err);
}

dtp_status dtp_bench_collectives(dtp_bench *b, dtp_err *err)
{
    const dtp_mesh *mesh = b->mesh;
    dtp_transport *t = b->list == NULL ? &b->comm->transport : NULL;
    for (dtp_mesh_set set = 1; set < 1U << mesh->n_dims; set++) {
        int32_t ranks = dtp_mesh_set_size(mesh, set);
        bool known = ranks == 1;
        for (dtp_mesh_set before = 1; before < set; before++) {
            known = known || dtp_mesh_set_size(mesh, before) == ranks;
        }
        if (known) {
            continue;
        }
        DTP_TRY(t != NULL ? t->ops->prepare(t, set, err) : DTP_OK);
        const int64_t largest = b->scale->coll_bytes, factor = b->scale->coll_factor;
        for (int k = 0; k < DTP_N_COLLS; k++) {
            const char *alone = b->options.collective;
            if (alone != NULL && strcmp(alone, dtp_coll_name((dtp_coll_kind)k)) != 0) {
                continue;
            }
            for (int64_t bytes = b->scale->coll_least; bytes <= largest; bytes *= factor) {
                int64_t share = k == DTP_ALL_REDUCE || k == DTP_PERMUTE ? 1 : ranks;
                int64_t count = bytes / (int64_t)sizeof(float) / share;
                coll_case c = {b,
                               {.kind = (dtp_coll_kind)k,
                                .set = set,
                                .op = DTP_REDUCE_SUM,
                                .dtype = DTP_F32,
                                .count = count > 0 ? count : 1,
                                .shift = k == DTP_PERMUTE ? 1 : 0}};
                dtp_sample sample = {
                    .kind = DTP_SAMPLE_COLL,
                    .name = dtp_coll_name((dtp_coll_kind)k),
                    .coll = (dtp_coll_kind)k,
                    .ranks = ranks,
                    .work = {.bytes = (double)(c.coll.count * share) * sizeof(float)}};
                if (t == NULL) {
                    dtp_bench_list_collective(b, &sample);
                }
                DTP_TRY(t == NULL ? dtp_bench_add(b, &sample, err)
                                  : dtp_bench_measure(b, run_coll, &c, sample, err));
            }
        }
    }
    return DTP_OK;
}

/* ---- products beside a collective ---- */

dtp_status dtp_bench_beside(dtp_bench *b, dtp_err *err)
{
    static const dtp_bench_recipe PRODUCT = {"einsum", "mk kn | out=mn"};
    dtp_bench_sizes s = {{0}};
    bool done = false;
    if (dtp_mesh_ranks(b->mesh) == 1 ||
        (b->list == NULL && !b->comm->transport.caps.asynchronous)) {
        return DTP_OK;
    }
    s.of['m' - 'a'] = s.of['k' - 'a'] = s.of['n' - 'a'] = b->scale->beside_size;
    return dtp_bench_measure_recipe(b, &PRODUCT, &s, DTP_F32, DTP_SAMPLE_BESIDE, &done, err);
}
