/* Shadow prices of the constraints of a plan: by how much the least additive cost falls when the
 * memory limit is 1 GiB higher, or when one pin is left out. */
#include "planner/shadow_prices.h"

#include <inttypes.h>
#include <string.h>

#include "core/graph/implementation.h"
#include "interop/styles/pin_texts.h"
#include "planner/solver/solve.h"
#include "planner/problem/tensors/tensor_problem.h"

typedef struct priced {
    int64_t cost;
    bool exact; /* proven to be the least */
} priced;

static dtp_status solve(const dtp_shadow_prices *c, const dtp_tensor_problem *p, priced *out,
                        dtp_err *err)
{
    dtp_solve_options options = dtp_solve_options_init();
    dtp_solve_result r;
    options.seed = c->seed;
    DTP_TRY(dtp_solve(p->select, &options, &r, err));
    *out = (priced){.cost = r.assignment != NULL ? r.value.cost : DTP_FORBIDDEN,
                    .exact = r.status == DTP_CERT_OPTIMAL};
    dtp_solve_result_free(&r);
    return DTP_OK;
}

static dtp_status solve_on(const dtp_shadow_prices *c, const dtp_graph *g, const dtp_pin_set *pins,
                           priced *out, dtp_err *err)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_tensor_problem *p = NULL;
    options.uneven = c->uneven;
    options.memory_bytes = c->memory_bytes;
    options.n_pins = pins->n_pins;
    options.pins = pins->pins;
    DTP_TRY(dtp_tensor_problem_create(g, c->pricer, &options, &p, err));
    dtp_status s = solve(c, p, out, err);
    dtp_tensor_problem_destroy(p);
    return s;
}

static dtp_status price(const dtp_shadow_prices *c, dtp_arena *arena, priced *out, dtp_err *err)
{
    dtp_pin_set pins;
    dtp_graph *set = NULL;
    DTP_TRY(dtp_pin_set_read(c->n_texts, c->texts, c->model, &c->pricer->mesh, arena, &pins, err));
    DTP_TRY(dtp_graph_with_implementations(c->model, pins.n_implementations, pins.implementations,
                                           &set, err));
    dtp_status s = solve_on(c, set, &pins, out, err);
    dtp_graph_destroy(set);
    return s;
}

/* Enters what `relaxed` saves against `base`. */
static void enter(const char *constraint, int64_t relaxed_by, const priced *base,
                  const priced *relaxed, dtp_shadow_price *out)
{
    const int64_t saves = base->cost - relaxed->cost;
    *out = (dtp_shadow_price){.constraint = constraint,
                              .relaxed_by_bytes = relaxed_by,
                              .saves_ps = saves > 0 ? saves : 0,
                              .exact = base->exact && relaxed->exact};
}

dtp_status dtp_shadow_prices_find(const dtp_shadow_prices *c, dtp_arena *arena, int32_t *n,
                                  dtp_shadow_price **out, dtp_err *err)
{
    dtp_shadow_prices changed = *c;
    priced base, relaxed;
    const char **texts = dtp_arena_alloc(arena, (size_t)c->n_texts + 1, sizeof *texts);
    *out = dtp_arena_alloc(arena, (size_t)c->n_texts + 1, sizeof **out);
    *n = 0;
    DTP_TRY(DTP_MEMORY(err, texts, *out));
    DTP_TRY(price(c, arena, &base, err));
    if (c->memory_bytes > 0) {
        const char *name = dtp_arena_printf(arena, "memory %" PRId64, c->memory_bytes);
        DTP_TRY(DTP_MEMORY(err, name));
        changed.memory_bytes += DTP_PRICED_BYTES;
        DTP_TRY(price(&changed, arena, &relaxed, err));
        enter(name, DTP_PRICED_BYTES, &base, &relaxed, &(*out)[(*n)++]);
    }
    changed = *c;
    changed.n_texts = c->n_texts - 1;
    changed.texts = texts;
    for (int32_t i = 0; i < c->n_texts; i++) {
        for (int32_t k = 0; k < c->n_texts - 1; k++) {
            texts[k] = c->texts[k < i ? k : k + 1];
        }
        DTP_TRY(price(&changed, arena, &relaxed, err));
        const char *pin = dtp_arena_strdup(arena, c->texts[i]); /* the request's may end first */
        DTP_TRY(DTP_MEMORY(err, pin));
        enter(pin, 0, &base, &relaxed, &(*out)[(*n)++]);
    }
    return DTP_OK;
}
