/* Whether all sizes of a program follow those of its inputs. */
#include "importers/program/axes/size_check.h"

#include <inttypes.h>
#include <string.h>

#include "importers/aten/sym_expr.h"

typedef struct trial {
    const dtp_axes *x;
    int64_t *sizes; /* by class; 0: not known */
} trial;

/* Axis `at` of all inputs counts the symbols: the n-th one is the n-th prime times as long as in
 * the file. */
static int64_t size_of(const trial *t, const char *symbol)
{
    static const int64_t primes[] = {2, 3, 5, 7, 11, 13, 17, 19};
    const dtp_aten *g = t->x->g;
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_inputs; i++) {
        const dtp_aten_value *v = &g->values[g->inputs[i]];
        for (int32_t a = 0; a < v->rank && v->role == ATEN_INPUT; a++) {
            if (v->symbols[a] != NULL && strcmp(v->symbols[a], symbol) == 0) {
                return v->sizes[a] * primes[n % 8];
            }
            n += v->symbols[a] != NULL ? 1 : 0;
        }
    }
    return -1;
}

static bool symbol_of(void *user, const char *name, double *value, const char **text)
{
    const int64_t size = size_of(user, name);
    *value = (double)size;
    *text = name;
    return size >= 0;
}

/* Classes of the axes of inputs; those of an axis of several are not known. */
static void try_inputs(trial *t)
{
    const dtp_axes *x = t->x;
    int32_t cls[DTP_FLAT_PARTS];
    for (int32_t i = 0; i < x->g->n_inputs; i++) {
        const int32_t v = x->g->inputs[i];
        for (int32_t a = 0; a < x->g->values[v].rank; a++) {
            const char *symbol =
                x->g->values[v].role == ATEN_INPUT ? x->g->values[v].symbols[a] : NULL;
            const int32_t n =
                symbol == NULL ? 0 : dtp_axis_leaves(x, 1, &x->of[v][a], cls, DTP_FLAT_PARTS);
            for (int32_t k = 0; k < n; k++) {
                t->sizes[cls[k]] = n == 1 ? size_of(t, symbol) : 0;
            }
        }
    }
    for (int32_t c = 0; c < x->n; c++) { /* so many more than another */
        const int32_t base =
            x->cls[c].base < 0 || x->cls[c].parent != c ? -1 : dtp_class_root(x, x->cls[c].base);
        if (base >= 0 && x->cls[base].size + x->cls[c].more == x->cls[c].size) {
            t->sizes[c] = t->sizes[base] == 0 ? 0 : t->sizes[base] + x->cls[c].more;
        }
    }
}

/* Elements of an axis; 0: not known. */
static int64_t tried(const trial *t, int32_t value, int32_t axis)
{
    int32_t cls[DTP_FLAT_PARTS];
    int64_t size = 1;
    const int32_t n = dtp_axis_leaves(t->x, 1, &t->x->of[value][axis], cls, DTP_FLAT_PARTS);
    for (int32_t k = 0; k < n; k++) {
        size *= t->sizes[cls[k]];
    }
    return n < 0 ? 0 : size;
}

static dtp_status check_value(trial *t, const dtp_aten_node *node, int32_t value, dtp_err *err)
{
    const dtp_aten *g = t->x->g;
    const dtp_aten_value *v = &g->values[value];
    for (int32_t a = 0; a < v->rank; a++) {
        const int64_t size = tried(t, value, a);
        const char *text;
        double wanted;
        if (v->sympy[a] == NULL || size == 0) {
            continue;
        }
        if (!dtp_sym_expr(v->sympy[a], g->arena, symbol_of, t, &wanted, &text) ||
            wanted != (double)size) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "%s: %s in '%s' (%s): axis %d of '%s' has %" PRId64
                            " elements here, '%.200s' for other sizes of inputs: not supported",
                            g->file, node->op, node->path, node->where, a, v->name, v->sizes[a],
                            v->sympy[a]);
        }
    }
    return DTP_OK;
}

dtp_status dtp_axes_check_sizes(const dtp_axes *x, dtp_err *err)
{
    trial t = {.x = x};
    DTP_TRY(DTP_NEW(x->arena, t.sizes, x->n + 1, err));
    for (int32_t c = 0; c < x->n; c++) {
        t.sizes[c] = x->cls[c].size;
    }
    try_inputs(&t);
    for (int32_t i = 0; i < x->g->n_nodes; i++) {
        const dtp_aten_node *node = &x->g->nodes[i];
        for (int32_t k = 0; k < node->n_outs && node->live; k++) {
            DTP_TRY(node->outs[k] < 0 ? DTP_OK : check_value(&t, node, node->outs[k], err));
        }
        for (int32_t k = 0; k < node->n_args && node->live; k++) {
            for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
                const int32_t v = node->args[k].values[j];
                DTP_TRY(v < 0 ? DTP_OK : check_value(&t, node, v, err));
            }
        }
    }
    return DTP_OK;
}
