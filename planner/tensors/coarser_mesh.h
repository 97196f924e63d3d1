/* Coarser meshes over the same ranks: neighbouring mesh dims taken as one. Every layout, sharding
 * and step of a redistribution there has the same meaning on the finer mesh, where each of the dims
 * that were joined has the placement, or the row of rules, of the joined one. Splits must be even:
 * a split that is not has other chunks over two mesh dims than over one. */
#ifndef DTP_PLANNER_TENSORS_COARSER_MESH_H
#define DTP_PLANNER_TENSORS_COARSER_MESH_H

#include "core/plan/sharding.h"
#include "cost_models/redistribution_price.h"

typedef struct dtp_coarser_mesh {
    dtp_mesh mesh;                        /* a joined dim has the name of its first one */
    int32_t first[DTP_MAX_MESH_DIMS + 1]; /* dim c stands for dims first[c] .. first[c + 1] - 1 */
} dtp_coarser_mesh;

/* The coarser meshes of a mesh: each set of pairs of neighbours of one network level joined, which
 * are numbers 1 .. dtp_coarser_meshes, the coarsest last. */
int32_t dtp_coarser_meshes(const dtp_pricer *pricer);
void dtp_coarser_mesh_make(const dtp_pricer *pricer, int32_t number, dtp_coarser_mesh *out);

dtp_layout dtp_finer_layout(const dtp_coarser_mesh *c, const dtp_layout *coarse);
/* False when the coarser mesh does not have the layout. */
bool dtp_coarser_layout(const dtp_coarser_mesh *c, const dtp_layout *fine, dtp_layout *out);
/* Storage from `arena`. */
dtp_status dtp_finer_sharding(const dtp_coarser_mesh *c, const dtp_mesh *fine,
                              const dtp_sharding *coarse, dtp_arena *arena, dtp_sharding *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Decides on the finer mesh as `decides` does on the coarser one, and as `otherwise` does between
 * layouts that the coarser mesh does not have. Must stay in place; all is borrowed. */
typedef struct dtp_coarser_steps {
    dtp_coarser_mesh coarser;
    const dtp_redistributor *decides, *otherwise;
    dtp_redistributor redistributor;
} dtp_coarser_steps;

void dtp_coarser_steps_init(dtp_coarser_steps *steps, const dtp_coarser_mesh *coarser,
                            const dtp_redistributor *decides, const dtp_redistributor *otherwise);

#endif
