/* Plan files, dtp.plan/1 (docs/formats/plan.md): for a model on a mesh the layout of every tensor
 * and the strategy of every op, what that is predicted to cost, and the certificate. Made by the
 * planner (dtp/planner.h), run by a session (dtp/session.h). */
#ifndef DTP_PLAN_H
#define DTP_PLAN_H

#include "dtp/model.h"

DTP_API_BEGIN

typedef struct dtp_plan dtp_plan;

/* A machine file, dtp.machine/1 (docs/formats/machine.md): what instructions cost. Reading fails
 * with DTP_INVALID where a number looks as if it were in another unit (a launch above 1 ms), unless
 * the file says with "yes_units": true that it is meant. */
typedef struct dtp_machine dtp_machine;
dtp_status dtp_machine_read(const char *path, dtp_machine **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_machine_destroy(dtp_machine *m);
/* From now on prices are those of a runtime of the file's `efficiency`, such as "torch", instead
 * of the device's peaks. Once, before the machine is used; DTP_INVALID names the runtimes there
 * are. */
dtp_status dtp_machine_set_runtime(dtp_machine *m, const char *runtime,
                                   dtp_err *err) DTP_MUST_CHECK;

/* ---- what a plan says ---- */

typedef enum dtp_plan_objective { DTP_OBJECTIVE_TIME, DTP_OBJECTIVE_MEMORY } dtp_plan_objective;

typedef struct dtp_coll_total {
    const char *kind; /* "all_reduce", ... static */
    int64_t count;    /* per rank and step */
    int64_t bytes;    /* sum of buffer bytes per rank and step */
} dtp_coll_total;
DTP_ASSERT_SIZE(dtp_coll_total, 24);

enum { DTP_N_COLL_TOTALS = 5 };

/* What compute_s consists of, in seconds. */
typedef enum dtp_compute_part {
    DTP_COMPUTE_PRODUCTS,       /* matrix products */
    DTP_COMPUTE_ATTENTION,      /* arithmetic of attention */
    DTP_COMPUTE_ATTENTION_GRAD, /* and of its gradient */
    DTP_COMPUTE_MEMORY,         /* bytes that kernels and copies read and write */
    DTP_COMPUTE_LAUNCH,
    DTP_N_COMPUTE_PARTS
} dtp_compute_part;

typedef struct dtp_prediction {
    double step_time_s, compute_s, comm_s, exposed_comm_s;
    double compute_parts_s[DTP_N_COMPUTE_PARTS]; /* 0 in plans that do not say */
    double tokens_per_s; /* of all devices; 0: the model has no tokens, or the plan does not say */
    double mfu;          /* 0: so, or the machine states no peak of the precision */
    double vain;         /* as mfu, of slots of experts that hold no token */
    double host_s;       /* compute waits for the host, which has not issued the next kernel */
    double skew_s;       /* all wait for the slowest device */
    int64_t peak_bytes;  /* per rank */
    int64_t reserved_bytes; /* that a framework's allocator takes for them; 0: peak_bytes */
    dtp_coll_total collectives[DTP_N_COLL_TOTALS]; /* in the order of dtp_coll_kind */
    /* Of a plan with stages (docs/stages.md): step_time_s is the mean work of a stage and these;
     * compute_s to host_s and collectives are of the stage with most work, peak_bytes the largest
     * of any stage. */
    double bubble_s;        /* in which the stage with most work waits, sends taking no time */
    double imbalance_s;     /* its work beyond the mean */
    double exposed_sends_s; /* by which sends make the step longer */
    int32_t peak_stage;     /* whose peak it is */
} dtp_prediction;
DTP_ASSERT_SIZE(dtp_prediction, 280);

typedef enum dtp_cert_status {
    DTP_CERT_OPTIMAL,
    DTP_CERT_FEASIBLE,
    DTP_CERT_INFEASIBLE,
    DTP_CERT_TIME_LIMIT
} dtp_cert_status;

/* "optimal", "feasible", "infeasible", "time_limit". */
const char *dtp_cert_status_name(dtp_cert_status status);

/* Why planning ended early. */
typedef enum dtp_stop_reason {
    DTP_STOP_NONE,
    DTP_STOP_TIME_LIMIT,
    DTP_STOP_INTERRUPT
} dtp_stop_reason;

/* Shadow price of a constraint: without it the least additive cost is lower by so much. */
typedef struct dtp_shadow_price {
    const char *constraint;   /* "memory 2147483648", "pin h: batch@x" */
    int64_t relaxed_by_bytes; /* memory: a limit this much higher; else 0: the pin is left out */
    int64_t saves_ps;
    bool exact; /* both sums are proven to be the least */
} dtp_shadow_price;
DTP_ASSERT_SIZE(dtp_shadow_price, 32);

/* cost, bound: picoseconds for objective time, bytes for objective memory. untied_bound <= bound
 * <= least_cost <= cost. */
typedef struct dtp_certificate {
    dtp_cert_status status;
    int64_t cost, bound;
    double gap;            /* (cost - bound) / cost */
    int64_t least_cost;    /* of the cheapest plan that was found; the plan may cost more and take
                           less time */
    dtp_stop_reason ended; /* early: status and bound are what holds so far */
    const char *solver;
    int64_t nodes;
    double solve_s;       /* written with timings only */
    bool has_untied;      /* tensor mode, objective time, where instances of a block decide */
    int64_t untied_bound; /* together: no plan in which each decides for itself costs less */
    double untied_gap;    /* (least_cost - untied_bound) / least_cost: layer tying loses at most
                               this */
    bool has_prices;
    int32_t n_prices;
    dtp_shadow_price *prices; /* with has_prices */
    int64_t step_bound; /* tensor mode, objective time, where communication overlaps: no plan of the
                           mesh has a step of less than so many picoseconds; 0: none is known */
} dtp_certificate;
DTP_ASSERT_SIZE(dtp_certificate, 120);

/* ---- plans ---- */

/* For the model that it was made for, as it was read: names are resolved, layouts checked (an
 * illegal layout is DTP_INVALID). */
dtp_status dtp_plan_load(const char *path, const dtp_graph *model, dtp_plan **out,
                         dtp_err *err) DTP_MUST_CHECK;
/* Writes the file, whole or not at all. DTP_INTERNAL, and no file, when dtp_plan_load would not
 * take it. */
dtp_status dtp_plan_save(const dtp_plan *plan, const dtp_graph *model, const char *path,
                         dtp_err *err) DTP_MUST_CHECK;
void dtp_plan_destroy(dtp_plan *plan);

typedef enum dtp_plan_form {
    DTP_PLAN_TEXT,   /* for people: certificate, predictions, baselines */
    DTP_PLAN_JSON,   /* the file, the same for the same plan */
    DTP_PLAN_TIMINGS /* the file with the time that solving took */
} dtp_plan_form;
/* The caller frees *text. */
dtp_status dtp_plan_describe(const dtp_plan *plan, const dtp_graph *model, dtp_plan_form form,
                             char **text, dtp_err *err) DTP_MUST_CHECK;

/* Borrowed from the plan. A plan that was made without a machine predicts no times. */
const dtp_mesh *dtp_plan_mesh(const dtp_plan *plan);
const dtp_prediction *dtp_plan_predicted(const dtp_plan *plan);
const dtp_certificate *dtp_plan_certificate(const dtp_plan *plan);

/* Type of activations and their gradients: DTP_F32 without mixed precision. */
/* The runtime whose efficiency prices have (dtp_machine_set_runtime); "": none. */
const char *dtp_plan_runtime(const dtp_plan *plan);
dtp_dtype dtp_plan_compute_dtype(const dtp_plan *plan);
/* Whether the plan was made for this version of the model, and for this machine. */
bool dtp_plan_is_for_model(const dtp_plan *plan, const dtp_graph *model);
bool dtp_plan_is_for_machine(const dtp_plan *plan, const dtp_machine *machine);

DTP_API_END

#endif
