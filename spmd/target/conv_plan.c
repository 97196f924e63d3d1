/* Sizes, strides and blocks of convolutions (spmd/target/conv_plan.h). */
#include "spmd/target/conv_plan.h"

#include <string.h>

enum { ROWS = 384, COLUMNS = 256 }; /* of a column matrix, about */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Row-major stride of a dim in a tensor, 0 when it is not there. */
static int64_t stride_of(const dtp_ttype *type, dtp_dim_id d)
{
    int64_t stride = 1;
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        if (type->dims[i].id == d) {
            return stride;
        }
        stride *= type->dims[i].size;
    }
    return 0;
}

/* Appends a dim, as one with the dim before it where every tensor walks them as one. */
static void add_dim(dtp_conv_run *run, const dtp_conv_form *f, dtp_tdim d)
{
    int64_t stride[DTP_CONV_PARTS];
    bool merges = run->n > 0;
    for (int32_t p = 0; p < DTP_CONV_PARTS; p++) {
        stride[p] = stride_of(f->type[p], d.id);
        merges = merges && run->stride[p][run->n - 1] == stride[p] * d.size;
    }
    run->total *= d.size;
    if (d.size == 1) {
        return;
    }
    run->n += merges ? 0 : 1;
    run->size[run->n - 1] = merges ? run->size[run->n - 1] * d.size : d.size;
    for (int32_t p = 0; p < DTP_CONV_PARTS; p++) {
        run->stride[p][run->n - 1] = stride[p];
    }
}

int64_t dtp_conv_offset(const dtp_conv_run *run, dtp_conv_part part, int64_t index)
{
    int64_t at = 0;
    for (int32_t i = run->n - 1; i >= 0; i--) {
        at += index % run->size[i] * run->stride[part][i];
        index /= run->size[i];
    }
    return at;
}

/* The dims that two tensors have, in the order of the first; the third may, or may not. */
static void add_dims(dtp_conv_run *run, const dtp_conv_form *f, dtp_conv_part a, dtp_conv_part b,
                     bool third)
{
    const dtp_conv_part c = (dtp_conv_part)(DTP_CONV_X + DTP_CONV_W + DTP_CONV_Y) - a - b;
    *run = (dtp_conv_run){.total = 1};
    for (int32_t i = 0; i < f->type[a]->rank; i++) {
        const dtp_tdim d = f->type[a]->dims[i];
        if (!dtp_conv_has_window(f, d.id) && dtp_ttype_find(f->type[b], d.id) >= 0 &&
            (dtp_ttype_find(f->type[c], d.id) >= 0) == third) {
            add_dim(run, f, d);
        }
    }
}

static void set_axes(dtp_conv_plan *p, const dtp_conv_form *f)
{
    p->taps = p->places = 1;
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        const int32_t k = i - (DTP_CONV_AXES - f->n);
        p->axis[i] = (dtp_conv_axis){-1, -1, 1, 1, 1, 1, 1, 0};
        if (k >= 0) {
            p->axis[i] = f->axis[k];
            p->step[DTP_CONV_X][i] = stride_of(f->type[DTP_CONV_X], f->axis[k].spatial);
            p->step[DTP_CONV_Y][i] = stride_of(f->type[DTP_CONV_Y], f->axis[k].spatial);
            p->step[DTP_CONV_W][i] = stride_of(f->type[DTP_CONV_W], f->axis[k].kernel);
        }
        p->taps *= p->axis[i].size;
        p->places *= p->axis[i].out;
    }
}

/* The axes of a tensor are the last dims in order, one after the other. */
static bool is_dense(const dtp_conv_plan *p, dtp_conv_part part)
{
    int64_t want = 1;
    bool is = true;
    for (int32_t i = DTP_CONV_AXES - 1; i >= 0; i--) {
        const dtp_conv_axis *a = &p->axis[i];
        const int64_t size = part == DTP_CONV_W ? a->size : part == DTP_CONV_X ? a->in : a->out;
        is = is && (size == 1 || p->step[part][i] == want);
        want *= size;
    }
    return is;
}

/* Are windows the elements of x, and rows of x and y, f32, those of matrices? */
static bool has_x_rows(const dtp_conv_plan *p)
{
    bool is = p->y_rows && p->ins.n <= 1 && is_dense(p, DTP_CONV_X) &&
              p->dtype[DTP_CONV_X] == DTP_F32 && p->dtype[DTP_CONV_Y] == DTP_F32 &&
              (p->ins.total == 1 || p->ins.stride[DTP_CONV_X][0] >= p->places);
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        const dtp_conv_axis *a = &p->axis[i];
        is = is && a->size == 1 && a->stride == 1 && a->before == 0 && a->in == a->out;
    }
    return is;
}

static void set_blocks(dtp_conv_plan *p)
{
    const bool batches = p->places > 0 && p->batch.total > 0;
    const int64_t rows = p->ins.total * p->taps, blocks = rows / ROWS + (rows % ROWS > 0 ? 1 : 0);
    const int64_t n = least(blocks > 0 ? blocks : 1, p->ins.total > 0 ? p->ins.total : 1);
    p->block = (p->ins.total + n - 1) / n;
    p->w_matrix = (p->dtype[DTP_CONV_W] == DTP_F32 || p->result == DTP_CONV_W) && p->outs.n <= 1 &&
                  p->ins.n <= 1 && is_dense(p, DTP_CONV_W) &&
                  (p->ins.total == 1 || p->ins.stride[DTP_CONV_W][0] == p->taps) &&
                  (p->outs.total == 1 || p->outs.stride[DTP_CONV_W][0] >= p->ins.total * p->taps);
    p->y_rows = (p->dtype[DTP_CONV_Y] == DTP_F32 || p->result == DTP_CONV_Y) && p->outs.n <= 1 &&
                is_dense(p, DTP_CONV_Y) &&
                (p->outs.total == 1 || p->outs.stride[DTP_CONV_Y][0] >= p->places);
    p->x_rows = has_x_rows(p);
    p->chunk =
        batches && !p->x_rows ? least((COLUMNS + p->places - 1) / p->places, p->batch.total) : 1;
    p->tile = least(p->chunk * p->places, COLUMNS);
    if (p->x_rows && batches) {
        const int64_t each = p->places * p->batch.total / DTP_CONV_MOST_SETS;
        p->tile = least(each > COLUMNS ? each : COLUMNS, p->places);
    }
    for (int32_t i = 0; i < DTP_CONV_AXES && p->x_rows; i++) { /* places are one dim */
        const bool last = i == DTP_CONV_AXES - 1;
        p->axis[i].in = p->axis[i].out = last ? p->places : 1;
        p->step[DTP_CONV_X][i] = p->step[DTP_CONV_Y][i] = last ? 1 : 0;
    }
    p->wide = dtp_dtype_is_half(p->dtype[p->result]);
    const int64_t in_blocks = p->block > 0 ? (p->ins.total + p->block - 1) / p->block : 0;
    const int64_t chunks = batches ? (p->batch.total + p->chunk - 1) / p->chunk : 0;
    const int64_t tiles = batches ? (p->chunk * p->places + p->tile - 1) / p->tile : 0;
    const int64_t units = p->groups.total * (p->result == DTP_CONV_Y   ? chunks * tiles
                                             : p->result == DTP_CONV_X ? chunks * in_blocks
                                                                       : in_blocks);
    p->sets = units < 1 ? 1 : least(units, DTP_CONV_MOST_SETS);
    p->elems[0] = p->w_matrix ? 0 : p->groups.total * p->outs.total * p->ins.total * p->taps;
}

/* ---- pieces of a library ---- */

enum {
    CHANNELS = 16,           /* that it multiplies at once */
    PIECE_PLACES = 784,      /* of a piece, about */
    PIECE_CHANNELS = 64,     /* at least */
    PIECE_SCRATCH = 1 << 16, /* bytes of its own per thread, at least */
    WEIGHT_PARTS = 8,        /* units of a weight gradient, about */
    MOST_PIECE = 16 << 20,   /* bytes of what a thread works on */
    MOST_PIECES = 32 << 20   /* and of those of all */
};
static const double LEAST_MADDS = 1e6;

/* A tensor that has groups walks them and the channels of one as one dim. */
static bool is_one_dim(const dtp_conv_plan *p, const dtp_conv_run *in_group, dtp_conv_part part)
{
    return p->groups.n == 0 || in_group->n == 0 ||
           p->groups.stride[part][0] == in_group->stride[part][0] * in_group->total;
}

static bool has_pieces(const dtp_conv_plan *p)
{
    const bool depthwise = p->groups.total >= CHANNELS && p->ins.total == 1 && p->outs.total == 1;
    const int64_t in = p->ins.total, rows = p->result == DTP_CONV_X ? in : in * p->taps;
    const dtp_dtype type = p->result == DTP_CONV_X ? p->dtype[DTP_CONV_Y] : p->dtype[DTP_CONV_X];
    bool is = type == DTP_F32 || type == DTP_BF16;
    for (int32_t i = 0; i < DTP_CONV_PARTS; i++) {
        is = is && (p->dtype[i] == type || (p->at[i] < 0 && p->dtype[i] == DTP_F32));
    }
    return is && p->madds >= LEAST_MADDS && p->groups.n <= 1 && p->batch.n <= 1 && p->ins.n <= 1 &&
           p->outs.n <= 1 && (depthwise || (rows >= CHANNELS && p->outs.total >= CHANNELS)) &&
           is_one_dim(p, &p->ins, DTP_CONV_X) && is_one_dim(p, &p->outs, DTP_CONV_Y);
}

/* The largest divisor of n that is at most `most`, such that a part is a multiple of `unit`. */
static int64_t parts_of(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = least(most, n / unit);
    while (parts > 1 && n % (parts * unit) != 0) {
        parts--;
    }
    return parts > 1 ? parts : 1;
}

static int64_t rounded(int64_t channels)
{
    return (channels + CHANNELS - 1) / CHANNELS * CHANNELS;
}

static void set_pieces(dtp_conv_plan *p)
{
    dtp_conv_piece *q = &p->piece;
    if (!has_pieces(p)) {
        return;
    }
    int64_t x_places = 1, chunk = least((PIECE_PLACES + p->places - 1) / p->places, p->batch.total);
    while (p->batch.total % chunk != 0) {
        chunk--;
    }
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        x_places *= p->axis[i].in;
    }
    const int64_t n = p->batch.total / chunk;
    const int64_t wanted =
        p->result == DTP_CONV_W ? WEIGHT_PARTS : (DTP_CONV_MOST_SETS + n - 1) / n;
    const int64_t channels = p->result == DTP_CONV_X ? p->ins.total : p->outs.total;
    const int64_t by_group = p->groups.total > 1 ? parts_of(p->groups.total, wanted, CHANNELS) : 1;
    const int64_t by_channel = p->groups.total > 1 ? 1 : parts_of(channels, wanted, PIECE_CHANNELS);
    *q = (dtp_conv_piece){.batch = chunk,
                          .groups = p->groups.total / by_group,
                          .ins = p->ins.total / (p->result == DTP_CONV_X ? by_channel : 1),
                          .outs = p->outs.total / (p->result == DTP_CONV_X ? 1 : by_channel),
                          .n = {n, by_group, by_channel},
                          .all_channels = by_group * by_channel == 1};
    const bool sums = p->result == DTP_CONV_W;
    const bool half = p->dtype[p->result == DTP_CONV_X ? DTP_CONV_Y : DTP_CONV_X] != DTP_F32;
    const int64_t wide = (int64_t)sizeof(float), bytes = half ? wide / 2 : wide;
    q->parts = sums ? least(WEIGHT_PARTS / (by_group * by_channel), n) : 1;
    const int64_t x =
        chunk * rounded(q->groups * q->ins) * x_places * dtp_dtype_bytes(p->dtype[DTP_CONV_X]);
    const int64_t y =
        chunk * rounded(q->groups * q->outs) * p->places * dtp_dtype_bytes(p->dtype[DTP_CONV_Y]);
    const int64_t w = p->taps * (sums ? wide : bytes) *
                      (q->ins * q->outs == 1 ? rounded(q->groups)
                                             : q->groups * rounded(q->ins) * rounded(q->outs));
    const int64_t set =
        (half || p->taps == 1 ? 2 : 1) * (x + y) + PIECE_SCRATCH + (sums && n > q->parts ? w : 0);
    const int64_t units = (sums ? q->parts : n) * by_group * by_channel;
    const int64_t sets = least(least(units, DTP_CONV_MOST_SETS), MOST_PIECES / set);
    q->bytes = set > MOST_PIECE ? 0 : sets * set + q->parts * by_group * by_channel * w;
}

void dtp_conv_plan_make(const dtp_op_call *call, dtp_conv_plan *p)
{
    const dtp_conv_form f = dtp_conv_form_of(call);
    memset(p, 0, sizeof *p);
    for (int32_t i = 0; i < DTP_CONV_PARTS; i++) {
        p->at[i] = f.at[i];
        p->dtype[i] = f.type[i]->dtype;
        p->result = f.at[i] < 0 ? (dtp_conv_part)i : p->result;
    }
    add_dims(&p->groups, &f, DTP_CONV_W, DTP_CONV_X, true);
    add_dims(&p->batch, &f, DTP_CONV_X, DTP_CONV_Y, false);
    add_dims(&p->ins, &f, DTP_CONV_W, DTP_CONV_X, false);
    add_dims(&p->outs, &f, DTP_CONV_W, DTP_CONV_Y, false);
    set_axes(p, &f);
    set_blocks(p);
    p->elems[1] = p->wide ? dtp_ttype_elems(f.type[p->result]) : 0;
    p->elems[2] = p->x_rows ? 0 : (p->block * p->taps + p->outs.total) * p->tile;
    p->madds = (double)p->groups.total * (double)p->batch.total * (double)p->places *
               (double)p->ins.total * (double)p->outs.total * (double)p->taps;
    set_pieces(p);
    for (int32_t i = 0; i < 3; i++) { /* of 64 bytes each */
        p->elems[i] = (p->elems[i] + 15) / 16 * 16;
    }
}

void dtp_conv_plan_bind(const dtp_kernel_args *args, dtp_conv_plan *p)
{
    const dtp_conv_form f = dtp_conv_form_here(args);
    dtp_conv_plan_make(args->call, p);
    for (int32_t i = 0; i < f.n; i++) {
        p->axis[DTP_CONV_AXES - f.n + i].before = f.axis[i].before;
    }
}

int64_t dtp_cpu_conv_workspace(const dtp_op_call *call)
{
    dtp_conv_plan p;
    dtp_conv_plan_make(call, &p);
    const int64_t own = (p.elems[0] + p.elems[1] + p.sets * p.elems[2]) * (int64_t)sizeof(float);
    return own > p.piece.bytes ? own : p.piece.bytes;
}

void dtp_cpu_conv_work(const dtp_op_call *call, dtp_work *out)
{
    dtp_conv_plan p;
    dtp_conv_plan_make(call, &p);
    dtp_call_work(call, out);
    if (out->cls == DTP_WORK_GEMM) {
        out->pack_bytes = (double)p.groups.total * (double)p.batch.total * (double)p.ins.total *
                          (double)p.taps * (double)p.places * (double)sizeof(float);
    }
}

/* ---- CUDA ---- */

enum { TILE = 64, BUSY = 512, LEAST_PART = 512, MOST_PARTS = 64 }; /* results, blocks, terms */

int64_t dtp_cuda_conv_parts(const dtp_conv_plan *p)
{
    int64_t x_places = 1;
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        x_places *= p->axis[i].in;
    }
    const int64_t m = p->result == DTP_CONV_X ? p->ins.total : p->outs.total;
    const int64_t n = p->result == DTP_CONV_W   ? p->ins.total * p->taps
                      : p->result == DTP_CONV_X ? p->batch.total * x_places
                                                : p->batch.total * p->places;
    const int64_t k = p->result == DTP_CONV_W   ? p->batch.total * p->places
                      : p->result == DTP_CONV_X ? p->outs.total * p->taps
                                                : p->ins.total * p->taps;
    const int64_t tiles = p->groups.total * ((m + TILE - 1) / TILE) * ((n + TILE - 1) / TILE);
    const int64_t parts = least(least(k / LEAST_PART, tiles > 0 ? BUSY / tiles : 1), MOST_PARTS);
    return parts > 1 ? parts : 1;
}

int64_t dtp_cuda_conv_workspace(const dtp_op_call *call)
{
    dtp_conv_plan p;
    dtp_conv_plan_make(call, &p);
    const int64_t parts = dtp_cuda_conv_parts(&p);
    return parts > 1 ? parts * dtp_ttype_elems(&call->out[0]) * (int64_t)sizeof(float) : 0;
}
