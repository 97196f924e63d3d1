/* The SPMD program: one explicit instruction list that every rank runs, with collectives, staging
 * copies, buffers and their offsets. The planner prices exactly these instructions, the executor
 * runs exactly these instructions.
 *
 * Shapes: a tensor value has a global type and a layout; its local shape at a rank follows from
 * both (uneven shards included), but that it may hold a range of a dim instead of its piece. Its
 * buffer has the size of the largest local shape, so offsets are the same on every rank. A staging
 * value is a flat buffer of `type.dims[0].size` elements.
 */
#ifndef DTP_SPMD_PROGRAM_PROGRAM_H
#define DTP_SPMD_PROGRAM_PROGRAM_H

#include "core/base/strbuf.h"
#include "core/graph/graph.h"
#include "core/plan/sharding.h"
#include "dtp/session.h"
#include "spmd/target/target.h"

typedef int32_t dtp_value_id;

typedef enum dtp_value_kind {
    DTP_VALUE_RESIDENT, /* parameter or state: live for the whole job */
    DTP_VALUE_INPUT,    /* fed before every step; live from the start of the step */
    DTP_VALUE_TEMP,     /* produced by an instruction */
    DTP_VALUE_STAGING,  /* flat buffer around a collective */
    DTP_VALUE_WORKSPACE /* scratch of one kernel */
} dtp_value_kind;

/* What a value holds of a dim that its layout splits: what an op reads by a window for the piece
 * of a tensor in which the dim has size `of` and is split alike (spmd/program/ranges.h). */
typedef struct dtp_range {
    int64_t of; /* 0: the piece of the dim */
    dtp_dim_window window;
} dtp_range;

typedef struct dtp_value {
    const char *name;
    dtp_value_kind kind;
    dtp_tensor_id tensor;    /* graph tensor that it is a version of; -1 = none */
    dtp_ttype type;          /* global; flat local for STAGING and WORKSPACE (dims[0].id = -1) */
    dtp_layout layout;       /* of type.rank; replicated for STAGING and WORKSPACE */
    const dtp_range *ranges; /* by dim of the type, in the program's arena; NULL: pieces of all */
    int64_t bytes;           /* buffer size, the largest of any rank */
    dtp_value_id parent;     /* lives inside that value's buffer (in place, rename); -1 = own */
    int32_t first, last;     /* instructions between which the contents matter (liveness) */
    bool once;               /* an instruction writes it that runs once for all microbatches: what
                              others read of it lasts from the first microbatch to the last */
    bool keep;               /* must survive the step: outputs, fetches */
    int32_t arrives;         /* an INPUT that another stage sends: before this section of the stage;
                              else 0 */
    int32_t sent;            /* it is kept for other stages until this section has ended, and no
                              longer: 1 + the section; 0: it is not sent, or kept as well */
    bool in_slot;            /* one for every slot of the stash: it lives from a forward section to
                              the backward section, or is sent or received by one of them */
    bool external;         /* it lies in a buffer of the caller, not in the device arena; so do all
                              values with the same root */
    dtp_value_id previous; /* an earlier version of the same tensor in another layout; -1 = none */
    int64_t offset; /* from the start of the device arena; set by the memory plan, -1 before and
                       for external values */
} dtp_value;

/* A collective is two instructions. START: the collective may run from here, on the communication
 * queue, after the STARTs before it. WAIT: it has ended, compute may touch its buffers from here.
 * Operands live until the WAIT, results from the START. Between the two only other STARTs read the
 * results: the queue runs in order. */
typedef enum dtp_instr_kind {
    DTP_INSTR_KERNEL,
    DTP_INSTR_START,
    DTP_INSTR_WAIT, /* operands: those of its START that lie in no result's buffer, then its
                       results; no results of its own */
    DTP_INSTR_COPY
} dtp_instr_kind;

/* With n = group size:
 *   all_reduce          in: count, out: count elements (in may be out)
 *   all_gather          in: count, out: n*count, member order
 *   reduce_scatter      in: n*count, out: count
 *   all_to_all          in: n*count, out: n*count; part p goes to member p
 *   collective_permute  in: count, out: count; member i sends to member (i + shift) mod n
 * A buffer of n parts is a row-major array [outer, n, count/outer] and part p is [:, p, :]: with
 * outer = 1 the parts lie one after the other, else they are the pieces of a tensor cut along a dim
 * that is not the leading one. outer divides count. A buffer of one part is contiguous.
 *
 * A bucket of all_reduces, reduce_scatters or all_gathers runs as one: the collectives have the
 * same kind, set, op and dtype, and collective k takes in[k] to out[k]. */
typedef struct dtp_coll {
    dtp_coll_kind kind;
    dtp_mesh_set set;
    dtp_reduce_op op; /* all_reduce, reduce_scatter: SUM PROD MIN MAX */
    dtp_dtype dtype;
    int64_t count;     /* of a bucket: the sum of its counts */
    int64_t in_outer;  /* of the input of reduce_scatter and all_to_all; 0 and 1 mean the same */
    int64_t out_outer; /* of the output of all_gather and all_to_all */
    int32_t shift;     /* collective_permute; any sign */
    int32_t n_bucket;  /* collectives of the bucket, at least 2; 0: it is a single one */
    const struct dtp_coll *bucket; /* they; borrowed */
} dtp_coll;

enum { DTP_MAX_BUCKET = 64 };

/* How many inputs, and outputs, a collective has: one, or one for each of its bucket. */
int32_t dtp_coll_buffers(const dtp_coll *coll);
/* Collective k of a bucket; a single one itself. */
const dtp_coll *dtp_coll_at(const dtp_coll *coll, int32_t k);

/* How many parts a member's input and output have, n = group size. */
int64_t dtp_coll_parts_in(const dtp_coll *coll, int64_t n);
int64_t dtp_coll_parts_out(const dtp_coll *coll, int64_t n);
/* all_reduce and reduce_scatter. */
bool dtp_coll_reduces(dtp_coll_kind kind);
/* The member that this one receives from under a collective_permute of n members. */
int32_t dtp_coll_source(const dtp_coll *coll, int32_t n, int32_t member);

typedef enum dtp_copy_kind {
    /* tensor -> staging: n parts over `axis`; part p holds chunk p (dtp_chunk of the local length
     * over n), zero padded to the part shape = largest local shape of the tensor with axis :=
     * ceil(len/n) */
    DTP_COPY_PACK,
    /* staging -> tensor: the inverse; part p becomes chunk p of the tensor's local `axis` */
    DTP_COPY_UNPACK,
    /* tensor -> tensor: own chunk of `axis` over the group of `set` (replicate -> shard) */
    DTP_COPY_SLICE,
    /* tensor -> tensor: `factor` times the input (avg) */
    DTP_COPY_SCALE,
    /* tensor -> tensor: the input on member 0 of the group, zeros elsewhere (replicate -> partial
       sum) */
    DTP_COPY_KEEP_FIRST,
    /* tensor -> tensor: plain copy */
    DTP_COPY_WHOLE,
    /* tensor -> staging: what member (i + shift) mod n of the group of `set`, the places of `axis`,
     * wants of the input for its `range`, one element after the other; the rest is not set */
    DTP_COPY_RANGE_OUT,
    /* tensor, staging values -> tensor with `range` of `axis`: what this member has of it and what
     * others have sent by permutes, at most two, by `shift` and `shift2` */
    DTP_COPY_RANGE_IN,
    DTP_N_COPY_KINDS
} dtp_copy_kind;

/* "pack", "unpack", ... */
const char *dtp_copy_name(dtp_copy_kind kind);

/* RANGE_OUT, RANGE_IN. They cost what a plain copy of as many bytes does. */
static inline bool dtp_copy_is_of_range(dtp_copy_kind kind)
{
    return kind == DTP_COPY_RANGE_OUT || kind == DTP_COPY_RANGE_IN;
}

typedef struct dtp_copy {
    dtp_copy_kind kind;
    int32_t axis;
    dtp_mesh_set set;
    double factor;
    int32_t shift, shift2;  /* RANGE_OUT, RANGE_IN */
    const dtp_range *range; /* the same; in the program's arena */
} dtp_copy;

typedef struct dtp_instr {
    dtp_instr_kind kind;
    dtp_node_id node; /* graph node that caused it; -1 = none */
    dtp_phase phase;
    bool once; /* with microbatches, of phase FORWARD or BACKWARD: it runs in the first one alone */
    int32_t n_in, n_out;
    const dtp_value_id *in;
    const dtp_value_id *out;
    /* KERNEL */
    const dtp_op_def *op;
    const dtp_attr *attrs;
    int32_t n_attrs;
    dtp_value_id workspace; /* -1 = none */
    bool joined; /* it runs in one launch with the kernel before it: an update, as that one */
    /* START, WAIT */
    dtp_coll coll;
    int32_t
        pair; /* index of the WAIT of a START, of the START of a WAIT; -1 until lowering adds the
                     WAITs, after all other passes */
    /* COPY */
    dtp_copy move;
    double time_s; /* predicted; filled by cost_models, 0 before. START: of the collective */
    bool far;      /* START: it has a queue beside that of collectives inside of a host
                      (dtp_target.streams); filled likewise */
} dtp_instr;

/* The name of its op, collective or copy, "wait". Borrowed. */
const char *dtp_instr_name(const dtp_instr *instr);

typedef struct dtp_value_update {
    dtp_value_id target; /* RESIDENT */
    dtp_value_id value;  /* its replacement, which lies in the target's buffer: the output of the
                            update op in place, or that of a COPY appended to the program */
} dtp_value_update;

/* Owned by its arena; borrows the graph (ops, attributes, dim names). */
struct dtp_program {
    dtp_arena *arena;
    const dtp_graph *graph;
    dtp_dims dims; /* those of the graph (same ids), then those that decompositions add */
    dtp_mesh mesh;
    const dtp_target *target; /* what it was lowered for */
    bool joins;               /* updates share launches (dtp_instr.joined) */
    int32_t chunk;            /* of a graph with stages: whose program it is; else 0 */
    const struct dtp_program *const *chunks; /* the programs of all chunks, once all are made; else
                                                NULL */
    /* Of a graph with stages: what is in_slot lies slots times in the arena, with slot_bytes
     * between; value.offset is that in slot 0. The chunks of a stage have one arena, in which each
     * has bytes of its own, and the slots and what is behind them in common. Else 0. */
    int32_t slots;
    int64_t own_at, own_bytes, slots_at, slot_bytes, rest_at;
    bool plain_names; /* values are named after their tensor alone: quicker, for pricing */
    int32_t n_values, cap_values;
    dtp_value *values;
    int32_t n_instrs, cap_instrs;
    dtp_instr *instrs;
    dtp_value_id *tensor_value; /* by tensor id: the value with the planned layout, -1 = none */
    int32_t n_updates, cap_updates;
    dtp_value_update *updates;
    dtp_overlap overlap; /* what the order of the instructions was made with */
    int32_t n_serial;
    dtp_instr *serial;  /* the instructions with every WAIT behind its START: what other orders
                                    are made from; NULL while passes run */
    int64_t peak_bytes; /* size of the device arena per rank; set by the memory plan */
    bool placed; /* no memory plan that is tried needs less; false when instructions change */
    dtp_value_id *tensor_latest; /* by tensor id: head of the chain of versions (value.previous) */
    dtp_value_id *id_pool;       /* storage of operand lists */
    int32_t n_ids, cap_ids;
    int64_t pinned_bytes; /* arena bytes that a reset cannot reuse */
    /* In the same arena, of a lowering that keeps them (dtp_lower_options.kept); else NULL. */
    struct dtp_program *plain;     /* the plain program, whose prices add up to the additive cost */
    struct dtp_program *unordered; /* what dtp_program_arrange makes other programs from */
    const struct dtp_redistributor *redistributor; /* spmd/redistribute/redistribute.h */
};

dtp_status dtp_program_create(const dtp_graph *g, const dtp_mesh *mesh, const dtp_target *target,
                              dtp_program **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_program_destroy(dtp_program *p);
/* Makes the program empty and keeps its storage: for lowering many single nodes one after the
 * other.
 */
dtp_status dtp_program_reset(dtp_program *p, dtp_err *err) DTP_MUST_CHECK;

/* Microbatches of a step, 1 = none. */
int32_t dtp_program_microbatches(const dtp_program *p);
/* How often an instruction runs in a step. With microbatches (core/transform/microbatch.h) those
 * that are not of phase UPDATE come first and run once for each of them, or in the first one alone
 * (instr->once), the others then once. */
int32_t dtp_instr_runs(const dtp_program *p, const dtp_instr *instr);
/* Whether it runs in microbatch j: an update in the last one, what runs once in the first one. */
bool dtp_instr_runs_in(const dtp_program *p, const dtp_instr *instr, int32_t j);
/* The part of a step that an instruction belongs to, no START or WAIT of which leaves it. Of a
 * stage its section (core/transform/stages.h); else 0, or 2 for what runs after the last of several
 * microbatches. */
int32_t dtp_instr_section(const dtp_program *p, const dtp_instr *instr);
/* Instructions of a list, in their order, before those of a section and all behind it. */
int32_t dtp_section_begin(const dtp_program *p, const dtp_instr *instrs, int32_t n,
                          int32_t section);
/* Whether two instructions belong to one phase and section, and run equally often. */
bool dtp_instrs_alike(const dtp_program *p, const dtp_instr *a, const dtp_instr *b);
/* Instructions that run for every microbatch; n_instrs without microbatches. */
int32_t dtp_program_body(const dtp_program *p);

/* The value whose buffer v lies in (v itself when it has its own). */
dtp_value_id dtp_value_root(const dtp_program *p, dtp_value_id v);

enum { DTP_ANY_RANK = -1 };
/* Local type (and offsets, may be NULL) of a value at a rank; at DTP_ANY_RANK the largest that a
 * rank has of each dim. */
void dtp_value_local(const dtp_program *p, dtp_value_id v, int32_t rank, dtp_ttype *local,
                     int64_t offsets[DTP_MAX_RANK]);

/* The call of a KERNEL instruction with the local types at a rank. */
dtp_op_call dtp_instr_call(const dtp_program *p, const dtp_instr *instr, int32_t rank,
                           dtp_call_types *types);

/* Of everything that a rank runs and where it lies: programs that differ in anything but names and
 * predictions have different hashes. */
uint64_t dtp_program_hash(const dtp_program *p);

/* Appends a readable listing, one line per instruction. */
void dtp_program_print(const dtp_program *p, dtp_strbuf *out);

/* Independent check (docs/architecture.md): operands defined before use, layouts match each step's
 * meaning, staging sizes match counts, live buffers do not overlap, offsets inside the arena. */
dtp_status dtp_program_check(const dtp_program *p, dtp_err *err) DTP_MUST_CHECK;
/* Of the programs of all chunks, chunk c on stage c mod n_stages: those of a stage agree on their
 * slots, and what outlives a section of one lies where no other writes. DTP_INTERNAL. */
dtp_status dtp_programs_check_shared(const dtp_program *const *programs, int32_t n,
                                     int32_t n_stages, dtp_err *err) DTP_MUST_CHECK;

#endif
