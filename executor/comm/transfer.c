/* Collectives between members that can read each other's buffers: threads of one process, and
 * processes that share memory. Member `me` does its share of the work; between the moment when all
 * buffers are known and the moment when all members are done, inputs must not change.
 *
 * Reductions combine in member order, so results do not depend on timing, all members get the same
 * bits, and so do the simulated and the MPI communicator.
 */
#include "executor/comm/communicator_internal.h"

#include <string.h>

#include "core/base/safe_int.h"

static char *at(void *p, int64_t bytes)
{
    return (char *)p + bytes;
}

static const char *at_const(const void *p, int64_t bytes)
{
    return (const char *)p + bytes;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

dtp_comm__part dtp_comm__part_of(const dtp_coll *coll, bool input, int64_t n, int64_t p)
{
    int64_t parts = input ? dtp_coll_parts_in(coll, n) : dtp_coll_parts_out(coll, n);
    int64_t outer = input ? coll->in_outer : coll->out_outer;
    int64_t runs = parts > 1 && outer > 1 ? outer : 1;
    int64_t run = coll->count / runs * dtp_dtype_bytes(coll->dtype);
    return (dtp_comm__part){.start = parts > 1 ? p * run : 0, .run = run, .stride = parts * run};
}

static inline void rows_of(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                           size_t run, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * to_stride, from + i * from_stride, run);
    }
}

/* Where a call of memcpy would cost as much as the copy, the compiler knows the size of a run. */
static void copy_rows(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                      int64_t run, int64_t n)
{
    switch (run) {
    case 4:
        rows_of(to, to_stride, from, from_stride, 4, n);
        break;
    case 8:
        rows_of(to, to_stride, from, from_stride, 8, n);
        break;
    case 16:
        rows_of(to, to_stride, from, from_stride, 16, n);
        break;
    case 32:
        rows_of(to, to_stride, from, from_stride, 32, n);
        break;
    case 64:
        rows_of(to, to_stride, from, from_stride, 64, n);
        break;
    case 128:
        rows_of(to, to_stride, from, from_stride, 128, n);
        break;
    default:
        rows_of(to, to_stride, from, from_stride, (size_t)run, n);
        break;
    }
}

void dtp_comm__copy(void *to, dtp_comm__part to_part, int64_t to_start, const void *from,
                    dtp_comm__part from_part, int64_t from_start, int64_t bytes)
{
    /* as many whole runs of the shorter kind at a time as lie at equal distances on both sides */
    int64_t done = 0;
    while (done < bytes) {
        int64_t i = to_start + done, j = from_start + done;
        int64_t to_in = i % to_part.run, from_in = j % from_part.run;
        int64_t n = least(least(to_part.run - to_in, from_part.run - from_in), bytes - done);
        char *dst = at(to, to_part.start + i / to_part.run * to_part.stride + to_in);
        const char *src =
            at_const(from, from_part.start + j / from_part.run * from_part.stride + from_in);
        int64_t to_rest = to_part.run - to_in, from_rest = from_part.run - from_in;
        bool to_rows = to_in == 0 && n == to_part.run;
        bool from_rows = from_in == 0 && n == from_part.run;
        int64_t rows = 1;
        if (to_rows && from_rows) {
            rows = (bytes - done) / n;
            copy_rows(dst, to_part.stride, src, from_part.stride, n, rows);
        } else if (to_rows) {
            rows = least(bytes - done, from_rest) / n;
            copy_rows(dst, to_part.stride, src, n, n, rows);
        } else if (from_rows) {
            rows = least(bytes - done, to_rest) / n;
            copy_rows(dst, n, src, from_part.stride, n, rows);
        } else {
            memcpy(dst, src, (size_t)n);
        }
        done += rows * n;
    }
}

/* ---- reductions ---- */

enum { BLOCK_BYTES = 8192 };

typedef union block {
    double align;
    char bytes[BLOCK_BYTES];
} block;

/* Every member's output gets this member's share of the elements. Inputs may be the outputs (in
 * place): the sum is built in a block on the stack. */
static void all_reduce(const dtp_coll *coll, int32_t n, int32_t me,
                       const dtp_coll_ends *const *ends, int32_t at_end)
{
    block b;
    int64_t width = dtp_dtype_bytes(coll->dtype), start, size;
    dtp_chunk(coll->count, n, me, &start, &size);
    for (int64_t i = start; i < start + size; i += BLOCK_BYTES / width) {
        int64_t elems = least(start + size - i, BLOCK_BYTES / width);
        size_t bytes = (size_t)(elems * width);
        memcpy(b.bytes, at_const(ends[0][at_end].in, i * width), bytes);
        for (int32_t j = 1; j < n; j++) {
            dtp_comm__combine(coll->op, coll->dtype, b.bytes,
                              at_const(ends[j][at_end].in, i * width), elems);
        }
        for (int32_t j = 0; j < n; j++) {
            memcpy(at(ends[j][at_end].out, i * width), b.bytes, bytes);
        }
    }
}

/* Part `me` of all inputs, run by run, a block of a run at a time. */
static void reduce_scatter(const dtp_coll *coll, int32_t n, int32_t me,
                           const dtp_coll_ends *const *ends, int32_t at_end)
{
    int64_t width = dtp_dtype_bytes(coll->dtype);
    dtp_comm__part part = dtp_comm__part_of(coll, true, n, me);
    int64_t block_bytes = BLOCK_BYTES / width * width;
    for (int64_t i = 0, bytes; i < coll->count * width; i += bytes) {
        int64_t in_run = i % part.run;
        int64_t from = part.start + i / part.run * part.stride + in_run;
        char *out = at(ends[me][at_end].out, i);
        bytes = least(part.run - in_run, block_bytes);
        memcpy(out, at_const(ends[0][at_end].in, from), (size_t)bytes);
        for (int32_t j = 1; j < n; j++) {
            dtp_comm__combine(coll->op, coll->dtype, out, at_const(ends[j][at_end].in, from),
                              bytes / width);
        }
    }
}

/* ---- moves ---- */

/* Bytes [start, start + bytes) of what member `source` has for member `target`. */
static void hand_over(const dtp_coll *coll, int32_t n, const dtp_coll_ends *const *ends,
                      int32_t at_end, int32_t source, int32_t target, int64_t start, int64_t bytes)
{
    dtp_comm__part from = dtp_comm__part_of(coll, true, n, target);
    dtp_comm__part to = dtp_comm__part_of(coll, false, n, source);
    const void *in = ends[source][at_end].in;
    void *out = ends[target][at_end].out;
    int64_t all = coll->count * dtp_dtype_bytes(coll->dtype);
    bool in_place =
        at_const(in, from.start) == at(out, to.start) && from.run == all && to.run == all;
    if (!in_place) {
        dtp_comm__copy(out, to, start, in, from, start, bytes);
    }
}

bool dtp_comm__pushes(const dtp_coll *coll)
{
    return coll->kind == DTP_ALL_REDUCE || (coll->kind == DTP_ALL_TO_ALL && coll->in_outer > 1);
}

static void run_one(const dtp_coll *coll, int32_t n, int32_t me, const dtp_coll_ends *const *ends,
                    int32_t at_end)
{
    const int64_t bytes = coll->count * dtp_dtype_bytes(coll->dtype);
    if (coll->count == 0) {
        return;
    }
    switch (coll->kind) {
    case DTP_ALL_REDUCE:
        all_reduce(coll, n, me, ends, at_end);
        break;
    case DTP_REDUCE_SCATTER:
        reduce_scatter(coll, n, me, ends, at_end);
        break;
    case DTP_PERMUTE:
        hand_over(coll, n, ends, at_end, dtp_coll_source(coll, n, me), me, 0, bytes);
        break;
    default:
        if (dtp_comm__pushes(coll)) {
            /* Rows of all parts side by side, some at a time: they share cache lines and pages. */
            enum { STRETCH_BYTES = 32 << 10 };
            for (int64_t start = 0; start < bytes; start += STRETCH_BYTES) {
                for (int32_t k = 0; k < n; k++) {
                    hand_over(coll, n, ends, at_end, me, (me + k) % n, start,
                              least(bytes - start, STRETCH_BYTES));
                }
            }
        } else {
            /* Members begin with themselves, so that they do not crowd one buffer. */
            for (int32_t k = 0; k < n; k++) {
                hand_over(coll, n, ends, at_end, (me + k) % n, me, 0, bytes);
            }
        }
        break;
    }
}

void dtp_comm__transfer(const dtp_coll *coll, int32_t n, int32_t me,
                        const dtp_coll_ends *const *ends)
{
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        run_one(dtp_coll_at(coll, k), n, me, ends, k);
    }
}
