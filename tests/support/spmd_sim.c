/* A naive N-rank interpreter of SPMD programs for tests: every element is a double, every move
 * and collective is written from the words of spmd/program/program.h, one element at a time. */
#include "tests/support/spmd_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"

uint64_t spmd_sim_random(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void spmd_sim_unravel(const dtp_ttype *type, int64_t flat, int64_t index[DTP_MAX_RANK])
{
    for (int32_t i = type->rank - 1; i >= 0; i--) {
        index[i] = flat % type->dims[i].size;
        flat /= type->dims[i].size;
    }
}

int64_t spmd_sim_ravel(const dtp_ttype *type, const int64_t index[DTP_MAX_RANK])
{
    int64_t flat = 0;
    for (int32_t i = 0; i < type->rank; i++) {
        flat = flat * type->dims[i].size + index[i];
    }
    return flat;
}

static double *junk(int64_t n)
{
    double *data = malloc(((size_t)n + 1) * sizeof *data);
    for (int64_t i = 0; i <= n; i++) {
        data[i] = -77777.0 - (double)i;
    }
    return data;
}

spmd_sim spmd_sim_create(const dtp_program *p, spmd_sim_kernel kernel)
{
    spmd_sim sim = {.p = p, .ranks = dtp_mesh_ranks(&p->mesh), .kernel = kernel};
    sim.buffers = calloc((size_t)(sim.ranks * p->n_values) + 1, sizeof *sim.buffers);
    if (p->peak_bytes > 0) {
        sim.arenas = calloc((size_t)sim.ranks, sizeof *sim.arenas);
    }
    for (int32_t r = 0; r < sim.ranks; r++) {
        if (sim.arenas != NULL) {
            sim.arenas[r] = junk(p->peak_bytes / (int64_t)sizeof(double));
        }
        for (int32_t v = 0; v < p->n_values; v++) {
            const dtp_value *value = &p->values[v];
            if (value->parent < 0 && (sim.arenas == NULL || value->external)) {
                sim.buffers[r * p->n_values + v] =
                    junk(value->bytes / dtp_dtype_bytes(value->type.dtype));
            }
        }
    }
    return sim;
}

void spmd_sim_destroy(spmd_sim *sim)
{
    for (int32_t i = 0; i < sim->ranks * sim->p->n_values; i++) {
        free(sim->buffers[i]);
    }
    for (int32_t r = 0; r < sim->ranks && sim->arenas != NULL; r++) {
        free(sim->arenas[r]);
    }
    free(sim->buffers);
    free(sim->arenas);
}

double *spmd_sim_data(const spmd_sim *sim, dtp_value_id v, int32_t rank)
{
    if (sim->arenas != NULL && !sim->p->values[v].external) {
        return sim->arenas[rank] + sim->p->values[v].offset / (int64_t)sizeof(double);
    }
    while (sim->p->values[v].parent >= 0) {
        v = sim->p->values[v].parent;
    }
    return sim->buffers[rank * sim->p->n_values + v];
}

/* ---- moves ---- */

/* Chunks of a tensor's `axis` against parts of a staging buffer. */
typedef struct part_list {
    double *tensor, *staging;
    dtp_ttype local, part;
    int32_t axis;
    int64_t n;
    bool pack;
} part_list;

static void copy_part(const part_list *all, int64_t p)
{
    int64_t offset, size;
    dtp_chunk(all->local.dims[all->axis].size, all->n, p, &offset, &size);
    double *base = all->staging + p * dtp_ttype_elems(&all->part);
    for (int64_t i = 0; i < dtp_ttype_elems(&all->part); i++) {
        int64_t at[DTP_MAX_RANK] = {0};
        bool inside = true;
        spmd_sim_unravel(&all->part, i, at);
        for (int32_t d = 0; d < all->part.rank; d++) {
            inside = inside && at[d] < (d == all->axis ? size : all->local.dims[d].size);
        }
        at[all->axis] += offset;
        double *element = inside ? all->tensor + spmd_sim_ravel(&all->local, at) : NULL;
        if (all->pack) {
            base[i] = inside ? *element : 0;
        } else if (inside) {
            *element = base[i];
        }
    }
}

static void run_pack(const spmd_sim *sim, const dtp_instr *instr, int32_t rank, bool pack)
{
    dtp_value_id tensor = pack ? instr->in[0] : instr->out[0];
    dtp_value_id staging = pack ? instr->out[0] : instr->in[0];
    const dtp_value *v = &sim->p->values[tensor];
    part_list all = {.tensor = spmd_sim_data(sim, tensor, rank),
                     .staging = spmd_sim_data(sim, staging, rank),
                     .axis = instr->move.axis,
                     .n = dtp_mesh_set_size(&sim->p->mesh, instr->move.set),
                     .pack = pack};
    dtp_layout_local_max(&v->layout, &sim->p->mesh, &v->type, &all.part);
    all.part.dims[all.axis].size = dtp_ceil_div(all.part.dims[all.axis].size, all.n);
    dtp_value_local(sim->p, tensor, rank, &all.local, NULL);
    for (int64_t p = 0; p < all.n; p++) {
        copy_part(&all, p);
    }
}

static void run_slice(const spmd_sim *sim, const dtp_instr *instr, int32_t rank)
{
    dtp_ttype from, to;
    int32_t axis = instr->move.axis;
    int64_t offset, size, at[DTP_MAX_RANK];
    int64_t parts = dtp_mesh_set_size(&sim->p->mesh, instr->move.set);
    dtp_value_local(sim->p, instr->in[0], rank, &from, NULL);
    dtp_value_local(sim->p, instr->out[0], rank, &to, NULL);
    dtp_chunk(from.dims[axis].size, parts, dtp_mesh_set_index(&sim->p->mesh, instr->move.set, rank),
              &offset, &size);
    if (size != to.dims[axis].size) {
        abort();
    }
    for (int64_t i = 0; i < dtp_ttype_elems(&to); i++) {
        spmd_sim_unravel(&to, i, at);
        at[axis] += offset;
        spmd_sim_data(sim, instr->out[0], rank)[i] =
            spmd_sim_data(sim, instr->in[0], rank)[spmd_sim_ravel(&from, at)];
    }
}

static void run_copy(const spmd_sim *sim, const dtp_instr *instr, int32_t rank)
{
    dtp_copy_kind kind = instr->move.kind;
    if (kind == DTP_COPY_PACK || kind == DTP_COPY_UNPACK) {
        run_pack(sim, instr, rank, kind == DTP_COPY_PACK);
        return;
    }
    if (kind == DTP_COPY_SLICE) {
        run_slice(sim, instr, rank);
        return;
    }
    dtp_ttype local;
    dtp_value_local(sim->p, instr->in[0], rank, &local, NULL);
    bool first = dtp_mesh_set_index(&sim->p->mesh, instr->move.set, rank) == 0;
    for (int64_t i = 0; i < dtp_ttype_elems(&local); i++) {
        double x = spmd_sim_data(sim, instr->in[0], rank)[i];
        if (kind == DTP_COPY_SCALE) {
            x *= instr->move.factor;
        } else if (kind == DTP_COPY_KEEP_FIRST && !first) {
            x = 0;
        }
        spmd_sim_data(sim, instr->out[0], rank)[i] = x;
    }
}

/* ---- collectives ---- */

static double reduce(dtp_reduce_op op, double a, double b)
{
    switch (op) {
    case DTP_REDUCE_PROD:
        return a * b;
    case DTP_REDUCE_MIN:
        return a < b ? a : b;
    case DTP_REDUCE_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

/* Part p, element e of a buffer [outer, n, count / outer]. */
static int64_t strided(const dtp_coll *c, int64_t outer, int64_t n, int64_t p, int64_t e)
{
    int64_t run = outer > 1 ? c->count / outer : c->count;
    return (e / run * n + p) * run + e % run;
}

/* Element i of what `rank` receives; `in` holds a snapshot of every rank's input. */
static double received(const spmd_sim *sim, const dtp_coll *c, int32_t rank, int64_t i,
                       double *const *in)
{
    const dtp_mesh *mesh = &sim->p->mesh;
    int32_t n = dtp_mesh_set_size(mesh, c->set);
    int64_t me = dtp_mesh_set_index(mesh, c->set, rank);
    int64_t run = c->out_outer > 1 ? c->count / c->out_outer : c->count;
    int32_t part = (int32_t)(i / run % n);
    int64_t element = i / (run * n) * run + i % run;
    if (c->kind == DTP_ALL_GATHER) {
        return in[dtp_mesh_set_member(mesh, c->set, rank, part)][element];
    }
    if (c->kind == DTP_ALL_TO_ALL) {
        return in[dtp_mesh_set_member(mesh, c->set, rank, part)]
                 [strided(c, c->in_outer, n, me, element)];
    }
    if (c->kind == DTP_PERMUTE) {
        int64_t from = ((me - c->shift) % n + n) % n;
        return in[dtp_mesh_set_member(mesh, c->set, rank, (int32_t)from)][i];
    }
    int64_t at = c->kind == DTP_REDUCE_SCATTER ? strided(c, c->in_outer, n, me, i) : i;
    double x = in[dtp_mesh_set_member(mesh, c->set, rank, 0)][at];
    for (int32_t k = 1; k < n; k++) {
        x = reduce(c->op, x, in[dtp_mesh_set_member(mesh, c->set, rank, k)][at]);
    }
    return x;
}

/* Collective k of a START. */
static void run_collective(const spmd_sim *sim, const dtp_instr *instr, int32_t k)
{
    const dtp_coll *c = dtp_coll_at(&instr->coll, k);
    int64_t n = dtp_mesh_set_size(&sim->p->mesh, c->set);
    int64_t n_in = c->kind == DTP_REDUCE_SCATTER || c->kind == DTP_ALL_TO_ALL ? n : 1;
    int64_t n_out = c->kind == DTP_ALL_GATHER || c->kind == DTP_ALL_TO_ALL ? n : 1;
    double **in = calloc((size_t)sim->ranks, sizeof *in);
    for (int32_t r = 0; r < sim->ranks; r++) {
        size_t bytes = (size_t)(n_in * c->count) * sizeof(double);
        in[r] = malloc(bytes + 1);
        memcpy(in[r], spmd_sim_data(sim, instr->in[k], r), bytes);
    }
    for (int32_t r = 0; r < sim->ranks; r++) {
        for (int64_t i = 0; i < n_out * c->count; i++) {
            spmd_sim_data(sim, instr->out[k], r)[i] = received(sim, c, r, i, in);
        }
    }
    for (int32_t r = 0; r < sim->ranks; r++) {
        free(in[r]);
    }
    free(in);
}

static void run_kernel(const spmd_sim *sim, const dtp_instr *instr, int32_t rank)
{
    double *in[DTP_MAX_OP_IN], *out[DTP_MAX_OP_OUT];
    for (int32_t i = 0; i < instr->n_in; i++) {
        in[i] = spmd_sim_data(sim, instr->in[i], rank);
    }
    for (int32_t i = 0; i < instr->n_out; i++) {
        out[i] = spmd_sim_data(sim, instr->out[i], rank);
    }
    if (instr->workspace >= 0) {
        memset(spmd_sim_data(sim, instr->workspace, rank), 0x7b,
               (size_t)sim->p->values[instr->workspace].bytes);
    }
    sim->kernel(sim, instr, rank, in, out);
}

/* Runs the collectives from instruction `from` up to that of `to`: the queue is in order. */
static int32_t run_queue(const spmd_sim *sim, int32_t from, int32_t to)
{
    for (; from <= to; from++) {
        const dtp_instr *instr = &sim->p->instrs[from];
        for (int32_t k = 0; k < instr->n_in && instr->kind == DTP_INSTR_START; k++) {
            run_collective(sim, instr, k);
        }
    }
    return from;
}

void spmd_sim_run(spmd_sim *sim)
{
    int32_t next = 0; /* of the queue */
    for (int32_t i = 0; i < sim->p->n_instrs; i++) {
        const dtp_instr *instr = &sim->p->instrs[i];
        if (instr->kind == (sim->late ? DTP_INSTR_WAIT : DTP_INSTR_START)) {
            next = run_queue(sim, next, sim->late ? instr->pair : i);
        }
        if (instr->kind == DTP_INSTR_START || instr->kind == DTP_INSTR_WAIT) {
            continue;
        }
        for (int32_t r = 0; r < sim->ranks; r++) {
            if (instr->kind == DTP_INSTR_COPY) {
                run_copy(sim, instr, r);
            } else {
                run_kernel(sim, instr, r);
            }
        }
    }
}

/* ---- global tensors ---- */

static dtp_mesh_set partial_set(const dtp_layout *layout, dtp_reduce_op *op)
{
    dtp_mesh_set set = 0;
    *op = DTP_REDUCE_SUM;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            set |= 1U << m;
            if (layout->placement[m].op != DTP_REDUCE_AVG) {
                *op = (dtp_reduce_op)layout->placement[m].op;
            }
        }
    }
    return set;
}

/* Product of the sizes of the mesh dims with partial averages. */
static double average_factor(const dtp_layout *layout, const dtp_mesh *mesh)
{
    double n = 1;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL && layout->placement[m].op == DTP_REDUCE_AVG) {
            n *= (double)mesh->sizes[m];
        }
    }
    return n;
}

/* A number that reduces with the others of its group to x; a hash of group and element, so that the
 * ranks of one group agree. The last member balances. */
static double summand(dtp_reduce_op op, double x, int32_t index, int32_t n, uint64_t key)
{
    double sum = 0;
    int32_t winner = (int32_t)(key % (uint64_t)n);
    switch (op) {
    case DTP_REDUCE_PROD:
        return index == winner ? x : 1;
    case DTP_REDUCE_MIN:
        return index == winner ? x : x + (double)(index + 1);
    case DTP_REDUCE_MAX:
        return index == winner ? x : x - (double)(index + 1);
    default:
        for (int32_t k = 0; k < n; k++) {
            uint64_t s = key + (uint64_t)k;
            double part = (double)(spmd_sim_random(&s) % 2001) - 1000;
            if (k == n - 1) {
                part = x - sum;
            }
            if (k == index) {
                return part;
            }
            sum += part;
        }
        return 0;
    }
}

void spmd_sim_scatter(spmd_sim *sim, dtp_value_id v, const double *global, uint64_t *seed)
{
    const dtp_value *value = &sim->p->values[v];
    const dtp_mesh *mesh = &sim->p->mesh;
    dtp_reduce_op op;
    dtp_mesh_set partial = partial_set(&value->layout, &op);
    double factor = average_factor(&value->layout, mesh);
    uint64_t base = spmd_sim_random(seed);
    for (int32_t r = 0; r < sim->ranks; r++) {
        dtp_ttype local;
        int64_t offsets[DTP_MAX_RANK], at[DTP_MAX_RANK];
        dtp_value_local(sim->p, v, r, &local, offsets);
        for (int64_t i = 0; i < dtp_ttype_elems(&local); i++) {
            spmd_sim_unravel(&local, i, at);
            for (int32_t d = 0; d < local.rank; d++) {
                at[d] += offsets[d];
            }
            int64_t g = spmd_sim_ravel(&value->type, at);
            spmd_sim_data(sim, v, r)[i] =
                summand(op, global[g] * factor, dtp_mesh_set_index(mesh, partial, r),
                        dtp_mesh_set_size(mesh, partial), base + (uint64_t)g * 64);
        }
    }
}

bool spmd_sim_matches(const spmd_sim *sim, dtp_value_id v, const double *global, double tolerance)
{
    const dtp_value *value = &sim->p->values[v];
    const dtp_mesh *mesh = &sim->p->mesh;
    dtp_reduce_op op;
    dtp_mesh_set partial = partial_set(&value->layout, &op);
    double factor = average_factor(&value->layout, mesh);
    for (int32_t r = 0; r < sim->ranks; r++) {
        dtp_ttype local;
        int64_t offsets[DTP_MAX_RANK], at[DTP_MAX_RANK];
        dtp_value_local(sim->p, v, r, &local, offsets);
        for (int64_t i = 0; i < dtp_ttype_elems(&local); i++) {
            double x = spmd_sim_data(sim, v, dtp_mesh_set_member(mesh, partial, r, 0))[i];
            for (int32_t k = 1; k < dtp_mesh_set_size(mesh, partial); k++) {
                x = reduce(op, x,
                           spmd_sim_data(sim, v, dtp_mesh_set_member(mesh, partial, r, k))[i]);
            }
            spmd_sim_unravel(&local, i, at);
            for (int32_t d = 0; d < local.rank; d++) {
                at[d] += offsets[d];
            }
            double want = global[spmd_sim_ravel(&value->type, at)] * factor;
            double slack = tolerance * fmax(1, fabs(want));
            if (!(x >= want - slack && x <= want + slack)) {
                return false;
            }
        }
    }
    return true;
}
