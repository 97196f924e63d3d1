/* Rules for the arguments of an op: what a row of a table says of each, so that none is dropped. */
#include "importers/aten/arg_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORD = 64 };

/* Where and how a tensor lies: no value of it depends on these. */
static bool lies(const char *name)
{
    static const char *const names[] = {"device",     "layout",       "memory_format",
                                        "pin_memory", "non_blocking", NULL};
    bool does = false;
    for (int32_t i = 0; names[i] != NULL && !does; i++) {
        does = strcmp(names[i], name) == 0;
    }
    return does;
}

/* The word of the rule for an argument, without its name, in `word`; false: it has none. */
static bool word_of(const char *rule, const char *name, char *word)
{
    const size_t n = strlen(name);
    for (; *rule != '\0'; rule += strspn(rule, " ")) {
        const size_t len = strcspn(rule, " ");
        if (len < MOST_WORD && len > n && strncmp(rule, name, n) == 0 &&
            (rule[n] == ':' || rule[n] == '=')) {
            memcpy(word, rule + n, len - n);
            word[len - n] = '\0';
            return true;
        }
        rule += len;
    }
    return false;
}

static bool is_kind(const dtp_aten_arg *a, const char *kinds)
{
    static const char *const of[] = {[ATEN_VALUE] = "t", [ATEN_VALUES] = "l",   [ATEN_INT] = "ni",
                                     [ATEN_FLOAT] = "n", [ATEN_BOOLEAN] = "nb", [ATEN_TEXT] = "x",
                                     [ATEN_INTS] = "s",  [ATEN_REALS] = "",     [ATEN_OTHER] = ""};
    return a->kind == ATEN_NONE || strpbrk(of[a->kind], kinds) != NULL;
}

/* Numbers of an argument; 0: it has none. */
static int32_t numbers(const dtp_aten_arg *a)
{
    switch (a->kind) {
    case ATEN_INT:
    case ATEN_FLOAT:
    case ATEN_BOOLEAN:
        return 1;
    case ATEN_INTS:
    case ATEN_REALS:
        return a->n;
    default:
        return 0;
    }
}

static double number(const dtp_aten_arg *a, int32_t i)
{
    return a->kind == ATEN_REALS   ? a->reals[i]
           : a->kind == ATEN_FLOAT ? a->real
                                   : (double)a->ints[i];
}

/* Whether the argument has one value, of a rule. */
static bool is_value(const dtp_aten *g, const dtp_aten_node *node, const dtp_aten_arg *a,
                     const char *value)
{
    const int32_t n = numbers(a);
    char *end;
    const double x = strtod(value, &end);
    if (strcmp(value, "any") == 0) {
        return true;
    }
    if (strcmp(value, "same") == 0) {
        const int32_t first = dtp_aten_input(node, 0);
        return a->kind == ATEN_INT && first >= 0 && g->values[first].dtype == a->ints[0];
    }
    if (a->kind == ATEN_TEXT) {
        return strcmp(value, a->text) == 0;
    }
    const bool whole = strcmp(value, "whole") == 0;
    bool all = (n > 0 || a->kind == ATEN_INTS) && (whole || *end == '\0');
    for (int32_t i = 0; i < n && all; i++) {
        all = whole ? number(a, i) == trunc(number(a, i)) : number(a, i) == x;
    }
    return all;
}

static bool is_one_of(const dtp_aten *g, const dtp_aten_node *node, const dtp_aten_arg *a,
                      char *values)
{
    for (char *next; values != NULL; values = next) {
        next = strchr(values, '|');
        if (next != NULL) {
            *next++ = '\0';
        }
        if (is_value(g, node, a, values)) {
            return true;
        }
    }
    return false;
}

/* "5", "'tanh'", "a tensor" */
static const char *shown(const dtp_aten *g, const dtp_aten_arg *a)
{
    switch (a->kind) {
    case ATEN_VALUE:
        return "a tensor";
    case ATEN_VALUES:
        return "a list of tensors";
    case ATEN_TEXT:
        return dtp_arena_printf(g->arena, "'%.40s'", a->text);
    case ATEN_OTHER:
        return "of a kind that is not read";
    default:
        return numbers(a) == 0 ? "an empty list"
                               : dtp_arena_printf(g->arena, "%s%.9g%s",
                                                  a->kind == ATEN_BOOLEAN ? "the truth "
                                                  : numbers(a) > 1        ? "("
                                                                          : "",
                                                  number(a, 0), numbers(a) > 1 ? ", ..)" : "");
    }
}

static const char *said(const dtp_aten *g, const dtp_aten_arg *a, const char *word)
{
    const char *value = shown(g, a);
    const char *text =
        value == NULL  ? NULL
        : word == NULL ? dtp_arena_printf(g->arena, "argument '%.60s' is %s, and is not supported",
                                          a->name, value)
        : strcmp(word, ":e") == 0
            ? dtp_arena_printf(
                  g->arena,
                  "argument '%.60s' is %s, a number made of sizes that may change, and "
                  "is not supported",
                  a->name, value)
        : word[0] == ':'
            ? dtp_arena_printf(g->arena, "argument '%.60s' is %s: no such kind is supported",
                               a->name, value)
            : dtp_arena_printf(g->arena, "argument '%.60s' is %s, and only %s is supported",
                               a->name, value, word + 1);
    return text == NULL ? "" : text;
}

const char *dtp_arg_refused(const dtp_aten *g, const dtp_aten_node *node, const char *rule)
{
    char word[MOST_WORD], whole[MOST_WORD];
    for (int32_t i = 0; i < node->n_args; i++) {
        const dtp_aten_arg *a = &node->args[i];
        if (a->kind == ATEN_NONE || lies(a->name)) {
            continue;
        }
        if (!word_of(rule, a->name, word)) {
            return said(g, a, NULL);
        }
        if (a->sympy != NULL && strcmp(word, "=any") != 0 &&
            (word[0] != ':' || strchr(word, 'e') == NULL)) {
            return said(g, a, ":e");
        }
        memcpy(whole, word, sizeof whole);
        if (!(word[0] == ':' ? is_kind(a, word + 1) : is_one_of(g, node, a, word + 1))) {
            return said(g, a, whole);
        }
    }
    return NULL;
}
