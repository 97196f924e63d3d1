/* Programs that a command starts and waits for. They end with it: a signal that is to end the
 * command ends them first, and when the command is killed they get a signal to end. */
#ifndef DTP_TOOLS_CHILD_H
#define DTP_TOOLS_CHILD_H

#include <sys/types.h>

#include "core/base/status.h"

/* Path of this program, for processes that it starts: others take /proc/self/exe for their own.
 * DTP_IO. */
dtp_status tool_program_path(char *path, size_t size, dtp_err *err) DTP_MUST_CHECK;

/* A file without a name, in the folder TMPDIR (default /tmp), for what a program prints: nothing of
 * it is left however this process ends. DTP_IO. */
dtp_status tool_unnamed_file(int *fd, dtp_err *err) DTP_MUST_CHECK;
/* All its bytes, NUL-terminated; free *text. DTP_RANGE above max_bytes. */
dtp_status tool_unnamed_read(int fd, size_t max_bytes, char **text, size_t *len,
                             dtp_err *err) DTP_MUST_CHECK;

enum { TOOL_CHILDREN_MAX = 4096 }; /* at a time */

/* Starts a program in a process group of its own, with nothing on its standard input. `out` and
 * `errors` are descriptors for what it prints, -1: those of this process. A name without a '/' is
 * looked for in PATH; a program that cannot be started ends with code 127. DTP_IO. */
dtp_status tool_child_start(const char *program, char *const *argv, int out, int errors, pid_t *pid,
                            dtp_err *err) DTP_MUST_CHECK;
/* Waits for one of them, -1: for any, and gives its status as waitpid does. -1: there is none. When
 * SIGINT, SIGTERM or SIGHUP came, all get SIGTERM, and SIGKILL after some seconds or at a second
 * signal; then this process ends by the signal. */
pid_t tool_child_wait(pid_t pid, int *status);

#endif
