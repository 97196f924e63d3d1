/* Runs a reader over the files of tests/bad/<folder> as its expect.txt says: lines
 * "FILE<TAB>FRAGMENT", where the reader must refuse FILE with an input status and one line that
 * starts with the file's path and holds FRAGMENT. */
#ifndef DTP_TESTS_SUPPORT_BAD_FILES_H
#define DTP_TESTS_SUPPORT_BAD_FILES_H

#include "core/base/status.h"

/* Reads the file at `path`; must free what it makes when it succeeds. */
typedef dtp_status (*bad_file_reader)(const char *path, const void *user, dtp_err *err);

/* Fails the running test at the first file that is treated otherwise; returns how many there were.
 */
int check_bad_files(const char *folder, bad_file_reader read, const void *user);

#endif
