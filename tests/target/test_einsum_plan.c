/* The einsum plan, run step by step by a plain interpreter and compared with the definition. Values
 * are small integers in f64, so every order of summation gives the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/target/einsum_plan.h"
#include "core/graph/ops/op_table.h"

enum { POOL = 8 };

typedef struct einsum_case {
    int32_t n_in;
    dtp_ttype in[DTP_MAX_OP_IN], out;
    dtp_op_call call;
} einsum_case;

static void case_finish(einsum_case *c)
{
    c->call = (dtp_op_call){
        .op = dtp_op_find("einsum"), .n_in = c->n_in, .n_out = 1, .in = c->in, .out = &c->out};
}

/* "bmk,bkn->bmn" with one letter per dim; sizes[letter - 'a']. */
static void case_parse(einsum_case *c, const char *text, const int64_t sizes[26])
{
    memset(c, 0, sizeof *c);
    dtp_ttype *t = &c->in[0];
    c->n_in = 1;
    t->dtype = DTP_F64;
    for (; *text != '\0'; text++) {
        if (*text == ',') {
            t = &c->in[c->n_in++];
            t->dtype = DTP_F64;
        } else if (*text == '-') {
            t = &c->out;
            t->dtype = DTP_F64;
            text++;
        } else {
            t->dims[t->rank].id = *text - 'a';
            t->dims[t->rank++].size = sizes[*text - 'a'];
        }
    }
    case_finish(c);
}

/* ---- interpreter of plans ---- */

typedef struct machine {
    double *in[DTP_MAX_OP_IN], *out;
    unsigned char *workspace;
} machine;

static double *locate(const machine *m, const dtp_einsum_buf *b)
{
    if (b->operand == DTP_EINSUM_OUT) {
        return m->out;
    }
    if (b->operand == DTP_EINSUM_WORKSPACE) {
        assert_int_equal(b->offset % 64, 0);
        return (double *)(void *)(m->workspace + b->offset);
    }
    return m->in[b->operand];
}

/* Offsets of element `index` of a nest in every part; false when the index is past the end. */
static void unravel(int64_t index, int32_t first, int32_t last, const dtp_einsum_loop *l,
                    int64_t off[DTP_EINSUM_PARTS])
{
    for (int32_t d = last - 1; d >= first; d--) {
        const int64_t i = index % l->size[d];
        index /= l->size[d];
        for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
            off[p] += i * l->stride[p][d];
        }
    }
}

static void run_loop(const machine *m, const dtp_einsum_step *s)
{
    const dtp_einsum_loop *l = &s->loop;
    const double *a = locate(m, &s->part[DTP_EINSUM_A]);
    const double *b = l->two ? locate(m, &s->part[DTP_EINSUM_B]) : NULL;
    double *c = locate(m, &s->part[DTP_EINSUM_C]);
    int64_t n_out = 1, n_sum = 1;
    for (int32_t d = 0; d < l->n; d++) {
        if (d < l->n_out) {
            n_out *= l->size[d];
        } else {
            n_sum *= l->size[d];
            assert_int_equal(l->stride[DTP_EINSUM_C][d], 0);
        }
    }
    for (int64_t o = 0; o < n_out; o++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n_sum; i++) {
            int64_t off[DTP_EINSUM_PARTS] = {0};
            unravel(o, 0, l->n_out, l, off);
            unravel(i, l->n_out, l->n, l, off);
            sum += a[off[DTP_EINSUM_A]] * (b == NULL ? 1.0 : b[off[DTP_EINSUM_B]]);
        }
        int64_t off[DTP_EINSUM_PARTS] = {0};
        unravel(o, 0, l->n_out, l, off);
        c[off[DTP_EINSUM_C]] = sum;
    }
}

static void run_matrix(const dtp_einsum_gemm *g, const double *a, const double *b, double *c)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < g->k; k++) {
                sum += a[g->trans_a ? k * g->ld[0] + i : i * g->ld[0] + k] *
                       b[g->trans_b ? j * g->ld[1] + k : k * g->ld[1] + j];
            }
            c[i * g->ld[2] + j] = sum;
        }
    }
}

static void run_gemm(const machine *m, const dtp_einsum_step *s)
{
    const dtp_einsum_gemm *g = &s->gemm;
    const double *a = locate(m, &s->part[DTP_EINSUM_A]), *b = locate(m, &s->part[DTP_EINSUM_B]);
    double *c = locate(m, &s->part[DTP_EINSUM_C]);
    int64_t count = 1;
    assert_true(g->m >= 1 && g->n >= 1 && g->k >= 1);
    assert_true(g->ld[0] >= (g->trans_a ? g->m : g->k));
    assert_true(g->ld[1] >= (g->trans_b ? g->k : g->n));
    assert_true(g->ld[2] >= g->n);
    for (int32_t d = 0; d < g->n_batch; d++) {
        assert_true(g->batch[d] > 1);
        count *= g->batch[d];
    }
    for (int64_t at = 0; at < count; at++) {
        int64_t off[DTP_EINSUM_PARTS] = {0}, rest = at;
        for (int32_t d = g->n_batch - 1; d >= 0; d--) {
            for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
                off[p] += rest % g->batch[d] * g->stride[p][d];
            }
            rest /= g->batch[d];
        }
        run_matrix(g, a + off[0], b + off[1], c + off[2]);
    }
}

/* ---- the definition ---- */

static int64_t element(const dtp_ttype *t, const int64_t index[POOL + 26])
{
    int64_t at = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        at = at * t->dims[i].size + index[t->dims[i].id];
    }
    return at;
}

static void naive(const einsum_case *c, const machine *m, double *out)
{
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    int64_t size[DTP_MAX_OP_DIMS], total = 1;
    const int32_t n = dtp_call_dims(&c->call, dims);
    for (int32_t d = 0; d < n; d++) {
        for (int32_t i = 0; i < c->n_in; i++) {
            const int32_t at = dtp_ttype_find(&c->in[i], dims[d]);
            size[d] = at >= 0 ? c->in[i].dims[at].size : size[d];
        }
        total *= size[d];
    }
    for (int64_t e = 0; e < dtp_ttype_elems(&c->out); e++) {
        out[e] = 0.0;
    }
    for (int64_t t = 0; t < total; t++) {
        int64_t index[POOL + 26] = {0}, rest = t;
        double product = 1.0;
        for (int32_t d = n - 1; d >= 0; d--) {
            index[dims[d]] = rest % size[d];
            rest /= size[d];
        }
        for (int32_t i = 0; i < c->n_in; i++) {
            product *= m->in[i][element(&c->in[i], index)];
        }
        out[element(&c->out, index)] += product;
    }
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 8) % n;
}

static double *buffer(int64_t n)
{
    double *p = malloc((size_t)(n > 0 ? n : 1) * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        p[i] = NAN;
    }
    return p;
}

/* Plans, runs and compares; the workspace has exactly the promised size. */
static void check_case(const einsum_case *c, dtp_einsum_plan *plan, uint32_t seed)
{
    machine m = {.out = buffer(dtp_ttype_elems(&c->out))};
    double *want = buffer(dtp_ttype_elems(&c->out));
    uint32_t state = seed;
    dtp_einsum_plan_make(&c->call, plan);
    assert_false(plan->too_large);
    assert_in_range(plan->n_steps, 0, DTP_EINSUM_STEPS);
    m.workspace = malloc((size_t)plan->workspace_bytes + 1);
    assert_non_null(m.workspace);
    memset(m.workspace, 0xff, (size_t)plan->workspace_bytes);
    for (int32_t i = 0; i < c->n_in; i++) {
        const int64_t n = dtp_ttype_elems(&c->in[i]);
        m.in[i] = buffer(n);
        for (int64_t e = 0; e < n; e++) {
            m.in[i][e] = (double)draw(&state, 7) - 3.0;
        }
    }
    for (int32_t i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].is_gemm) {
            run_gemm(&m, &plan->steps[i]);
        } else {
            run_loop(&m, &plan->steps[i]);
        }
    }
    naive(c, &m, want);
    for (int64_t e = 0; e < dtp_ttype_elems(&c->out); e++) {
        if (!(m.out[e] == want[e])) {
            fail_msg("seed %u: element %lld is %g, should be %g", seed, (long long)e, m.out[e],
                     want[e]);
        }
    }
    for (int32_t i = 0; i < c->n_in; i++) {
        free(m.in[i]);
    }
    free(m.workspace);
    free(m.out);
    free(want);
}

/* ---- random cases ---- */

/* A random ordered subset of the dims of `from`. */
static void draw_subset(uint32_t *state, int32_t n, const dtp_tdim *from, uint32_t keep_of_4,
                        dtp_ttype *out)
{
    out->dtype = DTP_F64;
    out->rank = 0;
    for (int32_t i = 0; i < n; i++) {
        if (draw(state, 4) >= keep_of_4 || out->rank == DTP_MAX_RANK) {
            continue;
        }
        const int32_t at = (int32_t)draw(state, (uint32_t)out->rank + 1);
        for (int32_t k = out->rank; k > at; k--) {
            out->dims[k] = out->dims[k - 1];
        }
        out->dims[at] = from[i];
        out->rank++;
    }
}

static bool draw_case(uint32_t *state, einsum_case *c)
{
    static const int64_t some_sizes[] = {1, 2, 2, 3, 3, 4, 5, 17, 0};
    dtp_tdim pool[POOL], used[POOL];
    int32_t n_used = 0;
    double total = 1.0;
    memset(c, 0, sizeof *c);
    const uint32_t n_sizes = draw(state, 8) == 0 ? 9 : 8;
    for (int32_t i = 0; i < POOL; i++) {
        pool[i] = (dtp_tdim){i, some_sizes[draw(state, n_sizes)]};
    }
    c->n_in = 1 + (int32_t)draw(state, 4);
    for (int32_t i = 0; i < c->n_in; i++) {
        draw_subset(state, POOL, pool, 2, &c->in[i]);
    }
    for (int32_t d = 0; d < POOL; d++) {
        bool found = false;
        for (int32_t i = 0; i < c->n_in; i++) {
            found = found || dtp_ttype_find(&c->in[i], d) >= 0;
        }
        if (found) {
            used[n_used++] = pool[d];
            total *= (double)pool[d].size;
        }
    }
    draw_subset(state, n_used, used, 2 + draw(state, 2), &c->out);
    case_finish(c);
    return total <= 40000.0;
}

static void test_einsum_plan__random_cases_match_the_definition(void **state)
{
    (void)state;
    dtp_einsum_plan plan;
    int32_t run = 0, gemms = 0, packs = 0, loops = 0;
    for (uint32_t seed = 1; run < 1500; seed++) {
        einsum_case c;
        uint32_t rng = seed * 2654435761U;
        if (!draw_case(&rng, &c)) {
            continue;
        }
        check_case(&c, &plan, seed);
        /* The row's work: the same arithmetic and traffic, without packing. */
        dtp_work row;
        dtp_call_work(&c.call, &row);
        bool product = false;
        for (int32_t i = 0; i < plan.n_steps; i++) {
            product = product || plan.steps[i].is_gemm;
        }
        if (row.flops != plan.flops || row.bytes != plan.inner_bytes || row.pack_bytes != 0.0 ||
            product != (row.cls == DTP_WORK_GEMM)) {
            fail_msg("seed %u: %g FLOPs and %g bytes, the plan has %g and %g", seed, row.flops,
                     row.bytes, plan.flops, plan.inner_bytes);
        }
        for (int32_t i = 0; i < plan.n_steps; i++) {
            gemms += plan.steps[i].is_gemm ? 1 : 0;
            packs += plan.steps[i].is_pack ? 1 : 0;
            loops += !plan.steps[i].is_gemm && !plan.steps[i].is_pack ? 1 : 0;
        }
        run++;
    }
    print_message("%d cases: %d gemms, %d packs, %d loops\n", run, gemms, packs, loops);
    assert_true(gemms > 100 && packs > 50 && loops > 100);
}

/* ---- all orders of a batched product ---- */

static const char *const ORDERS[] = {"012", "021", "102", "120", "201", "210"};

static void spell(const char *order, const char *letters, char out[4])
{
    for (int32_t i = 0; i < 3; i++) {
        out[i] = letters[order[i] - '0'];
    }
    out[3] = '\0';
}

static void test_einsum_plan__batched_products_in_all_orders(void **state)
{
    (void)state;
    const int64_t sizes[26] = {['b' - 'a'] = 3, ['m' - 'a'] = 4, ['n' - 'a'] = 5, ['k' - 'a'] = 2};
    dtp_einsum_plan plan;
    for (int32_t i = 0; i < 216; i++) {
        char a[4], b[4], out[4], text[16];
        einsum_case c;
        spell(ORDERS[i % 6], "bmk", a);
        spell(ORDERS[i / 6 % 6], "bkn", b);
        spell(ORDERS[i / 36], "bmn", out);
        (void)snprintf(text, sizeof text, "%s,%s->%s", a, b, out);
        case_parse(&c, text, sizes);
        check_case(&c, &plan, 1);
        const bool batch_innermost = a[2] == 'b' || b[2] == 'b' || out[2] == 'b';
        assert_int_equal(plan.pack_bytes > 0.0, batch_innermost);
        assert_true(plan.flops == 2.0 * 3 * 4 * 5 * 2);
        int32_t gemms = 0;
        for (int32_t s = 0; s < plan.n_steps; s++) {
            gemms += plan.steps[s].is_gemm ? 1 : 0;
        }
        assert_int_equal(gemms, 1);
    }
}

typedef struct shape_row {
    const char *text;
    int32_t n_steps, n_gemms;
    bool packs;
    int32_t n_batch; /* of the only GEMM */
    int64_t m, n, k;
} shape_row;

/* Products of a transformer: none needs a copy. */
static void test_einsum_plan__common_products_run_in_place(void **state)
{
    (void)state;
    const int64_t sizes[26] = {['b' - 'a'] = 2, ['s' - 'a'] = 16, ['t' - 'a'] = 20, ['d' - 'a'] = 6,
                               ['h' - 'a'] = 3, ['e' - 'a'] = 16, ['f' - 'a'] = 7};
    static const shape_row rows[] = {
        {"bsd,df->bsf", 1, 1, false, 0, 32, 7, 6},       /* batch and sequence fold into m */
        {"bsd,fd->bsf", 1, 1, false, 0, 32, 7, 6},       /* transposed weight */
        {"bsd,bsf->df", 1, 1, false, 0, 6, 7, 32},       /* weight gradient: both are summed */
        {"bsf,df->bsd", 1, 1, false, 0, 32, 6, 7},       /* activation gradient */
        {"bshe,bthe->bhst", 1, 1, false, 2, 16, 20, 16}, /* heads stay where they are */
        {"bhst,bthe->bshe", 1, 1, false, 2, 16, 16, 20},
        {"bsd,dhe->bshe", 1, 1, false, 0, 32, 48, 6},
        {"bsd,dhe->bhse", 1, 1, false, 2, 16, 16, 6}, /* heads become a batch dim */
        {"bshe,hed->bsd", 1, 1, false, 0, 32, 6, 48},
        {"bsd,d->bsd", 1, 0, false, 0, 0, 0, 0},
        {"bsd,bsd->bs", 1, 0, false, 0, 0, 0, 0},
        {"bsd->d", 1, 0, false, 0, 0, 0, 0},
        {"bsd->dsb", 1, 0, false, 0, 0, 0, 0},
        {"s,d->sd", 1, 0, false, 0, 0, 0, 0},
        {"bsd,f->s", 3, 0, false, 0, 0, 0, 0}, /* sums of one operand alone come first */
        {"b,s->", 3, 0, false, 0, 0, 0, 0},
        {"bs,sd,df->bf", 2, 2, false, 0, 2, 6, 16}};
    dtp_einsum_plan plan;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        einsum_case c;
        int32_t gemms = 0;
        const dtp_einsum_gemm *g = NULL;
        case_parse(&c, rows[i].text, sizes);
        check_case(&c, &plan, 1);
        for (int32_t s = 0; s < plan.n_steps; s++) {
            gemms += plan.steps[s].is_gemm ? 1 : 0;
            g = g == NULL && plan.steps[s].is_gemm ? &plan.steps[s].gemm : g;
        }
        if (plan.n_steps != rows[i].n_steps || gemms != rows[i].n_gemms ||
            (plan.pack_bytes > 0.0) != rows[i].packs) {
            fail_msg("%s: %d steps, %d GEMMs, %g bytes packed", rows[i].text, plan.n_steps, gemms,
                     plan.pack_bytes);
        }
        if (g != NULL) {
            const bool straight = g->m == rows[i].m && g->n == rows[i].n;
            const bool swapped = g->m == rows[i].n && g->n == rows[i].m;
            assert_true((straight || swapped) && g->k == rows[i].k);
            assert_int_equal(g->n_batch, rows[i].n_batch);
        }
    }
}

static void test_einsum_plan__flags_products_without_sums(void **state)
{
    (void)state;
    const int64_t sizes[26] = {['b' - 'a'] = 2, ['s' - 'a'] = 4, ['d' - 'a'] = 6};
    static const char *const plain[] = {"bsd,bsd->bsd", "bsd,d->bsd", "bsd->dbs", "b,s->sb"};
    static const char *const summed[] = {"bsd->bs", "bs,bs->b", "bs,sd->bd", "bs,sd,bd->bd"};
    dtp_einsum_plan plan;
    for (size_t i = 0; i < 4; i++) {
        einsum_case c;
        case_parse(&c, plain[i], sizes);
        check_case(&c, &plan, 1);
        assert_true(plan.elementwise);
        assert_int_equal(plan.workspace_bytes, 0);
        case_parse(&c, summed[i], sizes);
        check_case(&c, &plan, 1);
        assert_false(plan.elementwise);
    }
}

static void test_einsum_plan__reports_huge_intermediates(void **state)
{
    (void)state;
    const int64_t big = INT64_C(1) << 40;
    const int64_t sizes[26] = {big, big, 2};
    einsum_case c;
    dtp_einsum_plan plan;
    case_parse(&c, "a,b,ab->c", sizes);
    c.out.rank = 0;
    dtp_einsum_plan_make(&c.call, &plan);
    assert_true(plan.too_large);
    assert_int_equal(plan.n_steps, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_einsum_plan__random_cases_match_the_definition),
        cmocka_unit_test(test_einsum_plan__batched_products_in_all_orders),
        cmocka_unit_test(test_einsum_plan__common_products_run_in_place),
        cmocka_unit_test(test_einsum_plan__flags_products_without_sums),
        cmocka_unit_test(test_einsum_plan__reports_huge_intermediates),
    };
    return cmocka_run_group_tests_name("einsum_plan", tests, NULL, NULL);
}
