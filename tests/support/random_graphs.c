/* Random small models for the tests of the planners. */
#include "tests/support/random_graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/graph.h"
#include "core/base/strbuf.h"

enum { MAX_TENSORS = 24, MAX_NAMES = 8, MAX_OWN_RANK = 4 };

/* An op and its attributes. */
typedef struct op_text {
    const char *op, *attrs;
} op_text;

typedef struct tensor {
    char name[16];
    int32_t rank;
    int32_t dims[MAX_OWN_RANK];
} tensor;

typedef struct maker {
    uint64_t state;
    int32_t n_names, n_first; /* names d0.. ; the first n_first are those of the operands */
    int64_t sizes[MAX_NAMES];
    int32_t n;
    tensor tensors[MAX_TENSORS];
    dtp_strbuf nodes, params;
    bool trains; /* a model of random_training_graph */
} maker;

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int32_t random_below(uint64_t *state, int32_t n)
{
    return (int32_t)(random_next(state) % (uint64_t)n);
}

static bool has_dim(const tensor *t, int32_t d)
{
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] == d) {
            return true;
        }
    }
    return false;
}

static void add_dims(dtp_strbuf *b, const tensor *t)
{
    dtp_strbuf_add(b, "[");
    for (int32_t i = 0; i < t->rank; i++) {
        dtp_strbuf_addf(b, "%s\"d%d\"", i > 0 ? ", " : "", t->dims[i]);
    }
    dtp_strbuf_add(b, "]");
}

/* Starts the node of the next tensor: {"id": "t5", "op": "mul", "in": ["t1", "t2"] */
static tensor *begin(maker *m, const char *op, const tensor *a, const tensor *b)
{
    tensor *t = &m->tensors[m->n];
    (void)snprintf(t->name, sizeof t->name, "t%d", m->n);
    dtp_strbuf_addf(&m->nodes, "%s\n {\"id\": \"%s\", \"op\": \"%s\", \"in\": [\"%s\"",
                    m->nodes.len > 0 ? "," : "", t->name, op, a->name);
    if (b != NULL) {
        dtp_strbuf_addf(&m->nodes, ", \"%s\"", b->name);
    }
    dtp_strbuf_add(&m->nodes, "]");
    return t;
}

static void finish(maker *m)
{
    dtp_strbuf_add(&m->nodes, "}");
    m->n++;
}

/* Dims of a, then those of b that a lacks. */
static tensor join(const tensor *a, const tensor *b)
{
    tensor u = *a;
    for (int32_t i = 0; i < b->rank && u.rank < MAX_OWN_RANK; i++) {
        if (!has_dim(&u, b->dims[i])) {
            u.dims[u.rank++] = b->dims[i];
        }
    }
    return u;
}

static int32_t joint_rank(const tensor *a, const tensor *b)
{
    int32_t rank = a->rank;
    for (int32_t i = 0; i < b->rank; i++) {
        rank += has_dim(a, b->dims[i]) ? 0 : 1;
    }
    return rank;
}

static void add_einsum(maker *m, const tensor *a, const tensor *b)
{
    const tensor u = join(a, b);
    tensor *t = begin(m, "einsum", a, b);
    t->rank = 0;
    for (int32_t i = 0; i < u.rank; i++) {
        if (random_below(&m->state, 3) > 0) {
            t->dims[t->rank++] = u.dims[i];
        }
    }
    if (t->rank == 0) {
        t->dims[t->rank++] = u.dims[0];
    }
    dtp_strbuf_add(&m->nodes, ", \"out\": ");
    add_dims(&m->nodes, t);
    finish(m);
}

static void add_binary(maker *m, const tensor *a, const tensor *b)
{
    static const char *const ops[] = {"add", "mul", "sub"};
    const tensor u = join(a, b);
    tensor *t = begin(m, ops[random_below(&m->state, 3)], a, b);
    t->rank = u.rank;
    memcpy(t->dims, u.dims, sizeof t->dims);
    finish(m);
}

static void add_unary(maker *m, const tensor *a)
{
    static const char *const ops[] = {"relu", "tanh", "exp", "neg"};
    tensor *t = begin(m, ops[random_below(&m->state, 4)], a, NULL);
    t->rank = a->rank;
    memcpy(t->dims, a->dims, sizeof t->dims);
    finish(m);
}

static void add_function(maker *m, const tensor *a)
{
    static const op_text ops[] = {{"elu", ", \"alpha\": 0.7"},
                                  {"square", ""},
                                  {"sigmoid", ""},
                                  {"gelu", ""},
                                  {"silu", ""},
                                  {"scale", ", \"factor\": 0.5"},
                                  {"clamp", ", \"low\": -1"},
                                  {"abs", ""},
                                  {"dropout", ", \"rate\": 0.1"}};
    const op_text *f = &ops[random_below(&m->state, (int32_t)(sizeof ops / sizeof ops[0]))];
    tensor *t = begin(m, f->op, a, NULL);
    dtp_strbuf_add(&m->nodes, f->attrs);
    t->rank = a->rank;
    memcpy(t->dims, a->dims, sizeof t->dims);
    finish(m);
}

/* A statistic over one dim. */
static void add_statistic(maker *m, const tensor *a)
{
    static const op_text ops[] = {{"std", ", \"correction\": 0"}, {"var", ", \"correction\": 0"},
                                  {"norm", ", \"ord\": \"1\""},   {"norm", ", \"ord\": \"2\""},
                                  {"norm", ", \"ord\": \"inf\""}, {"logsumexp", ""}};
    const op_text *f = &ops[random_below(&m->state, (int32_t)(sizeof ops / sizeof ops[0]))];
    const int32_t at = random_below(&m->state, a->rank);
    tensor *t = begin(m, f->op, a, NULL);
    dtp_strbuf_addf(&m->nodes, ", \"over\": [\"d%d\"]%s", a->dims[at], f->attrs);
    t->rank = 0;
    for (int32_t i = 0; i < a->rank; i++) {
        if (i != at) {
            t->dims[t->rank++] = a->dims[i];
        }
    }
    finish(m);
}

/* What goes along one dim and keeps all of them. */
static void add_scan(maker *m, const tensor *a)
{
    static const op_text ops[] = {{"log_softmax", "over"}, {"cumsum", "dim"}, {"roll", "dim"}};
    const op_text *f = &ops[random_below(&m->state, 3)];
    const int32_t d = a->dims[random_below(&m->state, a->rank)];
    tensor *t = begin(m, f->op, a, NULL);
    dtp_strbuf_addf(&m->nodes, ", \"%s\": \"d%d\"", f->attrs, d);
    if (strcmp(f->op, "roll") == 0) {
        dtp_strbuf_addf(&m->nodes, ", \"shift\": %d",
                        random_below(&m->state, (int32_t)m->sizes[d]));
    }
    t->rank = a->rank;
    memcpy(t->dims, a->dims, sizeof t->dims);
    finish(m);
}

/* Over the last dim, with parameters of its own. */
static void add_norm(maker *m, const tensor *a)
{
    const bool layer = random_below(&m->state, 2) == 0;
    const int32_t d = a->dims[a->rank - 1];
    tensor *t = begin(m, layer ? "layer_norm" : "rms_norm", a, NULL);
    m->nodes.text[--m->nodes.len] = '\0'; /* the list of operands goes on */
    dtp_strbuf_addf(&m->nodes, ", \"g%d\"", m->n);
    dtp_strbuf_addf(&m->params, ", \"g%d\": {\"dims\": [\"d%d\"], \"init\": \"ones\"}", m->n, d);
    if (layer) {
        dtp_strbuf_addf(&m->nodes, ", \"b%d\"", m->n);
        dtp_strbuf_addf(&m->params, ", \"b%d\": {\"dims\": [\"d%d\"], \"init\": \"zeros\"}", m->n,
                        d);
    }
    dtp_strbuf_addf(&m->nodes, "], \"over\": \"d%d\"", d);
    t->rank = a->rank;
    memcpy(t->dims, a->dims, sizeof t->dims);
    finish(m);
}

static void add_turned(maker *m, const tensor *a)
{
    tensor *t = begin(m, "permute", a, NULL);
    t->rank = a->rank;
    for (int32_t i = 0; i < a->rank; i++) {
        t->dims[i] = a->dims[(i + 1) % a->rank];
    }
    dtp_strbuf_add(&m->nodes, ", \"out\": ");
    add_dims(&m->nodes, t);
    finish(m);
}

/* An op of models that train which those of random_graph have not. */
static void add_other_node(maker *m)
{
    const tensor a = m->tensors[m->n - 1 - random_below(&m->state, m->n < 4 ? m->n : 4)];
    const int32_t kind = a.rank == 0 ? 0 : random_below(&m->state, 7);
    if (kind <= 2) {
        add_function(m, &a);
    } else if (kind == 3 && a.rank > 1) {
        add_statistic(m, &a);
    } else if (kind == 4) {
        add_scan(m, &a);
    } else if (kind == 5) {
        add_norm(m, &a);
    } else {
        add_turned(m, &a);
    }
}

static void add_reduce(maker *m, const tensor *a)
{
    static const char *const kinds[] = {"sum", "mean", "max"};
    const int32_t at = random_below(&m->state, a->rank);
    tensor *t = begin(m, "reduce", a, NULL);
    dtp_strbuf_addf(&m->nodes, ", \"kind\": \"%s\", \"over\": \"d%d\"",
                    kinds[random_below(&m->state, 3)], a->dims[at]);
    t->rank = 0;
    for (int32_t i = 0; i < a->rank; i++) {
        if (i != at) {
            t->dims[t->rank++] = a->dims[i];
        }
    }
    finish(m);
}

static void add_softmax(maker *m, const tensor *a)
{
    tensor *t = begin(m, "softmax", a, NULL);
    dtp_strbuf_addf(&m->nodes, ", \"over\": \"d%d\"", a->dims[random_below(&m->state, a->rank)]);
    t->rank = a->rank;
    memcpy(t->dims, a->dims, sizeof t->dims);
    finish(m);
}

/* Renames a dim, or merges two neighbours, into a new name. */
static void add_relabel(maker *m, const tensor *a)
{
    const int32_t at = random_below(&m->state, a->rank), d = m->n_names++;
    const bool merge = at + 1 < a->rank && random_below(&m->state, 2) == 0;
    tensor *t = begin(m, "relabel", a, NULL);
    t->rank = 0;
    m->sizes[d] = m->sizes[a->dims[at]] * (merge ? m->sizes[a->dims[at + 1]] : 1);
    for (int32_t i = 0; i < a->rank; i++) {
        if (i != at + 1 || !merge) {
            t->dims[t->rank++] = i == at ? d : a->dims[i];
        }
    }
    dtp_strbuf_add(&m->nodes, ", \"out\": ");
    add_dims(&m->nodes, t);
    finish(m);
}

static void add_some_node(maker *m)
{
    const tensor a = m->tensors[m->n - 1 - random_below(&m->state, m->n < 3 ? m->n : 3)];
    const tensor b = m->tensors[random_below(&m->state, m->n)];
    const int32_t kind = random_below(&m->state, 8);
    if (kind <= 2 && joint_rank(&a, &b) <= MAX_OWN_RANK && a.rank > 0) {
        add_einsum(m, &a, &b);
    } else if (kind == 3 && joint_rank(&a, &b) <= MAX_OWN_RANK) {
        add_binary(m, &a, &b);
    } else if (kind == 4 && a.rank > 1) {
        add_reduce(m, &a);
    } else if (kind == 5 && a.rank > 0) {
        add_softmax(m, &a);
    } else if (kind == 6 && a.rank > 0 && m->n_names < m->n_first + 2) {
        add_relabel(m, &a);
    } else {
        add_unary(m, &a);
    }
}

static void add_sources(maker *m)
{
    const int32_t n = 2 + random_below(&m->state, 2);
    for (int32_t k = 0; k < n; k++) {
        tensor *t = &m->tensors[m->n++];
        (void)snprintf(t->name, sizeof t->name, "%c%d", k == 0 ? 'i' : 'w', k);
        t->rank = 0;
        for (int32_t d = 0; d < m->n_first && t->rank < 3; d++) {
            if (random_below(&m->state, 3) > 0 || (d == m->n_first - 1 && t->rank == 0)) {
                t->dims[t->rank++] = d;
            }
        }
        if (k > 0) {
            dtp_strbuf_addf(&m->params, "%s\"%s\": {\"dims\": ", k > 1 ? ", " : "", t->name);
            add_dims(&m->params, t);
            dtp_strbuf_add(&m->params, ", \"init\": \"ones\"}");
        }
    }
}

/* A scalar in which the parameter w1 takes part. */
static void add_loss(maker *m, dtp_strbuf *b)
{
    static const char *const optimizers[] = {"\"sgd\": {\"lr\": 0.1}", "\"adam\": {\"lr\": 0.1}",
                                             "\"momentum\": {\"lr\": 0.1}",
                                             "\"adamw\": {\"lr\": 0.1, \"weight_decay\": 0.1}"};
    const tensor *last = &m->tensors[m->n - 1];
    dtp_strbuf_addf(&m->nodes,
                    ",\n {\"id\": \"loss\", \"op\": \"einsum\", \"in\": [\"%s\", \"w1\"], "
                    "\"out\": []}",
                    last->name);
    dtp_strbuf_addf(b, ", \"train\": {\"loss\": \"loss\", \"optimizer\": {%s}%s}",
                    optimizers[random_below(&m->state, m->trains ? 4 : 2)],
                    m->trains && random_below(&m->state, 4) == 0 ? ", \"clip_norm\": 1.0" : "");
}

static void add_outputs(maker *m, dtp_strbuf *b)
{
    dtp_strbuf_addf(b, ", \"outputs\": [\"%s\"", m->tensors[m->n - 1].name);
    for (int32_t i = 0; i < m->n - 1 && m->trains; i++) {
        if (m->tensors[i].name[0] == 't' && random_below(&m->state, 5) == 0) {
            dtp_strbuf_addf(b, ", \"%s\"", m->tensors[i].name);
        }
    }
    dtp_strbuf_add(b, "]");
}

static dtp_graph *finish_model(maker *m, const dtp_strbuf *tail, uint64_t seed, char **text)
{
    dtp_strbuf b = {0};
    dtp_graph *g = NULL;
    dtp_err err;
    dtp_strbuf_add(&b, "{\"format\": \"dtp.model/1\", \"name\": \"random\", \"dims\": {");
    for (int32_t d = 0; d < m->n_names; d++) {
        dtp_strbuf_addf(&b, "%s\"d%d\": %lld", d > 0 ? ", " : "", d, (long long)m->sizes[d]);
    }
    dtp_strbuf_add(&b, "}, \"inputs\": {\"i0\": {\"dtype\": \"f32\", \"dims\": ");
    add_dims(&b, &m->tensors[0]);
    dtp_strbuf_addf(&b, "}}, \"params\": {%s}, \"nodes\": [%s]%s}", dtp_strbuf_text(&m->params),
                    dtp_strbuf_text(&m->nodes), dtp_strbuf_text(tail));
    if (dtp_model_parse("random", b.text, b.len, NULL, &g, &err) != DTP_OK) {
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, err.msg);
        g = NULL;
    }
    dtp_strbuf_free(&m->params);
    dtp_strbuf_free(&m->nodes);
    *text = b.text;
    return g;
}

dtp_graph *random_graph(uint64_t seed, char **text)
{
    static const int64_t sizes[] = {2, 4, 6, 8, 12, 16};
    maker m = {.state = seed};
    dtp_strbuf tail = {0};
    m.n_first = m.n_names = 3 + random_below(&m.state, 2);
    for (int32_t d = 0; d < m.n_first; d++) {
        m.sizes[d] = sizes[random_below(&m.state, 6)];
    }
    add_sources(&m);
    const int32_t n = 3 + random_below(&m.state, 5);
    for (int32_t k = 0; k < n; k++) {
        add_some_node(&m);
    }
    add_outputs(&m, &tail);
    if (random_below(&m.state, 3) == 0) {
        add_loss(&m, &tail);
    }
    dtp_graph *g = finish_model(&m, &tail, seed, text);
    dtp_strbuf_free(&tail);
    return g;
}

dtp_graph *random_training_graph(uint64_t seed, char **text)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24};
    maker m = {.state = seed, .trains = true};
    dtp_strbuf tail = {0};
    m.n_first = m.n_names = 2 + random_below(&m.state, 3);
    for (int32_t d = 0; d < m.n_first; d++) {
        m.sizes[d] = sizes[random_below(&m.state, (int32_t)(sizeof sizes / sizeof sizes[0]))];
    }
    add_sources(&m);
    const int32_t n = 2 + random_below(&m.state, 8);
    for (int32_t k = 0; k < n; k++) {
        (random_below(&m.state, 2) == 0 ? add_some_node : add_other_node)(&m);
    }
    add_outputs(&m, &tail);
    if (random_below(&m.state, 8) > 0) {
        add_loss(&m, &tail);
    }
    dtp_graph *g = finish_model(&m, &tail, seed, text);
    dtp_strbuf_free(&tail);
    return g;
}
