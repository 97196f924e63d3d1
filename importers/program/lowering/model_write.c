/* The model and its names file as text. */
#include <inttypes.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/safe_int.h"
#include "importers/program/lowering/blocks.h"
#include "importers/program/lowering/lower.h"
#include "importers/program/lowering/read_back.h"

typedef struct writer {
    dtp_importer *m;
    const dtp_graph_import_options *options;
    dtp_graph_import_result *out;
    int32_t n_blocks;
    dtp_block *blocks;
    dtp_strbuf *params; /* of each block, of the model */
    const char **put;   /* by output: its tensor */
    bool *needed;       /* by value: parameters and inputs that a node reads */
    bool trains;        /* one of these parameters is not frozen */
} writer;

/* ["a", "b"] of "a,b" */
static void put_list(dtp_strbuf *b, const char *names)
{
    dtp_strbuf_add(b, "[");
    b->failed = b->failed || names == NULL;
    while (names != NULL && *names != '\0') {
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
        ones += v->sizes[i] == 1 && (v->same >> i & 1) == 0 ? 1 : 0;
    }
    if ((v->same >> axis & 1) != 0) {
        return "";
    }
    if (v->sizes[axis] == 1) {
        return v->role != ATEN_PARAM ? ""
               : ones == 0           ? "one"
                                     : dtp_arena_printf(m->arena, "one_%d", ones + 1);
    }
    const char *text = "";
    const int32_t n = dtp_axis_parts(m, value, axis);
    if (n > 1 && v->role == ATEN_INPUT) {
        return dtp_arena_printf(m->arena, "%.44s_%d=%s", v->source, axis,
                                dtp_axis_size(m, value, axis));
    }
    for (int32_t i = part; i < part + n; i++) {
        text = dtp_joined(m, text, by,
                          dtp_class_name(&m->axes, m->low[value].cls[i], m->low[value].alias[i]));
    }
    return text;
}

/* "dims": ["a", "b"], "dtype": "i64"; f32 is not said. */
static void put_type(writer *w, dtp_strbuf *b, int32_t value)
{
    const dtp_aten_value *v = &w->m->g->values[value];
    const char *dims = "";
    for (int32_t i = 0; i < v->rank; i++) {
        dims = dtp_joined(w->m, dims, ",", axis_dims(w, value, i, ","));
    }
    dtp_strbuf_add(b, "\"dims\": ");
    put_list(b, dims);
    const int32_t dtype = v->table ? v->stored : v->dtype;
    if (dtype != ATEN_F32) {
        dtp_strbuf_addf(b, ", \"dtype\": \"%s\"", dtp_aten_type(dtype));
    }
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* A parameter among those of its block, or of the model, and in the names file as
 * "layers.*.attn.weight". Those of instances but the first are not written. */
static void put_param(writer *w, int32_t value, dtp_strbuf *names)
{
    const dtp_aten_value *v = &w->m->g->values[value];
    int32_t k = 0;
    const dtp_block *block = dtp_block_of(w->m, w->n_blocks, w->blocks, v->id, &k);
    const char *local = block == NULL ? v->id : dtp_block_local(block, k, v->id);
    const char *theirs = block == NULL ? v->source : dtp_block_local(block, k, v->source);
    const char *init = v->table && v->stored != v->dtype ? "\"zeros\"" /* rows of a table, flags */
                       : v->table                        ? "\"ones\""
                       : v->rank > 1                     ? "{\"normal\": 0.02}"
                       : ends_with(v->source, "bias")    ? "\"zeros\""
                                                         : "\"ones\"";
    dtp_strbuf *b = &w->params[block == NULL ? w->n_blocks : block - w->blocks];
    if (k > 0) {
        return;
    }
    dtp_strbuf_addf(b, "%s\n%s\"%s\": {", b->len > 0 ? "," : "",
                    block == NULL ? "    " : "        ", local);
    put_type(w, b, value);
    dtp_strbuf_addf(b, ", \"init\": %s", init);
    if (v->update > 0) {
        const char *id = w->m->low[v->update].id;
        dtp_strbuf_addf(b, ", \"update\": \"%s\"}",
                        block == NULL ? id : dtp_block_local(block, k, id));
    } else {
        dtp_strbuf_add(b, v->frozen ? ", \"frozen\": true}" : "}");
    }
    const char *all = block == NULL ? "" : dtp_joined(w->m, block->prefix, "", ".*.");
    dtp_strbuf_addf(names, "%s\n    \"%s%s\": {\"name\": \"%s%s\", \"axes\": [",
                    names->len > 0 ? "," : "", all, local, all, theirs);
    const char *by = "";
    for (int32_t a = 0; a < v->rank; a++) {
        if ((v->same >> a & 1) == 0) {
            dtp_strbuf_addf(names, "%s\"%s\"", by, axis_dims(w, value, v->turned ? 1 - a : a, "*"));
            by = ", ";
        }
    }
    dtp_strbuf_add(names, v->table     ? "], \"buffer\": true}"
                          : v->guessed ? "], \"guessed\": true}"
                                       : "]}");
}

static void put_input(writer *w, int32_t value, dtp_strbuf *b)
{
    dtp_strbuf_addf(b, "%s\n    \"%s\": {", b->len > 0 ? "," : "", w->m->g->values[value].source);
    put_type(w, b, value);
    if (w->m->below[value] >= 0) {
        dtp_strbuf_addf(b, ", \"below\": \"%s\"",
                        dtp_class_name(&w->m->axes, w->m->below[value], 0));
    }
    dtp_strbuf_add(b, "}");
}

/* What is fed and what is learned, where a node reads it. */
static void put_sources(writer *w, dtp_strbuf *inputs, dtp_strbuf *names)
{
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const int32_t value = w->m->g->inputs[i];
        const dtp_aten_role role = w->m->g->values[value].role;
        if (w->needed[value] && role == ATEN_PARAM) {
            put_param(w, value, names);
        } else if (w->needed[value] && role == ATEN_INPUT) {
            put_input(w, value, inputs);
        }
    }
}

/* ---- nodes ---- */

static void put_node(writer *w, dtp_strbuf *b, const dtp_out_node *o, const dtp_block *in,
                     const char *indent)
{
    dtp_strbuf_addf(b, "%s{\"id\": \"%s\", \"op\": \"%s\", \"in\": [", indent,
                    dtp_block_inner(w->m, in, o->id), o->op);
    for (int32_t i = 0; i < o->n_in; i++) {
        dtp_strbuf_addf(b, "%s\"%s\"", i > 0 ? ", " : "", dtp_block_inner(w->m, in, o->in[i]));
    }
    dtp_strbuf_add(b, "]");
    if (o->out != NULL) {
        dtp_strbuf_add(b, ", \"out\": ");
        put_list(b, o->out);
    }
    dtp_strbuf_addf(b, "%s%s}", o->attrs[0] != '\0' ? ", " : "", o->attrs);
}

/* "carry.0": "a", "carry.1": "b" */
static void put_each(dtp_strbuf *b, const char *what, int32_t n, const char *const *ids)
{
    for (int32_t k = 0; k < n; k++) {
        dtp_strbuf_addf(b, "%s\"%s.%d\": \"%s\"", k > 0 ? ", " : "", what, k, ids[k]);
    }
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
    put_each(b, "carry", block->n_carry, block->carry_out);
    dtp_strbuf_add(b, "}\n    }");
}

static void put_repeat(dtp_strbuf *b, const dtp_block *block, int32_t i)
{
    dtp_strbuf_addf(b, "    {\"repeat\": \"block.%d\", \"count\": %d, \"as\": \"%s\", \"carry\": {",
                    i, block->count, block->prefix);
    put_each(b, "carry", block->n_carry, block->carry_from);
    dtp_strbuf_add(b, block->n_with > 0 ? "}, \"with\": {" : "}");
    put_each(b, "with", block->n_with, block->with);
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

/* The size as an expression over other dims, unless that leads back to it. */
static bool put_derived(const writer *w, dtp_strbuf *b, int32_t cls)
{
    const dtp_axes *x = &w->m->axes;
    const dtp_class *c = &x->cls[cls];
    const dtp_axis base = {1, {c->base}};
    int32_t of[DTP_FLAT_PARTS];
    const int32_t n = c->base < 0 ? 0 : dtp_axis_leaves(x, 1, &base, of, DTP_FLAT_PARTS);
    int64_t size = 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = of[i];
        for (int32_t steps = 0; at >= 0; steps++) {
            if (steps == 64 || at == cls || x->cls[at].name == NULL || x->cls[at].outer >= 0) {
                return false;
            }
            at = x->cls[at].base < 0 ? -1 : dtp_class_root(x, x->cls[at].base);
        }
        size *= x->cls[of[i]].size;
    }
    if (n < 1 || size + c->more != c->size) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        dtp_strbuf_addf(b, "%s%s", i == 0 ? "\"" : "*", x->cls[of[i]].name);
    }
    dtp_strbuf_addf(b, c->more == 0 && n > 0 ? "\"" : "%+" PRId64 "\"", c->more);
    return true;
}

static void put_dims(const writer *w, dtp_strbuf *b)
{
    const dtp_axes *x = &w->m->axes;
    const char *by = "";
    int32_t ones = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const dtp_class *c = &x->cls[i];
        if (c->parent != i || !c->used || c->outer >= 0) {
            continue;
        }
        dtp_strbuf_addf(b, "%s\n    \"%s\": ", by, c->name);
        by = ",";
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
            n += v->sizes[a] == 1 && (v->same >> a & 1) == 0 ? 1 : 0;
        }
        ones = n > ones && w->needed[w->m->g->inputs[i]] ? n : ones;
    }
    for (int32_t i = 0; i < ones; i++) {
        dtp_strbuf_addf(b, i > 0 ? "%s\n    \"one_%d\": 1" : "%s\n    \"one\": 1", by, i + 1);
        by = ",";
    }
}

/* ---- outputs ---- */

/* Output i is a tensor of its own and has all its dims, in their order. */
static dtp_status whole_output(writer *w, int32_t i, dtp_err *err)
{
    dtp_importer *m = w->m;
    const int32_t value = m->g->outputs[i];
    static const dtp_aten_node outside = {.path = "", .op = "dtp.output"};
    const dtp_low *low;
    dtp_lowering l = dtp_lowering_of(m, &outside, NULL, value);
    DTP_TRY(dtp_low_get(&l, value, &low, err));
    w->put[i] = low->id;
    bool another = /* an input or a parameter, which a step changes, or an output already */
        dtp_name_find(&m->g->sources, low->id) >= 0;
    for (int32_t k = 0; k < i && !another; k++) {
        another = strcmp(w->put[k], low->id) == 0;
    }
    if (dtp_low_is_whole(low) && m->g->values[value].role == ATEN_NODE && !another) {
        return DTP_OK;
    }
    l.x = value;
    l.what = m->g->values[value].name;
    DTP_TRY(dtp_only_operand(&l, err));
    DTP_TRY(dtp_whole(&l, &l.uses[0], err));
    DTP_TRY(dtp_emit_value(&l, "permute", "", err));
    w->put[i] = m->low[value].id;
    return DTP_OK;
}

/* The first output that is the loss; -1. */
static int32_t loss_output(const writer *w)
{
    int32_t i = 0;
    while (i < w->m->g->n_outputs && w->m->g->outputs[i] != w->m->loss) {
        i++;
    }
    return i < w->m->g->n_outputs ? i : -1;
}

static void put_outputs(const writer *w, dtp_strbuf *b)
{
    const char *by = "";
    const int32_t loss = w->trains ? loss_output(w) : -1;
    dtp_strbuf_add(b, "  \"outputs\": [");
    for (int32_t i = 0; i < w->m->g->n_outputs; i++) {
        if (i != loss) {
            dtp_strbuf_addf(b, "%s\"%s\"", by, w->put[i]);
            by = ", ";
        }
    }
    dtp_strbuf_add(b, "]");
}

/* ---- both files ---- */

static void mark_needed(writer *w)
{
    for (int32_t i = 0; i < w->m->g->n_inputs; i++) {
        const int32_t v = w->m->g->inputs[i];
        w->needed[v] = w->m->low[v].id != NULL;
        int64_t n = 1;
        for (int32_t a = 0; a < w->m->g->values[v].rank; a++) {
            n *= w->m->g->values[v].sizes[a];
        }
        const bool param = w->needed[v] && w->m->g->values[v].role == ATEN_PARAM;
        w->out->report.parameters += param && !w->m->g->values[v].table ? n : 0;
        w->trains = w->trains || (param && !w->m->g->values[v].frozen);
    }
}

static void put_model(writer *w, dtp_strbuf *b)
{
    dtp_strbuf inputs = {0}, names = {0}, blocks = {0}, nodes = {0};
    put_sources(w, &inputs, &names);
    dtp_strbuf_add(&w->out->names, "{\n  \"format\": \"dtp.names/1\",\n  \"framework\": "
                                   "\"torch\",\n  \"params\": {");
    dtp_strbuf_join(&w->out->names, &names);
    dtp_strbuf_add(&w->out->names, "\n  }\n}\n");
    for (int32_t i = 0; i < w->n_blocks; i++) {
        dtp_strbuf_add(&blocks, i > 0 ? ",\n" : "");
        put_block(w, &blocks, &w->blocks[i], i);
    }
    put_nodes(w, &nodes);
    dtp_strbuf_addf(b,
                    "{\n  \"format\": \"dtp.model/1\",\n  \"name\": \"%s\",\n"
                    "  \"framework\": \"torch\",\n  \"dims\": {",
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
    if (w->m->loss >= 0 && w->trains) {
        dtp_strbuf_addf(b,
                        ",\n  \"train\": {\"loss\": \"%s\", \"optimizer\": {\"adamw\": {\"lr\": "
                        "0.0003, \"weight_decay\": 0.1}}}",
                        w->put[loss_output(w)]);
    }
    dtp_strbuf_add(b, "\n}\n");
}

dtp_status dtp_import_write(dtp_importer *m, const dtp_graph_import_options *options,
                            dtp_graph_import_result *out, dtp_err *err)
{
    writer w = {.m = m, .options = options, .out = out};
    DTP_TRY(DTP_NEW(m->arena, w.put, m->g->n_outputs + 1, err));
    for (int32_t i = 0; i < m->g->n_outputs; i++) {
        DTP_TRY(whole_output(&w, i, err));
    }
    DTP_TRY(dtp_blocks_find(m, &w.n_blocks, &w.blocks, err));
    DTP_TRY(DTP_NEW(m->arena, w.needed, m->g->n_values + 1, err));
    DTP_TRY(DTP_NEW(m->arena, w.params, w.n_blocks + 1, err));
    mark_needed(&w);
    if (m->loss >= 0 && !w.trains) {
        dtp_strbuf_add(&out->report.notes,
                       "no parameter requires a gradient: the loss is an output, and the model is "
                       "not trained\n");
    }
    put_model(&w, &out->model);
    out->report.nodes = m->n;
    out->report.blocks = w.n_blocks;
    for (int32_t i = 0; i < w.n_blocks; i++) {
        out->report.repeats += w.blocks[i].count;
    }
    if (out->model.failed || out->names.failed) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory while writing the model");
    }
    DTP_TRY(dtp_import_read_back(m, w.n_blocks, w.blocks, dtp_strbuf_text(&out->model),
                                 out->model.len, err));
    return options->weights == NULL ? DTP_OK
                                    : dtp_weights_write(m, options->weights, w.needed, err);
}
