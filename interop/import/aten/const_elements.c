#include "interop/import/aten/const_elements.h"

enum { MOST_ELEMENTS = 1 << 26, MOST_IN_ALL = 1 << 28 };
#define MOST_LOOKED_AT (INT64_C(1) << 33)

bool dtp_const_room(dtp_const_work *w, uint32_t varies, void **data)
{
    int64_t n = 1;
    for (int32_t i = w->out->rank; i-- > 0;) {
        const int64_t size = (varies >> i & 1) != 0 ? w->out->sizes[i] : 1;
        w->to->strides[i] = (varies >> i & 1) != 0 ? n : 0;
        if (size > MOST_ELEMENTS / (n > 0 ? n : 1)) {
            return false;
        }
        n *= size;
    }
    w->to->extent = n;
    w->f->elements += n;
    if (n == 0 || w->f->elements > MOST_IN_ALL) {
        return false;
    }
    const bool truth = w->out->dtype == ATEN_BOOL;
    *data = dtp_arena_alloc(w->f->g->arena, (size_t)n, truth ? 1 : sizeof(double));
    w->to->truth = truth ? *data : NULL;
    w->to->real = truth ? NULL : *data;
    return *data != NULL;
}

static double as_type(int32_t dtype, double x)
{
    switch (dtype) {
    case ATEN_F32:
    case ATEN_F16:
    case ATEN_BF16:
        return (double)(float)x;
    case ATEN_F64:
        return x;
    case ATEN_BOOL:
        return x != 0 ? 1 : 0;
    default:
        return trunc(x);
    }
}

void dtp_const_put(const dtp_const_work *w, void *data, int64_t at, double x)
{
    x = as_type(w->out->dtype, x);
    if (at < 0 || at >= w->to->extent) {
        return;
    }
    if (w->out->dtype == ATEN_BOOL) {
        ((uint8_t *)data)[at] = x != 0 ? 1 : 0;
    } else {
        ((double *)data)[at] = x;
    }
}

bool dtp_const_step(const dtp_aten_value *v, uint32_t varies, int64_t *index)
{
    for (int32_t i = v->rank; i-- > 0;) {
        if ((varies >> i & 1) == 0) {
            continue;
        }
        if (++index[i] < v->sizes[i]) {
            return true;
        }
        index[i] = 0;
    }
    return false;
}

int64_t dtp_const_offset(int32_t rank, const int64_t *strides, const int64_t *index)
{
    int64_t at = 0;
    for (int32_t i = 0; i < rank; i++) {
        at += strides[i] * index[i];
    }
    return at;
}

double dtp_const_x(const dtp_const_work *w, const int64_t *index)
{
    return dtp_const_at(w->x, dtp_const_offset(w->xv->rank, w->x->strides, index));
}

bool dtp_const_fill(dtp_const_work *w, uint32_t varies,
                    bool (*of)(const dtp_const_work *w, const int64_t *index, double *x))
{
    void *data;
    double x = 0;
    int64_t index[DTP_MAX_RANK] = {0};
    if (!dtp_const_room(w, varies, &data)) {
        return false;
    }
    do {
        if (!of(w, index, &x)) {
            return false;
        }
        dtp_const_put(w, data, dtp_const_offset(w->out->rank, w->to->strides, index), x);
    } while (dtp_const_step(w->out, varies, index));
    return true;
}

void dtp_const_close(dtp_const_folder *f, const dtp_aten_value *v, dtp_const *c)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < v->rank; axis++) {
        const int64_t size = c->strides[axis] != 0 ? v->sizes[axis] : 1;
        n = size > MOST_LOOKED_AT / (n > 0 ? n : 1) ? MOST_LOOKED_AT : n * size;
    }
    f->looked_at += n;
    if (f->looked_at >= MOST_LOOKED_AT) {
        *c = (dtp_const){.is = true};
        return;
    }
    for (int32_t axis = 0; axis < v->rank; axis++) {
        const int64_t stride = c->strides[axis];
        if (stride == 0) {
            continue;
        }
        const uint32_t varies = dtp_const_varies(c, v->rank);
        int64_t index[DTP_MAX_RANK] = {0};
        bool same = true;
        do {
            const int64_t at = dtp_const_offset(v->rank, c->strides, index);
            same = dtp_const_at(c, at) == dtp_const_at(c, at - index[axis] * stride);
        } while (same && dtp_const_step(v, varies, index));
        c->strides[axis] = same ? 0 : stride;
    }
    dtp_const_judge(c, v);
}
