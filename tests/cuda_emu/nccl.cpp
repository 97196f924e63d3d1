/* NCCL: communicators and calls. Ranks are host threads. */
#include <algorithm>
#include <cstring>

#include "nccl_data.h"
#include "nccl_internal.h"

namespace emu
{

namespace
{

std::map<std::string, std::shared_ptr<clique>> &meeting_places()
{
    static std::map<std::string, std::shared_ptr<clique>> places;
    return places;
}

thread_local int group_depth = 0;
thread_local std::vector<std::pair<cudaStream_t, call>> group_calls, held_calls;
thread_local std::vector<std::shared_ptr<member>> group_inits;

ncclResult_t refuse(ncclResult_t result, member *m, const char *text)
{
    fail(cudaErrorInvalidValue, "NCCL: %s", text);
    if (m) {
        m->message = text;
    }
    return result;
}
} // namespace

std::set<void *> &nccl_memory()
{
    static std::set<void *> addresses;
    return addresses;
}

void drop_communicators()
{
    meeting_places().clear();
    nccl_memory().clear();
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
    return m.aborted || m.group->failed ? ncclInvalidUsage : ncclSuccess;
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

/* The handle goes; the last one breaks the circle of references. NCCL waits here, destroyed or
 * aborted, until no graph holds calls of the communicator. */
void hand_back(ncclComm_t comm)
{
    std::shared_ptr<member> m = comm->m;
    if (in_graphs(*m)) {
        fail(cudaErrorUnknown, "NCCL: a communicator ends, and a graph with its calls does not");
    }
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
    std::vector<std::pair<cudaStream_t, std::vector<call>>> works;
    for (auto &[stream, c] : calls) {
        auto same = std::find_if(works.begin(), works.end(),
                                 [s = stream](const auto &w) { return w.first == s; });
        if (same == works.end()) {
            works.push_back({stream, {}});
            same = works.end() - 1;
        }
        same->second.push_back(c);
    }
    calls.clear();
    for (auto &[stream, list] : works) {
        if (submit(lock, stream, make_nccl_work(list)) != cudaSuccess) {
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
    if (c.who->rank == 0 && fault_now(CUDA_EMU_SWAP_CALLS)) {
        held_calls.push_back({stream, c});
        return ncclSuccess;
    }
    group_calls.push_back({stream, c});
    group_calls.insert(group_calls.end(), held_calls.begin(), held_calls.end());
    held_calls.clear();
    if (group_depth > 0) {
        return ncclSuccess;
    }
    /* Calls outside of a group do not belong together. */
    std::vector<std::pair<cudaStream_t, call>> calls = std::move(group_calls);
    group_calls.clear();
    for (auto &one : calls) {
        std::vector<std::pair<cudaStream_t, call>> alone = {one};
        result = result == ncclSuccess ? submit_calls(lock, alone) : result;
    }
    return result;
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
    if (cudaMalloc(address, bytes) != cudaSuccess) {
        return ncclUnhandledCudaError;
    }
    guard lock(all().mutex);
    nccl_memory().insert(*address);
    all().counters.live_nccl++;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *address)
{
    {
        guard lock(all().mutex);
        if (nccl_memory().erase(address) == 0) {
            return refuse(ncclInvalidArgument, nullptr, "memory that ncclMemAlloc has not given");
        }
        all().counters.live_nccl--;
    }
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
