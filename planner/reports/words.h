/* What a plan means: the parallelism that each mesh dim amounts to, why it beats FSDP and tensor
 * parallelism, layouts of a block, communication by kind and how much of it is exposed, where
 * memory peaks. */
#ifndef DTP_PLANNER_WORDS_H
#define DTP_PLANNER_WORDS_H

#include "core/base/strbuf.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "cost_models/job.h"
#include "spmd/program/program.h"

/* Ways of splitting the work of a matrix product over a mesh dim. */
typedef enum dtp_way {
    DTP_WAY_NONE,     /* every rank does all of it */
    DTP_WAY_DATA,     /* the batch is split */
    DTP_WAY_SEQUENCE, /* another dim that no parameter has */
    DTP_WAY_TENSOR,   /* a dim of the parameter that the product makes or contracts */
    DTP_WAY_EXPERT,   /* a dim that parameter, other operand and output share */
    DTP_N_WAYS
} dtp_way;

enum { DTP_WORDS_DIMS = 8 };

/* A mesh dim. Shares are in [0, 1]. */
typedef struct dtp_words_dim {
    double ways[DTP_N_WAYS];    /* of the FLOPs of forward products with a parameter */
    int32_t n_dims[DTP_N_WAYS]; /* tensor dims that are split so, at most DTP_WORDS_DIMS */
    dtp_dim_id dims[DTP_N_WAYS][DTP_WORDS_DIMS];
    double params_split; /* of the bytes of parameters: kept split and made whole for their use */
    double states_split; /* of the bytes of optimizer states: split where their parameter is not */
    dtp_dim_id context;  /* dim of the queries of attention that is split; -1: none */
    dtp_dim_id heads;    /* dim of attention that is neither queries nor batch and is split, while
                            the product that makes its queries splits theirs: Ulysses; -1: none */
    dtp_dim_id sequence; /* with heads: that dim of the queries; else -1 */
    dtp_tensor_id table; /* parameter whose rows are looked up, split by rows; -1: none */
    dtp_dim_id rows;     /* with table: their dim; else -1 */
    dtp_dim_id norms;    /* dim that norms split and products with parameters do not; -1: none */
} dtp_words_dim;

/* Facts about one mesh dim. `g` and `s` are those of the plan. */
dtp_status dtp_words_dim_of(const dtp_graph *g, const dtp_sharding *s, int32_t mesh_dim,
                            dtp_words_dim *out, dtp_err *err) DTP_MUST_CHECK;

/* The sentence about a mesh dim, and a line end. */
void dtp_words_dim_print(const dtp_graph *g, const dtp_words_dim *d, dtp_strbuf *out);

/* A sentence on what FSDP and tensor parallelism, of the plan's baselines, take more, and why;
 * nothing where there is neither or no time is predicted. */
void dtp_words_rivals_print(const dtp_plan *plan, dtp_strbuf *out);

/* All of it as text. `p` is the plan's program; with times when it was predicted; NULL: nothing is
 * said of what it communicates and holds. `plan`: what it
 * was predicted to take; NULL: not known. `machine`: the one that the times are of; NULL: nothing
 * is said of what is exposed. */
dtp_status dtp_words_print(const dtp_graph *g, const dtp_sharding *s, const dtp_program *p,
                           const dtp_plan *plan, const dtp_machine *machine, dtp_strbuf *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* That of a job; of one with stages without the parts of `p`, and first what each stage has, takes
 * and communicates. */
dtp_status dtp_words_job_print(const dtp_job *job, const dtp_plan *plan, const dtp_machine *machine,
                               dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

#endif
