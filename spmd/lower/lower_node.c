/* Lowering of one node: operands are brought to the layouts that its strategy asks for, the op runs
 * as a kernel, as a view (relabel), as a permute (roll) or as its decomposition, and the outputs
 * are brought from the layouts the strategy leaves them in to the ones that are wanted.
 */
#include <string.h>

#include "spmd/lower/lower_internal.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/lower/redistribute_program.h"

/* A node about to be lowered. */
typedef struct node_work {
    const dtp_lower_env *env;
    const dtp_node *node;
    const dtp_lower_request *request;
    dtp_op_call call; /* global types */
} node_work;

static dtp_status layouts_of(const node_work *w, const dtp_strategy *strategy,
                             dtp_node_layouts *out, dtp_err *err)
{
    const dtp_program *p = w->env->p;
    const bool in_mesh_order = w->env->replicas && !w->env->scratch;
    dtp_layout in[DTP_MAX_OP_IN];
    for (int32_t i = 0; i < w->call.n_in; i++) {
        in[i] = in_mesh_order ? dtp_layout_replicated(w->call.in[i].rank, p->mesh.n_dims)
                              : p->values[w->request->in[i]].layout;
    }
    return dtp_node_layouts_find(&p->mesh, &w->call, NULL, strategy, in,
                                 in_mesh_order ? NULL : w->request->out_layouts, out, err);
}

/* ---- operands and outputs ---- */

static dtp_node_id cause(const node_work *w)
{
    return w->env->scratch ? w->env->node : (dtp_node_id)(w->node - w->env->graph->nodes);
}

static dtp_phase phase(const node_work *w)
{
    return w->env->scratch ? w->env->phase : w->node->phase;
}

dtp_status dtp_lower__note(const dtp_lower_env *env, dtp_node_id node, int32_t operand,
                           dtp_tensor_id tensor, const dtp_layout *from, const dtp_layout *to,
                           dtp_err *err)
{
    const dtp_mesh *mesh = &env->p->mesh;
    dtp_redistributions *found = env->found;
    if (found == NULL || env->scratch || dtp_layout_equal(from, to)) {
        return DTP_OK;
    }
    dtp_copy_info r = {
        .node = node, .operand = operand, .tensor = tensor, .from = *from, .to = *to};
    const dtp_ttype type = dtp_target_type(env->p->target, env->graph, tensor);
    DTP_TRY(dtp_redistribute_by(env->p->redistributor, mesh, &type, from, to, &r.steps, err));
    for (int32_t i = 0; i < r.steps.n; i++) {
        r.sends = r.sends || dtp_step_sends(mesh, &r.steps.steps[i]);
    }
    DTP_TRY(dtp_arena_grow(found->arena, &found->items, found->n, found->n + 1, &found->capacity,
                           sizeof *found->items, err));
    found->items[found->n++] = r;
    return DTP_OK;
}

dtp_status dtp_lower__note_shared(dtp_shared_copies *shared, const dtp_shared_copy *now,
                                  dtp_err *err)
{
    if (shared == NULL) {
        return DTP_OK;
    }
    for (int32_t i = shared->n - 1; i >= 0 && shared->items[i].node == now->node; i--) {
        const dtp_shared_copy *s = &shared->items[i];
        if (s->scratch && now->scratch && s->from == now->from &&
            dtp_layout_equal(&s->to, &now->to)) {
            return DTP_OK;
        }
    }
    DTP_TRY(dtp_arena_grow(shared->arena, &shared->items, shared->n, shared->n + 1,
                           &shared->capacity, sizeof *shared->items, err));
    shared->items[shared->n++] = *now;
    return DTP_OK;
}

bool dtp_lower__may_keep(const dtp_lower_env *env, dtp_value_id copy, dtp_value_id from)
{
    const dtp_value *values = env->p->values;
    const dtp_value_id kept = env->p->tensor_value[values[copy].tensor];
    return copy != kept && values[copy].bytes >= values[from].bytes &&
           values[copy].bytes >= values[kept].bytes;
}

/* The value in another layout: an earlier version if there is one, else redistributed now. A
 * recomputation does not read copies that the forward pass made of what goes into a block: they
 * would have to be kept for it. */
static dtp_status bring(const node_work *w, int32_t operand, const dtp_layout *layout,
                        dtp_value_id *value, dtp_err *err)
{
    dtp_program *p = w->env->p;
    const dtp_tensor_id t = p->values[*value].tensor;
    if (dtp_layout_equal(&p->values[*value].layout, layout)) {
        return DTP_OK;
    }
    for (dtp_value_id v = t >= 0 ? p->tensor_latest[t] : -1; v >= 0; v = p->values[v].previous) {
        const bool forgets =
            (w->env->forgets != NULL && w->env->forgets[t]) || p->graph->nodes[cause(w)].repeats;
        const bool own = w->env->scratch && v >= w->env->inside;
        const bool before = !forgets && v < w->env->since;
        const bool may_reuse =
            w->env->alone ? own
            : w->env->replicas
                ? own || (before && !w->env->scratch && dtp_lower__may_keep(w->env, v, *value))
                : before || v >= w->env->since || v == p->tensor_value[t];
        if (may_reuse && dtp_layout_equal(&p->values[v].layout, layout)) {
            const dtp_value_id from = *value;
            *value = v;
            const dtp_shared_copy now = {.at = p->n_instrs,
                                         .node = cause(w),
                                         .phase = phase(w),
                                         .scratch = w->env->scratch,
                                         .from = from,
                                         .to = *layout};
            return own ? DTP_OK : dtp_lower__note_shared(w->env->shared, &now, err);
        }
    }
    if (operand >= 0) {
        DTP_TRY(
            dtp_lower__note(w->env, cause(w), operand, t, &p->values[*value].layout, layout, err));
    }
    return dtp_redistribute_value(p, layout, cause(w), phase(w), value, err);
}

static const char *output_name(const node_work *w, int32_t i, const dtp_layout *layout)
{
    dtp_program *p = w->env->p;
    const char *name = w->env->graph->tensors[w->node->out[i]].name;
    const char *outer = p->graph->nodes[cause(w)].name;
    char text[DTP_LAYOUT_TEXT_BYTES];
    if (p->plain_names) {
        return w->env->scratch ? outer : name;
    }
    if (w->env->scratch) {
        return dtp_arena_printf(p->arena, "%s/%s", outer, name);
    }
    if (w->request->out_layouts == NULL || dtp_layout_equal(layout, &w->request->out_layouts[i])) {
        return name;
    }
    dtp_layout_print(layout, &p->mesh, &w->call.out[i], &p->dims, text);
    return dtp_arena_printf(p->arena, "%s@%s", name, text);
}

static dtp_status add_output(const node_work *w, int32_t i, const dtp_layout *layout,
                             dtp_value_id *out, dtp_err *err)
{
    dtp_value v = dtp_program__value_init(output_name(w, i, layout), DTP_VALUE_TEMP);
    DTP_TRY(DTP_MEMORY(err, v.name));
    v.type = dtp_target_type(w->env->p->target, w->env->graph, w->node->out[i]);
    v.layout = *layout;
    DTP_TRY(dtp_program__add_value(w->env->p, &v, out, err));
    if (!w->env->scratch) {
        dtp_program__bind(w->env->p, w->node->out[i], *out);
    }
    return DTP_OK;
}

/* ---- ways to run ---- */

static dtp_status run_kernel(const node_work *w, const dtp_node_layouts *layouts,
                             const dtp_value_id *in, dtp_value_id *out, dtp_err *err)
{
    dtp_program *p = w->env->p;
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_KERNEL, cause(w), phase(w));
    for (int32_t i = 0; i < w->call.n_out; i++) {
        DTP_TRY(add_output(w, i, &layouts->out[i], &out[i], err));
    }
    instr.op = w->call.op;
    instr.attrs = w->call.attrs;
    instr.n_attrs = w->call.n_attrs;
    if (w->env->scratch) {
        DTP_TRY(dtp_program__copy_attrs(p, w->call.attrs, w->call.n_attrs, &instr.attrs, err));
    }
    instr.n_in = w->call.n_in;
    instr.n_out = w->call.n_out;
    instr.in = in;
    instr.out = out;
    DTP_TRY(dtp_program__add_workspace(p, &instr, err));
    return dtp_program__add_instr(p, &instr, err);
}

static dtp_status run_op(const node_work *w, const dtp_node_layouts *layouts,
                         const dtp_value_id *in, dtp_value_id *out, dtp_err *err)
{
    if (layouts->internal != 0) {
        const dtp_node_id id = (dtp_node_id)(w->node - w->env->graph->nodes);
        DTP_TRY(dtp_lower__decomposed(w->env, id, layouts, in, out, err));
        /* Gives the results of a decomposition the names and tensors of the node's outputs. */
        dtp_program *p = w->env->p;
        for (int32_t i = 0; i < w->call.n_out && !w->env->scratch; i++) {
            dtp_value_id inner = out[i];
            if (p->values[inner].tensor >= 0) {
                dtp_layout layout = p->values[inner].layout;
                DTP_TRY(add_output(w, i, &layout, &out[i], err));
                p->values[out[i]].parent = inner;
                continue;
            }
            p->values[inner].name = output_name(w, i, &p->values[inner].layout);
            DTP_TRY(DTP_MEMORY(err, p->values[inner].name));
            dtp_program__bind(p, w->node->out[i], inner);
        }
        return DTP_OK;
    }
    /* A relabel reads its local operand as it lies in memory. */
    const dtp_lower_env *env = w->env;
    const bool copies =
        !env->scratch && env->survives != NULL &&
        dtp_node_copies_view(env->graph, env->survives, (dtp_node_id)(w->node - env->graph->nodes));
    if ((w->call.op->flags & DTP_OP_RELABEL) == 0 || copies) {
        return run_kernel(w, layouts, in, out, err);
    }
    DTP_TRY(add_output(w, 0, &layouts->out[0], out, err));
    w->env->p->values[*out].parent = in[0];
    return DTP_OK;
}

static dtp_status lower_work(node_work *w, dtp_value_id *out, dtp_err *err)
{
    dtp_value_id in[DTP_MAX_OP_IN] = {0};
    dtp_node_layouts layouts;
    dtp_mesh_set set = 0;
    DTP_TRY(layouts_of(w, w->request->strategy, &layouts, err));
    for (int32_t i = 0; i < w->call.n_in; i++) { /* one that is given twice is brought once */
        int32_t same = 0;
        while (same < i && (w->request->in[same] != w->request->in[i] ||
                            !dtp_layout_equal(&layouts.in[same], &layouts.in[i]))) {
            same++;
        }
        in[i] = same < i ? in[same] : w->request->in[i];
        DTP_TRY(bring(w, i, &layouts.in[i], &in[i], err));
    }
    const int32_t shift = dtp_lower__passed_on(w->env, &w->call, &layouts, &set);
    if (shift != 0) {
        DTP_TRY(add_output(w, 0, &layouts.out[0], out, err));
        DTP_TRY(
            dtp_program__emit_permute(w->env->p, in[0], set, shift, cause(w), phase(w), out, err));
    } else {
        DTP_TRY(dtp_lower__ranges(w->env, cause(w), phase(w), &w->call, &layouts, in, err));
        DTP_TRY(run_op(w, &layouts, in, out, err));
    }
    for (int32_t i = 0; i < w->call.n_out; i++) {
        if ((w->request->wanted >> i & 1U) != 0) {
            DTP_TRY(dtp_lower__note(w->env, cause(w), -1, w->node->out[i], &layouts.out[i],
                                    &w->request->out_layouts[i], err));
            DTP_TRY(bring(w, -1, &w->request->out_layouts[i], &out[i], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_lower__node(const dtp_lower_env *env, dtp_node_id node, const dtp_lower_request *r,
                           dtp_value_id *out, dtp_err *err)
{
    dtp_call_types types;
    node_work w = {.env = env, .node = &env->graph->nodes[node], .request = r};
    w.call = dtp_node_call(env->graph, w.node, &types);
    w.call.dims = &env->p->dims;
    return dtp_err_prefixed(lower_work(&w, out, err), err, "node '%s' (%s)", w.node->name,
                            w.node->op->name);
}
