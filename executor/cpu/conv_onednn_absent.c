/* Built without oneDNN: convolutions are products. */
#include "executor/cpu/conv_library.h"

dtp_status dtp_conv_library_bind(const dtp_kernel_args *args, const dtp_conv_plan *plan,
                                 dtp_arena *arena, dtp_conv_library **out, dtp_err *err)
{
    (void)args;
    (void)plan;
    (void)arena;
    (void)err;
    *out = NULL;
    return DTP_OK;
}

void dtp_conv_library_run(const dtp_conv_library *library, const dtp_kernel_args *args)
{
    (void)library;
    (void)args;
}
