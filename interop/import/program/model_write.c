/* The model and its names file as text. */
#include <inttypes.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/safe_int.h"
#include "interop/import/program/blocks.h"
#include "interop/import/program/lower.h"

typedef struct writer {
    dtp_importer *m;
    const dtp_pt2_options *options;
    dtp_pt2_result *out;
    int32_t n_blocks;
    dtp_block *blocks;
    dtp_strbuf *params; /* of each block, of the model */
    bool *put;          /* by value: outputs that are written */
    bool *needed;       /* by value: parameters and inputs that a node reads */
} writer;

/* ["a", "b"] of "a,b" */
static void put_list(dtp_strbuf *b, const char *names)
{
    dtp_strbuf_add(b, "[");
    while (*names != '\0') {
        const size_t n = strcspn(names, ",");
        dtp_strbuf_addf(b, "\"%.*s\"%s", (int)n, names, names[n] == ',' ? ", " : "");
        names += n + (names[n] == ',' ? 1 : 0);
    }
    dtp_strbuf_add(b, "]");
}

/* ---- parameters ---- */

/* The dims of one axis of an input or a parameter, joined by `by`; axes of size 1 of a parameter
 * are dims "one", "one_2", .. */
static const char *axis_dims(writer *w, int32_t value, int32_t axis, const char *by)
{
    dtp_importer *m = w->m;
    const dtp_aten_value *v = &m->g->values[value];
    int32_t part = 0, ones = 0;
    for (int32_t i = 0; i < axis; i++) {
        part += dtp_axis_parts(m, value, i);
        ones += v->sizes[i] == 1 ? 1 : 0;
    }
    if (v->sizes[axis] == 1) {
        return v->role != ATEN_PARAM ? ""
               : ones == 0           ? "one"
                                     : dtp_arena_printf(m->arena, "one_%d", ones + 1);
    }
    const char *text = "";
    const int32_t n = dtp_axis_parts(m, value, axis);
    if (n > 1 && v->role == ATEN_INPUT) {
        return dtp_arena_printf(m->arena, "%s_%d=%s", v->source, axis,
                                dtp_axis_size(m, value, axis));
    }
    for (int32_t i = part; i < part + n && text != NULL; i++) {
        text = dtp_arena_printf(m->arena, "%s%s%s", text, i > part ? by : "",
                                dtp_class_name(m, m->low[value].cls[i], m->low[value].alias[i]));
    }
    return text;
}

static const char *value_dims(writer *w, int32_t value)
{
    const char *text = "";
    for (int32_t i = 0; i < w->m->g->values[value].rank && text != NULL; i++) {
        const char *axis = axis_dims(w, value, i, ",");
        text = axis == NULL ? NULL
                            : dtp_arena_printf(w->m->arena, "%s%s%s", text,
                                               text[0] != '\0' && axis[0] != '\0' ? "," : "", axis);
    }
    return text;
}

/* The block whose instances have the parameter; its name there in *local. Instances but the first
 * are not written. */
static const dtp_block *block_of(const writer *w, const char *name, const char **local, bool *first)
{
    int32_t k = 0;
    const dtp_block *b = dtp_block_of(w->m, w->n_blocks, w->blocks, name, &k);
    *local = b == NULL ? name : dtp_block_local(b, k, name);
    *first = k == 0;
    return b;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static void put_param(writer *w, dtp_strbuf *b, int32_t value, const char *name)
{
    const dtp_aten_value *v = &w->m->g->values[value];
    const char *init = v->rank > 1                    ? "{\"normal\": 0.02}"
                       : ends_with(v->source, "bias") ? "\"zeros\""
                                                      : "\"ones\"";
    dtp_strbuf_addf(b, "\"%s\": {\"dims\": ", name);
    put_list(b, value_dims(w, value));
    if (v->dtype != ATEN_F32) {
        dtp_strbuf_addf(b, ", \"dtype\": \"%s\"", dtp_type_name(v->dtype));
    }
    dtp_strbuf_addf(b, ", \"init\": %s}", init);
}

/* Parameters of each block, then of the model. */
static void put_params(writer *w)
{
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const int32_t value = w->m->g->inputs[i];
        const dtp_aten_value *v = &w->m->g->values[value];
        const char *local;
        bool first;
        if (v->role != ATEN_PARAM || !w->needed[value]) {
            continue;
        }
        const dtp_block *block = block_of(w, v->source, &local, &first);
        dtp_strbuf *b = &w->params[block == NULL ? w->n_blocks : block - w->blocks];
        if (first) {
            dtp_strbuf_addf(b, "%s\n%s", b->len > 0 ? "," : "",
                            block == NULL ? "    " : "        ");
            put_param(w, b, value, local);
        }
    }
}

static void put_inputs(writer *w, dtp_strbuf *b)
{
    bool any = false;
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const int32_t value = w->m->g->inputs[i];
        const dtp_aten_value *v = &w->m->g->values[value];
        if (v->role != ATEN_INPUT || !w->needed[value]) {
            continue;
        }
        dtp_strbuf_addf(b, "%s\n    \"%s\": {\"dims\": ", any ? "," : "", v->source);
        put_list(b, value_dims(w, value));
        if (v->dtype != ATEN_F32) {
            dtp_strbuf_addf(b, ", \"dtype\": \"%s\"", dtp_type_name(v->dtype));
        }
        if (w->m->below[value] >= 0) {
            dtp_strbuf_addf(b, ", \"below\": \"%s\"", dtp_class_name(w->m, w->m->below[value], 0));
        }
        dtp_strbuf_add(b, "}");
        any = true;
    }
}

/* ---- nodes ---- */

/* What an operand is called inside a block: its own names, then what is carried and seen. */
static const char *inner_name(writer *w, const dtp_block *b, const char *name)
{
    if (b == NULL || dtp_block_has(w->m, b, name)) {
        return b == NULL ? name : dtp_block_local(b, 0, name);
    }
    for (int32_t i = 0; i < b->n_carry; i++) {
        if (strcmp(b->carry_from[i], name) == 0) {
            return dtp_arena_printf(w->m->arena, "carry.%d", i);
        }
    }
    for (int32_t i = 0; i < b->n_with; i++) {
        if (strcmp(b->with[i], name) == 0) {
            return dtp_arena_printf(w->m->arena, "with.%d", i);
        }
    }
    return name;
}

static void put_node(writer *w, dtp_strbuf *b, const dtp_out_node *o, const dtp_block *in,
                     const char *indent)
{
    dtp_strbuf_addf(b, "%s{\"id\": \"%s\", \"op\": \"%s\", \"in\": [", indent,
                    inner_name(w, in, o->id), o->op);
    for (int32_t i = 0; i < o->n_in; i++) {
        dtp_strbuf_addf(b, "%s\"%s\"", i > 0 ? ", " : "", inner_name(w, in, o->in[i]));
    }
    dtp_strbuf_add(b, "]");
    if (o->out != NULL) {
        dtp_strbuf_add(b, ", \"out\": ");
        put_list(b, o->out);
    }
    dtp_strbuf_addf(b, "%s%s}", o->attrs[0] != '\0' ? ", " : "", o->attrs);
}

static void put_block(writer *w, dtp_strbuf *b, const dtp_block *block, int32_t i)
{
    dtp_strbuf_addf(b, "    \"block.%d\": {\n      \"params\": {", i);
    dtp_strbuf_join(b, &w->params[i]);
    dtp_strbuf_add(b, "\n      },\n      \"nodes\": [\n");
    for (int32_t k = 0; k < block->length; k++) {
        put_node(w, b, &w->m->nodes[block->begin + k], block, "        ");
        dtp_strbuf_add(b, k + 1 < block->length ? ",\n" : "\n");
    }
    dtp_strbuf_add(b, "      ],\n      \"out\": {");
    for (int32_t k = 0; k < block->n_carry; k++) {
        dtp_strbuf_addf(b, "%s\"carry.%d\": \"%s\"", k > 0 ? ", " : "", k, block->carry_out[k]);
    }
    dtp_strbuf_add(b, "}\n    }");
}

static void put_repeat(dtp_strbuf *b, const dtp_block *block, int32_t i)
{
    dtp_strbuf_addf(b, "    {\"repeat\": \"block.%d\", \"count\": %d, \"as\": \"%s\", \"carry\": {",
                    i, block->count, block->prefix);
    for (int32_t k = 0; k < block->n_carry; k++) {
        dtp_strbuf_addf(b, "%s\"carry.%d\": \"%s\"", k > 0 ? ", " : "", k, block->carry_from[k]);
    }
    dtp_strbuf_add(b, "}");
    for (int32_t k = 0; k < block->n_with; k++) {
        dtp_strbuf_addf(b, "%s\"with.%d\": \"%s\"", k > 0 ? ", " : ", \"with\": {", k,
                        block->with[k]);
    }
    dtp_strbuf_add(b, block->n_with > 0 ? "}}" : "}");
}

static void put_nodes(writer *w, dtp_strbuf *b)
{
    int32_t next = 0;
    for (int32_t i = 0; i < w->m->n;) {
        dtp_strbuf_add(b, i > 0 ? ",\n" : "\n");
        if (next < w->n_blocks && w->blocks[next].begin == i) {
            put_repeat(b, &w->blocks[next], next);
            i += w->blocks[next].length * w->blocks[next].count;
            next++;
        } else {
            put_node(w, b, &w->m->nodes[i++], NULL, "    ");
        }
    }
}

/* ---- dims ---- */

/* The size as an expression over another dim, unless that leads back to it. */
static bool put_derived(const writer *w, dtp_strbuf *b, int32_t cls)
{
    const dtp_axes *x = &w->m->axes;
    int32_t at = cls;
    for (int32_t steps = 0; x->cls[at].base >= 0; steps++) {
        at = dtp_class_root(x, x->cls[at].base);
        if (steps == 64 || at == cls || x->cls[at].name == NULL || x->cls[at].outer >= 0) {
            return false;
        }
    }
    const int32_t base = x->cls[cls].base < 0 ? -1 : dtp_class_root(x, x->cls[cls].base);
    if (base < 0 || x->cls[base].size + x->cls[cls].more != x->cls[cls].size) {
        return false;
    }
    dtp_strbuf_addf(b, "\"%s%+" PRId64 "\"", x->cls[base].name, x->cls[cls].more);
    return true;
}

static void put_dims(const writer *w, dtp_strbuf *b)
{
    const dtp_axes *x = &w->m->axes;
    bool any = false;
    int32_t ones = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const dtp_class *c = &x->cls[i];
        if (c->parent != i || !c->used) {
            continue;
        }
        dtp_strbuf_addf(b, "%s\n    \"%s\": ", any ? "," : "", c->name);
        any = true;
        if (!put_derived(w, b, i)) {
            dtp_strbuf_addf(b, "%" PRId64, c->size);
        }
        for (int32_t k = 1; k <= c->aliases; k++) {
            dtp_strbuf_addf(b, ",\n    \"%s_%d\": \"%s\"", c->name, k + 1, c->name);
        }
    }
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const dtp_aten_value *v = &w->m->g->values[w->m->g->inputs[i]];
        int32_t n = 0;
        for (int32_t a = 0; a < v->rank && v->role == ATEN_PARAM; a++) {
            n += v->sizes[a] == 1 ? 1 : 0;
        }
        ones = n > ones && w->needed[w->m->g->inputs[i]] ? n : ones;
    }
    for (int32_t i = 0; i < ones; i++) {
        dtp_strbuf_addf(b, "%s\n    \"one", any ? "," : "");
        dtp_strbuf_addf(b, i > 0 ? "_%d\": 1" : "\": 1", i + 1);
        any = true;
    }
}

/* ---- outputs ---- */

/* An output has all its dims, in their order. */
static dtp_status whole_output(dtp_importer *m, int32_t value, dtp_err *err)
{
    static const dtp_aten_node outside = {.path = "", .op = "dtp.output"};
    const dtp_low *low;
    dtp_lowering l = dtp_lowering_of(m, &outside, NULL, value);
    DTP_TRY(dtp_low_get(&l, value, &low, err));
    bool same = low->n_dims == low->n && m->g->values[value].role == ATEN_NODE;
    for (int32_t i = 0; i < low->n_dims; i++) {
        same = same && low->order[i] == i;
    }
    if (same) {
        return DTP_OK;
    }
    l.x = value;
    l.what = m->g->values[value].name;
    DTP_TRY(dtp_only_operand(&l, err));
    DTP_TRY(dtp_whole(&l, &l.uses[0], err));
    return dtp_emit_value(&l, "permute", "", err);
}

static void put_outputs(const writer *w, dtp_strbuf *b)
{
    const char *by = "";
    dtp_strbuf_add(b, "  \"outputs\": [");
    for (int32_t i = 0; i < w->m->g->n_outputs; i++) {
        const int32_t v = w->m->g->outputs[i];
        if (v != w->m->loss && !w->put[v]) {
            dtp_strbuf_addf(b, "%s\"%s\"", by, w->m->low[v].id);
            by = ", ";
        }
        w->put[v] = true;
    }
    dtp_strbuf_add(b, "]");
}

/* ---- both files ---- */

static void mark_needed(const writer *w)
{
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const int32_t v = w->m->g->inputs[i];
        w->needed[v] = w->m->low[v].id != NULL;
        int64_t n = 1;
        for (int32_t a = 0; a < w->m->g->values[v].rank; a++) {
            n *= w->m->g->values[v].sizes[a];
        }
        w->out->report.parameters += w->needed[v] && w->m->g->values[v].role == ATEN_PARAM ? n : 0;
    }
}

/* "layers.*.attn.weight" */
static void put_names(writer *w, dtp_strbuf *b)
{
    bool any = false;
    dtp_strbuf_add(
        b, "{\n  \"format\": \"dtp.names/1\",\n  \"framework\": \"torch\",\n  \"params\": {");
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const int32_t value = w->m->g->inputs[i];
        const dtp_aten_value *v = &w->m->g->values[value];
        const char *local;
        bool first;
        if (v->role != ATEN_PARAM || !w->needed[value]) {
            continue;
        }
        const dtp_block *block = block_of(w, v->source, &local, &first);
        if (!first) {
            continue;
        }
        const char *name =
            block == NULL ? local : dtp_arena_printf(w->m->arena, "%s.*.%s", block->prefix, local);
        dtp_strbuf_addf(b, "%s\n    \"%s\": {\"name\": \"%s\", \"axes\": [", any ? "," : "", name,
                        name);
        for (int32_t a = 0; a < v->rank; a++) {
            dtp_strbuf_addf(b, "%s\"%s\"", a > 0 ? ", " : "", axis_dims(w, value, a, "*"));
        }
        dtp_strbuf_add(b, "]}");
        any = true;
    }
    dtp_strbuf_add(b, "\n  }\n}\n");
}

static void put_model(writer *w, dtp_strbuf *b)
{
    dtp_strbuf inputs = {0}, blocks = {0}, nodes = {0};
    put_inputs(w, &inputs);
    put_params(w);
    for (int32_t i = 0; i < w->n_blocks; i++) {
        dtp_strbuf_add(&blocks, i > 0 ? ",\n" : "");
        put_block(w, &blocks, &w->blocks[i], i);
    }
    put_nodes(w, &nodes);
    dtp_strbuf_addf(b, "{\n  \"format\": \"dtp.model/1\",\n  \"name\": \"%s\",\n  \"dims\": {",
                    w->options->name);
    put_dims(w, b);
    dtp_strbuf_add(b, "\n  },\n  \"inputs\": {");
    dtp_strbuf_join(b, &inputs);
    dtp_strbuf_add(b, "\n  },\n  \"params\": {");
    dtp_strbuf_join(b, &w->params[w->n_blocks]);
    dtp_strbuf_add(b, w->n_blocks > 0 ? "\n  },\n  \"blocks\": {\n" : "\n  }");
    dtp_strbuf_join(b, &blocks);
    dtp_strbuf_add(b, w->n_blocks > 0 ? "\n  },\n  \"nodes\": [" : ",\n  \"nodes\": [");
    dtp_strbuf_join(b, &nodes);
    dtp_strbuf_add(b, "\n  ],\n");
    put_outputs(w, b);
    if (w->m->loss >= 0) {
        dtp_strbuf_addf(b,
                        ",\n  \"train\": {\"loss\": \"%s\", \"optimizer\": {\"adamw\": {\"lr\": "
                        "0.0003, \"weight_decay\": 0.1}}}",
                        w->m->low[w->m->loss].id);
    }
    dtp_strbuf_add(b, "\n}\n");
}

dtp_status dtp_import_write(dtp_importer *m, const dtp_pt2_options *options, dtp_pt2_result *out,
                            dtp_err *err)
{
    writer w = {.m = m, .options = options, .out = out};
    for (int32_t i = 0; i < m->g->n_outputs; i++) {
        DTP_TRY(whole_output(m, m->g->outputs[i], err));
    }
    DTP_TRY(dtp_blocks_find(m, &w.n_blocks, &w.blocks, err));
    DTP_TRY(DTP_NEW(m->arena, w.put, m->g->n_values + 1, err));
    DTP_TRY(DTP_NEW(m->arena, w.needed, m->g->n_values + 1, err));
    DTP_TRY(DTP_NEW(m->arena, w.params, w.n_blocks + 1, err));
    mark_needed(&w);
    put_model(&w, &out->model);
    put_names(&w, &out->names);
    out->report.nodes = m->n;
    out->report.blocks = w.n_blocks;
    for (int32_t i = 0; i < w.n_blocks; i++) {
        out->report.repeats += w.blocks[i].count;
    }
    if (out->model.failed || out->names.failed) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory while writing the model");
    }
    return options->weights == NULL ? DTP_OK
                                    : dtp_weights_write(m, options->weights, w.needed, err);
}
