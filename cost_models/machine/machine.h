/* The machine description, dtp.machine/1 (docs/formats/machine.md): device rates, measured curves,
 * network levels, and where every number came from. SI units. */
#ifndef DTP_COST_MODELS_MACHINE_H
#define DTP_COST_MODELS_MACHINE_H

#include "core/base/arena.h"
#include "core/layout/tensor_type.h"
#include "core/base/strbuf.h"
#include "dtp/plan.h"
#include "spmd/program/arithmetic.h"
#include "spmd/program/program.h"

/* Piecewise log-log linear curve, monotone in x (cost_models/machine/curve.h): constant before its
 * first point, proportional to x after its last. */
typedef struct dtp_curve {
    int32_t n;
    const double *x, *y;    /* positive; x strictly ascending, y not descending */
    const double *measured; /* the sample behind each point; NULL = not recorded */
    double fit_error;       /* largest relative deviation of a sample from the curve */
} dtp_curve;

/* Time of a memory-bound op class against bytes, by dtype of the first operand. */
typedef struct dtp_op_curve {
    const char *op; /* op, "<op>.copy" (calls without arithmetic), copy, or "*" for the rest */
    dtp_dtype dtype;
    dtp_curve time_s; /* x = bytes (dtp_work.bytes), y = seconds per call */
    double flops;     /* when positive, work.flops / flops seconds are added (attention) */
} dtp_op_curve;

/* Measured GEMM rate of `batch` products in one call, at one shape and arithmetic. */
typedef struct dtp_gemm_point {
    int64_t m, n, k;
    bool trans_a, trans_b;
    double flops; /* achieved FLOP/s */
    dtp_arithmetic arithmetic;
    int64_t batch;
} dtp_gemm_point;

/* Constants by which a level prices collectives of one kind. */
typedef struct dtp_coll_rate {
    double start_s;    /* of any group */
    double rank_s;     /* of every further member of it */
    double ramp_bytes; /* m bytes take as long as m + sqrt(m ramp_bytes) would at the rate */
    double share;      /* of bw_Bps that large messages reach; 0 = not stated */
    double in_switch;  /* all-reduce: most bytes over a link for each byte, where a switch adds */
} dtp_coll_rate;

typedef struct dtp_level {
    const char *name;
    int32_t size; /* members: devices or groups of the level inside */
    double latency_s;
    double bw_Bps; /* of the link of one member into this level, each direction */
    double hop_s;  /* that a ring takes longer for each further member that it goes through */
    double skew;   /* share of compute by which the slowest lags, for each doubling of members */
    dtp_coll_rate rates[DTP_N_COLLS]; /* cost_models/machine/coll.h */
    const char *from;                 /* the machine that lent the rates; NULL: none did */
} dtp_level;

enum { DTP_MAX_LEVELS = 6, DTP_NO_SWITCH = 2 /* in_switch where no switch adds */ };

/* GEMM times on a grid per arithmetic, made from the points (cost_models/machine/gemm.h). */
typedef struct dtp_gemm_grid dtp_gemm_grid;

/* What products of an arithmetic and a family of attention kernels reach, and what a runtime makes
 * of it: cost_models/machine/kernel_model.h has the formulas. */
typedef struct dtp_product_model {
    double rate;     /* share of flops that large products reach under sustained load; 0 = none */
    double burst;    /* factor by which short products that run alone are faster */
    double ramp;     /* k that a tile of the result costs beside its own */
    double start_s;  /* of a call, launch included */
    double memory;   /* share of mem_bw_Bps */
    double quantize; /* bytes that quantizing moves, for an element of the first operand */
} dtp_product_model;

typedef struct dtp_attention_model {
    const char *kernel; /* "fa2", "fa3", "cudnn" */
    double rate, grad;  /* shares of flops */
    double score;       /* multiply-adds of products that the softmax of a score takes as long as */
    double start_s, memory;
} dtp_attention_model;

enum { DTP_MAX_ATTENTION_MODELS = 8 };

typedef struct dtp_runtime_shares {
    int32_t kernel;                   /* of the attention models; -1: none */
    double attention, attention_grad; /* of what the kernel reaches */
    double memory;                    /* mem_bw_Bps is so much of the peak */
} dtp_runtime_shares;

/* Factors, at least 1, by which compute and communication take longer while both run. */
typedef struct dtp_slowdown {
    double compute, comm;
} dtp_slowdown;

/* A set of a machine file (cost_models/machine/efficiency.h). */
typedef struct dtp_efficiency {
    const char *runtime;
    double products;                  /* share of the product models, else of flops */
    double memory;                    /* share of mem_bw_Bps */
    double attention, attention_grad; /* shares of the kernel's model, else of flops, for FLOPs as
                                         the ops state them */
    const char *kernel;               /* attention model; "" = none */
    double host_s;                    /* of a kernel, a copy or a collective that the host issues */
    const char *how, *date, *from;    /* "fitted", "measured" or "borrowed", from which machine */
    const char *on;                   /* models and devices of these runs; "" = not stated */
    int32_t rows;                     /* runs it was fitted on; 0 = not stated */
} dtp_efficiency;

struct dtp_machine {
    dtp_arena *arena;
    const char *name, *kind; /* kind: "cpu" | "cuda" | "hip" | "tpu" */
    const char *place; /* how messages begin: the file it was read from, or "machine 'NAME'" */
    int64_t memory_bytes;
    double mem_bw_Bps, launch_s;
    double launch_graph_s; /* of a launch in a recording (CUDA graph); negative = not stated */
    double host_s;         /* the host issues a kernel, a copy or a collective; 0 = not stated */
    double flops[DTP_N_ARITHMETICS]; /* 0 = not stated */
    double peak_share;               /* flops are so much of the peaks; 1 but for a runtime's */
    int32_t multiprocessors;         /* 0 = not stated: there are no models */
    dtp_product_model products[DTP_N_ARITHMETICS];
    int32_t n_attention;
    dtp_attention_model attention[DTP_MAX_ATTENTION_MODELS];
    dtp_runtime_shares shares; /* of the runtime that the machine is set to */
    int32_t n_efficiencies;
    dtp_efficiency *efficiencies;
    const char *runtime; /* the one whose efficiency is in the rates; "" = none */
    int32_t n_op_curves, n_gemm, n_levels;
    dtp_op_curve *op_curves;
    dtp_gemm_point *gemm;
    dtp_level levels[DTP_MAX_LEVELS]; /* innermost first */
    bool overlap;                     /* communication runs beside compute */
    dtp_slowdown slowdown;            /* while they overlap */
    const char *provenance_how, *provenance_date, *provenance_host, *provenance_tool;
    const char *provenance_device; /* name, clocks and driver of the device */
    const char *blas;              /* GEMM kernel set the measurements used, "" = not stated */
    int32_t provenance_threads, provenance_ranks; /* of the measurement; 0 = not stated */
    bool yes_units;                 /* numbers that look as if they were in other units are meant */
    double gemm_fit_error;          /* largest relative deviation of a GEMM sample from the grid */
    const dtp_gemm_grid *gemm_grid; /* made by dtp_machine_index; NULL when there are no points */
};

dtp_status dtp_machine_create(const char *name, dtp_machine **out, dtp_err *err) DTP_MUST_CHECK;
/* Checks the machine as the file that it would be written to (DTP_INVALID naming the key as the
 * reader does), sorts the curves by name and builds the GEMM grid. To be called once after filling
 * a machine by hand; the fit does. */
dtp_status dtp_machine_index(dtp_machine *m, dtp_err *err) DTP_MUST_CHECK;
/* The part of it that follows the check. */
dtp_status dtp_machine__derive(dtp_machine *m, dtp_err *err) DTP_MUST_CHECK;
/* Seconds of a launch as the runner launches by default, which is what prices have: in a recording
 * where the machine states it. */
double dtp_machine_launch_s(const dtp_machine *m);
/* Whether every device has a network adapter of its own: all but CPUs. */
bool dtp_machine_has_adapters(const dtp_machine *m);
/* Product of the level sizes, 1 without levels. */
int64_t dtp_machine_devices(const dtp_machine *m);
/* The curve of this name of this dtype, else of f32, else NULL. Moves have curves of f32. */
const dtp_op_curve *dtp_machine_op_curve(const dtp_machine *m, const char *op,
                                         dtp_arithmetic dtype);
dtp_status dtp_machine_parse(const char *file, const char *text, size_t len, dtp_machine **out,
                             dtp_err *err) DTP_MUST_CHECK;
/* dtp_machine_read, which asks about numbers that look as if they were in other units unless the
 * file has "yes_units": true (DTP_INVALID naming the number); `yes_units`: they are meant. */
dtp_status dtp_machine_read_units(const char *path, bool yes_units, dtp_machine **out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Sets yes_units where reading the machine as a file would ask: of one that was measured. */
dtp_status dtp_machine_say_units(dtp_machine *m, dtp_err *err) DTP_MUST_CHECK;
/* Deterministic JSON; *text is the caller's to free. */
dtp_status dtp_machine_write(const dtp_machine *m, char **text, dtp_err *err) DTP_MUST_CHECK;
uint64_t dtp_machine_hash(const dtp_machine *m);

/* What a number of a machine may be (docs/formats/machine.md). Wide enough for every machine there
 * is, narrow enough that a price is a time in which a step could end, or is found not to be one
 * (cost_models/price_limit.h). */
typedef struct dtp_machine_range {
    const char *unit;
    double least, most;
} dtp_machine_range;

typedef enum dtp_machine_number {
    DTP_NUMBER_MEMORY,    /* bytes of a device */
    DTP_NUMBER_BW,        /* B/s, of memory or of a link */
    DTP_NUMBER_FLOPS,     /* FLOP/s */
    DTP_NUMBER_DELAY,     /* s, of a launch or a message */
    DTP_NUMBER_SLOWDOWN,  /* factor */
    DTP_NUMBER_SIZE,      /* bytes of a point of a curve */
    DTP_NUMBER_TIME,      /* s, of a point of a curve */
    DTP_NUMBER_FIT_ERROR, /* relative */
    DTP_NUMBER_SHARE,     /* of a peak */
    DTP_NUMBER_RAMP,      /* bytes of a ramp */
    DTP_NUMBER_SWITCHED,  /* bytes over a link for each byte of an all-reduce */
    DTP_NUMBER_EXTRA,     /* work that comes on top */
    DTP_NUMBER_SKEW,      /* share of compute */
    DTP_N_NUMBERS
} dtp_machine_number;

const dtp_machine_range *dtp_machine_range_of(dtp_machine_number kind);
/* False for NaN. */
bool dtp_machine_in_range(dtp_machine_number kind, double value);
/* A JSON number of this kind. */
struct dtp_json;
dtp_status dtp_machine__read_number(const struct dtp_json *v, dtp_machine_number number,
                                    double *out, dtp_err *err) DTP_MUST_CHECK;

#endif
