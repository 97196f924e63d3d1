/* Steps of a plan with and without overlap.
 *
 *   bench_overlap MODEL PLAN MACHINE [DIM=SIZE ...]
 *
 * One line per depth of overlap and one for the depth that is chosen: depth, step, communication,
 * exposed communication (ms), peak (bytes). Memory: the limit of the plan, else the device's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"

enum { MAX_OVERRIDES = 16 };

typedef struct task {
    dtp_graph *model, *graph;
    dtp_machine *machine;
    dtp_plan *plan;
    dtp_pricer pricer;
    dtp_plan_lowering lowering;
} task;

static dtp_status line(task *t, int32_t depth, dtp_err *err)
{
    dtp_prediction p;
    dtp_lower_options options = t->lowering.options;
    options.overlap.depth = depth;
    options.overlap.memory_bytes = t->plan->memory_limit_bytes;
    if (depth > 0 && options.overlap.memory_bytes == 0) {
        options.overlap.memory_bytes = t->machine->memory_bytes;
    }
    DTP_TRY(
        dtp_sharding_predict(t->graph, &t->pricer, &t->plan->sharding, &options, &p, NULL, err));
    (void)printf("%s%d %.9g %.9g %.9g %lld\n", depth == DTP_OVERLAP_CHOOSE ? "chosen " : "depth ",
                 options.overlap.depth, 1e3 * p.step_time_s, 1e3 * p.comm_s, 1e3 * p.exposed_comm_s,
                 (long long)p.peak_bytes);
    return DTP_OK;
}

static dtp_status run(task *t, int argc, char **argv, dtp_err *err)
{
    dtp_model_options options = dtp_model_options_init();
    dtp_dim_override overrides[MAX_OVERRIDES];
    for (int i = 4; i < argc && i - 4 < MAX_OVERRIDES; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL) {
            return DTP_FAIL(err, DTP_INVALID, "'%s' is not DIM=SIZE", argv[i]);
        }
        *equals = '\0';
        overrides[i - 4] = (dtp_dim_override){argv[i], strtoll(equals + 1, NULL, 10)};
        options.n_overrides = i - 3;
    }
    options.overrides = overrides;
    DTP_TRY(dtp_model_read(argv[1], &options, &t->model, err));
    DTP_TRY(dtp_machine_read(argv[3], &t->machine, err));
    DTP_TRY(dtp_plan_load(argv[2], t->model, &t->plan, err));
    DTP_TRY(dtp_plan_graph(t->plan, t->model, &t->graph, err));
    DTP_TRY(dtp_plan_lowering_init(&t->lowering, t->plan, err));
    DTP_TRY(
        dtp_pricer_init(t->machine, &t->plan->mesh, t->lowering.options.target, &t->pricer, err));
    for (int32_t depth = 0; depth <= DTP_OVERLAP_MAX_DEPTH; depth = depth > 0 ? 2 * depth : 1) {
        DTP_TRY(line(t, depth, err));
    }
    return line(t, DTP_OVERLAP_CHOOSE, err);
}

int main(int argc, char **argv)
{
    task t = {0};
    dtp_err err = {0};
    if (argc < 4) {
        (void)fprintf(stderr, "usage: bench_overlap MODEL PLAN MACHINE [DIM=SIZE ...]\n");
        return 2;
    }
    const dtp_status s = run(&t, argc, argv, &err);
    if (s != DTP_OK) {
        (void)fprintf(stderr, "bench_overlap: %s\n", err.msg);
    }
    dtp_graph_destroy(t.graph);
    dtp_plan_destroy(t.plan);
    dtp_machine_destroy(t.machine);
    dtp_graph_destroy(t.model);
    return s == DTP_OK ? 0 : 1;
}
