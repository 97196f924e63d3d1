/* Nodes that are written anew as several others, of ops that the table has. */
#ifndef DTP_IMPORTERS_PROGRAM_REWRITES_ATEN_EXPAND_H
#define DTP_IMPORTERS_PROGRAM_REWRITES_ATEN_EXPAND_H

#include "importers/aten/arg_rules.h"

/* What a value of the file is a view of. */
typedef struct dtp_view_of {
    int32_t base; /* -1: of nothing */
    int32_t node; /* that makes it, in its file */
    int32_t k;    /* which of its outputs */
    bool perhaps; /* it may be a copy as well */
    bool same;    /* all of it: the result of an op in place */
} dtp_view_of;

typedef struct dtp_rows dtp_rows;     /* aten_experts.c */
typedef struct dtp_sorted dtp_sorted; /* the same */

typedef struct dtp_expansion dtp_expansion;

/* The node `of` with these arguments instead, which is written anew in its turn: its first output,
 * the others follow; -1. Outputs are like `like`, from its axis 3 on like those of the node. */
typedef int32_t dtp_expand_more(dtp_expansion *e, const dtp_aten_node *of, const char *op,
                                int32_t n_args, const dtp_aten_arg *args,
                                const dtp_aten_value *like);

struct dtp_expansion {
    dtp_aten *g;
    dtp_err *err;
    dtp_status status;   /* the first failure: nothing is made behind it */
    dtp_aten_node *of;   /* the node that is written anew */
    int32_t first;       /* values from this one on are made for it */
    int32_t n, capacity; /* of the nodes so far */
    dtp_aten_node *nodes;
    int32_t *is;               /* by value of the file: the one that it is the same as */
    const dtp_aten_node *file; /* nodes of the file, as they are when they were written anew */
    int32_t now;               /* which of them */
    int32_t n_file;            /* values of the file */
    dtp_view_of *views;        /* by value of the file */
    bool *pair;                /* by value of the file: of complex numbers */
    bool is_pair[2];           /* operands 0 and 1 of the node */
    int32_t *last;             /* by value of the file: the last node that reads it */
    int32_t *uses;             /* by value of the file: readers that an output needs, and outputs */
    bool trains;               /* an output may be a loss */
    int64_t steps;             /* of looking for what depends on an order */
    int32_t n_rows, rows_capacity, n_sorted, sorted_capacity;
    dtp_rows *rows;     /* by value: rows of experts; n_rows of them */
    dtp_sorted *sorted; /* sorts by experts */
    dtp_expand_more *again;
};

/* A node with so many outputs, which are like `like`: its first output, the others follow; -1. */
int32_t dtp_expand_node(dtp_expansion *e, const char *op, int32_t n_args, const dtp_aten_arg *args,
                        int32_t n_outs, const dtp_aten_value *like);
/* The same of an op with one operand and nothing else. */
int32_t dtp_expand_one(dtp_expansion *e, const char *op, int32_t x, const dtp_aten_value *like);
/* Of an op of x and a number. */
int32_t dtp_expand_with(dtp_expansion *e, const char *op, int32_t x, double by,
                        const dtp_aten_value *like);
/* Of an op of two operands, which are broadcast against each other. */
int32_t dtp_expand_two(dtp_expansion *e, const char *op, int32_t a, int32_t b);
/* Sizes of operands that are broadcast against each other; the rest is that of the output. */
dtp_aten_value dtp_expand_broadcast(const dtp_expansion *e, int32_t n, const dtp_aten_arg *args);
dtp_aten_arg dtp_expand_tensor(dtp_expansion *e, const char *name, int32_t value);
dtp_aten_arg dtp_expand_number(dtp_expansion *e, const char *name, double x);
dtp_aten_arg dtp_expand_list(dtp_expansion *e, const char *name, int32_t n, const int32_t *values);
dtp_aten_arg dtp_expand_ints(dtp_expansion *e, const char *name, int32_t n, const int64_t *ints);
/* Output k of the node is this value. */
void dtp_expand_out(dtp_expansion *e, int32_t k, int32_t value);

/* The node that makes a value, NULL; behind casts among floating types, dropout that is off, and
 * copies: dtp_expand_source is the value that they started from. */
const dtp_aten_node *dtp_expand_maker(const dtp_expansion *e, int32_t value);
int32_t dtp_expand_source(const dtp_expansion *e, int32_t value);

/* Whether a row may be used for the node: its argument rule (arg_rules.h) allows all arguments.
 * Else the node keeps the first argument that was refused. */
bool dtp_expand_allows(dtp_expansion *e, const char *rule);

/* add_, mul_, ..: whether the op is one that changes its operand 0. */
bool dtp_writes_in_place(const dtp_aten_node *node);
/* Views of the file and their readers. */
dtp_status dtp_writes_begin(dtp_expansion *e) DTP_MUST_CHECK;
/* Whether value x of the file, or what it is a view of, can be another tensor behind this node. */
bool dtp_writes_can(dtp_expansion *e, int32_t x);
/* The tensor that a value of the file is a view of in the end. */
int32_t dtp_writes_root(const dtp_expansion *e, int32_t value);
/* Later readers of x and of what it is a view of see `content` in the place of x; done: by value,
 * those that were written. What the root is now; -1: one of the views does not say where its
 * elements lie. */
int32_t dtp_writes_apply(dtp_expansion *e, int32_t x, int32_t content, bool *done);

/* Each: the node, whose operand 0 is x, was written anew. */
bool dtp_expand_copy(dtp_expansion *e, int32_t x);
bool dtp_expand_index_put(dtp_expansion *e, int32_t x);
bool dtp_expand_scatter(dtp_expansion *e, int32_t x);
bool dtp_expand_index(dtp_expansion *e, int32_t x);
bool dtp_expand_index_rows(dtp_expansion *e, int32_t x);
bool dtp_expand_diff(dtp_expansion *e, int32_t x);
bool dtp_expand_quotient(dtp_expansion *e, int32_t x);
bool dtp_expand_unordered(dtp_expansion *e, int32_t x);
bool dtp_expand_eye(dtp_expansion *e);
/* The node's result is the cross entropy of `logits`; the other arguments are those of `node`, and
 * have a weight or probabilities. */
bool dtp_expand_cross_entropy(dtp_expansion *e, int32_t logits, const dtp_aten_node *node);

/* Rows that are sorted by experts: the node is one that puts them back into their order, and was
 * written anew; what a node that was written is over slots of experts. */
bool dtp_expand_experts(dtp_expansion *e);
void dtp_experts_follow(dtp_expansion *e, const dtp_aten_node *node);

/* Complex values of the file become pairs. */
dtp_status dtp_complex_begin(dtp_expansion *e) DTP_MUST_CHECK;
/* Whether a node of the file, before its operands are others, reads or makes a pair. */
bool dtp_complex_reads(dtp_expansion *e, const dtp_aten_node *node);
bool dtp_expand_complex(dtp_expansion *e);
/* Each: the node was written anew. */
bool dtp_expand_formula(dtp_expansion *e);
bool dtp_expand_views(dtp_expansion *e);
/* group_norm and instance_norm; batch_norm; _weight_norm (aten_norms.c). */
bool dtp_expand_weight_norm(dtp_expansion *e, int32_t v);
bool dtp_expand_group_norm(dtp_expansion *e, int32_t x);
bool dtp_expand_batch_norm(dtp_expansion *e, int32_t x);
bool dtp_expand_attention(dtp_expansion *e);
/* Up-sampling between pixels (aten_resample.c). */
bool dtp_expand_linear_image(dtp_expansion *e, int32_t x);

/* nan_to_num, where and masked_fill that put a number in the place of NaN in a softmax of x. */
bool dtp_expand_no_nan(dtp_expansion *e, int32_t x);
/* The softmax whose hidden rows are 0 in a value; else the value. */
int32_t dtp_expand_shown(const dtp_expansion *e, int32_t value);

/* All nodes of g, and ops that change a tensor in place as ops that make another one. */
dtp_status dtp_aten_expand(dtp_aten *g, dtp_err *err) DTP_MUST_CHECK;

#endif
