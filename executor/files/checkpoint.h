/* Checkpoints (docs/formats/data.md): every rank writes the shards it holds (of replicas, the first
 * holder only) to rank-K-of-N.<set>.safetensors; rank 0 writes dtp.checkpoint.json last,
 * with sizes and checksums. Every save has new file names and takes the older index's name at the
 * end: at every moment there is a complete checkpoint, if there was one before. It loads under any
 * mesh, layout and rank count: every rank reads the overlaps of its shards. */
#ifndef DTP_EXECUTOR_FILES_CHECKPOINT_H
#define DTP_EXECUTOR_FILES_CHECKPOINT_H

#include "core/layout/stored.h"
#include "dtp/status.h"
#include "executor/run/runner.h"

enum { DTP_CHECKPOINT_PATH_BYTES = 4096 };

/* What the step of a checkpoint speaks of: texts beside it. NULL: older versions wrote none. */
typedef enum dtp_run_text {
    DTP_RUN_INPUTS, /* their types, with the rows of a step */
    DTP_RUN_DATA,   /* what they are fed with */
    DTP_RUN_MODEL,
    DTP_RUN_OPTIMIZER,
    DTP_RUN_RATES, /* of the optimizer, its schedule and clipping */
    DTP_RUN_FILES, /* of DATA */
    DTP_N_RUN_TEXTS
} dtp_run_text;

typedef struct dtp_run_texts {
    char *text[DTP_N_RUN_TEXTS];
} dtp_run_texts;

/* "run_inputs": the key of metadata. */
const char *dtp_run_text_key(dtp_run_text which);
void dtp_run_texts_free(dtp_run_texts *texts);

/* Which resident values to write or fill, and the step count stored beside them. */
typedef struct dtp_checkpoint_job {
    int32_t n_runners; /* of this rank: one, or one for each chunk of its stage */
    dtp_runner *const *runners;
    dtp_backend *backend;
    dtp_comm *comm;
    const dtp_ctx *ctx;              /* NULL: silent */
    int64_t step;                    /* save: written; load: read (0 when the file has none) */
    uint64_t seed;                   /* save: written */
    const dtp_run_texts *run;        /* save: written; load: NULL, or what the file must have states
                                        for: those of the optimizer may not be absent */
    bool checked;                    /* load: dtp_checkpoint_find has compared the checksums */
    const dtp_stored_params *stored; /* load: how a framework has the parameters; NULL */
    dtp_dtype *types; /* load: gets by view of `stored` the element type, where files are so */
    int32_t keep;     /* save: sets that stay in the folder, the new one counted; 0 is 1 */
} dtp_checkpoint_job;

/* The caller makes the folder and keeps other jobs away from it (core/files/file_lock.h). After a
 * failure the older checkpoint is as it was, and no file of the new one is left. */
dtp_status dtp_checkpoint_save(const dtp_checkpoint_job *job, const char *dir,
                               dtp_err *err) DTP_MUST_CHECK;
/* A directory made by dtp_checkpoint_save, a Hugging Face directory (index or single
 * model.safetensors), or one .safetensors file. Every PARAM must be there with its shape; STATEs
 * all or none. Tensors that the model does not have are skipped with a warning. */
dtp_status dtp_checkpoint_load(dtp_checkpoint_job *job, const char *path,
                               dtp_err *err) DTP_MUST_CHECK;

/* The element types alone, of job->types. */
dtp_status dtp_checkpoint_types(const char *path, const dtp_stored_params *stored, dtp_dtype *types,
                                dtp_err *err) DTP_MUST_CHECK;
/* Whether a path is a checkpoint that another system wrote; false when it is none or damaged.
 * DTP_NOMEM. */
dtp_status dtp_checkpoint_is_foreign(const char *path, bool *out, dtp_err *err) DTP_MUST_CHECK;

/* What a job that ended before its time goes on from. */
typedef struct dtp_checkpoint_found {
    char path[DTP_CHECKPOINT_PATH_BYTES]; /* for dtp_checkpoint_load; "": there is nothing yet */
    bool has_seed;                        /* older versions wrote none */
    uint64_t seed;
    dtp_run_texts run; /* the caller's to free */
} dtp_checkpoint_found;

/* The newest set of the folder `target` whose files are all as they were written, or (`single`) the
 * file of this name; the same on all ranks. A set that is damaged is left out with a warning; when
 * no other is there, it is the failure. Nothing was saved yet: no failure, and no path. */
dtp_status dtp_checkpoint_find(dtp_comm *comm, const dtp_ctx *ctx, const char *target, bool single,
                               dtp_checkpoint_found *out, dtp_err *err) DTP_MUST_CHECK;

#endif
