/* The member "stages" of dtp.torch/1 (docs/formats/placements.md): the pipeline stages of a plan,
 * for torch.distributed.pipelining, torchtitan and Megatron. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "interop/export/forms.h"
#include "interop/export/torch_modules.h"
#include "spmd/program/stage_table.h"

/* The module by which a parameter is named: "layers.3" of a numbered list, else its own. */
static dtp_status module_of(const dtp_torch_plan *t, int32_t param, const char **out, dtp_err *err)
{
    const dtp_placed *of = &t->p->params[param];
    DTP_TRY(dtp_export__numbered(of, t->p->arena, out, err));
    *out = *out != NULL ? *out : of->module != NULL ? of->module : of->name;
    return DTP_OK;
}

static bool is_in(const dtp_torch_plan *t, int32_t param, int32_t chunk)
{
    const dtp_placed *of = &t->p->params[param];
    bool any = false;
    for (int32_t i = 0; i < of->n_of; i++) {
        any = any || dtp_in_chunk(t->p->graph->stages->holds[of->of[i]], chunk);
    }
    return any;
}

/* Modules of every chunk, each once, in the order of their parameters; with `first` the numbered
 * one with which every chunk but the first begins. */
static dtp_status write_modules(const dtp_torch_plan *t, bool first, dtp_json_writer *w,
                                dtp_err *err)
{
    const dtp_placements *p = t->p;
    const char **names;
    DTP_TRY(DTP_NEW(p->arena, names, p->n_params + 1, err));
    for (int32_t c = first ? 1 : 0; c < p->graph->stages->n_chunks; c++) {
        int32_t n = 0;
        if (!first) {
            dtp_json_begin_array(w, NULL, true);
        }
        for (int32_t i = 0; i < p->n_params; i++) {
            const char *name, *numbered;
            int32_t k = 0;
            DTP_TRY(module_of(t, i, &name, err));
            DTP_TRY(dtp_export__numbered(&p->params[i], p->arena, &numbered, err));
            while (k < n && strcmp(names[k], name) != 0) {
                k++;
            }
            if (k == n && is_in(t, i, c) && !(first && (n > 0 || numbered == NULL))) {
                names[n++] = name;
                dtp_json_write_string(w, NULL, name);
            }
        }
        if (!first) {
            dtp_json_end_array(w);
        }
    }
    return DTP_OK;
}

/* A row for every rank, cells "2F0" and "2B0" of chunk 2: what PyTorch calls compute_only, with
 * stages for chunks. */
static dtp_status write_table(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    const dtp_graph *g = t->p->graph;
    dtp_stage_table table;
    DTP_TRY(dtp_stage_table_of(g, t->p->arena, &table, err));
    dtp_json_begin_array(w, "slots", true);
    for (int32_t s = 0; s < table.n_stages; s++) {
        dtp_json_write_int(w, NULL, table.slots[s]);
    }
    dtp_json_end_array(w);
    dtp_json_begin_array(w, "table", false);
    for (int32_t s = 0; s < table.n_stages; s++) {
        dtp_strbuf row = {0};
        for (int32_t i = 0; i < table.n_actions[s]; i++) {
            const dtp_stage_action *a = &table.actions[s][i];
            if (a->section < DTP_SECTION_UPDATE) {
                dtp_strbuf_addf(&row, "%s%d%c%d", i > 0 ? "," : "", a->chunk,
                                a->section == DTP_SECTION_FORWARD ? 'F' : 'B', a->microbatch);
            }
        }
        dtp_json_write_string(w, NULL, dtp_strbuf_text(&row));
        const bool failed = row.failed;
        dtp_strbuf_free(&row);
        if (failed) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a table of stages");
        }
    }
    dtp_json_end_array(w);
    return DTP_OK;
}

/* Instances of blocks that begin in a chunk. */
static int32_t layers_of(const dtp_graph *g, int32_t chunk)
{
    int32_t n = 0, block = -1, instance = -1;
    for (dtp_node_id i = 0; i < g->n_nodes; i++) {
        const dtp_node *node = &g->nodes[i];
        if (node->phase == DTP_FORWARD && !node->repeats && node->block >= 0 &&
            dtp_in_chunk(g->stages->on[i], chunk) &&
            (node->block != block || node->instance != instance)) {
            n++;
            block = node->block;
            instance = node->instance;
        }
    }
    return n;
}

/* Flags of Megatron-LM; nothing where it has no such schedule or split. */
static void write_megatron(const dtp_torch_plan *t, int64_t batch, int64_t microbatch,
                           dtp_json_writer *w)
{
    const dtp_graph *g = t->p->graph;
    dtp_strbuf layout = {0};
    dtp_json_begin_array(w, "megatron", true);
    if (t->tp > 0 && g->stages->slots == 1 && microbatch > 0) {
        const struct {
            const char *flag;
            int64_t value;
        } flags[] = {{"tensor-model-parallel-size", t->tp},
                     {"context-parallel-size", t->cp},
                     {"pipeline-model-parallel-size", g->stages->n},
                     {"micro-batch-size", microbatch},
                     {"global-batch-size", batch}};
        for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
            char text[80];
            (void)snprintf(text, sizeof text, "--%s=%" PRId64, flags[i].flag, flags[i].value);
            dtp_json_write_string(w, NULL, text);
        }
        for (int32_t c = 0; c < g->stages->n_chunks; c++) {
            dtp_strbuf_addf(&layout, "%s%st*%d%s",
                            c > 0 ? "|" : "--pipeline-model-parallel-layout=", c == 0 ? "E" : "",
                            layers_of(g, c), c + 1 == g->stages->n_chunks ? "L" : "");
        }
        dtp_json_write_string(w, NULL, dtp_strbuf_text(&layout));
        dtp_strbuf_free(&layout);
    }
    dtp_json_end_array(w);
}

dtp_status dtp_export__stages(const dtp_torch_plan *t, dtp_json_writer *w, dtp_err *err)
{
    const dtp_placements *p = t->p;
    const dtp_graph *g = p->graph;
    int64_t batch = 0, parts = 1;
    if (g->stages == NULL) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < p->n_inputs && g->n_micro_dims > 0; i++) {
        for (int32_t k = 0; k < p->inputs[i].type.rank && batch == 0; k++) {
            const dtp_tdim *dim = &p->inputs[i].type.dims[k];
            batch = dim->id == g->micro_dims[0] ? dim->size : 0;
        }
    }
    for (int32_t m = 0; m < p->plan->mesh.n_dims; m++) {
        parts *= t->dim[m] == DTP_TORCH_DATA ? p->plan->mesh.sizes[m] : 1;
    }
    const int64_t microbatch = batch / (parts * g->microbatches);
    const int32_t chunks = g->stages->n_chunks / g->stages->n;
    dtp_json_begin_object(w, "stages");
    dtp_json_write_string(w, "schedule",
                          chunks > 1 ? (g->stages->slots == 1 ? "Interleaved1F1B" : "table")
                          : g->stages->slots == 1               ? "1F1B"
                          : g->stages->slots >= g->microbatches ? "GPipe"
                                                                : "table");
    if (chunks > 1) {
        dtp_json_write_int(w, "chunks", chunks);
    }
    dtp_json_write_int(w, "microbatches", g->microbatches);
    dtp_json_write_int(w, "microbatch_size", microbatch);
    dtp_json_begin_array(w, "modules", false);
    DTP_TRY(write_modules(t, false, w, err));
    dtp_json_end_array(w);
    dtp_json_begin_array(w, "begin", true);
    DTP_TRY(write_modules(t, true, w, err));
    dtp_json_end_array(w);
    DTP_TRY(write_table(t, w, err));
    write_megatron(t, batch, microbatch, w);
    dtp_json_end_object(w);
    return DTP_OK;
}
