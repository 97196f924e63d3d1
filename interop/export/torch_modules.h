/* Whether PyTorch's module styles can express a plan: what every mesh dim does, and the arguments
 * of parallelize_module and fully_shard. */
#ifndef DTP_INTEROP_EXPORT_TORCH_MODULES_H
#define DTP_INTEROP_EXPORT_TORCH_MODULES_H

#include "core/base/json_writer.h"
#include "interop/export/module_styles.h"

typedef enum dtp_torch_dim {
    DTP_TORCH_IDLE,    /* everything is whole */
    DTP_TORCH_DATA,    /* what has the batch dim is split over it, parameters are read whole */
    DTP_TORCH_CONTEXT, /* so is what has the dim of the queries of attention */
    DTP_TORCH_TENSOR   /* else */
} dtp_torch_dim;

/* Where a module reads or leaves a value over its mesh dims. */
typedef struct dtp_torch_side {
    bool seen;
    dtp_placement at; /* axis -1: the last */
} dtp_torch_side;

typedef struct dtp_torch_module {
    dtp_mesh_set dims; /* the tensor dims over which it has a style or redistributes its output; all
                          do the same */
    dtp_module_style style;
    int32_t lead;    /* dims of the output before those that its weight makes */
    int32_t in_lead; /* dims of what it reads before those that its weight contracts */
    dtp_torch_side input, output;
    dtp_torch_side made; /* of a module without a style, whose output is redistributed */
    bool dtensor;        /* its output is read as a DTensor, by modules with a style alone */
} dtp_torch_module;

typedef struct dtp_torch_plan {
    const dtp_placements *p;
    bool by_modules;     /* else placements alone say the plan, and only the next two are filled */
    const char *against; /* a parameter or value that styles of modules do not say; NULL: mesh dims
                            are not all split in mesh order, or do not all do the same */
    dtp_torch_dim dim[DTP_MAX_MESH_DIMS];
    int64_t dp_shard, dp_replicate, tp, cp; /* ranks, as torchtitan counts them; 0: the plan is not
                                               of that kind */
    dtp_module_styles styles;  /* over the tensor dim looked at last, as parameters are read */
    dtp_torch_module *modules; /* by module of styles: over all of them */
    const char *loss_module;   /* whose output stays split over the classes for the loss; or NULL */
    dtp_mesh_set shard;        /* the data dims of fully_shard; 0: there is none */
    bool fsdp;                 /* the plan's target gathers as fully_shard does */
    bool *sharded;             /* by parameter: fully_shard keeps it as the plan does */
    bool *moved; /* by parameter: no style keeps and reads it so; it is redistributed by itself */
} dtp_torch_plan;

dtp_status dtp_torch_plan_make(const dtp_placements *p, dtp_torch_plan *out,
                               dtp_err *err) DTP_MUST_CHECK;

dtp_torch_dim dtp_torch_dim_of(const dtp_placements *p, int32_t m);
/* Fills the degrees of a plan of modules: every mesh dim is one of torchtitan's, and fully_shard
 * keeps all parameters or none. */
void dtp_torch_degrees_find(dtp_torch_plan *t);

/* How modules of this style are called there, NULL: they are left alone. */
const char *dtp_torch_style(dtp_module_style style);

/* Appends the member "gradient_buckets": per all-reduce over data dims, in the order of the
 * program, the parameters whose gradients it sums; empty without a program. */
dtp_status dtp_export__gradient_buckets(const dtp_torch_plan *t, dtp_json_writer *w,
                                        dtp_err *err) DTP_MUST_CHECK;

/* Appends the member "stages" of a plan with pipeline stages; of others nothing. */
dtp_status dtp_export__stages(const dtp_torch_plan *t, dtp_json_writer *w,
                              dtp_err *err) DTP_MUST_CHECK;

/* How the gradient of a parameter that is redistributed by itself is made, over the mesh. */
dtp_layout dtp_torch_gradient(const dtp_torch_plan *t, int32_t param);

#endif
