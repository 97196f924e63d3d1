/* What the steps of a run speak of: which rows come next, what is trained and how. A checkpoint has
 * it, and a run goes on where it is the same. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/graph/optimizer.h"
#include "core/transform/microbatch.h"
#include "executor/session/session_internal.h"

static void add_inputs(const dtp_graph *g, dtp_strbuf *out)
{
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind != DTP_TENSOR_INPUT) {
            continue;
        }
        const dtp_ttype type =
            g->microbatches > 1 ? dtp_microbatch_whole(g, &g->tensors[t].type) : g->tensors[t].type;
        dtp_strbuf_addf(out, "%s%s[", out->len > 0 ? ", " : "", g->tensors[t].name);
        for (int32_t d = 0; d < type.rank; d++) {
            dtp_strbuf_addf(out, "%s%" PRId64, d > 0 ? "," : "", type.dims[d].size);
        }
        dtp_strbuf_add(out, "]");
    }
}

static void add_rates(const dtp_optimizer_spec *o, dtp_strbuf *out)
{
    for (int32_t i = 0; o->op != NULL && i < dtp_optimizer_hypers(o->op); i++) {
        dtp_strbuf_addf(out, "%s%s=%.9g", i > 0 ? " " : "", o->op->attrs[i].key, o->hyper[i]);
    }
}

static void add_schedule(const dtp_schedule *s, dtp_strbuf *out)
{
    static const char *const kinds[] = {"constant", "linear", "cosine", "inverse_sqrt",
                                        "piecewise"};
    if (s->kind == DTP_SCHEDULE_CONSTANT && s->warmup == 0) {
        return;
    }
    dtp_strbuf_addf(out, "; %s warmup=%" PRId64, kinds[s->kind], s->warmup);
    if (s->kind == DTP_SCHEDULE_LINEAR || s->kind == DTP_SCHEDULE_COSINE) {
        dtp_strbuf_addf(out, " steps=%" PRId64 " last=%.9g", s->steps, s->last);
    }
    for (int32_t i = 0; s->kind == DTP_SCHEDULE_PIECEWISE && i < s->n; i++) {
        dtp_strbuf_addf(out, " %.9g from %" PRId64, s->scale[i], s->at[i]);
    }
}

static void add_training(const dtp_graph *g, dtp_strbuf *optimizer, dtp_strbuf *rates)
{
    const dtp_training *t = &g->training;
    if (g->n_grads == 0 || t->optimizer.op == NULL) {
        return;
    }
    dtp_strbuf_add(optimizer, t->optimizer.op->name);
    add_rates(&t->optimizer, rates);
    for (int32_t i = 0; i < t->n_groups; i++) {
        const dtp_param_group *group = &t->groups[i];
        const bool other = group->optimizer.op != t->optimizer.op;
        if (other && group->optimizer.op != NULL) {
            dtp_strbuf_addf(optimizer, ", %s of '%s'", group->optimizer.op->name, group->params);
        }
        dtp_strbuf_addf(rates, "; '%s' ", group->params);
        add_rates(&group->optimizer, rates);
    }
    if (t->clip_norm > 0.0) {
        dtp_strbuf_addf(rates, "; clip_norm=%.9g", t->clip_norm);
    }
    add_schedule(&t->schedule, rates);
}

dtp_status dtp_session__run_describe(dtp_session *s, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    dtp_strbuf texts[DTP_N_RUN_TEXTS] = {0};
    add_inputs(g, &texts[DTP_RUN_INPUTS]);
    if (g->model_hash != 0) {
        dtp_strbuf_addf(&texts[DTP_RUN_MODEL], "%s (%016" PRIx64 ")", g->name, g->model_hash);
    }
    add_training(g, &texts[DTP_RUN_OPTIMIZER], &texts[DTP_RUN_RATES]);
    dtp_status status =
        dtp_feed_describe(s->feed, &texts[DTP_RUN_DATA], &texts[DTP_RUN_FILES], err);
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        if (status == DTP_OK && texts[i].failed) {
            status = DTP_FAIL(err, DTP_NOMEM, "no memory for what a run is");
        }
        s->run.text[i] = texts[i].text; /* NULL: nothing is said */
    }
    return status;
}

static const char *text_of(const dtp_run_texts *texts, dtp_run_text which)
{
    return texts->text[which] != NULL ? texts->text[which] : "none";
}

/* Data are named with the files that they are of. */
static dtp_status refuse(const char *path, const char *what, const dtp_run_texts *was,
                         const dtp_run_texts *now, dtp_run_text which, dtp_err *err)
{
    const bool files = which == DTP_RUN_DATA;
    return DTP_FAIL(err, DTP_INVALID,
                    "%s: the run has %s '%.200s'%s%.150s, and cannot go on with '%.200s'%s%.150s: "
                    "--load without --resume starts anew from its parameters",
                    path, what, text_of(was, which), files ? " of " : "",
                    files ? text_of(was, DTP_RUN_FILES) : "", text_of(now, which),
                    files ? " of " : "", files ? text_of(now, DTP_RUN_FILES) : "");
}

dtp_status dtp_session__run_compare(dtp_session *s, const char *path, const dtp_run_texts *was,
                                    dtp_err *err)
{
    static const char *const words[] = {"the inputs of a step", "data",  "the model",
                                        "the optimizer",        "rates", "files"};
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        const dtp_run_text which = (dtp_run_text)i;
        const char *now = text_of(&s->run, which);
        if (was->text[i] == NULL || strcmp(was->text[i], now) == 0) {
            continue;
        }
        if (which < DTP_RUN_RATES) {
            return refuse(path, words[i], was, &s->run, which, err);
        }
        if (s->comm->rank == 0) {
            dtp_log(s->log ? &s->ctx : NULL, DTP_LOG_WARN, "checkpoint", "changed",
                    "%s='%s' was='%s'", words[i], now, was->text[i]);
        }
    }
    return DTP_OK;
}
