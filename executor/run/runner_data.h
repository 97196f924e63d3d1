/* What a runner is made of. Its files are layers: runner_names.h, runner_queue.h, runner_bind.h and
 * above them runner.h. */
#ifndef DTP_EXECUTOR_RUN_RUNNER_DATA_H
#define DTP_EXECUTOR_RUN_RUNNER_DATA_H

#include "executor/comm/communicator.h"
#include "executor/device/step_state.h"
#include "executor/run/runner_types.h"

/* One instruction bound to this rank: views instead of ids, bound kernel instead of op name. */
typedef struct dtp_runner__bound {
    dtp_bound_kernel kernel;
    dtp_op_call call;
    int32_t n_in, n_out;
    dtp_view *in, *out;
    int32_t parts, index; /* MOVE: group size, own place in it */
    int64_t start;        /* SLICE, RANGE_OUT, RANGE_IN */
    struct {
        int64_t start, size;
    } margin[2];         /* RANGE_IN: of its staging operands */
    dtp_ttype part;      /* PACK, UNPACK, RANGE_OUT */
    dtp_coll_ends *ends; /* START */
    dtp_request request; /* START; waited for by its WAIT */
    const char *range;   /* on a queue: its name for profilers */
} dtp_runner__bound;

/* A pointer into a buffer that may move, and where in the buffer it points. */
typedef struct dtp_runner__moving {
    void **pointer;
    int64_t inside;
    int32_t buffer; /* the value id of an external root; n_values: the arena; n_values + 1: the slot
                       of a stage */
} dtp_runner__moving;

/* Where a view of a microbatch begins in the whole batch. */
typedef struct dtp_runner__shifted {
    int64_t *offset;
    int64_t part; /* rows of a microbatch */
} dtp_runner__shifted;

enum { DTP_RUNNER_AHEAD = 2, DTP_RUNNER_RAW = 8 * DTP_RUNNER_READS };
/* Instructions that the host is ahead of the compute queue at most, where they are put there one by
 * one. The launch queue of a card is finite, about 1024 launches, and an instruction has a few. A
 * launch on a full queue blocks: behind a collective that never ends the host would not look at
 * the transport any more. */
enum { DTP_RUNNER_PACE = 128 };

/* A part of a step that may be recorded: a microbatch or, of a stage, a section of one. */
typedef struct dtp_runner__part {
    dtp_recording *recording; /* NULL: there is none yet */
    bool ran;                 /* as it is bound now */
    int32_t slot;             /* of a stage: in which */
} dtp_runner__part;

/* A step from its first microbatch until it is finished. */
typedef struct dtp_runner__flight {
    int64_t step;
    dtp_runner_times times;
    double zero_s; /* the clock of the host when the step began, had nothing lain between */
    char *raw; /* DTP_RUNNER_RAW bytes: the element that is read; on a queue, error words follow,
                and as many bytes of zeros */
    /* On a queue: */
    dtp_event *begin, *end;
    dtp_event **marks; /* before instruction i of section s of microbatch j, and behind its last
                          one: j (n_instrs + n_sections) + i + s; NULL: none */
    bool marked;       /* its marks were put there */
} dtp_runner__flight;

struct dtp_runner {
    const dtp_program *program;
    dtp_backend *backend;
    dtp_comm *comm;
    dtp_arena *arena; /* host memory of everything below */
    char *memory;     /* the device arena */
    int64_t memory_bytes, touched_bytes;
    bool borrowed;
    dtp_err *failure; /* of kernels; NULL: they end the step */
    int32_t n_moving, cap_moving;
    dtp_runner__moving *moving; /* sorted by buffer once all are known */
    int32_t *moving_start;      /* by buffer; n_values + 3 entries */
    int32_t n_shifted, cap_shifted;
    dtp_runner__shifted *shifted;
    dtp_step_state state; /* record of the microbatch that runs; views are shifted to it */
    dtp_runner__flight flights[DTP_RUNNER_AHEAD];
    int64_t n_ended, n_finished; /* steps */
    dtp_event *pace[2]; /* on a queue: the last two halves of DTP_RUNNER_PACE instructions end */
    int64_t n_paced;    /* instructions put there one by one, in all steps */
    bool graphs, recording;
    dtp_runner *beside;      /* the next one of a ring: those of all chunks of the stage */
    int32_t n_sections;      /* of a stage; else 1 */
    int32_t section;         /* that runs */
    int32_t slot;            /* that is set; 0 where there is none */
    dtp_runner__part *parts; /* on a queue: by section * microbatches + microbatch */
    dtp_view *views;         /* by value id */
    dtp_runner__bound *instrs;
    double *profile;
    dtp_span *spans; /* with profile */
    int64_t n_spans;
    int32_t body; /* dtp_program_body */
    dtp_runner_watch watch;
    int32_t n_stats;
    dtp_coll_stat *stats;
};

/* Notes how long instruction i of a microbatch ran, and when, from the begin of the step; with
 * profile. */
static inline void dtp_runner__note_time(dtp_runner *r, int32_t microbatch, int32_t i,
                                         double begin_s, double s)
{
    r->profile[i] += s;
    r->spans[(int64_t)microbatch * r->body + i] = (dtp_span){begin_s, begin_s + s};
}

#endif
