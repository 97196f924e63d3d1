/* The conformance suite of communicators and transports: the same checks for all. `user` is NULL,
 * or a backend with a queue in whose memory the transport moves tensors. */
#ifndef DTP_TESTS_COMM_COMM_SUITE_H
#define DTP_TESTS_COMM_COMM_SUITE_H

#include "executor/comm/communicator.h"

/* Runs on every rank: each collective over each set of mesh dims, type, reduction and several
 * counts, in place and not, against values computed from the definition; inputs are small integers,
 * so results are exact. The first wrong element is a DTP_INTERNAL that says where. */
dtp_status comm_suite(dtp_comm *comm, void *user, dtp_err *err);

/* All ranks agree; then one deviates and all must notice. */
dtp_status comm_suite_agree(dtp_comm *comm, void *user, dtp_err *err);

/* Sums whose bits depend on the order: reductions combine in member order on every communicator. */
dtp_status comm_suite_order(dtp_comm *comm, void *user, dtp_err *err);

/* Collectives that are all started before the first is waited for; buckets. */
dtp_status comm_suite_flight(dtp_comm *comm, void *user, dtp_err *err);

/* Every rank sends messages to every rank, itself too; for transports that have them. */
dtp_status comm_suite_messages(dtp_comm *comm, void *user, dtp_err *err);

/* Two collectives that differ in one field, and how a message tells them apart. Rank 0 runs the
 * first one, all others the other one: every rank must say so. */
typedef struct comm_dispute {
    dtp_coll first, other;
    const char *words[2];
} comm_dispute;
extern const comm_dispute comm_disputes[];
extern const int32_t comm_n_disputes;

/* The last of several ranks comes after the deadline: every rank is told which one it is, and the
 * communicator is of no more use. */
dtp_status comm_suite_deadline(dtp_comm *comm, void *user, dtp_err *err);

/* Views: every sub-mesh of the mesh (run by all its slices, then by one slice alone) and the mesh
 * with its first two and its last two dims joined. The suite of collectives runs on each. */
dtp_status comm_suite_views(dtp_comm *comm, void *user, dtp_err *err);

#endif
