/* The order in which a sequence is stored. */
#include "core/graph/ops/sequence.h"

#include <math.h>

#include "core/graph/ops/rows.h"

const char *const dtp_order_choices[] = {"contiguous", "zigzag", NULL};

dtp_sequence dtp_sequence_make(int64_t size, int64_t chunks)
{
    return (dtp_sequence){.size = size, .run = chunks == 0 ? size : size / (2 * chunks)};
}

dtp_sequence dtp_sequence_of(const dtp_op_call *call, int64_t size)
{
    bool zigzag = dtp_call_int(call, "order") == DTP_ORDER_ZIGZAG;
    return dtp_sequence_make(size, zigzag ? dtp_call_int(call, "chunks") : 0);
}

dtp_status dtp_sequence_check(const dtp_op_call *call, dtp_dim_id d, int64_t size, int64_t chunks,
                              dtp_err *err)
{
    if (size % (2 * chunks) != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "zigzag order over %lld chunks needs a size that %lld divides, but '%s' is "
                        "%lld",
                        (long long)chunks, 2 * (long long)chunks, dtp_dims_name(call->dims, d),
                        (long long)size);
    }
    return DTP_OK;
}

int64_t dtp_sequence_position(const dtp_sequence *s, int64_t place)
{
    if (s->run == s->size) {
        return place;
    }
    /* The run of positions that is stored as run r. */
    const int64_t r = place / s->run;
    const int64_t run = r % 2 == 0 ? r / 2 : s->size / s->run - 1 - r / 2;
    return run * s->run + place % s->run;
}

int64_t dtp_sequence_place(const dtp_sequence *s, int64_t position)
{
    if (s->run == s->size) {
        return position;
    }
    int64_t r = position / s->run, runs = s->size / s->run;
    int64_t at = 2 * r < runs ? 2 * r : 2 * (runs - 1 - r) + 1;
    return at * s->run + position % s->run;
}

int64_t dtp_sequence_left(const dtp_sequence *s, int64_t place)
{
    return s->run == s->size ? s->size - place : s->run - place % s->run;
}

/* ---- rope ---- */

/* Rotary position embedding (Su et al. 2021), pairs (j, j + f/2) of a feature dim of size f:
 *   angle = (position + offset) rate(j), positions in the order that the sequence is stored in
 *   (a, b) -> amplitude (a cos - b sin, a sin + b cos);  `inverse` rotates by -angle: the adjoint
 * With r = base^(-2j/f) and s in [0, 1], the share of a pair that keeps its rate:
 *   rate(j) = r (s + (1 - s) / factor)
 *   linear   s = 0
 *   llama3   s = (original r / 2 pi - low) / (high - low)                  (Llama 3.1, by turns)
 *   yarn     s = 1 - (j - first) / (last - first), where pair first turns `high` times within
 *            `original` positions and pair last `low` times (Peng et al. 2023, NTK by parts);
 *            both bounds are rounded outwards, with yarn_real they are not
 */

#define TURN 6.283185307179586 /* radians */

typedef enum scaling {
    SCALING_NONE,
    SCALING_LINEAR,
    SCALING_LLAMA3,
    SCALING_YARN,
    SCALING_YARN_REAL
} scaling;

static const char *const SCALINGS[] = {"none", "linear", "llama3", "yarn", "yarn_real", NULL};

static const dtp_attr_spec ROPE_ATTRS[] = {
    {.key = "position", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "feature", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "base", .kind = DTP_ATTR_FLOAT, .def = 10000.0, .min = 1e-6, .max = 1e30},
    {.key = "offset", .kind = DTP_ATTR_INT, .min = -9e15, .max = 9e15},
    {.key = "order", .kind = DTP_ATTR_ENUM, .choices = dtp_order_choices},
    {.key = "chunks", .kind = DTP_ATTR_INT, .def = 1.0, .min = 1.0, .max = 1e9},
    {.key = "scaling", .kind = DTP_ATTR_ENUM, .choices = SCALINGS},
    {.key = "factor", .kind = DTP_ATTR_FLOAT, .def = 1.0, .min = 1e-6, .max = 1e9},
    {.key = "low", .kind = DTP_ATTR_FLOAT, .def = 1.0, .min = 1e-6, .max = 1e9},
    {.key = "high", .kind = DTP_ATTR_FLOAT, .def = 0.0, .min = 0.0, .max = 1e9},
    {.key = "original", .kind = DTP_ATTR_INT, .def = 0.0, .min = 0.0, .max = 9e15},
    {.key = "amplitude", .kind = DTP_ATTR_FLOAT, .def = 1.0, .min = 1e-6, .max = 1e9},
    {.key = "inverse", .kind = DTP_ATTR_BOOL, .hidden = true},
    {.key = NULL}};

/* The pair that turns so many times within the original length; real. */
static double pair_of_turns(const dtp_op_call *call, int64_t half, double turns)
{
    const double length = (double)dtp_call_int(call, "original");
    return (double)half * log(length / (turns * TURN)) / log(dtp_call_float(call, "base"));
}

static dtp_rope_rates yarn_rates(const dtp_op_call *call, int64_t half, dtp_rope_rates r,
                                 bool whole)
{
    double first = pair_of_turns(call, half, dtp_call_float(call, "high"));
    double last = pair_of_turns(call, half, dtp_call_float(call, "low"));
    first = fmax(whole ? floor(first) : first, 0.0);
    last = fmin(whole ? ceil(last) : last, (double)(2 * half - 1));
    last += first == last ? 0.001 : 0.0;
    r.by_pair = -1.0 / (last - first);
    r.share = 1.0 + first / (last - first);
    return r;
}

dtp_rope_rates dtp_rope_rates_of(const dtp_op_call *call, int64_t half)
{
    dtp_rope_rates r = {.base = dtp_call_float(call, "base"),
                        .half = (double)half,
                        .slowed = 1.0 / dtp_call_float(call, "factor")};
    const double low = dtp_call_float(call, "low"), high = dtp_call_float(call, "high");
    switch ((scaling)dtp_call_int(call, "scaling")) {
    case SCALING_NONE:
        r.share = 1.0;
        return r;
    case SCALING_LINEAR:
        return r;
    case SCALING_LLAMA3:
        r.by_rate = (double)dtp_call_int(call, "original") / TURN / (high - low);
        r.share = -low / (high - low);
        return r;
    case SCALING_YARN:
    case SCALING_YARN_REAL:
        break;
    }
    return yarn_rates(call, half, r, dtp_call_int(call, "scaling") == SCALING_YARN);
}

double dtp_rope_rate(const dtp_rope_rates *r, int64_t pair)
{
    const double rate = pow(r->base, -(double)pair / r->half);
    const double share = r->by_rate * rate + r->by_pair * (double)pair + r->share;
    const double kept = fmin(fmax(share, 0.0), 1.0);
    return rate * (kept + (1.0 - kept) * r->slowed);
}

static dtp_status check_scaling(const dtp_op_call *call, dtp_err *err)
{
    const int64_t original = dtp_call_int(call, "original");
    const double low = dtp_call_float(call, "low"), high = dtp_call_float(call, "high");
    const double base = dtp_call_float(call, "base");
    const scaling kind = (scaling)dtp_call_int(call, "scaling");
    if (kind < SCALING_LLAMA3) {
        return DTP_OK;
    }
    if (original < 1 || high <= low) {
        return DTP_FAIL(err, DTP_INVALID,
                        "scaling '%s' needs 'original' from 1 on and 'high' above 'low': they are "
                        "%lld, %g and %g",
                        SCALINGS[kind], (long long)original, high, low);
    }
    return kind == SCALING_LLAMA3 || base > 1.0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "scaling '%s' needs a base above 1, not %g",
                          SCALINGS[kind], base);
}

static dtp_status infer_rope(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *x = &call->in[0];
    dtp_dim_id position = dtp_call_dim(call, "position"), feature = dtp_call_dim(call, "feature");
    int32_t axis = dtp_ttype_find(x, feature);
    char text[DTP_TTYPE_TEXT_BYTES];
    dtp_ttype_print(x, call->dims, text);
    if (!dtp_dtype_is_float(x->dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "x is %s, expected floats", text);
    }
    if (axis < 0 || dtp_ttype_find(x, position) < 0) {
        return DTP_FAIL(err, DTP_INVALID, "x, %s, lacks the %s dim '%s'", text,
                        axis < 0 ? "feature" : "position",
                        dtp_dims_name(call->dims, axis < 0 ? feature : position));
    }
    if (position == feature) {
        return DTP_FAIL(err, DTP_INVALID, "'position' and 'feature' are both '%s'",
                        dtp_dims_name(call->dims, feature));
    }
    if (x->dims[axis].size % 2 != 0) {
        return DTP_FAIL(err, DTP_INVALID, "feature dim '%s' has the odd size %lld",
                        dtp_dims_name(call->dims, feature), (long long)x->dims[axis].size);
    }
    if (dtp_call_int(call, "order") == DTP_ORDER_ZIGZAG) {
        DTP_TRY(dtp_sequence_check(call, position, dtp_ttype_size(x, position),
                                   dtp_call_int(call, "chunks"), err));
    }
    DTP_TRY(check_scaling(call, err));
    return dtp_rows__set_out(call, has_out, x, out, err);
}

static dtp_dim_role role_rope(const dtp_op_call *call, dtp_dim_id d)
{
    bool whole = d == dtp_call_dim(call, "feature");
    return (dtp_dim_role){.role = whole ? DTP_ROLE_WHOLE : DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
}

const dtp_op_def dtp_ops_sequence[] = {
    {
        DTP_ROW("rope", "rotary position embedding of pairs of features", 1, 1, 1),
        .attrs = ROPE_ATTRS,
        .infer = infer_rope,
        .role = role_rope,
        .linear = DTP_LINEAR_EACH,
        .x_flops = 3.0,
        .vjp = dtp_op__self_grad,
        .inplace_in = {1},
        .bench = {"qpf | position=p feature=f"},
        .f32_error = 2e-6,
    },
    {.name = NULL},
};
