/* Problems of tensor mode for tests: models with small dims on a machine on which splitting pays,
 * and selections drawn at random. */
#ifndef DTP_TESTS_SUPPORT_TENSOR_CASES_H
#define DTP_TESTS_SUPPORT_TENSOR_CASES_H

#include "core/transform/graph_variant.h"
#include "core/graph/graph.h"
#include "cost_models/redistribution_price.h"
#include "planner/solver/solve.h"
#include "planner/plan_search.h"
#include "planner/problem/tensors/tensor_problem.h"

typedef struct tensor_case {
    const char *model; /* file under models/, or the text of a model */
    const char *mesh;
    const char *dims; /* "batch=8 length=4" */
    bool remat;       /* all blocks */
    int32_t microbatches;
    const char *precision;      /* NULL: f32 */
    const char *regather;       /* dtp_regather_mark; NULL: as the target has it */
    const char *machine;        /* file under models/machines/, or the text of a machine; NULL: slow
                                 arithmetic, quick links */
    const dtp_target *target;   /* NULL: cpu */
    bool uneven;                /* for the problem: splits that do not divide a size */
    const char *stages, *slots; /* dtp_stages_parse; NULL: none */
} tensor_case;

typedef struct tensor_fixture {
    dtp_graph *model; /* as it was read */
    dtp_graph *graph; /* with recomputation and microbatches */
    dtp_machine *machine;
    dtp_pricer pricer;
    dtp_redistribution_pricer *moves;
    const dtp_redistributor *redistributor; /* of moves */
} tensor_fixture;

/* Two layers of a GPT and an MLP with a loss, small enough for N ranks in one process. */
#define TENSOR_GPT "gpt_bytes.json"
#define TENSOR_GPT_DIMS "batch=8 length=8 vocab=16 layers=2 heads=4 d_head=4"
#define TENSOR_MLP "mlp_digits.json"
#define TENSOR_MLP_DIMS "batch=8 pixels=16 hidden=8 classes=4"

/* Fails the test when something is wrong. f must stay where it is. */
void tensor_fixture_create(const tensor_case *c, tensor_fixture *f);
void tensor_fixture_destroy(tensor_fixture *f);
dtp_tensor_problem *tensor_fixture_problem(const tensor_fixture *f,
                                           const dtp_tensor_options *options);

/* Planning in tensor mode on the fixture's mesh and target, without a limit; it must not fail. */
dtp_plan_request tensor_fixture_request(const tensor_fixture *f);
dtp_plan_result tensor_fixture_plan(const tensor_fixture *f, const dtp_plan_request *request);

/* The cost of the solver's answer, which it must have proven. */
int64_t tensor_optimum(const dtp_problem *p);
/* Sets a limit below what the optimum without one uses and solves; the answer is proven. */
void tensor_solve_limited(dtp_problem *p, dtp_solve_result *r);

uint64_t tensor_draw(uint64_t *seed, uint64_t n);
/* A selection without forbidden pairs, as far as a few repairs find one; false when not. */
bool tensor_random_selection(const dtp_tensor_problem *p, uint64_t *seed, int32_t *selection);

#endif
