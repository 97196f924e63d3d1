/* The time of a collective from the constants of the network levels that its group crosses
 * (docs/cost-model.md, "Collectives"). */
#include "cost_models/machine/coll.h"

#include <math.h>
#include <string.h>

/* The kind whose constants one without its own takes. */
static const dtp_coll_kind ALIKE[DTP_N_COLLS] = {DTP_ALL_REDUCE, DTP_ALL_GATHER, DTP_ALL_GATHER,
                                                 DTP_ALL_TO_ALL, DTP_ALL_TO_ALL};

dtp_coll_rate dtp_level_rate(const dtp_level *level, dtp_coll_kind kind)
{
    const dtp_coll_rate *own = &level->rates[kind], *other = &level->rates[ALIKE[kind]];
    const dtp_coll_rate plain = {
        .rank_s = level->latency_s, .share = 1.0, .in_switch = DTP_NO_SWITCH};
    return own->share > 0.0 ? *own : other->share > 0.0 ? *other : plain;
}

void dtp_level_borrow(dtp_level *to, const dtp_level *from)
{
    static const double MOST = 0.97; /* of an adapter of 200 Gb/s (NVIDIA/nccl#1272) */
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        to->rates[k] = from->rates[k];
        to->rates[k].ramp_bytes *= to->bw_Bps / from->bw_Bps;
    }
    dtp_coll_rate *send = &to->rates[DTP_PERMUTE];
    send->share = fmin(send->share * from->bw_Bps / to->bw_Bps, fmax(send->share, MOST));
}

/* What a collective does on one level. */
typedef struct traffic {
    double steps; /* that add to the start, one after the other */
    double bytes; /* through the link of an inner block, each direction */
    bool ring;    /* one ring through all members */
} traffic;

/* `inside` members of the group lie in an inner block of the level. Steps go round a ring, or down
 * a tree whose steps take three times as long, since each passes on to two and back. */
static traffic traffic_of(const dtp_coll_call *call, const dtp_group_shape *g, int32_t level,
                          double inside, double in_switch)
{
    const double n = g->ranks, members = g->members[level], ring = (n - 1.0) / n;
    switch (call->kind) {
    case DTP_ALL_REDUCE: /* a ring or tree on every level; two blocks exchange their sums */
        return (traffic){fmin(members - 1.0, 3.0 * log2(members)),
                         call->bytes * (level == g->outer && g->members[level] == 2
                                            ? 1.0
                                            : fmin(2.0 * ring, in_switch)),
                         false};
    case DTP_ALL_TO_ALL: /* what the members inside have for others in the block of the level */
        return (traffic){n - 1.0, call->bytes * (members - 1.0) * inside / n * inside, false};
    case DTP_PERMUTE: /* what the last `shift` members of the block send, at most all of them; each
                         through its own adapter takes as long as all of them do */
        return (traffic){
            1.0, call->bytes * (g->adapters ? inside : fmin(inside, fabs((double)call->shift))),
            false};
    default: /* all members in one ring, at the pace of the outermost level */
        return (traffic){n - 1.0, call->bytes * ring, true};
    }
}

/* The levels work side by side, so the slowest decides the rate; their ramps add up, because short
 * messages leave nothing to do side by side. The start is that of the outermost level, of an
 * all-reduce the sum over the levels, which wait for each other. A group with a share of a link has
 * the same share of the bytes that its ramp takes. */
dtp_coll_time dtp_coll_time_of(const dtp_level *levels, const dtp_group_shape *g,
                               const dtp_coll_call *call)
{
    dtp_coll_time t = {0.0, 0.0};
    double inside = 1.0, slowest_s = 0.0;
    for (int32_t l = 0; l <= g->outer; inside *= g->members[l], l++) {
        if (g->members[l] < 2) {
            continue;
        }
        const dtp_coll_rate r = dtp_level_rate(&levels[l], call->kind);
        const traffic of = traffic_of(call, g, l, inside, r.in_switch);
        const double start_s = r.start_s + r.rank_s * of.steps;
        t.start_s += call->kind == DTP_ALL_REDUCE || l == g->outer ? start_s : 0.0;
        t.start_s += of.ring ? levels[l].hop_s * (g->members[l] - 1.0) : 0.0;
        const double byte_s = g->sharing[l] / (levels[l].bw_Bps * r.share);
        t.transfer_s += sqrt(of.bytes * (r.ramp_bytes / g->sharing[l])) * byte_s;
        slowest_s = fmax(slowest_s, of.bytes * byte_s);
    }
    t.transfer_s += slowest_s;
    return t;
}

dtp_status dtp_group_filling(const dtp_machine *m, int32_t level, int32_t ranks, int32_t hosts,
                             dtp_group_shape *out, dtp_err *err)
{
    dtp_group_shape g = {.ranks = ranks, .outer = -1, .adapters = dtp_machine_has_adapters(m)};
    int32_t rest = hosts > 0 && ranks % hosts == 0 ? ranks / hosts : 0;
    for (int32_t l = 0; l < m->n_levels; l++) {
        const bool across = l == level && hosts > 1;
        const int32_t size = m->levels[l].size;
        g.sharing[l] = 1.0;
        g.members[l] = across ? hosts : l > level ? 1 : rest < size ? rest : size;
        if (g.members[l] > size || rest % (across ? 1 : g.members[l] > 0 ? g.members[l] : 1) != 0) {
            rest = 0;
            break;
        }
        rest /= across ? 1 : g.members[l] > 0 ? g.members[l] : 1;
        g.outer = g.members[l] > 1 ? l : g.outer;
    }
    if (rest != 1 || g.outer != level) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: no group of %d ranks on %d host%s has level '%s' as its outermost",
                        m->place, ranks, hosts, hosts == 1 ? "" : "s", m->levels[level].name);
    }
    *out = g;
    return DTP_OK;
}
