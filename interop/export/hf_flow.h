/* What a module of transformers leaves under a tp_plan. Its styles take values that are whole on
 * every rank, but the input of rowwise, and hand on local tensors: code between modules sees a part
 * of a value as a whole one. So the values of a plan are followed through the forward graph: what
 * colwise leaves split has to reach modules that take it so, through ops that compute every part
 * from that part alone. Where it does not, the module has to gather what it makes, and what reads
 * it whole splits it. */
#ifndef DTP_INTEROP_EXPORT_HF_FLOW_H
#define DTP_INTEROP_EXPORT_HF_FLOW_H

#include "interop/export/module_styles.h"

/* What a module does with its weight over the mesh dim. */
typedef enum dtp_hf_act {
    DTP_HF_WHOLE,
    DTP_HF_COLWISE,
    DTP_HF_ROWWISE,
    DTP_HF_TABLE_ROWS,
    DTP_HF_TABLE_COLUMNS
} dtp_hf_act;

typedef struct dtp_hf_module {
    dtp_hf_act act;
    bool packed;      /* colwise, of a weight of two parts */
    bool refused;     /* no style splits its parameters as the plan does: they are whole */
    bool gathers;     /* colwise: what it makes is whole */
    bool split_input; /* rowwise: it reads what is whole */
    bool sums;        /* whole, and reads what is split: its gradients are sums */
} dtp_hf_module;

typedef struct dtp_hf_flow {
    dtp_module_styles *s; /* of mesh dim s->m >= 0, by patterns; modules may be added */
    dtp_hf_module *modules;
    int32_t
        *split; /* by tensor of the graph: the axis that local tensors are parts of, -1: whole */
} dtp_hf_flow;

/* `s` has been found (dtp_module_styles_find). */
dtp_status dtp_hf_flow_find(dtp_module_styles *s, dtp_hf_flow *out, dtp_err *err) DTP_MUST_CHECK;

/* Whether a parameter is called as those of PyTorch's layers are; others have keys of their own. */
bool dtp_hf_is_layers(const dtp_placed *of);

#endif
