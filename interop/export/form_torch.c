/* --as torch: dtp.torch/1 (docs/formats/placements.md), dtp.placements/1 with a member "torch":
 * what PyTorch's parallelize_module and fully_shard take where the plan is one of module styles
 * (torch_modules.c). interop/python/dtplan/dtp_torch.py applies it. */
#include <inttypes.h>
#include <string.h>

#include "interop/export/forms.h"
#include "interop/export/torch_modules.h"
#include "spmd/lower/lower.h"

static dtp_status lose(const dtp_torch_plan *t, dtp_lost *lost, dtp_lost_kind kind,
                       const char *name, dtp_err *err)
{
    return dtp_lost_add(lost, t->p->arena, kind, name, err);
}

/* What modules make up for, where the plan is not of modules; and what they cannot. */
static dtp_status find_lost(const dtp_torch_plan *t, dtp_lost *lost, dtp_err *err)
{
    static const dtp_lost_kind own[] = {DTP_LOST_INSIDE, DTP_LOST_MESH_ORDER};
    const dtp_placements *p = t->p;
    int32_t rank[DTP_MAX_MESH_DIMS];
    for (int32_t m = 0; m < p->plan->mesh.n_dims; m++) {
        /* fully_shard splits what tensor dims left, whatever the order of the mesh */
        rank[m] = t->dim[m] == DTP_TORCH_TENSOR ? m : DTP_MAX_MESH_DIMS + m;
    }
    for (int32_t k = 0; k < 2 && !t->by_modules; k++) {
        for (int32_t i = 0; i < p->lost.n[own[k]]; i++) {
            DTP_TRY(lose(t, lost, own[k], p->lost.names[own[k]][i], err));
        }
    }
    for (int32_t i = 0; i < p->n_params && t->by_modules; i++) {
        if (!dtp_placements_in_order(&p->params[i].kept, rank)) {
            DTP_TRY(lose(t, lost, DTP_LOST_MESH_ORDER, p->params[i].name, err));
        }
    }
    for (int32_t i = 0; i < p->plan->variant.remat.n; i++) {
        if (strchr(p->plan->variant.remat.items[i], ' ') != NULL) {
            DTP_TRY(lose(t, lost, DTP_LOST_RECOMPUTED, NULL, err));
        }
    }
    return DTP_OK;
}

/* ---- modules of a numbered list ---- */

/* Whether the block that reads a parameter is computed again in the backward pass. */
static bool is_recomputed(const dtp_placements *p, const dtp_placed *of)
{
    bool found = false;
    for (dtp_node_id n = 0; n < p->graph->n_nodes && of->reader >= 0; n++) {
        const dtp_node *node = &p->graph->nodes[n], *own = &p->graph->nodes[of->reader];
        found = found || (node->repeats && node->block == own->block && own->block >= 0 &&
                          node->instance == own->instance);
    }
    return found;
}

/* The numbered modules that are recomputed, each once. */
static dtp_status write_recomputed(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    const char **names;
    int32_t n = 0;
    DTP_TRY(DTP_NEW(t->p->arena, names, t->p->n_params + 1, err));
    dtp_json_begin_array(w, "checkpoint", true);
    for (int32_t i = 0; i < t->p->n_params; i++) {
        const char *name;
        int32_t k = n;
        DTP_TRY(dtp_export__numbered(&t->p->params[i], t->p->arena, &name, err));
        while (name != NULL && k > 0 && strcmp(name, names[k - 1]) != 0) {
            k--;
        }
        if (name != NULL && k == 0 && is_recomputed(t->p, &t->p->params[i])) {
            dtp_json_write_string(w, NULL, name);
            names[n++] = name;
        }
    }
    dtp_json_end_array(w);
    return DTP_OK;
}

/* ---- groups of fully_shard ---- */

/* A module of a numbered list. */
typedef struct instance {
    const char *name, *pattern;
    bool some; /* not all modules of its list are groups */
    int64_t bytes;
} instance;

/* The module of a numbered list whose group a parameter is in; NULL: the root's. Where the target
 * has FSDP, instances of blocks alone are groups, as its program has them. */
static dtp_status group_of(const dtp_torch_plan *t, int32_t param, const char **out, dtp_err *err)
{
    const dtp_placed *of = &t->p->params[param];
    const bool alone = of->reader >= 0 && t->p->graph->nodes[of->reader].block >= 0;
    *out = NULL;
    return t->fsdp && !alone ? DTP_OK : dtp_export__numbered(of, t->p->arena, out, err);
}

/* Lists in the order of their first instances, the instances of a list one behind the other. */
static dtp_status find_instances(const dtp_torch_plan *t, instance **out, int32_t *n, dtp_err *err)
{
    DTP_TRY(DTP_NEW(t->p->arena, *out, t->p->n_params + 1, err));
    for (int32_t i = 0; i < t->p->n_params; i++) {
        instance found = {0};
        int32_t k = 0;
        DTP_TRY(group_of(t, i, &found.name, err));
        if (found.name == NULL) {
            continue;
        }
        DTP_TRY(dtp_module_pattern(found.name, t->p->arena, &found.pattern, err));
        while (k < *n && strcmp((*out)[k].name, found.name) != 0) {
            k++;
        }
        (*out)[k] = k == *n ? found : (*out)[k];
        *n += k == *n ? 1 : 0;
        dtp_ttype local; /* on a rank, once fully_shard has gathered it */
        dtp_layout_local_max(&t->p->params[i].read, &t->p->plan->mesh, &t->p->params[i].type,
                             &local);
        local.dtype = t->p->plan->variant.precision.compute;
        (*out)[k].bytes += t->sharded[i] ? dtp_ttype_bytes(&local) : 0;
    }
    for (int32_t i = 0, end; i < *n; i = end) {
        end = i + 1;
        for (int32_t k = end; k < *n; k++) {
            const instance one = (*out)[k];
            if (strcmp(one.pattern, (*out)[i].pattern) == 0) {
                memmove(&(*out)[end + 1], &(*out)[end], (size_t)(k - end) * sizeof one);
                (*out)[end++] = one;
            }
        }
    }
    return DTP_OK;
}

/* Marks the lists of which some modules are in the root's group. */
static dtp_status find_partial(const dtp_torch_plan *t, instance *of, int32_t n, dtp_err *err)
{
    for (int32_t i = 0; i < t->p->n_params; i++) {
        const char *own, *name, *pattern;
        DTP_TRY(group_of(t, i, &own, err));
        DTP_TRY(dtp_export__numbered(&t->p->params[i], t->p->arena, &name, err));
        if (own == NULL && name != NULL) {
            DTP_TRY(dtp_module_pattern(name, t->p->arena, &pattern, err));
            for (int32_t k = 0; k < n; k++) {
                of[k].some = of[k].some || strcmp(of[k].pattern, pattern) == 0;
            }
        }
    }
    return DTP_OK;
}

/* The first instance behind those that are one group with instance i: modules of one list that fit
 * into a bucket of the plan. A target with FSDP joins none. */
static int32_t group_end(const dtp_torch_plan *t, const instance *of, int32_t n, int32_t i)
{
    int64_t bytes = of[i].bytes;
    int32_t end = i + 1;
    while (!t->fsdp && end < n && strcmp(of[end].pattern, of[i].pattern) == 0 &&
           bytes <= t->p->plan->overlap.bucket_bytes - of[end].bytes) {
        bytes += of[end++].bytes;
    }
    return end;
}

/* Modules of a numbered list are groups of their own, said by their pattern; where several fit into
 * a bucket of the plan they are one, as its program gathers and reduces them. */
static dtp_status write_groups(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    instance *of;
    int32_t n = 0;
    DTP_TRY(find_instances(t, &of, &n, err));
    DTP_TRY(find_partial(t, of, n, err));
    dtp_json_begin_array(w, "modules", true);
    for (int32_t i = 0, end; i < n; i = end) {
        end = group_end(t, of, n, i);
        const bool first = i == 0 || strcmp(of[i - 1].pattern, of[i].pattern) != 0;
        if (first && end == i + 1 && !of[i].some) {
            dtp_json_write_string(w, NULL, of[i].pattern);
            while (end < n && strcmp(of[end].pattern, of[i].pattern) == 0) {
                end++;
            }
            continue;
        }
        dtp_json_begin_array(w, NULL, true);
        for (int32_t k = i; k < end; k++) {
            dtp_json_write_string(w, NULL, of[k].name);
        }
        dtp_json_end_array(w);
    }
    dtp_json_end_array(w);
    return DTP_OK;
}

/* ---- the member "torch" ---- */

static dtp_mesh_set dims_of(const dtp_torch_plan *t, dtp_torch_dim kind)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < t->p->plan->mesh.n_dims; m++) {
        set |= t->dim[m] == kind ? 1U << m : 0;
    }
    return set;
}

static void write_side(const char *key, const dtp_torch_side *side, dtp_json_writer *w)
{
    char text[8];
    dtp_json_write_string(w, key, dtp_export__placement(&side->at, text));
}

static bool differs(const dtp_torch_side *side, dtp_placement from)
{
    return side->seen && !dtp_same_placement(&side->at, &from);
}

static void write_set(const dtp_torch_plan *t, const char *key, dtp_mesh_set set,
                      dtp_json_writer *w)
{
    dtp_json_begin_array(w, key, true);
    for (int32_t m = 0; m < t->p->plan->mesh.n_dims; m++) {
        if ((set & 1U << m) != 0) {
            dtp_json_write_string(w, NULL, t->p->plan->mesh.names[m]);
        }
    }
    dtp_json_end_array(w);
}

/* A style as a word, or with where it reads and leaves values otherwise. */
static void write_module(const dtp_torch_plan *t, int32_t i, dtp_json_writer *w)
{
    static const dtp_placement whole = {.kind = DTP_REPLICATE},
                               last = {.kind = DTP_SHARD, .axis = -1},
                               sequence = {.kind = DTP_SHARD, .axis = 1};
    const char *key = t->styles.modules[i].key;
    const dtp_torch_module *io = &t->modules[i];
    const char *style = dtp_torch_style(io->style);
    const bool colwise = dtp_module_style_is_colwise(io->style);
    const bool rowwise = io->style == DTP_MODULE_ROWWISE;
    const bool split = io->style == DTP_MODULE_SEQUENCE;
    const bool input = differs(&io->input, split ? sequence : rowwise ? last : whole);
    const bool output = differs(&io->output, split ? sequence : colwise ? last : whole);
    const bool all = io->dims == dims_of(t, DTP_TORCH_TENSOR);
    if (io->dims == 0) {
        return;
    }
    if (style != NULL && !input && !output && all) {
        dtp_json_write_string(w, key, style);
        return;
    }
    dtp_json_begin_line(w, key);
    dtp_json_write_string(w, "style", style != NULL ? style : "output");
    if (!all) {
        write_set(t, "mesh_dims", io->dims, w);
    }
    if (style == NULL) {
        write_side("made", &io->made, w);
    } else if (input) {
        write_side("input", &io->input, w);
    }
    if (output || style == NULL) {
        write_side("output", &io->output, w);
    }
    if (io->dtensor && (output || style == NULL)) {
        dtp_json_write_bool(w, "dtensor", true);
    }
    dtp_json_end_object(w);
}

/* Whether copies of a parameter that the forward pass gathered stay for the backward pass. */
static bool stays_gathered(const dtp_placements *p, const dtp_placed *of, const bool *forgets)
{
    bool stays = false;
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        for (int32_t k = 0; k < of->n_of; k++) {
            const bool read = t == of->of[k] || dtp_graph_param_of(p->graph, t) == of->of[k];
            if (read && forgets[t]) {
                return false;
            }
            stays = stays || read;
        }
    }
    return stays;
}

/* The groups whose parameters all stay gathered, by the names of their modules; "": the root. */
static dtp_status write_kept(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    const dtp_placements *p = t->p;
    const dtp_target *target;
    instance *of;
    bool *forgets;
    int32_t n = 0;
    DTP_TRY(dtp_target_find(p->plan->target, &target, err));
    DTP_TRY(dtp_forgotten_find(p->graph, &p->plan->sharding, target, p->arena, &forgets, err));
    DTP_TRY(find_instances(t, &of, &n, err));
    of[n] = (instance){.name = ""};
    dtp_json_begin_array(w, "stay_gathered", true);
    for (int32_t k = 0; k <= n; k++) {
        bool any = false, all = true;
        for (int32_t i = 0; i < p->n_params; i++) {
            const char *name;
            DTP_TRY(group_of(t, i, &name, err));
            if (t->sharded[i] && strcmp(name != NULL ? name : "", of[k].name) == 0) {
                any = true;
                all = all && stays_gathered(p, &p->params[i], forgets);
            }
        }
        if (any && all) {
            dtp_json_write_string(w, NULL, of[k].name);
        }
    }
    dtp_json_end_array(w);
    return DTP_OK;
}

static dtp_status write_fully_shard(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    if (t->shard == 0) {
        dtp_json_write_null(w, "fully_shard");
        return DTP_OK;
    }
    dtp_json_begin_object(w, "fully_shard");
    write_set(t, "mesh_dims", t->shard, w);
    DTP_TRY(write_groups(t, w, err));
    DTP_TRY(write_kept(t, w, err));
    dtp_json_begin_line(w, "dims");
    for (int32_t i = 0; i < t->p->n_params; i++) {
        for (int32_t m = 0; m < t->p->plan->mesh.n_dims && t->sharded[i]; m++) {
            if ((t->shard & 1U << m) != 0) {
                dtp_json_write_int(w, t->p->params[i].name, t->p->params[i].kept.placement[m].axis);
                break;
            }
        }
    }
    dtp_json_end_object(w);
    dtp_json_end_object(w);
    return DTP_OK;
}

static dtp_status write_torch(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    dtp_json_begin_object(w, "torch");
    dtp_json_write_string(w, "form", t->by_modules ? "modules" : "placements");
    if (t->against != NULL) {
        dtp_json_write_string(w, "against_modules", t->against);
    }
    write_set(t, "data_dims", dims_of(t, DTP_TORCH_DATA), w);
    write_set(t, "tensor_dims", dims_of(t, DTP_TORCH_TENSOR), w);
    dtp_json_begin_object(w, "parallelize_module");
    for (int32_t i = 0; i < t->styles.n && t->by_modules; i++) {
        write_module(t, i, w);
    }
    dtp_json_end_object(w);
    if (t->by_modules && t->loss_module != NULL) {
        dtp_json_write_string(w, "loss_parallel", t->loss_module);
    } else {
        dtp_json_write_null(w, "loss_parallel");
    }
    DTP_TRY(write_fully_shard(t, w, err));
    dtp_json_begin_object(w, "redistribute");
    for (int32_t i = 0; i < t->p->n_params && t->by_modules; i++) {
        if (t->moved[i]) {
            const dtp_layout gradient = dtp_torch_gradient(t, i);
            dtp_export__layout(w, t->p->params[i].name, &gradient);
        }
    }
    dtp_json_end_object(w);
    dtp_json_write_int(w, "bucket_bytes", t->p->plan->overlap.bucket_bytes);
    DTP_TRY(dtp_export__gradient_buckets(t, w, err));
    DTP_TRY(write_recomputed(t, w, err));
    DTP_TRY(dtp_export__stages(t, w, err));
    dtp_json_end_object(w);
    return DTP_OK;
}

dtp_status dtp_export_degrees(const dtp_placements *p, const char **out, dtp_err *err)
{
    dtp_torch_plan t;
    DTP_TRY(dtp_torch_plan_make(p, &t, err));
    *out = t.tp == 0 ? NULL
                     : dtp_arena_printf(p->arena,
                                        "dp_shard=%" PRId64 " dp_replicate=%" PRId64 " tp=%" PRId64
                                        " cp=%" PRId64,
                                        t.dp_shard, t.dp_replicate, t.tp, t.cp);
    return t.tp == 0 ? DTP_OK : DTP_MEMORY(err, *out);
}

/* What the plan predicts of a step on a rank, for dtp_torch.check. */
static void write_predicted(const dtp_placements *p, dtp_json_writer *w)
{
    const dtp_prediction *of = &p->plan->predicted;
    dtp_json_begin_object(w, "predicted");
    dtp_json_write_int(w, "peak_bytes", of->peak_bytes);
    dtp_json_begin_object(w, "collectives");
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS && of->collectives[i].kind != NULL; i++) {
        dtp_json_begin_line(w, of->collectives[i].kind);
        dtp_json_write_int(w, "count", of->collectives[i].count);
        dtp_json_write_int(w, "bytes", of->collectives[i].bytes);
        dtp_json_end_object(w);
    }
    dtp_json_end_object(w);
    dtp_json_end_object(w);
}

dtp_status dtp_export__torch(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                             dtp_err *err)
{
    dtp_torch_plan t;
    DTP_TRY(dtp_torch_plan_make(p, &t, err));
    DTP_TRY(find_lost(&t, lost, err));
    dtp_export__begin(p, "dtp.torch/1", w);
    dtp_export__body(p, w);
    write_predicted(p, w);
    return write_torch(&t, w, err);
}
