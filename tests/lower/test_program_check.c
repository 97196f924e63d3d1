/* The program check must be able to fail: programs are damaged in many ways, one at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/transform/graph_variant.h"
#include "tests/lower/lower_fixture.h"
#include "tests/support/small_models.h"
#include "tests/support/spmd_sim.h"

static const int64_t SIZES[4] = {8, 6, 8, 4};
/* Splits of these are uneven, so collectives run on packed parts. */
static const int64_t ODD_SIZES[4] = {9, 6, 7, 5};

/* A program with kernels, decompositions, a bucket, slices and collectives. */
static dtp_program *make(const spmd_fixture *f)
{
    dtp_sharding s = spmd_fixture_rules(f, "x:2;y:2", "batch:x;cls:y");
    dtp_program *p;
    dtp_err err;
    const dtp_graph *g = f->graph;
    dtp_tensor_id w1 = dtp_graph_find(g, "w1"), hidden = dtp_graph_find(g, "h");
    for (int32_t i = 0; i < g->n_updates; i++) {
        if (g->updates[i].target == w1) {
            dtp_layout_split(&s.layouts[w1], 1, 1);
            s.layouts[g->updates[i].value] = s.layouts[w1];
        }
    }
    s.layouts[hidden] = dtp_layout_replicated(2, 2);
    dtp_layout_split(&s.layouts[hidden], 0, 1);
    const dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    assert_int_equal(dtp_lower(g, &s, &passes, &p, NULL), DTP_OK);
    if (dtp_program_check(p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return p;
}

/* ---- finding things to damage ---- */

static dtp_instr *find_coll(dtp_program *p, dtp_coll_kind kind, bool bucket)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *instr = &p->instrs[i];
        if (instr->kind == DTP_INSTR_START && instr->coll.kind == kind &&
            (instr->n_in > 1) == bucket) {
            return instr;
        }
    }
    fail_msg("no %s", dtp_coll_name(kind));
    return NULL;
}

static dtp_instr *find_move(dtp_program *p, dtp_copy_kind kind)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_COPY && p->instrs[i].move.kind == kind) {
            return &p->instrs[i];
        }
    }
    fail_msg("no %s", dtp_copy_name(kind));
    return NULL;
}

static dtp_instr *find_kernel(dtp_program *p, const char *op)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_KERNEL && strcmp(p->instrs[i].op->name, op) == 0) {
            return &p->instrs[i];
        }
    }
    fail_msg("no %s", op);
    return NULL;
}

static dtp_value *value_of(dtp_program *p, const char *tensor)
{
    dtp_tensor_id t = dtp_graph_find(p->graph, tensor);
    assert_true(t >= 0 && p->tensor_value[t] >= 0);
    return &p->values[p->tensor_value[t]];
}

static void set_operand(dtp_program *p, dtp_instr *instr, int32_t k, dtp_value_id v)
{
    dtp_value_id *ids = dtp_arena_alloc(p->arena, (size_t)instr->n_in, sizeof *ids);
    memcpy(ids, instr->in, (size_t)instr->n_in * sizeof *ids);
    ids[k] = v;
    instr->in = ids;
}

static void set_result(dtp_program *p, dtp_instr *instr, int32_t k, dtp_value_id v)
{
    dtp_value_id *ids = dtp_arena_alloc(p->arena, (size_t)instr->n_out, sizeof *ids);
    memcpy(ids, instr->out, (size_t)instr->n_out * sizeof *ids);
    ids[k] = v;
    instr->out = ids;
}

static void remove_instr(dtp_program *p, dtp_instr *instr)
{
    int32_t i = (int32_t)(instr - p->instrs);
    memmove(instr, instr + 1, (size_t)(p->n_instrs - i - 1) * sizeof *instr);
    p->n_instrs--;
}

/* ---- damage ---- */

static void swap_order(dtp_program *p)
{
    dtp_instr *a = find_kernel(p, "relu");
    dtp_instr t = a[0];
    a[0] = a[1];
    a[1] = t;
}

static void other_reduction(dtp_program *p)
{
    find_coll(p, DTP_ALL_REDUCE, false)->coll.op = DTP_REDUCE_MIN;
}

static void other_group(dtp_program *p)
{
    find_coll(p, DTP_ALL_REDUCE, false)->coll.set ^= 3U;
}

static void empty_group(dtp_program *p)
{
    find_coll(p, DTP_ALL_GATHER, false)->coll.set = 0;
}

static void wrong_count(dtp_program *p)
{
    find_coll(p, DTP_ALL_TO_ALL, false)->coll.count--;
}

static void cut_elsewhere_in(dtp_program *p)
{
    dtp_coll *c = &find_coll(p, DTP_ALL_TO_ALL, false)->coll;
    c->in_outer = c->in_outer == 2 ? 1 : 2;
}

static void cut_elsewhere_out(dtp_program *p)
{
    dtp_coll *c = &find_coll(p, DTP_ALL_GATHER, false)->coll;
    c->out_outer = c->out_outer == 2 ? 1 : 2;
}

static void cut_in_fractions(dtp_program *p)
{
    dtp_coll *c = &find_coll(p, DTP_ALL_GATHER, false)->coll;
    c->out_outer = c->count + 1;
}

static void cut_negative(dtp_program *p)
{
    find_coll(p, DTP_ALL_TO_ALL, false)->coll.in_outer = -2;
}

static void cut_one_part(dtp_program *p)
{
    find_coll(p, DTP_ALL_GATHER, false)->coll.in_outer = 2;
}

static void cut_staging(dtp_program *p)
{
    const dtp_instr *wait = find_move(p, DTP_COPY_UNPACK) - 1;
    assert_int_equal(wait->kind, DTP_INSTR_WAIT);
    dtp_coll *c = &p->instrs[wait->pair].coll;
    assert_int_equal(c->count % 2, 0);
    c->out_outer = 2;
}

static void shifted(dtp_program *p)
{
    find_coll(p, DTP_ALL_GATHER, false)->coll.shift = 1;
}

static void permute_to_other_layout(dtp_program *p)
{
    dtp_coll *c = &find_coll(p, DTP_ALL_REDUCE, false)->coll;
    c->kind = DTP_PERMUTE;
    c->shift = 1;
}

static void wrong_dtype(dtp_program *p)
{
    find_coll(p, DTP_ALL_GATHER, false)->coll.dtype = DTP_F32;
}

static void wrong_coll(dtp_program *p)
{
    dtp_instr *instr = find_coll(p, DTP_ALL_GATHER, false);
    instr->coll.kind = DTP_ALL_TO_ALL;
}

static void no_pack(dtp_program *p)
{
    remove_instr(p, find_move(p, DTP_COPY_UNPACK));
}

static void wrong_axis(dtp_program *p)
{
    find_move(p, DTP_COPY_SLICE)->move.axis ^= 1;
}

static void wrong_move(dtp_program *p)
{
    find_move(p, DTP_COPY_SLICE)->move.kind = DTP_COPY_WHOLE;
}

static void smaller_staging(dtp_program *p)
{
    dtp_value *v = &p->values[find_move(p, DTP_COPY_UNPACK)->in[0]];
    v->type.dims[0].size--;
    v->bytes -= 8;
}

static void wrong_bytes(dtp_program *p)
{
    value_of(p, "a")->bytes += 8;
}

static void no_all_reduce(dtp_program *p)
{
    remove_instr(p, find_coll(p, DTP_ALL_REDUCE, false));
}

static void unaligned(dtp_program *p)
{
    find_kernel(p, "constant");
    p->values[find_kernel(p, "constant")->out[0]].offset += 8;
}

static void small_arena(dtp_program *p)
{
    p->peak_bytes -= 64;
}

static void overlapping(dtp_program *p)
{
    value_of(p, "x")->offset = value_of(p, "t")->offset;
}

static void over_parameter(dtp_program *p)
{
    value_of(p, "b1")->offset = value_of(p, "w2")->offset;
}

static void bad_in_place(dtp_program *p)
{
    dtp_instr *relu = find_kernel(p, "softmax_grad_apply");
    dtp_value *out = &p->values[relu->out[0]];
    out->parent = relu->in[0];
    out->offset = p->values[relu->in[0]].offset;
}

static void outside_parent(dtp_program *p)
{
    p->values[find_coll(p, DTP_ALL_REDUCE, true)->out[1]].offset += 64;
}

/* Collective k of a bucket, to be changed. */
static dtp_coll *member(dtp_program *p, dtp_instr *bucket, int32_t k)
{
    dtp_coll *colls = dtp_arena_alloc(p->arena, (size_t)bucket->coll.n_bucket, sizeof *colls);
    memcpy(colls, bucket->coll.bucket, (size_t)bucket->coll.n_bucket * sizeof *colls);
    bucket->coll.bucket = colls;
    return &colls[k];
}

static void other_member(dtp_program *p)
{
    dtp_instr *bucket = find_coll(p, DTP_ALL_REDUCE, true);
    member(p, bucket, 1)->op = DTP_REDUCE_MAX;
}

static void fewer_members(dtp_program *p)
{
    find_coll(p, DTP_ALL_REDUCE, true)->coll.n_bucket--;
}

static void other_sum(dtp_program *p)
{
    find_coll(p, DTP_ALL_REDUCE, true)->coll.count++;
}

static void smaller_member(dtp_program *p)
{
    dtp_instr *bucket = find_coll(p, DTP_ALL_REDUCE, true);
    member(p, bucket, 1)->count--;
    bucket->coll.count--;
}

static void swapped_members(dtp_program *p)
{
    dtp_instr *bucket = find_coll(p, DTP_ALL_REDUCE, true);
    dtp_instr *wait = &p->instrs[bucket->pair];
    const dtp_value_id a = bucket->out[0], b = bucket->out[1];
    for (int32_t k = 0; k < wait->n_in; k++) {
        const dtp_value_id v = wait->in[k];
        set_operand(p, wait, k, v == a ? b : v == b ? a : v);
    }
    set_result(p, bucket, 0, b);
    set_result(p, bucket, 1, a);
}

static void parent_cycle(dtp_program *p)
{
    dtp_value_id v = find_kernel(p, "einsum")->out[0];
    p->values[v].parent = v;
}

static void no_update(dtp_program *p)
{
    p->n_updates--;
}

static void update_elsewhere(dtp_program *p)
{
    p->updates[0].value = find_kernel(p, "relu")->out[0];
}

static void not_kept(dtp_program *p)
{
    value_of(p, "loss")->keep = false;
}

static void short_life(dtp_program *p)
{
    value_of(p, "a")->last--;
}

static void late_birth(dtp_program *p)
{
    value_of(p, "a")->first++;
}

static void other_layout(dtp_program *p)
{
    dtp_value *v = value_of(p, "y");
    v->layout = dtp_layout_replicated(2, 2);
    dtp_layout_split(&v->layout, 1, 0);
    dtp_layout_split(&v->layout, 0, 1);
}

static void broken_layout(dtp_program *p)
{
    value_of(p, "y")->layout.placement[0].order = 3;
}

static void no_such_value(dtp_program *p)
{
    set_operand(p, find_kernel(p, "relu"), 0, p->n_values);
}

static void other_operand(dtp_program *p)
{
    set_operand(p, find_kernel(p, "add"), 1, p->tensor_value[dtp_graph_find(p->graph, "w2")]);
}

static void written_twice(dtp_program *p)
{
    set_result(p, find_kernel(p, "relu"), 0, find_kernel(p, "add")->out[0]);
}

static void writes_input(dtp_program *p)
{
    set_result(p, find_kernel(p, "relu"), 0, p->tensor_value[dtp_graph_find(p->graph, "x")]);
}

static void too_few_operands(dtp_program *p)
{
    find_kernel(p, "add")->n_in = 1;
}

static void not_its_tensor(dtp_program *p)
{
    value_of(p, "y")->tensor = dtp_graph_find(p->graph, "w1");
}

typedef struct damage_case {
    const char *name, *words;
    void (*damage)(dtp_program *p);
} damage_case;

static void check_damage(const spmd_fixture *f, const damage_case *c)
{
    dtp_program *p = make(f);
    dtp_err err;
    c->damage(p);
    if (dtp_program_check(p, &err) != DTP_INTERNAL) {
        if (err.code != DTP_INVALID) {
            fail_msg("%s was not found", c->name);
        }
    }
    if (strstr(err.msg, c->words) == NULL) {
        fail_msg("%s: found as '%s'", c->name, err.msg);
    }
    dtp_program_destroy(p);
}

static void test_check__finds_every_kind_of_damage(void **state)
{
    (void)state;
    static const damage_case cases[] = {
        {"swap_order", "", swap_order},
        {"other_reduction", "does not lead", other_reduction},
        {"other_group", "", other_group},
        {"empty_group", "malformed", empty_group},
        {"wrong_count", "do not fit", wrong_count},
        {"wrong_dtype", "do not fit", wrong_dtype},
        {"wrong_coll", "", wrong_coll},
        {"cut_elsewhere_in", "does not lead", cut_elsewhere_in},
        {"cut_elsewhere_out", "does not lead", cut_elsewhere_out},
        {"cut_in_fractions", "cannot be cut", cut_in_fractions},
        {"cut_negative", "cannot be cut", cut_negative},
        {"cut_one_part", "cannot be cut", cut_one_part},
        {"shifted", "malformed", shifted},
        {"permute_to_other_layout", "passing shards on", permute_to_other_layout},
        {"wrong_axis", "no such move", wrong_axis},
        {"wrong_move", "no such move", wrong_move},
        {"wrong_bytes", "largest shard", wrong_bytes},
        {"no_all_reduce", "", no_all_reduce},
        {"unaligned", "not aligned", unaligned},
        {"small_arena", "do not fit into", small_arena},
        {"overlapping", "overwrites", overlapping},
        {"over_parameter", "", over_parameter},
        {"bad_in_place", "", bad_in_place},
        {"outside_parent", "do not lie inside", outside_parent},
        {"other_member", "malformed bucket", other_member},
        {"fewer_members", "malformed bucket", fewer_members},
        {"other_sum", "malformed bucket", other_sum},
        {"smaller_member", "do not fit", smaller_member},
        {"swapped_members", "", swapped_members},
        {"parent_cycle", "do not end", parent_cycle},
        {"no_update", "is not updated", no_update},
        {"update_elsewhere", "does not reach", update_elsewhere},
        {"not_kept", "is not kept", not_kept},
        {"short_life", "", short_life},
        {"late_birth", "live from", late_birth},
        {"other_layout", "", other_layout},
        {"broken_layout", "not ordered", broken_layout},
        {"no_such_value", "no values", no_such_value},
        {"other_operand", "", other_operand},
        {"written_twice", "written twice", written_twice},
        {"writes_input", "written by the program", writes_input},
        {"too_few_operands", "do not fit the op", too_few_operands},
        {"not_its_tensor", "not of the type", not_its_tensor},
    };
    static const damage_case on_packed[] = {
        {"cut_staging", "", cut_staging},
        {"no_pack", "", no_pack},
        {"smaller_staging", "", smaller_staging},
    };
    spmd_fixture f = spmd_fixture_mlp(SIZES), odd = spmd_fixture_mlp(ODD_SIZES);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_damage(&f, &cases[i]);
    }
    for (size_t i = 0; i < sizeof on_packed / sizeof on_packed[0]; i++) {
        check_damage(&odd, &on_packed[i]);
    }
    spmd_fixture_destroy(&f);
    spmd_fixture_destroy(&odd);
}

/* ---- what runs once for all microbatches ---- */

/* A model in 16 bits with microbatches; every rank has all parameters, so that casts run once. */
static dtp_program *make_once(const dtp_graph *g)
{
    dtp_mesh mesh;
    dtp_layout_rules rules;
    dtp_sharding s;
    dtp_program *p = NULL;
    dtp_err err = {0};
    const dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    dtp_status status = dtp_layout_rules_parse("batch:x", &mesh, &g->dims, g->arena, &rules, &err);
    status = status == DTP_OK ? dtp_sharding_from_rules(g, &mesh, &rules, false, g->arena, &s, &err)
                              : status;
    status = status == DTP_OK ? dtp_lower(g, &s, &options, &p, &err) : status;
    status = status == DTP_OK ? dtp_program_check(p, &err) : status;
    if (status != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return p;
}

static bool is_steady(const dtp_program *p, dtp_value_id v)
{
    while (!p->values[v].once && p->values[v].parent >= 0) {
        v = p->values[v].parent;
    }
    return p->values[v].once || p->values[v].kind == DTP_VALUE_RESIDENT;
}

/* Whether an instruction of a microbatch that reads anything but parameters may run once. */
static void check_run_once(const dtp_graph *g, int32_t *refused)
{
    dtp_program *p = make_once(g);
    for (int32_t i = 0; i < dtp_program_body(p); i++) {
        bool steady = true;
        for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
            steady = steady && is_steady(p, p->instrs[i].in[k]);
        }
        if (p->instrs[i].kind == DTP_INSTR_KERNEL && !steady) {
            p->instrs[i].once = true;
            assert_int_equal(dtp_program_check(p, NULL), DTP_INTERNAL);
            p->instrs[i].once = false;
            (*refused)++;
        }
    }
    dtp_program_destroy(p);
}

/* Something else in the bytes of what is made once, when one microbatch does not read it any more
 * or not yet: the next one does. */
static void check_lasting(const dtp_graph *g, int32_t *refused)
{
    dtp_program *p = make_once(g);
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        dtp_value *lasting = &p->values[v];
        int32_t made = -1, last = -1;
        for (int32_t i = 0; i < p->n_instrs && lasting->once && lasting->parent < 0; i++) {
            for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
                last = dtp_value_root(p, p->instrs[i].in[k]) == v ? i : last;
            }
            made = p->instrs[i].n_out == 1 && p->instrs[i].out[0] == v ? i : made;
        }
        for (dtp_value_id o = 0; o < p->n_values && made >= 0 && last > made; o++) {
            dtp_value *other = &p->values[o], before = *lasting;
            const int64_t at = other->offset;
            const bool free = other->kind == DTP_VALUE_TEMP && !other->once && !other->keep &&
                              other->parent < 0 && other->bytes <= lasting->bytes &&
                              other->last < dtp_program_body(p) &&
                              (other->first > last || other->last < made);
            if (free) {
                other->offset = lasting->offset;
                lasting->first = made;
                lasting->last = last;
                assert_int_equal(dtp_program_check(p, NULL), DTP_INTERNAL);
                other->offset = at;
                *lasting = before;
                (*refused)++;
            }
        }
    }
    dtp_program_destroy(p);
}

static void test_check__what_runs_once(void **state)
{
    (void)state;
    int32_t refused[2] = {0, 0};
    dtp_graph *model = small_model_read(small_model_find("gpt_bytes"), false), *g = NULL;
    const dtp_graph_variant variant = {.precision = {.compute = DTP_BF16, .gradients = DTP_BF16},
                                       .microbatches = 2,
                                       .micro_dim = -1};
    assert_int_equal(dtp_graph_with_variant(model, &variant, 0, NULL, &g, NULL), DTP_OK);
    check_run_once(g, &refused[0]);
    check_lasting(g, &refused[1]);
    printf("%d instructions, %d places refused\n", refused[0], refused[1]);
    assert_true(refused[0] > 50 && refused[1] > 50);
    dtp_graph_destroy(g);
    dtp_graph_destroy(model);
}

/* ---- random damage ---- */

static void move_buffer(dtp_program *p, uint64_t *seed)
{
    dtp_value_id root = (dtp_value_id)(spmd_sim_random(seed) % (uint64_t)p->n_values);
    int64_t room = p->peak_bytes - p->values[dtp_value_root(p, root)].bytes;
    root = dtp_value_root(p, root);
    int64_t to = (int64_t)(spmd_sim_random(seed) % (uint64_t)(room / 64 + 1)) * 64;
    int64_t by = to - p->values[root].offset;
    for (int32_t v = 0; v < p->n_values; v++) {
        if (dtp_value_root(p, v) == root) {
            p->values[v].offset += by;
        }
    }
}

static void share_buffer(dtp_program *p, uint64_t *seed)
{
    dtp_instr *instr = &p->instrs[spmd_sim_random(seed) % (uint64_t)p->n_instrs];
    if (instr->n_in == 0 || instr->n_out == 0 || p->values[instr->out[0]].parent >= 0) {
        return;
    }
    dtp_value_id in = instr->in[spmd_sim_random(seed) % (uint64_t)instr->n_in];
    int64_t by = p->values[in].offset - p->values[instr->out[0]].offset;
    dtp_value_id out = instr->out[0];
    for (int32_t v = 0; v < p->n_values; v++) {
        if (dtp_value_root(p, v) == out) {
            p->values[v].offset += by;
        }
    }
    p->values[out].parent = in;
}

static void swap_instrs(dtp_program *p, uint64_t *seed)
{
    int32_t i = (int32_t)(spmd_sim_random(seed) % (uint64_t)(p->n_instrs - 1));
    dtp_instr t = p->instrs[i];
    p->instrs[i] = p->instrs[i + 1];
    p->instrs[i + 1] = t;
    for (int32_t k = i; k < i + 2; k++) { /* a START and its WAIT know each other */
        if (p->instrs[k].pair >= 0 && p->instrs[k].pair != i && p->instrs[k].pair != i + 1) {
            p->instrs[p->instrs[k].pair].pair = k;
        }
    }
}

static void change_coll(dtp_program *p, uint64_t *seed)
{
    dtp_instr *instr = &p->instrs[spmd_sim_random(seed) % (uint64_t)p->n_instrs];
    if (instr->kind == DTP_INSTR_START) {
        instr->coll.set = 1 + (dtp_mesh_set)(spmd_sim_random(seed) % 3);
        instr->coll.op = (dtp_reduce_op)(spmd_sim_random(seed) % DTP_N_REDUCE_OPS);
        instr->coll.in_outer = (int64_t)(spmd_sim_random(seed) % 5);
        instr->coll.out_outer = (int64_t)(spmd_sim_random(seed) % 5);
    } else if (instr->kind == DTP_INSTR_COPY) {
        instr->move.set = (dtp_mesh_set)(spmd_sim_random(seed) % 4);
    }
}

/* Whatever the check lets pass must compute the right values. */
static void test_check__what_passes_is_right(void **state)
{
    (void)state;
    static void (*const damages[])(dtp_program *, uint64_t *) = {move_buffer, share_buffer,
                                                                 swap_instrs, change_coll};
    spmd_fixture f = spmd_fixture_mlp(SIZES);
    int32_t passed = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        uint64_t at = seed;
        dtp_program *p = make(&f);
        const dtp_overlap overlap = {.depth = (int32_t)(seed / 4 % 3) * 4};
        assert_int_equal(dtp_program_overlap(p, &overlap, false, NULL), DTP_OK);
        damages[seed % 4](p, &at);
        if (dtp_program_check(p, NULL) == DTP_OK) {
            passed++;
            if (!spmd_fixture_agrees(&f, p)) {
                fail_msg("seed %llu: a wrong program passed", (unsigned long long)seed);
            }
        } else {
            refused++;
        }
        dtp_program_destroy(p);
    }
    printf("random damage, seeds 1..1500: %d refused, %d harmless\n", refused, passed);
    assert_true(refused > 500 && passed > 50);
    spmd_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check__finds_every_kind_of_damage),
        cmocka_unit_test(test_check__what_runs_once),
        cmocka_unit_test(test_check__what_passes_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
