/* Calls of ops on distributed tensors. A call becomes a small graph: its operands, relabels for
 * dims of size 1 that are repeated, the op. Layouts are chosen by propagation from where the
 * operands are; the graph is lowered and bound by the code that runs planned graphs, and kept under
 * a key of everything that decides on it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "interop/torch_cost.h"
#include "spmd/propagate/propagate.h"
#include "dtensor/canonical_call.h"

/* ---- the key ---- */

enum { KEY_BYTES = 4096 };

typedef struct key {
    size_t n;
    unsigned char bytes[KEY_BYTES];
} key;

static void put(key *k, const void *data, size_t n)
{
    assert(k->n + n <= KEY_BYTES);
    memcpy(k->bytes + k->n, data, n);
    k->n += n;
}

static void put_i32(key *k, int32_t v)
{
    put(k, &v, sizeof v);
}

static void put_dims(key *k, int32_t n, const dtp_tdim *dims)
{
    for (int32_t i = 0; i < n; i++) {
        put_i32(k, dims[i].id);
        put(k, &dims[i].size, sizeof dims[i].size);
    }
}

/* The operand before i that is the same tensor with the same labels, else i. */
static int32_t first_same(const dtp_canonical_call *c, int32_t i)
{
    for (int32_t j = 0; j < i; j++) {
        if (c->in[j].slot == c->in[i].slot && c->in[j].generation == c->in[i].generation &&
            dtp_ttype_equal(&c->types[j], &c->types[i])) {
            return j;
        }
    }
    return i;
}

static void make_key(const dtp_canonical_call *c, const dtp_device_mesh *mesh, key *k)
{
    k->n = 0;
    put(k, c->op->name, strlen(c->op->name) + 1);
    put_i32(k, c->n_in | (mesh->options.strict ? 1 << 16 : 0) | (c->has_out ? 1 << 17 : 0) |
                   (c->wanted != NULL ? 1 << 18 : 0));
    for (int32_t i = 0; i < c->n_in; i++) {
        put_i32(k, c->types[i].rank | (int32_t)c->types[i].dtype << 8 | first_same(c, i) << 16);
        put_dims(k, c->types[i].rank, c->types[i].dims);
        put(k, &mesh->slots[c->in[i].slot].layout, sizeof(dtp_layout));
    }
    put_i32(k, c->out_rank);
    put_dims(k, c->out_rank, c->out);
    put_i32(k, c->n_attrs);
    for (int32_t i = 0; i < c->n_attrs; i++) {
        const dtp_attr *attr = &c->attrs[i];
        put(k, attr->key, strlen(attr->key) + 1);
        put(k, &attr->i, sizeof attr->i);
        put(k, &attr->f, sizeof attr->f);
        put_i32(k, attr->n);
        for (int32_t d = 0; d < attr->n; d++) {
            put_i32(k, attr->ids[d]);
        }
    }
    if (c->wanted != NULL) {
        put(k, c->wanted, sizeof *c->wanted);
    }
}

/* ---- compilation ---- */

/* What a call is compiled to, on the way. */
typedef struct compilation {
    const dtp_canonical_call *call;
    dtp_device_mesh *mesh;
    dtp_graph *graph;
    int32_t n_in;
    dtp_tensor_id operands[DTP_MAX_OP_IN]; /* by operand; equal ones share an input */
    dtp_tensor_id inputs[DTP_MAX_OP_IN];   /* the n_in distinct ones, in order */
    dtp_tensor_id outs[DTP_MAX_OP_OUT];
    dtp_pin pins[DTP_MAX_OP_IN + 1];
} compilation;

static dtp_status build_graph(compilation *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->call->n_in; i++) {
        const int32_t same = first_same(w->call, i);
        if (same < i) {
            w->operands[i] = w->operands[same];
        } else {
            /* An input with the dim names of the call; dropped dims get names of their own. */
            const dtp_canonical_call *c = w->call;
            char name[32];
            (void)snprintf(name, sizeof name, "in%d", i);
            dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_INPUT, .type = c->types[i]};
            for (int32_t k = 0; k < c->types[i].rank; k++) {
                const int32_t label = c->types[i].dims[k].id;
                char dim[DTP_LABEL_BYTES];
                if (label < 0) {
                    (void)snprintf(dim, sizeof dim, "one%d.%d", i, k);
                } else {
                    dtp_canonical__label_name(c, label, dim);
                }
                DTP_TRY(dtp_dims_intern(&w->graph->dims, dim, c->types[i].dims[k].size,
                                        &spec.type.dims[k].id, err));
            }
            DTP_TRY(dtp_graph_add_tensor(w->graph, &spec, &w->operands[i], err));
            w->pins[w->n_in] = (dtp_pin){.tensor = w->operands[i],
                                         .node = -1,
                                         .layout = w->mesh->slots[c->in[i].slot].layout};
            w->inputs[w->n_in++] = w->operands[i];
        }
    }
    DTP_TRY(dtp_canonical__add(w->call, w->graph, "", w->operands, w->outs, err));
    for (int32_t i = 0; i < w->call->op->n_out; i++) {
        DTP_TRY(dtp_graph_add_output(w->graph, w->outs[i], err));
    }
    return DTP_OK;
}

static dtp_status compile(dtp_device_mesh *mesh, const void *user,
                          const dtp_lower_options *lowering, dtp_executable *x, dtp_err *err)
{
    compilation w = {.call = user, .mesh = mesh, .graph = x->graph};
    dtp_sharding sharding;
    const bool torch = mesh->options.torch;
    dtp_propagate_options o = {.price = torch ? dtp_torch_step_price : dtp_step_generic_price,
                               .redistributor = mesh->redistributor,
                               .torch = torch,
                               .strict = mesh->options.strict,
                               .there_and_back = !torch,
                               .pins = w.pins};
    DTP_TRY(build_graph(&w, err));
    o.n_pins = w.n_in;
    if (w.call->wanted != NULL) {
        w.pins[o.n_pins++] = (dtp_pin){.tensor = w.outs[0], .node = -1, .layout = *w.call->wanted};
    }
    DTP_TRY(dtp_propagate(x->graph, &mesh->comm->mesh, &o, x->graph->arena, &sharding, err));
    DTP_TRY(dtp_lower(x->graph, &sharding, lowering, &x->program, err));
    x->n_in = w.n_in;
    x->n_out = w.call->op->n_out;
    for (int32_t i = 0; i < x->n_in; i++) {
        x->in[i] = x->program->tensor_value[w.inputs[i]];
    }
    for (int32_t i = 0; i < x->n_out; i++) {
        x->out[i] = x->program->tensor_value[w.outs[i]];
    }
    return DTP_OK;
}

/* ---- calls ---- */

/* "einsum(f32[8,10] 0@x, f32[10,16] replicated): ..." */
static void explain(const char *op, int32_t n_in, const dtp_tensor *in, dtp_err *err)
{
    char text[DTP_ERR_MSG_BYTES] = "";
    size_t used = 0;
    for (int32_t i = 0; i < n_in && used < 480; i++) {
        char operand[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor_print(in[i], operand);
        char *mesh = strstr(operand, " on ");
        if (mesh != NULL) {
            *mesh = '\0';
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.120s", i > 0 ? ", " : "",
                                 operand);
    }
    dtp_err_prefix(err, "%s(%s)", op, text);
}

dtp_status dtp_canonical__run(dtp_canonical_call *c, dtp_tensor *outs, dtp_err *err)
{
    dtp_device_mesh *mesh = c->in[0].mesh;
    key k;
    dtp_tensor in[DTP_MAX_OP_IN];
    int32_t n_in = 0;
    dtp_executable *x = NULL;
    make_key(c, mesh, &k);
    dtp_call__reads(mesh, c->n_in, c->in);
    dtp_status s = dtp_call__find(mesh, k.bytes, k.n, c->op->name, compile, c, &x, err);
    for (int32_t i = 0; i < c->n_in; i++) {
        if (first_same(c, i) == i) {
            in[n_in++] = c->in[i];
        }
    }
    s = s == DTP_OK ? dtp_executable_run(mesh, x, c->step, c->lr_scale, in, outs, err) : s;
    if (s != DTP_OK) {
        explain(c->function != NULL ? c->function : c->op->name, c->n_in, c->in, err);
    }
    return s;
}

/* What a call cannot do alone: an update needs its step and its states. */
static dtp_status check_callable(const dtp_op_def *op, dtp_err *err)
{
    if ((op->flags & DTP_OP_UPDATE) != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "'%s' needs the step of a training: use dtp_optimizer_step (optimizer.h)",
                        op->name);
    }
    if ((op->flags & DTP_OP_INTERNAL_USE) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "'%s' is made by gradients and decompositions alone",
                        op->name);
    }
    return DTP_OK;
}

dtp_status dtp_tensor_call(const dtp_call *call, dtp_tensor *outs, dtp_err *err)
{
    return dtp_canonical__call(call, NULL, outs, err);
}

dtp_status dtp_canonical__call(const dtp_call *call, const char *function, dtp_tensor *outs,
                               dtp_err *err)
{
    dtp_canonical_call c;
    DTP_TRY(DTP_NOT_NULL(err, call));
    DTP_TRY(DTP_NOT_NULL(err, call->op));
    if (call->n_in > 0) {
        DTP_TRY(DTP_NOT_NULL(err, call->in));
    }
    dtp_status s = outs != NULL ? dtp_canonical__read(call, function, &c, err)
                                : DTP_FAIL(err, DTP_INVALID, "the place of the result is NULL");
    s = s == DTP_OK ? check_callable(c.op, err) : s;
    if (s != DTP_OK) {
        dtp_device_mesh *mesh = call->n_in > 0 ? call->in[0].mesh : NULL;
        explain(function != NULL ? function : call->op, call->n_in, call->in, err);
        return mesh != NULL ? dtp_call__refuse(mesh, s, call->op, err) : s;
    }
    DTP_TRY(dtp_canonical__run(&c, outs, err));
    s = dtp_tape__record(c.in[0].mesh->tape, &c, c.n_in, c.in, c.op->n_out, outs, err);
    for (int32_t i = 0; i < c.op->n_out && s != DTP_OK; i++) {
        dtp_tensor_destroy(outs[i]);
    }
    return s;
}
