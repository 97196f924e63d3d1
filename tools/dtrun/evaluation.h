/* Evaluating a model over the whole of its files: the programs of whole batches and of the rows
 * that remain, and what dtrun prints of the result. */
#ifndef DTP_TOOLS_DTRUN_EVALUATION_H
#define DTP_TOOLS_DTRUN_EVALUATION_H

#include "core/base/strbuf.h"
#include "executor/session/evaluate.h"
#include "tools/dtrun/options.h"

typedef struct dtrun_evaluation {
    tool_job all, last; /* last.run NULL: no rows remain */
    int64_t batches;    /* whole ones */
    dtrun_feeds feeds;
    dtp_session_options options; /* feeds, load, seed */
} dtrun_evaluation;

/* Lowers the forward pass for the batch of the model (one microbatch of a plan), and for the rows
 * that remain of the files, with the same layouts; `source` as for training. Every input must be
 * fed. Needs dtrun_evaluation_close, also after a failure. */
dtp_status dtrun_evaluation_open(const tool_source *source, const tool_list *feeds,
                                 const dtp_ctx *ctx, dtrun_evaluation *e,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Whether all ranks have the files that it is fed with. Collective. */
dtp_status dtrun_evaluation_agree(const dtrun_evaluation *e, dtp_comm *comm,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Collective. Parameters from a session in training, or (NULL) as e->options.load says. */
dtp_status dtrun_evaluation_run(const dtrun_evaluation *e, dtp_backend *backend, dtp_comm *comm,
                                dtp_session *from, dtp_evaluation *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* "loss 2.4031 over 1003 rows in 42 batches", and a line for each metric of one number. */
void dtrun_evaluation_text(const dtp_evaluation *result, dtp_strbuf *out);
/* `dtp.evaluation/1` (docs/formats/report.md). */
dtp_status dtrun_evaluation_json(const dtrun_evaluation *e, const dtp_evaluation *result,
                                 dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
void dtrun_evaluation_close(dtrun_evaluation *e);

#endif
