/* The rows of tools/options.def: commands and options as tables. */
#ifndef DTP_TOOLS_OPTION_ROWS_H
#define DTP_TOOLS_OPTION_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dtp/planner.h"
#include "dtp/session.h"

/* Kinds of options, with the type that they are stored as. */
typedef enum tool_option_kind {
    TOOL_FLAG,   /* bool: set to true */
    TOOL_STRING, /* const char *: borrowed from argv */
    TOOL_WORD,   /* const char *: one of those that its argument lists: "rules|tensor" */
    TOOL_INT,    /* int64_t or uint64_t: in [min, max] */
    TOOL_COUNT,  /* int32_t: in [min, max] */
    TOOL_BYTES,  /* int64_t: positive, as dtp_bytes_parse reads it (core/base/units.h) */
    TOOL_REAL,   /* double: finite, in [min, max] */
    TOOL_LIST,   /* tool_list: may be given several times */
    /* What a command writes. Checked before the command starts: a path that cannot be written to
     * costs no work. */
    TOOL_OUT,           /* const char *: a file */
    TOOL_OUT_LIST,      /* tool_list of NAME=FILE */
    TOOL_NO_WRITES,     /* bool: a flag; none of the others of this kind may be given */
    TOOL_OUT_FOLDER,    /* const char *: a folder, made if absent */
    TOOL_OUT_CHECKPOINT /* const char *: a file NAME.safetensors, else such a folder */
} tool_option_kind;

enum { TOOL_LIST_MAX = 1024 }; /* a pin for every layer of a large model */

typedef struct tool_list {
    int32_t n;
    const char *items[TOOL_LIST_MAX];
} tool_list;

#define TOOL_TYPE_FLAG bool
#define TOOL_TYPE_STRING const char *
#define TOOL_TYPE_WORD const char *
#define TOOL_TYPE_INT int64_t
#define TOOL_TYPE_COUNT int32_t
#define TOOL_TYPE_BYTES int64_t
#define TOOL_TYPE_REAL double
#define TOOL_TYPE_LIST tool_list
#define TOOL_TYPE_OUT const char *
#define TOOL_TYPE_OUT_LIST tool_list
#define TOOL_TYPE_NO_WRITES bool
#define TOOL_TYPE_OUT_FOLDER const char *
#define TOOL_TYPE_OUT_CHECKPOINT const char *

/* What the command line says; NULL and 0 mean "not given". No `backend`: no programs are run.
 * Fields stand in the order of the rows. */
typedef struct tool_source { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    const char *model;
    bool unrecorded; /* steps are not recorded: launches cost more where a machine says so */
    bool any_dims;   /* a plan may be for other dims: the command shows no prices */
    bool any_target; /* a plan may be for another target than that of the backend */
    bool any_stages; /* a plan may have stages */
    const struct tool_smaller *smaller; /* of tool_job_create alone: instead of what a plan says */
    dtp_evaluation_kind evaluation;     /* the forward pass alone (dtp_job_options) */
/* clang-format off */
#define OPTION(field, kind, ...) TOOL_TYPE_##kind field;
#include "tools/options.def"            /* clang-format on */
} tool_source;

typedef enum tool_command_id {
#define COMMAND(id, ...) TOOL_##id,
#include "tools/options.def"
    TOOL_N_COMMANDS
} tool_command_id;

typedef enum tool_group { EVERYDAY, QUESTIONS, EXPERTS, TOOL_N_GROUPS } tool_group;

enum { TOOL_MAX_OPERANDS = 4, TOOL_EXAMPLES = 2 };

typedef struct tool_command {
    const char *tool, *name, *operands; /* "dtplan", "export", "MODEL PLAN --as FORM" */
    int32_t min_operands, max_operands; /* at most TOOL_MAX_OPERANDS */
    tool_group group;
    const char *summary, *examples[TOOL_EXAMPLES];
} tool_command;
extern const tool_command tool_commands[TOOL_N_COMMANDS];

/* A row without commands begins a section: its name is "", its help the heading. */
typedef struct tool_option {
    const char *name; /* "--mesh"; NULL ends the table */
    const char *arg;  /* placeholder in the help, NULL for flags */
    double min, max;
    const char *standard; /* the default; NULL: none, or that of a struct that is the command's */
    const char *help;
    size_t offset;
    uint32_t commands; /* 1 << id of those that have it; modes of planning, LOCAL, COMMON behind */
    tool_option_kind kind;
    bool own; /* of the struct that is the command's, not of tool_source */
} tool_option;
extern const tool_option tool_options[];

bool tool_has_option(tool_command_id command, const tool_option *option);
/* The modes of planning that an option is for, bit by bit; 0: all. */
uint32_t tool_modes(const tool_option *option);
/* Whether ranks of one job may have different values of an option. */
bool tool_is_local(const tool_option *option);
/* Whether it stands first in the help of a command that has many. */
bool tool_is_common(const tool_option *option);
/* Whether the row begins a section. */
bool tool_is_section(const tool_option *option);
/* Whether an option is for a mode of planning. */
bool tool_is_of_mode(const tool_option *option, dtp_planning_mode mode);
/* "--mode rules", "--mode tensor", "plans that follow --style and --pin". */
const char *tool_mode_name(dtp_planning_mode mode);
/* Whether an option takes no value. */
bool tool_option_is_flag(const tool_option *option);
/* The option that n characters name, as on the command line; NULL: the command has none. */
const tool_option *tool_option_find(tool_command_id command, const char *name, size_t n);

/* For the message on an unknown name: `text` becomes "; did you mean '--mesh'?" when a candidate is
 * near. */
typedef struct tool_hint {
    const char *name;
    int32_t best;
    char text[96];
} tool_hint;
tool_hint tool_hint_begin(const char *name);
void tool_hint_note(tool_hint *hint, const char *candidate);
/* Among the options of a command; "--machin=x" is without its value. */
tool_hint tool_hint_option(tool_command_id command, const char *name);

/* "dtplan plan MODEL [options]". */
typedef struct tool_text {
    char text[128];
} tool_text;
tool_text tool_usage(tool_command_id command);

#endif
