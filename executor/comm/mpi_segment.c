/* The memory that the ranks of one host share, and its registered parts (mpi_internal.h).
 *
 * A segment is an unlinked POSIX shared memory object as large as the machine's memory, of which
 * only registered memory is backed; peers open it through /proc while its owner is known to be
 * alive. Where that does not work, nothing is shared.
 */
#include "executor/comm/mpi_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/base/safe_int.h"
#include "executor/device/cpus.h"

enum {
    /* looks at a mailbox before the core is offered to others: when each rank has a core of its
     * own, and when not */
    SPINS = 1 << 20,
    SPINS_CROWDED = 64
};

/* ---- segments ---- */

/* What a rank tells those of its host about its segment. */
typedef struct offer {
    int64_t rank, pid, fd, bytes;
    uint64_t token, cpus;
} offer;

/* As large as memory, or as a file may be; 0 = unknown. */
static int64_t segment_bytes(void)
{
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE), bytes;
    struct rlimit limit;
    if (pages <= 0 || page <= 0 || !dtp_mul_i64(pages, page, &bytes)) {
        return 0;
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (int64_t)limit.rlim_cur < bytes) {
        bytes = (int64_t)limit.rlim_cur;
    }
    return bytes / DTP_COMM_PAGE_BYTES * DTP_COMM_PAGE_BYTES;
}

static dtp_comm__segment *map(int fd, int64_t bytes)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Makes the own segment. The name only lives until the object is open. */
static bool make_segment(dtp_comm__shared *s, offer *mine)
{
    char name[64];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    s->bytes = segment_bytes();
    if (s->bytes < (int64_t)sizeof(dtp_comm__segment) + DTP_COMM_PAGE_BYTES) {
        return false;
    }
    snprintf(name, sizeof name, "/dtp.%ld.%ld%09ld", (long)getpid(), (long)now.tv_sec, now.tv_nsec);
    s->fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (s->fd < 0) {
        return false;
    }
    shm_unlink(name);
    s->backed =
        dtp_ceil_div((int64_t)sizeof(dtp_comm__segment), DTP_COMM_PAGE_BYTES) * DTP_COMM_PAGE_BYTES;
    if (ftruncate(s->fd, s->bytes) != 0 || posix_fallocate(s->fd, 0, s->backed) != 0 ||
        !dtp_comm__free_list_init(&s->free_list, s->bytes - s->backed)) {
        return false;
    }
    dtp_comm__segment *own = map(s->fd, s->bytes);
    if (own == NULL) {
        return false;
    }
    own->token = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid() << 8 ^ (uint64_t)s->rank;
    s->bases[s->rank] = own;
    *mine = (offer){s->rank, getpid(), s->fd, s->bytes, own->token, dtp_cpus_key()};
    return true;
}

/* Maps the segment of a peer and makes sure that it is the one that was offered. */
static bool map_peer(dtp_comm__shared *s, const offer *o)
{
    char path[64];
    if (o->rank == s->rank) {
        return true;
    }
    if (o->rank < 0 || o->rank >= s->size || o->bytes != s->bytes) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, o->pid, o->fd);
    int fd = open(path, O_RDWR);
    if (fd < 0) {
        return false;
    }
    dtp_comm__segment *base = map(fd, o->bytes);
    close(fd);
    s->bases[o->rank] = base;
    return base != NULL && base->token == o->token;
}

/* Exchanges segments with the ranks of this host; *ok is the same on all of them. */
static int exchange_segments(dtp_comm__shared *s, MPI_Comm host, bool *ok)
{
    int n = 0;
    MPI_Comm_size(host, &n);
    offer mine = {.rank = -1};
    offer *offers = calloc((size_t)n, sizeof *offers);
    int good = n > 1 && offers != NULL && make_segment(s, &mine), all = 0;
    int code = MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, host);
    if (code == MPI_SUCCESS && all && offers != NULL) {
        code = MPI_Allgather(&mine, sizeof mine, MPI_BYTE, offers, sizeof mine, MPI_BYTE, host);
        /* looks before a wait offers the core to others: few where more ranks than processors
         * share them */
        int32_t alike = 0;
        for (int i = 0; i < n; i++) {
            alike += offers[i].cpus == mine.cpus ? 1 : 0;
        }
        s->spins = alike > dtp_cpus_usable() ? SPINS_CROWDED : SPINS;
        for (int i = 0; i < n && code == MPI_SUCCESS; i++) {
            good = good && map_peer(s, &offers[i]);
        }
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, host);
    }
    free(offers);
    *ok = code == MPI_SUCCESS && all;
    return code;
}

dtp_status dtp_comm__shared_create(const dtp_comm *base, MPI_Comm world, dtp_comm__shared **out,
                                   dtp_err *err)
{
    MPI_Comm host = MPI_COMM_NULL;
    bool ok = false;
    *out = NULL;
    dtp_arena *arena = dtp_arena_create();
    dtp_comm__shared *s = dtp_arena_alloc(arena, 1, sizeof *s);
    if (s == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for a communicator");
    }
    s->arena = arena;
    s->world = world;
    s->base = base;
    s->mesh = base->mesh;
    s->fd = -1;
    s->use = true;
    MPI_Comm_rank(world, &s->rank);
    MPI_Comm_size(world, &s->size);
    s->bases = dtp_arena_alloc(arena, (size_t)s->size, sizeof(dtp_comm__segment *));
    s->observed = dtp_arena_alloc(arena, (size_t)s->size, sizeof *s->observed);
    s->visits = dtp_arena_alloc(arena, (size_t)s->size, sizeof *s->visits);
    if (s->bases == NULL || s->observed == NULL || s->visits == NULL) {
        dtp_comm__shared_destroy(s);
        return DTP_FAIL(err, DTP_NOMEM, "no memory for a communicator");
    }
    int code = MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, s->rank, MPI_INFO_NULL, &host);
    if (code == MPI_SUCCESS) {
        code = exchange_segments(s, host, &ok);
        MPI_Comm_free(&host);
    }
    if (!ok) {
        dtp_comm__shared_destroy(s);
        return code == MPI_SUCCESS
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_COMM, "the ranks of this host could not meet");
    }
    *out = s;
    return DTP_OK;
}

void dtp_comm__shared_destroy(dtp_comm__shared *s)
{
    if (s == NULL) {
        return;
    }
    for (int32_t r = 0; r < s->size && s->bases != NULL; r++) {
        if (s->bases[r] != NULL) {
            munmap(s->bases[r], (size_t)s->bytes);
        }
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    dtp_comm__free_list_clear(&s->free_list);
    dtp_arena_destroy(s->arena);
}

void dtp_comm__shared_use(dtp_comm__shared *s, bool use)
{
    if (s != NULL) {
        s->use = use;
    }
}

/* ---- registered memory ---- */

/* Where registered memory begins in a segment. */
static int64_t registered_start(void)
{
    return dtp_ceil_div((int64_t)sizeof(dtp_comm__segment), DTP_COMM_PAGE_BYTES) *
           DTP_COMM_PAGE_BYTES;
}

void *dtp_comm__shared_alloc(dtp_comm__shared *s, size_t bytes)
{
    if (bytes < DTP_COMM_PAGE_BYTES || bytes > (size_t)s->bytes) {
        return NULL;
    }
    int64_t rounded = dtp_ceil_div((int64_t)bytes, DTP_COMM_PAGE_BYTES) * DTP_COMM_PAGE_BYTES;
    int64_t at = dtp_comm__free_list_take(&s->free_list, rounded);
    if (at < 0) {
        return NULL;
    }
    int64_t start = registered_start() + at, end = start + rounded;
    if (end > s->backed && posix_fallocate(s->fd, s->backed, end - s->backed) != 0) {
        (void)dtp_comm__free_list_release(&s->free_list, at);
        return NULL;
    }
    s->backed = end > s->backed ? end : s->backed;
    return (char *)s->bases[s->rank] + start;
}

int64_t dtp_comm__shared_offset(const dtp_comm__shared *s, const void *p)
{
    uintptr_t base = (uintptr_t)s->bases[s->rank], at = (uintptr_t)p;
    return at >= base && at - base < (uintptr_t)s->bytes ? (int64_t)(at - base) : -1;
}

bool dtp_comm__shared_free(dtp_comm__shared *s, void *ptr)
{
    int64_t at = dtp_comm__shared_offset(s, ptr);
    return at >= registered_start() &&
           dtp_comm__free_list_release(&s->free_list, at - registered_start());
}

dtp_mesh_set dtp_comm__mailbox_set(const dtp_comm__shared *s, int32_t mailbox)
{
    return mailbox == DTP_COMM_BARRIER ? ((dtp_mesh_set)1 << s->mesh.n_dims) - 1
                                       : (dtp_mesh_set)mailbox;
}
