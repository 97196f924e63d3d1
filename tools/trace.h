/* A step as a trace that Perfetto and chrome://tracing show (docs/formats/trace.md): processes are
 * ranks, threads their queues, slices instructions and, of plans with stages, sections and what is
 * sent; arrows lead from a START to its WAIT. One writer, of slices that were simulated or
 * measured. */
#ifndef DTP_TOOLS_TRACE_H
#define DTP_TOOLS_TRACE_H

#include "core/base/json_writer.h"
#include "cost_models/machine/machine.h"
#include "cost_models/job.h"
#include "dtp/plan.h"
#include "spmd/program/program.h"

typedef enum tool_queue {
    TOOL_SECTIONS = -1, /* of a stage */
    TOOL_COMPUTE,       /* kernels and copies; WAITs: compute waits */
    TOOL_COMMUNICATION,
    TOOL_HOST, /* it issues instructions */
    TOOL_FAR,  /* collectives across hosts, where they have a lane of their own */
    TOOL_N_QUEUES,
    TOOL_SENDS = TOOL_N_QUEUES /* of a stage; the queues of other messages follow */
} tool_queue;

/* An instruction of a microbatch on a queue; times from the begin of the step. */
typedef struct tool_slice {
    tool_queue queue;
    int32_t instr, microbatch;
    double begin_s, end_s;
    double exposed_s; /* of a collective, predicted */
} tool_slice;

/* Of a stage: a section, waiting for what it reads, or sending what it made. */
typedef struct tool_stage_slice {
    int32_t queue;
    const char *what; /* "section", "wait", "send" */
    const dtp_stage_action *action;
    double begin_s, end_s;
    int64_t bytes; /* that are sent; */
    int32_t to;    /* the stage, -1: any */
} tool_stage_slice;

/* Slices of a queue that are not written, together. */
typedef struct tool_left_out {
    int64_t n;
    double begin_s, end_s;
    double work_s, wait_s, predicted_s, exposed_s; /* wait_s: of WAITs */
} tool_left_out;

/* A trace has at most so many instructions, but the first microbatch and the last one always: those
 * between that are too many are one slice. */
enum { TOOL_TRACE_INSTRUCTIONS = 100000, TOOL_TRACE_PREDICTED = -1 };

/* What a step takes in total, as the report says. */
typedef struct tool_totals {
    int32_t rank;  /* TOOL_TRACE_PREDICTED, of all ranks; else measured */
    int32_t stage; /* -1: there are none */
    double step_time_s, compute_s, comm_s, exposed_comm_s, host_s; /* NaN: not known */
    double work_s;                                                 /* of a stage, in sections */
} tool_totals;

typedef struct tool_trace {
    const dtp_program *program;        /* of the chunk that is entered */
    bool priced;                       /* its instructions have prices */
    int32_t threads;                   /* of a process, at most */
    int32_t most_instrs;               /* of a program */
    int32_t whole;                     /* microbatches from the first on that are not left out */
    tool_left_out left[TOOL_N_QUEUES]; /* of the current process */
    double *started_s;                 /* by START of the current microbatch: when it ran */
    int32_t n_processes;
    tool_totals *processes;
    dtp_json_writer w;
} tool_trace;

/* Appends what an instruction is called: "all_reduce grad.w1", "fused_product(add gelu)
 * layers.0.mlp", "wait all_reduce grad.w1"... */
void tool_trace_name(const dtp_program *p, const dtp_instr *instr, dtp_strbuf *out);
/* ... and its bytes, mesh dims and layouts: ", 24.00 MiB over x, from d_ff@x to replicated". */
void tool_trace_more(const dtp_program *p, const dtp_instr *instr, dtp_strbuf *out);

/* For so many processes; of a plan with stages `p` is the program of any chunk. Borrows it; needs
 * tool_trace_free. */
dtp_status tool_trace_begin(tool_trace *t, const dtp_program *p, bool priced, int32_t processes,
                            dtp_err *err) DTP_MUST_CHECK;
void tool_trace_free(tool_trace *t);
/* The next process. Its slices follow, microbatch after microbatch, each in program order; those of
 * a queue do not overlap. */
void tool_trace_process(tool_trace *t, const tool_totals *totals);
void tool_trace_slice(tool_trace *t, const tool_slice *slice);
/* Names another thread of the process. */
void tool_trace_thread(tool_trace *t, int32_t queue, const char *name);
/* Of a stage, the sections in the order of its table. */
void tool_trace_stage_slice(tool_trace *t, const tool_stage_slice *slice);
/* Whether instructions of a section are written: those of its chunk are then the next slices. */
bool tool_trace_enter(tool_trace *t, const dtp_stage_action *action);
/* After the slices of a process. */
void tool_trace_process_end(tool_trace *t);
/* Appends the trace to `out`. DTP_NOMEM also when memory ran out before. */
dtp_status tool_trace_end(tool_trace *t, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

/* The processes of the simulated schedule, which is that of every rank, or of every rank of a
 * stage; the job is predicted on the machine. */
dtp_status tool_trace_predicted(tool_trace *t, const dtp_job *job, const dtp_machine *machine,
                                dtp_err *err) DTP_MUST_CHECK;
/* The trace of a job, predicted alone. */
dtp_status tool_trace_job(const dtp_job *job, const dtp_machine *machine, dtp_strbuf *out,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
