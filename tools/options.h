/* Command lines from tables: sub-commands, their options, and the help made from both. */
#ifndef DTP_TOOLS_OPTIONS_H
#define DTP_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/units.h"
#include "dtp/status.h"

typedef enum tool_option_kind {
    TOOL_FLAG,   /* bool *: set to true */
    TOOL_STRING, /* const char **: borrowed from argv */
    TOOL_INT,    /* int64_t * or uint64_t *: in [min, max] */
    TOOL_COUNT,  /* int32_t *: in [min, max] */
    TOOL_BYTES,  /* int64_t *: positive, as dtp_bytes_parse reads it (core/base/number.h) */
    TOOL_REAL,   /* double *: finite, in [min, max] when min < max */
    TOOL_LIST,   /* tool_list *: may be given several times */
    /* What a command writes. Checked before the command starts: a path that cannot be written to
     * costs no work. */
    TOOL_OUT,           /* const char **: a file */
    TOOL_OUT_LIST,      /* tool_list * of NAME=FILE */
    TOOL_NO_WRITES,     /* bool *: a flag; none of the others of this kind may be given */
    TOOL_OUT_FOLDER,    /* const char **: a folder, made if absent */
    TOOL_OUT_CHECKPOINT /* const char **: a file NAME.safetensors, else such a folder */
} tool_option_kind;

enum { TOOL_LIST_MAX = 1024 }; /* a pin for every layer of a large model */

typedef struct tool_list {
    int32_t n;
    const char *items[TOOL_LIST_MAX];
} tool_list;

typedef struct tool_option {
    const char *name; /* "--mesh"; NULL ends a table */
    tool_option_kind kind;
    const char *arg; /* placeholder in the help, NULL for flags */
    void *dest;
    double min, max;
    const char *help;
} tool_option;

typedef struct tool_command {
    const char *name;     /* NULL ends a table */
    const char *operands; /* "MODEL" */
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the sub-command */
} tool_command;

enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILURE = 1,
    TOOL_USAGE = 2,
    TOOL_INFEASIBLE = 3,
    TOOL_MISMATCH = 4
};

/* Finds argv[1] in the table and runs it; answers help, --help, --version and unknown names.
 * Returns the exit code; TOOL_FAILURE when a command succeeds but its output cannot be written. */
int tool_main(const char *program, const tool_command *commands, int argc, char **argv);

enum { TOOL_MAX_OPERANDS = 4 };

typedef struct tool_parse {
    const char *usage; /* "dtplan plan MODEL [options]" */
    const tool_option *options;
    int32_t min_operands, max_operands; /* at most TOOL_MAX_OPERANDS */
} tool_parse;

/* Sorts argv into options and operands; "-o" may be used for "--output", "--" ends the options.
 * Sets *done when help was printed. DTP_INVALID names the option and the offending value. */
dtp_status tool_options_parse(const tool_parse *spec, int argc, char **argv, const char **operands,
                              int32_t *n_operands, bool *done, dtp_err *err) DTP_MUST_CHECK;

/* What a sub-command does with its operands once the options are stored. */
typedef dtp_status (*tool_body)(void *command, const char *const *operands, dtp_err *err);

/* Parses the command line, checks the paths of output options and runs the body unless help was
 * asked for. */
dtp_status tool_perform(const tool_parse *spec, int argc, char **argv, tool_body body,
                        void *command, dtp_err *err) DTP_MUST_CHECK;

/* The same; a failure is printed. Returns the exit code. */
int tool_run(const char *program, const tool_parse *spec, int argc, char **argv, tool_body body,
             void *command);

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
bool tool_speaks(void);

/* Path of this program, for processes that it starts: others take /proc/self/exe for their own.
 * DTP_IO. */
dtp_status tool_program_path(char *path, size_t size, dtp_err *err) DTP_MUST_CHECK;

/* Prints "program: message" on stderr, unless others did, and gives the exit code of the failure.
 */
int tool_fail(const char *program, const dtp_err *err);

#endif
