/* Plans: which provider multiplies, and how products and batches of them are shared. */
#include "executor/cpu/gemm/gemm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "executor/cpu/gemm/blas.h"
#include "executor/cpu/gemm/gemm_provider.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/parallel.h"

/* The rule: of those that take a product, the first. oneDNN multiplies f32 about as fast as
 * OpenBLAS does. */
static const dtp_gemm_provider *const PROVIDERS[] = {&dtp_gemm_openblas, &dtp_gemm_onednn,
                                                     &dtp_gemm_widened};
enum { N_PROVIDERS = sizeof PROVIDERS / sizeof PROVIDERS[0] };

struct dtp_gemm_plan {
    dtp_gemm_desc gemm;
    dtp_nest batches;
    const dtp_gemm_provider *provider;
    int32_t team;        /* products of the batch that run at once, else 1 */
    int32_t threads;     /* that share a product, else 1 */
    int64_t rows, cols;  /* the grid of blocks that C is cut into */
    size_t thread_bytes; /* of scratch */
    dtp_scratch *scratch;
    int64_t n_states;
    void **states; /* [member of the team][block]; NULL when the provider has none */
};

/* Cuts C into rows x cols blocks for `threads` threads: the grid that reads least of A and B,
 * blocks not thinner than 32. */
static void choose_grid(const dtp_gemm_desc *g, int64_t threads, int64_t *rows, int64_t *cols)
{
    double best = 0.0;
    *rows = 1;
    *cols = 1;
    for (int64_t r = threads; r >= 1; r--) {
        int64_t c = threads / r;
        bool fits = (r == 1 || g->m >= 32 * r) && (c == 1 || g->n >= 32 * c);
        double blocks = (double)(r * c);
        double cost = (double)g->m / (double)r + (double)g->n / (double)c;
        cost = cost + (double)(threads - r * c) / blocks * (double)(g->m + g->n);
        if (fits && (*rows * *cols == 1 || cost < best)) {
            best = cost;
            *rows = r;
            *cols = c;
        }
    }
}

/* Start of part i of n elements cut into `parts`, at a multiple of 16. */
static int64_t cut(int64_t n, int64_t parts, int64_t i)
{
    assert(parts > 0);
    int64_t at = i == parts ? n : n / parts * i / 16 * 16;
    return at < n ? at : n;
}

/* ---- making ---- */

/* First row and column of block t of the grid, and its form. */
static dtp_gemm_desc block_of(const dtp_gemm_plan *p, int64_t t, int64_t at[2])
{
    const int64_t row = t / p->cols, col = t % p->cols;
    dtp_gemm_desc block = p->gemm;
    at[0] = cut(block.m, p->rows, row);
    at[1] = cut(block.n, p->cols, col);
    block.m = cut(block.m, p->rows, row + 1) - at[0];
    block.n = cut(block.n, p->cols, col + 1) - at[1];
    return block;
}

static void unbind(dtp_gemm_plan *p)
{
    for (int64_t i = 0; i < p->n_states; i++) {
        p->provider->unbind(p->states[i]);
    }
    free(p->states);
    p->states = NULL;
    p->n_states = 0;
    p->thread_bytes = 0;
}

/* Binds every block for every member of the team. *fits is false when one needs too much scratch.
 */
static dtp_status bind_blocks(dtp_gemm_plan *p, bool *fits, dtp_err *err)
{
    const int64_t blocks = p->rows * p->cols;
    unbind(p);
    p->states = calloc((size_t)(p->team * blocks), sizeof *p->states);
    DTP_TRY(DTP_MEMORY(err, p->states));
    for (int64_t i = 0; i < p->team * blocks; i++) {
        int64_t at[2];
        size_t bytes = 0;
        const dtp_gemm_desc block = block_of(p, i % blocks, at);
        DTP_TRY(p->provider->bind(&block, &p->states[i], &bytes, err));
        p->n_states = i + 1;
        if (bytes > DTP_GEMM_SCRATCH_MOST) {
            *fits = false;
            return DTP_OK;
        }
        bytes = (bytes + 63) / 64 * 64;
        p->thread_bytes = bytes > p->thread_bytes ? bytes : p->thread_bytes;
    }
    *fits = true;
    return DTP_OK;
}

/* Cuts C until its blocks need no more scratch than they may: oneDNN sums strided blocks of 16-bit
 * C apart. */
static dtp_status bind(dtp_gemm_plan *p, const dtp_gemm_provider *provider, dtp_err *err)
{
    enum { LEAST_ELEMS = 4096 };
    bool fits = provider->bind == NULL;
    p->provider = provider;
    while (!fits) {
        DTP_TRY(bind_blocks(p, &fits, err));
        const int64_t m = p->gemm.m / p->rows, n = p->gemm.n / p->cols;
        if (!fits && m * n < LEAST_ELEMS) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "%s: a product of %lld x %lld needs too much scratch memory",
                            provider->name, (long long)m, (long long)n);
        }
        p->rows *= !fits && m >= n ? 2 : 1;
        p->cols *= !fits && m < n ? 2 : 1;
    }
    const int32_t threads = p->team > p->threads ? p->team : p->threads;
    return dtp_scratch_reserve(p->scratch, p->thread_bytes * (size_t)threads, err);
}

/* The first provider that takes the product. */
static dtp_status choose_provider(dtp_gemm_plan *p, const char *asked, dtp_err *err)
{
    const dtp_gemm_desc *g = &p->gemm;
    DTP_TRY(dtp_blas_load(err));
    for (int32_t i = 0; i < N_PROVIDERS; i++) {
        if ((asked == NULL || strcmp(asked, PROVIDERS[i]->name) == 0) && PROVIDERS[i]->takes(g)) {
            return bind(p, PROVIDERS[i], err);
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED, "no matrix product of %s to %s%s%s on this processor",
                    dtp_dtype_name(g->ab_type), dtp_dtype_name(g->c_type),
                    asked != NULL ? " by " : "", asked != NULL ? asked : "");
}

/* Products of a batch run at once when there are enough of them, else each is shared. */
static void choose_threads(dtp_gemm_plan *p, int32_t threads)
{
    const dtp_gemm_desc *g = &p->gemm;
    const int64_t n = dtp_nest_total(&p->batches);
    const double madds = (double)g->m * (double)g->n * (double)g->k;
    p->rows = p->cols = 1;
    p->team = p->threads = 1;
    if (n >= threads && n > 1) {
        p->team = dtp_cpu_team_of_products(threads, (double)n * madds);
    } else if (dtp_cpu_team_of_products(threads, madds) > 1) {
        choose_grid(g, threads, &p->rows, &p->cols);
        p->threads = (int32_t)(p->rows * p->cols);
    }
}

dtp_status dtp_gemm_plan_create(const dtp_gemm_desc *g, const dtp_gemm_batch *batch,
                                const dtp_gemm_options *options, dtp_gemm_plan **out, dtp_err *err)
{
    static const dtp_gemm_batch one = {0};
    int64_t strides[3][DTP_NEST_DIMS] = {{0}};
    batch = batch != NULL ? batch : &one;
    for (int v = 0; v < 3; v++) {
        memcpy(strides[v], batch->stride[v], sizeof batch->stride[v]);
    }
    dtp_gemm_plan *p = calloc(1, sizeof *p);
    DTP_TRY(DTP_MEMORY(err, p));
    p->gemm = *g;
    p->scratch = options->scratch;
    dtp_nest_raw(&p->batches, batch->n, batch->size, 3, (const int64_t(*)[DTP_NEST_DIMS])strides);
    choose_threads(p, options->threads);
    const dtp_status s = choose_provider(p, options->provider, err);
    if (s != DTP_OK) {
        dtp_gemm_plan_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void dtp_gemm_plan_destroy(dtp_gemm_plan *p)
{
    if (p != NULL) {
        unbind(p);
        free(p);
    }
}

const char *dtp_gemm_plan_provider(const dtp_gemm_plan *p)
{
    return p->provider->name;
}

/* ---- running ---- */

/* The product whose operands start so many elements further. */
static dtp_gemm_desc moved(const dtp_gemm_desc *g, int64_t a, int64_t b, int64_t c)
{
    const int64_t ab_bytes = dtp_dtype_bytes(g->ab_type), c_bytes = dtp_dtype_bytes(g->c_type);
    dtp_gemm_desc part = *g;
    part.a = (const char *)g->a + a * ab_bytes;
    part.b = (const char *)g->b + b * ab_bytes;
    part.c = (char *)g->c + c * c_bytes;
    return part;
}

static dtp_gemm_desc batch_at(const dtp_gemm_plan *p, const dtp_gemm_desc *g, int64_t index)
{
    int64_t off[DTP_NEST_VIEWS];
    dtp_nest_elem(&p->batches, index, off);
    return moved(g, off[0], off[1], off[2]);
}

/* Block t of a product, by a member of the team or a thread that shares it. */
static void run_block(const dtp_gemm_plan *p, const dtp_gemm_desc *product, int64_t t,
                      int64_t member)
{
    int64_t at[2];
    const dtp_gemm_desc form = block_of(p, t, at);
    dtp_gemm_desc block = moved(product, form.trans_a ? at[0] : at[0] * form.lda,
                                form.trans_b ? at[1] * form.ldb : at[1], at[0] * form.ldc + at[1]);
    block.m = form.m;
    block.n = form.n;
    const int64_t state = (p->team > 1 ? member * p->rows * p->cols : 0) + t;
    p->provider->run(
        p->states != NULL ? p->states[state] : NULL, &block,
        p->thread_bytes > 0 ? (char *)p->scratch->data + (size_t)member * p->thread_bytes : NULL);
}

void dtp_gemm_plan_run(const dtp_gemm_plan *p, const void *a, const void *b, void *c)
{
    const int64_t n = dtp_nest_total(&p->batches), blocks = p->rows * p->cols;
    const int32_t team = p->team, threads = p->threads;
    dtp_gemm_desc g = p->gemm;
    g.a = a;
    g.b = b;
    g.c = c;
    const int entered = dtp_gemm_enter();
    if (team > 1) {
#pragma omp parallel for num_threads(team) schedule(static)
        for (int64_t i = 0; i < n; i++) {
            const dtp_gemm_desc product = batch_at(p, &g, i);
            for (int64_t t = 0; t < blocks; t++) {
                run_block(p, &product, t, dtp_cpu_thread());
            }
        }
    }
    for (int64_t i = 0; i < n && team == 1; i++) {
        const dtp_gemm_desc product = batch_at(p, &g, i);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int64_t t = 0; t < blocks; t++) {
            run_block(p, &product, t, dtp_cpu_thread());
        }
    }
    dtp_gemm_leave(entered);
}
