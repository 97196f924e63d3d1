#include "core/graph/ops/sequence.h"

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

/* Run of positions that run r of the places holds. */
static int64_t run_at(const dtp_sequence *s, int64_t r)
{
    return r % 2 == 0 ? r / 2 : s->size / s->run - 1 - r / 2;
}

int64_t dtp_sequence_position(const dtp_sequence *s, int64_t place)
{
    if (s->run == s->size) {
        return place;
    }
    return run_at(s, place / s->run) * s->run + place % s->run;
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
