/* Matching of NCCL calls. An operation is posted when it comes to the head of its stream, and done by
 * the last member that posts. Collectives of a communicator are matched by the order in which its
 * ranks call them, sends and receives by their order between two ranks. */
#include <algorithm>
#include <cstring>

#include "nccl_data.h"
#include "nccl_internal.h"

namespace emu
{

namespace
{

const char *const kind_names[] = {"AllReduce", "AllGather", "ReduceScatter",
                                  "Broadcast", "Send",      "Recv"};

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
std::string describe(const call &c)
{
    return std::string(kind_names[c.what]) + " of " + std::to_string(c.count) +
           " elements of type " + std::to_string(c.type) + ", operation " + std::to_string(c.op) +
           ", root or peer " + std::to_string(c.peer) + ", by rank " + std::to_string(c.who->rank);
}

} // namespace

bool collective(const call &c)
{
    return c.what != send && c.what != receive;
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

namespace
{

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

std::shared_ptr<work> make_nccl_work(const std::vector<call> &calls)
{
    auto what = std::make_shared<nccl_work>();
    what->name = kind_names[calls[0].what];
    what->calls = calls;
    return what;
}

bool in_graphs(const member &m)
{
    return in_graphs([&m](const work &what) {
        const nccl_work *calls = dynamic_cast<const nccl_work *>(&what);
        return calls && std::any_of(calls->calls.begin(), calls->calls.end(),
                                    [&m](const call &c) { return c.who.get() == &m; });
    });
}

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

} // namespace emu
