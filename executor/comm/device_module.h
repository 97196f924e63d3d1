/* A device: a backend, and transports between the memories of its ranks where it has its own. Two
 * are built in; others are modules, shared objects dtp_NAME.so that are opened by name
 * (docs/adding-a-backend.md, "As a module").
 *
 * A module has its own copies of what it uses of the core, which keeps no state: what passes
 * between the two are the structures of these headers. So a module belongs to one build of them:
 * abi and layout tell. */
#ifndef DTP_EXECUTOR_COMM_DEVICE_MODULE_H
#define DTP_EXECUTOR_COMM_DEVICE_MODULE_H

#include "executor/comm/communicator.h"
#include "executor/device/backend.h"

/* Grows with every change of what a call between core and module means. */
enum { DTP_DEVICE_ABI = 2 };
/* Sizes of the structures that core and modules share: a change that forgot the number above. */
#define DTP_DEVICE_LAYOUT                                                                          \
    (sizeof(dtp_backend) + 3 * sizeof(dtp_backend_ops) + 5 * sizeof(dtp_queue_ops) +               \
     7 * sizeof(dtp_kernel_args) + 11 * sizeof(dtp_op_call) + 13 * sizeof(dtp_comm) +              \
     17 * sizeof(dtp_comm_ops) + 19 * sizeof(dtp_transport_ops) + 23 * sizeof(dtp_coll) +          \
     29 * sizeof(dtp_err))

typedef struct dtp_device_options {
    int32_t local_rank;   /* number of the rank among those on its machine */
    int32_t threads;      /* of host kernels */
    const char *switches; /* words of the device, separated by commas, that help to find faults;
                             NULL: none */
} dtp_device_options;

typedef struct dtp_device {
    int32_t abi;     /* DTP_DEVICE_ABI; these two stay first */
    uint64_t layout; /* DTP_DEVICE_LAYOUT */
    const char *name;
    /* REQUIRED. A backend for one rank. DTP_UNSUPPORTED where driver, card or a library is missing:
     * the message says which. DTP_INVALID: there is no such switch, with those that there are. */
    dtp_status (*create)(const dtp_device_options *options, dtp_backend **out, dtp_err *err);
    /* OPTIONAL; NULL: tensors move over the transport of the communicator. A transport between the
     * memories of the devices of the ranks of comm, by name; NULL: what the ranks allow. `b` is of
     * this device. Collective over all ranks. Borrows comm and b; ended by (*out).ops->destroy,
     * before them. DTP_INVALID for a name that there is not and for one that cannot be. */
    dtp_status (*transport)(dtp_comm *comm, dtp_backend *b, const char *name, dtp_transport *out,
                            dtp_err *err);
} dtp_device;

/* What a module defines and exports. */
#define DTP_DEVICE_SYMBOL "dtp_device_module"
DTP_API
extern const dtp_device dtp_device_module;
DTP_API_POP

#endif
