/* Shared by the communicators. */
#ifndef DTP_EXECUTOR_COMM_COMMUNICATOR_INTERNAL_H
#define DTP_EXECUTOR_COMM_COMMUNICATOR_INTERNAL_H

#include "executor/comm/communicator.h"

/* Whether the mesh has these dims. DTP_INVALID. */
dtp_status dtp_comm__check_set(const dtp_comm *c, dtp_mesh_set set, dtp_err *err) DTP_MUST_CHECK;

/* Whether a reduction over a type is there: SUM PROD MIN MAX over numbers, PROD (and) MIN (and) MAX
 * (or) over bools. DTP_UNSUPPORTED. */
dtp_status dtp_comm__can_reduce(const dtp_coll *coll, dtp_err *err) DTP_MUST_CHECK;

/* acc[i] = acc[i] op in[i]. A NaN on either side of MIN and MAX stays a NaN. Integers wrap around.
 * bf16 and f16 are combined as f32 and rounded once, to nearest even. */
void dtp_comm__combine(dtp_reduce_op op, dtp_dtype dtype, void *acc, const void *in, int64_t n);

/* Elements of the two buffers of a collective over n members. */
void dtp_comm__elems(const dtp_coll *coll, int32_t n, int64_t *in, int64_t *out);

/* Whether two members of this rank's group run different collectives; `why` says which. */
bool dtp_comm__differs(const dtp_mesh *mesh, int32_t rank, int32_t member, const dtp_coll *coll,
                       int32_t other, const dtp_coll *others, char why[DTP_ERR_MSG_BYTES]);

/* Whether two messages of a rank share memory. */
bool dtp_comm__messages_meet(const dtp_message *a, const dtp_message *b);

/* For words about ranks that wait for a message: what it is like. */
dtp_coll dtp_comm__message_coll(const dtp_mesh *mesh, const dtp_message *m);

/* What a rank does while others can never go on. */
typedef struct dtp_comm__visit {
    enum {
        DTP_COMM_VISIT_NONE,
        DTP_COMM_VISIT_WAITS,
        DTP_COMM_VISIT_ENDED,
        DTP_COMM_VISIT_LATE,  /* it is waited for, and has not come */
        DTP_COMM_VISIT_SILENT /* nor does it answer */
    } state;
    const dtp_coll *coll; /* it waits in; NULL: the barrier */
} dtp_comm__visit;
/* "the ranks wait for each other: rank 0: ...; rank 1: has ended", by rank, each kind of visit
 * once. */
void dtp_comm__describe_waits(const dtp_mesh *mesh, int32_t n, const dtp_comm__visit *visits,
                              char out[DTP_ERR_MSG_BYTES]);

/* "rank 3 does not answer; rank 5 has not come: rank 0: all_reduce ... is not done after 5 s"; coll
 * NULL: the barrier. n = 0: without the ranks. */
void dtp_comm__describe_late(const dtp_mesh *mesh, int32_t n, const dtp_comm__visit *visits,
                             int32_t rank, const dtp_coll *coll, double limit_s,
                             char out[DTP_ERR_MSG_BYTES]);

/* Where one part of a buffer lies, in bytes: runs of `run` bytes at start, start + stride, ... */
typedef struct dtp_comm__part {
    int64_t start, run, stride;
} dtp_comm__part;
/* Part p of a member's input or output in a group of n. */
dtp_comm__part dtp_comm__part_of(const dtp_coll *coll, bool input, int64_t n, int64_t p);
/* `bytes` of one part of a buffer, from its from_start on, to another part from its to_start on. */
void dtp_comm__copy(void *to, dtp_comm__part to_part, int64_t to_start, const void *from,
                    dtp_comm__part from_part, int64_t from_start, int64_t bytes);

/* Whether members write to each other's outputs; otherwise each takes what it needs from the
 * inputs. Reading rows of another core's memory brings much along that is not wanted, so strided
 * parts are read by their owner. */
bool dtp_comm__pushes(const dtp_coll *coll);
/* What member `me` of n has to do when it can reach all buffers, by member as this process sees
 * them; see transfer.c. */
void dtp_comm__transfer(const dtp_coll *coll, int32_t n, int32_t me,
                        const dtp_coll_ends *const *ends);

/* Memory that grows. */
typedef struct dtp_comm__scratch {
    void *data;
    size_t capacity;
} dtp_comm__scratch;
dtp_status dtp_comm__reserve(dtp_comm__scratch *scratch, size_t bytes, dtp_err *err) DTP_MUST_CHECK;
/* Gives a single collective a private copy of its input when that overlaps the output in a way that
 * the collective does not allow in place: *copy is then in *ends. */
dtp_status dtp_comm__unalias(dtp_comm__scratch *scratch, const dtp_coll *coll, int32_t n,
                             int32_t index, const dtp_coll_ends **ends, dtp_coll_ends *copy,
                             dtp_err *err) DTP_MUST_CHECK;

/* The collective over a group of one: copies. */
void dtp_comm__single(const dtp_coll *coll, const dtp_coll_ends *ends);

/* DTP_COMM: what rank `rank` reports of the failure of another one; `why` may be "". */
dtp_status dtp_comm__relay(dtp_err *err, int32_t rank, int32_t failed,
                           const char *why) DTP_MUST_CHECK;

/* For tests, on a simulated communicator: the transport does a collective when it or a later one is
 * waited for, and not when it is started. All ranks alike, until the end of the run. */
void dtp_comm__sim_late(dtp_comm *c, bool late);
/* Longest message, in elements, given to MPI in one call; for tests of the chunking of large
 * counts. */
void dtp_comm__mpi_limit(dtp_comm *c, int64_t max_count);
/* false: everything goes through MPI calls, nothing through memory shared with the other ranks of
 * the host; for tests. All ranks alike. */
void dtp_comm__mpi_share(dtp_comm *c, bool share);

#endif
