/* --as placements: dtp.placements/1 (docs/formats/placements.md). */
#include <stdio.h>

#include "interop/export/forms.h"

const char *dtp_export__placement(const dtp_placement *p, char out[8])
{
    (void)snprintf(out, 8, "S(%d)", p->axis);
    return p->kind == DTP_SHARD ? out : p->kind == DTP_PARTIAL ? "P" : "R";
}

void dtp_export__layout(dtp_json_writer *w, const char *key, const dtp_layout *layout)
{
    dtp_json_begin_array(w, key, true);
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        char text[8];
        dtp_json_write_string(w, NULL, dtp_export__placement(&layout->placement[m], text));
    }
    dtp_json_end_array(w);
}

/* Members that every tensor has. */
static void write_tensor(dtp_json_writer *w, const dtp_placed *t)
{
    int64_t shape[DTP_MAX_RANK];
    for (int32_t a = 0; a < t->type.rank; a++) {
        shape[a] = t->type.dims[a].size;
    }
    dtp_json_write_ints(w, "shape", t->type.rank, shape);
    dtp_json_write_string(w, "dtype", dtp_dtype_name(t->type.dtype));
    dtp_export__layout(w, "kept", &t->kept);
    dtp_export__layout(w, "read", &t->read);
}

static void write_params(const dtp_placements *p, dtp_json_writer *w)
{
    dtp_json_begin_array(w, "params", false);
    for (int32_t i = 0; i < p->n_params; i++) {
        const dtp_placed *t = &p->params[i];
        dtp_json_begin_line(w, NULL);
        dtp_json_write_string(w, "name", t->name);
        dtp_json_begin_array(w, "of", true);
        for (int32_t k = 0; k < t->n_of; k++) {
            dtp_json_write_string(w, NULL, p->graph->tensors[t->of[k]].name);
        }
        dtp_json_end_array(w);
        write_tensor(w, t);
        if (t->frozen) {
            dtp_json_write_bool(w, "frozen", true);
        }
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
}

static void write_values(const dtp_placements *p, const char *key, int32_t n,
                         const dtp_placed *list, dtp_json_writer *w)
{
    dtp_json_begin_array(w, key, false);
    for (int32_t i = 0; i < n; i++) {
        const dtp_node_id producer = p->graph->tensors[list[i].of[0]].producer;
        dtp_json_begin_line(w, NULL);
        dtp_json_write_string(w, "name", list[i].name);
        if (producer >= 0) {
            dtp_json_write_string(w, "producer", p->graph->nodes[producer].name);
            dtp_json_write_string(w, "op", p->graph->nodes[producer].op->name);
        }
        if (list[i].module != NULL) {
            dtp_json_write_string(w, "module", list[i].module);
        }
        write_tensor(w, &list[i]);
        dtp_json_end_object(w);
    }
    dtp_json_end_array(w);
}

void dtp_export__body(const dtp_placements *p, dtp_json_writer *w)
{
    dtp_export__variant(p, w);
    write_params(p, w);
    write_values(p, "activations", p->n_activations, p->activations, w);
    write_values(p, "inputs", p->n_inputs, p->inputs, w);
    write_values(p, "outputs", p->n_outputs, p->outputs, w);
}

dtp_status dtp_export__placements(const dtp_placements *p, dtp_json_writer *w, dtp_lost *lost,
                                  dtp_err *err)
{
    (void)lost;
    (void)err;
    dtp_export__begin(p, "dtp.placements/1", w);
    dtp_export__body(p, w);
    return DTP_OK;
}
