/* What is predicted of a step (docs/cost-model.md): of a program, and of a sharding that is
 * lowered. */
#include "cost_models/predict.h"

#include <math.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "core/base/stop.h"
#include "cost_models/price_limit.h"
#include "cost_models/timeline.h"
#include "spmd/lower/fsdp_memory.h"
#include "spmd/lower/overlap.h"

/* Of a card of the kind cuda, on which programs run. PyTorch says how much a card has (79.1 to 79.2
 * GiB of an H100's or A100's 80, 39.5 of 40, 31.4 of 32) and what its process has there beside the
 * allocator's blocks, 0.5 GiB without communicators (pytorch's out-of-memory messages). NCCL has
 * some 9 MiB per channel and peer (NCCL 2.19: 4, 4.7 and 0.25 MiB for its three protocols). */
#define OF_DRIVER 0.012
#define OF_PROCESS (1024.0 * 1024.0 * 1024.0)

int64_t dtp_memory_limit(const dtp_machine *machine, const dtp_target *target)
{
    const double reserve = target->reserve > 0.0 ? target->reserve : 1.0;
    const double all = (double)machine->memory_bytes;
    const bool cuda = strcmp(machine->kind, "cuda") == 0;
    const double free = cuda ? all * (1.0 - OF_DRIVER) - fmin(OF_PROCESS, all / 16.0) : all;
    return (int64_t)(free / reserve);
}

static dtp_status predict_memory(const dtp_program *p, dtp_prediction *out, dtp_err *err)
{
    const double reserved = p->target->reserve * (double)p->peak_bytes;
    if (!(reserved < 9.2e18)) {
        return DTP_FAIL(err, DTP_RANGE, "what the allocator reserves exceeds 2^63 bytes");
    }
    out->peak_bytes = p->peak_bytes;
    out->reserved_bytes = (int64_t)reserved;
    return DTP_OK;
}

dtp_status dtp_predict_counts(const dtp_program *p, dtp_prediction *out, dtp_err *err)
{
    *out = (dtp_prediction){0};
    DTP_TRY(predict_memory(p, out, err));
    for (int k = 0; k < DTP_N_COLLS; k++) {
        out->collectives[k].kind = dtp_coll_name((dtp_coll_kind)k);
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind == DTP_INSTR_START) {
            const dtp_coll *coll = &instr->coll;
            int32_t runs = dtp_instr_runs(p, instr);
            const int32_t ranks = dtp_mesh_set_size(&p->mesh, coll->set);
            const double bytes = dtp_coll_full_bytes(coll->kind, coll->count, coll->dtype, ranks);
            int64_t all;
            out->collectives[coll->kind].count += runs;
            if (!(bytes < 9.2e18) || !dtp_mul_i64((int64_t)bytes, runs, &all) ||
                !dtp_add_i64(out->collectives[coll->kind].bytes, all,
                             &out->collectives[coll->kind].bytes)) {
                return DTP_FAIL(err, DTP_RANGE, "the bytes of all %s of a step exceed 2^63",
                                dtp_coll_name(coll->kind));
            }
        }
    }
    return DTP_OK;
}

/* Times of a program whose instructions have prices. */
static dtp_status simulate(const dtp_pricer *pricer, const dtp_program *p, dtp_prediction *out,
                           dtp_err *err)
{
    out->exposed_comm_s = out->comm_s;
    out->step_time_s = 0.0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        out->step_time_s += dtp_instr_runs(p, &p->instrs[i]) * p->instrs[i].time_s;
    }
    if (dtp_pricer_overlaps(pricer)) {
        dtp_schedule_result timeline;
        if (!dtp_schedule_program(p, pricer->machine, &timeline, NULL)) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                            p->n_instrs);
        }
        out->step_time_s = timeline.end_s;
        out->exposed_comm_s = timeline.exposed_comm_s;
        out->host_s = timeline.host_s;
    }
    out->skew_s = pricer->skew * out->compute_s;
    out->step_time_s += out->skew_s;
    return DTP_OK;
}

dtp_status dtp_predict(const dtp_pricer *pricer, dtp_program *p, dtp_prediction *out, dtp_err *err)
{
    DTP_TRY(dtp_predict_counts(p, out, err));
    dtp_dearest dearest = {0};
    int64_t sum = 0;
    DTP_TRY(dtp_program_price(pricer, p, &dearest, &sum, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const double all_s = dtp_instr_runs(p, instr) * instr->time_s;
        if (instr->kind == DTP_INSTR_START) {
            out->comm_s += all_s;
        } else {
            out->compute_s += all_s;
            dtp_price_parts(pricer, p, instr, dtp_instr_runs(p, instr), out->compute_parts_s);
        }
    }
    return simulate(pricer, p, out, err);
}

dtp_status dtp_additive_cost(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                             const dtp_redistributor *redistributor, int64_t *cost_ps, dtp_err *err)
{
    const dtp_lower_options plain = {
        .redistributor = redistributor, .target = pricer->target, .plain = true, .unplaced = true};
    dtp_program *program = NULL;
    DTP_TRY(dtp_lower(g, s, &plain, &program, err));
    dtp_dearest dearest = {0};
    const dtp_status status = dtp_program_price(pricer, program, &dearest, cost_ps, err);
    dtp_program_destroy(program);
    return status;
}

dtp_status dtp_program_additive_cost(const dtp_pricer *pricer, const dtp_program *p,
                                     int64_t *cost_ps, dtp_err *err)
{
    dtp_dearest dearest = {0};
    return dtp_program_price(pricer, p->plain, &dearest, cost_ps, err);
}

/* Depths that are tried, the least of equal ones first. */
static const int32_t DEPTHS[] = {1, 2, 4, 8, 16, 32, DTP_OVERLAP_MAX_DEPTH};
static const double GAIN = 0.001; /* what a deeper one, or another bucket, must save of the step */
static const double NEAR = 1.1;   /* buckets may save that much of a step */
static const double EQUAL = 1e-9; /* steps that differ by less of them are equally long */
enum { N_DEPTHS = sizeof DEPTHS / sizeof DEPTHS[0], MAX_LOWERED = 3 };

/* The depth with the shortest step of a priced program, in *best and *best_s, which are those of
 * the program as it is. */
static dtp_status try_depths(const dtp_pricer *pricer, const dtp_program *p, dtp_arena *arena,
                             dtp_overlap *best, double *best_s, dtp_err *err)
{
    dtp_overlap_orders *orders;
    dtp_program trial = *p;
    dtp_overlap overlap = *best;
    trial.instrs = NULL;
    DTP_TRY(dtp_overlap_orders_create(p, arena, &orders, err));
    const int32_t fsdp = p->target->fsdp ? dtp_fsdp_depth(p) : 0;
    const int32_t most = fsdp > 0 ? fsdp : DTP_OVERLAP_MAX_DEPTH;
    for (int32_t i = 0; i < N_DEPTHS && DEPTHS[i] <= most && !dtp_stopped(pricer->stop); i++) {
        dtp_schedule_result timeline;
        overlap.depth = DEPTHS[i];
        DTP_TRY(dtp_overlap_order(orders, &overlap, arena, &trial.instrs, &trial.n_instrs, err));
        if (!dtp_schedule_program(&trial, pricer->machine, &timeline, NULL)) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                            p->n_instrs);
        }
        if (timeline.end_s < *best_s * (1.0 - GAIN)) {
            *best = overlap;
            *best_s = timeline.end_s;
        }
    }
    return DTP_OK;
}

/* The bytes that overlap may need: those of a limit, or of the device where there is none (0), and
 * what is needed anyway. */
static int64_t memory_for(const dtp_pricer *pricer, int64_t limit, int64_t peak)
{
    limit = limit > 0 ? limit : pricer->machine->memory_bytes;
    return limit > peak ? limit : peak;
}

/* Bytes of an all-reduce over all ranks that takes BUCKET_LATENCIES times its latency, a power of
 * two in the range of buckets. */
static int64_t bucket_for(const dtp_pricer *pricer)
{
    enum { MANY = 16 << 20, BUCKET_LATENCIES = 16 };
    dtp_coll coll = {.kind = DTP_ALL_REDUCE,
                     .set = ((dtp_mesh_set)1 << pricer->mesh.n_dims) - 1,
                     .dtype = DTP_F32,
                     .count = 1};
    const double latency_s = dtp_price_coll(pricer, &coll);
    coll.count = MANY;
    const double moving_s = dtp_price_coll(pricer, &coll) - latency_s;
    int64_t bytes = DTP_MIN_BUCKET_BYTES;
    while (bytes < DTP_MAX_BUCKET_BYTES &&
           moving_s * (double)bytes < BUCKET_LATENCIES * latency_s * (4.0 * MANY)) {
        bytes *= 2;
    }
    return bytes;
}

/* Times of a priced program in another order, in which other kernels may be joined. */
static dtp_status predict_order(const dtp_pricer *pricer, dtp_program *p, dtp_prediction *out,
                                dtp_err *err)
{
    return p->joins ? dtp_predict(pricer, p, out, err) : simulate(pricer, p, out, err);
}

/* Gives a priced serial program the best order within `limit` bytes, or within its peak where that
 * is larger. The arena has gaps, so it may need more than the bytes that are needed at a time: then
 * the order has to do with less of these, unless the serial program exceeds the limit. No order is
 * given to a program whose step is not shorter than below_s with it. */
static dtp_status choose_overlap(const dtp_pricer *pricer, dtp_program *p, int64_t limit, bool fits,
                                 double below_s, dtp_prediction *predicted, dtp_err *err)
{
    const bool buffers = pricer->target->buffers;
    const bool exceeds = !buffers && memory_for(pricer, limit, 0) < p->peak_bytes;
    limit = buffers ? p->peak_bytes : memory_for(pricer, limit, p->peak_bytes);
    dtp_overlap best = p->overlap;
    best.memory_bytes = limit;
    double best_s = predicted->step_time_s - predicted->skew_s;
    dtp_arena *arena = dtp_arena_create();
    const dtp_status s = try_depths(pricer, p, arena, &best, &best_s, err);
    dtp_arena_destroy(arena);
    DTP_TRY(s);
    if (!fits) {
        DTP_TRY(dtp_program_overlap(p, &best, true, err));
        return predict_order(pricer, p, predicted, err);
    }
    if (!p->joins && best_s + predicted->skew_s >= below_s) {
        predicted->step_time_s = best_s + predicted->skew_s;
        return DTP_OK;
    }
    for (int32_t i = 0; best.depth > 0; i++) {
        DTP_TRY(dtp_program_overlap(p, &best, true, err));
        DTP_TRY(dtp_program_place(p, 0, err));
        const int64_t over = p->peak_bytes - limit;
        if (over <= 0 || exceeds) {
            return predict_order(pricer, p, predicted, err);
        }
        best.memory_bytes -= over;
        best.depth = i < MAX_LOWERED && best.memory_bytes > 0 ? best.depth : best.depth / 2;
    }
    return dtp_program_overlap(p, &best, false, err); /* what was placed had another order */
}

/* Lets as much run once for all microbatches as memory allows, of a program with which all that
 * `limit` bytes allow does; `enough` as dtp_program_place. */
static dtp_status arrange_once(const dtp_lower_options *options, int64_t limit, int64_t enough,
                               dtp_program *p, dtp_err *err)
{
    dtp_lower_options within = *options;
    DTP_TRY(dtp_program_place(p, enough, err));
    for (int32_t i = 0; i <= MAX_LOWERED; i++) {
        const int64_t over = p->peak_bytes - limit, needed = p->overlap.once_bytes;
        if (over <= 0 || needed == 0 || needed > limit) { /* it fits, or does not without either */
            return DTP_OK;
        }
        within.overlap.once_bytes = i < MAX_LOWERED ? needed - over : 0;
        DTP_TRY(dtp_program_arrange(p, &within, err));
        DTP_TRY(dtp_program_place(p, enough, err));
    }
    return DTP_OK;
}

/* Chooses what dtp_sharding_program does but the buckets, which `p` has. A program whose step is
 * not shorter than below_s may be left without the memory plan that it would run with. */
static dtp_status choose(const dtp_pricer *pricer, dtp_lower_options *options, double below_s,
                         dtp_program *p, dtp_prediction *predicted, dtp_err *err)
{
    const int64_t limit = memory_for(pricer, options->overlap.memory_bytes, 0);
    const int64_t fit = options->fit_bytes;
    if (options->overlap.depth != DTP_OVERLAP_CHOOSE) {
        return dtp_predict(pricer, p, predicted, err);
    }
    DTP_TRY(arrange_once(options, limit, fit > 0 && fit < limit ? fit : limit, p, err));
    const bool fits = fit == 0 || p->peak_bytes <= fit;
    const dtp_overlap serial = p->overlap;
    DTP_TRY(dtp_predict(pricer, p, predicted, err));
    if (dtp_pricer_overlaps(pricer) && predicted->comm_s > 0.0 && !dtp_stopped(pricer->stop)) {
        DTP_TRY(choose_overlap(pricer, p, options->overlap.memory_bytes, fits, below_s, predicted,
                               err));
    }
    if (p->overlap.depth == 0 && predicted->step_time_s < below_s) {
        DTP_TRY(dtp_program_place(p, 0, err));
    }
    options->overlap = fits ? p->overlap : serial;
    return predict_memory(p, predicted, err);
}

static bool same_ids(int32_t n, const dtp_value_id *a, const dtp_value_id *b)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Whether two arrangements of one program are the same, before overlap. */
static bool arranged_alike(const dtp_program *a, const dtp_program *b)
{
    bool same = a->n_serial == b->n_serial && a->n_values == b->n_values;
    for (int32_t i = 0; same && i < a->n_serial; i++) {
        const dtp_instr *x = &a->serial[i], *y = &b->serial[i];
        same = x->kind == y->kind && x->node == y->node && x->phase == y->phase &&
               x->once == y->once && x->n_in == y->n_in && x->n_out == y->n_out &&
               same_ids(x->n_in, x->in, y->in) && same_ids(x->n_out, x->out, y->out);
    }
    return same;
}

/* Buckets of the size that suits the links, where a step is shorter with them, or as long with less
 * time in collectives: what is hidden under kernels takes launches and links all the same. On fast
 * links they are larger, on slow ones smaller, as the last of them then has less to wait for. */
static dtp_status choose_buckets(const dtp_pricer *pricer, const dtp_lower_options *asked,
                                 dtp_lower_options *options, dtp_program *p,
                                 dtp_prediction *predicted, dtp_err *err)
{
    const int64_t limit = memory_for(pricer, asked->overlap.memory_bytes, predicted->peak_bytes);
    const double below_s = predicted->step_time_s * (1.0 + EQUAL);
    const dtp_program before = *p;
    dtp_lower_options suited = *asked;
    dtp_prediction with;
    suited.overlap.bucket_bytes = bucket_for(pricer);
    if (suited.overlap.bucket_bytes == options->overlap.bucket_bytes) {
        return DTP_OK;
    }
    DTP_TRY(dtp_program_arrange(p, &suited, err));
    if (arranged_alike(p, &before)) {
        *p = before;
        return DTP_OK;
    }
    DTP_TRY(choose(pricer, &suited, below_s, p, &with, err));
    const bool shorter = with.step_time_s < predicted->step_time_s * (1.0 - GAIN);
    const bool less = with.step_time_s < below_s && with.comm_s < predicted->comm_s;
    if ((shorter || less) && with.peak_bytes <= limit) {
        *predicted = with;
        *options = suited;
    } else {
        *p = before;
    }
    return DTP_OK;
}

dtp_status dtp_sharding_program(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                                dtp_lower_options *options, dtp_prediction *predicted,
                                dtp_program **out, dtp_err *err)
{
    const bool chosen = options->overlap.depth == DTP_OVERLAP_CHOOSE;
    dtp_lower_options asked = *options;
    asked.kept = true;
    asked.unplaced = asked.unplaced || chosen; /* until it is chosen */
    if (chosen && asked.overlap.once_bytes > 0) {
        asked.overlap.once_bytes = memory_for(pricer, asked.overlap.memory_bytes, 0);
    }
    dtp_lower_options taken = asked;
    DTP_TRY(dtp_lower(g, s, &asked, out, err));
    dtp_program *p = *out;
    const double below_s = asked.below_s > 0.0 ? asked.below_s : (double)INFINITY;
    dtp_status status = choose(pricer, &taken, below_s, p, predicted, err);
    if (status == DTP_OK && chosen && asked.overlap.bucket_bytes > 0 && predicted->comm_s > 0.0 &&
        !(asked.fit_bytes > 0 && predicted->peak_bytes > asked.fit_bytes) &&
        predicted->step_time_s < below_s * NEAR && !dtp_stopped(pricer->stop)) {
        status = choose_buckets(pricer, &asked, &taken, p, predicted, err);
    }
    const bool runs = p->overlap.depth == taken.overlap.depth; /* else it is only simulated */
    options->overlap = taken.overlap;
    status = status == DTP_OK && runs ? dtp_program_check(p, err) : status;
    if (status != DTP_OK) {
        dtp_program_destroy(p);
        *out = NULL;
    }
    return status;
}

dtp_status dtp_sharding_predict(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_sharding *sharding, dtp_lower_options *options,
                                dtp_prediction *predicted, int64_t *cost_ps, dtp_err *err)
{
    dtp_program *program = NULL;
    DTP_TRY(dtp_sharding_program(g, pricer, sharding, options, predicted, &program, err));
    const dtp_status status =
        cost_ps != NULL ? dtp_program_additive_cost(pricer, program, cost_ps, err) : DTP_OK;
    dtp_program_destroy(program);
    return status;
}
