#include "tools/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/options.h"

void tool_streams_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) {
            continue;
        }
        /* The lowest free descriptor is fd. Read-only makes printing fail. */
        if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            return;
        }
    }
}

int tool_streams_close(const char *program, int code)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    failed = fclose(stdout) != 0 || failed;
    if (!failed) {
        return code;
    }
    (void)fprintf(stderr, "%s: cannot write standard output%s%s\n", program, errno != 0 ? ": " : "",
                  errno != 0 ? strerror(errno) : "");
    return code == TOOL_OK ? TOOL_FAILURE : code;
}
