/* What a program communicates, and why: every collective with its cause and the module it belongs
 * to, and totals by kind, mesh dims and phase and along the tree of module names. */
#ifndef DTP_COST_MODELS_COMM_REPORT_H
#define DTP_COST_MODELS_COMM_REPORT_H

#include "spmd/program/program.h"

typedef enum dtp_comm_cause {
    DTP_COMM_OPERAND,  /* an operand of the node is brought to the layout in which it is read */
    DTP_COMM_INSIDE,   /* the op of the node communicates */
    DTP_COMM_OUTPUT,   /* the output of the node is brought to its planned layout */
    DTP_COMM_GRADIENT, /* the gradient of a parameter is */
    DTP_COMM_UPDATE,   /* the optimizer's update of a parameter */
    DTP_N_COMM_CAUSES
} dtp_comm_cause;

/* "operand", "inside", "output", "gradient", "update". */
const char *dtp_comm_cause_name(dtp_comm_cause cause);
/* "AR", "AG", "RS", "A2A", "CP". */
const char *dtp_comm_short_name(dtp_coll_kind kind);
/* "forward", "backward", "update". */
const char *dtp_phase_name(dtp_phase phase);

typedef struct dtp_comm_entry {
    int32_t instr;
    dtp_phase phase;
    dtp_coll_kind kind;
    dtp_mesh_set set;
    int32_t runs;  /* in a step: of each microbatch one */
    int64_t bytes; /* dtp_coll_full_bytes, of one run */
    dtp_comm_cause cause;
    dtp_node_id node;     /* -1 = none */
    dtp_tensor_id tensor; /* what is moved; -1: something inside an op, or several tensors */
    int32_t members;      /* of a bucket; 1 otherwise */
    const char *module;   /* dotted name of the forward node or parameter; of a bucket what
                             the names of its members have in common */
} dtp_comm_entry;

typedef struct dtp_comm_amount {
    int64_t count, bytes;
} dtp_comm_amount;

/* A dotted prefix of module names; module 0 is the whole model, "". */
typedef struct dtp_comm_module {
    const char *path, *label;              /* label: the last part of the path */
    int32_t parent, depth;                 /* -1 and 0 for the whole model */
    int32_t first_child, last_child, next; /* -1 = none */
    dtp_comm_amount counts[DTP_N_PHASES][DTP_N_COLLS];
} dtp_comm_module;

/* Sums over entries of equal phase, kind and mesh dims, in that order. */
typedef struct dtp_comm_total {
    dtp_phase phase;
    dtp_coll_kind kind;
    dtp_mesh_set set;
    dtp_comm_amount sum;
} dtp_comm_total;

typedef struct dtp_comm_report {
    int32_t n_entries, n_modules, cap_modules, n_totals;
    dtp_comm_entry *entries; /* in program order */
    dtp_comm_module *modules;
    dtp_comm_total *totals;
} dtp_comm_report;

/* By value of a program: the graph tensor that it holds elements of, its own or, of a staging
 * buffer, the one that was packed, also through collectives from buffer to buffer; -1 = none.
 * `*out` has p->n_values entries from `arena`. */
dtp_status dtp_comm_tensors(const dtp_program *p, dtp_arena *arena, dtp_tensor_id **out,
                            dtp_err *err) DTP_MUST_CHECK;

/* Per rank and step. Storage from `arena`. */
dtp_status dtp_comm_report_make(const dtp_program *p, dtp_arena *arena, dtp_comm_report *out,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
