/* Folders of Hugging Face's transformers: config.json and a template of its family
 * (docs/formats/template.md) make a model, dtp.model/1, and its names, dtp.names/1. */
#ifndef DTP_IMPORTERS_HF_FOLDER_H
#define DTP_IMPORTERS_HF_FOLDER_H

#include "core/base/arena.h"

typedef struct dtp_import_options {
    bool forward;     /* without training: tokens in, logits out */
    bool approximate; /* goes on without what is not supported, and lists it */
} dtp_import_options;

typedef struct dtp_import_lines {
    int32_t n;
    const char *const *lines;
} dtp_import_lines;

typedef struct dtp_import {
    const char *family;
    const char *model, *names; /* texts of the files */
    int64_t parameters;
    dtp_import_lines ignored;     /* keys that do not change the model */
    dtp_import_lines left_out;    /* "attention_dropout = 0.1": never imported */
    dtp_import_lines unsupported; /* "sliding_window = 4096": of `approximate` */
} dtp_import;

/* `path` is config.json or its folder. Everything comes from `arena`. DTP_INVALID, DTP_RANGE and
 * DTP_IO name the file, the key and its value. */
dtp_status dtp_import_folder(const char *path, const dtp_import_options *options, dtp_arena *arena,
                             dtp_import *out, dtp_err *err) DTP_MUST_CHECK;
/* The same of the text of a config.json; `file` names it in errors. */
dtp_status dtp_import_config(const char *file, const char *text, size_t len,
                             const dtp_import_options *options, dtp_arena *arena, dtp_import *out,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
