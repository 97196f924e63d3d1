/* What planning may try of recomputation (`--remat auto`). */
#include "planner/remat_choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/glob.h"
#include "core/base/strbuf.h"
#include "core/base/text.h"
#include "cost_models/price.h"

/* Nodes of a block that have the same name but for the number of the instance. */
typedef struct remat_class {
    char glob[DTP_GLOB_BYTES];
    double bytes, seconds; /* of their results; to make these again */
    int32_t order;
} remat_class;

/* Bytes of the results of a node that are made again. */
static double again_bytes(const dtp_graph *g, const dtp_node *node, const bool *again)
{
    double bytes = 0.0;
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_ttype *type = &g->tensors[node->out[i]].type;
        bytes += again[node->out[i]]
                     ? (double)dtp_ttype_elems(type) * (double)dtp_dtype_bytes(type->dtype)
                     : 0.0;
    }
    return bytes;
}

static double seconds_of(const dtp_graph *g, const dtp_node *node, const dtp_machine *machine,
                         const dtp_target *target)
{
    dtp_call_types types;
    dtp_work work;
    const dtp_op_call call = dtp_node_call(g, node, &types);
    dtp_target_work(target, &call, &work);
    return dtp_price_work(machine, node->op, dtp_product_arithmetic(dtp_call_dtype(&call), false),
                          &work);
}

/* A glob for the name in every instance; false when there is none. */
static bool glob_of(const char *name, char out[DTP_GLOB_BYTES])
{
    char general[DTP_GLOB_BYTES];
    dtp_general_name(name, general, sizeof general);
    return strpbrk(name, "*?{},;$ ") == NULL &&
           snprintf(out, DTP_GLOB_BYTES, "%s$", general) < DTP_GLOB_BYTES &&
           strlen(name) < sizeof general;
}

static int by_gain(const void *a, const void *b)
{
    const remat_class *x = a, *y = b;
    const double left = x->seconds * y->bytes, right = y->seconds * x->bytes;
    return left != right ? (left > right ? -1 : 1) : x->order - y->order;
}

/* The classes of what a block makes again, those that take longest per byte first. */
static dtp_status find_classes(const dtp_graph *g, const dtp_remat *block,
                               const dtp_machine *machine, const dtp_target *target,
                               dtp_arena *arena, int32_t *n, remat_class **out, dtp_err *err)
{
    const bool *again = NULL;
    int32_t capacity = 0;
    DTP_TRY(dtp_remat_again(g, block, arena, &again, err));
    *n = 0;
    *out = NULL;
    for (dtp_node_id i = 0; i < g->n_nodes; i++) {
        const dtp_node *node = &g->nodes[i];
        const double bytes = node->phase == DTP_FORWARD ? again_bytes(g, node, again) : 0.0;
        char glob[DTP_GLOB_BYTES];
        if (!(bytes > 0.0) || !glob_of(node->name, glob)) {
            continue;
        }
        int32_t k = *n - 1;
        while (k >= 0 && strcmp((*out)[k].glob, glob) != 0) {
            k--;
        }
        if (k < 0) {
            k = (*n)++;
            DTP_TRY(dtp_arena_grow(arena, out, k, *n, &capacity, sizeof **out, err));
            (*out)[k] = (remat_class){.order = k};
            memcpy((*out)[k].glob, glob, sizeof glob);
        }
        (*out)[k].bytes += bytes;
        (*out)[k].seconds += seconds_of(g, node, machine, target);
    }
    if (*n > 0) {
        qsort(*out, (size_t)*n, sizeof **out, by_gain);
    }
    return DTP_OK;
}

/* What the names have in common up to a dot, "layers.*.". */
static size_t common_part(int32_t n, const remat_class *classes)
{
    size_t same = 0, dotted = 0;
    for (;; same++) {
        const char c = classes[0].glob[same];
        for (int32_t i = 0; i < n; i++) {
            if (c == '\0' || classes[i].glob[same] != c) {
                return dotted;
            }
        }
        dotted = c == '.' ? same + 1 : dotted;
    }
}

/* "layer keep=layers.*.{attn,mlp.up}$" of the first so many classes, or one glob for each where
 * that would be too long. */
static dtp_status add_selection(const char *block, int32_t n, const remat_class *classes,
                                dtp_arena *arena, dtp_remat *out, dtp_err *err)
{
    const size_t common = common_part(n, classes);
    dtp_strbuf one = {0}, many = {0};
    dtp_strbuf_addf(&one, "%.*s{", (int)common, classes[0].glob);
    for (int32_t i = 0; i < n; i++) {
        const char *glob = classes[i].glob, *comma = i > 0 ? "," : "";
        dtp_strbuf_addf(&one, "%s%.*s", comma, (int)(strlen(glob) - common - 1), glob + common);
        dtp_strbuf_addf(&many, "%s%s", comma, glob);
    }
    dtp_strbuf_add(&one, "}$");
    const bool fits = n > 1 && strlen(dtp_strbuf_text(&one)) < DTP_GLOB_BYTES;
    const bool failed = one.failed || many.failed;
    const char **item = dtp_arena_alloc(arena, 1, sizeof *item);
    if (item != NULL) {
        *item = failed ? NULL
                       : dtp_arena_printf(arena, "%s keep=%s", block,
                                          dtp_strbuf_text(fits ? &one : &many));
    }
    dtp_strbuf_free(&one);
    dtp_strbuf_free(&many);
    DTP_TRY(DTP_MEMORY(err, item));
    DTP_TRY(DTP_MEMORY(err, *item));
    *out = (dtp_remat){.n = 1, .items = item};
    return DTP_OK;
}

static dtp_status add_selections(const dtp_graph *g, const dtp_remat *block,
                                 const dtp_machine *machine, const dtp_target *target,
                                 dtp_arena *arena, int32_t *n, dtp_remat *list, dtp_err *err)
{
    remat_class *classes = NULL;
    int32_t n_classes = 0, last = 0;
    double all = 0.0;
    DTP_TRY(find_classes(g, block, machine, target, arena, &n_classes, &classes, err));
    for (int32_t i = 0; i < n_classes; i++) {
        all += classes[i].bytes;
    }
    for (int32_t share = DTP_REMAT_SELECTIONS; share > 0; share--) {
        const double most = all * share / (DTP_REMAT_SELECTIONS + 1.0);
        double sum = 0.0;
        int32_t k = 0;
        while (k < n_classes && sum + classes[k].bytes <= most) {
            sum += classes[k++].bytes;
        }
        if (k > 0 && k != last) {
            DTP_TRY(add_selection(block->items[0], k, classes, arena, &list[(*n)++], err));
        }
        last = k;
    }
    return DTP_OK;
}

dtp_status dtp_remat_choices(const dtp_graph *g, const dtp_machine *machine,
                             const dtp_target *target, dtp_arena *arena, int32_t *n,
                             dtp_remat **out, dtp_err *err)
{
    dtp_remat *plain = NULL, *list;
    int32_t n_plain = 0;
    DTP_TRY(dtp_remat_variants(g, arena, &n_plain, &plain, err));
    DTP_TRY(DTP_NEW(arena, list, (size_t)n_plain * (DTP_REMAT_SELECTIONS + 1), err));
    *n = 0;
    for (int32_t i = 0; i < n_plain; i++) {
        if (plain[i].n == 1) {
            DTP_TRY(add_selections(g, &plain[i], machine, target, arena, n, list, err));
        }
        list[(*n)++] = plain[i];
    }
    *out = list;
    return DTP_OK;
}
