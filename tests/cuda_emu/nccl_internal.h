/* Communicators, and the calls of their ranks on the way to being matched. */
#ifndef CUDA_EMU_NCCL_INTERNAL_H
#define CUDA_EMU_NCCL_INTERNAL_H

#include "internal.h"
#include "nccl.h"

namespace emu
{

struct member;

enum kind { all_reduce, all_gather, reduce_scatter, broadcast, send, receive };

struct call {
    kind what;
    std::shared_ptr<member> who;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* root, source or destination */
};

/* A call on its way, of one task. */
struct piece {
    call c;
    uint64_t number; /* in its order */
    bool posted, done;
    task *owner;
};

struct calls_in_task {
    std::vector<piece> pieces;
    size_t left = 0;
};

/* All ranks of a communicator. */
struct clique {
    std::vector<std::shared_ptr<member>> members; /* NULL: has not come */
    int joined = 0, gone = 0;
    bool failed = false;
    std::map<uint64_t, std::vector<piece *>> collectives;                 /* by number, per rank */
    std::map<std::pair<int, int>, std::map<uint64_t, piece *[2]>> direct; /* by source, target */
    std::map<uint64_t, std::map<int, struct split_request>> splits;
};

struct split_request {
    int color, key;
    std::shared_ptr<member> made;
};

struct member {
    std::shared_ptr<clique> group;
    int rank = 0, device = 0;
    bool ready = false, blocking = true, aborted = false, outside = false;
    ncclResult_t error = ncclSuccess;
    std::string message;
    uint64_t issued = 0, ended = 0, splits = 0;
    std::map<std::pair<int, int>, uint64_t> direct;
    std::vector<piece *> open; /* issued and not done */
};

bool collective(const call &c);
/* The piece is done; its task ends with the last one. `posting`: a task that is being started and
 * ends itself. */
void end_piece(piece &p, double end_s, const task *posting);
/* Calls of one group in one stream. */
std::shared_ptr<work> make_nccl_work(const std::vector<call> &calls);
/* Whether a live graph holds calls of this rank. */
bool in_graphs(const member &m);

} // namespace emu

struct ncclComm {
    std::shared_ptr<emu::member> m;
};

#endif
