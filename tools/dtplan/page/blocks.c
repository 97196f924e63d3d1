/* The nodes of one instance of every block, in order, with the layouts of what they read and make
 * drawn on the mesh, and the collectives that they need. */
#include <math.h>
#include <string.h>

#include "core/base/units.h"
#include "cost_models/comm_report.h"
#include "tools/dtplan/page/page.h"

enum { ROW = 44, HEAD = 34, MOST_ROWS = 64, PICTURE = 46, CELLS = 8 };
enum { NODE_X = 84, PARAM_X = 388, OUT_X = 700 };

typedef struct block_drawing {
    const page_input *in;
    const dtp_graph *g;
    const dtp_sharding *sharding;
    const dtp_comm_report *comm; /* by chunk, */
    int32_t n_comm;              /* 1 without stages */
    double *row_y;               /* by node; 0: not drawn */
    dtp_strbuf *out;
} block_drawing;

bool page_lists(const dtp_graph *g, dtp_node_id n)
{
    const dtp_node *node = &g->nodes[n];
    return node->phase == DTP_FORWARD && (node->block < 0 || node->instance == 0);
}

/* How many shards lie along axes from..to - 1 of a tensor; along no axis, one. */
static int64_t shards_along(const dtp_layout *layout, const dtp_mesh *mesh, int32_t from,
                            int32_t to)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    int64_t n = 1;
    for (int32_t axis = from; axis < to; axis++) {
        const int32_t dims = dtp_layout_axis_splits(layout, axis, splits);
        for (int32_t k = 0; k < dims; k++) {
            n *= mesh->sizes[splits[k]];
        }
    }
    return n;
}

void page_layout(const dtp_layout *layout, const dtp_mesh *mesh, const double box[4],
                 dtp_strbuf *out)
{
    const int32_t rows = layout->rank > 1 ? 1 : 0; /* the first axis; all others are columns */
    const int64_t split[2] = {shards_along(layout, mesh, rows, layout->rank),
                              shards_along(layout, mesh, 0, rows)};
    const int64_t n[2] = {split[0] < CELLS ? split[0] : CELLS, split[1] < CELLS ? split[1] : CELLS};
    const double wide = box[2] / (double)n[0], high = box[3] / (double)n[1];
    svg_rect(out, box, "whole", NULL);
    svg_rect(out, (const double[]){box[0], box[1], wide, high},
             dtp_layout_has_partial(layout) ? "mine partial" : "mine", NULL);
    for (int64_t k = 1; k < n[0]; k++) {
        const double x = box[0] + wide * (double)k;
        svg_line(out, (const double[]){x, box[1], x, box[1] + box[3]}, "cell");
    }
    for (int64_t k = 1; k < n[1]; k++) {
        const double y = box[1] + high * (double)k;
        svg_line(out, (const double[]){box[0], y, box[0] + box[2], y}, "cell");
    }
    if (dtp_layout_has_partial(layout)) {
        svg_text(out, box[0] + box[2] / 2.0, box[1] + box[3] / 2.0 + 4.0, 'm', 30.0, "label",
                 " Σ ");
    }
}

/* A tensor: picture, name, layout and bytes of a rank. */
static void put_tensor(const block_drawing *b, dtp_tensor_id t, double x, double y)
{
    const dtp_mesh *mesh = &b->sharding->mesh;
    const dtp_layout *layout = &b->sharding->layouts[t];
    const dtp_ttype *type = &b->g->tensors[t].type;
    char text[DTP_LAYOUT_TEXT_BYTES];
    dtp_ttype local;
    dtp_strbuf line = {0};
    page_layout(layout, mesh, (const double[]){x, y + 2.0, PICTURE, ROW - 14.0}, b->out);
    dtp_layout_print(layout, mesh, type, &b->g->dims, text);
    dtp_layout_local_max(layout, mesh, type, &local);
    dtp_strbuf_addf(&line, "%s, %s", text, dtp_byte_count((double)dtp_ttype_bytes(&local)).text);
    svg_text(b->out, x + PICTURE + 8.0, y + 14.0, 's', 248.0, "mono", b->g->tensors[t].name);
    svg_text(b->out, x + PICTURE + 8.0, y + 29.0, 's', 248.0, "small", dtp_strbuf_text(&line));
    b->out->failed = b->out->failed || line.failed;
    dtp_strbuf_free(&line);
}

/* Whether a node makes another form of a parameter alone, such as a cast; its reader shows it. */
static bool is_form_of_param(const dtp_graph *g, dtp_node_id n)
{
    return g->nodes[n].n_out == 1 && dtp_graph_param_of(g, g->nodes[n].out[0]) >= 0;
}

/* One node with its parameters, what it makes and what it and the forms of parameters that it reads
 * communicate in the forward pass; a curve on the left leads from each node that makes an operand.
 * Returns the y below. */
static double put_node(const block_drawing *b, dtp_node_id n, double y)
{
    const dtp_node *node = &b->g->nodes[n];
    char strategy[DTP_STRATEGY_TEXT_BYTES];
    dtp_strbuf title = {0}, sent = {0};
    int32_t params = 0;
    for (int32_t k = 0; k < node->n_in; k++) {
        const dtp_tensor_id param = dtp_graph_param_of(b->g, node->in[k]);
        const dtp_node_id from = b->g->tensors[node->in[k]].producer;
        const double y0 = from >= 0 ? b->row_y[from] : 0.0;
        const double bend = 8.0 + fmin(y - y0, 620.0) / 10.0;
        if (y0 > 0.0 && y0 < y) {
            dtp_strbuf_addf(b->out,
                            "<path class=\"edge\" d=\"M%d %.1fC%.1f %.1f %.1f %.1f %d %.1f\"/>\n",
                            NODE_X, y0 + 30.0, NODE_X - bend, y0 + 30.0, NODE_X - bend, y + 10.0,
                            NODE_X, y + 10.0);
        }
        if (param >= 0) {
            put_tensor(b, param, PARAM_X, y + ROW * params++);
        }
    }
    for (int32_t k = 0, i = 0; k < b->n_comm; i++) {
        if (i == b->comm[k].n_entries) {
            k++;
            i = -1;
            continue;
        }
        const dtp_comm_entry *e = &b->comm[k].entries[i];
        char set[DTP_MESH_TEXT_BYTES];
        bool here = e->node == n;
        for (int32_t j = 0; j < node->n_in && e->node >= 0 && !here; j++) {
            const dtp_node_id from = b->g->tensors[node->in[j]].producer;
            here = from == e->node && is_form_of_param(b->g, from);
        }
        if (here && e->phase == DTP_FORWARD) {
            dtp_mesh_set_print(&b->sharding->mesh, e->set, "+", set);
            dtp_strbuf_addf(&sent, "%s%s %s over %s", sent.len > 0 ? ", " : "⇄ ",
                            dtp_comm_short_name(e->kind), dtp_byte_count((double)e->bytes).text,
                            set);
        }
    }
    const double height = ROW * (params > 1 ? params : 1);
    dtp_strategy_print(b->g, n, &b->sharding->mesh, &b->sharding->strategies[n], strategy);
    dtp_strbuf_addf(&title, "%s %s", node->op->name, node->name);
    svg_rect(b->out, (const double[]){NODE_X, y, 290.0, height - 4.0}, "node", NULL);
    svg_text(b->out, NODE_X + 8.0, y + 14.0, 's', 280.0, "mono", dtp_strbuf_text(&title));
    svg_text(b->out, NODE_X + 8.0, y + 26.0, 's', 280.0, "small", strategy);
    svg_text(b->out, NODE_X + 8.0, y + 38.0, 's', 280.0, "sent", dtp_strbuf_text(&sent));
    put_tensor(b, node->out[0], OUT_X, y);
    b->row_y[n] = y;
    b->out->failed = b->out->failed || title.failed || sent.failed;
    dtp_strbuf_free(&title);
    dtp_strbuf_free(&sent);
    return y + height;
}

/* A block, or (-1) what is in none; returns the y below. */
static double put_block(const block_drawing *b, int32_t block, double y)
{
    int32_t rows = 0, instances = 1;
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        const dtp_node *node = &b->g->nodes[n];
        instances =
            node->block == block && node->instance >= instances ? node->instance + 1 : instances;
        if (node->block != block || !page_lists(b->g, n) || is_form_of_param(b->g, n) ||
            ++rows > MOST_ROWS) {
            continue;
        }
        if (rows == 1) {
            y += HEAD;
        }
        y = put_node(b, n, y);
    }
    if (rows == 0) {
        return y;
    }
    double top = y;
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        top = b->g->nodes[n].block == block && b->row_y[n] > 0.0 && b->row_y[n] < top ? b->row_y[n]
                                                                                      : top;
    }
    dtp_strbuf title = {0};
    if (block >= 0) {
        dtp_strbuf_addf(&title, "block %s, the first of %d", b->g->blocks[block], instances);
    } else {
        dtp_strbuf_add(&title, b->g->n_blocks > 0 ? "what is in no block" : "the model");
    }
    svg_text(b->out, NODE_X, top - 10.0, 's', 290.0, "head", dtp_strbuf_text(&title));
    svg_text(b->out, PARAM_X, top - 10.0, 's', 290.0, "label", "parameters");
    svg_text(b->out, OUT_X, top - 10.0, 's', 290.0, "label", "what the node makes");
    if (rows > MOST_ROWS) {
        dtp_strbuf more = {0};
        dtp_strbuf_addf(&more, "and %d more nodes", rows - MOST_ROWS);
        svg_text(b->out, NODE_X, y + 12.0, 's', 290.0, "small", dtp_strbuf_text(&more));
        dtp_strbuf_free(&more);
        y += 18.0;
    }
    b->out->failed = b->out->failed || title.failed;
    dtp_strbuf_free(&title);
    return y;
}

dtp_status page_blocks(const page_input *in, dtp_strbuf *out, dtp_err *err)
{
    const dtp_pipeline *pipeline = in->job->pipeline;
    dtp_comm_report *comm = NULL;
    dtp_strbuf rows = {0};
    dtp_arena *arena = dtp_arena_create();
    block_drawing b = {.in = in,
                       .g = in->job->graph,
                       .sharding = &in->job->sharding,
                       .n_comm = pipeline != NULL ? pipeline->n : 1,
                       .out = &rows};
    dtp_status s = DTP_MEMORY(err, arena);
    s = s == DTP_OK ? DTP_NEW(arena, comm, b.n_comm, err) : s;
    for (int32_t k = 0; s == DTP_OK && k < b.n_comm; k++) {
        s = dtp_comm_report_make(pipeline != NULL ? pipeline->programs[k] : in->job->program, arena,
                                 &comm[k], err);
    }
    b.comm = comm;
    s = s == DTP_OK ? DTP_NEW(arena, b.row_y, b.g->n_nodes + 1, err) : s;
    if (s == DTP_OK) {
        char mesh[DTP_MESH_TEXT_BYTES];
        dtp_strbuf about = {0};
        double y = 32.0;
        for (int32_t block = b.g->n_blocks - 1; block >= -1; block--) {
            y = put_block(&b, block, y);
        }
        dtp_mesh_print(&b.sharding->mesh, mesh);
        dtp_strbuf_addf(&about,
                        "Mesh %s. Cells are shards, at most %d along a side; what rank 0 holds is "
                        "filled; Σ: a partial sum.",
                        mesh, CELLS);
        svg_begin(out, y + 12.0, "layouts of blocks", dtp_strbuf_text(&about));
        svg_text(out, NODE_X, 16.0, 's', SVG_WIDTH, "label", dtp_strbuf_text(&about));
        svg_text(out, NODE_X, 34.0, 's', SVG_WIDTH, "small",
                 "⇄ AG all-gather, RS reduce-scatter, AR all-reduce, A2A all-to-all, CP permute");
        dtp_strbuf_free(&about);
        dtp_strbuf_join(out, &rows);
        svg_end(out);
    }
    dtp_strbuf_free(&rows);
    dtp_arena_destroy(arena);
    return s;
}
