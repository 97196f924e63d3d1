/* A folder of weights as Hugging Face's transformers writes it: model.safetensors, or several files
 * model-00001-of-00003.safetensors that model.safetensors.index.json names. A save has new names
 * for its files where there are some already, model.2-00001-of-00003.safetensors, and counts when
 * the index, or the single file, is put in place; then older ones go. One rank calls these. */
#ifndef DTP_EXECUTOR_FILES_WEIGHTS_FOLDER_H
#define DTP_EXECUTOR_FILES_WEIGHTS_FOLDER_H

#include "core/base/json_writer.h"
#include "core/base/status.h"

enum { DTP_WEIGHTS_PATH_BYTES = 4096 };

typedef struct dtp_weights_folder {
    const char *dir; /* borrowed */
    int32_t n_files; /* of the save */
    int32_t edition; /* of its names */
} dtp_weights_folder;

/* Finds names that are not taken. DTP_INVALID when the folder has an index of another kind. */
dtp_status dtp_weights_open(const char *dir, int32_t n_files, dtp_weights_folder *out,
                            dtp_err *err) DTP_MUST_CHECK;
/* The path of file i, counted from 0, and its name in it. False when it is too long. */
bool dtp_weights_path(const dtp_weights_folder *f, int32_t i, char out[DTP_WEIGHTS_PATH_BYTES],
                      const char **name);
/* All files have their names: writes the index (of several) and removes what does not count now. */
dtp_status dtp_weights_finish(const dtp_weights_folder *f, const dtp_strbuf *index,
                              dtp_err *err) DTP_MUST_CHECK;
/* Removes the first n of several files, after a failure. */
void dtp_weights_discard(const dtp_weights_folder *f, int32_t n);

#endif
