/* Shared by the writer and the reader of checkpoints. */
#ifndef DTP_EXECUTOR_FILES_CHECKPOINT_INTERNAL_H
#define DTP_EXECUTOR_FILES_CHECKPOINT_INTERNAL_H

#include "executor/files/checkpoint.h"
#include "executor/files/checksum.h"
#include "executor/files/safetensors.h"

#define DTP_CHECKPOINT_INDEX "dtp.checkpoint.json"
/* Of a Hugging Face folder; older versions gave ours this name. */
#define DTP_CHECKPOINT_HF_INDEX "model.safetensors.index.json"
#define DTP_CHECKPOINT_SINGLE "model.safetensors"
#define DTP_CHECKPOINT_FORMAT "dtp.checkpoint/1"
#define DTP_CHECKPOINT_CRC "index_crc32" /* of metadata: the checksum of the index itself */
#define DTP_CHECKPOINT_SEED "seed"       /* of metadata, as text */

enum { DTP_CHECKPOINT_MAX_INDEX_BYTES = 256 << 20 };

/* A stored part of a tensor: element `shard.offset + i` is element first + sum of i[d] * stride[d]
 * of the entry. */
typedef struct dtp_slice {
    const char *name;
    int32_t file;
    const dtp_st_entry *entry;
    dtp_shard shard; /* of the whole tensor */
    int64_t first, stride[DTP_MAX_RANK];
} dtp_slice;

typedef struct dtp_slice_file {
    const char *path;
    dtp_st_file *st;
    int64_t crc_from; /* first byte that the checksum covers; -1: there is none */
    uint32_t crc;
    bool *named; /* by entry: whether a slice of our index names it; NULL: another index */
} dtp_slice_file;

/* Everything a checkpoint holds, in name order. */
typedef struct dtp_catalog {
    dtp_arena *arena;
    const char *path; /* of the index or of the single file */
    int32_t n_files;
    dtp_slice_file *files;
    bool ours; /* dtrun wrote it */
    int32_t n_slices, cap_slices;
    dtp_slice *slices;
    int32_t n_twins, cap_twins; /* that hold the same again: tied weights */
    dtp_slice *twins;
    const char *dropped; /* begins names of the framework, not those of the files; NULL */
    const char *added;   /* begins names of the files, not those of the framework; NULL */
    int32_t n_unused;    /* tensors of a framework that no parameter lies in, */
    const char *unused;  /* the first of them */
    int64_t step;
    bool has_seed;
    uint64_t seed;
    const char *run[DTP_N_RUN_TEXTS]; /* dtp_run_texts */
} dtp_catalog;

/* Opens the files and checks that the slices of every tensor cover it exactly once. */
dtp_status dtp_catalog_open(const char *path, dtp_catalog *out, dtp_err *err) DTP_MUST_CHECK;
/* Sorts the slices, and checks that those of every tensor cover it exactly once. */
dtp_status dtp_catalog__check(dtp_catalog *c, dtp_err *err) DTP_MUST_CHECK;
/* The slices of a checkpoint that the framework wrote become slices of the parameters. Nothing when
 * it is ours, or has no tensor with a name of theirs: then its names are those of the model.
 * types: see dtp_checkpoint_job. DTP_INVALID naming the file when a tensor is missing, or has
 * another shape. */
dtp_status dtp_catalog_translate(dtp_catalog *c, const dtp_stored_params *stored, dtp_dtype *types,
                                 dtp_err *err) DTP_MUST_CHECK;
void dtp_catalog_close(dtp_catalog *c);
/* First slice of a tensor and how many there are; 0 when absent. */
int32_t dtp_catalog_find(const dtp_catalog *c, const char *name, const dtp_slice **first);

/* ---- sets of a folder (checkpoint_set.c); one rank calls these ---- */

/* "DIR/rank-K-of-N.<set>.safetensors"; false when that is too long. */
bool dtp_checkpoint__part_path(const char *dir, int64_t set, int32_t rank, int32_t ranks,
                               char out[DTP_CHECKPOINT_PATH_BYTES]);
/* Removes what no index needs: indexes of sets before the newest one but `keep` of them, files of
 * sets without an index, temporaries without a writer. *next: the number of a new set. DTP_IO when
 * the folder cannot be listed, DTP_NOMEM; a file that cannot be removed is a warning. */
dtp_status dtp_checkpoint__clean(const char *dir, int32_t keep, const dtp_ctx *ctx, int64_t *next,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Appends to the failure that `path`, a folder or an index of one, cannot be loaded which other
 * sets of the folder can be opened, and how to load them. Nothing when there are none. */
void dtp_checkpoint__name_others(const char *path, dtp_err *err);
/* The index of the folder's i-th newest set, counted from 0: DTP_CHECKPOINT_NEWEST, or the number
 * in the name of a kept one; DTP_CHECKPOINT_NO_SET when there are fewer. */
enum { DTP_CHECKPOINT_NO_SET = -2, DTP_CHECKPOINT_NEWEST = -1 };
dtp_status dtp_checkpoint__index_at(const char *dir, int32_t i, int64_t *set,
                                    dtp_err *err) DTP_MUST_CHECK;
/* Its path; false when that is too long. */
bool dtp_checkpoint__index_path(const char *dir, int64_t set, char out[DTP_CHECKPOINT_PATH_BYTES]);
/* Copies the index of the newest set, if there is one, to the name that an older set has. */
dtp_status dtp_checkpoint__keep_index(const char *dir, dtp_err *err) DTP_MUST_CHECK;

#endif
