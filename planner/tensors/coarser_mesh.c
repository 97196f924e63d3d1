/* Layouts, shardings and redistributions of a coarser mesh on the finer one. */
#include "planner/tensors/coarser_mesh.h"

#include <string.h>

/* Bit m: mesh dims m and m + 1 are joined in coarser mesh `number`. 0: there is no such mesh. */
static dtp_mesh_set joined(const dtp_pricer *pricer, int32_t number)
{
    uint32_t left = (uint32_t)number;
    dtp_mesh_set pairs = 0;
    for (int32_t m = 0; m + 1 < pricer->mesh.n_dims; m++) {
        const dtp_group_shape *a = &pricer->groups[1U << m], *b = &pricer->groups[2U << m];
        if (a->outer == b->outer && a->outer >= 0) {
            pairs |= (left & 1U) << m;
            left >>= 1;
        }
    }
    return left == 0 ? pairs : 0;
}

int32_t dtp_coarser_meshes(const dtp_pricer *pricer)
{
    int32_t n = 0;
    while (joined(pricer, n + 1) != 0) {
        n++;
    }
    return n;
}

void dtp_coarser_mesh_make(const dtp_pricer *pricer, int32_t number, dtp_coarser_mesh *out)
{
    const dtp_mesh *fine = &pricer->mesh;
    const dtp_mesh_set pairs = joined(pricer, number);
    *out = (dtp_coarser_mesh){.mesh.n_dims = 0};
    for (int32_t m = 0; m < fine->n_dims; m++) {
        if (m > 0 && (pairs >> (m - 1) & 1U) != 0) {
            out->mesh.sizes[out->mesh.n_dims - 1] *= fine->sizes[m];
            continue;
        }
        const int32_t c = out->mesh.n_dims++;
        memcpy(out->mesh.names[c], fine->names[m], sizeof out->mesh.names[c]);
        out->mesh.sizes[c] = fine->sizes[m];
        out->first[c] = m;
    }
    out->first[out->mesh.n_dims] = fine->n_dims;
}

dtp_layout dtp_finer_layout(const dtp_coarser_mesh *c, const dtp_layout *coarse)
{
    dtp_layout fine = dtp_layout_replicated(coarse->rank, c->first[c->mesh.n_dims]);
    for (int32_t i = 0; i < c->mesh.n_dims; i++) {
        const dtp_placement *p = &coarse->placement[i];
        int32_t outside = 0; /* splits of the same tensor dim */
        for (int32_t k = 0; k < c->mesh.n_dims && p->kind == DTP_SHARD; k++) {
            const dtp_placement *q = &coarse->placement[k];
            const bool is = q->kind == DTP_SHARD && q->axis == p->axis && q->order < p->order;
            outside += is ? c->first[k + 1] - c->first[k] : 0;
        }
        for (int32_t m = c->first[i]; m < c->first[i + 1]; m++) {
            fine.placement[m] = *p;
            fine.placement[m].order =
                (int8_t)(p->kind == DTP_SHARD ? outside + m - c->first[i] : 0);
        }
    }
    return fine;
}

bool dtp_coarser_layout(const dtp_coarser_mesh *c, const dtp_layout *fine, dtp_layout *out)
{
    *out = dtp_layout_replicated(fine->rank, c->mesh.n_dims);
    for (int32_t i = 0; i < c->mesh.n_dims; i++) {
        const dtp_placement *p = &fine->placement[c->first[i]];
        out->placement[i] = *p;
        out->placement[i].order = 0;
        for (int32_t k = 0; k < c->mesh.n_dims && p->kind == DTP_SHARD; k++) {
            const dtp_placement *q = &fine->placement[c->first[k]];
            const bool outside = q->kind == DTP_SHARD && q->axis == p->axis && q->order < p->order;
            out->placement[i].order = (int8_t)(out->placement[i].order + (outside ? 1 : 0));
        }
    }
    const dtp_layout again = dtp_finer_layout(c, out);
    return dtp_layout_equal(&again, fine);
}

dtp_status dtp_finer_sharding(const dtp_coarser_mesh *c, const dtp_mesh *fine,
                              const dtp_sharding *coarse, dtp_arena *arena, dtp_sharding *out,
                              dtp_err *err)
{
    bool *regather = NULL;
    *out =
        (dtp_sharding){.mesh = *fine, .n_tensors = coarse->n_tensors, .n_nodes = coarse->n_nodes};
    DTP_TRY(DTP_NEW(arena, out->layouts, coarse->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->strategies, coarse->n_nodes, err));
    for (int32_t phase = 0; phase < DTP_N_PHASES && dtp_sharding_has_replicas(coarse); phase++) {
        DTP_TRY(DTP_NEW(arena, out->replicas[phase], coarse->n_tensors, err));
    }
    for (dtp_tensor_id t = 0; t < coarse->n_tensors; t++) {
        out->layouts[t] = dtp_finer_layout(c, &coarse->layouts[t]);
        for (int32_t k = 0; k < DTP_N_PHASES && dtp_sharding_has_replicas(coarse); k++) {
            out->replicas[k][t] = dtp_finer_layout(c, &coarse->replicas[k][t]);
        }
    }
    for (dtp_node_id id = 0; id < coarse->n_nodes; id++) {
        for (int32_t i = 0; i < c->mesh.n_dims; i++) {
            for (int32_t m = c->first[i]; m < c->first[i + 1]; m++) {
                out->strategies[id].row[m] = coarse->strategies[id].row[i];
            }
        }
    }
    if (coarse->regather != NULL) {
        DTP_TRY(DTP_NEW(arena, regather, coarse->n_tensors, err));
        memcpy(regather, coarse->regather, (size_t)coarse->n_tensors * sizeof *regather);
        out->regather = regather;
    }
    return DTP_OK;
}

/* ---- redistributions ---- */

static dtp_status plan_as_coarser(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                                  const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                                  dtp_err *err)
{
    const dtp_coarser_steps *s = user;
    const dtp_coarser_mesh *c = &s->coarser;
    dtp_layout a, b;
    bool is = dtp_layout_is_even(from, mesh, type) && dtp_layout_is_even(to, mesh, type) &&
              dtp_coarser_layout(c, from, &a) && dtp_coarser_layout(c, to, &b) &&
              dtp_redistribute_by(s->decides, &c->mesh, type, &a, &b, out, NULL) == DTP_OK;
    for (int32_t i = 0; is && i < out->n; i++) {
        dtp_step *step = &out->steps[i];
        dtp_mesh_set set = 0;
        for (int32_t k = 0; k < c->mesh.n_dims; k++) {
            for (int32_t m = c->first[k]; m < c->first[k + 1]; m++) {
                set |= (step->set >> k & 1U) << m;
            }
        }
        step->set = set;
        step->after = dtp_finer_layout(c, &step->after);
        is = dtp_layout_is_even(&step->after, mesh, type);
    }
    return is ? DTP_OK : dtp_redistribute_by(s->otherwise, mesh, type, from, to, out, err);
}

void dtp_coarser_steps_init(dtp_coarser_steps *steps, const dtp_coarser_mesh *coarser,
                            const dtp_redistributor *decides, const dtp_redistributor *otherwise)
{
    *steps = (dtp_coarser_steps){.coarser = *coarser, .decides = decides, .otherwise = otherwise};
    steps->redistributor = (dtp_redistributor){.plan = plan_as_coarser, .user = steps};
}
