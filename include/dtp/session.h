/* Running a model: as a plan says, or by layout rules.
 *
 * A job is the model with a layout for every tensor, lowered to the program that every rank runs;
 * one job serves all ranks of a process. A session is the job on one rank: a bound program with
 * parameters, feeds and a step count. Every function on a session is collective: all ranks call it
 * in the same order. */
#ifndef DTP_SESSION_H
#define DTP_SESSION_H

#include "dtp/device_mesh.h"
#include "dtp/plan.h"

DTP_API_BEGIN

/* ---- jobs ---- */

typedef struct dtp_job dtp_job;
typedef struct dtp_program dtp_program; /* what every rank runs */

/* The forward pass of one microbatch without dropout. */
typedef enum dtp_evaluation_kind {
    DTP_NO_EVALUATION,
    DTP_EVALUATE_LOSS,   /* to the loss and the outputs without a row for each row of the batch */
    DTP_EVALUATE_OUTPUTS /* to the outputs of the model */
} dtp_evaluation_kind;

typedef struct dtp_job_options {
    size_t size;
    const dtp_plan
        *plan; /* borrowed; says all that the next seven do, and `outputs`. NULL: they do */
    const dtp_mesh *mesh;       /* NULL: one device */
    const char *rules;          /* layout rules, "batch:x"; NULL: replicated */
    bool uneven;                /* rules may split sizes that do not divide evenly */
    const char *precision;      /* "tf32", "bf16", "f16", "bf16,gradients=f32" (docs/precision.md);
                                 NULL: f32 */
    const char *remat;          /* blocks to recompute, "layer:0-3", and what they keep,
                                 "layer keep=**.attn$" (docs/memory-saving.md); NULL: none */
    const char *microbatches;   /* "4", "batch=4"; NULL: none */
    const char *target;         /* what programs are for (docs/targets.md); NULL: "cpu" */
    bool strict;                /* operands may be sent only where a pin of the plan asked */
    const dtp_machine *machine; /* to predict with; NULL: the plan's prediction */
    int32_t n_fetch;            /* tensors to read after a step, by name, beside parameters, */
    const char *const *fetch;   /* states, outputs and the loss */
    bool results;               /* loss, outputs and gradients can be read too */
    dtp_evaluation_kind evaluation; /* of a model that is trained; else what there is */
    const char *outputs;            /* outputs of the model that are kept, "logits" or "none"
                                   (docs/formats/model.md); NULL: all */
    const char *regather;           /* copies that the backward pass gathers again: "none", "all",
                                       "params,layers.*.norm_1" (docs/memory-saving.md); NULL: as
                                       the target has it */
    const char *stages;             /* "4", "layer:0,21,41,61" (docs/stages.md); NULL: none */
    const char *slots;              /* "1f1b", "gpipe" or microbatches in flight on the last stage;
                                       NULL: "1f1b" */
} dtp_job_options;

static inline dtp_job_options dtp_job_options_init(void)
{
    dtp_job_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

/* Borrows the model, as it was read, and the plan. DTP_INVALID when rules or pins cannot hold,
 * DTP_NOT_FOUND for a fetch that no tensor has as its name. */
dtp_status dtp_job_create(const dtp_graph *model, const dtp_job_options *options, dtp_job **out,
                          dtp_err *err) DTP_MUST_CHECK;
/* Sessions of the job must be gone. NULL is accepted. */
void dtp_job_destroy(dtp_job *job);

/* Borrowed from the job. */
const dtp_program *dtp_job_program(const dtp_job *job);
const dtp_mesh *dtp_job_mesh(const dtp_job *job);
/* NULL without a machine and without a plan that predicts. */
const dtp_prediction *dtp_job_predicted(const dtp_job *job);
/* A tensor by name and its type; DTP_NOT_FOUND. *type may be NULL. */
dtp_status dtp_job_tensor(const dtp_job *job, const char *name, dtp_tensor_id *out, dtp_ttype *type,
                          dtp_err *err) DTP_MUST_CHECK;

/* How a framework stores the parameters of the model, after a names file (docs/formats/names.md):
 * for sessions of the job, from which it is borrowed. DTP_INVALID naming file and place. */
typedef struct dtp_stored_params dtp_stored_params;
dtp_status dtp_job_stored(dtp_job *job, const char *names_file, const dtp_stored_params **out,
                          dtp_err *err) DTP_MUST_CHECK;

/* ---- sessions ---- */

typedef struct dtp_session dtp_session;

/* Data of an input. A .npy file of the input's shape: the same values every step. One with another
 * number of rows in dims[0]: each step draws dims[0] rows, without repetition until all rows are
 * used; the order depends on (seed, epoch, number of rows), so inputs with the same number of rows
 * stay aligned. A .npy file of integers in one dim, for an integer input of several, or any other
 * file: tokens in a row, little-endian. Each row of the input (all dims but the last) is a window
 * of the file as long as the last dim, moved by `shift` elements. Windows lie side by side and are
 * drawn as rows are; the place of the first one depends on (seed, epoch). Inputs fed from one file
 * with equal window length share the places (targets = tokens shifted by 1). Inputs without a feed
 * are synthetic: floats normal(0, 1), integers uniform in [0, below) (below 2 when the model does
 * not state it). */
typedef struct dtp_feed_spec {
    const char *input;
    const char *file;
    int64_t shift;
    const char *dtype; /* elements of a file that is not .npy: "u1", "u2", "u4", "i4" or "i8". NULL:
                          bytes, for inputs with values below 256 only */
} dtp_feed_spec;
DTP_ASSERT_SIZE(dtp_feed_spec, 32);

/* The order in which rows and windows of files are fed. */
typedef enum dtp_feed_order {
    DTP_FEED_SHUFFLED,
    DTP_FEED_IN_ORDER, /* that of the file, from its first row on, each once; every input is fed */
    DTP_FEED_LAST_ROWS /* step 0 has the last rows of the file */
} dtp_feed_order;

typedef struct dtp_session_options {
    size_t size;
    uint64_t seed;
    int32_t n_feeds;
    const dtp_feed_spec *feeds;
    const char *load; /* checkpoint directory, index or .safetensors file; NULL: initial values */
    const char *save; /* the only path that the job will save to: other jobs cannot, from now on;
                         NULL: any, kept from others during the save */
    int32_t keep;     /* sets that stay in a checkpoint directory; 0 is 1 */
    bool allow_nan;   /* go on when the loss is not finite */
    bool profile;
    const dtp_ctx *ctx; /* log; NULL: silent */
    bool no_graph;      /* backend cuda: steps are not recorded and put on the queue as one graph */
    dtp_feed_order order;
    bool resume;   /* go on from the newest whole checkpoint at `save`, where there is one, and
                           not from `load`; with the seed that it was made with. DTP_INVALID naming
                           both where it is of another model, optimizer, batch, seed or data */
    bool any_seed; /* `seed` may be another one then */
    const dtp_stored_params *stored; /* `load` may be a folder or file of the framework; NULL: the
                                        names in files are those of the model */
} dtp_session_options;

static inline dtp_session_options dtp_session_options_init(void)
{
    dtp_session_options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    return o;
}

/* Agrees on program and options with the peers (all ranks fail when they differ), binds the program
 * and fills parameters and states. Borrows p, backend and comm; they must outlive the session. */
dtp_status dtp_session_create(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                              const dtp_session_options *options, dtp_session **out,
                              dtp_err *err) DTP_MUST_CHECK;
void dtp_session_destroy(dtp_session *s);

typedef struct dtp_runner_times {
    /* compute: kernels and moves; comm: inside collectives, on a queue what compute waits for them;
     * both NaN of a step that ran as a graph with collectives */
    double total_s, compute_s, comm_s;
} dtp_runner_times;
DTP_ASSERT_SIZE(dtp_runner_times, 24);

typedef struct dtp_step_result {
    int64_t step; /* the one that just ran, from 0 */
    bool has_loss;
    double loss;
    dtp_runner_times times;
    double feed_s;    /* making and copying the inputs; not part of times */
    double rate;      /* learning rate, of parameters in no group; NaN when nothing is trained */
    double grad_norm; /* of all gradients, before they are clipped; NaN when they are not */
} dtp_step_result;
DTP_ASSERT_SIZE(dtp_step_result, 72);

/* Feeds, runs and reads the loss. DTP_NOT_FINITE, with the same message on all ranks, when it is
 * not finite and that is not allowed; the step has been made then. Another failure on this rank is
 * told to the peers: under sim they return DTP_COMM, under mpi the job is aborted after printing
 * the error. */
dtp_status dtp_session_step(dtp_session *s, dtp_step_result *out, dtp_err *err) DTP_MUST_CHECK;
/* The same in two parts. Where kernels run on a queue, start puts the step there and returns, and
 * the next step may be started before finish waits for this one: up to dtp_session_ahead steps may
 * be started and not finished. Elsewhere that is one, and start runs it. A loss that is not finite
 * is then noticed a step late. Finish is for the oldest; DTP_INVALID when there is none. */
dtp_status dtp_session_start_step(dtp_session *s, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_session_finish_step(dtp_session *s, dtp_step_result *out,
                                   dtp_err *err) DTP_MUST_CHECK;
int32_t dtp_session_ahead(const dtp_session *s);
/* Looks at all parameters and optimizer states that steps change. DTP_NOT_FINITE, with the same
 * message on all ranks, names step, node, tensor and the lowest rank that holds such a value. */
dtp_status dtp_session_check(dtp_session *s, dtp_err *err) DTP_MUST_CHECK;
/* Next step to start. */
int64_t dtp_session_next_step(const dtp_session *s);

/* A tensor that can be read after a step, whole, on rank 0 (`out` is ignored elsewhere and may be
 * NULL there). */
dtp_status dtp_session_gather(dtp_session *s, dtp_tensor_id t, void *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Gathers and writes <path> as .npy on rank 0. */
dtp_status dtp_session_fetch_npy(dtp_session *s, dtp_tensor_id t, const char *path,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Parameters and states: a path that ends with .safetensors becomes one file (one tensor at a time
 * on rank 0), any other a directory of one file per rank and an index. What is there stays until
 * the new one is complete. Values that are not finite are never saved (DTP_NOT_FINITE as above,
 * also with allow_nan). DTP_IO when another job holds the lock. */
dtp_status dtp_session_save(dtp_session *s, const char *path, dtp_err *err) DTP_MUST_CHECK;
/* Parameters alone into the folder `dir`, which is made if absent, as the framework of
 * options->stored has them: model.safetensors, or files of at most `most` bytes (0: 5 GB; a larger
 * tensor has one of its own) and model.safetensors.index.json. Element types are those of the files
 * of `load`, where it was of the framework, else those of the parameters. What is there stays until
 * the new one is complete. */
dtp_status dtp_session_save_stored(dtp_session *s, const char *dir, int64_t most,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Parameters (all must be there), states (all or none: then they keep their initial values) and
 * step. */
dtp_status dtp_session_load(dtp_session *s, const char *path, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
