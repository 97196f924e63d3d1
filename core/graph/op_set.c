/* Sets of ops: search by name; registered ops are checked and copied into an arena. */
#include "core/graph/op_set.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

enum { MAX_NAME = 48, MAX_ATTRS = 24 };

dtp_status dtp_op_set_create(const dtp_op_set *base, dtp_op_set **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, base, out));
    dtp_arena *arena = dtp_arena_create();
    dtp_op_set *set = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *set);
    if (set == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a set of ops");
    }
    *set = (dtp_op_set){.base = base, .arena = arena};
    *out = set;
    return DTP_OK;
}

void dtp_op_set_destroy(dtp_op_set *set)
{
    if (set != NULL) {
        dtp_arena_destroy(set->arena);
    }
}

int32_t dtp_op_set_count(const dtp_op_set *set)
{
    int32_t n = 0;
    for (int32_t i = 0; i < set->n_lists; i++) {
        for (const dtp_op_def *op = set->lists[i]; op->name != NULL; op++) {
            n++;
        }
    }
    return n;
}

const dtp_op_def *dtp_op_set_at(const dtp_op_set *set, int32_t index)
{
    for (int32_t i = 0; i < set->n_lists && index >= 0; i++) {
        for (const dtp_op_def *op = set->lists[i]; op->name != NULL; op++) {
            if (index-- == 0) {
                return op;
            }
        }
    }
    return NULL;
}

const dtp_op_def *dtp_op_set_find(const dtp_op_set *set, const char *name)
{
    for (; set != NULL; set = set->base) {
        for (int32_t i = 0; i < set->n_lists; i++) {
            for (const dtp_op_def *op = set->lists[i]; op->name != NULL; op++) {
                if (op->name[0] == name[0] && strcmp(op->name, name) == 0) {
                    return op;
                }
            }
        }
    }
    return NULL;
}

/* ---- checks ---- */

static bool is_legal_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    static const char others[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    if (name == NULL || name[0] == '\0' || strchr(letters, name[0]) == NULL) {
        return false;
    }
    const size_t n = strspn(name, others);
    return n == strlen(name) && n <= MAX_NAME;
}

/* Counts of operands and outputs, hooks, flags. */
static dtp_status check_fields(const dtp_op_def *def, dtp_err *err)
{
    if (def->min_in < 0 || def->min_in > def->max_in || def->max_in > DTP_MAX_OP_IN) {
        return DTP_FAIL(err, DTP_INVALID, "%d to %d operands; the limits are 0 and %d", def->min_in,
                        def->max_in, DTP_MAX_OP_IN);
    }
    if (def->n_out < 1 || def->n_out > DTP_MAX_OP_OUT) {
        return DTP_FAIL(err, DTP_INVALID, "%d outputs; the limits are 1 and %d", def->n_out,
                        DTP_MAX_OP_OUT);
    }
    for (int32_t i = 0; i < DTP_MAX_OP_OUT; i++) {
        const int32_t operand = def->inplace_in[i];
        if (operand < 0 || operand > def->max_in || (operand > 0 && i >= def->n_out)) {
            return DTP_FAIL(err, DTP_INVALID, "inplace_in[%d] is %d; 0 or an operand plus 1", i,
                            operand);
        }
    }
    const uint32_t known = DTP_OP_INTERNAL_USE | DTP_OP_RANDOM | DTP_OP_ELEMENTWISE |
                           DTP_OP_UPDATE | DTP_OP_RENAMES | DTP_OP_WHOLE_OPERAND | DTP_OP_OPAQUE |
                           DTP_OP_CHECKS_DATA;
    if (def->infer == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "the hook 'infer' is missing");
    }
    if (def->vjp == NULL && def->no_grad == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "neither a hook 'vjp' nor a reason 'no_grad'");
    }
    if ((def->flags & ~known) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "unknown flags 0x%x", def->flags & ~known);
    }
    if ((def->flags & DTP_OP_OPAQUE) != 0 && def->rules == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "an opaque op needs the hook 'rules'");
    }
    if (def->rates != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "'rates' is '%.80s'; a registered op has its own",
                        def->rates);
    }
    if (def->linear < DTP_LINEAR_NONE || def->linear > DTP_LINEAR_JOINT) {
        return DTP_FAIL(err, DTP_INVALID, "unknown linearity %d", (int)def->linear);
    }
    return DTP_OK;
}

static dtp_status check_out_names(const dtp_op_def *def, dtp_err *err)
{
    for (int32_t i = 0; i + 1 < def->n_out; i++) {
        if (def->out_names == NULL || !is_legal_name(def->out_names[i])) {
            return DTP_FAIL(err, DTP_INVALID, "output %d has no legal name in 'out_names'", i + 1);
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(def->out_names[k], def->out_names[i]) == 0) {
                return DTP_FAIL(err, DTP_INVALID, "two outputs are called '%s'", def->out_names[i]);
            }
        }
    }
    return DTP_OK;
}

static int32_t count_attrs(const dtp_op_def *def)
{
    int32_t n = 0;
    while (def->attrs != NULL && def->attrs[n].key != NULL) {
        n++;
    }
    return n;
}

static dtp_status check_attrs(const dtp_op_def *def, dtp_err *err)
{
    static const char *const taken[] = {"id", "op", "in", "out"};
    const int32_t n = count_attrs(def);
    bool stream = false;
    if (n > MAX_ATTRS) {
        return DTP_FAIL(err, DTP_INVALID, "%d attributes; the limit is %d", n, MAX_ATTRS);
    }
    for (int32_t i = 0; i < n; i++) {
        const dtp_attr_spec *spec = &def->attrs[i];
        bool is_taken = false;
        for (size_t k = 0; k < sizeof taken / sizeof taken[0]; k++) {
            is_taken = is_taken || strcmp(spec->key, taken[k]) == 0;
        }
        for (int32_t k = 0; k < i; k++) {
            is_taken = is_taken || strcmp(spec->key, def->attrs[k].key) == 0;
        }
        if (!is_legal_name(spec->key) || is_taken) {
            return DTP_FAIL(err, DTP_INVALID, "attribute '%.80s': the key is %s", spec->key,
                            is_taken ? "taken" : "not a legal name");
        }
        if (spec->kind < DTP_ATTR_INT || spec->kind > DTP_ATTR_INTS) {
            return DTP_FAIL(err, DTP_INVALID, "attribute '%s': unknown kind %d", spec->key,
                            (int)spec->kind);
        }
        if (spec->kind == DTP_ATTR_ENUM && (spec->choices == NULL || spec->choices[0] == NULL)) {
            return DTP_FAIL(err, DTP_INVALID, "attribute '%s' has no choices", spec->key);
        }
        stream = stream || (spec->hidden && strcmp(spec->key, "stream") == 0);
    }
    if ((def->flags & DTP_OP_RANDOM) != 0 && !stream) {
        return DTP_FAIL(err, DTP_INVALID, "a random op needs a hidden attribute 'stream'");
    }
    return DTP_OK;
}

/* ---- copies ---- */

static dtp_status copy_text(dtp_arena *arena, const char **text, dtp_err *err)
{
    if (*text != NULL) {
        *text = dtp_arena_strdup(arena, *text);
        DTP_TRY(DTP_MEMORY(err, *text));
    }
    return DTP_OK;
}

/* A list of n texts with a NULL behind. */
static dtp_status copy_list(dtp_arena *arena, int32_t n, const char *const **list, dtp_err *err)
{
    const char **copy;
    DTP_TRY(DTP_NEW(arena, copy, n + 1, err));
    for (int32_t i = 0; i < n; i++) {
        copy[i] = (*list)[i];
        DTP_TRY(copy_text(arena, &copy[i], err));
    }
    *list = copy;
    return DTP_OK;
}

static dtp_status copy_row(dtp_arena *arena, const dtp_op_def *def, dtp_op_def **out, dtp_err *err)
{
    dtp_op_def *copy;
    DTP_TRY(DTP_NEW(arena, copy, 2, err)); /* the second one ends the list */
    *copy = *def;
    copy->summary = copy->summary != NULL ? copy->summary : "";
    DTP_TRY(copy_text(arena, &copy->name, err));
    DTP_TRY(copy_text(arena, &copy->summary, err));
    DTP_TRY(copy_text(arena, &copy->no_grad, err));
    DTP_TRY(copy_text(arena, &copy->mtf_class, err));
    for (int32_t i = 0; i < DTP_MAX_OP_BENCH; i++) {
        DTP_TRY(copy_text(arena, &copy->bench[i], err));
    }
    const int32_t n = count_attrs(def);
    dtp_attr_spec *attrs;
    DTP_TRY(DTP_NEW(arena, attrs, n + 1, err));
    for (int32_t i = 0; i < n; i++) {
        int32_t choices = 0;
        attrs[i] = def->attrs[i];
        DTP_TRY(copy_text(arena, &attrs[i].key, err));
        while (attrs[i].choices != NULL && attrs[i].choices[choices] != NULL) {
            choices++;
        }
        if (attrs[i].choices != NULL) {
            DTP_TRY(copy_list(arena, choices, &attrs[i].choices, err));
        }
    }
    copy->attrs = attrs;
    if (def->n_out > 1) {
        DTP_TRY(copy_list(arena, def->n_out - 1, &copy->out_names, err));
    }
    *out = copy;
    return DTP_OK;
}

dtp_status dtp_op_register(dtp_op_set *set, const dtp_op_def *def, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, set, def));
    dtp_op_def *copy;
    if (!is_legal_name(def->name)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "op '%.80s': a name has 1 to %d characters, lower-case letters, digits and "
                        "_, a letter first",
                        def->name == NULL ? "" : def->name, MAX_NAME);
    }
    if (dtp_op_set_find(set, def->name) != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "op '%s': the name is taken by %s", def->name,
                        dtp_op_set_find(set->base, def->name) != NULL ? "a built-in op"
                                                                      : "a registered op");
    }
    dtp_status s = check_fields(def, err);
    s = s == DTP_OK ? check_out_names(def, err) : s;
    s = s == DTP_OK ? check_attrs(def, err) : s;
    DTP_TRY(dtp_err_prefixed(s, err, "op '%s'", def->name));
    DTP_TRY(copy_row(set->arena, def, &copy, err));
    const dtp_op_def **lists =
        dtp_arena_alloc(set->arena, (size_t)set->n_lists + 1, sizeof(const dtp_op_def *));
    DTP_TRY(DTP_MEMORY(err, lists));
    for (int32_t i = 0; i < set->n_lists; i++) {
        lists[i] = set->lists[i];
    }
    lists[set->n_lists++] = copy;
    set->lists = lists;
    return DTP_OK;
}

/* The op of the set and its bases that is nearest to `name`, those of the bases first; *best is
 * the distance, and the limit at the start. */
static const dtp_op_def *nearest_op(const dtp_op_set *set, const char *name, int32_t *best)
{
    if (set == NULL) {
        return NULL;
    }
    const dtp_op_def *op, *nearest = nearest_op(set->base, name, best);
    for (int32_t i = 0; (op = dtp_op_set_at(set, i)) != NULL; i++) {
        const int32_t d = (op->flags & DTP_OP_INTERNAL_USE) == 0
                              ? dtp_name_distance(name, op->name, *best)
                              : *best;
        if (d < *best) {
            *best = d;
            nearest = op;
        }
    }
    return nearest;
}

void dtp_op_hint(const dtp_op_set *set, const char *name, char out[DTP_OP_HINT_BYTES])
{
    int32_t best = 4;
    const dtp_op_def *nearest = nearest_op(set, name, &best);
    if (nearest != NULL) {
        (void)snprintf(out, DTP_OP_HINT_BYTES, "; did you mean '%.60s'?", nearest->name);
    } else {
        (void)snprintf(out, DTP_OP_HINT_BYTES, " (docs/ops.md lists them)");
    }
}

bool dtp_op_same(const dtp_op_def *a, const dtp_op_def *b)
{
    return strcmp(a->name, b->name) == 0;
}
