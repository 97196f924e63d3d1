/* The rows of tools/options.def: commands and options as tables. */
#include "tools/option_rows.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/text.h"
#include "dtp/op.h"
#include "executor/verify/verify.h"
#include "importers/hf/folder.h"
#include "interop/redistribute_torch.h"
#include "planner/reports/explain.h"
#include "planner/reports/sensitivity.h"
#include "planner/solver/solve.h"

#define COMMAND(id, tool, function, name, operands, least, most, group, summary, first, second)    \
    [TOOL_##id] = {#tool, name, operands, least, most, group, summary, {first, second}},
const tool_command tool_commands[TOOL_N_COMMANDS] = {
#include "tools/options.def"
};

enum {
#define COMMAND(id, ...) id = 1 << TOOL_##id,
#include "tools/options.def"
    RULES = 1 << (TOOL_N_COMMANDS + DTP_PLAN_RULES),
    TENSOR = 1 << (TOOL_N_COMMANDS + DTP_PLAN_TENSOR),
    PINS = 1 << (TOOL_N_COMMANDS + DTP_PLAN_PINS),
    MODES = RULES | TENSOR | PINS,
    LOCAL = 1 << (TOOL_N_COMMANDS + DTP_PLAN_PINS + 1),
    COMMON = LOCAL << 1
};

#define ROW(place, field, kind, name, arg, min, max, standard, commands, help, own)                \
    {name, arg, min, max, standard, help, offsetof(place, field), commands, TOOL_##kind, own},
#define OPTION(field, kind, name, arg, min, max, standard, commands, help)                         \
    ROW(tool_source, field, kind, name, arg, min, max, standard, commands, help, false)
#define AGAIN(field, kind, name, arg, min, max, standard, commands, help)                          \
    ROW(tool_source, field, kind, name, arg, min, max, standard, commands, help, false)
#define OWN(place, field, kind, name, arg, min, max, standard, commands, help)                     \
    ROW(place, field, kind, name, arg, min, max, standard, commands, help, true)
#define SECTION(heading) {.name = "", .help = (heading)},
const tool_option tool_options[] = {
#include "tools/options.def"
    {.name = NULL},
};

#define OWN(place, field, kind, ...)                                                               \
    _Static_assert(sizeof(((place *)NULL)->field) == sizeof(TOOL_TYPE_##kind), #place "." #field);
#include "tools/options.def"

tool_hint tool_hint_begin(const char *name)
{
    const size_t third = (strlen(name + strspn(name, "-")) + 1) / 3;
    return (tool_hint){.name = name, .best = third > 3 ? 4 : third > 1 ? (int32_t)third + 1 : 2};
}

void tool_hint_note(tool_hint *hint, const char *candidate)
{
    const size_t n = strlen(hint->name);
    const bool begins =
        n > strspn(hint->name, "-") + 2 && strncasecmp(hint->name, candidate, n) == 0;
    const int32_t d = begins ? 1 : dtp_name_distance(hint->name, candidate, hint->best);
    if (d < hint->best) {
        hint->best = d;
        (void)snprintf(hint->text, sizeof hint->text, "; did you mean '%.60s'?", candidate);
    }
}

bool tool_has_option(tool_command_id command, const tool_option *option)
{
    return (option->commands >> command & 1) != 0;
}

uint32_t tool_modes(const tool_option *option)
{
    return (option->commands & MODES) >> TOOL_N_COMMANDS;
}

bool tool_is_local(const tool_option *option)
{
    return (option->commands & LOCAL) != 0;
}

bool tool_is_common(const tool_option *option)
{
    return (option->commands & COMMON) != 0;
}

bool tool_is_section(const tool_option *option)
{
    return option->name[0] == '\0';
}

bool tool_is_of_mode(const tool_option *option, dtp_planning_mode mode)
{
    const uint32_t modes = tool_modes(option);
    return modes == 0 || (modes >> mode & 1) != 0;
}

const char *tool_mode_name(dtp_planning_mode mode)
{
    static const char *const names[] = {"--mode rules", "--mode tensor",
                                        "plans that follow --style and --pin"};
    return names[mode];
}

bool tool_option_is_flag(const tool_option *option)
{
    return option->kind == TOOL_FLAG || option->kind == TOOL_NO_WRITES;
}

const tool_option *tool_option_find(tool_command_id command, const char *name, size_t n)
{
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_has_option(command, o) && strlen(o->name) == n && strncmp(o->name, name, n) == 0) {
            return o;
        }
    }
    return NULL;
}

tool_hint tool_hint_option(tool_command_id command, const char *name)
{
    char alone[64];
    (void)snprintf(alone, sizeof alone, "%.*s", (int)strcspn(name, "="), name);
    tool_hint hint = tool_hint_begin(alone);
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_has_option(command, o)) {
            tool_hint_note(&hint, o->name);
        }
    }
    hint.name = name;
    return hint;
}

tool_text tool_usage(tool_command_id command)
{
    const tool_command *c = &tool_commands[command];
    tool_text t;
    (void)snprintf(t.text, sizeof t.text, "%s %s%s%s [options]", c->tool, c->name,
                   c->operands[0] != '\0' ? " " : "", c->operands);
    return t;
}
