/* What planning a redistribution costs: all pairs of layouts of a tensor, each planned by the
 * search (which remembers nothing; the least of ROUNDS times, so that the maximum is the worst pair
 * and not an interruption) and once by a cache that has not seen it, then again from the cache. Not
 * a test: prints mean, median, 99th percentile and maximum, by the processor time of this thread.
 * bench_redistribute_plan */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spmd/redistribute/redistribute_cache.h"
#include "tests/support/layout_list.h"

enum { ROUNDS = 5 };

typedef struct bench_case {
    const char *mesh;
    int64_t sizes[3];
    int32_t rank;
    bool partial;
} bench_case;

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_line(const char *what, double *us, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += us[i];
    }
    qsort(us, n, sizeof *us, by_value);
    printf("  %-22s mean %8.3f us   median %8.3f   99%% %8.3f   max %8.3f\n", what, sum / (double)n,
           us[n / 2], us[n * 99 / 100], us[n - 1]);
}

typedef struct bench {
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    const layout_list *list;
    double *us;
} bench;

/* Plans all pairs; returns how many have a plan. After the first round the least time of each pair
 * is kept. */
static size_t all_pairs(const bench *b, const dtp_redistributor *r, bool first)
{
    size_t n = 0;
    for (int32_t i = 0; i < b->list->n; i++) {
        for (int32_t j = 0; j < b->list->n; j++) {
            dtp_steps steps;
            double start = now_s();
            dtp_status s = dtp_redistribute_by(r, b->mesh, b->type, &b->list->items[i],
                                               &b->list->items[j], &steps, NULL);
            double took = now_s() - start;
            if (i != j && s == DTP_OK) {
                b->us[n] = first || took * 1e6 < b->us[n] ? took * 1e6 : b->us[n];
                n++;
            }
        }
    }
    return n;
}

/* Hits are shorter than a reading of the clock, so they are timed together; to layouts
 * without partial values, which every layout can become. */
static void print_hits(const bench *b, const dtp_redistributor *r)
{
    int64_t n = 0;
    double start = now_s();
    for (int32_t k = 0; k < ROUNDS; k++) {
        for (int32_t i = 0; i < b->list->n * b->list->n; i++) {
            const dtp_layout *to = &b->list->items[i % b->list->n];
            dtp_steps steps;
            if (!dtp_layout_has_partial(to)) {
                n += dtp_redistribute_by(r, b->mesh, b->type, &b->list->items[i / b->list->n], to,
                                         &steps, NULL) == DTP_OK;
            }
        }
    }
    printf("  %-22s mean %8.3f us\n", "cache, hit", (now_s() - start) * 1e6 / (double)n);
}

static dtp_status run(const bench_case *c, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_ttype type = {.dtype = DTP_F32, .rank = c->rank};
    for (int32_t i = 0; i < c->rank; i++) {
        type.dims[i] = (dtp_tdim){.id = i, .size = c->sizes[i]};
    }
    DTP_TRY(dtp_mesh_parse(c->mesh, &mesh, err));
    layout_list list = layout_list_all(c->rank, mesh.n_dims, c->partial, DTP_REDUCE_SUM);
    bench b = {&mesh, &type, &list, calloc((size_t)list.n * (size_t)list.n, sizeof(double))};
    dtp_redistribute_cache *cache = NULL;
    if (b.us == NULL ||
        dtp_redistribute_cache_create(dtp_redistributor_generic(), 0, &cache, err) != DTP_OK) {
        free(b.us);
        layout_list_free(&list);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory");
    }
    size_t n = 0;
    for (int32_t k = 0; k < ROUNDS; k++) {
        n = all_pairs(&b, dtp_redistributor_generic(), k == 0);
    }
    printf("mesh %s, shape %lld,%lld,%lld: %d layouts, %zu pairs\n", c->mesh,
           (long long)c->sizes[0], (long long)c->sizes[1], (long long)c->sizes[2], list.n, n);
    print_line("search", b.us, n);
    n = all_pairs(&b, dtp_redistribute_cache_planner(cache), true);
    print_line("cache, new pair", b.us, n);
    print_hits(&b, dtp_redistribute_cache_planner(cache));
    dtp_redistribute_cache_destroy(cache);
    free(b.us);
    layout_list_free(&list);
    return DTP_OK;
}

int main(void)
{
    static const bench_case cases[] = {
        {"x:2;y:2;z:2", {8, 8, 8}, 3, false},      {"x:2;y:2;z:2", {8, 8, 8}, 3, true},
        {"x:2;y:2;z:2", {512, 512, 64}, 3, true},  {"x:2;y:2;z:2", {13, 7, 5}, 3, true},
        {"x:4;y:2;z:3", {1024, 768, 48}, 3, true}, {"x:4;y:2", {64, 64, 64}, 3, true},
        {"x:2;y:2;z:2", {1021, 509, 61}, 3, true}, {"x:8;y:8;z:8", {8192, 4096, 512}, 3, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_err err = {0};
        if (run(&cases[i], &err) != DTP_OK) {
            (void)fprintf(stderr, "bench_redistribute_plan: %s\n", err.msg);
            return 1;
        }
    }
    return 0;
}
