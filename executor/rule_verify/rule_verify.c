/* The rule verifier (dtp/op.h): an op under every rule on small meshes, beside one device. */
#include "executor/rule_verify/rule_subject.h"
#include "core/graph/op_rules.h"

#include <string.h>

enum { RANDOM_PAIRS = 8, TRIES = 20 };

/* One case of one op under verification. */
typedef struct verification {
    dtp_rule_target target;
    dtp_rule_subject subject;
    dtp_rule_report *report;
    int32_t n_rules; /* of the case's op */
    uint64_t random;
} verification;

/* Runs one choice and books the result. */
static dtp_status check(verification *v, const dtp_rule_choice *c, bool gradients, dtp_err *err)
{
    dtp_rule_report *r = v->report;
    dtp_rule_verdict verdict;
    double error;
    dtp_err why = {0};
    dtp_status s = dtp_rule_check(&v->subject, &v->target, c, gradients, &verdict, &error, &why);
    if (s != DTP_OK) {
        return DTP_FAIL(err, s, "%s", why.msg);
    }
    if (verdict == DTP_RULE_REFUSED) {
        r->refused++;
        return DTP_OK;
    }
    r->programs += gradients ? 0 : 1;
    r->gradient_programs += gradients ? 1 : 0;
    if (verdict == DTP_RULE_WRONG) {
        r->pass = false;
        r->first_wrong = why;
        dtp_err_prefix(&r->first_wrong, gradients ? "gradients" : "forward");
    } else {
        r->max_error = error > r->max_error ? error : r->max_error;
    }
    return DTP_OK;
}

/* ---- forward ---- */

/* One choice of rows with operands and results replicated, and as the rows want them. */
static dtp_status check_rows(verification *v, const char *mesh, const int16_t *rows, bool reverse,
                             dtp_err *err)
{
    for (int32_t k = 0; k < 2 && v->report->pass; k++) {
        dtp_rule_choice c;
        DTP_TRY(dtp_rule_choice_init(&c, v->subject.cg.g, mesh, err));
        for (int32_t m = 0; m < c.sharding.mesh.n_dims; m++) {
            c.strategies[0].row[m] = rows[m];
        }
        if (k == 1) {
            dtp_rule_lay_out(&c, v->subject.cg.g, 0, reverse);
        }
        c.options.in_place = k == 0;
        DTP_TRY(check(v, &c, false, err));
    }
    return DTP_OK;
}

static int32_t count_rules(const dtp_case_graph *cg, dtp_node_id id)
{
    dtp_call_types types;
    dtp_sharding_rules rules;
    dtp_op_call call = dtp_node_call(cg->g, &cg->g->nodes[id], &types);
    dtp_sharding_rules_of(&call, true, &rules);
    return rules.n;
}

/* ---- gradients ---- */

/* Rows for every node of the graph: `row` for the op itself on the first mesh dim (-1: random),
 * random ones elsewhere. */
static void pick_rows(verification *v, dtp_rule_choice *c, int16_t row, bool lay_out)
{
    const dtp_graph *g = v->subject.cg.g;
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        const uint64_t n = (uint64_t)count_rules(&v->subject.cg, id);
        for (int32_t tries = 0; tries < TRIES; tries++) {
            for (int32_t m = 0; m < c->sharding.mesh.n_dims; m++) {
                bool fixed = id == v->subject.cg.node && m == 0 && row >= 0;
                c->strategies[id].row[m] =
                    (int16_t)(fixed ? row : (int32_t)(dtp_case_random(&v->random) % n));
            }
            if (!dtp_rule_is_refused(g, c, id)) {
                break;
            }
        }
        if (lay_out) {
            dtp_rule_lay_out(c, g, id, false);
        }
    }
}

static dtp_status check_gradient(verification *v, const char *mesh, int16_t row, int32_t k,
                                 dtp_err *err)
{
    dtp_rule_choice c;
    DTP_TRY(dtp_rule_choice_init(&c, v->subject.cg.g, mesh, err));
    pick_rows(v, &c, row, k % 2 == 0);
    c.options.merge_collectives = k % 4 < 2;
    return check(v, &c, true, err);
}

static dtp_status check_gradients(verification *v, dtp_err *err)
{
    static const char *const lines[] = {"x:2", "x:3"}, *const planes[] = {"x:2;y:2", "x:2;y:3"};
    int32_t k = 0;
    for (int32_t r = 0; r < v->n_rules; r++) {
        for (size_t m = 0; m < sizeof lines / sizeof lines[0] && v->report->pass; m++) {
            DTP_TRY(check_gradient(v, lines[m], (int16_t)r, k++, err));
        }
    }
    for (int32_t i = 0; i < RANDOM_PAIRS && v->report->pass; i++) {
        DTP_TRY(check_gradient(v, planes[i % 2], -1, k++, err));
    }
    return DTP_OK;
}

/* ---- an op ---- */

static dtp_status check_forward(verification *v, dtp_err *err)
{
    static const char *const meshes[] = {"x:2", "x:3", "x:4"};
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        for (int16_t r = 0; r < v->n_rules && v->report->pass; r++) {
            DTP_TRY(check_rows(v, meshes[m], &r, false, err));
        }
    }
    /* Every pair of rows, with the mesh dims in either order where both split one dim. */
    static const char *const pairs[] = {"x:2;y:2", "x:2;y:3"};
    const int32_t n = v->n_rules, all = n * n;
    for (size_t m = 0; m < sizeof pairs / sizeof pairs[0]; m++) {
        for (int32_t i = 0; i < all && v->report->pass; i++) {
            const int16_t rows[] = {(int16_t)(i / n), (int16_t)(i % n)};
            DTP_TRY(check_rows(v, pairs[m], rows, false, err));
            if (v->report->pass) {
                DTP_TRY(check_rows(v, pairs[m], rows, true, err));
            }
        }
    }
    return DTP_OK;
}

/* Every rule with what is not finite in an operand; of gradients NaN alone, which stays NaN where
 * an infinity may become one. */
static dtp_status check_feed(verification *v, bool gradients, dtp_err *err)
{
    static const char *const meshes[] = {"x:2", "x:3"};
    for (int16_t r = 0; r < v->n_rules && v->report->pass; r++) {
        const char *mesh = meshes[dtp_case_random(&v->random) % 2];
        DTP_TRY(gradients ? check_gradient(v, mesh, r, r, err)
                          : check_rows(v, mesh, &r, false, err));
    }
    return DTP_OK;
}

/* One subject of a case: its values are finite, or those of a feed. Gives how many feeds there are.
 */
static dtp_status verify_subject(verification *v, const dtp_op_case *c, const dtp_op_def *op,
                                 bool gradients, int32_t *n_feeds, dtp_err *err)
{
    bool applies = false;
    *n_feeds = 0;
    dtp_status s =
        dtp_rule_subject_create(c, op, gradients, &v->target, &v->subject, &applies, err);
    if (s == DTP_OK && applies) {
        *n_feeds = dtp_case_feeds(&v->subject.cg);
        v->n_rules = count_rules(&v->subject.cg, v->subject.cg.node);
        v->report->rules = v->n_rules > v->report->rules ? v->n_rules : v->report->rules;
        s = v->target.feed >= 0 ? check_feed(v, gradients, err)
            : gradients         ? check_gradients(v, err)
                                : check_forward(v, err);
    }
    if (!v->report->pass) {
        dtp_err_prefix(&v->report->first_wrong, "'%s' (%s; in %s)", c->op,
                       c->attrs == NULL ? "" : c->attrs, c->in[0] == NULL ? "-" : c->in[0]);
    }
    dtp_rule_subject_free(&v->subject);
    return s;
}

static dtp_status verify_case(const dtp_op_case *c, const dtp_op_def *op,
                              const dtp_rule_verify_options *o, bool gradients, dtp_sim_pool *pool,
                              dtp_rule_report *report, dtp_err *err)
{
    verification v = {.report = report, .random = o->seed};
    int32_t n_feeds, unused;
    DTP_TRY(dtp_rule_target_init(&v.target, o->backend, o->dtype, o->seed, err));
    v.target.ops = o->ops;
    v.target.n_kernels = o->n_kernels;
    v.target.kernels = o->kernels;
    v.target.pool = pool;
    DTP_TRY(verify_subject(&v, c, op, gradients, &n_feeds, err));
    for (int32_t k = 0; k < n_feeds && report->pass; k += gradients ? DTP_CASE_FEED_VALUES : 1) {
        v.target.feed = k;
        DTP_TRY(verify_subject(&v, c, op, gradients, &unused, err));
    }
    return DTP_OK;
}

static dtp_status verify_cases(const dtp_op_def *op, const dtp_rule_verify_options *options,
                               dtp_sim_pool *pool, dtp_rule_report *out, dtp_err *err)
{
    const dtp_op_case *cases = options->n_cases > 0 ? options->cases : DTP_OP_CASES;
    const int32_t n = options->n_cases > 0 ? options->n_cases : DTP_OP_CASE_COUNT;
    for (int32_t i = 0; i < n && out->pass; i++) {
        if (!dtp_case_is_of(&cases[i], op)) {
            continue;
        }
        out->cases++;
        DTP_TRY(verify_case(&cases[i], op, options, false, pool, out, err));
        if (out->pass) {
            DTP_TRY(verify_case(&cases[i], op, options, true, pool, out, err));
        }
    }
    return out->cases > 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOT_FOUND, "op '%s' has no cases to verify", op->name);
}

/* Letters without a given role: those with which every program is right when they are parallel.
 * A kernel that fails needs them whole. */
static dtp_status try_letters(const dtp_op_def *op, const dtp_rule_verify_options *options,
                              dtp_sim_pool *pool, dtp_rule_report *out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, arena);
    size_t n = 0;
    for (char letter = '.'; letter <= 'z' && s == DTP_OK; letter++) {
        dtp_rule_report tried = {.op = op->name, .pass = true};
        dtp_op_def *parallel = NULL;
        s = dtp_custom_op_try_parallel(op, letter, arena, &parallel, err);
        if (parallel != NULL && n + 1 < sizeof out->parallel &&
            verify_cases(parallel, options, pool, &tried, NULL) == DTP_OK && tried.pass) {
            out->parallel[n++] = letter;
        }
    }
    dtp_arena_destroy(arena);
    return s;
}

dtp_status dtp_rule_verify(const dtp_op_def *op, const dtp_rule_verify_options *options,
                           dtp_rule_report *out, dtp_err *err)
{
    dtp_sim_pool *pool = NULL;
    dtp_rule_verify_options known;
    DTP_TRY(DTP_NOT_NULL(err, op, options, out));
    DTP_TRY(dtp_options_read(__func__, options, sizeof known, &known, err));
    known.backend = known.backend != NULL ? known.backend : "ref";
    *out = (dtp_rule_report){.op = op->name, .pass = true};
    DTP_TRY(dtp_sim_pool_create(&pool, err));
    dtp_status s = verify_cases(op, &known, pool, out, err);
    s = s == DTP_OK && out->pass ? try_letters(op, &known, pool, out, err) : s;
    dtp_sim_pool_destroy(pool);
    return s;
}
