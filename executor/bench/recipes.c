#include "executor/bench/recipes.h"
#include "core/graph/ops/op_table.h"

#include <stdlib.h>
#include <string.h>

/* Ops that need other operands or attributes than the forms below, or more than one case; NULL: the
 * op only renames. Letters: r rows, c columns, t rows of a lookup table, h heads, s sequence, f
 * features of a head, e features of a key and its value together, p and q positions and heads for
 * rope, y and z the one and two sums of split norms, m n k of a matrix product. */
static const dtp_bench_recipe RECIPES[] = {
    {"relabel", NULL, NULL, false},
    {"add", "rc rc", "", false},
    {"add", "rc c", "", false},
    {"compare", "rc rc", "cmp=lt", false},
    {"select", "?rc rc rc", "", false},
    {"scale", "rc", "factor=0.5", false},
    {"cast", "#rc", "dtype=f32", false},
    {"einsum", "rc", "out=r", false},
    {"einsum", "rc", "out=c", false},
    {"einsum", "rc", "out=cr", false},
    {"broadcast", "c", "out=rc", false},
    {"permute", "rc", "out=cr", false},
    {"reduce", "rc", "kind=sum over=c", false},
    {"reduce", "rc", "kind=max over=c", false},
    {"slice", "rc", "dim=r start=0 stop=@u", false},
    {"pad", "rc", "dim=r before=0 after=@u", false},
    {"concat", "rc rc", "dim=r", false},
    {"prod_grad", "rc r", "over=c", false},
    {"arg_first", "rc r", "over=c", false},
    {"topk", "rc", "over=c k=8", false},
    {"stack", "rc rc", "dim=z", false},
    {"gather", "tc #r", "over=t", false},
    {"scatter_add", "#r rc", "over=t size=@t", false},
    {"fill", "rc", "value=1", false},
    {"pow", "rc", "exponent=2.5", false},
    {"iota", "", "out=rc dim=c", false},
    {"constant", "", "out=rc value=1", false},
    {"one_hot", "#r", "dim=c", false},
    {"layer_norm", "rc c c", "over=c", false},
    {"layer_norm_grad", "rc c r r rc", "over=c", false},
    {"rms_norm", "rc c", "over=c", false},
    {"rms_norm_grad", "rc c r rc", "over=c", false},
    {"embedding", "tc #r", "over=t", false},
    {"embedding_grad", "#r rc", "over=t size=@t", false},
    {"cross_entropy", "rc #r", "over=c reduce=mean", false},
    {"cross_entropy_grad", "rc #r r _", "over=c reduce=mean", false},
    {"attention", "hsf hsf hsf", "query=s feature=f", true},
    {"attention_grad", "hsf hsf hsf hsf hs hsf", "query=s feature=f", true},
    {"attention_part", "hsf hse", "query=s feature=f", true},
    {"attention_part_grad", "hsf hse hsf hs hsf", "query=s feature=f", true},
    {"attention_merge", "hsf hs hsf hs", "", false},
    {"roll", "rc", "dim=r shift=1", false},
    {"reorder", "rc", "dim=c chunks=2", false},
    {"rope", "qpf", "position=p feature=f", false},
    {"dropout", "rc", "rate=0.1", false},
    {"uniform", "", "out=rc", false},
    {"normal", "", "out=rc", false},
    {"sgd", "rc rc", "lr=0.001 weight_decay=0.01", false},
    {"momentum", "rc rc rc", "lr=0.001 momentum=0.9 weight_decay=0.01", false},
    {"adam", "rc rc rc rc", "lr=0.001 beta1=0.9 beta2=0.99 eps=1e-8 weight_decay=0.01", false},
    {"adamw", "rc rc rc rc", "lr=0.001 beta1=0.9 beta2=0.99 eps=1e-8 weight_decay=0.01", false},
    {"accumulate", "rc rc", "", false},
    {"sum_exp", "rc r", "over=c", false},
    {"softmax_apply", "rc r r", "over=c", false},
    {"softmax_grad_apply", "rc rc r", "over=c", false},
    {"pick", "rc #r", "over=c", false},
    {"label_weight", "#r c", "over=c", false},
    {"cross_entropy_finish", "v v v", "reduce=mean", false},
    {"layer_norm_apply", "rc rz c c", "over=c", false},
    {"layer_norm_grad_sums", "rc c r r rc", "over=c", false},
    {"layer_norm_grad_apply", "rc c r r rc rz", "over=c", false},
    {"rms_norm_apply", "rc ry c", "over=c", false},
    {"rms_norm_grad_sums", "rc c r rc", "over=c", false},
    {"rms_norm_grad_apply", "rc c r rc ry", "over=c", false},
};

static int64_t at_least_1(int64_t n)
{
    return n > 0 ? n : 1;
}

dtp_bench_sizes dtp_bench_sizes_for(int64_t elems, int64_t seq)
{
    dtp_bench_sizes s = {{0}};
    const int64_t cols = 256;
    const int64_t features = 64;
    s.of['c' - 'a'] = cols;
    s.of['r' - 'a'] = at_least_1(elems / cols);
    s.of['u' - 'a'] = at_least_1(elems / cols / 2);
    s.of['v' - 'a'] = at_least_1(elems);
    s.of['t' - 'a'] = 512;
    s.of['f' - 'a'] = features;
    s.of['e' - 'a'] = 2 * features;
    s.of['s' - 'a'] = seq > 0 ? seq : 16;
    s.of['h' - 'a'] = at_least_1(elems / features / s.of['s' - 'a']);
    s.of['p' - 'a'] = 128;
    s.of['q' - 'a'] = at_least_1(elems / features / 128);
    s.of['y' - 'a'] = 1;
    s.of['z' - 'a'] = 2;
    return s;
}

/* One recipe on its way into a graph. */
typedef struct builder {
    dtp_graph *g;
    const dtp_bench_sizes *sizes;
    int64_t below;
} builder;

static dtp_status letter_dim(builder *b, char letter, dtp_tdim *out, dtp_err *err)
{
    if (letter < 'a' || letter > 'z' || b->sizes->of[letter - 'a'] < 1) {
        return DTP_FAIL(err, DTP_INTERNAL, "bench: no size for dim '%c'", letter);
    }
    const char single[] = {letter, '\0'};
    const char *name = letter == 'y' || letter == 'z' ? "_stat" : letter == 'e' ? "f" : single;
    out->size = b->sizes->of[letter - 'a'];
    return dtp_dims_intern(&b->g->dims, name, out->size, &out->id, err);
}

static dtp_status letter_dims(builder *b, const char *text, size_t n, int32_t *rank, dtp_tdim *dims,
                              dtp_err *err)
{
    *rank = 0;
    for (size_t i = 0; i < n && text[i] != '_' && *rank < DTP_MAX_RANK; i++) {
        DTP_TRY(letter_dim(b, text[i], &dims[(*rank)++], err));
    }
    return DTP_OK;
}

static dtp_status add_operands(builder *b, const char *text, dtp_tensor_id *in, int32_t *n_in,
                               dtp_err *err)
{
    *n_in = 0;
    for (const char *p = text; *p != '\0' && *n_in < DTP_MAX_OP_IN;) {
        size_t n = strcspn(p, " ");
        dtp_tensor_spec spec = {.kind = DTP_TENSOR_INPUT, .type = {.dtype = DTP_F32}};
        size_t mark = p[0] == '#' || p[0] == '?' ? 1 : 0;
        if (mark == 1) {
            spec.type.dtype = p[0] == '#' ? DTP_I32 : DTP_BOOL;
            spec.below = p[0] == '#' ? b->below : 0;
        }
        char name[4] = {'x', (char)('0' + *n_in / 10), (char)('0' + *n_in % 10), '\0'};
        spec.name = name;
        DTP_TRY(letter_dims(b, p + mark, n - mark, &spec.type.rank, spec.type.dims, err));
        DTP_TRY(dtp_graph_add_tensor(b->g, &spec, &in[(*n_in)++], err));
        p += n + strspn(p + n, " ");
    }
    return DTP_OK;
}

static dtp_status enum_value(const dtp_attr_spec *spec, const char *value, size_t n, int64_t *out,
                             dtp_err *err)
{
    for (int64_t i = 0; spec->choices[i] != NULL; i++) {
        if (strlen(spec->choices[i]) == n && strncmp(spec->choices[i], value, n) == 0) {
            *out = i;
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INTERNAL, "bench: '%s' is none of the choices of '%s'", value,
                    spec->key);
}

static dtp_status set_attr(builder *b, const dtp_attr_spec *spec, const char *value, size_t n,
                           dtp_attr *out, dtp_err *err)
{
    dtp_tdim dims[DTP_MAX_RANK];
    dtp_dtype dtype;
    char word[32] = {0};
    memcpy(word, value, n < sizeof word ? n : sizeof word - 1);
    *out = (dtp_attr){.key = spec->key, .kind = spec->kind};
    switch (spec->kind) {
    case DTP_ATTR_FLOAT:
        out->f = strtod(word, NULL);
        return DTP_OK;
    case DTP_ATTR_ENUM:
        return enum_value(spec, value, n, &out->i, err);
    case DTP_ATTR_DTYPE:
        DTP_TRY(dtp_dtype_parse(word, &dtype, err));
        out->i = dtype;
        return DTP_OK;
    case DTP_ATTR_DIM:
        DTP_TRY(letter_dim(b, word[0], &dims[0], err));
        out->i = dims[0].id;
        return DTP_OK;
    case DTP_ATTR_DIMS: {
        DTP_TRY(letter_dims(b, value, n, &out->n, dims, err));
        dtp_dim_id *ids = dtp_arena_alloc(b->g->arena, (size_t)out->n, sizeof *ids);
        for (int32_t i = 0; ids != NULL && i < out->n; i++) {
            ids[i] = dims[i].id;
        }
        out->ids = ids;
        return ids != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "bench: out of memory");
    }
    case DTP_ATTR_INT:
    case DTP_ATTR_BOOL:
    default:
        if (word[0] == '@') {
            DTP_TRY(letter_dim(b, word[1], &dims[0], err));
            out->i = dims[0].size;
        } else {
            out->i = strtoll(word, NULL, 10);
        }
        return DTP_OK;
    }
}

static dtp_status add_attrs(builder *b, const dtp_op_def *op, const char *text, dtp_node_spec *node,
                            dtp_attr *attrs, dtp_err *err)
{
    for (const char *p = text; *p != '\0';) {
        size_t n = strcspn(p, " ");
        size_t key = strcspn(p, "=");
        const char *value = p + key + 1;
        size_t value_n = n - key - 1;
        if (key == 3 && strncmp(p, "out", 3) == 0) {
            node->has_out = true;
            DTP_TRY(letter_dims(b, value, value_n, &node->out_rank, node->out_dims, err));
        } else {
            const dtp_attr_spec *spec = op->attrs;
            while (spec != NULL && spec->key != NULL &&
                   (strlen(spec->key) != key || strncmp(spec->key, p, key) != 0)) {
                spec++;
            }
            if (spec == NULL || spec->key == NULL) {
                return DTP_FAIL(err, DTP_INTERNAL, "bench: op '%s' has no attribute '%.*s'",
                                op->name, (int)key, p);
            }
            DTP_TRY(set_attr(b, spec, value, value_n, &attrs[node->n_attrs++], err));
        }
        p += n + strspn(p + n, " ");
    }
    return DTP_OK;
}

static dtp_status fill_graph(builder *b, const dtp_bench_recipe *recipe, dtp_err *err)
{
    dtp_node_spec node = dtp_node_spec_init("node", recipe->op);
    const dtp_op_def *op = dtp_op_find(recipe->op);
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_attr attrs[16];
    if (op == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "bench: no op '%s'", recipe->op);
    }
    /* Ops that keep sums name the dim of their outputs so. */
    dtp_dim_id stat;
    DTP_TRY(dtp_dims_intern(&b->g->dims, "_stat", 2, &stat, err));
    DTP_TRY(add_operands(b, recipe->operands, in, &node.n_in, err));
    DTP_TRY(add_attrs(b, op, recipe->attrs, &node, attrs, err));
    node.in = in;
    node.attrs = attrs;
    return dtp_graph_add_node(b->g, &node, NULL, err);
}

dtp_status dtp_bench_recipe_graph(const dtp_bench_recipe *recipe, const dtp_bench_sizes *sizes,
                                  int64_t below, dtp_graph **out, dtp_err *err)
{
    builder b = {.sizes = sizes, .below = below};
    DTP_TRY(dtp_graph_create("bench", dtp_builtin_ops(), &b.g, err));
    dtp_status status = fill_graph(&b, recipe, err);
    if (status != DTP_OK) {
        dtp_err_prefix(err, "bench: %s", recipe->op);
        dtp_graph_destroy(b.g);
        return status;
    }
    *out = b.g;
    return DTP_OK;
}

/* What an op without a row runs on, in order of preference: operands by their number, attributes.
 */
static const char *const FORM_OPERANDS[][5] = {{"", "rc", "rc rc", "rc rc rc", "rc rc rc rc"},
                                               {"", "?rc", "?rc ?rc", "?rc ?rc ?rc", ""}};
static const char *const FORM_ATTRS[] = {"", "over=c", "dim=c"};
enum {
    N_FORM_OPERANDS = sizeof FORM_OPERANDS / sizeof FORM_OPERANDS[0],
    N_FORM_ATTRS = sizeof FORM_ATTRS / sizeof FORM_ATTRS[0],
    MAX_FORM_IN = sizeof FORM_OPERANDS[0] / sizeof FORM_OPERANDS[0][0] - 1
};

static bool accepted(const dtp_bench_recipe *recipe)
{
    const dtp_bench_sizes sizes = dtp_bench_sizes_for(1024, 0);
    dtp_graph *g = NULL;
    if (dtp_bench_recipe_graph(recipe, &sizes, 1, &g, NULL) != DTP_OK) {
        return false;
    }
    dtp_graph_destroy(g);
    return true;
}

/* The first form that the op's own checks accept. */
static bool find_form(const dtp_op_def *op, dtp_bench_recipe *out)
{
    const int32_t n_in = op->min_in;
    for (int32_t k = 0; k < N_FORM_OPERANDS * N_FORM_ATTRS && n_in <= MAX_FORM_IN; k++) {
        *out = (dtp_bench_recipe){op->name, FORM_OPERANDS[k / N_FORM_ATTRS][n_in],
                                  FORM_ATTRS[k % N_FORM_ATTRS], false};
        if (accepted(out)) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_bench_recipes_of(const dtp_op_def *op, dtp_bench_recipe out[DTP_BENCH_MAX_RECIPES],
                                int32_t *n, dtp_err *err)
{
    bool listed = false;
    *n = 0;
    for (size_t i = 0; i < sizeof RECIPES / sizeof RECIPES[0]; i++) {
        if (strcmp(RECIPES[i].op, op->name) == 0) {
            listed = true;
            if (RECIPES[i].operands != NULL && *n < DTP_BENCH_MAX_RECIPES) {
                out[(*n)++] = RECIPES[i];
            }
        }
    }
    if (!listed && find_form(op, &out[0])) {
        listed = true;
        *n = 1;
    }
    return listed ? DTP_OK
                  : DTP_FAIL(err, DTP_INTERNAL,
                             "bench: op '%s' takes none of the usual operands; it needs a row in "
                             "executor/bench/recipes.c",
                             op->name);
}
