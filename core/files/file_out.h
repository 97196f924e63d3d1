/* A file that appears whole or not at all.
 *
 * The bytes go to a temporary "NAME.tmp.PID.N" beside the target, which is renamed over the target
 * at the end. A symbolic link is followed: its target is replaced, the link stays. The mode and, as
 * far as the system allows it, the owner of an existing file are kept. The temporary is made
 * exclusively, follows no link, and is locked (flock) while its writer lives; a killed writer
 * leaves it unlocked, and the next writer of the same target removes it.
 * Devices, pipes and descriptors (/dev/stdout, /dev/fd/N) cannot be replaced: they are written in
 * place.
 *
 * DTP_IO: the path cannot be written to (missing folder, a folder, no permission), known before the
 * first byte. DTP_OUTPUT: writing failed on the way (disk full). DTP_NOMEM. All name the path.
 */
#ifndef DTP_CORE_FILES_FILE_OUT_H
#define DTP_CORE_FILES_FILE_OUT_H

#include <stddef.h>

#include "core/base/status.h"

typedef struct dtp_file_out dtp_file_out;

/* Ends with dtp_file_out_commit or dtp_file_out_discard. */
dtp_status dtp_file_out_open(const char *path, dtp_file_out **out, dtp_err *err) DTP_MUST_CHECK;
/* The same for a name in a folder of our own making, or of a download cache: the name itself is
 * replaced, also where it is a link, a pipe or a device; a link is not followed. */
dtp_status dtp_file_out_open_name(const char *path, dtp_file_out **out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* The descriptor of the temporary, for writers that stream; owned by `out`. */
int dtp_file_out_fd(const dtp_file_out *out);
/* Writes all n bytes at the end of what is there. */
dtp_status dtp_file_out_write(dtp_file_out *out, const void *data, size_t n,
                              dtp_err *err) DTP_MUST_CHECK;
/* Brings the bytes to the disk and puts the file in its place. Frees `out`; after a failure the
 * target is as it was. */
dtp_status dtp_file_out_commit(dtp_file_out *out, dtp_err *err) DTP_MUST_CHECK;
/* Removes the temporary, leaves the target, frees `out`. NULL is allowed. */
void dtp_file_out_discard(dtp_file_out *out);
/* All of the above for n bytes in memory. */
dtp_status dtp_file_write(const char *path, const char *text, size_t n,
                          dtp_err *err) DTP_MUST_CHECK;
/* The same with dtp_file_out_open_name. */
dtp_status dtp_file_replace(const char *path, const char *text, size_t n,
                            dtp_err *err) DTP_MUST_CHECK;
/* Removes the temporaries that killed writers of `path` left; links are not followed. */
void dtp_file_out_sweep(const char *path);

/* Whether dtp_file_out_open can be expected to work; writes nothing and leaves nothing. DTP_IO. */
dtp_status dtp_file_check_writable(const char *path, dtp_err *err) DTP_MUST_CHECK;
/* Whether files can be made in the folder `path`, or the folder itself can be made (one level, as
 * mkdir does). Writes nothing and leaves nothing. DTP_IO. */
dtp_status dtp_folder_check_writable(const char *path, dtp_err *err) DTP_MUST_CHECK;

/* Whether the name still means the open regular file; for files that are locked after opening. */
bool dtp_file__is_named(int fd, const char *name);

#endif
