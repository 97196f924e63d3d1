/* NCCL: ranks are host threads. An operation is posted when it comes to the head of its stream, and done by the last
 * member that posts. Collectives of a communicator are matched by the order in which its ranks call them, sends and
 * receives by their order between two ranks. */
#include <algorithm>
#include <cstring>

#include "internal.h"
#include "nccl.h"
#include "nccl_data.h"

namespace emu
{

namespace
{

struct member;

enum kind { all_reduce, all_gather, reduce_scatter, broadcast, send, receive };
const char *const kind_names[] = {"AllReduce", "AllGather", "ReduceScatter",
                                  "Broadcast", "Send",      "Recv"};

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

} // namespace

} // namespace emu

struct ncclComm {
    std::shared_ptr<emu::member> m;
};

namespace emu
{

namespace
{

struct split_request {
    int color, key;
    std::shared_ptr<member> made;
};

std::map<std::string, std::shared_ptr<clique>> &meeting_places()
{
    static std::map<std::string, std::shared_ptr<clique>> places;
    return places;
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<cudaStream_t, call>> group_calls;
thread_local std::vector<std::shared_ptr<member>> group_inits;

ncclResult_t refuse(ncclResult_t result, member *m, const char *text)
{
    fail(cudaErrorInvalidValue, "NCCL: %s", text);
    if (m) {
        m->message = text;
    }
    return result;
}

/* Every rank of the clique learns of it. */
void fail_clique(clique &group, ncclResult_t result, const std::string &text)
{
    fail(cudaErrorUnknown, "NCCL: %s", text.c_str());
    for (auto &m : group.members) {
        if (m && m->error == ncclSuccess) {
            m->error = result;
            m->message = text;
        }
    }
    all().changed.notify_all();
}

bool collective(const call &c)
{
    return c.what != send && c.what != receive;
}

std::string describe(const call &c)
{
    return std::string(kind_names[c.what]) + " of " + std::to_string(c.count) +
           " elements of type " + std::to_string(c.type) + ", operation " + std::to_string(c.op) +
           ", root or peer " + std::to_string(c.peer) + ", by rank " + std::to_string(c.who->rank);
}

void end_piece(piece &p, double end_s, const task *posting)
{
    p.done = true;
    member &m = *p.c.who;
    m.ended += collective(p.c);
    m.open.erase(std::find(m.open.begin(), m.open.end(), &p));
    calls_in_task &owner = *static_cast<calls_in_task *>(p.owner->extra.get());
    p.owner->begin_s = std::max(p.owner->begin_s, end_s);
    all().counters.collectives++;
    if (--owner.left == 0 && p.owner != posting) {
        finish(*p.owner, p.owner->begin_s);
    }
}

double seconds_of(const call &c)
{
    return 8e-6 + static_cast<double>(c.count * nccl_bytes(c.type)) / 1e11;
}

/* All ranks have posted: move the data. */
void perform(std::vector<piece *> &ranks, const task *posting)
{
    const call &first = ranks[0]->c;
    std::vector<const void *> from;
    std::vector<void *> to;
    double begin_s = 0;
    bool gone = false;
    for (piece *p : ranks) {
        from.push_back(p->c.from);
        to.push_back(p->c.to);
        begin_s = std::max(begin_s, p->owner->begin_s);
        gone = gone || device_at(p->c.who->device).error != cudaSuccess;
    }
    open_memory();
    if (!gone) {
        switch (first.what) {
        case all_reduce:
            nccl_all_reduce(from, to, first.count, first.type, first.op);
            break;
        case reduce_scatter:
            nccl_reduce_scatter(from, to, first.count, first.type, first.op);
            break;
        case all_gather:
            nccl_all_gather(from, to, first.count * nccl_bytes(first.type));
            break;
        default:
            nccl_broadcast(from, to, first.count * nccl_bytes(first.type), first.peer);
        }
    }
    double end_s = begin_s + seconds_of(first);
    std::vector<piece *> all_ranks = ranks;
    for (piece *p : all_ranks) {
        end_piece(*p, end_s, posting);
    }
}

void post_collective(piece &p, const task *posting)
{
    clique &group = *p.c.who->group;
    std::vector<piece *> &ranks = group.collectives[p.number];
    ranks.resize(group.members.size());
    for (piece *other : ranks) {
        if (other &&
            (other->c.what != p.c.what || other->c.count != p.c.count ||
             other->c.type != p.c.type || other->c.op != p.c.op || other->c.peer != p.c.peer)) {
            fail_clique(group, ncclInvalidUsage,
                        "collective " + std::to_string(p.number) +
                            " differs between ranks: " + describe(other->c) + "; " + describe(p.c));
            break;
        }
    }
    ranks[static_cast<size_t>(p.c.who->rank)] = &p;
    if (p.c.who->error == ncclSuccess &&
        std::find(ranks.begin(), ranks.end(), nullptr) == ranks.end()) {
        std::vector<piece *> complete = ranks;
        group.collectives.erase(p.number);
        perform(complete, posting);
    }
}

void post_direct(piece &p, const task *posting)
{
    clique &group = *p.c.who->group;
    bool sends = p.c.what == send;
    std::pair<int, int> ends(sends ? p.c.who->rank : p.c.peer, sends ? p.c.peer : p.c.who->rank);
    auto &pairs = group.direct[ends];
    piece **both = pairs[p.number];
    both[sends ? 0 : 1] = &p;
    if (!both[0] || !both[1]) {
        return;
    }
    piece &from = *both[0], &to = *both[1];
    if (from.c.count != to.c.count || from.c.type != to.c.type) {
        fail_clique(group, ncclInvalidUsage,
                    "a message differs between its ranks: " + describe(from.c) + "; " +
                        describe(to.c));
        return;
    }
    pairs.erase(p.number);
    open_memory();
    memmove(to.c.to, from.c.from, from.c.count * nccl_bytes(from.c.type));
    double end_s = std::max(from.owner->begin_s, to.owner->begin_s) + seconds_of(from.c);
    end_piece(from, end_s, posting);
    end_piece(to, end_s, posting);
}

struct nccl_work final : work {
    std::vector<call> calls;

    void issued(task &t) override
    {
        auto made = std::make_shared<calls_in_task>();
        made->pieces.reserve(calls.size());
        for (const call &c : calls) {
            member &m = *c.who;
            uint64_t &next = collective(c)    ? m.issued
                             : c.what == send ? m.direct[{m.rank, c.peer}]
                                              : m.direct[{c.peer, ~m.rank}];
            made->pieces.push_back({c, next++, false, false, &t});
            m.open.push_back(&made->pieces.back());
            if (m.outside) {
                fail_device(m.device, cudaErrorIllegalState,
                            "NCCL: a graph uses a communicator that was destroyed");
                m.aborted = true;
            }
        }
        made->left = made->pieces.size();
        t.extra = made;
    }
    bool ready(task &t) override
    {
        std::set<member *> seen;
        for (const piece &p : static_cast<calls_in_task *>(t.extra.get())->pieces) {
            if (collective(p.c) && seen.insert(p.c.who.get()).second && !p.c.who->aborted &&
                p.c.who->ended != p.number) {
                return false;
            }
        }
        return true;
    }
    bool start(task &t) override
    {
        calls_in_task &mine = *static_cast<calls_in_task *>(t.extra.get());
        for (piece &p : mine.pieces) {
            p.posted = true;
            if (p.c.who->aborted) {
                end_piece(p, t.begin_s, &t);
            } else if (collective(p.c)) {
                post_collective(p, &t);
            } else {
                post_direct(p, &t);
            }
        }
        return mine.left == 0;
    }
};

/* --- deadlocks ----------------------------------------------------------------------------------------------- */

/* Whether q of another rank, or of this one, is what p needs. */
bool partner(const piece &p, const piece &q)
{
    if (collective(p.c) || collective(q.c)) {
        return collective(p.c) && collective(q.c) && p.number == q.number;
    }
    return p.c.what != q.c.what && p.number == q.number && p.c.peer == q.c.who->rank &&
           q.c.peer == p.c.who->rank;
}

/* What t waits for, as far as the host has issued it. */
void waited_for(task &t, std::vector<task *> &found)
{
    blockers_of(t, found);
    nccl_work *what = dynamic_cast<nccl_work *>(t.what.get());
    if (!what) {
        return;
    }
    for (const piece &p : static_cast<calls_in_task *>(t.extra.get())->pieces) {
        for (auto &other : p.c.who->group->members) {
            for (piece *theirs : p.done || !other ? std::vector<piece *>() : other->open) {
                bool earlier = other == p.c.who && collective(p.c) && collective(theirs->c) &&
                               theirs->number < p.number;
                if (t.started ? partner(p, *theirs) && !theirs->posted : earlier) {
                    found.push_back(theirs->owner);
                }
            }
        }
    }
}

/* 0 not seen, 1 on the path, 2 free. True: `t` is on a circle or leads to one. */
bool circle_from(task &t, std::map<task *, int> &marks)
{
    int &mark = marks[&t];
    if (mark != 0) {
        return mark == 1;
    }
    mark = 1;
    std::vector<task *> next;
    waited_for(t, next);
    for (task *other : next) {
        if (other != &t && circle_from(*other, marks)) {
            return true;
        }
    }
    marks[&t] = 2;
    return false;
}

} // namespace

void find_deadlock()
{
    std::map<task *, int> marks;
    for (CUstream_st *stream : all().streams) {
        if (stream->queue.empty() || !circle_from(*stream->queue.front(), marks)) {
            continue;
        }
        for (auto &[t, mark] : marks) {
            if (mark != 1 || !dynamic_cast<nccl_work *>(t->what.get())) {
                continue;
            }
            for (const piece &p : static_cast<calls_in_task *>(t->extra.get())->pieces) {
                if (p.c.who->error == ncclSuccess && !p.done) {
                    fail_clique(*p.c.who->group, ncclInvalidUsage,
                                "deadlock: ranks issue operations in different orders; " +
                                    describe(p.c));
                }
            }
        }
        return;
    }
}

void drop_communicators()
{
    meeting_places().clear();
}

namespace
{

/* --- communicators ------------------------------------------------------------------------------------------- */

void settle(clique &group)
{
    std::set<int> devices;
    for (auto &m : group.members) {
        if (!devices.insert(m->device).second && !group.failed) {
            group.failed = true;
            fail(cudaErrorInvalidValue, "NCCL: two ranks use device %d", m->device);
        }
    }
    for (auto &m : group.members) {
        m->ready = true;
        m->error = group.failed ? ncclInvalidUsage : ncclSuccess;
        m->message = group.failed ? "two ranks use one device" : "";
    }
    all().changed.notify_all();
}

ncclResult_t wait_ready(guard &lock, member &m)
{
    run_until(lock, [&m] { return m.ready || m.aborted; });
    return m.aborted ? ncclInvalidUsage : m.error;
}

/* Blocking communicators wait at once, or at the end of the group. */
ncclResult_t settle_later(guard &lock, const std::shared_ptr<member> &m)
{
    if (group_depth > 0) {
        group_inits.push_back(m);
        return ncclSuccess;
    }
    if (!m->blocking) {
        return m->ready ? m->error : ncclInProgress;
    }
    return wait_ready(lock, *m);
}

bool blocking_in(const ncclConfig_t *config)
{
    return !config || config->blocking != 0;
}

ncclComm_t hand_out(const std::shared_ptr<member> &m)
{
    all().counters.live_objects++;
    return new ncclComm{m};
}

/* The members of one color, by key and rank. */
void split_now(clique &group, std::map<int, split_request> &requests)
{
    std::map<int, std::vector<std::pair<std::pair<int, int>, std::shared_ptr<member>>>> colors;
    for (auto &[rank, r] : requests) {
        if (r.color >= 0) {
            colors[r.color].push_back({{r.key, rank}, r.made});
        }
    }
    for (auto &[color, list] : colors) {
        std::sort(list.begin(), list.end(),
                  [](const auto &a, const auto &b) { return a.first < b.first; });
        auto made = std::make_shared<clique>();
        for (auto &[order, m] : list) {
            m->rank = static_cast<int>(made->members.size());
            m->group = made;
            made->members.push_back(m);
        }
        made->joined = static_cast<int>(made->members.size());
        settle(*made);
    }
    for (auto &m : group.members) {
        m->splits++;
    }
    all().changed.notify_all();
}

/* The handle goes; the last one breaks the circle of references. */
void hand_back(ncclComm_t comm)
{
    std::shared_ptr<member> m = comm->m;
    m->outside = true;
    delete comm;
    all().counters.live_objects--;
    if (m->group && ++m->group->gone == static_cast<int>(m->group->members.size())) {
        for (auto &one : m->group->members) {
            one.reset();
        }
    }
}

void leave(member &m)
{
    m.aborted = true;
    std::vector<piece *> open = m.open;
    for (piece *p : open) {
        if (!p->posted) {
            continue;
        }
        clique &group = *m.group;
        if (collective(p->c)) {
            auto found = group.collectives.find(p->number);
            if (found != group.collectives.end()) {
                found->second[static_cast<size_t>(m.rank)] = nullptr;
            }
        } else {
            for (auto &[ends, pairs] : group.direct) {
                for (auto &[number, both] : pairs) {
                    both[0] = both[0] == p ? nullptr : both[0];
                    both[1] = both[1] == p ? nullptr : both[1];
                }
            }
        }
        end_piece(*p, p->owner->begin_s, nullptr);
    }
    all().changed.notify_all();
}

/* --- calls --------------------------------------------------------------------------------------------------- */

ncclResult_t check_call(const call &c, cudaStream_t stream, size_t from_count, size_t to_count)
{
    member &m = *c.who;
    size_t bytes = nccl_bytes(c.type);
    if (!m.ready || m.aborted) {
        return refuse(ncclInvalidUsage, &m, "a communicator that is not ready or was aborted");
    }
    if (check_stream(stream) != cudaSuccess || stream->device != m.device) {
        return refuse(ncclInvalidUsage, &m, "a stream of another device, or a bad one");
    }
    if (bytes == 0 || c.op < 0 || c.op >= ncclNumOps || c.peer < 0 ||
        c.peer >= static_cast<int>(m.group->members.size())) {
        return refuse(ncclInvalidArgument, &m, "a bad type, operation, root or peer");
    }
    if (check_device_range("NCCL send buffer", c.from, from_count * bytes, m.device, false) !=
            cudaSuccess ||
        check_device_range("NCCL receive buffer", c.to, to_count * bytes, m.device, false) !=
            cudaSuccess) {
        m.message = all().message;
        return ncclInvalidArgument;
    }
    return ncclSuccess;
}

ncclResult_t submit_calls(guard &lock, std::vector<std::pair<cudaStream_t, call>> &calls)
{
    std::vector<std::pair<cudaStream_t, std::shared_ptr<nccl_work>>> works;
    for (auto &[stream, c] : calls) {
        auto same = std::find_if(works.begin(), works.end(),
                                 [s = stream](const auto &w) { return w.first == s; });
        if (same == works.end()) {
            works.push_back({stream, std::make_shared<nccl_work>()});
            same = works.end() - 1;
            same->second->name = kind_names[c.what];
        }
        same->second->calls.push_back(c);
    }
    calls.clear();
    for (auto &[stream, what] : works) {
        if (submit(lock, stream, what) != cudaSuccess) {
            return ncclUnhandledCudaError;
        }
    }
    return ncclSuccess;
}

ncclResult_t issue(ncclComm_t comm, call c, cudaStream_t stream, size_t from_count, size_t to_count)
{
    guard lock(all().mutex);
    if (!comm) {
        return refuse(ncclInvalidArgument, nullptr, "no communicator");
    }
    c.who = comm->m;
    ncclResult_t result = check_call(c, stream, from_count, to_count);
    if (result != ncclSuccess) {
        return result;
    }
    if (group_depth > 0) {
        group_calls.push_back({stream, c});
        return ncclSuccess;
    }
    std::vector<std::pair<cudaStream_t, call>> one = {{stream, c}};
    return submit_calls(lock, one);
}

} // namespace

} // namespace emu

using namespace emu;

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **address, size_t bytes)
{
    return cudaMalloc(address, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *address)
{
    return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    static thread_local std::string text;
    guard lock(all().mutex);
    text = comm ? comm->m->message : all().message;
    return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static uint64_t serial = 0;
    guard lock(all().mutex);
    serial++;
    memset(id, 0x5a, sizeof *id);
    memcpy(id->internal, &serial, sizeof serial);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    *comm = nullptr;
    if (error != cudaSuccess) {
        return ncclUnhandledCudaError;
    }
    if (ranks < 1 || rank < 0 || rank >= ranks) {
        return refuse(ncclInvalidArgument, nullptr, "a bad rank");
    }
    std::string key(id.internal, sizeof id.internal);
    std::shared_ptr<clique> &place = meeting_places()[key];
    if (!place) {
        place = std::make_shared<clique>();
        place->members.resize(static_cast<size_t>(ranks));
    }
    std::shared_ptr<clique> group = place;
    size_t slot = static_cast<size_t>(rank);
    if (group->members.size() != static_cast<size_t>(ranks) || group->members[slot]) {
        return refuse(ncclInvalidArgument, nullptr, "a rank that came twice, or another size");
    }
    auto m = std::make_shared<member>();
    m->group = group;
    m->rank = rank;
    m->device = d->index;
    m->blocking = blocking_in(config);
    group->members[slot] = m;
    *comm = hand_out(m);
    if (++group->joined == ranks) {
        meeting_places().erase(key);
        settle(*group);
    }
    return settle_later(lock, m);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config)
{
    guard lock(all().mutex);
    *made = nullptr;
    if (!comm || !comm->m->ready || comm->m->aborted || comm->m->error != ncclSuccess ||
        (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
        return refuse(ncclInvalidArgument, nullptr, "a bad communicator or color");
    }
    std::shared_ptr<member> parent = comm->m;
    std::shared_ptr<member> m = std::make_shared<member>();
    m->device = parent->device;
    m->blocking = config ? blocking_in(config) : parent->blocking;
    uint64_t number = parent->splits;
    auto &requests = parent->group->splits[number];
    requests[parent->rank] = {color, key, m};
    if (color >= 0) {
        *made = hand_out(m);
    }
    if (requests.size() == parent->group->members.size()) {
        split_now(*parent->group, requests);
        parent->group->splits.erase(number);
    }
    if (color >= 0) {
        return settle_later(lock, m);
    }
    if (group_depth == 0 && m->blocking) {
        run_until(lock, [&] { return parent->splits > number || parent->aborted; });
    }
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    guard lock(all().mutex);
    for (uint32_t n = all().random.below(4); n > 0 && step(lock); n--) {
    }
    close_memory();
    find_deadlock();
    *result = !comm->m->ready ? ncclInProgress
              : comm->m->error == ncclSuccess && device_at(comm->m->device).error != cudaSuccess
                  ? ncclUnhandledCudaError
                  : comm->m->error;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    guard lock(all().mutex);
    std::shared_ptr<member> m = comm->m;
    if (!m->ready) {
        return refuse(ncclInvalidUsage, m.get(), "a communicator that is not ready");
    }
    if (m->blocking) {
        run_until(lock, [&m] { return m->open.empty() || m->aborted || m->error != ncclSuccess; });
    }
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    guard lock(all().mutex);
    if (!comm) {
        return ncclSuccess;
    }
    std::shared_ptr<member> m = comm->m;
    run_until(lock, [&m] {
        return !m->ready || m->open.empty() || m->aborted || m->error != ncclSuccess;
    });
    hand_back(comm);
    return m->open.empty() ? ncclSuccess
                           : refuse(ncclInvalidUsage, nullptr, "operations are left: abort");
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    guard lock(all().mutex);
    if (!comm) {
        return ncclSuccess;
    }
    std::shared_ptr<member> m = comm->m;
    leave(*m);
    hand_back(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    guard lock(all().mutex);
    *count = comm->m->group ? static_cast<int>(comm->m->group->members.size()) : 0;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *index)
{
    *index = comm->m->device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    guard lock(all().mutex);
    *rank = comm->m->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *address, size_t bytes, void **handle)
{
    guard lock(all().mutex);
    *handle = nullptr;
    if (check_device_range("ncclCommRegister", address, bytes, comm->m->device, false) !=
        cudaSuccess) {
        return ncclInvalidArgument;
    }
    *handle = new char;
    all().counters.live_objects++;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void *handle)
{
    guard lock(all().mutex);
    if (handle) {
        all().counters.live_objects--;
    }
    delete static_cast<char *>(handle);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, {all_reduce, nullptr, from, to, count, type, op, 0}, stream, count, count);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    size_t ranks = comm && comm->m->group ? comm->m->group->members.size() : 0;
    return issue(comm, {reduce_scatter, nullptr, from, to, count, type, op, 0}, stream,
                 count * ranks, count);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    size_t ranks = comm && comm->m->group ? comm->m->group->members.size() : 0;
    return issue(comm, {all_gather, nullptr, from, to, count, type, ncclSum, 0}, stream, count,
                 count * ranks);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    bool here = comm && comm->m->rank == root;
    return issue(comm, {broadcast, nullptr, from, to, count, type, ncclSum, root}, stream,
                 here ? count : 0, count);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, {send, nullptr, from, nullptr, count, type, ncclSum, peer}, stream, count,
                 0);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return issue(comm, {receive, nullptr, nullptr, to, count, type, ncclSum, peer}, stream, 0,
                 count);
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    guard lock(all().mutex);
    if (group_depth == 0) {
        return refuse(ncclInvalidUsage, nullptr, "ncclGroupEnd without ncclGroupStart");
    }
    if (--group_depth > 0) {
        return ncclSuccess;
    }
    ncclResult_t result = ncclSuccess;
    std::vector<std::shared_ptr<member>> inits = std::move(group_inits);
    group_inits.clear();
    for (auto &m : inits) {
        ncclResult_t one = m->blocking ? wait_ready(lock, *m) : ncclInProgress;
        result = result == ncclSuccess ? one : result;
    }
    ncclResult_t calls = submit_calls(lock, group_calls);
    return calls != ncclSuccess ? calls : result;
}
}
