/* Plans as dtplan makes them, verified and run as dtrun does, in one process. A model is computed
 * on one device that all its plans are compared with. What goes wrong fails the test, with the name
 * of the plan. */
#ifndef DTP_TESTS_SUPPORT_PLAN_CASE_H
#define DTP_TESTS_SUPPORT_PLAN_CASE_H

#include "cost_models/job.h"
#include "dtp/planner.h"
#include "tests/support/verify_case.h"

enum { PLAN_STEPS = 3 };

typedef struct plan_model {
    const char *file;      /* in the source folder */
    const char *dims;      /* "batch=4 layers=2"; NULL: as they are there */
    const char *precision; /* NULL: f32 */
    const char *backend;   /* NULL: "cpu" */
    int32_t steps;         /* to verify; 0: PLAN_STEPS */
    bool text;             /* reads models/data/text.txt */
    bool ring;             /* its attention is ring attention */
} plan_model;

/* A model on one device. */
typedef struct one_device {
    plan_model of;
    dtp_graph *model;   /* as it was read */
    dtp_graph *precise; /* in its precision; NULL: it is f32 */
    dtp_backend *backend;
    verify_case verify; /* of its plans */
} one_device;

void one_device_open(const plan_model *of, one_device *out);
void one_device_close(one_device *d);

/* Texts of dtp_plan_options in a table. */
#define PLAN_COUNT(...) sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)
#define PLAN_STYLES(...)                                                                           \
    .n_styles = PLAN_COUNT(__VA_ARGS__), .styles = (const char *const[])                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define PLAN_PINS(...)                                                                             \
    .n_pins = PLAN_COUNT(__VA_ARGS__), .pins = (const char *const[])                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* What a plan is made from. */
typedef struct plan_row {
    const char *mesh;         /* NULL: the best one of options.devices */
    const char *machine;      /* FILE of models/machines/FILE.json; NULL: none */
    dtp_plan_options options; /* fields that are 0 have their defaults; precision, target and the
                                 file of baselines are the model's */
} plan_row;

/* A plan, after it was written and read again. `what`: a name for failures, a static buffer. */
dtp_plan *plan_make(const one_device *d, const plan_row *row);
const char *plan_name(const one_device *d, const plan_row *row);

/* The plan file; the caller frees it. */
char *plan_text(const one_device *d, const dtp_plan *plan);

/* As dtrun verify: initial values, outputs, gradients and updates against the one device, peaks of
 * all ranks as predicted. The result is rank 0's; free it. */
dtp_verify_result plan_verify(const one_device *d, const dtp_plan *plan, const char *what);
/* The same of rules such as "batch:x" without a plan; precision and target are the model's,
 * `options` may say more. */
dtp_verify_result rules_verify(const one_device *d, const char *mesh, const char *rules,
                               const dtp_job_options *options);

typedef struct plan_losses {
    double of[PLAN_STEPS];
} plan_losses;

/* As dtrun run, of PLAN_STEPS: the peak of all ranks and the number of collectives are those of the
 * plan. NULL: on one device. */
plan_losses plan_run(const one_device *d, const dtp_plan *plan, const char *what);
/* Fails where relative differences are larger. */
void plan_losses_near(const plan_losses *got, const plan_losses *want, double tolerance,
                      const char *what);

#endif
