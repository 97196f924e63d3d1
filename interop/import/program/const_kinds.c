/* What a constant is found to be: one value, an index, a step along a diagonal. */
#include "interop/import/program/aten_const.h"

bool dtp_const_is_uniform(const dtp_const *c, const dtp_aten_value *v, double *value)
{
    if (!dtp_const_known(c) || dtp_const_varies(c, v->rank) != 0) {
        return false;
    }
    *value = dtp_const_at(c, 0);
    return true;
}

bool dtp_const_is_index(const dtp_const *c, const dtp_aten_value *v, int32_t *axis, double *start)
{
    const uint32_t varies = dtp_const_known(c) ? dtp_const_varies(c, v->rank) : 0;
    if (varies == 0 || (varies & (varies - 1)) != 0) {
        return false;
    }
    for (*axis = 0; (varies >> *axis & 1) == 0;) {
        (*axis)++;
    }
    *start = dtp_const_at(c, 0);
    bool is = true;
    for (int64_t i = 0; i < v->sizes[*axis] && is; i++) {
        is = dtp_const_at(c, i * c->strides[*axis]) == *start + (double)i;
    }
    return is;
}

bool dtp_const_is_step(const dtp_const *c, const dtp_aten_value *v, dtp_const_step *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < v->rank && dtp_const_known(c); i++) {
        if (c->strides[i] != 0 && n++ < 2) {
            out->axis[n - 1] = i;
        }
    }
    if (n != 2) {
        return false;
    }
    const int64_t rows = v->sizes[out->axis[0]], columns = v->sizes[out->axis[1]];
    const int64_t down = c->strides[out->axis[0]], right = c->strides[out->axis[1]];
    out->low = dtp_const_at(c, (rows - 1) * down);
    out->high = dtp_const_at(c, (columns - 1) * right);
    out->at = -rows;
    for (int64_t k = 0; k < columns; k++) { /* the boundary in the first row */
        out->at = dtp_const_at(c, k * right) == out->low ? k : out->at;
    }
    for (int64_t r = rows - 1; r >= 0 && out->at < 0; r--) { /* or in the first column */
        out->at = dtp_const_at(c, r * down) == out->low ? -r : out->at;
    }
    bool is = out->low != out->high;
    for (int64_t i = 0; i < rows * columns && is; i++) {
        const int64_t r = i / columns, k = i % columns;
        is = dtp_const_at(c, r * down + k * right) == (k - r <= out->at ? out->low : out->high);
    }
    return is;
}

bool dtp_const_is_causal(const dtp_const *c, const dtp_aten_value *v)
{
    dtp_const_step s;
    const int32_t r = v->rank;
    if (!dtp_const_is_step(c, v, &s) || s.axis[0] != r - 2 || s.axis[1] != r - 1 ||
        s.at != v->sizes[r - 1] - v->sizes[r - 2]) {
        return false;
    }
    return v->dtype == ATEN_BOOL ? s.low == 1 : s.low == 0 && s.high <= -1e9;
}
