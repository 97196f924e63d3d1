/* What people read of the rows of tools/options.def: help, manual pages, completion, a document. */
#include "tools/help.h"

#include <ctype.h>
#include <string.h>

#include "core/base/status.h"
#include "core/base/strbuf.h"
#include "dtp/version.h"
#include "tools/look.h"
#include "tools/report.h"

enum { COLUMN = 25, EXAMPLE_COLUMNS = 76, PAGE_COLUMNS = 120, MANY = 20 };

static const char *const group_names[TOOL_N_GROUPS] = {"everyday", "questions to a plan",
                                                       "experts"};

static bool is_of(const char *program, int32_t command)
{
    return strcmp(tool_commands[command].tool, program) == 0;
}

/* What stands first of an operand text, without options that are needed. */
static int operand_length(const tool_command *c)
{
    const char *option = c->operands[0] == '-' ? c->operands : strstr(c->operands, " -");
    return option != NULL ? (int)(option - c->operands) : (int)strlen(c->operands);
}

/* ---- help ---- */

/* "what it is (default 6) (--mode tensor)"; modes are those of commands that plan. */
static void add_meaning(const tool_option *o, bool plans, dtp_strbuf *out)
{
    const char *between = " (";
    dtp_strbuf_add(out, o->help);
    if (o->standard != NULL) {
        dtp_strbuf_addf(out, " (default %s)", o->standard);
    }
    for (int32_t m = 0; plans && m <= (int32_t)DTP_PLAN_PINS; m++) {
        if (tool_is_of_mode(o, (dtp_planning_mode)m)) {
            dtp_strbuf_addf(out, "%s%s", between, tool_mode_name((dtp_planning_mode)m));
            between = ", ";
        }
    }
    dtp_strbuf_add(out, plans ? ")" : "");
}

/* Whether a command plans, and an option is for some modes alone. */
static bool has_modes(tool_command_id command, const tool_option *o)
{
    return (command == TOOL_PLAN || command == TOOL_PARETO) && tool_modes(o) != 0;
}

/* "rules tensor". */
static void add_words(const char *list, dtp_strbuf *out)
{
    for (; *list != '\0'; list++) {
        dtp_strbuf_addf(out, "%c", *list == '|' ? ' ' : *list);
    }
}

static void add_option(tool_command_id command, const tool_option *o, dtp_strbuf *out)
{
    const char *arg = o->arg != NULL ? o->arg : "";
    const int left = COLUMN - 1 - (int)strlen(o->name);
    const bool wide = (int)strlen(arg) > left; /* a list of words */
    dtp_strbuf_addf(out, "  %s %-*s  ", o->name, left, wide ? "WORD" : arg);
    add_words(wide ? arg : "", out);
    dtp_strbuf_add(out, wide ? ": " : "");
    add_meaning(o, has_modes(command, o), out);
    dtp_strbuf_add(out, "\n");
}

/* A command line, broken for a shell before an option. */
static void add_example(const char *line, dtp_strbuf *out)
{
    size_t n = strlen(line);
    while (n > EXAMPLE_COLUMNS || (line[n] != '\0' && strncmp(line + n, " -", 2) != 0)) {
        n--;
    }
    dtp_strbuf_addf(out, "  %.*s", (int)n, line);
    if (line[n] != '\0') {
        dtp_strbuf_addf(out, " \\\n     %s", line + n);
    }
    dtp_strbuf_add(out, "\n");
}

/* Many options stand in sections, those that are used most first. */
dtp_status tool_help_command(tool_command_id command, dtp_err *err)
{
    dtp_strbuf out = {0};
    int32_t n = 0;
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        n += tool_has_option(command, o) ? 1 : 0;
    }
    const bool many = n > MANY;
    dtp_strbuf_addf(&out, "usage: %s\n\n%s", tool_usage(command).text, many ? "used most:\n" : "");
    for (int32_t pass = many ? 0 : 1; pass < 2; pass++) {
        const char *heading = NULL;
        for (const tool_option *o = tool_options; o->name != NULL; o++) {
            heading = tool_is_section(o) ? o->help : heading;
            if (!tool_has_option(command, o) || (many && tool_is_common(o) != (pass == 0))) {
                continue;
            }
            if (many && pass == 1 && heading != NULL) {
                dtp_strbuf_addf(&out, "\n%s:\n", heading);
                heading = NULL;
            }
            add_option(command, o, &out);
        }
    }
    dtp_strbuf_add(&out, "\nexamples:\n");
    for (int32_t i = 0; i < (int32_t)TOOL_EXAMPLES; i++) {
        add_example(tool_commands[command].examples[i], &out);
    }
    return tool_show(stdout, &out, err);
}

static void add_commands(const char *program, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "usage: %s COMMAND [options]\n", program);
    for (int32_t group = 0; group < (int32_t)TOOL_N_GROUPS; group++) {
        dtp_strbuf_addf(out, "\n%s:\n", group_names[group]);
        for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
            const tool_command *c = &tool_commands[i];
            if (is_of(program, i) && (int32_t)c->group == group) {
                dtp_strbuf_addf(out, "  %-12s  %-15.*s  %s\n", c->name, operand_length(c),
                                c->operands, c->summary);
            }
        }
    }
    dtp_strbuf_addf(out, "\n'%s COMMAND --help' lists the options of a command.\n", program);
}

/* ---- manual pages ---- */

/* Text for roff. */
static void add_roff(const char *text, dtp_strbuf *out)
{
    dtp_strbuf_add(out, *text == '.' || *text == '\'' ? "\\&" : "");
    for (; *text != '\0'; text++) {
        dtp_strbuf_addf(out, *text == '-' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

static void add_man(const char *program, int32_t command, dtp_strbuf *out)
{
    const tool_command *c = &tool_commands[command];
    dtp_strbuf_addf(out, ".TH %s-%s 1 \"\" \"%s\"\n.SH NAME\n%s-%s \\- %s\n.SH SYNOPSIS\n", program,
                    c->name, dtp_version(), program, c->name, c->summary);
    add_roff(tool_usage((tool_command_id)command).text, out);
    dtp_strbuf_add(out, "\n.SH OPTIONS\n");
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_has_option((tool_command_id)command, o)) {
            dtp_strbuf meaning = {0};
            dtp_strbuf_add(out, ".TP\n.B ");
            add_roff(o->name, out);
            dtp_strbuf_addf(out, "%s%s\n", o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
            add_meaning(o, has_modes((tool_command_id)command, o), &meaning);
            add_roff(dtp_strbuf_text(&meaning), out);
            dtp_strbuf_add(out, "\n");
            out->failed = out->failed || meaning.failed;
            dtp_strbuf_free(&meaning);
        }
    }
    dtp_strbuf_add(out, ".SH EXAMPLES\n.nf\n");
    for (int32_t i = 0; i < (int32_t)TOOL_EXAMPLES; i++) {
        add_roff(c->examples[i], out);
        dtp_strbuf_add(out, "\n");
    }
    dtp_strbuf_addf(out, ".fi\n.SH SEE ALSO\n.BR %s (1)\n", program);
}

static void add_man_of_tool(const char *program, dtp_strbuf *out)
{
    dtp_strbuf_addf(out,
                    ".TH %s 1 \"\" \"%s\"\n.SH NAME\n%s \\- commands\n.SH SYNOPSIS\n%s COMMAND "
                    "[options]\n.SH COMMANDS\n",
                    program, dtp_version(), program, program);
    for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
        if (is_of(program, i)) {
            dtp_strbuf_addf(out, ".TP\n.BR %s\\-%s (1)\n%s\n", program, tool_commands[i].name,
                            tool_commands[i].summary);
        }
    }
}

/* ---- completion and the document ---- */

/* For bash: commands, then options of the command or words of an option, else names of files. */
static void add_completion(const char *program, dtp_strbuf *out)
{
    dtp_strbuf_addf(out,
                    "_%s() {\n    local cur=${COMP_WORDS[COMP_CWORD]} words=\n    case "
                    "$COMP_CWORD:${COMP_WORDS[1]}:${COMP_WORDS[COMP_CWORD-1]}:$cur in\n    1:*) "
                    "words=\"help",
                    program);
    for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
        dtp_strbuf_addf(out, is_of(program, i) ? " %s" : "", tool_commands[i].name);
    }
    dtp_strbuf_add(out, "\" ;;\n");
    for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
        dtp_strbuf names = {0};
        for (const tool_option *o = tool_options; is_of(program, i) && o->name != NULL; o++) {
            if (!tool_has_option((tool_command_id)i, o)) {
                continue;
            }
            dtp_strbuf_addf(&names, " %s", o->name);
            if (o->kind == TOOL_WORD) {
                dtp_strbuf_addf(out, "    *:%s:%s:*) words=\"", tool_commands[i].name, o->name);
                add_words(o->arg, out);
                dtp_strbuf_add(out, "\" ;;\n");
            }
        }
        if (is_of(program, i)) {
            dtp_strbuf_addf(out, "    *:%s:*:-*) words=\"--help%s\" ;;\n", tool_commands[i].name,
                            dtp_strbuf_text(&names));
        }
        out->failed = out->failed || names.failed;
        dtp_strbuf_free(&names);
    }
    dtp_strbuf_addf(out,
                    "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete "
                    "-o default -F _%s %s\n",
                    program, program);
}

/* "plan, show" of the commands that have an option. */
static void add_owners(const tool_option *o, dtp_strbuf *out)
{
    const char *tool = "";
    for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
        const tool_command *c = &tool_commands[i];
        if (tool_has_option((tool_command_id)i, o)) {
            const bool other = strcmp(tool, c->tool) != 0;
            dtp_strbuf_addf(out, "%s%s%s%s", *tool == '\0' ? "" : ", ", other ? c->tool : "",
                            other ? " " : "", c->name);
            tool = c->tool;
        }
    }
}

static void add_markdown(dtp_strbuf *out)
{
    dtp_strbuf_add(out,
                   "# Commands and options\n\nThis page is what `dtplan help --markdown` says, "
                   "from tools/options.def. `--help`, manual pages (`man dtplan-plan`) and\n"
                   "completion in bash say the same. In a suite ([regress.md](regress.md)) the "
                   "key of an option is its name without `--` and\nwith `_` for `-`: "
                   "`\"limit_s\": 10`.\n\n## Commands\n");
    for (int32_t i = 0; i < (int32_t)TOOL_N_COMMANDS; i++) {
        const tool_command *c = &tool_commands[i];
        dtp_strbuf_addf(out, "%s- `%s`: %s.\n", i == 0 || !is_of(c[-1].tool, i) ? "\n" : "",
                        tool_usage((tool_command_id)i).text, c->summary);
    }
    dtp_strbuf_add(out, "\n## Options\n\n");
    for (const tool_option *o = tool_options; o->name != NULL; o++) {
        if (tool_is_section(o)) {
            dtp_strbuf_addf(out, "%s### %c%s\n\n", o > tool_options ? "\n" : "",
                            toupper((unsigned char)o->help[0]), o->help + 1);
            continue;
        }
        dtp_strbuf_addf(out, "- `%s%s%s` of ", o->name, o->arg != NULL ? " " : "",
                        o->arg != NULL ? o->arg : "");
        add_owners(o, out);
        dtp_strbuf_add(out, ": ");
        dtp_strbuf meaning = {0};
        add_meaning(o, tool_modes(o) != 0, &meaning);
        for (const char *at = dtp_strbuf_text(&meaning); *at != '\0'; at++) {
            dtp_strbuf_addf(out, *at == '*' ? "\\%c" : "%c", *at);
        }
        dtp_strbuf_add(out, ".\n");
        out->failed = out->failed || meaning.failed;
        dtp_strbuf_free(&meaning);
    }
    dtp_strbuf_wrap(out, 0, PAGE_COLUMNS);
}

dtp_status tool_help(const char *program, FILE *file, int argc, char **argv, dtp_err *err)
{
    dtp_strbuf out = {0};
    const char *what = argc > 2 ? argv[2] : NULL, *name = argc > 3 ? argv[3] : what;
    tool_hint hint = tool_hint_begin(name != NULL ? name : "");
    int32_t command = -1;
    for (int32_t i = 0; name != NULL && i < (int32_t)TOOL_N_COMMANDS; i++) {
        if (is_of(program, i)) {
            command = strcmp(tool_commands[i].name, name) == 0 ? i : command;
            tool_hint_note(&hint, tool_commands[i].name);
        }
    }
    if (what == NULL) {
        add_commands(program, &out);
        return tool_show(file, &out, err);
    }
    const bool man = strcmp(what, "--man") == 0;
    if (argc == 3 && command >= 0) {
        return tool_help_command((tool_command_id)command, err);
    }
    if (argc == 4 && man && command >= 0) {
        add_man(program, command, &out);
    } else if (argc == 3 && man) {
        add_man_of_tool(program, &out);
    } else if (argc == 3 && strcmp(what, "--completion") == 0) {
        add_completion(program, &out);
    } else if (argc == 3 && strcmp(what, "--markdown") == 0) {
        add_markdown(&out);
    } else {
        return DTP_FAIL(err, DTP_INVALID, "help: unknown command '%s'%s", name, hint.text);
    }
    const dtp_status s = tool_put(&out, err);
    dtp_strbuf_free(&out);
    return s;
}
