/* Training without a model file: gradients from a tape, updates from an optimizer. Runs on four
 * threads, or as `mpirun -n 4 example_eager_training` on four processes. */
#include <stdio.h>

#include "dtp/optimizer.h"
#include "dtp/tape.h"
#include "dtp/world.h"

extern char **environ;

/* Mean square of x w - y. */
static dtp_status loss_of(dtp_tensor x, dtp_tensor w, dtp_tensor y, dtp_tensor *loss, dtp_err *err)
{
    dtp_tensor product, off, square;
    DTP_TRY(dtp_tensor_matmul(x, w, &product, err));
    DTP_TRY(dtp_tensor_sub(product, y, &off, err));
    DTP_TRY(dtp_tensor_square(off, &square, err));
    DTP_TRY(dtp_tensor_mean(square, 0, NULL, false, loss, err));
    dtp_tensor_destroy(product);
    dtp_tensor_destroy(off);
    dtp_tensor_destroy(square);
    return DTP_OK;
}

static dtp_status train_step(dtp_optimizer *optimizer, dtp_tensor x, dtp_tensor w, dtp_tensor y,
                             double *value, dtp_err *err)
{
    dtp_tape *tape;
    dtp_tensor loss, grad;
    DTP_TRY(dtp_tape_create(w.mesh, &tape, err));
    DTP_TRY(dtp_tape_watch(tape, w, err));
    DTP_TRY(loss_of(x, w, y, &loss, err));
    DTP_TRY(dtp_tape_gradient(tape, loss, 1, &w, &grad, err));
    dtp_tape_destroy(tape);
    DTP_TRY(dtp_optimizer_step(optimizer, 1, &w, &grad, err));
    DTP_TRY(dtp_tensor_item(loss, value, err)); /* a partial sum: reduced here */
    dtp_tensor_destroy(loss);
    dtp_tensor_destroy(grad);
    return DTP_OK;
}

static dtp_status body(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    const int64_t rows[] = {16, 8}, weights[] = {8, 4}, targets[] = {16, 4};
    const dtp_hyper hypers[] = {{"lr", 0.1}, {"weight_decay", 0.0}};
    dtp_tensor_desc dx, dw, dy;
    dtp_tensor x, y, w, initial;
    dtp_optimizer *optimizer;
    (void)user;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, rows, "0@dp", &dx, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, weights, "1@tp", &dw, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, targets, "0@dp, 1@tp", &dy, err));
    DTP_TRY(dtp_tensor_normal(mesh, &dx, 1, 0, 1, &x, err));
    DTP_TRY(dtp_tensor_ones(mesh, &dy, &y, err));
    DTP_TRY(dtp_tensor_zeros(mesh, &dw, &initial, err));
    DTP_TRY(dtp_variable_create(initial, &w, err));
    DTP_TRY(dtp_optimizer_create(mesh, "adamw", 2, hypers, &optimizer, err));
    for (int step = 0; step <= 20; step++) {
        double loss;
        DTP_TRY(train_step(optimizer, x, w, y, &loss, err));
        if (step % 10 == 0 && dtp_device_mesh_rank(mesh) == 0) {
            printf("step %d: loss %.3f\n", step, loss);
        }
    }
    dtp_optimizer_destroy(optimizer);
    return DTP_OK;
}

int main(void)
{
    dtp_err err = {0};
    dtp_world_options options = dtp_world_options_init();
    options.environment = environ;
    options.mesh.seed = 42;
    if (dtp_world_run("dp:2;tp:2", &options, body, NULL, &err) != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
