/* Each square is one number, partial over the mesh dims that split its tensor. Those that are
 * partial over the same mesh dims are added before they are reduced. */
#include "dtensor/gradient_norm.h"

#include <math.h>
#include <string.h>

#include "dtensor/canonical_call.h"

static const char WHAT[] = "dtp_optimizer_step";

/* One call, not recorded. */
static dtp_status call(const char *op, const char *dims, const dtp_tensor in[2], dtp_tensor *out,
                       dtp_err *err)
{
    const dtp_call c = {.op = op, .dims = dims, .n_in = 2, .in = in};
    dtp_canonical_call canonical;
    DTP_TRY(dtp_canonical__read(&c, WHAT, &canonical, err));
    return dtp_canonical__run(&canonical, out, err);
}

static dtp_status square(dtp_tensor t, dtp_tensor *out, dtp_err *err)
{
    const dtp_tensor in[2] = {t, t};
    dtp_tensor_desc desc;
    char dims[2 * DTP_MAX_RANK + 8] = "";
    DTP_TRY(dtp_tensor_describe(t, &desc, err));
    char *at = dims;
    for (int32_t k = 0; k < 2; k++) {
        for (int32_t d = 0; d < desc.rank; d++) {
            *at++ = (char)('a' + d);
        }
        *at++ = k == 0 ? ',' : '-';
    }
    *at = '>';
    return call("einsum", dims, in, out, err);
}

/* The mesh dims over which a number is partial. */
static dtp_status partial_dims(dtp_tensor t, uint32_t *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_describe(t, &desc, err));
    *out = 0;
    for (int32_t m = 0; m < desc.layout.n_mesh; m++) {
        *out |= desc.layout.placement[m].kind == DTP_PARTIAL ? 1U << m : 0;
    }
    return DTP_OK;
}

enum { SETS = 1 << DTP_MAX_MESH_DIMS };

/* Adds a number to that of its set; takes it over. */
static dtp_status add(dtp_tensor number, dtp_tensor sums[SETS], bool has[SETS], dtp_err *err)
{
    uint32_t set;
    dtp_tensor sum = number;
    dtp_status status = partial_dims(number, &set, err);
    if (status == DTP_OK && has[set]) {
        const dtp_tensor in[2] = {sums[set], number};
        status = call("add", NULL, in, &sum, err);
        dtp_tensor_destroy(number);
        dtp_tensor_destroy(sums[set]);
        has[set] = false;
    } else if (status != DTP_OK) {
        dtp_tensor_destroy(number);
    }
    if (status == DTP_OK) {
        sums[set] = sum;
        has[set] = true;
    }
    return status;
}

dtp_status dtp_gradient__norm(int32_t n, const dtp_tensor *grads, double *out, dtp_err *err)
{
    dtp_tensor sums[SETS] = {{0}};
    bool has[SETS] = {false};
    dtp_status status = DTP_OK;
    double total = 0.0;
    for (int32_t i = 0; i < n && status == DTP_OK; i++) {
        dtp_tensor number;
        status = square(grads[i], &number, err);
        status = status == DTP_OK ? add(number, sums, has, err) : status;
    }
    for (int32_t s = 0; s < SETS; s++) {
        double value = 0.0;
        if (has[s]) {
            status = status == DTP_OK ? dtp_tensor_item(sums[s], &value, err) : status;
            dtp_tensor_destroy(sums[s]);
            total += value;
        }
    }
    *out = sqrt(total);
    return status;
}
