/* Stages as texts, and borders between chunks.
 *
 * A unit is an instance of a block. Units stand in the order of their first forward nodes; a border
 * is the first unit of a chunk. "4" takes the borders with the least work in the chunk that has
 * most, and of these the least sum of squares; equal ones give the earlier chunk more units.
 * Work is the FLOPs of the forward pass; a node in no block counts with the last unit that it
 * depends on, before the first unit with that. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/units.h"
#include "core/transform/stages.h"

typedef struct unit_list {
    int32_t n;
    int32_t *of;       /* by node, -1 = in no block */
    dtp_node_id *node; /* by unit: its first node */
    double *work;      /* by unit */
} unit_list;

/* ---- units ---- */

static dtp_status find_units(const dtp_graph *g, dtp_arena *arena, unit_list *u, dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, u->of, g->n_nodes, err));
    DTP_TRY(DTP_NEW(arena, u->node, g->n_nodes, err));
    u->n = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool in_block = node->block >= 0 && node->phase == DTP_FORWARD;
        int32_t k = in_block ? u->n - 1 : -1;
        while (k >= 0 && (g->nodes[u->node[k]].block != node->block ||
                          g->nodes[u->node[k]].instance != node->instance)) {
            k--;
        }
        if (in_block && k < 0) {
            k = u->n++;
            u->node[k] = n;
        }
        u->of[n] = k;
    }
    return DTP_OK;
}

static dtp_status find_work(const dtp_graph *g, dtp_arena *arena, unit_list *u, dtp_err *err)
{
    int32_t *last; /* by node: the last unit that it depends on */
    DTP_TRY(DTP_NEW(arena, u->work, u->n, err));
    DTP_TRY(DTP_NEW(arena, last, g->n_nodes, err));
    for (dtp_node_id n = 0; n < g->n_nodes && g->nodes[n].phase == DTP_FORWARD; n++) {
        const dtp_node *node = &g->nodes[n];
        dtp_call_types types;
        dtp_work work;
        const dtp_op_call call = dtp_node_call(g, node, &types);
        last[n] = u->of[n] >= 0 ? u->of[n] : 0;
        for (int32_t i = 0; i < node->n_in && u->of[n] < 0; i++) {
            const dtp_node_id made = g->tensors[node->in[i]].producer;
            last[n] = made >= 0 && last[made] > last[n] ? last[made] : last[n];
        }
        dtp_call_work(&call, &work);
        u->work[last[n]] += work.flops;
    }
    return DTP_OK;
}

/* ---- equal work ---- */

/* The cost of the best borders with s stages for the first k units: most work of a stage, or, under
 * a limit of it, the sum of squares. */
typedef struct border_table {
    const unit_list *u;
    double *sum;    /* of the first k units */
    double *cost;   /* [s][k] */
    int32_t *begin; /* [s][k]: first unit of the last stage */
} border_table;

static void fill(border_table *t, int32_t n_stages, double limit)
{
    const int32_t width = t->u->n + 1;
    for (int32_t s = 1; s <= n_stages; s++) {
        for (int32_t k = s; k <= t->u->n; k++) {
            double best = -1.0;
            for (int32_t b = k - 1; b >= s - 1; b--) { /* earlier stages get more */
                const double before = s == 1 ? 0.0 : t->cost[(s - 1) * width + b];
                const double own = t->sum[k] - t->sum[b];
                const double cost =
                    limit < 0.0 ? (own > before ? own : before) : before + own * own;
                const bool may =
                    (s > 1 || b == 0) && before >= 0.0 && (limit < 0.0 || own <= limit);
                if (may && (best < 0.0 || cost < best)) {
                    best = cost;
                    t->begin[s * width + k] = b;
                }
            }
            t->cost[s * width + k] = best;
        }
    }
}

static dtp_status equal_work(const unit_list *u, int32_t n, dtp_arena *arena, int32_t *first,
                             dtp_err *err)
{
    border_table t = {.u = u};
    const size_t cells = (size_t)(n + 1) * (size_t)(u->n + 1);
    DTP_TRY(DTP_NEW(arena, t.sum, (size_t)u->n + 1, err));
    DTP_TRY(DTP_NEW(arena, t.cost, cells, err));
    DTP_TRY(DTP_NEW(arena, t.begin, cells, err));
    for (int32_t k = 0; k < u->n; k++) {
        t.sum[k + 1] = t.sum[k] + u->work[k];
    }
    fill(&t, n, -1.0);
    const double most = t.cost[n * (u->n + 1) + u->n];
    fill(&t, n, most * (1.0 + 1e-12));
    int32_t end = u->n;
    for (int32_t s = n; s > 0; s--) {
        end = first[s - 1] = t.begin[s * (u->n + 1) + end];
    }
    return DTP_OK;
}

/* ---- texts ---- */

static dtp_status no_blocks(const dtp_graph *g, dtp_err *err)
{
    return DTP_FAIL(err, DTP_INVALID,
                    "stages: the model '%s' has no repeated blocks; borders are instances of "
                    "blocks, those by names of nodes are not supported",
                    g->name);
}

/* The unit of a border behind unit `after`; `block` as in "layer:21". */
static dtp_status find_border(const dtp_graph *g, const unit_list *u, const char *text,
                              int32_t after, int32_t *out, dtp_err *err)
{
    const char *colon = strrchr(text, ':');
    int64_t instance = -1;
    const size_t bytes = colon != NULL ? (size_t)(colon - text) : 0;
    bool block = false, known = false;
    if (colon == NULL || bytes == 0 || !dtp_int_parse(colon + 1, &instance) || instance < 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages: '%.80s' is not a number of stages or a list of first instances "
                        "such as layer:0,21,41",
                        text);
    }
    *out = -1;
    for (int32_t k = 0; k < u->n; k++) {
        const dtp_node *node = &g->nodes[u->node[k]];
        const char *name = g->blocks[node->block];
        const bool named = strlen(name) == bytes && strncmp(name, text, bytes) == 0;
        block = block || named;
        known = known || (named && node->instance == instance);
        *out = named && node->instance == instance && k > after && *out < 0 ? k : *out;
    }
    if (!known) {
        return DTP_FAIL(err, DTP_INVALID, "stages: the model '%s' has no %s '%.80s'", g->name,
                        block ? "instance" : "block", text);
    }
    if (after < 0 && *out != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages: the first stage begins at '%.80s', which leaves out %s:%d", text,
                        g->blocks[g->nodes[u->node[0]].block], g->nodes[u->node[0]].instance);
    }
    return *out >= 0 ? DTP_OK
                     : DTP_FAIL(err, DTP_INVALID,
                                "stages: borders are not ascending: '%.80s' does not lie behind "
                                "the one before it",
                                text);
}

/* "layer:0,21,41": an item without a block is of the block before it. */
static dtp_status read_borders(const char *text, dtp_arena *arena, int32_t *n, const char **out,
                               dtp_err *err)
{
    const char *block = text;
    int32_t bytes = 0;
    *n = 0;
    for (const char *at = text;; at++) {
        const int32_t length = (int32_t)strcspn(at, ",");
        const char *colon = memchr(at, ':', (size_t)length);
        if (colon != NULL) {
            block = at;
            bytes = (int32_t)(colon - at);
        }
        if (*n == DTP_MAX_STAGES) {
            return DTP_FAIL(err, DTP_INVALID, "stages: more than %d", DTP_MAX_STAGES);
        }
        out[*n] = colon != NULL || bytes == 0
                      ? dtp_arena_printf(arena, "%.*s", length, at)
                      : dtp_arena_printf(arena, "%.*s:%.*s", bytes, block, length, at);
        DTP_TRY(DTP_MEMORY(err, out[*n]));
        (*n)++;
        at += length;
        if (*at == '\0') {
            return DTP_OK;
        }
    }
}

dtp_stages_text dtp_stages_print(const dtp_stage_choice *choice)
{
    dtp_stages_text out;
    (void)snprintf(out.text, sizeof out.text, choice->chunks > 1 ? "%dx%d" : "%d", choice->n,
                   choice->chunks);
    return out;
}

/* Takes "x2" off the end: chunks of every stage. */
static dtp_status read_chunks(const char **text, dtp_arena *arena, int32_t *chunks, dtp_err *err)
{
    const char *x = strrchr(*text, 'x');
    int64_t n = 1;
    *chunks = 1;
    if (x == NULL || x == *text || x[-1] < '0' || x[-1] > '9' || !dtp_int_parse(x + 1, &n)) {
        return DTP_OK;
    }
    if (n < 1 || n > DTP_MAX_STAGES) {
        return DTP_FAIL(err, DTP_INVALID, "stages: '%.80s' has %" PRId64 " chunks a stage", *text,
                        n);
    }
    *chunks = (int32_t)n;
    *text = dtp_arena_printf(arena, "%.*s", (int)(x - *text), *text);
    return DTP_MEMORY(err, *text);
}

dtp_status dtp_stages_parse(const char *text, const char *slots, const dtp_graph *model,
                            dtp_arena *arena, dtp_stage_choice *out, dtp_err *err)
{
    const char **borders, *asked = text;
    int32_t first[DTP_MAX_STAGES];
    int64_t n = 0;
    unit_list u;
    int32_t *unit, *chunk;
    *out = (dtp_stage_choice){0};
    DTP_TRY(DTP_NEW(arena, borders, DTP_MAX_STAGES, err));
    int64_t in_flight = slots == NULL || strcmp(slots, "1f1b") == 0 ? 1 : INT32_MAX;
    if (in_flight != 1 && strcmp(slots, "gpipe") != 0 &&
        (!dtp_int_parse(slots, &in_flight) || in_flight < 1 || in_flight > INT32_MAX)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "slots: '%.80s' is not 1f1b, gpipe or a number of microbatches", slots);
    }
    out->slots = (int32_t)in_flight;
    out->borders = borders;
    DTP_TRY(read_chunks(&text, arena, &out->chunks, err));
    const bool listed = !dtp_int_parse(text, &n);
    if (listed) {
        DTP_TRY(read_borders(text, arena, &out->n, borders, err));
        n = out->n / out->chunks;
    }
    const int32_t least = out->chunks > 1 ? 2 : 1, most = DTP_MAX_STAGES / out->chunks;
    if (n < least || n > most || (listed && n * out->chunks != out->n)) {
        return DTP_FAIL(err, DTP_INVALID, "stages: %.80s, expected %d to %d%s", asked, least, most,
                        out->chunks > 1 ? ", which share the chunks evenly" : "");
    }
    out->n = (int32_t)n;
    if (listed) {
        return dtp_stage_units(model, out, arena, &unit, &chunk, err);
    }
    DTP_TRY(find_units(model, arena, &u, err));
    DTP_TRY(u.n == 0 ? no_blocks(model, err) : find_work(model, arena, &u, err));
    if (dtp_stage_choice_chunks(out) > u.n) {
        return DTP_FAIL(err, DTP_INVALID, "stages: %.80s, but '%s' has %d instances of blocks",
                        asked, model->name, u.n);
    }
    DTP_TRY(equal_work(&u, dtp_stage_choice_chunks(out), arena, first, err));
    for (int32_t s = 0; s < dtp_stage_choice_chunks(out); s++) {
        const dtp_node *node = &model->nodes[u.node[first[s]]];
        borders[s] = dtp_arena_printf(arena, "%s:%d", model->blocks[node->block], node->instance);
        DTP_TRY(DTP_MEMORY(err, borders[s]));
    }
    return DTP_OK;
}

dtp_status dtp_stage_units(const dtp_graph *g, const dtp_stage_choice *choice, dtp_arena *arena,
                           int32_t **unit, int32_t **chunk, dtp_err *err)
{
    unit_list u;
    int32_t at = -1;
    DTP_TRY(find_units(g, arena, &u, err));
    DTP_TRY(DTP_NEW(arena, *chunk, u.n, err));
    DTP_TRY(u.n == 0 ? no_blocks(g, err) : DTP_OK);
    for (int32_t s = 0; s < dtp_stage_choice_chunks(choice); s++) {
        DTP_TRY(find_border(g, &u, choice->borders[s], at, &at, err));
        for (int32_t k = at; k < u.n; k++) {
            (*chunk)[k] = s;
        }
    }
    *unit = u.of;
    return DTP_OK;
}
