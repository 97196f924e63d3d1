/* Command lines of dtplan and dtrun, from the rows of tools/options.def. */
#ifndef DTP_TOOLS_OPTIONS_H
#define DTP_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/units.h"
#include "dtp/status.h"
#include "tools/option_rows.h"

/* The commands: argv[0] is the name of the sub-command; the exit code. */
#define COMMAND(id, tool, function, ...) int tool##_##function(int argc, char **argv);
#include "tools/options.def"

enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILURE = 1,
    TOOL_USAGE = 2,
    TOOL_INFEASIBLE = 3,
    TOOL_MISMATCH = 4
};

/* Finds argv[1] among the commands of a tool and calls it; answers help, --help, --version and
 * unknown names. Returns the exit code; TOOL_FAILURE when a command succeeds but its output cannot
 * be written. */
int tool_main(const char *program, int (*const runs[TOOL_N_COMMANDS])(int argc, char **argv),
              int argc, char **argv);

typedef struct tool_path {
    char text[4096];
} tool_path;

/* What a sub-command does with its operands once the options are stored. */
typedef dtp_status (*tool_body)(void *command, const char *const *operands, dtp_err *err);

typedef struct tool_call {
    tool_command_id id;
    tool_body body;
    void *command;       /* handed to body */
    tool_source *source; /* where options are stored; those of OWN rows in `own` */
    void *own;
} tool_call;

/* Where the value of an option is stored. */
void *tool_option_place(const tool_call *call, const tool_option *o);

/* Sorts argv into options and operands; "-o" may be used for "--output", "--" ends the options.
 * Sets *done when help was printed. DTP_INVALID names the option and the offending value. */
dtp_status tool_options_parse(const tool_call *call, int argc, char **argv, const char **operands,
                              int32_t *n_operands, bool *done, dtp_err *err) DTP_MUST_CHECK;

/* Parses the command line, checks the paths of output options and runs the body unless help was
 * asked for. */
dtp_status tool_perform(const tool_call *call, int argc, char **argv, dtp_err *err) DTP_MUST_CHECK;

/* The same; a failure is printed. Returns the exit code. */
int tool_run(const tool_call *call, int argc, char **argv);

/* That no option is given that is for another mode of planning. */
dtp_status tool_check_mode(const tool_call *call, dtp_planning_mode mode,
                           dtp_err *err) DTP_MUST_CHECK;

/* Splits "name=value" in place of the caller's buffer; DTP_INVALID when there is no '=' or a side
 * is empty. */
dtp_status tool_split_pair(const char *text, char *name, size_t name_size, const char **value,
                           dtp_err *err) DTP_MUST_CHECK;

/* Reads a positive size with an optional suffix, as for TOOL_BYTES; `name` is for the message. */
dtp_status tool_bytes_parse(const char *name, const char *text, int64_t *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* Such a size as text proposes it, with four digits: "145.1K", rounded up so that it suffices or
 * down; `exact`: the number of bytes. */
dtp_quantity tool_bytes_print(int64_t bytes, bool up, bool exact);

/* Whether this process is a rank of a job other than the first, which writes files and says for all
 * of them what is to be said once. */
bool tool_is_later_rank(void);
/* Whether this process says what concerns the whole job: not the later ranks of a job, nor those
 * that dtrun starts after it has said it, which find this in their environment. */
#define TOOL_STARTED "DTRUN_STARTED"
#define TOOL_ON_TERMINAL "terminal" /* its value where what they say is passed on to a terminal */
bool tool_speaks(void);

/* Prints "program: message" on stderr, unless others did, and gives the exit code of the failure.
 */
int tool_fail(const char *program, const dtp_err *err);

#endif
