/* One process runs several worlds, one after the other: training, then evaluation. A world that
 * fails is no end of the next one. Also run under MPI. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtp/ops.h"
#include "dtp/world.h"

extern char **environ;

/* The sum of 0 to 11, split over x. */
static dtp_status sum(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    static const int64_t shape[] = {12};
    const bool *fail = user;
    dtp_tensor_desc desc;
    dtp_tensor t, total;
    const dtp_layout whole = dtp_layout_replicated(0, dtp_device_mesh_dims(mesh)->n_dims);
    float value = 0.0F;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, shape, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_iota(mesh, &desc, 0, 1, &t, err));
    DTP_TRY(dtp_tensor_sum(t, 1, (const int32_t[]){0}, false, &total, err));
    DTP_TRY(dtp_tensor_redistribute(total, &whole, &total, err));
    DTP_TRY(dtp_tensor_gather(total, -1, &value, err));
    if (*fail && dtp_device_mesh_rank(mesh) == 0) {
        return DTP_FAIL(err, DTP_INVALID, "on purpose");
    }
    return value == 66.0F ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "the sum is %g", (double)value);
}

static int run(const char *mesh, bool fail)
{
    dtp_world_options options = dtp_world_options_init();
    dtp_err err = {0};
    options.threads = 1;
    options.environment = environ;
    const dtp_status got = dtp_world_run(mesh, &options, sum, &fail, &err);
    if ((got != DTP_OK) != fail || (fail && strstr(err.msg, "on purpose") == NULL)) {
        (void)fprintf(stderr, "%s: %s\n", mesh, got == DTP_OK ? "no failure" : err.msg);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    char line[32], grid[32];
    const int ranks = argc > 1 ? atoi(argv[1]) : 2;
    (void)snprintf(line, sizeof line, "x:%d", ranks);
    (void)snprintf(grid, sizeof grid, "x:2;y:%d", ranks / 2);
    return run(line, false) | run(line, false) | run(grid, true) | run(grid, false);
}
