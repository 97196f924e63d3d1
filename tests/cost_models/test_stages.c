/* Stages of models: where things lie, and programs whose memory is run as the table says, with
 * messages that arrive at any time that is allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/transform/graph_variant.h"
#include "cost_models/pipeline.h"
#include "tests/support/quarter.h"

enum { BLOCK = 64, CASES = 72 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* ---- models ---- */

typedef struct model_case {
    const char *file;
    int32_t n;
    dtp_dim_override dims[8];
} model_case;

static const model_case MODELS[] = {
    {"gpt_bytes.json",
     5,
     {{"batch", 16}, {"length", 16}, {"heads", 2}, {"d_head", 8}, {"vocab", 32}}},
    {"gpt2_small.json",
     6,
     {{"batch", 16}, {"length", 16}, {"layers", 4}, {"vocab", 32}, {"d_head", 2}, {"heads", 2}}},
    {"mixtral_8x7b.json",
     8,
     {{"batch", 16},
      {"length", 16},
      {"layers", 4},
      {"vocab", 32},
      {"d_head", 2},
      {"kv_heads", 2},
      {"d_ff", 32},
      {"experts", 4}}}};

static dtp_graph *read_model(const model_case *c)
{
    char path[256];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    dtp_model_options options = dtp_model_options_init();
    options.n_overrides = c->n;
    options.overrides = c->dims;
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s", c->file);
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_graph *change(const dtp_graph *model, const dtp_variant_texts *texts, dtp_arena *arena,
                         dtp_graph_variant *variant)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    if (dtp_graph_variant_parse(texts, model, arena, variant, &err) != DTP_OK ||
        dtp_graph_with_variant(model, variant, 0, NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* ---- a run over the memory of all stages ---- */

/* The arena of a stage, and its place in the table. */
typedef struct stage_arena {
    int64_t *tag; /* by block: 1 + the value that was written there and its chunk, times 4096, plus
                     microbatch */
    int64_t end;  /* of what was touched */
    int32_t at;
} stage_arena;

typedef struct chunk_run {
    const dtp_program *p;
    stage_arena *arena;
    bool *written;
} chunk_run;

static int64_t place(const chunk_run *r, dtp_value_id v, int32_t slot)
{
    const dtp_value *value = &r->p->values[v];
    return value->offset + (value->in_slot ? slot * r->p->slot_bytes : 0);
}

static void touch(chunk_run *r, dtp_value_id v, int32_t slot, int32_t m, bool write)
{
    const dtp_program *p = r->p;
    const int64_t from = place(r, v, slot), to = from + p->values[v].bytes;
    dtp_value_id origin = v;
    while (!r->written[origin] && p->values[origin].parent >= 0) {
        origin = p->values[origin].parent;
    }
    const bool resident = p->values[dtp_value_root(p, v)].kind == DTP_VALUE_RESIDENT;
    const int64_t mark =
        ((int64_t)(origin + 1) * 64 + p->chunk) * 4096 + (p->values[origin].once ? 0 : m);
    for (int64_t b = from / BLOCK; b * BLOCK < to; b++) {
        assert_true(b * BLOCK < p->peak_bytes);
        if (write) {
            r->arena->tag[b] = mark;
        } else if (resident ? r->arena->tag[b] / 4096 % 64 != p->chunk : r->arena->tag[b] != mark) {
            fail_msg("chunk %d: '%s' of microbatch %d is not there", p->chunk, p->values[v].name,
                     m);
        }
    }
    const int64_t end = (to + BLOCK - 1) / BLOCK * BLOCK;
    r->arena->end = end > r->arena->end ? end : r->arena->end;
}

static bool is_received(const dtp_program *p, dtp_value_id v)
{
    const dtp_value *value = &p->values[v];
    return value->kind == DTP_VALUE_INPUT &&
           p->graph->tensors[value->tensor].kind == DTP_TENSOR_VALUE;
}

static void run_section(chunk_run *r, const dtp_stage_action *a)
{
    const dtp_program *p = r->p;
    const int32_t slot = a->slot < 0 ? 0 : a->slot;
    for (dtp_value_id v = 0; v < p->n_values && a->section == DTP_SECTION_FORWARD; v++) {
        if (p->values[v].kind == DTP_VALUE_INPUT && !is_received(p, v)) {
            touch(r, v, slot, a->microbatch, true);
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (dtp_instr_section(p, instr) != a->section || (instr->once && a->microbatch > 0)) {
            continue;
        }
        for (int32_t k = 0; k < instr->n_in; k++) {
            touch(r, instr->in[k], slot, a->microbatch, false);
        }
        if (instr->workspace >= 0) {
            touch(r, instr->workspace, slot, a->microbatch, true);
        }
        for (int32_t k = 0; k < instr->n_out; k++) {
            touch(r, instr->out[k], slot, a->microbatch, true);
        }
    }
}

/* The action of a stage for a section of a microbatch in a chunk. */
static int32_t find_action(const dtp_stage_table *t, int32_t chunk, int32_t section, int32_t m)
{
    const dtp_stage_action *list = t->actions[chunk % t->n_stages];
    int32_t i = 0;
    while (list[i].section != section || list[i].microbatch != m || list[i].chunk != chunk) {
        i++;
    }
    return i;
}

typedef struct pipeline_run {
    const dtp_pipeline *p;
    const dtp_stages *stages;
    chunk_run *chunk;
    stage_arena *stage;
    int32_t *sent; /* by transfer: how many have arrived, */
    bool *arrived; /* and by transfer * M + microbatch */
} pipeline_run;

static bool is_single(const dtp_transfer *x)
{
    return x->once || x->section >= DTP_SECTION_UPDATE;
}

/* Whether all that a chunk has sent behind a backward section has arrived. */
static bool all_sent(const pipeline_run *r, int32_t c, int32_t m)
{
    bool all = true;
    for (int32_t k = 0; k < r->stages->n_transfers; k++) {
        const dtp_transfer *x = &r->stages->transfers[k];
        all = all && (x->from != c || x->section != DTP_SECTION_BACKWARD || x->once ||
                      r->arrived[k * r->p->table.n_microbatches + m]);
    }
    return all;
}

/* Whether the slot of a forward section is given to it: everything that another microbatch sent
 * from it has gone. */
static bool is_given(const pipeline_run *r, int32_t s, int32_t there)
{
    const dtp_stage_action *list = r->p->table.actions[s];
    for (int32_t i = 0; i < there; i++) {
        if (list[i].section == DTP_SECTION_BACKWARD && list[i].slot == list[there].slot &&
            (r->stage[s].at <= i || !all_sent(r, list[i].chunk, list[i].microbatch))) {
            return false;
        }
    }
    return true;
}

static bool try_send(pipeline_run *r, int32_t k)
{
    const dtp_transfer *x = &r->stages->transfers[k];
    const dtp_stage_table *t = &r->p->table;
    const int32_t m_n = t->n_microbatches, single = is_single(x), each = t->n_chunks / t->n_stages;
    const int32_t at = r->stage[x->from % t->n_stages].at, to_at = r->stage[x->to % t->n_stages].at;
    chunk_run *from = &r->chunk[x->from], *to = &r->chunk[x->to];
    if (r->sent[k] == (single ? 1 : m_n)) {
        return false;
    }
    const int32_t m = single ? m_n - 1 : r->sent[k]; /* tables run them in order */
    const int32_t made = find_action(t, x->from, x->section, m);
    const bool body = x->section < DTP_SECTION_UPDATE && !x->once;
    if (at <= made || (single && to_at < 2 * m_n * each)) {
        return false;
    }
    const dtp_stage_action *list = t->actions[x->to % t->n_stages];
    const int32_t there = body ? find_action(t, x->to, DTP_SECTION_FORWARD, m) : 0;
    const int32_t slot = body ? list[there].slot : 0;
    if (body && x->section == DTP_SECTION_FORWARD && !is_given(r, x->to % t->n_stages, there)) {
        return false;
    }
    const dtp_stage_action *of = &t->actions[x->from % t->n_stages][made];
    touch(from, from->p->tensor_value[x->tensor], of->slot < 0 ? 0 : of->slot, m, false);
    if (x->into < 0) {
        touch(to, to->p->tensor_value[x->tensor], slot, m, true);
    } else {
        assert_true(to->p->tensor_value[x->into] >= 0);
    }
    r->arrived[k * m_n + m] = true;
    r->sent[k]++;
    return true;
}

static bool try_run(pipeline_run *r, int32_t s)
{
    const dtp_stage_table *t = &r->p->table;
    stage_arena *stage = &r->stage[s];
    if (stage->at == t->n_actions[s]) {
        return false;
    }
    const dtp_stage_action *a = &t->actions[s][stage->at];
    for (int32_t k = 0; k < r->stages->n_transfers; k++) {
        const dtp_transfer *x = &r->stages->transfers[k];
        const int32_t before = !is_single(x) ? x->section
                               : x->once     ? DTP_SECTION_UPDATE + 1
                                             : x->section + 1;
        if (x->to == a->chunk && before == a->section && x->into < 0 &&
            !r->arrived[k * t->n_microbatches + a->microbatch]) {
            return false;
        }
    }
    if (a->section == DTP_SECTION_FORWARD && !is_given(r, s, stage->at)) {
        return false;
    }
    run_section(&r->chunk[a->chunk], a);
    stage->at++;
    return true;
}

static void run_pipeline(const dtp_pipeline *p, uint64_t *seed, dtp_arena *arena)
{
    pipeline_run r = {.p = p, .stages = p->programs[0]->graph->stages};
    const size_t n_transfers = (size_t)r.stages->n_transfers + 1;
    const int32_t n_stages = p->table.n_stages;
    assert_int_equal(DTP_NEW(arena, r.stage, n_stages, NULL), DTP_OK);
    assert_int_equal(DTP_NEW(arena, r.chunk, p->n, NULL), DTP_OK);
    assert_int_equal(DTP_NEW(arena, r.sent, n_transfers, NULL), DTP_OK);
    assert_int_equal(DTP_NEW(arena, r.arrived, n_transfers * (size_t)p->table.n_microbatches, NULL),
                     DTP_OK);
    for (int32_t c = 0; c < p->n; c++) {
        chunk_run *x = &r.chunk[c];
        x->p = p->programs[c];
        x->arena = &r.stage[c % n_stages];
        assert_int_equal(x->p->peak_bytes, p->programs[c % n_stages]->peak_bytes);
        if (c < n_stages) {
            assert_int_equal(DTP_NEW(arena, x->arena->tag, x->p->peak_bytes / BLOCK + 1, NULL),
                             DTP_OK);
        }
        assert_int_equal(DTP_NEW(arena, x->written, x->p->n_values, NULL), DTP_OK);
        for (int32_t i = 0; i < x->p->n_instrs; i++) {
            for (int32_t k = 0; k < x->p->instrs[i].n_out; k++) {
                x->written[x->p->instrs[i].out[k]] = true;
            }
        }
        for (dtp_value_id v = 0; v < x->p->n_values; v++) {
            if (x->p->values[v].kind == DTP_VALUE_RESIDENT) {
                touch(x, v, 0, 0, true);
            }
        }
    }
    for (int32_t idle = 0; idle < 60 * (p->n + (int32_t)n_transfers); idle++) {
        const int32_t k = (int32_t)draw(seed, (uint32_t)(n_stages + r.stages->n_transfers));
        idle = (k < n_stages ? try_run(&r, k) : try_send(&r, k - n_stages)) ? 0 : idle;
    }
    for (int32_t s = 0; s < n_stages; s++) {
        assert_int_equal(r.stage[s].at, p->table.n_actions[s]);
        assert_int_equal(r.stage[s].end, p->programs[s]->peak_bytes);
    }
}

/* ---- tests ---- */

static void test_programs__run_in_their_memory(void **state)
{
    (void)state;
    static const char *const STAGES[] = {"2",           "4",   "layer:0,1",
                                         "layer:0,2,3", "2x2", "layer:0,1,2,3x2"};
    static const char *const REMAT[] = {NULL, "all"}, *const PRECISION[] = {NULL,
                                                                            "bf16,gradients=f32"};
    static const char *const COUNT[] = {"2", "4", "8"}, *const SLOTS[] = {NULL, "gpipe", "2"};
    static const char *const MESH[] = {"", "x:2"}, *const RULES[] = {"", "batch:x", "d_ff:x"};
    for (int32_t k = 0; k < CASES; k++) {
        uint64_t seed = (uint64_t)k + 1;
        const int32_t mesh_at = (int32_t)draw(&seed, 2), model = (int32_t)draw(&seed, 3);
        const dtp_variant_texts texts = {.outputs = "none",
                                         .precision = PRECISION[draw(&seed, 2)],
                                         .remat = REMAT[draw(&seed, 2)],
                                         .microbatches = COUNT[draw(&seed, 3)],
                                         .stages = STAGES[draw(&seed, 6)],
                                         .slots = SLOTS[draw(&seed, 3)]};
        const char *rules = mesh_at == 0 ? "" : RULES[draw(&seed, 3)];
        const int32_t depth = draw(&seed, 2) == 0 ? 0 : 4;
        if (!quarter_has(k, CASES)) {
            continue;
        }
        dtp_arena *arena = dtp_arena_create();
        dtp_graph *read = read_model(&MODELS[model]);
        dtp_graph_variant variant;
        dtp_layout_rules parsed;
        dtp_sharding sharding;
        dtp_mesh mesh;
        dtp_pipeline *p = NULL;
        dtp_err err = {0};
        dtp_graph *g = change(read, &texts, arena, &variant);
        dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
        options.overlap.depth = depth;
        dtp_status s = dtp_mesh_parse(MESH[mesh_at], &mesh, &err);
        s = s == DTP_OK ? dtp_layout_rules_parse(rules, &mesh, &g->dims, arena, &parsed, &err) : s;
        s = s == DTP_OK ? dtp_sharding_from_rules(g, &mesh, &parsed, false, arena, &sharding, &err)
                        : s;
        s = s == DTP_OK ? dtp_pipeline_create(g, &sharding, &options, &p, &err) : s;
        if (s != DTP_OK) {
            fail_msg("case %d (%s): %s", k, MODELS[model].file, err.msg);
        }
        run_pipeline(p, &seed, arena);
        dtp_pipeline_destroy(p);
        dtp_graph_destroy(g);
        dtp_graph_destroy(read);
        dtp_arena_destroy(arena);
    }
}

/* Every node on one stage or, of what has no gradient, on those that read it; every operand there
 * or received. The tied table of gpt2_small: a copy on the last stage, one sum there per step, one
 * new value back. */
static void test_stages__a_shared_table_is_summed_once(void **state)
{
    (void)state;
    const dtp_variant_texts texts = {
        .outputs = "none", .microbatches = "4", .stages = "layer:0,1,3", .precision = "bf16"};
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *read = read_model(&MODELS[1]);
    dtp_graph_variant variant;
    dtp_graph *g = change(read, &texts, arena, &variant);
    const dtp_stages *s = g->stages;
    const dtp_tensor_id wte = dtp_graph_find(g, "wte");
    int32_t sums = 0, copies = 0, forward = 0, backward = 0;
    assert_int_equal(s->n, 3);
    assert_int_equal(s->holds[wte], 1 | 4);
    assert_int_equal(s->home[wte], 0);
    assert_int_equal(s->home[g->loss], 2);
    for (int32_t k = 0; k < s->n_transfers; k++) {
        const dtp_transfer *x = &s->transfers[k];
        sums += x->once && x->from == 2 && x->to == 0 ? 1 : 0;
        copies += x->into == wte && x->from == 0 && x->to == 2 ? 1 : 0;
        forward += x->section == DTP_SECTION_FORWARD && x->to == x->from + 1 ? 1 : 0;
        backward += x->section == DTP_SECTION_BACKWARD && !x->once && x->to + 1 == x->from ? 1 : 0;
    }
    assert_int_equal(sums, 1);
    assert_int_equal(copies, 1);
    assert_int_equal(forward, 2);
    assert_int_equal(backward, 2);
    assert_int_equal(s->n_transfers, 6);
    assert_int_equal(s->n_parts, 2);
    dtp_graph_destroy(g);
    dtp_graph_destroy(read);
    dtp_arena_destroy(arena);
}

static void refuse(const dtp_graph *model, const char *stages, const char *slots, const char *words)
{
    dtp_stage_choice choice;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    assert_int_equal(dtp_stages_parse(stages, slots, model, arena, &choice, &err), DTP_INVALID);
    if (strstr(err.msg, words) == NULL) {
        fail_msg("'%s': %s", stages, err.msg);
    }
    dtp_arena_destroy(arena);
}

static void test_texts__that_are_no_stages_are_refused(void **state)
{
    (void)state;
    dtp_graph *g = read_model(&MODELS[0]);
    refuse(g, "5", NULL, "has 4 instances of blocks");
    refuse(g, "0", NULL, "expected 1 to 64");
    refuse(g, "layer:0,2,1", NULL, "not ascending: 'layer:1'");
    refuse(g, "layer:0,2,2", NULL, "not ascending");
    refuse(g, "layer:1,2", NULL, "which leaves out layer:0");
    refuse(g, "layer:0,4", NULL, "has no instance 'layer:4'");
    refuse(g, "block:0,2", NULL, "has no block 'block:0'");
    refuse(g, "layer", NULL, "is not a number of stages or a list");
    refuse(g, "layer:0,", NULL, "is not a number of stages or a list");
    refuse(g, "2", "0", "slots: '0'");
    refuse(g, "3x2", NULL, "3x2, but 'gpt_bytes' has 4 instances of blocks");
    refuse(g, "1x2", NULL, "1x2, expected 2 to 32");
    refuse(g, "2x0", NULL, "has 0 chunks a stage");
    refuse(g, "layer:0,1,2x2", NULL, "layer:0,1,2x2, expected 2 to 32, which share the chunks");
    refuse(g, "layer:0,1x2", NULL, "layer:0,1x2, expected 2 to 32");
    refuse(g, "2x", NULL, "is not a number of stages or a list");
    dtp_graph_destroy(g);
}

static void test_texts__a_number_makes_equal_work(void **state)
{
    (void)state;
    static const struct {
        int32_t head;
        const char *stages, *borders[4];
    } cases[] = {{32, "2", {"layer:0", "layer:2"}},
                 {32, "4", {"layer:0", "layer:1", "layer:2", "layer:3"}},
                 {4096, "2", {"layer:0", "layer:3"}}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        model_case m = MODELS[0];
        dtp_stage_choice choice;
        dtp_arena *arena = dtp_arena_create();
        m.dims[4].size = cases[k].head;
        dtp_graph *g = read_model(&m);
        assert_int_equal(dtp_stages_parse(cases[k].stages, NULL, g, arena, &choice, NULL), DTP_OK);
        for (int32_t s = 0; s < choice.n; s++) {
            assert_string_equal(choice.borders[s], cases[k].borders[s]);
        }
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs__run_in_their_memory),
                                       cmocka_unit_test(test_stages__a_shared_table_is_summed_once),
                                       cmocka_unit_test(test_texts__that_are_no_stages_are_refused),
                                       cmocka_unit_test(test_texts__a_number_makes_equal_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
