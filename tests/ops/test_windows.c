/* Ops that read operands by windows, split over one and two of their dims: convolutions and pools
 * of random strides, kernels, dilations, paddings, groups; slices, paddings, shifts and rolls along
 * a dim; random sizes (uneven and empty pieces, margins wider than a piece), on 2, 3, 4, 2 x 2 and
 * 2 x 3 ranks in either order of the splits, beside the unsharded op. What is sent is counted by
 * another formula: the permutes, and the elements of the margins.
 * Usage: test_windows [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op_rules.h"
#include "executor/rule_verify/rule_subject.h"
#include "tests/support/quarter.h"

enum { CASES = 360, AXES = 2, TEXT = 96, MAX_SIZE = 17, MAX_PLACES = 8 };

static uint64_t seed = 20261130;

static int64_t pick(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(dtp_case_random(state) % (uint64_t)(high - low + 1));
}

/* ---- random cases ---- */

typedef struct axis {
    int64_t in, size, places, stride, dilation, before, after;
    bool same;
} axis;

/* A shift is a pad that takes away on one side what it adds on the other. */
typedef enum kind {
    CONV,
    TRANSPOSE,
    WEIGHT,
    POOL,
    POOL_GRAD,
    SLICE,
    PAD,
    SHIFT,
    ROLL,
    N_KINDS
} kind;

typedef struct window_case {
    kind kind;
    int32_t n;
    bool grouped, max;
    axis axis[AXES];
    char in[2][2 * TEXT], out[TEXT], attrs[2 * TEXT];
    dtp_op_case text;
} window_case;

static int64_t span_of(const axis *a)
{
    return (a->size - 1) * a->dilation + 1;
}

static axis random_axis(uint64_t *state)
{
    axis a;
    do {
        a = (axis){.in = pick(state, 1, MAX_SIZE),
                   .size = pick(state, 1, 7),
                   .stride = pick(state, 1, 3),
                   .dilation = pick(state, 1, 2)};
        a.before = pick(state, 0, a.size / 2 + 1);
        a.after = pick(state, a.size > 2 ? -1 : 0, a.size / 2 + 1);
        a.places = (a.in + a.before + a.after - span_of(&a)) / a.stride + 1;
    } while (a.in + a.before + a.after < span_of(&a) || a.before >= span_of(&a));
    return a;
}

/* `same` for all axes: as many places as strides fit, the padding shared. */
static void make_same(axis *a)
{
    a->places = (a->in + a->stride - 1) / a->stride;
    const int64_t missing = (a->places - 1) * a->stride + span_of(a) - a->in;
    a->before = missing > 0 ? missing / 2 : 0;
    a->after = missing > 0 ? missing - missing / 2 : 0;
    a->same = true;
}

static void add_dims(char out[TEXT], const char *first, const window_case *c, char what)
{
    static const char *const names[] = {"h", "w"}, *const kernels[] = {"k", "l"};
    size_t used = (size_t)snprintf(out, TEXT, "%s", first);
    for (int32_t i = 0; i < c->n; i++) {
        const axis *a = &c->axis[i];
        used += (size_t)snprintf(out + used, TEXT - used, ",%s=%lld",
                                 what == 'w' ? kernels[i] : names[i],
                                 (long long)(what == 'x'   ? a->in
                                             : what == 'w' ? a->size
                                                           : a->places));
    }
}

static size_t add_list(char *out, size_t used, const char *key, const window_case *c, size_t at)
{
    for (int32_t i = 0; i < c->n; i++) {
        int64_t value;
        memcpy(&value, (const char *)&c->axis[i] + at, sizeof value);
        used += (size_t)snprintf(out + used, 2 * TEXT - used, "%s%s%lld", i == 0 ? "; " : ",",
                                 i == 0 ? key : "", (long long)value);
    }
    return used;
}

static void write_case(window_case *c)
{
    static const char *const ops[] = {"conv", "conv_transpose", "conv_weight", "pool", "pool_grad"};
    char x[TEXT], w[TEXT], y[TEXT];
    const bool pools = c->kind >= POOL;
    add_dims(x, c->grouped ? "g=2,c=2" : "c=3", c, 'x');
    add_dims(w, c->grouped ? "g=2,o=1,c=2" : "o=2,c=3", c, 'w');
    add_dims(y, pools ? "c=3" : c->grouped ? "g=2,o=1" : "o=2", c, 'y');
    size_t used =
        (size_t)snprintf(c->attrs, sizeof c->attrs, "spatial=%s", c->n == 1 ? "h" : "h,w");
    used += (size_t)snprintf(c->attrs + used, sizeof c->attrs - used, "%s",
                             !pools            ? c->n == 1 ? "; kernel=k" : "; kernel=k,l"
                             : c->max          ? "; kind=max"
                             : c->axis[0].same ? "; kind=mean; count=inside"
                                               : "; kind=mean");
    used += (size_t)snprintf(c->attrs + used, sizeof c->attrs - used, "%s",
                             c->grouped ? "; groups=g" : "");
    used = pools ? add_list(c->attrs, used, "window=", c, offsetof(axis, size)) : used;
    used = add_list(c->attrs, used, "stride=", c, offsetof(axis, stride));
    used = add_list(c->attrs, used, "dilation=", c, offsetof(axis, dilation));
    if (c->axis[0].same) {
        used += (size_t)snprintf(c->attrs + used, sizeof c->attrs - used, "; padding=same");
    } else {
        used = add_list(c->attrs, used, "before=", c, offsetof(axis, before));
        used = add_list(c->attrs, used, "after=", c, offsetof(axis, after));
    }
    assert_true(used < sizeof c->attrs);
    (void)snprintf(c->in[0], sizeof c->in[0], "%s%s", c->kind == TRANSPOSE ? y : x,
                   pools && c->max ? " distinct" : "");
    (void)snprintf(c->in[1], sizeof c->in[1], "%s",
                   c->kind == CONV || c->kind == TRANSPOSE ? w : y);
    (void)snprintf(c->out, TEXT, "%s",
                   c->kind == TRANSPOSE || c->kind == POOL_GRAD ? x
                   : c->kind == WEIGHT                          ? w
                                                                : y);
    c->text = (dtp_op_case){.op = ops[c->kind],
                            .in = {c->in[0], c->kind == POOL ? NULL : c->in[1]},
                            .out = c->out,
                            .attrs = c->attrs};
}

/* Elements move along h; w is a dim as any other. */
static void random_move(window_case *c, uint64_t *state)
{
    axis *h = &c->axis[0];
    const char *op = c->kind == SLICE ? "slice" : c->kind == ROLL ? "roll" : "pad";
    for (int32_t i = 0; i < c->n; i++) {
        c->axis[i].in = c->axis[i].places = pick(state, 1, MAX_SIZE);
    }
    switch (c->kind) {
    case SLICE:
        h->before = -pick(state, 0, h->in - 1);
        h->places = pick(state, 1, h->in + h->before);
        h->after = h->places - h->in - h->before;
        break;
    case PAD:
        h->before = pick(state, -(h->in - 1) / 2, MAX_SIZE);
        h->after = pick(state, -(h->in - 1) / 2, MAX_SIZE);
        h->places = h->in + h->before + h->after;
        break;
    default:
        h->before = pick(state, -2 * MAX_SIZE, 2 * MAX_SIZE);
        h->after = -h->before;
    }
    add_dims(c->in[0], "c=3", c, 'x');
    add_dims(c->out, "c=3", c, 'y');
    (void)snprintf(c->attrs, sizeof c->attrs,
                   c->kind == SLICE  ? "dim=h; start=%lld; stop=%lld"
                   : c->kind == ROLL ? "dim=h; shift=%lld"
                                     : "dim=h; before=%lld; after=%lld",
                   (long long)(c->kind == SLICE ? -h->before : h->before),
                   (long long)(c->kind == SLICE ? h->places - h->before : h->after));
    c->text = (dtp_op_case){.op = op, .in = {c->in[0]}, .out = c->out, .attrs = c->attrs};
}

static void random_case(window_case *c, uint64_t *state)
{
    *c = (window_case){.kind = (kind)pick(state, 0, N_KINDS - 1),
                       .n = (int32_t)pick(state, 1, AXES),
                       .max = pick(state, 0, 1) == 1};
    if (c->kind >= SLICE) {
        random_move(c, state);
        return;
    }
    c->grouped = c->kind < POOL && pick(state, 0, 2) == 0;
    const bool same = pick(state, 0, 3) == 0;
    for (int32_t i = 0; i < c->n; i++) {
        c->axis[i] = random_axis(state);
        if (same) {
            make_same(&c->axis[i]);
        }
    }
    write_case(c);
}

/* ---- what is to be sent ---- */

static void chunk(int64_t size, int64_t n, int64_t k, int64_t e[2])
{
    const int64_t each = (size + n - 1) / n;
    e[0] = each * k < size ? each * k : size;
    e[1] = e[0] + each < size ? e[0] + each : size;
}

static int64_t within(int64_t at, int64_t size)
{
    return at < 0 ? 0 : at < size ? at : size;
}

/* The range of an operand's axis that the op reads for the piece [e0, e1) of its base: of x from
 * where the first window begins to where the last one ends, of places those whose windows meet the
 * piece. That of a roll may begin before the first element. */
static void reads(const window_case *c, int32_t operand, const axis *a, const int64_t e[2],
                  int64_t out[2])
{
    const int64_t reach = span_of(a) - 1;
    out[0] = out[1] = 0;
    if (e[0] >= e[1]) {
        return;
    }
    if (c->kind >= SLICE) {
        const int64_t by = a == &c->axis[0] ? a->before : 0;
        out[0] = c->kind == ROLL ? e[0] - by : within(e[0] - by, a->in);
        out[1] = c->kind == ROLL ? e[1] - by : within(e[1] - by, a->in);
    } else if (c->kind == POOL_GRAD && operand == 0) {
        out[0] = within(e[0] - reach, a->in);
        out[1] = within(e[1] + reach, a->in);
    } else if (c->kind == TRANSPOSE || c->kind == POOL_GRAD) {
        while (out[0] < a->places && out[0] * a->stride - a->before + reach < e[0]) {
            out[0]++;
        }
        out[1] = out[0];
        while (out[1] < a->places && out[1] * a->stride - a->before < e[1]) {
            out[1]++;
        }
    } else {
        out[0] = within(e[0] * a->stride - a->before, a->in);
        out[1] = within((e[1] - 1) * a->stride - a->before + reach + 1, a->in);
    }
}

/* Of one axis over n ranks: the most elements that a rank gets from the rank so many before it, and
 * how many such distances there are; extents. */
typedef struct traffic {
    int32_t n;
    int64_t most[MAX_PLACES], piece, range;
} traffic;

static traffic traffic_of(const window_case *c, int32_t operand, const axis *a, int64_t n)
{
    const bool of_places = c->kind == TRANSPOSE || (c->kind == POOL_GRAD && operand == 1);
    const bool base_is_x = c->kind == TRANSPOSE || c->kind == POOL_GRAD;
    const int64_t size = of_places ? a->places : a->in, base = base_is_x ? a->in : a->places;
    traffic t = {0};
    for (int64_t k = 0; k < n; k++) {
        int64_t e[2], range[2], own[2], from[MAX_PLACES] = {0};
        chunk(base, n, k, e);
        reads(c, operand, a, e, range);
        for (int64_t i = range[0]; i < range[1]; i++) {
            int64_t owner = -1;
            do {
                chunk(size, n, ++owner, own);
            } while ((i % size + size) % size < own[0] || (i % size + size) % size >= own[1]);
            from[(k - owner + n) % n]++;
        }
        for (int64_t by = 1; by < n; by++) {
            t.n += t.most[by] == 0 && from[by] > 0 ? 1 : 0;
            t.most[by] = from[by] > t.most[by] ? from[by] : t.most[by];
        }
        chunk(size, n, k, own);
        t.piece = own[1] - own[0] > t.piece ? own[1] - own[0] : t.piece;
        t.range = range[1] - range[0] > t.range ? range[1] - range[0] : t.range;
    }
    return t;
}

typedef struct sent {
    int32_t permutes, gathers;
    int64_t elems; /* by permutes */
} sent;

/* `parts`: by axis, the ranks that split it; 1: none. Two permutes bring a range, else a gather. */
static sent expected(const window_case *c, const int64_t parts[AXES])
{
    sent s = {0};
    for (int32_t operand = 0; operand < (c->kind == POOL_GRAD ? 2 : 1); operand++) {
        traffic t[AXES];
        bool gathers = false;
        int64_t rest = c->kind >= POOL ? 3 : c->kind == TRANSPOSE ? 2 : c->grouped ? 4 : 3;
        for (int32_t i = 0; i < c->n; i++) {
            t[i] = traffic_of(c, operand, &c->axis[i], parts[i]);
            gathers = gathers || t[i].n > 2;
            rest *= t[i].piece;
        }
        s.gathers += gathers ? 1 : 0;
        for (int32_t i = 0; i < c->n; i++) {
            s.permutes += t[i].n <= 2 ? t[i].n : 0;
            for (int64_t by = 1; by < parts[i] && t[i].n <= 2; by++) {
                s.elems += rest / t[i].piece * t[i].most[by];
            }
            rest = t[i].n > 0 ? rest / t[i].piece * t[i].range : rest;
        }
    }
    return s;
}

static sent counted(const dtp_program *p)
{
    sent s = {0};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind == DTP_INSTR_START) {
            s.permutes += instr->coll.kind == DTP_PERMUTE ? 1 : 0;
            s.elems += instr->coll.kind == DTP_PERMUTE ? instr->coll.count : 0;
            s.gathers += instr->coll.kind == DTP_ALL_GATHER ? 1 : 0;
        }
    }
    return s;
}

/* ---- running ---- */

typedef struct totals {
    int64_t programs, permuted, gathered, quiet, split; /* split: with both axes split */
    double most;
} totals;

static int32_t row_of(const dtp_graph *g, const char *dim)
{
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
    dtp_sharding_rules_of(&call, true, &rules);
    for (int32_t r = 1; r < rules.n; r++) {
        if (!rules.rows[r].internal && rules.rows[r].dim >= 0 &&
            (rules.rows[r].windows || (call.op->flags & DTP_OP_MOVES) != 0) &&
            strcmp(dtp_dims_name(&g->dims, rules.rows[r].dim), dim) == 0) {
            return r;
        }
    }
    fail_msg("'%s' does not split over '%s'", g->nodes[0].op->name, dim);
    return -1;
}

static void check_sent(const window_case *c, const dtp_rule_subject *s, const dtp_rule_choice *o,
                       const char *mesh, const char *dims, totals *t)
{
    int64_t parts[AXES] = {1, 1};
    dtp_program *p = NULL;
    dtp_err err = {0};
    for (int32_t m = 0; dims[m] != '\0'; m++) {
        parts[dims[m] == 'w' ? 1 : 0] *= o->sharding.mesh.sizes[m];
    }
    if (dtp_lower(s->cg.g, &o->sharding, &o->options, &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    const sent want = expected(c, parts), got = counted(p);
    dtp_program_destroy(p);
    t->permuted += got.permutes > 0 ? 1 : 0;
    t->gathered += got.gathers > 0 ? 1 : 0;
    t->quiet += got.permutes + got.gathers == 0 ? 1 : 0;
    if (want.gathers > 0
            ? got.gathers == 0
            : got.gathers > 0 || got.permutes != want.permutes || got.elems != want.elems) {
        fail_msg("%s of %s and %s to %s (%s), %s split over %s: %d permutes of %lld elements and "
                 "%d gathers, expected %d of %lld and %d",
                 c->text.op, c->in[0], c->in[1], c->out, c->attrs, dims, mesh, got.permutes,
                 (long long)got.elems, got.gathers, want.permutes, (long long)want.elems,
                 want.gathers);
    }
}

/* Splits dims[m] over mesh dim m. */
static void check_split(const window_case *c, const dtp_rule_subject *s,
                        const dtp_rule_target *target, const char *mesh, const char *dims,
                        int32_t way, totals *t)
{
    dtp_rule_choice o;
    dtp_rule_verdict verdict;
    dtp_err why = {0};
    double error;
    assert_int_equal(dtp_rule_choice_init(&o, s->cg.g, mesh, NULL), DTP_OK);
    for (int32_t m = 0; dims[m] != '\0'; m++) {
        o.strategies[0].row[m] = (int16_t)row_of(s->cg.g, dims[m] == 'w' ? "w" : "h");
    }
    if (way > 0) {
        dtp_rule_lay_out(&o, s->cg.g, 0, way > 1);
    }
    assert_int_equal(dtp_rule_check(s, target, &o, false, &verdict, &error, &why), DTP_OK);
    if (verdict != DTP_RULE_EQUAL) {
        fail_msg("%s of %s and %s to %s (%s): %s", c->text.op, c->in[0], c->in[1], c->out, c->attrs,
                 why.msg);
    }
    t->programs++;
    t->split += strcmp(dims, "hw") == 0 ? 1 : 0;
    t->most = error > t->most ? error : t->most;
    const bool twice = dims[1] != '\0' && dims[0] == dims[1];
    if (way == 1 && !twice) {
        check_sent(c, s, &o, mesh, dims, t);
    }
}

static void check_case(const window_case *c, const dtp_rule_target *target, totals *t)
{
    static const char *const lines[] = {"x:2", "x:3", "x:4"}, *const planes[] = {"x:2;y:2",
                                                                                 "x:2;y:3"};
    dtp_rule_subject s;
    bool applies;
    dtp_err err = {0};
    if (dtp_rule_subject_create(&c->text, NULL, false, target, &s, &applies, &err) != DTP_OK) {
        fail_msg("%s of %s and %s to %s (%s): %s", c->text.op, c->in[0], c->in[1], c->out, c->attrs,
                 err.msg);
    }
    for (int32_t m = 0; m < 3; m++) {
        check_split(c, &s, target, lines[m], "h", 1, t);
        check_split(c, &s, target, lines[m], c->n == 2 ? "w" : "h", 0, t);
    }
    for (int32_t m = 0; m < 2; m++) {
        check_split(c, &s, target, planes[m], "hh", 1, t);
        check_split(c, &s, target, planes[m], "hh", 2, t);
        if (c->n == 2) {
            check_split(c, &s, target, planes[m], "hw", 1, t);
            check_split(c, &s, target, planes[m], "wh", 1, t);
        }
    }
    dtp_rule_subject_free(&s);
}

static void run(const char *backend, uint64_t first)
{
    uint64_t state = first;
    dtp_rule_target target;
    totals t = {0};
    assert_int_equal(dtp_rule_target_init(&target, backend, NULL, seed, NULL), DTP_OK);
    assert_int_equal(dtp_sim_pool_create(&target.pool, NULL), DTP_OK);
    for (int32_t i = 0; i < CASES; i++) {
        window_case c;
        random_case(&c, &state);
        if (quarter_has(i, CASES)) {
            check_case(&c, &target, &t);
        }
    }
    dtp_sim_pool_destroy(target.pool);
    (void)printf("%s: %lld programs equal the unsharded op to %.2g; of those whose operands lie as "
                 "they want %lld permute, %lld gather, %lld send nothing\n",
                 backend, (long long)t.programs, t.most, (long long)t.permuted,
                 (long long)t.gathered, (long long)t.quiet);
    assert_true(t.permuted > quarter_of(200) && t.gathered > quarter_of(20) &&
                t.quiet > quarter_of(20) && t.split > quarter_of(100));
}

static void test_windows__split_ops_equal_whole_ones(void **state)
{
    (void)state;
    run("ref", seed);
}

static void test_windows__hold_on_cpu(void **state)
{
    (void)state;
    run("cpu", seed + 1);
}

/* ---- programs that are wrong ---- */

/* A convolution whose rows four ranks have. */
static dtp_program *lower_rows(const dtp_rule_subject *s)
{
    dtp_rule_choice o;
    dtp_program *p = NULL;
    assert_int_equal(dtp_rule_choice_init(&o, s->cg.g, "x:4", NULL), DTP_OK);
    o.strategies[0].row[0] = (int16_t)row_of(s->cg.g, "h");
    dtp_rule_lay_out(&o, s->cg.g, 0, false);
    assert_int_equal(dtp_lower(s->cg.g, &o.sharding, &o.options, &p, NULL), DTP_OK);
    assert_int_equal(dtp_program_check(p, NULL), DTP_OK);
    return p;
}

static dtp_instr *find(dtp_program *p, dtp_instr_kind of, dtp_copy_kind copy)
{
    int32_t i = 0;
    while (p->instrs[i].kind != of || (of == DTP_INSTR_COPY && p->instrs[i].move.kind != copy)) {
        i++;
        assert_true(i < p->n_instrs);
    }
    return &p->instrs[i];
}

static dtp_range spoiled[DTP_MAX_RANK];

/* Other ranges for the operand of the kernel. */
static dtp_range *other_ranges(dtp_program *p)
{
    dtp_value *v = &p->values[find(p, DTP_INSTR_KERNEL, 0)->in[0]];
    memcpy(spoiled, v->ranges, sizeof spoiled);
    v->ranges = spoiled;
    return &spoiled[1];
}

static void less_before(dtp_program *p)
{
    other_ranges(p)->window.before--;
}

static void of_other_pieces(dtp_program *p)
{
    other_ranges(p)->of -= 4;
}

static void no_ranges(dtp_program *p)
{
    p->values[find(p, DTP_INSTR_KERNEL, 0)->in[0]].ranges = NULL;
}

static void range_of_a_whole_dim(dtp_program *p)
{
    (void)other_ranges(p);
    spoiled[0] = spoiled[1];
}

static void pieces_for_ranges(dtp_program *p)
{
    static dtp_value_id in[2];
    dtp_instr *kernel = find(p, DTP_INSTR_KERNEL, 0);
    in[0] = find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_OUT)->in[0];
    in[1] = kernel->in[1];
    kernel->in = in;
}

static void copied_the_other_way(dtp_program *p)
{
    find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_OUT)->move.shift *= -1;
}

static void sent_the_other_way(dtp_program *p)
{
    find(p, DTP_INSTR_START, 0)->coll.shift *= -1;
}

static void sent_less(dtp_program *p)
{
    find(p, DTP_INSTR_START, 0)->coll.count--;
}

static void of_one_side_alone(dtp_program *p)
{
    find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_IN)->n_in--;
}

static void along_another_dim(dtp_program *p)
{
    find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_IN)->move.axis = 2;
}

static void from_a_range(dtp_program *p)
{
    p->values[find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_OUT)->in[0]].ranges =
        p->values[find(p, DTP_INSTR_KERNEL, 0)->in[0]].ranges;
}

static void test_windows__wrong_programs_are_refused(void **state)
{
    static const struct {
        const char *what;
        void (*spoil)(dtp_program *p);
    } WAYS[] = {{"less before", less_before},
                {"of other pieces", of_other_pieces},
                {"no ranges", no_ranges},
                {"range of a whole dim", range_of_a_whole_dim},
                {"pieces for ranges", pieces_for_ranges},
                {"copied the other way", copied_the_other_way},
                {"sent the other way", sent_the_other_way},
                {"sent less", sent_less},
                {"of one side alone", of_one_side_alone},
                {"along another dim", along_another_dim},
                {"from a range", from_a_range}};
    const dtp_op_case rows = {.op = "conv",
                              .attrs = "spatial=h,w; kernel=k,l; padding=same",
                              .in = {"c=2,h=16,w=5", "o=3,c=2,k=5,l=3"}};
    dtp_rule_target target;
    dtp_rule_subject s;
    bool applies;
    (void)state;
    assert_int_equal(dtp_rule_target_init(&target, "ref", NULL, seed, NULL), DTP_OK);
    assert_int_equal(dtp_rule_subject_create(&rows, NULL, false, &target, &s, &applies, NULL),
                     DTP_OK);
    for (size_t i = 0; i < sizeof WAYS / sizeof WAYS[0]; i++) {
        dtp_program *p = lower_rows(&s);
        const uint64_t hash = dtp_program_hash(p);
        WAYS[i].spoil(p);
        if (dtp_program_check(p, NULL) == DTP_OK) {
            fail_msg("a program is taken: %s", WAYS[i].what);
        }
        if (dtp_program_hash(p) == hash) {
            fail_msg("its hash is that of another: %s", WAYS[i].what);
        }
        dtp_program_destroy(p);
    }
    dtp_rule_subject_free(&s);
}

/* ---- rolls ---- */

static void not_cyclic(dtp_program *p)
{
    other_ranges(p)->window.cyclic = 0;
}

static void of_two_permutes(dtp_program *p)
{
    find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_IN)->move.shift2 = -1;
}

static void from_itself(dtp_program *p)
{
    find(p, DTP_INSTR_COPY, DTP_COPY_RANGE_OUT)->move.shift = 4;
}

/* By whole pieces, and not; what is spoiled then. */
static void test_windows__rolls(void **state)
{
    static const struct {
        const char *attrs;
        int32_t kernels, copies, permutes;
        void (*spoil[5])(dtp_program *p);
    } ROLLS[] = {{"dim=h; shift=20", 0, 0, 1, {sent_the_other_way, NULL}},
                 {"dim=h; shift=-8", 0, 0, 1, {NULL}},
                 {"dim=h; shift=16", 1, 0, 0, {NULL}},
                 {"dim=h; shift=3",
                  1,
                  2,
                  1,
                  {not_cyclic, of_two_permutes, from_itself, sent_the_other_way, NULL}},
                 {"dim=h; shift=-5", 1, 3, 2, {not_cyclic, of_one_side_alone, sent_less, NULL}}};
    dtp_rule_target target;
    (void)state;
    assert_int_equal(dtp_rule_target_init(&target, "ref", NULL, seed, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof ROLLS / sizeof ROLLS[0]; i++) {
        const dtp_op_case c = {.op = "roll", .attrs = ROLLS[i].attrs, .in = {"c=2,h=16,w=5"}};
        dtp_rule_subject s;
        bool applies;
        int32_t n[4] = {0};
        assert_int_equal(dtp_rule_subject_create(&c, NULL, false, &target, &s, &applies, NULL),
                         DTP_OK);
        dtp_program *p = lower_rows(&s);
        for (int32_t k = 0; k < p->n_instrs; k++) {
            n[p->instrs[k].kind]++;
        }
        assert_int_equal(n[DTP_INSTR_KERNEL], ROLLS[i].kernels);
        assert_int_equal(n[DTP_INSTR_COPY], ROLLS[i].copies);
        assert_int_equal(n[DTP_INSTR_START], ROLLS[i].permutes);
        dtp_program_destroy(p);
        for (int32_t k = 0; ROLLS[i].spoil[k] != NULL; k++) {
            p = lower_rows(&s);
            const uint64_t hash = dtp_program_hash(p);
            ROLLS[i].spoil[k](p);
            if (dtp_program_check(p, NULL) == DTP_OK || dtp_program_hash(p) == hash) {
                fail_msg("roll, %s: a wrong program, %d, is taken", ROLLS[i].attrs, k);
            }
            dtp_program_destroy(p);
        }
        dtp_rule_subject_free(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows__split_ops_equal_whole_ones),
        cmocka_unit_test(test_windows__hold_on_cpu),
        cmocka_unit_test(test_windows__wrong_programs_are_refused),
        cmocka_unit_test(test_windows__rolls),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
