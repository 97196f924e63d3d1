/* What the tests of distributed tensors share; bodies run on every rank and report by dtp_err. */
#include "tests/dtensor/dtensor_suite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"

uint64_t dt_random(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

dtp_layout dt_random_layout(const dtp_mesh *mesh, int32_t rank, bool partial, uint64_t *seed)
{
    dtp_layout layout = dtp_layout_replicated(rank, mesh->n_dims);
    int32_t first = mesh->n_dims > 0 ? (int32_t)(dt_random(seed) % (uint64_t)mesh->n_dims) : 0;
    int32_t step = dt_random(seed) % 2 == 0 ? 1 : mesh->n_dims - 1;
    for (int32_t i = 0; i < mesh->n_dims; i++) {
        int32_t m = mesh->n_dims > 1 ? (first + i * (step < 1 ? 1 : step)) % mesh->n_dims : 0;
        uint64_t pick = dt_random(seed) % (uint64_t)(rank + (partial ? 2 : 1));
        if (pick < (uint64_t)rank) {
            dtp_layout_split(&layout, m, (int32_t)pick);
        } else if (pick > (uint64_t)rank) {
            layout.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        }
    }
    return layout;
}

dtp_tensor_desc dt_desc(dtp_dtype dtype, int32_t rank, const int64_t *shape,
                        const dtp_layout *layout)
{
    dtp_tensor_desc desc = {.dtype = dtype, .rank = rank, .layout = *layout};
    for (int32_t i = 0; i < rank; i++) {
        desc.shape[i] = shape[i];
    }
    return desc;
}

int64_t dt_elems(const dtp_tensor_desc *desc)
{
    int64_t n = 1;
    for (int32_t i = 0; i < desc->rank; i++) {
        n *= desc->shape[i];
    }
    return n;
}

void *dt_array(const dtp_tensor_desc *desc, uint64_t seed)
{
    int64_t n = dt_elems(desc);
    char *data = calloc((size_t)n + 1, 8);
    for (int64_t i = 0; i < n && data != NULL; i++) {
        uint64_t v = dt_random(&seed) % 16;
        dtp_element_set(desc->dtype, data, i,
                        desc->dtype == DTP_BOOL ? (double)(v % 2) : (double)v);
    }
    return data;
}

static dtp_status compare(dtp_dtype dtype, const void *got, const void *want, int64_t n,
                          const char *what, dtp_err *err)
{
    size_t width = (size_t)dtp_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp((const char *)got + (size_t)i * width, (const char *)want + (size_t)i * width,
                   width) != 0) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "%s: element %" PRId64 " of %" PRId64 " %s is %.17g, not %.17g", what,
                            i, n, dtp_dtype_name(dtype), dtp_element(dtype, got, i),
                            dtp_element(dtype, want, i));
        }
    }
    return DTP_OK;
}

dtp_status dt_expect(dtp_tensor t, const void *global, const char *what, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_describe(t, &desc, err));
    int64_t n = dt_elems(&desc);
    void *got = calloc((size_t)n + 1, 8);
    dtp_status status = dtp_tensor_gather(t, -1, got, err);
    if (status == DTP_OK) {
        status = compare(desc.dtype, got, global, n, what, err);
    }
    free(got);
    return status;
}

dtp_status dt_expect_local(dtp_tensor t, const void *global, const char *what, dtp_err *err)
{
    dtp_tensor_desc desc;
    dtp_local local;
    DTP_TRY(dtp_tensor_describe(t, &desc, err));
    DTP_TRY(dtp_tensor_local(t, &local, err));
    int32_t coords[DTP_MAX_MESH_DIMS];
    int64_t elems = 1, bytes = dtp_dtype_bytes(desc.dtype);
    dtp_device_mesh_coords(t.mesh, coords);
    for (int32_t i = 0; i < desc.rank; i++) {
        int64_t offset, size;
        dtp_layout_shard(&desc.layout, dtp_device_mesh_dims(t.mesh), i, desc.shape[i], coords,
                         &offset, &size);
        elems *= size;
        if (size != local.shape[i] || offset != local.offset[i]) {
            return DTP_FAIL(err, DTP_INTERNAL, "%s: dim %d has %" PRId64 " at %" PRId64, what, i,
                            local.shape[i], local.offset[i]);
        }
    }
    for (int64_t e = 0; e < elems; e++) {
        int64_t at = 0, rest = e, stride = 1;
        for (int32_t i = desc.rank - 1; i >= 0; i--) {
            at += (local.offset[i] + rest % local.shape[i]) * stride;
            rest /= local.shape[i];
            stride *= desc.shape[i];
        }
        DTP_TRY(compare(desc.dtype, (const char *)local.data + e * bytes,
                        (const char *)global + at * bytes, 1, what, err));
    }
    return DTP_OK;
}

static int job_size(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    return dtp_comm_in_mpi_job(environ) && size != NULL ? atoi(size) : 0;
}

bool dt_fits(const char *mesh)
{
    dtp_mesh dims;
    return dtp_mesh_parse(mesh, &dims, NULL) == DTP_OK &&
           (job_size() == 0 || dtp_mesh_ranks(&dims) == job_size());
}

int dt_begin(void **state)
{
    dtp_mesh mesh = {.n_dims = 1, .names = {"x"}, .sizes = {job_size()}};
    dtp_comm *keep = NULL;
    dtp_status status = job_size() > 0 ? dtp_comm_mpi_create(&mesh, &keep, NULL) : DTP_OK;
    *state = keep;
    return status == DTP_OK ? 0 : 1;
}

int dt_end(void **state)
{
    dtp_comm_destroy(*state);
    return 0;
}
