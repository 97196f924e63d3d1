/* Evaluating a model over the whole of its files: the programs of whole batches and of the rows
 * that remain, and what dtrun prints of the result. */
#include "tools/dtrun/evaluation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "core/base/units.h"
#include "core/transform/microbatch.h"
#include "cost_models/job.h"
#include "tools/report.h"

static dtp_status create(const tool_source *source, const dtp_ctx *ctx, tool_job *out, dtp_err *err)
{
    tool_source forward = *source;
    forward.evaluation = DTP_EVALUATE_LOSS;
    forward.any_dims = true; /* nothing is priced */
    forward.machine = NULL;
    return tool_job_create(&forward, 0, NULL, false, ctx, out, err);
}

/* The rows that are left behind the whole batches, in a batch of their own. */
static dtp_status create_last(const tool_source *source, int64_t rows, dtrun_evaluation *e,
                              dtp_err *err)
{
    const dtp_graph *g = e->all.run->graph;
    const dtp_dim_id batch = dtp_microbatch_dim(g);
    const char *name = dtp_dims_name(&g->dims, batch);
    const int64_t parts = e->all.model->dims.sizes[batch] / g->dims.sizes[batch];
    char text[96];
    tool_source smaller = *source;
    if (snprintf(text, sizeof text, "%s=%" PRId64, name, rows * parts) >= (int)sizeof text ||
        smaller.dims.n == TOOL_LIST_MAX) {
        return DTP_FAIL(err, DTP_RANGE, "the name of dim '%.80s' is too long", name);
    }
    int32_t n = 0;
    for (int32_t i = 0; i < source->dims.n; i++) {
        const size_t len = strlen(name);
        const char *given = source->dims.items[i];
        if (strncmp(given, name, len) != 0 || given[len] != '=') {
            smaller.dims.items[n++] = given;
        }
    }
    smaller.dims.items[n++] = text;
    smaller.dims.n = n;
    smaller.uneven = true;
    return dtp_err_prefixed(create(&smaller, NULL, &e->last, err), err,
                            "the last %" PRId64 " rows of the files, behind %" PRId64
                            " batches of %" PRId64,
                            rows, e->batches, g->dims.sizes[batch]);
}

static dtp_status count_batches(dtrun_evaluation *e, int64_t *rest, dtp_err *err)
{
    const dtp_graph *g = e->all.run->graph;
    dtp_feed *feed = NULL;
    int64_t rows = 0;
    DTP_TRY(dtp_feed_create(g, e->feeds.n, e->feeds.specs, 0, DTP_FEED_IN_ORDER, &feed, err));
    const dtp_status s = dtp_feed_rows(feed, &rows, err);
    dtp_feed_destroy(feed);
    const int64_t size = g->dims.sizes[dtp_microbatch_dim(g)];
    e->batches = rows / size;
    *rest = rows % size;
    return s;
}

/* Whether a node is another one in a batch of another size: a number that it is given, or a size
 * along which there are no rows. */
static bool depends_on_batch(const dtp_graph *g, const dtp_graph *a, const dtp_graph *b,
                             dtp_node_id n)
{
    const dtp_node *x = &a->nodes[n], *y = &b->nodes[n];
    bool differs = false;
    for (int32_t i = 0; i < x->n_attrs; i++) {
        differs = differs || x->attrs[i].i != y->attrs[i].i || x->attrs[i].f < y->attrs[i].f ||
                  x->attrs[i].f > y->attrs[i].f;
    }
    for (int32_t k = 0; k < x->n_out; k++) {
        const dtp_ttype *s = &a->tensors[x->out[k]].type, *t = &b->tensors[y->out[k]].type;
        for (int32_t d = 0; d < s->rank; d++) {
            bool rows = s->dims[d].size == t->dims[d].size;
            for (int32_t i = 0; i < g->n_row_dims; i++) {
                rows = rows || strcmp(dtp_dims_name(&g->dims, g->row_dims[i]),
                                      dtp_dims_name(&a->dims, s->dims[d].id)) == 0;
            }
            differs = differs || !rows;
        }
    }
    return differs;
}

/* Nodes that the loss or a metric needs are the same ones in batches of any size: as in the model
 * that is read with twice the batch. */
static dtp_status check_sizes(const tool_source *source, const dtrun_evaluation *e, dtp_err *err)
{
    const dtp_graph *g = e->all.run->graph, *model = e->all.model;
    const dtp_dim_id batch =
        dtp_dims_find(&model->dims, dtp_dims_name(&g->dims, dtp_microbatch_dim(g)));
    const char *name = dtp_dims_name(&model->dims, batch);
    dtp_model_options options = dtp_model_options_init();
    dtp_graph *doubled = NULL;
    dtp_dim_override *given = calloc((size_t)model->n_given + 1, sizeof *given);
    DTP_TRY(DTP_MEMORY(err, given));
    for (int32_t i = 0; i < model->n_given; i++) {
        given[options.n_overrides] = model->given[i];
        options.n_overrides += strcmp(model->given[i].name, name) != 0;
    }
    given[options.n_overrides++] = (dtp_dim_override){name, 2 * model->dims.sizes[batch]};
    options.overrides = given;
    options.forward_only = model->forward_only;
    options.ops = model->ops;
    dtp_status s = dtp_model_read(source->model, &options, &doubled, err);
    free(given);
    DTP_TRY(dtp_err_prefixed(s, err, "with twice the rows in a batch"));
    for (dtp_node_id n = 0; n < model->n_nodes && s == DTP_OK; n++) {
        const dtp_node *node = &model->nodes[n];
        if (node->phase != DTP_FORWARD ||
            dtp_graph_find(g, model->tensors[node->out[0]].name) < 0) {
            continue;
        }
        const bool same = n < doubled->n_nodes && strcmp(doubled->nodes[n].name, node->name) == 0;
        if (!same || depends_on_batch(g, model, doubled, n)) {
            s = DTP_FAIL(err, DTP_INVALID,
                         "evaluation: node '%s' (%s) has a number or a size that is computed from "
                         "dim '%s', and is another one in a batch of all rows: evaluate with "
                         "--dim %s=ROWS, all rows in one batch",
                         node->name, node->op->name, name, name);
        }
    }
    dtp_graph_destroy(doubled);
    return s;
}

/* A loss that does not follow from batches is that of one batch with all rows. */
static dtp_status check_batches(const tool_source *source, const dtrun_evaluation *e, int64_t rest,
                                dtp_err *err)
{
    const dtp_graph *g = e->all.run->graph;
    const dtp_dim_id batch = dtp_microbatch_dim(g);
    const int64_t size = g->dims.sizes[batch];
    if (e->batches + (rest > 0) < 2) {
        return DTP_OK;
    }
    if (g->whole_batch == NULL) {
        return check_sizes(source, e, err);
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "%s; its value over %" PRId64 " rows does not follow from batches of %" PRId64
                    ": evaluate with --dim %s=%" PRId64 ", all rows in one batch",
                    g->whole_batch, e->batches * size + rest, size, dtp_dims_name(&g->dims, batch),
                    e->batches * size + rest);
}

dtp_status dtrun_evaluation_open(const tool_source *source, const tool_list *feeds,
                                 const dtp_ctx *ctx, dtrun_evaluation *e, dtp_err *err)
{
    int64_t rest;
    e->options = dtp_session_options_init();
    DTP_TRY(dtrun_feeds_parse(feeds, &e->feeds, err));
    DTP_TRY(create(source, ctx, &e->all, err));
    DTP_TRY(count_batches(e, &rest, err));
    e->options.n_feeds = e->feeds.n;
    e->options.feeds = e->feeds.specs;
    DTP_TRY(check_batches(source, e, rest, err));
    return rest > 0 ? create_last(source, rest, e, err) : DTP_OK;
}

dtp_status dtrun_evaluation_agree(const dtrun_evaluation *e, dtp_comm *comm, dtp_err *err)
{
    dtp_feed *feed = NULL;
    dtp_status s = dtp_feed_create(e->all.run->graph, e->feeds.n, e->feeds.specs, 0,
                                   DTP_FEED_IN_ORDER, &feed, err);
    s = dtp_comm_agree_status(comm, s, err);
    s = s == DTP_OK ? dtp_feed_agree(feed, comm, err) : s;
    dtp_feed_destroy(feed);
    return s;
}

dtp_status dtrun_evaluation_run(const dtrun_evaluation *e, dtp_backend *backend, dtp_comm *comm,
                                dtp_session *from, dtp_evaluation *out, dtp_err *err)
{
    dtp_session_options options = e->options;
    if (e->batches > 0) {
        options.order = DTP_FEED_IN_ORDER;
        DTP_TRY(dtp_evaluate(dtp_job_program(e->all.run), backend, comm, &options, from, e->batches,
                             out, err));
    }
    if (e->last.run != NULL) {
        options.order = DTP_FEED_LAST_ROWS;
        DTP_TRY(
            dtp_evaluate(dtp_job_program(e->last.run), backend, comm, &options, from, 1, out, err));
    }
    const dtp_job *job = e->batches > 0 ? e->all.run : e->last.run;
    return dtp_evaluation_end(dtp_job_program(job)->graph, comm, e->options.allow_nan, out, err);
}

/* ---- what is printed ---- */

void dtrun_evaluation_text(const dtp_evaluation *result, dtp_strbuf *out)
{
    dtp_strbuf_addf(
        out, "loss %.6f over %" PRId64 " rows in %" PRId64 " batches, after step %" PRId64 ", %s\n",
        result->loss, result->rows, result->batches, result->step,
        dtp_seconds(result->seconds).text);
    for (int32_t i = 0; i < result->n_metrics; i++) {
        const struct dtp_metric *m = &result->metrics[i];
        dtp_strbuf_addf(out, "  %s", m->name);
        for (int64_t k = 0; k < m->n; k++) {
            dtp_strbuf_addf(out, " %.6g", m->values[k]);
        }
        dtp_strbuf_add(out, "\n");
    }
}

static void metric_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_evaluation *result = user;
    const struct dtp_metric *m = &result->metrics[i];
    tool_row(rows, TOOL_FIELDS(FIELD_REALS(m->name, (int32_t)m->n, m->values)));
}

dtp_status dtrun_evaluation_json(const dtrun_evaluation *e, const dtp_evaluation *result,
                                 dtp_strbuf *out, dtp_err *err)
{
    dtp_json_writer j = {0};
    const dtp_mesh *mesh = dtp_job_mesh(e->all.run);
    tool_report(&j, "dtp.evaluation/1",
                TOOL_FIELDS(FIELD_TEXT("model", e->all.model->name), FIELD_MESH(mesh),
                            FIELD_INT("ranks", dtp_mesh_ranks(mesh)),
                            FIELD_INT("step", result->step), FIELD_INT("rows", result->rows),
                            FIELD_INT("batches", result->batches), FIELD_REAL("loss", result->loss),
                            FIELD_MAP("metrics", result->n_metrics, metric_row, result),
                            FIELD_REAL("time_s", result->seconds)));
    dtp_strbuf_join(out, &j.buf);
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for a report") : DTP_OK;
}

void dtrun_evaluation_close(dtrun_evaluation *e)
{
    tool_job_free(&e->all);
    tool_job_free(&e->last);
    dtrun_feeds_free(&e->feeds);
}
