/* Styles and baselines under variants of the graph. Recomputation changes nothing but what is
 * computed again: every other node runs as without, so kernels take at most 1.4 times as long. With
 * microbatches gradients are reduced and parameters gathered as often as without, but for FSDP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/node_price.h"
#include "interop/styles/styles.h"
#include "planner/baselines/baselines.h"
#include "tests/support/tensor_cases.h"

enum { MAX_STYLES = 8 };

/* Two heads with a loss each, in blocks: logits are computed again. */
#define HEADS                                                                                      \
    "{\"format\": \"dtp.model/1\", \"name\": \"heads\","                                           \
    " \"dims\": {\"batch\": 2048, \"d\": 1024, \"vocab\": 8192},"                                  \
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"]},"                                         \
    "  \"t\": {\"dims\": [\"batch\"], \"dtype\": \"i32\", \"below\": \"vocab\"}},"                 \
    " \"params\": {\"v\": {\"dims\": [\"d\", \"vocab\"], \"init\": \"ones\"}},"                    \
    " \"blocks\": {\"head\": {"                                                                    \
    "  \"params\": {\"w\": {\"dims\": [\"d\", \"vocab\"], \"init\": \"ones\"}},"                   \
    "  \"nodes\": [{\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"h\", \"w\"],"               \
    "    \"out\": [\"batch\", \"vocab\"]},"                                                        \
    "   {\"id\": \"ce\", \"op\": \"cross_entropy\", \"in\": [\"logits\", \"t\"],"                  \
    "    \"over\": \"vocab\", \"reduce\": \"mean\"},"                                              \
    "   {\"id\": \"both\", \"op\": \"add\", \"in\": [\"total\", \"ce\"]}],"                        \
    "  \"out\": {\"total\": \"both\"}}},"                                                          \
    " \"nodes\": [{\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"x\", \"v\"],"                \
    "   \"out\": [\"batch\", \"vocab\"]},"                                                         \
    "  {\"id\": \"ce\", \"op\": \"cross_entropy\", \"in\": [\"logits\", \"t\"],"                   \
    "   \"over\": \"vocab\", \"reduce\": \"mean\"},"                                               \
    "  {\"repeat\": \"head\", \"count\": 2, \"as\": \"heads\", \"carry\": {\"total\": \"ce\"},"    \
    "   \"with\": {\"h\": \"x\"}},"                                                                \
    "  {\"id\": \"loss\", \"op\": \"neg\", \"in\": [\"heads.total\"]}],"                           \
    " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}"

typedef struct subject {
    tensor_fixture f; /* of the model as it is */
    const char *precision;
    dtp_arena *arena;
    char name[200];
} subject;

static void must(const subject *s, const char *what, dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s, %s: %s", s->name, what, err->msg);
    }
}

static subject subject_open(const tensor_case *c, const char *precision)
{
    subject s = {.precision = precision, .arena = dtp_arena_create()};
    (void)snprintf(s.name, sizeof s.name, "%.24s %s on %s, %s, %s", c->model,
                   c->dims != NULL ? c->dims : "", c->mesh, c->target->name, precision);
    tensor_fixture_create(c, &s.f);
    return s;
}

static void subject_close(subject *s)
{
    tensor_fixture_destroy(&s->f);
    dtp_arena_destroy(s->arena);
}

static dtp_graph *variant_of(const subject *s, const char *remat, const char *microbatches)
{
    const dtp_variant_texts texts = {
        .precision = s->precision, .remat = remat, .microbatches = microbatches};
    dtp_graph_variant variant;
    dtp_graph *g = NULL;
    dtp_err err = {0};
    must(s, "variant", dtp_graph_variant_parse(&texts, s->f.model, s->arena, &variant, &err), &err);
    must(s, "variant", dtp_graph_with_variant(s->f.model, &variant, 0, NULL, &g, &err), &err);
    return g;
}

/* ---- candidates ---- */

static void baselines_of(subject *s, const dtp_graph *g, int32_t *n, dtp_candidate **out)
{
    const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic()};
    dtp_err err = {0};
    must(s, "baselines", dtp_baselines_create(g, &s->f.pricer, &options, s->arena, n, out, &err),
         &err);
}

/* Styles of a graph: their pins and what follows from them. */
typedef struct styled {
    dtp_graph *g;
    dtp_pin *pins;
    dtp_propagate_options options;
    dtp_candidate c;
} styled;

static styled styles_of(subject *s, dtp_graph *g, const char *const *styles, bool torch)
{
    styled x = {.g = g,
                .options = {.price = dtp_step_generic_price,
                            .redistributor = dtp_redistributor_generic(),
                            .torch = torch},
                .c = {.name = styles[0], .legal = true}};
    dtp_lower_options lowering = dtp_lower_options_init(x.options.redistributor);
    dtp_styles list;
    dtp_err err = {0};
    lowering.target = s->f.pricer.target;
    lowering.overlap.depth = DTP_OVERLAP_CHOOSE;
    dtp_styles_init(&list, s->arena);
    for (int32_t i = 0; i < MAX_STYLES && styles[i] != NULL; i++) {
        must(s, styles[i], dtp_styles_parse(styles[i], &list, &err), &err);
    }
    must(s, styles[0],
         dtp_styles_pins(g, &s->f.pricer.mesh, &list, &x.options.n_pins, &x.pins, &err), &err);
    x.options.pins = x.pins;
    must(s, styles[0],
         dtp_propagate(g, &s->f.pricer.mesh, &x.options, s->arena, &x.c.sharding, &err), &err);
    must(s, styles[0],
         dtp_candidate_faster(g, &s->f.pricer, &lowering, x.options.redistributor, &x.c, &err),
         &err);
    return x;
}

/* ---- recomputation ---- */

static void check_node(const subject *s, const char *name, const dtp_graph *g,
                       const dtp_candidate *plain, const dtp_graph *again_g,
                       const dtp_candidate *again, dtp_node_id n)
{
    const dtp_node *node = &again_g->nodes[n];
    const dtp_tensor_id t = dtp_graph_find(g, node->name);
    const dtp_node_id of = t >= 0 ? g->tensors[t].producer : -1;
    if (of < 0 || memcmp(&plain->sharding.strategies[of], &again->sharding.strategies[n],
                         sizeof(dtp_strategy)) != 0) {
        fail_msg("%s: %s: '%s' runs otherwise when blocks are computed again", s->name, name,
                 node->name);
    }
}

static void check_time(const subject *s, const char *name, const dtp_candidate *plain,
                       const dtp_candidate *again, double most)
{
    const double ratio = again->predicted.compute_s / plain->predicted.compute_s;
    if (!(ratio <= most)) {
        fail_msg("%s: %s: kernels take %.3f times as long", s->name, name, ratio);
    }
}

static void check_nodes(const subject *s, const char *name, const dtp_graph *g,
                        const dtp_candidate *plain, const dtp_graph *again_g,
                        const dtp_candidate *again)
{
    for (dtp_node_id n = 0; n < again_g->n_nodes; n++) {
        if (!again_g->nodes[n].repeats) {
            check_node(s, name, g, plain, again_g, again, n);
        }
    }
}

/* What a node is to read in a layout it also reads so when it is computed again. */
static void check_pins(const subject *s, const styled *plain, const styled *again)
{
    for (int32_t i = 0; i < plain->options.n_pins; i++) {
        const dtp_pin *pin = &plain->pins[i];
        const char *name = pin->node >= 0 ? plain->g->nodes[pin->node].name : "";
        const char *tensor = plain->g->tensors[pin->tensor].name;
        bool found = pin->node < 0;
        for (int32_t k = 0; k < again->options.n_pins && !found; k++) {
            const dtp_pin *other = &again->pins[k];
            found = other->node >= 0 && strcmp(again->g->nodes[other->node].name, name) == 0 &&
                    dtp_layout_equal(&other->layout, &pin->layout) &&
                    strcmp(again->g->tensors[dtp_graph_repeated(again->g, other->tensor)].name,
                           tensor) == 0;
        }
        if (!found) {
            fail_msg("%s: %s: no pin of '%s' at '%s' when blocks are computed again", s->name,
                     plain->c.name, tensor, name);
        }
    }
}

static int check_baselines(const tensor_case *c, const char *precision)
{
    subject s = subject_open(c, precision);
    dtp_graph *g = variant_of(&s, "none", NULL), *again_g = variant_of(&s, "all", NULL);
    dtp_candidate *plain, *again;
    int32_t n = 0, n_again = 0;
    int checked = 0;
    baselines_of(&s, g, &n, &plain);
    baselines_of(&s, again_g, &n_again, &again);
    assert_int_equal(n, n_again);
    for (int32_t i = 0; i < n; i++) {
        assert_true(plain[i].legal == again[i].legal);
        if (plain[i].legal) {
            check_nodes(&s, plain[i].name, g, &plain[i], again_g, &again[i]);
            check_time(&s, plain[i].name, &plain[i], &again[i], 1.4);
            checked++;
        }
    }
    dtp_graph_destroy(g);
    dtp_graph_destroy(again_g);
    subject_close(&s);
    return checked;
}

static const char *const PRECISIONS[] = {"f32", "bf16"};

static void test_baselines__recomputation_changes_no_other_node(void **state)
{
    (void)state;
    static const tensor_case cases[] = {
        {.model = "llama3_8b.json",
         .mesh = "x:8",
         .dims = "layers=2 batch=8 length=1024",
         .machine = "h100_64.json",
         .target = &dtp_target_cuda},
        {.model = "llama3_8b.json",
         .mesh = "x:2;y:4",
         .dims = "layers=2 batch=8 length=1024",
         .machine = "h100_64.json",
         .target = &dtp_target_cpu},
        {.model = "gpt2_small.json",
         .mesh = "x:4",
         .dims = "layers=2 batch=8",
         .machine = "a100_8.json",
         .target = &dtp_target_cuda},
        {.model = "bert_large.json",
         .mesh = "x:4",
         .dims = "layers=2 batch=8",
         .machine = "a100_8.json",
         .target = &dtp_target_cuda},
        {.model = "bert_large.json",
         .mesh = "x:2;y:2",
         .dims = "layers=2 batch=8",
         .machine = "l4_16.json",
         .target = &dtp_target_cpu},
        {.model = "vit_b16.json",
         .mesh = "x:4",
         .dims = "layers=2 batch=32",
         .machine = "h100_64.json",
         .target = &dtp_target_cuda},
        {.model = "mixtral_8x7b.json",
         .mesh = "x:2;y:4",
         .dims = "layers=2 batch=8 length=1024",
         .machine = "h100_64.json",
         .target = &dtp_target_cuda},
    };
    int checked = 0;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        checked += check_baselines(&cases[i / 2], PRECISIONS[i % 2]);
    }
    print_message("%d baselines\n", checked);
    assert_true(checked >= 100);
}

#define GPT "gpt_bytes.json", "layers=2 batch=8 length=1024 heads=16 d_head=64"
#define COLUMNS "layers.*.{attn.{q,k,v}*,mlp.up*}:colwise(x)"

static void test_styles__recomputation_changes_no_other_node(void **state)
{
    (void)state;
    static const struct {
        const char *model, *dims, *mesh, *styles[MAX_STYLES];
        double most;     /* 0: 1.4 */
        bool may_differ; /* a copy of a parameter that is gathered for what is computed again is
                            there for the next reader too */
    } cases[] = {
        {GPT, "x:4", .styles = {COLUMNS, "layers.*.{attn.mm,mlp.down.mm}:rowwise(x)"}},
        {GPT, "x:4",
         .styles = {COLUMNS, "layers.*.{attn.mm,mlp.down.mm}:rowwise(x,output=length)",
                    "{layers.*.ln_*,ln_f}:sequence(x)", "logits:colwise(x)",
                    "loss:loss_parallel(x)"}},
        /* whole in the forward pass, split in the backward pass */
        {GPT, "x:4", .styles = {"layers.*.mlp.down.mm:rowwise(x,output=length)"}, .most = 1.45},
        {GPT, "x:4", .styles = {"layers.*.mlp.up.mm:colwise(x,output=replicated)"}},
        {GPT, "x:4", .styles = {"layers.*:sequence(x,dim=batch)", "ln_f:replicate(x)"}},
        {GPT, "x:4",
         .styles = {"layers.*.mlp:prepare_input(x)=length@x",
                    "layers.*.mlp:prepare_output(x)=batch@x", "layers.0.attn:replicate(x)"}},
        {GPT, "x:4", .styles = {"layers.*.attn:context(x,ring)", "**:data(x)"}},
        {GPT, "x:2;y:2", .styles = {"layers.*.attn:context(y,gather)", "**:data(x)"}},
        {GPT, "x:4", .styles = {"**:data(x)", "**:zero1(x)"}},
        {GPT, "x:2;y:2", .styles = {"**:data(x+y)", "**:zero2(x+y)"}},
        {GPT, "x:2;y:2", .styles = {"**:data(y)", "**:fsdp(y)", COLUMNS}, .may_differ = true},
        {HEADS, NULL, "x:4",
         .styles = {"**logits:colwise(x,output=replicated)", "**.ce:loss_parallel(x)"}},
        {HEADS, NULL, "x:2;y:2",
         .styles = {"**logits:colwise(x)", "**.ce:loss_parallel(x)", "**:fsdp(y)"}},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const tensor_case c = {.model = cases[i / 2].model,
                               .mesh = cases[i / 2].mesh,
                               .dims = cases[i / 2].dims,
                               .machine = "h100_64.json",
                               .target = &dtp_target_cpu};
        subject s = subject_open(&c, PRECISIONS[i % 2]);
        dtp_graph *g = variant_of(&s, "none", NULL), *again_g = variant_of(&s, "all", NULL);
        for (int torch = 0; torch <= 1; torch++) {
            const styled plain = styles_of(&s, g, cases[i / 2].styles, torch == 1);
            const styled again = styles_of(&s, again_g, cases[i / 2].styles, torch == 1);
            check_pins(&s, &plain, &again);
            if (!cases[i / 2].may_differ) {
                check_nodes(&s, plain.c.name, g, &plain.c, again_g, &again.c);
            }
            check_time(&s, plain.c.name, &plain.c, &again.c,
                       cases[i / 2].most > 0 ? cases[i / 2].most : 1.4);
        }
        dtp_graph_destroy(g);
        dtp_graph_destroy(again_g);
        subject_close(&s);
    }
}

/* ---- microbatches ---- */

/* Whether a tensor is the gradient of a parameter, or one that only becomes it: of a microbatch, of
 * one of its uses, in 16 bits. */
static bool is_gradient(const dtp_graph *g, dtp_tensor_id t)
{
    for (int32_t depth = 0; depth < 64; depth++) {
        dtp_node_id reader = -1;
        for (int32_t i = 0; i < g->n_grads; i++) {
            if (g->grads[i].grad == t) {
                return true;
            }
        }
        for (dtp_node_id n = 0; n < g->n_nodes && reader < 0; n++) {
            const dtp_node *node = &g->nodes[n];
            const bool sums = node->op->linear == DTP_LINEAR_JOINT ||
                              (node->op->linear == DTP_LINEAR_EACH && node->n_in == 1);
            for (int32_t i = 0; i < node->n_in && node->phase == DTP_BACKWARD && sums; i++) {
                reader = node->in[i] == t && !node->repeats ? n : reader;
            }
        }
        if (reader < 0) {
            return false;
        }
        t = g->nodes[reader].out[0];
    }
    return false;
}

/* How often gradients are reduced in a step, over every mesh dim, and parameters gathered; and the
 * most often that one of these collectives runs. */
typedef struct counts {
    int64_t reductions, gathers, most_reduced, most_gathered;
} counts;

static void count_start(const dtp_program *p, const dtp_instr *start, counts *out)
{
    const dtp_graph *g = p->graph;
    const dtp_value_id v = p->values[start->in[0]].tensor >= 0 ? start->in[0] : start->out[0];
    const dtp_tensor_id t = p->values[v].tensor; /* one end may be a staging buffer */
    const int64_t runs = dtp_instr_runs(p, start);
    if (t < 0) {
        return;
    }
    const bool gradient = is_gradient(g, t);
    if (gradient && dtp_coll_reduces(start->coll.kind)) {
        for (int32_t m = 0; m < p->mesh.n_dims; m++) {
            out->reductions += (start->coll.set >> m & 1U) != 0 ? runs : 0;
        }
        out->most_reduced = runs > out->most_reduced ? runs : out->most_reduced;
    } else if (!gradient && start->coll.kind == DTP_ALL_GATHER &&
               (start->phase == DTP_UPDATE || dtp_graph_param_of(g, t) >= 0)) {
        out->gathers += runs;
        out->most_gathered = runs > out->most_gathered ? runs : out->most_gathered;
    }
}

static counts count(const subject *s, const dtp_graph *g, const dtp_candidate *c)
{
    dtp_lower_options options = dtp_lower_options_init(c->redistributor);
    dtp_prediction predicted;
    dtp_program *p = NULL;
    dtp_err err = {0};
    counts n = {0};
    options.target = s->f.pricer.target;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    options.overlap.bucket_bytes = 0;
    must(s, c->name,
         dtp_sharding_program(g, &s->f.pricer, &c->sharding, &options, &predicted, &p, &err), &err);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind == DTP_INSTR_START) {
            count_start(p, &p->instrs[i], &n);
        }
    }
    dtp_program_destroy(p);
    return n;
}

/* FSDP reduces and gathers in every microbatch; of all others every gradient is reduced once a step
 * and every parameter gathered once, also where blocks are computed again. */
static void check_counts(const subject *s, const char *name, const dtp_graph *g, const counts *one,
                         const counts *four)
{
    const int64_t least = (int64_t)g->n_grads * s->f.pricer.mesh.n_dims;
    const bool fsdp = strstr(name, "zero3") != NULL;
    const int64_t most = one->reductions > least ? one->reductions : least;
    const bool fits = fsdp ? four->most_reduced == 4 && four->most_gathered == 4 &&
                                 four->gathers >= 4 * one->gathers
                           : four->most_reduced <= 1 && four->most_gathered <= 1 &&
                                 four->reductions <= most && four->gathers <= one->gathers;
    if (!fits) {
        fail_msg("%s: %s: %d reductions and %d gathers, with microbatches %d and %d", s->name, name,
                 (int)one->reductions, (int)one->gathers, (int)four->reductions,
                 (int)four->gathers);
    }
}

static void test_baselines__microbatches_reduce_and_gather_once(void **state)
{
    (void)state;
    static const tensor_case cases[] = {
        {.model = "llama3_8b.json",
         .mesh = "x:8",
         .dims = "layers=2 batch=64 length=256",
         .machine = "h100_64.json",
         .target = &dtp_target_cuda},
        {.model = "llama3_8b.json",
         .mesh = "x:2;y:2",
         .dims = "layers=2 batch=64 length=256",
         .machine = "h100_64.json",
         .target = &dtp_target_cpu},
        {.model = "gpt2_small.json",
         .mesh = "x:2;y:2",
         .dims = "layers=2 batch=64",
         .machine = "a100_8.json",
         .target = &dtp_target_cuda},
        {.model = "vit_b16.json",
         .mesh = "x:4",
         .dims = "layers=2 batch=64",
         .machine = "h100_64.json",
         .target = &dtp_target_cpu},
        {.model = "mixtral_8x7b.json",
         .mesh = "x:2;y:2",
         .dims = "layers=1 batch=64 length=64",
         .machine = "h100_64.json",
         .target = &dtp_target_cuda},
        {.model = "gpt_bytes.json",
         .mesh = "x:4",
         .dims = "layers=2 batch=64",
         .machine = "a100_8.json",
         .target = &dtp_target_cuda},
    };
    static const char *const precisions[] = {"f32", "bf16", "bf16,gradients=f32", "f16"};
    static const char *const remats[] = {"none", "all"};
    int checked = 0;
    for (size_t i = 0; i < 8 * sizeof cases / sizeof cases[0]; i++) {
        subject s = subject_open(&cases[i / 8], precisions[i / 2 % 4]);
        dtp_graph *g = variant_of(&s, remats[i % 2], NULL), *m = variant_of(&s, remats[i % 2], "4");
        dtp_candidate *one, *four;
        int32_t n = 0, n_four = 0;
        baselines_of(&s, g, &n, &one);
        baselines_of(&s, m, &n_four, &four);
        assert_int_equal(n, n_four);
        for (int32_t k = 0; k < n; k++) {
            if (one[k].legal && four[k].legal) {
                const counts a = count(&s, g, &one[k]), b = count(&s, m, &four[k]);
                check_counts(&s, one[k].name, g, &a, &b);
                checked++;
            }
        }
        dtp_graph_destroy(g);
        dtp_graph_destroy(m);
        subject_close(&s);
    }
    print_message("%d baselines\n", checked);
    assert_true(checked >= 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_baselines__recomputation_changes_no_other_node),
        cmocka_unit_test(test_styles__recomputation_changes_no_other_node),
        cmocka_unit_test(test_baselines__microbatches_reduce_and_gather_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
