/* What a constant is found to be: one value, an index, a step along a diagonal. */
#include "importers/aten/const_kinds.h"

/* Whole numbers, each `high` above the one before. */
static bool is_linear(dtp_const *c, const dtp_aten_value *v)
{
    const int64_t by = c->strides[c->axis[0]];
    c->high = dtp_const_at(c, by) - c->low;
    bool is = v->dtype != ATEN_BOOL && c->high == trunc(c->high);
    for (int64_t i = 0; i < v->sizes[c->axis[0]] && is; i++) {
        is = dtp_const_at(c, i * by) == c->low + c->high * (double)i;
    }
    return is;
}

static bool is_step(dtp_const *c, const dtp_aten_value *v)
{
    const int64_t rows = v->sizes[c->axis[0]], columns = v->sizes[c->axis[1]];
    const int64_t down = c->strides[c->axis[0]], right = c->strides[c->axis[1]];
    c->low = dtp_const_at(c, (rows - 1) * down);
    c->high = dtp_const_at(c, (columns - 1) * right);
    c->at = -rows;
    for (int64_t k = 0; k < columns; k++) { /* the boundary in the first row */
        c->at = dtp_const_at(c, k * right) == c->low ? k : c->at;
    }
    for (int64_t r = rows - 1; r >= 0 && c->at < 0; r--) { /* or in the first column */
        c->at = dtp_const_at(c, r * down) == c->low ? -r : c->at;
    }
    bool is = c->low != c->high;
    for (int64_t i = 0; i < rows * columns && is; i++) {
        const int64_t r = i / columns, k = i % columns;
        is = dtp_const_at(c, r * down + k * right) == (k - r <= c->at ? c->low : c->high);
    }
    return is;
}

void dtp_const_judge(dtp_const *c, const dtp_aten_value *v)
{
    int32_t n = 0;
    c->kind = DTP_CONST_OTHER;
    if (!dtp_const_known(c)) {
        return;
    }
    for (int32_t i = 0; i < v->rank; i++) {
        if (c->strides[i] != 0 && n++ < 2) {
            c->axis[n - 1] = i;
        }
    }
    c->low = dtp_const_at(c, 0);
    if (n == 0) {
        c->kind = isnan(c->low) ? DTP_CONST_OTHER : DTP_CONST_UNIFORM;
    } else if (n == 1 && is_linear(c, v)) {
        c->kind = c->high == 1 ? DTP_CONST_INDEX : DTP_CONST_LINEAR;
    } else if (n == 2 && is_step(c, v)) {
        c->kind = DTP_CONST_STEP;
    }
}

bool dtp_const_is_causal(const dtp_const *c, const dtp_aten_value *v)
{
    const int32_t r = v->rank;
    if (c->kind != DTP_CONST_STEP || c->axis[0] != r - 2 || c->axis[1] != r - 1 ||
        c->at != v->sizes[r - 1] - v->sizes[r - 2]) {
        return false;
    }
    return v->dtype == ATEN_BOOL ? c->low == 1 : c->low == 0 && c->high <= -1e9;
}
