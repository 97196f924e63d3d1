/* Virtual ranks with a CUDA backend and a transport each, on emulated devices or on cards. */
#ifndef DTP_TESTS_CUDA_COMM_RANKS_H
#define DTP_TESTS_CUDA_COMM_RANKS_H

#include "executor/comm/communicator.h"

/* Devices, and the transport that ranks on them get. */
typedef struct ranks_kind {
    const char *name;
    int devices;
} ranks_kind;
enum { N_RANKS_KINDS = 4 };
extern const ranks_kind RANKS_KINDS[N_RANKS_KINDS];

/* Switches of the backends that are made; NULL: none. */
extern const char *ranks_switches;

typedef dtp_status (*ranks_body)(dtp_comm *comm, void *backend, dtp_err *err);

/* Fails the test with the message. */
void ranks_must(dtp_status status, const dtp_err *err);
/* Every rank of a mesh runs a body with a backend and a transport of its own. */
dtp_status ranks_run(const char *mesh_text, const char *transport, ranks_body body,
                     dtp_err *err) DTP_MUST_CHECK;
/* Emulated devices as a kind has them, without memory or faults. */
void ranks_begin(int32_t kind, uint64_t seed);
/* Fails the test when something is left on them, or they found a fault. */
void ranks_nothing_left(void);
/* Whether the ranks of a mesh can have a transport: nccl needs a card for each. Cards are one kind,
 * however many there are. */
bool ranks_can(int32_t kind, const char *mesh);

#endif
