/* Temporary files for tests of readers; random parts of tensors. */
#ifndef DTP_TESTS_SUPPORT_DATA_FILES_H
#define DTP_TESTS_SUPPORT_DATA_FILES_H

#include <stddef.h>

#include "executor/device/shard.h"

/* A fresh directory under TMPDIR or /tmp; static storage, one per process. */
const char *data_dir(void);
/* "<dir>/<name>"; valid until the fourth next call. */
const char *data_path(const char *name);
/* Writes a file in the directory; fails the test when it cannot. Returns data_path(name). */
const char *data_write(const char *name, const void *bytes, size_t n);
/* Removes the directory and what is in it. */
void data_remove(void);
/* The same, after a group of tests. */
int data_cleanup(void **state);
/* Takes the checksum out of the text of a checkpoint's index, so that it can be edited. */
void data_unseal(char *index);

/* Numbers of a small generator; a part of a tensor drawn by them. */
uint32_t data_random(uint32_t *state);
dtp_shard data_random_piece(uint32_t *state, const dtp_shard *whole);

#endif
