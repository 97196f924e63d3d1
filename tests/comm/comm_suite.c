/* The conformance suite of communicators and transports: the same checks for all. */
#include "tests/comm/comm_suite.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"

#include "executor/comm/sub_communicator.h"
#include "executor/device/convert.h"
#include "tests/comm/comm_buffers.h"

/* Input of a rank at element i. Products stay exact: values are -1, 1 or 2 there. Extrema are of
 * infinities and NaN, too. */
static double value(const dtp_coll *coll, int32_t rank, int64_t i)
{
    if (coll->dtype == DTP_BOOL) {
        return (double)((rank + i) % 2);
    }
    if (coll->op == DTP_REDUCE_PROD) {
        static const double small[] = {1, -1, 2};
        return small[(rank * 2 + i) % 3];
    }
    if (dtp_dtype_is_float(coll->dtype) &&
        (coll->op == DTP_REDUCE_MIN || coll->op == DTP_REDUCE_MAX)) {
        static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
        if ((rank * 5 + i) % 7 < 3) {
            return odd[(rank * 5 + i) % 7];
        }
    }
    return (double)((rank * 7 + i * 3) % 11 - 5);
}

static double combine(dtp_reduce_op op, double a, double b)
{
    switch (op) {
    case DTP_REDUCE_PROD: /* of bools: and */
        return a * b;
    case DTP_REDUCE_MIN:
        return a < b || isnan(a) ? a : b;
    case DTP_REDUCE_MAX:
        return a > b || isnan(a) ? a : b;
    default:
        return a + b;
    }
}

/* Where element i of a buffer of n parts belongs: which part, and which element of it. A buffer is
 * the array [outer, n, count / outer]. */
static void place(const dtp_coll *coll, int64_t outer, int64_t n, int64_t i, int64_t *part,
                  int64_t *element)
{
    int64_t run = coll->count / (outer > 1 ? outer : 1);
    *part = i / run % n;
    *element = i / (run * n) * run + i % run;
}

/* The inverse. */
static int64_t index_of(const dtp_coll *coll, int64_t outer, int64_t n, int64_t part,
                        int64_t element)
{
    int64_t run = coll->count / (outer > 1 ? outer : 1);
    return (element / run * n + part) * run + element % run;
}

/* Element i of the output of a rank, from the definition of the collective. */
static double expected(const dtp_comm *c, const dtp_coll *coll, int64_t i)
{
    int32_t n = dtp_mesh_set_size(&c->mesh, coll->set);
    int32_t me = dtp_mesh_set_index(&c->mesh, coll->set, c->rank);
    int64_t part, element;
    if (coll->kind == DTP_ALL_GATHER || coll->kind == DTP_ALL_TO_ALL) {
        place(coll, coll->out_outer, n, i, &part, &element);
        int32_t from = dtp_mesh_set_member(&c->mesh, coll->set, c->rank, (int32_t)part);
        return value(coll, from,
                     coll->kind == DTP_ALL_GATHER ? element
                                                  : index_of(coll, coll->in_outer, n, me, element));
    }
    if (coll->kind == DTP_PERMUTE) {
        int32_t from = me;
        for (int32_t k = 0; k < (coll->shift < 0 ? -coll->shift : coll->shift); k++) {
            from = (from + (coll->shift < 0 ? 1 : n - 1)) % n;
        }
        return value(coll, dtp_mesh_set_member(&c->mesh, coll->set, c->rank, from), i);
    }
    int64_t at = coll->kind == DTP_REDUCE_SCATTER ? index_of(coll, coll->in_outer, n, me, i) : i;
    double sum = 0;
    for (int32_t j = 0; j < n; j++) {
        double x = value(coll, dtp_mesh_set_member(&c->mesh, coll->set, c->rank, j), at);
        sum = j == 0 ? x : combine(coll->op, sum, x);
    }
    return sum;
}

static dtp_status one(dtp_comm *c, const dtp_coll *coll, bool in_place, comm_buffers *b,
                      dtp_err *err)
{
    int32_t n = dtp_mesh_set_size(&c->mesh, coll->set);
    bool many_in = coll->kind == DTP_REDUCE_SCATTER || coll->kind == DTP_ALL_TO_ALL;
    bool many_out = coll->kind == DTP_ALL_GATHER || coll->kind == DTP_ALL_TO_ALL;
    int64_t n_in = many_in ? n * coll->count : coll->count;
    int64_t n_out = many_out ? n * coll->count : coll->count;
    memset(b->in, 0x5a, (size_t)b->capacity);
    memset(b->out, 0x5a, (size_t)b->capacity);
    void *in = in_place ? b->out : b->in;
    for (int64_t i = 0; i < n_in; i++) {
        dtp_element_set(coll->dtype, in, i, value(coll, c->rank, i));
    }
    if (in_place && b->backend == NULL) {
        DTP_TRY(c->ops->run(c, coll, in, b->out, err));
    } else {
        DTP_TRY(comm_buffers_upload(b, err));
        DTP_TRY(dtp_transport_run(&c->transport, coll, comm_buffers_place(b, in),
                                  comm_buffers_place(b, b->out), err));
        DTP_TRY(comm_buffers_download(c, b, err));
    }
    for (int64_t i = 0; i < n_out; i++) {
        double got = dtp_element(coll->dtype, b->out, i), want = expected(c, coll, i);
        if (got != want && !(isnan(got) && isnan(want))) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "rank %d: %s set 0x%x op %s type %s count %" PRId64 " outers %" PRId64
                            " %" PRId64 " shift %d%s: element %" PRId64 " is %g, expected %g",
                            c->rank, dtp_coll_name(coll->kind), (unsigned)coll->set,
                            dtp_reduce_op_name(coll->op), dtp_dtype_name(coll->dtype), coll->count,
                            coll->in_outer, coll->out_outer, coll->shift,
                            in_place ? " in place" : "", i, got, want);
        }
    }
    int64_t end = n_out * dtp_dtype_bytes(coll->dtype);
    if (!in_place && end < b->capacity && b->out[end] != 0x5a) {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d: %s wrote past its output", c->rank,
                        dtp_coll_name(coll->kind));
    }
    return DTP_OK;
}

static dtp_status both(dtp_comm *c, const dtp_coll *coll, comm_buffers *b, dtp_err *err)
{
    DTP_TRY(one(c, coll, false, b, err));
    /* a transport does nothing else in place */
    return b->backend == NULL || coll->kind == DTP_ALL_REDUCE ? one(c, coll, true, b, err) : DTP_OK;
}

static dtp_status all_ops(dtp_comm *c, dtp_coll coll, comm_buffers *b, dtp_err *err)
{
    static const dtp_reduce_op ops[] = {DTP_REDUCE_PROD, DTP_REDUCE_MIN, DTP_REDUCE_MAX,
                                        DTP_REDUCE_SUM};
    if (coll.kind != DTP_ALL_REDUCE && coll.kind != DTP_REDUCE_SCATTER) {
        return both(c, &coll, b, err);
    }
    for (size_t o = 0; o < 4; o++) {
        coll.op = ops[o];
        if (coll.dtype == DTP_BOOL && coll.op == DTP_REDUCE_SUM) {
            dtp_err quiet = {0};
            if ((b->backend == NULL
                     ? c->ops->run(c, &coll, b->in, b->out, &quiet)
                     : dtp_transport_run(&c->transport, &coll, b->device_in, b->device_out,
                                         &quiet)) != DTP_UNSUPPORTED) {
                return DTP_FAIL(err, DTP_INTERNAL, "a sum of bools was not refused");
            }
            continue;
        }
        DTP_TRY(both(c, &coll, b, err));
    }
    return DTP_OK;
}

/* Every way to cut the buffers of several parts that the count allows, and every shift. */
static dtp_status all_forms(dtp_comm *c, dtp_coll coll, comm_buffers *b, dtp_err *err)
{
    static const int64_t outers[] = {0, 5, 25, 1};
    static const int32_t shifts[] = {1, -8, 0, -1, 2, 7};
    bool all = coll.dtype == DTP_F32 && coll.count < 2500; /* otherwise some of them */
    bool many_in = coll.kind == DTP_REDUCE_SCATTER || coll.kind == DTP_ALL_TO_ALL;
    bool many_out = coll.kind == DTP_ALL_GATHER || coll.kind == DTP_ALL_TO_ALL;
    for (size_t s = 0; coll.kind == DTP_PERMUTE && s < (all ? 6U : 1U); s++) {
        coll.shift = shifts[s];
        DTP_TRY(all_ops(c, coll, b, err));
    }
    for (size_t i = 0; i < (many_in ? all ? 4U : 2U : 1U) && coll.kind != DTP_PERMUTE; i++) {
        for (size_t o = 0; o < (many_out ? all ? 4U : 2U : 1U); o++) {
            coll.in_outer = many_in ? outers[i] : 0;
            coll.out_outer = many_out ? outers[o] : 0;
            bool whole = (coll.in_outer < 1 || coll.count % coll.in_outer == 0) &&
                         (coll.out_outer < 1 || coll.count % coll.out_outer == 0);
            bool strided = coll.in_outer > 1 || coll.out_outer > 1;
            if (whole && (c->transport.caps.strided || !strided)) {
                DTP_TRY(all_ops(c, coll, b, err));
            }
        }
    }
    return DTP_OK;
}

static dtp_status all_kinds(dtp_comm *c, dtp_mesh_set set, int64_t count, comm_buffers *b,
                            dtp_err *err)
{
    static const dtp_dtype types[] = {DTP_F32, DTP_BF16, DTP_F64, DTP_I32,
                                      DTP_I64, DTP_F16,  DTP_BOOL};
    for (int32_t kind = 0; kind < DTP_N_COLLS; kind++) {
        for (size_t t = 0; t < (count < 2500 ? 7U : 2U); t++) {
            dtp_coll coll = {
                .kind = (dtp_coll_kind)kind, .set = set, .dtype = types[t], .count = count};
            DTP_TRY(all_forms(c, coll, b, err));
        }
    }
    return DTP_OK;
}

static dtp_status run_all(dtp_comm *c, comm_buffers *b, dtp_err *err)
{
    static const int64_t counts[] = {0, 1, 25, 2500};
    for (dtp_mesh_set set = 0; set < (dtp_mesh_set)1 << c->mesh.n_dims; set++) {
        DTP_TRY(c->transport.ops->prepare(&c->transport, set, err));
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            DTP_TRY(all_kinds(c, set, counts[i], b, err));
        }
        DTP_TRY(c->ops->barrier(c, err));
    }
    return DTP_OK;
}

/* The suite in memory that the transport lends, when it does. */
static dtp_status run_lent(dtp_comm *c, comm_buffers b, dtp_err *err)
{
    dtp_status status = DTP_OK;
    dtp_transport *t = &c->transport;
    if (t->ops->register_memory == NULL || b.backend != NULL) {
        return DTP_OK;
    }
    b.in = t->ops->register_memory(t, (size_t)b.capacity);
    b.out = t->ops->register_memory(t, (size_t)b.capacity);
    if (b.in != NULL && b.out != NULL) {
        status = run_all(c, &b, err);
    }
    bool mine = t->ops->release_memory(t, b.in), none = t->ops->release_memory(t, &status);
    if (status == DTP_OK && (mine != (b.in != NULL) || none)) {
        status = DTP_FAIL(err, DTP_INTERNAL, "lent memory was not taken back");
    }
    (void)t->ops->release_memory(t, b.out);
    return status;
}

dtp_status comm_suite(dtp_comm *comm, void *user, dtp_err *err)
{
    comm_buffers b;
    DTP_TRY(comm_buffers_make(&b, (2500 * comm->size + 1) * 8, user, err));
    dtp_status status = run_all(comm, &b, err);
    if (status == DTP_OK) {
        status = run_lent(comm, b, err);
    }
    comm_buffers_destroy(&b);
    return status;
}

/* The message has the words of rank 0 and of the first rank that differs from it, on every rank,
 * and none of the values. */
static dtp_status agree_on_words(dtp_comm *comm, dtp_err *err)
{
    const bool last = comm->rank == comm->size - 1 && comm->size > 1;
    const uint64_t value = UINT64_C(0xdeadbeefdeadbeef) + (last ? 1 : 0);
    dtp_err said = {0};
    const dtp_status got =
        dtp_comm_agree_words(comm, value, "the call", last ? "mul(c)" : "add(a, b)", &said);
    char other[32];
    snprintf(other, sizeof other, "rank %d: mul(c)", comm->size - 1);
    const bool good = comm->size == 1
                          ? got == DTP_OK
                          : got == DTP_COMM && strstr(said.msg, "rank 0: add(a, b)") != NULL &&
                                strstr(said.msg, other) != NULL &&
                                strstr(said.msg, "deadbee") == NULL;
    return good ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "rank %d: %d '%.200s'", comm->rank, got, said.msg);
}

dtp_status comm_suite_agree(dtp_comm *comm, void *user, dtp_err *err)
{
    (void)user;
    static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_C(0x8000000000000000), 42};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        DTP_TRY(dtp_comm_agree(comm, values[i], "a value", err));
        uint64_t other =
            comm->rank == comm->size - 1 ? values[i] ^ (i % 2 ? 1 : UINT64_C(1) << 63) : values[i];
        dtp_err quiet = {0};
        dtp_status got = dtp_comm_agree(comm, other, "a value", &quiet);
        if ((got == DTP_COMM) != (comm->size > 1)) {
            return DTP_FAIL(err, DTP_INTERNAL, "rank %d: agreement on different values gave %d",
                            comm->rank, got);
        }
    }
    DTP_TRY(agree_on_words(comm, err));
    dtp_err mine = {0};
    bool fails = comm->rank == comm->size / 2;
    if (fails) {
        (void)DTP_FAIL(&mine, DTP_RANGE, "on purpose");
    }
    dtp_status got = dtp_comm_agree_status(comm, fails ? DTP_RANGE : DTP_OK, &mine);
    if (got != (fails ? DTP_RANGE : DTP_COMM)) {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d: settling gave %d", comm->rank, got);
    }
    return dtp_comm_agree_status(comm, DTP_OK, err);
}

/* ---- order ---- */

/* Values of many magnitudes: sums of them round at every step. */
static float uneven_value(int32_t rank, int64_t i)
{
    return (float)((rank * 37 + i * 11) % 101 - 50) * powf(3.0F, (float)((rank + i) % 13));
}

static dtp_status check_order(dtp_comm *c, const dtp_coll *coll, comm_buffers *b, dtp_err *err)
{
    int32_t n = dtp_mesh_set_size(&c->mesh, coll->set);
    int32_t me = dtp_mesh_set_index(&c->mesh, coll->set, c->rank);
    const void *out = b->out;
    DTP_TRY(comm_buffers_upload(b, err));
    DTP_TRY(b->backend == NULL
                ? c->ops->run(c, coll, b->in, b->out, err)
                : dtp_transport_run(&c->transport, coll, b->device_in, b->device_out, err));
    DTP_TRY(comm_buffers_download(c, b, err));
    for (int64_t i = 0; i < coll->count; i++) {
        uint16_t bits[2] = {0};
        float sum = 0;
        for (int32_t j = 0; j < n; j++) {
            int32_t rank = dtp_mesh_set_member(&c->mesh, coll->set, c->rank, j);
            int64_t at =
                coll->kind == DTP_REDUCE_SCATTER ? index_of(coll, coll->in_outer, n, me, i) : i;
            dtp_element_set(coll->dtype, bits, 0, (double)uneven_value(rank, at));
            float x = (float)dtp_element(coll->dtype, bits, 0);
            dtp_element_set(coll->dtype, bits, 0, (double)(j == 0 ? x : sum + x));
            sum = (float)dtp_element(coll->dtype, bits, 0);
        }
        float got = (float)dtp_element(coll->dtype, out, i);
        uint32_t got_bits, sum_bits;
        memcpy(&got_bits, &got, sizeof got);
        memcpy(&sum_bits, &sum, sizeof sum);
        if (got_bits != sum_bits) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "rank %d: %s of %s: element %" PRId64
                            " is %.9g, in member order it is %.9g",
                            c->rank, dtp_coll_name(coll->kind), dtp_dtype_name(coll->dtype), i,
                            (double)got, (double)sum);
        }
    }
    return DTP_OK;
}

static dtp_status run_order(dtp_comm *comm, comm_buffers *b, int64_t count, dtp_err *err)
{
    static const dtp_dtype types[] = {DTP_F32, DTP_BF16, DTP_F16};
    DTP_TRY(comm->transport.ops->prepare(&comm->transport, dtp_comm_all(comm), err));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int64_t i = 0; i < count * comm->size; i++) {
            dtp_element_set(types[t], b->in, i, (double)uneven_value(comm->rank, i));
        }
        dtp_coll coll = {.set = ((dtp_mesh_set)1 << comm->mesh.n_dims) - 1,
                         .kind = DTP_REDUCE_SCATTER,
                         .op = DTP_REDUCE_SUM,
                         .dtype = types[t],
                         .count = count,
                         .in_outer = 4};
        DTP_TRY(check_order(comm, &coll, b, err));
        coll.kind = DTP_ALL_REDUCE;
        coll.in_outer = 0;
        DTP_TRY(check_order(comm, &coll, b, err));
    }
    return DTP_OK;
}

dtp_status comm_suite_order(dtp_comm *comm, void *user, dtp_err *err)
{
    enum { COUNT = 60 };
    comm_buffers b;
    DTP_TRY(comm_buffers_make(&b, COUNT * comm->size * 4, user, err));
    const dtp_status status = run_order(comm, &b, COUNT, err);
    comm_buffers_destroy(&b);
    return status;
}

/* ---- several in flight ---- */

/* Starts collectives of every kind, then waits for them in the order of the starts or backwards.
 * Each has buffers of its own. */
static dtp_status run_flight(dtp_comm *c, bool backwards, comm_buffers *b, dtp_err *err)
{
    enum { N = 2 * DTP_N_COLLS, COUNT = 600 };
    dtp_request requests[N];
    dtp_coll_ends ends[N];
    dtp_coll colls[N];
    dtp_transport *t = &c->transport;
    const int64_t room = b->capacity / N / 64 * 64;
    for (int32_t i = 0; i < N; i++) {
        colls[i] = (dtp_coll){.kind = (dtp_coll_kind)(i % DTP_N_COLLS),
                              .set = dtp_comm_all(c),
                              .dtype = DTP_F32,
                              .count = COUNT,
                              .shift = i};
        float *in = (float *)(void *)(b->in + i * room);
        for (int64_t k = 0; k < COUNT * dtp_coll_parts_in(&colls[i], c->size); k++) {
            in[k] = (float)value(&colls[i], c->rank, k);
        }
        ends[i] =
            (dtp_coll_ends){comm_buffers_place(b, in), comm_buffers_place(b, b->out + i * room)};
    }
    DTP_TRY(comm_buffers_upload(b, err));
    for (int32_t i = 0; i < N; i++) {
        DTP_TRY(t->ops->start(t, &colls[i], &ends[i], &requests[i], err));
    }
    for (int32_t j = 0; j < N; j++) {
        const int32_t i = backwards ? N - 1 - j : j;
        DTP_TRY(t->ops->wait(t, &requests[i], err));
        DTP_TRY(comm_buffers_download(c, b, err));
        const float *out = (const float *)(const void *)(b->out + i * room);
        for (int64_t k = 0; k < COUNT * dtp_coll_parts_out(&colls[i], c->size); k++) {
            const double want = expected(c, &colls[i], k);
            if ((double)out[k] != want) {
                return DTP_FAIL(err, DTP_INTERNAL,
                                "rank %d: %s in flight: element %" PRId64 " is %g, expected %g",
                                c->rank, dtp_coll_name(colls[i].kind), k, (double)out[k], want);
            }
        }
    }
    return DTP_OK;
}

enum { BUCKET = 4 };

/* A bucket of collectives, contiguous and strided; every other all-reduce is in place. */
static dtp_status run_bucket(dtp_comm *c, dtp_coll_kind kind, const int64_t *counts,
                             comm_buffers *b, dtp_err *err)
{
    static const int64_t outers[BUCKET] = {0, 5, 1, 25};
    dtp_transport *t = &c->transport;
    const int64_t room = b->capacity / BUCKET / 64 * 64;
    dtp_coll each[BUCKET];
    dtp_coll_ends ends[BUCKET];
    dtp_request request;
    dtp_coll all = {
        .kind = kind, .set = dtp_comm_all(c), .dtype = DTP_F32, .n_bucket = BUCKET, .bucket = each};
    for (int32_t k = 0; k < BUCKET; k++) {
        each[k] = (dtp_coll){.kind = kind, .set = all.set, .dtype = DTP_F32, .count = counts[k]};
        const int64_t outer = t->caps.strided ? outers[k] : 0;
        each[k].in_outer = kind == DTP_REDUCE_SCATTER ? outer : 0;
        each[k].out_outer = kind == DTP_ALL_GATHER ? outer : 0;
        all.count += counts[k];
        const bool in_place = kind == DTP_ALL_REDUCE && k % 2 == 1;
        float *in = (float *)(void *)((in_place ? b->out : b->in) + k * room);
        for (int64_t i = 0; i < counts[k] * dtp_coll_parts_in(&each[k], c->size); i++) {
            in[i] = (float)value(&each[k], c->rank, i);
        }
        ends[k] =
            (dtp_coll_ends){comm_buffers_place(b, in), comm_buffers_place(b, b->out + k * room)};
    }
    DTP_TRY(comm_buffers_upload(b, err));
    DTP_TRY(t->ops->start(t, &all, ends, &request, err));
    DTP_TRY(t->ops->wait(t, &request, err));
    DTP_TRY(comm_buffers_download(c, b, err));
    for (int32_t k = 0; k < BUCKET; k++) {
        const float *out = (const float *)(const void *)(b->out + k * room);
        for (int64_t i = 0; i < counts[k] * dtp_coll_parts_out(&each[k], c->size); i++) {
            const double want = expected(c, &each[k], i);
            if ((double)out[i] != want) {
                return DTP_FAIL(err, DTP_INTERNAL,
                                "rank %d: %s %d of a bucket: element %" PRId64
                                " is %g, expected %g",
                                c->rank, dtp_coll_name(kind), k, i, (double)out[i], want);
            }
        }
    }
    return DTP_OK;
}

static dtp_status run_buckets(dtp_comm *c, comm_buffers *b, dtp_err *err)
{
    static const int64_t counts[][BUCKET] = {{1, 5, 7, 25}, {1300, 600, 1, 1200}};
    static const dtp_coll_kind kinds[] = {DTP_ALL_REDUCE, DTP_REDUCE_SCATTER, DTP_ALL_GATHER};
    for (size_t k = 0; k < 6; k++) {
        DTP_TRY(run_bucket(c, kinds[k / 2], counts[k % 2], b, err));
    }
    return DTP_OK;
}

dtp_status comm_suite_flight(dtp_comm *comm, void *user, dtp_err *err)
{
    comm_buffers b;
    dtp_status status = DTP_OK;
    DTP_TRY(comm->transport.ops->prepare(&comm->transport, dtp_comm_all(comm), err));
    DTP_TRY(comm_buffers_make(&b, 10 * (600 * comm->size * 4 + 64), user, err));
    for (int32_t backwards = 0; backwards < 2 && status == DTP_OK; backwards++) {
        status = run_flight(comm, backwards != 0, &b, err);
    }
    status = status == DTP_OK ? run_buckets(comm, &b, err) : status;
    comm_buffers_destroy(&b);
    return status;
}

/* ---- disputes ---- */

#define A2A .kind = DTP_ALL_TO_ALL, .set = 1
#define SUM .kind = DTP_ALL_REDUCE, .set = 1, .dtype = DTP_F32, .count = 4
#define PASS .kind = DTP_PERMUTE, .set = 1, .dtype = DTP_F32, .count = 4
#define GATHER .kind = DTP_ALL_GATHER, .set = 1
#define FOUR .dtype = DTP_F32, .count = 4

const comm_dispute comm_disputes[] = {
    {{A2A, FOUR}, {GATHER, FOUR}, {"rank 0: all_to_all", "all_gather"}},
    {{A2A, FOUR}, {A2A, .dtype = DTP_F32, .count = 3}, {"4 x f32", "3 x f32"}},
    {{A2A, FOUR}, {A2A, .dtype = DTP_I32, .count = 4}, {"4 x f32", "4 x i32"}},
    {{A2A, FOUR}, {A2A, FOUR, .in_outer = 2}, {"4 x f32", "parts of the input in 2 runs"}},
    {{A2A, FOUR}, {A2A, FOUR, .out_outer = 4}, {"4 x f32", "parts of the output in 4 runs"}},
    {{SUM}, {SUM, .op = DTP_REDUCE_MAX}, {"all_reduce sum", "all_reduce max"}},
    {{PASS, .shift = 1}, {PASS, .shift = -1}, {"shift 1", "shift -1"}},
};
const int32_t comm_n_disputes = sizeof comm_disputes / sizeof *comm_disputes;

/* ---- the deadline ---- */

/* A sum of one number, until it is known to be done. */
static dtp_status sum_of_one(dtp_comm *comm, comm_buffers *b, dtp_err *err)
{
    const dtp_coll coll = {
        .kind = DTP_ALL_REDUCE, .set = dtp_comm_all(comm), .dtype = DTP_F32, .count = 1};
    void *x = comm_buffers_place(b, b->out);
    DTP_TRY(dtp_transport_run(&comm->transport, &coll, x, x, err));
    return comm_buffers_download(comm, b, err);
}

static dtp_status run_deadline(dtp_comm *comm, comm_buffers *b, dtp_err *err)
{
    const struct timespec longer = {.tv_sec = 2};
    const int32_t late = comm->size - 1;
    char words[32];
    dtp_err said = {0};
    memset(b->out, 0, (size_t)b->capacity);
    DTP_TRY(comm->transport.ops->prepare(&comm->transport, dtp_comm_all(comm), err));
    DTP_TRY(comm_buffers_upload(b, err));
    DTP_TRY(sum_of_one(comm, b, err));
    DTP_TRY(comm->ops->barrier(comm, err));
    comm->timeout_s = 0.5;
    if (comm->rank == late) {
        nanosleep(&longer, NULL);
    }
    snprintf(words, sizeof words, "rank %d has not come", late);
    const double start = dtp_now_s();
    dtp_status got = sum_of_one(comm, b, &said);
    const double took = dtp_now_s() - start;
    if (got != DTP_COMM || strstr(said.msg, words) == NULL || took > 2.5) {
        return DTP_FAIL(err, DTP_INTERNAL, "rank %d: '%.600s' after %g s does not say '%s'",
                        comm->rank, got == DTP_OK ? "" : said.msg, took, words);
    }
    got = comm->ops->barrier(comm, &said);
    return got == DTP_COMM ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "rank %d: goes on", comm->rank);
}

dtp_status comm_suite_deadline(dtp_comm *comm, void *user, dtp_err *err)
{
    comm_buffers b;
    DTP_TRY(comm_buffers_make(&b, 8, user, err));
    const dtp_status status = run_deadline(comm, &b, err);
    comm_buffers_destroy(&b);
    return status;
}

/* ---- views ---- */

/* The mesh whose dim i stands for sets[i] of the parent's dims. */
static dtp_mesh view_mesh(const dtp_mesh *parent, const dtp_mesh_set *sets, int32_t n)
{
    dtp_mesh mesh = {.n_dims = n};
    for (int32_t i = 0; i < n; i++) {
        snprintf(mesh.names[i], sizeof mesh.names[i], "v%d", i);
        mesh.sizes[i] = dtp_mesh_set_size(parent, sets[i]);
    }
    return mesh;
}

/* Rank and size of the view, from the coordinates: the view's ranks count its dims row-major. */
static dtp_status check_place(const dtp_comm *parent, const dtp_comm *v, const dtp_mesh_set *sets,
                              dtp_err *err)
{
    int32_t coords[DTP_MAX_MESH_DIMS], rank = 0, size = 1;
    dtp_mesh_coords(&parent->mesh, parent->rank, coords);
    for (int32_t i = 0; i < v->mesh.n_dims; i++) {
        for (int32_t m = 0; m < parent->mesh.n_dims; m++) {
            if ((sets[i] >> m & 1U) != 0) {
                rank = rank * (int32_t)parent->mesh.sizes[m] + coords[m];
                size *= (int32_t)parent->mesh.sizes[m];
            }
        }
    }
    return rank == v->rank && size == v->size
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL,
                          "rank %d: the view has rank %d of %d, expected %d of %d", parent->rank,
                          v->rank, v->size, rank, size);
}

static dtp_status on_view(dtp_comm *c, const dtp_mesh_set *sets, int32_t n, comm_buffers *b,
                          dtp_err *err)
{
    dtp_comm *v = NULL;
    dtp_mesh mesh = view_mesh(&c->mesh, sets, n);
    DTP_TRY(dtp_sub_communicator_create(c, &mesh, sets, &v, err));
    dtp_status status = check_place(c, v, sets, err);
    for (dtp_mesh_set set = 0; set < (dtp_mesh_set)1 << n && status == DTP_OK; set++) {
        dtp_coll coll = {.set = set, .dtype = DTP_F64, .count = 10};
        status = v->transport.ops->prepare(&v->transport, set, err);
        for (int32_t kind = 0; kind < DTP_N_COLLS && status == DTP_OK; kind++) {
            coll.kind = (dtp_coll_kind)kind;
            status = all_forms(v, coll, b, err);
        }
    }
    if (status == DTP_OK) {
        status = v->ops->barrier(v, err);
    }
    if (status == DTP_OK) {
        status = dtp_comm_agree(v, 7, "seven", err);
    }
    dtp_comm_destroy(v);
    return status;
}

/* The view over the parent's dims of `set`, one each. */
static dtp_status on_sub_mesh(dtp_comm *c, dtp_mesh_set set, comm_buffers *b, dtp_err *err)
{
    dtp_mesh_set sets[DTP_MAX_MESH_DIMS] = {0};
    int32_t n = 0;
    for (int32_t m = 0; m < c->mesh.n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            sets[n++] = 1U << m;
        }
    }
    return on_view(c, sets, n, b, err);
}

static dtp_status refuses_bad_views(dtp_comm *c, dtp_err *err)
{
    static const dtp_mesh_set swapped[] = {2, 1}, twice[] = {1, 1}, beyond[] = {64, 0};
    const dtp_mesh_set *bad[] = {swapped, twice, beyond};
    for (size_t i = 0; i < 3; i++) {
        dtp_comm *v = NULL;
        dtp_err quiet = {0};
        dtp_mesh mesh = {.n_dims = 2, .names = {"p", "q"}, .sizes = {1, 1}};
        for (int32_t m = 0; m < 2 && i < 2; m++) {
            mesh.sizes[m] = dtp_mesh_set_size(&c->mesh, bad[i][m]);
        }
        if (dtp_sub_communicator_create(c, &mesh, bad[i], &v, &quiet) != DTP_INVALID) {
            return DTP_FAIL(err, DTP_INTERNAL, "view %zu was not refused", i);
        }
    }
    return DTP_OK;
}

static dtp_status run_views(dtp_comm *c, comm_buffers *b, dtp_err *err)
{
    dtp_mesh_set all = ((dtp_mesh_set)1 << c->mesh.n_dims) - 1;
    if (c->mesh.n_dims >= 2) {
        DTP_TRY(refuses_bad_views(c, err));
    }
    for (dtp_mesh_set set = 0; set <= all; set++) {
        DTP_TRY(on_sub_mesh(c, set, b, err));
        /* one slice alone: the ranks at the origin of the other dims */
        if (dtp_mesh_set_index(&c->mesh, all & ~set, c->rank) == 0) {
            DTP_TRY(on_sub_mesh(c, set, b, err));
        }
    }
    if (c->mesh.n_dims == 3) {
        static const dtp_mesh_set front[] = {3, 4}, back[] = {1, 6}, joined[] = {7}, outer[] = {5};
        DTP_TRY(on_view(c, front, 2, b, err));
        DTP_TRY(on_view(c, back, 2, b, err));
        DTP_TRY(on_view(c, joined, 1, b, err));
        DTP_TRY(on_view(c, outer, 1, b, err));
    }
    return c->ops->barrier(c, err);
}

dtp_status comm_suite_views(dtp_comm *comm, void *user, dtp_err *err)
{
    comm_buffers b;
    DTP_TRY(comm_buffers_make(&b, (10 * comm->size + 1) * 8, user, err));
    const dtp_status status = run_views(comm, &b, err);
    comm_buffers_destroy(&b);
    return status;
}
