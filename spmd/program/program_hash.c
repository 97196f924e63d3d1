/* The hash of a program, by which ranks compare what they run. */
#include "spmd/program/program.h"

#include "core/base/hash.h"

static uint64_t hash_ids(uint64_t h, int32_t n, const int32_t *ids)
{
    h = dtp_hash_i64(h, n);
    for (int32_t i = 0; i < n; i++) {
        h = dtp_hash_i64(h, ids[i]);
    }
    return h;
}

static uint64_t hash_type(uint64_t h, const dtp_ttype *t)
{
    h = dtp_hash_i64(dtp_hash_i64(h, t->dtype), t->rank);
    for (int32_t d = 0; d < t->rank; d++) {
        h = dtp_hash_i64(dtp_hash_i64(h, t->dims[d].id), t->dims[d].size);
    }
    return h;
}

/* Programs without ranges have the hashes that they had. */
static uint64_t hash_range(uint64_t h, const dtp_range *r)
{
    h = dtp_hash_i64(dtp_hash_i64(h, r->of), r->window.stride);
    h = dtp_hash_i64(dtp_hash_i64(h, r->window.per), r->window.before);
    return dtp_hash_i64(dtp_hash_i64(h, r->window.after), r->window.cyclic);
}

static uint64_t hash_value(uint64_t h, const dtp_value *v)
{
    h = dtp_hash_i64(dtp_hash_i64(h, v->kind), v->tensor);
    h = hash_type(h, &v->type);
    h = dtp_hash_bytes(h, &v->layout, sizeof v->layout);
    for (int32_t d = 0; d < v->type.rank && v->ranges != NULL; d++) {
        h = hash_range(h, &v->ranges[d]);
    }
    h = dtp_hash_i64(dtp_hash_i64(h, v->bytes), v->offset);
    h = dtp_hash_i64(h, v->parent);
    return dtp_hash_i64(dtp_hash_i64(h, v->keep), v->external);
}

static uint64_t hash_kernel(uint64_t h, const dtp_instr *instr)
{
    h = dtp_hash_i64(dtp_hash_text(h, instr->op->name), instr->workspace);
    h = dtp_hash_i64(h, instr->joined);
    for (int32_t i = 0; i < instr->n_attrs; i++) {
        const dtp_attr *a = &instr->attrs[i];
        h = dtp_hash_i64(dtp_hash_text(h, a->key), a->i);
        h = hash_ids(dtp_hash_double(h, a->f), a->n, a->ids);
    }
    return h;
}

static uint64_t hash_coll(uint64_t h, const dtp_coll *c)
{
    h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, c->kind), c->set), c->op);
    h = dtp_hash_i64(dtp_hash_i64(h, c->dtype), c->count);
    h = dtp_hash_i64(dtp_hash_i64(h, c->in_outer), c->out_outer);
    return dtp_hash_i64(dtp_hash_i64(h, c->shift), c->n_bucket);
}

static uint64_t hash_instr(uint64_t h, const dtp_instr *instr)
{
    const dtp_coll *c = &instr->coll;
    const dtp_copy *m = &instr->move;
    h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, instr->kind), instr->node), instr->phase);
    h = instr->once ? dtp_hash_i64(h, 1) : h;
    h = hash_ids(h, instr->n_in, instr->in);
    h = hash_ids(h, instr->n_out, instr->out);
    switch (instr->kind) {
    case DTP_INSTR_KERNEL:
        return hash_kernel(h, instr);
    case DTP_INSTR_START:
    case DTP_INSTR_WAIT:
        h = hash_coll(dtp_hash_i64(h, instr->pair), c);
        for (int32_t k = 0; k < c->n_bucket; k++) {
            h = hash_coll(h, &c->bucket[k]);
        }
        return h;
    default:
        h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, m->kind), m->axis), m->set);
        h = dtp_hash_double(h, m->factor);
        return m->range != NULL
                   ? hash_range(dtp_hash_i64(dtp_hash_i64(h, m->shift), m->shift2), m->range)
                   : h;
    }
}

uint64_t dtp_program_hash(const dtp_program *p)
{
    uint64_t h = dtp_hash_i64(DTP_HASH_SEED, (int64_t)dtp_graph_hash(p->graph));
    h = dtp_hash_i64(dtp_hash_i64(h, p->graph->microbatches), p->mesh.n_dims);
    h = dtp_hash_text(h, p->target->name);
    for (int32_t m = 0; m < p->mesh.n_dims; m++) {
        h = dtp_hash_i64(dtp_hash_text(h, p->mesh.names[m]), p->mesh.sizes[m]);
    }
    h = dtp_hash_i64(dtp_hash_i64(h, p->peak_bytes), p->n_values);
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        h = hash_value(h, &p->values[v]);
    }
    h = dtp_hash_i64(h, p->n_instrs);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        h = hash_instr(h, &p->instrs[i]);
    }
    h = dtp_hash_i64(h, p->n_updates);
    for (int32_t i = 0; i < p->n_updates; i++) {
        h = dtp_hash_i64(dtp_hash_i64(h, p->updates[i].target), p->updates[i].value);
    }
    return hash_ids(h, p->graph->n_tensors, p->tensor_value);
}
