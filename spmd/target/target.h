/* Targets: what memory and prices must know of a backend and a transport, as plain data and host
 * functions (docs/targets.md). The planner and the lowering read them; the executor asserts when it
 * binds a program that its backend and its transport agree.
 */
#ifndef DTP_SPMD_TARGET_TARGET_H
#define DTP_SPMD_TARGET_TARGET_H

#include "core/graph/graph.h"

/* How the kernels run a built-in op, where that matters before they run. */
typedef struct dtp_target_op {
    const char *op;
    /* Scratch bytes that a call on local types needs; NULL: 0. */
    int64_t (*workspace)(const dtp_op_call *call);
    /* Work of a call on local types, packing included; NULL: that of the op's row. */
    void (*work)(const dtp_op_call *call, dtp_work *out);
} dtp_target_op;

/* What the lowering fuses (spmd/lower/passes/fuse.c). */
enum {
    DTP_FUSE_ELEMENTWISE = 1, /* expressions of elementwise functions */
    DTP_FUSE_NORM = 2,        /* norms of expressions */
    DTP_FUSE_PRODUCT = 4,     /* biases, gelu and their gradients with products (fuse_product.c) */
    DTP_FUSE_CAST = 8,        /* casts to f32 of what an op gives (spmd/lower/passes/fuse_cast.c) */
    DTP_FUSE_BIAS = 16        /* of DTP_FUSE_PRODUCT the biases alone */
};

typedef struct dtp_target {
    const char *name;
    const char *runtime;         /* of machine files (`efficiency`): whose kernels programs run */
    const char *precision;       /* of plans for machines of kind cuda that name none; NULL: f32 */
    const char *const *backends; /* names of those that run its programs, ended by NULL; none where
                                    a framework does */
    const dtp_target_op *ops;    /* ended by a NULL op; ops that are not listed need nothing */
    uint32_t floats; /* bit d: kernels take float dtype d. Those of ops with DTP_OP_ANY_DTYPE take
                          every dtype, those of registered ops answer for themselves */
    bool strided;    /* the parts of a collective may lie strided (dtp_coll); else they are packed
                          into staging buffers, and out of them */
    bool direct;     /* a redistribution takes one collective for each mesh dim, with copies around
                          it; else the cheapest steps, detours over other tensor dims among them */
    bool margins;    /* margins of operands that an op reads by windows can be sent; else no plan is
                        found that would */
    bool asynchronous;  /* collectives go on beside kernels, where the machine overlaps them */
    bool streams;       /* collectives of groups inside of a host and of groups across hosts go on
                           beside each other: a framework's groups have streams of their own */
    uint32_t fuse;      /* set of DTP_FUSE_* */
    int32_t join;       /* so many updates of parameters that stand one after the other run in one
                          launch (spmd/lower/passes/join.c); 0: each in its own */
    int64_t loss_chunk; /* > 0: a linear layer and the loss of its result are fused where a rank's
                           logits are four times as many bytes or more, into chunks of so many */
    double reserve;   /* a framework's allocator takes so many bytes for each that is in use at the
                           peak; 0: as many */
    bool terms_apart; /* all-reduces of the terms of a sum do not become one: XLA's */
    bool regathers;   /* values, too, are gathered again in the backward pass; else copies that the
                         forward pass made are kept (core/transform/regather.h) */
    bool buffers;     /* collectives that run ahead have buffers that are there anyway: overlap
                         needs no more memory */
    bool chunks;      /* a gather of what a product reads, and a reduce-scatter of what one makes,
                         run beside it in as many chunks as there are ranks: userbuffers of
                         Transformer Engine */
    bool apart;       /* gathers and reduce-scatters of parameters are in no buckets */
    bool fsdp;        /* a framework gathers sharded parameters and keeps buffers for it
                           (spmd/lower/fsdp_memory.h) */
    bool tf32;        /* products can round f32 operands to tf32 */
    bool fp8;         /* products read quantized operands as 8-bit floats; else as the 16-bit ones
                           that hold them */
    /* Of a backend that is a module, for messages: what builds it, which libraries it needs and
     * where they come from; else NULL. */
    const char *build, *needs;
    bool deterministic; /* reductions give the same bits in every run, over every transport */
} dtp_target;

/* `cpu`: the CPU kernels; collectives on parts where they lie. */
extern const dtp_target dtp_target_cpu;
/* `cpu_packed`: the same kernels; collectives on contiguous parts only. */
extern const dtp_target dtp_target_cpu_packed;
/* `ref`: the reference kernels, which need no workspace and take every float type. */
extern const dtp_target dtp_target_ref;

/* `cuda`: the CUDA kernels; collectives of NCCL, on contiguous parts only. */
extern const dtp_target dtp_target_cuda;

/* `torch`: PyTorch, kernel by kernel; `torch_compile`: what torch.compile fuses; `megatron`,
 * `megatron_overlap` (with --tp-comm-overlap) and `nanotron`: PyTorch as these frameworks use it.
 */
extern const dtp_target dtp_target_torch, dtp_target_torch_compile, dtp_target_megatron,
    dtp_target_megatron_overlap, dtp_target_nanotron;

/* NULL when i is beyond the last one. */
const dtp_target *dtp_target_at(int32_t i);
/* The first target whose programs a backend of this name runs; NULL when there is none. */
const dtp_target *dtp_target_of_backend(const char *backend);
/* The target of a name; DTP_INVALID with the names that there are. */
dtp_status dtp_target_find(const char *name, const dtp_target **out, dtp_err *err) DTP_MUST_CHECK;

/* The type that a tensor has in programs: its own, or where the target has `fp8` an 8-bit float for
 * a quantized one. */
dtp_ttype dtp_target_type(const dtp_target *target, const dtp_graph *g, dtp_tensor_id t);
/* Whether kernels take the dtypes of a call: DTP_UNSUPPORTED naming op, dtype and what they take.
 */
dtp_status dtp_target_takes(const dtp_target *target, const dtp_op_call *call,
                            dtp_err *err) DTP_MUST_CHECK;
/* Whether products compute as the graph asks: DTP_UNSUPPORTED where it wants tf32. */
dtp_status dtp_target_takes_precision(const dtp_target *target, const dtp_graph *g,
                                      dtp_err *err) DTP_MUST_CHECK;
/* That, and the dtypes of all nodes of a graph; the message names the node. */
dtp_status dtp_target_takes_graph(const dtp_target *target, const dtp_graph *g,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Whether a backend of this name runs programs of the target: DTP_INVALID naming both. */
dtp_status dtp_target_runs_on(const dtp_target *target, const char *backend,
                              dtp_err *err) DTP_MUST_CHECK;

/* Whether a transport with these capabilities moves its tensors: DTP_INVALID naming both. One that
 * is done where a collective starts, or takes strided parts that no device has, is no reason. */
dtp_status dtp_target_runs_over(const dtp_target *target, const char *transport, bool strided,
                                bool deterministic, dtp_err *err) DTP_MUST_CHECK;

/* Whether calls of an op may need scratch bytes, */
bool dtp_target_has_workspace(const dtp_target *target, const dtp_op_def *op);
/* and how many a call on local types does: of a registered op what its row says. */
int64_t dtp_target_workspace(const dtp_target *target, const dtp_op_call *call);
/* Work of a call on local types. */
void dtp_target_work(const dtp_target *target, const dtp_op_call *call, dtp_work *out);

#endif
