/* Ranks that disagree on what they run: every rank gets an error that names both sides, none
 * hangs, and later calls fail at once. */
#include "tests/comm/comm_misuse.h"

#include <string.h>
#include <time.h>

#include "tests/support/misuse_main.h"

enum { COUNT = 4, MAX_RANKS = 16, STEPS = 200 };

static dtp_status collective(dtp_comm *c, dtp_coll_kind kind, dtp_mesh_set set, int64_t count,
                             dtp_err *err)
{
    float in[COUNT * MAX_RANKS] = {0}, out[COUNT * MAX_RANKS];
    dtp_coll coll = {.kind = kind, .set = set, .dtype = DTP_F32, .count = count};
    return c->ops->run(c, &coll, in, out, err);
}

/* The call failed with all these words, and so does the next. */
static dtp_status expect(dtp_comm *c, dtp_status got, const dtp_err *said, const char *first,
                         const char *second, dtp_err *err)
{
    if (got != DTP_COMM || strstr(said->msg, first) == NULL || strstr(said->msg, second) == NULL) {
        return DTP_FAIL(
            err, DTP_INTERNAL, "rank %d: got '%s' ('%.600s'), expected an error with '%s' and '%s'",
            c->rank, dtp_status_text(got), got == DTP_OK ? "" : said->msg, first, second);
    }
    dtp_err again = {0};
    got = collective(c, DTP_ALL_REDUCE, 1, 1, &again);
    if (got != DTP_COMM || again.msg[0] == '\0') {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d: the next call gave '%s'", c->rank,
                        dtp_status_text(got));
    }
    return DTP_OK;
}

static dtp_status other_kind(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    dtp_coll_kind kind = c->rank == 0 ? DTP_ALL_REDUCE : DTP_ALL_GATHER;
    dtp_status s = collective(c, kind, 1, COUNT, &said);
    return expect(c, s, &said, "rank 0: all_reduce sum", "rank 1: all_gather", err);
}

static dtp_status other_count(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    bool last = c->rank == c->size - 1;
    char other[32] = "rank 1: all_reduce sum";
    other[5] = (char)('0' + c->size - 1);
    dtp_status s = collective(c, DTP_ALL_REDUCE, 1, last ? 3 : 2, &said);
    return expect(c, s, &said, "of 2 x f32", other, err);
}

static dtp_status barrier_or_not(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    dtp_status s =
        c->rank == 0 ? c->ops->barrier(c, &said) : collective(c, DTP_ALL_TO_ALL, 1, COUNT, &said);
    return expect(c, s, &said, "rank 0: barrier", ": all_to_all", err); /* of any other rank */
}

/* Rank 0 makes fewer calls than the others. */
static dtp_status ends_early(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    dtp_status s = DTP_OK;
    for (int i = 0; i < 5 && s == DTP_OK; i++) {
        if (c->rank == 0 && i == 3) {
            return DTP_OK;
        }
        s = collective(c, DTP_ALL_REDUCE, 1, COUNT, &said);
    }
    return expect(c, s, &said, "rank 0: has ended", "rank 1: all_reduce sum", err);
}

static dtp_status ends_before_barrier(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    if (c->rank == c->size - 1) {
        return DTP_OK;
    }
    dtp_status s = c->ops->barrier(c, &said);
    return expect(c, s, &said, "rank 0: barrier", "has ended", err);
}

static dtp_status one_fails(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    if (c->rank == c->size - 1) {
        dtp_comm_abort(c, "on purpose");
    }
    dtp_status s = collective(c, DTP_ALL_REDUCE, 1, COUNT, &said);
    return expect(c, s, &said, "gives up because rank", "on purpose", err);
}

/* Ranks 0 1 2 3 at (0,0) (0,1) (1,0) (1,1): each waits for a neighbour that waits for the next. */
static dtp_status in_a_circle(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    dtp_mesh_set set = c->rank == 0 || c->rank == 3 ? 2 : 1;
    dtp_status s = collective(c, DTP_ALL_REDUCE, set, COUNT, &said);
    return expect(c, s, &said, "rank 0: all_reduce sum over mesh dim 'y'",
                  "rank 1: all_reduce sum over mesh dim 'x'", err);
}

/* Ranks 0 and 1 disagree; 2 and 3 work on and learn of it when they meet them. */
static dtp_status bystanders(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    dtp_err said = {0};
    dtp_status s = DTP_OK;
    if (c->rank == 0) {
        s = c->ops->barrier(c, &said);
    } else {
        for (int i = 0; i < STEPS && s == DTP_OK; i++) {
            s = collective(c, DTP_ALL_REDUCE, 2, COUNT, &said);
            misuse_progress();
        }
        s = s == DTP_OK ? collective(c, DTP_ALL_REDUCE, 1, COUNT, &said) : s;
    }
    return expect(c, s, &said, "rank 0: barrier", "rank 1: all_reduce sum over mesh dim 'y'", err);
}

/* Ranks that agree but come late: nobody is told off. */
static dtp_status only_late(dtp_comm *c, void *user, dtp_err *err)
{
    (void)user;
    uint32_t mine = 17U * (uint32_t)c->rank + 3U, ours = 5U;
    dtp_mesh_set all = ((dtp_mesh_set)1 << c->mesh.n_dims) - 1;
    for (int i = 0; i < STEPS; i++) {
        mine = mine * 1103515245U + 12345U;
        ours = ours * 1103515245U + 12345U;
        const struct timespec pause = {.tv_nsec = (long)(mine >> 16 & 7U) * 1000000L};
        nanosleep(&pause, NULL);
        DTP_TRY(collective(c, DTP_ALL_REDUCE, 1 + (ours >> 16) % all, COUNT, err));
        if ((ours >> 24) % 8U == 0) {
            DTP_TRY(c->ops->barrier(c, err));
        }
        misuse_progress();
    }
    return DTP_OK;
}

const comm_misuse comm_misuses[] = {
    {"other_kind", 1, other_kind},
    {"other_count", 1, other_count},
    {"barrier_or_not", 1, barrier_or_not},
    {"ends_early", 1, ends_early},
    {"ends_before_barrier", 1, ends_before_barrier},
    {"one_fails", 1, one_fails},
    {"only_late", 1, only_late},
    {"in_a_circle", 2, in_a_circle},
    {"bystanders", 2, bystanders},
    {"only_late", 2, only_late},
};
const int32_t comm_n_misuses = sizeof comm_misuses / sizeof comm_misuses[0];
