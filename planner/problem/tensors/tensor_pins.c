/* What is pinned in tensor mode: the pins of a request on one mesh, whether a decision keeps
 * them, and which of them cannot hold together. */
#include "planner/problem/tensors/tensor_pins.h"

#include <inttypes.h>
#include <string.h>

#include "planner/solver/solve.h"
#include "core/plan/node_layouts.h"

/* ---- kept? ---- */

/* The layout in which a node reads its operands. */
static bool read_as_pinned(const dtp_graph *g, const dtp_sharding *s, const dtp_pin *pin)
{
    const dtp_node *node = &g->nodes[pin->node];
    dtp_call_types types;
    dtp_layout in[DTP_MAX_OP_IN];
    dtp_node_layouts layouts;
    const dtp_op_call call = dtp_node_call(g, node, &types);
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = dtp_sharding_has_replicas(s) ? s->replicas[node->phase][node->in[i]]
                                             : s->layouts[node->in[i]];
    }
    if (dtp_node_layouts_find(&s->mesh, &call, NULL, &s->strategies[pin->node], in, NULL, &layouts,
                              NULL) != DTP_OK) {
        return false;
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == pin->tensor && !dtp_pin_agrees(pin, &layouts.in[i])) {
            return false;
        }
    }
    return true;
}

bool dtp_pins_kept(const dtp_graph *g, const dtp_sharding *s, int32_t n, const dtp_pin *pins)
{
    for (int32_t i = 0; i < n; i++) {
        const dtp_pin *pin = &pins[i];
        if (pin->node >= 0 ? !read_as_pinned(g, s, pin)
                           : !dtp_pin_agrees(pin, &s->layouts[pin->tensor])) {
            return false;
        }
    }
    return true;
}

/* ---- conflicts ---- */

typedef struct conflict_search {
    const dtp_graph *g;
    const dtp_pricer *pricer;
    int32_t n_texts;
    const char **texts; /* those that are left */
    int64_t memory_bytes;
    bool uneven;
    const dtp_stop *stop;
    dtp_arena *arena;
} conflict_search;

/* Whether what is left is proven impossible. */
static dtp_status is_impossible(const conflict_search *c, bool *out, dtp_err *err)
{
    dtp_pin_set pins;
    *out = false;
    DTP_TRY(dtp_pin_set_read(c->n_texts, c->texts, c->g, &c->pricer->mesh, c->arena, &pins, err));
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_tensor_problem *problem = NULL;
    dtp_solve_options select = dtp_solve_options_init();
    dtp_solve_result r;
    options.uneven = c->uneven;
    options.memory_bytes = c->memory_bytes;
    options.stop = select.stop = c->stop;
    options.n_pins = pins.n_pins;
    options.pins = pins.pins;
    dtp_status s = dtp_tensor_problem_create(c->g, c->pricer, &options, &problem, err);
    if (s == DTP_INVALID) {
        *out = true;
        return DTP_OK;
    }
    DTP_TRY(s);
    s = dtp_solve(problem->select, &select, &r, err);
    *out = s == DTP_OK && r.status == DTP_CERT_INFEASIBLE;
    if (s == DTP_OK) {
        dtp_solve_result_free(&r);
    }
    dtp_tensor_problem_destroy(problem);
    return s;
}

/* The limit first: a conflict among pins alone says more. */
static dtp_status delete_all(conflict_search *c, dtp_err *err)
{
    bool impossible;
    const int64_t limit = c->memory_bytes;
    c->memory_bytes = 0;
    DTP_TRY(limit > 0 ? is_impossible(c, &impossible, err) : DTP_OK);
    c->memory_bytes = limit > 0 && impossible ? 0 : limit;
    for (int32_t i = 0; i < c->n_texts;) {
        const char *text = c->texts[i];
        memmove(&c->texts[i], &c->texts[i + 1], (size_t)(c->n_texts - i - 1) * sizeof *c->texts);
        c->n_texts--;
        DTP_TRY(is_impossible(c, &impossible, err));
        if (!impossible) {
            memmove(&c->texts[i + 1], &c->texts[i], (size_t)(c->n_texts - i) * sizeof *c->texts);
            c->texts[i++] = text;
            c->n_texts++;
        }
    }
    return DTP_OK;
}

dtp_status dtp_conflict_find(const dtp_graph *g, const dtp_pricer *pricer,
                             const dtp_conflict_question *question, dtp_arena *arena,
                             dtp_conflict *out, dtp_err *err)
{
    conflict_search c = {.g = g,
                         .pricer = pricer,
                         .memory_bytes = question->memory_bytes,
                         .uneven = question->uneven,
                         .stop = question->stop,
                         .arena = arena};
    bool impossible = false;
    *out = (dtp_conflict){0};
    DTP_TRY(DTP_NEW(arena, c.texts, question->n_texts + 2, err));
    for (int32_t i = 0; i < question->n_texts; i++) {
        c.texts[c.n_texts++] = question->texts[i];
    }
    DTP_TRY(is_impossible(&c, &impossible, err));
    if (!impossible) {
        return DTP_OK;
    }
    DTP_TRY(delete_all(&c, err));
    if (c.memory_bytes > 0) {
        c.texts[c.n_texts] = dtp_arena_printf(arena, "memory %" PRId64, c.memory_bytes);
        DTP_TRY(DTP_MEMORY(err, c.texts[c.n_texts]));
        c.n_texts++;
    }
    out->n = c.n_texts;
    out->texts = c.texts;
    return DTP_OK;
}
